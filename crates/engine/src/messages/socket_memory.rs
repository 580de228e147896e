//! Connections that are held open, idle and then filled, and the memory that the kernel has for them.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::transfer::{SocketSettings, SocketsGot};
use super::{Service, order};

/// Hold connections open, until it is stopped. A host that listens accepts; one with a target connects.
/// It reads nothing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpenSockets {
    /// Where to listen; port 0 lets the kernel choose. Absent: it connects.
    pub listen: Option<SocketAddr>,
    /// Where to connect; absent: it listens.
    pub target: Option<SocketAddr>,
    /// How many connections.
    pub connections: u32,
    /// Source addresses, taken in turn.
    pub bind: Vec<IpAddr>,
    /// Socket options.
    pub sockets: SocketSettings,
}

order!(OpenSockets => SocketsGot, "open-sockets");

impl Service for OpenSockets {
    /// Where it listens.
    type Started = SocketAddr;
}

/// Write into each of the host's open sockets until none takes more.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct FillSockets;

// Bytes that were taken, all sockets together.
order!(FillSockets => u64, "fill-sockets");

/// Report the memory that the kernel has for this host's sockets, and for the whole machine's.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ReadMemory;

order!(ReadMemory => MemoryPicture, "read-memory");

/// Memory at one moment, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryPicture {
    /// Established sockets of this host.
    pub sockets: u64,
    /// Their buffers, all together: queued data with its overhead, and reserves.
    pub buffers: u64,
    /// TCP memory of the whole machine (`sockstat`).
    pub machine_tcp: u64,
    /// Slabs of the whole machine (`/proc/meminfo`).
    pub machine_slab: u64,
    /// Structures of one socket; absent where this user may not read it.
    pub structures: Option<u64>,
}
