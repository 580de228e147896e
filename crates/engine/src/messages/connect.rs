//! Connections to open, and the in-house server that greets them.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use tcptoll_model::record::Series;
use tcptoll_model::stats::Histogram;

use super::{Service, order};

/// The in-house server: greets with one byte, and closes when the client has closed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Greet {
    /// Where to listen; port 0 lets the kernel choose.
    pub at: SocketAddr,
    /// The argument of `listen(2)`.
    pub backlog: i32,
    /// Time the server works before each `accept(2)`, ns.
    pub accept_delay_ns: u64,
    /// Greet with one byte.
    pub speak: bool,
    /// Accept data with the SYN.
    pub fast_open: bool,
    /// Most accepts to remember for the timeline.
    pub trace_limit: usize,
}

order!(Greet => GreetReport, "greet");

impl Service for Greet {
    /// Where it listens.
    type Started = SocketAddr;
}

/// What came of a [`Greet`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct GreetReport {
    /// Connections accepted.
    pub accepted: u64,
    /// `accept(2)` failures, by errno name.
    pub errors: BTreeMap<String, u64>,
    /// CPU time of the server's thread, µs: user, system.
    pub cpu_us: (u64, u64),
}

/// Connections to open.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConnectLoad {
    /// To whom.
    pub target: SocketAddr,
    /// How many in all.
    pub count: u64,
    /// How many at once, at most.
    pub concurrency: u64,
    /// Connections begun per second; absent: closed loop.
    pub rate_per_s: Option<f64>,
    /// No operation begins after this long, ns; absent: `count` alone ends the load.
    pub duration_ns: Option<u64>,
    /// Pause after so many.
    pub pause_every: Option<u64>,
    /// Length of the pause, ns.
    pub pause_ns: u64,
    /// The first `concurrency` connections are begun evenly over this time, ns.
    pub ramp_ns: u64,
    /// From start to end of one operation, ns.
    pub timeout_ns: u64,
    /// Source addresses, taken in turn.
    pub bind: Vec<IpAddr>,
    /// Send the request with the SYN.
    pub fast_open: bool,
    /// Congestion control.
    pub congestion: Option<String>,
    /// Bytes to send once connected.
    pub send: Vec<u8>,
    /// Wait for the server's first byte before closing.
    pub first_byte: bool,
    /// Times at which the kernel sends a SYN again, ns after the first.
    pub ladder_ns: Vec<u64>,
    /// A handshake stands on a rung if it took at most this longer, ns.
    pub ladder_slack_ns: u64,
    /// Most operations to remember for the timeline.
    pub trace_limit: usize,
}

order!(ConnectLoad => ConnectReport, "open-connections");

/// What came of a [`ConnectLoad`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ConnectReport {
    /// Operations begun.
    pub attempts: u64,
    /// Operations that succeeded.
    pub ok: u64,
    /// Operations that failed, by class.
    pub errors: BTreeMap<String, u64>,
    /// The first error of each class, in the kernel's words.
    pub first_errors: BTreeMap<String, String>,
    /// Handshakes that were completed, as the client saw it.
    pub established: u64,
    /// From when it was due to established, of operations that succeeded.
    pub connect: Histogram,
    /// The same of operations that failed after their handshake.
    pub connect_of_failed: Histogram,
    /// From when it was due to the first byte.
    pub first_byte: Histogram,
    /// From when it was due to begun.
    pub lateness: Histogram,
    /// Completed handshakes by rung of the retry ladder they stand on, of operations that failed
    /// afterwards too.
    pub rungs: Vec<u64>,
    /// Connect latency of operations that succeeded over time, µs.
    pub series: Series,
    /// CPU time of the client's thread, µs: user, system.
    pub cpu_us: (u64, u64),
    /// From the first operation to the end of the last, ns.
    pub elapsed_ns: u64,
    /// Of that, pauses asked for, ns.
    pub paused_ns: u64,
    /// Closed loop: from when the last of the first `concurrency` operations began to when the
    /// last of all did, without pauses, ns: the time in which all slots were to be filled.
    pub full_ns: u64,
    /// Time that operations, successful or not, took within that, each from before `socket(2)` to
    /// after `close(2)`, added up, ns: divided by `full_ns` the mean number at once.
    pub busy_ns: u64,
    /// Length of the steady part without pauses, ns: closed loop `full_ns`, open loop the planned
    /// time; 0: there was none.
    pub steady_ns: u64,
    /// Operations that succeeded within it.
    pub steady_ok: u64,
    /// Open loop: operations in progress at its end.
    pub unfinished: u64,
    /// `TCP_INFO` of a connection near the end.
    pub tcp_info: Vec<u8>,
    /// Congestion control in use.
    pub congestion: String,
    /// Whether it was stopped before its end.
    pub partial: bool,
}
