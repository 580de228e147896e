//! What do the waiting connections of visitors hold on a server, and how long do pages take meanwhile?

mod expected;
mod observation;
mod settings;
mod trial;

use tcptoll_model::experiments::spec::Spec;
use tcptoll_model::experiments::visitors::SPEC;
use tcptoll_model::study::{PlannedArm, Settings};

use self::settings::VisitorSettings;
use self::trial::VisitorTrial;
use crate::experiments::{Context, Experiment, Outcome, Plan, TrialError};
use crate::files::Shared;

/// The experiment.
pub struct VisitorsOfASite;

impl Experiment for VisitorsOfASite {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn plan(&self, settings: &Settings) -> Result<Box<dyn Plan>, TrialError> {
        Ok(Box::new(VisitorSettings::from(settings)?))
    }
}

impl Plan for VisitorSettings {
    fn prepare(&mut self, files: &mut Shared) -> Result<(), TrialError> {
        self.content.read_files(files)
    }

    fn expected_s(&self) -> f64 {
        Self::expected_s(self)
    }

    fn trial(&self, arm: &PlannedArm, context: &mut Context<'_>) -> Result<Outcome, TrialError> {
        VisitorTrial::outcome(arm, self, context)
    }
}
