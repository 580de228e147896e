//! The SYN queue of a listener, and when a kernel sends a SYN or SYN-ACK again.
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
