//! What a run is given, what it reports meanwhile, what comes of it, and why it gives no result.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use tcptoll_core::record::{RECORD_VERSION, Summary};
use tcptoll_lab::lab::LabError;
use tcptoll_lab::lab::certification::Tolerance;
use tcptoll_lab::messages::{Live, Outstanding};

use super::TRIALS_MAX;
use crate::kit::TrialError;

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
    /// What is waited for when the time of the trial is over.
    pub outstanding: Option<Outstanding>,
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

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    #[error(transparent)]
    Study(#[from] tcptoll_core::study::StudyError),
    /// No such experiment.
    #[error("experiment {0}: there is no such experiment")]
    NoSuchExperiment(String),
    /// No such metric.
    #[error(
        "metric {metric}: there is no such metric; available: {there_are}, and quantiles of distributions like connect_us_p99"
    )]
    NoSuchMetric {
        /// As written.
        metric: String,
        /// The experiment's metrics.
        there_are: String,
    },
    /// More trials than a record may hold.
    #[error(
        "{arms} arms in up to {rounds} rounds are {} trials, more than the limit of {TRIALS_MAX}: write fewer levels or rounds",
        u64::from(*.rounds) * *.arms as u64
    )]
    TooManyTrials {
        /// Arms.
        arms: usize,
        /// Rounds, at most.
        rounds: u32,
    },
    /// A setting or the place, before anything was measured.
    #[error(transparent)]
    Trial(#[from] TrialError),
    /// An arm's setting, named with its arm.
    #[error("arm {arm}: {error}")]
    Arm {
        /// Which.
        arm: String,
        /// What is wrong.
        error: TrialError,
    },
    /// The record cannot be made.
    #[error("the record {path} cannot be written: {error}; choose another place with --out FILE")]
    Record {
        /// Where.
        path: String,
        /// Why.
        error: std::io::Error,
    },
    /// There is nothing to go on with.
    #[error("the record {0} has no header of a run, so the run cannot be resumed: start a new one")]
    NothingToResume(String),
    /// Its rounds and ours would not be of the same figures.
    #[error(
        "the record {path} has format {version}, in which rates and latencies are defined differently from format {RECORD_VERSION} of this tcptoll: start a new run, or resume it with the tcptoll that started it"
    )]
    OlderFormat {
        /// Where.
        path: String,
        /// Its version.
        version: u32,
    },
}

impl RunError {
    /// Whether a signal stopped the run before anything was measured.
    pub fn is_interrupt(&self) -> bool {
        matches!(self, Self::Trial(TrialError::Lab(LabError::Interrupted)))
    }
}
