//! A table as markup that fits where it is read. One of many columns and few rows is turned: a row for each figure. Where
//! there is no room for its columns, each row is a list of names and values; the style has that.
//!
//! Which of these it is follows from its shape, so that runs of one kind look alike.

use tcptoll_core::sheet::{Align, Cell, Column, Room, Row, Table};

use crate::clean;
use crate::clean::keep_units;
use crate::svg::escape;

/// A table of so many columns is turned, if it has no more rows than that.
const MANY: usize = 7;
const FEW: usize = 5;

/// With no more columns than these, words break before a row becomes a list.
const NARROW: usize = 3;

/// Widths of a table's place, in rem, below which there is no room; the last is that of the widest place.
const STEPS: [u16; 6] = [18, 23, 30, 38, 47, 59];

/// Width of a letter, about, and of the space between columns, rem.
const LETTER: f64 = 0.55;
const GAP: f64 = 0.9;

/// Letters of a figure that stays on one line, and of a line of words at least.
const FIGURE: usize = 14;
const LINE: usize = 15;

/// Letters that have the width of a bar.
const BAR: usize = 10;

/// What a page does where there is no room for a table.
const CROWDED: &str = include_str!("crowded.css");

/// The style of the tables of a page where there is no room for their columns.
pub(super) fn style(page: &str) -> String {
    let at = |step: u16| CROWDED.replace("STEP", &step.to_string());
    let used = STEPS.into_iter().filter(|step| page.contains(&format!(" r{step}\"")));
    let steps = used.map(|step| format!("@container (width < {step}rem) {{\n{}}}\n", at(step)));
    let always = if page.contains(" r0\"") { at(0) } else { String::new() };
    steps.collect::<String>() + &always
}

/// A table, with its note.
pub(super) fn table(table: &Table) -> String {
    let table = &of_page(table);
    let heads: Vec<Cell> = table.columns.iter().map(head).collect();
    let left = |at: usize| table.columns.get(at).is_some_and(|one| one.align == Align::Left);
    let mut markup = if let Some(rows) = turned(table) {
        let names = heads.iter().take(1).chain(rows.iter().map(|cells| &cells[0])).collect();
        let figure = |at: usize| heads[at..=at].iter().chain(rows.iter().map(move |row| &row[at]));
        let rows =
            (1..heads.len()).map(|at| Line { cells: figure(at).collect(), ..Line::default() });
        let long = |row: &Line| row.cells.iter().any(|cell| is_long(&cell.text));
        let laid = Laid { heads: names, rows: rows.collect(), sortable: false };
        laid.markup(|row, _| left(row + 1) && long(&laid.rows[row]))
    } else {
        let rows = table.rows.iter().map(|row| match row {
            Row::Group { text } => Line { group: Some(text), ..Line::default() },
            Row::Cells { cells, marked } => {
                Line { cells: cells.iter().collect(), marked: *marked, group: None }
            }
        });
        let (heads, rows) = (heads.iter().collect(), rows.collect());
        let laid = Laid { heads, rows, sortable: table.sortable };
        laid.markup(|_, column| left(column))
    };
    if let Some(note) = &table.note {
        markup += &format!("<p class=\"note\">{}</p>\n", escape(note));
    }
    markup
}

/// The columns that a page shows: it has pictures in place of letters.
fn of_page(table: &Table) -> Table {
    let shown = |column: &Column| column.room != Room::File && !column.letters;
    let shown: Vec<bool> = table.columns.iter().map(shown).collect();
    let columns = table.columns.iter().zip(&shown).filter(|(_, shown)| **shown);
    let columns = columns.map(|(column, _)| column.clone()).collect();
    let row = |row: &Row| match row {
        Row::Cells { cells, marked } => {
            let cells = cells.iter().zip(&shown).filter(|(_, shown)| **shown);
            let whole = |cell: &Cell| Cell { text: cell.whole(), ..cell.clone() };
            Row::Cells { cells: cells.map(|(cell, _)| whole(cell)).collect(), marked: *marked }
        }
        Row::Group { .. } => row.clone(),
    };
    let rows = table.rows.iter().map(row).collect();
    Table { columns, rows, sortable: table.sortable, note: table.note.clone() }
}

/// A heading as a cell.
fn head(column: &Column) -> Cell {
    column.heading().into()
}

/// The rows of a table that is to be turned: one of many columns and few rows, none of which stands out.
fn turned(table: &Table) -> Option<Vec<&Vec<Cell>>> {
    let columns = table.columns.len();
    let shape = columns >= MANY && (1..=FEW).contains(&table.rows.len());
    let rows = table.rows.iter().filter(|_| shape).map(|row| match row {
        Row::Cells { cells, marked: false } if cells.len() == columns => Some(cells),
        _ => None,
    });
    rows.collect::<Option<Vec<_>>>().filter(|rows| !rows.is_empty())
}

/// A row as it stands on the page: a heading over others, or cells.
#[derive(Default)]
struct Line<'a> {
    group: Option<&'a str>,
    cells: Vec<&'a Cell>,
    marked: bool,
}

/// A table as it stands on the page.
struct Laid<'a> {
    heads: Vec<&'a Cell>,
    rows: Vec<Line<'a>>,
    sortable: bool,
}

impl Laid<'_> {
    /// As markup; which cells hold words is told by row and column. Cells and rows end where the next begins.
    fn markup(&self, words: impl Fn(usize, usize) -> bool) -> String {
        let few = self.heads.len() <= NARROW;
        let place = if few { "few" } else { "many" };
        let class = if self.sortable { " class=\"sortable full\"" } else { "" };
        let mut out = format!("<div class=\"t {place}{}\"><table{class}><thead><tr>", self.step());
        for (column, head) in self.heads.iter().enumerate() {
            let left = column > 0 && (0..self.rows.len()).all(|row| words(row, column));
            out += if left { "<th scope=\"col\" class=\"w\">" } else { "<th scope=\"col\">" };
            cell(&mut out, head, true);
        }
        out += "</thead>\n<tbody>";
        for (at, row) in self.rows.iter().enumerate() {
            if let Some(group) = row.group {
                let (all, group) = (self.heads.len(), escape(group));
                out += &format!("<tr><th scope=\"rowgroup\" colspan=\"{all}\">{group}\n");
            }
            for (column, one) in row.cells.iter().enumerate() {
                let words = column == 0 || words(at, column);
                if column == 0 {
                    out += if row.marked { "<tr class=\"chosen\">" } else { "<tr>" };
                    out += if row.marked { "<th scope=\"row\">→ " } else { "<th scope=\"row\">" };
                } else {
                    let head = self.heads.get(column).filter(|_| !few);
                    self.open(&mut out, one, words, head);
                }
                cell(&mut out, one, words);
            }
            out.push('\n');
        }
        out + "</tbody></table></div>\n"
    }

    /// Begins a cell that names no row.
    fn open(&self, out: &mut String, cell: &Cell, words: bool, head: Option<&&Cell>) {
        *out += match (words, is_long(&cell.text)) {
            (true, true) => "<td class=\"w long\"",
            (true, false) => "<td class=\"w\"",
            (false, _) => "<td",
        };
        if let Some(value) = cell.value.filter(|value| self.sortable && value.is_finite()) {
            *out += &format!(" data-value=\"{}\"", six_digits(value));
        }
        if let Some(head) = head {
            *out += &format!(" data-head=\"{}\"", escape(&head.text));
        }
        out.push('>');
    }

    /// The class of the width below which its columns have no room; of a table that has room everywhere, none.
    fn step(&self) -> String {
        let column = |at: usize| {
            let cells = self.rows.iter().filter_map(|row| row.cells.get(at));
            let letters = cells.map(|cell| least(cell)).chain([longest(&self.heads[at].text)]);
            letters.max().unwrap_or(0) as f64 * LETTER + GAP
        };
        let need: f64 = (0..self.heads.len()).map(column).sum();
        match STEPS.into_iter().find(|step| need <= f64::from(*step)) {
            Some(step) if step == STEPS[0] => String::new(),
            Some(step) => format!(" r{step}"),
            None => " r0".to_owned(),
        }
    }
}

/// Letters of the longest word.
fn longest(text: &str) -> usize {
    text.split(' ').map(clean::columns).max().unwrap_or(0)
}

/// Whether it is read line by line.
fn is_long(text: &str) -> bool {
    text.len() > 2 * LINE
}

/// Letters for which a cell needs room.
fn least(cell: &Cell) -> usize {
    let Cell { text, small, bar, .. } = cell;
    let all = clean::columns(text);
    let text = if all <= FIGURE { all } else { longest(text).max(LINE) };
    text.max(longest(small)).max(if *bar { text + BAR } else { 0 })
}

/// A dot in the colour of an arm.
pub(super) fn swatch(class: &str) -> String {
    format!("<span class=\"swatch {}\" aria-hidden=\"true\"></span>", escape(class))
}

/// A figure as exact as it must be for sorting.
fn six_digits(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

/// What stands in a cell: its texts, and a bar.
fn cell(out: &mut String, cell: &Cell, words: bool) {
    let Cell { text, small, value, bar, class, .. } = cell;
    if !class.is_empty() {
        *out += &swatch(class);
    }
    if !text.contains(' ') {
        *out += &escape(text);
    } else if words || clean::columns(text) > FIGURE {
        *out += &escape(&keep_units(text));
    } else {
        *out += &escape(text).replace(' ', "\u{a0}");
    }
    if !small.is_empty() {
        *out += &format!(" <small>{}</small>", escape(small));
    }
    if let Some(share) = value.filter(|_| *bar) {
        let full = if share >= 100.0 {
            " full"
        } else if share >= 80.0 {
            " near"
        } else {
            ""
        };
        *out += &format!(
            " <span class=\"fill{full}\" aria-hidden=\"true\"><i style=\"width:{share}%\"></i></span>"
        );
    }
}
