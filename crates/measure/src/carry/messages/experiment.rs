//! What does a message cost, by its size and by how it is sent?

use crate::carry::messages::{Pattern, SPEC};
use tcptoll_core::experiment::spec::Spec;
use tcptoll_core::study::{PlannedArm, Settings};
use tcptoll_lab::files::Shared;

use crate::carry::messages::exchanges::Exchanges;
use crate::carry::messages::java::JavaTrial;
use crate::carry::messages::one_way::OneWayTrial;
use crate::carry::messages::settings::{MessagesSettings, Program};
use crate::kit::plan::{Context, Experiment, Outcome, Plan, TrialError};
use crate::kit::settings::check_congestion;

/// The experiment.
pub(crate) struct Messages;

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
