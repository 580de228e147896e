//! Which figures stand in the tables of `http`.

use super::{ACHIEVED, CLIENT_MEMORY, INTENDED, KERNEL_MEMORY, PER_CONNECTION, RATE, TLS};
use tcptoll_core::experiment::column::{
    Column, Figure, Form, Quantile, Show, Table, metric_of, value,
};
use tcptoll_core::experiment::columns::{
    CONN_RATE, CONNECT_P50, ECHO_P50, ERRORS, FIRST_BYTE_P50, OK, QUEUE_PEAK, any_has,
    client_cpu_column, every, server_cpu_column, tidy,
};
use tcptoll_core::experiment::figures::GOODPUT;
use tcptoll_core::experiment::figures::{
    CLIENT_FIN_WAIT_2, CLIENT_SEGMENTS, CLIENT_TIME_WAIT, CONNECT, LATENCY, SERVER_FIN_WAIT_2,
    SERVER_SEGMENTS, SERVER_TIME_WAIT,
};
use tcptoll_core::experiment::spec::MetricSpec;
use tcptoll_core::record::{Arm, Summary};

use Figure::{Count, Estimate, Number, Words};
use Quantile::{Max, P50, P90, P99, P999};

fn open_loop(summary: &Summary) -> bool {
    any_has(summary, INTENDED.name)
}

fn closed_loop(summary: &Summary) -> bool {
    !open_loop(summary)
}

/// Whether the table of rounds has the rate, with its interval.
fn rate_in_rounds(summary: &Summary) -> bool {
    summary.rounds.is_some() && metric_of(summary) == Some(RATE.name)
}

fn rate_is_new(summary: &Summary) -> bool {
    !rate_in_rounds(summary)
}

/// Who closed first: `client`, `server`, `both`, or the share of the one that did most often.
fn closer(arm: &Arm) -> Option<String> {
    let closing = arm.closing.as_ref()?;
    let all = closing.closed();
    if all == 0 {
        return None;
    }
    let classes = [
        ("both", closing.both.unwrap_or(0)),
        ("client", closing.by_client),
        ("server", closing.by_server),
    ];
    let (who, most) = classes.into_iter().max_by_key(|(_, count)| *count)?;
    let share = most as f64 / all as f64;
    // What rounds to all of them is all but a few; the exact counts stand in the record.
    if share >= 0.995 {
        return Some(who.to_owned());
    }
    Some(format!("{who} {:.0} %", share * 100.0))
}

/// The share that the client closed first.
fn closed_by_client(arm: &Arm) -> Option<f64> {
    closer(arm)?;
    let closing = arm.closing.as_ref()?;
    Some(closing.by_client as f64 / closing.closed().max(1) as f64)
}

/// TIME-WAIT left on the client host and on the server host: of several rounds the mean.
pub(super) fn time_wait(arm: &Arm) -> [Option<u64>; 2] {
    [CLIENT_TIME_WAIT, SERVER_TIME_WAIT]
        .map(|metric| value(arm, metric.name).map(|sockets| sockets.round() as u64))
}

const fn latency(quantile: Quantile) -> Column {
    Column::quantile(("latency", quantile.name()), quantile.name(), LATENCY.name, quantile)
}

const fn memory(head: &'static str, whole: &'static str, metric: &'static MetricSpec) -> Column {
    Column::new(("KiB/conn", head), whole, tidy(metric), Estimate("bytes"))
}

const REQUESTS_RATE: Column =
    Column::new(("", "requests/s"), "requests/s", tidy(&RATE), Figure::Rate);
const INTENDED_RATE: Column =
    Column::new(("requests/s", "intended"), "intended/s", tidy(&INTENDED), Estimate(""));
const ACHIEVED_RATE: Column =
    Column::new(("requests/s", "achieved"), "achieved/s", tidy(&ACHIEVED), Figure::Rate);
const CONTENT_RATE: Column =
    Column::new(("", "content"), "content", tidy(&GOODPUT), Estimate("bytes/s"));
const TLS_P50: Column = Column::quantile(("TLS", "p50"), "TLS p50", TLS.name, P50);
const REQUESTS: Column = Column::new(
    ("requests", "/conn"),
    "requests per connection",
    tidy(&PER_CONNECTION),
    Estimate(""),
);
const CLOSED_FIRST: Column =
    Column::new(("closed", "first"), "closed first", ("", ""), Words(closer))
        .sorted_by(closed_by_client);
const CLIENT_WAITS: Column = Column::new(
    ("TIME-WAIT", "client"),
    "client TIME-WAIT",
    tidy(&CLIENT_TIME_WAIT),
    Count(|arm| time_wait(arm)[0]),
);
const SERVER_WAITS: Column = Column::new(
    ("TIME-WAIT", "server"),
    "server TIME-WAIT",
    tidy(&SERVER_TIME_WAIT),
    Count(|arm| time_wait(arm)[1]),
);
const fn half_closed(head: &'static str, metric: &'static MetricSpec) -> Column {
    Column::new(("FIN-WAIT-2", head), metric.words, tidy(metric), Estimate(""))
}
const CLIENT_HALF_CLOSED: Column = half_closed("client", &CLIENT_FIN_WAIT_2);
const SERVER_HALF_CLOSED: Column = half_closed("server", &SERVER_FIN_WAIT_2);
const CLIENT_SENT: Column =
    Column::whole("client segments/req", tidy(&CLIENT_SEGMENTS), Estimate(""));
const SERVER_SENT: Column =
    Column::whole("server segments/req", tidy(&SERVER_SEGMENTS), Estimate(""));
const KERNEL_MEM: Column = memory("kernel", "kernel memory/conn", &KERNEL_MEMORY);
const CLIENT_MEM: Column = memory("client", "client memory/conn", &CLIENT_MEMORY);
const KIB: f64 = 1.0 / 1_024.0;
const CPU: &str = "CPU µs/req";
const CLIENT_CPU: Column = client_cpu_column(CPU, "client CPU µs/req");
const SERVER_CPU: Column = server_cpu_column(CPU, "server CPU µs/req");

/// The tables, in the order of every report.
pub(super) const TABLES: &[Table] = &[
    Table {
        id: "figures",
        title: "",
        forms: &[Form::Text],
        has: every,
        parts: &[
            &[
                INTENDED_RATE.when(rate_is_new),
                ACHIEVED_RATE.when(rate_is_new),
                REQUESTS_RATE.when(closed_loop),
            ],
            &[
                latency(P50),
                latency(P90).shown(Show::Room),
                latency(P99),
                latency(P999).shown(Show::Room),
                latency(Max),
            ],
            &[CONNECT_P50.over_unit()],
            &[TLS_P50.over_unit()],
            &[FIRST_BYTE_P50.over_unit()],
            &[OK],
            &[CLIENT_CPU, SERVER_CPU],
            &[CONTENT_RATE.shown(Show::Room)],
            &[REQUESTS],
            &[CLOSED_FIRST, CLIENT_WAITS, SERVER_WAITS, CLIENT_HALF_CLOSED, SERVER_HALF_CLOSED],
            &[
                Column { figure: Number(|arm| value(arm, KERNEL_MEMORY.name), KIB), ..KERNEL_MEM },
                Column { figure: Number(|arm| value(arm, CLIENT_MEMORY.name), KIB), ..CLIENT_MEM },
            ],
        ],
    },
    Table {
        id: "figures",
        title: "",
        forms: &[Form::Page],
        has: every,
        parts: &[&[
            INTENDED_RATE,
            REQUESTS_RATE,
            Column::answer(P50),
            Column::answer(P90),
            Column::answer(P99),
            Column::answer(P999),
            Column::answer(Max),
            CONTENT_RATE,
            FIRST_BYTE_P50,
            ECHO_P50,
            CONN_RATE,
            CLIENT_CPU.called("client CPU µs"),
            SERVER_CPU.called("server CPU µs"),
            QUEUE_PEAK,
            OK,
            ERRORS,
        ]],
    },
    Table {
        id: "connections",
        title: "Connections of these requests",
        forms: &[Form::Page],
        has: every,
        parts: &[&[
            Column::whole("connections", ("", ""), Count(|arm| arm.connections_ok)),
            REQUESTS,
            CONNECT_P50,
            Column::quantile((CONNECT_P50.group, "p99"), "connect p99", CONNECT.name, P99),
            TLS_P50,
            Column::quantile(("TLS", "p99"), "TLS p99", TLS.name, P99),
            CLOSED_FIRST,
            CLIENT_SENT,
            SERVER_SENT,
            CLIENT_WAITS,
            SERVER_WAITS,
            CLIENT_HALF_CLOSED,
            SERVER_HALF_CLOSED,
            KERNEL_MEM.called("kernel memory"),
            CLIENT_MEM.called("client memory"),
        ]],
    },
    Table {
        id: "connections",
        title: "",
        forms: &[Form::Markdown],
        has: every,
        parts: &[&[
            INTENDED_RATE,
            // Pages have its resolution.
            Column { figure: Estimate(""), ..REQUESTS_RATE },
            CONNECT_P50,
            TLS_P50,
            FIRST_BYTE_P50,
            CLIENT_CPU,
            SERVER_CPU,
            REQUESTS,
            CLOSED_FIRST,
            CLIENT_WAITS,
            SERVER_WAITS,
            CLIENT_HALF_CLOSED,
            SERVER_HALF_CLOSED,
            CLIENT_SENT,
            SERVER_SENT,
            KERNEL_MEM,
            CLIENT_MEM,
        ]],
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use tcptoll_core::record::Closing;

    fn arm(by_client: u64, by_server: u64, both: Option<u64>) -> Arm {
        let closing = Closing { by_client, by_server, both, ..Closing::default() };
        Arm { closing: Some(closing), ..Arm::default() }
    }

    #[test]
    fn the_closer_is_named_and_a_share_is_said_where_both_closed() {
        let closer = |by_client, by_server, both| closer(&arm(by_client, by_server, both));
        assert_eq!(closer(1_000, 0, None).as_deref(), Some("client"));
        assert_eq!(closer(3, 997, None).as_deref(), Some("server"));
        assert_eq!(closer(400, 600, None).as_deref(), Some("server 60 %"));
        assert_eq!(closer(0, 0, None), None);
        assert_eq!(closer(0, 0, Some(7)).as_deref(), Some("both"));
        assert_eq!(closer(10, 20, Some(70)).as_deref(), Some("both 70 %"));
        assert_eq!(closer(60, 20, Some(20)).as_deref(), Some("client 60 %"));
    }
}
