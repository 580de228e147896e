//! What several rounds saw of a host, of the machine and of the wire becomes one.
//!
//! Each round comes with its attempts: figures per operation are weighted by them.

use std::collections::{BTreeMap, BTreeSet};

use crate::record::{Background, HostSummary, Listener, Softirq, Wire};

pub(super) fn host(rounds: &[(&HostSummary, u64)]) -> HostSummary {
    let hosts = || rounds.iter().map(|(host, _)| *host);
    let per_op = |part: fn(&HostSummary) -> Option<f64>| {
        weighted(rounds.iter().filter_map(|(host, ops)| Some((part(host)?, *ops))))
    };
    // A short trial does not tell user from system time: these two are given where they add up.
    let split = hosts()
        .all(|host| host.cpu_us_per_op.is_none() == host.cpu_user_us_per_op.is_none())
        && hosts().all(|host| host.cpu_us_per_op.is_none() == host.cpu_system_us_per_op.is_none());
    let split = |part| if split { per_op(part) } else { None };
    HostSummary {
        cpu_us_per_op: per_op(|host| host.cpu_us_per_op),
        cpu_user_us_per_op: split(|host| host.cpu_user_us_per_op),
        cpu_system_us_per_op: split(|host| host.cpu_system_us_per_op),
        rss_peak_bytes: hosts().filter_map(|host| host.rss_peak_bytes).max(),
        counters: counters(hosts()),
        sockstat: hosts().next_back().map(|host| host.sockstat.clone()).unwrap_or_default(),
        sysctls: hosts().next().map(|host| host.sysctls.clone()).unwrap_or_default(),
        listeners: listeners(hosts()),
        tcp_info: hosts().find_map(|host| host.tcp_info.clone()),
        processes: hosts().filter_map(|host| host.processes).max(),
        memory_bytes: hosts().filter_map(|host| host.memory_bytes).max(),
        version: hosts().find_map(|host| host.version.clone()),
        pinned_cpu: hosts().find_map(|host| host.pinned_cpu),
        passport: hosts().find_map(|host| host.passport.clone()),
        background: background(&hosts()),
    }
}

/// None: no round has it.
pub(super) fn softirq(rounds: &[(&Softirq, u64)]) -> Option<Softirq> {
    let cpus = rounds.iter().map(|(softirq, _)| softirq.per_cpu_us_per_op.len()).max()?;
    let on = |cpu| {
        let with_weight = |(softirq, ops): &(&Softirq, u64)| {
            (softirq.per_cpu_us_per_op.get(cpu).copied().unwrap_or(0.0), *ops)
        };
        weighted(rounds.iter().map(with_weight))
    };
    Some(Softirq {
        per_cpu_us_per_op: (0..cpus).map(on).collect::<Option<_>>()?,
        us_per_op: weighted(rounds.iter().map(|(softirq, ops)| (softirq.us_per_op, *ops)))?,
        // Of the time of all rounds together, as each may be off by its own.
        resolution_us: rounds.iter().map(|(softirq, _)| softirq.resolution_us).sum(),
    })
}

/// None: no round has it.
pub(super) fn wire(rounds: &[&Wire]) -> Option<Wire> {
    rounds.iter().copied().cloned().reduce(|sum, wire| sum.plus(&wire))
}

fn counters<'a>(hosts: impl Iterator<Item = &'a HostSummary> + Clone) -> BTreeMap<String, i64> {
    let mut sums = BTreeMap::new();
    for (name, change) in hosts.clone().flat_map(|host| &host.counters) {
        let sum: &mut i64 = sums.entry(name.clone()).or_default();
        *sum = sum.saturating_add(*change);
    }
    // What is not the run's alone in one round is not in the sum.
    for name in hosts.filter_map(|host| host.background.as_ref()).flat_map(|one| &one.left_out) {
        sums.remove(name);
    }
    sums
}

/// The busiest of all rounds. None: the machine was the lab's.
fn background<'a>(
    hosts: &(impl Iterator<Item = &'a HostSummary> + Clone),
) -> Option<Box<Background>> {
    let all = || hosts.clone().filter_map(|host| host.background.as_deref());
    let busiest = all().max_by(|a, b| a.connections_per_s.total_cmp(&b.connections_per_s))?;
    let left_out: BTreeSet<&String> = all().flat_map(|one| &one.left_out).collect();
    let left_out = left_out.into_iter().cloned().collect();
    Some(Box::new(Background { left_out, ..busiest.clone() }))
}

/// One per address and port, with its greatest queues.
fn listeners<'a>(hosts: impl Iterator<Item = &'a HostSummary>) -> Vec<Listener> {
    let mut listeners: Vec<Listener> = Vec::new();
    for one in hosts.flat_map(|host| &host.listeners) {
        let same = |seen: &&mut Listener| (&seen.address, seen.port) == (&one.address, one.port);
        if let Some(seen) = listeners.iter_mut().find(same) {
            seen.accept_queue_peak = seen.accept_queue_peak.max(one.accept_queue_peak);
            seen.syn_queue_peak = seen.syn_queue_peak.max(one.syn_queue_peak);
        } else {
            listeners.push(one.clone());
        }
    }
    listeners
}

/// The mean of figures per operation, each with its operations. None: no operation.
fn weighted(figures: impl Iterator<Item = (f64, u64)>) -> Option<f64> {
    let (total, ops) = figures
        .map(|(figure, ops)| (figure * ops as f64, ops as f64))
        .fold((0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1));
    (ops > 0.0).then(|| total / ops)
}
