//! Columns: which figures stand in tables, under which headings, and when.
//!
//! Text, HTML, CSV and Markdown render the same columns, so that they cannot disagree. A column is
//! defined once; each table lists the columns that it has room for.

use crate::record::{Arm, Summary};

/// A table, a row per arm.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Kebab case, unique among the tables of one form.
    pub id: &'static str,
    /// Heading above it; may be empty.
    pub title: &'static str,
    /// The forms of report that show it.
    pub forms: &'static [Form],
    /// Groups of columns that stay together where a terminal is too narrow for all.
    pub parts: &'static [&'static [Column]],
    /// Whether an arm has a row in it.
    pub has: fn(&Arm) -> bool,
}

/// A form of report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The terminal.
    Text,
    /// HTML.
    Page,
    /// Markdown.
    Markdown,
    /// A row per figure, for other programs.
    Csv,
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Heading over neighbours, on a terminal; may be empty. Of [`Figure::Answer`] an empty one
    /// stands for the name of the distribution.
    pub group: &'static str,
    /// Heading below that.
    pub head: &'static str,
    /// Heading where the terminal has no room for the neighbours; empty: as with them.
    pub alone: &'static str,
    /// The whole heading, on pages.
    pub whole: &'static str,
    /// Name in a tidy table: that of the metric where there is one.
    pub key: &'static str,
    /// Unit in a tidy table.
    pub unit: &'static str,
    /// How its figure is found.
    pub figure: Figure,
    /// When it is shown on a terminal. Files have every column of which an arm has a figure.
    pub show: Show,
    /// What must be true of the run that shows it, in any form.
    pub when: Option<fn(&Summary) -> bool>,
    /// Whether its heading stands over the unit too, where the unit has a column of its own.
    pub over_unit: bool,
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
    /// The same metric with its interval where a page has room, in this unit of the reader's: `us`,
    /// `bytes`, or empty for a plain figure.
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

/// When a column is shown on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// Always, while there is room; else where at least one arm has its figure.
    Always,
    /// Where at least one arm has its figure.
    Present,
    /// As [`Show::Present`]; it is the first to go where a terminal is narrow.
    Room,
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
            alone: "",
            whole,
            key: tidy.0,
            unit: tidy.1,
            figure,
            show: Show::Present,
            when: None,
            over_unit: false,
            right: false,
            sort: None,
        }
    }

    /// A column of pages and files alone.
    pub const fn whole(
        whole: &'static str,
        tidy: (&'static str, &'static str),
        figure: Figure,
    ) -> Self {
        Self::new(("", whole), whole, tidy, figure)
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
        Self::new(("", quantile.name()), quantile.name(), ("", ""), Figure::Answer(quantile))
    }

    /// The same under another whole heading.
    #[must_use]
    pub const fn called(self, whole: &'static str) -> Self {
        Self { whole, ..self }
    }

    /// The same, shown on another condition.
    #[must_use]
    pub const fn shown(self, show: Show) -> Self {
        Self { show, ..self }
    }

    /// The same, where this is true of the run.
    #[must_use]
    pub const fn when(self, when: fn(&Summary) -> bool) -> Self {
        Self { when: Some(when), ..self }
    }

    /// The same, with its heading over the unit too.
    #[must_use]
    pub const fn over_unit(self) -> Self {
        Self { over_unit: true, ..self }
    }

    /// The same, with its cells flush right.
    #[must_use]
    pub const fn flush_right(self) -> Self {
        Self { right: true, ..self }
    }

    /// The same, with another heading where its neighbours have no room.
    #[must_use]
    pub const fn or_alone(self, alone: &'static str) -> Self {
        Self { alone, ..self }
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
