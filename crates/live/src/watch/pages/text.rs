//! The record of a watch for a terminal, and as Markdown for an issue.

use std::path::Path;

use tcptoll_show::layout::{Align, Column, lay_out};
use tcptoll_show::markdown::{code, escape};
use tcptoll_show::own::Tone;
use tcptoll_show::text::{TextPage, wrap_phrases};
use tcptoll_show::{TextStyle, clean, markdown, number};

use super::tables::Table;
use super::{CleanReview, tables};
use crate::diagnosis::Severity;
use crate::watch::Episode;

pub(super) fn render(view: &CleanReview<'_>, record: Option<&Path>, style: TextStyle) -> String {
    let mut page = TextPage::new(style);
    for line in wrap_phrases(&tables::place(view), page.width()) {
        page.coloured(&line, Tone::Dim);
    }
    if let Some(record) = record {
        let name = clean::line(&record.display().to_string());
        let name = clean::shorten(&name, page.width() - 7);
        page.coloured(&format!("record {name}"), Tone::Dim);
    }
    page.blank();
    let [verdict, more] = tables::answer(view);
    page.prose(0, &verdict, Tone::Strong);
    page.prose(0, &more, Tone::Plain);
    for doubt in tables::doubts(view) {
        page.prose(0, &doubt, Tone::Doubt);
    }
    episodes(&mut page, view);
    let narrow = page.width() < 110;
    table(&mut page, &tables::listeners(view), if narrow { &[1, 4] } else { &[] });
    table(&mut page, &tables::destinations(view), &[]);
    table(&mut page, &tables::counts(view), &[]);
    let gaps = tables::gaps(view);
    if !gaps.rows.is_empty() {
        heading(&mut page, gaps.title);
        for row in &gaps.rows {
            page.prose(
                2,
                &format!("until {}: {} without a look; {}", row[0], row[1], row[2]),
                Tone::Plain,
            );
        }
        note(&mut page, gaps.note.as_deref());
    }
    fixes(&mut page, view);
    page.into_text()
}

fn heading(page: &mut TextPage, title: &str) {
    page.blank();
    page.coloured(title, Tone::Strong);
}

fn note(page: &mut TextPage, note: Option<&str>) {
    if let Some(note) = note {
        page.prose(2, note, Tone::Dim);
    }
}

/// One line a time span, then what was wrong in it.
fn episodes(page: &mut TextPage, view: &CleanReview<'_>) {
    let table = tables::episodes(view);
    if table.rows.is_empty() {
        return;
    }
    heading(page, table.title);
    for (one, row) in view.review.episodes.iter().zip(&table.rows) {
        let tone = tone(one);
        let when = if tables::at_one_look(one) {
            format!("{}, at one look", row[0])
        } else {
            let until = if one.ongoing { "until the " } else { "to " };
            let span = number::duration(one.to_s - one.from_s);
            let active =
                if row[2] == span { String::new() } else { format!(", active for {}", row[2]) };
            format!("{} {until}{} ({span}{active})", row[0], row[1])
        };
        page.prose(2, &format!("{when}  {}", one.id), tone);
        page.prose(6, &format!("{}, at {}", one.text, row[5]), Tone::Plain);
    }
    note(page, table.note.as_deref());
}

fn tone(one: &Episode) -> Tone {
    if one.severity == Severity::Problem { Tone::Bad } else { Tone::Doubt }
}

/// A table without the columns that there is no room for.
fn table(page: &mut TextPage, table: &Table, without: &[usize]) {
    if table.rows.is_empty() {
        return;
    }
    heading(page, table.title);
    let columns = table.heads.iter().enumerate().filter(|(at, _)| !without.contains(at));
    let columns = columns.map(|(at, head)| {
        let cell = |row: &Vec<String>| clean::shorten(&row[at], 60);
        let cells = table.rows.iter().map(cell).collect();
        let align = if table.words.contains(&at) { Align::Left } else { Align::Right };
        Column::new(head, align, cells)
    });
    page.table(&lay_out(columns.collect()), Tone::Dim);
    note(page, table.note.as_deref());
}

fn fixes(page: &mut TextPage, view: &CleanReview<'_>) {
    let fixes = tables::fixes(&view.review);
    if fixes.is_empty() {
        return;
    }
    heading(page, "Fixes");
    let mut ids: Vec<&str> = Vec::new();
    for one in fixes {
        let Some(fix) = &one.fix else { continue };
        page.prose(2, &format!("{} of {}: {}", one.id, one.subject, fix.change), tone(one));
        for command in &fix.commands {
            page.prose(6, command, Tone::Plain);
        }
        if !ids.contains(&one.id.as_str()) {
            ids.push(&one.id);
        }
    }
    page.blank();
    for id in ids {
        page.prose(2, &format!("tcptoll explain {id}"), Tone::Dim);
    }
}

pub(super) fn render_markdown(view: &CleanReview<'_>) -> String {
    let [verdict, more] = tables::answer(view);
    let mut page = format!("### {}\n\n{}\n", escape(&verdict), escape(&more));
    page.push_str(&format!("\n{}\n", escape(&tables::place(view).join(" · "))));
    for doubt in tables::doubts(view) {
        page.push_str(&format!("\n**{}**\n", escape(&doubt)));
    }
    let all = [
        tables::episodes(view),
        tables::listeners(view),
        tables::destinations(view),
        tables::counts(view),
        tables::gaps(view),
    ];
    for Table { title, heads, words, rows, note } in all {
        if rows.is_empty() {
            continue;
        }
        page.push_str(&format!("\n#### {title}\n"));
        markdown::table(&mut page, &heads, &words, &rows);
        if let Some(note) = note {
            page.push_str(&format!("\n{}\n", escape(&note)));
        }
    }
    let fixes = tables::fixes(&view.review);
    if !fixes.is_empty() {
        page.push_str("\n#### Fixes\n");
    }
    for one in fixes {
        let Some(fix) = &one.fix else { continue };
        let about = format!("{} of {}: {}", one.id, one.subject, fix.change);
        page.push_str(&format!("\n{}\n", escape(&about)));
        if !fix.commands.is_empty() {
            page.push_str(&format!("\n{}", code(&fix.commands.join("\n"))));
        }
    }
    let command: Vec<String> = view
        .review
        .command
        .iter()
        .map(|word| tcptoll_core::printable::shell_argument(word))
        .collect();
    page.push_str(&format!("\n#### How it was recorded\n\n{}", code(&command.join(" "))));
    page
}
