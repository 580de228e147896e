//! New connections that fill the table of tracked connections before entries expire.

use super::super::Machine;
use super::CONNTRACK_FILLS;
use crate::diagnosis::{Diagnosis, Severity};
use crate::watch::diagnoses::tables::{TRACKED, TRACKED_SUBJECT};
use crate::watch::diagnoses::{evidence, per_s, rounded, sysctl};
use tcptoll_core::units::human_count;

const TIMEOUT: &str = "net.netfilter.nf_conntrack_tcp_timeout_time_wait";

/// A closed connection keeps its entry for the time-out of TIME-WAIT: at a steady rate the table
/// comes to hold rate × time-out entries.
pub(super) fn conntrack_fills(machine: &Machine) -> Vec<Diagnosis> {
    let state = &machine.state;
    // A table that is nearly full has its own diagnosis.
    if state.diagnoses.iter().any(|one| one.id == TRACKED) {
        return Vec::new();
    }
    let most = state.limits.tracked_max.filter(|most| *most > 0);
    let known = (machine.tracked_per_s, state.counted.tracked, most, machine.number(TIMEOUT));
    let (Some(rate), Some(tracked), Some(most), Some(timeout)) = known else { return Vec::new() };
    let comes_to = rate * timeout as f64;
    if !comes_to.is_finite() || comes_to <= most as f64 {
        return Vec::new();
    }
    let fills_s = most.saturating_sub(tracked) as f64 / rate;
    let text = format!(
        "{} new entries/s, kept for {timeout} s each, fill the connection tracking table ({}) in {fills_s:.0} s",
        per_s(rate),
        human_count(most)
    );
    let opens =
        state.rates.as_ref().map(|rates| rates.active_opens_per_s + rates.passive_opens_per_s);
    let evidence = evidence([
        ("tracked_per_s", Some(rounded(rate))),
        ("opens_per_s", opens.map(rounded)),
        ("nf_conntrack_count", Some(tracked.into())),
        ("nf_conntrack_max", Some(most.into())),
        ("nf_conntrack_tcp_timeout_time_wait", Some(timeout.into())),
        ("entries_needed", Some(rounded(comes_to))),
        ("full_in_s", Some(rounded(fills_s))),
    ]);
    let wanted = ((comes_to * 1.5).min(4.0e9) as u64).next_power_of_two();
    let mut fix = sysctl(
        TRACKED_SUBJECT,
        most,
        wanted,
        "Enlarge the table to 1.5 times the entries needed. Or exempt this traffic from tracking (notrack)."
            .to_owned(),
        "The table has room for this rate of connections.",
        "An entry takes about 320 bytes. Raise net.netfilter.nf_conntrack_buckets too, or lookups slow down.",
    );
    fix.commands.push(format!("# or: sysctl -w {TIMEOUT}=30"));
    vec![Diagnosis {
        id: CONNTRACK_FILLS.into(),
        severity: Severity::Warning,
        subject: TRACKED_SUBJECT.into(),
        text,
        evidence,
        fix: Some(fix),
    }]
}
