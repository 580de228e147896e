//! A distribution as a record keeps it, and each figure that it states.

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

#[cfg(test)]
mod tests {
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
}
