//! What changed between two runs? How many arms moved, whether the machines are the same, and each
//! arm of both with ratio and verdict.

use std::collections::BTreeSet;

use tcptoll_core::record::{Arm, Comparison, Passport, PlaceKind, Resolved, Verdict, WarningEntry};
use tcptoll_core::units::capital;

use tcptoll_core::sheet::{Align, Column, Forms, Note, Part, Parts, Sheet, Table, Tone};

use crate::number::{self, ABSENT, Estimate};
use crate::run::{NONE, Run};
use crate::{TextStyle, columns, effect, figures, findings, rounds};

/// Two runs, and what their rounds allow one to say of A against B.
pub struct Between<'a> {
    /// The run of the numerator.
    pub a: &'a Run,
    /// The run of the denominator.
    pub b: &'a Run,
    /// What the reader calls A: the file's name.
    pub a_name: &'a str,
    /// What the reader calls B.
    pub b_name: &'a str,
    /// A over B, for arms and metrics that both have.
    pub comparisons: &'a [Comparison],
    /// Doubts about comparing the two.
    pub warnings: &'a [WarningEntry],
}

/// Two runs for a terminal: what moved, what differs between the machines, each arm of both.
#[must_use]
pub fn text(runs: &Between<'_>, style: TextStyle) -> String {
    crate::sheet::text(&sheet(runs), style)
}

/// The same on one screen: what moved, the arms that moved the most, and how many things besides differ.
#[must_use]
pub fn brief(runs: &Between<'_>, style: TextStyle) -> String {
    let whole = sheet(runs);
    let mut parts = Parts::default();
    let mut put = |part| parts.put(Forms::TEXT, part);
    let first = runs.comparisons.first().map(|c| c.metric.as_str());
    if let Some(metric) = first {
        let mut rows: Vec<&Comparison> =
            runs.comparisons.iter().filter(|c| c.metric == metric).collect();
        let moved = |c: &&Comparison| c.ratio.map_or(0.0, |ratio| ratio.ln().abs());
        rows.sort_by(|a, b| moved(b).total_cmp(&moved(a)));
        let more = rows.len().saturating_sub(ARMS);
        rows.truncate(ARMS);
        let more = (more > 0).then(|| format!("and {}", figures::plural(more as u64, "more arm")));
        put(Part::Blank);
        put(Part::Table(Table { note: more, ..table(runs, metric, &rows) }));
    }
    put(Part::Blank);
    let line = |label: &str, text: String| Part::labelled(label, LABEL, text, Tone::Doubt);
    let differing = differing(runs);
    if !differing.is_empty() {
        put(line("differs", differing.join(", ")));
    }
    let doubts = runs.warnings.len() as u64;
    if doubts > 0 {
        put(line("doubts", figures::plural(doubts, "warning")));
    }
    put(Part::labelled("details", LABEL, "the same command with --details", Tone::Dim));
    crate::sheet::text(&Sheet { parts, ..whole }, style)
}

/// What differs between the two besides what was measured.
fn differing(runs: &Between<'_>) -> Vec<&'static str> {
    let facts = facts(runs.a).into_iter().zip(facts(runs.b)).filter(|((_, a), (_, b))| a != b);
    let mut all: Vec<&str> = facts.map(|((what, _), _)| what).collect();
    if runs.a.command != runs.b.command {
        all.push("the command");
    }
    let names = |run: &Run| run.arms.iter().map(|arm| arm.name.clone()).collect::<BTreeSet<_>>();
    if names(runs.a) != names(runs.b) {
        all.push("the arms");
    }
    all
}

/// Arms on one screen.
const ARMS: usize = 8;
/// Columns of a label on one screen.
const LABEL: usize = 9;

/// What there is to see of two runs.
fn sheet(runs: &Between<'_>) -> Sheet {
    let mut sheet =
        Sheet { answer: [answer(runs), String::new()], tone: Tone::Strong, ..Sheet::default() };
    sheet.about.put(Forms::ALL, names(runs));
    for (name, run) in [("A", runs.a), ("B", runs.b)] {
        // The answers of the runs, which state failures, are not shown.
        let invalid =
            findings::invalid(run, &NONE).into_iter().map(|why| format!("invalid: {why}"));
        let lines = invalid.chain(findings::verdict_on_run(run));
        let bad = |line| Note::new(format!("{name}: {line}"), true);
        sheet.doubts.extend(lines.map(bad));
    }
    sheet.parts.put(Forms::ALL, Part::Blank);
    sheet.parts.extend(Forms::ALL, differences(runs));
    sheet.parts.extend(Forms::ALL, tables(runs));
    let notes = runs.warnings.iter().map(|warning| Note {
        about: warning.arm.clone().unwrap_or_default(),
        text: warning.text.clone(),
        ..Note::default()
    });
    sheet.parts.put(Forms::ALL, Part::list("warning", notes, Tone::Doubt));
    sheet
}

/// Which run is A and which is B.
fn names(runs: &Between<'_>) -> Part {
    let columns = vec![
        Column::names("").gap(0),
        Column::names("record"),
        Column::new("what", Align::Left),
        Column::new("began", Align::Left),
        Column::new("rounds", Align::Right),
    ];
    let row = |(letter, name, run): (&str, &str, &Run)| {
        let study = run.study.as_ref().map_or_else(String::new, |study| format!(" · {study}"));
        let rounds = run.rounds.as_ref().map(|rounds| rounds.done.to_string());
        [
            letter.to_owned(),
            name.to_owned(),
            format!("{}{study}", run.experiment),
            run.started_at.clone(),
            rounds.unwrap_or_else(|| ABSENT.to_owned()),
        ]
    };
    let rows = [("A", runs.a_name, runs.a), ("B", runs.b_name, runs.b)].map(row);
    Part::Table(Table::new(columns, rows))
}

/// How many comparisons went which way, in a sentence.
fn answer(runs: &Between<'_>) -> String {
    if runs.comparisons.is_empty() {
        return "The two runs have no arm and metric in common, so there is nothing to compare."
            .to_owned();
    }
    let metrics = effect::groups(runs.a, runs.comparisons);
    let mut seen: Vec<&str> = Vec::new();
    let mut sentences = Vec::new();
    for metric in metrics.iter().map(|group| group.metric) {
        if seen.contains(&metric) {
            continue;
        }
        seen.push(metric);
        let rows: Vec<&Comparison> =
            runs.comparisons.iter().filter(|c| c.metric == metric).collect();
        if let [only] = rows[..] {
            let words = runs.a.specs.words_of_metric(metric);
            let (ratio, verdict) =
                (effect::ratio_with_interval(only), effect::verdict(only, runs.a.specs));
            sentences.push(format!("{}, A against B: {ratio}, {verdict}.", capital(&words)));
            continue;
        }
        let count = |verdict: Verdict| rows.iter().filter(|c| c.verdict == verdict).count() as u64;
        let arms = figures::plural(rows.len() as u64, "arm");
        let parts: Vec<String> = [
            (Verdict::Higher, "higher"),
            (Verdict::Lower, "lower"),
            (Verdict::NoDifference, "with no difference found"),
            (Verdict::NotEnough, "with not enough evidence"),
        ]
        .into_iter()
        .filter(|(verdict, _)| count(*verdict) > 0)
        .map(|(verdict, words)| format!("{} {words}", number::count(count(verdict))))
        .collect();
        sentences.push(format!(
            "{} of A compared with B, {arms}: {}.",
            capital(&runs.a.specs.words_of_metric(metric)),
            parts.join(", ")
        ));
    }
    sentences.join(" ")
}

/// What differs between the machines and the commands.
fn differences(runs: &Between<'_>) -> Vec<Part> {
    let mut parts = Vec::new();
    let facts = facts(runs.a).into_iter().zip(facts(runs.b));
    let rows: Vec<[String; 3]> = facts
        .filter(|((_, a), (_, b))| a != b)
        .map(|((what, a), (_, b))| [what.to_owned(), a, b])
        .collect();
    if rows.is_empty() {
        let p = &runs.a.passport;
        let same = [p.kernel.clone(), p.cpu.clone(), figures::plural(u64::from(p.cpus), "CPU")];
        let text = format!("Same machine, kernel and version of tcptoll: {}.", same.join(" · "));
        parts.push(Part::prose(2, text, Tone::Plain));
    } else {
        let columns =
            vec![Column::new("what differs", Align::Left), Column::names("A"), Column::names("B")];
        parts.push(Part::Table(Table::new(columns, rows)));
    }
    if runs.a.command != runs.b.command {
        parts.push(Part::prose(2, "the commands differ:", Tone::Plain));
        for (letter, run) in [("A", runs.a), ("B", runs.b)] {
            let command = findings::command(&run.command);
            parts.push(Part::labelled(format!("    {letter}"), 7, command, Tone::Plain));
        }
    }
    for (letter, mine, other) in [("A", runs.a, runs.b), ("B", runs.b, runs.a)] {
        let is_alone = |name: &str| other.arms.iter().all(|theirs| theirs.name != name);
        let names = mine.arms.iter().map(|arm| arm.name.as_str());
        let alone: Vec<&str> = names.filter(|name| is_alone(name)).collect();
        if !alone.is_empty() {
            let text = format!("only in {letter}: {}", alone.join(" · "));
            parts.push(Part::prose(2, text, Tone::Doubt));
        }
    }
    parts
}

/// What may make two runs differ although nothing was changed, in a fixed order.
fn facts(run: &Run) -> Vec<(&'static str, String)> {
    let Passport {
        kernel,
        cpu,
        cpus,
        memory_bytes,
        clock_source,
        governor,
        congestion_control,
        libc,
        ..
    } = figures::machines(run).0;
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".to_owned());
    let libc = libc.clone().unwrap_or_else(|| "not recorded".to_owned());
    vec![
        ("experiment", run.experiment.clone()),
        ("kernel", kernel.clone()),
        ("CPU", cpu.clone()),
        ("CPUs", cpus.to_string()),
        ("memory", number::bytes(*memory_bytes as f64)),
        ("clock source", clock_source.clone()),
        ("governor", or_none(governor)),
        ("congestion control", or_none(congestion_control)),
        ("tcptoll", run.tcptoll_version.clone()),
        ("C library", libc),
        ("server's machine", server(run)),
        ("place", place(run)),
        ("addresses", addresses(run)),
    ]
}

/// Which address of each name was used.
fn addresses(run: &Run) -> String {
    let used = |entry: &Resolved| format!("{} is {}", entry.name, entry.used);
    let used: Vec<String> = run.resolved.iter().map(used).collect();
    if used.is_empty() { "none resolved".to_owned() } else { used.join(", ") }
}

/// Where it is one of the user's.
fn server(run: &Run) -> String {
    let words = |p: &Passport| format!("{}, {} × {}", p.kernel, p.cpus, p.cpu);
    figures::machines(run).1.map_or_else(|| "the client's, or unknown".to_owned(), words)
}

fn place(run: &Run) -> String {
    if run.place.kind == PlaceKind::Remote {
        return figures::paths(run).join(", ");
    }
    match (&run.place.target, &run.place.link) {
        (Some(target), _) => format!("target {target}"),
        (None, Some(link)) => format!("lab, link {}", link.spec),
        (None, None) => "lab".to_owned(),
    }
}

/// Both values of each arm, ratio, interval and verdict; a table per metric.
fn tables(runs: &Between<'_>) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut metrics: Vec<&str> = Vec::new();
    for c in runs.comparisons {
        if !metrics.contains(&c.metric.as_str()) {
            metrics.push(&c.metric);
        }
    }
    for metric in &metrics {
        let rows: Vec<&Comparison> =
            runs.comparisons.iter().filter(|c| c.metric == *metric).collect();
        let title = Part::title(runs.a.specs.words_of_metric(metric));
        parts.extend([Part::Blank, title, Part::Table(table(runs, metric, &rows))]);
        for c in &rows {
            let doubt = rank_doubt(c).map(|doubt| format!("{}: {doubt}", c.a));
            parts.extend(doubt.map(|doubt| Part::labelled("  doubt", 14, doubt, Tone::Doubt)));
        }
        let note = effect::of_two_means(&rows);
        parts.extend(note.map(|note| Part::prose(4, note, Tone::Dim)));
    }
    if !metrics.is_empty() {
        let mut note =
            "Rounds of two runs are not paired. Whatever changed between the runs, such as other load on the \
             machine, counts as a difference."
                .to_owned();
        if let Some(together) = effect::together(runs.comparisons) {
            note = format!("{together} {note}");
        }
        parts.push(Part::prose(2, note, Tone::Dim));
    }
    parts
}

fn table(runs: &Between<'_>, metric: &str, rows: &[&Comparison]) -> Table {
    let column = |run: &Run, name: fn(&Comparison) -> &str| -> Vec<String> {
        let figure = |c: &&Comparison| {
            let arm = run.arms.iter().find(|arm| arm.name == name(c))?;
            rounds::measured(arm, metric).map(|m| (m.value, None))
        };
        let figures: Vec<_> = rows.iter().map(figure).collect();
        let estimates = Estimate::column(&figures, rounds::unit(run, metric));
        estimates.into_iter().map(|e| e.map_or_else(|| ABSENT.to_owned(), |e| e.text())).collect()
    };
    let of_both = column(runs.a, |c| &c.a).into_iter().zip(column(runs.b, |c| &c.b));
    // A quantile of a run is no mean.
    let heads = if figures::is_quantile(metric) { ["A", "B"] } else { ["A mean", "B mean"] };
    let arm = |c: &&Comparison| runs.a.arms.iter().find(|arm| arm.name == c.a);
    let arms: Option<Vec<&Arm>> = rows.iter().map(arm).collect();
    let whole = || ("arm".to_owned(), rows.iter().map(|c| c.a.clone()).collect());
    let (head, names) = arms.map_or_else(whole, |arms| columns::names(&arms));
    let mut columns = vec![Column::names(head)];
    columns.extend(heads.map(|head| Column::new(head, Align::Right)));
    columns.push(Column::new("A / B", Align::Point));
    columns.extend(["95 % interval", "verdict"].map(|head| Column::new(head, Align::Left)));
    let cells = rows.iter().zip(names).zip(of_both).map(|((c, name), (a, b))| {
        let [ratio, interval] = effect::ratio(c);
        [name, a, b, ratio, interval, effect::judged(c, runs.a.specs)]
    });
    let mut margins: Vec<String> = rows.iter().filter_map(|c| effect::margin(c)).collect();
    margins.sort();
    margins.dedup();
    if rows.iter().any(|c| effect::narrow_too_soon(c)) {
        margins.push(effect::shown_from());
    }
    let mut absent: Vec<&str> = rows.iter().filter_map(|c| effect::no_interval(c)).collect();
    absent.sort_unstable();
    absent.dedup();
    if !absent.is_empty() {
        margins.push(absent.join(", or "));
    }
    let note = (!margins.is_empty()).then(|| margins.join(", "));
    Table { note, ..Table::new(columns, cells) }
}

/// Where the rank test does not agree with the interval.
fn rank_doubt(c: &Comparison) -> Option<String> {
    let p = c.rank_test_p?;
    let level = if c.alpha > 0.0 { c.alpha } else { 0.05 };
    let differs = matches!(c.verdict, Verdict::Higher | Verdict::Lower);
    let p_text = number::three(p);
    if differs && p > level {
        Some(format!(
            "the rank test does not confirm the verdict '{}' (Mann-Whitney p = {p_text}). A few \
             extreme rounds may dominate the mean",
            c.verdict
        ))
    } else if !differs && p <= level {
        Some(format!(
            "the rank test finds a difference (Mann-Whitney p = {p_text}), but the interval of the \
             ratio does not"
        ))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_disagree_with_the_interval_are_a_doubt() {
        let c = Comparison {
            verdict: Verdict::Higher,
            rank_test_p: Some(0.4),
            alpha: 0.05,
            ..Comparison::default()
        };
        assert!(rank_doubt(&c).is_some_and(|text| text.contains("does not confirm")));
        let agreeing = Comparison { rank_test_p: Some(0.001), ..c.clone() };
        assert_eq!(rank_doubt(&agreeing), None);
        let quiet = Comparison { verdict: Verdict::NoDifference, ..agreeing };
        assert!(rank_doubt(&quiet).is_some());
    }
}
