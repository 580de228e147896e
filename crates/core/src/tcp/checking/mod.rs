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
pub use setting::{Setting, SettingPlace};

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

#[cfg(test)]
mod tests;
