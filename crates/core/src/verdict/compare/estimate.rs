//! How far are two arms apart, and what may be said of it?

use crate::record::{Comparison, Metric, Verdict};
use crate::stats::sequence::ROUNDS_TO_BE_NARROW;

/// Ratio and difference of two arms with their intervals, however they were found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Estimate {
    /// Logarithm of a / b. None: a value is not above 0, or there is none.
    pub log_ratio: Option<f64>,
    /// Of [`Self::log_ratio`]. None: too few rounds, or rounds that lack the metric.
    pub log_interval: Option<[f64; 2]>,
    /// a − b.
    pub difference: Option<f64>,
    /// Of [`Self::difference`]. None: as [`Self::log_interval`].
    pub difference_interval: Option<[f64; 2]>,
    /// Median of the rounds' differences, where rounds are paired.
    pub difference_median: Option<f64>,
    /// What a margin is relative to, where there is no ratio.
    pub mean_of_b: Option<f64>,
}

impl Estimate {
    /// The same figures with nothing to be concluded from them.
    pub(super) fn without_intervals(self) -> Self {
        Self { log_interval: None, difference_interval: None, ..self }
    }

    /// The comparison with what was found, and the verdict that its interval gives.
    pub(super) fn fill(self, blank: Comparison, unit: Option<String>) -> Comparison {
        let difference = self.difference.zip(unit).map(|(value, unit)| Metric {
            value,
            unit,
            ci95: self.difference_interval,
            median: self.difference_median,
            n: u64::from(blank.rounds),
        });
        let finite = |ends: &[f64; 2]| ends.iter().all(|end| end.is_finite());
        let ci95 = self.log_interval.map(|ends| ends.map(f64::exp)).filter(finite);
        let least = 1.0 + blank.margin;
        let verdict = if self.log_ratio.is_some() {
            read(ci95, 1.0, [1.0 / least, least], blank.rounds)
        } else {
            let least = self.mean_of_b.map_or(0.0, |b| blank.margin * b.abs());
            read(self.difference_interval, 0.0, [-least, least], blank.rounds)
        };
        let ratio = self.log_ratio.map(f64::exp).filter(|ratio| ratio.is_finite());
        Comparison { ratio, ci95, difference, verdict, ..blank }
    }
}

/// What an interval says: `even` is no difference, `same` the values that do not matter.
///
/// That it is narrow is believed from [`ROUNDS_TO_BE_NARROW`] rounds on, that it is elsewhere at once.
fn read(interval: Option<[f64; 2]>, even: f64, same: [f64; 2], rounds: u32) -> Verdict {
    match interval {
        Some([low, high]) if low >= same[0] && high <= same[1] => {
            if rounds as usize >= ROUNDS_TO_BE_NARROW {
                Verdict::NoDifference
            } else {
                Verdict::NotEnough
            }
        }
        Some([low, _]) if low > even => Verdict::Higher,
        Some([_, high]) if high < even => Verdict::Lower,
        _ => Verdict::NotEnough,
    }
}
