//! Orders to the link: the emulator, or the packet taps of a direct link.
//!
//! Also those to two hosts of the user's (the round trip of the path between them, and what their clocks are
//! apart), and the traffic that certifies a link.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use tcptoll_core::link::clocks::Exchange;
use tcptoll_core::record::Route;
use tcptoll_core::stats::Histogram;
use tcptoll_core::tcp::wire::{AckDelays, Span, Wire};

use super::{Began, Service, order};

/// Begin to count packets, or (on a direct link) open taps first.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Watch {
    /// On a direct link or loopback: open packet taps. The emulated link sees everything anyway.
    pub tap: bool,
    /// Most handshakes to trace.
    pub trace_limit: usize,
    /// Write pcapng here.
    pub pcap: Option<String>,
    /// Ports of the server host whose connections idle: packets of these are counted apart.
    pub quiet_ports: Vec<u16>,
    /// Time the ACKs of the server's kernel; on a direct link or loopback only with a tap.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ack_delays: bool,
    /// Time spans of connections for [`TakeSpan`]; on a direct link or loopback only with a tap.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spans: bool,
}

order!(Watch => (), "watch");

/// Report the counts since [`Watch`], and write no more packets to a file.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Count;

order!(Count => Counted, "count");

/// Report the span of what was seen since [`Watch`] or the last [`TakeSpan`], and begin a new one.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct TakeSpan;

// None: nobody asked for spans, or nothing watched.
order!(TakeSpan => Option<Span>, "take-span");

/// Report the emulated link's counts so far.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Peek;

order!(Peek => Counted, "peek");

/// Subtract the time a wake-up takes from the entry time of packets that woke the link up; and draw
/// losses anew.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Calibrate {
    /// How long waking up takes, ns.
    pub early_ns: u64,
}

order!(Calibrate => (), "calibrate");

/// From now on lose packets of connections to these ports with this probability, each way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FaultPorts {
    /// Ports of the server host.
    pub ports: Vec<u16>,
    /// Probability: 1 cuts them off, 0 ends it.
    pub share: f64,
}

order!(FaultPorts => Began, "fault-ports");

/// What the link saw.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Counted {
    /// Packets by kind; absent if nothing watched.
    pub wire: Option<Wire>,
    /// How late packets were released, ns.
    pub lateness: Histogram,
    /// Packets lost in the lab's own queues.
    pub unwanted_drops: u64,
    /// CPU time of the link process, µs.
    pub cpu_us: u64,
    /// The longest time by which the emulator woke up later than it had asked to, ns.
    #[serde(default)]
    pub overslept_ns: u64,
    /// How long the server's kernel took to acknowledge data; absent if nobody asked, or nothing watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ack_delays: Option<AckDelays>,
    /// Why the capture file is not whole, if it is not.
    pub pcap_error: Option<String>,
}

/// Exchanges that fit one message.
pub const EXCHANGES_MAX: u16 = 500;

/// What a reflector answers to, and nobody else knows.
pub type Token = [u8; 16];

/// Answer datagrams with this token, never with more bytes than came.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Reflect {
    /// Address to bind to; the kernel chooses the port.
    pub at: IpAddr,
    /// Whose datagrams are answered. Absent: the first that has the token.
    pub peer: Option<IpAddr>,
    /// What they begin with.
    pub token: Token,
}

order!(Reflect => Reflected, "reflect");

impl Service for Reflect {
    /// Where datagrams are answered.
    type Started = SocketAddr;
}

/// What came to a reflector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reflected {
    /// Datagrams that were answered.
    pub answered: u64,
    /// Datagrams of others, or without the token.
    pub refused: u64,
}

/// Set the host's clock for this trial: from now on its instants are on the clock of the other host.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ShiftClock {
    /// Added to `CLOCK_MONOTONIC`, ns.
    pub ns: i64,
}

order!(ShiftClock => (), "shift-clock");

/// Tell the time.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Now;

// On the monotonic clock, ns.
order!(Now => u64, "now");

/// Ask the kernel how packets leave the host.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct AskRoute {
    /// Where they go.
    pub to: IpAddr,
    /// Address they come from. Absent: the kernel chooses.
    pub from: Option<IpAddr>,
}

// Absent: the kernel does not tell.
order!(AskRoute => Option<Route>, "ask-route");

/// Exchange stamps with a reflector.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct AskClock {
    /// The reflector.
    pub target: SocketAddr,
    /// Address to send from. Absent: the kernel chooses.
    pub from: Option<IpAddr>,
    /// The reflector's token.
    pub token: Token,
    /// How many, at most [`EXCHANGES_MAX`].
    pub count: u16,
    /// Time between two, ns.
    pub interval_ns: u64,
    /// An answer that takes longer than this, ns, is lost.
    pub limit_ns: u64,
}

// Those that came back, in this order.
order!(AskClock => Vec<Exchange>, "ask-clock");

/// Round trips that fit one message.
pub const PING_MAX: u16 = 4_000;

/// ICMP echo requests, evenly spread; several may be on their way at once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ping {
    /// To whom.
    pub target: IpAddr,
    /// How many, at most [`PING_MAX`].
    pub count: u16,
    /// Time between two requests, ns.
    pub interval_ns: u64,
    /// An answer that takes longer than this, ns, is lost.
    pub limit_ns: u64,
}

// Round trips, ns, in the order the echoes came back.
order!(Ping => Vec<u64>, "ping");

/// Receive datagrams.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Sink {
    /// Address to bind to; the kernel chooses the port.
    pub at: IpAddr,
}

order!(Sink => Arrivals, "sink");

impl Service for Sink {
    /// Where datagrams are received.
    type Started = SocketAddr;
}

/// Datagrams received.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Arrivals {
    /// How many.
    pub packets: u64,
    /// How many the socket had no room for, of this host in all.
    pub no_room: u64,
    /// How many of them arrived in `steady_ns`.
    pub steady_packets: u64,
    /// How many were sent between the first and the last of these, by their numbers: what the
    /// receiving socket had no room for has crossed the wire all the same.
    pub steady_span: u64,
    /// From the end of the first fifth to the last, ns: the steady state.
    pub steady_ns: u64,
}

/// A train of datagrams.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Train {
    /// To whom.
    pub target: SocketAddr,
    /// How many.
    pub packets: u64,
    /// Bytes of payload.
    pub payload: usize,
    /// Time between two, ns; 0: as fast as they go.
    pub interval_ns: u64,
    /// Hand several to the kernel at once, which cuts them behind the link's queue.
    pub together: bool,
}

// Datagrams sent.
order!(Train => u64, "train");
