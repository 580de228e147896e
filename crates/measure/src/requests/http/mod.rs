//! What does it cost to reuse a connection, or not, and who pays?

mod causes;
mod closing;
mod columns;
mod conclusion;
mod endpoints;
pub(crate) mod experiment;
mod forecast;
mod observation;
mod options;
pub(crate) mod pictures;
mod requests;
mod servers;
mod settings;
mod trial;

use tcptoll_core::experiment::figures::{
    ACCEPT_QUEUE_PEAK, CLIENT_CPU, CLIENT_FIN_WAIT_2, CLIENT_SEGMENTS, CLIENT_TIME_WAIT, CONNECT,
    CONNECT_MEAN, CONNECTIONS_RATE, FIRST_BYTE, FIRST_BYTE_MEAN, GOODPUT, LATENCY, LATENCY_MEAN,
    LATENESS, RATE_RESOLUTION, RTT, SERVER_CPU, SERVER_FIN_WAIT_2, SERVER_SEGMENTS,
    SERVER_TIME_WAIT, histogram, metric,
};
use tcptoll_core::experiment::spec::{Better, HistogramSpec, MetricSpec, Noun, Spec};

/// Open loop: requests that completed, per second.
pub(crate) const ACHIEVED: MetricSpec =
    metric("achieved_per_s", "1/s", "achieved requests per second", Better::Higher);
/// Memory of the client's program for each open connection.
pub(crate) const CLIENT_MEMORY: MetricSpec =
    metric("client_bytes_per_connection", "bytes", "client bytes per connection", Better::Lower);
/// Mean number of concurrent requests.
pub(crate) const IN_FLIGHT: MetricSpec =
    metric("in_flight_mean", "requests", "mean number in flight", Better::Neither);
/// Open loop: requests that were due, per second.
pub(crate) const INTENDED: MetricSpec =
    metric("intended_per_s", "1/s", "intended requests per second", Better::Neither);
/// Kernel memory of the sockets of an open connection.
pub(crate) const KERNEL_MEMORY: MetricSpec =
    metric("kernel_bytes_per_connection", "bytes", "kernel bytes per connection", Better::Lower);
/// Requests that a connection carried, as counted.
pub(crate) const PER_CONNECTION: MetricSpec =
    metric("requests_per_connection", "requests", "requests per connection", Better::Neither);
/// Requests that succeeded per second within the window.
pub(crate) const RATE: MetricSpec =
    metric("requests_per_s", "1/s", "requests per second", Better::Higher);
/// Share of the TLS handshakes that resumed a session.
pub(crate) const TLS_RESUMED: MetricSpec =
    metric("tls_resumed_share", "share", "share of resumed TLS handshakes", Better::Neither);
/// Open loop: requests due and unanswered when the window ended.
pub(crate) const UNSERVED: MetricSpec =
    metric("unserved_at_end", "requests", "requests unanswered at the end", Better::Lower);
/// From a response to the server's close of the idle connection.
pub(crate) const IDLE_CLOSE: HistogramSpec =
    histogram("idle_close_us", "idle time until the server closed", Better::Neither);
/// Time of TLS handshakes.
pub(crate) const TLS: HistogramSpec = histogram("tls_us", "TLS handshake", Better::Lower);

/// Examples and explanations in the help.
const EXAMPLES: &str = "\
Examples:
  tcptoll http
      nginx in the lab, with two concurrent keep-alive connections
  tcptoll http --reuse keep-alive,server-close,client-close http://127.0.0.1:8080/
      compare three ways of using connections with your own server
  tcptoll http --server nginx,puma --reuse keep-alive,server-close --link direct,same-room
      two servers, two ways and two links: all eight combinations are compared
  tcptoll http --rate 2000 --spread poisson --duration 10s
      open loop: 2,000 requests per second at random times
  tcptoll http --server puma --reuse requests=1,requests=10,lifetime=1s --work 5ms
      how many requests per connection are enough if an answer takes 5 ms?
  tcptoll http --tls full,resumed --reuse server-close
      the cost of a full and of a resumed TLS handshake per connection
  tcptoll http --access-log access.log --connections 10 https://staging.example/
      replay the requests of an access log
  tcptoll http --server 'python3 -m http.server 8000' --path /LICENSE
      measure any server that a command starts

An option with several values (--connections 10,100) makes one arm (variant) per value. The other
arms are compared with the first.

Ways of using connections (--reuse):
  keep-alive          reuse the connection until the server closes it
  requests=N          the client closes after N requests
  lifetime=TIME       the client closes after the first response past TIME
  server-close        send `Connection: close`; the server closes after the response
  client-close        the client closes after the response, without announcing it
  http1.0             HTTP/1.0; the server closes after the response
  http1.0-keep-alive  HTTP/1.0 with `Connection: keep-alive`
  idle=TIME           like keep-alive, with a pause of TIME before the next request";

/// The experiment.
pub(crate) const SPEC: Spec = Spec {
    name: "http",
    question: "What does it cost to reuse a connection, or not, and which side pays?",
    about: "Measure what HTTP requests cost with and without connection reuse, and who closes",
    examples: EXAMPLES,
    options: options::OPTIONS,
    target: Some("url"),
    complete: servers::complete,
    compares: |_| true,
    metrics: &[
        &ACCEPT_QUEUE_PEAK,
        &ACHIEVED,
        &CLIENT_MEMORY,
        &CLIENT_CPU,
        &CLIENT_FIN_WAIT_2,
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
        &SERVER_FIN_WAIT_2,
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
