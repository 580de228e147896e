//! What does it cost to know of a death sooner? Measured arms, and a computed curve per mechanism.

use tcptoll_model::keepalive::{Mechanism, Point};
use tcptoll_model::record::{Arm, Deaths, Summary};

use super::{deaths, detection_s, mechanism, packets_per_hour};
use crate::number;

/// Loss that the computed curves are for: probes and repeats are many enough that a live
/// connection is closed once in a million checks.
const CURVE_LOSS: f64 = 0.01;

/// A measured arm of the trade.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traded<'a> {
    /// Its place among the arms.
    pub(crate) at: usize,
    /// The arm.
    pub(crate) arm: &'a Arm,
    /// How it checked.
    pub(crate) mechanism: Mechanism,
    /// Packets for an hour and one healthy connection.
    pub(crate) packets_per_hour: f64,
    /// Least, middle and greatest time until a death was known, s.
    pub(crate) known_s: [f64; 3],
}

/// The computed curve of a mechanism.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    /// Which.
    pub(crate) mechanism: Mechanism,
    /// From the most packets and the shortest time on.
    pub(crate) points: Vec<Point>,
}

/// What is known sooner for more packets: measured arms, and a curve for each of their mechanisms.
#[derive(Clone, Debug)]
pub(crate) struct Trade<'a> {
    /// Arms whose deaths were known and whose packets were counted.
    pub(crate) measured: Vec<Traded<'a>>,
    /// Computed.
    pub(crate) curves: Vec<Curve>,
}

/// The trade, where two mechanisms at least have deaths that were known.
pub(crate) fn trade(summary: &Summary) -> Option<Trade<'_>> {
    let known: Vec<(usize, &Arm)> = summary.arms.iter().enumerate().filter(traded).collect();
    let mut mechanisms: Vec<Mechanism> =
        known.iter().filter_map(|(_, arm)| mechanism(arm)).collect();
    mechanisms.sort();
    mechanisms.dedup();
    if mechanisms.len() < 2 {
        return None;
    }
    let measured = known.iter().filter_map(|(at, arm)| {
        let packets_per_hour = packets_per_hour(arm).filter(|packets| *packets > 0.0)?;
        let [least, middle, most] = detection_s(arm);
        let known_s = [least?, middle?, most?];
        // Nothing at or below 0 has a place on a logarithmic axis.
        (known_s[0] > 0.0).then_some(Traded {
            at: *at,
            arm,
            mechanism: mechanism(arm)?,
            packets_per_hour,
            known_s,
        })
    });
    let curve = |mechanism| {
        let points = tcptoll_model::keepalive::curve(mechanism, CURVE_LOSS);
        (points.len() > 1).then_some(Curve { mechanism, points })
    };
    Some(Trade {
        measured: measured.collect(),
        curves: mechanisms.into_iter().filter_map(curve).collect(),
    })
}

/// Whether an arm is part of the trade: what died there was silent, and known.
///
/// A reset tells by itself, whatever the mechanism.
pub(crate) fn traded((_, arm): &(usize, &Arm)) -> bool {
    let silent = |d: &Deaths| !d.fault.starts_with("reset") && !d.fault.starts_with("close");
    deaths(arm).is_some_and(|d| silent(d) && d.known > 0) && detection_s(arm)[1].is_some()
}

/// What the curves rest on, in words.
pub(crate) fn curve_basis() -> String {
    format!(
        "computed for settings that close a live connection once in a million checks at most, with \
         {} loss each way",
        number::plain_percent(CURVE_LOSS)
    )
}
