//! How does a run look as one table? Tidy: a row per figure, so that any program can draw it again.
//! What each column means stands at `crate::csv()`.

use std::collections::BTreeSet;

use csv::WriterBuilder;
use serde_json::Value;
use tcptoll_core::record::{Arm, Comparison, Round};

use crate::columns::{self, RunColumn, RunTable};
use crate::run::{Own, Run};
use crate::{clean, figures, number, rounds};

/// Columns before the factors.
const BEFORE: [&str; 4] = ["kind", "experiment", "arm", "against"];

/// Columns after the factors.
const AFTER: [&str; 19] = [
    "metric",
    "unit",
    "round",
    "began_s",
    "left_out",
    "value",
    "median",
    "ci95_low",
    "ci95_high",
    "n",
    "difference",
    "difference_ci95_low",
    "difference_ci95_high",
    "margin",
    "alpha",
    "verdict",
    "rank_test_p",
    "source",
    "note",
];

/// One row; what does not apply stays empty.
#[derive(Default)]
struct CsvRow<'a> {
    kind: &'static str,
    arm: &'a str,
    against: &'a str,
    levels: Vec<(&'a str, &'a Value)>,
    /// In the order of [`AFTER`].
    rest: [String; AFTER.len()],
}

impl<'a> CsvRow<'a> {
    fn of_arm(kind: &'static str, arm: &'a Arm) -> Self {
        let levels = arm.factors.iter().map(|(factor, level)| (factor.as_str(), level)).collect();
        Self { kind, arm: &arm.name, levels, ..Self::default() }
    }

    /// Puts a text of the summary into a column.
    fn text(mut self, column: &str, text: &str) -> Self {
        self.put(column, guarded(text));
        self
    }

    /// Puts a figure into a column.
    fn figure(mut self, column: &str, value: Option<f64>) -> Self {
        let value = value.filter(|v| v.is_finite());
        self.put(column, value.map_or_else(String::new, |v| v.to_string()));
        self
    }

    fn put(&mut self, column: &str, cell: String) {
        let place = AFTER.iter().position(|name| *name == column);
        // A name that is no column of ours is a slip in this file; its test would miss the figure.
        debug_assert!(place.is_some(), "no column {column}");
        if let Some(place) = place {
            self.rest[place] = cell;
        }
    }

    fn interval(self, ci95: Option<[f64; 2]>) -> Self {
        self.figure("ci95_low", ci95.map(|ci| ci[0])).figure("ci95_high", ci95.map(|ci| ci[1]))
    }
}

/// The table of a run.
pub fn render(summary: &Run) -> String {
    let tables = columns::tables(summary);
    let tables: Vec<RunTable> = std::iter::once(columns::counted(summary)).chain(tables).collect();
    let per = summary.comparisons.iter().flat_map(|c| c.per.keys());
    let factors: BTreeSet<&str> = summary
        .arms
        .iter()
        .flat_map(|arm| arm.factors.keys())
        .chain(per)
        .map(String::as_str)
        .collect();
    let heads = BEFORE.iter().map(|head| (*head).to_owned());
    let heads = heads
        .chain(factors.iter().map(|factor| guarded(&format!("factor_{factor}"))))
        .chain(AFTER.iter().map(|head| (*head).to_owned()));
    let rows = summary
        .arms
        .iter()
        .flat_map(|one| arm(one, &tables, summary.own))
        .chain(
            summary
                .arms
                .iter()
                .flat_map(|arm| arm.rounds.iter().flat_map(|r| round(summary, arm, r))),
        )
        .chain(of_points(summary))
        .chain(summary.comparisons.iter().map(|c| comparison(summary, c)))
        .chain(summary.comparisons.iter().flat_map(by_point))
        .chain(summary.published.iter().map(|p| published(summary, p)));
    let experiment = guarded(&summary.experiment);
    let lines = std::iter::once(heads.collect()).chain(rows.map(|row| {
        let level = |factor: &&str| {
            let found = row.levels.iter().find(|(name, _)| name == factor);
            found.map_or_else(String::new, |(_, value)| level(value))
        };
        let mut cells =
            vec![row.kind.to_owned(), experiment.clone(), guarded(row.arm), guarded(row.against)];
        cells.extend(factors.iter().map(level));
        cells.extend(row.rest);
        cells
    }));
    write(lines)
}

pub fn write(lines: impl Iterator<Item = Vec<String>>) -> String {
    let mut writer = WriterBuilder::new().from_writer(Vec::new());
    for line in lines {
        writer.write_record(&line).expect("memory takes every row, and all rows are equally long");
    }
    let bytes = writer.into_inner().expect("memory can be flushed");
    String::from_utf8(bytes).expect("every cell was UTF-8")
}

/// Text that a spreadsheet would run as a formula gets an apostrophe; numbers stay what they are.
pub fn guarded(text: &str) -> String {
    let text = clean::line(text);
    let formula = text.trim_start().starts_with(['=', '+', '-', '@']);
    let number = text.parse::<f64>().is_ok_and(f64::is_finite);
    if formula && !number { format!("'{text}") } else { text }
}

fn level(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => guarded(text),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(_) | Value::Object(_) => guarded(&value.to_string()),
    }
}

/// Metrics of an arm, then the quantiles of its histograms: of the values of all rounds together,
/// which is not the mean of the rounds' quantiles and so has a kind of its own.
fn arm<'a>(arm: &'a Arm, tables: &[RunTable], own: &Own) -> Vec<CsvRow<'a>> {
    let metrics = arm.metrics.iter().map(|(name, m)| {
        CsvRow::of_arm("arm", arm)
            .text("metric", name)
            .text("unit", &m.unit)
            .figure("value", Some(m.value))
            .figure("median", m.median)
            .interval(m.ci95)
            .figure("n", Some(m.n as f64))
    });
    let quantiles = arm.histograms.iter().flat_map(|(name, h)| {
        figures::of_distribution(h).into_iter().filter_map(move |(quantile, value)| {
            let value = value?;
            let unit = if name.ends_with("_us") { "us" } else { "" };
            let row = CsvRow::of_arm("arm_merged", arm)
                .text("metric", &format!("{name}_{quantile}"))
                .text("unit", unit)
                .figure("value", Some(value))
                .figure("n", Some(h.count as f64));
            Some(row)
        })
    });
    let counts = [("attempts", arm.attempts), ("ok", arm.ok)]
        .into_iter()
        .map(|(name, n)| (name.to_owned(), n))
        .chain(arm.errors.iter().map(|(class, n)| (format!("errors_{class}"), *n)));
    let counts = counts.filter(|(name, _)| !arm.metrics.contains_key(name)).map(|(name, n)| {
        CsvRow::of_arm("arm", arm).text("metric", &name).figure("value", Some(n as f64))
    });
    metrics.chain(quantiles).chain(counts).chain(of_tables(arm, tables, own)).collect()
}

/// What no metric has: unit and figure as recorded, words as a note; each name once.
fn of_tables<'a>(arm: &'a Arm, tables: &[RunTable], own: &Own) -> Vec<CsvRow<'a>> {
    let mut said: BTreeSet<&str> = BTreeSet::new();
    let of_arm = tables.iter().filter(|table| table.has_row(arm));
    let named = of_arm.flat_map(|table| table.parts.iter().flatten());
    let new = named.filter(|column| {
        let known = column.key.is_empty() || arm.metrics.contains_key(&column.key);
        !known && said.insert(&column.key)
    });
    let row = |column: &RunColumn| {
        let row = CsvRow::of_arm("arm", arm).text("metric", &column.key).text("unit", column.unit);
        if column.is_words() {
            let words = column.cell(arm, own).text;
            return (words != number::ABSENT).then(|| row.text("note", &words));
        }
        let value = column.value(arm)?;
        Some(row.figure("value", Some(value)))
    };
    new.filter_map(row).collect()
}

fn round<'a>(summary: &'a Run, arm: &'a Arm, round: &'a Round) -> Vec<CsvRow<'a>> {
    let row = || {
        CsvRow::of_arm("round", arm)
            .figure("round", Some(f64::from(round.round)))
            .figure("began_s", Some(round.began_s))
            .text("left_out", round.left_out.as_deref().unwrap_or_default())
    };
    if round.metrics.is_empty() {
        return vec![row()];
    }
    let metric_row = |(name, value): (&'a String, &f64)| {
        row()
            .text("metric", name)
            .text("unit", rounds::unit(summary, name))
            .figure("value", Some(*value))
    };
    round.metrics.iter().map(metric_row).collect()
}

fn comparison<'a>(summary: &'a Run, c: &'a Comparison) -> CsvRow<'a> {
    let unit = c.difference.as_ref().map_or_else(|| rounds::unit(summary, &c.metric), |d| &d.unit);
    let difference = c.difference.as_ref();
    let difference_ci95 = difference.and_then(|d| d.ci95);
    let row = CsvRow {
        kind: "comparison",
        arm: &c.a,
        against: &c.b,
        levels: c.per.iter().map(|(factor, level)| (factor.as_str(), level)).collect(),
        ..CsvRow::default()
    };
    row.text("metric", &c.metric)
        .text("unit", unit)
        .figure("value", c.ratio)
        .interval(c.ci95)
        .figure("n", Some(f64::from(c.rounds)))
        .figure("difference", difference.map(|d| d.value))
        .figure("difference_ci95_low", difference_ci95.map(|ci| ci[0]))
        .figure("difference_ci95_high", difference_ci95.map(|ci| ci[1]))
        .figure("margin", Some(c.margin))
        .figure("alpha", (c.alpha > 0.0).then_some(c.alpha))
        .text("verdict", &c.verdict.to_string())
        .figure("rank_test_p", c.rank_test_p)
}

/// The arms at each vantage point; `note` is its name.
fn of_points(summary: &Run) -> Vec<CsvRow<'_>> {
    let points = summary.points.iter().flat_map(|points| &points.points);
    let arms = points.flat_map(|point| point.arms.iter().map(move |arm| (point, arm)));
    let rows = arms.flat_map(|(point, arm)| {
        let one = move |(metric, value): (&String, &f64)| {
            let found = summary.arms.iter().find(|one| one.name == arm.name);
            let row = match found {
                Some(found) => CsvRow::of_arm("point", found),
                None => CsvRow { kind: "point", arm: &arm.name, ..CsvRow::default() },
            };
            row.text("metric", metric)
                .text("unit", rounds::unit(summary, metric))
                .figure("value", Some(*value))
                .figure("n", Some(f64::from(point.rounds)))
                .text("left_out", point.left_out.as_deref().unwrap_or_default())
                .text("note", &point.name)
        };
        arm.metrics.iter().map(one)
    });
    rows.collect()
}

/// A comparison at each vantage point; `note` is its name.
fn by_point(c: &Comparison) -> Vec<CsvRow<'_>> {
    let each = c.points.iter().flat_map(|points| &points.each);
    let row = |point: &tcptoll_core::record::PointRatio| {
        let row = CsvRow {
            kind: "comparison_point",
            arm: &c.a,
            against: &c.b,
            levels: c.per.iter().map(|(factor, level)| (factor.as_str(), level)).collect(),
            ..CsvRow::default()
        };
        row.text("metric", &c.metric)
            .figure("value", point.ratio)
            .interval(point.ci95)
            .figure("n", Some(f64::from(point.rounds)))
            .figure("margin", Some(c.margin))
            .text("left_out", point.left_out.as_deref().unwrap_or_default())
            .text("verdict", &point.verdict.to_string())
            .text("note", &point.point)
    };
    each.map(row).collect()
}

fn published<'a>(summary: &'a Run, p: &'a tcptoll_core::study::Published) -> CsvRow<'a> {
    let row = match summary.arms.iter().find(|arm| arm.name == p.arm) {
        Some(arm) => CsvRow::of_arm("published", arm),
        None => CsvRow { kind: "published", arm: &p.arm, ..CsvRow::default() },
    };
    row.text("metric", &p.metric)
        .text("unit", rounds::unit(summary, &p.metric))
        .figure("value", Some(p.value))
        .text("source", &p.source)
        .text("note", p.note.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_formula_becomes_text_and_a_number_stays_one() {
        assert_eq!(guarded("=1+1"), "'=1+1");
        assert_eq!(guarded(" @sum"), "' @sum");
        assert_eq!(guarded("-5"), "-5");
        assert_eq!(guarded("-inf"), "'-inf");
        assert_eq!(guarded("keep-alive"), "keep-alive");
    }
}
