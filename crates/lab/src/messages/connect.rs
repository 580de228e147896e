//! Connections to open, and the in-house server that greets them.
//!
//! And half-open requests at a listener: a peer that opens them and never sends the last ACK. Only the client
//! host of a lab carries out those orders.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use tcptoll_core::record::Outcome;
use tcptoll_core::stats::arrivals::Spread;
use tcptoll_core::stats::{Histogram, Series};

use super::{Service, is_default, order};

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
    /// Listeners besides the first, each on a port of its own and accepting without delay.
    #[serde(default, skip_serializing_if = "is_default")]
    pub further: u8,
}

order!(Greet => GreetReport, "greet");

impl Service for Greet {
    type Started = Listening;
}

/// Where the in-house server listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Listening {
    /// At one address.
    One(SocketAddr),
    /// At several, in the order in which they were made.
    Several(Vec<SocketAddr>),
}

impl Listening {
    /// Every address, the first first.
    pub fn all(self) -> Vec<SocketAddr> {
        match self {
            Self::One(at) => vec![at],
            Self::Several(all) => all,
        }
    }
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
    /// Times between two accept(2) of the first listener while connections waited: number, sum, ns.
    #[serde(default)]
    pub accept_intervals: (u64, u64),
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
    /// Time in which the server may close each connection after the client's FIN, ns. A server that closes
    /// has accepted, so the connection takes no place in its queue. 0: close without waiting.
    #[serde(default, skip_serializing_if = "is_default")]
    pub until_closed_ns: u64,
    /// Most operations to remember for the timeline.
    pub trace_limit: usize,
    /// Further servers: each gets one connection of the load whenever `further_every_ns` has passed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub further: Vec<SocketAddr>,
    /// Time between two connections to the same further server, ns; 0: all servers take turns.
    #[serde(default, skip_serializing_if = "is_default")]
    pub further_every_ns: u64,
    /// How connections of a rate are spread over time, and the seed of a random spread.
    #[serde(default, skip_serializing_if = "is_default")]
    pub spread: Spread,
    /// See `spread`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub seed: u64,
    /// Ask the kernel about each connection that was slow or failed, and close those that failed with a
    /// RST.
    #[serde(default, skip_serializing_if = "is_default")]
    pub evidence: bool,
    /// Whether to ask the client's kernel, once a handshake is complete, how long SYN and SYN-ACK took.
    #[serde(default, skip_serializing_if = "is_default")]
    pub split: bool,
    /// Times at which the server's kernel retransmits a SYN-ACK, ns after the first; for the evidence.
    #[serde(default, skip_serializing_if = "is_default")]
    pub syn_ack_ladder_ns: Vec<u64>,
}

impl ConnectLoad {
    /// Connections to an address, one after the other until each has its first byte; everything else
    /// is left out.
    pub fn to(target: SocketAddr, count: u64) -> Self {
        Self {
            target,
            count,
            concurrency: 1,
            rate_per_s: None,
            duration_ns: None,
            pause_every: None,
            pause_ns: 0,
            ramp_ns: 0,
            timeout_ns: 10_000_000_000,
            bind: Vec::new(),
            fast_open: false,
            congestion: None,
            send: Vec::new(),
            first_byte: true,
            ladder_ns: Vec::new(),
            ladder_slack_ns: 0,
            until_closed_ns: 0,
            trace_limit: 0,
            further: Vec::new(),
            further_every_ns: 0,
            spread: Spread::Constant,
            seed: 0,
            evidence: false,
            split: false,
            syn_ack_ladder_ns: Vec::new(),
        }
    }
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
    /// Connections that the server did not close in the time it had for that.
    #[serde(default, skip_serializing_if = "is_default")]
    pub unclosed: u64,
    /// `TCP_INFO` of a connection near the end.
    pub tcp_info: Vec<u8>,
    /// Congestion control in use.
    pub congestion: String,
    /// Whether it was stopped before its end.
    pub partial: bool,
    /// What the kernel knows of connections that were slow or failed, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened: Option<Opened>,
    /// The parts of the handshakes that a client sees by itself, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<Split>,
}

/// Where the time of a handshake goes, as the client's kernel tells it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Split {
    /// From SYN out to SYN-ACK in: `tcpi_rtt` of a connection that has sent nothing else.
    pub round_trip: Histogram,
    /// The rest of the time from `connect()` to established.
    pub rest: Histogram,
    /// Handshakes with a SYN retransmitted, or of which the kernel told nothing.
    pub unmatched: u64,
}

/// What the client's kernel knows of its connections.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Opened {
    /// Connections by outcome, `ok` or the class of the error, with the time from connect(2) to it.
    pub outcomes: BTreeMap<String, Outcome>,
    /// From when it was due to the error, of operations that failed.
    pub failure: Histogram,
    /// Handshakes that the client's kernel completed: it sent the last ACK of each.
    pub established: u64,
    /// SYNs that got no answer: retransmissions, and the last SYN of each connection that gave up.
    pub syns_unanswered: u64,
    /// Completed handshakes by the number of SYNs retransmitted, less one, that took the time of that step
    /// of the ladder.
    pub syn_steps: Vec<u64>,
    /// Completed handshakes that were slow and took another time.
    pub syn_off: u64,
    /// Connections that succeeded, by the number of SYN-ACKs retransmitted to them, less one, whose first
    /// byte came after that step of the ladder.
    pub syn_ack_steps: Vec<u64>,
    /// Those whose first byte came before it, or after more than the ladder has.
    pub syn_ack_off: u64,
    /// Connections that were reset although their first SYN was answered; absent where there were none.
    pub reset_at_once: Option<Outcome>,
    /// Connections that were slow or failed, and that the kernel told nothing about.
    pub unknown: u64,
}

/// Begin to keep half-open requests at the lab's server: SYNs from addresses that no host has. Each
/// source sends its SYN again and again, so that a request that timed out is opened anew.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct KeepHalfOpen {
    /// The listener, on the lab's server host.
    pub target: SocketAddr,
    /// Sources: requests to keep, if the server holds that many.
    pub number: u64,
    /// SYNs per second, at most.
    pub rate_per_s: f64,
    /// Each source sends its SYN again after this, ns.
    pub again_ns: u64,
}

// Each source has sent its first SYN.
order!(KeepHalfOpen => (), "keep-half-open");

/// Stop that.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct EndHalfOpen;

order!(EndHalfOpen => HalfOpenReport, "end-half-open");

/// What the peer of half-open requests did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HalfOpenReport {
    /// SYNs that the kernel took.
    pub syns: u64,
    /// SYNs that it did not take, because the device's queue was full.
    pub refused: u64,
    /// Source addresses.
    pub addresses: u64,
    /// From the first SYN to the end, ns.
    pub elapsed_ns: u64,
    /// Why it ended before it was told to, if it did.
    pub failed: Option<String>,
}
