//! What happens to all requests when a backend stops accepting and blocking workers wait for it?
//!
//! The load and the front service stand on the client host, the backend on the server host: the front service
//! is the TCP client whose connections are measured. It calls the backend across the link, as in the article
//! of 2021, and each listener's counters are its host's. Read `trial`, then `recovery`.

use crate::requests::worker_pool::SPEC;
use tcptoll_core::experiment::spec::Spec;
use tcptoll_core::study::{PlannedArm, Settings};
use tcptoll_lab::servers;

use crate::kit::plan::{Context, Experiment, Outcome, Plan, TrialError};
use crate::requests::worker_pool::settings::PoolSettings;
use crate::requests::worker_pool::trial::PoolTrial;

/// The experiment.
pub(crate) struct WorkerPool;

impl Experiment for WorkerPool {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn plan(&self, settings: &Settings) -> Result<Box<dyn Plan>, TrialError> {
        Ok(Box::new(PoolSettings::from(settings)?))
    }
}

impl Plan for PoolSettings {
    fn installed(&self) -> Result<(), TrialError> {
        if self.lab.remote.is_some() {
            return Ok(());
        }
        servers::pool_installed(self.front.kind, self.backend.kind).map_err(TrialError::Setting)
    }

    fn expected_s(&self) -> f64 {
        Self::expected_s(self)
    }

    fn trial(&self, arm: &PlannedArm, context: &mut Context<'_>) -> Result<Outcome, TrialError> {
        PoolTrial::outcome(arm, self, context)
    }
}
