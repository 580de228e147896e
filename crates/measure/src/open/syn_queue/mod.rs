//! What happens to ordinary clients when a listener's SYN queue is full of half-open requests, with and
//! without SYN cookies?
//!
//! The peer that fills the queue exists in a lab only; see [`tcptoll_lab::load::half_open`].

mod findings;
mod settings;
pub(crate) mod sheet;
mod trial;

use tcptoll_core::experiment::brief::{self, Brief, Group};
use tcptoll_core::experiment::figures::{
    CLIENT_CPU, CONNECT, CONNECT_MEAN, CONNECT_OF_FAILED, CONNECTIONS_RATE, DROPS, FAILED_SHARE,
    FAILURE, FIRST_BYTE, FIRST_BYTE_MEAN, IN_FLIGHT, LATENESS, RATE_RESOLUTION, RTT, SERVER_CPU,
    WAITED, metric,
};
use tcptoll_core::experiment::spec::{Better, CauseSpec, MetricSpec, Noun, Phrase, Spec};
use tcptoll_core::study::{PlannedArm, Settings};

use super::syn_queue::settings::SynQueueSettings;
use super::syn_queue::trial::SynQueueTrial;
use crate::kit::TrialError;
use crate::kit::plan::{Context, Experiment, Outcome, Plan};
use crate::kit::queue_causes::ACCEPT_QUEUE_FULL;

/// The most half-open requests that the measured listener was seen to hold.
pub(super) const HALF_OPEN_PEAK: MetricSpec =
    metric("half_open_peak", "requests", "peak of half-open requests", Better::Neither);

/// Most half-open requests that the peer keeps.
pub(super) const HALF_OPEN_MAX: u64 = 65_536;

/// Every cause that a run may name, in the order of the answer.
const CAUSES: &[&CauseSpec] = &[&findings::SYN_QUEUE, &ACCEPT_QUEUE_FULL];

/// Examples and explanations in the help.
const EXAMPLES: &str = "\
Examples:
  tcptoll syn-queue
      four arms with the same clients: no half-open requests, a full SYN queue, SYN cookies, and a
      longer queue
  tcptoll syn-queue --syncookies 0,1,2
      SYN cookies never, when the SYN queue is full, and always
  tcptoll syn-queue --syncookies 0 --backlog 4096 --max-syn-backlog 1024,2048 --half-open 1000
      does a larger tcp_max_syn_backlog hold 1,000 half-open requests?
  tcptoll syn-queue --syncookies 0 --half-open-again 10s --timeout 8s \\
    --server-sysctl net.ipv4.tcp_synack_retries=1
      half-open requests time out after 3 s, and retransmitted SYNs of clients then succeed
  tcptoll syn-queue --syncookies 1 --client-sysctl net.ipv4.tcp_timestamps=0
      which TCP options are lost with SYN cookies but without TCP timestamps

The peer that fills the queue exists in the lab only; it cannot be directed at another server.
An option with several values makes one arm (variant) per value. The other arms are compared with
the first.";

/// What `-h` shows.
const BRIEF: Brief = Brief {
    group: Group::Setting,
    line: "a full SYN queue, SYN cookies, and ordinary clients",
    options: &[
        ("half-open", "half-open requests that fill the queue, or full"),
        ("backlog", "length passed to listen(2)"),
        ("max-syn-backlog", "net.ipv4.tcp_max_syn_backlog of the server"),
        ("syncookies", "net.ipv4.tcp_syncookies: never, when full, always"),
        ("count", "connections of ordinary clients"),
        ("rate", "of these, per second"),
        ("timeout", "give a connection up after this time"),
        brief::LINK,
        brief::HTML,
        brief::FAIL_IF,
    ],
    examples: &[
        ("syn-queue", "full, cookies, longer"),
        ("syn-queue --syncookies 0,1,2", "never, when full, always"),
        ("syn-queue --backlog 128,4096 --syncookies 0", "is longer enough?"),
    ],
};

pub(crate) const SPEC: Spec = Spec {
    name: "syn-queue",
    question: "What happens to ordinary clients when a listener's SYN queue is full of half-open requests, with and without SYN cookies?",
    about: "Fill a listener's SYN queue and measure the effect on ordinary clients",
    examples: EXAMPLES,
    brief: BRIEF,
    options: settings::OPTIONS,
    target: None,
    complete: settings::complete,
    compares: tcptoll_core::experiment::options::unless_each_runs_once,
    metrics: &[
        &CLIENT_CPU,
        &CONNECT_MEAN,
        &CONNECTIONS_RATE,
        &DROPS,
        &FAILED_SHARE,
        &FIRST_BYTE_MEAN,
        &HALF_OPEN_PEAK,
        &IN_FLIGHT,
        &RATE_RESOLUTION,
        &SERVER_CPU,
        &WAITED,
    ],
    histograms: &[&CONNECT_OF_FAILED, &CONNECT, &FAILURE, &FIRST_BYTE, &LATENESS, &RTT],
    primary: CONNECT_MEAN.name,
    phrases: &[Phrase::figures(CONNECT_MEAN.name, "Opening a connection takes {} on average")],
    answers: &[CONNECT.name, FIRST_BYTE.name],
    // A retransmission costs 1 s and more; cookies cost microseconds, which a margin of 5 % tells apart.
    margin: 0.05,
    operation: Noun::CONNECTION,
    tables: sheet::TABLES,
    causes: CAUSES,
    conclude: findings::conclude,
};

pub(crate) struct SynQueue;

impl Experiment for SynQueue {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn plan(&self, settings: &Settings) -> Result<Box<dyn Plan>, TrialError> {
        Ok(Box::new(SynQueueSettings::from(settings)?))
    }
}

impl Plan for SynQueueSettings {
    fn expected_s(&self) -> f64 {
        Self::expected_s(self)
    }

    fn trial(&self, arm: &PlannedArm, context: &mut Context<'_>) -> Result<Outcome, TrialError> {
        SynQueueTrial::outcome(arm, self, context)
    }
}
