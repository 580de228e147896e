//! When is each operation of an open loop due?
//!
//! Known before anything is sent, so that a late server cannot slow the schedule down: latency
//! counts from these instants.

use rand_core::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use crate::study::generator;

/// How operations are spread over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Spread {
    /// Evenly.
    #[default]
    Constant,
    /// With exponential gaps: as independent users would (a Poisson process).
    Poisson,
}

/// Instants in ns since the beginning, ascending, without end.
#[derive(Clone, Debug)]
pub struct Arrivals(Schedule);

#[derive(Clone, Debug)]
enum Schedule {
    /// Operation number `next` of the whole comes next, and every `step`-th after it.
    Constant { rate_per_s: f64, next: u64, step: u64 },
    /// The next instant, and what draws the gaps after it.
    Poisson { mean_gap_ns: f64, next_ns: f64, random: Xoshiro256PlusPlus },
}

impl Arrivals {
    /// `rate_per_s` above 0; `part` of `parts` threads that share it: thread k of n gets every n-th
    /// operation of a constant schedule, and a schedule of its own of 1/n of the rate of a Poisson
    /// one.
    ///
    /// The same for the same arguments. The first operation of a constant schedule is due at 0,
    /// that of a Poisson one after a gap.
    ///
    /// Panics: with a rate that is not above 0, or a part that is not below `parts`.
    pub fn new(spread: Spread, rate_per_s: f64, seed: u64, part: u64, parts: u64) -> Self {
        assert!(rate_per_s > 0.0 && part < parts, "part {part} of {parts}, {rate_per_s}/s");
        Self(match spread {
            Spread::Constant => Schedule::Constant { rate_per_s, next: part, step: parts },
            Spread::Poisson => {
                let mean_gap_ns = 1e9 / rate_per_s * parts as f64;
                let mut random = generator(seed, [part, parts, u64::MAX]);
                let next_ns = exponential(&mut random, mean_gap_ns);
                Schedule::Poisson { mean_gap_ns, next_ns, random }
            }
        })
    }

    /// When the next operation is due, without taking it.
    #[inline]
    pub fn peek(&self) -> u64 {
        match &self.0 {
            Schedule::Constant { rate_per_s, next, .. } => due(*next, *rate_per_s),
            Schedule::Poisson { next_ns, .. } => *next_ns as u64,
        }
    }

    /// Goes on to the one after; returns when the one it takes is due.
    ///
    /// Cost: a multiplication and a division, or a logarithm.
    #[inline]
    pub fn take(&mut self) -> u64 {
        let taken = self.peek();
        match &mut self.0 {
            Schedule::Constant { next, step, .. } => *next = next.saturating_add(*step),
            Schedule::Poisson { mean_gap_ns, next_ns, random } => {
                *next_ns += exponential(random, *mean_gap_ns);
            }
        }
        taken
    }
}

/// When operation `number` of an even schedule is due, ns.
///
/// From its number and not from the one before, so that no error adds up: rounding leaves at most
/// 1 ns in the first 50 days.
#[inline]
fn due(number: u64, rate_per_s: f64) -> u64 {
    (number as f64 * 1e9 / rate_per_s).round() as u64
}

/// An exponential gap.
#[inline]
pub(crate) fn exponential(random: &mut Xoshiro256PlusPlus, mean_ns: f64) -> f64 {
    -even(random).ln() * mean_ns
}

/// Even over 0 to 1, without 0.
#[inline]
pub(crate) fn even(random: &mut Xoshiro256PlusPlus) -> f64 {
    ((random.next_u64() >> 11) + 1) as f64 / 2f64.powi(53)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn constant(rate_per_s: f64, part: u64, parts: u64) -> Arrivals {
        Arrivals::new(Spread::Constant, rate_per_s, 1, part, parts)
    }

    fn poisson(rate_per_s: f64, seed: u64, part: u64, parts: u64) -> Arrivals {
        Arrivals::new(Spread::Poisson, rate_per_s, seed, part, parts)
    }

    fn first(mut arrivals: Arrivals, count: usize) -> Vec<u64> {
        (0..count).map(|_| arrivals.take()).collect()
    }

    #[test]
    fn ten_million_operations_of_an_even_schedule_have_not_drifted() {
        let mut arrivals = constant(3.0, 0, 1);
        assert_eq!(first(arrivals.clone(), 4), [0, 333_333_333, 666_666_667, 1_000_000_000]);
        for _ in 0..10_000_000 {
            arrivals.take();
        }
        // 10^7 / 3 s = 3,333,333.3 s: 38 days.
        assert!(arrivals.peek().abs_diff(3_333_333_333_333_333) <= 1, "{}", arrivals.peek());
    }

    #[test]
    fn parts_of_an_even_schedule_are_the_whole_in_turn() {
        let whole = first(constant(7_777.0, 0, 1), 300);
        let mut parts: Vec<Arrivals> = (0..3).map(|part| constant(7_777.0, part, 3)).collect();
        let turns: Vec<u64> = (0..300).map(|turn| parts[turn % 3].take()).collect();
        assert_eq!(turns, whole);
    }

    #[test]
    fn gaps_of_a_poisson_process_have_mean_and_deviation_of_the_rate() {
        let count = 200_000;
        let instants = first(poisson(1_000.0, 7, 0, 1), count);
        assert!(instants.is_sorted());
        let gaps: Vec<f64> = instants.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // 1 ms each; standard errors of 1/sqrt(n) = 0.22 % and sqrt(8/n) = 0.63 %, four of them.
        assert!((mean / 1e6 - 1.0).abs() < 0.009, "{mean}");
        assert!((variance / 1e12 - 1.0).abs() < 0.025, "{variance}");
        // exp(-1) of the gaps are above the mean.
        let above = gaps.iter().filter(|gap| **gap > 1e6).count() as f64 / gaps.len() as f64;
        assert!((above - (-1_f64).exp()).abs() < 0.005, "{above}");
    }

    #[test]
    fn parts_of_a_poisson_process_share_its_rate_and_nothing_else() {
        let second = 1_000_000_000;
        let due_in_ten_seconds = |part| {
            let mut arrivals = poisson(10_000.0, 7, part, 4);
            std::iter::repeat_with(|| arrivals.take()).take_while(|due| *due < 10 * second).count()
        };
        let counts: Vec<usize> = (0..4).map(due_in_ten_seconds).collect();
        // 25,000 expected with a standard deviation of 158.
        assert!(counts.iter().all(|count| (24_300..25_700).contains(count)), "{counts:?}");
        let beginnings: Vec<Vec<u64>> =
            (0..4).map(|part| first(poisson(10_000.0, 7, part, 4), 10)).collect();
        for part in 1..4 {
            assert_ne!(beginnings[0], beginnings[part]);
        }
    }

    #[test]
    fn the_seed_gives_a_poisson_schedule_again_and_another_gives_another() {
        let schedule = |seed| first(poisson(500.0, seed, 1, 2), 100);
        assert_eq!(schedule(7), schedule(7));
        assert_ne!(schedule(7), schedule(8));
    }

    proptest! {
        #[test]
        fn what_is_taken_is_what_was_next_and_never_goes_back(
            rate_per_s in 0.1..5_000.0_f64,
            poisson: bool,
            (part, parts) in (1_u64..5).prop_flat_map(|parts| (0..parts, Just(parts))),
        ) {
            let spread = if poisson { Spread::Poisson } else { Spread::Constant };
            let mut arrivals = Arrivals::new(spread, rate_per_s, 3, part, parts);
            let mut last = 0;
            for _ in 0..100 {
                let next = arrivals.peek();
                prop_assert!(next >= last);
                last = arrivals.take();
                prop_assert_eq!(last, next);
            }
        }
    }
}
