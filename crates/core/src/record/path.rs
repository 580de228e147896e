//! The path between two hosts of the user's, where the lab has a certificate of its link.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::stats::HistogramSummary;

/// The path as it was before and after a load, and what the clocks of its ends are apart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Path {
    /// The client's host and the server's, as they were typed.
    #[serde(default)]
    pub hosts: [String; 2],
    /// Address that the client connected to.
    pub server_address: String,
    /// How the client's packets leave its host. Absent: its kernel did not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<Route>,
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
    /// Instants of the two hosts during the load compare within this, µs: no step between two hosts that
    /// takes less than three times as long is shown. Absent: the clocks could not be compared before and
    /// after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_bound_us: Option<f64>,
}

/// What a kernel says of the way to an address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Route {
    /// Network device that packets leave by.
    pub device: String,
    /// Router they are handed to. Absent: the address is on the device's own network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// Address they come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Longest IP packet that this kernel sends there, bytes; a router on the way may pass less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu_bytes: Option<u32>,
}

/// What else a machine did while nothing of the run was under way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Background {
    /// Length of the idle window before the load, s; there is another one after it.
    pub seconds: f64,
    /// Connections that others opened or accepted, per second.
    pub connections_per_s: f64,
    /// Connections during the load that the load did not open, per second: what the kernel counted beyond
    /// the load's own. Absent: the load does not count its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub during_load_per_s: Option<f64>,
    /// Counters that are not the load's own, so they are left out of the host's `counters`: each moved at
    /// least a hundredth as fast before the load or after it, or others opened a tenth of all connections during it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}
