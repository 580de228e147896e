//! How long does the server's kernel take to acknowledge a segment that arrived?
//!
//! A delayed ACK shows as a *pure* ACK some 40 ms after its segment; with data to send the ACK
//! rides on it (*piggybacked*), and its delay is the program's. [`AckTracker`] sees both. It must be
//! told of data when it arrives at the server and of ACKs when they leave there, so that no time on
//! the link counts: at the tap of the server, or on an emulated link from the release of the data to the entry of the
//! ACK. A link that nobody asks does not look. It leaves out what says nothing of the kernel's delay:
//!
//! - Retransmitted segments, and what they repeat: the ACK may be of either (Karn's rule).
//! - All that arrives after a gap, until everything sent is acknowledged: the ACK waits for the
//!   missing segment.
//! - Segments beyond [`WAITING_MAX`] of a connection that wait for an ACK, and connections beyond
//!   [`FLOWS_MAX`].

use std::collections::{HashMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::{Direction, FlowKey, is_before, later};
use crate::stats::Histogram;
use crate::tcp::packet::{Packet, Segment};

/// Connections that are followed.
const FLOWS_MAX: usize = 1_024;

/// Segments of one connection that wait for an ACK: the kernel acknowledges at least every second
/// full one, so it is reached only where the server cannot keep up.
const WAITING_MAX: usize = 256;

/// A pure ACK within this came without a delay that the kernel chose, ns: the shortest that it
/// chooses is 40 ms (`TCP_DELACK_MIN` of include/net/tcp.h, Linux 6.18).
const QUICK_NS: u64 = 1_000_000;

/// What became of the segments that arrived at the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AckDelays {
    /// From the arrival of a segment to the first ACK that covers it, if that is pure: without data.
    pub pure: Histogram,
    /// Segments acknowledged by a pure ACK within 1 ms.
    pub quick: u64,
    /// Segments acknowledged by a pure ACK after more than 1 ms.
    pub delayed: u64,
    /// Segments acknowledged by a segment with data, a FIN or a RST.
    pub piggybacked: u64,
    /// Segments with data that were not timed.
    pub untimed: u64,
}

/// Times the ACKs of data from client to server.
#[derive(Debug, Default)]
pub struct AckTracker {
    delays: AckDelays,
    flows: HashMap<FlowKey, Flow>,
}

/// One connection.
#[derive(Debug, Default)]
struct Flow {
    /// One past the highest sequence number that arrived.
    next: Option<u32>,
    /// Something before what arrived last is missing, or was: nothing is timed.
    gap: bool,
    /// End and arrival of segments that wait for an ACK, in order.
    waiting: VecDeque<(u32, u64)>,
}

impl AckTracker {
    /// Nothing timed yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a packet: to the server when it arrives there, from the server when it leaves.
    /// `at_ns`: on any clock that goes on.
    #[inline]
    pub fn observe(&mut self, direction: Direction, packet: &Packet, at_ns: u64) {
        let Some(segment) = &packet.segment else { return };
        let key = FlowKey::new(direction, packet, segment);
        if segment.flags.rst() {
            self.flows.remove(&key);
            return;
        }
        match direction {
            Direction::ClientToServer => self.arrived(key, segment, at_ns),
            Direction::ServerToClient => self.left(&key, segment, at_ns),
        }
    }

    /// What was timed so far.
    pub fn delays(&self) -> &AckDelays {
        &self.delays
    }

    #[inline]
    fn arrived(&mut self, key: FlowKey, segment: &Segment, at_ns: u64) {
        let timed = segment.payload > 0;
        if !self.flows.contains_key(&key) && self.flows.len() >= FLOWS_MAX {
            self.delays.untimed += u64::from(timed);
            return;
        }
        let flow = self.flows.entry(key).or_default();
        if segment.flags.syn() {
            *flow = Flow::default();
        }
        if segment.seq_len() == 0 {
            return;
        }
        let end = segment.seq.wrapping_add(segment.seq_len());
        let expected = flow.next.unwrap_or(segment.seq);
        if is_before(segment.seq, expected) {
            // Repeated, a keep-alive probe or a probe of a closed window: what waits and ends after its
            // beginning is not to be told apart from it.
            let before = flow.waiting.len();
            flow.waiting.retain(|&(end, _)| !is_before(segment.seq, end));
            self.delays.untimed += (before - flow.waiting.len()) as u64 + u64::from(timed);
        } else {
            flow.gap |= segment.seq != expected;
            if timed && !flow.gap && flow.waiting.len() < WAITING_MAX {
                flow.waiting.push_back((end, at_ns));
            } else {
                self.delays.untimed += u64::from(timed);
            }
        }
        flow.next = Some(later(flow.next, end));
    }

    #[inline]
    fn left(&mut self, key: &FlowKey, segment: &Segment, at_ns: u64) {
        if !segment.flags.ack() {
            return;
        }
        let Some(flow) = self.flows.get_mut(key) else { return };
        while let Some(&(end, arrived_ns)) = flow.waiting.front() {
            if is_before(segment.ack, end) {
                break;
            }
            flow.waiting.pop_front();
            if segment.seq_len() > 0 {
                self.delays.piggybacked += 1;
                continue;
            }
            let delay_ns = at_ns.saturating_sub(arrived_ns);
            self.delays.pure.record_ns(delay_ns);
            if delay_ns <= QUICK_NS {
                self.delays.quick += 1;
            } else {
                self.delays.delayed += 1;
            }
        }
        if flow.next.is_some_and(|next| !is_before(segment.ack, next)) {
            flow.gap = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use Direction::{ClientToServer as C, ServerToClient as S};

    use super::*;
    use crate::tcp::packet::Flags;

    const MS: u64 = 1_000_000;
    const ACK: Flags = Flags::ACK;

    /// Time in µs, direction, flags, sequence number, acknowledgment, payload.
    type Sent = (u64, Direction, Flags, u32, u32, u32);

    fn packet((_, direction, flags, seq, ack, payload): Sent, port: u16) -> Packet {
        let (client, server) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let (src, dst) = if direction == C { (client, server) } else { (server, client) };
        let (src_port, dst_port) = if direction == C { (port, 80) } else { (80, port) };
        let segment = Segment { src_port, dst_port, seq, ack, flags, payload, window: 512 };
        Packet { src, dst, ip_bytes: payload + 40, segment: Some(segment), header_bytes: 40 }
    }

    fn delays(sent: &[Sent]) -> AckDelays {
        let mut tracker = AckTracker::new();
        for &one in sent {
            tracker.observe(one.1, &packet(one, 4000), one.0 * 1_000);
        }
        tracker.delays().clone()
    }

    /// Quick, delayed, piggybacked, untimed.
    fn counts(delays: &AckDelays) -> [u64; 4] {
        assert_eq!(delays.pure.count(), delays.quick + delays.delayed);
        [delays.quick, delays.delayed, delays.piggybacked, delays.untimed]
    }

    #[test]
    fn write_write_read_shows_a_delayed_ack_and_one_on_the_answer() {
        let mut sent = vec![
            (0, C, Flags::SYN, 99, 0, 0),
            (1, S, Flags::SYN.with(ACK), 499, 100, 0),
            (2, C, ACK, 100, 500, 0),
        ];
        for n in 0..10 {
            let (at, seq, ack) = (u64::from(n) * 50_000 + 10, 100 + n * 20, 500 + n * 5);
            sent.extend([
                (at, C, ACK, seq, ack, 10),
                (at + 40_000, S, ACK, ack, seq + 10, 0),
                (at + 40_020, C, ACK, seq + 10, ack, 10),
                (at + 40_030, S, ACK, ack, seq + 20, 5),
            ]);
        }
        let delays = delays(&sent);
        assert_eq!(counts(&delays), [0, 10, 10, 0]);
        assert_eq!((delays.pure.min_ns(), delays.pure.max_ns()), (Some(40 * MS), Some(40 * MS)));
    }

    #[test]
    fn one_ack_answers_all_that_it_covers_each_from_its_own_arrival() {
        let delays = delays(&[
            (0, C, ACK, u32::MAX - 99, 1, 100),
            (200, C, ACK, 0, 1, 100),
            (500, C, ACK, 100, 1, 100),
            (600, S, ACK, 1, 100, 0),
            (2_000, S, ACK, 1, 200, 0),
        ]);
        assert_eq!(counts(&delays), [2, 1, 0, 0], "sequence numbers wrap at 0");
        let expected = Some((600.0 + 400.0 + 1_500.0) * 1e3 / 3.0);
        assert_eq!(delays.pure.mean_ns(), expected);
    }

    #[test]
    fn a_repeated_ack_and_a_probe_time_nothing() {
        let delays = delays(&[
            (0, C, ACK, 100, 1, 10),
            (5, S, ACK, 1, 110, 0),
            (9_000, S, ACK, 1, 110, 0),
            (10_000, C, ACK, 109, 1, 0), // keep-alive
            (20_000, S, ACK, 1, 110, 0),
            (30_000, C, ACK, 109, 1, 1), // with a byte of garbage
            (40_000, S, ACK, 1, 110, 0),
        ]);
        assert_eq!(counts(&delays), [1, 0, 0, 1]);
    }

    #[test]
    fn a_retransmitted_segment_is_not_timed_and_neither_is_what_it_repeats() {
        let delays = delays(&[
            (0, C, ACK, 100, 1, 10),
            (1, C, ACK, 110, 1, 10),
            (200_000, C, ACK, 110, 1, 10),
            (200_010, S, ACK, 1, 120, 0),
            (200_020, C, ACK, 120, 1, 10),
            (200_030, S, ACK, 1, 130, 0),
        ]);
        assert_eq!(counts(&delays), [1, 1, 0, 2], "the first arrived once, and so did the last");
    }

    #[test]
    fn nothing_is_timed_from_a_gap_until_all_is_acknowledged() {
        let delays = delays(&[
            (0, C, ACK, 100, 1, 10),
            (1, C, ACK, 120, 1, 10), // 110 is missing
            (2, S, ACK, 1, 110, 0),  // of the first
            (3, C, ACK, 130, 1, 10),
            (4, S, ACK, 1, 110, 0),
            (10_000, C, ACK, 110, 1, 10),
            (10_001, S, ACK, 1, 140, 0),
            (10_002, C, ACK, 140, 1, 10),
            (10_003, S, ACK, 1, 150, 0),
        ]);
        assert_eq!(counts(&delays), [2, 0, 0, 3]);
    }

    #[test]
    fn a_fin_rides_on_an_ack_and_a_reset_ends_what_waits() {
        let fin = ACK.with(Flags::FIN);
        let ends = delays(&[(0, C, ACK, 100, 1, 10), (3_000, S, fin, 1, 110, 0)]);
        assert_eq!(counts(&ends), [0, 0, 1, 0]);
        let rst = [(0, C, ACK, 100, 1, 10), (1, S, Flags::RST, 1, 0, 0), (2, S, ACK, 1, 110, 0)];
        assert_eq!(counts(&delays(&rst)), [0; 4]);
    }

    #[test]
    fn memory_is_bounded_by_segments_and_by_connections() {
        let many = WAITING_MAX as u32 + 7;
        let mut sent: Vec<Sent> =
            (0..many).map(|n| (u64::from(n), C, ACK, 100 + n, 1, 1)).collect();
        sent.push((1_000, S, ACK, 1, 100 + many, 0));
        assert_eq!(counts(&delays(&sent)), [WAITING_MAX as u64, 0, 0, 7]);

        let mut tracker = AckTracker::new();
        for port in 0..FLOWS_MAX as u16 + 3 {
            tracker.observe(C, &packet((0, C, ACK, 100, 1, 10), port), 0);
            tracker.observe(S, &packet((0, S, ACK, 1, 110, 0), port), 0);
        }
        assert_eq!(counts(tracker.delays()), [FLOWS_MAX as u64, 0, 0, 3]);
    }
}
