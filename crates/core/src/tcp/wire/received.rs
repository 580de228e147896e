//! Which bytes of a connection a receiver has, and how long it keeps some back for others that miss.

use serde::{Deserialize, Serialize};

use crate::tcp::packet::Segment;
use crate::tcp::wire::is_before;

/// Data from the server that had arrived and that the client's kernel kept back, because an earlier segment
/// of the same connection was missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeadOfLine {
    /// Holes that data waited behind.
    pub gaps: u64,
    /// Payload that waited, bytes.
    pub held_bytes: u64,
    /// Time during which data waited, summed over connections, ns. Two holes at one time count once.
    pub held_ns: u64,
}

/// Ranges beyond the first hole that are remembered. What does not fit is taken for not received yet,
/// so that its repeat counts as new.
const RANGES_MAX: usize = 64;

/// What arrived.
#[derive(Clone, Debug, Default)]
pub(super) struct Received {
    /// One past what arrived without a hole. None: nothing has.
    next: Option<u32>,
    /// Beyond the first hole: begin and end, ascending, apart from each other.
    held: Vec<(u32, u32)>,
    /// Since when something has been kept back, ns.
    since_ns: Option<u64>,
}

impl Received {
    /// Takes a segment; gives its new payload bytes.
    #[inline]
    pub(super) fn take(&mut self, segment: &Segment, at_ns: u64, counts: &mut HeadOfLine) -> u64 {
        let first = segment.seq.wrapping_add(u32::from(segment.flags.syn()));
        let end = first.wrapping_add(segment.payload);
        // A SYN-ACK says where the data begins; else the first segment seen does.
        if segment.flags.syn() {
            if self.next.is_none() || self.held.is_empty() {
                self.next = Some(self.next.filter(|&next| is_before(first, next)).unwrap_or(first));
            }
            return 0;
        }
        if segment.payload == 0 {
            return 0;
        }
        let next = *self.next.get_or_insert(first);
        let first = if is_before(first, next) { next } else { first };
        if !is_before(first, end) {
            return 0;
        }
        if first == next {
            return self.advance(next, end, at_ns, counts);
        }
        let new = self.hold(first, end);
        if new > 0 {
            counts.held_bytes += new;
            if self.since_ns.is_none() {
                self.since_ns = Some(at_ns);
                counts.gaps += 1;
            }
        }
        new
    }

    /// What was in order goes on to `end`, and over all that it meets.
    #[inline]
    fn advance(&mut self, next: u32, end: u32, at_ns: u64, counts: &mut HeadOfLine) -> u64 {
        let mut new = u64::from(end.wrapping_sub(next));
        let mut reached = end;
        let met = self.held.iter().take_while(|(begin, _)| !is_before(end, *begin)).count();
        for (begin, to) in self.held.drain(..met) {
            // The overlap was counted when it was held.
            let overlap_end = if is_before(end, to) { end } else { to };
            new -= u64::from(overlap_end.wrapping_sub(begin));
            if is_before(reached, to) {
                reached = to;
            }
        }
        self.next = Some(reached);
        if let Some(since_ns) = self.since_ns {
            if self.held.is_empty() {
                counts.held_ns += at_ns.saturating_sub(since_ns);
                self.since_ns = None;
            } else if met > 0 {
                // Data that was held is free, and the rest waits for another hole.
                counts.gaps += 1;
            }
        }
        new
    }

    /// Keeps a range beyond the first hole; gives how many of its bytes are new.
    #[inline]
    fn hold(&mut self, first: u32, end: u32) -> u64 {
        let from = self.held.iter().take_while(|(_, to)| is_before(*to, first)).count();
        let met = self.held[from..].iter().take_while(|(begin, _)| !is_before(end, *begin)).count();
        let mut new = u64::from(end.wrapping_sub(first));
        let (mut begin, mut to) = (first, end);
        for &(one, other) in &self.held[from..from + met] {
            let low = if is_before(one, first) { first } else { one };
            let high = if is_before(end, other) { end } else { other };
            new -= u64::from(high.wrapping_sub(low));
            begin = if is_before(one, begin) { one } else { begin };
            to = if is_before(to, other) { other } else { to };
        }
        if met == 0 && self.held.len() >= RANGES_MAX {
            return 0;
        }
        self.held.splice(from..from + met, [(begin, to)]);
        new
    }

    /// Ends the time that is counted so far; what is held on counts from here.
    #[inline]
    pub(super) fn pause(&mut self, at_ns: u64, counts: &mut HeadOfLine) {
        if let Some(since_ns) = &mut self.since_ns {
            counts.held_ns += at_ns.saturating_sub(*since_ns);
            *since_ns = at_ns.max(*since_ns);
        }
    }
}
