//! Local ports towards one destination that run out, or are searched for at a high cost.

use std::net::IpAddr;

use serde_json::Value;

use super::{evidence, rounded};
use crate::watch::state::{DestinationState, State};
use tcptoll_core::finding::{Finding, Remedy, Severity};
use tcptoll_core::number;
use tcptoll_core::units::host_port;

pub(crate) const SCARCE: &str = "local-ports-scarce";
pub(crate) const SLOW: &str = "ports-search-slow";

/// Few: less than a tenth of the range is left.
const FEW_SHARE: f64 = 0.1;
/// An end within this, s, is harm now: nobody changes a setting faster.
const HARM_S: f64 = 10.0;
/// Soon: at the rate of the newest dumps the ports last less than a TIME-WAIT, so none comes back before.
const SOON_S: f64 = 60.0;
/// Ports of a range that nobody would widen further.
const WIDE: u32 = 60_000;

/// A destination, and what of the range is in use towards it.
struct Use<'a> {
    to: &'a DestinationState,
    range: u32,
    /// Ports that a new connection cannot have.
    taken: u32,
    left: u32,
}

/// Destinations whose number of ports left is known.
///
/// With `tcp_tw_reuse` a new connection may take a port in TIME-WAIT after 1 s, so those are not counted.
fn uses(state: &State) -> impl Iterator<Item = Use<'_>> {
    let limits = &state.limits;
    state.destinations.iter().filter_map(move |to| {
        let range = limits.local_ports.filter(|range| *range > 0)?;
        let at: Option<IpAddr> = to.address.parse().ok();
        let reusable = at.is_some_and(|at| limits.reuses_time_wait(at));
        let taken = to.ports_in_use.checked_sub(if reusable { to.time_wait } else { 0 })?;
        // More than the range has: programs choose ports themselves, and how many are left is not known.
        Some(Use { to, range, taken, left: range.checked_sub(taken)? })
    })
}

/// Few ports are left, or they end before the first comes back.
pub(super) fn scarce(state: &State) -> Vec<Finding> {
    let diagnose = |used: Use<'_>| {
        let rising = used.to.ports_per_s.filter(|per_s| *per_s > 0.0);
        let ends_s = rising.map(|per_s| f64::from(used.left) / per_s);
        let few = f64::from(used.left) < FEW_SHARE * f64::from(used.range);
        // A burst into an empty range is no evidence: half of it must be in use.
        let soon = ends_s.is_some_and(|s| s < SOON_S) && used.taken > used.range / 2;
        if !few && !soon {
            return None;
        }
        let subject = host_port(&used.to.address, used.to.port);
        let end = match ends_s {
            _ if used.left == 0 => ": connect(2) fails".to_owned(),
            // A longer time is no forecast.
            Some(s) if s < 3_600.0 => {
                format!(", exhausted in {} at this rate", number::duration(s))
            }
            _ => String::new(),
        };
        let text = format!(
            "{} of {} local ports left to {subject}{end}",
            number::count(used.left),
            number::count(used.range)
        );
        let mut evidence = of_destination(state, &used);
        if let Some(s) = ends_s {
            evidence.insert("lasts_s".into(), rounded(s));
        }
        Some(Finding {
            id: SCARCE.into(),
            severity: Severity::harming(used.left == 0 || ends_s.is_some_and(|s| s < HARM_S)),
            subject,
            text,
            evidence,
            remedies: vec![used.fix(state)],
        })
    };
    uses(state).filter_map(diagnose).collect()
}

/// More than half of the range is in use, and connections are opened: each connect(2) tries all ports of
/// one parity in vain.
pub(super) fn slow(state: &State) -> Vec<Finding> {
    let diagnose = |used: Use<'_>| {
        let to = used.to;
        // Long-lived connections alone search for nothing.
        let opening =
            to.time_wait > 0 || to.syn_sent > 0 || to.ports_per_s.is_some_and(|rate| rate > 0.0);
        if used.taken <= used.range / 2 || !opening {
            return None;
        }
        let subject = host_port(&to.address, to.port);
        let text = format!(
            "{} of local ports in use to {subject} ({} of {}): connect(2) is slow",
            number::percent(f64::from(used.taken) / f64::from(used.range)),
            number::count(used.taken),
            number::count(used.range)
        );
        Some(Finding {
            id: SLOW.into(),
            severity: Severity::Warning,
            subject,
            text,
            evidence: of_destination(state, &used),
            remedies: vec![used.fix(state)],
        })
    };
    uses(state).filter_map(diagnose).collect()
}

fn of_destination(state: &State, used: &Use<'_>) -> std::collections::BTreeMap<String, Value> {
    evidence([
        ("ports_in_use", Some(used.to.ports_in_use.into())),
        ("time_wait", Some(used.to.time_wait.into())),
        ("local_ports", Some(used.range.into())),
        ("ports_left", Some(used.left.into())),
        ("tcp_tw_reuse", state.limits.tw_reuse.map(Value::from)),
        ("ports_per_s", used.to.ports_per_s.map(rounded)),
        ("syn_sent", Some(used.to.syn_sent.into())),
        ("table_age_s", state.table_age_s.map(rounded)),
    ])
}

impl Use<'_> {
    fn fix(&self, state: &State) -> Remedy {
        let mostly_time_wait = self.to.time_wait > self.to.ports_in_use / 2;
        fix(state.limits.tw_reuse, self.range, mostly_time_wait)
    }
}

/// Fewer ports for one destination, or more: TIME-WAIT is reused, or the range is widened.
pub(crate) fn fix(reuse: Option<u32>, range: u32, mostly_time_wait: bool) -> Remedy {
    let more = match reuse {
        Some(reuse) if reuse != 1 && mostly_time_wait => "tw-reuse",
        _ if range < WIDE => "wider-range",
        _ => "sources",
    };
    Remedy::named(SCARCE, "long-lived").or(Remedy::named(SCARCE, more))
}
