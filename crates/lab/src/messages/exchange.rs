//! Exchanges over one connection: a request, in one write or several, then the answer.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use tcptoll_core::stats::Histogram;

use super::transfer::{SocketSettings, SocketsGot};
use super::{Service, order};

/// The end that answers: reads a whole request, works, writes the whole answer; ends when it is stopped.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answers {
    /// Where to listen; port 0 lets the kernel choose.
    pub at: SocketAddr,
    /// Socket options.
    pub sockets: SocketSettings,
    /// Size of a request, all writes together, bytes; above 0.
    pub request_bytes: u32,
    /// Size of an answer, bytes; above 0.
    pub response_bytes: u32,
    /// CPU time it works for each request, ns.
    pub work_ns: u64,
}

order!(Answers => AnswersReport, "answer-requests");

impl Service for Answers {
    /// Where it listens.
    type Started = SocketAddr;
}

/// What came of [`Answers`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AnswersReport {
    /// Whole requests that were answered.
    pub answered: u64,
    /// System calls.
    pub calls: u64,
    /// Options of its socket.
    pub sockets: SocketsGot,
    /// CPU time of its thread from the first request to the last, µs: user, system.
    pub cpu_us: (u64, u64),
    /// That time, ns.
    pub elapsed_ns: u64,
}

/// Exchanges, one after another over one connection.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Exchange {
    /// To whom.
    pub target: SocketAddr,
    /// Socket options.
    pub sockets: SocketSettings,
    /// Sizes of the writes that make up a request, bytes; each above 0.
    pub writes: Vec<u32>,
    /// Size of an answer, bytes; above 0.
    pub response_bytes: u32,
    /// CPU time it works for each exchange, before the request, ns.
    pub work_ns: u64,
    /// Exchanges before the window, ns.
    pub warmup_ns: u64,
    /// And at least this many: the first are acknowledged without delay.
    pub warmup_exchanges: u64,
    /// Length of the window, ns.
    pub duration_ns: u64,
    /// Time limit of the handshake and of one exchange, ns.
    pub timeout_ns: u64,
}

order!(Exchange => ExchangeReport, "exchange");

/// What came of an [`Exchange`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExchangeReport {
    /// Exchanges begun in the window.
    pub attempts: u64,
    /// Exchanges completed.
    pub ok: u64,
    /// Exchanges that failed, by class.
    pub errors: BTreeMap<String, u64>,
    /// The first error of each class, in the kernel's words.
    pub first_errors: BTreeMap<String, String>,
    /// From before the first write to the last byte of the answer.
    pub latency: Histogram,
    /// The same of the warm-up.
    pub warmup_latency: Histogram,
    /// System calls in the window.
    pub calls: u64,
    /// Options of its socket.
    pub sockets: SocketsGot,
    /// CPU time of its thread in the window, µs: user, system.
    pub cpu_us: (u64, u64),
    /// Length of the window, ns.
    pub window_ns: u64,
    /// From the handshake to the end, ns.
    pub elapsed_ns: u64,
    /// `TCP_INFO` of the connection at its end.
    pub tcp_info: Vec<u8>,
    /// Whether it was stopped before its end.
    pub partial: bool,
}
