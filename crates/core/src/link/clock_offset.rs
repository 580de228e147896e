//! How far two clocks are apart, from messages that were stamped at both ends (RFC 5905, section 8).
//!
//! A message leaves the client at `t1` of its clock, reaches the server at `t2` of the server's, leaves it at
//! `t3`, and is back at `t4`. Nothing is assumed about how the round trip divides into its two ways, so half of
//! it bounds the error.

use serde::{Deserialize, Serialize};

/// One message there and back, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchange {
    /// Left the client, by the client's clock.
    pub t1: u64,
    /// Reached the server, by the server's clock.
    pub t2: u64,
    /// Left the server, by the server's clock.
    pub t3: u64,
    /// Back at the client, by the client's clock.
    pub t4: u64,
}

/// How far the server's clock is ahead of the client's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offset {
    /// The server's clock less the client's, ns.
    pub ns: i64,
    /// The error is at most this, ns.
    pub bound_ns: u64,
    /// When, by the client's clock, ns.
    pub at_ns: u64,
}

impl Exchange {
    /// Time on the way, there and back, ns. None: a clock has jumped, or the stamps are made up.
    pub fn round_trip_ns(&self) -> Option<u64> {
        let away = self.t4.checked_sub(self.t1)?;
        away.checked_sub(self.t3.checked_sub(self.t2)?)
    }

    /// What it tells of the clocks. None: as [`Self::round_trip_ns`], or too far apart for 64 bits.
    pub fn offset(&self) -> Option<Offset> {
        let round_trip = self.round_trip_ns()?;
        let there = i128::from(self.t2) - i128::from(self.t1);
        let back = i128::from(self.t3) - i128::from(self.t4);
        Some(Offset {
            ns: i64::try_from(i128::midpoint(there, back)).ok()?,
            bound_ns: round_trip.div_ceil(2),
            at_ns: self.t1 + (self.t4 - self.t1) / 2,
        })
    }
}

/// The offset with the smallest bound: that of the message with the shortest round trip.
///
/// None: no message came back, or none can be used.
pub fn best(exchanges: &[Exchange]) -> Option<Offset> {
    exchanges.iter().filter_map(Exchange::offset).min_by_key(|offset| offset.bound_ns)
}

/// How much faster the server's clock runs, from an offset before and one after, ppm; and the error, ppm.
///
/// None: there is no time between them.
pub fn drift_ppm(before: Offset, after: Offset) -> Option<(f64, f64)> {
    let between = after.at_ns.checked_sub(before.at_ns).filter(|&ns| ns > 0)? as f64;
    let gained = (i128::from(after.ns) - i128::from(before.ns)) as f64;
    let error = (before.bound_ns + after.bound_ns) as f64;
    Some((gained / between * 1e6, error / between * 1e6))
}

/// Within what instants of both clocks compare between two offsets, ns, where the server's clock has been
/// set by the first: its error, or what it has drifted to with the error of the second.
pub fn bound_between(before: Offset, after: Offset) -> u64 {
    let moved = after.ns.abs_diff(before.ns);
    before.bound_ns.max(moved.saturating_add(after.bound_ns))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A message over ways of these lengths, between clocks of which the server's is ahead by `offset`.
    fn exchange(offset: i64, there: u64, answering: u64, back: u64) -> Exchange {
        let t1 = 1_000_000_000_000;
        let at_server = |t: u64| (t as i64 + offset) as u64;
        let t2 = at_server(t1 + there);
        let t3 = t2 + answering;
        Exchange { t1, t2, t3, t4: t1 + there + answering + back }
    }

    proptest! {
        #[test]
        fn the_error_is_never_above_its_bound(
            offset in -900_000_000_000_i64..900_000_000_000,
            there in 0_u64..1_000_000_000,
            answering in 0_u64..1_000_000_000,
            back in 0_u64..1_000_000_000,
        ) {
            let found = exchange(offset, there, answering, back).offset().unwrap();
            prop_assert!((found.ns - offset).unsigned_abs() <= found.bound_ns, "{found:?}");
        }

        #[test]
        fn stamps_that_somebody_made_up_break_nothing(t1: u64, t2: u64, t3: u64, t4: u64) {
            let _ = Exchange { t1, t2, t3, t4 }.offset();
        }
    }

    #[test]
    fn equal_ways_give_the_offset_exactly_and_the_shortest_is_taken() {
        let exact = exchange(1_000, 50, 10, 50);
        let found =
            best(&[exchange(1_000, 900, 10, 100), exact, exchange(1_000, 60, 10, 50)]).unwrap();
        assert_eq!((found.ns, found.bound_ns), (1_000, 50));
        assert_eq!(best(&[]), None);
    }

    #[test]
    fn a_clock_that_jumped_back_gives_no_offset() {
        assert_eq!(Exchange { t1: 10, t2: 5, t3: 4, t4: 20 }.offset(), None);
        assert_eq!(Exchange { t1: 10, t2: 5, t3: 30, t4: 20 }.offset(), None);
    }

    #[test]
    fn instants_between_two_offsets_compare_within_the_error_and_the_drift() {
        let at = |ns, bound_ns| Offset { ns, bound_ns, at_ns: 0 };
        assert_eq!(bound_between(at(0, 700), at(0, 500)), 700);
        assert_eq!(bound_between(at(0, 700), at(-900, 500)), 1_400);
        assert_eq!(bound_between(at(i64::MIN, 0), at(i64::MAX, u64::MAX)), u64::MAX);
    }

    #[test]
    fn drift_is_what_was_gained_per_time_with_its_error() {
        let at = |ns, at_ns| Offset { ns, bound_ns: 500, at_ns };
        let (ppm, error) = drift_ppm(at(0, 0), at(20_000, 1_000_000_000)).unwrap();
        assert!((ppm - 20.0).abs() < 1e-9 && (error - 1.0).abs() < 1e-9, "{ppm} {error}");
        assert_eq!(drift_ppm(at(0, 5), at(0, 5)), None);
    }
}
