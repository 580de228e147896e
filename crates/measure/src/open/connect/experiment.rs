//! What does it cost to open a TCP connection, and where does the time go?

use tcptoll_core::record::Resolved;
use tcptoll_core::study::{PlannedArm, Settings};

use crate::open::connect::SPEC;
use tcptoll_core::experiment::spec::Spec;
use tcptoll_lab::files::Shared;

use crate::kit::plan::{Context, Experiment, Outcome, Plan, PublicLoad, TrialError};
use crate::kit::settings::check_congestion;
use crate::kit::target::{PUBLIC_RATE_PER_S, Target};
use crate::open::connect::settings::ConnectSettings;
use crate::open::connect::trial::ConnectTrial;

/// The experiment.
pub(crate) struct Connect;

impl Experiment for Connect {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn plan(&self, settings: &Settings) -> Result<Box<dyn Plan>, TrialError> {
        Ok(Box::new(ConnectSettings::from(settings)?))
    }
}

impl Plan for ConnectSettings {
    fn target(&self) -> Option<&Target> {
        self.to.as_ref()
    }

    fn resolved(&mut self, resolved: &[Resolved]) {
        if let Some(to) = &mut self.to {
            to.take(resolved);
            self.set_defaults();
        }
    }

    fn prepare(&mut self, _files: &mut Shared) -> Result<(), TrialError> {
        check_congestion(self.congestion.as_deref())
    }

    fn expected_s(&self) -> f64 {
        Self::expected_s(self)
    }

    fn public_load(&self) -> Option<PublicLoad> {
        let to = self.to.as_ref().filter(|to| to.is_public())?;
        let rate = self.rate.unwrap_or(PUBLIC_RATE_PER_S);
        let count = self.expected_count();
        Some(PublicLoad {
            target: to.typed.clone(),
            size: rate,
            load: format!("{count} connections at {rate} per second will be opened to it"),
            options: "--rate and --count set other figures",
        })
    }

    fn trial(&self, arm: &PlannedArm, context: &mut Context<'_>) -> Result<Outcome, TrialError> {
        ConnectTrial::outcome(arm, self, context)
    }
}
