//! What do short connections cost as the client's local ports run low?

mod findings;
mod pictures;
mod settings;
pub(crate) mod sheet;
mod trial;

use tcptoll_core::experiment::brief::{self, Brief, Group};
use tcptoll_core::experiment::figures::{
    CLIENT_CPU, CLIENT_TIME_WAIT, CONNECT, CONNECT_MEAN, CONNECTIONS_RATE, LATENCY, LATENCY_MEAN,
    LATENESS, RTT, SERVER_CPU, SERVER_TIME_WAIT, histogram, metric,
};
use tcptoll_core::experiment::spec::{
    Better, CauseSpec, HistogramSpec, MetricSpec, Noun, Phrase, Spec,
};
use tcptoll_core::study::{PlannedArm, Settings};

use super::time_wait::settings::TimeWaitSettings;
use super::time_wait::trial::TimeWaitTrial;
use crate::kit::TrialError;
use crate::kit::plan::{Context, Experiment, Outcome, Plan};
use crate::kit::port_causes::{LOCAL_PORTS_SCARCE, PORTS_SEARCH_SLOW};

/// Workers in the middle of an operation, mean: the load average of this load.
pub(super) const BUSY_WORKERS: MetricSpec =
    metric("busy_workers_mean", "workers", "mean busy workers", Better::Lower);
/// Number of times that the CPU of connect(2) rises at the step; absent without one.
pub(super) const CLIFF_FACTOR: MetricSpec =
    metric("cliff_factor", "", "increase of connect CPU at the cliff", Better::Lower);
/// Ports in use at the step; absent without one.
pub(super) const CLIFF_PORTS: MetricSpec =
    metric("cliff_ports", "ports", "ports in use at the cliff", Better::Neither);
/// Mean CPU time of bind(2) and connect(2), calls that failed included.
pub(super) const CONNECT_CPU_MEAN: MetricSpec =
    metric("connect_cpu_us_mean", "us", "mean connect CPU", Better::Lower);
/// The same CPU time, divided by the operations that began: long-lived connections cost it once.
pub(super) const CONNECT_CPU_PER_OP: MetricSpec =
    metric("connect_cpu_us_per_op", "us", "connect CPU per operation", Better::Lower);
/// Share of the window in which the client host's CPU was idle.
pub(super) const IDLE_SHARE: MetricSpec =
    metric("client_idle_share", "share", "client CPU idle", Better::Higher);
/// The same in the first tenth of the window.
pub(super) const IDLE_SHARE_FIRST: MetricSpec =
    metric("client_idle_share_first", "share", "client CPU idle at the start", Better::Higher);
/// The same in the last tenth of the window.
pub(super) const IDLE_SHARE_LAST: MetricSpec =
    metric("client_idle_share_last", "share", "client CPU idle at the end", Better::Higher);
/// Operations that succeeded per second within the window.
pub(crate) const RATE: MetricSpec =
    metric("operations_per_s", "1/s", "operations per second", Better::Higher);
/// Local ports in use to the destination, the most.
pub(super) const PORTS_PEAK: MetricSpec =
    metric("ports_in_use_peak", "ports", "peak of ports in use", Better::Neither);
/// CPU time of bind(2) and connect(2), of connections that succeeded.
pub(crate) const CONNECT_CPU: HistogramSpec =
    histogram("connect_cpu_us", "connect CPU", Better::Lower);

/// Examples and explanations in the help.
const EXAMPLES: &str = "\
Examples:
  tcptoll time-wait
      connect until the ports are used up: when does connect(2) become slow, and by how much?
  tcptoll time-wait --sources 1,2 --count 20000
      compare one and two source addresses
  tcptoll time-wait --rate 2000 --work 100us --duration 18s
      a service with 2,000 requests per second, until the ports run out
  tcptoll time-wait --held 60% --close client,server,never --count 500
      the cost with 60 % of the ports used before, by the side that closes first
  tcptoll time-wait --port-range 32768-40959 --tw-reuse 0,1
      a small port range, without and with reuse of ports in TIME-WAIT

An option with several values makes one arm (variant) per value. The other arms are compared with
the first.";

/// What `-h` shows.
const BRIEF: Brief = Brief {
    group: Group::Setting,
    line: "when do local ports run out, and which fix helps",
    options: &[
        ("port-range", "local ports of the client, e.g. 32768-40959"),
        ("sources", "source addresses of the client"),
        ("tw-reuse", "net.ipv4.tcp_tw_reuse of the client"),
        ("close", "who closes first"),
        ("held", "ports in use before, e.g. 60%"),
        ("count", "connections in all"),
        ("duration", "time of each trial, e.g. 20s"),
        ("rate", "connections per second"),
        brief::HTML,
        brief::FAIL_IF,
    ],
    examples: &[
        ("time-wait", "until the ports run out"),
        ("time-wait --sources 1,2 --count 20000", "two source addresses"),
        ("time-wait --held 60% --close client,server", "who closes first?"),
    ],
};

pub(crate) const SPEC: Spec = Spec {
    name: "time-wait",
    question: "What do short connections cost as the client's local ports run low?",
    about: "Measure what short connections cost as local ports run low, and which fix helps",
    examples: EXAMPLES,
    brief: BRIEF,
    options: settings::OPTIONS,
    // A server elsewhere would lose its ports, or the machine its own.
    target: None,
    complete: settings::complete,
    compares: |_| true,
    metrics: &[
        &BUSY_WORKERS,
        &CLIENT_CPU,
        &IDLE_SHARE,
        &IDLE_SHARE_FIRST,
        &IDLE_SHARE_LAST,
        &CLIENT_TIME_WAIT,
        &CLIFF_FACTOR,
        &CLIFF_PORTS,
        &CONNECT_CPU_MEAN,
        &CONNECT_CPU_PER_OP,
        &CONNECT_MEAN,
        &CONNECTIONS_RATE,
        &LATENCY_MEAN,
        &RATE,
        &PORTS_PEAK,
        &SERVER_CPU,
        &SERVER_TIME_WAIT,
    ],
    histograms: &[&CONNECT_CPU, &CONNECT, &LATENCY, &LATENESS, &RTT],
    primary: CONNECT_CPU_PER_OP.name,
    phrases: &[
        Phrase::figures(CONNECT_CPU_PER_OP.name, "connect(2) takes {} of CPU per operation"),
        Phrase::figures(CONNECT_CPU_MEAN.name, "connect(2) takes {} of CPU"),
        Phrase::rate(
            RATE.name,
            "The rate is {}",
            "completes {} as many operations/s as",
            "operations/s",
        ),
    ],
    answers: &[CONNECT_CPU.name, LATENCY.name],
    // A difference of less than 5 % in the CPU of connect(2) changes no decision: fixes are factors.
    margin: 0.05,
    operation: Noun { one: "operation", many: "operations", short: "op" },
    tables: sheet::TABLES,
    causes: CAUSES,
    conclude: findings::conclude,
};

pub(crate) struct TimeWait;

impl Experiment for TimeWait {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn plan(&self, settings: &Settings) -> Result<Box<dyn Plan>, TrialError> {
        Ok(Box::new(TimeWaitSettings::from(settings)?))
    }
}

impl Plan for TimeWaitSettings {
    fn expected_s(&self) -> f64 {
        Self::expected_s(self)
    }

    fn trial(&self, arm: &PlannedArm, context: &mut Context<'_>) -> Result<Outcome, TrialError> {
        TimeWaitTrial::outcome(arm, self, context)
    }
}

/// Every cause that a run may name, in the order of the answer.
pub(super) const CAUSES: &[&CauseSpec] = &[&LOCAL_PORTS_SCARCE, &PORTS_SEARCH_SLOW];
