//! What changed between two runs? How many arms moved, whether the machines are the same, and each
//! arm of both with ratio and verdict.

use tcptoll_core::record::{Comparison, Passport, PlaceKind, Resolved, Verdict, WarningEntry};
use tcptoll_core::units::capital;

use super::Draft;
use crate::layout::{Align, LaidColumn, Lines, lay_out};
use crate::number::{self, ABSENT, Estimate};
use crate::run::{NONE, Run};
use crate::sheet::wrap_phrases;
use crate::{TextStyle, clean, effect, figures, findings, rounds};
use tcptoll_core::sheet::{Forms, Note, Sheet, Tone};

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
    crate::sheet::text(&sheet(runs, style.width.max(60)), style)
}

/// What there is to see of two runs, for a terminal of this width.
fn sheet(runs: &Between<'_>, width: usize) -> Sheet {
    let mut sheet =
        Sheet { answer: [answer(runs), String::new()], tone: Tone::Strong, ..Sheet::default() };
    let mut page = Draft { parts: Vec::new(), width };
    names(&mut page, runs);
    sheet.about.extend(Forms::TEXT, std::mem::take(&mut page.parts));
    for (name, run) in [("A", runs.a), ("B", runs.b)] {
        // The answers of the runs, which state failures, are not shown.
        let invalid =
            findings::invalid(run, &NONE).into_iter().map(|why| format!("invalid: {why}"));
        let lines = invalid.chain(findings::verdict_on_run(run));
        let bad = |line| Note::new(format!("{name}: {line}"), true);
        sheet.doubts.extend(lines.map(bad));
    }
    page.blank();
    differences(&mut page, runs);
    tables(&mut page, runs);
    for warning in runs.warnings {
        let arm = warning.arm.as_ref().map(|arm| format!(" ({arm})")).unwrap_or_default();
        page.labelled("  warning", 14, &format!("{}{arm}", warning.text), Tone::Doubt);
    }
    sheet.parts.extend(Forms::TEXT, page.parts);
    sheet
}

/// Which run is A and which is B.
fn names(page: &mut Draft, runs: &Between<'_>) {
    for (letter, name, run) in [("A", runs.a_name, runs.a), ("B", runs.b_name, runs.b)] {
        let mut words = vec![run.experiment.clone()];
        words.extend(run.study.clone());
        words.push(run.started_at.clone());
        if let Some(rounds) = &run.rounds {
            words.push(figures::plural(u64::from(rounds.done), "round"));
        }
        let about = words.join(" · ");
        let room = page.width.saturating_sub(7);
        let name = clean::shorten(name, room);
        if clean::columns(&name) + clean::columns(&about) <= room {
            page.coloured(&format!("{letter}  {name}   {about}"), Tone::Dim);
        } else {
            page.coloured(&format!("{letter}  {name}"), Tone::Dim);
            page.prose(3, &about, Tone::Dim);
        }
    }
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
fn differences(page: &mut Draft, runs: &Between<'_>) {
    let (a, b) = (facts(runs.a), facts(runs.b));
    let rows: Vec<(&str, &str, &str)> = a
        .iter()
        .zip(&b)
        .filter(|((_, x), (_, y))| x != y)
        .map(|((what, x), (_, y))| (*what, x.as_str(), y.as_str()))
        .collect();
    if rows.is_empty() {
        let p = &runs.a.passport;
        let same = [p.kernel.clone(), p.cpu.clone(), figures::plural(u64::from(p.cpus), "CPU")];
        for line in wrap_phrases(&same, page.width.saturating_sub(4)) {
            page.prose(2, &line, Tone::Dim);
        }
        page.prose(2, "Same machine, kernel and version of tcptoll.", Tone::Plain);
    } else {
        let room = page.width.saturating_sub(26) / 2;
        let cells = |text: &dyn Fn(&(&str, &str, &str)) -> String| {
            rows.iter().map(text).collect::<Vec<_>>()
        };
        let lines = lay_out(vec![
            LaidColumn::new("what differs", Align::Left, cells(&|row| row.0.to_owned())),
            LaidColumn::new("A", Align::Left, cells(&|row| clean::shorten(row.1, room))),
            LaidColumn::new("B", Align::Left, cells(&|row| clean::shorten(row.2, room))),
        ]);
        page.table(&lines, Tone::Strong);
    }
    if runs.a.command != runs.b.command {
        page.prose(2, "the commands differ:", Tone::Plain);
        for (letter, run) in [("A", runs.a), ("B", runs.b)] {
            page.labelled(
                &format!("    {letter}"),
                7,
                &findings::command(&run.command),
                Tone::Plain,
            );
        }
    }
    for (letter, mine, other) in [("A", runs.a, runs.b), ("B", runs.b, runs.a)] {
        let alone: Vec<&str> = mine
            .arms
            .iter()
            .filter(|arm| other.arms.iter().all(|theirs| theirs.name != arm.name))
            .map(|arm| arm.name.as_str())
            .collect();
        if !alone.is_empty() {
            let text = format!("only in {letter}: {}", alone.join(" · "));
            page.prose(2, &text, Tone::Doubt);
        }
    }
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
fn tables(page: &mut Draft, runs: &Between<'_>) {
    let mut metrics: Vec<&str> = Vec::new();
    for c in runs.comparisons {
        if !metrics.contains(&c.metric.as_str()) {
            metrics.push(&c.metric);
        }
    }
    for metric in &metrics {
        page.blank();
        let rows: Vec<&Comparison> =
            runs.comparisons.iter().filter(|c| c.metric == *metric).collect();
        table(page, runs, metric, &rows);
        if let Some(note) = effect::of_two_means(&rows) {
            page.prose(4, note, Tone::Dim);
        }
    }
    if metrics.is_empty() {
        return;
    }
    let mut note = "Rounds of two runs are not paired. Whatever changed between the runs, such as \
                    other load on the machine, counts as a difference."
        .to_owned();
    if let Some(together) = effect::together(runs.comparisons) {
        note = format!("{together} {note}");
    }
    page.prose(2, &note, Tone::Dim);
}

fn table(page: &mut Draft, runs: &Between<'_>, metric: &str, rows: &[&Comparison]) {
    let names: Vec<&str> = rows.iter().map(|c| c.a.as_str()).collect();
    let column = |run: &Run, name: fn(&Comparison) -> &str| -> Vec<String> {
        let figure = |c: &&Comparison| {
            let arm = run.arms.iter().find(|arm| arm.name == name(c))?;
            rounds::measured(arm, metric).map(|m| (m.value, None))
        };
        let figures: Vec<_> = rows.iter().map(figure).collect();
        let estimates = Estimate::column(&figures, rounds::unit(run, metric));
        estimates.into_iter().map(|e| e.map_or_else(|| ABSENT.to_owned(), |e| e.text())).collect()
    };
    let cells =
        |text: &dyn Fn(&Comparison) -> String| rows.iter().map(|c| text(c)).collect::<Vec<_>>();
    // A quantile of a run is no mean.
    let heads = if figures::is_quantile(metric) { ["A", "B"] } else { ["A mean", "B mean"] };
    let columns = vec![
        LaidColumn::new(heads[0], Align::Right, column(runs.a, |c| &c.a)),
        LaidColumn::new(heads[1], Align::Right, column(runs.b, |c| &c.b)),
        LaidColumn::new("A / B", Align::Point, cells(&|c| effect::ratio(c)[0].clone())),
        LaidColumn::new("95 % interval", Align::Left, cells(&|c| effect::ratio(c)[1].clone())),
        LaidColumn::new("verdict", Align::Left, cells(&|c| effect::judged(c, runs.a.specs))),
    ];
    let head = runs.a.specs.words_of_metric(metric);
    let with = |width: usize| -> Lines {
        let names = clean::shorten_all(&names, width);
        let first = LaidColumn::new(&clean::shorten(&head, width.max(16)), Align::Left, names);
        lay_out([vec![first], columns.clone()].concat())
    };
    let fitting = [40, 32, 24, 18].into_iter().map(with).find(|l| l.width() <= page.width);
    match fitting {
        Some(lines) => page.table(&lines, Tone::Strong),
        None => below_names(page, &head, &names, columns),
    }
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
        margins.push(format!("—: {}", absent.join(", or ")));
    }
    if !margins.is_empty() {
        page.prose(2, &margins.join(", "), Tone::Dim);
    }
    for c in rows {
        if let Some(doubt) = rank_doubt(c) {
            page.labelled("  doubt", 14, &format!("{}: {doubt}", c.a), Tone::Doubt);
        }
    }
}

/// Each name on a line of its own, its figures on the next.
fn below_names(page: &mut Draft, head: &str, names: &[&str], mut columns: Vec<LaidColumn>) {
    columns[0].gap = 4;
    let lines = lay_out(columns);
    page.prose(2, head, Tone::Strong);
    for head in &lines.heads {
        page.coloured(head, Tone::Dim);
    }
    for (name, row) in names.iter().zip(&lines.rows) {
        page.line(&format!("  {}", clean::shorten(name, page.width - 2)));
        page.line(row);
    }
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
