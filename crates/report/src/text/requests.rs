//! Which figures carry the answer where operations are requests? Rate, latency, connecting and the
//! first byte on their own, CPU of both sides, and who closed.

use tcptoll_model::record::{Arm, Summary};

use super::Page;
use super::arms::{in_parts, median, names, quantiles};
use super::table::{Align, Column};
use crate::number::{self, ABSENT};
use crate::{figures, requests, rounds};

/// One table where the width allows it, else as many as it takes.
pub(super) fn write(page: &mut Page, summary: &Summary) {
    in_parts(page, &names(summary), parts(summary));
}

/// Columns that stay together, in the order of what is asked first.
fn parts(summary: &Summary) -> Vec<Vec<Column>> {
    // What stands in the table of rounds, with its interval, is not said again.
    let in_rounds = summary.rounds.is_some() && rounds::metric(summary) == Some(requests::RATE);
    let rate = if in_rounds { Vec::new() } else { achieved(summary) };
    let ok = summary.arms.iter().map(figures::ok_of_attempts).collect();
    vec![
        rate,
        quantiles(summary, "latency_us", "latency", &["p50", "p99", "max"]),
        whole(median(summary, "connect_us", "connect"), "connect"),
        whole(median(summary, "tls_us", "TLS"), "TLS"),
        whole(median(summary, "first_byte_us", "first byte"), "first byte"),
        vec![Column::new("ok", Align::Right, ok)],
        cpu(summary),
        vec![of_metric(summary, requests::PER_CONNECTION, "/conn").under("requests")],
        closing(summary),
        memory(summary),
    ]
}

/// Memory of an open connection: the kernel's and the client's own.
fn memory(summary: &Summary) -> Vec<Column> {
    let column = |metric: &str, head: &str| {
        let kib = |arm: &Arm| requests::metric(arm, metric).map(|bytes| bytes / 1_024.0);
        of(summary, head, kib).under("KiB/conn")
    };
    vec![column(requests::KERNEL_MEMORY, "kernel"), column(requests::CLIENT_MEMORY, "client")]
}

/// The heading over the unit too: there are many columns.
fn whole(columns: Vec<Column>, group: &'static str) -> Vec<Column> {
    columns.into_iter().map(|column| column.under(group)).collect()
}

/// Requests per second; of an open loop beside what was intended.
fn achieved(summary: &Summary) -> Vec<Column> {
    let intended = of_metric(summary, requests::INTENDED, "intended");
    let open_loop = intended.cells.iter().any(|cell| cell != ABSENT);
    if open_loop {
        let achieved = rates(summary, requests::ACHIEVED, "achieved");
        vec![intended.under("requests/s"), achieved.under("requests/s")]
    } else {
        vec![rates(summary, requests::RATE, "requests/s")]
    }
}

/// A rate with its resolution, where that is much.
fn rates(summary: &Summary, key: &str, head: &str) -> Column {
    let cell = |arm: &Arm| figures::rate(arm, key).unwrap_or_else(|| ABSENT.to_owned());
    Column::new(head, Align::Point, summary.arms.iter().map(cell).collect())
}

fn of_metric(summary: &Summary, metric: &str, head: &str) -> Column {
    of(summary, head, |arm| requests::metric(arm, metric))
}

fn of(summary: &Summary, head: &str, value: impl Fn(&Arm) -> Option<f64>) -> Column {
    let cell = |arm: &Arm| value(arm).map_or_else(|| ABSENT.to_owned(), number::three);
    Column::new(head, Align::Point, summary.arms.iter().map(cell).collect())
}

/// CPU per request of both sides.
fn cpu(summary: &Summary) -> Vec<Column> {
    vec![
        of(summary, "client", |arm| arm.client.cpu_us_per_op).under("CPU µs/req"),
        of(summary, "server", |arm| arm.server.as_ref()?.cpu_us_per_op).under("CPU µs/req"),
    ]
}

/// Who closed, and whose TIME-WAIT that left.
fn closing(summary: &Summary) -> Vec<Column> {
    let cells = |of: &dyn Fn(&Arm) -> String| summary.arms.iter().map(of).collect::<Vec<_>>();
    let closer = |arm: &Arm| requests::closer(arm).unwrap_or_else(|| ABSENT.to_owned());
    let waiting =
        |side: usize| move |arm: &Arm| requests::count_or_absent(requests::time_wait(arm)[side]);
    vec![
        Column::new("first", Align::Left, cells(&closer)).under("closed"),
        Column::new("client", Align::Right, cells(&waiting(0))).under("TIME-WAIT"),
        Column::new("server", Align::Right, cells(&waiting(1))).under("TIME-WAIT"),
    ]
}
