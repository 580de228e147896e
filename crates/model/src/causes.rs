//! Named explanations, found in counters and latencies; each with the evidence it rests on.
//!
//! `docs/causes.md` says what each means and how to cure it.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::record::{Advice, Arm, Cause, HostSummary};
use crate::units::human_count;

mod reuse;
mod unnoticed;
mod waiting;

pub use waiting::waits_matter;

/// What is known of the SYN ladder in one arm.
#[derive(Clone, Debug, Default)]
pub struct Rungs {
    /// Times at which the client's kernel sends a SYN again, s.
    pub ladder_s: Vec<f64>,
    /// Handshakes that stand on each rung.
    pub counts: Vec<u64>,
}

/// Names the causes that the arm's evidence supports.
pub fn causes_of(arm: &Arm, rungs: &Rungs) -> Vec<Cause> {
    [
        accept_queue_full(arm, rungs),
        syn_queue_full(arm, rungs),
        waiting::syn_lost_or_queue_full(arm, rungs),
        local_ports_scarce(arm),
        reuse::close_ignored(arm),
        reuse::keepalive_inert(arm),
        reuse::close_race(arm),
        unnoticed::dead_peer_unnoticed(arm),
    ]
    .into_iter()
    .flatten()
    .collect()
}

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

/// What the client felt: handshakes on the ladder, and connections that never heard the server.
fn felt(arm: &Arm, rungs: &Rungs) -> (u64, u64, Vec<String>) {
    let late: u64 = rungs.counts.iter().sum();
    let silent = arm.errors.get("timeout").copied().unwrap_or(0);
    let ladder = rungs
        .counts
        .iter()
        .zip(&rungs.ladder_s)
        .filter(|(count, _)| **count > 0)
        .map(|(count, at)| format!("{} at {at} s", human_count(*count)))
        .collect();
    (late, silent, ladder)
}

fn accept_queue_full(arm: &Arm, rungs: &Rungs) -> Option<Cause> {
    let overflows = counter(arm, "TcpExtListenOverflows");
    let host = listening(arm)?;
    let full = host.listeners.iter().find(|listener| {
        // listen(n) holds n + 1.
        listener.accept_queue_peak > listener.accept_queue_limit
    });
    if overflows == 0 && full.is_none() {
        return None;
    }
    let (late, silent, ladder) = felt(arm, rungs);
    let gave_up = arm.errors.get("connect-timeout").copied().unwrap_or(0);
    if late + silent + gave_up == 0 && overflows == 0 {
        // It was full for a moment and nobody was turned away.
        return None;
    }
    let mut evidence = evidence_of(
        arm,
        &[
            "TcpExtListenOverflows",
            "TcpExtListenDrops",
            "TcpExtSyncookiesSent",
            "TcpExtSyncookiesRecv",
            "TcpExtTCPReqQFullDoCookies",
            "TcpExtTCPReqQFullDrop",
        ],
    );
    let limit = host.listeners.first().map(|l| l.accept_queue_limit);
    if let Some(full) = full {
        evidence.insert("accept_queue_peak".into(), full.accept_queue_peak.into());
        evidence.insert("accept_queue_limit".into(), full.accept_queue_limit.into());
    }
    let mut text = match limit {
        Some(limit) => format!("The accept queue (backlog {limit}) was full"),
        None => "The accept queue was full".to_owned(),
    };
    if late > 0 {
        evidence.insert("handshakes_on_the_ladder".into(), late.into());
        text += &format!(
            ": the server dropped SYNs, and {} handshakes waited for the client's next one ({})",
            human_count(late),
            ladder.join(", ")
        );
    }
    if silent > 0 {
        evidence.insert("never_answered".into(), silent.into());
        text += &format!(
            "{} {} connections never heard the server: the client believed them open, the server had dropped their last ACK",
            if late > 0 { ";" } else { ":" },
            human_count(silent)
        );
    }
    if gave_up > 0 {
        evidence.insert("gave_up_connecting".into(), gave_up.into());
        text += &format!("; {} gave up before they were connected", human_count(gave_up));
    }
    Some(Cause {
        id: "accept-queue-full".into(),
        arm: arm.name.clone(),
        text: text + ".",
        evidence,
    })
}

fn syn_queue_full(arm: &Arm, rungs: &Rungs) -> Option<Cause> {
    let dropped = counter(arm, "TcpExtTCPReqQFullDrop");
    if dropped == 0 {
        return None;
    }
    let (late, silent, ladder) = felt(arm, rungs);
    let mut evidence = evidence_of(arm, &["TcpExtTCPReqQFullDrop", "TcpExtListenDrops"]);
    evidence.insert("handshakes_on_the_ladder".into(), late.into());
    evidence.insert("never_answered".into(), silent.into());
    if let Some(gave_up) = arm.errors.get("connect-timeout") {
        evidence.insert("gave_up_connecting".into(), (*gave_up).into());
    }
    Some(Cause {
        id: "syn-queue-full".into(),
        arm: arm.name.clone(),
        text: format!(
            "The SYN queue was full and SYN cookies are off: the server dropped {} SYNs{}.",
            human_count(dropped),
            if ladder.is_empty() {
                String::new()
            } else {
                format!(", and handshakes waited for the next one ({})", ladder.join(", "))
            }
        ),
        evidence,
    })
}

fn local_ports_scarce(arm: &Arm) -> Option<Cause> {
    let refused = arm.errors.get("local-ports").copied().filter(|&count| count > 0)?;
    // Those of this destination, where they were counted apart; the host's own are all there are in
    // the lab.
    let counted = arm.metrics.get("client_time_wait").map(|sockets| sockets.value.round() as u64);
    let of_host = || arm.client.sockstat.get("TCP_tw").copied().unwrap_or(0);
    let waiting = counted.unwrap_or_else(of_host);
    let name = if counted.is_some() { "client_time_wait" } else { "TCP_tw" };
    let mut evidence = BTreeMap::from([
        ("local-ports".to_owned(), Value::from(refused)),
        (name.to_owned(), Value::from(waiting)),
    ]);
    let mut text = format!(
        "The client ran out of local ports {} times; {} of them were in TIME-WAIT",
        human_count(refused),
        human_count(waiting)
    );
    if let Some(ports) = &arm.ports {
        evidence.insert("usable_ports".into(), ports.usable.into());
        evidence.insert("connections_at_once".into(), ports.at_once.into());
        evidence.insert("held_s".into(), ports.held_s.into());
        text += &format!(
            ". It has {} connections to give, {} from each source address",
            human_count(ports.at_once),
            human_count(ports.usable)
        );
        if let Some(per_s) = ports.sustained_per_s {
            evidence.insert("sustained_per_s".into(), per_s.into());
            text += &format!(
                ", and each closed one holds its port for {:.0} s: {per_s:.0} a second can go on for ever",
                ports.held_s
            );
        }
    }
    Some(Cause {
        id: "local-ports-scarce".into(),
        arm: arm.name.clone(),
        text: text + ".",
        evidence,
    })
}

/// What to change for each kind of cause; `proof` says what the same run measured with it changed.
pub fn advice_for(id: &str, proof: Option<String>) -> Option<Advice> {
    let (change, cost, undo) = match id {
        "accept-queue-full" => (
            "Raise the backlog of listen(2), and net.core.somaxconn with it; it must hold the connections that arrive while the server does not accept.",
            "A few hundred bytes of kernel memory for each connection that waits.",
            "Set both back; listen(2) must be called again for either to take effect.",
        ),
        "syn-queue-full" => (
            "Raise the backlog of listen(2) and net.ipv4.tcp_max_syn_backlog, or leave net.ipv4.tcp_syncookies at 1.",
            "A few hundred bytes of kernel memory for each half-open connection; with cookies, none.",
            "Set both back.",
        ),
        "syn-lost-or-queue-full" => (
            "On the server, compare Recv-Q with Send-Q in `ss -lnt`, and watch `nstat -az TcpExtListenOverflows TcpExtListenDrops TcpExtTCPReqQFullDrop` during the load. If they grow, raise the backlog of listen(2) and net.core.somaxconn, or accept faster. If not, look for loss on the path.",
            "Looking costs nothing; a longer backlog a few hundred bytes of kernel memory for each connection that waits.",
            "Set the former backlog and net.core.somaxconn; listen(2) must be called again for either to take effect.",
        ),
        "local-ports-scarce" => (
            "Keep connections open and use them again; or widen net.ipv4.ip_local_port_range, or add source addresses (--bind).",
            "A wider range may take ports that servers on this machine want to listen on.",
            "net.ipv4.ip_local_port_range = 32768 60999",
        ),
        "close-ignored" => (
            "Let the client close after the response (--reuse client-close), or find what between the two keeps the server's connection open and does not pass Connection: close on.",
            "The client that closes first holds TIME-WAIT, and with it the port.",
            "Ask the server to close again (--reuse server-close).",
        ),
        "keepalive-inert" => (
            "Raise the server's limit of requests per connection and its keep-alive time, and check that keep-alive is on at every server in between (nginx: keepalive_requests, keepalive_timeout, and proxy_http_version 1.1 with an empty Connection field towards its upstream; Apache: KeepAlive, MaxKeepAliveRequests, KeepAliveTimeout).",
            "Idle connections take memory on both sides, and in servers of one process per connection a whole process.",
            "Set the former values.",
        ),
        "close-race" => (
            "Let the side that sends requests give up idle connections first: its idle time must be shorter than the server's keep-alive time, by a round trip and a second to spare. Between a balancer and its servers that is a keep-alive time of the servers above the balancer's.",
            "The server keeps idle connections for longer, which takes memory.",
            "Set the former times.",
        ),
        _ => return None,
    };
    Some(Advice {
        cause: id.to_owned(),
        change: change.to_owned(),
        cost: cost.to_owned(),
        undo: undo.to_owned(),
        proof,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{HostSummary, Listener};

    fn arm(counters: &[(&str, i64)], peak: u32) -> Arm {
        Arm {
            name: "a".into(),
            server: Some(HostSummary {
                counters: counters.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect(),
                listeners: vec![Listener {
                    address: "10.77.0.2".into(),
                    port: 80,
                    accept_queue_peak: peak,
                    accept_queue_limit: 16,
                    syn_queue_peak: None,
                }],
                ..HostSummary::default()
            }),
            ..Arm::default()
        }
    }

    fn rungs(count: u64) -> Rungs {
        Rungs { ladder_s: vec![1.0, 2.0], counts: vec![count, 0] }
    }

    #[test]
    fn overflows_and_a_ladder_are_a_full_accept_queue() {
        let arm = arm(&[("TcpExtListenOverflows", 482), ("TcpExtListenDrops", 482)], 17);
        let causes = causes_of(&arm, &rungs(482));
        assert_eq!(causes.len(), 1);
        assert_eq!(causes[0].id, "accept-queue-full");
        assert!(causes[0].text.contains("482 at 1 s"), "{}", causes[0].text);
        assert_eq!(causes[0].evidence["TcpExtListenOverflows"], 482);
    }

    #[test]
    fn with_cookies_off_the_counter_that_counts_is_another() {
        let causes = causes_of(&arm(&[("TcpExtTCPReqQFullDrop", 482)], 16), &rungs(482));
        assert_eq!(causes.iter().map(|c| c.id.as_str()).collect::<Vec<_>>(), ["syn-queue-full"]);
    }

    #[test]
    fn a_queue_that_was_full_without_anyone_waiting_is_no_cause() {
        assert!(causes_of(&arm(&[], 17), &rungs(0)).is_empty());
    }

    #[test]
    fn lost_syns_on_the_ladder_are_not_blamed_on_a_queue() {
        assert!(causes_of(&arm(&[], 3), &rungs(9)).is_empty());
    }

    #[test]
    fn every_cause_has_advice() {
        for id in [
            "accept-queue-full",
            "syn-queue-full",
            "syn-lost-or-queue-full",
            "local-ports-scarce",
            "close-ignored",
            "keepalive-inert",
            "close-race",
        ] {
            assert!(advice_for(id, None).is_some(), "{id}");
        }
    }
}
