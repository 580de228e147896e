//! What does it cost to know that idle connections are alive, and how soon is a death known?

mod observation;
pub mod settings;
mod stage;
mod trial;

use tcptoll_model::record::Resolved;
use tcptoll_model::study::{PlannedArm, Settings};

use self::settings::{KeepaliveSettings, OPTIONS, check_together};
use self::trial::KeepaliveTrial;
use crate::experiments::bench::settings::check_congestion;
use crate::experiments::bench::target::Target;
use crate::experiments::{Context, Experiment, Outcome, Plan, PublicLoad, TrialError};
use crate::files::Shared;

/// Differences in messages per second below this relative size change no decision.
const MARGIN: f64 = 0.02;

/// Every metric of a trial.
const METRICS: &[&str] = &[
    "checking_bytes_per_hour_per_socket",
    "checking_packets_per_hour_per_socket",
    "client_bytes_per_socket",
    "client_cpu_us_per_op",
    "client_fleet_cpu_us_per_s_per_1000_sockets",
    "client_kernel_bytes_per_socket",
    "deaths_known",
    "deaths_unnoticed",
    "goodput_bytes_per_s",
    "heartbeats_per_s",
    "keepalive_probes",
    "link_cpu_us_per_s_per_1000_sockets",
    "machine_cpu_us_per_s_per_1000_sockets",
    "messages_per_s",
    "probes_per_s",
    "server_bytes_per_socket",
    "server_cpu_us_per_op",
    "server_fleet_cpu_us_per_s_per_1000_sockets",
    "server_kernel_bytes_per_socket",
];

/// Every distribution of a trial.
const HISTOGRAMS: &[&str] = &["arrival_us", "detection_us", "lateness_us", "rtt_us"];

/// The experiment.
pub struct Keepalive;

impl Experiment for Keepalive {
    fn name(&self) -> &'static str {
        "keepalive"
    }

    fn question(&self) -> &'static str {
        "What does it cost to know that idle connections are alive, and how soon is a death known?"
    }

    fn options(&self) -> &'static [&'static str] {
        OPTIONS
    }

    fn primary_metric(&self) -> &'static str {
        "messages_per_s"
    }

    fn metrics(&self) -> &'static [&'static str] {
        METRICS
    }

    fn histograms(&self) -> &'static [&'static str] {
        HISTOGRAMS
    }

    fn margin(&self) -> f64 {
        MARGIN
    }

    fn plan(&self, settings: &Settings) -> Result<Box<dyn Plan>, TrialError> {
        Ok(Box::new(KeepaliveSettings::from(settings)?))
    }

    fn check_together(&self, arms: &[PlannedArm]) -> Result<(), TrialError> {
        check_together(arms)
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
