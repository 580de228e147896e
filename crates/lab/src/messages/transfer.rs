//! Bulk data over one or more connections: one host listens, the other connects, either may send.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use tcptoll_core::record::Sender;
use tcptoll_core::stats::Series;

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
