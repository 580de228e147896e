//! What happens to clients when connections arrive faster than the server accepts them?

mod findings;
mod settings;
pub(crate) mod sheet;
mod trial;

use tcptoll_core::experiment::brief::{self, Brief, Group};
use tcptoll_core::experiment::figures::{
    ACCEPT_QUEUE_PEAK, CLIENT_CPU, CONNECT, CONNECT_MEAN, CONNECT_OF_FAILED, CONNECTIONS_RATE,
    DROPS, FAILED_SHARE, FAILURE, FIRST_BYTE, FIRST_BYTE_MEAN, IN_FLIGHT, LATENESS, QUEUE_FULL,
    RATE_RESOLUTION, RTT, SERVER_CPU, WAITED,
};
use tcptoll_core::experiment::spec::{Noun, Phrase, Spec};
use tcptoll_core::study::{PlannedArm, Settings};

use super::accept_queue::settings::AcceptQueueSettings;
use super::accept_queue::trial::AcceptQueueTrial;
use crate::kit::TrialError;
use crate::kit::plan::{Context, Experiment, Outcome, Plan};
use crate::kit::queue_causes::SYN_QUEUE_FULL;

/// Examples and explanations in the help.
const EXAMPLES: &str = "\
Examples:
  tcptoll accept-queue
      a burst of 500 connections meets a short accept queue, and a longer one
  tcptoll accept-queue --backlog 4096 --somaxconn 128,256
      the limit of the host, to which the kernel reduces a larger backlog
  tcptoll accept-queue --backlog 16 --abort-on-overflow off,on --link rtt=10ms
      connections that meet a full queue are ignored, or reset
  tcptoll accept-queue --backlog 128 --accept-delay 500us,100us
      does a server that accepts faster still need a longer queue?
  tcptoll accept-queue --backlog 128 --rate 10000 --count 5000 --pause-every 500 --pause 1s
      bursts with a pause between them
  tcptoll accept-queue --backlog 16 --listeners 3
      find out which of three listeners overflowed

An option with several values makes one arm (variant) per value. The other arms are compared with
the first, by time to first byte. Connect latency would be misleading: a client may regard a
connection as established although the server has dropped its last ACK.";

/// What `-h` shows.
const BRIEF: Brief = Brief {
    group: Group::Setting,
    line: "which backlog is enough? a full accept queue and its clients",
    options: &[
        ("backlog", "length of the queue; 16,4096 compares two"),
        ("somaxconn", "net.core.somaxconn of the server: its limit"),
        ("accept-delay", "time of the server before each accept(2)"),
        ("timeout", "give a connection up after this time, e.g. 3s"),
        ("count", "connections in all"),
        ("concurrency", "connections at a time, instead of --rate"),
        ("rate", "connections per second"),
        brief::LINK,
        brief::HTML,
        brief::FAIL_IF,
    ],
    examples: &[
        ("accept-queue", "a short and a longer queue"),
        ("accept-queue --backlog 16,128,4096", "how long a queue is enough?"),
        ("accept-queue --abort-on-overflow off,on", "ignored, or reset?"),
    ],
};

pub(crate) const SPEC: Spec = Spec {
    name: "accept-queue",
    question: "What happens to clients when connections arrive faster than the server accepts them?",
    about: "Overflow a server's accept queue and measure the effect on its clients",
    examples: EXAMPLES,
    brief: BRIEF,
    options: settings::OPTIONS,
    target: None,
    complete: settings::complete,
    compares: |_| true,
    metrics: &[
        &QUEUE_FULL,
        &ACCEPT_QUEUE_PEAK,
        &CLIENT_CPU,
        &CONNECT_MEAN,
        &CONNECTIONS_RATE,
        &DROPS,
        &FAILED_SHARE,
        &FIRST_BYTE_MEAN,
        &IN_FLIGHT,
        &RATE_RESOLUTION,
        &SERVER_CPU,
        &WAITED,
    ],
    histograms: &[&CONNECT_OF_FAILED, &CONNECT, &FAILURE, &FIRST_BYTE, &LATENESS, &RTT],
    primary: FIRST_BYTE_MEAN.name,
    phrases: &[Phrase::figures(FIRST_BYTE_MEAN.name, "The first byte arrives after {} on average")],
    answers: &[FIRST_BYTE.name, CONNECT.name],
    // A retransmission costs 1 s and more: smaller differences do not tell a full queue from a queue.
    margin: 0.05,
    operation: Noun::CONNECTION,
    tables: sheet::TABLES,
    causes: &[&findings::OVERFLOW, &SYN_QUEUE_FULL],
    conclude: findings::conclude,
};

pub(crate) struct AcceptQueue;

impl Experiment for AcceptQueue {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn plan(&self, settings: &Settings) -> Result<Box<dyn Plan>, TrialError> {
        Ok(Box::new(AcceptQueueSettings::from(settings)?))
    }
}

impl Plan for AcceptQueueSettings {
    fn expected_s(&self) -> f64 {
        Self::expected_s(self)
    }

    fn trial(&self, arm: &PlannedArm, context: &mut Context<'_>) -> Result<Outcome, TrialError> {
        AcceptQueueTrial::outcome(arm, self, context)
    }
}
