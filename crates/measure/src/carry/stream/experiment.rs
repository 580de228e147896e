//! How much does a connection carry, what limits it, and what does that cost?

use crate::carry::stream::SPEC;
use tcptoll_core::experiment::spec::Spec;
use tcptoll_core::study::{PlannedArm, Settings};
use tcptoll_lab::files::Shared;

use crate::carry::stream::memory_trial::MemorySettings;
use crate::carry::stream::settings::StreamSettings;
use crate::carry::stream::trial::StreamTrial;
use crate::kit::plan::{Context, Experiment, Outcome, Plan, TrialError};
use crate::kit::settings::check_congestion;

/// The experiment.
pub(crate) struct Stream;

impl Experiment for Stream {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn plan(&self, settings: &Settings) -> Result<Box<dyn Plan>, TrialError> {
        if crate::carry::stream::memory_trial::is_asked(settings)? {
            return Ok(Box::new(MemorySettings::from(settings)?));
        }
        Ok(Box::new(StreamSettings::from(settings)?))
    }
}

impl Plan for StreamSettings {
    fn prepare(&mut self, _files: &mut Shared) -> Result<(), TrialError> {
        check_congestion(self.congestion.as_deref())
    }

    fn expected_s(&self) -> f64 {
        Self::expected_s(self)
    }

    fn trial(&self, arm: &PlannedArm, context: &mut Context<'_>) -> Result<Outcome, TrialError> {
        StreamTrial::outcome(arm, self, context)
    }
}
