//! What the whole machine is short of: TCP memory, and tables near their limits (orphans, tracked connections,
//! TIME-WAIT); segments that are retransmitted.

use serde_json::Value;
use tcptoll_core::number;

use super::{evidence, rounded};
use crate::watch::state::State;
use tcptoll_core::finding::{Finding, Remedy, Severity};

pub(super) const PRESSURE: &str = "memory-pressure";
pub(super) const ORPHANS: &str = "orphans-near-limit";

const PRESSURE_SUBJECT: &str = "net.ipv4.tcp_mem";
const ORPHANS_SUBJECT: &str = "net.ipv4.tcp_max_orphans";
/// Near a limit: above four fifths of it.
const NEAR: f64 = 0.8;

/// TCP uses more memory than the second figure of `tcp_mem`, or connections were closed for want of it.
pub(super) fn pressure(state: &State) -> Vec<Finding> {
    let (used, limits) = (state.counted.memory_bytes, &state.limits);
    let over = |limit: Option<u64>| used.zip(limit).filter(|(used, limit)| used > limit);
    let refused = over(limits.memory_max_bytes);
    let pressed = over(limits.memory_pressure_bytes);
    // The kernel closes connections of too many orphans with the same counter.
    let too_many =
        state.counted.orphans.zip(limits.max_orphans).is_some_and(|(now, max)| now >= max);
    let aborted = state.rates.as_ref().map(|rates| rates.aborted_for_memory_per_s);
    let aborts =
        aborted.filter(|rate| *rate > 0.0 && !too_many && (refused.is_some() || pressed.is_some()));
    let text = match (aborts, refused.or(pressed)) {
        (Some(rate), _) => {
            format!("{} connections/s closed for lack of TCP memory", number::three(rate))
        }
        (None, Some((used, limit))) => format!(
            "{} of TCP memory in use, above {}: {}",
            number::bytes(used as f64),
            number::bytes(limit as f64),
            if refused.is_some() {
                "the kernel refuses more"
            } else {
                "the kernel keeps buffers small"
            }
        ),
        (None, None) => return Vec::new(),
    };
    let evidence = evidence([
        ("memory_bytes", used.map(Value::from)),
        ("memory_pressure_bytes", limits.memory_pressure_bytes.map(Value::from)),
        ("memory_max_bytes", limits.memory_max_bytes.map(Value::from)),
        ("aborted_for_memory_per_s", aborted.map(rounded)),
    ]);
    let fix = Remedy::named(PRESSURE, "sockets");
    vec![Finding {
        id: PRESSURE.into(),
        severity: Severity::harming(aborts.is_some() || refused.is_some()),
        subject: PRESSURE_SUBJECT.into(),
        text,
        evidence,
        remedies: vec![fix],
    }]
}

/// Connections without a process near `tcp_max_orphans`: beyond it the kernel resets them.
pub(super) fn orphans(state: &State) -> Vec<Finding> {
    let limit = state.limits.max_orphans.filter(|limit| *limit > 0);
    let Some((orphans, limit)) = state.counted.orphans.zip(limit) else { return Vec::new() };
    if orphans as f64 <= NEAR * limit as f64 {
        return Vec::new();
    }
    let harms = orphans >= limit;
    let text = format!(
        "{} of {} orphaned connections{}",
        number::count(orphans),
        number::count(limit),
        if harms { ": the kernel resets further ones" } else { ": the limit is near" }
    );
    let aborted = state.rates.as_ref().map(|rates| rounded(rates.aborted_for_memory_per_s));
    let evidence = evidence([
        ("orphans", Some(orphans.into())),
        ("tcp_max_orphans", Some(limit.into())),
        ("aborted_for_memory_per_s", aborted),
    ]);
    let fix =
        Remedy::named(ORPHANS, "raise").with("TO", limit.saturating_mul(2)).with("FROM", limit);
    vec![Finding {
        id: ORPHANS.into(),
        severity: Severity::harming(harms),
        subject: ORPHANS_SUBJECT.into(),
        text,
        evidence,
        remedies: vec![fix],
    }]
}

pub(crate) const TRACKED: &str = "conntrack-near-full";
pub(super) const TIME_WAIT: &str = "time-wait-overflow";

pub(crate) const TRACKED_SUBJECT: &str = "net.netfilter.nf_conntrack_max";
const TIME_WAIT_SUBJECT: &str = "net.ipv4.tcp_max_tw_buckets";

/// The table of tracked connections is nearly full: beyond it packets of new connections are dropped.
pub(super) fn tracked(state: &State) -> Vec<Finding> {
    let limit = state.limits.tracked_max.filter(|limit| *limit > 0);
    let Some((tracked, limit)) = state.counted.tracked.zip(limit) else { return Vec::new() };
    let share = tracked as f64 / limit as f64;
    let drops = state.rates.as_ref().map_or(0.0, |rates| rates.tracking_drops_per_s);
    if share <= NEAR && drops <= 0.0 {
        return Vec::new();
    }
    let full = tracked >= limit || drops > 0.0;
    let mut text = format!(
        "{:.0} % of the connection tracking table in use: {} of {}{}",
        (100.0 * share).floor(),
        number::count(tracked),
        number::count(limit),
        if full { "; new connections are dropped" } else { "" }
    );
    if drops > 0.0 {
        let (used, room) = (number::count(tracked), number::count(limit));
        text = format!(
            "{} packets/s dropped by connection tracking; {used} of {room} entries are in use now",
            number::three(drops)
        );
    }
    let evidence = evidence([
        ("nf_conntrack_count", Some(tracked.into())),
        ("nf_conntrack_max", Some(limit.into())),
        ("drops_per_s", (drops > 0.0).then(|| rounded(drops))),
    ]);
    let fix =
        Remedy::named(TRACKED, "table").with("TO", limit.saturating_mul(2)).with("FROM", limit);
    vec![Finding {
        id: TRACKED.into(),
        severity: Severity::harming(full),
        subject: TRACKED_SUBJECT.into(),
        text,
        evidence,
        remedies: vec![fix],
    }]
}

/// Connections ended without TIME-WAIT because there were `tcp_max_tw_buckets` of them.
pub(super) fn time_wait(state: &State) -> Vec<Finding> {
    let rate = state.rates.as_ref().map_or(0.0, |rates| rates.time_wait_overflows_per_s);
    if rate <= 0.0 {
        return Vec::new();
    }
    let limit = state.limits.max_tw_buckets.filter(|limit| *limit > 0);
    let text = match limit {
        Some(limit) => format!(
            "{} connections/s end without TIME-WAIT: tcp_max_tw_buckets is {}",
            number::three(rate),
            number::count(limit)
        ),
        None => format!(
            "{} connections/s end without TIME-WAIT: their table is full",
            number::three(rate)
        ),
    };
    let evidence = evidence([
        ("time_wait_overflows_per_s", Some(rounded(rate))),
        ("time_wait", state.counted.time_wait.map(Value::from)),
        ("tcp_max_tw_buckets", limit.map(Value::from)),
    ]);
    let fix = limit.map(|limit| {
        Remedy::named(TIME_WAIT, "raise").with("TO", limit.saturating_mul(2)).with("FROM", limit)
    });
    vec![Finding {
        id: TIME_WAIT.into(),
        severity: Severity::Warning,
        subject: TIME_WAIT_SUBJECT.into(),
        text,
        evidence,
        remedies: fix.into_iter().collect(),
    }]
}

pub(super) const RETRANSMISSIONS: &str = "retransmissions";
const PATHS: &str = "paths of this host";

/// Retransmissions of the last seconds below which no share is stated: 1 of 3 is no alarm. With 50 counted
/// the share is known to about ±28 % (95 %, of a Poisson count).
const COUNT_MIN: u64 = 50;
/// A share that is named. By Mathis' formula CUBIC and Reno get at most 1.22 / √0.02 = 8.6 segments a round
/// trip.
const SHARE_MIN: f64 = 0.02;
/// A client whose last ACK was dropped repeats its data this often within some seconds: after 0.2, 0.4, 0.8, 1.6 and 3.2 s.
const REPEATS: f64 = 5.0;
/// A share that harms whatever runs: less than 5.5 segments a round trip.
const SHARE_HARMS: f64 = 0.05;

/// A share of the segments is retransmitted.
pub(super) fn retransmissions(state: &State) -> Vec<Finding> {
    let Some(seen) = state.segments else { return Vec::new() };
    let all = seen.sent.saturating_add(seen.retransmitted);
    if seen.retransmitted < COUNT_MIN {
        return Vec::new();
    }
    let share = seen.retransmitted as f64 / all as f64;
    if share < SHARE_MIN {
        return Vec::new();
    }
    // A connection whose last ACK met a full queue is open for its client, which repeats its data.
    let overflows_per_s =
        state.rates.as_ref().map(|rates| rates.overflows_per_s).filter(|per_s| *per_s > 0.0);
    // Those that met the queue are no fault of a path.
    let met = |per_s: f64| per_s * seen.over_s * REPEATS >= seen.retransmitted as f64;
    if overflows_per_s.is_some_and(met) {
        return Vec::new();
    }
    let perhaps =
        if overflows_per_s.is_some() { "; some may have met a full accept queue" } else { "" };
    let text = format!(
        "{} of the segments retransmitted: {} of {} in {:.0} s{perhaps}",
        number::percent(share),
        number::count(seen.retransmitted),
        number::count(all),
        seen.over_s
    );
    let syns = state.rates.as_ref().map(|rates| rounded(rates.syns_retransmitted_per_s));
    let evidence = evidence([
        ("retransmitted", Some(seen.retransmitted.into())),
        ("segments", Some(all.into())),
        ("over_s", Some(rounded(seen.over_s))),
        ("share", Some(rounded(share))),
        ("syns_retransmitted_per_s", syns),
        ("accept_queue_overflows_per_s", overflows_per_s.map(rounded)),
    ]);
    vec![Finding {
        id: RETRANSMISSIONS.into(),
        severity: Severity::harming(share >= SHARE_HARMS),
        subject: PATHS.into(),
        text,
        evidence,
        // The path loses them; no setting of this host does.
        remedies: Vec::new(),
    }]
}
