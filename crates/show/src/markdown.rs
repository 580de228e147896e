//! How does a run look in an issue? The answer as a headline, tables of arms and comparisons,
//! warnings, and how it was run.

use tcptoll_core::experiment::column::Form;
use tcptoll_core::record::{Arm, Comparison, Passport};

use crate::columns::{self, Column, Kind};
use crate::number::{self, ABSENT};
use crate::own::Passage;
use crate::run::Run;
use crate::{effect, figures, findings, points, published, rounds};

/// The page of a cleaned summary.
pub fn render(summary: &Run) -> String {
    let mut page = format!("### {}\n", escape(&summary.question));
    for why in findings::invalid(summary, summary.own) {
        page.push_str(&format!("\n**invalid: {}**\n", escape(&why)));
    }
    page.push_str(&format!("\n{}\n", escape(&summary.answer)));
    for doubt in findings::verdict_on_run(summary) {
        page.push_str(&format!("\n**{}**\n", escape(&doubt)));
    }
    arms(&mut page, summary);
    tables(&mut page, summary);
    comparisons(&mut page, summary);
    by_point(&mut page, summary);
    beside_published(&mut page, summary);
    findings(&mut page, summary);
    how(&mut page, summary);
    page
}

/// Text that stays text: no table ends, no tag opens, nobody is mentioned.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let next = chars.peek().map(|(_, next)| *next);
        match c {
            '\\' | '|' | '`' | '*' | '_' | '~' | '#' => {
                out.push('\\');
                out.push(c);
            }
            // An interval stays readable; a link does not come about.
            ']' if next.is_some_and(|next| "([:".contains(next)) => {
                out.push_str(closing(&text[..at], next));
            }
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            // A word joiner after it keeps the sign and calls nobody.
            '@' if next.is_some_and(char::is_alphanumeric) => out.push_str("@\u{2060}"),
            c => out.push(c),
        }
    }
    out
}

/// `]` after `before`, where `next` could make a link of it.
fn closing(before: &str, next: Option<char>) -> &'static str {
    let Some((ahead, inside)) = before.rsplit_once('[') else { return "\\]" };
    let figure = |text: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || "+-.,".contains(c))
    };
    if !inside.split_once(", ").is_some_and(|(low, high)| figure(low) && figure(high)) {
        return "\\]";
    }
    // At the beginning of a block a colon makes a definition of it, a parenthesis anywhere a link.
    // A word joiner keeps both away and is not seen.
    if next == Some('(') || ahead.trim().is_empty() { "]\u{2060}" } else { "]" }
}

/// Code that ends where it should, whatever back-quotes it holds.
pub fn code(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}sh\n{text}\n{fence}\n")
}

/// A table; `left` columns are words, the others figures.
pub fn table(page: &mut String, heads: &[&str], left: &[usize], rows: &[Vec<String>]) {
    if rows.is_empty() {
        return;
    }
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    page.push('\n');
    page.push_str(&line(heads.iter().map(|head| (*head).to_owned()).collect()));
    let rule = |at: usize| if left.contains(&at) { "---" } else { "---:" }.to_owned();
    page.push_str(&line((0..heads.len()).map(rule).collect()));
    for row in rows {
        page.push_str(&line(row.iter().map(|cell| escape(cell)).collect()));
    }
}

/// The metric of the run with its interval, quantiles of latency, and how many succeeded.
fn arms(page: &mut String, summary: &Run) {
    let primary = figures::primary(summary);
    let metric = rounds::metric(summary)
        .filter(|metric| summary.arms.iter().any(|arm| rounds::measured(arm, metric).is_some()));
    let name = metric.map(|metric| escape(&summary.specs.words_of_metric(metric)));
    let latency = ["p50", "p99", "max"].map(|q| format!("{} {q}", escape(&primary.name)));
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
fn tables(page: &mut String, summary: &Run) {
    // What stands in the first table with its interval is not said again.
    let said = rounds::metric(summary);
    let tables = columns::tables(summary, Form::Markdown);
    let passages = match summary.own.markdown {
        Some(passages) => passages(summary),
        None => tables.iter().map(|table| Passage::Table(table.id)).collect(),
    };
    for passage in passages {
        match passage {
            Passage::Table(id) => {
                if let Some(table) = tables.iter().find(|table| table.id == id) {
                    of_columns(page, summary, &table.clone().without(said));
                }
            }
            Passage::List(items) => list(page, &items),
        }
    }
    for line in (summary.own.forecasts)(&summary.arms) {
        page.push_str(&format!("\n{}\n", escape(&line)));
    }
}

/// The points of a merged record, and each comparison by point.
fn by_point(page: &mut String, summary: &Run) {
    for c in summary.comparisons.iter().filter(|c| c.points.is_some()) {
        let metric = summary.specs.words_of_metric(&c.metric);
        let title = format!("{metric}: {} against {}", c.a, c.b);
        page.push_str(&format!("\n**{}**\n", escape(&title)));
        let row = |c: &Comparison| {
            let [ratio, interval] = effect::ratio(c);
            let rounds = if c.points.is_some() { ABSENT.to_owned() } else { c.rounds.to_string() };
            vec![effect::levels(&c.per), ratio, interval, rounds, effect::judged(c, summary.specs)]
        };
        let rows: Vec<Vec<String>> = points::rows(c).iter().map(row).collect();
        table(page, &["point", "ratio", "95 % interval", "rounds", "verdict"], &[0, 4], &rows);
        list(page, &points::notes(c));
    }
    list(page, &points::about_split(summary));
    if let Some((heads, rows)) = points::table(summary) {
        let words: Vec<usize> = [0].into_iter().chain(heads.len() - 3..heads.len()).collect();
        let heads: Vec<String> = heads.iter().map(|head| escape(head)).collect();
        table(page, &heads.iter().map(String::as_str).collect::<Vec<_>>(), &words, &rows);
    }
}

fn list(page: &mut String, items: &[String]) {
    if !items.is_empty() {
        page.push('\n');
    }
    for item in items {
        page.push_str(&format!("- {}\n", escape(item)));
    }
}

/// A row per arm; columns that none of them has are left out.
fn of_columns(page: &mut String, summary: &Run, shown: &columns::Table) {
    let arms: Vec<&Arm> = shown.arms(summary).into_iter().map(|(_, arm)| arm).collect();
    let text = |column: &Column, arm: &Arm| column.text(arm, summary.own, Form::Markdown);
    let filled = |column: &&Column| arms.iter().any(|arm| text(column, arm) != ABSENT);
    let columns: Vec<&Column> = shown.parts.iter().flatten().filter(filled).collect();
    if columns.is_empty() {
        return;
    }
    let heads = columns.iter().map(|column| escape(&column.whole));
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

fn comparisons(page: &mut String, summary: &Run) {
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
    let lines: Vec<String> = lines.into_iter().flatten().map(|line| escape(&line)).collect();
    if !lines.is_empty() {
        page.push_str(&format!("\n{}\n", lines.join(" ")));
    }
}

fn beside_published(page: &mut String, summary: &Run) {
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
        page.push_str(&format!("\n{}\n", escape(&about)));
    }
}

/// Causes, advice and warnings as a list.
fn findings(page: &mut String, summary: &Run) {
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
    list(page, &items);
}

/// Command, place, machine and version.
fn how(page: &mut String, summary: &Run) {
    let (client, server) = figures::machines(summary);
    let machines: Vec<String> = [Some(client), server].into_iter().flatten().map(machine).collect();
    let mut place = figures::place(summary);
    place.extend(figures::addresses(summary));
    let version = format!("tcptoll {}", summary.tcptoll_version);
    // Of a merged record each point has its own machine.
    let machines = if summary.points.is_some() {
        String::new()
    } else {
        format!("{}  \n", escape(&machines.join("; ")))
    };
    page.push_str(&format!(
        "\n{}\n{}  \n{machines}{}\n",
        code(&findings::command(&summary.command)),
        escape(&place.join(" · ")),
        escape(&format!("{version} · {}", summary.started_at)),
    ));
}

fn machine(p: &Passport) -> String {
    let mut words = vec![
        p.kernel.clone(),
        format!("{} × {}", p.cpus, p.cpu),
        number::bytes(p.memory_bytes),
        p.clock_source.clone(),
    ];
    words.extend(p.governor.clone());
    words.join(" · ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_can_neither_end_a_cell_nor_open_a_tag_nor_call_anybody() {
        assert_eq!(escape("a|b <img> @all"), "a\\|b &lt;img&gt; @\u{2060}all");
        assert_eq!(escape("[0.98, 1.02] ![a](b)"), "[0.98, 1.02] ![a\\](b)");
    }

    #[test]
    fn an_interval_is_shown_as_it_is_and_links_nowhere() {
        assert_eq!(escape("×1.02 [0.89, 1.21]: open"), "×1.02 [0.89, 1.21]: open");
        assert_eq!(escape("×1 [0.89, 1.21] (margin 1 %)"), "×1 [0.89, 1.21] (margin 1 %)");
        assert_eq!(escape("-9 [-1,010, +2][3, 4]"), "-9 [-1,010, +2][3, 4]");
        assert_eq!(escape("×1 [0.89, 1.21](all)"), "×1 [0.89, 1.21]\u{2060}(all)");
        assert_eq!(escape("[1, 2]: //peer"), "[1, 2]\u{2060}: //peer");
        assert_eq!(escape("[a, 2]: [b](c)"), "[a, 2\\]: [b\\](c)");
    }

    #[test]
    fn a_command_cannot_leave_its_fence() {
        assert!(code("a ```` b").starts_with("`````sh\n"));
    }
}
