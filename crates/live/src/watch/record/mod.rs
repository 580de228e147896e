//! What `watch --record` writes: one JSON object a line.
//!
//! A line holds only what carries information. What does not change (a listener's address, the fix of a
//! diagnosis) is written once, with a number that later lines name. [`Recording`] makes the lines,
//! [`Interval::join`] joins older ones, [`Review`](super::Review) reads them.

mod interval;
mod recording;
mod time;

use serde::{Deserialize, Serialize};

pub(in crate::watch) use interval::greatest;
pub use interval::{
    Count, DATA_RETRANSMITTED, DestinationPart, DiagnosisPart, Interval, ListenerPart, Others,
};
pub use recording::Recording;
pub(in crate::watch) use time::is_rfc3339;

use super::look::Process;
use crate::diagnosis::Diagnosis;
use tcptoll_core::record::{Passport, boxed, tagged};

/// Version of the format of a watch's record.
pub const WATCH_RECORD_VERSION: u32 = 1;

/// One line of a watch's record, told apart by `line`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "line", rename_all = "kebab-case")]
pub enum WatchLine {
    /// The first line.
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
    /// The machine.
    pub passport: Passport,
}

/// A listener that had a queue or a drop. Another limit or process makes another line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerLine {
    /// Number by which intervals name it.
    pub n: u32,
    /// Local address.
    pub address: String,
    /// Local port.
    pub port: u16,
    /// Inode of the socket.
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
    /// The diagnosis.
    pub diagnosis: Diagnosis,
}

/// The last line of a watch's record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WatchSummary {
    /// How long the watch lasted, s.
    pub lasted_s: f64,
    /// Looks taken.
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

#[cfg(test)]
mod tests;
