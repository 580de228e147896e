//! A sheet as GitHub-flavoured Markdown, to paste into an issue.

use tcptoll_core::sheet::{Align, Article, Column, Forms, Note, Part, Room, Row, Sheet, Table};

use crate::clean::{line, lines};

/// The sheet as Markdown: question, answer, doubts, where, parts.
#[must_use]
pub fn markdown(sheet: &Sheet) -> String {
    let mut page = format!("### {}\n", text(&sheet.question));
    for broken in &sheet.failed {
        page += &format!("\n**{}**\n", text(broken));
    }
    for why in &sheet.invalid {
        page += &format!("\n**invalid: {}**\n", text(why));
    }
    let answer: Vec<&str> =
        sheet.answer.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    paragraph(&mut page, &answer.join(" "));
    for doubt in &sheet.doubts {
        page += &format!("\n**{}**\n", text(&doubt.text));
    }
    put(&mut page, sheet.about.shown_in(Forms::MARKDOWN));
    put(&mut page, sheet.parts.shown_in(Forms::MARKDOWN));
    page
}

fn text(text: &str) -> String {
    escape(line(text).trim())
}

fn paragraph(page: &mut String, words: &str) {
    *page += &format!("\n{}\n", block(words));
}

/// Text at the beginning of a block: no list, rule or box to tick comes about.
fn block(words: &str) -> String {
    let mut words = text(words);
    let marker = words.trim_start_matches(|c: char| c.is_ascii_digit());
    let at = words.len() - marker.len();
    let signs: &[char] = if at == 0 { &['-', '+'] } else { &['.', ')'] };
    let ends = |rest: &str| rest.is_empty() || rest.starts_with([' ', '-']);
    let is_box = ["[ ]", "[x]", "[X]"].iter().any(|tick| words.starts_with(tick));
    if is_box || marker.strip_prefix(signs).is_some_and(ends) {
        words.insert(at, '\\');
    }
    words
}

fn list(page: &mut String, items: impl Iterator<Item = String>) {
    page.push('\n');
    for item in items {
        *page += &format!("- {}\n", block(&item));
    }
}

fn put<'a>(page: &mut String, parts: impl IntoIterator<Item = &'a Part>) {
    for part in parts {
        match part {
            Part::Heading { text: words } => *page += &format!("\n#### {}\n", text(words)),
            Part::Title { text: words, .. } => *page += &format!("\n**{}**\n", text(words)),
            Part::Prose { text, .. } => paragraph(page, text),
            Part::Labelled { label, text, .. } => paragraph(page, &labelled(label, text)),
            Part::Pairs { pairs } => list(page, named(pairs)),
            Part::Table(one) => table(page, one),
            Part::Finding(one) => finding(page, one),
            Part::Notes { notes } => list(page, notes.iter().map(said)),
            Part::List { label, notes, .. } => {
                paragraph(page, label);
                list(page, notes.iter().map(said));
            }
            Part::Code { text } => *page += &format!("\n{}", code(&lines(text))),
            Part::Folded { parts, .. } => put(page, parts),
            Part::Next { steps } => {
                for [command, why] in steps {
                    *page += &format!("\n{}", code(&lines(command)));
                    paragraph(page, why);
                }
            }
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
    let shown = |column: &Column| column.room != Room::File && !column.letters;
    let columns = || table.columns.iter().filter(|column| shown(column));
    *page += &row(columns().map(|column| text(&column.heading())).collect());
    *page += &row(columns().map(|column| rule(column.align)).collect());
    for one in &table.rows {
        if let Row::Cells { cells, .. } = one {
            let cells = table.columns.iter().zip(cells).filter(|(column, _)| shown(column));
            *page += &row(cells.map(|(_, cell)| text(&cell.whole())).collect());
        }
    }
    if let Some(note) = &table.note {
        paragraph(page, note);
    }
}

fn labelled(label: &str, text: &str) -> String {
    if label.trim().is_empty() { text.to_owned() } else { format!("{}: {text}", label.trim()) }
}

fn named(pairs: &[[String; 2]]) -> impl Iterator<Item = String> {
    pairs.iter().map(|[name, value]| format!("{name}: {value}"))
}

fn said(note: &Note) -> String {
    let text = labelled(&note.about, &note.text);
    if note.command.is_empty() { text } else { format!("{text} To examine: {}", note.command) }
}

fn finding(page: &mut String, one: &Article) {
    let Article { severity, id, subject, text, change, .. } = one;
    let subject = if subject.is_empty() { String::new() } else { format!(" of {subject}") };
    let text = if text.is_empty() { String::new() } else { format!(": {text}") };
    paragraph(page, &format!("{severity} {id}{subject}{text}"));
    if !one.evidence.is_empty() {
        list(page, named(&one.evidence));
    }
    if !change.is_empty() {
        paragraph(page, change);
    }
    if !one.commands.is_empty() {
        let commands: Vec<String> = one.commands.iter().map(|one| line(one)).collect();
        *page += &format!("\n{}", code(&commands.join("\n")));
    }
    if !one.words.is_empty() {
        list(page, named(&one.words));
    }
}

/// Text that stays text: no table ends, no tag opens, nobody is mentioned.
fn escape(text: &str) -> String {
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
fn code(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}sh\n{text}\n{fence}\n")
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
