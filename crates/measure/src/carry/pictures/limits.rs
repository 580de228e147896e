//! What could the arms of a line reach at most? The payload that their link carries, and what the
//! receiver's window allows in a round trip, both as the record has them.

use tcptoll_core::record::{Arm, Transfer, Way};
use tcptoll_core::tcp::throughput;

use super::lines::{Line, Lines, Point};

/// Limits that differ by less are drawn once.
const ALIKE: f64 = 1.15;

/// Limits of rates, bit/s.
#[derive(Clone, Debug, Default)]
pub(super) struct Limits {
    /// What the links carry, each once.
    pub(super) links: Vec<f64>,
    /// Window / RTT over the size, of each line that has one of its own.
    pub(super) windows: Vec<Window>,
}

/// What the window allows in a round trip.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// Round trip of the quiet link, µs.
    pub(super) rtt_us: f64,
    /// Size asked for, bytes; window as the sender saw it, bytes; bit/s.
    pub(super) points: Vec<[f64; 3]>,
}

/// The direction of an arm that its goodput is of.
pub(super) fn way(transfer: &Transfer) -> Option<&Way> {
    transfer.ways().map(|(_, way)| way).max_by_key(|way| way.window_bytes)
}

/// The round trip without load, µs.
pub(super) fn quiet_rtt_us(arm: &Arm) -> Option<f64> {
    let transfer = arm.own.transfer.as_ref()?;
    let rtt = match way(transfer) {
        Some(way) => throughput::quiet_rtt_us(transfer, &way.sender),
        None => transfer.quiet_rtt_us,
    };
    rtt.filter(|us| us.is_finite() && *us > 0.0)
}

/// Payload that the link of an arm carries, bit/s.
pub(super) fn link(arm: &Arm) -> Option<f64> {
    let rate = arm.own.transfer.as_ref()?.link_bytes_per_s? * 8.0;
    (rate.is_finite() && rate > 0.0).then_some(rate)
}

/// The limits of lines; none of times.
pub(super) fn limits(lines: &Lines<'_>) -> Limits {
    let mut limits = Limits::default();
    if !lines.rate {
        return limits;
    }
    for rate in lines.points().filter_map(|point| link(point.arm)) {
        if !limits.links.iter().any(|known| alike(*known, rate)) {
            limits.links.push(rate);
        }
    }
    for line in lines.all.iter().filter(|_| lines.size.receives) {
        let Some(window) = window(line) else { continue };
        let same = |known: &Window| {
            known.points.len() == window.points.len()
                && known.points.iter().zip(&window.points).all(|(a, b)| alike(a[2], b[2]))
        };
        if !limits.windows.iter().any(same) {
            limits.windows.push(window);
        }
    }
    limits
}

fn alike(a: f64, b: f64) -> bool {
    a.max(b) <= a.min(b) * ALIKE
}

/// Window / RTT of a line; `None` with fewer than two points.
fn window(line: &Line<'_>) -> Option<Window> {
    let bound = |(size, point): (f64, &Point<'_>)| {
        let transfer = point.arm.own.transfer.as_ref()?;
        let window = way(transfer)?.sender.peer_window_bytes?;
        let rtt_us = quiet_rtt_us(point.arm)?;
        // Each connection has a window.
        let rate = window * transfer.connections.max(1) as f64 * 8.0 / (rtt_us / 1e6);
        (rate.is_finite() && rate > 0.0).then_some(([size, window, rate], rtt_us))
    };
    let (points, rtts): (Vec<[f64; 3]>, Vec<f64>) = line.sized().filter_map(bound).unzip();
    let rtt_us = rtts.iter().copied().sum::<f64>() / rtts.len() as f64;
    (points.len() > 1).then_some(Window { rtt_us, points })
}
