//! Bulk data over one or more connections: one host listens, the other connects, either may send.
//!
//! Exchanges over one connection: a request, in one write or several, then the answer.
//!
//! Connections that are held open, idle and then filled, and the memory that the kernel has for them.
//!
//! A host carries out one order at a time, so each step is an order of its own, and the connections
//! stay in the host between two of them. The parent connects in batches that fit the accept queue:
//! [`HoldConnect`] to one host, [`HoldAccept`] to the other, and again.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use tcptoll_core::record::Sender;
use tcptoll_core::stats::{Histogram, Series};

use super::{Service, order};

/// Options of a socket, set before the handshake. Absent: what the kernel chooses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SocketSettings {
    /// `SO_SNDBUF`, bytes as asked for.
    pub send_buffer: Option<u32>,
    /// `SO_RCVBUF`, bytes as asked for.
    pub receive_buffer: Option<u32>,
    /// Sets `TCP_NODELAY`: turns Nagle's algorithm off.
    pub no_delay: bool,
    /// Sets `TCP_QUICKACK` before each read.
    pub quick_ack: bool,
    /// `TCP_CONGESTION`.
    pub congestion: Option<String>,
}

/// What a socket has after its handshake.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SocketsGot {
    /// `SO_SNDBUF` as `getsockopt` reports it, bytes: of the first connection.
    pub send_buffer: u64,
    /// `SO_RCVBUF`, bytes.
    pub receive_buffer: u64,
    /// Congestion control in use.
    pub congestion: String,
}

/// How messages are put together before they are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Coalesce {
    /// A `send(2)` for each message.
    #[default]
    None,
    /// `TCP_CORK` is set, and cleared for a moment after each block.
    Cork,
    /// `MSG_MORE` on each but the last of a block.
    More,
    /// One `sendmsg(2)` for all messages of a block.
    Gather,
    /// Copied into a buffer of the program, which is sent as a block.
    Buffer,
}

/// What one end of each connection sends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sending {
    /// Size of a message, bytes; above 0.
    pub message_bytes: u32,
    /// How messages are put together.
    pub coalesce: Coalesce,
    /// Size of a block, bytes.
    pub coalesce_bytes: u32,
    /// Send with `sendfile(2)` from the page cache instead of copying.
    pub from_file: bool,
    /// Limit of all connections together, bytes/s.
    pub rate_bytes_per_s: Option<f64>,
    /// Bytes to send over each connection; absent: until the time is up.
    pub bytes: Option<u64>,
    /// CPU time the program works for each message, ns.
    pub work_ns: u64,
}

/// What one end of each connection receives.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Receiving {
    /// Discard with `MSG_TRUNC` instead of copying.
    pub discard: bool,
    /// Size of a message, bytes, to count them for `work_ns`; above 0.
    pub message_bytes: u32,
    /// CPU time the program works for each message, ns.
    pub work_ns: u64,
}

/// What one end of each connection does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Socket options.
    pub sockets: SocketSettings,
    /// What it sends; absent: nothing.
    pub send: Option<Sending>,
    /// What it receives; absent: nothing is expected.
    pub receive: Option<Receiving>,
    /// From the first byte to the window, ns.
    pub warmup_ns: u64,
    /// Length of the window, ns; absent with [`Sending::bytes`]: the window is the whole transfer.
    pub duration_ns: Option<u64>,
    /// The sender goes on for this long after its window, so that the receiver's window is full, ns.
    pub tail_ns: u64,
    /// After its last byte a sender waits at most this long for the receiver, ns.
    pub drain_ns: u64,
}

/// The end that listens: ends when all connections have ended, or when it is stopped.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TransferServer {
    /// Where to listen; port 0 lets the kernel choose.
    pub at: SocketAddr,
    /// What it does with each connection.
    pub flow: Flow,
}

order!(TransferServer => TransferReport, "serve-transfer");

impl Service for TransferServer {
    /// Where it listens.
    type Started = SocketAddr;
}

/// The end that connects.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Transfer {
    /// To whom.
    pub target: SocketAddr,
    /// Concurrent connections.
    pub connections: u32,
    /// Source addresses, taken in turn.
    pub bind: Vec<IpAddr>,
    /// Time limit of each handshake, ns.
    pub connect_timeout_ns: u64,
    /// What it does with each connection.
    pub flow: Flow,
}

order!(Transfer => TransferReport, "transfer");

/// What one end of all connections did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TransferReport {
    /// Connections begun or accepted.
    pub attempts: u64,
    /// Connections that carried their data to the end.
    pub ok: u64,
    /// Connections that failed, by class.
    pub errors: BTreeMap<String, u64>,
    /// The first error of each class, in the kernel's words.
    pub first_errors: BTreeMap<String, String>,
    /// Options of its sockets.
    pub sockets: SocketsGot,
    /// What it sent.
    pub sent: Carried,
    /// What it received.
    pub received: Carried,
    /// From the first byte received to steady goodput, ns; absent: not looked for, or not reached.
    pub startup_ns: Option<u64>,
    /// Bytes received in the window by connection, in ascending order: least and greatest.
    pub least_and_greatest: Option<[u64; 2]>,
    /// CPU time of the loop's thread in the window, µs: user, system. The sender's window if it only
    /// sends, else the receiver's.
    pub window_cpu_us: (u64, u64),
    /// Length of that window, ns.
    pub cpu_window_ns: u64,
    /// CPU time of the loop's thread from start to end, µs: user, system.
    pub cpu_us: (u64, u64),
    /// The first connection that it sent over, in its window.
    pub sender: Sender,
    /// `TCP_INFO` bytes of the first connection at its end.
    pub tcp_info: Vec<u8>,
    /// Sum over all connections of `tcpi_bytes_sent` and `tcpi_bytes_retrans` at their ends; absent on
    /// kernels before 4.19.
    pub at_ends: Option<TcpAtEdges>,
    /// Over time since the first byte, at most 100 points each: `goodput_bytes_per_s` where it
    /// receives; `rtt_us`, `congestion_window_bytes`, `in_flight_bytes` of the first connection where
    /// it sends.
    pub series: BTreeMap<String, Series>,
    /// From the first connection to the end of the last, ns.
    pub elapsed_ns: u64,
    /// Whether it was stopped before its end.
    pub partial: bool,
}

/// Bytes of one direction, at one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Carried {
    /// From start to end.
    pub bytes: u64,
    /// Whole messages; of a receiver computed from the bytes.
    pub messages: u64,
    /// System calls that carried bytes, and those that found no room or no data.
    pub calls: u64,
    /// Bytes in the window.
    pub window_bytes: u64,
    /// Messages in the window.
    pub window_messages: u64,
    /// System calls in the window.
    pub window_calls: u64,
    /// Length of the window, from one read of the clock to another, ns.
    pub window_ns: u64,
}

/// What the kernels' `TCP_INFO` counted over whole connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpAtEdges {
    /// Payload sent, repeats included.
    pub bytes_sent: u64,
    /// Of it, retransmitted.
    pub bytes_retransmitted: u64,
}

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

/// Listen for connections that will be held.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HoldListen {
    /// Where to listen; port 0 lets the kernel choose.
    pub at: SocketAddr,
    /// Socket options of the listener, which its connections inherit.
    pub sockets: SocketSettings,
    /// All connections that will be held.
    pub all: u64,
}

order!(HoldListen => HoldListening, "hold-listen");

/// A listener of [`HoldListen`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldListening {
    /// Where it listens.
    pub at: SocketAddr,
    /// Limit of its accept queue.
    pub queue: u32,
}

/// Open connections and hold them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HoldConnect {
    /// To whom.
    pub target: SocketAddr,
    /// How many, all concurrently.
    pub connections: u32,
    /// Those before this batch, so that source addresses are taken in turn.
    pub before: u64,
    /// All connections that will be held.
    pub all: u64,
    /// Source addresses, taken in turn.
    pub bind: Vec<IpAddr>,
    /// Socket options.
    pub sockets: SocketSettings,
    /// Time limit of the handshakes, ns.
    pub timeout_ns: u64,
}

order!(HoldConnect => Held, "hold-connect");

/// Accept connections and hold them.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct HoldAccept {
    /// How many.
    pub connections: u32,
    /// It waits for them at most this long, ns.
    pub timeout_ns: u64,
}

order!(HoldAccept => Held, "hold-accept");

/// Connections of one order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// That are held now.
    pub held: u64,
    /// That failed, by class.
    pub errors: BTreeMap<String, u64>,
}

/// Report the options of a connection that is held; without any, those of nothing.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct HoldLook;

order!(HoldLook => SocketsGot, "hold-look");

/// Write into each connection until none takes more. Nobody reads.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct HoldFill {
    /// The port that they are connected to.
    pub port: u16,
    /// They are full when next to nothing has been taken and acknowledged for this long, ns.
    pub quiet_ns: u64,
    /// Next to nothing is at most this much, bytes: less than the link carries in that time.
    pub moved_bytes: u64,
    /// It gives up after this, ns.
    pub limit_ns: u64,
}

order!(HoldFill => Filled, "hold-fill");

/// What came of a [`HoldFill`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filled {
    /// Payload that the connections took, all together.
    pub bytes: u64,
    /// Whether they are full: next to nothing had moved for the time asked.
    pub full: bool,
    /// Connections that failed meanwhile, by class.
    pub errors: BTreeMap<String, u64>,
}

/// Reset every connection that is held, and stop listening. The answer is their number.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct HoldEnd;

order!(HoldEnd => u64, "hold-end");

/// Report the memory that the kernel has for the connections of this host, and for the whole machine.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ReadMemory {
    /// The port at which the server listens: both ends may be in one namespace.
    pub port: u16,
    /// The sockets are of IPv6.
    pub ipv6: bool,
    /// Of those that have connected to it, and so have a local port of their own each; otherwise of
    /// those that were accepted there.
    pub connected: bool,
}

order!(ReadMemory => MemoryPicture, "read-memory");

/// Memory at one moment, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryPicture {
    /// Established sockets.
    pub sockets: u64,
    /// Data that was received and not read, with its overhead, all sockets together.
    pub received: u64,
    /// Data that was written and not acknowledged, with its overhead.
    pub queued: u64,
    /// Memory charged to the sockets and not in use, options and filters included.
    pub reserved: u64,
    /// Sum of the receive buffers' limits.
    pub receive_limit: u64,
    /// Sum of the send buffers' limits.
    pub send_limit: u64,
    /// Structures of one socket; absent where this user may not read it.
    pub structures: Option<f64>,
    /// TCP memory of the whole machine (`sockstat`).
    pub machine_tcp: u64,
    /// Slabs of the whole machine (`/proc/meminfo`).
    pub machine_slab: u64,
}
