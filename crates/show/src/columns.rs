//! Which columns does a run show, and what stands in their cells? Those of the experiment's tables; of
//! an experiment without tables, or that this build does not know, one for each figure it recorded.

use std::collections::BTreeSet;

use tcptoll_core::experiment::column::{Figure, Quantile};
use tcptoll_core::experiment::figures::{LATENESS, RTT};
use tcptoll_core::experiment::spec::{Better, Noun, Specs};
use tcptoll_core::experiment::{column, columns as common};
use tcptoll_core::record::{Arm, Metric};
use tcptoll_core::sheet::{Align, Cell, Column, Part, Room, Table};
use tcptoll_core::study::level_text;

use crate::figures::{self, Primary};
use crate::number::{self, ABSENT, Estimate, TimeUnit};
use crate::run::{Own, Run};
use crate::svg::arm_class;

/// A table as a run shows it.
#[derive(Clone, Debug)]
pub(crate) struct RunTable {
    /// Names it among the tables of the run.
    pub id: &'static str,
    /// Heading above it; may be empty.
    pub title: &'static str,
    /// Groups of columns that stay together.
    pub parts: Vec<Vec<RunColumn>>,
    has: fn(&Arm) -> bool,
}

impl RunTable {
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

    /// A row per arm, without columns that nobody has a figure of. None: nothing is left.
    pub(crate) fn filled(&self, run: &Run) -> Option<Table> {
        let arms = run.arms.iter().enumerate().filter(|(_, arm)| (self.has)(arm));
        let (places, arms): (Vec<usize>, Vec<&Arm>) = arms.unzip();
        let (head, names) = names(&arms);
        let mut columns = vec![Column::names(head)];
        let name = |(name, at)| Cell { text: name, class: arm_class(at), ..Cell::default() };
        let mut rows: Vec<Vec<Cell>> =
            names.into_iter().zip(places).map(|one| vec![name(one)]).collect();
        for (part, of_part) in self.parts.iter().enumerate() {
            for column in of_part {
                let cells: Vec<Cell> = arms.iter().map(|arm| column.cell(arm, run.own)).collect();
                if column.room == Room::File
                    || (column.room != Room::Always && cells.iter().all(Cell::is_absent))
                {
                    continue;
                }
                columns.push(Column { part, ..column.shown() });
                rows.iter_mut().zip(cells).for_each(|(row, cell)| row.push(cell));
            }
        }
        let table = Table { sortable: true, ..Table::new(columns, rows) };
        (table.columns.len() > 1 && !table.rows.is_empty()).then_some(table)
    }
}

/// A column as a run shows it.
#[derive(Clone, Debug)]
pub(crate) struct RunColumn {
    group: String,
    head: String,
    whole: String,
    /// Name in a tidy table.
    pub key: String,
    /// Unit in a tidy table.
    pub unit: &'static str,
    room: Room,
    right: bool,
    sort: Option<fn(&Arm) -> Option<f64>>,
    /// The unit of all its cells, if they are times.
    time_unit: Option<TimeUnit>,
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
            whole: column.whole.to_owned(),
            key: column.key.to_owned(),
            unit: column.unit,
            room: column.room,
            right: column.right,
            sort: column.sort,
            time_unit: None,
            source,
        }
    }

    /// A column for a metric that no table describes.
    fn recorded(name: &str, specs: Specs) -> Self {
        let words = specs.words_of_metric(name);
        Self { key: name.to_owned(), ..Self::plain("", &words, Source::Recorded) }
    }

    /// A column for a figure of a distribution that no table describes.
    fn quantile(name: &str, quantile: Quantile, specs: Specs) -> Self {
        let group = specs.words_of_histogram(name);
        Self::plain(&group, quantile.name(), Source::Quantile(name.to_owned(), quantile))
    }

    fn plain(group: &str, head: &str, source: Source) -> Self {
        Self {
            group: group.to_owned(),
            head: head.to_owned(),
            whole: String::new(),
            key: String::new(),
            unit: "",
            room: Room::Present,
            right: false,
            sort: None,
            time_unit: None,
            source,
        }
    }

    fn shown(&self) -> Column {
        Column {
            whole: self.whole.clone(),
            shares_unit: self.distribution().unwrap_or_default().to_owned(),
            ..Column::new(self.head.clone(), self.align()).under(&self.group).room(self.room)
        }
    }

    fn metric<'a>(&self, arm: &'a Arm) -> Option<&'a Metric> {
        arm.metrics.get(&self.key).filter(|metric| metric.value.is_finite())
    }

    /// As the reader sees it; [`ABSENT`] where there is no figure.
    pub(crate) fn cell(&self, arm: &Arm, own: &Own) -> Cell {
        let cell = match &self.source {
            Source::Quantile(key, quantile) => {
                let figure = arm.histograms.get(key).and_then(|h| Some((h, quantile.value(h)?)));
                figure.map(|(h, us)| self.time(us, None, h.sign(us)))
            }
            Source::Recorded => self.metric(arm).map(|m| self.estimate(m, &m.unit)),
            Source::OfGreatest(figure, greatest) => {
                of_greatest(*figure, *greatest, arm).map(|share| number::percent(share).into())
            }
            Source::Described(figure) => self.described_cell(*figure, arm, own),
        };
        Cell { value: self.value(arm), ..cell.unwrap_or_else(|| ABSENT.into()) }
    }

    fn described_cell(&self, figure: Figure, arm: &Arm, own: &Own) -> Option<Cell> {
        // Only of this very figure: that of a metric in another unit, or beside it, is another.
        let ends_of = |value: f64| {
            let metric = self.metric(arm).filter(|m| m.value.to_bits() == value.to_bits())?;
            metric.ci95
        };
        match figure {
            Figure::Metric => {
                let metric = self.metric(arm)?;
                Some(with_interval(metric.value, metric.ci95, number::three))
            }
            Figure::Estimate(unit) => self.metric(arm).map(|metric| self.estimate(metric, unit)),
            Figure::Rate => match self.metric(arm)? {
                metric if metric.ci95.is_some() => Some(self.estimate(metric, "")),
                _ => figures::rate(arm, &self.key).map(Cell::from),
            },
            // None is left here: each is a `Source` of its own.
            Figure::Quantile(..) | Figure::Answer(_) | Figure::OfGreatest(_) => None,
            Figure::Number(figure, factor) => figure(arm).map(|value| {
                with_interval(value, ends_of(value), |value| number::three(value * factor))
            }),
            Figure::Time(figure) => figure(arm).map(|us| self.time(us, ends_of(us), "")),
            Figure::Share(figure) => {
                figure(arm).map(|share| with_interval(share, ends_of(share), number::percent))
            }
            Figure::Count(figure) => figure(arm).map(|n| number::count(n).into()),
            Figure::Words(figure) => figure(arm).map(Cell::from),
            Figure::Own => (own.words)(&self.key, arm).map(Cell::from),
        }
    }

    /// A time in the unit of the column.
    fn time(&self, us: f64, ends: Option<[f64; 2]>, sign: &str) -> Cell {
        let unit = self.time_unit.unwrap_or_else(|| TimeUnit::of_column([us]));
        let cell = with_interval(us, ends, |us| unit.figure(us));
        Cell { text: format!("{sign}{}", cell.text), unit: unit.symbol().to_owned(), ..cell }
    }

    /// A metric with as many digits as its interval gives a meaning to.
    fn estimate(&self, m: &Metric, unit: &str) -> Cell {
        let one = Estimate::within(m.value, m.ci95, unit, self.time_unit);
        let interval = one.ci95.unwrap_or_default();
        Cell { text: one.value, interval, unit: one.symbol, ..Cell::default() }
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

    /// Whether its cells are words.
    pub(crate) fn is_words(&self) -> bool {
        matches!(self.source, Source::Described(Figure::Words(_) | Figure::Own))
    }

    fn align(&self) -> Align {
        match &self.source {
            _ if self.right => Align::Right,
            _ if self.is_words() => Align::Left,
            // Figures of several units have no common point.
            Source::Described(Figure::Estimate(unit))
                if !unit.is_empty() && !number::is_time(unit) =>
            {
                Align::Right
            }
            Source::Recorded
            | Source::OfGreatest(..)
            | Source::Described(Figure::Count(_) | Figure::Share(_)) => Align::Right,
            Source::Quantile(..) | Source::Described(_) => Align::Point,
        }
    }

    /// The distribution that it shows a figure of, whose unit may differ by row.
    fn distribution(&self) -> Option<&str> {
        match &self.source {
            Source::Quantile(key, _) => Some(key),
            Source::Recorded | Source::OfGreatest(..) | Source::Described(_) => None,
        }
    }
}

fn with_interval(value: f64, ends: Option<[f64; 2]>, text: impl Fn(f64) -> String) -> Cell {
    let interval = ends.map(|[low, high]| format!("[{}, {}]", text(low), text(high)));
    Cell { text: text(value), interval: interval.unwrap_or_default(), ..Cell::default() }
}

// What are the rows of a table called? By their arms' names; factors that all of them have stand once, in the heading:
// `link` over `metro` and `transatlantic`.

/// Heading of names.
const ARM: &str = "arm";

/// Heading and names of arms, without the factors that all of them have at the same place.
pub(crate) fn names(arms: &[&Arm]) -> (String, Vec<String>) {
    by_factor(arms)
        .unwrap_or_else(|| (ARM.to_owned(), arms.iter().map(|arm| arm.name.clone()).collect()))
}

/// None: there is no such factor.
fn by_factor(arms: &[&Arm]) -> Option<(String, Vec<String>)> {
    let parts: Vec<Vec<&str>> = arms.iter().map(|arm| arm.name.split(", ").collect()).collect();
    let [first, rest @ ..] = parts.as_slice() else { return None };
    if rest.is_empty() || rest.iter().any(|one| one.len() != first.len()) {
        return None;
    }
    let factors: Vec<Option<&str>> = (0..first.len())
        .map(|at| {
            let (factor, _) = first[at].split_once(' ')?;
            let is_of = |(arm, parts): (&&Arm, &Vec<&str>)| {
                let level = parts[at].strip_prefix(factor).and_then(|rest| rest.strip_prefix(' '));
                level.is_some_and(|level| {
                    arm.factors.get(factor).is_some_and(|own| level_text(own) == level)
                })
            };
            arms.iter().zip(&parts).all(is_of).then_some(factor)
        })
        .collect();
    factors.iter().any(Option::is_some).then_some(())?;
    let mut heads: Vec<&str> = factors.iter().map(|factor| factor.unwrap_or(ARM)).collect();
    heads.dedup();
    let cell = |parts: &Vec<&str>| -> String {
        let levels = parts.iter().zip(&factors).map(|(&part, factor)| match factor {
            Some(factor) => &part[factor.len() + 1..],
            None => part,
        });
        levels.collect::<Vec<_>>().join(", ")
    };
    Some((heads.join(", "), parts.iter().map(cell).collect()))
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

/// The tables of a run, in their order.
pub(crate) fn tables(summary: &Run) -> Vec<RunTable> {
    let primary = figures::primary(summary);
    match summary.spec().filter(|spec| !spec.tables.is_empty()) {
        Some(spec) => spec.tables.iter().map(|table| resolved(table, summary, &primary)).collect(),
        None => vec![of_figures(summary, &primary)],
    }
}

/// The experiment's table of this id under a heading, which may be empty, without the metric that stands with the
/// rounds; nothing, if it is empty.
#[must_use]
pub fn table(run: &Run, title: &str, id: &str) -> Vec<Part> {
    let table = tables(run).into_iter().find(|table| table.id == id);
    let table = table.and_then(|table| table.without(in_rounds(run)).filled(run));
    let title = (!title.is_empty()).then(|| [Part::Blank, Part::title(title)]);
    let title = title.into_iter().flatten();
    table.map_or_else(Vec::new, |table| title.chain([Part::Table(table)]).collect())
}

/// The metric that stands with its interval in the table of rounds.
pub(crate) fn in_rounds(run: &Run) -> Option<&str> {
    run.rounds.as_ref().and_then(|_| column::metric_of(run))
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
            .map(|column| {
                let column = RunColumn::described(column, summary, primary);
                let room = if table.room == Room::Always { column.room } else { table.room };
                RunColumn { room, ..column }
            })
            .collect()
    };
    let mut parts: Vec<Vec<RunColumn>> = table.parts.iter().map(part).collect();
    let arms: Vec<&Arm> = summary.arms.iter().filter(|arm| (table.has)(arm)).collect();
    settle_units(&mut parts, &arms);
    RunTable { id: table.id, title: table.title, parts, has: table.has }
}

/// The quantiles of the answer that a table has room for.
const ANSWER: [Quantile; 4] = [Quantile::P50, Quantile::P99, Quantile::P999, Quantile::Max];

/// One table of every figure: of metrics and distributions, CPU, and how many succeeded.
fn of_figures(summary: &Run, primary: &Primary) -> RunTable {
    let answer =
        ANSWER.map(|quantile| RunColumn::quantile(&primary.key, quantile, summary.specs)).to_vec();
    let metrics = metrics(summary);
    let mut parts: Vec<Vec<RunColumn>> =
        metrics.iter().map(|name| vec![RunColumn::recorded(name, summary.specs)]).collect();
    parts.insert(parts.len().min(1), answer);
    let others = distributions(summary).into_iter().filter(|name| *name != primary.key);
    parts.extend(others.map(|name| vec![RunColumn::quantile(name, Quantile::P50, summary.specs)]));
    parts.push(cpu(noun(summary), &metrics));
    let described = |column: &column::Column| RunColumn::described(column, summary, primary);
    let failed = common::ERRORS.when.is_none_or(|when| when(summary));
    let errors = failed.then(|| described(&common::ERRORS));
    parts.push([described(&common::OK)].into_iter().chain(errors).collect());
    settle_units(&mut parts, &summary.arms.iter().collect::<Vec<_>>());
    RunTable { id: common::FIGURES, title: "", parts, has: common::every }
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
        let plain = RunColumn::plain(&group, column.head, Source::Described(column.figure));
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
    use tcptoll_core::experiment::spec::Spec;
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
        let text = |at: usize| column.cell(&summary.arms[at], &crate::run::NONE).text;
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
        let reports =
            crate::Reports { specs: Specs(&[&SAMPLE]), own: &[], broken: |_, _| Vec::new() };
        let arms = vec![Arm::default()];
        let experiment = SAMPLE.name.to_owned();
        let summary = reports.run(Summary { experiment, arms, ..Summary::default() });
        let table = of_figures(&summary, &figures::primary(&summary));
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

    fn named(all: &[&str], factors: &[&str]) -> (String, String) {
        let arm = |name: &&str| {
            let of = |factor: &&str| {
                let mut parts = name.split(", ");
                let level = parts.find_map(|part| part.strip_prefix(*factor)?.strip_prefix(' '));
                ((*factor).to_owned(), level.unwrap_or("another").into())
            };
            let factors = factors.iter().map(of);
            Arm { name: (*name).into(), factors: factors.collect(), ..Arm::default() }
        };
        let arms: Vec<Arm> = all.iter().map(arm).collect();
        let (head, names) = names(&arms.iter().collect::<Vec<_>>());
        (head, names.join("|"))
    }

    #[test]
    fn factors_of_all_arms_stand_once_in_the_heading() {
        let named = |all, factors, head: &str, names: &str| {
            assert_eq!(named(all, factors), (head.to_owned(), names.to_owned()));
        };
        let both = ["message 1, nagle on", "message 64, nagle off"];
        named(&both, &["message", "nagle"], "message, nagle", "1, on|64, off");
        let own = ["KeepAlive on, port 80", "KeepAlive off, port 81"];
        named(&own, &["port"], "arm, port", "KeepAlive on, 80|KeepAlive off, 81");
    }

    #[test]
    fn a_name_that_looks_like_a_level_is_none_if_the_arm_has_another() {
        let arm = |name: &str, level: u64| Arm {
            name: name.into(),
            factors: [("connections".to_owned(), level.into())].into(),
            ..Arm::default()
        };
        let arms = [arm("connections 10", 2), arm("connections 3", 3)];
        let (head, names) = super::names(&arms.iter().collect::<Vec<_>>());
        assert_eq!((head.as_str(), names[0].as_str()), ("arm", "connections 10"));
    }

    #[test]
    fn names_of_their_own_and_a_single_arm_stay_as_they_are() {
        for all in [
            &["link metro"] as &[&str],
            &["link metro", "as it was"],
            &["new pool", "new one"],
            &["link", "link metro, far"],
        ] {
            assert_eq!(named(all, &["link"]), ("arm".to_owned(), all.join("|")));
        }
    }
}
