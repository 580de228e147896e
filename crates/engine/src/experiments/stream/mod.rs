//! How much does a connection carry, what limits it, and what does that cost?

mod memory;
mod observation;
pub mod settings;
mod trial;

use tcptoll_lab::files::Shared;
use tcptoll_model::experiments::spec::Spec;
use tcptoll_model::experiments::stream::SPEC;
use tcptoll_model::study::{PlannedArm, Settings};

use self::memory::MemorySettings;
use self::settings::StreamSettings;
use self::trial::StreamTrial;
use crate::experiments::bench::settings::check_congestion;
use crate::experiments::{Context, Experiment, Outcome, Plan, TrialError};

/// The experiment.
pub struct Stream;

impl Experiment for Stream {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn plan(&self, settings: &Settings) -> Result<Box<dyn Plan>, TrialError> {
        if memory::is_asked(settings)? {
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
