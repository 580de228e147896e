//! How do figures stand in columns? Aligned on the decimal point, with headings over groups.
//!
//! Our own code, because comfy-table, like all crates among ours, cannot align a column on the decimal point.

use tcptoll_core::sheet::Align;

use crate::clean::{columns, line};

/// One column with its cells, a cell per row.
#[derive(Clone, Debug, Default)]
pub(super) struct LaidColumn {
    /// Heading; may be empty.
    pub head: String,
    /// Heading over this and the following columns with the same group.
    pub group: String,
    /// Blanks to the left.
    pub gap: usize,
    /// Side the cells keep to.
    pub align: Align,
    /// One per row.
    pub cells: Vec<String>,
}

impl LaidColumn {
    /// Cleans all texts and brings the cells to one width.
    fn settle(&mut self) {
        for cell in self.cells.iter_mut().chain([&mut self.head, &mut self.group]) {
            *cell = line(cell);
        }
        if self.align == Align::Point {
            let after = |cell: &str| cell.find('.').map_or(0, |at| columns(&cell[at..]));
            let most = self.cells.iter().map(|cell| after(cell)).max().unwrap_or(0);
            for cell in &mut self.cells {
                cell.extend(std::iter::repeat_n(' ', most - after(cell)));
            }
        }
        let width = self.width();
        for cell in &mut self.cells {
            *cell = pad(cell, width, self.align);
        }
        self.head = pad(&self.head, width, self.align);
    }

    fn width(&self) -> usize {
        self.cells.iter().map(|cell| columns(cell)).max().unwrap_or(0).max(columns(&self.head))
    }
}

fn pad(text: &str, width: usize, align: Align) -> String {
    let blanks = " ".repeat(width.saturating_sub(columns(text)));
    if align == Align::Left { format!("{text}{blanks}") } else { format!("{blanks}{text}") }
}

/// Lines of a table: one or two of headings, then one per row.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    /// Headings, from the top.
    pub heads: Vec<String>,
    /// Rows.
    pub rows: Vec<String>,
}

impl Lines {
    /// Columns of the widest line.
    pub(super) fn width(&self) -> usize {
        self.heads.iter().chain(&self.rows).map(|line| columns(line)).max().unwrap_or(0)
    }
}

/// Lays out columns of equally many cells.
pub(super) fn lay_out(mut table: Vec<LaidColumn>) -> Lines {
    for column in &mut table {
        column.settle();
    }
    widen_for_groups(&mut table);
    let mut heads = Vec::new();
    if table.iter().any(|column| !column.group.is_empty()) {
        heads.push(group_line(&table));
    }
    heads.push(join(table.iter().map(|column| (column.gap, column.head.as_str()))));
    let rows = table.first().map_or(0, |column| column.cells.len());
    let row = |at: usize| join(table.iter().map(|c| (c.gap, c.cells.get(at).map_or("", |s| s))));
    Lines { heads, rows: (0..rows).map(row).collect() }
}

fn join<'a>(cells: impl Iterator<Item = (usize, &'a str)>) -> String {
    let line = cells.fold(String::new(), |line, (gap, cell)| line + &" ".repeat(gap) + cell);
    line.trim_end().to_owned()
}

/// Runs of neighbours in one group: start and end (exclusive).
fn groups(table: &[LaidColumn]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for at in 0..table.len() {
        match runs.last_mut() {
            Some(run) if table[run.0].group == table[at].group => run.1 = at + 1,
            _ => runs.push((at, at + 1)),
        }
    }
    runs
}

fn span(columns: &[LaidColumn]) -> usize {
    let gaps: usize = columns.iter().skip(1).map(|column| column.gap).sum();
    gaps + columns.iter().map(LaidColumn::width).sum::<usize>()
}

/// A group's heading wider than its columns pushes its first column to the right.
fn widen_for_groups(table: &mut [LaidColumn]) {
    for (from, to) in groups(table) {
        let lacking = columns(&table[from].group).saturating_sub(span(&table[from..to]));
        table[from].gap += lacking;
    }
}

fn group_line(table: &[LaidColumn]) -> String {
    let mut line = String::new();
    for (from, to) in groups(table) {
        let group = table[from].group.as_str();
        let width = span(&table[from..to]);
        let room = table[from].gap + width;
        // Flush right over its columns; the figures below are flush right too.
        let text = if columns(group) <= width {
            pad(group, width, Align::Right)
        } else {
            group.to_owned()
        };
        line += &pad(&text, room, Align::Right);
    }
    line.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_points_stand_in_one_line() {
        let cells = ["37.1", "1,003", "0.0201", "—"].map(str::to_owned).to_vec();
        let [head, group] = ["p50", "connect latency"].map(str::to_owned);
        let lines = lay_out(vec![LaidColumn { head, group, gap: 2, align: Align::Point, cells }]);
        assert_eq!(lines.heads, ["  connect latency", "              p50"]);
        assert_eq!(lines.rows.len(), 4);
        assert_eq!(lines.rows[0].find('.'), lines.rows[2].find('.'));
    }
}
