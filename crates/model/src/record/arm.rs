//! What was observed of one arm.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{HostSummary, Keepalive, LinkMeasured, Round, Softirq};
use crate::ports::PortForecast;
use crate::saturation::Saturation;
use crate::stats::{HistogramSummary, Series};
use crate::wire::Wire;

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
    /// How idle connections were checked, and what that found out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keepalive: Option<Keepalive>,
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

/// Who closed connections first while the load ran. The sockets in TIME-WAIT that this left are the
/// metrics `client_time_wait` and `server_time_wait`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Closing {
    /// Connections that the client closed first: its FIN did not acknowledge the server's. Where
    /// `both` is absent, those are among them whose FINs crossed.
    pub by_client: u64,
    /// Connections that the server closed first, or reset.
    pub by_server: u64,
    /// Connections that both closed first: their FINs crossed and neither acknowledges the other, so
    /// both ends hold TIME-WAIT. Absent where only the client's end could be counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub both: Option<u64>,
    /// Of those that the server closed: while no request was under way on them, as its keep-alive
    /// time was over.
    pub while_idle: u64,
    /// Times the client asked with `Connection: close` and the server did not close: the client
    /// did, half a second later.
    pub ignored: u64,
    /// Connections still open when the load ended. They are in no other count here; the client
    /// closed them before TIME-WAIT was counted, so their sockets are in `client_time_wait`.
    pub open_at_end: u64,
}

impl Closing {
    /// Connections that were closed while the load ran.
    pub fn closed(&self) -> u64 {
        self.by_client.saturating_add(self.by_server).saturating_add(self.both.unwrap_or(0))
    }
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

/// A single figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Metric {
    /// The figure; of several rounds their mean.
    pub value: f64,
    /// Its unit: `us`, `1/s`, `bytes/s`.
    pub unit: String,
    /// 95 % interval over rounds; absent with too few rounds to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95: Option<[f64; 2]>,
    /// Median over rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub median: Option<f64>,
    /// Observations behind the value: operations of one round, or else rounds.
    pub n: u64,
}

/// Where the time of one operation went, step by step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Timeline {
    /// The steps in the order of the handshake.
    pub steps: Vec<Step>,
    /// The same handshake from each point of view.
    pub views: Vec<View>,
    /// Operations whose every stamp was found.
    pub matched: u64,
    /// Operations left out because a stamp is missing or they were retransmitted.
    pub unmatched: u64,
    /// `measured` or `witness`: the witness is a shorter trial of its own with a packet tap.
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
pub struct View {
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
