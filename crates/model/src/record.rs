//! What is kept of a run: the summary object and the lines of the record.
//!
//! This file is a contract. Names end in their unit, kernel counters keep the kernel's names, and
//! absent is `None` (left out of the JSON), never 0 or -1. Readers ignore fields they do not know;
//! [`RECORD_VERSION`] rises only when an old reader would be misled.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::wire::{Wire, WireCounts};

/// Version of the record format written by this build.
pub const RECORD_VERSION: u32 = 1;

/// One line of a record file, told apart by `line`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "kebab-case")]
pub enum Line {
    /// The first line: what was asked, and on what machine.
    Header(Box<Header>),
    /// One finished trial, written and flushed before the next begins.
    Trial(Box<Trial>),
    /// The last line: what follows from the trials. Missing if the run was killed.
    Summary(Box<Summary>),
}

/// The first line of a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the record format.
    pub record_version: u32,
    /// The experiment's name, kebab case.
    pub experiment: String,
    /// The study, whole, as it was run (lists of the command line are a study too).
    pub study: crate::study::Study,
    /// The exact command line, one element an argument.
    pub command: Vec<String>,
    /// When the run began, RFC 3339.
    pub started_at: String,
    /// Seed of everything random in the run.
    pub seed: u64,
    /// The machine.
    pub passport: Passport,
}

/// One arm in one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Trial {
    /// Round, from 0.
    pub round: u32,
    /// What was observed, in the shape of an arm of the summary.
    pub arm: Arm,
}

/// The one JSON object that `--format json` prints and that closes a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Version of the record format.
    pub record_version: u32,
    /// Version of the program that wrote it.
    pub tcptoll_version: String,
    /// The experiment's name, kebab case: `connect`.
    pub experiment: String,
    /// The study's name where a named study was run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub study: Option<String>,
    /// The question, ending in a question mark.
    pub question: String,
    /// The answer in a sentence or two, with figures measured in this run.
    pub answer: String,
    /// The exact command line, to run it again.
    pub command: Vec<String>,
    /// When the run began, RFC 3339.
    pub started_at: String,
    /// Where the two ends stood.
    pub place: Place,
    /// The machine.
    pub passport: Passport,
    /// One entry per arm, in the order of the study.
    pub arms: Vec<Arm>,
    /// Comparisons of arms, with verdicts.
    pub comparisons: Vec<Comparison>,
    /// Published figures to stand beside ours.
    pub published: Vec<Published>,
    /// Named explanations with their evidence.
    pub causes: Vec<Cause>,
    /// Settings to change.
    pub advice: Vec<Advice>,
    /// Reasons to trust the run less.
    pub warnings: Vec<WarningEntry>,
    /// What to run next, one command each, with a word on why.
    pub next: Vec<NextStep>,
    /// Whether the run was stopped before its plan was done.
    pub partial: bool,
    /// Whether the run may be used for its question.
    pub valid: bool,
}

/// Where the two ends stood.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Place {
    /// `lab` or `target`.
    pub kind: PlaceKind,
    /// The link asked for, where the run has only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkAsked>,
    /// `host:port` of a server we do not control.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// Kinds of place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PlaceKind {
    /// Two hosts in their own namespaces on this machine.
    Lab,
    /// This host and a server we do not control.
    Target,
}

/// A link as it was asked for; see [`crate::link::LinkSpec`] for the meaning of each key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkAsked {
    /// The text that `--link` takes: a profile's name or `rtt=37ms,…`.
    pub spec: String,
    /// Round-trip time in µs; both directions together.
    pub rtt_us: f64,
    /// Width of the round-trip's random variation in µs, to each side.
    pub jitter_us: f64,
    /// Line rate in bit/s, each direction; absent: not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bit_per_s: Option<f64>,
    /// Probability that a packet is lost, each direction, 0 to 1.
    pub loss: f64,
    /// Queue limit in packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_packets: Option<u64>,
    /// Queue limit in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_bytes: Option<u64>,
}

/// What carried the packets between the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LinkKind {
    /// A veth pair: no program between the hosts.
    Direct,
    /// Both ends on 127.0.0.1 of one host.
    Loopback,
    /// Our link emulator between two TUN devices.
    EmulatedTun,
    /// Our link emulator between two AF_PACKET sockets, where `/dev/net/tun` cannot be opened.
    EmulatedPacket,
    /// The network as it is (`--to`).
    Network,
}

/// A link as the lab measured it before the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkMeasured {
    /// What carried the packets.
    pub kind: LinkKind,
    /// What was asked for.
    pub asked: LinkAsked,
    /// ICMP echo round trips before the run, µs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_us: Option<HistogramSummary>,
    /// Line rate at the receiver, client to server, bit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_client_to_server_bit_per_s: Option<f64>,
    /// Line rate at the receiver, server to client, bit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_server_to_client_bit_per_s: Option<f64>,
    /// Loss seen by the receivers of both directions together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<LossMeasured>,
    /// How late the link emulator released packets during the trial, µs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness_us: Option<HistogramSummary>,
    /// Packets lost by the lab itself (device or softnet queues), which nobody asked for.
    pub unwanted_drops: u64,
}

/// Loss counted by a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LossMeasured {
    /// Packets sent.
    pub sent: u64,
    /// Packets that did not arrive.
    pub lost: u64,
    /// Exact binomial 95 % interval of the loss probability (Clopper and Pearson).
    pub ci95: [f64; 2],
}

/// The machine and its kernel when the run began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Passport {
    /// `uname -sr`.
    pub kernel: String,
    /// CPU model name.
    pub cpu: String,
    /// CPUs this process may use.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Clock source of the kernel.
    pub clock_source: String,
    /// Frequency governor, where the machine has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// Share of CPU time stolen by a hypervisor during the run, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal: Option<f64>,
    /// Congestion control of new sockets on the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// Load average of one minute when the run began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_1min: Option<f64>,
    /// User id that ran it.
    pub uid: u32,
}

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
    /// Bounded time series by name; the name ends in the unit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub series: BTreeMap<String, Series>,
    /// Wall time of the trial in seconds.
    pub elapsed_s: f64,
    /// Whether the trial was stopped before its plan was done.
    #[serde(default)]
    pub partial: bool,
    /// Why there is no result, where the trial failed for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// A single figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Metric {
    /// The figure.
    pub value: f64,
    /// Its unit: `us`, `1/s`, `bytes/s`.
    pub unit: String,
    /// 95 % interval over rounds; absent with too few rounds to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95: Option<[f64; 2]>,
    /// Observations behind the value.
    pub n: u64,
}

/// A distribution, summarised and whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistogramSummary {
    /// Values recorded.
    pub count: u64,
    /// Smallest value; absent if there is none.
    #[serde(default)]
    pub min: Option<f64>,
    /// Arithmetic mean of what was recorded.
    #[serde(default)]
    pub mean: Option<f64>,
    /// Median. Like every quantile: absent with fewer than ten values beyond it.
    #[serde(default)]
    pub p50: Option<f64>,
    /// 90th percentile.
    #[serde(default)]
    pub p90: Option<f64>,
    /// 99th percentile.
    #[serde(default)]
    pub p99: Option<f64>,
    /// 99.9th percentile.
    #[serde(default)]
    pub p99_9: Option<f64>,
    /// Largest value.
    #[serde(default)]
    pub max: Option<f64>,
    /// The whole histogram: HDR, nanoseconds, V2 deflate, base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hdr: Option<String>,
}

/// What one host was like during a trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostSummary {
    /// User and system time per operation, µs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_us_per_op: Option<f64>,
    /// User time per operation, µs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_user_us_per_op: Option<f64>,
    /// System time per operation, µs. On one kernel it holds softirq work of both sides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_system_us_per_op: Option<f64>,
    /// Largest resident memory of the process, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rss_peak_bytes: Option<u64>,
    /// Kernel counters of the host's namespace that changed, after less before.
    #[serde(default)]
    pub counters: BTreeMap<String, i64>,
    /// Socket counts of the namespace at the end (`TCP_tw`, `TCP_inuse` …).
    #[serde(default)]
    pub sockstat: BTreeMap<String, u64>,
    /// Sysctls asked for, as read back.
    #[serde(default)]
    pub sysctls: BTreeMap<String, String>,
    /// Listening sockets seen, with the peak of their queues.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<Listener>,
    /// TCP_INFO of some of the connections, names and units as in the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_info: Option<crate::tcp_info::PathSample>,
    /// CPU the host was pinned to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned_cpu: Option<u32>,
}

/// A listening socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Listener {
    /// Local address.
    pub address: String,
    /// Local port.
    pub port: u16,
    /// Largest accept queue seen.
    pub accept_queue_peak: u32,
    /// The effective backlog; the queue holds one more.
    pub accept_queue_limit: u32,
    /// Largest number in SYN-RECEIVED seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub syn_queue_peak: Option<u32>,
}

/// Softirq and stolen time of the whole machine during a trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Softirq {
    /// Softirq time per operation, µs, one element a CPU.
    pub per_cpu_us_per_op: Vec<f64>,
    /// All CPUs together, µs per operation.
    pub us_per_op: f64,
    /// Granularity of these figures, µs for the whole trial.
    pub resolution_us: f64,
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

/// A bounded time series; neighbours are merged with least and greatest kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    /// `[seconds since start, least, mean, greatest]`, ascending in time, at most 400 points.
    pub points: Vec<[f64; 4]>,
}

/// A comparison of two arms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// Metric compared.
    pub metric: String,
    /// The arm of the numerator.
    pub a: String,
    /// The arm of the denominator.
    pub b: String,
    /// a / b.
    pub ratio: f64,
    /// 95 % interval of the ratio.
    pub ci95: [f64; 2],
    /// `higher`, `lower`, `no difference found` or `not enough evidence`.
    pub verdict: String,
}

/// A published figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Published {
    /// The arm of ours it stands beside.
    pub arm: String,
    /// The metric it states.
    pub metric: String,
    /// Its value, in the unit of the metric.
    pub value: f64,
    /// Where it was published.
    pub source: String,
    /// What the source says of it, where that matters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A named explanation with its evidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cause {
    /// Kebab case: `accept-queue-full`.
    pub id: String,
    /// The arm it explains.
    pub arm: String,
    /// One sentence.
    pub text: String,
    /// Counter or measurement to value.
    pub evidence: BTreeMap<String, serde_json::Value>,
}

/// A setting to change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Advice {
    /// The cause it answers.
    pub cause: String,
    /// What to change, one sentence.
    pub change: String,
    /// What it costs.
    pub cost: String,
    /// How to undo it.
    pub undo: String,
    /// What was measured with the change in place, where it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<String>,
}

/// A reason to trust a run less, as stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WarningEntry {
    /// Kebab case: `generator-late`.
    pub id: String,
    /// The arm it concerns; absent: the whole run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arm: Option<String>,
    /// One sentence that names what to change.
    pub text: String,
}

/// A command worth running next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NextStep {
    /// The command line.
    pub command: String,
    /// What it tells.
    pub why: String,
}
