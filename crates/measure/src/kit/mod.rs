//! One trial, wherever its two ends stand: the procedure of all, the place, its hosts, what is noted,
//! and the settings that experiments share. Read `procedure` first.

pub(crate) mod compared;
pub(crate) mod conclusion;
pub(crate) mod hosts;
pub(crate) mod notes;
pub(crate) mod opening;
pub(crate) mod path;
pub mod plan;
pub(crate) mod port_causes;
pub(crate) mod procedure;
pub(crate) mod queue_causes;
pub(crate) mod settings;
pub(crate) mod target;

use tcptoll_lab::lab::LabError;

/// Why a trial gave no observation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrialError {
    /// A setting is not what it should be; nothing was begun.
    #[error("{0}")]
    Setting(String),
    /// The place.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The target.
    #[error("{0}")]
    Target(String),
}
