//! Which arm is higher, and is it noise? Each comparison with its interval and verdict; in a compact
//! table where they are many, or where there is one per level.

use super::Draft;
use super::arms::Names;
use crate::layout::{Align, LaidColumn, Lines, lay_out};
use crate::number::{ABSENT, Estimate};
use crate::run::Run;
use crate::{clean, columns, effect, figures, number, points, rounds};
use tcptoll_core::experiment::spec::Specs;
use tcptoll_core::record::{Arm, Comparison, Verdict};
use tcptoll_core::sheet::Tone;

/// More comparisons than this stand in a compact table.
const LISTED: usize = 12;

/// Columns of the drawing of an interval.
const STRIP: usize = 17;

/// All comparisons, grouped by metric and levels.
pub(super) fn write(page: &mut Draft, summary: &Run) {
    let all = &summary.comparisons;
    if points::are_units(summary) {
        for c in all {
            by_point(page, c, summary.specs);
        }
        return;
    }
    for group in effect::groups(summary, all) {
        page.blank();
        let metric = summary.specs.words_of_metric(group.metric);
        if let Some([a, b]) = &group.pair {
            page.prose(2, &format!("{metric}, ratio of {a} against {b}"), Tone::Strong);
            table(page, &group.rows, true, summary.specs);
            continue;
        }
        page.prose(2, &format!("{metric}, ratio with 95 % interval"), Tone::Strong);
        if group.rows.len() > LISTED {
            table(page, &group.rows, false, summary.specs);
        } else {
            list(page, &group.rows, summary.specs);
        }
        if let Some(note) = effect::of_two_means(&group.rows) {
            page.prose(4, note, Tone::Dim);
        }
    }
    if let Some(together) = effect::together(all).filter(|_| summary.rounds.is_some()) {
        page.prose(2, &together, Tone::Dim);
    }
}

/// A comparison over vantage points, and each point.
fn by_point(page: &mut Draft, c: &Comparison, specs: Specs) {
    page.blank();
    let metric = specs.words_of_metric(&c.metric);
    let levels = effect::levels(&c.per);
    let levels = if levels.is_empty() { levels } else { format!(", {levels}") };
    page.prose(2, &format!("{metric}, ratio of {} against {}{levels}", c.a, c.b), Tone::Strong);
    let rows = points::listed(points::rows(c));
    table(page, &rows.iter().collect::<Vec<_>>(), true, specs);
    for note in points::notes(c) {
        page.prose(4, &note, Tone::Dim);
    }
}

/// One below the other, in whole words.
fn list(page: &mut Draft, rows: &[&Comparison], specs: Specs) {
    for c in rows {
        let (mut a, mut b) = (clean::shorten(&c.a, 30), clean::shorten(&c.b, 30));
        // Two names of one look say nothing; whole ones are wrapped.
        if a == b {
            (a, b) = (c.a.clone(), c.b.clone());
        }
        page.prose(4, &format!("{a} against {b}:"), Tone::Plain);
        page.prose(8, &effect::sentence(c, specs), Tone::Plain);
    }
}

/// One line each: arms or level, ratio, interval, a drawing and the difference where there is room.
fn table(page: &mut Draft, rows: &[&Comparison], per: bool, specs: Specs) {
    let cells =
        |text: &dyn Fn(&Comparison) -> String| rows.iter().map(|c| text(c)).collect::<Vec<_>>();
    let names = |width: usize| -> Vec<LaidColumn> {
        if per {
            let levels = cells(&|c| effect::levels(&c.per));
            let levels: Vec<&str> = levels.iter().map(String::as_str).collect();
            return vec![
                LaidColumn::new("", Align::Left, clean::shorten_all(&levels, width)).gap(4),
            ];
        }
        let short = |text: &dyn Fn(&Comparison) -> String| {
            cells(text).iter().map(|name| clean::shorten(name, width)).collect::<Vec<_>>()
        };
        vec![
            LaidColumn::new("", Align::Left, short(&|c| c.a.clone())).gap(4),
            LaidColumn::new("against", Align::Left, short(&|c| c.b.clone())),
        ]
    };
    let ratios = vec![
        LaidColumn::new("ratio", Align::Point, cells(&|c| effect::ratio(c)[0].clone())),
        LaidColumn::new("95 % interval", Align::Left, cells(&|c| effect::ratio(c)[1].clone())),
    ];
    let strip = Ruler::over(rows)
        .map(|ruler| LaidColumn::new(&ruler.head(), Align::Left, cells(&|c| ruler.draw(c, STRIP))));
    let difference = rows.iter().any(|c| c.difference.is_some()).then(|| {
        let absent = || crate::number::ABSENT.to_owned();
        LaidColumn::new(
            "difference",
            Align::Left,
            cells(&|c| effect::difference(c).unwrap_or_else(absent)),
        )
    });
    let verdicts = LaidColumn::new("verdict", Align::Left, cells(&|c| effect::judged(c, specs)));
    let with = |width: usize, extras: &[Option<LaidColumn>]| {
        let mut columns = names(width);
        columns.extend(ratios.clone());
        columns.extend(extras.iter().flatten().cloned());
        columns.push(verdicts.clone());
        lay_out(columns)
    };
    let candidates =
        [vec![strip.clone(), difference.clone()], vec![difference.clone()], vec![strip], vec![]];
    let widths: [usize; 4] = if per { [40, 30, 20, 14] } else { [30, 20, 14, 10] };
    let fitting = |extras: &Vec<Option<LaidColumn>>| -> Option<Lines> {
        widths.into_iter().map(|w| with(w, extras)).find(|lines| lines.width() <= page.width)
    };
    let lines = candidates.iter().find_map(fitting).unwrap_or_else(|| with(8, &[]));
    page.table(&lines, Tone::Dim);
    if let Some(note) = note(rows) {
        page.prose(4, &note, Tone::Dim);
    }
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
        parts.push(format!("—: {}", absent.join(", or ")));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// A common logarithmic axis for the intervals of several comparisons, with ratio 1 on it.
pub(super) struct Ruler {
    least: f64,
    most: f64,
}

impl Ruler {
    /// The axis that holds all intervals; `None` without one.
    pub(super) fn over(rows: &[&Comparison]) -> Option<Self> {
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
    pub(super) fn draw(&self, c: &Comparison, width: usize) -> String {
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

// What did the rounds give? The metric of the run with its interval and its rounds as a sparkline,
// beside a common baseline where there is room; and how the run ended.

/// Columns of a sparkline at most: with room, and in a table that is too wide.
const SPARK: [usize; 2] = [30, 12];

/// Columns that a name may take, from a roomy table to a tight one.
const NAME_WIDTHS: [usize; 5] = [34, 28, 22, 16, 12];

/// The table; nothing without rounds.
pub(super) fn write_rounds(page: &mut Draft, summary: &Run) {
    let Some(metric) = rounds::metric(summary).filter(|_| rounds::any(summary)) else { return };
    let Some(range) = rounds::range(summary, metric) else { return };
    let own = |spark: usize| of_arms(summary, metric, range, rounds::per_mark(summary, spark));
    let beside = against(summary, metric);
    let names = Names::from_arms(&summary.arms.iter().collect::<Vec<_>>());
    let with = |columns: &[Vec<LaidColumn>], name: usize| {
        lay_out([vec![names.column(name)], columns.concat()].concat())
    };
    let fitting = |columns: &[Vec<LaidColumn>]| -> Option<Lines> {
        NAME_WIDTHS.into_iter().map(|name| with(columns, name)).find(|l| l.width() <= page.width)
    };
    let [roomy, tight] = SPARK;
    let candidates = [(roomy, vec![own(roomy), beside]), (roomy, vec![own(roomy)])];
    let candidates = candidates.into_iter().chain([(tight, vec![own(tight)])]);
    let found = candidates.into_iter().find_map(|(spark, c)| Some((fitting(&c)?, Some(spark))));
    let (lines, spark) = found.unwrap_or_else(|| (with(&[own(tight)[..2].to_vec()], 12), None));
    page.table(&lines, Tone::Strong);
    page.prose(2, &key(summary, metric, range, spark), Tone::Dim);
}

/// What the marks and dashes of the table mean; `spark` is the room for marks, if they are shown.
fn key(summary: &Run, metric: &str, range: (f64, f64), spark: Option<usize>) -> String {
    let unit = rounds::unit(summary, metric);
    let text = |value| Estimate::new(value, None, unit).text();
    let mut parts = Vec::new();
    if let Some(spark) = spark {
        let per = rounds::per_mark(summary, spark);
        let (least, most) = (text(range.0), text(range.1));
        parts.push(if least == most {
            format!("rounds in run order, all {least}")
        } else {
            format!("rounds in run order, from ▁ {least} to █ {most}")
        });
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
    }
    let measured = || summary.arms.iter().filter_map(|arm| rounds::measured(arm, metric));
    if measured().any(|m| m.ci95.is_none()) {
        parts.push(format!("{ABSENT}: no interval, too few rounds"));
    }
    parts.join(", ")
}

/// Mean, interval, unit and rounds.
fn of_arms(summary: &Run, metric: &str, range: (f64, f64), per: usize) -> Vec<LaidColumn> {
    let estimates = rounds::estimates(summary, metric);
    let cells = |text: &dyn Fn(&Estimate) -> String| {
        let cell = |e: &Option<Estimate>| e.as_ref().map_or_else(|| ABSENT.to_owned(), text);
        estimates.iter().map(cell).collect::<Vec<_>>()
    };
    let interval = |e: &Estimate| e.ci95.clone().unwrap_or_else(|| ABSENT.to_owned());
    let symbols = estimates.iter().map(|e| e.as_ref().map_or(String::new(), |e| e.symbol.clone()));
    let spark = |arm: &Arm| rounds::sparkline(&arm.rounds, metric, range, per);
    let name = summary.specs.words_of_metric(metric);
    let unit = symbols.map(|s| clean::shorten(&s, 8)).collect();
    vec![
        LaidColumn::new("mean", Align::Point, cells(&|e| e.value.clone())).under(&name),
        LaidColumn::new("95 % interval", Align::Left, cells(&interval)).under(&name),
        LaidColumn::new("", Align::Left, unit).gap(1).under(&name),
        LaidColumn::new("rounds", Align::Left, summary.arms.iter().map(spark).collect()),
    ]
}

/// Verdict, ratio and a drawing of it, where every arm is compared with the same one.
fn against(summary: &Run, metric: &str) -> Vec<LaidColumn> {
    let of_metric: Vec<&Comparison> =
        summary.comparisons.iter().filter(|c| c.metric == metric && c.per.is_empty()).collect();
    let Some(first) = of_metric.first() else { return Vec::new() };
    let mut compared: Vec<&str> = of_metric.iter().map(|c| c.a.as_str()).collect();
    compared.sort_unstable();
    compared.dedup();
    if of_metric.iter().any(|c| c.b != first.b) || compared.len() < of_metric.len() {
        return Vec::new();
    }
    let ruler = Ruler::over(&of_metric);
    let cells = |text: &dyn Fn(&Comparison) -> String, none: &str| {
        let cell = |arm: &Arm| {
            let found = of_metric.iter().find(|c| c.a == arm.name);
            found.map_or_else(|| none.to_owned(), |c| text(c))
        };
        summary.arms.iter().map(cell).collect::<Vec<_>>()
    };
    let head = format!("against {}", clean::shorten(&first.b, 18));
    let mut columns = vec![
        LaidColumn::new(&head, Align::Left, cells(&|c| effect::judged(c, summary.specs), ABSENT)),
        LaidColumn::new("", Align::Left, cells(&|c| effect::ratio(c)[0].clone(), "")),
    ];
    if let Some(ruler) = ruler {
        columns.push(LaidColumn::new("", Align::Left, cells(&|c| ruler.draw(c, STRIP), "")));
    }
    columns
}

/// Why the run ended, and what came before it.
pub(super) fn ending(page: &mut Draft, summary: &Run) {
    let ending = rounds::ending(summary);
    let (noun, answers) = (columns::noun(summary), figures::answers(summary));
    let warmups: Vec<(&str, String)> = summary
        .arms
        .iter()
        .filter_map(|arm| Some((arm.name.as_str(), rounds::warmup(arm, noun, &answers)?)))
        .collect();
    if ending.is_none() && warmups.is_empty() {
        return;
    }
    page.blank();
    if let Some(ending) = ending {
        page.prose(2, &ending, Tone::Plain);
    }
    let text = match warmups.as_slice() {
        [] => return,
        [(_, text)] => text.clone(),
        _ => all_warmups(summary),
    };
    // Where connections are kept, those of the warm-up go on into the measurement.
    let counted = summary.arms.iter().any(|arm| arm.connections_attempted.is_some());
    let also = if counted { " Counts of connections include it." } else { "" };
    page.prose(2, &format!("Warm-up, not in rates and latencies: {text}.{also}"), Tone::Dim);
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
             15; not enough evidence after 3 rounds: try --rounds 920; —: no interval yet, or no \
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
