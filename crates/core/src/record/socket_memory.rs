//! The kernel memory of a number of open connections.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::transfer::Buffer;
use crate::record::merge::{Merge, merged};

/// Kernel memory of open connections, idle and filled. Of several rounds, means.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConnectionMemory {
    /// Connections that were open.
    pub connections: u64,
    /// The client's sockets.
    pub client: MemorySockets,
    /// The server's sockets.
    pub server: MemorySockets,
    /// Open, without data.
    pub idle: MemoryState,
    /// The client has written until no socket took more; the server has read nothing. Absent: the
    /// sockets still took data when the time was up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filled: Option<MemoryState>,
    /// The machine's limit of TCP memory, bytes (the last value of `net.ipv4.tcp_mem`); absent where
    /// it cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_limit_bytes: Option<u64>,
    /// From this much TCP memory on the kernel is under pressure, bytes (the second value).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_pressure_bytes: Option<u64>,
    /// Whether the kernel came under memory pressure (`TcpExtTCPMemoryPressures`), or was.
    #[serde(default)]
    pub pressure: bool,
}

/// The sockets of one host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemorySockets {
    /// `SO_SNDBUF` after the handshake.
    pub send_buffer: Buffer,
    /// `SO_RCVBUF` after the handshake.
    pub receive_buffer: Buffer,
    /// Congestion control in use.
    pub congestion: String,
    /// Structures of one socket, bytes: socket, inode, file, directory entry, local port; absent
    /// where this user may not read it (`/proc/slabinfo`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structures_bytes: Option<f64>,
}

/// Memory in one state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryState {
    /// The client's sockets.
    pub client: MemoryHeld,
    /// The server's sockets.
    pub server: MemoryHeld,
    /// Payload in flight and in buffers, bytes.
    pub payload_bytes: f64,
    /// Growth of the whole machine's TCP memory since before the connections, bytes (`sockstat`, TCP
    /// `mem`): the witness.
    pub machine_tcp_bytes: f64,
    /// Growth of the whole machine's slabs since then, bytes (`/proc/meminfo`, `Slab`).
    pub machine_slab_bytes: f64,
}

/// What all sockets of one host hold together (`skmem`), bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryHeld {
    /// Data that was received and not read, with its overhead.
    pub received_bytes: f64,
    /// Data that was written and not acknowledged, with its overhead.
    pub queued_bytes: f64,
    /// Charged to the sockets and not in use.
    pub reserved_bytes: f64,
    /// What received data may grow to: the sum of the receive buffers as they are now.
    pub receive_limit_bytes: f64,
    /// What written data may grow to: the sum of the send buffers as they are now.
    pub send_limit_bytes: f64,
}

impl MemoryHeld {
    /// The buffers: data with its overhead, and reserves.
    pub fn buffers_bytes(&self) -> f64 {
        self.received_bytes + self.queued_bytes + self.reserved_bytes
    }
}

impl MemoryState {
    /// The buffers of both hosts.
    pub fn buffers_bytes(&self) -> f64 {
        self.client.buffers_bytes() + self.server.buffers_bytes()
    }
}

impl ConnectionMemory {
    /// One connection's share of a sum; absent without connections.
    fn share(&self, bytes: f64) -> Option<f64> {
        (self.connections > 0).then(|| bytes / self.connections as f64)
    }

    /// Memory of one connection at its client: buffers and structures.
    ///
    /// None: the structures are not known, or there is no such state.
    pub fn at_client(&self, state: Option<&MemoryState>) -> Option<f64> {
        let buffers = self.share(state?.client.buffers_bytes())?;
        self.client.structures_bytes.map(|structures| buffers + structures)
    }

    /// Memory of one connection at its server, as [`Self::at_client`].
    pub fn at_server(&self, state: Option<&MemoryState>) -> Option<f64> {
        let buffers = self.share(state?.server.buffers_bytes())?;
        self.server.structures_bytes.map(|structures| buffers + structures)
    }

    /// Memory of all connections at both ends: buffers, and structures where they are known.
    pub fn in_total(&self, state: &MemoryState) -> f64 {
        let structures =
            [&self.client, &self.server].map(|end| end.structures_bytes.unwrap_or(0.0));
        state.buffers_bytes() + structures.iter().sum::<f64>() * self.connections as f64
    }

    /// Memory of one filled connection for each byte of its payload, buffers of both ends.
    pub fn overhead(&self) -> Option<f64> {
        let filled = self.filled.as_ref().filter(|filled| filled.payload_bytes > 0.0)?;
        Some(filled.buffers_bytes() / filled.payload_bytes)
    }
}

fn mean<T>(rounds: &[&T], value: impl Fn(&T) -> f64) -> f64 {
    rounds.iter().map(|round| value(round)).sum::<f64>() / rounds.len().max(1) as f64
}

impl Merge for ConnectionMemory {
    fn merge(rounds: &[&Self]) -> Option<Self> {
        let first = *rounds.first()?;
        Some(Self {
            connections: mean(rounds, |round| round.connections as f64).round() as u64,
            idle: MemoryState::merge(&crate::record::merge::parts(rounds, |round| &round.idle))?,
            filled: merged(rounds, |round| round.filled.as_ref()),
            pressure: rounds.iter().any(|round| round.pressure),
            ..first.clone()
        })
    }
}

impl Merge for MemoryState {
    fn merge(rounds: &[&Self]) -> Option<Self> {
        (!rounds.is_empty()).then(|| Self {
            client: MemoryHeld::mean(&crate::record::merge::parts(rounds, |state| &state.client)),
            server: MemoryHeld::mean(&crate::record::merge::parts(rounds, |state| &state.server)),
            payload_bytes: mean(rounds, |state| state.payload_bytes),
            machine_tcp_bytes: mean(rounds, |state| state.machine_tcp_bytes),
            machine_slab_bytes: mean(rounds, |state| state.machine_slab_bytes),
        })
    }
}

impl MemoryHeld {
    fn mean(rounds: &[&Self]) -> Self {
        Self {
            received_bytes: mean(rounds, |held| held.received_bytes),
            queued_bytes: mean(rounds, |held| held.queued_bytes),
            reserved_bytes: mean(rounds, |held| held.reserved_bytes),
            receive_limit_bytes: mean(rounds, |held| held.receive_limit_bytes),
            send_limit_bytes: mean(rounds, |held| held.send_limit_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(bytes: f64) -> MemoryState {
        let held =
            MemoryHeld { queued_bytes: bytes, reserved_bytes: 100.0, ..MemoryHeld::default() };
        MemoryState { client: held, payload_bytes: bytes / 2.0, ..MemoryState::default() }
    }

    #[test]
    fn a_connection_costs_its_share_of_the_buffers_and_its_structures() {
        let mut memory = ConnectionMemory {
            connections: 10,
            idle: state(0.0),
            filled: Some(state(900.0)),
            ..ConnectionMemory::default()
        };
        assert_eq!(memory.at_client(memory.filled.as_ref()), None, "structures are not known");
        memory.client.structures_bytes = Some(4_000.0);
        assert_eq!(memory.at_client(Some(&memory.idle)), Some(4_010.0));
        assert_eq!(memory.at_client(memory.filled.as_ref()), Some(4_100.0));
        assert_eq!(Some(memory.in_total(&memory.idle)), Some(40_100.0));
        assert_eq!(memory.overhead(), Some(1_000.0 / 450.0));
    }

    #[test]
    fn rounds_become_their_mean_and_one_without_a_filled_state_is_left_out_of_it() {
        let memory = |filled: Option<f64>, pressure| ConnectionMemory {
            connections: 4,
            filled: filled.map(state),
            pressure,
            ..ConnectionMemory::default()
        };
        let (one, two, three) =
            (memory(Some(100.0), false), memory(None, true), memory(Some(300.0), false));
        let whole = ConnectionMemory::merge(&[&one, &two, &three]).unwrap();
        assert_eq!(whole.filled.map(|state| state.client.queued_bytes), Some(200.0));
        assert!(whole.pressure);
    }
}
