//! When a death is known, and what a healthy connection costs until then.
//!
//! Bounds are arithmetic, and the granularity of timers is a figure of its own. The kernel's timer wheel
//! fires up to an eighth late, so a death that probes of 4 s detect after 4.06 s is in time up to 4.51 s. One
//! tolerance for all would have hidden a late heartbeat, or blamed the kernel.

use super::retransmission::{ASSUMED_RTT_S, first_retransmission_s, rto_s};
use super::{Checking, Evidence, Mechanism};

/// Bytes of a segment without payload, from the IP header on: IPv4 20, TCP 20, time stamps 12.
const BARE_BYTES: f64 = 52.0;

const HOUR_S: f64 = 3600.0;

/// Timers of the kernel fire late by at most this share of their wait.
///
/// Source: Linux `kernel/time/timer.c`: each level of the wheel is 8 times coarser than the one
/// before, and takes waits of at least 8 of its steps.
pub const WHEEL_SHARE: f64 = 0.125;

/// What a timer of the kernel may be late beyond that, s: one jiffy at 100 Hz.
const JIFFY_S: f64 = 0.01;

/// What a program that runs at once may be late beyond its tick, s.
const WAKE_UP_S: f64 = 0.005;

impl Checking {
    /// How long an idle connection is left alone between two tests, s.
    ///
    /// `tcp`: the longer of idle time and interval: after an answered probe the timer sleeps for an
    /// interval before it looks at the idle time again (measured on Linux 6.18 with an idle time of
    /// 1 s and an interval of 4 s: a probe every 4 s). `heartbeat`: where acknowledgments are the
    /// evidence, the longer of idle time and time for an answer, because they are looked at when
    /// that is over.
    /// None: nothing is tested by time, or a setting is missing.
    pub fn period_s(&self) -> Option<f64> {
        match self.mechanism {
            Mechanism::None | Mechanism::Lazy => None,
            Mechanism::Tcp => Some(self.idle_s?.max(self.interval_s?)),
            Mechanism::Heartbeat if self.answered() => self.idle_s,
            Mechanism::Heartbeat => Some(self.idle_s?.max(self.answer_within_s.unwrap_or(0.0))),
            Mechanism::Write => self.interval_s,
        }
        .filter(|period| *period > 0.0)
    }

    /// `tcp`: unanswered probes until the peer is given up.
    ///
    /// With `TCP_USER_TIMEOUT` the kernel ignores the count: it gives up at the first timer that
    /// fires so long after the last segment arrived, with at least one probe unanswered.
    ///
    /// Source: Linux 6.18 `net/ipv4/tcp_timer.c` `tcp_keepalive_timer`.
    /// None: another mechanism, or a setting is missing.
    pub fn probes_in_a_test(&self) -> Option<u32> {
        let (period, interval) = (self.period_s()?, self.interval_s?);
        match (self.mechanism, self.user_timeout_s) {
            (Mechanism::Tcp, Some(_)) if interval <= 0.0 => None,
            (Mechanism::Tcp, Some(limit)) => {
                Some((((limit - period) / interval).ceil() as u32).max(1))
            }
            (Mechanism::Tcp, None) => self.probes,
            _ => None,
        }
    }

    /// From the death of the peer to knowing it, at most, s; [`Self::granularity_s`] comes on top.
    ///
    /// The peer dies right after its last segment, so the whole idle time is still to come. What
    /// the link delays that segment comes on top, too.
    ///
    /// - `tcp`: idle time and an interval for each probe, also for the last.
    /// - `heartbeat`: idle time, and the time for an answer.
    /// - `write`: interval, and retransmission. A `TCP_USER_TIMEOUT` counts from the first repeat
    ///   by RTO, not from the message: 1.2 s later at the round-trip time of 200 ms that is assumed.
    ///
    /// None: `none` and `lazy`, which know only when something is written or room is needed; or a
    /// setting is missing.
    pub fn bound_s(&self) -> Option<f64> {
        let period = self.period_s()?;
        let after = match self.mechanism {
            Mechanism::None | Mechanism::Lazy => return None,
            Mechanism::Tcp => f64::from(self.probes_in_a_test()?) * self.interval_s?,
            Mechanism::Heartbeat => self.answer_within_s?,
            Mechanism::Write => self.gives_up_s(ASSUMED_RTT_S)?,
        };
        Some(period + after)
    }

    /// `write`: how long after a message the kernel gives it up, s.
    pub(super) fn gives_up_s(&self, rtt_s: f64) -> Option<f64> {
        let limited = |limit| first_retransmission_s(rto_s(rtt_s)) + limit;
        self.user_timeout_s.map(limited).or(self.retransmission_s)
    }

    /// How much later than the bound the timers may fire, s.
    ///
    /// Those of the kernel an eighth of their wait and a jiffy; those of the program a tick for the
    /// Null and one for the verdict. `lazy`: of a test, once room is needed.
    /// None: no timer runs, or there is no bound to take a share of.
    pub fn granularity_s(&self) -> Option<f64> {
        let kernel = |bound: f64| bound * WHEEL_SHARE + JIFFY_S;
        let ticks = 2.0 * self.tick_s.unwrap_or(0.0);
        match self.mechanism {
            Mechanism::None => None,
            Mechanism::Tcp => self.bound_s().map(kernel),
            Mechanism::Write => self.bound_s().map(|bound| kernel(bound) + ticks),
            Mechanism::Heartbeat | Mechanism::Lazy => Some(ticks + WAKE_UP_S),
        }
    }

    /// Bound and granularity together: a death that is known later was found late, s.
    pub fn known_within_s(&self) -> Option<f64> {
        Some(self.bound_s()? + self.granularity_s()?)
    }

    /// Packets of one healthy idle connection an hour, both directions together.
    ///
    /// A probe and its answer; a Null and its acknowledgment; a Null, the program's answer (which
    /// acknowledges it) and the acknowledgment of that. At most: late timers make it fewer. Where
    /// both sides check, each costs this. The first answer of a connection takes a packet more,
    /// because its host does not expect one yet (measured on Linux 6.18: 4, then 3 each).
    ///
    /// Range: 0 for `none`, and for `lazy` as long as no room is wanted.
    /// None: a setting is missing.
    pub fn packets_per_hour(&self) -> Option<f64> {
        self.per_hour(self.packets_a_test())
    }

    /// Bytes of one healthy idle connection an hour, both directions together, from the IP header
    /// on, over IPv4 with time stamps; see [`Self::packets_per_hour`].
    ///
    /// None: a setting is missing, for messages also their size.
    pub fn bytes_per_hour(&self) -> Option<f64> {
        let payloads = match self.mechanism {
            Mechanism::None | Mechanism::Lazy | Mechanism::Tcp => 0.0,
            Mechanism::Heartbeat | Mechanism::Write => {
                let answers = if self.answered() { 2.0 } else { 1.0 };
                answers * f64::from(self.null_bytes?)
            }
        };
        self.per_hour(self.packets_a_test() * BARE_BYTES + payloads)
    }

    /// Whether only the peer's program is evidence.
    pub(super) fn answered(&self) -> bool {
        let judges = matches!(self.mechanism, Mechanism::Heartbeat | Mechanism::Lazy);
        judges && self.evidence == Some(Evidence::Answered)
    }

    fn packets_a_test(&self) -> f64 {
        if self.answered() { 3.0 } else { 2.0 }
    }

    fn per_hour(&self, a_test: f64) -> Option<f64> {
        match self.mechanism {
            Mechanism::None | Mechanism::Lazy => Some(0.0),
            _ => Some(a_test * HOUR_S / self.period_s()?),
        }
    }
}
