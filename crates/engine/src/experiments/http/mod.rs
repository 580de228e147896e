//! What does it cost to reuse a connection, or not, and who pays?

mod closing;
mod forecast;
mod observation;
pub mod requests;
pub mod settings;
mod trial;

use tcptoll_model::record::Resolved;
use tcptoll_model::study::{PlannedArm, Settings};

use self::settings::{HttpSettings, OPTIONS, PlaceSettings};
use self::trial::HttpTrial;
use crate::experiments::bench::target::{PUBLIC_RATE_PER_S, Target};
use crate::experiments::{Context, Experiment, Outcome, Plan, PublicLoad, TrialError};
use crate::files::Shared;

/// Differences in throughput below this relative size change no decision.
const MARGIN: f64 = 0.02;

/// Every metric of a trial.
const METRICS: &[&str] = &[
    "accept_queue_peak",
    "achieved_per_s",
    "client_bytes_per_connection",
    "client_cpu_us_per_op",
    "client_segments_per_op",
    "client_time_wait",
    "connect_us_mean",
    "connections_per_s",
    "first_byte_us_mean",
    "goodput_bytes_per_s",
    "in_flight_mean",
    "intended_per_s",
    "kernel_bytes_per_connection",
    "latency_us_mean",
    "rate_resolution_per_s",
    "requests_per_connection",
    "requests_per_s",
    "server_cpu_us_per_op",
    "server_segments_per_op",
    "server_time_wait",
    "tls_resumed_share",
    "unserved_at_end",
];

/// Every distribution of a trial.
const HISTOGRAMS: &[&str] = &[
    "connect_us",
    "first_byte_us",
    "idle_close_us",
    "lateness_us",
    "latency_us",
    "rtt_us",
    "tls_us",
];

/// The experiment.
pub struct Http;

impl Experiment for Http {
    fn name(&self) -> &'static str {
        "http"
    }

    fn question(&self) -> &'static str {
        "What does it cost to reuse a connection, or not, and who pays?"
    }

    fn options(&self) -> &'static [&'static str] {
        OPTIONS
    }

    fn primary_metric(&self) -> &'static str {
        "requests_per_s"
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
        Ok(Box::new(HttpSettings::from(settings)?))
    }
}

impl Plan for HttpSettings {
    fn target(&self) -> Option<&Target> {
        Self::target(self)
    }

    fn resolved(&mut self, resolved: &[Resolved]) {
        if let PlaceSettings::Target(_, target) = &mut self.place {
            target.take(resolved);
        }
    }

    fn prepare(&mut self, files: &mut Shared) -> Result<(), TrialError> {
        self.read_files(files)
    }

    fn expected_s(&self) -> f64 {
        Self::expected_s(self)
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
