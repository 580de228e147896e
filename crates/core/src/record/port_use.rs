//! What a connection costs as the client's local ports run low.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::record::merge::{Merge, merged};
use crate::stats::Series;

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
