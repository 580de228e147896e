//! What do short connections cost as the client's local ports run low?

mod holding;
mod observation;
pub mod settings;
mod trial;

use tcptoll_model::experiments::spec::Spec;
use tcptoll_model::experiments::time_wait::SPEC;
use tcptoll_model::study::{PlannedArm, Settings};

use self::settings::TimeWaitSettings;
use self::trial::TimeWaitTrial;
use crate::experiments::{Context, Experiment, Outcome, Plan, TrialError};

/// The experiment.
pub struct TimeWait;

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
