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
//!
//! How many half-open requests a listener holds before its kernel drops SYNs or sends cookies follows from
//! three settings of the server ([`HalfOpenSettings`]): the backlog of listen(2) after the clamp to
//! `net.core.somaxconn`, `net.ipv4.tcp_max_syn_backlog` and `net.ipv4.tcp_syncookies`. What a full
//! queue means for clients is measured, and not said here.
//!
//! When a kernel sends a SYN again is its ladder ([`syn_ladder`]): a `connect()` that took 1, 3 or 7 seconds
//! is the trace of a lost or refused SYN. Which times these are depends on two sysctls, so the ladder is
//! computed from the host's own and never assumed. The server's kernel retransmits a SYN-ACK whose ACK it
//! did not take; that ladder is of the server, and it always doubles.

use std::time::Duration;

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

/// The settings of a server that limit a listener's half-open requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalfOpenSettings {
    /// The effective backlog: the argument of listen(2), clamped to `net.core.somaxconn`.
    pub backlog: u32,
    /// `net.ipv4.tcp_max_syn_backlog`.
    pub max_syn_backlog: u32,
    /// `net.ipv4.tcp_syncookies`: 0 never, 1 when the SYN queue is full, 2 for every SYN.
    pub syncookies: u32,
}

/// What the kernel does with a SYN that meets a full SYN queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// It drops the SYN and counts `TcpExtTCPReqQFullDrop`: the backlog is the limit.
    DropsAndCounts,
    /// It drops the SYN and counts `TcpExtListenDrops` alone: the last quarter of
    /// `tcp_max_syn_backlog` is kept for clients that the server knows.
    KeepsLastQuarter,
    /// It answers with a SYN cookie and holds nothing.
    SendsCookie,
}

impl HalfOpenSettings {
    /// Half-open requests of unknown clients that the listener holds.
    ///
    /// With cookies off there are two limits, and the lower one decides. The backlog: the queue is
    /// full when it holds more than the backlog. And three quarters of `tcp_max_syn_backlog`: the rest
    /// is kept for clients of earlier connections, whose round trip the kernel remembers. With cookies
    /// on, `tcp_max_syn_backlog` has no effect. With cookies for every SYN nothing is held.
    ///
    /// Source:  Linux `tcp_conn_request()` of `net/ipv4/tcp_input.c` and `inet_csk_reqsk_queue_is_full()`
    ///          of `include/net/inet_connection_sock.h`; measured on 6.18 for backlogs 1 to 128 and
    ///          `tcp_max_syn_backlog` 1 to 128.
    pub fn holds(self) -> u32 {
        match self.syncookies {
            0 => self.by_backlog().min(self.by_last_quarter()),
            1 => self.by_backlog(),
            _ => 0,
        }
    }

    /// What the kernel does with the next SYN of an unknown client.
    pub fn when_full(self) -> WhenFull {
        match self.syncookies {
            0 if self.by_last_quarter() < self.by_backlog() => WhenFull::KeepsLastQuarter,
            0 => WhenFull::DropsAndCounts,
            _ => WhenFull::SendsCookie,
        }
    }

    fn by_backlog(self) -> u32 {
        self.backlog.saturating_add(1)
    }

    fn by_last_quarter(self) -> u32 {
        (self.max_syn_backlog - self.max_syn_backlog / 4).saturating_add(1)
    }
}

/// The wait before the first repeat (`TCP_TIMEOUT_INIT`, RFC 6298 section 2).
///
/// A route's `rto_min` or a BPF program can change it; then the ladder does not apply.
const INITIAL_RTO: Duration = Duration::from_secs(1);

/// No wait is longer (`TCP_RTO_MAX`, the default of `tcp_rto_max_ms` since Linux 6.15).
const RTO_MAX: Duration = Duration::from_mins(2);

/// Doublings from the initial RTO that stay below its maximum: `ilog2(120)`.
const DOUBLINGS_BELOW_MAX: u32 = 6;

/// The sysctls of a host that say when a SYN is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SynSysctls {
    /// `net.ipv4.tcp_syn_retries`, or the socket's `TCP_SYNCNT`. The kernel allows 1 to 127.
    pub syn_retries: u32,
    /// `net.ipv4.tcp_syn_linear_timeouts`: repeats before the wait doubles; 0 where the sysctl is
    /// absent (before Linux 6.5).
    pub linear_timeouts: u32,
}

impl SynSysctls {
    /// How long the kernel goes on: once a wait ends at or after this, it gives up instead of
    /// sending again, even if the count of repeats is not used up.
    ///
    /// It is the length that doubling alone would have taken, and linear repeats do not prolong
    /// it: with 1 retry and 4 linear timeouts the SYN goes again at 1 s and 2 s, and `connect()`
    /// fails at 3 s; with 3 retries and 10 it goes 12 times, not 13 (measured on Linux 6.18).
    fn patience(self) -> Duration {
        let doublings = self.syn_retries.min(DOUBLINGS_BELOW_MAX);
        let at_most = self.syn_retries - doublings;
        INITIAL_RTO * ((2 << doublings) - 1) + RTO_MAX * at_most
    }
}

/// The times at which a SYN that stays unanswered goes again, counted from the first SYN.
///
/// Shape:   ascending; at most `syn_retries + linear_timeouts` entries; the moment `connect()`
///          fails with `ETIMEDOUT` is not among them.
/// Range:   both sysctls are taken as at most 255, what their kernel type can hold.
/// Source:  Linux `net/ipv4/tcp_timer.c`: `tcp_write_timeout` (how many and how long),
///          `tcp_retransmit_timer` (when the wait doubles), `tcp_model_timeout`; read at 6.12 and
///          measured on 6.18.
pub fn syn_ladder(s: &SynSysctls) -> Vec<Duration> {
    let sysctls = SynSysctls {
        syn_retries: s.syn_retries.min(255),
        linear_timeouts: s.linear_timeouts.min(255),
    };
    let mut ladder = Vec::new();
    let (mut wait, mut at) = (INITIAL_RTO, INITIAL_RTO);
    for repeat in 1..=sysctls.syn_retries + sysctls.linear_timeouts {
        if at >= sysctls.patience() {
            break;
        }
        ladder.push(at);
        if repeat > sysctls.linear_timeouts {
            wait = (wait * 2).min(RTO_MAX);
        }
        at += wait;
    }
    ladder
}

/// The times at which a SYN-ACK that stays unacknowledged goes again, counted from the first one.
///
/// A listener whose SYN queue is more than half full gives up earlier, after two or more repeats.
///
/// Shape:   ascending; `synack_retries` entries, those of `net.ipv4.tcp_synack_retries`.
/// Range:   the sysctl is taken as at most 255, what its kernel type can hold.
/// Source:  Linux `net/ipv4/inet_connection_sock.c`: `reqsk_timer_handler` (it sends while
///          `num_timeout` is below the number of retries), `tcp_reqsk_timeout` (the wait doubles, to at
///          most `TCP_RTO_MAX`); measured on 6.18.
pub fn syn_ack_ladder(synack_retries: u32) -> Vec<Duration> {
    let (mut wait, mut at) = (INITIAL_RTO, Duration::ZERO);
    let next = |_| {
        at += wait;
        wait = (wait * 2).min(RTO_MAX);
        at
    };
    (0..synack_retries.min(255)).map(next).collect()
}

/// The index of the rung on which a latency stands: `rung <= latency < rung + slack`.
///
/// None: the latency is below the first rung or between two, so a repeated SYN does not explain it.
/// Where the slack makes rungs overlap, the last that fits is taken.
///
/// The kernel's timers are coarser the longer they run, and lateness adds up: idle, Linux 6.18 was
/// at 1.02 s, 3.02 s, 7.25 s, 15.44 s, 31.57 s and 65.11 s without linear timeouts, and at 5.1 s,
/// 7.1 s, 11.33 s, 19.53 s, 35.65 s and 69.19 s after four. A slack of 0.6 s covers the rungs up to
/// 35 s with a round trip on top.
pub fn on_ladder(latency: Duration, ladder: &[Duration], slack: Duration) -> Option<usize> {
    ladder.iter().rposition(|&rung| latency.checked_sub(rung).is_some_and(|late| late < slack))
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

    fn with(syncookies: u32, backlog: u32, max_syn_backlog: u32) -> HalfOpenSettings {
        HalfOpenSettings { backlog, max_syn_backlog, syncookies }
    }

    #[test]
    fn the_lower_of_two_limits_decides_without_cookies() {
        // Measured on Linux 6.18: SYNs of nobody that a listener held.
        for (backlog, max_syn_backlog, held) in [
            (1, 128, 2),
            (4, 16, 5),
            (64, 1, 2),
            (64, 3, 4),
            (64, 16, 13),
            (64, 128, 65),
            (128, 128, 97),
            (128, 1_024, 129),
        ] {
            let settings = with(0, backlog, max_syn_backlog);
            assert_eq!(settings.holds(), held, "{settings:?}");
        }
        assert_eq!(with(0, 128, 128).when_full(), WhenFull::KeepsLastQuarter);
        assert_eq!(with(0, 96, 128).when_full(), WhenFull::DropsAndCounts, "97 both ways");
    }

    #[test]
    fn with_cookies_the_backlog_alone_decides() {
        assert_eq!((with(1, 128, 16).holds(), with(1, 4, 16).holds()), (129, 5));
        assert_eq!(with(1, 128, 16).when_full(), WhenFull::SendsCookie);
        assert_eq!(with(2, 128, 1_024).holds(), 0, "a cookie for every SYN");
    }

    #[test]
    fn no_setting_overflows() {
        assert_eq!(with(0, u32::MAX, u32::MAX).holds(), u32::MAX - u32::MAX / 4 + 1);
        assert_eq!(with(1, u32::MAX, 0).holds(), u32::MAX);
        assert_eq!(with(0, 0, 0).holds(), 1);
    }

    fn seconds(syn_retries: u32, linear_timeouts: u32) -> Vec<u64> {
        let ladder = syn_ladder(&SynSysctls { syn_retries, linear_timeouts });
        ladder.iter().map(Duration::as_secs).collect()
    }

    #[test]
    fn without_linear_timeouts_every_wait_doubles() {
        assert_eq!(seconds(6, 0), [1, 3, 7, 15, 31, 63]);
        assert_eq!(seconds(1, 0), [1]);
    }

    #[test]
    fn four_linear_timeouts_come_on_top_of_the_six_retries() {
        assert_eq!(seconds(6, 4), [1, 2, 3, 4, 5, 7, 11, 19, 35, 67]);
    }

    #[test]
    fn linear_timeouts_do_not_prolong_the_patience_of_few_retries() {
        assert_eq!(seconds(1, 4), [1, 2]);
        assert_eq!(seconds(2, 10), [1, 2, 3, 4, 5, 6]);
        assert_eq!(seconds(3, 10), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13]);
        assert_eq!(seconds(4, 10).last(), Some(&25));
    }

    #[test]
    fn no_wait_is_longer_than_two_minutes() {
        assert_eq!(seconds(9, 0), [1, 3, 7, 15, 31, 63, 127, 247, 367]);
    }

    #[test]
    fn syn_acks_double_from_the_first_on() {
        let seconds = |retries| -> Vec<u64> {
            syn_ack_ladder(retries).iter().map(Duration::as_secs).collect()
        };
        assert_eq!(seconds(5), [1, 3, 7, 15, 31]);
        assert_eq!(seconds(8), [1, 3, 7, 15, 31, 63, 127, 247]);
        assert!(seconds(0).is_empty() && seconds(u32::MAX).len() == 255);
    }

    #[test]
    fn impossible_sysctls_do_not_panic() {
        assert!(seconds(u32::MAX, u32::MAX).len() <= 510);
        assert!(seconds(0, 0).is_empty());
    }

    #[test]
    fn a_latency_stands_on_the_rung_just_below_it() {
        let ladder = syn_ladder(&SynSysctls { syn_retries: 6, linear_timeouts: 0 });
        let slack = Duration::from_millis(300);
        let rung = |ms| on_ladder(Duration::from_millis(ms), &ladder, slack);
        assert_eq!(rung(999), None);
        assert_eq!(rung(1000), Some(0));
        assert_eq!(rung(1299), Some(0));
        assert_eq!(rung(1300), None);
        assert_eq!(rung(3010), Some(1));
    }
}
