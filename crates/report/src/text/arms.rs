//! Which figures carry the answer? One row per arm: latency, first byte, CPU, how many succeeded.

use tcptoll_model::record::{Arm, Summary};

use super::table::{Align, Column, Lines, lay_out};
use super::{Page, Tone, keepalive as of_keepalive, requests as of_requests};
use crate::number::{ABSENT, TimeUnit};
use crate::{clean, figures, keepalive, number, requests};

/// Columns that a name may take, from a roomy table to a tight one.
const NAME: [usize; 4] = [32, 24, 18, 12];

/// Heading over the client's CPU time, and of the part of it that the kernel used.
const CPU: &str = "CPU µs/conn";
const KERNEL: &str = "kernel";

/// Columns of a name where columns are shared out among tables.
const SHARED: usize = 18;

/// The table in one piece where the width allows it, else in two.
pub(super) fn write(page: &mut Page, summary: &Summary) {
    if summary.arms.is_empty() {
        page.line("  no arm was measured");
        return;
    }
    if keepalive::any(summary) {
        return of_keepalive::write(page, summary);
    }
    if requests::any(summary) {
        return of_requests::write(page, summary);
    }
    let names = names(summary);
    let room = page.width();
    let all = [latency(summary), cost(summary)].concat();
    // A column of dashes is worth its room only while there is room.
    for columns in [all.clone(), told(all.clone()), told(without_kernel(all))] {
        if let Some(lines) = fitting(&names, &columns, room) {
            return page.table(&lines, Tone::Dim);
        }
    }
    for part in [told(latency(summary)), told(cost(summary))] {
        let narrowest = || lay_out(with_names(&names, 12, part.clone()));
        let lines = fitting(&names, &part, room).unwrap_or_else(narrowest);
        page.table(&lines, Tone::Dim);
        page.blank();
    }
}

/// Without the part of the CPU time that the kernel used: the first to go where columns are many.
fn without_kernel(mut columns: Vec<Column>) -> Vec<Column> {
    columns.retain(|column| column.head != KERNEL);
    // What is left needs no heading over it.
    for column in columns.iter_mut().filter(|column| column.group == CPU) {
        (column.head, column.group) = ("CPU µs".to_owned(), "");
    }
    columns
}

/// The columns in which any arm has a figure.
fn told(columns: Vec<Column>) -> Vec<Column> {
    columns.into_iter().filter(|column| column.cells.iter().any(|cell| cell != ABSENT)).collect()
}

/// The table with names as long as the width allows, or `None` if it is too wide with short ones.
fn fitting(names: &[&str], columns: &[Column], room: usize) -> Option<Lines> {
    let with = |name| lay_out(with_names(names, name, columns.to_vec()));
    NAME.into_iter().map(with).find(|lines| lines.width() <= room)
}

fn with_names(names: &[&str], width: usize, mut columns: Vec<Column>) -> Vec<Column> {
    columns.insert(0, Column::new("arm", Align::Left, clean::shorten_all(names, width)));
    columns
}

/// The names of all arms.
pub(super) fn names(summary: &Summary) -> Vec<&str> {
    summary.arms.iter().map(|arm| arm.name.as_str()).collect()
}

/// Parts that stay together, in one table where the width allows it, else in as many as it takes;
/// `names` is one per row.
pub(super) fn in_parts(page: &mut Page, names: &[&str], parts: Vec<Vec<Column>>) {
    let room = page.width();
    let parts: Vec<Vec<Column>> =
        parts.into_iter().map(told).filter(|part| !part.is_empty()).collect();
    if let Some(lines) = fitting(names, &parts.concat(), room) {
        return page.table(&lines, Tone::Dim);
    }
    let mut tables: Vec<Vec<Column>> = Vec::new();
    for part in parts {
        let with = |table: &Vec<Column>| [table.as_slice(), part.as_slice()].concat();
        let fits =
            |table: &Vec<Column>| lay_out(with_names(names, SHARED, with(table))).width() <= room;
        match tables.last_mut().filter(|table| fits(table)) {
            Some(table) => table.extend(part),
            None => tables.push(part),
        }
    }
    for table in tables {
        let narrowest = || lay_out(with_names(names, 12, table.clone()));
        let lines = fitting(names, &table, room).unwrap_or_else(narrowest);
        page.table(&lines, Tone::Dim);
        page.blank();
    }
}

/// Latency of every arm and the first byte.
fn latency(summary: &Summary) -> Vec<Column> {
    let primary = figures::primary(summary);
    let group = if primary.key == "connect_us" { "connect latency" } else { "latency" };
    // Where connects waited, p99 is the length of a wait and p90 says whether most did.
    let waits = summary.arms.iter().any(|arm| figures::waited(arm).is_some());
    let shown: &[&str] =
        if waits { &["p50", "p90", "p99", "max"] } else { &["p50", "p99", "p99.9", "max"] };
    let mut columns = quantiles(summary, &primary.key, group, shown);
    if waits {
        let share = |arm: &Arm| {
            figures::waited(arm)
                .map_or_else(|| ABSENT.to_owned(), |s| format!("{} %", number::three(s * 100.0)))
        };
        columns.push(Column::new("waited", Align::Right, summary.arms.iter().map(share).collect()));
    }
    if primary.key != "first_byte_us" {
        columns.extend(median(summary, "first_byte_us", "first byte"));
    }
    columns
}

/// Some quantiles of a histogram of every arm, one unit a row.
pub(super) fn quantiles(
    summary: &Summary,
    key: &str,
    group: &'static str,
    shown: &[&str],
) -> Vec<Column> {
    let five = |arm: &Arm| {
        let [p50, p99, p99_9, max] = figures::quantiles(arm, key);
        [p50, figures::p90(arm, key), p99, p99_9, max]
    };
    let rows: Vec<_> = summary.arms.iter().map(five).collect();
    let units: Vec<Option<TimeUnit>> = rows
        .iter()
        .map(|row| {
            row.iter().any(Option::is_some).then(|| TimeUnit::of_row(row.iter().flatten().copied()))
        })
        .collect();
    let mut columns: Vec<Column> = ["p50", "p90", "p99", "p99.9", "max"]
        .into_iter()
        .enumerate()
        .filter(|(_, head)| shown.contains(head))
        .map(|(at, head)| {
            let cell = |(row, unit): (&[Option<f64>; 5], &Option<TimeUnit>)| {
                let figure = row[at].zip(*unit).map(|(us, unit)| unit.figure(us));
                figure.unwrap_or_else(|| ABSENT.to_owned())
            };
            let cells = rows.iter().zip(&units).map(cell).collect();
            Column::new(head, Align::Point, cells).under(group)
        })
        .collect();
    let symbols = units.iter().map(|unit| unit.map_or("", TimeUnit::symbol).to_owned()).collect();
    columns.push(Column::new("", Align::Left, symbols).gap(1));
    columns
}

/// Median of a histogram, where any arm has it.
pub(super) fn median(summary: &Summary, key: &str, group: &'static str) -> Vec<Column> {
    let values: Vec<Option<f64>> =
        summary.arms.iter().map(|arm| figures::quantiles(arm, key)[0]).collect();
    if values.iter().all(Option::is_none) {
        return Vec::new();
    }
    let figure = |us: &Option<f64>| match us {
        Some(us) => TimeUnit::of(*us).figure(*us),
        None => ABSENT.to_owned(),
    };
    let symbol = |us: &Option<f64>| us.map_or("", |us| TimeUnit::of(us).symbol()).to_owned();
    vec![
        Column::new("p50", Align::Point, values.iter().map(figure).collect()).under(group),
        Column::new("", Align::Left, values.iter().map(symbol).collect()).gap(1),
    ]
}

/// CPU of the client per operation, where it was measured, and how many succeeded.
fn cost(summary: &Summary) -> Vec<Column> {
    let cpu = |of: fn(&Arm) -> Option<f64>, head: &str| {
        let values: Vec<Option<f64>> = summary.arms.iter().map(of).collect();
        let cell = |us: &Option<f64>| us.map_or_else(|| ABSENT.to_owned(), number::three);
        values
            .iter()
            .any(Option::is_some)
            .then(|| Column::new(head, Align::Point, values.iter().map(cell).collect()).under(CPU))
    };
    let mut columns: Vec<Column> = Vec::new();
    columns.extend(cpu(|arm| arm.client.cpu_us_per_op, "total"));
    columns.extend(cpu(|arm| arm.client.cpu_system_us_per_op, KERNEL));
    let rates: Vec<Option<String>> =
        summary.arms.iter().map(|arm| figures::rate(arm, "connections_per_s")).collect();
    if rates.iter().any(Option::is_some) {
        let cell = |rate: Option<String>| rate.unwrap_or_else(|| ABSENT.to_owned());
        let cells = rates.into_iter().map(cell).collect();
        columns.push(Column::new("conn/s", Align::Right, cells));
    }
    let ok = summary.arms.iter().map(figures::ok_of_attempts).collect();
    columns.push(Column::new("ok", Align::Right, ok));
    columns
}
