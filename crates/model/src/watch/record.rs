//! What `watch --record` writes: one JSON object a line.

use serde::{Deserialize, Serialize};

use super::state::State;
use crate::record::Passport;

/// One line of a watch's record, told apart by `line`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "kebab-case")]
pub enum WatchLine {
    /// The first line.
    WatchHeader(Box<WatchHeader>),
    /// One interval.
    State(Box<State>),
    /// The last line: missing if the watch was killed.
    WatchSummary(Box<WatchSummary>),
    /// A line of a later version; left alone.
    #[serde(other)]
    Unknown,
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
    /// The machine.
    pub passport: Passport,
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
