//! TCP memory and connections without a process, near the limits of the machine.

use serde_json::Value;

use super::{evidence, per_s, rounded, severity, sysctl};
use crate::diagnosis::{Diagnosis, Fix};
use crate::watch::state::State;
use tcptoll_core::units::{human_bytes, human_count};

pub(super) const PRESSURE: &str = "memory-pressure";
pub(super) const ORPHANS: &str = "orphans-near-limit";

const SUBJECT: &str = "net.ipv4.tcp_mem";
const ORPHANS_SUBJECT: &str = "net.ipv4.tcp_max_orphans";
/// Near a limit: above four fifths of it.
const NEAR: f64 = 0.8;

/// TCP uses more memory than the second figure of `tcp_mem`, or connections were closed for want of it.
pub(super) fn pressure(state: &State) -> Vec<Diagnosis> {
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
        (Some(rate), _) => format!("{} connections/s closed for lack of TCP memory", per_s(rate)),
        (None, Some((used, limit))) => format!(
            "{} of TCP memory in use, above {}: {}",
            human_bytes(used as f64),
            human_bytes(limit as f64),
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
    let fix = Fix {
        change: "Find the sockets that hold the memory. Raise net.ipv4.tcp_mem only if the machine has memory to spare."
            .to_owned(),
        commands: vec![
            "ss -tmn".to_owned(),
            "sysctl net.ipv4.tcp_mem".to_owned(),
            "sysctl -w net.ipv4.tcp_mem=\"MIN PRESSURE MAX\"".to_owned(),
        ],
        effect: "Buffers grow again, and windows are no longer limited.".to_owned(),
        risk: "The values are pages of 4 KiB, for the whole machine. Memory that TCP takes is not available to other \
               programs."
            .to_owned(),
        undo: "sysctl -w net.ipv4.tcp_mem=\"…\" with the values that the second command printed.".to_owned(),
    };
    vec![Diagnosis {
        id: PRESSURE.into(),
        severity: severity(aborts.is_some() || refused.is_some()),
        subject: SUBJECT.into(),
        text,
        evidence,
        fix: Some(fix),
    }]
}

/// Connections without a process near `tcp_max_orphans`: beyond it the kernel resets them.
pub(super) fn orphans(state: &State) -> Vec<Diagnosis> {
    let limit = state.limits.max_orphans.filter(|limit| *limit > 0);
    let Some((orphans, limit)) = state.counted.orphans.zip(limit) else { return Vec::new() };
    if orphans as f64 <= NEAR * limit as f64 {
        return Vec::new();
    }
    let harms = orphans >= limit;
    let text = format!(
        "{} of {} orphaned connections{}",
        human_count(orphans),
        human_count(limit),
        if harms { ": the kernel resets further ones" } else { ": the limit is near" }
    );
    let aborted = state.rates.as_ref().map(|rates| rounded(rates.aborted_for_memory_per_s));
    let evidence = evidence([
        ("orphans", Some(orphans.into())),
        ("tcp_max_orphans", Some(limit.into())),
        ("aborted_for_memory_per_s", aborted),
    ]);
    let fix = sysctl(
        ORPHANS_SUBJECT,
        limit,
        limit.saturating_mul(2),
        "Let programs read all data of the peer before they close a connection. Or raise the limit.".to_owned(),
        "Closed connections can still send the data in their buffers.",
        "An orphan may hold up to 64 kB of kernel memory.",
    );
    vec![Diagnosis {
        id: ORPHANS.into(),
        severity: severity(harms),
        subject: ORPHANS_SUBJECT.into(),
        text,
        evidence,
        fix: Some(fix),
    }]
}
