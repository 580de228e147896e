//! The description of an experiment, as data: everything that commands, studies, schemas and
//! reports need to know of it.
//!
//! Each experiment has one [`Spec`] in its folder. Common code reads it and names no experiment.

use serde::Serialize;

use crate::experiment::cause::CauseSpec;
use crate::record::Summary;
use crate::study::metric_names;

use super::column::Table;
use super::option::Opt;
use crate::study::Study;

/// An experiment.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spec {
    /// The sub-command and the name in records, kebab case.
    pub name: &'static str,
    /// The question, as the user would ask it; ends in a question mark.
    pub question: &'static str,
    /// The line in the list of commands.
    pub about: &'static str,
    /// Examples and explanations below the options in its help.
    pub examples: &'static str,
    /// Its options; a study may set no others. Sorted by group as the help shows them.
    pub options: &'static [&'static Opt],
    /// The option that names a server that already runs, instead of the lab; `None`: it measures in
    /// the lab alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<&'static str>,
    /// Completes the study that a command line is: settings that follow from what was typed.
    #[serde(skip)]
    pub complete: fn(&mut Study),
    /// Whether the arms of a command line are compared against the first.
    #[serde(skip)]
    pub compares: fn(&Study) -> bool,
    /// Every metric that a trial may have, in alphabetical order.
    pub metrics: &'static [&'static MetricSpec],
    /// Every distribution that a trial may have, in alphabetical order; `NAME_p99` is a metric too.
    pub histograms: &'static [&'static HistogramSpec],
    /// The metric that comparisons and stop rules look at, unless a study names another.
    pub primary: &'static str,
    /// Distributions that may carry the answer, the first one that a run has.
    pub answers: &'static [&'static str],
    /// The smallest difference that matters, relative, unless a study states another: 0.01 is 1 %.
    pub margin: f64,
    /// The name of one operation.
    pub operation: Noun,
    /// Tables of figures, a row per arm, in the order of every report.
    #[serde(skip)]
    pub tables: &'static [Table],
    /// Causes that a run may name, in the order of the answer.
    pub causes: &'static [&'static CauseSpec],
    /// Fills in what follows from the arms: answer, causes, advice, next.
    #[serde(skip)]
    pub conclude: fn(&mut Summary),
}

impl Spec {
    /// An experiment of which nothing is said: the rest of a description with fewer parts.
    pub const BARE: Self = Self {
        name: "",
        question: "",
        about: "",
        examples: "",
        options: &[],
        target: None,
        complete: |_| {},
        compares: |_| true,
        metrics: &[],
        histograms: &[],
        primary: "",
        answers: &[],
        margin: 0.01,
        operation: Noun { one: "operation", many: "operations", short: "op" },
        tables: &[],
        causes: &[],
        conclude: |_| {},
    };

    /// The option of this name.
    pub fn option(&self, name: &str) -> Option<&'static Opt> {
        self.options.iter().copied().find(|option| option.name == name)
    }

    /// The names of all options, in alphabetical order.
    pub fn option_names(&self) -> Vec<&'static str> {
        let mut names: Vec<&str> = self.options.iter().map(|option| option.name).collect();
        names.sort_unstable();
        names
    }

    /// The names of all metrics that are single figures, in alphabetical order.
    pub fn single_metrics(&self) -> Vec<&'static str> {
        self.metrics.iter().map(|metric| metric.name).collect()
    }

    /// The names of all distributions, in alphabetical order.
    pub fn distributions(&self) -> Vec<&'static str> {
        self.histograms.iter().map(|histogram| histogram.name).collect()
    }

    /// Every name that a metric may go by: metrics, and figures of distributions.
    pub fn metric_names(&self) -> Vec<String> {
        metric_names(&self.single_metrics(), &self.distributions())
    }
}

/// A metric: one figure per trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MetricSpec {
    /// Name in records.
    pub name: &'static str,
    /// Unit in records: `us`, `1/s`, `bytes`, …
    pub unit: &'static str,
    /// Name in texts: `connections per second`.
    pub words: &'static str,
    /// The direction in which it gets better.
    pub better: Better,
}

/// A distribution of one figure per operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct HistogramSpec {
    /// Name in records; ends in its unit.
    pub name: &'static str,
    /// Name in texts: `connect latency`.
    pub words: &'static str,
    /// The direction in which it gets better.
    pub better: Better,
}

/// The direction in which a figure gets better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Less is better: latency, CPU, memory.
    Lower,
    /// More is better: rates.
    Higher,
    /// Neither: evidence, and what the settings decide.
    Neither,
}

/// The name of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Noun {
    /// `connection`.
    pub one: &'static str,
    /// `connections`.
    pub many: &'static str,
    /// In headings: `conn`.
    pub short: &'static str,
}

impl Noun {
    /// A connection.
    pub const CONNECTION: Self = Self { one: "connection", many: "connections", short: "conn" };
    /// A request.
    pub const REQUEST: Self = Self { one: "request", many: "requests", short: "req" };
}
