//! How much does a connection carry, what limits it, and what does that cost?

mod memory;
mod settings;

use tcptoll_model::experiments::spec::Spec;
use tcptoll_model::experiments::stream::SPEC;
use tcptoll_model::study::{PlannedArm, Settings};

use self::memory::MemorySettings;
use self::settings::StreamSettings;
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
    fn expected_s(&self) -> f64 {
        1.0
    }

    fn trial(&self, _arm: &PlannedArm, _context: &mut Context<'_>) -> Result<Outcome, TrialError> {
        Err(TrialError::Setting("not built yet".to_owned()))
    }
}
