//! Which arm is higher, and is it noise? What the rounds gave of the metric they were run for, and each comparison with
//! its interval and verdict.

use tcptoll_core::experiment::spec::Specs;
use tcptoll_core::record::{Arm, Comparison, Verdict};
use tcptoll_core::sheet::{Align, Cell, Column, Forms, Part, Room, Table, Tone};

use crate::number::{ABSENT, Estimate};
use crate::run::Run;
use crate::svg::arm_class;
use crate::{clean, columns, effect, figures, number, points, rounds};

const INTERVAL: &str = "95 % interval";

/// Columns of the drawing of an interval.
const STRIP: usize = 17;

/// All comparisons, a table for each metric, or for each comparison over vantage points.
pub(crate) fn all(summary: &Run) -> Vec<Part> {
    let all = &summary.comparisons;
    if points::are_units(summary) {
        return all.iter().flat_map(|c| by_point(c, summary.specs)).collect();
    }
    let mut parts = Vec::new();
    for group in effect::groups(summary, all) {
        let metric = summary.specs.words_of_metric(group.metric);
        let title = match &group.pair {
            Some([a, b]) => format!("{metric}, ratio of {a} against {b}"),
            None => format!("{metric}, ratio with 95 % interval"),
        };
        parts.extend([Part::Blank, Part::title(title)]);
        parts.push(Part::Table(table(&group.rows, group.pair.is_some(), summary.specs)));
        let of_two_means = effect::of_two_means(&group.rows);
        parts.extend(of_two_means.map(|note| Part::prose(2, note, Tone::Dim)));
    }
    let together = effect::together(all).filter(|_| summary.rounds.is_some());
    parts.extend(together.map(|together| Part::prose(2, together, Tone::Dim)));
    parts
}

/// A comparison over vantage points, and each point.
fn by_point(c: &Comparison, specs: Specs) -> Vec<Part> {
    let metric = specs.words_of_metric(&c.metric);
    let levels = effect::levels(&c.per);
    let levels = if levels.is_empty() { levels } else { format!(", {levels}") };
    let title = format!("{metric}, ratio of {} against {}{levels}", c.a, c.b);
    let rows = points::listed(points::rows(c));
    let table = table(&rows.iter().collect::<Vec<_>>(), true, specs);
    let notes = points::notes(c).into_iter().map(|note| Part::prose(2, note, Tone::Dim));
    [Part::Blank, Part::title(title), Part::Table(table)].into_iter().chain(notes).collect()
}

/// A row each: arms, or the levels `per` which they are compared; ratio, interval, difference, a drawing, verdict.
fn table(rows: &[&Comparison], per: bool, specs: Specs) -> Table {
    let mut columns = if per {
        vec![Column { whole: "level".to_owned(), ..Column::names("") }]
    } else {
        vec![Column { whole: "arm".to_owned(), ..Column::names("") }, Column::names("against")]
    };
    let ruler = Ruler::over(rows);
    columns.extend([
        Column::new("ratio", Align::Point),
        Column::new(INTERVAL, Align::Left),
        Column::new("difference", Align::Left).room(Room::Wide),
        Column::new("verdict", Align::Left),
    ]);
    columns.extend(ruler.as_ref().map(|ruler| Column::letters(ruler.head())));
    let row = |c: &&Comparison| {
        let names = if per { vec![effect::levels(&c.per)] } else { vec![c.a.clone(), c.b.clone()] };
        let drawing = ruler.as_ref().map(|ruler| ruler.draw(c, STRIP));
        let difference = effect::difference(c).unwrap_or_else(|| ABSENT.to_owned());
        let verdict = [difference, effect::judged(c, specs)];
        let figures = effect::ratio(c).into_iter().chain(verdict).chain(drawing);
        names.into_iter().chain(figures).collect::<Vec<_>>()
    };
    Table { note: note(rows), ..Table::new(columns, rows.iter().map(row)) }
}

/// What the verdicts of a table rest on: margin, and what to do where evidence lacks.
fn note(rows: &[&Comparison]) -> Option<String> {
    let mut parts: Vec<String> = rows.iter().filter_map(|c| effect::margin(c)).collect();
    parts.sort();
    parts.dedup();
    // What points need is said in words of their own.
    let lacking = rows
        .iter()
        .filter(|c| c.verdict == Verdict::NotEnough && c.rounds > 0 && c.points.is_none());
    let (narrow, lacking): (Vec<&Comparison>, Vec<&Comparison>) =
        lacking.copied().partition(|c| effect::narrow_too_soon(c));
    if let Some(fewest) = narrow.iter().map(|c| c.rounds).min() {
        parts.push(format!(
            "{} ({fewest} run): {}",
            effect::shown_from(),
            effect::more_rounds(&narrow)
        ));
    }
    if let Some(fewest) = lacking.iter().map(|c| c.rounds).min() {
        parts.push(format!(
            "not enough evidence after {}: {}",
            figures::plural(u64::from(fewest), "round"),
            effect::more_rounds(&lacking)
        ));
    }
    let mut absent: Vec<&str> = rows.iter().filter_map(|c| effect::no_interval(c)).collect();
    absent.sort_unstable();
    absent.dedup();
    if !absent.is_empty() {
        parts.push(absent.join(", or "));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// A common logarithmic axis for the intervals of several comparisons, with ratio 1 on it.
struct Ruler {
    least: f64,
    most: f64,
}

impl Ruler {
    /// The axis that holds all intervals; `None` without one.
    fn over(rows: &[&Comparison]) -> Option<Self> {
        let ends: Vec<f64> = rows
            .iter()
            .filter_map(|c| c.ci95)
            .flatten()
            .filter(|end| end.is_finite() && *end > 0.0)
            .collect();
        let least = ends.iter().copied().reduce(f64::min)?.min(1.0);
        let most = ends.iter().copied().reduce(f64::max)?.max(1.0);
        (most > least).then_some(Self { least, most })
    }

    fn column(&self, ratio: f64, width: usize) -> usize {
        let share = (ratio / self.least).ln() / (self.most / self.least).ln();
        (share.clamp(0.0, 1.0) * (width - 1) as f64).round() as usize
    }

    fn head(&self) -> String {
        let mut head = vec![' '; STRIP];
        let at = self.column(1.0, STRIP);
        for (offset, c) in "×1".chars().enumerate() {
            if let Some(place) = head.get_mut((at + offset).min(STRIP - 2 + offset)) {
                *place = c;
            }
        }
        head.into_iter().collect()
    }

    /// `├─●─┤` on the axis, `┊` at 1; empty without an interval.
    fn draw(&self, c: &Comparison, width: usize) -> String {
        let (Some(ratio), Some([low, high])) = (c.ratio, c.ci95) else { return String::new() };
        if !(low > 0.0 && high.is_finite() && ratio > 0.0) {
            return String::new();
        }
        let [low, ratio, high, one] = [low, ratio, high, 1.0].map(|r| self.column(r, width));
        let mut cells = vec![' '; width];
        cells[one] = '┊';
        cells[low..=high].fill('─');
        cells[low] = '├';
        cells[high] = '┤';
        cells[ratio] = '●';
        cells.into_iter().collect::<String>().trim_end().to_owned()
    }
}

// What did the rounds give? The metric of the run with its interval and its rounds as a sparkline, beside a common
// baseline; and how the run ended.

/// Marks of a sparkline at most.
const SPARK: usize = 20;

/// Columns and rows of a table, an arm a row.
type Grid = (Vec<Column>, Vec<Vec<Cell>>);

/// The metric of the run, an arm a row; nothing without rounds.
pub(crate) fn of_rounds(summary: &Run) -> Vec<(Forms, Part)> {
    let Some((metric, (mut columns, mut rows))) = means(summary) else { return Vec::new() };
    let Some(range) = rounds::range(summary, metric) else { return Vec::new() };
    let against = Against::all(summary, metric);
    columns.push(Column::letters("rounds"));
    columns.push(Column::new("rounds counted", Align::Right).room(Room::Page));
    columns.extend(against.iter().flat_map(Against::columns));
    let per = rounds::per_mark(summary, SPARK);
    for (arm, row) in summary.arms.iter().zip(&mut rows) {
        let counted = arm.rounds.iter().filter(|r| rounds::counted(r, metric).is_some()).count();
        row.push(rounds::sparkline(&arm.rounds, metric, range, per).into());
        row.push(counted.to_string().into());
        row.extend(against.iter().flat_map(|against| against.cells(arm, summary.specs)));
    }
    let few = summary.arms.iter().filter_map(|arm| rounds::measured(arm, metric));
    let few = few.into_iter().any(|measured| measured.ci95.is_none());
    let note = few.then(|| "no interval: too few rounds".to_owned());
    let table = Part::Table(Table { note, ..Table::new(columns, rows) });
    let key = Part::prose(2, key(summary, metric, range, per), Tone::Dim);
    vec![(Forms::ALL, table), (Forms::TEXT, key)]
}

/// The metric of the run with its interval, an arm a row. None: there are no rounds.
fn means(summary: &Run) -> Option<(&str, Grid)> {
    let metric = columns::in_rounds(summary).filter(|_| rounds::any(summary))?;
    let arms: Vec<&Arm> = summary.arms.iter().collect();
    let (head, names) = columns::names(&arms);
    let words = summary.specs.words_of_metric(metric);
    let of_metric = |head: &str, whole: &str, align| Column {
        whole: whole.to_owned(),
        shares_unit: metric.to_owned(),
        ..Column::new(head, align).under(&words)
    };
    let columns = vec![
        Column::names(head),
        of_metric("mean", &words, Align::Point),
        of_metric(INTERVAL, INTERVAL, Align::Left),
    ];
    let estimates = rounds::estimates(summary, metric);
    let row = |(at, (arm, name)): (usize, (&&Arm, String))| {
        let name = Cell { text: name, class: arm_class(at), ..Cell::default() };
        let absent = || ABSENT.to_owned();
        let estimate = estimates[at].clone();
        let interval = estimate.as_ref().and_then(|one| one.ci95.clone()).unwrap_or_else(absent);
        let mean = estimate.map_or_else(
            || ABSENT.into(),
            |one| Cell {
                text: one.value,
                unit: one.symbol,
                value: rounds::measured(arm, metric).map(|measured| measured.value),
                ..Cell::default()
            },
        );
        vec![name, mean, interval.into()]
    };
    let rows = arms.iter().zip(names).enumerate().map(row).collect();
    Some((metric, (columns, rows)))
}

/// The metric of the run, and how each arm compares with the common base. None: there are no rounds.
pub(crate) fn at_a_glance(summary: &Run) -> Option<Grid> {
    let (metric, (mut columns, mut rows)) = means(summary)?;
    if let Some(against) = Against::all(summary, metric) {
        let words = summary.specs.words_of_metric(metric);
        let column = |head| Column::new(head, Align::Left).room(Room::Wide).under(&words);
        // Before the interval of the mean: that is what a narrow terminal can do without.
        columns.splice(2..2, ["ratio", "verdict"].map(column));
        for (arm, row) in summary.arms.iter().zip(&mut rows) {
            let found = against.all.iter().find(|c| c.a == arm.name);
            let base = if arm.name == against.base { "the base" } else { ABSENT };
            let cells = found.map_or_else(
                || [base.to_owned(), String::new()],
                |c| {
                    let [ratio, interval] = effect::ratio(c);
                    let interval = Some(interval).filter(|text| text != ABSENT);
                    let ratio =
                        ratio + &interval.map(|text| format!(" {text}")).unwrap_or_default();
                    [ratio, effect::judged(c, summary.specs)]
                },
            );
            row.splice(2..2, cells.map(Cell::from));
        }
    }
    Some((columns, rows))
}

/// The verdicts on a metric, where every arm is compared with the same one.
struct Against<'a> {
    base: &'a str,
    all: Vec<&'a Comparison>,
    ruler: Option<Ruler>,
}

impl<'a> Against<'a> {
    /// None: arms are compared with several.
    fn all(summary: &'a Run, metric: &str) -> Option<Self> {
        let is_meant = |c: &&Comparison| c.metric == metric && c.per.is_empty();
        let all: Vec<&Comparison> = summary.comparisons.iter().filter(is_meant).collect();
        let base = &all.first()?.b;
        let mut compared: Vec<&str> = all.iter().map(|c| c.a.as_str()).collect();
        compared.sort_unstable();
        compared.dedup();
        let is_one = all.iter().all(|c| c.b == *base) && compared.len() == all.len();
        is_one.then(|| Self { base, ruler: Ruler::over(&all), all })
    }

    fn columns(&self) -> Vec<Column> {
        let head = format!("against {}", clean::shorten(self.base, 18));
        let whole = format!("against {}", self.base);
        let mut columns = vec![
            Column { whole, ..Column::new(head, Align::Left).room(Room::Wide) },
            Column { whole: "ratio".to_owned(), ..Column::new("", Align::Left).room(Room::Wide) },
        ];
        columns.extend(self.ruler.as_ref().map(|_| Column::letters("")));
        columns
    }

    fn cells(&self, arm: &Arm, specs: Specs) -> Vec<Cell> {
        let found = self.all.iter().find(|c| c.a == arm.name);
        let verdict = found.map_or_else(|| ABSENT.to_owned(), |c| effect::judged(c, specs));
        let ratio = found.map_or_else(String::new, |c| effect::ratio(c)[0].clone());
        let draw = |ruler: &Ruler| found.map_or_else(String::new, |c| ruler.draw(c, STRIP));
        let drawing = self.ruler.as_ref().map(draw);
        [verdict, ratio].into_iter().chain(drawing).map(Cell::from).collect()
    }
}

/// What the marks and dashes of the table mean; each mark is of so many rounds.
fn key(summary: &Run, metric: &str, range: (f64, f64), per: usize) -> String {
    let unit = rounds::unit(summary, metric);
    let text = |value| Estimate::new(value, None, unit).text();
    let (least, most) = (text(range.0), text(range.1));
    let mut parts = vec![if least == most {
        format!("rounds in run order, all {least}")
    } else {
        format!("rounds in run order, from ▁ {least} to █ {most}")
    }];
    if per > 1 {
        parts.push(format!("each mark: the mean of {}", figures::plural(per as u64, "round")));
    }
    let line = |arm: &Arm| rounds::sparkline(&arm.rounds, metric, range, per);
    if summary.arms.iter().any(|arm| line(arm).contains('×')) {
        parts.push(match per {
            1 => "× an excluded round".to_owned(),
            _ => "× all of them excluded".to_owned(),
        });
    }
    parts.join(", ")
}

/// What each arm did before the measurement.
pub(crate) fn warmups(run: &Run) -> Vec<[String; 2]> {
    let (noun, answers) = (columns::noun(run), figures::answers(run));
    let row = |arm: &Arm| Some([arm.name.clone(), rounds::warmup(arm, noun, &answers)?]);
    run.arms.iter().filter_map(row).collect()
}

/// Why the run ended, and what came before it.
pub(crate) fn ending(summary: &Run) -> Vec<Part> {
    let ending = rounds::ending(summary).map(|ending| Part::prose(2, ending, Tone::Plain));
    let text = match warmups(summary).as_slice() {
        [] => None,
        [[_, text]] => Some(text.clone()),
        _ => Some(all_warmups(summary)),
    };
    // Where connections are kept, those of the warm-up go on into the measurement.
    let counted = summary.arms.iter().any(|arm| arm.connections_attempted.is_some());
    let also = if counted { " Counts of connections include it." } else { "" };
    let warmup = text.map(|text| {
        Part::prose(2, format!("Warm-up, not in rates and latencies: {text}.{also}"), Tone::Dim)
    });
    let parts: Vec<Part> = ending.into_iter().chain(warmup).collect();
    let blank = (!parts.is_empty()).then_some(Part::Blank);
    blank.into_iter().chain(parts).collect()
}

/// The warm-ups of several arms in one clause.
fn all_warmups(summary: &Run) -> String {
    let warmups = || summary.arms.iter().filter_map(|arm| arm.warmup.as_ref());
    let attempts: u64 = warmups().map(|w| w.attempts).sum();
    let failed: u64 = warmups().map(|w| w.errors.values().sum::<u64>()).sum();
    let seconds: f64 = warmups().map(|w| w.elapsed_s).sum();
    let arms = figures::plural(warmups().count() as u64, "arm");
    let mut text = format!(
        "{} in {}, over {arms}",
        figures::plural(attempts, columns::noun(summary).one),
        number::duration(seconds)
    );
    if failed > 0 {
        text.push_str(&format!(", {} failed", number::count(failed)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison(ratio: f64, ci95: [f64; 2]) -> Comparison {
        Comparison { ratio: Some(ratio), ci95: Some(ci95), ..Comparison::default() }
    }

    #[test]
    fn a_table_says_what_its_verdicts_and_its_dashes_rest_on() {
        let open = |c: Comparison, rounds| Comparison { margin: 0.01, rounds, ..c };
        let narrow = open(comparison(1.0, [0.995, 1.005]), 8);
        let wide = open(comparison(1.0, [0.9, 1.1]), 9);
        let apart = open(Comparison::default(), 0);
        let early = Comparison { ci95: None, ..open(narrow.clone(), 3) };
        assert_eq!(
            note(&[&narrow, &wide, &apart, &early]).unwrap(),
            "margin 1 %; the verdict 'no difference found' needs 15 rounds (8 run): try --rounds \
             15; not enough evidence after 3 rounds: try --rounds 920; no interval yet, or no \
             round counts for both arms"
        );
    }

    #[test]
    fn an_interval_is_drawn_on_a_common_axis() {
        let (a, b) = (comparison(0.5, [0.25, 1.0]), comparison(2.0, [1.0, 4.0]));
        let ruler = Ruler::over(&[&a, &b]).unwrap();
        assert_eq!(ruler.draw(&a, 9), "├─●─┤");
        assert_eq!(ruler.draw(&b, 9), "    ├─●─┤");
        assert_eq!(ruler.draw(&comparison(0.5, [0.5, 0.5]), 9), "  ● ┊");
        assert!(Ruler::over(&[&Comparison::default()]).is_none());
    }
}
