//! Connections of an arm: the steps of a handshake, who closed first, how messages were sent, and what
//! a connection costs as the client's local ports run low.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::merge::{Merge, merged, sum};
use crate::stats::Series;

/// What arithmetic expects of one operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Expectation {
    /// One round trip plus the CPU of both ends, µs.
    pub client_us: f64,
    /// One and a half round trips plus CPU, until the server's process has it, µs.
    pub server_process_us: f64,
    /// The round trip these rest on, µs, and where it is from.
    pub rtt_us: f64,
    /// `link setting`, `ICMP echo`.
    pub rtt_from: String,
    /// CPU of both ends that is part of it, µs; absent if it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_us: Option<f64>,
    /// Distance given by the user, km.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distance_km: Option<f64>,
    /// Least round trip over that distance in fibre, µs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_fibre_us: Option<f64>,
    /// Least round trip over that distance in vacuum, µs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_vacuum_us: Option<f64>,
}

impl Merge for Expectation {
    /// The first.
    fn merge(rounds: &[&Self]) -> Option<Self> {
        rounds.first().copied().cloned()
    }
}

/// Who closed connections first while the load ran. The sockets in TIME-WAIT that this left are the
/// metrics `client_time_wait` and `server_time_wait`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Closing {
    /// Connections that the client closed first: its FIN did not acknowledge the server's. Where
    /// `both` is absent, those are among them whose FINs crossed.
    pub by_client: u64,
    /// Connections that the server closed first, or reset.
    pub by_server: u64,
    /// Connections that both closed first: their FINs crossed and neither acknowledges the other, so
    /// both ends hold TIME-WAIT. Absent where only the client's end could be counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub both: Option<u64>,
    /// Of those that the server closed: while no request was under way on them, as its keep-alive
    /// time was over.
    pub while_idle: u64,
    /// Times the client asked with `Connection: close` and the server did not close: the client
    /// did, the first times after half a second, then at once.
    pub ignored: u64,
    /// Connections still open when the load ended. They are in no other count here; the client
    /// closed them before TIME-WAIT was counted, so their sockets are in `client_time_wait`.
    pub open_at_end: u64,
}

impl Closing {
    /// Connections that were closed while the load ran.
    pub fn closed(&self) -> u64 {
        self.by_client.saturating_add(self.by_server).saturating_add(self.both.unwrap_or(0))
    }
}

impl Merge for Closing {
    /// The sums.
    fn merge(rounds: &[&Self]) -> Option<Self> {
        let total = |count: fn(&Self) -> u64| sum(rounds.iter().map(|closing| count(closing)));
        // Where it is not known of every trial, what is known of some is not told apart either.
        let crossed: Option<Vec<u64>> = rounds.iter().map(|closing| closing.both).collect();
        let both = crossed.map(|counts| sum(counts.into_iter()));
        let unknown = if both.is_some() { 0 } else { sum(rounds.iter().filter_map(|c| c.both)) };
        (!rounds.is_empty()).then(|| Self {
            by_client: total(|closing| closing.by_client).saturating_add(unknown),
            by_server: total(|closing| closing.by_server),
            while_idle: total(|closing| closing.while_idle),
            ignored: total(|closing| closing.ignored),
            open_at_end: total(|closing| closing.open_at_end),
            both,
        })
    }
}

/// How messages were sent and answered. Of several rounds, the first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MessageWay {
    /// `one-way`, `request-response` or `write-write-read`.
    pub pattern: String,
    /// Size of a message, bytes.
    pub bytes: u64,
    /// Size of the answer, bytes; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_bytes: Option<u64>,
    /// Sizes of the writes that make up a message, bytes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<u64>,
    /// How messages were put together: `none`, `cork`, `more`, `gather`, `buffer`.
    pub coalesce: String,
    /// Size of a block of messages that were put together, bytes; absent where each was sent alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coalesce_bytes: Option<u64>,
    /// Whether the receiver set `TCP_QUICKACK` before each read.
    pub quick_ack: bool,
    /// The program at both ends: `native`, `java`.
    pub program: String,
    /// Encoding of a message, where the program has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
    /// Bytes of an encoded message, the mean of all; absent: its size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoded_bytes: Option<f64>,
    /// Version of the program, if it is not tcptoll: `17.0.15+6`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program_version: Option<String>,
    /// CPU time that the sender worked on each message, µs.
    pub work_us: f64,
    /// CPU time that the receiver worked on each message, µs.
    pub receiver_work_us: f64,
    /// How the server's kernel acknowledged the client's segments; absent where nothing watched the
    /// link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acks: Option<Acks>,
}

/// Segments with data that reached the server, by how they were acknowledged on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Acks {
    /// By an ACK without data, within 1 ms.
    pub quick: u64,
    /// By an ACK without data, later than that: a delayed ACK.
    pub delayed: u64,
    /// By a segment with data: the answer.
    pub with_answer: u64,
}

impl Merge for MessageWay {
    fn merge(rounds: &[&Self]) -> Option<Self> {
        rounds.first().map(|first| (*first).clone())
    }
}

/// The cost of connect(2) over the local ports in use, and what the host's CPU did meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PortUse {
    /// Local ports in use to the destination when the measurement began, held on purpose.
    pub held_ports: u64,
    /// The cost over the number of ports in use, ascending.
    pub curve: Vec<PortPoint>,
    /// Ports in use beyond which the kernel searches long, from the range and the number of source
    /// addresses; absent where its rule does not apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cliff_expected: Option<f64>,
    /// After how many seconds the load was expected to use up the ports, from its rate; absent in a
    /// closed loop, and where a port is free again before the last one is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasts_expected_s: Option<f64>,
    /// The step in the cost that was found; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cliff: Option<Cliff>,
    /// Sockets in TIME-WAIT on the client host at the end.
    pub client_time_wait: u64,
    /// Sockets in TIME-WAIT on the server host at the end.
    pub server_time_wait: u64,
    /// Connections that ended TIME-WAIT early because `net.ipv4.tcp_max_tw_buckets` was reached
    /// (`TcpExtTCPTimeWaitOverflow`), on the client host.
    pub time_wait_overflows: u64,
    /// Ports that were taken over from TIME-WAIT (`TcpExtTWRecycled`), on the client host.
    pub time_wait_reused: u64,
    /// Share of the time in which the client host's CPU was idle, over time; absent where the host
    /// had no CPU of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_share: Option<Series>,
    /// Workers that were in the middle of an operation, over time: the load average of this load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_workers: Option<Series>,
    /// Operations per second that succeeded, over time.
    #[serde(default)]
    pub rate_per_s: Series,
    /// Operations per second that failed for want of a local port, over time.
    #[serde(default)]
    pub failed_per_s: Series,
    /// Ports in use to the destination over time.
    #[serde(default)]
    pub ports_in_use: Series,
}

/// What connecting cost at one number of ports in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PortPoint {
    /// Local ports in use, the mean over this point's connections.
    pub ports: f64,
    /// Connections behind it.
    pub connections: u64,
    /// CPU time of connect(2), mean, µs.
    pub connect_cpu_us: f64,
    /// From connect(2) to established, mean, µs.
    pub connect_us: f64,
    /// Calls that failed for want of a local port.
    pub failed: u64,
}

/// A step in the cost of connect(2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cliff {
    /// Ports in use at the step.
    pub at_ports: f64,
    /// CPU time of connect(2) below it, µs: the median of the curve's points.
    pub below_us: f64,
    /// The same above it.
    pub above_us: f64,
}

impl Cliff {
    /// How many times the cost rises.
    pub fn factor(&self) -> f64 {
        self.above_us / self.below_us
    }
}

impl Merge for PortUse {
    /// The curve and the series of the first round, and the mean of the steps found.
    fn merge(rounds: &[&Self]) -> Option<Self> {
        let first = *rounds.first()?;
        let mean = |value: fn(&Self) -> u64| {
            let all: f64 = rounds.iter().map(|round| value(round) as f64).sum();
            (all / rounds.len() as f64).round() as u64
        };
        Some(Self {
            cliff: merged(rounds, |round| round.cliff.as_ref()),
            client_time_wait: mean(|round| round.client_time_wait),
            server_time_wait: mean(|round| round.server_time_wait),
            time_wait_overflows: mean(|round| round.time_wait_overflows),
            time_wait_reused: mean(|round| round.time_wait_reused),
            ..first.clone()
        })
    }
}

impl Merge for Cliff {
    fn merge(rounds: &[&Self]) -> Option<Self> {
        let mean = |value: fn(&Self) -> f64| {
            rounds.iter().map(|round| value(round)).sum::<f64>() / rounds.len() as f64
        };
        (!rounds.is_empty()).then(|| Self {
            at_ports: mean(|round| round.at_ports),
            below_us: mean(|round| round.below_us),
            above_us: mean(|round| round.above_us),
        })
    }
}
