//! Local ports that will run out at the rate seen, and a reuse that helps loopback only.

use std::net::IpAddr;

use super::super::{Machine, Opening};
use super::{PORT_RANGE_TOO_SMALL, TW_REUSE_LOOPBACK_ONLY};
use crate::diagnosis::{Diagnosis, Severity};
use crate::watch::DestinationState;
use crate::watch::diagnoses::ports::{SCARCE, SLOW, fix};
use crate::watch::diagnoses::{evidence, per_s, place, rounded, sysctl};
use tcptoll_core::units::human_count;

/// `TCP_TIMEWAIT_LEN`, s: a constant of the kernel.
const TIME_WAIT_S: f64 = 60.0;
const REUSE: &str = "net.ipv4.tcp_tw_reuse";

/// A destination of the state, by its name in diagnoses.
fn destination<'m>(machine: &'m Machine, to: &str) -> Option<&'m DestinationState> {
    machine.state.destinations.iter().find(|one| place(&one.address, one.port) == to)
}

fn is_reported(machine: &Machine, id: &str, subject: &str) -> bool {
    machine.state.diagnoses.iter().any(|one| one.id == id && one.subject == subject)
}

/// Connections to one destination end in TIME-WAIT here, at a rate that needs more ports than there are.
pub(super) fn range_too_small(machine: &Machine) -> Vec<Diagnosis> {
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
            "{} ports/s to {} go to TIME-WAIT for 60 s; {} ports last {lasts_s:.0} s",
            per_s(opening.time_wait_per_s),
            opening.to,
            human_count(range.into())
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
        Some(Diagnosis {
            id: PORT_RANGE_TOO_SMALL.into(),
            severity: Severity::Warning,
            subject: opening.to.clone(),
            text,
            evidence,
            fix: Some(fix(limits.tw_reuse, range, true)),
        })
    };
    machine.openings.iter().filter_map(forecast).collect()
}

/// The default of `tcp_tw_reuse` helps loopback only, and ports in TIME-WAIT run short elsewhere.
pub(super) fn reuse_on_loopback_only(machine: &Machine) -> Vec<Diagnosis> {
    let limits = &machine.state.limits;
    let Some(range) = limits.local_ports.filter(|_| limits.tw_reuse == Some(2)) else {
        return Vec::new();
    };
    let too_fast = range_too_small(machine);
    let runs_short = |one: &&DestinationState| {
        let to = place(&one.address, one.port);
        let elsewhere = one.address.parse().is_ok_and(|ip: IpAddr| !ip.is_loopback());
        let short = [SCARCE, SLOW].iter().any(|id| is_reported(machine, id, &to))
            || too_fast.iter().any(|one| one.subject == to);
        elsewhere && short && one.time_wait > one.ports_in_use / 2
    };
    let short = machine.state.destinations.iter().filter(runs_short);
    let Some(worst) = short.clone().max_by_key(|one| one.time_wait) else { return Vec::new() };
    let to = place(&worst.address, worst.port);
    let text = format!(
        "tcp_tw_reuse=2 helps loopback only: {} ports to {to} are in TIME-WAIT",
        human_count(worst.time_wait.into())
    );
    let evidence = evidence([
        ("tcp_tw_reuse", Some(2.into())),
        ("destination", Some(to.into())),
        ("time_wait", Some(worst.time_wait.into())),
        ("ports_in_use", Some(worst.ports_in_use.into())),
        ("local_ports", Some(range.into())),
        ("destinations", Some(short.count().into())),
    ]);
    let fix = sysctl(
        REUSE,
        2,
        1,
        "Let connect(2) take ports in TIME-WAIT towards all destinations.".to_owned(),
        "A port in TIME-WAIT is free for a new connection after 1 s, not 60 s.",
        "Both hosts need TCP timestamps: nothing else distinguishes old segments from new ones.",
    );
    vec![Diagnosis {
        id: TW_REUSE_LOOPBACK_ONLY.into(),
        severity: Severity::Warning,
        subject: REUSE.into(),
        text,
        evidence,
        fix: Some(fix),
    }]
}
