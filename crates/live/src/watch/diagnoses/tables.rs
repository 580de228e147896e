//! Tables of the kernel near their limits: tracked connections, TIME-WAIT.

use serde_json::Value;

use super::{evidence, per_s, rounded, severity, sysctl};
use crate::diagnosis::{Diagnosis, Severity};
use crate::watch::state::State;
use tcptoll_core::units::human_count;

pub(crate) const TRACKED: &str = "conntrack-near-full";
pub(super) const TIME_WAIT: &str = "time-wait-overflow";

pub(crate) const TRACKED_SUBJECT: &str = "net.netfilter.nf_conntrack_max";
const TIME_WAIT_SUBJECT: &str = "net.ipv4.tcp_max_tw_buckets";
/// Near full: above four fifths.
const NEAR: f64 = 0.8;

/// The table of tracked connections is nearly full: beyond it packets of new connections are dropped.
pub(super) fn tracked(state: &State) -> Vec<Diagnosis> {
    let limit = state.limits.tracked_max.filter(|limit| *limit > 0);
    let Some((tracked, limit)) = state.counted.tracked.zip(limit) else { return Vec::new() };
    let share = tracked as f64 / limit as f64;
    if share <= NEAR {
        return Vec::new();
    }
    let full = tracked >= limit;
    let text = format!(
        "{:.0} % of the connection tracking table in use: {} of {}{}",
        (100.0 * share).floor(),
        human_count(tracked),
        human_count(limit),
        if full { "; new connections are dropped" } else { "" }
    );
    let evidence = evidence([
        ("nf_conntrack_count", Some(tracked.into())),
        ("nf_conntrack_max", Some(limit.into())),
    ]);
    let fix = sysctl(
        TRACKED_SUBJECT,
        limit,
        limit.saturating_mul(2),
        "Double the table; or exempt this traffic from tracking (notrack).".to_owned(),
        "New connections are tracked, and not dropped.",
        "An entry takes about 320 bytes. Raise net.netfilter.nf_conntrack_buckets too, or lookups slow down.",
    );
    vec![Diagnosis {
        id: TRACKED.into(),
        severity: severity(full),
        subject: TRACKED_SUBJECT.into(),
        text,
        evidence,
        fix: Some(fix),
    }]
}

/// Connections ended without TIME-WAIT because there were `tcp_max_tw_buckets` of them.
pub(super) fn time_wait(state: &State) -> Vec<Diagnosis> {
    let rate = state.rates.as_ref().map_or(0.0, |rates| rates.time_wait_overflows_per_s);
    if rate <= 0.0 {
        return Vec::new();
    }
    let limit = state.limits.max_tw_buckets.filter(|limit| *limit > 0);
    let text = match limit {
        Some(limit) => format!(
            "{} connections/s end without TIME-WAIT: tcp_max_tw_buckets is {}",
            per_s(rate),
            human_count(limit)
        ),
        None => format!("{} connections/s end without TIME-WAIT: their table is full", per_s(rate)),
    };
    let evidence = evidence([
        ("time_wait_overflows_per_s", Some(rounded(rate))),
        ("time_wait", state.counted.time_wait.map(Value::from)),
        ("tcp_max_tw_buckets", limit.map(Value::from)),
    ]);
    let fix = limit.map(|limit| {
        sysctl(
            TIME_WAIT_SUBJECT,
            limit,
            limit.saturating_mul(2),
            "Raise the limit; or reuse connections, so that fewer end.".to_owned(),
            "Every connection that this host closes first stays in TIME-WAIT for the full 60 s.",
            "A TIME-WAIT takes about 250 bytes, and a local port where this host is the client.",
        )
    });
    vec![Diagnosis {
        id: TIME_WAIT.into(),
        severity: Severity::Warning,
        subject: TIME_WAIT_SUBJECT.into(),
        text,
        evidence,
        fix,
    }]
}
