//! What is wrong with a machine, from what was read of it and nothing else.
//!
//! One function a fault, from a [`Machine`] to diagnoses. The faults that a state shows are those of
//! [`crate::watch::diagnoses`]; the others need the sysctls, the peers or the configuration too.
//!
//! A rule names a fault only where all that it needs was read: a file that could not be read, a
//! sysctl that this namespace does not have, or an address that nobody can place make it silent.

mod backends;
mod forecasts;
mod idle;
mod queues;
mod servers;
mod workers;

use std::collections::BTreeSet;

use super::Machine;
use crate::watch::diagnoses as live;
use tcptoll_core::finding::Finding;

/// A configured backlog that `somaxconn` clamps.
const BACKLOG_OVER_SOMAXCONN: &str = "backlog-over-somaxconn";
/// A configured backlog that the listener in the kernel does not have.
const BACKLOG_NOT_IN_EFFECT: &str = "backlog-not-in-effect";
/// Socket buffers asked for above `rmem_max` or `wmem_max`.
const BUFFERS_OVER_CAP: &str = "buffers-over-cap";
/// A server's keep-alive time that is not longer than the idle time of the proxy in front of it.
const CLOSE_RACE: &str = "close-race";
/// New connections that fill the table of tracked connections before entries expire.
const CONNTRACK_FILLS: &str = "conntrack-fills";
/// Idle connections over a router, without a probe before NATs and balancers forget them.
const KEEPALIVE_BEYOND_NAT: &str = "keepalive-beyond-nat";
/// Connections to one destination at a rate that the range of local ports does not allow for long.
pub const PORT_RANGE_TOO_SMALL: &str = "port-range-too-small";
/// `tcp_tw_reuse=2` where ports in TIME-WAIT run short towards another host.
pub const TW_REUSE_LOOPBACK_ONLY: &str = "tw-reuse-loopback-only";
/// nginx `keepalive` in an upstream whose requests close each connection.
const UPSTREAM_NOT_REUSED: &str = "upstream-not-reused";
/// A queue that is never empty in front of a server with a fixed number of workers.
const WORKERS_TOO_FEW: &str = "workers-too-few";
/// The same queue, where most workers wait for another request of a client that has none.
const IDLE_HOLD_WORKERS: &str = "idle-connections-hold-workers";

/// What is wrong with one machine.
type Rule = fn(&Machine) -> Vec<Finding>;

/// Faults that a state alone does not show, the most pressing first: name and function.
const RULES: &[(&str, Rule)] = &[
    (IDLE_HOLD_WORKERS, workers::idle_hold),
    (WORKERS_TOO_FEW, queues::workers_too_few),
    (PORT_RANGE_TOO_SMALL, forecasts::range_too_small),
    (CONNTRACK_FILLS, forecasts::conntrack_fills),
    (CLOSE_RACE, backends::close_race),
    (UPSTREAM_NOT_REUSED, idle::not_reused),
    (BACKLOG_OVER_SOMAXCONN, queues::over_somaxconn),
    (BACKLOG_NOT_IN_EFFECT, queues::not_in_effect),
    (TW_REUSE_LOOPBACK_ONLY, forecasts::reuse_on_loopback_only),
    (KEEPALIVE_BEYOND_NAT, idle::beyond_nat),
    (BUFFERS_OVER_CAP, queues::buffers_over_cap),
];

/// Of the same subject the first is why the second is so.
const SUPERSEDES: &[(&str, &str)] = &[
    // More workers would be held as well.
    (IDLE_HOLD_WORKERS, WORKERS_TOO_FEW),
    // The workers are why the queue stands.
    (IDLE_HOLD_WORKERS, live::queues::STANDING),
    (WORKERS_TOO_FEW, live::queues::STANDING),
];

/// Sysctls that rules look at.
pub(super) const SYSCTLS: &[&str] = &[
    "net.core.rmem_max",
    "net.core.somaxconn",
    "net.core.wmem_max",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_tw_reuse",
    "net.ipv4.tcp_wmem",
    "net.netfilter.nf_conntrack_max",
    "net.netfilter.nf_conntrack_tcp_timeout_established",
    "net.netfilter.nf_conntrack_tcp_timeout_time_wait",
];

/// Names of all diagnoses of a machine, each a section of `docs/causes.md`: first those of its state.
pub fn ids() -> impl Iterator<Item = &'static str> {
    live::ids().chain(RULES.iter().map(|(id, _)| *id))
}

/// What is wrong with a machine, problems first: what its state showed, and what its configuration
/// will cause.
pub fn diagnose(machine: &Machine) -> Vec<Finding> {
    let mut found = machine.state.diagnoses.clone();
    for one in &mut found {
        queues::name_the_setting(machine, one);
    }
    found.extend(RULES.iter().flat_map(|(_, rule)| rule(machine)));
    found.extend(queues::syn_backlog_full(machine));
    found.iter_mut().for_each(fit);
    live::supersede(&mut found, SUPERSEDES);
    let place = |id: &str| ids().position(|known| known == id);
    found.sort_by_cached_key(|one| (one.severity, place(&one.id), one.subject.clone()));
    // Of one subject the stronger stays: it comes first.
    let mut said = BTreeSet::new();
    found.retain(|one| said.insert((one.id.clone(), one.subject.clone())));
    found
}

/// Cuts a text that an absurd figure of a configuration made too long.
fn fit(one: &mut Finding) {
    if let Some((at, _)) = one.text.char_indices().nth(live::TEXT_MAX) {
        let keep = one.text[..at].char_indices().next_back().map_or(0, |(at, _)| at);
        one.text.truncate(keep);
        one.text.push('…');
    }
}

#[cfg(test)]
mod tests;
