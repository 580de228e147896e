//! What `watch --record` writes: one JSON object a line.
//!
//! A line holds only what carries information. What does not change (a listener's address, the fix of a
//! diagnosis) is written once, with a number that later lines name. [`Recording`] makes lines of states,
//! [`Interval::join`] joins older ones, [`WatchRecorder`] writes them within a limit, [`WatchRecord`] and
//! [`Review`](Review) read them.

mod check;
mod interval;
mod read;
mod review;
mod reviewer;
mod write;

use std::collections::BTreeMap;
use tcptoll_core::units::host_port;

use serde::{Deserialize, Serialize};
use tcptoll_core::record::{Passport, boxed, tagged};

use super::diagnoses::overload;
use super::look::{Limits, Process};
use super::state::{DestinationState, ListenerState, Rates, State};
pub use check::Misfit;
pub use interval::{
    Count, DATA_RETRANSMITTED, DestinationPart, DiagnosisPart, Interval, ListenerPart, Others,
};
use interval::{greatest, limited};
pub use read::{WatchReadError, WatchRecord};
pub use review::{Curves, DestinationReview, Episode, Gap, ListenerReview, Peak, Review, Series};
pub use reviewer::Reviewer;
use tcptoll_core::finding::{Finding, Severity};
pub use write::{LIMIT_MIN, WatchRecorder};

/// Version of the format of a watch's record.
pub const WATCH_RECORD_VERSION: u32 = 1;

/// One line of a watch's record, told apart by `line`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "line", rename_all = "kebab-case")]
pub enum WatchLine {
    WatchHeader(Box<WatchHeader>),
    /// A listener, before the first interval that names it.
    Listener(Box<ListenerLine>),
    /// A diagnosis, before the first interval that names it.
    Diagnosis(Box<DiagnosisLine>),
    /// One interval, or several joined.
    State(Box<Interval>),
    /// The last line: missing if the watch was killed.
    WatchSummary(Box<WatchSummary>),
    /// The last line where the watch could write no more and went on without its record.
    WatchStopped(WatchStopped),
    /// A line of a later version; left alone.
    Unknown,
}

/// As lines of a run's record are read: see [`tcptoll_core::record::Line`].
impl<'de> Deserialize<'de> for WatchLine {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let (line, value) = tagged(from)?;
        let read = match line.as_str() {
            "watch-header" => boxed(value).map(Self::WatchHeader),
            "listener" => boxed(value).map(Self::Listener),
            "diagnosis" => boxed(value).map(Self::Diagnosis),
            "state" => boxed(value).map(Self::State),
            "watch-summary" => boxed(value).map(Self::WatchSummary),
            "watch-stopped" => boxed(value).map(|stopped| Self::WatchStopped(*stopped)),
            _ => Ok(Self::Unknown),
        };
        read.map_err(serde::de::Error::custom)
    }
}

/// The first line of a watch's record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WatchHeader {
    /// Version of the record format.
    pub record_version: u32,
    /// Version of the program.
    pub tcptoll_version: String,
    /// The exact command line, one element an argument.
    pub command: Vec<String>,
    /// When the watch began, RFC 3339.
    pub started_at: String,
    /// Time between two looks, s, as asked.
    pub interval_s: f64,
    /// Size that the record may reach, bytes.
    #[serde(default)]
    pub limit_bytes: u64,
    /// Host name, as the kernel has it.
    #[serde(default)]
    pub host: String,
    pub passport: Passport,
}

/// A listener that had a queue or a drop. Another limit or process makes another line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerLine {
    /// Number by which intervals name it.
    pub n: u32,
    pub address: String,
    pub port: u16,
    pub inode: u64,
    /// Its process; absent where it may not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<Process>,
    /// The backlog after the clamp to `somaxconn`; the queue holds one more.
    pub accept_queue_limit: u32,
}

/// A diagnosis as it was when it was made first. Another severity makes another line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiagnosisLine {
    /// Number by which intervals name it.
    pub n: u32,
    pub diagnosis: Finding,
}

/// The last line of a watch's record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WatchSummary {
    /// How long the watch lasted, s.
    pub lasted_s: f64,
    pub looks: u64,
    /// Looks that were due and could not be taken in time.
    pub missed: u64,
}

/// Why nothing more was recorded, though the watch went on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WatchStopped {
    /// End of the last interval that was written, s since the watch began.
    pub at_s: f64,
    /// The failure, like `No space left on device`.
    pub reason: String,
}

fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Listeners, and diagnoses, whose numbers are remembered, at most. One that is forgotten gets another
/// line with another number if it comes again.
const KNOWN_MAX: usize = 4_096;
/// Destinations with a smaller share of the local ports are left out, unless one has the most.
const PORTS_SHARE: u32 = 100;

/// Evidence that orders looks of one diagnosis by how bad they are: the first of these that it has, with
/// what is added to it.
const WORST: &[&[&str]] = &[
    &["overflows_per_s"],
    &["syns_dropped_per_s", "cookies_sent_per_s"],
    &["time_wait_overflows_per_s"],
    &["nf_conntrack_count"],
    &["share"],
    &["ports_in_use"],
    &["orphans"],
    &["memory_bytes"],
    &["wait_at_least_s"],
    &["accept_queue_recent_peak"],
];

/// What was written of a socket, and when it was last seen.
#[derive(Clone, Debug)]
struct Known {
    n: u32,
    process: Option<Process>,
    limit: u32,
    state: u64,
}

/// Name, subject and severity of a finding, and whether an overload comes in bursts or lasts.
type Said = (String, String, Severity, Option<String>);

/// Turns states into lines, and remembers what was written.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    states: u64,
    next: u32,
    listeners: BTreeMap<(String, u16, u64), Known>,
    /// Number, and the last state that had it.
    diagnoses: BTreeMap<Said, (u32, u64)>,
    limits: Option<Limits>,
    /// When the last dump of all sockets began, s.
    table_s: Option<f64>,
}

impl Recording {
    /// The lines of a state; the last one is its interval.
    ///
    /// `suspended_s`: time since the state before in which the machine was suspended.
    pub fn lines(&mut self, state: &State, suspended_s: f64) -> Vec<WatchLine> {
        self.states += 1;
        let mut lines = Vec::new();
        let parts: Vec<ListenerPart> = state
            .listeners
            .iter()
            .filter_map(|one| {
                let part = part(one, state.interval_s)?;
                Some(part.numbered(self.number(one, &mut lines)))
            })
            .collect();
        let idle = state.listeners.len() - parts.len();
        let (listeners, others) = limited(parts);
        let table_s = state.table_age_s.map(|age| state.at_s - age);
        let dumped = match (table_s, self.table_s) {
            (Some(now), Some(before)) => (now - before).abs() > 1e-4,
            (now, _) => now.is_some(),
        };
        self.table_s = table_s;
        let limits = self.limits.as_ref() != Some(&state.limits);
        if limits {
            self.limits = Some(state.limits.clone());
        }
        let rates = state.rates.as_ref();
        let interval = Interval {
            time: state.time.clone(),
            at_s: to(state.at_s, 1e3),
            interval_s: to(state.interval_s, 1e6),
            looks: 1,
            longest_s: None,
            suspended_s: to(suspended_s.max(0.0), 1e3),
            counted_s: (rates.is_none() && state.interval_s > 0.0).then_some(0.0),
            counts: rates.map_or_else(BTreeMap::new, |rates| counts(rates, state.interval_s)),
            peak_per_s: BTreeMap::new(),
            levels: state.counted.clone(),
            limits: limits.then(|| Box::new(state.limits.clone())),
            states: if dumped { state.states.clone() } else { BTreeMap::new() },
            listeners,
            idle: u32::try_from(idle as u64 + state.listeners_left_out).unwrap_or(u32::MAX),
            others,
            destinations: if dumped { destinations(state) } else { Vec::new() },
            diagnoses: self.diagnoses(state, &mut lines),
            diagnoses_left_out: state.diagnoses_left_out,
        };
        lines.push(WatchLine::State(Box::new(interval)));
        self.forget();
        lines
    }

    /// A listener's number; a line is made where it has none yet, or has changed.
    fn number(&mut self, one: &ListenerState, lines: &mut Vec<WatchLine>) -> u32 {
        let key = (one.address.clone(), one.port, one.inode);
        if let Some(known) = self.listeners.get_mut(&key)
            && known.limit == one.accept_queue_limit
            && known.process == one.process
        {
            known.state = self.states;
            return known.n;
        }
        let n = self.next;
        self.next = self.next.wrapping_add(1);
        let (process, limit) = (one.process.clone(), one.accept_queue_limit);
        let known = Known { n, process: process.clone(), limit, state: self.states };
        self.listeners.insert(key, known);
        lines.push(WatchLine::Listener(Box::new(ListenerLine {
            n,
            address: one.address.clone(),
            port: one.port,
            inode: one.inode,
            process,
            accept_queue_limit: limit,
        })));
        n
    }

    /// What is wrong now. A diagnosis that is only held has ended.
    fn diagnoses(&mut self, state: &State, lines: &mut Vec<WatchLine>) -> Vec<DiagnosisPart> {
        let active = state.diagnoses.iter().filter(|one| !one.evidence.contains_key("ended_s_ago"));
        let part = |one: &Finding| {
            let kind = overload(one).map(str::to_owned);
            let key = (one.id.clone(), one.subject.clone(), one.severity, kind);
            let (n, seen) = self.diagnoses.entry(key).or_insert_with(|| {
                let n = self.next;
                self.next = self.next.wrapping_add(1);
                let line = DiagnosisLine { n, diagnosis: one.clone() };
                lines.push(WatchLine::Diagnosis(Box::new(line)));
                (n, 0)
            });
            *seen = self.states;
            DiagnosisPart {
                n: *n,
                from_s: to(state.at_s - state.interval_s, 1e3),
                to_s: to(state.at_s, 1e3),
                active_s: to(state.interval_s, 1e3),
                worst: worst(one),
                text: one.text.clone(),
            }
        };
        active.map(part).collect()
    }

    /// Keeps memory bounded: forgets what the newest state does not have.
    fn forget(&mut self) {
        let now = self.states;
        if self.listeners.len() > KNOWN_MAX {
            self.listeners.retain(|_, known| known.state == now);
        }
        if self.diagnoses.len() > KNOWN_MAX {
            self.diagnoses.retain(|_, (_, seen)| *seen == now);
        }
    }
}

/// What a listener had; absent: nothing.
fn part(one: &ListenerState, interval_s: f64) -> Option<ListenerPart> {
    let drops = count(one.drops_per_s.unwrap_or(0.0), interval_s);
    let overflows = match one.overflows_per_s {
        Some(per_s) if one.overflows_estimated => to(per_s * interval_s, 1e3),
        Some(per_s) => count(per_s, interval_s) as f64,
        None => 0.0,
    };
    let part = ListenerPart {
        queue: one.accept_queue_len,
        half_open: one.syn_queue_len.unwrap_or(0),
        drops,
        overflows: Count(overflows),
        estimated: one.overflows_estimated && overflows > 0.0,
        ..ListenerPart::default()
    };
    if part == ListenerPart::default() {
        return None;
    }
    let unknown_s = if one.overflows_per_s.is_none() { to(interval_s, 1e6) } else { 0.0 };
    Some(ListenerPart { unknown_s, ..part })
}

/// The count that a rate was made of.
fn count(per_s: f64, interval_s: f64) -> u64 {
    (per_s * interval_s).round() as u64
}

fn counts(rates: &Rates, interval_s: f64) -> BTreeMap<String, u64> {
    let counts = rates.named().map(|(name, per_s)| (name.to_owned(), count(per_s, interval_s)));
    counts.into_iter().filter(|(_, count)| *count > 0).collect()
}

/// The destination with the most ports in use, those with a share of them worth noting, and those that do
/// not answer.
fn destinations(state: &State) -> Vec<DestinationPart> {
    let many = |one: &DestinationState| {
        let ports = state.limits.local_ports.unwrap_or(0);
        one.syn_sent > 0 || one.ports_in_use.saturating_mul(PORTS_SHARE) >= ports
    };
    let destinations = state.destinations.iter().enumerate();
    let listed = destinations.filter(|(at, one)| *at == 0 || many(one));
    let part = |(_, one): (usize, &DestinationState)| DestinationPart {
        to: host_port(&one.address, one.port),
        ports_in_use: one.ports_in_use,
        time_wait: one.time_wait,
        ports_left: one.ports_left,
        syn_sent: one.syn_sent,
    };
    listed.map(part).collect()
}

fn worst(one: &Finding) -> Option<f64> {
    let figure = |name: &&str| one.evidence.get(*name).and_then(serde_json::Value::as_f64);
    let names = WORST.iter().find(|names| figure(&names[0]).is_some())?;
    Some(names.iter().filter_map(figure).sum())
}

/// A figure with as many decimals as `parts` has zeros.
fn to(value: f64, parts: f64) -> f64 {
    (value * parts).round() / parts
}

#[cfg(test)]
mod tests;
