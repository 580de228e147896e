//! Accept queues at the last looks: which of them never empties?
//!
//! A healthy server accepts within microseconds, so that nearly every look finds its queue empty. At an
//! acceptor that is busy for a part ρ of the time, a look finds *m* or more waiting with probability ρ^(m+1)
//! (M/M/1): at ρ = 0.8, ten looks in a row that find two or more have 0.8^30 = 0.1 %. So a queue that is
//! seen at each of ten looks belongs to an acceptor that is saturated.
//!
//! How long do clients wait in it? By Little's law, queue / accept rate. The kernel has no count of what a
//! listener accepted; what it established for all listeners of the namespace is an upper bound, so the time
//! is a lower one.

use std::collections::VecDeque;

use super::state::Standing;

/// Looks that are kept, at most.
const LOOKS: usize = 10;
/// Looks closer together than this are one, s: each second, and a bit of jitter.
const APART_S: f64 = 0.9;
/// A queue of this length or more is long.
const LONG: u32 = 10;

/// Whether a queue of this length is nearly full: more than 80 % of its limit. A queue of 1 is a connection
/// that came just now.
pub(super) fn is_nearly_full(len: u32, limit: u32) -> bool {
    limit > 0 && len > 1 && u64::from(len) * 5 > u64::from(limit) * 4
}

/// When the last looks were, the newest last, and what the kernel had established by then.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock {
    looks: VecDeque<(f64, Option<u64>)>,
}

impl Clock {
    /// Takes a look. Gives whether it counts: it is late enough after the one before.
    ///
    /// `established`: `TcpPassiveOpens` of the namespace.
    pub(super) fn tick(&mut self, at_s: f64, established: Option<u64>) -> bool {
        match self.looks.back() {
            // A clock that went back begins again; so does one that is no number.
            Some((last_s, _)) if at_s - last_s >= APART_S => {}
            Some((last_s, _)) if at_s >= *last_s => return false,
            Some(_) => self.looks.clear(),
            None => {}
        }
        if self.looks.len() == LOOKS {
            self.looks.pop_front();
        }
        self.looks.push_back((at_s, established));
        true
    }
}

/// One queue at the last looks: 48 bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Lengths {
    newest_first: [u32; LOOKS],
    looks: u8,
    long_looks: u32,
}

impl Lengths {
    /// Takes the length at a look that counts.
    pub(super) fn push(&mut self, len: u32) {
        self.newest_first.rotate_right(1);
        self.newest_first[0] = len;
        self.looks = self.looks.saturating_add(1).min(LOOKS as u8);
        self.long_looks = if len >= LONG { self.long_looks.saturating_add(1) } else { 0 };
    }

    /// What they show together since the queue was last seen empty; absent with less than two looks.
    pub(super) fn standing(&self, clock: &Clock, limit: u32) -> Option<Standing> {
        let known = usize::from(self.looks).min(clock.looks.len());
        let lengths = self.newest_first[..known].split(|len| *len == 0).next()?;
        let count = lengths.len();
        let (last, first) = (*lengths.first()?, *lengths.last()?);
        let shortest = lengths.iter().copied().min()?;
        let nearly_full = lengths.iter().filter(|len| is_nearly_full(**len, limit)).count();
        if count < 2 {
            return None;
        }
        let (from_s, before) = clock.looks[clock.looks.len() - count];
        let (to_s, after) = clock.looks[clock.looks.len() - 1];
        let established = before.zip(after).and_then(|(before, after)| after.checked_sub(before));
        // What came, and what waited at the beginning, was accepted or still waits. The counter is read some
        // ms after the queues.
        let came = established.map(|all| all + all / 100 + 2 + u64::from(first));
        let accepted = came.and_then(|came| came.checked_sub(last.into()));
        Some(Standing {
            looks: count as u32,
            over_s: to_s - from_s,
            shortest,
            longest: lengths.iter().copied().max()?,
            nearly_full: nearly_full as u32,
            first,
            last,
            accepted_at_most: accepted,
            long_looks: self.long_looks,
        })
    }
}

impl Standing {
    /// Whether the queue empties soon: at its pace within this time, s.
    pub(super) fn empties_within(&self, s: f64) -> bool {
        let falls_per_s = (f64::from(self.first) - f64::from(self.last)) / self.over_s;
        self.over_s > 0.0 && falls_per_s * s >= f64::from(self.last)
    }

    /// Time that each client waits in the queue, at least, s: Little's law. Absent where the counters do not
    /// say.
    pub(super) fn wait_at_least_s(&self) -> Option<f64> {
        let accepted = self.accepted_at_most? as f64;
        Some(f64::from(self.shortest) * self.over_s / accepted).filter(|s| s.is_finite())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(lengths: &[u32], established_per_look: u64, every_s: f64) -> Option<Standing> {
        let (mut clock, mut queue) = (Clock::default(), Lengths::default());
        for (at, len) in lengths.iter().enumerate() {
            if clock.tick(at as f64 * every_s, Some(at as u64 * established_per_look)) {
                queue.push(*len);
            }
        }
        queue.standing(&clock, 100)
    }

    #[test]
    fn looks_count_since_the_queue_was_last_empty() {
        assert_eq!(standing(&[3], 1, 1.0), None, "a single look");
        assert_eq!(standing(&[3, 4, 0, 4], 1, 1.0), None);
        assert_eq!(standing(&[3, 4, 0], 1, 1.0), None);
        assert_eq!(standing(&[9, 0, 3, 4], 1, 1.0).map(|one| (one.looks, one.first)), Some((2, 3)));
        assert_eq!(
            standing(&[3, 4, 2, 4], 1, 1.0).map(|one| (one.shortest, one.longest)),
            Some((2, 4))
        );
        assert_eq!(standing(&[101, 81, 80, 101], 1, 1.0).map(|one| one.nearly_full), Some(3));
    }

    #[test]
    fn the_last_ten_looks_that_are_a_second_apart_count() {
        let lengths: Vec<u32> = (1..=30).collect();
        let one = standing(&lengths, 5, 1.0).unwrap();
        assert_eq!((one.looks, one.first, one.last, one.long_looks), (10, 21, 30, 21));
        assert!((one.over_s - 9.0).abs() < 1e-9);
        let often = standing(&lengths, 5, 0.5).unwrap();
        assert_eq!((often.looks, often.first, often.last), (10, 11, 29), "each second");
    }

    #[test]
    fn the_wait_is_the_queue_over_the_accepts_and_what_joined_the_queue_was_not_accepted() {
        let even = standing(&[12; 10], 5, 1.0).unwrap();
        assert_eq!(even.accepted_at_most, Some(45 + 2));
        assert!((even.wait_at_least_s().unwrap() - 12.0 * 9.0 / 47.0).abs() < 1e-9);
        let growing = standing(&[2, 4, 6, 8], 2, 1.0).unwrap();
        assert_eq!(
            growing.accepted_at_most,
            Some(2),
            "nobody accepts: what the counter may be late by"
        );
        assert_eq!(growing.wait_at_least_s(), Some(3.0));
        let falling = standing(&[40, 30, 20], 1, 1.0).unwrap();
        assert_eq!(falling.accepted_at_most, Some(24));
        assert!(falling.empties_within(2.0) && !falling.empties_within(1.9));
        assert!(!even.empties_within(1e9) && !growing.empties_within(1e9));
    }

    #[test]
    fn counters_and_clocks_that_break_off_give_no_accepts() {
        let (mut clock, mut queue) = (Clock::default(), Lengths::default());
        for (at_s, established) in [(0.0, Some(9)), (1.0, Some(3)), (2.0, None)] {
            assert!(clock.tick(at_s, established));
            queue.push(5);
        }
        let one = queue.standing(&clock, 100).unwrap();
        assert_eq!((one.accepted_at_most, one.wait_at_least_s()), (None, None));
        assert!(clock.tick(1.0, Some(1)) && clock.looks.len() == 1, "the clock went back");
        assert_eq!(queue.standing(&clock, 100), None);
        assert!(clock.tick(f64::NAN, None) && clock.tick(3.0, None));
        assert_eq!(clock.looks.len(), 1);
    }
}
