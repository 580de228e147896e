//! What does a message cost, by its size and by how it is sent?

mod settings;

use tcptoll_model::experiments::messages::SPEC;
use tcptoll_model::experiments::spec::Spec;
use tcptoll_model::study::{PlannedArm, Settings};

use self::settings::MessagesSettings;
use crate::experiments::{Context, Experiment, Outcome, Plan, TrialError};

/// The experiment.
pub struct Messages;

impl Experiment for Messages {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn plan(&self, settings: &Settings) -> Result<Box<dyn Plan>, TrialError> {
        Ok(Box::new(MessagesSettings::from(settings)?))
    }
}

impl Plan for MessagesSettings {
    fn expected_s(&self) -> f64 {
        1.0
    }

    fn trial(&self, _arm: &PlannedArm, _context: &mut Context<'_>) -> Result<Outcome, TrialError> {
        Err(TrialError::Setting("not built yet".to_owned()))
    }
}
