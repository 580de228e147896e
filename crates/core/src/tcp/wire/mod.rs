//! Packets by kind, as a witness on the wire counts them.
//!
//! [`WireTracker`] follows each connection far enough to tell a retransmission and a keep-alive
//! from what they look like: data and a pure ACK. It sees sequence numbers and not intentions, and
//! so has four limits:
//!
//! - Each direction must be observed at one place, in order, ahead of any loss that was asked for:
//!   a packet lost before the observer makes its repeat look like the first.
//! - A zero-window probe is counted as `keepalive_probe`. Linux sends it exactly like one: no
//!   payload, sequence number `snd_una - 1`, nothing in flight; unsent data does not show. The
//!   counters `TcpExtTCPKeepAlive` and `TcpExtTCPWinProbe` tell the two apart.
//! - Of a connection whose beginning was not observed, the next sequence number is learnt from
//!   what either side sends or acknowledges; a repeat or probe before that is not recognised. An
//!   idle one teaches nothing until its first probe is answered, so that probe and its answer
//!   count as `pure_ack`, and all later ones rightly: short by one probe per connection.
//! - One byte again, whose acknowledgment was lost after the observer, looks like a probe with a
//!   byte of garbage. A longer segment does not.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tcp::packet::{Packet, Segment};

mod ack_delay;
mod quiet;
mod received;
mod spans;

pub use ack_delay::{AckDelays, AckTracker};
pub use quiet::{Quiet, QuietCounts, Traffic};
pub use received::HeadOfLine;
pub use spans::{ROWS_MAX, Span, SpanRow, SpanTracker, payload_start};

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// From the client host to the server host.
    ClientToServer,
    /// From the server host to the client host.
    ServerToClient,
}

/// Counts of both directions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Wire {
    /// From the client host to the server host.
    pub client_to_server: WireCounts,
    /// From the server host to the client host.
    pub server_to_client: WireCounts,
    /// Packets the tap could not keep; the counts are short by these.
    pub tap_drops: u64,
    /// Packets dropped by the emulated link because loss was asked for.
    pub lost_on_purpose: u64,
    /// Packets dropped by the emulated link because its queue limit was reached.
    pub queue_drops: u64,
    /// Connections to the server ports that were watched, each port apart, in ascending order of
    /// ports; empty if none was watched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quiet: Vec<Quiet>,
}

/// Counts of one direction. A super-packet counts as the wire packets it would become.
///
/// Kinds overlap where the packet does: a FIN with payload is `fin` and `data`, a SYN sent again
/// is `syn` and `retransmission`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WireCounts {
    /// SYN without ACK, first and repeated.
    pub syn: u64,
    /// SYN with ACK, first and repeated.
    pub syn_ack: u64,
    /// Segments that carry sequence numbers already sent.
    pub retransmission: u64,
    /// Probes of `SO_KEEPALIVE`: sequence number one below the next, at most one byte.
    pub keepalive_probe: u64,
    /// Answers to such probes.
    pub keepalive_ack: u64,
    /// ACK alone: no payload, no SYN, FIN or RST, and no keep-alive.
    pub pure_ack: u64,
    /// Segments with payload.
    pub data: u64,
    /// FIN, first and repeated.
    pub fin: u64,
    /// RST.
    pub rst: u64,
    /// All IP packets, TCP or not.
    pub packets: u64,
    /// Bytes of all IP packets, from the IP header on.
    pub bytes: u64,
    /// TCP payload in first transmissions, bytes; absent where no TCP was seen, and in records of
    /// versions that did not count it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_bytes: Option<u64>,
    /// TCP payload with sequence numbers already sent, bytes: also of a segment that is new in part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmitted_bytes: Option<u64>,
}

impl Wire {
    /// What was counted on connections to this port of the server host. None: it was not watched.
    pub fn quiet_on(&self, port: u16) -> Option<&Quiet> {
        self.quiet.iter().find(|quiet| quiet.port == port)
    }

    /// What was counted after `earlier` was; both are counts of one tracker.
    ///
    /// Range: what is smaller than earlier, as it cannot be of one tracker, is 0. A port watched
    ///        only since then keeps its counts.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let quiet =
            |now: &Quiet| now.since(earlier.quiet_on(now.port).unwrap_or(&Quiet::default()));
        let total = |part: fn(&Self) -> u64| part(self).saturating_sub(part(earlier));
        Self {
            client_to_server: self.client_to_server.since(&earlier.client_to_server),
            server_to_client: self.server_to_client.since(&earlier.server_to_client),
            tap_drops: total(|wire| wire.tap_drops),
            lost_on_purpose: total(|wire| wire.lost_on_purpose),
            queue_drops: total(|wire| wire.queue_drops),
            quiet: self.quiet.iter().map(quiet).collect(),
        }
    }

    /// The counts of two trackers, or of two rounds, together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let total = |part: fn(&Self) -> u64| part(self).saturating_add(part(other));
        Self {
            client_to_server: self.client_to_server.plus(&other.client_to_server),
            server_to_client: self.server_to_client.plus(&other.server_to_client),
            tap_drops: total(|wire| wire.tap_drops),
            lost_on_purpose: total(|wire| wire.lost_on_purpose),
            queue_drops: total(|wire| wire.queue_drops),
            quiet: quiet::together(&self.quiet, &other.quiet),
        }
    }

    fn add_if_quiet(
        &mut self,
        direction: Direction,
        segment: &Segment,
        traffic: Traffic,
        recognised: Recognised,
    ) {
        let port = match direction {
            Direction::ClientToServer => segment.dst_port,
            Direction::ServerToClient => segment.src_port,
        };
        if let Some(quiet) = self.quiet.iter_mut().find(|quiet| quiet.port == port) {
            match direction {
                Direction::ClientToServer => &mut quiet.client_to_server,
                Direction::ServerToClient => &mut quiet.server_to_client,
            }
            .add(segment, traffic, recognised);
        }
    }
}

/// Connections that are followed at once; some 60 MB.
const FLOWS_MAX: usize = 200_000;

/// Counts packets by kind, following connections to recognise what needs a memory.
///
/// - `retransmission`: takes up sequence numbers (SYN, FIN, payload) that begin before the highest
///   already sent in that direction, so a SYN with the same initial sequence number, a FIN again,
///   and data sent in part are among them. A keep-alive probe is not.
/// - `keepalive_probe`: at most one byte, no SYN, FIN or RST, sequence number one below the next,
///   while everything sent is acknowledged. One byte of payload counts as `data` too.
/// - `keepalive_ack`: the first pure ACK of the other side, after a probe, that acknowledges what
///   was sent before the probe. Two probes before one answer have one answer.
/// - A super-packet counts as `ceil(payload / gso_size)` packets, each with its own headers; of a
///   repeated one, only the packets that begin in what was already sent are retransmissions.
/// - What is not TCP counts in `packets` and `bytes` only.
#[derive(Debug, Default)]
pub struct WireTracker {
    /// Its `quiet` has an entry for each port watched.
    wire: Wire,
    flows: HashMap<FlowKey, Flow>,
    /// Connections that ended, oldest first: the first to be forgotten when the table is full.
    ended: VecDeque<FlowKey>,
    /// Packets of connections that did not fit in the table: `retransmission`, `keepalive_probe`
    /// and `keepalive_ack` are short by what these would have added.
    pub untracked: u64,
}

/// Both ends of a connection, the client's first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FlowKey {
    client: (IpAddr, u16),
    server: (IpAddr, u16),
}

impl FlowKey {
    #[inline]
    fn new(direction: Direction, packet: &Packet, segment: &Segment) -> Self {
        let (src, dst) = ((packet.src, segment.src_port), (packet.dst, segment.dst_port));
        match direction {
            Direction::ClientToServer => Self { client: src, server: dst },
            Direction::ServerToClient => Self { client: dst, server: src },
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    client: Half,
    server: Half,
    /// Reset, or closed and acknowledged on both sides.
    ended: bool,
    /// Whether the key stands in [`WireTracker::ended`].
    queued: bool,
}

/// What one side has sent.
#[derive(Clone, Copy, Debug, Default)]
struct Half {
    /// Sequence number of its SYN.
    isn: Option<u32>,
    /// One past the highest sequence number sent.
    next: Option<u32>,
    /// The highest acknowledgment from the other side.
    acked: Option<u32>,
    /// One past its FIN.
    fin_end: Option<u32>,
    /// When it last sent something new, ns.
    advanced_ns: u64,
    /// What an answer to its outstanding keep-alive probe acknowledges.
    probe: Option<u32>,
}

/// No probe comes sooner after something new of its sender, ns: the kernel's shortest idle time is
/// 1 s, and its shortest wait before a zero-window probe 200 ms. An ACK of one CPU that an observer
/// gets after the FIN of another has the sequence number of a probe, and comes within microseconds.
const PROBE_AFTER_NS: u64 = 10_000_000;

/// What a segment is, beyond what its own header says.
#[derive(Clone, Copy, Debug, Default)]
struct Recognised {
    retransmissions: u64,
    /// Payload that was sent before.
    again_bytes: u32,
    keepalive_probe: bool,
    keepalive_ack: bool,
}

impl WireTracker {
    /// Nothing counted yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Nothing counted yet; connections to these ports of the server host are counted apart, too.
    pub fn watching(quiet_ports: impl IntoIterator<Item = u16>) -> Self {
        let mut tracker = Self::default();
        tracker.watch(quiet_ports);
        tracker
    }

    /// From now on counts connections to these ports of the server host apart, too: ports that the
    /// kernel chooses are known only when the server listens.
    pub fn watch(&mut self, quiet_ports: impl IntoIterator<Item = u16>) {
        for port in quiet_ports {
            if let Err(place) = self.wire.quiet.binary_search_by_key(&port, |quiet| quiet.port) {
                self.wire.quiet.insert(place, Quiet { port, ..Quiet::default() });
            }
        }
    }

    /// Counts one packet, seen at `at_ns` of any clock that goes on; `gso_size` is the payload of
    /// each part of a super-packet, else 0.
    #[inline]
    pub fn observe(&mut self, direction: Direction, packet: &Packet, gso_size: u32, at_ns: u64) {
        let payload = packet.segment.map_or(0, |segment| segment.payload);
        let parts = parts_of(payload, gso_size);
        let recognised = packet
            .segment
            .and_then(|segment| self.recognise(direction, packet, &segment, (gso_size, at_ns)));
        if packet.segment.is_some() && recognised.is_none() {
            self.untracked += parts;
        }
        let counts = match direction {
            Direction::ClientToServer => &mut self.wire.client_to_server,
            Direction::ServerToClient => &mut self.wire.server_to_client,
        };
        let bytes = u64::from(packet.ip_bytes) + (parts - 1) * u64::from(packet.header_bytes);
        let traffic = Traffic { packets: parts, bytes };
        counts.packets += parts;
        counts.bytes += bytes;
        if let Some(segment) = packet.segment {
            let recognised = recognised.unwrap_or_default();
            counts.add(&segment, parts, recognised);
            self.wire.add_if_quiet(direction, &segment, traffic, recognised);
        }
    }

    /// The counts so far; drops are the caller's to fill in.
    pub fn wire(&self) -> Wire {
        self.wire.clone()
    }

    /// None: the connection is not followed, because the table is full.
    #[inline]
    fn recognise(
        &mut self,
        direction: Direction,
        packet: &Packet,
        segment: &Segment,
        (gso_size, at_ns): (u32, u64),
    ) -> Option<Recognised> {
        let key = FlowKey::new(direction, packet, segment);
        if !self.flows.contains_key(&key) {
            if segment.flags.rst() {
                return Some(Recognised::default()); // nothing to learn from it
            }
            if !self.has_room() {
                return None;
            }
        }
        let flow = self.flows.entry(key).or_default();
        let recognised = flow.observe(direction, segment, gso_size, at_ns);
        if flow.ended && !flow.queued {
            flow.queued = true;
            self.ended.push_back(key);
        }
        Some(recognised)
    }

    /// Makes room for one more connection by forgetting the one that ended first.
    #[inline]
    fn has_room(&mut self) -> bool {
        while self.flows.len() >= FLOWS_MAX {
            let Some(oldest) = self.ended.pop_front() else { return false };
            match self.flows.get_mut(&oldest) {
                Some(flow) if flow.ended => drop(self.flows.remove(&oldest)),
                Some(flow) => flow.queued = false, // the address and port live again
                None => {}
            }
        }
        true
    }
}

impl Flow {
    #[inline]
    fn observe(
        &mut self,
        direction: Direction,
        segment: &Segment,
        gso_size: u32,
        at_ns: u64,
    ) -> Recognised {
        let flags = segment.flags;
        if flags.rst() {
            self.ended = true;
            return Recognised::default();
        }
        if flags.syn() && !flags.ack() {
            let known = self.halves(direction).0.isn;
            if self.ended || known != Some(segment.seq) {
                *self = Self { queued: self.queued, ..Self::default() };
            }
        }
        let (sender, receiver) = self.halves(direction);
        let recognised = sender.send(segment, gso_size, at_ns);
        let answers_probe = flags.ack() && receiver.acknowledge(segment, recognised);
        let closed = sender.is_closed() && receiver.is_closed();
        self.ended |= closed;
        Recognised { keepalive_ack: answers_probe, ..recognised }
    }

    #[inline]
    fn halves(&mut self, direction: Direction) -> (&mut Half, &mut Half) {
        match direction {
            Direction::ClientToServer => (&mut self.client, &mut self.server),
            Direction::ServerToClient => (&mut self.server, &mut self.client),
        }
    }
}

impl Half {
    /// Takes note of a segment this side sends.
    #[inline]
    fn send(&mut self, segment: &Segment, gso_size: u32, at_ns: u64) -> Recognised {
        let flags = segment.flags;
        if flags.syn() && self.isn != Some(segment.seq) {
            // A SYN, or a SYN-ACK of a request the server made anew (after cookies or a drop).
            *self = Self { isn: Some(segment.seq), ..Self::default() };
        }
        let end = segment.seq.wrapping_add(segment.seq_len());
        let mut recognised = Recognised::default();
        if let Some(next) = self.next {
            // What a SYN carries comes after its own sequence number.
            let data = segment.seq.wrapping_add(u32::from(flags.syn()));
            if is_before(data, next) {
                recognised.again_bytes = next.wrapping_sub(data).min(segment.payload);
            }
            if !flags.syn()
                && !flags.fin()
                && segment.payload <= 1
                && segment.seq == next.wrapping_sub(1)
                && self.acked == Some(next)
                && at_ns.saturating_sub(self.advanced_ns) >= PROBE_AFTER_NS
            {
                self.probe = Some(next);
                recognised.keepalive_probe = true;
            } else if segment.seq_len() > 0 && is_before(segment.seq, next) {
                let again = next.wrapping_sub(segment.seq).min(segment.payload);
                recognised.retransmissions = parts_of(again, gso_size);
            }
        }
        if segment.seq_len() > 0 {
            if self.next.is_none_or(|next| is_before(next, end)) {
                self.advanced_ns = at_ns;
            }
            self.next = Some(later(self.next, end));
        }
        if flags.fin() {
            self.fin_end = Some(end);
        }
        recognised
    }

    /// Takes note of an ACK from the other side, and says whether it answers a keep-alive probe.
    ///
    /// The other side's own probe is no answer: where both sides probe, the two cross.
    #[inline]
    fn acknowledge(&mut self, segment: &Segment, recognised: Recognised) -> bool {
        self.acked = Some(later(self.acked, segment.ack));
        self.next = Some(later(self.next, segment.ack));
        let pure = segment.seq_len() == 0 && !recognised.keepalive_probe;
        pure && self.probe.take_if(|probe| *probe == segment.ack).is_some()
    }

    #[inline]
    fn is_closed(&self) -> bool {
        match (self.fin_end, self.acked) {
            (Some(end), Some(acked)) => !is_before(acked, end),
            _ => false,
        }
    }
}

impl WireCounts {
    fn since(&self, earlier: &Self) -> Self {
        self.with(earlier, u64::saturating_sub)
    }

    fn plus(&self, other: &Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    fn with(&self, other: &Self, combine: fn(u64, u64) -> u64) -> Self {
        Self {
            syn: combine(self.syn, other.syn),
            syn_ack: combine(self.syn_ack, other.syn_ack),
            retransmission: combine(self.retransmission, other.retransmission),
            keepalive_probe: combine(self.keepalive_probe, other.keepalive_probe),
            keepalive_ack: combine(self.keepalive_ack, other.keepalive_ack),
            pure_ack: combine(self.pure_ack, other.pure_ack),
            data: combine(self.data, other.data),
            fin: combine(self.fin, other.fin),
            rst: combine(self.rst, other.rst),
            packets: combine(self.packets, other.packets),
            bytes: combine(self.bytes, other.bytes),
            payload_bytes: either(self.payload_bytes, other.payload_bytes, combine),
            retransmitted_bytes: either(
                self.retransmitted_bytes,
                other.retransmitted_bytes,
                combine,
            ),
        }
    }

    #[inline]
    fn add(&mut self, segment: &Segment, parts: u64, recognised: Recognised) {
        let flags = segment.flags;
        self.syn += u64::from(flags.syn() && !flags.ack());
        self.syn_ack += u64::from(flags.syn() && flags.ack());
        self.fin += u64::from(flags.fin());
        self.rst += u64::from(flags.rst());
        self.data += if segment.payload > 0 { parts } else { 0 };
        self.retransmission += recognised.retransmissions;
        let again = u64::from(recognised.again_bytes);
        *self.payload_bytes.get_or_insert(0) += u64::from(segment.payload) - again;
        *self.retransmitted_bytes.get_or_insert(0) += again;
        self.keepalive_probe += u64::from(recognised.keepalive_probe);
        self.keepalive_ack += u64::from(recognised.keepalive_ack);
        let keepalive = recognised.keepalive_probe || recognised.keepalive_ack;
        let pure = flags.ack() && !flags.rst() && segment.seq_len() == 0;
        self.pure_ack += u64::from(pure && !keepalive);
    }
}

/// Of two counts, one of which may be absent because there was nothing to count.
fn either(a: Option<u64>, b: Option<u64>, combine: fn(u64, u64) -> u64) -> Option<u64> {
    match (a, b) {
        (None, None) => None,
        (a, b) => Some(combine(a.unwrap_or(0), b.unwrap_or(0))),
    }
}

/// Packets that a payload makes on the wire: one, unless it is cut into parts of `gso_size`.
#[inline]
fn parts_of(payload: u32, gso_size: u32) -> u64 {
    if gso_size == 0 { 1 } else { u64::from(payload.div_ceil(gso_size)).max(1) }
}

/// Whether `a` comes before `b`, both modulo 2^32 (RFC 9293 section 3.4).
#[inline]
fn is_before(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() < 0
}

#[inline]
fn later(known: Option<u32>, new: u32) -> u32 {
    match known {
        Some(known) if is_before(new, known) => known,
        _ => new,
    }
}

#[cfg(test)]
mod tests;
