//! Short connections by blocking workers: the load, its server, and local ports held on purpose.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use tcptoll_core::stats::Histogram;

use super::{Service, order};

/// Most workers of a [`ShortLoad`], each a thread.
pub const WORKERS_MAX: u64 = 1_000;

/// Most points of a curve, and most moments of a report.
pub const POINTS_MAX: usize = 400;

/// The server: answers each byte with one byte, until it is stopped.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Echo {
    /// Where it listens.
    pub at: SocketAddr,
    /// Argument of `listen(2)`.
    pub backlog: i32,
    /// Whether it closes a connection after its first answer.
    pub closes: bool,
}

order!(Echo => EchoReport, "echo");

impl Service for Echo {
    /// Where it listens.
    type Started = SocketAddr;
}

/// What came of [`Echo`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EchoReport {
    /// Connections that were accepted.
    pub accepted: u64,
    /// Bytes that were answered.
    pub answered: u64,
    /// Calls that failed, by kind.
    pub errors: BTreeMap<String, u64>,
    /// CPU time of its thread, µs: user, system.
    pub cpu_us: (u64, u64),
}

/// End of a connection that closes it first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CloseFirst {
    /// The client, after the answer.
    Client,
    /// The server, after its answer; the client waits for it.
    Server,
    /// Neither: each worker keeps its connection.
    Never,
}

/// Local ports to hold in TIME-WAIT before a load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HoldPorts {
    /// Destination of the connections.
    pub target: SocketAddr,
    /// Source addresses; without one, the kernel chooses.
    pub sources: Vec<IpAddr>,
    /// The lowest and the highest of the local ports.
    pub range: (u16, u16),
    /// Whether the kernel chooses a port at `connect(2)`; otherwise `bind(2)` gets it, if there are
    /// source addresses.
    pub late_port: bool,
    /// Pairs of port and source to hold.
    pub count: u64,
    /// Which end closes first; the client if neither does.
    pub close: CloseFirst,
    /// Sockets that are to be in TIME-WAIT afterwards.
    pub expected: u64,
    /// Time limit of each call, ns.
    pub timeout_ns: u64,
}

order!(HoldPorts => PortsHeld, "hold-ports");

/// What came of [`HoldPorts`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PortsHeld {
    /// Connections that were opened and closed.
    pub closed: u64,
    /// Connections that failed, by class.
    pub errors: BTreeMap<String, u64>,
    /// Sockets in TIME-WAIT afterwards, of this host's connections to the target, counted by
    /// `sock_diag`.
    pub time_wait: u64,
    /// From the first connection to the last, ns.
    pub took_ns: u64,
    /// Whether the kernel chose the ports: before Linux 6.3 they cannot be chosen one by one.
    pub kernel_chose: bool,
}

/// A load of short connections by workers that block.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShortLoad {
    /// Destination.
    pub target: SocketAddr,
    /// Workers, 1 to [`WORKERS_MAX`].
    pub workers: u64,
    /// Operations in all, at most.
    pub count: Option<u64>,
    /// No operation is due after this, ns.
    pub duration_ns: Option<u64>,
    /// Operations due per second, all workers together; absent: closed loop.
    pub rate_per_s: Option<f64>,
    /// Source addresses, which take turns; without one, the kernel chooses and `bind(2)` is not
    /// called.
    pub sources: Vec<IpAddr>,
    /// Whether the kernel chooses the port at `connect(2)` although a source address is bound.
    pub late_port: bool,
    /// Which end closes first.
    pub close: CloseFirst,
    /// CPU time that a worker works for each operation, before it connects, ns.
    pub work_ns: u64,
    /// Time limit of `connect(2)`, and of each send and receive, ns.
    pub timeout_ns: u64,
    /// Local ports that can be in use, all source addresses together: the length of the curve.
    pub ports_max: u64,
}

order!(ShortLoad => ShortReport, "short-connections");

/// What came of a [`ShortLoad`]. Distributions come before it: `establish`, `connect_cpu`, `latency`,
/// `lateness`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShortReport {
    /// Operations that were due: those that began, and those that no worker began in time.
    pub attempts: u64,
    /// Operations that succeeded.
    pub ok: u64,
    /// Operations that failed, by class; `unsent`: no worker was free in time.
    pub errors: BTreeMap<String, u64>,
    /// The first error of each class, in the kernel's words.
    pub first_errors: BTreeMap<String, String>,
    /// Connections that were established.
    pub connections: u64,
    /// CPU time of `bind(2)` and `connect(2)`, calls that failed included, ns.
    pub connect_cpu_ns: u64,
    /// Such calls.
    pub connects: u64,
    /// CPU time of all workers, µs: user, system.
    pub cpu_us: (u64, u64),
    /// Cost over ports in use, ascending.
    pub curve: Vec<CurvePoint>,
    /// What was seen over time.
    pub moments: Vec<Moment>,
    /// Time in operations, all workers together, ns.
    pub busy_ns: u64,
    /// From the beginning to the end of the last operation, ns.
    pub elapsed_ns: u64,
    /// `TCP_INFO` of the last connection that the first worker established.
    pub tcp_info: Vec<u8>,
    /// Congestion control of that connection.
    pub congestion: String,
    /// Whether it was stopped before its end.
    pub partial: bool,
}

/// Sums over the connections that began at about the same number of ports in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Connections that were established.
    #[serde(rename = "n")]
    pub connections: u64,
    /// Ports in use when each began.
    #[serde(rename = "p")]
    pub ports: u64,
    /// CPU time of `bind(2)` and `connect(2)`, ns.
    #[serde(rename = "c")]
    pub cpu_ns: u64,
    /// From `connect(2)` to established, ns.
    #[serde(rename = "t")]
    pub connect_ns: u64,
    /// Calls that failed for want of a local port.
    #[serde(rename = "f")]
    pub failed: u64,
    /// Ports in use when each of these began.
    #[serde(rename = "g")]
    pub failed_ports: u64,
}

/// What happened in one interval of time, 250 ms or a power of two of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// Its length, ns; the last one is shorter.
    #[serde(rename = "t")]
    pub ns: u64,
    /// Operations that succeeded.
    #[serde(rename = "o")]
    pub ok: u64,
    /// Operations that failed for want of a local port.
    #[serde(rename = "p")]
    pub no_port: u64,
    /// Looks at workers and ports.
    #[serde(rename = "n")]
    pub looks: u64,
    /// Workers in an operation, the sum over the looks.
    #[serde(rename = "w")]
    pub workers: u64,
    /// The fewest and the most of them.
    #[serde(rename = "r")]
    pub workers_range: (u64, u64),
    /// Ports in use, the sum over the looks.
    #[serde(rename = "u")]
    pub ports: u64,
    /// The fewest and the most of them.
    #[serde(rename = "q")]
    pub ports_range: (u64, u64),
    /// Time that the CPU was idle, and all of its time, ticks; zeros without a CPU of its own.
    #[serde(rename = "c")]
    pub cpu: (u64, u64),
}

/// The distributions of a [`ShortLoad`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShortHistograms {
    /// From `connect(2)` to established.
    pub connect: Histogram,
    /// CPU time of `bind(2)` and `connect(2)` that succeeded.
    pub connect_cpu: Histogram,
    /// Operations that succeeded, from when they were due (open loop) or began.
    pub latency: Histogram,
    /// From when an operation was due to when a worker began it; open loop only.
    pub lateness: Histogram,
}

impl ShortHistograms {
    /// Each with its name, without unit.
    pub fn named(self) -> [(&'static str, Histogram); 4] {
        let Self { connect, connect_cpu, latency, lateness } = self;
        [
            ("establish", connect),
            ("connect_cpu", connect_cpu),
            ("latency", latency),
            ("lateness", lateness),
        ]
    }
}
