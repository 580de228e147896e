//! What does it cost to know that idle connections are alive, and how soon is a death known?

use tcptoll_core::record::{Advice, Resolved};
use tcptoll_core::study::{PlannedArm, Settings};

use crate::idle::keepalive::{SPEC, chosen};
use tcptoll_core::experiment::spec::Spec;
use tcptoll_lab::files::Shared;

use crate::idle::keepalive::settings::KeepaliveSettings;
use crate::idle::keepalive::trial::KeepaliveTrial;
use crate::kit::plan::{Context, Experiment, Outcome, Plan, PublicLoad, TrialError};
use crate::kit::settings::check_congestion;
use crate::kit::target::Target;

/// The experiment.
pub(crate) struct Keepalive;

impl Experiment for Keepalive {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn plan(&self, settings: &Settings) -> Result<Box<dyn Plan>, TrialError> {
        Ok(Box::new(KeepaliveSettings::from(settings)?))
    }
}

impl Plan for KeepaliveSettings {
    fn target(&self) -> Option<&Target> {
        self.to.as_ref()
    }

    fn resolved(&mut self, resolved: &[Resolved]) {
        if let Some(to) = &mut self.to {
            to.take(resolved);
        }
    }

    fn prepare(&mut self, _files: &mut Shared) -> Result<(), TrialError> {
        check_congestion(self.congestion.as_deref())
    }

    fn expected_s(&self) -> f64 {
        Self::expected_s(self)
    }

    fn computed(&self) -> Option<Advice> {
        let within_s = self.detect_within?.as_secs_f64();
        chosen(&self.checking, within_s, self.assumed, self.idle_sockets())
    }

    fn public_load(&self) -> Option<PublicLoad> {
        let to = self.to.as_ref().filter(|to| to.is_public())?;
        Some(PublicLoad {
            target: to.typed.clone(),
            size: self.sockets as f64,
            load: format!("{} connections will be held open to it", self.sockets),
            options: "--sockets sets another number",
        })
    }

    fn trial(&self, arm: &PlannedArm, context: &mut Context<'_>) -> Result<Outcome, TrialError> {
        KeepaliveTrial::outcome(arm, self, context)
    }
}
