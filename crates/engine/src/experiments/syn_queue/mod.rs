//! What happens to ordinary clients when a listener's SYN queue is full of half-open requests, with and
//! without SYN cookies?
//!
//! The peer that fills the queue exists in a lab only; see [`tcptoll_lab::load::half_open`].

mod observation;
pub mod settings;
mod trial;

use tcptoll_model::experiments::spec::Spec;
use tcptoll_model::experiments::syn_queue::SPEC;
use tcptoll_model::study::{PlannedArm, Settings};

use self::settings::SynQueueSettings;
use self::trial::SynQueueTrial;
use crate::experiments::{Context, Experiment, Outcome, Plan, TrialError};

/// The experiment.
pub struct SynQueue;

impl Experiment for SynQueue {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn plan(&self, settings: &Settings) -> Result<Box<dyn Plan>, TrialError> {
        Ok(Box::new(SynQueueSettings::from(settings)?))
    }
}

impl Plan for SynQueueSettings {
    fn expected_s(&self) -> f64 {
        Self::expected_s(self)
    }

    fn trial(&self, arm: &PlannedArm, context: &mut Context<'_>) -> Result<Outcome, TrialError> {
        SynQueueTrial::outcome(arm, self, context)
    }
}
