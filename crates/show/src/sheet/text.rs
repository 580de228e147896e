//! A sheet for a terminal, clear without colour and at 80 columns.

use std::borrow::Cow;

use tcptoll_core::sheet::{
    Align, Article, Cell, Forms, Note, Part, Parts, Room, Row, Sheet, Table, Tone,
};

use super::layout::{LaidColumn, Lines, lay_out};
use crate::TextStyle;
use crate::clean::{columns, line, shorten, shorten_all};

/// Columns of a label.
const LABEL: usize = 14;
/// Columns of a name of evidence, at most.
const NAMES_MAX: usize = 28;
/// More evidence than this is told in one paragraph.
const LISTED: usize = 6;
/// Columns of a cell, at most.
const CELL_MAX: usize = 60;
/// Columns of a bar, at least and at most.
const BAR_MIN: usize = 6;
const BAR_MAX: usize = 24;
/// Columns that a heading of names may take.
const NAMES_HEAD: usize = 16;

/// The sheet for a terminal: where, the answer, doubts, parts.
///
/// It ends with a line feed and holds no control character of the sheet's own.
#[must_use]
pub fn text(sheet: &Sheet, style: TextStyle) -> String {
    let mut page = TextPage::new(style);
    for broken in &sheet.failed {
        page.prose(0, &line(broken), Tone::Bad);
    }
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
            Part::Title { text, .. } => page.prose(0, &line(text), Tone::Dim),
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
            // There is no way to look at a picture, or to ask for what is folded.
            Part::Picture(_) | Part::Folded { .. } => {}
            Part::Finding(one) => finding(page, one),
            Part::Notes { notes } => notes.iter().for_each(|one| note(page, one)),
            Part::List { label, notes, tone } => list(page, label, notes, *tone),
            Part::Code { text } => text.lines().for_each(|one| page.line(&line(one))),
            Part::Next { steps } => next(page, steps),
        }
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

/// Columns that a name may take, from a roomy table to a tight one.
const NAMES: [usize; 7] = [60, 44, 32, 24, 18, 12, 8];
/// Of these so many can be read.
const READABLE: usize = 5;
/// Columns of a name where columns are shared out among tables.
const SHARED: usize = 18;

fn put_table(page: &mut TextPage, table: &Table) {
    let known = std::mem::take(&mut page.names);
    let laid = Laid::new(table, page.width(), known);
    let tables = if laid.rows.is_empty() { Vec::new() } else { laid.tables() };
    page.names = laid.names;
    if tables.is_empty() {
        return;
    }
    for lines in tables {
        for head in lines.heads.iter().filter(|head| !head.is_empty()) {
            page.coloured(head, Tone::Dim);
        }
        lines.rows.iter().for_each(|row| page.line(row));
    }
    if let Some(note) = &table.note {
        page.prose(2, &line(note), Tone::Dim);
    }
}

/// A table that is fitted into a width.
struct Laid<'a> {
    table: &'a Table,
    rows: Vec<&'a [Cell]>,
    marks: Vec<bool>,
    width: usize,
    /// All names so far, each once: those that look alike when they are short have their number here.
    names: Vec<String>,
}

impl<'a> Laid<'a> {
    fn new(table: &'a Table, width: usize, mut names: Vec<String>) -> Self {
        let rows = table.rows.iter().filter_map(|row| match row {
            Row::Cells { cells, marked } => Some((cells.as_slice(), *marked)),
            Row::Group { .. } => None,
        });
        let (rows, marks): (Vec<&[Cell]>, Vec<bool>) = rows.unzip();
        let is_named = |at: &usize| table.columns[*at].names;
        for row in &rows {
            for at in (0..table.columns.len()).filter(is_named) {
                if !names.contains(&row[at].text) {
                    names.push(row[at].text.clone());
                }
            }
        }
        Self { table, rows, marks, width, names }
    }

    /// One table where the width allows it, without what needs room if that helps; else as many as it takes, an
    /// empty line between them.
    fn tables(&self) -> Vec<Lines> {
        let column = |at: usize| &self.table.columns[at];
        let has_figure = |at: &usize| self.rows.iter().any(|row| !row[*at].is_absent());
        let all: Vec<usize> = (0..self.table.columns.len())
            .filter(|at| match column(*at).room {
                Room::Always => true,
                Room::Present | Room::Wide => has_figure(at),
                Room::Page | Room::File => false,
            })
            .collect();
        // A column of dashes is worth its room only while there is room.
        let filled: Vec<usize> = all.iter().copied().filter(has_figure).collect();
        let mut tried = vec![all, filled.clone()];
        let mut fewer = filled.clone();
        while let Some(place) = fewer.iter().rposition(|at| column(*at).room == Room::Wide) {
            fewer.remove(place);
            tried.push(fewer.clone());
        }
        let names = filled.iter().take_while(|at| column(**at).names).count();
        if names == filled.len() && filled.len() < self.table.columns.len() {
            return Vec::new();
        }
        // Rather without what needs room than with names that nobody can read.
        for widths in [&NAMES[..READABLE], &NAMES[READABLE..]] {
            let fitting = |columns: &Vec<usize>| self.fitting(columns, widths);
            if let Some(lines) = tried.iter().find_map(fitting) {
                return vec![lines];
            }
        }
        // Each has the names.
        let (names, figures) = filled.split_at(names);
        let parts = figures.chunk_by(|a, b| column(*a).part == column(*b).part);
        if parts.clone().count() < 2 {
            return vec![self.lay(&fewer, NAMES[NAMES.len() - 1])];
        }
        let mut tables: Vec<Vec<usize>> = Vec::new();
        for part in parts {
            let with = |table: &Vec<usize>| [table.as_slice(), part].concat();
            let fits = |table: &Vec<usize>| self.lay(&with(table), SHARED).width() <= self.width;
            match tables.last_mut().filter(|table| fits(table)) {
                Some(table) => table.extend(part),
                None => tables.push([names, part].concat()),
            }
        }
        let lines = |columns: &Vec<usize>| {
            self.fitting(columns, &NAMES)
                .unwrap_or_else(|| self.lay(columns, NAMES[NAMES.len() - 1]))
        };
        let mut tables: Vec<Lines> = tables.iter().map(lines).collect();
        tables.iter_mut().rev().skip(1).for_each(|lines| lines.rows.push(String::new()));
        tables
    }

    /// These columns with the longest names that the width allows. None: they are too wide with the shortest.
    fn fitting(&self, columns: &[usize], names: &[usize]) -> Option<Lines> {
        let with = |name: &usize| self.lay(columns, *name);
        names.iter().map(with).find(|lines| lines.width() <= self.width)
    }

    /// These columns, names in at most `name` columns.
    fn lay(&self, shown: &[usize], name: usize) -> Lines {
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let short = shorten_all(&names, name);
        let short = |whole: &str| {
            let place = names.iter().position(|known| *known == whole);
            place.map_or_else(String::new, |place| short[place].clone())
        };
        let mut laid: Vec<LaidColumn> = Vec::new();
        if self.marks.contains(&true) {
            let arrow = |marked: &bool| if *marked { "→" } else { " " }.to_owned();
            let cells = self.marks.iter().map(arrow).collect();
            laid.push(LaidColumn { cells, align: Align::Left, ..LaidColumn::default() });
        }
        for (place, at) in shown.iter().enumerate() {
            let column = &self.table.columns[*at];
            let cells: Vec<&Cell> = self.rows.iter().map(|row| &row[*at]).collect();
            let next = shown.get(place + 1).map(|at| &self.table.columns[*at].shares_unit);
            let is_shared = !column.shares_unit.is_empty();
            // A bar has the room that the columns before it leave.
            let room = if cells.iter().any(|cell| cell.bar) {
                let before = lay_out(laid.clone()).width() + column.gap;
                self.width.saturating_sub(before).clamp(BAR_MIN, BAR_MAX)
            } else {
                BAR_MAX
            };
            let mut head = line(&column.head);
            let texts = if column.names {
                let names: Vec<String> = cells.iter().map(|cell| short(&cell.text)).collect();
                let widest = names.iter().map(|name| columns(name)).max().unwrap_or(0);
                head = shorten(&head, name.max(widest).max(NAMES_HEAD));
                names
            } else {
                cells.iter().map(|one| cell(one, room, !is_shared)).collect()
            };
            laid.push(LaidColumn {
                head,
                group: column.group.clone(),
                gap: column.gap,
                align: column.align,
                cells: texts,
            });
            // Units stand once, after the last of neighbours, in each row that has any.
            if is_shared && next != Some(&column.shares_unit) {
                let first = shown[..place]
                    .iter()
                    .rposition(|at| self.table.columns[*at].shares_unit != column.shares_unit)
                    .map_or(0, |before| before + 1);
                let unit = |row: &&[Cell]| {
                    let of_row = shown[first..=place].iter().map(|at| &row[*at].unit);
                    of_row.into_iter().find(|unit| !unit.is_empty()).cloned().unwrap_or_default()
                };
                let cells = self.rows.iter().map(unit).collect();
                let group = column.group.clone();
                let (gap, align, head) = (1, Align::Left, String::new());
                laid.push(LaidColumn { head, group, gap, align, cells });
            }
        }
        lay_out(laid)
    }
}

/// `room`: columns that a bar has.
fn cell(cell: &Cell, room: usize, with_unit: bool) -> String {
    if let (true, true, Some(share)) = (cell.text.is_empty(), cell.bar, cell.value) {
        return "█"
            .repeat(1 + (share.clamp(0.0, 100.0) / 100.0 * (room - 1) as f64).round() as usize);
    }
    let unit = if with_unit { cell.unit.as_str() } else { "" };
    let parts = [&cell.text, unit, &cell.small].into_iter().filter(|part| !part.is_empty());
    shorten(&parts.collect::<Vec<_>>().join(" "), CELL_MAX)
}

fn finding(page: &mut TextPage, one: &Article) {
    let tone = if one.problem { Tone::Bad } else { Tone::Doubt };
    let word = format!("{:<LABEL$}", line(&one.severity));
    let about = [&one.id, &one.subject].map(|text| line(text));
    let about: Vec<&str> = about.iter().map(String::as_str).filter(|one| !one.is_empty()).collect();
    let rest = shorten(&about.join(" · "), page.width() - LABEL);
    page.line(&format!("{}{}", page.paint(tone, &word), page.paint(Tone::Strong, &rest)));
    if !one.text.is_empty() {
        page.prose(2, &line(&one.text), Tone::Strong);
    }
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
    if rows.len() > LISTED {
        let all: Vec<String> = rows.iter().map(|[name, value]| format!("{name} {value}")).collect();
        return page.labelled("  evidence", LABEL, &line(&all.join(" · ")), Tone::Plain);
    }
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

/// Commands with why, one below the other.
fn next(page: &mut TextPage, steps: &[[String; 2]]) {
    page.blank();
    let steps: Vec<[String; 2]> = steps.iter().map(|one| [line(&one[0]), line(&one[1])]).collect();
    let widest = steps.iter().map(|[command, _]| columns(command)).max().unwrap_or(0);
    for (at, [command, why]) in steps.iter().enumerate() {
        let label = if at == 0 { "next: " } else { "      " };
        let blanks = " ".repeat(widest - columns(command));
        let whole = format!("{label}{command}{blanks}  {why}");
        if columns(&whole) <= page.width() {
            page.line(&whole);
            continue;
        }
        // On one line where it fits; else there has to be room for the backslash.
        let room = page.width() - label.len();
        let fits = columns(command) <= room;
        let parts = continued(command, if fits { room } else { page.width() - 10 });
        for (at, part) in parts.iter().enumerate() {
            page.line(&format!("{}{part}", if at == 0 { label } else { "        " }));
        }
        page.prose(8, why, Tone::Dim);
    }
}

/// A command in lines of about `width` columns that a shell reads as one: broken before options,
/// never inside a word or a quoted one.
fn continued(command: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut from = 0;
    let ends = command.match_indices(" --").map(|(at, _)| at);
    let quote = |before: &str| !before.ends_with('\\');
    let quoted = |at: &usize| {
        let quotes = command[..*at].match_indices(['\'', '"']);
        quotes.filter(|(at, _)| quote(&command[..*at])).count() % 2 == 1
    };
    for to in ends.filter(|at| !quoted(at)).chain([command.len()]) {
        let part = &command[from..to];
        match lines.last_mut() {
            Some(line) if columns(line) + columns(part) <= width => *line += part,
            _ => lines.push(part.trim_start().to_owned()),
        }
        from = to;
    }
    let last = lines.len().saturating_sub(1);
    lines.iter_mut().take(last).for_each(|line| *line += " \\");
    lines
}

/// Prose wider than this is tiring to read.
const PROSE_MAX: usize = 110;

/// The text so far.
struct TextPage {
    out: String,
    style: TextStyle,
    /// All names of tables so far.
    names: Vec<String>,
}

impl TextPage {
    /// An empty one.
    fn new(style: TextStyle) -> Self {
        Self { out: String::new(), style, names: Vec::new() }
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
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
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
    use tcptoll_core::sheet::Column;

    use super::*;

    #[test]
    fn long_words_are_broken_and_no_line_is_too_wide() {
        assert_eq!(wrap("ab cdefghij k", 4), ["ab", "cdef", "ghij", "k"]);
        assert_eq!(wrap("接続接続", 5), ["接続", "接続"]);
    }

    #[test]
    fn a_long_command_goes_on_after_a_backslash_and_is_broken_before_an_option() {
        let command = r"tcptoll keepalive --to host:1 --null 'it'\''s --b c' --fault freeze";
        assert_eq!(
            continued(command, 30),
            [r"tcptoll keepalive --to host:1 \", r"--null 'it'\''s --b c' \", "--fault freeze"]
        );
        assert_eq!(continued(command, 80), [command]);
    }

    #[test]
    fn a_table_goes_without_what_needs_room_before_names_are_hard_to_read_and_then_falls_apart() {
        let figure =
            |head: &str, part, room| Column { part, ..Column::new(head, Align::Point).room(room) };
        let columns = vec![
            Column::names("arm"),
            Column { shares_unit: "latency".to_owned(), ..figure("median", 0, Room::Always) },
            Column {
                shares_unit: "latency".to_owned(),
                ..figure("99th percentile", 0, Room::Wide)
            },
            figure("operations per second", 1, Room::Present),
            figure("never measured", 1, Room::Present),
        ];
        let time = |text: &str| Cell { unit: "ms".to_owned(), ..text.into() };
        let row = |name: &str| {
            let cells = [time("1.5"), time("12"), "3,000".into(), Cell::ABSENT.into()];
            [name.into()].into_iter().chain(cells).collect::<Vec<Cell>>()
        };
        let table = Table::new(columns, [row("a name of thirty-two columns long"), row("other")]);
        let shown = |width| {
            let of_table = |lines: Lines| [lines.heads, lines.rows].concat();
            Laid::new(&table, width, Vec::new())
                .tables()
                .into_iter()
                .map(of_table)
                .collect::<Vec<_>>()
        };
        let wide = shown(100);
        assert_eq!(wide.len(), 1);
        assert!(
            wide[0][1].starts_with("  a name")
                && wide[0][1].ends_with(" 1.5               12 ms                  3,000"),
            "{wide:?}"
        );
        let narrow = shown(60);
        assert!(narrow.len() == 1 && !narrow[0][0].contains("99th"), "{narrow:?}");
        let apart = shown(38);
        assert_eq!(
            apart.iter().flatten().filter(|line| line.contains("other")).count(),
            2,
            "{apart:?}"
        );
        assert!(apart.iter().flatten().all(|line| crate::clean::columns(line) <= 38), "{apart:?}");
    }
}
