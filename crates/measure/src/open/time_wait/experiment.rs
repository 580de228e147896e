//! What do short connections cost as the client's local ports run low?

use crate::open::time_wait::SPEC;
use tcptoll_core::experiment::spec::Spec;
use tcptoll_core::study::{PlannedArm, Settings};

use crate::kit::plan::{Context, Experiment, Outcome, Plan, TrialError};
use crate::open::time_wait::settings::TimeWaitSettings;
use crate::open::time_wait::trial::TimeWaitTrial;

/// The experiment.
pub(crate) struct TimeWait;

impl Experiment for TimeWait {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn plan(&self, settings: &Settings) -> Result<Box<dyn Plan>, TrialError> {
        Ok(Box::new(TimeWaitSettings::from(settings)?))
    }
}

impl Plan for TimeWaitSettings {
    fn expected_s(&self) -> f64 {
        Self::expected_s(self)
    }

    fn trial(&self, arm: &PlannedArm, context: &mut Context<'_>) -> Result<Outcome, TrialError> {
        TimeWaitTrial::outcome(arm, self, context)
    }
}
