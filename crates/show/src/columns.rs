//! Which columns does a run show, and what stands in their cells? Those of the experiment's tables; of
//! an experiment without tables, or that this build does not know, one for each figure it recorded.

use std::collections::BTreeSet;

use tcptoll_core::experiment::column::{Figure, Form, Quantile, Show};
use tcptoll_core::experiment::figures::{LATENESS, RTT};
use tcptoll_core::experiment::spec::{Better, Noun, Spec, Specs};
use tcptoll_core::experiment::{column, columns as common};
use tcptoll_core::record::{Arm, Metric};

use crate::figures::{self, Primary};
use crate::number::{self, ABSENT, Estimate, TimeUnit};
use crate::run::{Own, Run};

/// A table as a run shows it.
#[derive(Clone, Debug)]
pub(crate) struct RunTable {
    /// Names it among the tables of its form.
    pub id: &'static str,
    /// Heading above it; may be empty.
    pub title: &'static str,
    /// Groups of columns that stay together.
    pub parts: Vec<Vec<RunColumn>>,
    has: fn(&Arm) -> bool,
}

impl RunTable {
    /// Arms with a row in it, each with its place.
    pub(crate) fn arms<'a>(&self, summary: &'a Run) -> Vec<(usize, &'a Arm)> {
        summary.arms.iter().enumerate().filter(|(_, arm)| (self.has)(arm)).collect()
    }

    /// Whether an arm has a row in it.
    pub(crate) fn has_row(&self, arm: &Arm) -> bool {
        (self.has)(arm)
    }

    /// All columns but that of `said`, a metric that stands elsewhere already.
    pub(crate) fn without(self, said: Option<&str>) -> Self {
        let keep = |column: &RunColumn| column.key.is_empty() || Some(column.key.as_str()) != said;
        let kept = |part: Vec<RunColumn>| part.into_iter().filter(keep).collect();
        Self { parts: self.parts.into_iter().map(kept).collect(), ..self }
    }
}

/// A column as a run shows it.
#[derive(Clone, Debug)]
pub(crate) struct RunColumn {
    /// Heading over neighbours, on a terminal; may be empty.
    pub group: String,
    /// Heading below that.
    pub head: String,
    /// Heading where the neighbours have no room; may be empty.
    pub alone: &'static str,
    /// The whole heading.
    pub whole: String,
    /// Name in a tidy table.
    pub key: String,
    /// Unit in a tidy table.
    pub unit: &'static str,
    /// When a terminal shows it.
    pub show: Show,
    /// Whether its heading stands over the unit too.
    pub(crate) over_unit: bool,
    /// Whether its cells are flush right.
    pub right: bool,
    sort: Option<fn(&Arm) -> Option<f64>>,
    /// The unit of all its cells, if they are times.
    pub(crate) time_unit: Option<TimeUnit>,
    source: Source,
}

/// Where a cell is from.
#[derive(Clone, Debug)]
enum Source {
    /// As described.
    Described(Figure),
    /// A figure of a distribution.
    Quantile(String, Quantile),
    /// A figure, and the greatest that any arm has.
    OfGreatest(fn(&Arm) -> Option<f64>, f64),
    /// The metric that the column is named after, with its recorded unit.
    Recorded,
}

/// A figure as a share of the greatest; `None` where an arm has none, or the greatest is no measure.
fn of_greatest(value: fn(&Arm) -> Option<f64>, greatest: f64, arm: &Arm) -> Option<f64> {
    value(arm).map(|value| value / greatest).filter(|share| greatest > 0.0 && share.is_finite())
}

/// How a column's cells stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Words.
    Words,
    /// Whole numbers, and figures with their units.
    Right,
    /// Figures: decimal points stand in one line.
    Number,
}

impl RunColumn {
    fn described(column: &column::Column, summary: &Run, primary: &Primary) -> Self {
        let (group, source) = match column.figure {
            Figure::Quantile(key, quantile) => {
                (column.group, Source::Quantile(key.to_owned(), quantile))
            }
            Figure::Answer(quantile) => {
                let group = if column.group.is_empty() { &primary.name } else { column.group };
                (group, Source::Quantile(primary.key.clone(), quantile))
            }
            Figure::OfGreatest(figure) => {
                let greatest = summary.arms.iter().filter_map(figure).fold(0.0, f64::max);
                (column.group, Source::OfGreatest(figure, greatest))
            }
            figure => (column.group, Source::Described(figure)),
        };
        Self {
            group: group.to_owned(),
            head: column.head.to_owned(),
            alone: column.alone,
            whole: column.whole.to_owned(),
            key: column.key.to_owned(),
            unit: column.unit,
            show: column.show,
            over_unit: column.over_unit,
            right: column.right,
            sort: column.sort,
            time_unit: None,
            source,
        }
    }

    /// A column for a metric that no table describes.
    fn recorded(name: &str, specs: Specs) -> Self {
        let words = specs.words_of_metric(name);
        Self { key: name.to_owned(), ..Self::plain("", &words, &words, Source::Recorded) }
    }

    /// A column for a figure of a distribution that no table describes.
    fn quantile(name: &str, quantile: Quantile, specs: Specs) -> Self {
        let group = specs.words_of_histogram(name);
        let whole = format!("{group} {}", quantile.name());
        Self::plain(&group, quantile.name(), &whole, Source::Quantile(name.to_owned(), quantile))
    }

    fn plain(group: &str, head: &str, whole: &str, source: Source) -> Self {
        Self {
            group: group.to_owned(),
            head: head.to_owned(),
            alone: "",
            whole: whole.to_owned(),
            key: String::new(),
            unit: "",
            show: Show::Present,
            over_unit: true,
            right: false,
            sort: None,
            time_unit: None,
            source,
        }
    }

    fn metric<'a>(&self, arm: &'a Arm) -> Option<&'a Metric> {
        arm.metrics.get(&self.key).filter(|metric| metric.value.is_finite())
    }

    /// As the reader sees it; [`ABSENT`] where there is no figure.
    pub(crate) fn text(&self, arm: &Arm, own: &Own, form: Form) -> String {
        let text = match &self.source {
            Source::Quantile(key, quantile) => {
                let figure = arm.histograms.get(key).and_then(|h| quantile.value(h));
                figure.map(|us| format!("{}{}", self.sign(arm), self.time(us)))
            }
            Source::Recorded => self.metric(arm).map(|m| match form {
                Form::Page => Estimate::within(m.value, m.ci95, &m.unit, self.time_unit).text(),
                _ if number::is_time(&m.unit) => self.time(m.value),
                _ => number::metric(m.value, &m.unit),
            }),
            Source::OfGreatest(figure, greatest) => {
                of_greatest(*figure, *greatest, arm).map(number::percent)
            }
            Source::Described(figure) => self.described_text(*figure, arm, own, form),
        };
        text.unwrap_or_else(|| ABSENT.to_owned())
    }

    fn described_text(&self, figure: Figure, arm: &Arm, own: &Own, form: Form) -> Option<String> {
        match figure {
            Figure::Metric => self.metric(arm).map(|m| number::three(m.value)),
            Figure::Estimate(unit) => self.metric(arm).map(|m| match form {
                Form::Page => self.interval(m, unit),
                _ => self.figure(m.value, unit),
            }),
            Figure::Rate => match self.metric(arm)? {
                m if form == Form::Page && m.ci95.is_some() => Some(self.interval(m, "")),
                _ => figures::rate(arm, &self.key),
            },
            // None is left here: each is a `Source` of its own.
            Figure::Quantile(..) | Figure::Answer(_) | Figure::OfGreatest(_) => None,
            Figure::Number(figure, factor) => {
                figure(arm).map(|value| number::three(value * factor))
            }
            Figure::Time(figure) => figure(arm).map(|us| self.time(us)),
            Figure::Share(figure) => figure(arm).map(number::percent),
            Figure::Count(figure) => figure(arm).map(number::count),
            Figure::Words(figure) => figure(arm),
            Figure::Own => (own.words)(&self.key, arm),
        }
    }

    /// A time in the unit of the column.
    fn time(&self, us: f64) -> String {
        self.time_unit.map_or_else(|| number::time(us), |unit| unit.text(us))
    }

    fn figure(&self, value: f64, unit: &str) -> String {
        if number::is_time(unit) { self.time(value) } else { number::metric(value, unit) }
    }

    fn interval(&self, m: &Metric, unit: &str) -> String {
        let value = self.figure(m.value, unit);
        match m.ci95.map(|ends| ends.map(|end| self.figure(end, unit))) {
            Some([low, high]) => format!("{value} [{low}, {high}]"),
            None => value,
        }
    }

    /// The time in its cell, µs; `None`: it has none, or no time.
    fn us(&self, arm: &Arm) -> Option<f64> {
        match &self.source {
            Source::Quantile(key, quantile) => quantile.value(arm.histograms.get(key)?),
            Source::Recorded => {
                self.metric(arm).filter(|m| number::is_time(&m.unit)).map(|m| m.value)
            }
            Source::Described(Figure::Estimate(unit)) if number::is_time(unit) => {
                self.metric(arm).map(|m| m.value)
            }
            Source::Described(Figure::Time(figure)) => figure(arm),
            Source::Described(_) | Source::OfGreatest(..) => None,
        }
    }

    /// `"≥ "` before the figure of a distribution that is a lower bound.
    pub(crate) fn sign(&self, arm: &Arm) -> &'static str {
        let Source::Quantile(key, quantile) = &self.source else { return "" };
        let figure = arm.histograms.get(key).and_then(|h| Some((h, quantile.value(h)?)));
        figure.map_or("", |(h, us)| h.sign(us))
    }

    /// In the record's unit; `None` where absent. Of words it is what they are sorted by.
    pub(crate) fn value(&self, arm: &Arm) -> Option<f64> {
        if let Some(sort) = self.sort {
            return sort(arm);
        }
        match &self.source {
            Source::Quantile(key, quantile) => quantile.value(arm.histograms.get(key)?),
            Source::Recorded => self.metric(arm).map(|m| m.value),
            Source::OfGreatest(figure, greatest) => of_greatest(*figure, *greatest, arm),
            Source::Described(figure) => match figure {
                Figure::Metric | Figure::Estimate(_) | Figure::Rate => {
                    self.metric(arm).map(|m| m.value)
                }
                Figure::Number(figure, _) | Figure::Time(figure) | Figure::Share(figure) => {
                    figure(arm).filter(|value| value.is_finite())
                }
                Figure::Count(figure) => figure(arm).map(|n| n as f64),
                Figure::Quantile(..)
                | Figure::Answer(_)
                | Figure::OfGreatest(_)
                | Figure::Words(_)
                | Figure::Own => None,
            },
        }
    }

    /// How its cells stand.
    pub(crate) fn kind(&self) -> Kind {
        match &self.source {
            _ if self.right => Kind::Right,
            Source::Described(Figure::Words(_) | Figure::Own) => Kind::Words,
            Source::Recorded
            | Source::OfGreatest(..)
            | Source::Described(Figure::Count(_) | Figure::Share(_)) => Kind::Right,
            Source::Quantile(..) | Source::Described(_) => Kind::Number,
        }
    }

    /// The distribution that it shows a figure of, whose unit may differ by row.
    pub(crate) fn distribution(&self) -> Option<&str> {
        match &self.source {
            Source::Quantile(key, _) => Some(key),
            Source::Recorded | Source::OfGreatest(..) | Source::Described(_) => None,
        }
    }
}

/// Gives each column of times its unit; neighbours of one distribution have the same.
fn settle_units(parts: &mut [Vec<RunColumn>], arms: &[&Arm]) {
    let alike = |a: &RunColumn, b: &RunColumn| {
        a.distribution().is_some() && a.distribution() == b.distribution()
    };
    for run in parts.iter_mut().flat_map(|part| part.chunk_by_mut(alike)) {
        let times = |column: &RunColumn| -> Vec<f64> {
            arms.iter().filter_map(|arm| column.us(arm)).collect()
        };
        let all: Vec<f64> = run.iter().flat_map(times).collect();
        let unit = (!all.is_empty()).then(|| TimeUnit::of_column(all));
        for column in run {
            column.time_unit = unit;
        }
    }
}

/// The tables of a run in one form, in their order.
pub(crate) fn tables(summary: &Run, form: Form) -> Vec<RunTable> {
    let primary = figures::primary(summary);
    match summary.spec().filter(|spec| !spec.tables.is_empty()) {
        Some(spec) => described(spec, summary, &primary, form),
        None => vec![of_figures(summary, &primary, form)],
    }
}

/// The table of this id, if the run has it.
pub(crate) fn table(summary: &Run, form: Form, id: &str) -> Option<RunTable> {
    tables(summary, form).into_iter().find(|table| table.id == id)
}

/// What any arm may have counted besides its metrics.
pub(crate) fn counted(summary: &Run) -> RunTable {
    resolved(&common::COUNTED, summary, &figures::primary(summary))
}

fn resolved(table: &column::Table, summary: &Run, primary: &Primary) -> RunTable {
    let shown = |column: &&column::Column| column.when.is_none_or(|when| when(summary));
    let part = |part: &&[column::Column]| {
        part.iter()
            .filter(shown)
            .map(|column| RunColumn::described(column, summary, primary))
            .collect()
    };
    let mut parts: Vec<Vec<RunColumn>> = table.parts.iter().map(part).collect();
    let arms: Vec<&Arm> = summary.arms.iter().filter(|arm| (table.has)(arm)).collect();
    settle_units(&mut parts, &arms);
    RunTable { id: table.id, title: table.title, parts, has: table.has }
}

fn described(spec: &Spec, summary: &Run, primary: &Primary, form: Form) -> Vec<RunTable> {
    let of_form = spec.tables.iter().filter(|table| table.forms.contains(&form));
    of_form.map(|table| resolved(table, summary, primary)).collect()
}

/// The quantiles of the answer that a table has room for.
const ANSWER: [Quantile; 4] = [Quantile::P50, Quantile::P99, Quantile::P999, Quantile::Max];

/// One table of every figure: of metrics and distributions, CPU, and how many succeeded.
fn of_figures(summary: &Run, primary: &Primary, form: Form) -> RunTable {
    let answer = || {
        ANSWER.map(|quantile| RunColumn::quantile(&primary.key, quantile, summary.specs)).to_vec()
    };
    let metrics = metrics(summary);
    let mut parts: Vec<Vec<RunColumn>> =
        metrics.iter().map(|name| vec![RunColumn::recorded(name, summary.specs)]).collect();
    // Markdown has the answer and how many succeeded in the table of arms.
    if form != Form::Markdown {
        parts.insert(parts.len().min(1), answer());
    }
    let others = distributions(summary).into_iter().filter(|name| *name != primary.key);
    parts.extend(others.map(|name| vec![RunColumn::quantile(name, Quantile::P50, summary.specs)]));
    parts.push(cpu(noun(summary), &metrics));
    let described = |column: &column::Column| vec![RunColumn::described(column, summary, primary)];
    if form != Form::Markdown {
        parts.push(described(&common::OK));
    }
    let failed = common::ERRORS.when.is_none_or(|when| when(summary));
    if form == Form::Page && failed {
        parts.push(described(&common::ERRORS));
    }
    settle_units(&mut parts, &summary.arms.iter().collect::<Vec<_>>());
    RunTable { id: "figures", title: "", parts, has: common::every }
}

/// The names of an operation; of an experiment that this build does not know, `operation`.
pub(crate) fn noun(summary: &Run) -> Noun {
    let unknown = Noun { one: "operation", many: "operations", short: "op" };
    summary.spec().map_or(unknown, |spec| spec.operation)
}

/// CPU of both hosts for each operation, where no metric has it.
fn cpu(noun: Noun, metrics: &[&str]) -> Vec<RunColumn> {
    let group = format!("CPU µs/{}", noun.short);
    let described = |column: column::Column| {
        let whole = format!("{} {group}", column.head);
        let plain = RunColumn::plain(&group, column.head, &whole, Source::Described(column.figure));
        RunColumn { key: column.key.to_owned(), unit: column.unit, ..plain }
    };
    let both = [common::client_cpu_column("", ""), common::server_cpu_column("", "")];
    both.into_iter().filter(|column| !metrics.contains(&column.key)).map(described).collect()
}

/// Names of the metrics to show: those described, else those recorded; that of the run first. What
/// the settings decide, and what is evidence alone, has no column.
fn metrics(summary: &Run) -> Vec<&str> {
    let spec = summary.spec();
    let recorded: BTreeSet<&str> =
        summary.arms.iter().flat_map(|arm| arm.metrics.keys()).map(String::as_str).collect();
    let plain =
        |name: &&str| summary.specs.metric(name).is_some_and(|m| m.better == Better::Neither);
    let mut names: Vec<&str> = match spec {
        Some(spec) => spec.metrics.iter().map(|metric| metric.name).collect(),
        None => recorded.into_iter().collect(),
    };
    names.retain(|name| !plain(name));
    let first = column::metric_of(summary).or(spec.map(|spec| spec.primary));
    names.sort_by_key(|name| Some(*name) != first);
    names
}

/// Names of the distributions to show, as of [`metrics`].
fn distributions(summary: &Run) -> Vec<&str> {
    let recorded: BTreeSet<&str> =
        summary.arms.iter().flat_map(|arm| arm.histograms.keys()).map(String::as_str).collect();
    let names: Vec<&str> = match summary.spec() {
        Some(spec) => spec.histograms.iter().map(|histogram| histogram.name).collect(),
        None => recorded.into_iter().collect(),
    };
    names.into_iter().filter(|name| ![RTT.name, LATENESS.name].contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use tcptoll_core::experiment::figures::{
        CONNECT, CONNECT_MEAN, CONNECTIONS_RATE, RATE_RESOLUTION, SERVER_CPU,
    };
    use tcptoll_core::record::Summary;

    use super::*;

    #[test]
    fn a_share_of_the_greatest_is_of_the_arms_of_the_run() {
        let arm = |elapsed_s| Arm { elapsed_s, ..Arm::default() };
        let arms = vec![arm(2.0), arm(8.0), arm(0.0)];
        let summary = Run::from(Summary { arms, ..Summary::default() });
        let elapsed = |arm: &Arm| Some(arm.elapsed_s).filter(|s| *s > 0.0);
        let column = column::Column::whole("share", ("", ""), Figure::OfGreatest(elapsed));
        let column = RunColumn::described(&column, &summary, &figures::primary(&summary));
        let text = |at: usize| column.text(&summary.arms[at], &crate::run::NONE, Form::Text);
        assert_eq!([text(0), text(1), text(2)], ["25 %", "100 %", ABSENT]);
        assert_eq!(column.value(&summary.arms[0]), Some(0.25));
    }

    #[test]
    fn an_experiment_without_tables_is_shown_as_it_is_described() {
        const SAMPLE: Spec = Spec {
            name: "sample",
            metrics: &[&CONNECT_MEAN, &CONNECTIONS_RATE, &RATE_RESOLUTION, &SERVER_CPU],
            histograms: &[&CONNECT, &LATENESS, &RTT],
            primary: CONNECTIONS_RATE.name,
            answers: &[CONNECT.name],
            ..Spec::BARE
        };
        let reports = crate::Reports { specs: Specs(&[&SAMPLE]), own: &[] };
        let arms = vec![Arm::default()];
        let experiment = SAMPLE.name.to_owned();
        let summary = reports.run(Summary { experiment, arms, ..Summary::default() });
        let table = of_figures(&summary, &figures::primary(&summary), Form::Text);
        let heads: Vec<String> = table
            .parts
            .iter()
            .flatten()
            .map(|c| format!("{} {}", c.group, c.head).trim().to_owned())
            .collect();
        // The primary metric and the answer come first; evidence has no column.
        assert_eq!(
            heads[..3],
            ["connections per second", "connect latency p50", "connect latency p99"]
        );
        assert!(heads.contains(&"server CPU per operation".to_owned()), "{heads:?}");
        assert!(!heads.iter().any(|head| head.contains("resolution") || head.contains("ICMP")));
        assert_eq!(heads.last().map(String::as_str), Some("ok"));
    }
}
