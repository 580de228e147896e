//! What the connections of a live machine do, look by look.
//!
//! A [`Look`] is what was read at one instant: levels and counters since boot. Two looks give rates, so
//! a [`State`] needs two. The clock, the kernel and the files are elsewhere: looks come in as arguments.

pub mod diagnoses;
mod dump;
mod history;
mod listeners;
mod look;
pub mod pages;
mod proc;
pub mod reader;
mod record;
mod state;
mod unclosed;

pub use history::{History, LISTENERS_MAX};
pub use look::{
    Counted, DESTINATIONS_MAX, Destination, Limits, ListenerLook, Look, LookCost, Process,
    SocketDump, Unclosed,
};
pub use record::{
    Count, Curves, DATA_RETRANSMITTED, DestinationPart, DestinationReview, DiagnosisLine,
    DiagnosisPart, Episode, Gap, Interval, LIMIT_MIN, ListenerLine, ListenerPart, ListenerReview,
    Misfit, Others, Peak, Recording, Review, Reviewer, Series, WATCH_RECORD_VERSION, WatchHeader,
    WatchLine, WatchReadError, WatchRecord, WatchRecorder, WatchStopped, WatchSummary,
};
pub use state::{DestinationState, ListenerState, Rates, Segments, Standing, State, Totals};

#[cfg(test)]
mod tests;
