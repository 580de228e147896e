//! What was observed of one arm.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::comparison::Round;
use super::connect::{Expectation, Timeline};
use super::host::{HostSummary, Softirq};
use super::http::Closing;
use super::link::LinkMeasured;
use super::metric::Metric;
use super::own::Own;
use super::path::Path;
use crate::stats::{HistogramSummary, Series};
use crate::tcp::ports::PortForecast;
use crate::tcp::wire::Wire;
use crate::verdict::saturation::Saturation;

/// One combination of factor levels, with everything observed of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Arm {
    /// Unique within the run.
    pub name: String,
    /// Option name to level.
    pub factors: BTreeMap<String, serde_json::Value>,
    /// The link as measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkMeasured>,
    /// The path between machines of the user's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<Box<Path>>,
    /// Single figures.
    pub metrics: BTreeMap<String, Metric>,
    /// Distributions; the name ends in the unit of the quantiles.
    pub histograms: BTreeMap<String, HistogramSummary>,
    /// Operations begun.
    pub attempts: u64,
    /// Operations that succeeded.
    pub ok: u64,
    /// Operations that failed, by class. `attempts` = `ok` + the sum of these.
    pub errors: BTreeMap<String, u64>,
    /// What the first failure of a class said, in the words of the system or of a library.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub first_errors: BTreeMap<String, String>,
    /// Responses by HTTP status, those that count as failures too; empty where none came.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub statuses: BTreeMap<String, u64>,
    /// The client host.
    pub client: HostSummary,
    /// The server host, where it is ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<HostSummary>,
    /// CPU time that belongs to no process alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub softirq: Option<Softirq>,
    /// Packets by kind as the wire saw them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire: Option<Wire>,
    /// Where the time of one operation went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
    /// What arithmetic expects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expectation: Option<Expectation>,
    /// The times at which this host's kernel would send a SYN again, seconds after the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub syn_retry_ladder_s: Vec<f64>,
    /// Handshakes that stand on each rung of that ladder.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rungs: Vec<u64>,
    /// Its rounds in order of running, excluded and failed ones too; empty if it ran once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rounds: Vec<Round>,
    /// What came before the measurement and is in none of its figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup: Option<Warmup>,
    /// Bounded time series by name; the name ends in the unit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub series: BTreeMap<String, Series>,
    /// How connections were to be used again, where it was a matter of choice: `keep-alive`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reuse: Option<String>,
    /// Connections begun, where operations are not connections themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections_attempted: Option<u64>,
    /// Connections that were made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections_ok: Option<u64>,
    /// Who closed connections, and what that left behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closing: Option<Closing>,
    /// How many connections the client's ports allow, worked out before the trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<PortForecast>,
    /// What the load engine waited with: `epoll` or `io_uring`, and how it was batched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io: Option<String>,
    /// More was due than was answered; absent: the schedule was kept, or there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saturation: Option<Saturation>,
    /// What only its experiment records of it.
    #[serde(flatten)]
    pub own: Own,
    /// Wall time of the trial in seconds.
    pub elapsed_s: f64,
    /// The time limit in seconds that kept the load from its number of operations, where nobody asked
    /// for that time: the trial is whole. Absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut_after_s: Option<f64>,
    /// Whether the trial was stopped before its plan was done.
    #[serde(default)]
    pub partial: bool,
    /// Why there is no result, where the trial failed for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// Operations before the measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Warmup {
    /// Operations begun.
    pub attempts: u64,
    /// Operations that succeeded.
    pub ok: u64,
    /// Operations that failed, by class.
    pub errors: BTreeMap<String, u64>,
    /// Wall time, s.
    pub elapsed_s: f64,
    /// Distributions, as in the arm.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub histograms: BTreeMap<String, HistogramSummary>,
}
