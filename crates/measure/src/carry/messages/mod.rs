//! What does a message cost, by its size and by how it is sent?

mod advice;
mod causes;
mod columns;
mod conclusion;
mod exchanges;
pub(crate) mod experiment;
mod java;
mod observation;
mod one_way;
mod options;
mod pattern;
pub(crate) mod pictures;
mod series;
mod settings;

use tcptoll_core::experiment::figures::{
    CLIENT_CPU, CLIENT_SEGMENTS, GOODPUT, LATENCY, LATENCY_MEAN, RTT, SERVER_CPU, SERVER_SEGMENTS,
    histogram, metric,
};
use tcptoll_core::experiment::spec::{Better, HistogramSpec, MetricSpec, Noun, Spec};

pub use self::pattern::Pattern;

/// System calls of the sender for each message.
pub const CALLS: MetricSpec =
    metric("client_calls_per_op", "calls", "system calls per message", Better::Lower);
/// CPU time of the sending program, divided by the time of the window.
pub const CLIENT_CPU_SHARE: MetricSpec =
    metric("client_cpu_share", "share", "client CPU share", Better::Neither);
/// Messages that the receiver got, or exchanges that were completed, per second.
pub const RATE: MetricSpec = metric("messages_per_s", "1/s", "messages per second", Better::Higher);
/// CPU time of the receiving program, divided by the time of the window.
pub const SERVER_CPU_SHARE: MetricSpec =
    metric("server_cpu_share", "share", "server CPU share", Better::Neither);

/// On the wire, from a data segment to the pure ACK that acknowledged it, at the server.
pub const ACK_DELAY: HistogramSpec =
    histogram("ack_delay_us", "delay of the server's ACK", Better::Lower);

/// Examples and explanations in the help.
const EXAMPLES: &str = "\
Examples:
  tcptoll messages
      what a message costs: four sizes, with and without Nagle's algorithm
  tcptoll messages --message 64 --nagle off --coalesce none,more,gather,buffer
      four ways to send small messages, singly and combined
  tcptoll messages --message 64,1K --work 2us
      messages on which the program spends CPU time
  tcptoll messages --pattern request-response
      latency of an exchange, by message size
  tcptoll messages --pattern write-write-read
      the stall that Nagle's algorithm and delayed ACKs cause together
  tcptoll messages --pattern write-write-read --quick-ack on,off
      the same, with and without delayed ACKs at the server

An option with several values makes one arm (variant) per value. Message sizes are not compared
with each other. If one other option has several values, they are compared with its first value, at
each size.";

/// The experiment.
pub const SPEC: Spec = Spec {
    name: "messages",
    question: "What does a message cost, by its size and by how it is sent?",
    about: "Measure what messages cost by size, with and without Nagle's algorithm and batching",
    examples: EXAMPLES,
    options: options::OPTIONS,
    target: None,
    complete: options::complete,
    compares: options::compares,
    metrics: &[
        &CALLS,
        &CLIENT_CPU_SHARE,
        &CLIENT_CPU,
        &CLIENT_SEGMENTS,
        &GOODPUT,
        &LATENCY_MEAN,
        &RATE,
        &SERVER_CPU_SHARE,
        &SERVER_CPU,
        &SERVER_SEGMENTS,
    ],
    histograms: &[&ACK_DELAY, &LATENCY, &RTT],
    primary: RATE.name,
    answers: &[LATENCY.name],
    // As for bandwidth: smaller differences decide nothing.
    margin: 0.02,
    operation: Noun { one: "message", many: "messages", short: "msg" },
    tables: columns::TABLES,
    causes: causes::ALL,
    conclude: conclusion::conclude,
};
