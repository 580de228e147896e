//! Orders to the link: the emulator, or the packet taps of a direct link.

use serde::{Deserialize, Serialize};
use tcptoll_core::stats::Histogram;
use tcptoll_core::tcp::wire::{AckDelays, Span, Wire};

use super::{Began, order};

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
