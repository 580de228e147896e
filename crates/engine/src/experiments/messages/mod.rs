//! What does a message cost, by its size and by how it is sent?

mod exchanges;
mod java;
mod observation;
mod one_way;
pub mod settings;

use tcptoll_lab::files::Shared;
use tcptoll_model::experiments::messages::{Pattern, SPEC};
use tcptoll_model::experiments::spec::Spec;
use tcptoll_model::study::{PlannedArm, Settings};

use self::exchanges::Exchanges;
use self::java::JavaTrial;
use self::one_way::OneWayTrial;
use self::settings::{MessagesSettings, Program};
use crate::experiments::bench::settings::check_congestion;
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
    fn prepare(&mut self, _files: &mut Shared) -> Result<(), TrialError> {
        check_congestion(self.sockets.congestion.as_deref())
    }

    fn expected_s(&self) -> f64 {
        Self::expected_s(self)
    }

    fn trial(&self, arm: &PlannedArm, context: &mut Context<'_>) -> Result<Outcome, TrialError> {
        match (self.program, self.pattern) {
            (Program::Native, Pattern::OneWay) => OneWayTrial::outcome(arm, self, context),
            (Program::Native, _) => Exchanges::outcome(arm, self, context),
            (Program::Java(encoding), _) => JavaTrial::outcome(arm, (self, encoding), context),
        }
    }
}
