//! What only `connect` records of an arm.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::record::merge::Merge;

/// Where the time of one operation went, step by step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Timeline {
    /// The steps in the order of the handshake.
    pub steps: Vec<Step>,
    /// The same handshake from each point of view.
    pub views: Vec<HandshakeView>,
    /// Operations whose every stamp was found.
    pub matched: u64,
    /// Operations left out because a stamp is missing or they were retransmitted.
    pub unmatched: u64,
    /// `measured`; `witness`: a shorter trial of its own with a packet tap; `tcp-info`: two parts that the
    /// client's kernel tells, without a capture.
    pub source: String,
}

/// One step of a timeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// What happens: `SYN on its way`.
    pub name: String,
    /// `client`, `wire` or `server`: whose time it is.
    pub at: String,
    /// When the median operation begins the step, µs after `connect()` was called.
    pub begins_us: f64,
    /// Median, µs.
    pub p50_us: f64,
    /// 99th percentile, µs; absent with fewer than ten values beyond.
    #[serde(default)]
    pub p99_us: Option<f64>,
}

/// The handshake from one point of view.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "View")]
pub struct HandshakeView {
    /// `client`, `server kernel`, `server process` or `wire`.
    pub name: String,
    /// From what to what.
    pub span: String,
    /// Median, µs.
    pub p50_us: f64,
    /// What arithmetic expects, in round trips: 1, 1.5.
    pub expected_rtts: f64,
}

/// What arithmetic expects of one operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Expectation {
    /// One round trip plus the CPU of both ends, µs.
    pub client_us: f64,
    /// One and a half round trips plus CPU, until the server's process has it, µs.
    pub server_process_us: f64,
    /// The round trip these rest on, µs, and where it is from.
    pub rtt_us: f64,
    /// `link setting`, `ICMP echo`.
    pub rtt_from: String,
    /// CPU of both ends that is part of it, µs; absent if it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_us: Option<f64>,
    /// Distance given by the user, km.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distance_km: Option<f64>,
    /// Least round trip over that distance in fibre, µs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_fibre_us: Option<f64>,
    /// Least round trip over that distance in vacuum, µs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_vacuum_us: Option<f64>,
}

impl Merge for Timeline {
    /// The first: steps of several rounds have no common median.
    fn merge(rounds: &[&Self]) -> Option<Self> {
        rounds.first().copied().cloned()
    }
}

impl Merge for Expectation {
    /// The first.
    fn merge(rounds: &[&Self]) -> Option<Self> {
        rounds.first().copied().cloned()
    }
}
