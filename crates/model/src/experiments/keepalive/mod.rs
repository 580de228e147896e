//! What does it cost to know that idle connections are alive, and how soon is a death known?

mod advice;
mod causes;
pub mod columns;
mod conclusion;
mod options;

use super::figures::{CLIENT_CPU, GOODPUT, LATENESS, RTT, SERVER_CPU, histogram, metric};
use super::spec::{Better, HistogramSpec, MetricSpec, Noun, Spec};

/// Bytes on the wire for checking each idle connection, per hour.
pub const BYTES: MetricSpec = metric(
    "checking_bytes_per_hour_per_socket",
    "bytes/h",
    "bytes per hour and socket",
    Better::Lower,
);
/// Packets on the wire for checking each idle connection, per hour.
pub const PACKETS: MetricSpec = metric(
    "checking_packets_per_hour_per_socket",
    "1/h",
    "packets per hour and socket",
    Better::Lower,
);
/// Memory of the client's program for each connection.
pub const CLIENT_MEMORY: MetricSpec =
    metric("client_bytes_per_socket", "bytes", "client bytes per socket", Better::Lower);
/// CPU time of the client's processes for 1,000 idle connections, per second.
pub const CLIENT_IDLE_CPU: MetricSpec = metric(
    "client_fleet_cpu_us_per_s_per_1000_sockets",
    "us/s",
    "client CPU per 1,000 sockets",
    Better::Lower,
);
/// Kernel memory of the client for each connection.
pub const CLIENT_KERNEL_MEMORY: MetricSpec = metric(
    "client_kernel_bytes_per_socket",
    "bytes",
    "client kernel bytes per socket",
    Better::Lower,
);
/// Dead connections that were detected.
pub const DEATHS_KNOWN: MetricSpec =
    metric("deaths_known", "connections", "deaths known", Better::Higher);
/// Dead connections that were not detected.
pub const DEATHS_UNNOTICED: MetricSpec =
    metric("deaths_unnoticed", "connections", "deaths unnoticed", Better::Lower);
/// Heartbeats per second.
pub const HEARTBEATS: MetricSpec =
    metric("heartbeats_per_s", "1/s", "heartbeats per second", Better::Neither);
/// Keep-alive probes on the wire.
pub const PROBES: MetricSpec =
    metric("keepalive_probes", "probes", "keepalive probes", Better::Neither);
/// CPU time of the emulated link for 1,000 idle connections, per second.
pub const LINK_CPU: MetricSpec = metric(
    "link_cpu_us_per_s_per_1000_sockets",
    "us/s",
    "link cpu per s per 1000 sockets",
    Better::Neither,
);
/// CPU time of the whole machine for 1,000 idle connections, per second.
pub const MACHINE_CPU: MetricSpec = metric(
    "machine_cpu_us_per_s_per_1000_sockets",
    "us/s",
    "machine CPU per 1,000 sockets",
    Better::Lower,
);
/// Messages of the connection that writes, per second.
pub const RATE: MetricSpec = metric("messages_per_s", "1/s", "messages per second", Better::Higher);
/// Keep-alive probes per second.
pub const PROBES_RATE: MetricSpec =
    metric("probes_per_s", "1/s", "probes per second", Better::Neither);
/// Memory of the server's program for each connection.
pub const SERVER_MEMORY: MetricSpec =
    metric("server_bytes_per_socket", "bytes", "server bytes per socket", Better::Lower);
/// CPU time of the server's processes for 1,000 idle connections, per second.
pub const SERVER_IDLE_CPU: MetricSpec = metric(
    "server_fleet_cpu_us_per_s_per_1000_sockets",
    "us/s",
    "server CPU per 1,000 sockets",
    Better::Lower,
);
/// Kernel memory of the server for each connection.
pub const SERVER_KERNEL_MEMORY: MetricSpec = metric(
    "server_kernel_bytes_per_socket",
    "bytes",
    "server kernel bytes per socket",
    Better::Lower,
);
/// Wait of an arriving connection for room.
pub const ARRIVAL: HistogramSpec =
    histogram("arrival_us", "wait of an arrival for room", Better::Lower);
/// From the fault to its detection.
pub const DETECTION: HistogramSpec =
    histogram("detection_us", "time from the fault to knowing it", Better::Lower);

/// Examples and explanations in the help.
const EXAMPLES: &str = "\
Examples:
  tcptoll keepalive
      1,000 connections, 100 of them cut off: who knows, how soon, and for how many packets
  tcptoll keepalive --detect-within 30s
      the cheapest settings of each mechanism that know within 30 s, and the proof
  tcptoll keepalive --mechanism none,tcp,heartbeat --idle 10s --sockets 50000 --writer off
      what checking 50,000 idle connections costs in packets, CPU and memory
  tcptoll keepalive --mechanism none,tcp --sockets 1,17,51 --idle kernel
      does SO_KEEPALIVE slow down the one connection that writes?
  tcptoll keepalive --mechanism tcp,heartbeat --fault freeze
      a stopped process on a running machine: its kernel goes on answering
  tcptoll keepalive --mechanism heartbeat --evidence acknowledged,answered --fault freeze
      the same, with an answer of the program as evidence
  tcptoll keepalive --mechanism tcp --probes 1,2,3 --fault loss=5% --watch 30s --writer off
      false alarms of a lossy link
  tcptoll keepalive --mechanism write --fault cut --server-sysctl net.ipv4.tcp_retries2=5
      when does a program that only writes hear of it?
  tcptoll keepalive --to 192.0.2.7:6379 --mechanism heartbeat --null 'PING\\r\\n' --evidence answered
      connections to a server of yours that has a message of its own

An option with several values (--idle 1s,10s) makes an arm of each.

Mechanisms (--mechanism):
  none        the connection is only read from
  tcp         probes of the kernel: SO_KEEPALIVE with --idle, --interval and --probes
  heartbeat   a Null message when nothing has arrived for --idle; evidence within --answer-within
  lazy        no timer: from --most connections on, each that arrives has others tested
  write       the program writes every --interval and waits for the kernel to give up";

/// The experiment.
pub const SPEC: Spec = Spec {
    name: "keepalive",
    question: "What does it cost to know that idle connections are alive, and how soon is a death known?",
    about: "Measure what it costs to know that idle connections are alive, and how soon a death is known",
    examples: EXAMPLES,
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
    answers: &[DETECTION.name, ARRIVAL.name],
    margin: 0.02,
    operation: Noun { one: "message", many: "messages", short: "msg" },
    tables: columns::TABLES,
    causes: causes::ALL,
    conclude: conclusion::conclude,
};
