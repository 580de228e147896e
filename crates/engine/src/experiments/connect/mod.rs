//! What does it cost to open a TCP connection, and where does the time go?

mod no_answer;
mod observation;
mod parse;
pub mod settings;
mod trial;
mod warmup;

use tcptoll_model::record::Resolved;
use tcptoll_model::study::{PlannedArm, Settings};

use tcptoll_lab::files::Shared;
use tcptoll_model::experiments::connect::SPEC;
use tcptoll_model::experiments::spec::Spec;

use self::settings::ConnectSettings;
use self::trial::ConnectTrial;
use crate::experiments::bench::settings::check_congestion;
use crate::experiments::bench::target::{PUBLIC_RATE_PER_S, Target};
use crate::experiments::{Context, Experiment, Outcome, Plan, PublicLoad, TrialError};

/// The experiment.
pub struct Connect;

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
