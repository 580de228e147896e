//! Which figures stand in columns? Each with its headings on a terminal and on a page, its name and
//! unit in a tidy table, and how it is found.

use tcptoll_model::record::Arm;

use super::{
    MACHINE, PACKETS, RATE, counted, deaths, detection_s, due_s, expected_wrongly, figure,
    mechanism, of, settings, traffic,
};
use crate::number::{self, ABSENT};
use crate::requests;

/// How long an arriving connection waited for room.
const ARRIVAL: &str = "arrival_us";

/// How a column finds and writes its figure.
#[derive(Clone, Copy, Debug)]
enum Figure {
    /// The metric that the column is named after, in the record's unit.
    Metric,
    /// A figure in the record's unit, and the factor to the reader's.
    Number(fn(&Arm) -> Option<f64>, f64),
    /// A whole number.
    Count(fn(&Arm) -> Option<u64>),
    /// Words.
    Words(fn(&Arm) -> Option<String>),
}

/// A column of a table, a row per arm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    /// Heading over neighbours, on a terminal; may be empty.
    pub(crate) group: &'static str,
    /// Heading below that.
    pub(crate) head: &'static str,
    /// The whole heading, where a column stands alone.
    pub(crate) whole: &'static str,
    /// Name in a tidy table: that of the metric where there is one.
    pub(crate) key: &'static str,
    /// Unit in a tidy table.
    pub(crate) unit: &'static str,
    figure: Figure,
}

impl Column {
    const fn new(
        (group, head): (&'static str, &'static str),
        whole: &'static str,
        (key, unit): (&'static str, &'static str),
        figure: Figure,
    ) -> Self {
        Self { group, head, whole, key, unit, figure }
    }

    /// As the reader sees it, without its unit.
    pub(crate) fn text(&self, arm: &Arm) -> String {
        let text = match self.figure {
            Figure::Metric => requests::metric(arm, self.key).map(figure),
            Figure::Number(of, factor) => of(arm).map(|value| figure(value * factor)),
            Figure::Count(of) => of(arm).map(number::count),
            Figure::Words(of) => of(arm),
        };
        text.unwrap_or_else(|| ABSENT.to_owned())
    }

    /// In the record's unit; `None` where absent, and of words.
    pub(crate) fn value(&self, arm: &Arm) -> Option<f64> {
        match self.figure {
            Figure::Metric => requests::metric(arm, self.key),
            Figure::Number(of, _) => of(arm).filter(|value| value.is_finite()),
            Figure::Count(of) => of(arm).map(|n| n as f64),
            Figure::Words(_) => None,
        }
    }

    /// Whether its cells are words, which stand to the left.
    pub(crate) fn is_words(&self) -> bool {
        matches!(self.figure, Figure::Words(_))
    }

    /// Whether decimal points are to stand in one line.
    pub(crate) fn is_number(&self) -> bool {
        matches!(self.figure, Figure::Metric | Figure::Number(..))
    }
}

/// What the load was, what checking sent, and what share of the link that is: parts that stay
/// together, in the order of what is asked first.
pub(crate) fn traffic_columns() -> Vec<Vec<Column>> {
    use Figure::{Count, Metric, Number};
    let window = "on idle sockets in the window";
    vec![
        vec![Column::new(("", "messages/s"), "messages/s", (RATE, "1/s"), Metric)],
        vec![Column::new(
            ("", "Mbit/s"),
            "goodput, Mbit/s",
            ("goodput_bytes_per_s", "bytes/s"),
            Number(|arm| requests::metric(arm, "goodput_bytes_per_s"), 8e-6),
        )],
        vec![Column::new(
            ("idle", "sockets"),
            "idle sockets",
            ("idle_sockets", ""),
            Count(|arm| of(arm).map(|keepalive| keepalive.idle_sockets)),
        )],
        vec![
            Column::new(
                (window, "probes"),
                "keep-alive probes",
                ("keepalive_probes", ""),
                Count(|arm| Some(of(arm)?.probes?.packets)),
            ),
            Column::new(
                (window, "answers"),
                "answers to probes",
                ("keepalive_answers", ""),
                Count(|arm| Some(of(arm)?.probe_answers?.packets)),
            ),
            Column::new(
                (window, "messages"),
                "messages on idle sockets",
                ("heartbeats", ""),
                Count(|arm| Some(of(arm)?.heartbeats?.packets)),
            ),
            Column::new(
                (window, "acks"),
                "acknowledgments of messages",
                ("heartbeat_acks", ""),
                Count(|arm| Some(of(arm)?.heartbeat_acks?.packets)),
            ),
            Column::new(
                (window, "KiB"),
                "KiB in all",
                ("checking_bytes", "bytes"),
                Number(|arm| traffic(of(arm)?).map(|t| t.bytes as f64), 1.0 / 1_024.0),
            ),
        ],
        vec![
            Column::new(
                ("packets/h·socket", "measured"),
                "packets/h per socket",
                (PACKETS, "1/h"),
                Metric,
            ),
            Column::new(
                ("packets/h·socket", "computed"),
                "computed packets/h",
                ("computed_packets_per_hour_per_socket", "1/h"),
                Number(|arm| of(arm)?.computed_packets_per_hour(), 1.0),
            ),
        ],
        vec![
            Column::new(
                ("bytes/h·socket", "measured"),
                "bytes/h per socket",
                ("checking_bytes_per_hour_per_socket", "bytes/h"),
                Metric,
            ),
            Column::new(
                ("bytes/h·socket", "computed"),
                "computed bytes/h",
                ("computed_bytes_per_hour_per_socket", "bytes/h"),
                Number(|arm| of(arm)?.computed_bytes_per_hour(), 1.0),
            ),
        ],
        vec![Column::new(
            ("share of", "link, %"),
            "share of the link, %",
            ("checking_link_share", "1"),
            Number(|arm| of(arm)?.link_share, 100.0),
        )],
    ]
}

/// Bytes of each kind and whatever else a wide page has room for.
pub(crate) fn more_traffic() -> Vec<Column> {
    use Figure::{Count, Words};
    let bytes = |whole, key, of| Column::new(("", whole), whole, (key, "bytes"), Count(of));
    let count = |whole, key, of| Column::new(("", whole), whole, (key, ""), Count(of));
    vec![
        bytes("bytes of probes", "keepalive_probe_bytes", |arm| Some(of(arm)?.probes?.bytes)),
        bytes("bytes of answers", "keepalive_answer_bytes", |arm| {
            Some(of(arm)?.probe_answers?.bytes)
        }),
        bytes("bytes of messages", "heartbeat_bytes", |arm| Some(of(arm)?.heartbeats?.bytes)),
        bytes("bytes of acknowledgments", "heartbeat_ack_bytes", |arm| {
            Some(of(arm)?.heartbeat_acks?.bytes)
        }),
        count("messages sent again", "heartbeat_retransmissions", |arm| {
            of(arm)?.heartbeats?;
            of(arm).map(|keepalive| keepalive.heartbeat_retransmissions)
        }),
        count("messages, as the program says", "nulls_sent", |arm| {
            of(arm).map(|keepalive| keepalive.nulls_sent).filter(|n| *n > 0)
        }),
        count("wake-ups of timers", "timer_wakeups", |arm| {
            of(arm).map(|keepalive| keepalive.wakeups).filter(|n| *n > 0)
        }),
        Column::new(
            ("", "checking"),
            "checking",
            ("checking", ""),
            Words(|arm| Some(settings(of(arm)?))),
        ),
    ]
}

/// CPU and memory, parts that stay together.
pub(crate) fn cost_columns() -> Vec<Vec<Column>> {
    use Figure::{Metric, Number};
    const FLEET: &str = "CPU µs/s per 1,000 sockets";
    const MESSAGE: &str = "CPU µs/message";
    const MEMORY: &str = "memory, bytes/socket";
    vec![
        vec![
            Column::new(
                (FLEET, "machine"),
                "machine CPU, µs/s per 1,000 sockets",
                (MACHINE, "us/s"),
                Metric,
            ),
            Column::new(
                (FLEET, "client"),
                "client CPU, µs/s per 1,000 sockets",
                ("client_fleet_cpu_us_per_s_per_1000_sockets", "us/s"),
                Metric,
            ),
            Column::new(
                (FLEET, "server"),
                "server CPU, µs/s per 1,000 sockets",
                ("server_fleet_cpu_us_per_s_per_1000_sockets", "us/s"),
                Metric,
            ),
        ],
        vec![
            Column::new(
                (MESSAGE, "client"),
                "client CPU, µs/message",
                ("client_cpu_us_per_op", "us"),
                Number(
                    |a| requests::metric(a, "client_cpu_us_per_op").or(a.client.cpu_us_per_op),
                    1.0,
                ),
            ),
            Column::new(
                (MESSAGE, "server"),
                "server CPU, µs/message",
                ("server_cpu_us_per_op", "us"),
                Number(
                    |a| {
                        let host = a.server.as_ref().and_then(|host| host.cpu_us_per_op);
                        requests::metric(a, "server_cpu_us_per_op").or(host)
                    },
                    1.0,
                ),
            ),
        ],
        vec![
            Column::new(
                (MEMORY, "client"),
                "client memory, bytes/socket",
                ("client_bytes_per_socket", "bytes"),
                Metric,
            ),
            Column::new(
                (MEMORY, "its kernel"),
                "client's kernel, bytes/socket",
                ("client_kernel_bytes_per_socket", "bytes"),
                Metric,
            ),
            Column::new(
                (MEMORY, "server's"),
                "server's kernel, bytes/socket",
                ("server_kernel_bytes_per_socket", "bytes"),
                Metric,
            ),
        ],
    ]
}

/// Of what died: how many, when that was known, what that took.
pub(crate) fn death_columns() -> Vec<Vec<Column>> {
    use Figure::{Count, Number, Words};
    const AFTER: &str = "known after, s";
    const DUE: &str = "due after, s";
    const WRONG: &str = "wrongly closed";
    const SPENT: &str = "spent on it";
    vec![
        vec![
            Column::new(
                ("", "fault"),
                "fault",
                ("fault", ""),
                Words(|arm| Some(deaths(arm)?.fault.clone())),
            ),
            Column::new(
                ("", "dead"),
                "dead",
                ("dead", ""),
                Count(|arm| deaths(arm).map(|d| d.dead)),
            ),
            Column::new(
                ("", "known"),
                "known",
                ("dead_known", ""),
                Count(|arm| deaths(arm).map(|d| d.known)),
            ),
        ],
        vec![
            Column::new(
                (AFTER, "min"),
                "known after, s: min",
                ("known_after_s_min", "s"),
                Number(|arm| detection_s(arm)[0], 1.0),
            ),
            Column::new(
                (AFTER, "median"),
                "known after, s: median",
                ("known_after_s_median", "s"),
                Number(|arm| detection_s(arm)[1], 1.0),
            ),
            Column::new(
                (AFTER, "max"),
                "known after, s: max",
                ("known_after_s_max", "s"),
                Number(|arm| detection_s(arm)[2], 1.0),
            ),
        ],
        vec![
            Column::new(
                (DUE, "bound"),
                "computed bound, s",
                ("bound_s", "s"),
                Number(|arm| deaths(arm)?.bound_s, 1.0),
            ),
            Column::new(
                (DUE, "+ timers"),
                "timers late by, s",
                ("granularity_s", "s"),
                Number(|arm| deaths(arm)?.granularity_s, 1.0),
            ),
            Column::new(
                ("", "late"),
                "late",
                ("known_late", ""),
                // Without a bound nothing can be late.
                Count(|arm| deaths(arm).filter(|d| d.bound_s.is_some()).map(|d| d.late)),
            ),
        ],
        vec![
            Column::new(
                ("", "alive"),
                "alive",
                ("alive", ""),
                Count(|arm| deaths(arm).map(|d| d.alive)),
            ),
            Column::new(
                (WRONG, "closed"),
                "wrongly closed",
                ("wrongly_closed", ""),
                Count(|arm| deaths(arm).map(|d| d.wrongly_closed)),
            ),
            Column::new(
                (WRONG, "expected"),
                "wrongly closed: expected [99 of 100 runs]",
                ("wrongly_closed_expected", ""),
                Words(expected_wrongly),
            ),
        ],
        vec![
            Column::new(
                (SPENT, "packets"),
                "packets spent",
                ("stricken_packets", ""),
                Count(|arm| Some(deaths(arm)?.traffic?.packets)),
            ),
            Column::new(
                (SPENT, "/conn"),
                "packets per stricken connection",
                ("packets_per_stricken", ""),
                Number(
                    |arm| {
                        let deaths = deaths(arm)?;
                        let spent = deaths.traffic?.packets as f64;
                        (deaths.stricken > 0).then(|| spent / deaths.stricken as f64)
                    },
                    1.0,
                ),
            ),
            Column::new(
                (SPENT, "KiB"),
                "KiB spent",
                ("stricken_bytes", "bytes"),
                Number(|arm| Some(deaths(arm)?.traffic?.bytes as f64), 1.0 / 1_024.0),
            ),
        ],
        vec![
            Column::new(
                ("arrivals", "without room"),
                "arrivals that found no room",
                ("arrivals_without_room", ""),
                Count(|arm| deaths(arm).map(|d| d.arrivals).filter(|n| *n > 0)),
            ),
            Column::new(
                ("arrivals", "waited, s"),
                "arrivals waited at most, s",
                ("arrival_s_max", "s"),
                Number(|arm| arm.histograms.get(ARRIVAL)?.max, 1e-6),
            ),
        ],
    ]
}

/// By what deaths were known; on a terminal that is said in words.
pub(crate) fn more_deaths() -> Vec<Column> {
    use Figure::{Count, Words};
    vec![
        Column::new(
            ("", "stricken"),
            "stricken",
            ("stricken", ""),
            Count(|arm| deaths(arm).map(|d| d.stricken)),
        ),
        Column::new(
            ("", "known by"),
            "known by",
            ("known_by", ""),
            Words(|arm| counted(&deaths(arm)?.known_by)),
        ),
        Column::new(
            ("", "read said"),
            "read(2) gave",
            ("read_said", ""),
            Words(|arm| counted(&deaths(arm)?.read_said)),
        ),
    ]
}

/// What a death that is known sooner costs: time against packets, measured beside computed.
pub(crate) fn trade_columns() -> Vec<Column> {
    use Figure::{Metric, Number, Words};
    const AFTER: &str = "known after, s";
    const HOURLY: &str = "packets/h·socket";
    vec![
        Column::new(
            ("", "mechanism"),
            "mechanism",
            ("mechanism", ""),
            Words(|arm| mechanism(arm).map(|mechanism| mechanism.name().to_owned())),
        ),
        Column::new((HOURLY, "measured"), "packets/h per socket", (PACKETS, "1/h"), Metric),
        Column::new(
            (HOURLY, "computed"),
            "computed packets/h",
            ("computed_packets_per_hour_per_socket", "1/h"),
            Number(|arm| of(arm)?.computed_packets_per_hour(), 1.0),
        ),
        Column::new(
            (AFTER, "median"),
            "known after, s: median",
            ("known_after_s_median", "s"),
            Number(|arm| detection_s(arm)[1], 1.0),
        ),
        Column::new(
            (AFTER, "max"),
            "known after, s: max",
            ("known_after_s_max", "s"),
            Number(|arm| detection_s(arm)[2], 1.0),
        ),
        Column::new(
            (AFTER, "computed"),
            "computed: known after at most, s",
            ("due_s", "s"),
            Number(due_s, 1.0),
        ),
    ]
}
