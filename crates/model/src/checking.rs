//! How are idle connections checked, what does that cost on the wire, and when is a death known?
//!
//! Arithmetic only: [`Checking`] is one way of checking with its settings. What was measured of it
//! is in [`crate::record::Keepalive`]; the two stand side by side in every report. Its costs and
//! bounds are in `checking/cost.rs`, false alarms in `chance.rs`, what the kernel does with data
//! that nobody acknowledges in `retransmission.rs`, the search for a setting in `choice.rs`.

use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod chance;
mod choice;
mod cost;
mod retransmission;
mod setting;

pub use chance::expected_false_alarms;
pub use choice::{Path, Point, cheapest, curve, soonest_s};
pub use cost::WHEEL_SHARE;
pub use retransmission::{ASSUMED_RTT_S, RTO_MIN_S, give_up_s, given_up_by_s, rto_s, sends};
pub use setting::{Place, Setting};

/// A way of finding out that the peer of an idle connection is gone.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Mechanism {
    /// Nothing is done: the connection is only read from.
    #[default]
    None,
    /// Probes of the kernel (`SO_KEEPALIVE`).
    Tcp,
    /// A Null message when nothing has arrived for a time.
    Heartbeat,
    /// No timer: connections are tested when room is needed.
    Lazy,
    /// The program writes now and then, and waits for the kernel to say that it gave up.
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
    /// Its kernel has acknowledged the Null: nothing sent is unacknowledged. A stopped process on
    /// a running machine passes.
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

/// One way of checking idle connections, with its settings; what a mechanism does not have is
/// absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Checking {
    /// Which.
    pub mechanism: Mechanism,
    /// `tcp`: `TCP_KEEPIDLE`; `heartbeat`: how long nothing may arrive before a Null goes; s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_s: Option<f64>,
    /// `tcp`: `TCP_KEEPINTVL`, between unanswered probes; `write`: between two messages; s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_s: Option<f64>,
    /// `tcp`: `TCP_KEEPCNT`, unanswered probes until the peer is given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probes: Option<u32>,
    /// `heartbeat`, `lazy`: a peer that shows no evidence within this after a Null is dead, s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_within_s: Option<f64>,
    /// What counts as evidence, where the program judges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
    /// Bytes of a Null message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub null_bytes: Option<u32>,
    /// `TCP_USER_TIMEOUT`, s; absent: the kernel's own limit on retransmission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_timeout_s: Option<f64>,
    /// `write`: when the kernel gives up data that nobody acknowledges, s from its first sending;
    /// [`given_up_by_s`] of the host's `tcp_retries2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmission_s: Option<f64>,
    /// `lazy`: connections from which on room is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<u64>,
    /// `lazy`: which are tested, when testing ends, in which order: `idle for 10 s, until below N,
    /// least recently used first`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// The program's timers fire at most this late, s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tick_s: Option<f64>,
}

#[cfg(test)]
mod tests;
