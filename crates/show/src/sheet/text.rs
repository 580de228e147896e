//! A sheet for a terminal, clear without colour and at 80 columns.

use std::borrow::Cow;

use tcptoll_core::sheet::{Cell, Finding, Forms, Note, Part, Parts, Room, Row, Sheet, Table, Tone};

use crate::TextStyle;
use crate::clean::{columns, line, shorten};
use crate::layout::{Align, LaidColumn, lay_out};

/// Columns of a label.
const LABEL: usize = 14;
/// Columns of a name of evidence, at most.
const NAMES_MAX: usize = 28;
/// Columns of a cell, at most.
const CELL_MAX: usize = 60;
/// Columns of a bar, at least and at most.
const BAR_MIN: usize = 6;
const BAR_MAX: usize = 24;
/// From so many columns on there is room for what is wide.
const WIDE: usize = 110;

/// The sheet for a terminal: where, the answer, doubts, parts.
///
/// It ends with a line feed and holds no control character of the sheet's own.
#[must_use]
pub fn text(sheet: &Sheet, style: TextStyle) -> String {
    let mut page = TextPage::new(style);
    place(&mut page, sheet);
    put(&mut page, sheet.about.shown_in(Forms::TEXT));
    page.blank();
    for why in &sheet.invalid {
        page.labelled("invalid: ", 9, &line(why), Tone::Bad);
    }
    let [answer, more] = &sheet.answer;
    page.prose(0, &line(answer), sheet.tone);
    if !more.is_empty() {
        page.prose(0, &line(more), Tone::Plain);
    }
    for doubt in &sheet.doubts {
        let tone = if doubt.bad { Tone::Bad } else { Tone::Doubt };
        page.prose(0, &line(&doubt.text), tone);
    }
    put(&mut page, sheet.parts.shown_in(Forms::TEXT));
    page.into_text()
}

/// Parts alone, without a head.
#[must_use]
pub fn parts(parts: &Parts, style: TextStyle) -> String {
    let mut page = TextPage::new(style);
    put(&mut page, parts.shown_in(Forms::TEXT));
    page.into_text()
}

/// Where and when to the left, the record to the right if there is room.
fn place(page: &mut TextPage, sheet: &Sheet) {
    let record = sheet.record.as_ref();
    let record = record.map(|path| format!("record {}", shorten(path, page.width() - 7)));
    let mut lines = wrap_phrases(&sheet.place, page.width());
    if let Some(record) = record {
        let room = page.width().saturating_sub(columns(&record));
        match lines.last_mut().filter(|last| columns(last) + 4 <= room) {
            Some(last) => *last += &format!("{}{record}", " ".repeat(room - columns(last))),
            None => lines.push(record),
        }
    }
    for one in lines {
        page.coloured(&one, Tone::Dim);
    }
}

fn put<'a>(page: &mut TextPage, parts: impl IntoIterator<Item = &'a Part>) {
    for part in parts {
        match part {
            Part::Heading { text } => {
                page.blank();
                page.coloured(&line(text), Tone::Strong);
            }
            Part::Title { text, .. } => page.coloured(&line(text), Tone::Dim),
            Part::Blank => page.blank(),
            Part::Line { pieces } => {
                let painted = pieces.iter().map(|(tone, text)| page.paint(*tone, &line(text)));
                let painted: String = painted.collect();
                page.line(painted.trim_end());
            }
            Part::Prose { text, indent, tone } => page.prose(*indent, &line(text), *tone),
            Part::Labelled { label, indent, text, tone } => {
                page.labelled(&line(label), *indent, &line(text), *tone);
            }
            Part::Pairs { pairs } => pairs.iter().for_each(|[name, value]| {
                page.labelled(&format!("  {}", line(name)), LABEL, &line(value), Tone::Plain);
            }),
            Part::Table(table) => put_table(page, table),
            Part::Picture(_) => {}
            Part::Finding(one) => finding(page, one),
            Part::Notes { notes } => notes.iter().for_each(|one| note(page, one)),
            Part::List { label, notes, tone } => list(page, label, notes, *tone),
            Part::Code { text } => text.lines().for_each(|one| page.line(&line(one))),
            Part::Lines { heads, rows, tone } => put_lines(page, heads, rows, *tone),
            Part::Folded { parts, .. } => put(page, parts),
        }
    }
}

/// Headings in `tone`, then rows.
fn put_lines(page: &mut TextPage, heads: &[String], rows: &[String], tone: Tone) {
    for head in heads {
        page.coloured(&line(head), tone);
    }
    for row in rows {
        page.line(&line(row));
    }
}

fn note(page: &mut TextPage, note: &Note) {
    let tone = if note.bad { Tone::Doubt } else { Tone::Plain };
    page.prose(2, &said(note), tone);
}

fn said(note: &Note) -> String {
    let about = if note.about.is_empty() { String::new() } else { format!("{}: ", note.about) };
    line(&format!("{about}{}", note.text))
}

/// One command for several notes stands after the last of them.
fn list(page: &mut TextPage, label: &str, notes: &[Note], tone: Tone) {
    for (at, one) in notes.iter().enumerate() {
        let label = if at == 0 { format!("  {}", line(label)) } else { String::new() };
        page.labelled(&label, LABEL, &said(one), tone);
        let next = notes.get(at + 1).map(|next| &next.command);
        if !one.command.is_empty() && next != Some(&one.command) {
            page.line(&format!("{}to examine: {}", " ".repeat(LABEL), line(&one.command)));
        }
    }
}

fn put_table(page: &mut TextPage, table: &Table) {
    let rows = table.rows.iter().filter_map(|row| match row {
        Row::Cells { cells, marked } => Some((cells.as_slice(), *marked)),
        Row::Group { .. } => None,
    });
    let (rows, marks): (Vec<&[Cell]>, Vec<bool>) = rows.unzip();
    if rows.is_empty() {
        return;
    }
    let wide = page.width() >= WIDE;
    let shown = |room: Room| room == Room::Always || room == Room::Wide && wide;
    let mut laid = Vec::new();
    if marks.contains(&true) {
        let arrows = marks.iter().map(|marked| if *marked { "→" } else { " " }.to_owned());
        laid.push(LaidColumn::new("", Align::Left, arrows.collect()).gap(0));
    }
    for (at, column) in table.columns.iter().enumerate().filter(|(_, column)| shown(column.room)) {
        // A bar has the room that the columns before it leave.
        let room = if rows.iter().any(|row| row[at].bar) {
            let before = lay_out(laid.clone()).width() + column.gap;
            page.width().saturating_sub(before).clamp(BAR_MIN, BAR_MAX)
        } else {
            BAR_MAX
        };
        laid.push(LaidColumn {
            head: column.head.clone(),
            group: column.group.clone(),
            gap: column.gap,
            align: column.align,
            cells: rows.iter().map(|row| cell(&row[at], room)).collect(),
        });
    }
    let mut lines = lay_out(laid);
    lines.heads.retain(|head| !head.is_empty());
    put_lines(page, &lines.heads, &lines.rows, Tone::Dim);
    if let Some(note) = &table.note {
        page.prose(2, &line(note), Tone::Dim);
    }
}

/// `room`: columns that a bar has.
fn cell(cell: &Cell, room: usize) -> String {
    if let (true, true, Some(share)) = (cell.text.is_empty(), cell.bar, cell.value) {
        return "█"
            .repeat(1 + (share.clamp(0.0, 100.0) / 100.0 * (room - 1) as f64).round() as usize);
    }
    let small = if cell.small.is_empty() { String::new() } else { format!(" {}", cell.small) };
    shorten(&format!("{}{small}", cell.text), CELL_MAX)
}

fn finding(page: &mut TextPage, one: &Finding) {
    let tone = if one.problem { Tone::Bad } else { Tone::Doubt };
    let word = format!("{:<LABEL$}", line(&one.severity));
    let about = [&one.id, &one.subject].map(|text| line(text));
    let about: Vec<&str> = about.iter().map(String::as_str).filter(|one| !one.is_empty()).collect();
    let rest = shorten(&about.join(" · "), page.width() - LABEL);
    page.line(&format!("{}{}", page.paint(tone, &word), page.paint(Tone::Strong, &rest)));
    page.prose(2, &line(&one.text), Tone::Strong);
    evidence(page, &one.evidence);
    if !one.change.is_empty() {
        page.labelled("  change", LABEL, &line(&one.change), Tone::Plain);
    }
    for (at, command) in one.commands.iter().enumerate() {
        // In one piece, so that it can be copied.
        let label = if at == 0 { "  how" } else { "" };
        page.line(&format!("{label:LABEL$}{}", line(command)));
    }
    for [name, text] in &one.words {
        page.labelled(&format!("  {}", line(name)), LABEL, &line(text), Tone::Plain);
    }
    for [name, command] in &one.more {
        page.labelled(&format!("  {}", line(name)), LABEL, &line(command), Tone::Dim);
    }
}

fn evidence(page: &mut TextPage, rows: &[[String; 2]]) {
    let widest = rows.iter().map(|[name, _]| columns(&line(name))).max().unwrap_or(0);
    let width = widest.min(NAMES_MAX);
    for (at, [name, value]) in rows.iter().enumerate() {
        let label = if at == 0 { "  evidence" } else { "" };
        let name = shorten(name, width);
        let blanks = " ".repeat(width + 2 - columns(&name));
        let label = format!("{label:LABEL$}{name}{blanks}");
        page.labelled(&label, LABEL + width + 2, &line(value), Tone::Plain);
    }
}

/// Prose wider than this is tiring to read.
const PROSE_MAX: usize = 110;

/// The text so far.
struct TextPage {
    out: String,
    style: TextStyle,
}

impl TextPage {
    /// An empty one.
    fn new(style: TextStyle) -> Self {
        Self { out: String::new(), style }
    }

    /// The text, which ends with a line feed if there is any.
    fn into_text(self) -> String {
        self.out
    }

    /// A line as it is, in a tone.
    fn coloured(&mut self, text: &str, tone: Tone) {
        let text = self.paint(tone, text);
        self.line(&text);
    }

    /// Columns of the terminal.
    fn width(&self) -> usize {
        self.style.width.max(60)
    }

    /// `text` in the colour of `tone`, where colour is wanted.
    fn paint(&self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Plain => return text.to_owned(),
            Tone::Strong => "1",
            Tone::Dim => "2",
            Tone::Bad => "31",
            Tone::Doubt => "33",
            Tone::Client => "34",
            Tone::Wire => "36",
            Tone::Server => "35",
        };
        if self.style.colour && !text.is_empty() {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }

    /// A line as it is.
    fn line(&mut self, text: &str) {
        self.out.push_str(text);
        self.out.push('\n');
    }

    /// An empty line, unless there is one.
    fn blank(&mut self) {
        if !self.out.is_empty() && !self.out.ends_with("\n\n") {
            self.out.push('\n');
        }
    }

    /// Words wrapped at the width, each line after `indent` blanks.
    fn prose(&mut self, indent: usize, text: &str, tone: Tone) {
        self.labelled("", indent, text, tone);
    }

    /// A label, then words wrapped beside it from column `indent` on.
    fn labelled(&mut self, label: &str, indent: usize, text: &str, tone: Tone) {
        let room = self.width().min(PROSE_MAX).saturating_sub(indent).max(20);
        let label = format!("{label:indent$}");
        let blanks = " ".repeat(indent);
        for (at, line) in wrap(text, room).into_iter().enumerate() {
            let lead = if at == 0 { &label } else { &blanks };
            let line = format!("{lead}{}", self.paint(tone, &line));
            self.line(line.trim_end());
        }
    }
}

/// Breaks at blanks; a word longer than `width` is broken where it must.
fn wrap(text: &str, width: usize) -> Vec<String> {
    // Runs of white space are one blank: what is wrapped are words.
    let words: Vec<&str> = text.split_whitespace().collect();
    let options = textwrap::Options::new(width)
        .wrap_algorithm(textwrap::WrapAlgorithm::FirstFit)
        .word_separator(textwrap::WordSeparator::AsciiSpace)
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    textwrap::wrap(&words.join(" "), options).into_iter().map(Cow::into_owned).collect()
}

/// Phrases joined by ` · `, broken between phrases.
pub fn wrap_phrases(phrases: &[String], width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for phrase in phrases {
        let phrase = shorten(phrase, width);
        match lines.last_mut() {
            Some(line) if columns(line) + 3 + columns(&phrase) <= width => {
                *line += " · ";
                *line += &phrase;
            }
            _ => lines.push(phrase),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_words_are_broken_and_no_line_is_too_wide() {
        assert_eq!(wrap("ab cdefghij k", 4), ["ab", "cdef", "ghij", "k"]);
        assert_eq!(wrap("接続接続", 5), ["接続", "接続"]);
    }
}
