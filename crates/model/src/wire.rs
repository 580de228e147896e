//! Packets by kind, as a witness on the wire counts them.
//!
//! [`WireTracker`] follows each connection far enough to tell a retransmission and a keep-alive
//! from what they look like: data and a pure ACK. It sees sequence numbers and not intentions, and
//! so has three limits:
//!
//! - Each direction must be observed at one place, in order, ahead of any loss that was asked for:
//!   a packet lost before the observer makes its repeat look like the first.
//! - A zero-window probe is counted as `keepalive_probe`. Linux sends it exactly like one: no
//!   payload, sequence number `snd_una - 1`, nothing in flight; unsent data does not show. The
//!   counters `TcpExtTCPKeepAlive` and `TcpExtTCPWinProbe` tell the two apart.
//! - Of a connection whose beginning was not observed, the next sequence number is learnt from
//!   what either side sends or acknowledges; a repeat or probe before that is not recognised.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::packet::{Packet, Segment};

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
    /// What an answer to its outstanding keep-alive probe acknowledges.
    probe: Option<u32>,
}

/// What a segment is, beyond what its own header says.
#[derive(Clone, Copy, Debug, Default)]
struct Recognised {
    retransmissions: u64,
    keepalive_probe: bool,
    keepalive_ack: bool,
}

impl WireTracker {
    /// Nothing counted yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts one packet; `gso_size` is the payload of each part of a super-packet, else 0.
    pub fn observe(&mut self, direction: Direction, packet: &Packet, gso_size: u32) {
        let payload = packet.segment.map_or(0, |segment| segment.payload);
        let parts = parts_of(payload, gso_size);
        let recognised = packet
            .segment
            .and_then(|segment| self.recognise(direction, packet, &segment, gso_size));
        if packet.segment.is_some() && recognised.is_none() {
            self.untracked += parts;
        }
        let counts = match direction {
            Direction::ClientToServer => &mut self.wire.client_to_server,
            Direction::ServerToClient => &mut self.wire.server_to_client,
        };
        counts.packets += parts;
        counts.bytes += u64::from(packet.ip_bytes) + (parts - 1) * u64::from(packet.header_bytes);
        if let Some(segment) = packet.segment {
            counts.add(&segment, parts, recognised.unwrap_or_default());
        }
    }

    /// The counts so far; drops are the caller's to fill in.
    pub fn wire(&self) -> Wire {
        self.wire.clone()
    }

    /// None: the connection is not followed, because the table is full.
    fn recognise(
        &mut self,
        direction: Direction,
        packet: &Packet,
        segment: &Segment,
        gso_size: u32,
    ) -> Option<Recognised> {
        let (src, dst) = ((packet.src, segment.src_port), (packet.dst, segment.dst_port));
        let key = match direction {
            Direction::ClientToServer => FlowKey { client: src, server: dst },
            Direction::ServerToClient => FlowKey { client: dst, server: src },
        };
        if !self.flows.contains_key(&key) {
            if segment.flags.rst() {
                return Some(Recognised::default()); // nothing to learn from it
            }
            if !self.has_room() {
                return None;
            }
        }
        let flow = self.flows.entry(key).or_default();
        let recognised = flow.observe(direction, segment, gso_size);
        if flow.ended && !flow.queued {
            flow.queued = true;
            self.ended.push_back(key);
        }
        Some(recognised)
    }

    /// Makes room for one more connection by forgetting the one that ended first.
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
    fn observe(&mut self, direction: Direction, segment: &Segment, gso_size: u32) -> Recognised {
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
        let recognised = sender.send(segment, gso_size);
        let answers_probe = flags.ack() && receiver.acknowledge(segment);
        let closed = sender.is_closed() && receiver.is_closed();
        self.ended |= closed;
        Recognised { keepalive_ack: answers_probe && !recognised.keepalive_probe, ..recognised }
    }

    fn halves(&mut self, direction: Direction) -> (&mut Half, &mut Half) {
        match direction {
            Direction::ClientToServer => (&mut self.client, &mut self.server),
            Direction::ServerToClient => (&mut self.server, &mut self.client),
        }
    }
}

impl Half {
    /// Takes note of a segment this side sends.
    fn send(&mut self, segment: &Segment, gso_size: u32) -> Recognised {
        let flags = segment.flags;
        if flags.syn() && self.isn != Some(segment.seq) {
            // A SYN, or a SYN-ACK of a request the server made anew (after cookies or a drop).
            *self = Self { isn: Some(segment.seq), ..Self::default() };
        }
        let end = segment.seq.wrapping_add(segment.seq_len());
        let mut recognised = Recognised::default();
        if let Some(next) = self.next {
            if !flags.syn()
                && !flags.fin()
                && segment.payload <= 1
                && segment.seq == next.wrapping_sub(1)
                && self.acked == Some(next)
            {
                self.probe = Some(next);
                recognised.keepalive_probe = true;
            } else if segment.seq_len() > 0 && is_before(segment.seq, next) {
                let again = next.wrapping_sub(segment.seq).min(segment.payload);
                recognised.retransmissions = parts_of(again, gso_size);
            }
        }
        if segment.seq_len() > 0 {
            self.next = Some(later(self.next, end));
        }
        if flags.fin() {
            self.fin_end = Some(end);
        }
        recognised
    }

    /// Takes note of an ACK from the other side, and says whether it answers a keep-alive probe.
    fn acknowledge(&mut self, segment: &Segment) -> bool {
        self.acked = Some(later(self.acked, segment.ack));
        self.next = Some(later(self.next, segment.ack));
        let pure = segment.seq_len() == 0;
        pure && self.probe.take_if(|probe| *probe == segment.ack).is_some()
    }

    fn is_closed(&self) -> bool {
        match (self.fin_end, self.acked) {
            (Some(end), Some(acked)) => !is_before(acked, end),
            _ => false,
        }
    }
}

impl WireCounts {
    fn add(&mut self, segment: &Segment, parts: u64, recognised: Recognised) {
        let flags = segment.flags;
        self.syn += u64::from(flags.syn() && !flags.ack());
        self.syn_ack += u64::from(flags.syn() && flags.ack());
        self.fin += u64::from(flags.fin());
        self.rst += u64::from(flags.rst());
        self.data += if segment.payload > 0 { parts } else { 0 };
        self.retransmission += recognised.retransmissions;
        self.keepalive_probe += u64::from(recognised.keepalive_probe);
        self.keepalive_ack += u64::from(recognised.keepalive_ack);
        let keepalive = recognised.keepalive_probe || recognised.keepalive_ack;
        let pure = flags.ack() && !flags.rst() && segment.seq_len() == 0;
        self.pure_ack += u64::from(pure && !keepalive);
    }
}

/// Packets that a payload makes on the wire: one, unless it is cut into parts of `gso_size`.
fn parts_of(payload: u32, gso_size: u32) -> u64 {
    if gso_size == 0 { 1 } else { u64::from(payload.div_ceil(gso_size)).max(1) }
}

/// Whether `a` comes before `b`, both modulo 2^32 (RFC 9293 section 3.4).
fn is_before(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() < 0
}

fn later(known: Option<u32>, new: u32) -> u32 {
    match known {
        Some(known) if is_before(new, known) => known,
        _ => new,
    }
}

#[cfg(test)]
mod tests {
    use Direction::{ClientToServer as C, ServerToClient as S};
    use proptest::prelude::*;

    use super::*;
    use crate::packet::Flags;

    const SYN: Flags = Flags::SYN;
    const ACK: Flags = Flags::ACK;
    const SYN_ACK: Flags = Flags::SYN.with(ACK);
    const FIN: Flags = Flags::FIN.with(ACK);

    /// Direction, flags, sequence number, acknowledgment, payload.
    type Sent = (Direction, Flags, u32, u32, u32);

    fn packet((direction, flags, seq, ack, payload): Sent, client: u32) -> Packet {
        let client = IpAddr::from((0x0a00_0000 + client).to_be_bytes());
        let server = IpAddr::from([192, 168, 0, 1]);
        let (src, dst) = if direction == C { (client, server) } else { (server, client) };
        let (src_port, dst_port) = if direction == C { (4000, 80) } else { (80, 4000) };
        let segment = Segment { src_port, dst_port, seq, ack, flags, payload, window: 512 };
        let ip_bytes = payload.saturating_add(40);
        Packet { src, dst, ip_bytes, segment: Some(segment), header_bytes: 40 }
    }

    fn send(tracker: &mut WireTracker, client: u32, sent: &[Sent]) {
        for &one in sent {
            tracker.observe(one.0, &packet(one, client), 0);
        }
    }

    fn observed(sent: &[Sent]) -> Wire {
        let mut tracker = WireTracker::new();
        send(&mut tracker, 1, sent);
        tracker.wire()
    }

    /// The client's initial sequence number is `c`, the server's `s`; 10 bytes asked, 20 answered.
    fn life(c: u32, s: u32) -> Vec<Sent> {
        let (c, s) = (|n| c.wrapping_add(n), |n| s.wrapping_add(n));
        vec![
            (C, SYN, c(0), 0, 0),
            (S, SYN_ACK, s(0), c(1), 0),
            (C, ACK, c(1), s(1), 0),
            (C, ACK, c(1), s(1), 10),
            (S, ACK, s(1), c(11), 20),
            (C, ACK, c(11), s(21), 0),
            (C, ACK, c(10), s(21), 0), // keep-alive probe
            (S, ACK, s(21), c(11), 0), // and its answer
            (C, FIN, c(11), s(21), 0),
            (S, FIN, s(21), c(12), 0),
            (C, ACK, c(12), s(22), 0),
        ]
    }

    #[test]
    fn a_whole_life_is_counted_by_kind_and_wraps_with_the_sequence_numbers() {
        for start in [0, 1000, u32::MAX - 30, u32::MAX - 12, u32::MAX - 5, u32::MAX, 1 << 31] {
            let c = WireCounts { syn: 1, keepalive_probe: 1, ..Default::default() };
            let client_to_server =
                WireCounts { packets: 7, bytes: 290, pure_ack: 3, data: 1, fin: 1, ..c };
            let s =
                WireCounts { packets: 4, bytes: 180, syn_ack: 1, data: 1, ..Default::default() };
            let server_to_client = WireCounts { keepalive_ack: 1, fin: 1, ..s };
            let expected = Wire { client_to_server, server_to_client, ..Default::default() };
            assert_eq!(observed(&life(start, start.wrapping_mul(3))), expected, "{start}");
        }
    }

    #[test]
    fn everything_sent_twice_is_a_retransmission_if_it_takes_up_sequence_numbers() {
        let mut twice: Vec<Sent> = life(u32::MAX - 5, 7).into_iter().flat_map(|p| [p, p]).collect();
        twice.extend([(C, FIN, 5, 28, 0), (S, FIN, 28, 6, 0)]); // after both sides are closed
        let wire = observed(&twice);
        assert_eq!((wire.client_to_server.retransmission, wire.client_to_server.syn), (4, 2));
        assert_eq!((wire.server_to_client.retransmission, wire.server_to_client.fin), (4, 3));
    }

    #[test]
    fn the_last_byte_again_is_a_retransmission_until_it_is_acknowledged() {
        let (byte, ack) = ((C, ACK, 100, 1, 1), (S, ACK, 1, 101, 0));
        let wire = observed(&[byte, byte, ack, byte]).client_to_server;
        assert_eq!((wire.retransmission, wire.keepalive_probe, wire.data), (1, 1, 3));
    }

    #[test]
    fn a_zero_window_probe_looks_like_a_keepalive_probe() {
        let sent = [(C, ACK, 100, 1, 50), (S, ACK, 1, 150, 0), (C, ACK, 149, 1, 0)];
        assert_eq!(observed(&sent).client_to_server.keepalive_probe, 1);
    }

    #[test]
    fn a_new_initial_sequence_number_or_a_reset_begins_a_new_connection() {
        let mut sent = life(9000, 9000);
        sent.extend(life(100, 100));
        sent.extend([(S, Flags::RST, 122, 0, 0), (C, SYN, 100, 0, 0)]);
        let wire = observed(&sent);
        assert_eq!((wire.client_to_server.syn, wire.server_to_client.rst), (3, 1));
        assert_eq!(wire.client_to_server.retransmission + wire.server_to_client.retransmission, 0);
    }

    #[test]
    fn a_super_packet_counts_as_the_packets_it_becomes() {
        let mut tracker = WireTracker::new();
        tracker.observe(C, &packet((C, ACK, 0, 1, 3001), 1), 1000);
        tracker.observe(C, &packet((C, ACK, 1500, 1, 3001), 1), 1000);
        tracker.observe(C, &packet((C, ACK, 9000, 1, 1), 1), 0); // a gap is no repeat
        let counts = tracker.wire().client_to_server;
        assert_eq!((counts.packets, counts.data, counts.retransmission), (9, 9, 2));
        assert_eq!(counts.bytes, 2 * (3001 + 4 * 40) + 41);
    }

    #[test]
    fn a_full_table_forgets_what_ended_and_counts_what_it_cannot_follow() {
        let mut tracker = WireTracker::new();
        let syn_twice = [(C, SYN, 1, 0, 0), (C, SYN, 1, 0, 0)];
        send(&mut tracker, 0, &life(1, 1));
        (1..FLOWS_MAX as u32).for_each(|client| send(&mut tracker, client, &syn_twice[..1]));
        send(&mut tracker, 1 << 20, &syn_twice); // takes the place of the one that ended
        assert_eq!((tracker.wire().client_to_server.retransmission, tracker.untracked), (1, 0));
        send(&mut tracker, 1 << 21, &syn_twice);
        assert_eq!((tracker.wire().client_to_server.retransmission, tracker.untracked), (1, 2));
        assert_eq!(tracker.wire().client_to_server.syn as usize, FLOWS_MAX + 4);
    }

    #[test]
    fn a_captured_connection_has_three_probes_three_answers_and_no_retransmission() {
        let mut tracker = WireTracker::new();
        for line in include_str!("../tests/captured/connection-keepalive-6.18.txt").lines() {
            let (from, rest) = line.split_once(' ').unwrap();
            let (len, hex) = rest.split_once(' ').unwrap();
            let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
            let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
            let packet = Packet::parse(&bytes, len.parse().unwrap()).unwrap();
            tracker.observe(if from == "c" { C } else { S }, &packet, 0);
        }
        let Wire { client_to_server: c, server_to_client: s, .. } = tracker.wire();
        assert_eq!((c.packets, c.syn, c.data, c.fin, c.pure_ack), (9, 1, 1, 1, 3));
        assert_eq!((c.keepalive_probe, s.keepalive_ack), (3, 3));
        assert_eq!((s.packets, s.syn_ack, s.data, s.fin, s.pure_ack), (7, 1, 1, 1, 1));
        assert_eq!((c.retransmission, s.retransmission, c.bytes, s.bytes), (0, 0, 479, 1372));
    }

    proptest! {
        #[test]
        fn every_packet_is_counted_once_and_no_kind_exceeds_the_packets(
            sent in prop::collection::vec(
                (any::<bool>(), 0_u8..32, 0_u32..60, 0_u32..60, 0_u32..4000, 0_u32..1500), 0..80),
        ) {
            let mut tracker = WireTracker::new();
            let mut parts = 0;
            for (client, flags, seq, ack, payload, gso) in sent {
                let direction = if client { C } else { S };
                let one = (direction, Flags(flags), seq.wrapping_sub(30), ack.wrapping_sub(30), payload);
                parts += if gso == 0 { 1 } else { u64::from(payload.div_ceil(gso)).max(1) };
                tracker.observe(direction, &packet(one, 1), gso);
            }
            let Wire { client_to_server: c, server_to_client: s, .. } = tracker.wire();
            prop_assert_eq!(c.packets + s.packets, parts);
            for w in [c, s] {
                let kinds = [w.syn, w.syn_ack, w.retransmission, w.keepalive_probe,
                    w.keepalive_ack, w.pure_ack, w.data, w.fin, w.rst];
                prop_assert!(kinds.into_iter().all(|kind| kind <= w.packets), "{:?}", w);
            }
        }
    }
}
