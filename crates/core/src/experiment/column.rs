//! Columns: which figures stand in tables, under which headings, and when.
//!
//! Text, HTML, CSV and Markdown render the same columns, so that they cannot disagree. A column is
//! defined once, with the room that it needs.

use crate::record::{Arm, Summary};
use crate::sheet::Room;

/// A table, a row per arm.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Kebab case, unique.
    pub id: &'static str,
    /// Heading above it. Of a table without one, but `figures`, the experiment says where it stands.
    pub title: &'static str,
    /// Groups of columns that stay together where a terminal is too narrow for all.
    pub parts: &'static [&'static [Column]],
    /// Whether an arm has a row in it.
    pub has: fn(&Arm) -> bool,
    /// Where it is shown, whatever room its columns ask for.
    pub room: Room,
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Heading over neighbours, on a terminal; may be empty. Of [`Figure::Answer`] an empty one
    /// stands for the name of the distribution.
    pub group: &'static str,
    /// Heading below that.
    pub head: &'static str,
    /// The whole heading, on pages; empty: group and head.
    pub whole: &'static str,
    /// Name in a tidy table: that of the metric where there is one.
    pub key: &'static str,
    /// Unit in a tidy table.
    pub unit: &'static str,
    /// How its figure is found.
    pub figure: Figure,
    /// Where it is shown.
    pub room: Room,
    /// What must be true of the run that shows it, in any form.
    pub when: Option<fn(&Summary) -> bool>,
    /// Whether its cells are flush right, and not aligned as its figures usually are.
    pub right: bool,
    /// What the rows of a page are sorted by, where the figure is words.
    pub sort: Option<fn(&Arm) -> Option<f64>>,
}

/// How a column finds its figure.
#[derive(Clone, Copy, Debug)]
pub enum Figure {
    /// The metric that the column is named after, in the record's unit.
    Metric,
    /// The same metric in this unit of the reader's: `us`, `bytes`, or empty for a plain figure.
    Estimate(&'static str),
    /// The same metric, a rate, with its resolution where that is coarse.
    Rate,
    /// A figure of the distribution of this name, in µs.
    Quantile(&'static str, Quantile),
    /// A figure of the distribution that carries the answer.
    Answer(Quantile),
    /// A figure in the record's unit, and the factor to the reader's.
    Number(fn(&Arm) -> Option<f64>, f64),
    /// A time in µs.
    Time(fn(&Arm) -> Option<f64>),
    /// A share, 0 to 1.
    Share(fn(&Arm) -> Option<f64>),
    /// A figure as a share of the greatest that any arm of the run has.
    OfGreatest(fn(&Arm) -> Option<f64>),
    /// A whole number.
    Count(fn(&Arm) -> Option<u64>),
    /// Words.
    Words(fn(&Arm) -> Option<String>),
    /// Words that the report's own part for the experiment finds, by the column's key.
    Own,
}

/// A figure of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantile {
    /// The median.
    P50,
    /// The 90th percentile.
    P90,
    /// The 99th percentile.
    P99,
    /// The 99.9th percentile.
    P999,
    /// The largest value.
    Max,
}

impl Quantile {
    /// As readers know it: `p50`, `p99.9`, `max`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::P50 => "p50",
            Self::P90 => "p90",
            Self::P99 => "p99",
            Self::P999 => "p99.9",
            Self::Max => "max",
        }
    }

    /// Its value; absent with too few values beyond it.
    pub fn value(self, histogram: &crate::record::HistogramSummary) -> Option<f64> {
        match self {
            Self::P50 => histogram.p50,
            Self::P90 => histogram.p90,
            Self::P99 => histogram.p99,
            Self::P999 => histogram.p99_9,
            Self::Max => histogram.max,
        }
    }
}

impl Column {
    /// A column that is shown where at least one arm has its figure.
    ///
    /// `heads`: over neighbours, below that, and the whole one on pages; `tidy`: its name and unit in
    /// a tidy table.
    pub const fn new(
        heads: (&'static str, &'static str),
        whole: &'static str,
        tidy: (&'static str, &'static str),
        figure: Figure,
    ) -> Self {
        Self {
            group: heads.0,
            head: heads.1,
            whole,
            key: tidy.0,
            unit: tidy.1,
            figure,
            room: Room::Present,
            when: None,
            right: false,
            sort: None,
        }
    }

    /// A column of pages, Markdown and files alone.
    pub const fn whole(
        whole: &'static str,
        tidy: (&'static str, &'static str),
        figure: Figure,
    ) -> Self {
        Self::new(("", whole), whole, tidy, figure).shown(Room::Page)
    }

    /// A figure of a distribution; it is in no tidy table by itself, as all quantiles are.
    pub const fn quantile(
        heads: (&'static str, &'static str),
        whole: &'static str,
        histogram: &'static str,
        quantile: Quantile,
    ) -> Self {
        Self::new(heads, whole, ("", ""), Figure::Quantile(histogram, quantile))
    }

    /// A figure of the distribution that carries the answer, headed by the quantile's name.
    pub const fn answer(quantile: Quantile) -> Self {
        Self::new(("", quantile.name()), "", ("", ""), Figure::Answer(quantile))
    }

    /// The same under another whole heading.
    #[must_use]
    pub const fn called(self, whole: &'static str) -> Self {
        Self { whole, ..self }
    }

    /// The same, shown elsewhere.
    #[must_use]
    pub const fn shown(self, room: Room) -> Self {
        Self { room, ..self }
    }

    /// The same, where this is true of the run.
    #[must_use]
    pub const fn when(self, when: fn(&Summary) -> bool) -> Self {
        Self { when: Some(when), ..self }
    }

    /// The same, with its cells flush right.
    #[must_use]
    pub const fn flush_right(self) -> Self {
        Self { right: true, ..self }
    }

    /// The same, sorted by a figure.
    #[must_use]
    pub const fn sorted_by(self, sort: fn(&Arm) -> Option<f64>) -> Self {
        Self { sort: Some(sort), ..self }
    }
}

/// The metric that a run is about: the stated one, or that of its first comparison.
pub fn metric_of(summary: &Summary) -> Option<&str> {
    let stated = summary.primary_metric.as_deref();
    stated.or_else(|| summary.comparisons.first().map(|c| c.metric.as_str()))
}

/// The value of a metric of an arm, if it is finite.
pub fn value(arm: &Arm, metric: &str) -> Option<f64> {
    arm.metrics.get(metric).map(|metric| metric.value).filter(|value| value.is_finite())
}
