//! When visitors come to a site, how many pages each looks at, and how long they think in between.
//!
//! Known before anything is sent, so that a slow server cannot make visitors come later. Between its own
//! pages a visitor waits for the page first, as people do. A visitor whose next page depended on a clock
//! alone would ask for it while the former one still loads, which nobody does.

use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use crate::random::generator;
use crate::stats::arrivals::{Arrivals, Spread, even, exponential};

/// Pages of one visitor, at most.
pub const PAGES_MAX: usize = 100;

/// Who comes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Visitors {
    /// Visitors per second, above 0; between peaks, if there are any. They come independently of each
    /// other (a Poisson process).
    pub rate_per_s: f64,
    /// Pages of a visitor, mean, at least 1: after each page one goes on with the same probability.
    pub pages_mean: f64,
    /// From the end of a page to the next, mean, ns; exponential.
    pub think_mean_ns: u64,
    /// When they come in peaks.
    pub peaks: Option<Peaks>,
    /// For how long new visitors come, ns.
    pub duration_ns: u64,
    /// The same visitors for the same seed.
    pub seed: u64,
}

/// Times with more visitors, the first of which begins after one whole pause.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Peaks {
    /// How many times as many come, above 1.
    pub factor: f64,
    /// From one beginning to the next, ns.
    pub every_ns: u64,
    /// How long each lasts, ns; shorter than that.
    pub for_ns: u64,
}

/// One visitor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Visit {
    /// When it comes, ns since the beginning.
    pub at_ns: u64,
    /// How long it thinks after each page but the last, ns: it looks at one page more.
    pub thinks_ns: Vec<u64>,
}

impl Visit {
    /// Pages that it looks at.
    pub fn pages(&self) -> u64 {
        self.thinks_ns.len() as u64 + 1
    }
}

impl Visitors {
    /// All visitors, in the order in which they come.
    pub fn visits(&self) -> Vec<Visit> {
        let highest = self.peaks.map_or(1.0, |peaks| peaks.factor.max(1.0));
        let mut arrivals =
            Arrivals::new(Spread::Poisson, self.rate_per_s * highest, self.seed, 0, 1);
        let mut random = generator(self.seed, [1, 2, u64::MAX]);
        let mut visits = Vec::new();
        loop {
            let at_ns = arrivals.take();
            if at_ns >= self.duration_ns {
                return visits;
            }
            // Of a process at the highest rate, as many are left out as come less at this time.
            if even(&mut random) * highest > self.factor_at(at_ns) {
                continue;
            }
            visits.push(Visit { at_ns, thinks_ns: self.thinks(&mut random) });
        }
    }

    /// How many times as many visitors as between peaks come at this time.
    pub fn factor_at(&self, at_ns: u64) -> f64 {
        match self.peaks {
            Some(Peaks { factor, every_ns, for_ns })
                if at_ns % every_ns.max(1) >= every_ns.saturating_sub(for_ns) =>
            {
                factor
            }
            _ => 1.0,
        }
    }

    fn thinks(&self, random: &mut Xoshiro256PlusPlus) -> Vec<u64> {
        let goes_on = 1.0 - 1.0 / self.pages_mean.max(1.0);
        let mut thinks = Vec::new();
        while thinks.len() + 1 < PAGES_MAX && even(random) <= goes_on {
            thinks.push(exponential(random, self.think_mean_ns as f64) as u64);
        }
        thinks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn visitors() -> Visitors {
        Visitors {
            rate_per_s: 10.0,
            pages_mean: 3.0,
            think_mean_ns: 5 * S,
            peaks: None,
            duration_ns: 1_000 * S,
            seed: 7,
        }
    }

    #[test]
    fn visitors_come_at_the_rate_asked_for_and_look_at_so_many_pages() {
        let visits = visitors().visits();
        // 10,000 ± 4 standard deviations.
        assert!((9_600..10_400).contains(&visits.len()), "{}", visits.len());
        assert!(visits.is_sorted_by_key(|visit| visit.at_ns));
        let pages: u64 = visits.iter().map(Visit::pages).sum();
        let mean = pages as f64 / visits.len() as f64;
        assert!((2.9..3.1).contains(&mean), "{mean}");
        let thinks: Vec<u64> = visits.iter().flat_map(|visit| visit.thinks_ns.clone()).collect();
        let mean_s = thinks.iter().sum::<u64>() as f64 / thinks.len() as f64 / 1e9;
        assert!((4.8..5.2).contains(&mean_s), "{mean_s}");
        assert_eq!(visitors().visits(), visits, "the same for the same seed");
        assert_ne!(Visitors { seed: 8, ..visitors() }.visits(), visits);
    }

    #[test]
    fn in_peaks_so_many_times_as_many_come_and_in_between_as_many_as_without() {
        let peaks = Peaks { factor: 5.0, every_ns: 10 * S, for_ns: 2 * S };
        let visitors = Visitors { peaks: Some(peaks), ..visitors() };
        let (within, between): (Vec<Visit>, Vec<Visit>) =
            visitors.visits().into_iter().partition(|visit| visit.at_ns % (10 * S) >= 8 * S);
        // 200 s with 50 a second, and 800 s with 10.
        assert!((9_600..10_400).contains(&within.len()), "{}", within.len());
        assert!((7_640..8_360).contains(&between.len()), "{}", between.len());
    }

    #[test]
    fn a_visitor_of_one_page_does_not_think_and_none_looks_at_more_than_a_hundred() {
        let single = Visitors { pages_mean: 1.0, ..visitors() };
        assert!(single.visits().iter().all(|visit| visit.pages() == 1));
        let many = Visitors { pages_mean: 1e9, duration_ns: 10 * S, ..visitors() };
        assert!(many.visits().iter().all(|visit| visit.pages() == PAGES_MAX as u64));
    }
}
