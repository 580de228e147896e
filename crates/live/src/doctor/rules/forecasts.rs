//! What will run out at the rate seen: local ports, and the table of tracked connections before entries expire.

use std::net::IpAddr;

use tcptoll_core::number;
use tcptoll_core::units::host_port;

use super::{CONNTRACK_FILLS, PORT_RANGE_TOO_SMALL, TW_REUSE_LOOPBACK_ONLY};
use crate::doctor::{Machine, Opening};
use crate::watch::DestinationState;
use crate::watch::diagnoses::host::{TRACKED, TRACKED_SUBJECT};
use crate::watch::diagnoses::ports::{SCARCE, SLOW, fix};
use crate::watch::diagnoses::{evidence, rounded};
use tcptoll_core::finding::{Finding, Remedy, Severity};

/// `TCP_TIMEWAIT_LEN`, s: a constant of the kernel.
const TIME_WAIT_S: f64 = 60.0;
const REUSE: &str = "net.ipv4.tcp_tw_reuse";

/// A destination of the state, by its name in diagnoses.
fn destination<'m>(machine: &'m Machine, to: &str) -> Option<&'m DestinationState> {
    machine.state.destinations.iter().find(|one| host_port(&one.address, one.port) == to)
}

fn is_reported(machine: &Machine, id: &str, subject: &str) -> bool {
    machine.state.diagnoses.iter().any(|one| one.id == id && one.subject == subject)
}

/// Connections to one destination end in TIME-WAIT here, at a rate that needs more ports than there are.
pub(super) fn range_too_small(machine: &Machine) -> Vec<Finding> {
    let limits = &machine.state.limits;
    let Some(range) = limits.local_ports.filter(|range| *range > 0) else { return Vec::new() };
    let forecast = |opening: &Opening| {
        let to = destination(machine, &opening.to)?;
        let needed = opening.time_wait_per_s * TIME_WAIT_S;
        let enough = !needed.is_finite() || needed <= f64::from(range);
        let known = [SCARCE, SLOW].iter().any(|id| is_reported(machine, id, &opening.to));
        let at = to.address.parse().ok();
        if enough || known || at.is_some_and(|at| limits.reuses_time_wait(at)) {
            return None;
        }
        let left = f64::from(range.saturating_sub(to.ports_in_use));
        let lasts_s = left / opening.ports_per_s.max(opening.time_wait_per_s);
        let text = format!(
            "{} ports/s to {} go to TIME-WAIT for 60 s; {} ports last {}",
            number::three(opening.time_wait_per_s),
            opening.to,
            number::count(range),
            number::duration(lasts_s)
        );
        let rates = machine.state.rates.as_ref();
        let evidence = evidence([
            ("ports_per_s", Some(rounded(opening.ports_per_s))),
            ("time_wait_per_s", Some(rounded(opening.time_wait_per_s))),
            ("ports_needed", Some(rounded(needed))),
            ("local_ports", Some(range.into())),
            ("ports_in_use", Some(to.ports_in_use.into())),
            ("time_wait", Some(to.time_wait.into())),
            ("lasts_s", Some(rounded(lasts_s))),
            ("active_opens_per_s", rates.map(|rates| rounded(rates.active_opens_per_s))),
            ("tcp_tw_reuse", limits.tw_reuse.map(Into::into)),
        ]);
        Some(Finding {
            id: PORT_RANGE_TOO_SMALL.into(),
            severity: Severity::Warning,
            subject: opening.to.clone(),
            text,
            evidence,
            remedies: vec![fix(limits.tw_reuse, range, true)],
        })
    };
    machine.openings.iter().filter_map(forecast).collect()
}

/// The default of `tcp_tw_reuse` helps loopback only, and ports in TIME-WAIT run short elsewhere.
pub(super) fn reuse_on_loopback_only(machine: &Machine) -> Vec<Finding> {
    let limits = &machine.state.limits;
    let Some(range) = limits.local_ports.filter(|_| limits.tw_reuse == Some(2)) else {
        return Vec::new();
    };
    let too_fast = range_too_small(machine);
    let runs_short = |one: &&DestinationState| {
        let to = host_port(&one.address, one.port);
        let elsewhere = one.address.parse().is_ok_and(|ip: IpAddr| !ip.is_loopback());
        let short = [SCARCE, SLOW].iter().any(|id| is_reported(machine, id, &to))
            || too_fast.iter().any(|one| one.subject == to);
        elsewhere && short && one.time_wait > one.ports_in_use / 2
    };
    let short = machine.state.destinations.iter().filter(runs_short);
    let Some(worst) = short.clone().max_by_key(|one| one.time_wait) else { return Vec::new() };
    let to = host_port(&worst.address, worst.port);
    let text = format!(
        "tcp_tw_reuse=2 helps loopback only: {} ports to {to} are in TIME-WAIT",
        number::count(worst.time_wait)
    );
    let evidence = evidence([
        ("tcp_tw_reuse", Some(2.into())),
        ("destination", Some(to.into())),
        ("time_wait", Some(worst.time_wait.into())),
        ("ports_in_use", Some(worst.ports_in_use.into())),
        ("local_ports", Some(range.into())),
        ("destinations", Some(short.count().into())),
    ]);
    let fix = Remedy::named(TW_REUSE_LOOPBACK_ONLY, "everywhere");
    vec![Finding {
        id: TW_REUSE_LOOPBACK_ONLY.into(),
        severity: Severity::Warning,
        subject: REUSE.into(),
        text,
        evidence,
        remedies: vec![fix],
    }]
}

const TIMEOUT: &str = "net.netfilter.nf_conntrack_tcp_timeout_time_wait";

/// A closed connection keeps its entry for the time-out of TIME-WAIT: at a steady rate the table
/// comes to hold rate × time-out entries.
pub(super) fn conntrack_fills(machine: &Machine) -> Vec<Finding> {
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
        "{} new entries/s, kept for {timeout} s each, fill the connection tracking table ({}) in {}",
        number::three(rate),
        number::count(most),
        number::duration(fills_s)
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
    let mut fix = Remedy::named(TRACKED, "table").with("TO", wanted).with("FROM", most);
    fix.commands.push(format!("# or: sysctl -w {TIMEOUT}=30"));
    vec![Finding {
        id: CONNTRACK_FILLS.into(),
        severity: Severity::Warning,
        subject: TRACKED_SUBJECT.into(),
        text,
        evidence,
        remedies: vec![fix],
    }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::rules::tests::{machine, names};
    use crate::watch::diagnoses as live;

    /// A machine that opens connections to `10.0.0.9:80`, or another address.
    fn opening(address: &str, time_wait_per_s: f64) -> Machine {
        let mut all = machine(vec![], vec![]);
        all.state.destinations = vec![DestinationState {
            address: address.into(),
            port: 80,
            ports_in_use: 2_500,
            time_wait: 2_400,
            ..DestinationState::default()
        }];
        let to = host_port(address, 80);
        all.openings = vec![Opening { to, ports_per_s: time_wait_per_s, time_wait_per_s }];
        all
    }

    #[test]
    fn ports_are_forecast_to_end_where_sixty_seconds_of_them_are_more_than_the_range() {
        let found = |address, per_s| names(&opening(address, per_s));
        let none: [&str; 0] = [];
        // 28,232 / 60 = 470.5
        assert_eq!(found("10.0.0.9", 471.0), [PORT_RANGE_TOO_SMALL, TW_REUSE_LOOPBACK_ONLY]);
        assert_eq!(found("10.0.0.9", 470.0), none);
        assert_eq!(found("127.0.0.1", 9_000.0), none, "loopback reuses them");
        assert_eq!(found("::1", 9_000.0), none);
        assert_eq!(found("fd00::9", 9_000.0), [PORT_RANGE_TOO_SMALL, TW_REUSE_LOOPBACK_ONLY]);
        let with = |reuse| {
            let mut all = opening("10.0.0.9", 500.0);
            all.state.limits.tw_reuse = reuse;
            names(&all)
        };
        assert_eq!(with(Some(1)), none);
        assert_eq!(with(Some(0)), [PORT_RANGE_TOO_SMALL]);
        let mut gone = opening("10.0.0.9", 500.0);
        gone.state.destinations.clear();
        assert_eq!(names(&gone), none);
    }

    #[test]
    fn reuse_on_loopback_is_named_only_where_ports_run_short_elsewhere() {
        let with = |address: &str, in_use, time_wait| {
            let mut all = opening(address, 1.0);
            all.openings.clear();
            all.state.destinations[0].ports_in_use = in_use;
            all.state.destinations[0].time_wait = time_wait;
            all.state.diagnoses = live::find(&all.state);
            names(&all)
        };
        let slow = "ports-search-slow".to_owned();
        assert_eq!(
            with("10.0.0.9", 15_000, 14_900),
            [slow.clone(), TW_REUSE_LOOPBACK_ONLY.to_owned()]
        );
        assert_eq!(with("10.0.0.9", 15_000, 7_000), [slow], "most of them are open");
        assert!(with("10.0.0.9", 14_000, 14_000).is_empty(), "the default is no fault");
        assert!(with("127.0.0.1", 15_000, 15_000).is_empty());
    }

    #[test]
    fn a_table_of_tracked_connections_is_forecast_to_fill_by_rate_and_time_out() {
        let with = |per_s, tracked| {
            let mut all = machine(vec![], vec![]);
            (all.tracked_per_s, all.state.counted.tracked) = (per_s, tracked);
            all.state.diagnoses = live::find(&all.state);
            names(&all)
        };
        // 65,536 / 120 = 546.1
        assert_eq!(with(Some(547.0), Some(9_000)), [CONNTRACK_FILLS]);
        assert!(with(Some(546.0), Some(9_000)).is_empty());
        assert!(with(None, Some(9_000)).is_empty());
        assert!(with(Some(547.0), None).is_empty());
        assert_eq!(with(Some(547.0), Some(60_000)), ["conntrack-near-full"]);
    }
}
