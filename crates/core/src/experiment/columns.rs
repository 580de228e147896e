//! Columns that several experiments have, and what any arm may have counted.

use super::column::{Column, Figure, Quantile, Table, value};
use super::figures::{
    ACCEPT_QUEUE_PEAK, CLIENT_CPU, CONNECT, CONNECT_MEAN, CONNECT_OF_FAILED, CONNECTIONS_RATE,
    DROPS, FAILED_SHARE, FAILURE, FIRST_BYTE, FIRST_BYTE_MEAN, RTT, SERVER_CPU, WAITED,
};
use super::spec::MetricSpec;
use crate::number;
use crate::record::{Arm, Closing, Summary};
use crate::sheet::Room;
use crate::tcp::ports::PortForecast;

use Figure::{Count, Estimate, Number, Rate, Share, Words};

/// Name and unit of a metric, for a tidy table.
pub const fn tidy(metric: &MetricSpec) -> (&'static str, &'static str) {
    (metric.name, metric.unit)
}

/// How many operations succeeded, of how many: `all 30,000`, `18 of 500`, `none of 500`.
pub fn ok_of_attempts(arm: &Arm) -> String {
    match (arm.ok, arm.attempts) {
        (0, 0) => "no attempts".to_owned(),
        (0, tried) => format!("none of {}", number::count(tried)),
        (ok, tried) if ok == tried => format!("all {}", number::count(ok)),
        (ok, tried) => format!("{} of {}", number::count(ok), number::count(tried)),
    }
}

/// Errors by class, the most frequent first: `timeout 482 · connect-refused 3`; `None` without any.
pub fn errors(arm: &Arm) -> Option<String> {
    let mut classes: Vec<(&String, &u64)> = arm.errors.iter().filter(|(_, n)| **n > 0).collect();
    classes.sort_by(|a, b| b.1.cmp(a.1));
    let words: Vec<String> =
        classes.iter().map(|(class, n)| format!("{class} {}", number::count(**n))).collect();
    (!words.is_empty()).then(|| words.join(" · "))
}

/// The table of figures, which needs no title.
pub const FIGURES: &str = "figures";

/// Every arm has a row.
pub fn every(_: &Arm) -> bool {
    true
}

/// The figures of an experiment: every arm has a row in them.
pub const fn figures(parts: &'static [&'static [Column]]) -> Table {
    Table { id: FIGURES, title: "", has: every, room: Room::Always, parts }
}

fn share_ok(arm: &Arm) -> Option<f64> {
    (arm.attempts > 0).then(|| arm.ok as f64 / arm.attempts as f64)
}

fn any_failed(summary: &Summary) -> bool {
    summary.arms.iter().any(|arm| !arm.errors.is_empty() || arm.failure.is_some())
}

/// Operations that succeeded.
pub const OK: Column =
    Column::new(("", "ok"), "ok", ("", ""), Words(|arm| Some(ok_of_attempts(arm))))
        .shown(Room::Always)
        .flush_right()
        .sorted_by(share_ok);
/// Errors by class, or why there is no result.
pub const ERRORS: Column = Column::whole(
    "errors",
    ("", ""),
    Words(|arm| Some(arm.failure.clone().or_else(|| errors(arm)).unwrap_or_else(|| "0".into()))),
)
.when(any_failed)
.sorted_by(|arm| Some(arm.errors.values().sum::<u64>() as f64));

/// Median of connect latency.
pub const CONNECT_P50: Column =
    Column::quantile(("connect", "p50"), "connect p50", CONNECT.name, Quantile::P50);
/// Median time to the first byte.
pub const FIRST_BYTE_P50: Column =
    Column::quantile(("first byte", "p50"), "first byte p50", FIRST_BYTE.name, Quantile::P50);
/// Median of the ICMP echoes.
pub const ECHO_P50: Column =
    Column::quantile(("ICMP echo", "p50"), "ICMP echo p50", RTT.name, Quantile::P50);
/// Connections opened per second.
pub const CONN_RATE: Column =
    Column::new(("", "conn/s"), "conn/s", tidy(&CONNECTIONS_RATE), Rate).flush_right();
/// The longest accept queue.
pub const QUEUE_PEAK: Column =
    Column::whole("accept queue peak", tidy(&ACCEPT_QUEUE_PEAK), Estimate(""));

/// CPU of the client for each operation, µs.
pub fn client_cpu(arm: &Arm) -> Option<f64> {
    value(arm, CLIENT_CPU.name).or(arm.client.cpu_us_per_op)
}

/// CPU of the server for each operation, µs.
pub fn server_cpu(arm: &Arm) -> Option<f64> {
    value(arm, SERVER_CPU.name).or(arm.server.as_ref()?.cpu_us_per_op)
}

/// CPU of the client for each operation, under a heading with the noun.
pub const fn client_cpu_column(group: &'static str, whole: &'static str) -> Column {
    Column::new((group, "client"), whole, tidy(&CLIENT_CPU), Number(client_cpu, 1.0))
}

/// CPU of the server for each operation, under a heading with the noun.
pub const fn server_cpu_column(group: &'static str, whole: &'static str) -> Column {
    Column::new((group, "server"), whole, tidy(&SERVER_CPU), Number(server_cpu, 1.0))
}

/// Whether a record has figures of this metric, per arm.
pub fn any_has(summary: &Summary, metric: &str) -> bool {
    summary.arms.iter().any(|arm| value(arm, metric).is_some())
}

const fn count(key: &'static str, value: fn(&Arm) -> Option<u64>) -> Column {
    Column::whole(key, (key, ""), Count(value))
}

fn of_closing(arm: &Arm, value: fn(&Closing) -> u64) -> Option<u64> {
    arm.closing.as_ref().map(value)
}

fn of_ports(arm: &Arm, value: fn(&PortForecast) -> u64) -> Option<u64> {
    arm.ports.as_ref().map(value)
}

/// What any arm may have counted besides its metrics: connections, who closed them, how many ports
/// there were; what answered and waited, in words.
pub const COUNTED: Table = Table {
    id: "counted",
    title: "",
    has: every,
    room: Room::File,
    parts: &[&[
        count("connections_attempted", |arm| arm.connections_attempted),
        count("connections_ok", |arm| arm.connections_ok),
        count("closed_by_client", |arm| of_closing(arm, |closing| closing.by_client)),
        count("closed_by_server", |arm| of_closing(arm, |closing| closing.by_server)),
        count("closed_by_both", |arm| arm.closing.as_ref()?.both),
        count("closed_while_idle", |arm| of_closing(arm, |closing| closing.while_idle)),
        count("close_ignored", |arm| of_closing(arm, |closing| closing.ignored)),
        count("open_at_end", |arm| of_closing(arm, |closing| closing.open_at_end)),
        count("ports_usable", |arm| of_ports(arm, |ports| ports.usable)),
        count("ports_at_once", |arm| of_ports(arm, |ports| ports.at_once)),
        Column::whole(
            "ports_sustained_per_s",
            ("ports_sustained_per_s", "1/s"),
            Number(|arm| arm.ports.as_ref()?.sustained_per_s, 1.0),
        ),
        count("server_processes", |arm| arm.server.as_ref()?.processes),
        Column::whole(
            "server_memory_bytes",
            ("server_memory_bytes", "bytes"),
            Count(|arm| arm.server.as_ref()?.memory_bytes),
        ),
        Column::whole(
            "server_version",
            ("server_version", ""),
            Words(|arm| arm.server.as_ref()?.version.clone()),
        ),
        Column::whole("io", ("io", ""), Words(|arm| arm.io.clone())),
    ]],
};

/// A share above 0.
fn share_of(arm: &Arm, metric: &str) -> Option<f64> {
    value(arm, metric).filter(|share| *share > 0.0)
}

/// Share of the handshakes that waited for a retransmitted SYN, where any did.
pub fn waited(arm: &Arm) -> Option<f64> {
    share_of(arm, WAITED.name)
}

/// Whether handshakes of any arm waited for a retransmitted SYN.
pub fn any_waited(summary: &Summary) -> bool {
    summary.arms.iter().any(|arm| waited(arm).is_some())
}

/// Connections that waited for a retransmitted SYN, where any did.
pub const WAITED_SHARE: Column =
    Column::new(("", "waited"), "waited for a retransmitted SYN", tidy(&WAITED), Share(waited));
/// Median time to the failure, where any failed.
pub const FAILED_AFTER: Column =
    Column::quantile(("failed", "after"), "time to failure p50", FAILURE.name, Quantile::P50);
/// Share of the connections that failed.
pub const FAILED_OF_CONNECTIONS: Column =
    Column::whole("failed", tidy(&FAILED_SHARE), Share(|arm| share_of(arm, FAILED_SHARE.name)));
/// Mean of connect latency.
pub const CONNECT_MEAN_COLUMN: Column =
    Column::whole("connect mean", tidy(&CONNECT_MEAN), Estimate(CONNECT_MEAN.unit));
/// Mean time to the first byte.
pub const FIRST_BYTE_MEAN_COLUMN: Column =
    Column::whole("first byte mean", tidy(&FIRST_BYTE_MEAN), Estimate(FIRST_BYTE_MEAN.unit));
/// Median of connect latency, of connections that failed after their handshake.
pub const CONNECT_OF_FAILED_P50: Column = Column::quantile(
    ("", "connect p50 of failed"),
    "connect p50 of failed",
    CONNECT_OF_FAILED.name,
    Quantile::P50,
);
/// Packets dropped for each connection.
pub const DROPS_EACH: Column = Column::whole("drops per connection", tidy(&DROPS), Estimate(""));
/// CPU of the client for each connection.
pub const CLIENT_CPU_EACH: Column =
    Column::whole("client CPU µs/conn", tidy(&CLIENT_CPU), Number(client_cpu, 1.0));
/// CPU of the server for each connection.
pub const SERVER_CPU_EACH: Column =
    Column::whole("server CPU µs/conn", tidy(&SERVER_CPU), Number(server_cpu, 1.0));
