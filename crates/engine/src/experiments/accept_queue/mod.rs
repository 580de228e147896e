//! What happens to clients when connections arrive faster than the server accepts them?

pub mod settings;
mod trial;

use tcptoll_model::experiments::accept_queue::SPEC;
use tcptoll_model::experiments::spec::Spec;
use tcptoll_model::study::{PlannedArm, Settings};

use self::settings::AcceptQueueSettings;
use self::trial::AcceptQueueTrial;
use crate::experiments::{Context, Experiment, Outcome, Plan, TrialError};

/// The experiment.
pub struct AcceptQueue;

impl Experiment for AcceptQueue {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn plan(&self, settings: &Settings) -> Result<Box<dyn Plan>, TrialError> {
        Ok(Box::new(AcceptQueueSettings::from(settings)?))
    }
}

impl Plan for AcceptQueueSettings {
    fn expected_s(&self) -> f64 {
        Self::expected_s(self)
    }

    fn trial(&self, arm: &PlannedArm, context: &mut Context<'_>) -> Result<Outcome, TrialError> {
        AcceptQueueTrial::outcome(arm, self, context)
    }
}
