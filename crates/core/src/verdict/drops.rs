//! Which packets did a server's kernel drop at its listeners, and do the client's retransmissions agree?
//!
//! The kernel counts drops in sums. `TcpExtListenOverflows` holds SYNs, last ACKs of half-open requests and
//! ACKs of SYN cookies, all of which met a full accept queue; `TcpExtListenDrops` holds these and the SYNs
//! that met a full SYN queue. [`balance`] separates them by what the client knows: it sent a last ACK for
//! each handshake that it completed, and another one for each retransmitted SYN-ACK
//! (`TcpExtTCPSYNChallenge`). Each of these ACKs either opened a connection on the server (`TcpPassiveOpens`)
//! or was dropped. So SYNs dropped, last ACKs dropped and refused cookie ACKs follow from the counters of
//! both kernels; resets on the wire and `sk_drops` are their witnesses. Handshakes are in flight on a direct
//! link too, where the machine is busy: of 543 drops there 283 were SYNs, 11 last ACKs and 249 cookie ACKs.
//!
//! It takes for granted that no packet was lost on the link, that answers take less than a retransmission
//! (1 s), that clients send no data, and that those which give up close with a RST. Nothing else may
//! connect to the server host.
//!
//! Source: `tcp_conn_request()`, `tcp_v4_syn_recv_sock()`, `tcp_check_req()`, `cookie_v4_check()` and
//! `tcp_validate_incoming()` of Linux net/ipv4; measured on 6.18.

use crate::record::DropBalance;

/// What was counted of one load.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// SYNs of the clients that got no answer, from `TCP_INFO` of each connection.
    pub syns_unanswered: u64,
    /// Handshakes that the client's kernel completed.
    pub established: u64,
    /// Handshakes that the client began and did not complete. The server may have answered them too late.
    pub unfinished: u64,
    /// The client's `TcpExtTCPSYNChallenge`: retransmitted SYN-ACKs that it acknowledged again.
    pub syn_acks_again: u64,
    /// The server's `TcpPassiveOpens`.
    pub opened: u64,
    /// The server's `TcpExtListenOverflows`.
    pub overflows: u64,
    /// The server's `TcpExtListenDrops`.
    pub drops: u64,
    /// The server's `TcpExtSyncookiesSent`.
    pub cookies_sent: u64,
    /// The server's `TcpExtSyncookiesRecv`.
    pub cookies_received: u64,
    /// The server's `TcpExtEmbryonicRsts`: half-open requests that a RST ended, of either side.
    pub requests_reset: u64,
    /// Resets from the server on the wire; absent where it was not watched.
    pub resets_on_wire: Option<u64>,
    /// Whether `net.ipv4.tcp_abort_on_overflow` was on.
    pub aborts: bool,
}

/// Two figures that must be equal and are not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// What they are of.
    pub what: &'static str,
    /// What the clients' side says.
    pub ours: u64,
    /// What the server's kernel or the wire says.
    pub witness: u64,
}

impl Counted {
    /// What all listeners together report as drops (`sk_drops`), if the parts are these: the last ACK of a
    /// half-open request counts twice, and a RST that ends a request counts as well.
    ///
    /// None: fewer requests were reset than `tcp_abort_on_overflow` must have reset.
    pub fn by_sockets(&self, drops: &DropBalance) -> Option<u64> {
        let by_abort = if self.aborts { drops.acks_dropped } else { 0 };
        let by_clients = self.requests_reset.checked_sub(by_abort)?;
        Some(drops.counted + drops.acks_dropped + by_clients)
    }
}

/// Packets dropped at listeners by their kind, and what does not agree.
///
/// None: the figures contradict each other, so that a part would be below 0; there is a doubt then.
pub fn balance(seen: &Counted) -> (Option<DropBalance>, Vec<Doubt>) {
    let acks = seen.established + seen.syn_acks_again;
    let mut doubts = Vec::new();
    let mut compare = |what, ours, witness| {
        if ours != witness {
            doubts.push(Doubt { what, ours, witness });
        }
    };
    let parts = || {
        // ACKs that opened nothing.
        let refused = acks.checked_sub(seen.opened)?;
        let cookie_acks_refused = if seen.cookies_sent == 0 {
            0
        } else {
            // Handshakes without a cookie were half-open requests; those that no RST ended were
            // opened. The other opened ones had a cookie.
            let requests = seen.established.checked_sub(seen.cookies_sent)?;
            let opened_by_request = requests.checked_sub(seen.requests_reset)?;
            let opened_by_cookie = seen.opened.checked_sub(opened_by_request)?;
            seen.cookies_received.checked_sub(opened_by_cookie)?
        };
        let acks_dropped = refused.checked_sub(cookie_acks_refused)?;
        let syns_dropped = seen.overflows.checked_sub(refused)?;
        let syns_dropped_half_open = seen.drops.checked_sub(seen.overflows)?;
        let by_abort = if seen.aborts { seen.requests_reset } else { 0 };
        Some(DropBalance {
            syns_unanswered: seen.syns_unanswered,
            syns_dropped,
            syns_dropped_half_open,
            acks_dropped,
            cookie_acks_refused,
            resets_sent: seen.resets_on_wire.unwrap_or(by_abort),
            counted: seen.drops,
        })
    };
    let Some(drops) = parts() else {
        compare("last ACK of a handshake", acks, seen.opened + seen.overflows);
        let answered = seen.opened + seen.requests_reset + seen.cookies_sent;
        let possible = seen.established..=seen.established + seen.unfinished;
        // An answer that came after its client gave up makes the parts inseparable, not the figures wrong.
        if doubts.is_empty() && (seen.unfinished == 0 || !possible.contains(&answered)) {
            doubts.push(Doubt {
                what: "handshake that the server answered",
                ours: seen.established,
                witness: answered,
            });
        }
        return (None, doubts);
    };
    compare(
        "SYN without an answer",
        seen.syns_unanswered,
        drops.syns_dropped + drops.syns_dropped_half_open,
    );
    // The server also resets connections that it closed if their client sends something later.
    if seen.aborts && drops.resets_sent < drops.acks_dropped {
        compare(
            "reset for a last ACK that met a full queue",
            drops.acks_dropped,
            drops.resets_sent,
        );
    }
    (Some(drops), doubts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_distance_every_drop_is_a_syn() {
        // 500 clients: 118 waited for the second SYN, 3 of them for a third.
        let seen = Counted {
            syns_unanswered: 121,
            established: 500,
            opened: 500,
            overflows: 121,
            drops: 121,
            ..Counted::default()
        };
        let (drops, doubts) = balance(&seen);
        let drops = drops.unwrap();
        assert_eq!((drops.syns_dropped, drops.acks_dropped, drops.counted), (121, 0, 121));
        assert_eq!(doubts, []);
        let (_, doubts) = balance(&Counted { syns_unanswered: 120, ..seen });
        let expected = Doubt { what: "SYN without an answer", ours: 120, witness: 121 };
        assert_eq!(doubts, [expected]);
    }

    #[test]
    fn with_handshakes_in_flight_syns_and_last_acks_are_told_apart() {
        // 100 handshakes; 17 are opened, 83 last ACKs are dropped. 60 open after one retransmitted
        // SYN-ACK, 23 after two. 40 SYNs of others are dropped for want of room.
        let seen = Counted {
            syns_unanswered: 40,
            established: 100,
            syn_acks_again: 60 + 2 * 23,
            opened: 100,
            overflows: 83 + 23 + 30,
            drops: 83 + 23 + 30 + 10,
            ..Counted::default()
        };
        let (drops, doubts) = balance(&seen);
        let drops = drops.unwrap();
        assert_eq!((drops.syns_dropped, drops.syns_dropped_half_open), (30, 10));
        assert_eq!((drops.acks_dropped, drops.cookie_acks_refused), (106, 0));
        assert_eq!(doubts, []);
    }

    #[test]
    fn cookies_that_met_a_full_queue_are_no_requests() {
        // 200 handshakes: 20 half-open requests, of which clients give up 5; 180 cookies, of which 12
        // are opened.
        let seen = Counted {
            established: 200,
            syn_acks_again: 10,
            opened: 15 + 12,
            overflows: 168 + 15,
            drops: 168 + 15,
            cookies_sent: 180,
            cookies_received: 180,
            requests_reset: 5,
            ..Counted::default()
        };
        let (drops, doubts) = balance(&seen);
        let drops = drops.unwrap();
        assert_eq!((drops.acks_dropped, drops.cookie_acks_refused), (15, 168));
        assert_eq!((drops.syns_dropped, doubts), (0, vec![]));
    }

    #[test]
    fn with_abort_every_dropped_last_ack_is_a_reset() {
        let seen = Counted {
            established: 100,
            opened: 17,
            overflows: 83,
            drops: 83,
            requests_reset: 83,
            resets_on_wire: Some(83),
            aborts: true,
            ..Counted::default()
        };
        let (drops, doubts) = balance(&seen);
        let drops = drops.unwrap();
        assert_eq!((drops.resets_sent, doubts), (83, vec![]));
        assert_eq!(seen.by_sockets(&drops), Some(2 * 83), "each ACK counts twice there");
        let given_up = Counted { requests_reset: 85, ..seen };
        assert_eq!(given_up.by_sockets(&drops), Some(2 * 83 + 2));
        assert_eq!(Counted { requests_reset: 82, ..seen }.by_sockets(&drops), None);
        let (_, doubts) = balance(&Counted { resets_on_wire: Some(82), ..seen });
        assert_eq!((doubts[0].ours, doubts[0].witness), (83, 82));
    }

    #[test]
    fn resets_of_other_connections_are_no_doubt() {
        let seen = Counted {
            established: 10,
            opened: 10,
            resets_on_wire: Some(3),
            aborts: true,
            ..Counted::default()
        };
        let (drops, doubts) = balance(&seen);
        assert_eq!((drops.unwrap().acks_dropped, doubts), (0, vec![]));
    }

    #[test]
    fn answers_that_came_after_their_clients_gave_up_give_neither_a_balance_nor_a_doubt() {
        let late = Counted { unfinished: 30, cookies_sent: 30, ..Counted::default() };
        assert_eq!(balance(&late), (None, vec![]));
        let (_, doubts) = balance(&Counted { unfinished: 29, ..late });
        assert_eq!((doubts[0].ours, doubts[0].witness), (0, 30));
    }

    #[test]
    fn figures_that_contradict_each_other_give_no_balance_but_a_doubt() {
        let more_opened = Counted { established: 10, opened: 11, ..Counted::default() };
        let few_overflows = Counted { established: 10, opened: 5, overflows: 4, ..<_>::default() };
        let odd_cookies = Counted { established: 1, opened: 1, cookies_sent: 2, ..<_>::default() };
        for seen in [more_opened, few_overflows, odd_cookies] {
            let (drops, doubts) = balance(&seen);
            assert!(drops.is_none() && doubts.len() == 1, "{seen:?}: {doubts:?}");
        }
    }
}
