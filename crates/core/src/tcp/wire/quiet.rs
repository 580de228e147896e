//! What goes over connections that idle, told apart by the server port they go to.
//!
//! An idle connection carries probes, Null messages, and what answers either. Connections that idle have a
//! port of their own, those that a fault hits another, and the one that writes a third. So the link drops,
//! and the wire counts, by port alone: nothing has to know which of 50,000 connections are faulted, and the
//! one that writes is not looked at packet by packet.
//!
//! Probes are counted on the wire, and not taken from the kernel: a segment without payload or with one byte
//! of it, one below the next sequence number. `TcpExtTCPKeepAlive` of both kernels is compared with that; the
//! two must be equal but for packets that a device dropped.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Recognised;
use crate::tcp::packet::Segment;

/// Packets of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Traffic {
    /// Wire packets.
    pub packets: u64,
    /// Their bytes from the IP header on.
    pub bytes: u64,
}

/// Counts of the connections to one port of the server host.
///
/// A list of these and not a map by port: the keys of a map of numbers cannot be read back inside a
/// line of the record, which is told apart by one of its fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Quiet {
    /// The port.
    pub port: u16,
    /// From the client host to the server host.
    pub client_to_server: QuietCounts,
    /// From the server host to the client host.
    pub server_to_client: QuietCounts,
}

/// Counts of one direction of connections that idle.
///
/// No packet is in two of `probes`, `probe_answers`, `heartbeats` and `acks`; what is in none of
/// them and in `all` opens, closes or resets a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuietCounts {
    /// Probes of the kernel, with or without a byte of garbage.
    pub probes: Traffic,
    /// Answers to probes of the other side.
    pub probe_answers: Traffic,
    /// Segments with payload that are no probe: Null messages and their answers, first and repeated.
    pub heartbeats: Traffic,
    /// Of these, segments that carry sequence numbers already sent.
    pub heartbeat_retransmissions: u64,
    /// ACK alone that is neither probe nor answer to one: of a Null, of a SYN-ACK, of a FIN.
    pub acks: Traffic,
    /// All packets.
    pub all: Traffic,
}

/// Those of `a` and of `b`, in ascending order of ports.
pub(super) fn together(a: &[Quiet], b: &[Quiet]) -> Vec<Quiet> {
    let mut sums = a.to_vec();
    for other in b {
        match sums.iter_mut().find(|sum| sum.port == other.port) {
            Some(sum) => *sum = sum.plus(other),
            None => sums.push(*other),
        }
    }
    sums.sort_by_key(|sum| sum.port);
    sums
}

impl Quiet {
    pub(super) fn since(&self, earlier: &Self) -> Self {
        self.with(earlier, u64::saturating_sub)
    }

    /// The counts of both, on the port of this one.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    /// Both directions together.
    pub fn both(&self) -> QuietCounts {
        self.client_to_server.with(&self.server_to_client, u64::saturating_add)
    }

    fn with(&self, other: &Self, combine: fn(u64, u64) -> u64) -> Self {
        Self {
            port: self.port,
            client_to_server: self.client_to_server.with(&other.client_to_server, combine),
            server_to_client: self.server_to_client.with(&other.server_to_client, combine),
        }
    }
}

impl QuietCounts {
    #[inline]
    pub(super) fn add(&mut self, segment: &Segment, traffic: Traffic, recognised: Recognised) {
        let flags = segment.flags;
        self.all = self.all.plus(traffic);
        if recognised.keepalive_probe {
            self.probes = self.probes.plus(traffic);
        } else if recognised.keepalive_ack {
            self.probe_answers = self.probe_answers.plus(traffic);
        } else if segment.payload > 0 {
            self.heartbeats = self.heartbeats.plus(traffic);
            self.heartbeat_retransmissions += recognised.retransmissions;
        } else if flags.ack() && !flags.rst() && segment.seq_len() == 0 {
            self.acks = self.acks.plus(traffic);
        }
    }

    /// The counts of both.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    fn with(&self, other: &Self, combine: fn(u64, u64) -> u64) -> Self {
        Self {
            probes: self.probes.with(other.probes, combine),
            probe_answers: self.probe_answers.with(other.probe_answers, combine),
            heartbeats: self.heartbeats.with(other.heartbeats, combine),
            heartbeat_retransmissions: combine(
                self.heartbeat_retransmissions,
                other.heartbeat_retransmissions,
            ),
            acks: self.acks.with(other.acks, combine),
            all: self.all.with(other.all, combine),
        }
    }
}

impl Traffic {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    fn with(self, other: Self, combine: fn(u64, u64) -> u64) -> Self {
        Self {
            packets: combine(self.packets, other.packets),
            bytes: combine(self.bytes, other.bytes),
        }
    }
}
