//! What happens to ordinary clients when a listener's SYN queue is full of half-open requests, with and
//! without SYN cookies?
//!
//! The peer that fills the queue exists in a lab only; see [`tcptoll_lab::load::half_open`].

use crate::open::syn_queue::SPEC;
use tcptoll_core::experiment::spec::Spec;
use tcptoll_core::study::{PlannedArm, Settings};

use crate::kit::plan::{Context, Experiment, Outcome, Plan, TrialError};
use crate::open::syn_queue::settings::SynQueueSettings;
use crate::open::syn_queue::trial::SynQueueTrial;

/// The experiment.
pub(crate) struct SynQueue;

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
