//! How much does a connection carry, what limits it, and what does that cost?

mod findings;
mod memory;
mod memory_trial;
mod settings;
mod several;
pub(crate) mod sheet;
mod transfer_arm;
mod trial;

use tcptoll_core::experiment::brief::{self, Brief, Group};
use tcptoll_core::experiment::figures::{GOODPUT, RTT, metric};
use tcptoll_core::experiment::spec::{Better, MetricSpec, Noun, Phrase, Spec};
use tcptoll_core::study::{PlannedArm, Settings};
use tcptoll_lab::files::Shared;

use self::memory_trial::MemorySettings;
use self::settings::StreamSettings;
use self::trial::StreamTrial;
use crate::kit::TrialError;
use crate::kit::plan::{Context, Experiment, Outcome, Plan};
use crate::kit::settings::check_congestion;

/// CPU time of the client's program for 10^9 bytes of payload.
const CLIENT_CPU_PER_GB: MetricSpec =
    metric("client_cpu_s_per_gb", "s/GB", "client CPU per GB", Better::Lower);
/// Kernel memory of one open connection without data on the client host: buffers and structures.
const CLIENT_IDLE_MEMORY: MetricSpec = metric(
    "client_idle_bytes_per_connection",
    "bytes",
    "client memory per idle connection",
    Better::Lower,
);
/// The same with a full send buffer.
const CLIENT_FILLED_MEMORY: MetricSpec = metric(
    "client_filled_bytes_per_connection",
    "bytes",
    "client memory per filled connection",
    Better::Lower,
);
/// Goodput from the server to the client, where data flows both ways.
const GOODPUT_DOWN: MetricSpec =
    metric("goodput_down_bytes_per_s", "bytes/s", "goodput to the client", Better::Higher);
/// Goodput from the client to the server, where data flows both ways.
const GOODPUT_UP: MetricSpec =
    metric("goodput_up_bytes_per_s", "bytes/s", "goodput to the server", Better::Higher);
/// Share of the payload that the link's rate allows.
const LINK_SHARE: MetricSpec =
    metric("link_share", "share", "share of the link's rate", Better::Higher);
/// Smoothed round trip while data flowed, median of the samples.
const LOADED_RTT: MetricSpec =
    metric("loaded_rtt_us", "us", "round trip under load", Better::Lower);
/// Share of the payload bytes sent that were retransmissions.
const RETRANSMITTED: MetricSpec =
    metric("retransmitted_share", "share", "retransmitted share", Better::Lower);
/// CPU time of the server's program for 10^9 bytes of payload.
const SERVER_CPU_PER_GB: MetricSpec =
    metric("server_cpu_s_per_gb", "s/GB", "server CPU per GB", Better::Lower);
/// Kernel memory of one open connection without data on the server host: buffers and structures.
const SERVER_IDLE_MEMORY: MetricSpec = metric(
    "server_idle_bytes_per_connection",
    "bytes",
    "server memory per idle connection",
    Better::Lower,
);
/// The same with a full receive buffer.
const SERVER_FILLED_MEMORY: MetricSpec = metric(
    "server_filled_bytes_per_connection",
    "bytes",
    "server memory per filled connection",
    Better::Lower,
);
/// From the first byte to steady goodput.
const STARTUP: MetricSpec = metric("startup_us", "us", "time to steady goodput", Better::Lower);
/// From the first byte to the last, with a fixed number of bytes.
pub(crate) const TRANSFER: MetricSpec = metric("transfer_us", "us", "transfer time", Better::Lower);

/// Examples and explanations in the help.
const EXAMPLES: &str = "\
Examples:
  tcptoll stream --link rtt=10ms,rate=1gbit --window auto,16K,64K,256K,1M
      which buffer size fills a link of 1 Gbit/s with a round trip of 10 ms
  tcptoll stream --link rtt=37ms,rate=1gbit --congestion cubic,bbr
      compare two congestion controls
  tcptoll stream --memory --window auto,512K --connections 100,1000
      kernel memory of open connections, with empty and with full buffers

An option with several values makes one arm (variant) per value. The other arms are compared with
the first.";

/// What `-h` shows.
const BRIEF: Brief = Brief {
    group: Group::Setting,
    line: "which buffer, which congestion control fills a link",
    options: &[
        brief::LINK,
        ("direction", "up, down or both"),
        ("streams", "connections at a time"),
        ("window", "socket buffers; auto,64K,1M compares"),
        ("congestion", "congestion control; cubic,bbr compares"),
        ("duration", "time of each trial, e.g. 10s"),
        ("server", "host of the server, over ssh"),
        ("memory", "measure memory of connections instead"),
        brief::HTML,
        brief::FAIL_IF,
    ],
    examples: &[
        ("stream --link rtt=40ms,rate=1gbit --window auto,1M", "a buffer"),
        ("stream --link rtt=37ms,loss=1% --congestion cubic,bbr", "compared"),
        ("stream --server ssh://user@b", "two machines"),
    ],
};

pub(crate) const SPEC: Spec = Spec {
    name: "stream",
    question: "What throughput does a connection reach, what limits it, and what does it cost?",
    about: "Measure throughput, what limits it, and what it costs in CPU, latency and memory",
    examples: EXAMPLES,
    brief: BRIEF,
    options: settings::OPTIONS,
    target: None,
    complete: |_| {},
    compares: settings::compares,
    metrics: &[
        &CLIENT_CPU_PER_GB,
        &CLIENT_FILLED_MEMORY,
        &CLIENT_IDLE_MEMORY,
        &GOODPUT,
        &GOODPUT_DOWN,
        &GOODPUT_UP,
        &LINK_SHARE,
        &LOADED_RTT,
        &RETRANSMITTED,
        &SERVER_CPU_PER_GB,
        &SERVER_FILLED_MEMORY,
        &SERVER_IDLE_MEMORY,
        &STARTUP,
        &TRANSFER,
    ],
    histograms: &[&RTT],
    primary: GOODPUT.name,
    phrases: &[
        Phrase::rate(GOODPUT.name, "The connection carries {}", "carries {} as much as", ""),
        Phrase::figures(TRANSFER.name, "The transfer takes {}"),
    ],
    answers: &[],
    // Goodput differs by some percent from one run to the next; smaller differences decide nothing.
    margin: 0.02,
    operation: Noun::CONNECTION,
    tables: sheet::TABLES,
    causes: findings::ALL,
    conclude: findings::conclude,
};

pub(crate) struct Stream;

impl Experiment for Stream {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn plan(&self, settings: &Settings) -> Result<Box<dyn Plan>, TrialError> {
        if memory_trial::is_asked(settings)? {
            return Ok(Box::new(MemorySettings::from(settings)?));
        }
        Ok(Box::new(StreamSettings::from(settings)?))
    }
}

impl Plan for StreamSettings {
    fn prepare(&mut self, _files: &mut Shared) -> Result<(), TrialError> {
        check_congestion(self.congestion.as_deref())
    }

    fn expected_s(&self) -> f64 {
        Self::expected_s(self)
    }

    fn trial(&self, arm: &PlannedArm, context: &mut Context<'_>) -> Result<Outcome, TrialError> {
        StreamTrial::outcome(arm, self, context)
    }
}

#[cfg(test)]
mod tests;
