//! How are idle connections checked, what does that cost on the wire, and when is a death known?
//!
//! Arithmetic only: [`Checking`] is one way of checking with its settings. What was measured of it
//! is in [`crate::record::Keepalive`]; the two stand side by side in every report. What the kernel does
//! with data that nobody acknowledges, and false alarms, are in `retransmission.rs`; the search for a
//! setting, and what has to be set, in `choice.rs`.
//!
//! Bounds are arithmetic, and the granularity of timers is a figure of its own. The kernel's timer wheel
//! fires up to an eighth late, so a death that probes of 4 s detect after 4.06 s is in time up to 4.51 s. One
//! tolerance for all would have hidden a late heartbeat, or blamed the kernel.

mod choice;
mod retransmission;

pub use choice::{Path, Point, Setting, SettingPlace, cheapest, curve, soonest_s};
pub use retransmission::{
    ASSUMED_RTT_S, RTO_MIN_S, expected_false_alarms, give_up_s, given_up_by_s, rto_s, sends,
};

use std::fmt;
use std::time::Duration;

use retransmission::first_retransmission_s;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Mechanism that detects the dead peer of an idle connection.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Mechanism {
    /// The program only reads from the connection.
    #[default]
    None,
    /// Kernel probes (`SO_KEEPALIVE`).
    Tcp,
    /// A heartbeat (Null message) when nothing has arrived for a time.
    Heartbeat,
    /// No timer: idle connections are tested when a new connection needs a place.
    Lazy,
    /// The program writes at an interval, until the kernel gives up and reports an error.
    Write,
}

impl Mechanism {
    /// All, in the order of reports.
    pub const ALL: [Self; 5] = [Self::None, Self::Tcp, Self::Heartbeat, Self::Lazy, Self::Write];

    /// The name `--mechanism` takes.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Tcp => "tcp",
            Self::Heartbeat => "heartbeat",
            Self::Lazy => "lazy",
            Self::Write => "write",
        }
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What shows that a peer is alive after a test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// Its kernel has acknowledged the heartbeat: no sent data is unacknowledged. A stopped process
    /// on a running machine passes this test.
    #[default]
    Acknowledged,
    /// Its program has answered.
    Answered,
}

/// A time of the kernel's probes, s; `None`: it takes whole seconds from 1 to 32,767 only.
///
/// Source: `MAX_TCP_KEEPIDLE` and `MAX_TCP_KEEPINTVL` of Linux `include/net/tcp.h`.
#[must_use]
pub fn probe_seconds(time: Duration) -> Option<f64> {
    let seconds = time.as_secs();
    (time.subsec_nanos() == 0 && (1..=32_767).contains(&seconds)).then_some(seconds as f64)
}

/// A mechanism with its settings. Settings that the mechanism does not have are absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Checking {
    /// The mechanism.
    pub mechanism: Mechanism,
    /// `tcp`: `TCP_KEEPIDLE`; `heartbeat`: idle time before a heartbeat; s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_s: Option<f64>,
    /// `tcp`: `TCP_KEEPINTVL`, between unanswered probes; `write`: between two writes; s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_s: Option<f64>,
    /// `tcp`: `TCP_KEEPCNT`, unanswered probes after which the peer counts as dead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probes: Option<u32>,
    /// `heartbeat`, `lazy`: a peer without evidence of life within this time after a heartbeat
    /// counts as dead, s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_within_s: Option<f64>,
    /// What counts as evidence of life, where the program decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
    /// Bytes of a heartbeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub null_bytes: Option<u32>,
    /// `TCP_USER_TIMEOUT`, s; absent: the kernel's own limit of retransmission applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_timeout_s: Option<f64>,
    /// `write`: when the kernel gives up unacknowledged data, s after its first transmission;
    /// [`given_up_by_s`] of the host's `tcp_retries2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmission_s: Option<f64>,
    /// `lazy`: connection limit, at which idle connections are tested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<u64>,
    /// `lazy`: which connections are tested, until when, and in which order: `idle for 10 s, until
    /// below N, least recently used first`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// Granularity of the program's timers, s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tick_s: Option<f64>,
}

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
    fn gives_up_s(&self, rtt_s: f64) -> Option<f64> {
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
    fn answered(&self) -> bool {
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

#[cfg(test)]
mod tests;
