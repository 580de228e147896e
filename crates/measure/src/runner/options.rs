//! What a run is given, what it reports meanwhile, and what comes of it.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use tcptoll_core::record::Summary;

use tcptoll_lab::lab::certification::Tolerance;
use tcptoll_lab::messages::Live;

/// Settings of a run that make no difference between arms.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The command line, for the record.
    pub command: Vec<String>,
    /// Where the record goes.
    pub record: PathBuf,
    /// Whether the user named that file: then the run does not begin without it. Else its folder is made, and a run
    /// whose record cannot be created ends with [`Run::not_stored`].
    pub record_is_named: bool,
    /// Seed of everything random.
    pub seed: u64,
    /// How far a link may be from what was asked.
    pub tolerance: Tolerance,
    /// The same as it was typed, for the record.
    pub tolerance_text: Option<String>,
    /// Where to write packets.
    pub pcap: Option<String>,
    /// Version of the program.
    pub version: String,
    /// Name of this machine among those that run the same study.
    pub vantage: Option<String>,
    /// When the load of the first trial begins, and time between the beginnings of two trials.
    pub start: Option<StartAt>,
    /// When the run begins, or goes on, RFC 3339.
    pub started_at: String,
    /// Seconds since the run first began; 0 unless it is resumed.
    pub after_s: f64,
}

/// When the loads of a run begin: that of trial `n` at `at + n × every`, on the wall clock.
#[derive(Clone, Debug)]
pub struct StartAt {
    /// The first.
    pub at: SystemTime,
    /// From one to the next.
    pub every: Duration,
    /// How far this machine's clock is ahead of the clock that `at` is on, s.
    pub clock_ahead_s: f64,
    /// `at` as it was typed, for the record.
    pub at_text: String,
}

impl StartAt {
    /// Of the trial of this number, on this machine's clock.
    pub(super) fn of_trial(&self, number: u32) -> SystemTime {
        let at = self.at + self.every * number;
        let ahead = Duration::try_from_secs_f64(self.clock_ahead_s.abs()).unwrap_or_default();
        if self.clock_ahead_s < 0.0 { at - ahead } else { at + ahead }
    }
}

/// How far a run has come.
#[derive(Clone, Debug)]
pub struct Progress<'a> {
    /// The arm being run.
    pub arm: &'a str,
    /// Its place in the round, from 1.
    pub number: usize,
    /// Arms in all.
    pub arms: usize,
    /// The round, from 1.
    pub round: u32,
    /// Rounds at most.
    pub rounds: u32,
    /// 0 the first time; an invalid trial is repeated.
    pub attempt: u32,
    /// Why it is repeated, if it is.
    pub repeated_for: Option<&'a str>,
    /// Of this trial done: operations, or ms.
    pub done: u64,
    /// Of this trial planned, in the same; 0 before it has begun.
    pub total: u64,
    /// Figures of this trial's load in the last second, where it has some.
    pub live: Option<Live>,
    /// Time the rest of the run is expected to take from the beginning of this trial, s; the most
    /// it may take where a stop rule can end it sooner.
    pub left_s: f64,
}

/// What came of a run.
#[derive(Debug)]
pub struct Run {
    /// The summary, which also closes the record.
    pub summary: Summary,
    /// Where the record is.
    pub record: PathBuf,
    /// Why the record is not whole, as the end of a sentence about it; `None`: it is.
    pub not_stored: Option<String>,
    /// The signal that stopped the run, if one did.
    pub signal: Option<usize>,
    /// Why nothing was measured although the run came to its end: no operation succeeded, and
    /// failures are not the result that was asked for.
    pub nothing: Option<String>,
}
