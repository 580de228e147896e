//! A search on a terminal, clear without colour and at 80 columns; and its sentences and rows, the same for every
//! report.

use std::collections::BTreeMap;

use super::found::{Found, Note, STRATEGY};
use super::setting::{Cell, seconds};
use tcptoll_core::units::{human_bytes, human_us};
use tcptoll_show::layout::{Align, Column, lay_out};
use tcptoll_show::own::Tone;
use tcptoll_show::text::{TextPage, wrap_phrases};
use tcptoll_show::{TextStyle, clean, number};

/// Where words begin next to a label.
const INDENT: usize = 14;

/// From this ratio of the longest to the shortest on, bars are logarithmic.
const DECADES: f64 = 20.0;

/// Letters of a bar, at most.
const BAR: usize = 24;

/// And at least, however narrow the terminal is.
const BAR_MIN: usize = 6;

/// The result of a search for a terminal: the setting, everything measured, verdicts, the configuration.
///
/// As the text of a run, it ends with a line feed and holds no control character of a server's or file's own.
pub(super) fn found_text(found: &Found, style: TextStyle) -> String {
    match clean::copy(found) {
        Ok(clean) => render(&clean, style),
        Err(error) => format!("{}\n", clean::cannot_show(&error)),
    }
}

/// The whole text of a cleaned search.
fn render(found: &Found, style: TextStyle) -> String {
    let mut page = TextPage::new(style);
    for line in wrap_phrases(&place(found), page.width()) {
        page.line(&page.paint(Tone::Dim, &line));
    }
    page.labelled("  load", INDENT, &load(found).join(", "), Tone::Dim);
    if let Some(log) = log(found) {
        page.labelled("  log", INDENT, &log, Tone::Dim);
    }
    page.labelled("  search", INDENT, &search(found), Tone::Dim);
    page.blank();
    let refuses = found.chosen().is_none_or(Cell::refuses);
    page.prose(0, &found.answer(), if refuses { Tone::Bad } else { Tone::Strong });
    if let Some(behind) = &found.behind {
        page.blank();
        let tone = if behind.holds { Tone::Plain } else { Tone::Bad };
        page.labelled("  balancer", INDENT, &behind.words(found.server), tone);
    }
    if found.cells.is_empty() {
        doubts(&mut page, found);
        return page.into_text();
    }
    page.blank();
    page.prose(0, found.sought(), Tone::Plain);
    page.blank();
    table(&mut page, found);
    curve(&mut page, found);
    if let Some(knee) = knee(found) {
        page.labelled("  knee", INDENT, &knee, Tone::Plain);
    }
    put_notes(&mut page, found);
    put_compared(&mut page, found);
    if let Some(proof) = &found.proof {
        page.blank();
        page.labelled("  proof", INDENT, &format!("{}: {}", proof.url, proof.text), Tone::Strong);
    }
    doubts(&mut page, found);
    snippet(&mut page, found);
    for (at, [command, why]) in next(found).iter().enumerate() {
        if at == 0 {
            page.blank();
        }
        let label = if at == 0 { "  next" } else { "" };
        page.line(&format!("{label:INDENT$}{command}"));
        page.labelled("", INDENT + 2, why, Tone::Dim);
    }
    page.into_text()
}

fn table(page: &mut TextPage, found: &Found) {
    let rows = rows(found);
    let column = |head: &str, align, text: fn(&Row) -> String| {
        Column::new(head, align, rows.iter().map(text).collect())
    };
    let mark = |row: &Row| (if row.chosen { "→" } else { " " }).to_owned();
    let mut columns = vec![
        column("", Align::Left, mark).gap(0),
        column("timeout", Align::Right, |row| row.timeout.clone()).gap(1),
        column("requests", Align::Right, |row| row.requests.clone()).gap(1),
        column("limit", Align::Right, |row| row.workers.clone()).gap(1),
        column("p95", Align::Right, |row| row.p95.clone()).under("page time"),
        column("mean", Align::Right, |row| row.mean.clone()).under("page time"),
        column("mean", Align::Right, |row| row.held.clone()).under("held"),
        column("peak", Align::Right, |row| row.peak.clone()).under("held").gap(1),
        column("memory", Align::Right, |row| row.memory.clone()),
        column("failed", Align::Right, |row| row.failed.clone()),
        column("pages", Align::Right, |row| row.pages.clone()).gap(1),
    ];
    if found.cells.iter().any(|cell| cell.kills > 0) {
        columns.push(column("killed", Align::Right, |row| row.killed.clone()).gap(1));
    }
    page.table(&lay_out(columns), Tone::Dim);
}

/// p95 by what is held: a bar for each cell, by the workers that it held.
fn curve(page: &mut TextPage, found: &Found) {
    let mut cells: Vec<_> =
        found.cells.iter().filter_map(|cell| Some((cell, cell.page_us_p95?))).collect();
    cells.sort_by(|a, b| a.0.workers_held_mean.total_cmp(&b.0.workers_held_mean));
    let least = cells.iter().map(|(_, us)| *us).fold(f64::INFINITY, f64::min);
    let most = cells.iter().map(|(_, us)| *us).fold(0.0, f64::max);
    if cells.len() < 2 || most <= least {
        return;
    }
    page.blank();
    // A few per cent are to look like a few per cent.
    let log = most / least >= DECADES;
    let how = if log { "bars: log" } else { "bars from 0" };
    let head = format!(
        "p95 page time by {} held ({how}, to {})",
        found.server.workers(),
        tcptoll_core::units::human_us(most)
    );
    page.coloured(&head, Tone::Dim);
    let names: Vec<String> =
        cells.iter().map(|(cell, _)| cell.setting.name(found.server)).collect();
    let rows: Vec<Row> = cells.iter().map(|(cell, _)| row(cell, false)).collect();
    let lines = lay_out(vec![
        Column::new("", Align::Right, rows.iter().map(|row| row.held.clone()).collect()),
        Column::new("", Align::Right, rows.iter().map(|row| row.memory.clone()).collect()),
        Column::new("", Align::Left, names),
    ]);
    let before = lines.width() + 2;
    let room = page.width().saturating_sub(before).clamp(BAR_MIN, BAR);
    for (row, (_, us)) in lines.rows.iter().zip(&cells) {
        let share = if log { (us / least).ln() / (most / least).ln() } else { us / most };
        let bar = "█".repeat(1 + (share * (room - 1) as f64).round() as usize);
        let blanks = " ".repeat(before.saturating_sub(tcptoll_show::clean::columns(row)));
        page.line(&format!("{row}{blanks}{bar}"));
    }
}

fn put_compared(page: &mut TextPage, found: &Found) {
    let compared = compared(found);
    if compared.is_empty() {
        return;
    }
    page.blank();
    page.coloured("compared with the found setting", Tone::Dim);
    for [name, setting, verdict] in compared {
        page.prose(2, &format!("{name} ({setting})"), Tone::Plain);
        page.labelled("", 4, &verdict, Tone::Strong);
    }
    if let Some(note) = compared_note(found) {
        page.prose(2, &note, Tone::Dim);
    }
}

fn put_notes(page: &mut TextPage, found: &Found) {
    let notes = notes(found);
    for (at, note) in notes.iter().enumerate() {
        page.labelled(if at == 0 { "  causes" } else { "" }, INDENT, note, Tone::Plain);
    }
}

fn doubts(page: &mut TextPage, found: &Found) {
    if !found.doubts.is_empty() {
        page.blank();
    }
    for (at, doubt) in found.doubts.iter().enumerate() {
        page.labelled(if at == 0 { "  doubts" } else { "" }, INDENT, doubt, Tone::Doubt);
    }
}

/// The lines of the configuration, in one piece, so that they can be copied.
fn snippet(page: &mut TextPage, found: &Found) {
    let Some(snippet) = &found.snippet else { return };
    page.blank();
    page.coloured(&format!("configuration for {}", snippet.distribution.words()), Tone::Dim);
    for piece in &snippet.pieces {
        page.line(&format!("# file {}", piece.at()));
        for line in &piece.lines {
            page.line(line);
        }
    }
    page.blank();
    for (label, lines) in [("  apply", &snippet.apply), ("  undo", &snippet.undo)] {
        for (at, line) in lines.iter().enumerate() {
            let label = if at == 0 { label } else { "" };
            page.line(&format!("{label:INDENT$}{line}"));
        }
    }
    page.labelled("  cost", INDENT, &snippet.cost, Tone::Plain);
}

/// The server, its memory and its workers, a phrase each.
pub(super) fn place(found: &Found) -> Vec<String> {
    let name = found.server_version.clone().unwrap_or_else(|| found.server.name().to_owned());
    let mpm = found.server.mpm().map(|mpm| format!("MPM {mpm}"));
    let by = match found.memory_limited_by.as_deref() {
        Some("kernel") => ", limited by the kernel",
        Some(_) => ", limited by tcptoll",
        None => "",
    };
    let size = match found.memory_bytes {
        // As it was typed.
        bytes if bytes > 0 && bytes.is_multiple_of(1 << 30) => format!("{} GiB", bytes >> 30),
        bytes if bytes > 0 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        bytes => human_bytes(bytes as f64),
    };
    let memory = format!("{size} of memory{by}");
    let weight = found.weight.as_ref().map(|weight| {
        format!(
            "a worker takes {}, so {} fit",
            human_bytes(weight.worker_bytes as f64),
            number::count(weight.fits)
        )
    });
    [Some(name), mpm, Some(memory), weight].into_iter().flatten().collect()
}

/// Who comes, a phrase for each option.
pub(super) fn load(found: &Found) -> Vec<String> {
    found.load.iter().map(|(name, value)| format!("{name} {value}")).collect()
}

/// What the access log holds.
pub(super) fn log(found: &Found) -> Option<String> {
    let traffic = found.traffic.as_ref()?;
    let think = traffic.think_s_mean.map_or_else(String::new, |s| format!(", {s:.1} s apart"));
    let robots = match traffic.requests_of_robots {
        0 => String::new(),
        count => format!(" {} requests of robots are excluded.", number::count(count)),
    };
    let unreadable = match traffic.unreadable {
        0 => String::new(),
        count => format!(" {} lines could not be read.", number::count(count)),
    };
    Some(format!(
        "{} visits with {:.1} pages each{think}, and {:.1} files per page. The busiest minute has \
         {:.2} visitors per second.{robots}{unreadable}",
        number::count(traffic.visits),
        traffic.pages_mean,
        traffic.resources_mean,
        traffic.rate_per_s_busiest
    ))
}

/// How the search went.
pub(super) fn search(found: &Found) -> String {
    let how = match found.strategy.as_str() {
        STRATEGY => String::new(),
        other => format!(" by the procedure of the 2016 article ({other})"),
    };
    let stopped = if found.partial { ", stopped before the end" } else { "" };
    format!(
        "{} trials in {}{how}{stopped}.",
        number::count(found.trials.into()),
        number::duration(found.search_s)
    )
}

/// The fewest workers that do as well. None: the limit itself, or it is not known.
pub(super) fn knee(found: &Found) -> Option<String> {
    let (knee, choice) = (found.knee_workers?, found.choice?);
    let kind = found.server.workers();
    let memory = |workers: u64| {
        found.weight.as_ref().map_or_else(String::new, |weight| {
            format!(" ({})", human_bytes(weight.bytes(workers) as f64))
        })
    };
    // Where all are taken at times, there is no reserve.
    let full = found.chosen().is_none_or(Cell::is_full);
    (knee < choice.workers && !full).then(|| {
        format!(
            "{} {kind}{} did as well as {}{} with these visitors. The rest is a reserve.",
            number::count(knee),
            memory(knee),
            number::count(choice.workers),
            memory(choice.workers)
        )
    })
}

/// One setting as cells of a table.
pub(super) struct Row {
    pub(super) timeout: String,
    pub(super) requests: String,
    pub(super) workers: String,
    pub(super) p95: String,
    pub(super) mean: String,
    pub(super) held: String,
    pub(super) peak: String,
    pub(super) memory: String,
    pub(super) failed: String,
    pub(super) killed: String,
    pub(super) pages: String,
    pub(super) rounds: String,
    /// Whether it is the found one.
    pub(super) chosen: bool,
}

/// The rows of all cells: by workers, then by timeout.
pub(super) fn rows(found: &Found) -> Vec<Row> {
    let mut cells: Vec<&Cell> = found.cells.iter().collect();
    cells.sort_by_key(|cell| {
        let setting = &cell.setting;
        (std::cmp::Reverse(setting.workers), setting.timeout_ms, setting.requests)
    });
    cells.into_iter().map(|cell| row(cell, found.choice == Some(cell.setting))).collect()
}

pub(super) fn row(cell: &Cell, chosen: bool) -> Row {
    let setting = &cell.setting;
    let us = |us: Option<f64>| us.map_or_else(|| number::ABSENT.to_owned(), human_us);
    Row {
        timeout: setting.timeout_ms.map_or_else(|| "off".to_owned(), seconds),
        requests: match (setting.timeout_ms, setting.requests) {
            (None, _) => number::ABSENT.to_owned(),
            (_, 0) => "no limit".to_owned(),
            (_, requests) => number::count(requests),
        },
        workers: number::count(setting.workers),
        p95: us(cell.page_us_p95),
        mean: us(cell.page_us_mean),
        held: format!("{:.1}", cell.workers_held_mean),
        peak: format!("{:.0}", cell.workers_held_peak),
        memory: match cell.memory_peak_bytes {
            0 => number::ABSENT.to_owned(),
            bytes => human_bytes(bytes as f64),
        },
        failed: number::count(cell.failed),
        killed: number::count(cell.kills),
        pages: number::count(cell.pages),
        rounds: number::count(cell.rounds.into()),
        chosen,
    }
}

/// Causes and failures of all stages: each cause once, with its last setting and the number of others.
pub(super) fn notes(found: &Found) -> Vec<String> {
    let mut by_id: BTreeMap<&str, Vec<&Note>> = BTreeMap::new();
    for note in found.stages.iter().flat_map(|stage| &stage.notes) {
        let known = by_id.entry(&note.id).or_default();
        known.retain(|other| other.setting != note.setting);
        known.push(note);
    }
    let words = |(id, notes): (&str, Vec<&Note>)| {
        let last = notes.last()?;
        let others = match notes.len() - 1 {
            0 => String::new(),
            1 => " The same applies to 1 other setting.".to_owned(),
            count => format!(" The same applies to {count} other settings."),
        };
        Some(format!("{id}: {}: {}{others}", last.setting, last.text))
    };
    by_id.into_iter().filter_map(words).collect()
}

/// Settings next to the found one: whose it is, which it is, and the verdict.
pub(super) fn compared(found: &Found) -> Vec<[String; 3]> {
    let name = |one: &crate::tune::found::Compared| one.setting.name(found.server);
    found.compared.iter().map(|one| [one.name.clone(), name(one), one.words()]).collect()
}

/// How the verdicts came about.
pub(super) fn compared_note(found: &Found) -> Option<String> {
    let rounds =
        found.compared.iter().filter_map(|one| Some(one.comparison.as_ref()?.rounds)).max()?;
    let times = if rounds == 1 { "1 round".to_owned() } else { format!("{rounds} rounds") };
    Some(format!(
        "p95 page time relative to the found setting: both ran alternately for {times}, with \
         visitors that the search did not have. Differences below 10 % do not matter."
    ))
}

/// Commands that follow.
pub(super) fn next(found: &Found) -> Vec<[String; 2]> {
    let record = found.compared_record.as_ref().or_else(|| found.stages.last()?.record.as_ref());
    let report = record.map(|record| {
        let record = tcptoll_core::printable::shell_argument(record);
        [
            format!("tcptoll report {record} --html page.html"),
            "show workers and page times over time".to_owned(),
        ]
    });
    let prove = found.proof.is_none().then(|| {
        [
            "tcptoll tune --help".to_owned(),
            "--prove compares the found and the present setting on your staging server".to_owned(),
        ]
    });
    [report, prove].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::found::{Behind, Compared, Weight};
    use crate::tune::html::found_html;
    use crate::tune::setting::Setting;
    use crate::tune::snippet::{Distribution, Snippet};
    use tcptoll_measure::pages::Server;

    fn found() -> Found {
        let cell = |timeout_ms, workers, p95, held, kills| Cell {
            setting: Setting { timeout_ms, requests: 100, workers },
            rounds: 1,
            pages: 42,
            kills,
            page_us_p95: Some(p95),
            page_us_mean: Some(p95 * 0.8),
            workers_held_mean: held,
            workers_held_peak: held * 1.5,
            memory_peak_bytes: 300 << 20,
            ..Cell::default()
        };
        let cells = vec![
            cell(None, 22, 195_000.0, 1.0, 0),
            cell(Some(1_000), 22, 855_000.0, 15.2, 0),
            cell(Some(15_000), 22, 13.4e6, 22.0, 3),
        ];
        let choice = cells[0].setting;
        Found {
            server: Server::ApachePrefork,
            server_version: Some("Apache/2.4.71 <b>".to_owned()),
            strategy: "search".to_owned(),
            load: [("rate".to_owned(), "1".to_owned())].into(),
            memory_bytes: 512 << 20,
            memory_limited_by: Some("kernel".to_owned()),
            weight: Some(Weight { base_bytes: 18 << 20, worker_bytes: 20 << 20, fits: 22 }),
            workers_limit: 22,
            choice: Some(choice),
            knee_workers: Some(11),
            compared: vec![Compared {
                name: "300 requests, 1 s".to_owned(),
                setting: cells[1].setting,
                same_as: None,
                ..Compared::default()
            }],
            behind: Some(Behind::new(60_000, &cells[1].setting)),
            snippet: Some(Snippet::new(
                Server::ApachePrefork,
                Distribution::Debian,
                &choice,
                (&[], "a handshake for each file"),
            )),
            doubts: vec!["A doubt.".to_owned()],
            trials: 20,
            search_s: 430.0,
            cells,
            ..Found::default()
        }
    }

    #[test]
    fn the_text_has_the_setting_every_cell_the_verdicts_and_the_lines_to_copy() {
        let text = found_text(&found(), TextStyle::default());
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("Set KeepAliveTimeout to 65 s"), "{text}");
        for part in [
            "Set KeepAlive Off, MaxRequestWorkers 22.",
            "→",
            "13.4 s",
            "killed",
            "300 requests, 1 s (1 s, 100 requests, 22 workers)",
            "not measured",
            "KeepAlive Off\n<IfModule mpm_prefork_module>\n",
            "# file /etc/apache2/conf-available/zz-tcptoll.conf",
            "apachectl configtest",
            "a2disconf zz-tcptoll",
            "11 workers",
            "A doubt.",
            "20 trials in",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= 80, "{widest}:\n{text}");
    }

    #[test]
    fn a_search_without_a_measurement_is_one_sentence_and_its_doubts() {
        let nothing = Found { cells: Vec::new(), choice: None, snippet: None, ..found() };
        let text = found_text(&nothing, TextStyle::default());
        assert!(text.contains("No setting was measured") && text.contains("A doubt."), "{text}");
        assert!(found_html(&nothing).contains("No setting was measured"));
    }

    #[test]
    fn names_of_others_are_escaped_on_the_page_and_the_curve_is_drawn() {
        let page = found_html(&found());
        assert!(page.contains("2.4.71 &lt;b&gt;"), "the version of a server");
        assert!(page.contains("<svg class=\"wide\"") && page.contains("circle class=\"chosen\""));
        assert!(!page.contains("<b>\","), "the embedded data ends no element");
    }
}
