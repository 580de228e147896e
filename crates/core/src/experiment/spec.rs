//! The description of an experiment, as data: everything that commands, studies, schemas and
//! reports need to know of it; its causes (how each is found, what to change), and what metrics and
//! distributions are called.
//!
//! Each experiment has one [`Spec`] in its folder. Common code reads it and names no experiment.

use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::json;

use super::brief::Brief;
use super::column::Table;
use super::option::Opt;
use crate::finding::{Finding, Remedy};
use crate::record::{Advice, Arm, Cause, Summary};
use crate::study::{Study, metric_names};

/// An experiment.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Spec {
    /// The sub-command and the name in records, kebab case.
    pub name: &'static str,
    /// The question, as the user would ask it; ends in a question mark.
    pub question: &'static str,
    /// The line in the list of commands.
    pub about: &'static str,
    /// Examples and explanations below the options in its help.
    pub examples: &'static str,
    /// What `-h` shows.
    #[serde(skip)]
    pub brief: Brief,
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
    /// How metrics are stated in the first sentence of an answer, those that comparisons may be of.
    #[serde(skip)]
    pub phrases: &'static [Phrase],
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
        brief: Brief::NONE,
        options: &[],
        target: None,
        complete: |_| {},
        compares: |_| true,
        metrics: &[],
        histograms: &[],
        primary: "",
        phrases: &[],
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

/// How a metric is stated in a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phrase {
    /// The metric.
    pub metric: &'static str,
    /// The sentence around the figures of all arms, without full stop: `Opening a connection takes {}`.
    pub all: &'static str,
    /// Between two arms, where the first has more: `answers {} as many requests/s as`. Empty: both figures are
    /// stated alone.
    pub more: &'static str,
    /// Stands after the first figure instead of its unit: `requests/s`. Empty: each figure has its unit.
    pub unit: &'static str,
}

impl Phrase {
    /// A time or an amount: `Opening a connection takes {}`.
    pub const fn figures(metric: &'static str, all: &'static str) -> Self {
        Self { metric, all, more: "", unit: "" }
    }

    /// A rate: `The rate is {}`, and what the greater one does more often.
    pub const fn rate(
        metric: &'static str,
        all: &'static str,
        more: &'static str,
        unit: &'static str,
    ) -> Self {
        Self { metric, all, more, unit }
    }
}

/// A metric: one figure per trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct HistogramSpec {
    /// Name in records; ends in its unit.
    pub name: &'static str,
    /// Name in texts: `connect latency`.
    pub words: &'static str,
    /// The direction in which it gets better.
    pub better: Better,
}

/// The direction in which a figure gets better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
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

/// A cause that may explain what an arm showed.
#[derive(Clone, Copy, Debug)]
pub struct CauseSpec {
    /// Kebab case; the section of `docs/causes.md` that explains it.
    pub id: &'static str,
    /// What the arm's evidence says of it; its name and the arm's are filled in.
    ///
    /// None: it does not explain this arm.
    pub test: fn(&Arm) -> Option<Finding>,
    /// Causes that bring this one about: in an arm that has one of them too, it follows from that, and what to change
    /// is said there.
    pub follows: &'static [&'static str],
    /// What to change, worked out of the run's arms and causes. None: the first remedy of its section, in every run.
    pub remedies: Option<fn(&Summary) -> Vec<Remedy>>,
}

impl CauseSpec {
    /// A cause whose remedy is the first one of its section.
    pub const fn new(id: &'static str, test: fn(&Arm) -> Option<Finding>) -> Self {
        Self { id, test, follows: &[], remedies: None }
    }

    /// With remedies that are worked out of a run.
    #[must_use]
    pub const fn remedied(self, remedies: fn(&Summary) -> Vec<Remedy>) -> Self {
        Self { remedies: Some(remedies), ..self }
    }

    /// Where it is only what others of these causes bring about.
    #[must_use]
    pub const fn following(self, follows: &'static [&'static str]) -> Self {
        Self { follows, ..self }
    }

    /// The cause with its evidence, where it explains the arm.
    pub fn explain(&self, arm: &Arm) -> Option<Cause> {
        let found = (self.test)(arm)?;
        Some(Finding { id: self.id.to_owned(), subject: arm.name.clone(), ..found }.into())
    }

    /// What to change. `proof` says what the same run measured with it changed.
    pub fn advice(&self, summary: &Summary, proof: Option<String>) -> Vec<Advice> {
        let remedies = match self.remedies {
            Some(compute) => compute(summary),
            None => Remedy::first_of(self.id).map(|one| one.proven(proof)).into_iter().collect(),
        };
        remedies.into_iter().map(|remedy| remedy.advice(self.id)).collect()
    }
}

/// As `tcptoll schema experiments` lists it: with its remedy where that is the same in every run.
impl Serialize for CauseSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let remedy = match (self.remedies, Remedy::first_of(self.id)) {
            (None, Some(Remedy { change, cost, undo, .. })) => {
                json!({"setting": {"change": change, "cost": cost, "undo": undo}})
            }
            _ => json!("computed"),
        };
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("id", self.id)?;
        map.serialize_entry("remedy", &remedy)?;
        map.end()
    }
}

/// What is known of experiments: their descriptions, in alphabetical order.
#[derive(Clone, Copy, Debug)]
pub struct Specs(pub &'static [&'static Spec]);

impl Specs {
    /// The experiment of this name.
    ///
    /// None: this build does not know it; a newer one may have made the record.
    pub fn find(self, name: &str) -> Option<&'static Spec> {
        self.0.iter().copied().find(|spec| spec.name == name)
    }

    /// The description of a metric: its words are the same in every experiment that has it, its unit may
    /// differ.
    pub fn metric(self, name: &str) -> Option<&'static MetricSpec> {
        self.0.iter().flat_map(|spec| spec.metrics).copied().find(|metric| metric.name == name)
    }

    /// The description of a distribution; the same in every experiment that has it.
    pub fn histogram(self, name: &str) -> Option<&'static HistogramSpec> {
        let mut all = self.0.iter().flat_map(|spec| spec.histograms).copied();
        all.find(|histogram| histogram.name == name)
    }

    /// The direction in which a metric gets better; of a quantile that of its distribution.
    pub fn better(self, name: &str) -> Better {
        if let Some(metric) = self.metric(name) {
            return metric.better;
        }
        let is_quantile = |spec: &&HistogramSpec| {
            name.strip_prefix(spec.name).is_some_and(|figure| figure.starts_with('_'))
        };
        let mut histograms = self.0.iter().flat_map(|spec| spec.histograms).copied();
        histograms.find(is_quantile).map_or(Better::Neither, |histogram| histogram.better)
    }

    /// A metric in words: `mean connect latency`, `connections per second`.
    pub fn words_of_metric(self, name: &str) -> String {
        self.metric(name).map_or_else(|| words(name), |metric| metric.words.to_owned())
    }

    /// What a distribution holds, in words: `connect latency`.
    pub fn words_of_histogram(self, name: &str) -> String {
        self.histogram(name).map_or_else(|| words(name), |histogram| histogram.words.to_owned())
    }

    /// The unit of a metric in an experiment; empty where neither a description nor its name has one.
    pub fn unit_of_metric(self, experiment: &str, name: &str) -> &'static str {
        let own =
            self.find(experiment).and_then(|spec| spec.metrics.iter().find(|m| m.name == name));
        own.copied().or_else(|| self.metric(name)).map_or_else(|| unit(name), |metric| metric.unit)
    }
}

/// The words in a name, without its unit: `requests_per_s` is `requests per second`.
fn words(name: &str) -> String {
    let name = name.trim_end_matches("_bytes_per_s").trim_end_matches("_us").replace("_us_", " ");
    let name = match name.strip_suffix("_per_s") {
        Some(what) => format!("{what} per second"),
        None => name.replace("_per_s_", " per second "),
    };
    name.replace('_', " ")
}

/// The unit in a name.
fn unit(name: &str) -> &'static str {
    match name {
        m if m.contains("_us_per_s") => "us/s",
        m if m.ends_with("bytes_per_s") => "bytes/s",
        m if m.ends_with("_per_s") => "1/s",
        m if m.contains("_us") => "us",
        m if m.ends_with("_bytes") => "bytes",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_described_is_called_by_its_name() {
        let none = Specs(&[]);
        assert_eq!(none.words_of_metric("steps_per_s"), "steps per second");
        assert_eq!(none.words_of_metric("steps_bytes_per_s"), "steps");
        assert_eq!(none.words_of_metric("steps_per_socket"), "steps per socket");
        assert_eq!(none.words_of_metric("connect_us_p99"), "connect p99");
        assert_eq!(none.words_of_histogram("step_us"), "step");
        assert_eq!(none.unit_of_metric("http", "step_us_mean"), "us");
        assert_eq!(none.unit_of_metric("http", "steps_bytes_per_s"), "bytes/s");
        assert_eq!(none.unit_of_metric("http", "steps"), "");
    }
}
