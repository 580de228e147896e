//! Why a run gives no result.

use tcptoll_core::record::RECORD_VERSION;
use tcptoll_lab::lab::LabError;

use super::TRIALS_MAX;
use crate::kit::plan::TrialError;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The study.
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
