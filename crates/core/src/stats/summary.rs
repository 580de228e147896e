//! A distribution as a record keeps it with each figure that it states, and how a quantity runs over
//! time, in bounded memory and without losing its extremes.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A distribution, summarised and whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistogramSummary {
    /// Values recorded.
    pub count: u64,
    /// Smallest value; absent if there is none.
    #[serde(default)]
    pub min: Option<f64>,
    /// Arithmetic mean of what was recorded.
    #[serde(default)]
    pub mean: Option<f64>,
    /// Median. Like every quantile: absent with fewer than ten values beyond it.
    #[serde(default)]
    pub p50: Option<f64>,
    /// 90th percentile.
    #[serde(default)]
    pub p90: Option<f64>,
    /// 99th percentile.
    #[serde(default)]
    pub p99: Option<f64>,
    /// 99.9th percentile.
    #[serde(default)]
    pub p99_9: Option<f64>,
    /// Largest value.
    #[serde(default)]
    pub max: Option<f64>,
    /// Operations that had no answer when the window ended: each is counted as a value of the length that
    /// it had by then, and took longer. Absent: there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unanswered: Option<Unanswered>,
    /// The whole histogram: HDR, nanoseconds, V2 deflate, base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hdr: Option<String>,
}

/// What of a distribution is known only not to be shorter (right-censored values).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Unanswered {
    /// How many.
    pub count: u64,
    /// The least of them: a figure of the distribution from here on is a lower bound.
    pub at_least: f64,
}

impl Unanswered {
    /// Those of several rounds.
    pub fn merged(all: impl Iterator<Item = Self>) -> Option<Self> {
        all.reduce(|a, b| Self { count: a.count + b.count, at_least: a.at_least.min(b.at_least) })
    }
}

impl HistogramSummary {
    /// The same, in which these values are only known not to be shorter. Of what is not over there is no
    /// mean.
    #[must_use]
    pub fn with_unanswered(self, unanswered: Option<Unanswered>) -> Self {
        Self { mean: self.mean.filter(|_| unanswered.is_none()), unanswered, ..self }
    }

    /// Whether the true figure is this one or greater.
    ///
    /// An order statistic in which some values are only known not to be shorter is never above the
    /// true one, and is the true one where all such values lie beyond it.
    pub fn is_bound(&self, figure: f64) -> bool {
        self.unanswered.is_some_and(|unanswered| figure >= unanswered.at_least)
    }

    /// `"≥ "` before a figure that is a lower bound.
    pub fn sign(&self, figure: f64) -> &'static str {
        if self.is_bound(figure) { "≥ " } else { "" }
    }
}

/// A figure of a distribution.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// Ending of a metric that is this figure of a distribution, `_p99` in `connect_us_p99`.
    pub ending: &'static str,
    /// The figure in the distribution's unit.
    ///
    /// None: the distribution is empty, or has too few values beyond the quantile.
    pub value: fn(&HistogramSummary) -> Option<f64>,
}

/// Every figure of a distribution.
pub const FIGURES: [Figure; 7] = [
    Figure { ending: "_p50", value: |histogram| histogram.p50 },
    Figure { ending: "_p90", value: |histogram| histogram.p90 },
    Figure { ending: "_p99", value: |histogram| histogram.p99 },
    Figure { ending: "_p99_9", value: |histogram| histogram.p99_9 },
    Figure { ending: "_mean", value: |histogram| histogram.mean },
    Figure { ending: "_max", value: |histogram| histogram.max },
    Figure { ending: "_min", value: |histogram| histogram.min },
];

impl Figure {
    /// The figure with this ending: `_p99`.
    ///
    /// None: there is none.
    pub fn of_ending(ending: &str) -> Option<&'static Self> {
        FIGURES.iter().find(|figure| figure.ending == ending)
    }

    /// Splits the name of a metric into a distribution that `is_there`, and its figure:
    /// `connect_us_p99` into `connect_us` and `_p99`.
    ///
    /// None: it is no figure of such a distribution.
    pub fn of_metric(
        metric: &str,
        is_there: impl Fn(&str) -> bool,
    ) -> Option<(&str, &'static Self)> {
        FIGURES.iter().find_map(|figure| {
            let histogram = metric.strip_suffix(figure.ending).filter(|name| is_there(name))?;
            Some((histogram, figure))
        })
    }

    /// The metric that is this figure of a distribution: `connect_us_p99`.
    pub fn metric(&self, histogram: &str) -> String {
        format!("{histogram}{}", self.ending)
    }
}

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

    #[test]
    fn a_metric_is_split_at_the_whole_ending() {
        let split = |metric| {
            let (histogram, figure) = Figure::of_metric(metric, |name| name == "connect_us")?;
            Some((histogram.to_owned(), figure.ending))
        };
        assert_eq!(split("connect_us_p99_9"), Some(("connect_us".to_owned(), "_p99_9")));
        assert_eq!(split("connect_us_p99"), Some(("connect_us".to_owned(), "_p99")));
        assert_eq!(split("connect_us_p98"), None);
        assert_eq!(split("first_byte_us_p99"), None);
    }

    #[test]
    fn every_figure_is_found_by_its_ending_and_writes_its_metric() {
        for figure in &FIGURES {
            assert_eq!(Figure::of_ending(figure.ending).unwrap().ending, figure.ending);
            let metric = figure.metric("rtt_us");
            let (_, found) = Figure::of_metric(&metric, |name| name == "rtt_us").unwrap();
            assert_eq!(found.ending, figure.ending);
        }
        assert!(Figure::of_ending("p99").is_none());
    }

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
