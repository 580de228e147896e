//! Which figures stand side by side, an arm a row? The table that readers sort.

use serde::Serialize;
use tcptoll_model::record::{Arm, Summary};

use super::view::{ArmName, each_arm, name};
use crate::figures::{self, Primary};
use crate::number::{self, ABSENT};
use crate::{findings, keepalive, requests, rounds};

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

/// Metrics that have a column whatever the run is about, and its heading.
const SHOWN: [(&str, &str); 5] = [
    ("connect_us_mean", "mean"),
    (requests::RATE, "requests/s"),
    (requests::INTENDED, "intended/s"),
    ("connections_per_s", "conn/s"),
    ("accept_queue_peak", "accept queue peak"),
];

/// Heading and cells of a column.
type Column<'a> = (String, Box<dyn Fn(&Arm) -> Cell + 'a>);

fn column<'a>(head: &str, cell: impl Fn(&Arm) -> Cell + 'a) -> Column<'a> {
    (head.to_owned(), Box::new(cell))
}

fn of_metric(head: &str, key: &'static str, unit: &'static str) -> Column<'static> {
    column(head, move |arm| match arm.metrics.get(key) {
        Some(m) => Cell { text: interval(m.value, m.ci95, unit), value: Some(m.value) },
        None => absent(),
    })
}

fn quantile<'a>(head: &str, key: &'a str, at: usize) -> Column<'a> {
    column(head, move |arm| time_cell(figures::quantiles(arm, key)[at]))
}

/// Figures per arm; columns that no arm has are left out.
pub(super) fn of(summary: &Summary, primary: &Primary) -> Table {
    let known = primary.key == keepalive::DETECTION;
    let named = |q: &str| if known { format!("known after: {q}") } else { q.to_owned() };
    let mut candidates = vec![
        of_metric("intended/s", requests::INTENDED, ""),
        column("requests/s", |arm| match arm.metrics.get(requests::RATE) {
            Some(m) if m.ci95.is_none() => Cell {
                text: figures::rate(arm, requests::RATE).unwrap_or_default(),
                value: Some(m.value),
            },
            Some(m) => Cell { text: interval(m.value, m.ci95, ""), value: Some(m.value) },
            None => absent(),
        }),
        quantile(&named("p50"), &primary.key, 0),
        column("p90", |arm| {
            time_cell(figures::waited(arm).and_then(|_| figures::p90(arm, &primary.key)))
        }),
        quantile(&named("p99"), &primary.key, 1),
        quantile(&named("p99.9"), &primary.key, 2),
        quantile(&named("max"), &primary.key, 3),
        of_metric("mean", "connect_us_mean", "us"),
        quantile("first byte p50", "first_byte_us", 0),
        quantile("ICMP echo p50", "rtt_us", 0),
        column("waited for a SYN", |arm| match figures::waited(arm) {
            Some(share) => {
                Cell { text: format!("{} %", number::three(share * 100.0)), value: Some(share) }
            }
            None => absent(),
        }),
        quantile("failed: connect p50", "connect_of_failed_us", 0),
        column("conn/s", |arm| match arm.metrics.get("connections_per_s") {
            Some(m) if m.ci95.is_none() => Cell {
                text: figures::rate(arm, "connections_per_s").unwrap_or_default(),
                value: Some(m.value),
            },
            Some(m) => Cell { text: interval(m.value, m.ci95, ""), value: Some(m.value) },
            None => absent(),
        }),
    ];
    if requests::any(summary) || keepalive::any(summary) {
        let server = |arm: &Arm| plain_cell(arm.server.as_ref().and_then(|h| h.cpu_us_per_op));
        candidates.retain(|(head, _)| head != "mean");
        candidates.push(column("client CPU µs", |arm| plain_cell(arm.client.cpu_us_per_op)));
        candidates.push(column("server CPU µs", server));
    } else {
        let kernel = |arm: &Arm| plain_cell(arm.client.cpu_system_us_per_op);
        candidates.push(column("CPU total µs", |arm| plain_cell(arm.client.cpu_us_per_op)));
        candidates.push(column("CPU kernel µs", kernel));
    }
    candidates.push(of_metric("accept queue peak", "accept_queue_peak", ""));
    if let Some(key) = rounds::metric(summary) {
        let cell = move |arm: &Arm| match rounds::measured(arm, key) {
            Some(m) => Cell { text: m.estimate().text(), value: Some(m.value) },
            None => absent(),
        };
        // It stands first, under its whole name, and not a second time.
        if let Some((_, head)) = SHOWN.iter().find(|(shown, _)| *shown == key) {
            candidates.retain(|(candidate, _)| candidate != head);
        }
        candidates.insert(0, column(&figures::metric_name(key), cell));
    }
    let mut columns = told(summary, candidates);
    // Where peers only die, nothing is tried.
    if !keepalive::any(summary) || summary.arms.iter().any(|arm| arm.attempts > 0) {
        columns.push(column("ok", |arm| Cell {
            text: figures::ok_of_attempts(arm),
            value: (arm.attempts > 0).then(|| arm.ok as f64 / arm.attempts as f64),
        }));
    }
    if summary.arms.iter().any(|arm| !arm.errors.is_empty() || arm.failure.is_some()) {
        columns.push(column("errors", |arm| Cell {
            text: arm
                .failure
                .clone()
                .or_else(|| findings::errors(arm))
                .unwrap_or_else(|| "0".into()),
            value: Some(arm.errors.values().sum::<u64>() as f64),
        }));
    }
    laid_out(summary, columns)
}

/// Where operations are requests: the connections that carried them.
pub(super) fn of_connections(summary: &Summary) -> Option<Table> {
    let made = |arm: &Arm| count_cell(arm.connections_ok);
    let candidates = vec![
        column("connections", made),
        of_metric("requests per connection", requests::PER_CONNECTION, ""),
        quantile("connect p50", "connect_us", 0),
        quantile("connect p99", "connect_us", 1),
        quantile("TLS p50", "tls_us", 0),
        quantile("TLS p99", "tls_us", 1),
        column("closed first", closer),
        of_metric("client segments/req", requests::SEGMENTS[0], ""),
        of_metric("server segments/req", requests::SEGMENTS[1], ""),
        column("client TIME-WAIT", |arm| count_cell(requests::time_wait(arm)[0])),
        column("server TIME-WAIT", |arm| count_cell(requests::time_wait(arm)[1])),
        of_metric("kernel memory", requests::KERNEL_MEMORY, "bytes"),
        of_metric("client memory", requests::CLIENT_MEMORY, "bytes"),
    ];
    let columns = if requests::any(summary) { told(summary, candidates) } else { Vec::new() };
    (!columns.is_empty()).then(|| laid_out(summary, columns))
}

/// Columns of checking idle connections, for the arms that `keep` takes; what none of them has is
/// left out.
pub(super) fn of_columns(
    summary: &Summary,
    columns: &[keepalive::Column],
    keep: &dyn Fn(usize, &Arm) -> bool,
) -> Table {
    let arms: Vec<(usize, &Arm)> =
        summary.arms.iter().enumerate().filter(|(at, arm)| keep(*at, arm)).collect();
    let told = |column: &&keepalive::Column| arms.iter().any(|(_, arm)| column.text(arm) != ABSENT);
    let columns: Vec<&keepalive::Column> = columns.iter().filter(told).collect();
    let cell = |column: &keepalive::Column, arm: &Arm| Cell {
        text: column.text(arm),
        value: column.value(arm),
    };
    let row = |(at, arm): &(usize, &Arm)| Row {
        arm: name(*at, arm),
        cells: columns.iter().map(|column| cell(column, arm)).collect(),
    };
    Table {
        heads: columns.iter().map(|column| column.whole.to_owned()).collect(),
        rows: arms.iter().map(row).collect(),
    }
}

impl Table {
    /// Whether it has nothing to show.
    pub(super) fn is_empty(&self) -> bool {
        self.heads.is_empty() || self.rows.is_empty()
    }
}

/// The columns in which any arm has a figure.
fn told<'a>(summary: &Summary, mut columns: Vec<Column<'a>>) -> Vec<Column<'a>> {
    columns.retain(|(_, cell)| summary.arms.iter().any(|arm| cell(arm).value.is_some()));
    columns
}

fn laid_out(summary: &Summary, columns: Vec<Column<'_>>) -> Table {
    let row = |at, arm: &Arm| {
        Some(Row { arm: name(at, arm), cells: columns.iter().map(|(_, cell)| cell(arm)).collect() })
    };
    let rows = each_arm(summary, row);
    Table { heads: columns.into_iter().map(|(head, _)| head).collect(), rows }
}

/// Who closed first, sorted by the share that the client closed.
fn closer(arm: &Arm) -> Cell {
    let Some((text, closing)) = requests::closer(arm).zip(arm.closing.as_ref()) else {
        return absent();
    };
    let all = closing.closed().max(1);
    Cell { text, value: Some(closing.by_client as f64 / all as f64) }
}

fn count_cell(count: Option<u64>) -> Cell {
    Cell { text: requests::count_or_absent(count), value: count.map(|n| n as f64) }
}

fn absent() -> Cell {
    Cell { text: ABSENT.to_owned(), value: None }
}

fn time_cell(us: Option<f64>) -> Cell {
    us.map_or_else(absent, |us| Cell { text: number::time(us), value: Some(us) })
}

fn plain_cell(value: Option<f64>) -> Cell {
    value.map_or_else(absent, |value| Cell { text: number::three(value), value: Some(value) })
}

fn interval(value: f64, ci95: Option<[f64; 2]>, unit: &str) -> String {
    let value = number::metric(value, unit);
    match ci95 {
        Some([low, high]) => {
            format!("{value} [{}, {}]", number::metric(low, unit), number::metric(high, unit))
        }
        None => value,
    }
}
