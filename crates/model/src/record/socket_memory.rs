//! The kernel memory of a number of open connections.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::transfer::SocketEnd;
use crate::merge::Merge;

/// Kernel memory of open connections, idle and filled. Of several rounds, means.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConnectionMemory {
    /// Connections that were open.
    pub connections: u64,
    /// The client's sockets.
    pub client: SocketEnd,
    /// The server's sockets.
    pub server: SocketEnd,
    /// Open, without data.
    pub idle: MemoryState,
    /// The client has written until its send buffer was full; the server has read nothing.
    pub filled: MemoryState,
    /// Structures of one socket, bytes: socket, inode, file, directory entry (`/proc/slabinfo`); absent
    /// where this user may not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structures_bytes: Option<f64>,
    /// The machine's limit of TCP memory, bytes (the last value of `net.ipv4.tcp_mem`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_limit_bytes: Option<f64>,
    /// Whether the kernel came under memory pressure (`TcpExtTCPMemoryPressures`).
    #[serde(default)]
    pub pressure: bool,
}

/// Memory in one state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryState {
    /// Buffers of all client sockets, bytes: queued data with its overhead and reserves (`skmem`).
    pub client_buffers_bytes: f64,
    /// Buffers of all server sockets, bytes.
    pub server_buffers_bytes: f64,
    /// Payload in flight and in buffers, bytes.
    pub payload_bytes: f64,
    /// Growth of the whole machine's TCP memory since before the connections, bytes (`sockstat`, TCP
    /// `mem`): the witness.
    pub machine_tcp_bytes: f64,
    /// Growth of the whole machine's slabs since then, bytes (`/proc/meminfo`, `Slab`).
    pub machine_slab_bytes: f64,
}

fn mean<T>(rounds: &[&T], of: impl Fn(&T) -> f64) -> f64 {
    rounds.iter().map(|round| of(round)).sum::<f64>() / rounds.len().max(1) as f64
}

impl Merge for ConnectionMemory {
    fn merge(rounds: &[&Self]) -> Option<Self> {
        let first = *rounds.first()?;
        Some(Self {
            idle: MemoryState::merge(&crate::merge::of(rounds, |round| &round.idle))?,
            filled: MemoryState::merge(&crate::merge::of(rounds, |round| &round.filled))?,
            pressure: rounds.iter().any(|round| round.pressure),
            ..first.clone()
        })
    }
}

impl Merge for MemoryState {
    fn merge(rounds: &[&Self]) -> Option<Self> {
        (!rounds.is_empty()).then(|| Self {
            client_buffers_bytes: mean(rounds, |state| state.client_buffers_bytes),
            server_buffers_bytes: mean(rounds, |state| state.server_buffers_bytes),
            payload_bytes: mean(rounds, |state| state.payload_bytes),
            machine_tcp_bytes: mean(rounds, |state| state.machine_tcp_bytes),
            machine_slab_bytes: mean(rounds, |state| state.machine_slab_bytes),
        })
    }
}
