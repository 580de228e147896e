//! What does it cost to reuse a connection, or not, and who pays?

mod causes;
pub mod columns;
mod conclusion;
mod options;

use super::figures::{
    ACCEPT_QUEUE_PEAK, CLIENT_CPU, CLIENT_SEGMENTS, CLIENT_TIME_WAIT, CONNECT, CONNECT_MEAN,
    CONNECTIONS_RATE, FIRST_BYTE, FIRST_BYTE_MEAN, GOODPUT, LATENCY, LATENCY_MEAN, LATENESS,
    RATE_RESOLUTION, RTT, SERVER_CPU, SERVER_SEGMENTS, SERVER_TIME_WAIT, histogram, metric,
};
use super::spec::{Better, HistogramSpec, MetricSpec, Noun, Spec};

/// Open loop: requests that completed, per second.
pub const ACHIEVED: MetricSpec =
    metric("achieved_per_s", "1/s", "achieved per second", Better::Higher);
/// Memory of the client's program for each open connection.
pub const CLIENT_MEMORY: MetricSpec =
    metric("client_bytes_per_connection", "bytes", "client bytes per connection", Better::Lower);
/// Mean number of concurrent requests.
pub const IN_FLIGHT: MetricSpec =
    metric("in_flight_mean", "requests", "in flight mean", Better::Neither);
/// Open loop: requests that were due, per second.
pub const INTENDED: MetricSpec =
    metric("intended_per_s", "1/s", "intended per second", Better::Neither);
/// Kernel memory of the sockets of an open connection.
pub const KERNEL_MEMORY: MetricSpec =
    metric("kernel_bytes_per_connection", "bytes", "kernel bytes per connection", Better::Lower);
/// Requests that a connection carried, as counted.
pub const PER_CONNECTION: MetricSpec =
    metric("requests_per_connection", "requests", "requests per connection", Better::Neither);
/// Requests that succeeded per second within the window.
pub const RATE: MetricSpec = metric("requests_per_s", "1/s", "requests per second", Better::Higher);
/// Share of the TLS handshakes that resumed a session.
pub const TLS_RESUMED: MetricSpec =
    metric("tls_resumed_share", "share", "tls resumed share", Better::Neither);
/// Open loop: requests due and unanswered when the window ended.
pub const UNSERVED: MetricSpec =
    metric("unserved_at_end", "requests", "unserved at end", Better::Lower);
/// From a response to the server's close of the idle connection.
pub const IDLE_CLOSE: HistogramSpec =
    histogram("idle_close_us", "idle time until the server closed", Better::Neither);
/// Time of TLS handshakes.
pub const TLS: HistogramSpec = histogram("tls_us", "TLS handshake", Better::Lower);

/// Examples and explanations in the help.
const EXAMPLES: &str = "\
Examples:
  tcptoll http
      nginx in the lab, two connections that are used again
  tcptoll http --reuse keep-alive,server-close,client-close http://127.0.0.1:8080/
      three ways of using connections against a server of yours, in rounds until it is sure
  tcptoll http --server nginx,puma --reuse keep-alive,server-close --link direct,same-room
      eight arms: the product
  tcptoll http --rate 2000 --spread poisson --duration 10s
      open loop: latency counts from when a request was due
  tcptoll http --reuse requests=1,requests=10,lifetime=1s --work 5ms
      how often must a connection be used again, if an answer takes 5 ms?
  tcptoll http --tls full,resumed --reuse server-close
      what a TLS handshake costs each connection
  tcptoll http --access-log access.log --connections 10 https://staging.example/
      the requests of a log, in its order
  tcptoll http --server 'python3 -m http.server 8000' --path /LICENSE
      any server that a command starts

An option with several values (--connections 10,100) makes an arm of each; the others are compared
against the first.

Ways of using connections (--reuse):
  keep-alive          one request after another, for as long as the server lets it
  requests=N          so many, then the client closes
  lifetime=TIME       for so long, then the client closes after the response
  server-close        `Connection: close` is sent: the server closes
  client-close        the client closes after the response, without having asked
  http1.0             HTTP/1.0: the server closes
  http1.0-keep-alive  HTTP/1.0 with `Connection: keep-alive`
  idle=TIME           as keep-alive, with so long between a response and the next request";

/// The experiment.
pub const SPEC: Spec = Spec {
    name: "http",
    question: "What does it cost to reuse a connection, or not, and who pays?",
    about: "Measure what HTTP requests cost with each way of using a connection again, and who closes",
    examples: EXAMPLES,
    options: options::OPTIONS,
    target: Some("url"),
    complete: |_| {},
    compares: |_| true,
    metrics: &[
        &ACCEPT_QUEUE_PEAK,
        &ACHIEVED,
        &CLIENT_MEMORY,
        &CLIENT_CPU,
        &CLIENT_SEGMENTS,
        &CLIENT_TIME_WAIT,
        &CONNECT_MEAN,
        &CONNECTIONS_RATE,
        &FIRST_BYTE_MEAN,
        &GOODPUT,
        &IN_FLIGHT,
        &INTENDED,
        &KERNEL_MEMORY,
        &LATENCY_MEAN,
        &RATE_RESOLUTION,
        &PER_CONNECTION,
        &RATE,
        &SERVER_CPU,
        &SERVER_SEGMENTS,
        &SERVER_TIME_WAIT,
        &TLS_RESUMED,
        &UNSERVED,
    ],
    histograms: &[&CONNECT, &FIRST_BYTE, &IDLE_CLOSE, &LATENCY, &LATENESS, &RTT, &TLS],
    primary: RATE.name,
    answers: &[LATENCY.name, CONNECT.name, FIRST_BYTE.name],
    margin: 0.02,
    operation: Noun::REQUEST,
    tables: columns::TABLES,
    causes: causes::ALL,
    conclude: conclusion::conclude,
};
