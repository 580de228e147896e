//! What the connections of a live machine do, look by look.
//!
//! A [`Look`] is what was read at one instant: levels and counters since boot. Two looks give rates, so
//! a [`State`] needs two. The clock, the kernel and the files are elsewhere: looks come in as arguments.

mod destinations;
pub mod diagnoses;
pub mod file;
mod history;
mod listeners;
mod look;
mod overflow;
pub mod pages;
mod rates;
pub mod reader;
mod record;
pub mod review;
mod standing;
mod state;
mod totals;

pub use history::{History, LISTENERS_MAX, LOOKS_MAX};
pub use look::{
    Counted, DESTINATIONS_MAX, Destination, Limits, ListenerLook, Look, LookCost, Process, Table,
};
pub use record::{
    Count, DATA_RETRANSMITTED, DestinationPart, DiagnosisLine, DiagnosisPart, Interval,
    ListenerLine, ListenerPart, Others, Recording, WATCH_RECORD_VERSION, WatchHeader, WatchLine,
    WatchStopped, WatchSummary,
};
pub use state::{DestinationState, ListenerState, Rates, Segments, Standing, State};
pub use totals::Totals;
