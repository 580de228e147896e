//! Metrics and distributions that several experiments have.

use super::spec::{Better, HistogramSpec, MetricSpec};

/// A metric.
pub const fn metric(
    name: &'static str,
    unit: &'static str,
    words: &'static str,
    better: Better,
) -> MetricSpec {
    MetricSpec { name, unit, words, better }
}

/// A distribution.
pub const fn histogram(name: &'static str, words: &'static str, better: Better) -> HistogramSpec {
    HistogramSpec { name, words, better }
}

use Better::{Higher, Lower, Neither};

/// The longest accept queue that was seen.
pub const ACCEPT_QUEUE_PEAK: MetricSpec =
    metric("accept_queue_peak", "connections", "accept queue peak", Lower);
/// CPU time of the client host for each operation.
pub const CLIENT_CPU: MetricSpec =
    metric("client_cpu_us_per_op", "us", "client CPU per operation", Lower);
/// CPU time of the server host for each operation.
pub const SERVER_CPU: MetricSpec =
    metric("server_cpu_us_per_op", "us", "server CPU per operation", Lower);
/// Segments that the client host sent for each operation.
pub const CLIENT_SEGMENTS: MetricSpec =
    metric("client_segments_per_op", "segments", "client segments per op", Lower);
/// Segments that the server host sent for each operation.
pub const SERVER_SEGMENTS: MetricSpec =
    metric("server_segments_per_op", "segments", "server segments per op", Lower);
/// Sockets in TIME-WAIT on the client host after the load.
pub const CLIENT_TIME_WAIT: MetricSpec =
    metric("client_time_wait", "sockets", "client time wait", Neither);
/// Sockets in TIME-WAIT on the server host after the load.
pub const SERVER_TIME_WAIT: MetricSpec =
    metric("server_time_wait", "sockets", "server time wait", Neither);
/// Sockets in FIN-WAIT-2 on the client host after the load: the server has not closed them.
pub const CLIENT_FIN_WAIT_2: MetricSpec =
    metric("client_fin_wait_2", "sockets", "client FIN-WAIT-2", Neither);
/// Sockets in FIN-WAIT-2 on the server host after the load: the client has not closed them.
pub const SERVER_FIN_WAIT_2: MetricSpec =
    metric("server_fin_wait_2", "sockets", "server FIN-WAIT-2", Neither);
/// Mean time from due to established, of connections that succeeded.
pub const CONNECT_MEAN: MetricSpec = metric("connect_us_mean", "us", "mean connect latency", Lower);
/// Mean time from due to the first byte.
pub const FIRST_BYTE_MEAN: MetricSpec =
    metric("first_byte_us_mean", "us", "mean time to first byte", Lower);
/// Mean time from due to the end of the operation.
pub const LATENCY_MEAN: MetricSpec = metric("latency_us_mean", "us", "mean latency", Lower);
/// Connections opened per second within the window.
pub const CONNECTIONS_RATE: MetricSpec =
    metric("connections_per_s", "1/s", "connections per second", Higher);
/// Mean number of connections being opened.
pub const IN_FLIGHT: MetricSpec =
    metric("in_flight_mean", "connections", "mean number in flight", Neither);
/// Share of the handshakes that waited for a retransmitted SYN.
pub const WAITED: MetricSpec =
    metric("waited_share", "share", "share that waited for a retransmitted SYN", Lower);
/// Share of the connections that ended in an error.
pub const FAILED_SHARE: MetricSpec =
    metric("failed_share", "share", "share of connections that failed", Lower);
/// SYNs and ACKs that the kernel dropped at the measured listener, divided by the connections.
pub const DROPS: MetricSpec =
    metric("drops_per_connection", "packets", "packets dropped per connection", Lower);
/// Share of the load's time in which the accept queue was full.
pub const QUEUE_FULL: MetricSpec =
    metric("accept_queue_full_share", "share", "share of time with a full accept queue", Lower);
/// Payload bytes received per second.
pub const GOODPUT: MetricSpec = metric("goodput_bytes_per_s", "bytes/s", "goodput", Higher);
/// What the edges of the window may add to a rate, or hide.
pub const RATE_RESOLUTION: MetricSpec =
    metric("rate_resolution_per_s", "1/s", "resolution of the rate", Neither);

/// From due to established, of operations that succeeded.
pub const CONNECT: HistogramSpec = histogram("connect_us", "connect latency", Lower);
/// From due to established, of operations that failed after their handshake.
pub const CONNECT_OF_FAILED: HistogramSpec =
    histogram("connect_of_failed_us", "connect latency of connections that failed later", Lower);
/// From due to the error, of operations that failed.
pub const FAILURE: HistogramSpec = histogram("failure_us", "time to failure", Lower);
/// From due to the first byte.
pub const FIRST_BYTE: HistogramSpec = histogram("first_byte_us", "time to first byte", Lower);
/// From due to begun.
pub const LATENESS: HistogramSpec = histogram("lateness_us", "lateness of the client", Lower);
/// From due to the end of the operation.
pub const LATENCY: HistogramSpec = histogram("latency_us", "latency", Lower);
/// ICMP echoes before the load.
pub const RTT: HistogramSpec = histogram("rtt_us", "ICMP echo", Neither);

/// From this share of a rate on, its resolution is shown next to it.
pub const RESOLUTION_SHOWN: f64 = 0.02;
