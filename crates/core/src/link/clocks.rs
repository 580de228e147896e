//! How long before a release must the link's wait end, when did a packet arrive that ended one, and
//! how far are the clocks of two hosts apart?
//!
//! Every time is an argument, in ns. A thread that sleeps wakes late, and the later the longer
//! it slept: on a virtual machine with Linux 6.18, 16 µs after 0.1 ms, 27 µs after 1 ms and 60 to
//! 75 µs after 5 ms and more (medians, timer without slack). So the link learns how late it wakes by
//! the length of the sleep, asks to be woken that much earlier, and spins the rest ([`Wakeups`]).
//!
//! Clocks are compared by messages that were stamped at both ends ([`Exchange`]; RFC 5905, section 8). A
//! message leaves the client at `t1` of its clock, reaches the server at `t2` of the server's, leaves it at
//! `t3`, and is back at `t4`. Nothing is assumed about how the round trip divides into its two ways, so half of
//! it bounds the error.

use serde::{Deserialize, Serialize};

/// Sleeps shorter than this are of the first class; each further class is four times as long.
const FIRST_CLASS_NS: u64 = 64_000;

/// The last class has every sleep above 65 ms.
const CLASSES: usize = 7;

/// Nothing is known yet: a little above the median of long sleeps.
const START_NS: u64 = 80_000;

/// The lead follows the lateness that this share of wake-ups does not pass: 90 %.
const PART: u64 = 10;

/// A wake-up that is later than this is no property of the machine but of other work on it. Leaving
/// earlier for its sake would spin for nothing most of the time, and keep the CPU from a host.
const LEAD_MAX_NS: u64 = 200_000;

/// After a long sleep the virtual CPU itself has to be woken, which takes up to 1 ms (of 10 ms, one of ten
/// wake-ups took longer than 0.4 ms): there the lead may be this share of the sleep, 5 %, which is all
/// that spinning then costs …
const LEAD_SHARE: u64 = 20;

/// … and at most this.
const LONG_LEAD_MAX_NS: u64 = 2_000_000;

/// A thread that was given the CPU for longer than this, by one `sched_yield`, is other work: a host
/// takes tens of µs for a packet.
const YIELD_MAX_NS: u64 = 500_000;

/// After such a yield there is none for so long.
const NO_YIELD_NS: u64 = 100_000_000;

/// A wake-up takes at least about this, so a shorter sleep than this ends too late.
const SLEEP_MIN_NS: u64 = 10_000;

/// Of each such window …
const WINDOW_NS: u64 = 10_000_000;

/// … at most this is spun: about a third of a CPU.
const SPIN_SHARE_NS: u64 = 3_500_000;

/// How the link is to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Look at the devices without sleeping.
    Spin,
    /// Sleep until this moment.
    Sleep {
        /// When to be woken, ns on the clock of `now_ns`.
        until_ns: u64,
        /// The time to the release, by which the wake-up is learned, ns.
        left_ns: u64,
    },
}

/// How late wake-ups are, by the length of the sleep, and how much was spun.
#[derive(Clone, Debug)]
pub struct Wakeups {
    /// Lateness that nine of ten wake-ups do not pass, ns.
    late_ns: [u64; CLASSES],
    /// Wake-ups seen.
    seen: [u64; CLASSES],
    window_ns: u64,
    spun_ns: u64,
    no_yield_until_ns: u64,
}

impl Default for Wakeups {
    fn default() -> Self {
        Self::new()
    }
}

impl Wakeups {
    /// Nothing learned yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            late_ns: [START_NS; CLASSES],
            seen: [0; CLASSES],
            window_ns: 0,
            spun_ns: 0,
            no_yield_until_ns: 0,
        }
    }

    /// How to wait for what is due at `due_ns`.
    ///
    /// Once the share of spinning is used up, sleeps last until the release is due, and it is late by
    /// the wake-up.
    pub fn plan(&mut self, now_ns: u64, due_ns: u64) -> Wait {
        if now_ns >= self.window_ns + WINDOW_NS {
            (self.window_ns, self.spun_ns) = (now_ns, 0);
        }
        let left_ns = due_ns.saturating_sub(now_ns);
        if self.spun_ns > SPIN_SHARE_NS {
            return Wait::Sleep { until_ns: due_ns, left_ns };
        }
        let lead_ns = self.lead_ns(left_ns);
        if left_ns <= lead_ns + SLEEP_MIN_NS {
            return Wait::Spin;
        }
        Wait::Sleep { until_ns: due_ns - lead_ns, left_ns }
    }

    /// How much earlier than a release to be woken, after a sleep of about this length.
    fn lead_ns(&self, left_ns: u64) -> u64 {
        self.late_ns[class(left_ns)].min(lead_max_ns(left_ns))
    }

    /// Learns that a wait for something due after `left_ns` ended `late_ns` after its timer.
    ///
    /// A quantile by sign alone: each later wake-up moves it up by nine steps, each earlier one
    /// down by one, so that one stall of milliseconds counts as one late wake-up and no more. The
    /// first steps are large: a run over a long link has but a few long sleeps.
    pub fn woke(&mut self, left_ns: u64, late_ns: u64) {
        let class = class(left_ns);
        let known = &mut self.late_ns[class];
        let step = *known / (8 + self.seen[class]).min(64) + 50;
        self.seen[class] += 1;
        *known = if late_ns > *known {
            (*known + step * (PART - 1)).min(lead_max_ns(left_ns))
        } else {
            known.saturating_sub(step).max(1_000)
        };
    }

    /// Whether to give way to a host that a packet has woken, on the same CPU.
    ///
    /// Next to a thread that never sleeps, each yield before a release made it 2 to 4 ms late (Linux
    /// 6.18, 250 ticks a second), and without one 0.2 µs in three of four.
    #[must_use]
    pub fn may_yield(&self, now_ns: u64) -> bool {
        now_ns >= self.no_yield_until_ns
    }

    /// Learns what a yield took that ended at `now_ns`.
    pub fn yielded(&mut self, now_ns: u64, took_ns: u64) {
        if took_ns > YIELD_MAX_NS {
            self.no_yield_until_ns = now_ns + NO_YIELD_NS;
        }
    }

    /// Charges time that was spent without sleeping, ns.
    pub fn spun(&mut self, ns: u64) {
        self.spun_ns += ns;
    }
}

/// The longest lead before a release that is this far away.
fn lead_max_ns(left_ns: u64) -> u64 {
    (left_ns / LEAD_SHARE).clamp(LEAD_MAX_NS, LONG_LEAD_MAX_NS)
}

fn class(length_ns: u64) -> usize {
    let quarters = length_ns / FIRST_CLASS_NS;
    let class = if quarters == 0 { 0 } else { 1 + quarters.ilog2() as usize / 2 };
    class.min(CLASSES - 1)
}

/// When a packet entered that was read at `read_ns`, by a wait that slept from `began_ns` on.
///
/// `early_ns` is how long waking up takes, as the calibration found it. The packet ended the wait, so
/// it did not arrive before the wait began; if it did, it has only waited longer. So a packet is
/// never taken to have entered more than `early_ns` before it did.
#[must_use]
pub fn entered_ns(read_ns: u64, early_ns: u64, began_ns: u64) -> u64 {
    read_ns.saturating_sub(early_ns).max(began_ns.min(read_ns))
}

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
pub fn best_offset(exchanges: &[Exchange]) -> Option<Offset> {
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

    const MS: u64 = 1_000_000;

    /// Wake-ups of this lateness, in turn.
    fn learned(left_ns: u64, late_ns: &[u64]) -> Wakeups {
        let mut wakeups = Wakeups::new();
        for &late in late_ns.iter().cycle().take(400) {
            wakeups.woke(left_ns, late);
        }
        wakeups
    }

    fn lead(wakeups: &mut Wakeups, left_ns: u64) -> u64 {
        match wakeups.plan(MS, MS + left_ns) {
            Wait::Sleep { until_ns, .. } => MS + left_ns - until_ns,
            Wait::Spin => left_ns,
        }
    }

    #[test]
    fn classes_are_powers_of_four_of_the_length() {
        let classes =
            [0, 63_999, 64_000, 255_999, 256_000, 2 * MS, 5 * MS, 17 * MS, 70 * MS, 60_000 * MS];
        assert_eq!(classes.map(class), [0, 0, 1, 1, 2, 3, 4, 5, 6, 6]);
    }

    #[test]
    fn the_lead_becomes_what_nine_of_ten_wake_ups_need() {
        // Nine of ten 150 µs late, the tenth 5 ms: a stall is not waited for.
        let mut late = [150_000; 10];
        late[9] = 5 * MS;
        let mut wakeups = learned(100 * MS, &late);
        let of_long = lead(&mut wakeups, 100 * MS);
        assert!((140_000..200_000).contains(&of_long), "{of_long}");
        // From above as well, and other lengths are left alone.
        let mut wakeups = learned(MS, &[15_000, 20_000, 18_000]);
        let of_short = lead(&mut wakeups, MS);
        assert!((17_000..23_000).contains(&of_short), "{of_short}");
        assert_eq!(lead(&mut wakeups, 100 * MS), START_NS);
    }

    #[test]
    fn a_few_long_sleeps_are_enough() {
        let mut wakeups = Wakeups::new();
        for _ in 0..4 {
            wakeups.woke(100 * MS, 200_000);
        }
        assert!(lead(&mut wakeups, 100 * MS) >= 200_000);
    }

    #[test]
    fn a_machine_that_always_wakes_late_does_not_make_the_link_spin_for_ever() {
        let mut wakeups = learned(2 * MS, &[4 * MS]);
        assert_eq!(lead(&mut wakeups, 2 * MS), LEAD_MAX_NS);
        // Of a long sleep a twentieth, and never more than its maximum.
        let mut wakeups = learned(10 * MS, &[4 * MS]);
        assert_eq!(lead(&mut wakeups, 10 * MS), 10 * MS / LEAD_SHARE);
        let mut wakeups = learned(100 * MS, &[4 * MS]);
        assert_eq!(lead(&mut wakeups, 100 * MS), LONG_LEAD_MAX_NS);
    }

    #[test]
    fn the_last_stretch_is_spun_until_the_share_of_the_window_is_used_up() {
        let mut wakeups = Wakeups::new();
        assert_eq!(wakeups.plan(MS, MS + START_NS), Wait::Spin);
        wakeups.spun(SPIN_SHARE_NS + 1);
        let due_ns = 2 * MS + 50_000;
        assert_eq!(wakeups.plan(2 * MS, due_ns), Wait::Sleep { until_ns: due_ns, left_ns: 50_000 });
        // The next window has its own share.
        assert_eq!(wakeups.plan(12 * MS, 12 * MS + START_NS), Wait::Spin);
    }

    #[test]
    fn a_yield_that_other_work_takes_is_not_repeated_for_a_while() {
        let mut wakeups = Wakeups::new();
        wakeups.yielded(MS, 40_000);
        assert!(wakeups.may_yield(MS), "a host took it");
        wakeups.yielded(5 * MS, 4 * MS);
        assert!(!wakeups.may_yield(5 * MS) && !wakeups.may_yield(104 * MS));
        assert!(wakeups.may_yield(105 * MS));
    }

    #[test]
    fn what_is_due_already_is_not_slept_for() {
        assert_eq!(Wakeups::new().plan(5 * MS, 4 * MS), Wait::Spin);
    }

    proptest! {
        #[test]
        fn no_packet_enters_earlier_than_it_arrived_by_more_than_the_bound(
            began_ns in 0_u64..10 * MS,
            arrived_ns in 0_u64..10 * MS,
            waited_ns in 0_u64..2 * MS,
            early_ns in 0_u64..200_000,
        ) {
            let read_ns = arrived_ns.max(began_ns) + waited_ns;
            let entered = entered_ns(read_ns, early_ns, began_ns);
            prop_assert!(entered <= read_ns);
            prop_assert!(entered + early_ns >= arrived_ns);
            // A wait that has just begun leaves no room for the calibration.
            prop_assert!(entered >= began_ns);
        }

        #[test]
        fn a_plan_never_sleeps_past_what_is_due(
            now_ns in 0_u64..100 * MS,
            left_ns in 0_u64..300 * MS,
            late in prop::collection::vec((0_u64..300 * MS, 0_u64..10 * MS), 0..50),
            spun in 0_u64..5 * MS,
        ) {
            let mut wakeups = Wakeups::new();
            for (left, late) in late {
                wakeups.woke(left, late);
            }
            wakeups.plan(now_ns, now_ns);
            wakeups.spun(spun);
            if let Wait::Sleep { until_ns, left_ns: sleep_ns } = wakeups.plan(now_ns, now_ns + left_ns) {
                prop_assert!(until_ns <= now_ns + left_ns && until_ns >= now_ns);
                prop_assert!(until_ns + lead_max_ns(left_ns) >= now_ns + left_ns);
                prop_assert_eq!(sleep_ns, left_ns);
            }
        }
    }

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
            best_offset(&[exchange(1_000, 900, 10, 100), exact, exchange(1_000, 60, 10, 50)])
                .unwrap();
        assert_eq!((found.ns, found.bound_ns), (1_000, 50));
        assert_eq!(best_offset(&[]), None);
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
