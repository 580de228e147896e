//! Which figures stand in the tables of `http`, and what it shows of its own: who closed connections, what that
//! left behind, how many ports there were.

use super::{ACHIEVED, CLIENT_MEMORY, INTENDED, KERNEL_MEMORY, PER_CONNECTION, RATE, TLS};
use tcptoll_core::experiment::column::{Column, Figure, Quantile, Table, value};
use tcptoll_core::experiment::columns::{
    CONN_RATE, CONNECT_P50, ECHO_P50, ERRORS, FIRST_BYTE_P50, OK, QUEUE_PEAK, any_has,
    client_cpu_column, every, figures, server_cpu_column, tidy,
};
use tcptoll_core::experiment::figures::{
    CLIENT_FIN_WAIT_2, CLIENT_SEGMENTS, CLIENT_TIME_WAIT, CONNECT, GOODPUT, LATENCY,
    SERVER_FIN_WAIT_2, SERVER_SEGMENTS, SERVER_TIME_WAIT,
};
use tcptoll_core::experiment::spec::MetricSpec;
use tcptoll_core::number::ABSENT;
use tcptoll_core::record::{Arm, Summary};
use tcptoll_core::sheet::{Part, Room, Tone};
use tcptoll_core::tcp::ports::PortForecast;
use tcptoll_show::run::Failed;
use tcptoll_show::run::{NONE, Own, Run};
use tcptoll_show::{clean, figures, number};

use Figure::{Count, Estimate, Words};
use Quantile::{Max, P50, P90, P99, P999};

fn open_loop(summary: &Summary) -> bool {
    any_has(summary, INTENDED.name)
}

fn closed_loop(summary: &Summary) -> bool {
    !open_loop(summary)
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
fn time_wait(arm: &Arm) -> [Option<u64>; 2] {
    [CLIENT_TIME_WAIT, SERVER_TIME_WAIT]
        .map(|metric| value(arm, metric.name).map(|sockets| sockets.round() as u64))
}

const fn latency(quantile: Quantile) -> Column {
    Column::quantile(("latency", quantile.name()), "", LATENCY.name, quantile)
}

const fn memory(head: &'static str, whole: &'static str, metric: &'static MetricSpec) -> Column {
    Column::new(("memory/conn", head), whole, tidy(metric), Estimate("bytes"))
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
const CPU: &str = "CPU µs/req";
const CLIENT_CPU: Column = client_cpu_column(CPU, "client CPU µs/req");
const SERVER_CPU: Column = server_cpu_column(CPU, "server CPU µs/req");

/// The tables, in the order of every report.
pub(super) const TABLES: &[Table] = &[
    figures(&[
        &[INTENDED_RATE, ACHIEVED_RATE, REQUESTS_RATE.when(closed_loop)],
        &[
            latency(P50),
            latency(P90).shown(Room::Wide),
            latency(P99),
            latency(P999).shown(Room::Wide),
            latency(Max),
        ],
        &[
            CONNECT_P50,
            Column::quantile((CONNECT_P50.group, "p99"), "", CONNECT.name, P99).shown(Room::Page),
        ],
        &[TLS_P50, Column::quantile(("TLS", "p99"), "", TLS.name, P99).shown(Room::Page)],
        &[FIRST_BYTE_P50],
        &[OK, ERRORS],
        &[CLIENT_CPU, SERVER_CPU],
        &[CONTENT_RATE.shown(Room::Wide)],
        &[ECHO_P50.shown(Room::Page), QUEUE_PEAK],
    ]),
    Table {
        id: "connections",
        title: "Connections of these requests",
        has: every,
        room: Room::Always,
        parts: &[
            &[
                CONN_RATE.shown(Room::Page),
                Column::whole("connections", ("", ""), Count(|arm| arm.connections_ok)),
            ],
            &[REQUESTS],
            &[CLOSED_FIRST, CLIENT_WAITS, SERVER_WAITS, CLIENT_HALF_CLOSED, SERVER_HALF_CLOSED],
            &[CLIENT_SENT, SERVER_SENT],
            &[KERNEL_MEM, CLIENT_MEM],
        ],
    },
];

pub(crate) const OWN: Own = Own {
    forecasts,
    failed: Some(failed),
    answer_has_failures: Some("No request succeeded"),
    trouble: ignored,
    counted: connections,
    text_after: responses,
    ..NONE
};

/// Column from which the text after a label begins.
const LABEL: usize = 14;

/// Statuses that are listed; a server may send any number of them.
const STATUSES: usize = 6;

/// Forecasts that are told apart; more would push the answer off the screen.
const FORECASTS: usize = 3;

/// Columns that an arm's name may take in a sentence.
const NAME: usize = 26;

fn failed(Failed { failed, tried }: Failed) -> String {
    let [bad, all, good] = [failed, tried, tried - failed].map(number::count);
    format!(
        "{bad} of {all} requests failed. Rates and latencies cover only the {good} that succeeded."
    )
}

/// Doubts about who closed: a header that was ignored.
fn ignored(arm: &Arm) -> Option<String> {
    let ignored = arm.closing.as_ref().map_or(0, |closing| closing.ignored);
    (ignored > 0).then(|| {
        format!(
            "server: kept the connection open {} when it was to close it. The client closed these",
            figures::plural(ignored, "time")
        )
    })
}

/// Responses by status, the most frequent first: `57 with 200 · 3 with 404`. None: no response came.
fn by_status(arm: &Arm) -> Option<String> {
    let mut all: Vec<(&String, &u64)> = arm.statuses.iter().collect();
    all.sort_by_key(|(status, count)| (std::cmp::Reverse(**count), *status));
    let each =
        |(status, count): &(&String, &u64)| format!("{} with {status}", number::count(**count));
    let mut texts: Vec<String> = all.iter().take(STATUSES).map(each).collect();
    if all.len() > STATUSES {
        let rest: u64 = all.iter().skip(STATUSES).map(|(_, count)| **count).sum();
        texts.push(format!("{} with {} other statuses", number::count(rest), all.len() - STATUSES));
    }
    (!texts.is_empty()).then(|| texts.join(" · "))
}

/// Responses by status of a single arm; of several, those of arms that have several statuses.
fn responses(summary: &Run, _width: usize) -> Vec<Part> {
    let labelled = |text: String| Part::labelled("  responses".to_owned(), LABEL, text, Tone::Dim);
    let lines = match summary.arms.as_slice() {
        [arm] => by_status(arm).into_iter().map(labelled).collect(),
        arms => arms
            .iter()
            .filter(|arm| arm.statuses.len() > 1)
            .filter_map(|arm| Some(format!("{}: {}", arm.name, by_status(arm)?)))
            .map(labelled)
            .collect::<Vec<Part>>(),
    };
    let blank = (!lines.is_empty()).then_some(Part::Blank);
    blank.into_iter().chain(lines).collect()
}

/// Everything counted about closing, a label and a figure each.
fn closing(arm: &Arm) -> Vec<[String; 2]> {
    let Some(closing) = &arm.closing else { return Vec::new() };
    let mut rows = vec![
        ["connections closed by the client first".to_owned(), number::count(closing.by_client)],
        ["connections closed by the server first".to_owned(), number::count(closing.by_server)],
        ["of these, without a request in progress".to_owned(), number::count(closing.while_idle)],
    ];
    rows.extend(
        closing.both.map(|both| ["closed by both, FINs crossed".to_owned(), number::count(both)]),
    );
    rows.push([
        "still open when the load ended, then closed by the client".to_owned(),
        number::count(closing.open_at_end),
    ]);
    if closing.ignored > 0 {
        rows.push([
            "Connection: close ignored by the server".to_owned(),
            figures::plural(closing.ignored, "time"),
        ]);
    }
    let mean = if arm.rounds.is_empty() { "" } else { ", mean over rounds" };
    for (side, n) in ["client", "server"].into_iter().zip(time_wait(arm)) {
        let label = format!("{side} sockets in TIME-WAIT after the load{mean}");
        rows.extend(n.map(|n| [label, number::count(n)]));
    }
    rows
}

/// Whether ports may be scarce: some stay in use, or so many connections were opened.
fn may_lack(arm: &Arm, ports: &PortForecast) -> bool {
    let opened = arm.connections_attempted.unwrap_or(u64::MAX);
    !ports.text.is_empty()
        && (ports.sustained_per_s.is_some() || opened.saturating_mul(2) > ports.at_once)
}

/// The port forecasts, one line for all arms that share one: `ports: …`.
fn forecasts(arms: &[Arm]) -> Vec<String> {
    let mut texts: Vec<(&str, Vec<&str>)> = Vec::new();
    for arm in arms {
        let Some(ports) = arm.ports.as_ref().filter(|ports| may_lack(arm, ports)) else {
            continue;
        };
        match texts.iter_mut().find(|(text, _)| *text == ports.text) {
            Some((_, names)) => names.push(&arm.name),
            None => texts.push((&ports.text, vec![&arm.name])),
        }
    }
    // What holds for all arms needs no name.
    let alone = texts.iter().all(|(_, names)| names.len() == arms.len());
    let mut lines: Vec<String> = texts
        .iter()
        .take(FORECASTS)
        .map(|(text, names)| {
            let arms = match names.as_slice() {
                _ if alone => String::new(),
                [] => String::new(),
                [one] => format!(" ({})", clean::shorten(one, NAME)),
                [one, ..] => {
                    format!(" ({} and {} more)", clean::shorten(one, NAME), names.len() - 1)
                }
            };
            format!("ports{arms}: {text}")
        })
        .collect();
    if texts.len() > FORECASTS {
        lines.push(format!("ports: {} more forecasts in the record", texts.len() - FORECASTS));
    }
    lines
}

/// Connections under requests: how many, who closed them, and what the forecast of ports said.
fn connections(arm: &Arm) -> Vec<[String; 2]> {
    let mut notes = Vec::new();
    if let Some(tried) = arm.connections_attempted {
        let made = arm.connections_ok.map_or_else(|| ABSENT.to_owned(), number::count);
        let text = format!("{made} of {}", number::count(tried));
        notes.push(["connections established".to_owned(), text]);
    }
    notes.extend(by_status(arm).map(|text| ["responses by status".to_owned(), text]));
    notes.extend(closing(arm));
    if let Some(ports) = &arm.ports {
        notes.push(["forecast of ports".to_owned(), ports.text.clone()]);
        let text = format!(
            "{}: {} × {} × {}",
            number::count(ports.at_once),
            figures::plural(ports.usable, "port"),
            figures::plural(ports.sources, "source"),
            figures::plural(ports.destinations, "destination")
        );
        notes.push(["concurrent connections that ports allow".to_owned(), text]);
        let rate = ports.sustained_per_s.map_or_else(
            || "any number".to_owned(),
            |rate| {
                format!(
                    "{}, each port held for {} s",
                    number::three(rate),
                    number::plain(ports.held_s)
                )
            },
        );
        notes.push(["connections per second that ports allow".to_owned(), rate]);
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::REPORTS;
    use tcptoll_core::record::{Closing, Metric, Summary};

    fn closed(by_client: u64, by_server: u64, both: Option<u64>) -> Arm {
        let closing = Closing { by_client, by_server, both, ..Closing::default() };
        Arm { closing: Some(closing), ..Arm::default() }
    }

    #[test]
    fn the_closer_is_named_and_a_share_is_said_where_both_closed() {
        let closer = |by_client, by_server, both| closer(&closed(by_client, by_server, both));
        assert_eq!(closer(1_000, 0, None).as_deref(), Some("client"));
        assert_eq!(closer(3, 997, None).as_deref(), Some("server"));
        assert_eq!(closer(400, 600, None).as_deref(), Some("server 60 %"));
        assert_eq!(closer(0, 0, None), None);
        assert_eq!(closer(0, 0, Some(7)).as_deref(), Some("both"));
        assert_eq!(closer(10, 20, Some(70)).as_deref(), Some("both 70 %"));
        assert_eq!(closer(60, 20, Some(20)).as_deref(), Some("client 60 %"));
    }

    fn arm(name: &str, by_client: u64, by_server: u64, text: &str) -> Arm {
        Arm {
            name: name.into(),
            closing: Some(Closing { by_client, by_server, ..Closing::default() }),
            ports: Some(PortForecast { text: text.into(), ..PortForecast::default() }),
            ..Arm::default()
        }
    }

    #[test]
    fn time_wait_of_rounds_is_their_mean_wherever_it_is_said() {
        let metric =
            |value| Metric { value, unit: "sockets".into(), ci95: None, median: None, n: 3 };
        let mut arm = arm("a", 722, 1, "");
        arm.metrics.insert("client_time_wait".into(), metric(240.7));
        assert_eq!(time_wait(&arm), [Some(241), None]);
        let label = "client sockets in TIME-WAIT after the load";
        assert!(closing(&arm).contains(&[label.to_owned(), "241".to_owned()]));
        arm.rounds = vec![tcptoll_core::record::Round::default()];
        let label = format!("{label}, mean over rounds");
        assert!(closing(&arm).contains(&[label, "241".to_owned()]));
    }

    #[test]
    fn a_forecast_that_arms_share_is_said_once() {
        let shared = [arm("a", 0, 0, "x"), arm("b", 0, 0, "x")];
        assert_eq!(forecasts(&shared), ["ports: x"]);
        let apart = [arm("a", 0, 0, "x"), arm("b", 0, 0, "y"), arm("c", 0, 0, "y")];
        assert_eq!(forecasts(&apart), ["ports (a): x", "ports (b and 1 more): y"]);
    }

    #[test]
    fn responses_are_listed_by_status_the_most_frequent_first_and_at_most_six() {
        let with = |statuses: &[(&str, u64)]| Arm {
            statuses: statuses.iter().map(|(status, n)| ((*status).to_owned(), *n)).collect(),
            ..Arm::default()
        };
        assert_eq!(by_status(&with(&[])), None);
        let two = with(&[("200", 57), ("404", 3)]);
        assert_eq!(by_status(&two).as_deref(), Some("57 with 200 · 3 with 404"));
        let many: Vec<(String, u64)> = (200..210).map(|n| (n.to_string(), 1)).collect();
        let many: Vec<(&str, u64)> = many.iter().map(|(status, n)| (status.as_str(), *n)).collect();
        let text = by_status(&with(&many)).unwrap();
        assert!(text.ends_with("· 4 with 4 other statuses"), "{text}");
        // Of several arms only those that need it.
        let one = with(&[("200", 60)]);
        let run = |arms| REPORTS.run(Summary { arms, ..Summary::default() });
        let lines = |arms: Vec<Arm>| responses(&run(arms), 80).len();
        assert_eq!(lines(vec![one.clone()]), 2);
        assert_eq!((lines(vec![one.clone(), one.clone()]), lines(vec![one, two])), (0, 2));
    }
}
