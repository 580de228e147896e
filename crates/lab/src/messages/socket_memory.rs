//! Connections that are held open, idle and then filled, and the memory that the kernel has for them.
//!
//! A host carries out one order at a time, so each step is an order of its own, and the connections
//! stay in the host between two of them. The parent connects in batches that fit the accept queue:
//! [`HoldConnect`] to one host, [`HoldAccept`] to the other, and again.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::order;
use super::transfer::{SocketSettings, SocketsGot};

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
