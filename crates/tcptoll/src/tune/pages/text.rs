//! A search on a terminal, clear without colour and at 80 columns.

use crate::tune::cell::Cell;
use crate::tune::found::Found;

use super::sentences;
use tcptoll_show::TextStyle;
use tcptoll_show::layout::{Align, Column, lay_out};
use tcptoll_show::own::Tone;
use tcptoll_show::text::{TextPage, wrap_phrases};

/// Where words begin next to a label.
const INDENT: usize = 14;

/// From this ratio of the longest to the shortest on, bars are logarithmic.
const DECADES: f64 = 20.0;

/// Letters of a bar, at most.
const BAR: usize = 24;

/// And at least, however narrow the terminal is.
const BAR_MIN: usize = 6;

/// The whole text of a cleaned search.
pub(crate) fn render(found: &Found, style: TextStyle) -> String {
    let mut page = TextPage::new(style);
    for line in wrap_phrases(&sentences::place(found), page.width()) {
        page.line(&page.paint(Tone::Dim, &line));
    }
    page.labelled("  load", INDENT, &sentences::load(found).join(", "), Tone::Dim);
    if let Some(log) = sentences::log(found) {
        page.labelled("  log", INDENT, &log, Tone::Dim);
    }
    page.labelled("  search", INDENT, &sentences::search(found), Tone::Dim);
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
    if let Some(knee) = sentences::knee(found) {
        page.labelled("  knee", INDENT, &knee, Tone::Plain);
    }
    notes(&mut page, found);
    compared(&mut page, found);
    if let Some(proof) = &found.proof {
        page.blank();
        page.labelled("  proof", INDENT, &format!("{}: {}", proof.url, proof.text), Tone::Strong);
    }
    doubts(&mut page, found);
    snippet(&mut page, found);
    for (at, [command, why]) in sentences::next(found).iter().enumerate() {
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
    let rows = sentences::rows(found);
    let column = |head: &str, align, text: fn(&sentences::Row) -> String| {
        Column::new(head, align, rows.iter().map(text).collect())
    };
    let mark = |row: &sentences::Row| (if row.chosen { "→" } else { " " }).to_owned();
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
    let rows: Vec<sentences::Row> =
        cells.iter().map(|(cell, _)| sentences::row(cell, false)).collect();
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

fn compared(page: &mut TextPage, found: &Found) {
    let compared = sentences::compared(found);
    if compared.is_empty() {
        return;
    }
    page.blank();
    page.coloured("compared with the found setting", Tone::Dim);
    for [name, setting, verdict] in compared {
        page.prose(2, &format!("{name} ({setting})"), Tone::Plain);
        page.labelled("", 4, &verdict, Tone::Strong);
    }
    if let Some(note) = sentences::compared_note(found) {
        page.prose(2, &note, Tone::Dim);
    }
}

fn notes(page: &mut TextPage, found: &Found) {
    let notes = sentences::notes(found);
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
