//! How does a run look in an issue? Tables of arms and comparisons, warnings, and how it was run.

use tcptoll_core::experiment::column::Form;
use tcptoll_core::record::{Arm, Comparison, Passport};
use tcptoll_core::sheet::{Forms, Part, Sheet, Table, Tone};

use crate::columns::{self, Kind, RunColumn};
use crate::number::{self, ABSENT};
use crate::run::Run;
use crate::{effect, figures, findings, points, published, rounds};

/// Adds what Markdown shows of a run.
pub(crate) fn put(sheet: &mut Sheet, summary: &Run) {
    let mut page = Vec::new();
    arms(&mut page, summary);
    tables(&mut page, summary);
    comparisons(&mut page, summary);
    by_point(&mut page, summary);
    beside_published(&mut page, summary);
    findings(&mut page, summary);
    how(&mut page, summary);
    sheet.parts.extend(Forms::MARKDOWN, page);
}

/// The experiment's table of this id, without the metric that stands in the first table; nothing, if it is empty.
pub fn part(summary: &Run, id: &str) -> Vec<Part> {
    let mut page = Vec::new();
    if let Some(table) = columns::table(summary, Form::Markdown, id) {
        of_columns(&mut page, summary, &table.without(rounds::metric(summary)));
    }
    page
}

/// The metric of the run with its interval, quantiles of latency, and how many succeeded.
fn arms(page: &mut Vec<Part>, summary: &Run) {
    let primary = figures::primary(summary);
    let metric = rounds::metric(summary)
        .filter(|metric| summary.arms.iter().any(|arm| rounds::measured(arm, metric).is_some()));
    let name = metric.map(|metric| summary.specs.words_of_metric(metric));
    let latency = ["p50", "p99", "max"].map(|q| format!("{} {q}", primary.name));
    let tried = |arm: &Arm| arm.attempts > 0 || arm.failure.is_some();
    if metric.is_none() && !summary.arms.iter().any(tried) {
        return;
    }
    // What is not of operations stands in a table of its own.
    let of_operations = summary.own.answer.is_none_or(|answer| answer.histogram != primary.key);
    let with_latency = of_operations
        && summary
            .arms
            .iter()
            .any(|arm| figures::quantiles(arm, &primary.key).iter().any(Option::is_some));
    let mut heads = vec!["arm"];
    if let Some(name) = &name {
        let unit = if points::are_units(summary) { "points" } else { "rounds" };
        heads.extend([name.as_str(), "95 % interval", unit]);
    }
    if with_latency {
        heads.extend(latency.iter().map(String::as_str));
    }
    heads.push("ok");
    let estimates = metric.map(|metric| rounds::estimates(summary, metric)).unwrap_or_default();
    let times = [0, 1, 3].map(|quantile: usize| {
        let quantile_us = |arm: &Arm| figures::quantiles(arm, &primary.key)[quantile];
        let values: Vec<_> = summary.arms.iter().map(quantile_us).collect();
        let signs = summary.arms.iter().zip(&values).map(|(arm, us)| {
            arm.histograms.get(&primary.key).zip(*us).map_or("", |(h, us)| h.sign(us))
        });
        let times = number::times(&values);
        signs.zip(times).map(|(sign, time)| format!("{sign}{time}")).collect::<Vec<_>>()
    });
    let row = |(at, arm): (usize, &Arm)| {
        let mut cells = vec![arm.name.clone()];
        if let Some(metric) = metric {
            let absent = || ABSENT.to_owned();
            let estimate = estimates.get(at).cloned().flatten();
            cells.push(estimate.as_ref().map_or_else(absent, |e| {
                format!("{} {}", e.value, e.symbol).trim_end().to_owned()
            }));
            cells.push(estimate.and_then(|e| e.ci95).unwrap_or_else(absent));
            let counted =
                arm.rounds.iter().filter(|r| rounds::counted(r, metric).is_some()).count();
            let over = arm.metrics.get(metric).filter(|_| points::are_units(summary));
            cells.push(match over {
                Some(metric) => metric.n.to_string(),
                None if arm.rounds.is_empty() => "1".to_owned(),
                None => counted.to_string(),
            });
        }
        if with_latency {
            cells.extend(times.iter().filter_map(|column| column.get(at).cloned()));
        }
        let errors = findings::errors(arm).map(|e| format!(" ({e})")).unwrap_or_default();
        let failure = arm.failure.as_ref().map(|f| format!("no result: {f}"));
        cells.push(failure.unwrap_or_else(|| format!("{}{errors}", findings::ok_of_attempts(arm))));
        cells
    };
    let rows: Vec<Vec<String>> = summary.arms.iter().enumerate().map(row).collect();
    table(page, &heads, &[0], &rows);
}

/// The tables of the experiment, or what it shows in their place; then what was computed before.
fn tables(page: &mut Vec<Part>, summary: &Run) {
    // What stands in the first table with its interval is not said again.
    let said = rounds::metric(summary);
    let tables = columns::tables(summary, Form::Markdown);
    match summary.own.markdown {
        Some(parts) => page.extend(parts(summary)),
        None => tables.iter().for_each(|table| {
            of_columns(page, summary, &table.clone().without(said));
        }),
    }
    for line in (summary.own.forecasts)(&summary.arms) {
        page.push(Part::prose(0, line, Tone::Plain));
    }
}

/// The points of a merged record, and each comparison by point.
fn by_point(page: &mut Vec<Part>, summary: &Run) {
    for c in summary.comparisons.iter().filter(|c| c.points.is_some()) {
        let metric = summary.specs.words_of_metric(&c.metric);
        let title = format!("{metric}: {} against {}", c.a, c.b);
        page.push(Part::title(title));
        let row = |c: &Comparison| {
            let [ratio, interval] = effect::ratio(c);
            let rounds = if c.points.is_some() { ABSENT.to_owned() } else { c.rounds.to_string() };
            vec![effect::levels(&c.per), ratio, interval, rounds, effect::judged(c, summary.specs)]
        };
        let rows: Vec<Vec<String>> = points::rows(c).iter().map(row).collect();
        table(page, &["point", "ratio", "95 % interval", "rounds", "verdict"], &[0, 4], &rows);
        list(page, points::notes(c));
    }
    list(page, points::about_split(summary));
    if let Some((heads, rows)) = points::table(summary) {
        let words: Vec<usize> = [0].into_iter().chain(heads.len() - 3..heads.len()).collect();
        table(page, &heads.iter().map(String::as_str).collect::<Vec<_>>(), &words, &rows);
    }
}

fn list(page: &mut Vec<Part>, items: Vec<String>) {
    if !items.is_empty() {
        page.push(Part::notes(items));
    }
}

/// A table; `left` columns are words, the others figures.
fn table(page: &mut Vec<Part>, heads: &[&str], left: &[usize], rows: &[Vec<String>]) {
    if !rows.is_empty() {
        page.push(Part::Table(Table::texts(heads, left, rows.to_vec())));
    }
}

/// A row per arm; columns that none of them has are left out.
fn of_columns(page: &mut Vec<Part>, summary: &Run, shown: &columns::RunTable) {
    let arms: Vec<&Arm> = shown.arms(summary).into_iter().map(|(_, arm)| arm).collect();
    let text = |column: &RunColumn, arm: &Arm| column.text(arm, summary.own, Form::Markdown);
    let filled = |column: &&RunColumn| arms.iter().any(|arm| text(column, arm) != ABSENT);
    let columns: Vec<&RunColumn> = shown.parts.iter().flatten().filter(filled).collect();
    if columns.is_empty() {
        return;
    }
    let heads = columns.iter().map(|column| column.whole.clone());
    let heads: Vec<String> = std::iter::once("arm".to_owned()).chain(heads).collect();
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let words = columns.iter().enumerate().filter(|(_, column)| column.kind() == Kind::Words);
    let left: Vec<usize> = std::iter::once(0).chain(words.map(|(at, _)| at + 1)).collect();
    let row = |arm: &&Arm| {
        let cells = columns.iter().map(|column| text(column, arm));
        std::iter::once(arm.name.clone()).chain(cells).collect()
    };
    let rows: Vec<Vec<String>> = arms.iter().map(row).collect();
    table(page, &heads, &left, &rows);
}

fn comparisons(page: &mut Vec<Part>, summary: &Run) {
    let per = summary.comparisons.iter().any(|c| !c.per.is_empty());
    let row = |c: &tcptoll_core::record::Comparison| {
        let pair = effect::pair(summary, c);
        let [a, b] = if c.per.is_empty() { [c.a.clone(), c.b.clone()] } else { pair };
        let [ratio, interval] = effect::ratio(c);
        let absent = || ABSENT.to_owned();
        let mut cells = vec![summary.specs.words_of_metric(&c.metric)];
        if per {
            cells.push(effect::levels(&c.per));
        }
        let interval = effect::no_interval(c).map_or(interval, str::to_owned);
        cells.extend([a, b, ratio, interval]);
        cells.push(effect::difference(c).unwrap_or_else(absent));
        cells.push(effect::verdict(c, summary.specs));
        cells
    };
    let rows: Vec<Vec<String>> = summary.comparisons.iter().map(row).collect();
    let mut heads = vec!["metric"];
    if per {
        heads.push("at");
    }
    heads.extend(["arm", "against", "ratio", "95 % interval", "difference", "verdict"]);
    let words = if per { vec![0, 1, 2, 3, 7] } else { vec![0, 1, 2, 6] };
    table(page, &heads, &words, &rows);
    let lines = [effect::together(&summary.comparisons), rounds::ending(summary)];
    let lines: Vec<String> = lines.into_iter().flatten().collect();
    if !lines.is_empty() {
        page.push(Part::prose(0, lines.join(" "), Tone::Plain));
    }
}

fn beside_published(page: &mut Vec<Part>, summary: &Run) {
    let rows: Vec<Vec<String>> = published::beside_ours(summary)
        .into_iter()
        .map(|row| {
            let ratio = row.ratio.map_or_else(|| ABSENT.to_owned(), number::ratio);
            {
                let ours = row.ours_with_interval();
                vec![row.arm, row.metric, row.published, ours, ratio, row.source.to_owned()]
            }
        })
        .collect();
    let heads = ["arm", "metric", "published", "ours", "ours / published", "source"];
    table(page, &heads, &[0, 1, 5], &rows);
    if let Some(about) = published::about_sd(&published::beside_ours(summary)) {
        page.push(Part::prose(0, about, Tone::Plain));
    }
}

/// Causes, advice and warnings as a list.
fn findings(page: &mut Vec<Part>, summary: &Run) {
    let in_arm =
        |arm: &str| if summary.arms.len() > 1 { format!(" ({arm})") } else { String::new() };
    let mut items: Vec<String> = Vec::new();
    items.extend(findings::causes(summary).into_iter().map(|(c, others)| {
        let others = others.map_or_else(String::new, |others| format!(" {others}"));
        format!("cause {}: {}{}{others}", c.id, c.text, in_arm(&c.arm))
    }));
    items.extend(summary.advice.iter().map(|a| {
        let proof = a.proof.as_deref().unwrap_or("not proven in this run");
        let [change, cost, undo] = [&a.change, &a.cost, &a.undo].map(|s| s.trim_end_matches('.'));
        format!("fix: {change}. Cost: {cost}. Undo: {undo}. Proof: {proof}")
    }));
    items.extend(findings::warnings(summary).into_iter().map(|w| {
        let arms = w.arms.map(|arms| format!(" ({arms})")).unwrap_or_default();
        format!("warning: {}{arms}", w.text)
    }));
    list(page, items);
}

/// Command, place, machine and version.
fn how(page: &mut Vec<Part>, summary: &Run) {
    let (client, server) = figures::machines(summary);
    let machines: Vec<String> = [Some(client), server].into_iter().flatten().map(machine).collect();
    let mut place = figures::place(summary);
    place.extend(figures::addresses(summary));
    let version = format!("tcptoll {} · {}", summary.tcptoll_version, summary.started_at);
    page.push(Part::Code { text: findings::command(&summary.command) });
    // Of a merged record each point has its own machine.
    let machines = summary.points.is_none().then(|| machines.join("; "));
    for line in [Some(place.join(" · ")), machines, Some(version)].into_iter().flatten() {
        page.push(Part::prose(0, line, Tone::Plain));
    }
}

fn machine(p: &Passport) -> String {
    let mut words = vec![
        p.kernel.clone(),
        format!("{} × {}", p.cpus, p.cpu),
        number::bytes(p.memory_bytes as f64),
        p.clock_source.clone(),
    ];
    words.extend(p.governor.clone());
    words.join(" · ")
}
