//! Causes that lie in a full queue of a server whose counters can be read.
//!
//! [`overflow`] tells a rare overflow from a lasting one.

pub(crate) mod accept;
pub(crate) mod overflow;
mod syn;

pub(crate) use self::accept::overflowed;

use std::collections::BTreeMap;

use serde_json::Value;

use tcptoll_core::experiment::spec::{CauseSpec, Remedy};
use tcptoll_core::record::{Arm, HostSummary};
use tcptoll_core::units::human_count;

/// Connections arrived faster than the server accepted them.
pub(crate) const ACCEPT_QUEUE_FULL: CauseSpec = CauseSpec {
    id: "accept-queue-full",
    test: accept::accept_queue_full,
    remedy: Remedy::Setting {
        change: "For bursts, raise the backlog of listen(2) and net.core.somaxconn: the queue must hold all connections that arrive while the server does not accept. If it stays full, accept faster instead: more workers, or idle connections that are closed sooner.",
        cost: "About 2.7 kB of kernel memory per waiting connection, and a longer wait: the last connection waits for all before it.",
        undo: "Restore both values. They take effect when the server calls listen(2) again.",
    },
};

/// Handshakes began faster than they were completed, and SYN cookies are off.
pub(crate) const SYN_QUEUE_FULL: CauseSpec = CauseSpec {
    id: "syn-queue-full",
    test: syn::syn_queue_full,
    remedy: Remedy::Setting {
        change: "Set net.ipv4.tcp_syncookies=1, the kernel's default. Without cookies, raise the backlog of listen(2), net.core.somaxconn and net.ipv4.tcp_max_syn_backlog. The first two, and three quarters of the third, must exceed the number of half-open requests.",
        cost: "The server does not retransmit a SYN-ACK that carries a cookie. The connection has SACK and window scaling only if both hosts use TCP timestamps. A longer queue costs about 300 bytes of kernel memory per half-open request.",
        undo: "Restore the previous values. A backlog and net.core.somaxconn take effect when the server calls listen(2) again.",
    },
};

/// The host that has the listener: the server host, or this machine where a server that is not ours
/// listens on it.
fn listening(arm: &Arm) -> Option<&HostSummary> {
    let own = || Some(&arm.client).filter(|client| !client.listeners.is_empty());
    arm.server.as_ref().or_else(own)
}

fn counter(arm: &Arm, name: &str) -> u64 {
    listening(arm)
        .and_then(|server| server.counters.get(name))
        .map_or(0, |&value| u64::try_from(value).unwrap_or(0))
}

fn evidence_of(arm: &Arm, names: &[&str]) -> BTreeMap<String, Value> {
    names
        .iter()
        .map(|name| ((*name).to_owned(), counter(arm, name)))
        .filter(|(_, value)| *value > 0)
        .map(|(name, value)| (name, Value::from(value)))
        .collect()
}

/// What the client felt: handshakes that waited for a retransmitted SYN, connections that never
/// heard the server, and how many waited on each rung of the ladder.
pub(crate) fn felt(arm: &Arm) -> (u64, u64, Vec<String>) {
    let late: u64 = arm.rungs.iter().sum();
    let silent = arm.errors.get("timeout").copied().unwrap_or(0);
    let ladder = arm
        .rungs
        .iter()
        .zip(&arm.syn_retry_ladder_s)
        .filter(|(count, _)| **count > 0)
        .map(|(count, at)| format!("{} at {at} s", human_count(*count)))
        .collect();
    (late, silent, ladder)
}
