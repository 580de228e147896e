//! What does it cost to reuse a connection, or not, and who pays?

use tcptoll_core::record::Resolved;
use tcptoll_core::study::{PlannedArm, Settings};

use crate::requests::http::SPEC;
use tcptoll_core::experiment::spec::Spec;
use tcptoll_lab::files::Shared;

use crate::kit::plan::{Context, Experiment, Outcome, Plan, PublicLoad, SplitPlan, TrialError};
use crate::kit::target::{PUBLIC_RATE_PER_S, Target};
use crate::requests::http::endpoints::Ends;
use crate::requests::http::settings::HttpSettings;
use crate::requests::http::trial::HttpTrial;

/// The experiment.
pub(crate) struct Http;

impl Experiment for Http {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn plan(&self, settings: &Settings) -> Result<Box<dyn Plan>, TrialError> {
        Ok(Box::new(HttpSettings::from(settings)?))
    }
}

impl Plan for HttpSettings {
    fn target(&self) -> Option<&Target> {
        Self::target(self)
    }

    fn resolved(&mut self, resolved: &[Resolved]) {
        if let Ends::Target(_, target) = &mut self.ends {
            target.take(resolved);
        }
    }

    fn prepare(&mut self, files: &mut Shared) -> Result<(), TrialError> {
        self.read_files(files)
    }

    fn expected_s(&self) -> f64 {
        Self::expected_s(self)
    }

    fn load(&self) -> Option<String> {
        Some(self.load_in_words())
    }

    fn split(&self) -> Option<SplitPlan> {
        Self::split(self)
    }

    fn public_load(&self) -> Option<PublicLoad> {
        let target = Self::target(self).filter(|target| target.is_public())?;
        let rate = self.load.rate.unwrap_or(PUBLIC_RATE_PER_S);
        Some(PublicLoad {
            target: target.typed.clone(),
            size: rate,
            load: format!("up to {rate} requests per second will be sent to it"),
            options: "--rate and --requests set other figures",
        })
    }

    fn trial(&self, arm: &PlannedArm, context: &mut Context<'_>) -> Result<Outcome, TrialError> {
        HttpTrial::outcome(arm, self, context)
    }
}
