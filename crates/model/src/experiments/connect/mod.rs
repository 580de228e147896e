//! What does it cost to open a TCP connection, and where does the time go?

pub mod columns;
pub mod conclusion;
pub mod expectation;

use super::figures::{
    ACCEPT_QUEUE_PEAK, CLIENT_CPU, CONNECT, CONNECT_MEAN, CONNECTIONS_RATE, FIRST_BYTE,
    FIRST_BYTE_MEAN, LATENESS, RATE_RESOLUTION, RTT, SERVER_CPU, histogram, metric,
};
use super::spec::{Better, HistogramSpec, MetricSpec, Noun, Spec};

/// Mean number of connections being opened.
pub const IN_FLIGHT: MetricSpec =
    metric("in_flight_mean", "connections", "in flight mean", Better::Neither);
/// Share of the handshakes that waited for a retransmitted SYN.
pub const WAITED: MetricSpec =
    metric("waited_share", "share", "share that waited for a retransmitted SYN", Better::Lower);
/// From due to established, of operations that failed after their handshake.
pub const CONNECT_OF_FAILED: HistogramSpec = histogram(
    "connect_of_failed_us",
    "connect latency of connections that failed later",
    Better::Lower,
);

/// The experiment.
pub const SPEC: Spec = Spec {
    name: "connect",
    question: "What does it cost to open a TCP connection, and where does the time go?",
    about: "Measure what opening a TCP connection costs, and where the time goes",
    examples: "",
    options: &[],
    metrics: &[
        &ACCEPT_QUEUE_PEAK,
        &CLIENT_CPU,
        &CONNECT_MEAN,
        &CONNECTIONS_RATE,
        &FIRST_BYTE_MEAN,
        &IN_FLIGHT,
        &RATE_RESOLUTION,
        &SERVER_CPU,
        &WAITED,
    ],
    histograms: &[&CONNECT_OF_FAILED, &CONNECT, &FIRST_BYTE, &LATENESS, &RTT],
    primary: CONNECT_MEAN.name,
    answers: &[CONNECT.name, FIRST_BYTE.name],
    // Differences in connect latency below this relative size change no decision.
    margin: 0.01,
    operation: Noun { one: "connection", many: "connections", short: "conn" },
    tables: columns::TABLES,
    conclude: conclusion::conclude,
};
