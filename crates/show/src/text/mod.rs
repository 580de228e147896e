//! What does the terminal show, in which order? The answer, the figures that carry it, what casts
//! doubt on it, what to do next; clear without colour and at 80 columns.

mod arms;
pub mod between;
mod comparisons;

pub use self::arms::{named_table, table};

use crate::layout::{Align, LaidColumn, Lines, lay_out};
use crate::number::{ABSENT, Estimate};
use crate::run::Run;
use crate::{clean, figures, findings, layout, number, points, published, rounds};
use tcptoll_core::record::{Advice, Point, PointArm};
use tcptoll_core::sheet::{Forms, Part, Parts, Sheet, Tone};

/// Parts in the making, for a terminal of a width.
pub(crate) struct Draft {
    parts: Vec<Part>,
    width: usize,
}

impl Draft {
    /// A line as it is, in a tone.
    fn coloured(&mut self, text: &str, tone: Tone) {
        self.parts.push(Part::line(text, tone));
    }

    /// A line as it is.
    fn line(&mut self, text: &str) {
        self.coloured(text, Tone::Plain);
    }

    /// An empty line, unless there is one.
    fn blank(&mut self) {
        self.parts.push(Part::Blank);
    }

    /// Headings in `tone`, then rows.
    fn table(&mut self, lines: &Lines, tone: Tone) {
        self.parts.push(lines.clone().part(tone));
    }

    /// Words wrapped at the width, each line after `indent` blanks.
    fn prose(&mut self, indent: usize, text: &str, tone: Tone) {
        self.parts.push(Part::prose(indent, text, tone));
    }

    /// A label, then words wrapped beside it from column `indent` on.
    fn labelled(&mut self, label: &str, indent: usize, text: &str, tone: Tone) {
        self.parts.push(Part::labelled(label, indent, text, tone));
    }
}

/// Adds what a terminal of this width shows of a run.
pub(crate) fn put(sheet: &mut Sheet, summary: &Run, width: usize) {
    // A forecast comes before what happened.
    let about = figures::addresses(summary).into_iter();
    let about = about.chain((summary.own.forecasts)(&summary.arms));
    sheet.about.extend(Forms::TEXT, about.map(|line| Part::prose(0, line, Tone::Dim)));
    let mut page = Draft { parts: Vec::new(), width };
    page.blank();
    // Of a run in rounds the comparisons are the answer; of any other the figures of its arms.
    for line in points::about_split(summary) {
        page.prose(0, &line, Tone::Dim);
    }
    write_shares(&mut page, summary);
    if points::are_units(summary) {
        comparisons::write(&mut page, summary);
        page.blank();
    } else if summary.rounds.is_some() {
        comparisons::write_rounds(&mut page, summary);
        comparisons::write(&mut page, summary);
        comparisons::ending(&mut page, summary);
        page.blank();
    }
    arms::write(&mut page, summary);
    if summary.rounds.is_none() && !points::are_units(summary) {
        comparisons::write(&mut page, summary);
        comparisons::ending(&mut page, summary);
    }
    trouble(&mut page, summary);
    beside_published(&mut page, summary);
    explain(&mut page, summary);
    next(&mut page, summary);
    sheet.parts.extend(Forms::TEXT, page.parts);
}

/// Errors by class and what kernel and wire counted, where it is not as it should be.
fn trouble(page: &mut Draft, summary: &Run) {
    for arm in &summary.arms {
        let errors = findings::errors(arm);
        let counted = findings::trouble(arm, summary.own);
        let stopped = arm.partial && summary.arms.len() > 1;
        if errors.is_none() && counted.is_empty() && arm.failure.is_none() && !stopped {
            continue;
        }
        page.blank();
        if summary.arms.len() > 1 {
            page.prose(2, &arm.name, Tone::Strong);
        }
        if let Some(failure) = &arm.failure {
            page.labelled("  no result", 14, failure, Tone::Bad);
        }
        if let Some(errors) = errors {
            page.labelled("  errors", 14, &errors, Tone::Bad);
        }
        if stopped {
            page.labelled("  stopped", 14, "before it was complete", Tone::Doubt);
        }
        for (at, line) in counted.iter().enumerate() {
            page.labelled(if at == 0 { "  counted" } else { "" }, 14, line, Tone::Plain);
        }
    }
}

fn beside_published(page: &mut Draft, summary: &Run) {
    use layout::{Align, LaidColumn};
    let rows = published::beside_ours(summary);
    if rows.is_empty() {
        return;
    }
    page.blank();
    let names: Vec<&str> = rows.iter().map(|row| row.arm.as_str()).collect();
    let ratio = |row: &published::Beside<'_>| {
        row.ratio.map_or_else(|| number::ABSENT.to_owned(), number::three)
    };
    let cells =
        |f: &dyn Fn(&published::Beside<'_>) -> String| rows.iter().map(f).collect::<Vec<_>>();
    let lines = layout::lay_out(vec![
        LaidColumn::new("published next to ours", Align::Left, clean::shorten_all(&names, 26)),
        LaidColumn::new("metric", Align::Left, cells(&|row| clean::shorten(&row.metric, 22))),
        LaidColumn::new("published", Align::Right, cells(&|row| row.published.clone())),
        LaidColumn::new("ours", Align::Right, cells(&|row| row.ours.clone())),
        LaidColumn::new("ours ×", Align::Point, cells(&ratio)),
    ]);
    page.table(&lines, Tone::Strong);
    let mut sources: Vec<&str> = rows.iter().map(|row| row.source).collect();
    sources.dedup();
    page.prose(2, &format!("source: {}", sources.join(" · ")), Tone::Dim);
    if let Some(about) = published::about_sd(&rows) {
        page.prose(2, &about, Tone::Dim);
    }
}

/// Causes with their evidence, advice with its price, warnings.
fn explain(page: &mut Draft, summary: &Run) {
    if !(summary.causes.is_empty() && summary.advice.is_empty() && summary.warnings.is_empty()) {
        page.blank();
    }
    let in_arm = |arm: &str| match summary.arms.len() {
        0 | 1 => String::new(),
        _ => format!(" ({arm})"),
    };
    for (cause, others) in findings::causes(summary) {
        let text = format!("{}: {}{}", cause.id, cause.text, in_arm(&cause.arm));
        page.labelled("  cause", 14, &text, Tone::Bad);
        if !cause.evidence.is_empty() {
            page.labelled("  evidence", 14, &findings::evidence(&cause.evidence), Tone::Plain);
        }
        if let Some(others) = others {
            page.labelled("", 14, &others, Tone::Plain);
        }
        page.labelled("", 14, &format!("tcptoll explain {}", cause.id), Tone::Dim);
    }
    for advice in &summary.advice {
        page.labelled("  fix", 14, &advice.change, Tone::Strong);
        page.labelled("", 14, &format!("cost: {}", advice.cost), Tone::Plain);
        page.labelled("", 14, &format!("undo: {}", advice.undo), Tone::Plain);
        let proof = advice.proof.as_ref().map_or_else(
            || "not proven in this run".to_owned(),
            |proof| format!("{}: {proof}", findings::proof_word(summary)),
        );
        page.labelled("", 14, &proof, Tone::Plain);
    }
    for warning in findings::warnings(summary) {
        let arms = warning.arms.map(|arms| format!(" ({arms})")).unwrap_or_default();
        page.labelled("  warning", 14, &format!("{}{arms}", warning.text), Tone::Doubt);
    }
}

fn next(page: &mut Draft, summary: &Run) {
    if summary.next.is_empty() {
        return;
    }
    page.blank();
    let widest = summary.next.iter().map(|step| clean::columns(&step.command)).max().unwrap_or(0);
    for (at, step) in summary.next.iter().enumerate() {
        let label = if at == 0 { "next: " } else { "      " };
        let blanks = " ".repeat(widest - clean::columns(&step.command));
        let line = format!("{label}{}{blanks}  {}", step.command, step.why);
        if clean::columns(&line) <= page.width {
            page.line(&line);
        } else {
            let blanks = " ".repeat(8);
            // On one line where it fits; else there has to be room for the backslash.
            let room = page.width - label.len();
            let whole = clean::columns(&step.command) <= room;
            let parts = continued(&step.command, if whole { room } else { page.width - 10 });
            for (at, part) in parts.iter().enumerate() {
                page.line(&format!("{}{part}", if at == 0 { label } else { &blanks }));
            }
            page.prose(8, &step.why, Tone::Dim);
        }
    }
}

/// A command in lines of about `width` columns that a shell reads as one: broken before options,
/// never inside a word or a quoted one.
fn continued(command: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut from = 0;
    let ends = command.match_indices(" --").map(|(at, _)| at);
    let quote = |before: &str| !before.ends_with('\\');
    let quoted = |at: &usize| {
        let quotes = command[..*at].match_indices(['\'', '"']);
        quotes.filter(|(at, _)| quote(&command[..*at])).count() % 2 == 1
    };
    for to in ends.filter(|at| !quoted(at)).chain([command.len()]) {
        let part = &command[from..to];
        match lines.last_mut() {
            Some(line) if clean::columns(line) + clean::columns(part) <= width => *line += part,
            _ => lines.push(part.trim_start().to_owned()),
        }
        from = to;
    }
    let last = lines.len().saturating_sub(1);
    lines.iter_mut().take(last).for_each(|line| *line += " \\");
    lines
}

// What can be computed before anything is measured, for a terminal.
//
// What can be computed is printed before it is measured (`Plan::computed`): the settings for
// `--detect-within` are arithmetic, their proof takes a minute. `--no-proof` is another name for
// `--dry-run`.

/// Columns of the labels.
const INDENT: usize = 10;

/// Each setting with its price and its undo.
#[must_use]
pub fn computed(all: &[Advice]) -> Parts {
    let mut parts = Parts::default();
    for advice in all {
        let lines = [
            ("computed", &advice.change, Tone::Strong),
            ("  costs", &advice.cost, Tone::Plain),
            ("  undo", &advice.undo, Tone::Plain),
        ];
        for (label, text, tone) in lines {
            parts.put(Forms::TEXT, Part::labelled(label, INDENT, text, tone));
        }
    }
    parts
}

// What did each machine do of a load that several shared?

/// Columns that a name may take.
const NAME_MAX: usize = 24;

/// A row per point, or per point and arm; nothing where the points shared no load.
fn write_shares(page: &mut Draft, summary: &Run) {
    let Some(shared) = summary.points.as_ref().filter(|points| points.split.is_some()) else {
        return;
    };
    let all: Vec<(&Point, &PointArm)> = shared
        .points
        .iter()
        .flat_map(|point| point.arms.iter().map(move |arm| (point, arm)))
        .collect();
    let rows = &all[..all.len().min(points::LISTED)];
    let cells = |text: &dyn Fn(&Point, &PointArm) -> String| -> Vec<String> {
        rows.iter().map(|(point, arm)| text(point, arm)).collect()
    };
    let mut columns = vec![LaidColumn::new(
        "point",
        Align::Left,
        cells(&|p, _| clean::shorten(&p.name, NAME_MAX)),
    )];
    if summary.arms.len() > 1 {
        let arms = cells(&|_, arm| clean::shorten(&arm.name, NAME_MAX));
        columns.push(LaidColumn::new("arm", Align::Left, arms));
    }
    columns.push(LaidColumn::new(
        "requests",
        Align::Right,
        cells(&|_, arm| number::count(arm.attempts)),
    ));
    let failed = |_: &Point, arm: &PointArm| number::count(arm.attempts.saturating_sub(arm.ok));
    columns.push(LaidColumn::new("failed", Align::Right, cells(&failed)));
    if let Some(metric) = rounds::metric(summary) {
        let unit = rounds::unit(summary, metric);
        let value = |arm: &PointArm| arm.metrics.get(metric).map(|value| (*value, None));
        let values: Vec<_> = rows.iter().map(|(_, arm)| value(arm)).collect();
        let estimates = Estimate::column(&values, unit);
        let cell = |text: &dyn Fn(&Estimate) -> String, none: &str| {
            let cell = |e: &Option<Estimate>| e.as_ref().map_or_else(|| none.to_owned(), text);
            estimates.iter().map(cell).collect()
        };
        let head = summary.specs.words_of_metric(metric);
        columns.push(LaidColumn::new(&head, Align::Point, cell(&|e| e.value.clone(), ABSENT)));
        columns.push(LaidColumn::new("", Align::Left, cell(&|e| e.symbol.clone(), "")).gap(1));
    }
    page.table(&lay_out(columns), Tone::Dim);
    if all.len() > rows.len() {
        let text =
            format!("{} rows are not listed; --csv and --html have all.", all.len() - rows.len());
        page.prose(2, &text, Tone::Dim);
    }
    page.blank();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_command_goes_on_after_a_backslash_and_is_broken_before_an_option() {
        let command = r"tcptoll keepalive --to host:1 --null 'it'\''s --b c' --fault freeze";
        assert_eq!(
            continued(command, 30),
            [r"tcptoll keepalive --to host:1 \", r"--null 'it'\''s --b c' \", "--fault freeze"]
        );
        assert_eq!(continued(command, 80), [command]);
    }
}
