//! What did the rounds give? The metric of the run with its interval and its rounds as a sparkline,
//! beside a common baseline where there is room; and how the run ended.

use tcptoll_core::record::{Arm, Comparison};

use super::TextPage;
use super::comparisons::{Ruler, STRIP};
use super::names::Names;
use crate::layout::{Align, Column, Lines, lay_out};
use crate::number::{self, ABSENT, Estimate};
use crate::own::Tone;
use crate::run::Run;
use crate::{clean, columns, effect, figures, rounds};

/// Columns of a sparkline at most: with room, and in a table that is too wide.
const SPARK: [usize; 2] = [30, 12];

/// Columns that a name may take, from a roomy table to a tight one.
const NAME: [usize; 5] = [34, 28, 22, 16, 12];

/// The table; nothing without rounds.
pub(super) fn write(page: &mut TextPage, summary: &Run) {
    let Some(metric) = rounds::metric(summary).filter(|_| rounds::any(summary)) else { return };
    let Some(range) = rounds::range(summary, metric) else { return };
    let own = |spark: usize| of_arms(summary, metric, range, rounds::per_mark(summary, spark));
    let beside = against(summary, metric);
    let names = Names::from_arms(&summary.arms.iter().collect::<Vec<_>>());
    let with = |columns: &[Vec<Column>], name: usize| {
        lay_out([vec![names.column(name)], columns.concat()].concat())
    };
    let fitting = |columns: &[Vec<Column>]| -> Option<Lines> {
        NAME.into_iter().map(|name| with(columns, name)).find(|l| l.width() <= page.width())
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
fn of_arms(summary: &Run, metric: &str, range: (f64, f64), per: usize) -> Vec<Column> {
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
        Column::new("mean", Align::Point, cells(&|e| e.value.clone())).under(&name),
        Column::new("95 % interval", Align::Left, cells(&interval)).under(&name),
        Column::new("", Align::Left, unit).gap(1).under(&name),
        Column::new("rounds", Align::Left, summary.arms.iter().map(spark).collect()),
    ]
}

/// Verdict, ratio and a drawing of it, where every arm is compared with the same one.
fn against(summary: &Run, metric: &str) -> Vec<Column> {
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
        Column::new(&head, Align::Left, cells(&|c| effect::judged(c, summary.specs), ABSENT)),
        Column::new("", Align::Left, cells(&|c| effect::ratio(c)[0].clone(), "")),
    ];
    if let Some(ruler) = ruler {
        columns.push(Column::new("", Align::Left, cells(&|c| ruler.draw(c, STRIP), "")));
    }
    columns
}

/// Why the run ended, and what came before it.
pub(super) fn ending(page: &mut TextPage, summary: &Run) {
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
