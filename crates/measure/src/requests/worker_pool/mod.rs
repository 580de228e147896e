//! What happens to all requests when a backend stops accepting and blocking workers wait for it?
//!
//! The load and the front service stand on the client host, the backend on the server host: the front service
//! is the TCP client whose connections are measured. It calls the backend across the link, as in the article
//! of 2021, and each listener's counters are its host's. Read `trial`, then `observation`.

mod effects;
mod findings;
mod observation;
mod settings;
pub(crate) mod sheet;
mod trial;

use crate::kit::TrialError;
use crate::kit::plan::{Context, Experiment, Outcome, Plan};
use settings::PoolSettings;
use tcptoll_core::experiment::brief::{self, Brief, Group};
use tcptoll_core::experiment::figures::{RTT, histogram, metric};
use tcptoll_core::experiment::spec::{Better, HistogramSpec, MetricSpec, Noun, Phrase, Spec};
use tcptoll_core::study::{PlannedArm, Settings};
use tcptoll_lab::servers;
use trial::PoolTrial;

/// Share of the requests that need the backend and failed.
const BACKEND_FAILED: MetricSpec =
    metric("backend_failed_share", "share", "failed share with the backend", Better::Lower);
/// Mean latency of requests that need the backend, from when each was due.
const BACKEND_LATENCY_MEAN: MetricSpec =
    metric("backend_latency_us_mean", "us", "mean latency with the backend", Better::Lower);
/// Successes per second of requests that need the backend.
const BACKEND_RATE: MetricSpec =
    metric("backend_requests_per_s", "1/s", "requests per second with the backend", Better::Higher);
/// Share of the requests that need no backend and failed.
const LOCAL_FAILED: MetricSpec =
    metric("local_failed_share", "share", "failed share without the backend", Better::Lower);
/// Mean latency of requests that need no backend, from when each was due.
const LOCAL_LATENCY_MEAN: MetricSpec =
    metric("local_latency_us_mean", "us", "mean latency without the backend", Better::Lower);
/// Successes per second of requests that need no backend.
const LOCAL_RATE: MetricSpec = metric(
    "local_requests_per_s",
    "1/s",
    "requests per second without the backend",
    Better::Higher,
);
/// From the end of the stall until requests that need no backend were as fast as before it.
const RECOVERY: MetricSpec = metric("recovery_s", "s", "recovery after the stall", Better::Lower);
/// The largest number of busy workers.
const WORKERS_BUSY_PEAK: MetricSpec =
    metric("workers_busy_peak", "workers", "busy workers at the peak", Better::Lower);
/// Busy workers, mean over the steady part of the stall.
const WORKERS_STUCK: MetricSpec =
    metric("workers_stuck", "workers", "busy workers during the stall", Better::Lower);

/// Latency of requests that need the backend, from when each was due.
const BACKEND_LATENCY: HistogramSpec =
    histogram("backend_latency_us", "latency with the backend", Better::Lower);
/// Latency of requests that need no backend, from when each was due.
const LOCAL_LATENCY: HistogramSpec =
    histogram("local_latency_us", "latency without the backend", Better::Lower);

/// The group of requests that need the backend.
const BACKEND: &str = "backend";
/// The group of requests that need no backend.
const LOCAL: &str = "local";

/// Examples and explanations in the help.
const EXAMPLES: &str = "\
Examples:
  tcptoll worker-pool
      four arms: no stall, a stall of 2 s, the same with a connect timeout, and also with retries
  tcptoll worker-pool --connect-timeout none,100ms
      does a connect timeout help requests that never use the backend?
  tcptoll worker-pool --connect-timeout 100ms --retries 3 --backoff 0,200ms
      immediate retries, and retries with backoff and jitter
  tcptoll worker-pool --stall 0,2s --front php-fpm --workers 100 --rate 200
      PHP-FPM with 100 workers behind nginx
  tcptoll worker-pool --connection per-request,pooled --front php-fpm --backend mariadb
      a connection per request, and persistent connections, to MariaDB

An option with several values makes one arm (variant) per value. The other arms are compared with
the first. Without an option of the groups Stall, Front and Backend, four arms run once each.";

/// What `-h` shows.
const BRIEF: Brief = Brief {
    group: Group::Setting,
    line: "a stalled backend blocks all workers: what prevents it",
    options: &[
        ("stall", "the backend accepts nothing for this time"),
        ("connect-timeout", "of a worker to its backend, or none"),
        ("retries", "retries of a worker"),
        ("backoff", "pause before a retry"),
        ("workers", "workers of the pool"),
        ("front", "what runs the workers"),
        ("backend", "what stalls"),
        ("rate", "requests per second"),
        brief::HTML,
        brief::FAIL_IF,
    ],
    examples: &[
        ("worker-pool", "a stall, and its fix"),
        ("worker-pool --connect-timeout none,100ms", "does it help?"),
        ("worker-pool --connection per-request,pooled", "pools"),
    ],
};

pub(crate) const SPEC: Spec = Spec {
    name: "worker-pool",
    question: "What happens to all requests when a backend stops accepting connections and \
               blocking workers wait for it?",
    about: "Measure how a stalled backend blocks a pool of workers, and what prevents it",
    examples: EXAMPLES,
    brief: BRIEF,
    options: settings::OPTIONS,
    target: None,
    complete: settings::complete,
    compares: tcptoll_core::experiment::options::unless_each_runs_once,
    metrics: &[
        &BACKEND_FAILED,
        &BACKEND_LATENCY_MEAN,
        &BACKEND_RATE,
        &LOCAL_FAILED,
        &LOCAL_LATENCY_MEAN,
        &LOCAL_RATE,
        &RECOVERY,
        &WORKERS_BUSY_PEAK,
        &WORKERS_STUCK,
    ],
    histograms: &[&BACKEND_LATENCY, &LOCAL_LATENCY, &RTT],
    primary: LOCAL_LATENCY_MEAN.name,
    phrases: &[Phrase::figures(
        LOCAL_LATENCY_MEAN.name,
        "Requests that never call the backend take {} on average",
    )],
    answers: &[LOCAL_LATENCY.name, BACKEND_LATENCY.name],
    // A stall changes latency by factors; differences below a tenth decide nothing.
    margin: 0.1,
    operation: Noun::REQUEST,
    tables: sheet::TABLES,
    causes: findings::ALL,
    conclude: findings::conclude,
};

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

#[cfg(test)]
mod tests;
