//! The path between two hosts of the user's, where the lab has a certificate of its link.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::stats::HistogramSummary;

/// The path as it was before and after a load, and what the clocks of its ends are apart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Path {
    /// Address that the client connected to.
    pub server_address: String,
    /// Round trips of small UDP datagrams on the quiet path, µs; none came back: absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_us: Option<HistogramSummary>,
    /// Datagrams sent, and those that came back.
    pub datagrams: [u64; 2],
    /// The server's clock less the client's before the load, µs. Both are monotonic clocks, which begin when
    /// a machine starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_offset_us: Option<f64>,
    /// Its error is at most this, µs: half of the shortest round trip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_offset_bound_us: Option<f64>,
    /// How much faster the server's clock ran than the client's during the load, ppm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_drift_ppm: Option<f64>,
    /// Its error is at most this, ppm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_drift_bound_ppm: Option<f64>,
}

/// What else a machine did while nothing of the run was under way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Background {
    /// Length of the idle window, s.
    pub seconds: f64,
    /// Connections that others opened or accepted, per second.
    pub connections_per_s: f64,
    /// Counters that moved at least a tenth as fast as during the load: they are left out of the host's
    /// `counters`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}
