//! Columns: which figures stand in tables, under which headings, and when.
//!
//! One list of columns serves text, HTML, CSV and Markdown, so that they cannot disagree.

use crate::record::{Arm, Summary};

/// A table, a row per arm.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Kebab case, unique in its experiment.
    pub id: &'static str,
    /// Heading above it; may be empty.
    pub title: &'static str,
    /// Groups of columns that stay together where a terminal is too narrow for all.
    pub groups: fn() -> Vec<Vec<Column>>,
    /// Further columns for wide pages and files.
    pub more: fn() -> Vec<Column>,
    /// Whether an arm has a row in it.
    pub has: fn(&Arm) -> bool,
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Heading over neighbours, on a terminal; may be empty.
    pub group: &'static str,
    /// Heading below that.
    pub head: &'static str,
    /// The whole heading, where a column stands alone.
    pub whole: &'static str,
    /// Name in a tidy table: that of the metric where there is one.
    pub key: &'static str,
    /// Unit in a tidy table.
    pub unit: &'static str,
    /// How its figure is found.
    pub figure: Figure,
    /// When it is shown on a terminal.
    pub show: Show,
}

/// How a column finds its figure.
#[derive(Clone, Copy, Debug)]
pub enum Figure {
    /// The metric that the column is named after, in the record's unit.
    Metric,
    /// A figure of a distribution: its name, and the ending of the figure: `_p50`, `_max`.
    Quantile(&'static str, &'static str),
    /// A figure in the record's unit, and the factor to the reader's.
    Number(fn(&Arm) -> Option<f64>, f64),
    /// A whole number.
    Count(fn(&Arm) -> Option<u64>),
    /// Words.
    Words(fn(&Arm) -> Option<String>),
}

/// When a column is shown on a terminal. Files have every column of which an arm has a figure.
#[derive(Clone, Copy, Debug)]
pub enum Show {
    /// Always.
    Always,
    /// Where at least one arm has its figure.
    Present,
    /// Where this is true of the run.
    If(fn(&Summary) -> bool),
}
