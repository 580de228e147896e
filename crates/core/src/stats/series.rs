//! How does a quantity run over time, in bounded memory and without losing its extremes?

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The most points a record keeps of one series.
pub const POINTS_MAX: usize = 400;

/// A bounded time series; neighbours are merged with least and greatest kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    /// `[seconds since start, least, mean, greatest]`, ascending in time, at most 400 points.
    pub points: Vec<[f64; 4]>,
}

impl Series {
    /// The greatest value. None: there is none.
    pub fn peak(&self) -> Option<f64> {
        self.points.iter().map(|[.., greatest]| *greatest).reduce(f64::max)
    }

    /// Mean of its points' means. None: there is none.
    pub fn mean(&self) -> Option<f64> {
        let sum: f64 = self.points.iter().map(|[_, _, mean, _]| mean).sum();
        (!self.points.is_empty()).then(|| sum / self.points.len() as f64)
    }
}

/// Values that came one after the other, merged.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bucket {
    at: Duration,
    count: u64,
    least: f64,
    mean: f64,
    greatest: f64,
}

impl Bucket {
    /// This bucket with the values of a later one: the mean is weighted by count.
    fn merged(self, later: Self) -> Self {
        let count = self.count + later.count;
        Self {
            at: self.at,
            count,
            least: self.least.min(later.least),
            mean: self.mean + (later.mean - self.mean) * (later.count as f64 / count as f64),
            greatest: self.greatest.max(later.greatest),
        }
    }
}

/// Collects a series of any length into a bounded number of points.
///
/// A point holds the same number of values as every other (the last may hold fewer). When there is no
/// room for another, neighbours merge pairwise and each point from then on takes twice as many.
#[derive(Clone, Debug)]
pub struct SeriesBuilder {
    max_points: usize,
    values_per_point: u64,
    points: Vec<Bucket>,
}

impl SeriesBuilder {
    /// An empty series of at most `max_points` points.
    ///
    /// Range: an odd number counts as the next lower even one; below 2 as 2, above
    /// [`POINTS_MAX`] as that.
    #[must_use]
    pub fn new(max_points: usize) -> Self {
        let max_points = max_points.clamp(2, POINTS_MAX) / 2 * 2;
        Self { max_points, values_per_point: 1, points: Vec::new() }
    }

    /// Adds the value seen at `at` since the start.
    ///
    /// Range: what is no finite number is left out; a time before the last one counts as the last.
    /// Cost: O(1) on average; memory is bounded by the number of points.
    pub fn push(&mut self, at: Duration, value: f64) {
        if !value.is_finite() {
            return;
        }
        let at = self.points.last().map_or(at, |last| at.max(last.at));
        let new = Bucket { at, count: 1, least: value, mean: value, greatest: value };
        match self.points.last_mut() {
            Some(last) if last.count < self.values_per_point => *last = last.merged(new),
            _ => {
                if self.points.len() == self.max_points {
                    self.halve();
                }
                self.points.push(new);
            }
        }
    }

    /// The series: `[seconds, least, mean, greatest]` of each point, ascending in time, where the time
    /// is that of the point's first value.
    #[must_use]
    pub fn build(self) -> Series {
        let point = |p: &Bucket| [p.at.as_secs_f64(), p.least, p.mean, p.greatest];
        Series { points: self.points.iter().map(point).collect() }
    }

    fn halve(&mut self) {
        let merge = |pair: &[Bucket]| match *pair {
            [first, second] => Some(first.merged(second)),
            _ => pair.first().copied(),
        };
        self.points = self.points.chunks(2).filter_map(merge).collect();
        self.values_per_point = self.values_per_point.saturating_mul(2);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn built(max_points: usize, values: &[f64]) -> Vec<[f64; 4]> {
        let mut series = SeriesBuilder::new(max_points);
        for (second, &value) in values.iter().enumerate() {
            series.push(Duration::from_secs(second as u64), value);
        }
        series.build().points
    }

    #[test]
    fn a_short_series_is_kept_as_it_is() {
        assert_eq!(built(4, &[5.0, 7.0]), [[0.0, 5.0, 5.0, 5.0], [1.0, 7.0, 7.0, 7.0]]);
        assert!(built(4, &[]).is_empty());
    }

    #[test]
    fn neighbours_merge_with_their_extremes_and_a_weighted_mean() {
        // Four points are full at the fifth value: (1,2) (3,10) merge, then 5 and 6 share a point.
        let points = built(4, &[1.0, 2.0, 3.0, 10.0, 5.0, 6.0, 7.0]);
        assert_eq!(
            points,
            [
                [0.0, 1.0, 1.5, 2.0],
                [2.0, 3.0, 6.5, 10.0],
                [4.0, 5.0, 5.5, 6.0],
                [6.0, 7.0, 7.0, 7.0]
            ]
        );
    }

    #[test]
    fn what_is_no_number_is_left_out_and_time_does_not_run_back() {
        let mut series = SeriesBuilder::new(10);
        series.push(Duration::from_secs(2), 1.0);
        series.push(Duration::from_secs(1), 2.0);
        series.push(Duration::from_secs(3), f64::NAN);
        assert_eq!(series.build().points, [[2.0, 1.0, 1.0, 1.0], [2.0, 2.0, 2.0, 2.0]]);
    }

    proptest! {
        #[test]
        fn extremes_and_the_mean_survive_any_length(
            values in prop::collection::vec(-1e6..1e6_f64, 1..3000),
            max_points in 0_usize..900,
        ) {
            let mut series = SeriesBuilder::new(max_points);
            for (second, &value) in values.iter().enumerate() {
                series.push(Duration::from_secs(second as u64), value);
            }
            let weights: Vec<f64> = series.points.iter().map(|p| p.count as f64).collect();
            let points = series.build().points;
            prop_assert!(points.len() <= max_points.clamp(2, POINTS_MAX));
            prop_assert!(points.windows(2).all(|pair| pair[0][0] < pair[1][0]));
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let greatest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            prop_assert!(points.iter().any(|p| p[1].to_bits() == least.to_bits()));
            prop_assert!(points.iter().any(|p| p[3].to_bits() == greatest.to_bits()));
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let weighted = points.iter().zip(&weights).map(|(p, w)| p[2] * w).sum::<f64>();
            prop_assert!((weighted / values.len() as f64 - mean).abs() < 1e-6);
        }
    }
}
