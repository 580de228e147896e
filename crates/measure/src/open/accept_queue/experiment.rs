//! What happens to clients when connections arrive faster than the server accepts them?

use crate::open::accept_queue::SPEC;
use tcptoll_core::experiment::spec::Spec;
use tcptoll_core::study::{PlannedArm, Settings};

use crate::kit::plan::{Context, Experiment, Outcome, Plan, TrialError};
use crate::open::accept_queue::settings::AcceptQueueSettings;
use crate::open::accept_queue::trial::AcceptQueueTrial;

/// The experiment.
pub(crate) struct AcceptQueue;

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
