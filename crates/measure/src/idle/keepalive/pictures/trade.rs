//! What does it cost to know of a death sooner? Measured arms, and a computed curve per mechanism.

use tcptoll_core::record::Arm;
use tcptoll_core::tcp::checking::{Mechanism, Path, Point};

use super::notes::who;
use super::{detection_s, keepalive, packets_per_hour, traded, traffic};
use tcptoll_show::number;
use tcptoll_show::run::Run;

/// Parts of a line between two points of a curve; more than a curve of thirty points needs.
const STEPS: u32 = 12;

/// An arm of the trade that has a place on logarithmic axes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traded<'a> {
    /// Its place among the arms.
    pub(super) at: usize,
    /// The arm.
    pub(super) arm: &'a Arm,
    /// How it checked.
    pub(super) mechanism: Mechanism,
    /// Packets for an hour and one healthy connection; above 0.
    pub(super) packets_per_hour: f64,
    /// Whether these are computed, because no measured figure can be had.
    pub(super) computed: bool,
    /// Least, middle and greatest time until a death was known, s; above 0.
    pub(super) known_s: [f64; 3],
}

/// The computed curve of a mechanism.
#[derive(Clone, Debug)]
pub(super) struct Curve {
    /// Which.
    pub(super) mechanism: Mechanism,
    /// Place among the arms of the first that checked so.
    pub(super) at: usize,
    /// From the most packets and the shortest time on.
    pub(super) points: Vec<Point>,
}

impl Curve {
    /// Packets per hour and seconds along the curve, so close that what lies outside of a picture
    /// can be left out. Between two points the line is straight in logarithms.
    pub(super) fn line(&self) -> impl Iterator<Item = (f64, f64)> {
        self.points.windows(2).flat_map(|pair| {
            (0..=STEPS).map(move |step| {
                let share = f64::from(step) / f64::from(STEPS);
                let between = |a: f64, b: f64| a.powf(1.0 - share) * b.powf(share);
                (
                    between(pair[0].packets_per_hour, pair[1].packets_per_hour),
                    between(pair[0].detect_s, pair[1].detect_s),
                )
            })
        })
    }
}

/// What is known sooner for more packets: arms, and a curve for each of their mechanisms.
#[derive(Clone, Debug)]
pub(super) struct Trade<'a> {
    /// Arms that have a place in the picture.
    pub(super) drawn: Vec<Traded<'a>>,
    /// Whether others have none.
    pub(super) left_out: bool,
    /// Of arms without a place, why; of others, whether their packets are computed.
    pub(super) remarks: Vec<String>,
    /// Computed.
    pub(super) curves: Vec<Curve>,
    /// The path that these are for: that of the settings, where a time was to be kept.
    path: Path,
}

impl Trade<'_> {
    /// What the curves rest on, in words; `None` where there are none.
    pub(super) fn basis(&self) -> Option<String> {
        let words = format!(
            "computed for settings that wrongly close a live connection at most once in a million \
             checks, with {} loss in each direction",
            number::plain_percent(self.path.loss)
        );
        (!self.curves.is_empty()).then_some(words)
    }
}

/// The trade, where two mechanisms at least have deaths that were known.
pub(super) fn trade(summary: &Run) -> Option<Trade<'_>> {
    let known: Vec<(usize, &Arm)> =
        summary.arms.iter().enumerate().filter(|(_, arm)| traded(arm)).collect();
    let mut mechanisms: Vec<(Mechanism, usize)> =
        known.iter().filter_map(|(at, arm)| Some((mechanism(arm)?, *at))).collect();
    mechanisms.sort();
    mechanisms.dedup_by_key(|(mechanism, _)| *mechanism);
    if mechanisms.len() < 2 {
        return None;
    }
    let path = known.iter().find_map(|(_, arm)| keepalive(arm)?.assumed).unwrap_or(Path::ASSUMED);
    let curve = |(mechanism, at)| {
        let points = tcptoll_core::tcp::checking::curve(mechanism, path);
        (points.len() > 1).then_some(Curve { mechanism, at, points })
    };
    let drawn: Vec<Traded<'_>> = known.iter().filter_map(|(at, arm)| place(*at, arm)).collect();
    Some(Trade {
        left_out: drawn.len() < known.len(),
        remarks: remarks(&known),
        curves: mechanisms.into_iter().filter_map(curve).collect(),
        path,
        drawn,
    })
}

/// Where an arm stands; nothing at or below 0 has a place on a logarithmic axis.
fn place(at: usize, arm: &Arm) -> Option<Traded<'_>> {
    let measured = packets_per_hour(arm).filter(|packets| *packets > 0.0);
    let packets_per_hour = measured.or_else(|| computed(arm)).filter(|packets| *packets > 0.0)?;
    let [least, middle, most] = detection_s(arm);
    let known_s = [least.filter(|s| *s > 0.0)?, middle?, most?];
    let mechanism = mechanism(arm)?;
    Some(Traded { at, arm, mechanism, packets_per_hour, computed: measured.is_none(), known_s })
}

fn mechanism(arm: &Arm) -> Option<Mechanism> {
    keepalive(arm).map(|keepalive| keepalive.checking.mechanism)
}

fn computed(arm: &Arm) -> Option<f64> {
    keepalive(arm)?.computed_packets_per_hour()
}

/// What is to be said of arms that are not simply a point of what was measured; what several share
/// is said once.
fn remarks(known: &[(usize, &Arm)]) -> Vec<String> {
    let mut said: Vec<(&str, Vec<&str>)> = Vec::new();
    for (at, arm) in known {
        let Some(text) = remark(*at, arm) else { continue };
        match said.iter_mut().find(|(known, _)| *known == text) {
            Some((_, names)) => names.push(&arm.name),
            None => said.push((text, vec![&arm.name])),
        }
    }
    said.into_iter().map(|(text, names)| format!("{}: {text}.", who(&names))).collect()
}

fn remark(at: usize, arm: &Arm) -> Option<&'static str> {
    let idle = computed(arm) == Some(0.0);
    Some(match place(at, arm) {
        Some(traded) if !traded.computed => return None,
        Some(_) if keepalive(arm).and_then(traffic).is_some() => {
            "packets are computed, because the window was shorter than the time between two checks"
        }
        Some(_) => "packets are computed, because none were counted",
        None if idle && mechanism(arm) == Some(Mechanism::Lazy) => {
            "costs no packets and detects only when room is needed; not drawn"
        }
        None if idle => "costs no packets; not drawn",
        None => "not drawn, because packets or detection time are unknown",
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use tcptoll_core::record::Summary;

    use tcptoll_core::record::{Deaths, Keepalive, Metric};
    use tcptoll_core::stats::HistogramSummary;
    use tcptoll_core::tcp::checking::Checking;
    use tcptoll_core::tcp::wire::Traffic;

    use super::*;
    use crate::experiments::REPORTS;

    fn arm(mechanism: Mechanism, idle_s: Option<f64>, measured: Option<f64>) -> Arm {
        let known = HistogramSummary {
            count: 2,
            min: Some(1e6),
            p50: Some(2e6),
            max: Some(3e6),
            ..HistogramSummary::default()
        };
        let metric = |value| Metric { value, unit: "1/h".into(), ci95: None, median: None, n: 1 };
        Arm {
            name: mechanism.name().into(),
            metrics: measured
                .map(|value| (super::super::PACKETS.name.to_owned(), metric(value)))
                .into_iter()
                .collect(),
            histograms: BTreeMap::from([(super::super::DETECTION.name.to_owned(), known)]),
            own: Keepalive {
                checking: Checking {
                    mechanism,
                    idle_s,
                    interval_s: Some(1.0),
                    ..Checking::default()
                },
                probes: Some(Traffic { packets: 12, bytes: 624 }),
                window_s: 5.0,
                idle_sockets: 100,
                deaths: Some(Deaths { fault: "cut".into(), known: 2, ..Deaths::default() }),
                ..Keepalive::default()
            }
            .into(),
            ..Arm::default()
        }
    }

    fn of_arms(arms: Vec<Arm>) -> Run {
        REPORTS.cleaned(Summary { arms, ..Summary::default() })
    }

    #[test]
    fn a_window_shorter_than_the_time_between_two_checks_gives_no_packets_of_an_hour() {
        let summary = of_arms(vec![
            arm(Mechanism::Tcp, Some(20.0), None),
            arm(Mechanism::Heartbeat, Some(10.0), Some(700.0)),
        ]);
        assert_eq!(packets_per_hour(&summary.arms[0]), None);
        let trade = trade(&summary).unwrap();
        let drawn: Vec<(f64, bool)> =
            trade.drawn.iter().map(|arm| (arm.packets_per_hour, arm.computed)).collect();
        // Two packets every 20 s.
        assert_eq!(drawn, [(360.0, true), (700.0, false)]);
        assert_eq!(
            trade.remarks,
            [
                "tcp: packets are computed, because the window was shorter than the time between two \
              checks."
            ]
        );
        assert!(!trade.left_out);
    }

    #[test]
    fn what_sends_nothing_has_no_place_and_is_not_forgotten() {
        let summary = of_arms(vec![
            arm(Mechanism::Tcp, Some(1.0), Some(7_200.0)),
            arm(Mechanism::Lazy, None, Some(0.0)),
        ]);
        let trade = trade(&summary).unwrap();
        assert_eq!((trade.drawn.len(), trade.left_out), (1, true));
        assert_eq!(
            trade.remarks,
            ["lazy: costs no packets and detects only when room is needed; not drawn."]
        );
    }

    #[test]
    fn a_curve_is_followed_through_all_of_its_points() {
        let points = tcptoll_core::tcp::checking::curve(Mechanism::Tcp, Path::ASSUMED);
        let curve = Curve { mechanism: Mechanism::Tcp, at: 0, points };
        for point in &curve.points {
            let near = |(packets, s): (f64, f64)| {
                (packets / point.packets_per_hour - 1.0).abs() < 1e-9
                    && (s / point.detect_s - 1.0).abs() < 1e-9
            };
            assert!(curve.line().any(near), "{point:?}");
        }
    }
}
