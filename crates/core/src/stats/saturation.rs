//! Was more asked of a server, or of the connections to it, than they can do?
//!
//! An open loop sends on a schedule. Where more is due than is answered, the requests that wait
//! become more for as long as the load lasts, and so does the time that each of them takes. That
//! is what tells saturation from a slow server, whose requests take long and equally long. A queue
//! that is bounded by a time limit stops growing; there the requests that were given up unsent
//! tell it.
//!
//! Pure: times come in as arguments. [`Aging`] collects, [`saturation`] judges.
//!
//! A backlog or a share of waiting requests does not tell it: a slow server with enough connections has both
//! without being overloaded. The medians of the window's quarters are compared, so that one stall is no
//! saturation.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::stats::Histogram;

/// Parts of the window whose ages are compared.
const PARTS: usize = 4;

/// A growth of this share of the window between its first and its last quarter is saturation.
///
/// At a load of ρ times the capacity the age of a request grows by (ρ − 1) of the time, and the
/// middles of the two quarters are ¾ of the window apart: 3.75 % of the window at ρ = 1.05, and
/// nothing below 1.
const GROWTH_SHARE: f64 = 0.02;

/// It grows by this share at least from the first to the third quarter, and from there to the last.
const STEP_SHARE: f64 = 0.0025;

/// A growth below this share of the age itself is noise of the server.
const GROWTH_OF_AGE: f64 = 0.1;

/// Requests that were due, below which nothing is said.
const DUE_MIN: u64 = 20;

/// A share of requests given up unsent above this is saturation.
const UNSENT_SHARE: f64 = 0.02;

/// How old requests were when they ended, by when they were due: a distribution for each quarter of
/// the window.
#[derive(Clone, Debug)]
pub struct Aging {
    window_ns: u64,
    ages: [Histogram; PARTS],
}

impl Aging {
    /// Of a window of this length, ns.
    pub fn new(window_ns: u64) -> Self {
        Self { window_ns, ages: std::array::from_fn(|_| Histogram::new()) }
    }

    /// A request that was due `since_ns` after the window began has ended `age_ns` later: answered,
    /// or given up. What was due outside of the window does not count.
    pub fn observe(&mut self, since_ns: u64, age_ns: u64) {
        if since_ns >= self.window_ns {
            return;
        }
        let part = (u128::from(since_ns) * PARTS as u128 / u128::from(self.window_ns)) as usize;
        self.ages[part].record_ns(age_ns);
    }

    /// Adds what another thread saw of the same window.
    pub fn merge(&mut self, other: &Self) {
        self.window_ns = self.window_ns.max(other.window_ns);
        for (ours, theirs) in self.ages.iter_mut().zip(&other.ages) {
            ours.merge(theirs);
        }
    }

    /// The median of each quarter.
    pub fn medians(&self) -> Ages {
        let quarters_ns = self.ages.each_ref().map(|ages| ages.quantile_ns(1, 2));
        Ages { window_ns: self.window_ns, quarters_ns }
    }
}

/// The median age of the requests of each quarter of the window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ages {
    window_ns: u64,
    quarters_ns: [Option<u64>; PARTS],
}

impl Ages {
    /// Whether requests took longer the later they were due, until the end: a stall makes those that
    /// are due later wait shorter, and a server that has become slower makes all wait alike.
    fn grow(&self) -> bool {
        let [Some(first), _, Some(third), Some(last)] = self.quarters_ns else { return false };
        let share = |share: f64| self.window_ns as f64 * share;
        let growth = |from: u64, to: u64| to as f64 - from as f64;
        growth(first, last) > share(GROWTH_SHARE)
            && growth(first, last) > first as f64 * GROWTH_OF_AGE
            && growth(first, third) > share(STEP_SHARE)
            && growth(third, last) > share(STEP_SHARE)
    }
}

/// What an open loop asked for, and what became of it.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenLoop {
    /// Requests per second that were asked for.
    pub due_per_s: f64,
    /// Successes per second that completed within the window.
    pub sustained_per_s: f64,
    /// Requests that were due within the window.
    pub due: u64,
    /// Of these, those given up before they were sent.
    pub unsent: u64,
    /// Of these, those that had no free connection when they were due.
    pub waited: u64,
    /// Of these, those not yet answered when the window ended.
    pub unserved: u64,
}

/// More was due than was answered: what was sustained, and the evidence.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Saturation {
    /// Requests per second that were due.
    pub due_per_s: f64,
    /// Requests per second that were answered within the window: the rate that can be sustained.
    pub sustained_per_s: f64,
    /// Requests that were due and not yet answered when the window ended; of several rounds the
    /// sum.
    pub unserved: u64,
    /// Share of requests that had no free connection when they were due, 0 to 1.
    pub waiting_share: f64,
    /// Share of requests given up before they were sent, 0 to 1.
    pub unsent_share: f64,
    /// Median time that a request of the first quarter of the window took, or waited until it was
    /// given up, µs; absent if none was due in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_quarter_us: Option<f64>,
    /// The same of the last quarter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_quarter_us: Option<f64>,
}

/// Judges an open loop. None: the schedule was kept, or there were too few requests to tell.
pub fn saturation(load: &OpenLoop, ages: &Ages) -> Option<Saturation> {
    let share = |count: u64| count as f64 / load.due.max(1) as f64;
    let saturated = load.due >= DUE_MIN && (ages.grow() || share(load.unsent) > UNSENT_SHARE);
    saturated.then(|| {
        let us = |ns: u64| ns as f64 / 1e3;
        Saturation {
            due_per_s: load.due_per_s,
            sustained_per_s: load.sustained_per_s,
            unserved: load.unserved,
            waiting_share: share(load.waited),
            unsent_share: share(load.unsent),
            first_quarter_us: ages.quarters_ns[0].map(us),
            last_quarter_us: ages.quarters_ns[PARTS - 1].map(us),
        }
    })
}

/// Several rounds of an arm as one: means, and the sum of what was left unserved. None: fewer than
/// half of the rounds were saturated.
pub fn of_rounds(rounds: &[Option<&Saturation>]) -> Option<Saturation> {
    let found: Vec<&Saturation> = rounds.iter().copied().flatten().collect();
    if found.is_empty() || found.len() * 2 < rounds.len() {
        return None;
    }
    let mean = |value: fn(&Saturation) -> f64| {
        found.iter().map(|one| value(one)).sum::<f64>() / found.len() as f64
    };
    let mean_of_some = |value: fn(&Saturation) -> Option<f64>| {
        let values: Vec<f64> = found.iter().filter_map(|one| value(one)).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    Some(Saturation {
        due_per_s: mean(|one| one.due_per_s),
        sustained_per_s: mean(|one| one.sustained_per_s),
        unserved: found.iter().fold(0, |sum, one| sum.saturating_add(one.unserved)),
        waiting_share: mean(|one| one.waiting_share),
        unsent_share: mean(|one| one.unsent_share),
        first_quarter_us: mean_of_some(|one| one.first_quarter_us),
        last_quarter_us: mean_of_some(|one| one.last_quarter_us),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    /// `connections` that each take `service_ns`, with an even schedule of `load` times what they
    /// can do, for a time in which `count` are answered at most; nothing is given up.
    fn simulated(connections: usize, service_ns: u64, load: f64, count: u64) -> Option<Saturation> {
        let capacity_per_ns = connections as f64 / service_ns as f64;
        let window_ns = (count as f64 / capacity_per_ns / load.min(1.0)) as u64;
        let gap_ns = 1.0 / (capacity_per_ns * load);
        let mut free_ns = vec![0_u64; connections];
        let mut aging = Aging::new(window_ns);
        let mut due = 0;
        while due as f64 * gap_ns < window_ns as f64 {
            let due_ns = (due as f64 * gap_ns) as u64;
            let slot = (0..connections).min_by_key(|&slot| free_ns[slot]).unwrap();
            free_ns[slot] = free_ns[slot].max(due_ns) + service_ns;
            aging.observe(due_ns, free_ns[slot] - due_ns);
            due += 1;
        }
        saturation(&open_loop(due, 0), &aging.medians())
    }

    fn open_loop(due: u64, unsent: u64) -> OpenLoop {
        OpenLoop { due_per_s: 0.0, sustained_per_s: 0.0, due, unsent, waited: 0, unserved: 0 }
    }

    proptest! {
        #[test]
        fn a_fixed_capacity_is_told_from_what_is_asked_of_it(
            connections in 1_usize..20,
            service_ms in 1_u64..500,
            count in 200_u64..2_000,
            above in 1.05_f64..10.0,
            below in 0.1_f64..0.9,
        ) {
            prop_assert!(simulated(connections, service_ms * MS, above, count).is_some());
            prop_assert!(simulated(connections, service_ms * MS, below, count).is_none());
        }
    }

    /// A request each ms for a second, whose age is what `age_ms` makes of the time it was due.
    fn each_ms(age_ms: impl Fn(u64) -> u64) -> Option<Saturation> {
        let mut aging = Aging::new(1_000 * MS);
        (0..1_000).for_each(|due| aging.observe(due * MS, age_ms(due) * MS));
        saturation(&open_loop(1_000, 0), &aging.medians())
    }

    #[test]
    fn one_stall_is_no_saturation_wherever_it_is() {
        for begins in (0..1_000).step_by(50) {
            for long in [100, 400, 800] {
                let stalled = |due| (begins..begins + long).contains(&due);
                let age = |due| if stalled(due) { begins + long - due } else { 1 };
                assert_eq!(each_ms(age), None, "a stall of {long} ms at {begins} ms");
            }
        }
    }

    #[test]
    fn a_server_that_becomes_slower_and_keeps_up_is_not_saturated() {
        for at in (0..1_000).step_by(50) {
            assert_eq!(each_ms(|due| if due < at { 50 } else { 200 }), None, "at {at} ms");
        }
    }

    #[test]
    fn answers_that_are_fast_now_and_then_hide_no_queue() {
        assert!(each_ms(|due| if due % 10 == 0 { 1 } else { due / 2 }).is_some());
    }

    #[test]
    fn a_queue_that_a_time_limit_bounds_is_known_by_what_was_given_up() {
        let mut aging = Aging::new(1_000 * MS);
        (0..100).for_each(|due| aging.observe(due * 10 * MS, 500 * MS));
        assert_eq!(saturation(&open_loop(100, 1), &aging.medians()), None);
        let found = saturation(&open_loop(100, 90), &aging.medians()).unwrap();
        assert!((found.unsent_share - 0.9).abs() < 1e-9);
        assert!(found.last_quarter_us.is_some_and(|us| (us / 500_000.0 - 1.0).abs() < 0.001));
    }

    #[test]
    fn a_slow_server_that_keeps_up_is_not_saturated() {
        let mut aging = Aging::new(1_000 * MS);
        (0..100).for_each(|due| aging.observe(due * 10 * MS, (1_000 + due % 7) * MS));
        assert_eq!(saturation(&open_loop(100, 0), &aging.medians()), None);
    }

    #[test]
    fn most_rounds_decide() {
        let one = Saturation { unserved: 3, sustained_per_s: 10.0, ..Saturation::default() };
        assert_eq!(of_rounds(&[Some(&one), None, None]), None);
        let two = Saturation { unserved: 5, sustained_per_s: 20.0, ..Saturation::default() };
        let all = of_rounds(&[Some(&one), Some(&two), None]).unwrap();
        assert_eq!((all.unserved, all.sustained_per_s), (8, 15.0));
        assert_eq!(of_rounds(&[]), None);
    }
}
