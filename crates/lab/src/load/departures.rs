//! When did each operation leave of those that were submitted in one call?
//!
//! Operations of one submission leave one after the other inside one system call, so what leaves is submitted
//! by a call of its own, and the time of that call is shared out among its operations. Stamps taken when they
//! were queued put 40 to 70 µs of the client's own delay into the median latency. The call costs 0.04 of the
//! CPU; an estimate from every 16th turn was off by up to 30 µs.
//!
//! A thread that is scheduled away in the middle makes the call last 2.6 to 8 ms in which nothing leaves, and
//! where in the middle is not known. Shared out over 20 requests, that time put the departure of 43 of
//! 130,000 requests after the arrival of their responses (latencies of 0; 0.02 to 0.33 % of all on a machine
//! with other work). So no more is shared out than such operations usually take, and the departure comes out
//! early rather than late.

use crate::load::driver::Left;

/// What operations cost the kernel when they are submitted, relative to each other: one after the
/// other they are done in the order in which they were queued.
pub(super) mod cost {
    pub(crate) const CONNECT: u32 = 16;
    pub(crate) const SEND: u32 = 5;
    pub(crate) const CLOSE: u32 = 6;
    pub(crate) const RECEIVE: u32 = 1;
    pub(crate) const PEEK: u32 = 1;
}

/// A handshake or bytes that leave.
#[derive(Clone, Copy, Debug)]
struct Departure {
    direct: u32,
    /// Cost of all operations before its middle.
    before: u32,
    is_handshake: bool,
}

/// What leaves with the submission of this turn.
#[derive(Debug, Default)]
pub(super) struct Departures {
    queued: Vec<Departure>,
    /// Of all operations queued so far.
    cost: u32,
    submission: Submission,
}

impl Departures {
    /// A handshake leaves.
    pub(super) fn handshake(&mut self, direct: u32) {
        self.leaves(direct, cost::CONNECT, true);
    }

    /// Bytes leave.
    pub(super) fn bytes(&mut self, direct: u32) {
        self.leaves(direct, cost::SEND, false);
    }

    fn leaves(&mut self, direct: u32, cost: u32, is_handshake: bool) {
        self.queued.push(Departure { direct, before: self.cost + cost / 2, is_handshake });
        self.cost += cost;
    }

    /// An operation is queued with which nothing leaves.
    pub(super) fn other(&mut self, cost: u32) {
        self.cost += cost;
    }

    /// Whether nothing leaves.
    pub(super) fn is_empty(&self) -> bool {
        self.queued.is_empty()
    }

    /// Forgets operations with which nothing has left.
    pub(super) fn clear(&mut self) {
        self.cost = 0;
    }

    /// How many leave.
    pub(super) fn len(&self) -> usize {
        self.queued.len()
    }

    /// The call that submitted all of it took this long: after how long of it each left, ns. The
    /// next submission begins.
    pub(super) fn submitted(&mut self, took_ns: u64) -> impl Iterator<Item = (u32, u64)> {
        let cost = std::mem::take(&mut self.cost);
        let spent_ns = self.submission.spent_ns(took_ns, cost);
        self.queued.drain(..).map(move |Departure { direct, before, is_handshake }| {
            // A handshake is not known to be done before the call returns: no answer to it can come
            // too early.
            let of_ns = if is_handshake { took_ns } else { spent_ns };
            (direct, of_ns * u64::from(before) / u64::from(cost.max(1)))
        })
    }
}

/// A call that took longer than this, times what is usual, was interrupted.
const USUAL_MAX: f64 = 1.5;

/// A longer call moves what is usual by this share of its excess, a shorter one by the other: the
/// usual stays near the fast calls.
const SLOWER: f64 = 1.0 / 64.0;
const FASTER: f64 = 1.0 / 8.0;

/// What a unit of cost usually takes.
#[derive(Clone, Copy, Debug, Default)]
struct Submission {
    usual_ns: f64,
}

impl Submission {
    /// Of a call that took `took_ns` for operations of this cost: what they themselves took, ns.
    fn spent_ns(&mut self, took_ns: u64, cost: u32) -> u64 {
        let cost = f64::from(cost.max(1));
        let unit_ns = took_ns as f64 / cost;
        if self.usual_ns == 0.0 {
            self.usual_ns = unit_ns;
        }
        let limit_ns = self.usual_ns * USUAL_MAX;
        let speed = if unit_ns < self.usual_ns { FASTER } else { SLOWER };
        self.usual_ns += (unit_ns.min(limit_ns) - self.usual_ns) * speed;
        if unit_ns > limit_ns { (self.usual_ns * cost) as u64 } else { took_ns }
    }
}

/// No slot, or no place.
pub(super) const NONE: u32 = u32::MAX;

/// What a place of the table holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Connecting,
    Open,
    /// Refused, closed by the peer or failed: nothing more is told.
    Over,
}

/// A socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingSocket {
    /// Whose; [`NONE`]: nobody's any more.
    pub(super) slot: u32,
    /// The turn of the last send.
    pub(super) sent_in: u32,
    pub(super) state: State,
    /// Operations that will complete: connect, receive, a long send.
    pub(super) under_way: u8,
    /// Sends and receives so far, up to 2.
    pub(super) sends: u8,
    pub(super) receives: u8,
    /// A receive is under way, or queued for the end of the turn.
    pub(super) receiving: bool,
    /// A send is under way that will be told of.
    pub(super) sending: bool,
    pub(super) wants_room: bool,
    /// When its last handshake or bytes were given to the kernel.
    pub(super) left: Left,
}

pub(super) const EMPTY: RingSocket = RingSocket {
    slot: NONE,
    sent_in: 0,
    state: State::Over,
    under_way: 0,
    sends: 0,
    receives: 0,
    receiving: false,
    sending: false,
    wants_room: false,
    left: Left { earliest_ns: 0, likely_ns: 0 },
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_leaves_when_half_of_its_own_share_is_done() {
        let mut departures = Departures::default();
        departures.other(cost::CLOSE);
        departures.bytes(7);
        departures.handshake(9);
        // 6, then 5, then 16 of 27; whole numbers.
        let left: Vec<_> = departures.submitted(27_000).collect();
        assert_eq!(left, [(7, 8_000), (9, 19_000)]);
        assert!(departures.is_empty());
    }

    #[test]
    fn a_call_that_was_interrupted_is_given_its_usual_time() {
        let mut submission = Submission::default();
        for _ in 0..100 {
            assert_eq!(submission.spent_ns(100_000, 100), 100_000);
        }
        assert_eq!(submission.spent_ns(130_000, 100), 130_000);
        let spent = submission.spent_ns(4_000_000, 100);
        assert!((100_000..110_000).contains(&spent), "{spent}");
    }

    #[test]
    fn a_first_call_that_was_interrupted_is_soon_forgotten() {
        let mut submission = Submission::default();
        submission.spent_ns(4_000_000, 100);
        for _ in 0..50 {
            submission.spent_ns(100_000, 100);
        }
        assert!(submission.spent_ns(4_000_000, 100) < 150_000);
    }
}
