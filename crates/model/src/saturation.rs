//! Was more asked of a server, or of the connections to it, than they can do?
//!
//! An open loop sends on a schedule. Where more is due than is answered, the requests that wait
//! become more for as long as the load lasts, and so does the time that each of them takes. That
//! is what tells saturation from a slow server, whose requests take long and equally long. A queue
//! that is bounded by a time limit stops growing; there the requests that were given up unsent
//! tell it.
//!
//! Pure: times come in as arguments. [`Aging`] collects, [`saturation`] judges.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parts of the window whose least ages are compared.
const PARTS: usize = 4;

/// A growth of this share of the window between its first and its last quarter is saturation.
///
/// At a load of ρ times the capacity the age of a request grows by (ρ − 1) of the time, and the
/// least ages of the two quarters are ¾ of the window apart: 3.75 % of the window at ρ = 1.05, and
/// nothing below 1.
const GROWTH_SHARE: f64 = 0.02;

/// A growth below this share of the age itself is noise of the server.
const GROWTH_OF_AGE: f64 = 0.1;

/// Requests that were due, below which nothing is said.
const DUE_MIN: u64 = 20;

/// A share of requests given up unsent above this is saturation.
const UNSENT_SHARE: f64 = 0.02;

/// How old requests were when they ended, by when they were due: of each quarter of the window the
/// least. The least, because one stall makes all requests of a moment old, and not all of a quarter.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Aging {
    window_ns: u64,
    least_ns: [Option<u64>; PARTS],
}

impl Aging {
    /// Of a window of this length, ns.
    pub fn new(window_ns: u64) -> Self {
        Self { window_ns, least_ns: [None; PARTS] }
    }

    /// A request that was due `since_ns` after the window began has ended `age_ns` later: answered,
    /// or given up. What was due outside of the window does not count.
    pub fn observe(&mut self, since_ns: u64, age_ns: u64) {
        if since_ns >= self.window_ns {
            return;
        }
        let part = (u128::from(since_ns) * PARTS as u128 / u128::from(self.window_ns)) as usize;
        let least = &mut self.least_ns[part];
        *least = Some(least.map_or(age_ns, |least| least.min(age_ns)));
    }

    /// Adds what another thread saw of the same window.
    pub fn merge(&mut self, other: &Self) {
        self.window_ns = self.window_ns.max(other.window_ns);
        for (ours, theirs) in self.least_ns.iter_mut().zip(other.least_ns) {
            *ours = [*ours, theirs].into_iter().flatten().min();
        }
    }

    /// Least ages of the first and the last quarter, ns. None: one of them had no request.
    fn ends_ns(&self) -> Option<(u64, u64)> {
        self.least_ns[0].zip(self.least_ns[PARTS - 1])
    }

    /// Whether requests took longer the later they were due.
    fn grows(&self) -> bool {
        self.ends_ns().is_some_and(|(first, last)| {
            let growth = last.saturating_sub(first) as f64;
            growth > self.window_ns as f64 * GROWTH_SHARE && growth > first as f64 * GROWTH_OF_AGE
        })
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
    /// Least time that a request of the first quarter of the window took, µs; absent if none was
    /// due in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_quarter_us: Option<f64>,
    /// The same of the last quarter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_quarter_us: Option<f64>,
}

/// Judges an open loop. None: the schedule was kept, or there were too few requests to tell.
pub fn saturation(load: &OpenLoop, aging: &Aging) -> Option<Saturation> {
    let share = |count: u64| count as f64 / load.due.max(1) as f64;
    let saturated = load.due >= DUE_MIN && (aging.grows() || share(load.unsent) > UNSENT_SHARE);
    saturated.then(|| {
        let us = |ns: u64| ns as f64 / 1e3;
        Saturation {
            due_per_s: load.due_per_s,
            sustained_per_s: load.sustained_per_s,
            unserved: load.unserved,
            waiting_share: share(load.waited),
            unsent_share: share(load.unsent),
            first_quarter_us: aging.least_ns[0].map(us),
            last_quarter_us: aging.least_ns[PARTS - 1].map(us),
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
    let mean = |of: fn(&Saturation) -> f64| {
        found.iter().map(|one| of(one)).sum::<f64>() / found.len() as f64
    };
    let mean_of_some = |of: fn(&Saturation) -> Option<f64>| {
        let values: Vec<f64> = found.iter().filter_map(|one| of(one)).collect();
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
        saturation(&of(due, 0), &aging)
    }

    fn of(due: u64, unsent: u64) -> OpenLoop {
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

    #[test]
    fn one_stall_is_no_saturation() {
        let mut aging = Aging::new(1_000 * MS);
        for due in 0..1_000 {
            // Everything stands still from 800 ms to 950 ms.
            let age = if (800..950).contains(&due) { 950 - due } else { 1 };
            aging.observe(due * MS, age * MS);
        }
        assert_eq!(saturation(&of(1_000, 0), &aging), None);
    }

    #[test]
    fn a_queue_that_a_time_limit_bounds_is_known_by_what_was_given_up() {
        let mut aging = Aging::new(1_000 * MS);
        (0..100).for_each(|due| aging.observe(due * 10 * MS, 500 * MS));
        assert_eq!(saturation(&of(100, 1), &aging), None);
        let found = saturation(&of(100, 90), &aging).unwrap();
        assert_eq!((found.unsent_share, found.last_quarter_us), (0.9, Some(500_000.0)));
    }

    #[test]
    fn a_slow_server_that_keeps_up_is_not_saturated() {
        let mut aging = Aging::new(1_000 * MS);
        (0..100).for_each(|due| aging.observe(due * 10 * MS, (1_000 + due % 7) * MS));
        assert_eq!(saturation(&of(100, 0), &aging), None);
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
