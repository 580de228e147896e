//! The tables of `keepalive`: what testing idle connections cost, which deaths were detected, and
//! what a shorter detection time costs in packets.

mod died;
mod took;

use super::{DETECTION, PACKETS};
use tcptoll_core::experiment::column::{Column, Figure, Form, Quantile, Show, Table};
use tcptoll_core::experiment::columns::{
    ECHO_P50, ERRORS, OK, client_cpu_column, every, ok_of_attempts, server_cpu_column, tidy,
};
use tcptoll_core::record::{Arm, Deaths, Keepalive, Summary};
use tcptoll_core::tcp::wire::Traffic;

use Figure::{Metric, Number, Words};
use Quantile::{Max, P50, P99, P999};

/// What checking idle connections cost an arm, and what it found out.
pub(super) fn keepalive(arm: &Arm) -> Option<&Keepalive> {
    arm.own.keepalive.as_ref()
}

/// What died in an arm, where anything was made to.
pub(super) fn deaths(arm: &Arm) -> Option<&Deaths> {
    keepalive(arm)?.deaths.as_ref()
}

fn checked(arm: &Arm) -> bool {
    keepalive(arm).is_some()
}

fn died(arm: &Arm) -> bool {
    deaths(arm).is_some()
}

/// All that checking sent, where it was counted.
pub(super) fn traffic(keepalive: &Keepalive) -> Option<Traffic> {
    let kinds =
        [keepalive.probes, keepalive.probe_answers, keepalive.heartbeats, keepalive.heartbeat_acks];
    kinds.into_iter().flatten().reduce(|sum, one| Traffic {
        packets: sum.packets.saturating_add(one.packets),
        bytes: sum.bytes.saturating_add(one.bytes),
    })
}

/// Seconds from the fault to its detection: least, median (of few the mean), greatest.
pub(super) fn detection_s(arm: &Arm) -> [Option<f64>; 3] {
    let Some(h) = arm.histograms.get(DETECTION.name) else { return [None; 3] };
    [h.min, h.p50.or(h.mean), h.max].map(|us| us.map(|us| us / 1e6))
}

/// When each dead connection has to be known by arithmetic, timers included, s.
pub(super) fn due_s(arm: &Arm) -> Option<f64> {
    deaths(arm)?.due_s()
}

/// Whether an arm is part of the trade: what died there was silent, and known.
///
/// A reset tells by itself, whatever the mechanism.
pub(super) fn traded(arm: &Arm) -> bool {
    let silent = |d: &Deaths| !d.fault.starts_with("reset") && !d.fault.starts_with("close");
    deaths(arm).is_some_and(|d| silent(d) && d.known > 0) && detection_s(arm)[1].is_some()
}

/// Where connections only die, nothing is tried.
fn any_tried(summary: &Summary) -> bool {
    summary.arms.iter().any(|arm| arm.attempts > 0)
}

const fn known_after(whole: &'static str, quantile: Quantile) -> Column {
    Column::quantile(("", whole), whole, DETECTION.name, quantile)
}

const AFTER: &str = "detected after, s";
const HOURLY: &str = "packets/h·socket";

/// Operations that succeeded, where an arm has any: an arm that only waits for deaths has none.
const OK_IF_TRIED: Column = Column::new(
    ("", "ok"),
    "ok",
    ("", ""),
    Words(|arm| (arm.attempts > 0).then(|| ok_of_attempts(arm))),
)
.flush_right();

/// What a shorter detection time costs in packets: measured next to computed.
const TRADE: &[Column] = &[
    Column::new(
        ("", "mechanism"),
        "mechanism",
        ("mechanism", ""),
        Words(|arm| keepalive(arm).map(|keepalive| keepalive.checking.mechanism.name().to_owned())),
    ),
    Column::new((HOURLY, "measured"), "packets/h per socket", tidy(&PACKETS), Metric),
    Column::new(
        (HOURLY, "computed"),
        "computed packets/h",
        ("computed_packets_per_hour_per_socket", "1/h"),
        Number(|arm| keepalive(arm)?.computed_packets_per_hour(), 1.0),
    ),
    died::MEDIAN,
    died::LAST,
    Column::new(
        (AFTER, "computed"),
        "computed: detected within, s",
        ("due_s", "s"),
        Number(due_s, 1.0),
    ),
];

/// The tables, in the order of every report.
pub(super) const TABLES: &[Table] = &[
    Table {
        id: "figures",
        title: "",
        forms: &[Form::Page],
        has: every,
        parts: &[&[
            known_after("detected after: p50", P50),
            known_after("detected after: p99", P99),
            known_after("detected after: p99.9", P999),
            known_after("detected after: max", Max),
            ECHO_P50,
            client_cpu_column("", "client CPU µs"),
            server_cpu_column("", "server CPU µs"),
            OK.shown(Show::Present).when(any_tried),
            ERRORS,
        ]],
    },
    Table {
        id: "took",
        title: "",
        forms: &[Form::Text],
        has: every,
        parts: &[
            took::LOAD,
            took::THROUGHPUT,
            took::IDLE,
            took::COUNTED,
            took::PACKETS_HOURLY,
            took::BYTES_HOURLY,
            took::LINK,
            took::IDLE_CPU,
            took::MESSAGE_CPU,
            took::MEMORY_OF,
            &[OK_IF_TRIED],
        ],
    },
    Table {
        id: "took",
        title: "",
        forms: &[Form::Markdown, Form::Csv],
        has: checked,
        parts: &[
            took::LOAD,
            took::THROUGHPUT,
            took::IDLE,
            took::COUNTED,
            took::PACKETS_HOURLY,
            took::BYTES_HOURLY,
            took::LINK,
            took::MORE,
            took::IDLE_CPU,
            took::MESSAGE_CPU,
            took::MEMORY_OF,
        ],
    },
    Table {
        id: "deaths",
        title: "",
        forms: &[Form::Text],
        has: died,
        parts: &[
            died::FAULT,
            died::KNOWN,
            died::DUE_AFTER,
            died::ALIVE,
            died::SPENT_ON,
            died::ARRIVALS,
        ],
    },
    Table {
        id: "deaths",
        title: "",
        forms: &[Form::Markdown, Form::Csv],
        has: died,
        parts: &[
            died::FAULT,
            died::KNOWN,
            died::DUE_AFTER,
            died::ALIVE,
            died::SPENT_ON,
            died::ARRIVALS,
            died::MORE,
        ],
    },
    Table {
        id: "deaths",
        title: "",
        forms: &[Form::Page],
        has: died,
        parts: &[died::FAULT, died::KNOWN, died::DUE_AFTER, died::ALIVE],
    },
    Table {
        id: "spent",
        title: "",
        forms: &[Form::Page],
        has: died,
        parts: &[died::SPENT_ON, died::ARRIVALS, died::MORE],
    },
    Table {
        id: "trade",
        title: "",
        forms: &[Form::Text, Form::Page, Form::Markdown],
        has: traded,
        parts: &[TRADE],
    },
    // A tidy table has them of every arm.
    Table { id: "trade", title: "", forms: &[Form::Csv], has: checked, parts: &[TRADE] },
    Table {
        id: "traffic",
        title: "",
        forms: &[Form::Page],
        has: every,
        parts: &[took::LOAD, took::THROUGHPUT, took::IDLE, took::COUNTED],
    },
    Table {
        id: "hourly",
        title: "",
        forms: &[Form::Page],
        has: every,
        parts: &[took::PACKETS_HOURLY, took::BYTES_HOURLY, took::LINK],
    },
    Table { id: "more", title: "", forms: &[Form::Page], has: every, parts: &[took::MORE] },
    Table {
        id: "cost",
        title: "",
        forms: &[Form::Page],
        has: every,
        parts: &[took::IDLE_CPU, took::MESSAGE_CPU, took::MEMORY_OF],
    },
];
