//! What is kept of a run: the summary object and the lines of the record.
//!
//! This file is a contract. Names end in their unit, kernel counters keep the kernel's names, and
//! absent is `None` (left out of the JSON), never 0 or -1. Readers ignore fields they do not know;
//! [`RECORD_VERSION`] rises only when an old reader would be misled.

#![warn(missing_docs)]

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod arm;
mod comparison;
mod connections;
mod hosts;
mod keepalive;
pub(crate) mod merge;
mod pages;
mod parts;
mod queues;
mod transfers;

pub use arm::{Arm, Warmup, impossible};
pub use comparison::{
    Comparison, Due, Merged, Metric, Missing, NotMerged, OverPoints, Point, PointArm, PointRatio,
    Points, Round, Rounds, Source, SplitLoad, Verdict,
};
pub use connections::{Acks, Cliff, Closing, Expectation, MessageWay, PortPoint, PortUse};
pub use hosts::{
    Background, HostSummary, LinkAsked, LinkKind, LinkMeasured, Listener, LossMeasured, Path,
    Resolved, Route, Softirq,
};
pub use keepalive::{Deaths, Keepalive};
pub use pages::{MemoryLimit, PageGroup, PageLoads, SiteVisits};
pub use parts::Own;
pub use queues::{
    DropBalance, HalfOpenPeer, ListenerQueue, Outcome, Queues, RequestGroup, RetryLadder,
    WorkerPool,
};
pub use transfers::{
    Buffer, BufferLimit, ConnectionMemory, MemoryHeld, MemorySockets, MemoryState, Sender,
    SocketEnd, Transfer, Way,
};

pub use crate::stats::{HistogramSummary, Series};
pub use crate::study::Published;
pub use crate::tcp::handshake::{HandshakeView, Step, Timeline};
pub use crate::tcp::wire::{Traffic, Wire, WireCounts};

/// Version of the record format written by this build.
///
/// 2: rates are of what completes within the window, `connect_us` is of connections that succeeded,
/// TIME-WAIT is of this load's sockets.
pub const RECORD_VERSION: u32 = 2;

/// One line of a record file, told apart by `line`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "line", rename_all = "kebab-case")]
pub enum Line {
    /// The first line: what was asked, and on what machine.
    Header(Box<Header>),
    /// One finished trial, written and flushed before the next begins.
    Trial(Box<Trial>),
    /// The first line of a merged record: which records are in it.
    Merged(Box<Merged>),
    /// The run was stopped here, and went on later.
    Resumed(Box<Resumed>),
    /// The last line: what follows from the trials. Missing if the run was killed.
    Summary(Box<Summary>),
    /// A line of a later version; left alone.
    Unknown,
}

/// By way of a [`serde_json::Value`], as all that is cleaned for a report: what serde derives for a tag reads the
/// whole record by code of its own, which is 3 % of the program.
impl<'de> Deserialize<'de> for Line {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let (line, value) = tagged(from)?;
        let read = match line.as_str() {
            "header" => boxed(value).map(Self::Header),
            "trial" => boxed(value).map(Self::Trial),
            "merged" => boxed(value).map(Self::Merged),
            "resumed" => boxed(value).map(Self::Resumed),
            "summary" => boxed(value).map(Self::Summary),
            _ => Ok(Self::Unknown),
        };
        read.map_err(serde::de::Error::custom)
    }
}

/// The `line` of a line, and the line.
pub fn tagged<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<(String, serde_json::Value), D::Error> {
    let value = serde_json::Value::deserialize(from)?;
    match value.get("line").and_then(serde_json::Value::as_str) {
        Some(line) => Ok((line.to_owned(), value)),
        None => Err(serde::de::Error::missing_field("line")),
    }
}

/// The value in a box, which keeps the variants of an enum of lines small.
pub fn boxed<T: serde::de::DeserializeOwned>(
    value: serde_json::Value,
) -> Result<Box<T>, serde_json::Error> {
    serde_json::from_value(value).map(Box::new)
}

/// The first line of a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the record format.
    pub record_version: u32,
    /// The experiment's name, kebab case.
    pub experiment: String,
    /// The study, whole, as it was run (lists of the command line are a study too).
    #[serde(deserialize_with = "crate::study::file::stored")]
    pub study: crate::study::Study,
    /// The exact command line, one element an argument.
    pub command: Vec<String>,
    /// When the run began, RFC 3339.
    pub started_at: String,
    /// Seed of everything random in the run.
    pub seed: u64,
    /// Version of the program.
    #[serde(default)]
    pub tcptoll_version: String,
    /// Name of the machine among those that run the same study: `fra1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vantage: Option<String>,
    /// When its loads were to begin, where it was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<StartAsked>,
    /// How far a link may be from what was asked, where it was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_tolerance: Option<String>,
    /// Names of servers we do not control, and the address of each that is used; empty in the lab,
    /// and where the address itself was given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resolved: Vec<Resolved>,
    /// The machine.
    pub passport: Passport,
}

/// When the loads of a run were to begin: that of trial `n` at `at + n × every_s`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StartAsked {
    /// Of the first trial, on the clock of whoever asked, RFC 3339.
    pub at: String,
    /// From one trial to the next, s.
    pub every_s: f64,
    /// How far this machine's clock was ahead of that clock, s.
    pub clock_ahead_s: f64,
}

/// One arm in one round, or a repetition of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Trial {
    /// Round, from 0.
    pub round: u32,
    /// Place in the order of running within its round, from 0.
    #[serde(default)]
    pub order: u32,
    /// 0 the first time; a trial that was excluded for a passing reason is repeated, at most 3 times.
    #[serde(default)]
    pub attempt: u32,
    /// When it began, seconds after the run did.
    #[serde(default)]
    pub began_s: f64,
    /// What it took with making and ending its place, s.
    #[serde(default)]
    pub took_s: f64,
    /// How long after the time that was asked for its load began, s; absent: no time was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_late_s: Option<f64>,
    /// Why it is excluded from verdicts, one sentence; absent: it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invalid: Option<String>,
    /// What follows from the settings and would exclude it again; absent: a repetition may count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasting: Option<Lasting>,
    /// Doubts about this trial.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<WarningEntry>,
    /// What was observed, in the shape of an arm of the summary.
    pub arm: Arm,
}

impl Trial {
    /// Whether its figures count: neither failed, nor stopped, nor excluded.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.invalid.is_none() && self.arm.failure.is_none() && !self.arm.partial
    }
}

/// Why a trial is excluded that a repetition would not change.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Lasting {
    /// The client did not keep its schedule: what it measured is at least that good.
    ClientSchedule,
    /// The client used up its CPU: what it measured is at least that good.
    ClientCpu,
    /// The client ran out of ports or files.
    Shortage,
}

/// Trials of an arm that were excluded from verdicts for one reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Excluded {
    /// The arm.
    pub arm: String,
    /// Why, one sentence without its full stop.
    pub reason: String,
    /// As in the trials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasting: Option<Lasting>,
    /// How many of the arm's trials.
    pub trials: u32,
    /// The arm's trials in all.
    pub of: u32,
}

/// A run that goes on where it was stopped or killed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Resumed {
    /// When, RFC 3339.
    pub at: String,
    /// Seconds after the run first began.
    pub after_s: f64,
    /// The command line.
    pub command: Vec<String>,
    /// Names that nothing in the record before had resolved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resolved: Vec<Resolved>,
    /// The machine as it is now.
    pub passport: Passport,
}

/// The one JSON object that `--format json` prints and that closes a record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// The vantage point's name, where one was given. Absent in a merged record: each point has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vantage: Option<String>,
    /// Names of servers we do not control, and the address of each that every trial used; absent
    /// in the lab, and where the address itself was given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resolved: Vec<Resolved>,
    /// The machine.
    pub passport: Passport,
    /// The metric that comparisons and stop rules look at first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary_metric: Option<String>,
    /// The vantage points, in a merged record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub points: Option<Points>,
    /// How many rounds, and why no more; absent where every arm ran once by plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds: Option<Rounds>,
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
    /// Trials excluded from verdicts, by arm and reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<Excluded>,
    /// Whether the run was stopped before its plan was done.
    pub partial: bool,
    /// Whether the run may be used for its question.
    pub valid: bool,
}

/// Where the two ends stood.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Place {
    /// `lab`, `target` or `remote`.
    pub kind: PlaceKind,
    /// The link asked for, where the run has only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkAsked>,
    /// `host:port` of a server we do not control.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// Kinds of place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PlaceKind {
    /// Two hosts in their own namespaces on this machine.
    #[default]
    Lab,
    /// This host and a server we do not control.
    Target,
    /// Machines of the user's, over ssh.
    Remote,
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
    /// The C library that tcptoll ran with: `glibc 2.36`, `musl`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub libc: Option<String>,
    /// User id that ran it.
    pub uid: u32,
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
    /// What tells it apart from others of its name and arm: two arms, a metric, or both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
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

/// `line` of the first line of a watch's record.
const WATCH: &str = "watch-header";

/// The first line of a record, as far as it is needed to know what it is the record of.
#[derive(Deserialize)]
struct First {
    line: String,
}

/// Whether the first line of a record is that of a watch. Another program may have written it anew, with
/// blanks and its own order of keys.
pub fn is_watch(line: &[u8]) -> bool {
    if let Ok(first) = serde_json::from_slice::<First>(line) {
        return first.line == WATCH;
    }
    // It was cut, or has something that is not JSON, like NaN, which its reader names.
    let kind = format!("\"{WATCH}\"");
    line.windows(kind.len()).any(|at| at == kind.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_with_a_study_of_a_later_version_is_read() {
        let header = Header {
            record_version: RECORD_VERSION,
            experiment: "connect".to_owned(),
            study: crate::study::Study::default(),
            command: Vec::new(),
            started_at: "2021-11-05T09:00:00Z".to_owned(),
            seed: 1,
            tcptoll_version: String::new(),
            vantage: None,
            start: None,
            link_tolerance: None,
            resolved: Vec::new(),
            passport: Passport::default(),
        };
        let header = Line::Header(Box::new(header));
        let mut later = serde_json::to_value(&header).unwrap();
        later["study"]["telepathy"] = true.into();
        later["telepathy"] = true.into();
        assert_eq!(serde_json::from_str::<Line>(&later.to_string()).unwrap(), header);
    }

    #[test]
    fn a_record_from_before_names_were_recorded_is_read() {
        let resumed = r#"{"line":"resumed","at":"2021-11-05T09:00:00Z","after_s":1.0,"command":[],
            "passport":{"kernel":"","cpu":"","cpus":1,"memory_bytes":1,"clock_source":"","uid":0}}"#;
        let Line::Resumed(resumed) = serde_json::from_str(resumed).unwrap() else { panic!() };
        assert!(resumed.resolved.is_empty());
        assert!(!serde_json::to_string(&resumed).unwrap().contains("resolved"));
    }
}
