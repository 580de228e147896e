//! A sheet as GitHub-flavoured Markdown, to paste into an issue.

use tcptoll_core::sheet::{Align, Cell, Finding, Forms, Part, Parts, Row, Sheet, Table};

use crate::clean::{line, lines};
use crate::markdown::{code, escape};

/// The sheet as Markdown: question, answer, doubts, where, parts.
#[must_use]
pub fn markdown(sheet: &Sheet) -> String {
    let mut page = format!("### {}\n", text(&sheet.question));
    for why in &sheet.invalid {
        page += &format!("\n**invalid: {}**\n", text(why));
    }
    let answer: Vec<&str> =
        sheet.answer.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    paragraph(&mut page, &answer.join(" "));
    for doubt in &sheet.doubts {
        page += &format!("\n**{}**\n", text(&doubt.text));
    }
    put(&mut page, &sheet.about);
    put(&mut page, &sheet.parts);
    page
}

fn text(text: &str) -> String {
    escape(&line(text))
}

fn paragraph(page: &mut String, words: &str) {
    *page += &format!("\n{}\n", text(words));
}

fn list(page: &mut String, items: impl Iterator<Item = String>) {
    page.push('\n');
    for item in items {
        *page += &format!("- {}\n", text(&item));
    }
}

fn put(page: &mut String, parts: &Parts) {
    for part in parts.shown_in(Forms::MARKDOWN) {
        match part {
            Part::Heading { text: words } => *page += &format!("\n#### {}\n", text(words)),
            Part::Title { text: words } => *page += &format!("\n**{}**\n", text(words)),
            Part::Prose { text, .. } | Part::Labelled { text, .. } => paragraph(page, text),
            Part::Pairs { pairs } => {
                list(page, pairs.iter().map(|[name, value]| format!("{name}: {value}")));
            }
            Part::Table(one) => table(page, one),
            Part::Finding(one) => finding(page, one),
            Part::Notes { notes } | Part::List { notes, .. } => {
                list(page, notes.iter().map(|note| note.text.clone()));
            }
            Part::Code { text } => *page += &format!("\n{}", code(&lines(text))),
            Part::Folded { parts, .. } => put(page, parts),
            Part::Blank | Part::Line { .. } | Part::Picture(_) => {}
        }
    }
}

fn table(page: &mut String, table: &Table) {
    if table.rows.is_empty() {
        return;
    }
    let row = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let rule = |align: Align| if align == Align::Left { "---" } else { "---:" }.to_owned();
    page.push('\n');
    *page += &row(table.columns.iter().map(|column| text(&column.head)).collect());
    *page += &row(table.columns.iter().map(|column| rule(column.align)).collect());
    let cell = |cell: &Cell| text(&cell.text);
    for one in &table.rows {
        if let Row::Cells { cells, .. } = one {
            *page += &row(cells.iter().map(cell).collect());
        }
    }
    if let Some(note) = &table.note {
        paragraph(page, note);
    }
}

fn finding(page: &mut String, one: &Finding) {
    let said = if one.change.is_empty() { &one.text } else { &one.change };
    paragraph(page, &format!("{} of {}: {said}", one.id, one.subject));
    if !one.commands.is_empty() {
        let commands: Vec<String> = one.commands.iter().map(|one| line(one)).collect();
        *page += &format!("\n{}", code(&commands.join("\n")));
    }
}
