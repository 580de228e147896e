//! Which figures stand side by side, an arm a row? The tables that readers sort.

use serde::Serialize;
use tcptoll_core::experiment::column::Form;
use tcptoll_core::record::Arm;

use super::arm::{ArmName, name};
use crate::columns::{self, Column};
use crate::number::{self, ABSENT, Estimate};
use crate::rounds;
use crate::run::Run;

/// A sortable table.
#[derive(Serialize)]
pub(super) struct Table {
    heads: Vec<String>,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    arm: ArmName,
    cells: Vec<Cell>,
}

/// What is shown, and what is sorted by.
#[derive(Serialize)]
struct Cell {
    text: String,
    value: Option<f64>,
}

impl Table {
    /// Whether it has nothing to show.
    pub(super) fn is_empty(&self) -> bool {
        self.heads.is_empty() || self.rows.is_empty()
    }
}

/// Figures per arm, the metric of the run first under its whole name and not a second time.
pub(super) fn figures(summary: &Run, table: columns::Table) -> Table {
    let metric = rounds::metric(summary);
    let mut shown = fill(summary, &table.without(metric));
    let Some(key) = metric else { return shown };
    let estimates = rounds::estimates(summary, key);
    let cell = |(arm, estimate): (&Arm, Option<Estimate>)| {
        let measured = rounds::measured(arm, key)?;
        Some(Cell { text: estimate?.text(), value: Some(measured.value) })
    };
    let cells: Vec<Option<Cell>> = summary.arms.iter().zip(estimates).map(cell).collect();
    if cells.iter().all(Option::is_none) || shown.rows.len() != cells.len() {
        return shown;
    }
    shown.heads.insert(0, summary.specs.words_of_metric(key));
    for (row, cell) in shown.rows.iter_mut().zip(cells) {
        row.cells.insert(0, cell.unwrap_or(Cell { text: ABSENT.to_owned(), value: None }));
    }
    shown
}

/// A table; columns that no arm has are left out.
pub(super) fn fill(summary: &Run, table: &columns::Table) -> Table {
    let arms = table.arms(summary);
    let text = |column: &Column, arm: &Arm| column.text(arm, summary.own, Form::Page);
    let filled = |column: &&Column| arms.iter().any(|(_, arm)| text(column, arm) != number::ABSENT);
    let columns: Vec<&Column> = table.parts.iter().flatten().filter(filled).collect();
    let cell =
        |column: &&Column, arm: &Arm| Cell { text: text(column, arm), value: column.value(arm) };
    let row = |(at, arm): &(usize, &Arm)| Row {
        arm: name(*at, arm),
        cells: columns.iter().map(|column| cell(column, arm)).collect(),
    };
    Table {
        heads: columns.iter().map(|column| column.whole.clone()).collect(),
        rows: arms.iter().map(row).collect(),
    }
}
