//! A full SYN queue: how many half-open requests it held, which packets were dropped, what clients felt.

use serde_json::Value;

use super::{counter, evidence_of, felt, listening};
use tcptoll_core::experiment::spec::Finding;
use tcptoll_core::record::{Arm, ListenerQueue};
use tcptoll_core::units::human_count;

/// Counters that tell what the kernel did with SYNs that met a full queue.
const COUNTERS: &[&str] = &[
    "TcpExtListenDrops",
    "TcpExtListenOverflows",
    "TcpExtSyncookiesFailed",
    "TcpExtSyncookiesRecv",
    "TcpExtSyncookiesSent",
    "TcpExtTCPReqQFullDoCookies",
    "TcpExtTCPReqQFullDrop",
];

/// SYNs that were dropped for the SYN queue.
struct Dropped {
    syns: u64,
    /// Whether the queue was not full, but three quarters of `tcp_max_syn_backlog` were.
    last_quarter: bool,
}

/// The kernel dropped SYNs because the SYN queue was full and SYN cookies are off, and clients felt it.
pub(super) fn syn_queue_full(arm: &Arm) -> Option<Finding> {
    let queues = arm.own.queues.as_deref();
    let listener = queues.and_then(|queues| queues.listeners.first());
    let Dropped { syns, last_quarter } = dropped(arm, listener)?;
    let (late, silent, ladder) = felt(arm);
    let gave_up = arm.errors.get("connect-timeout").copied().unwrap_or(0);
    let peer = queues.and_then(|queues| queues.half_open_peer.as_ref());
    if peer.is_some() && late + silent + gave_up == 0 {
        // The peer's own SYNs were dropped, and no client's.
        return None;
    }
    let mut evidence = evidence_of(arm, COUNTERS);
    let mut note = |name: &str, value: Value| evidence.insert(name.to_owned(), value);
    note("handshakes_on_the_ladder", late.into());
    note("never_answered", silent.into());
    if gave_up > 0 {
        note("gave_up_connecting", gave_up.into());
    }
    if let Some(peak) = listener.and_then(|listener| listener.half_open_peak) {
        note("half_open_peak", peak.into());
    }
    if let Some(limit) = listener.and_then(|listener| listener.half_open_limit) {
        note("half_open_limit", limit.into());
    }
    if let Some(peer) = peer {
        note("half_open_peer_syns", peer.syns_sent.into());
    }
    let held =
        listener.and_then(|listener| listener.half_open_peak).map_or_else(String::new, |peak| {
            format!(" ({} half-open requests)", human_count(u64::from(peak)))
        });
    let what = if last_quarter {
        format!(
            "Three quarters of tcp_max_syn_backlog were in use{held} and SYN cookies are off, so the \
             server dropped {} SYNs of clients that it does not know from earlier connections",
            human_count(syns)
        )
    } else {
        format!(
            "The SYN queue was full{held} and SYN cookies are off, so the server dropped {} SYNs",
            human_count(syns)
        )
    };
    if lossy(arm) {
        // Each client that waited or gave up lost at least one packet. The kernel counted these drops; the
        // link may have lost any of the packets, too.
        let delayed = late + gave_up;
        let explained = delayed.min(syns);
        evidence.insert("delayed_or_gave_up".to_owned(), delayed.into());
        evidence.insert("explained_by_drops_at_most".to_owned(), explained.into());
        let clients = if delayed == 0 {
            String::new()
        } else {
            format!(
                " {} handshakes waited for a retransmitted SYN or timed out. These drops explain at \
                 most {} of them, because the link also loses packets.",
                human_count(delayed),
                human_count(explained)
            )
        };
        return Some(Finding { text: format!("{what}.{clients}"), evidence });
    }
    let waited = (!ladder.is_empty())
        .then(|| format!(". Handshakes waited for a retransmitted SYN ({})", ladder.join(", ")));
    let lost =
        (gave_up > 0).then(|| format!(". {} connection attempts timed out", human_count(gave_up)));
    let text = [what, waited.unwrap_or_default(), lost.unwrap_or_default()].concat();
    Some(Finding { text: text + ".", evidence })
}

/// Whether packets were lost on the link as well, by its settings or as counted.
fn lossy(arm: &Arm) -> bool {
    let by_link =
        arm.link.as_ref().is_some_and(|link| link.asked.loss > 0.0 || link.unwanted_drops > 0);
    let on_wire =
        arm.wire.as_ref().is_some_and(|wire| wire.lost_on_purpose > 0 || wire.queue_drops > 0);
    by_link || on_wire
}

/// None: the kernel dropped no SYN for its SYN queue.
fn dropped(arm: &Arm, listener: Option<&ListenerQueue>) -> Option<Dropped> {
    let counted = counter(arm, "TcpExtTCPReqQFullDrop");
    // The last quarter has no counter of its own: what was dropped for neither queue, while as many
    // requests were held as three quarters allow.
    let others = counter(arm, "TcpExtListenDrops")
        .saturating_sub(counter(arm, "TcpExtListenOverflows"))
        .saturating_sub(counted);
    let was_at_limit = listener
        .and_then(|listener| Some(listener.half_open_peak? >= listener.half_open_limit?))
        .unwrap_or(false);
    let cookies_off = listening(arm)
        .and_then(|host| host.sysctls.get("net.ipv4.tcp_syncookies"))
        .is_some_and(|value| value == "0");
    let last_quarter = counted == 0 && others > 0 && was_at_limit && cookies_off;
    let syns = if last_quarter { others } else { counted };
    (syns > 0).then_some(Dropped { syns, last_quarter })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tcptoll_core::record::{HalfOpenPeer, HostSummary, Queues};
    use tcptoll_core::tcp::wire::Wire;

    /// 129 half-open requests of a peer; 40 of 200 clients waited for a retransmitted SYN.
    fn arm(counters: &[(&str, i64)], waited: u64) -> Arm {
        let listener = ListenerQueue {
            limit: 128,
            half_open_peak: Some(129),
            half_open_limit: Some(129),
            ..ListenerQueue::default()
        };
        let queues = Queues {
            listeners: vec![listener],
            half_open_peer: Some(HalfOpenPeer { syns_sent: 900, ..HalfOpenPeer::default() }),
            ..Queues::default()
        };
        Arm {
            attempts: 200,
            ok: 200,
            syn_retry_ladder_s: vec![1.0, 2.0],
            rungs: vec![waited, 0],
            server: Some(HostSummary {
                counters: counters.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect(),
                sysctls: [("net.ipv4.tcp_syncookies".to_owned(), "0".to_owned())].into(),
                ..HostSummary::default()
            }),
            own: Box::new(queues).into(),
            ..Arm::default()
        }
    }

    #[test]
    fn drops_that_clients_felt_are_the_cause_with_the_queue_s_length_and_limit() {
        let drops = [("TcpExtTCPReqQFullDrop", 40), ("TcpExtListenDrops", 40)];
        let found = syn_queue_full(&arm(&drops, 40)).unwrap();
        assert_eq!(
            found.text,
            "The SYN queue was full (129 half-open requests) and SYN cookies are off, so the server dropped 40 SYNs. Handshakes waited for a retransmitted SYN (40 at 1 s)."
        );
        assert_eq!(found.evidence["half_open_peak"], 129);
        assert_eq!(found.evidence["half_open_limit"], 129);
        assert_eq!(found.evidence["half_open_peer_syns"], 900);
        assert_eq!(found.evidence["TcpExtTCPReqQFullDrop"], 40);
    }

    #[test]
    fn drops_of_the_peer_s_own_syns_or_cookies_are_no_cause() {
        let drops = [("TcpExtTCPReqQFullDrop", 40), ("TcpExtListenDrops", 40)];
        assert_eq!(syn_queue_full(&arm(&drops, 0)), None);
        let cookies = [("TcpExtTCPReqQFullDoCookies", 200), ("TcpExtSyncookiesSent", 200)];
        assert_eq!(syn_queue_full(&arm(&cookies, 3)), None);
    }

    #[test]
    fn on_a_lossy_link_drops_explain_at_most_as_many_waits_as_they_are() {
        let mut arm = arm(&[("TcpExtTCPReqQFullDrop", 40), ("TcpExtListenDrops", 40)], 55);
        arm.errors.insert("connect-timeout".to_owned(), 5);
        arm.wire = Some(Wire { lost_on_purpose: 1, ..Wire::default() });
        let found = syn_queue_full(&arm).unwrap();
        assert_eq!(
            found.text,
            "The SYN queue was full (129 half-open requests) and SYN cookies are off, so the server dropped 40 SYNs. 60 handshakes waited for a retransmitted SYN or timed out. These drops explain at most 40 of them, because the link also loses packets."
        );
        assert_eq!(found.evidence["explained_by_drops_at_most"], 40);
        assert_eq!(found.evidence["delayed_or_gave_up"], 60);
        // More drops than handshakes: several SYNs of one client may have been dropped.
        arm.rungs = vec![10, 0];
        let found = syn_queue_full(&arm).unwrap();
        assert_eq!(found.evidence["explained_by_drops_at_most"], 15);
    }

    #[test]
    fn the_last_quarter_is_told_from_what_no_counter_names() {
        let drops = [("TcpExtListenDrops", 40)];
        let found = syn_queue_full(&arm(&drops, 40)).unwrap();
        assert!(found.text.starts_with("Three quarters of tcp_max_syn_backlog"), "{}", found.text);
        // What the accept queue dropped is not the SYN queue's.
        let overflows = [("TcpExtListenDrops", 40), ("TcpExtListenOverflows", 40)];
        assert_eq!(syn_queue_full(&arm(&overflows, 40)), None);
        let mut below = arm(&drops, 40);
        below.own.queues.as_mut().unwrap().listeners[0].half_open_peak = Some(90);
        assert_eq!(syn_queue_full(&below), None, "the queue was never that long");
    }
}
