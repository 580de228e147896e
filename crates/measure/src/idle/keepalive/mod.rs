//! What does it cost to know that idle connections are alive, and how soon is a death known?

mod advice;
mod findings;
mod observation;
mod options;
pub(crate) mod pictures;
mod settings;
pub(crate) mod sheet;
mod stage;
mod trade;
mod trial;

use crate::kit::TrialError;
use crate::kit::plan::{Context, Experiment, Outcome, Plan, PublicLoad};
use crate::kit::settings::check_congestion;
use crate::kit::target::Target;
use advice::chosen;
use settings::KeepaliveSettings;
use tcptoll_core::experiment::brief::{self, Brief, Group};
use tcptoll_core::experiment::figures::{
    CLIENT_CPU, GOODPUT, LATENESS, RTT, SERVER_CPU, histogram, metric,
};
use tcptoll_core::experiment::spec::{Better, HistogramSpec, MetricSpec, Noun, Phrase, Spec};
use tcptoll_core::record::{Advice, Resolved};
use tcptoll_core::study::{PlannedArm, Settings};
use tcptoll_lab::files::Shared;
use trial::KeepaliveTrial;

/// Bytes on the wire for checking each idle connection, per hour.
const BYTES: MetricSpec = metric(
    "checking_bytes_per_hour_per_socket",
    "bytes/h",
    "bytes per hour and socket",
    Better::Lower,
);
/// Packets on the wire for checking each idle connection, per hour.
const PACKETS: MetricSpec = metric(
    "checking_packets_per_hour_per_socket",
    "1/h",
    "packets per hour and socket",
    Better::Lower,
);
/// Memory of the client's program for each connection.
const CLIENT_MEMORY: MetricSpec =
    metric("client_bytes_per_socket", "bytes", "client bytes per socket", Better::Lower);
/// CPU time of the client's processes for 1,000 idle connections, per second.
const CLIENT_IDLE_CPU: MetricSpec = metric(
    "client_fleet_cpu_us_per_s_per_1000_sockets",
    "us/s",
    "client CPU per 1,000 sockets",
    Better::Lower,
);
/// Kernel memory of the client for each connection.
const CLIENT_KERNEL_MEMORY: MetricSpec = metric(
    "client_kernel_bytes_per_socket",
    "bytes",
    "client kernel bytes per socket",
    Better::Lower,
);
/// Dead connections that were detected.
const DEATHS_KNOWN: MetricSpec =
    metric("deaths_known", "connections", "dead connections detected", Better::Higher);
/// Dead connections that were not detected.
const DEATHS_UNNOTICED: MetricSpec =
    metric("deaths_unnoticed", "connections", "dead connections not detected", Better::Lower);
const HEARTBEATS: MetricSpec =
    metric("heartbeats_per_s", "1/s", "heartbeats per second", Better::Neither);
/// Keep-alive probes on the wire.
const PROBES: MetricSpec =
    metric("keepalive_probes", "probes", "keepalive probes", Better::Neither);
/// CPU time of the emulated link for 1,000 idle connections, per second.
const LINK_CPU: MetricSpec = metric(
    "link_cpu_us_per_s_per_1000_sockets",
    "us/s",
    "link CPU per 1,000 sockets",
    Better::Neither,
);
/// CPU time of the whole machine for 1,000 idle connections, per second.
const MACHINE_CPU: MetricSpec = metric(
    "machine_cpu_us_per_s_per_1000_sockets",
    "us/s",
    "machine CPU per 1,000 sockets",
    Better::Lower,
);
/// Messages of the connection that writes, per second.
const RATE: MetricSpec = metric("messages_per_s", "1/s", "messages per second", Better::Higher);
const PROBES_RATE: MetricSpec = metric("probes_per_s", "1/s", "probes per second", Better::Neither);
/// Memory of the server's program for each connection.
const SERVER_MEMORY: MetricSpec =
    metric("server_bytes_per_socket", "bytes", "server bytes per socket", Better::Lower);
/// CPU time of the server's processes for 1,000 idle connections, per second.
const SERVER_IDLE_CPU: MetricSpec = metric(
    "server_fleet_cpu_us_per_s_per_1000_sockets",
    "us/s",
    "server CPU per 1,000 sockets",
    Better::Lower,
);
/// Kernel memory of the server for each connection.
const SERVER_KERNEL_MEMORY: MetricSpec = metric(
    "server_kernel_bytes_per_socket",
    "bytes",
    "server kernel bytes per socket",
    Better::Lower,
);
/// Wait of an arriving connection for room.
const ARRIVAL: HistogramSpec =
    histogram("arrival_us", "wait of a new connection for its place", Better::Lower);
/// From the fault to its detection.
const DETECTION: HistogramSpec =
    histogram("detection_us", "time from the fault to its detection", Better::Lower);

/// Examples and explanations in the help.
const EXAMPLES: &str = "\
Examples:
  tcptoll keepalive
      1,000 connections, 100 of them cut off: how fast is each mechanism, and at what cost?
  tcptoll keepalive --detect-within 30s
      the cheapest settings of each mechanism that detect a dead peer within 30 s, tested
  tcptoll keepalive --mechanism none,tcp,heartbeat --idle 10s --sockets 50000 --writer off
      what testing 50,000 idle connections costs in packets, CPU and memory
  tcptoll keepalive --mechanism none,tcp --sockets 1,17,51 --idle kernel
      does SO_KEEPALIVE slow down the one connection that writes?
  tcptoll keepalive --mechanism tcp,heartbeat --fault freeze
      a stopped process, whose kernel still answers probes
  tcptoll keepalive --mechanism heartbeat --evidence acknowledged,answered --fault freeze
      the same, with heartbeats that the program itself must answer
  tcptoll keepalive --mechanism tcp --probes 1,2,3 --fault loss=5% --watch 30s --writer off
      live connections that are closed because of packet loss
  tcptoll keepalive --mechanism write --fault cut --server-sysctl net.ipv4.tcp_retries2=5
      when does a program that only writes get an error?
  tcptoll keepalive --to 192.0.2.7:6379 --mechanism heartbeat --null 'PING\\r\\n' --evidence answered
      connections to your own server, with a heartbeat of its protocol

An option with several values (--idle 1s,10s) makes one arm (variant) per value. TCP keepalive here
means the kernel's probes on idle connections, not HTTP keep-alive.

Mechanisms (--mechanism):
  none        the program only reads
  tcp         kernel probes: SO_KEEPALIVE with --idle, --interval and --probes
  heartbeat   the program sends a heartbeat when nothing has arrived for --idle, and expects the
              --evidence within --answer-within
  lazy        no timer: once there are --most connections, each new connection causes idle ones to
              be tested with a heartbeat
  write       the program writes every --interval until the kernel gives up and reports an error";

/// What `-h` shows.
const BRIEF: Brief = Brief {
    group: Group::Setting,
    line: "which keep-alive settings detect a dead peer, and their cost",
    options: &[
        ("to", "a server of yours; without it, two hosts in the lab"),
        ("detect-within", "cheapest settings that detect a dead peer in it"),
        ("mechanism", "none, tcp, heartbeat, lazy or write"),
        ("idle", "idle time before the first probe or heartbeat"),
        ("interval", "time between unanswered probes"),
        ("probes", "unanswered probes until a peer counts as dead"),
        ("sockets", "connections in all"),
        ("fault", "of some peers: cut, freeze, reset, close, loss=5%"),
        brief::LINK,
        brief::HTML,
    ],
    examples: &[
        ("keepalive --detect-within 30s", "settings, price and proof"),
        ("keepalive", "the time and cost of each mechanism"),
        ("keepalive -c 10000 --writer off", "cost of 10,000 idle connections"),
    ],
};

pub(crate) const SPEC: Spec = Spec {
    name: "keepalive",
    question: "What does it cost to detect dead peers of idle connections, and how soon is it done?",
    about: "Measure TCP keepalive, heartbeats and reaping: cost, and detection time",
    examples: EXAMPLES,
    brief: BRIEF,
    options: options::OPTIONS,
    target: Some("to"),
    complete: options::complete,
    compares: options::compares,
    metrics: &[
        &BYTES,
        &PACKETS,
        &CLIENT_MEMORY,
        &CLIENT_CPU,
        &CLIENT_IDLE_CPU,
        &CLIENT_KERNEL_MEMORY,
        &DEATHS_KNOWN,
        &DEATHS_UNNOTICED,
        &GOODPUT,
        &HEARTBEATS,
        &PROBES,
        &LINK_CPU,
        &MACHINE_CPU,
        &RATE,
        &PROBES_RATE,
        &SERVER_MEMORY,
        &SERVER_CPU,
        &SERVER_IDLE_CPU,
        &SERVER_KERNEL_MEMORY,
    ],
    histograms: &[&ARRIVAL, &DETECTION, &LATENESS, &RTT],
    primary: RATE.name,
    phrases: &[
        Phrase::rate(RATE.name, "The rate is {}", "carries {} as many messages/s as", "messages/s"),
        Phrase::figures(MACHINE_CPU.name, "1,000 idle connections take {} of CPU per second"),
    ],
    answers: &[DETECTION.name, ARRIVAL.name],
    margin: 0.02,
    operation: Noun { one: "message", many: "messages", short: "msg" },
    tables: sheet::TABLES,
    causes: findings::ALL,
    conclude: findings::conclude,
};

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

#[cfg(test)]
mod tests;
