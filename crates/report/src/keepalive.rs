//! What does a report say of checking idle connections? What it cost, what was known of the dead,
//! and what a shorter time until that is known costs in packets.
//!
//! One list of columns for every form of report, so that they cannot disagree: `columns`. What no
//! column can say stands in `words`; `trade` is what the picture shows.

mod columns;
mod trade;
mod words;

use std::collections::BTreeMap;

use tcptoll_model::checking::Mechanism;
use tcptoll_model::record::{Arm, Deaths, Keepalive, Summary, Traffic};

use crate::{figures, number, requests};

pub(crate) use columns::{
    Column, cost_columns, death_columns, more_deaths, more_traffic, trade_columns, traffic_columns,
};
pub(crate) use trade::{Curve, Trade, Traded, trade, traded};
pub(crate) use words::{Note, notes, setting, settings, to_set};

/// Rate of the connection that writes.
pub(crate) const RATE: &str = "messages_per_s";
/// Packets that checking took.
const PACKETS: &str = "checking_packets_per_hour_per_socket";
/// CPU of the machine, where the load let it be told apart.
const MACHINE: &str = "machine_cpu_us_per_s_per_1000_sockets";
/// From the fault to knowing of it.
pub(crate) const DETECTION: &str = "detection_us";

/// Whether a run is about checking idle connections.
pub(crate) fn any(summary: &Summary) -> bool {
    summary.arms.iter().any(are)
}

/// Whether an arm checked idle connections, or left them alone to compare.
pub(crate) fn are(arm: &Arm) -> bool {
    arm.own.keepalive.is_some()
}

/// Three digits, and no more than a µs of a second has a meaning.
fn figure(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 1e-3 || size == 0.0 => 3,
        size if size >= 1e-4 => 2,
        _ => 1,
    };
    number::significant(value, digits)
}

/// Whether any arm has the CPU of the machine.
pub(crate) fn machine(summary: &Summary) -> bool {
    summary.arms.iter().any(|arm| requests::metric(arm, MACHINE).is_some())
}

fn of(arm: &Arm) -> Option<&Keepalive> {
    arm.own.keepalive.as_ref()
}

/// What died in an arm, where anything was made to.
pub(crate) fn deaths(arm: &Arm) -> Option<&Deaths> {
    of(arm)?.deaths.as_ref()
}

/// How an arm checked.
pub(crate) fn mechanism(arm: &Arm) -> Option<Mechanism> {
    of(arm).map(|keepalive| keepalive.checking.mechanism)
}

/// All that checking sent, where it was counted.
fn traffic(keepalive: &Keepalive) -> Option<Traffic> {
    let kinds =
        [keepalive.probes, keepalive.probe_answers, keepalive.heartbeats, keepalive.heartbeat_acks];
    kinds.into_iter().flatten().reduce(|sum, one| Traffic {
        packets: sum.packets.saturating_add(one.packets),
        bytes: sum.bytes.saturating_add(one.bytes),
    })
}

/// Packets that checking took for an hour and one connection, as measured.
///
/// None: it was not counted, or the window was shorter than the time between two checks. Then the
/// counts of the window say nothing of an hour.
pub(crate) fn packets_per_hour(arm: &Arm) -> Option<f64> {
    requests::metric(arm, PACKETS)
}

/// Seconds from the fault to knowing: least, median (of few the mean), greatest.
pub(crate) fn detection_s(arm: &Arm) -> [Option<f64>; 3] {
    let Some(h) = arm.histograms.get(DETECTION) else { return [None; 3] };
    [h.min, figures::middle(h), h.max].map(|us| us.map(|us| us / 1e6))
}

/// When each dead connection has to be known by arithmetic, timers included, s.
pub(crate) fn due_s(arm: &Arm) -> Option<f64> {
    deaths(arm)?.due_s()
}

/// `ETIMEDOUT (998), ECONNRESET (2)`, most frequent first.
fn counted(counts: &BTreeMap<String, u64>) -> Option<String> {
    let mut counts: Vec<(&String, &u64)> = counts.iter().filter(|(_, n)| **n > 0).collect();
    counts.sort_by(|a, b| b.1.cmp(a.1));
    let words: Vec<String> =
        counts.into_iter().map(|(what, n)| format!("{what} ({})", number::count(*n))).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

/// Expected false alarms: `2.1 [0, 6]`.
fn expected_wrongly(arm: &Arm) -> Option<String> {
    let [least, mean, most] = deaths(arm)?.expected_wrongly?;
    Some(format!("{} [{}, {}]", figure(mean), figure(least), figure(most)))
}
