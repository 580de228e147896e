//! The tables of `keepalive`: what testing idle connections cost, which deaths were detected, and
//! what a shorter detection time costs in packets.

use super::{
    ARRIVAL, BYTES, CLIENT_IDLE_CPU, CLIENT_KERNEL_MEMORY, CLIENT_MEMORY, DETECTION, MACHINE_CPU,
    PACKETS, RATE, SERVER_IDLE_CPU, SERVER_KERNEL_MEMORY,
};
use tcptoll_core::experiment::column::{Column, Figure, Quantile, Table, value};
use tcptoll_core::experiment::columns::{ECHO_P50, ERRORS, OK, every, ok_of_attempts, tidy};
use tcptoll_core::experiment::figures::{CLIENT_CPU, GOODPUT, SERVER_CPU};
use tcptoll_core::record::{Arm, Deaths, Keepalive, Summary};
use tcptoll_core::sheet::Room;
use tcptoll_core::tcp::wire::Traffic;

use Figure::{Count, Metric, Number, Own, Words};
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

/// What checks connections.
const MECHANISM: Column = Column::new(
    ("", "mechanism"),
    "mechanism",
    ("mechanism", ""),
    Words(|arm| keepalive(arm).map(|keepalive| keepalive.checking.mechanism.name().to_owned())),
);

fn mechanism_is_no_factor(summary: &Summary) -> bool {
    summary.arms.iter().any(|arm| !arm.factors.contains_key("mechanism"))
}

/// What a shorter detection time costs in packets: measured next to computed.
const TRADE: &[Column] = &[
    Column::new((HOURLY, "measured"), "packets/h per socket", tidy(&PACKETS), Metric),
    Column::new(
        (HOURLY, "computed"),
        "computed packets/h",
        ("computed_packets_per_hour_per_socket", "1/h"),
        Number(|arm| keepalive(arm)?.computed_packets_per_hour(), 1.0),
    ),
    MEDIAN,
    LAST,
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
        has: every,
        room: Room::Page,
        parts: &[&[
            known_after("detected after: p50", P50),
            known_after("detected after: p99", P99),
            known_after("detected after: p99.9", P999),
            known_after("detected after: max", Max),
            ECHO_P50,
            OK.when(any_tried),
            ERRORS,
        ]],
    },
    Table {
        id: "deaths",
        title: "",
        has: died,
        room: Room::Always,
        parts: &[FAULT, KNOWN, DUE_AFTER, ALIVE],
    },
    Table {
        id: "spent",
        title: "",
        has: died,
        room: Room::Always,
        parts: &[SPENT_ON, ARRIVALS, DIED_MORE],
    },
    Table {
        id: "trade",
        title: "",
        has: traded,
        room: Room::Always,
        parts: &[&[MECHANISM.when(mechanism_is_no_factor)], TRADE],
    },
    // A tidy table has them of every arm.
    Table {
        id: "trade-of-all",
        title: "",
        has: checked,
        room: Room::File,
        parts: &[&[MECHANISM], TRADE],
    },
    Table {
        id: "traffic",
        title: "",
        has: every,
        room: Room::Always,
        parts: &[LOAD, THROUGHPUT, IDLE, COUNTED],
    },
    Table {
        id: "hourly",
        title: "",
        has: every,
        room: Room::Always,
        parts: &[PACKETS_HOURLY, BYTES_HOURLY, LINK],
    },
    Table { id: "more", title: "", has: every, room: Room::Page, parts: &[TOOK_MORE] },
    Table {
        id: "cost",
        title: "",
        has: every,
        room: Room::Always,
        parts: &[IDLE_CPU, MESSAGE_CPU, MEMORY_OF, &[OK_IF_TRIED]],
    },
];

const DUE: &str = "expected within, s";
const WRONG: &str = "wrongly closed";
const SPENT: &str = "traffic after fault";

/// The fault, and how many it hit.
const FAULT: &[Column] = &[
    Column::new(
        ("", "fault"),
        "fault",
        ("fault", ""),
        Words(|arm| Some(deaths(arm)?.fault.clone())),
    ),
    Column::new(("", "dead"), "dead", ("dead", ""), Count(|arm| deaths(arm).map(|d| d.dead))),
    Column::new(
        ("", "detected"),
        "detected",
        ("dead_known", ""),
        Count(|arm| deaths(arm).map(|d| d.known)),
    ),
];

/// Median time until a death was detected.
const MEDIAN: Column = Column::new(
    (AFTER, "median"),
    "detected after, s: median",
    ("known_after_s_median", "s"),
    Number(|arm| detection_s(arm)[1], 1.0),
);
/// Longest time until a death was detected.
const LAST: Column = Column::new(
    (AFTER, "max"),
    "detected after, s: max",
    ("known_after_s_max", "s"),
    Number(|arm| detection_s(arm)[2], 1.0),
);

const KNOWN: &[Column] = &[
    Column::new(
        (AFTER, "min"),
        "detected after, s: min",
        ("known_after_s_min", "s"),
        Number(|arm| detection_s(arm)[0], 1.0),
    ),
    MEDIAN,
    LAST,
];

/// When they had to be.
const DUE_AFTER: &[Column] = &[
    Column::new(
        (DUE, "bound"),
        "computed bound, s",
        ("bound_s", "s"),
        Number(|arm| deaths(arm)?.bound_s, 1.0),
    ),
    Column::new(
        (DUE, "+ timers"),
        "granularity of timers, s",
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
];

const ALIVE: &[Column] = &[
    Column::new(("", "alive"), "alive", ("alive", ""), Count(|arm| deaths(arm).map(|d| d.alive))),
    Column::new(
        (WRONG, "number"),
        "wrongly closed",
        ("wrongly_closed", ""),
        Count(|arm| deaths(arm).map(|d| d.wrongly_closed)),
    ),
    Column::new(
        (WRONG, "expected"),
        "wrongly closed: expected [99 of 100 runs]",
        ("wrongly_closed_expected", ""),
        Own,
    ),
];

/// Packets of faulted connections, from the fault on.
const SPENT_ON: &[Column] = &[
    Column::new(
        (SPENT, "packets"),
        "packets after the fault",
        ("stricken_packets", ""),
        Count(|arm| Some(deaths(arm)?.traffic?.packets)),
    ),
    Column::new(
        (SPENT, "/conn"),
        "packets per faulted connection",
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
        "KiB after the fault",
        ("stricken_bytes", "bytes"),
        Number(|arm| Some(deaths(arm)?.traffic?.bytes as f64), 1.0 / 1_024.0),
    ),
];

/// New connections that found no place.
const ARRIVALS: &[Column] = &[
    Column::new(
        ("new connections", "no place"),
        "new connections without a place",
        ("arrivals_without_room", ""),
        Count(|arm| deaths(arm).map(|d| d.arrivals).filter(|n| *n > 0)),
    ),
    Column::new(
        ("new connections", "waited, s"),
        "new connections: longest wait, s",
        ("arrival_s_max", "s"),
        Number(|arm| Some(arm.histograms.get(ARRIVAL.name)?.max? / 1e6), 1.0),
    ),
];

/// How deaths were detected; on a terminal, sentences state that.
const DIED_MORE: &[Column] = &[
    Column::new(
        ("", "faulted"),
        "faulted",
        ("stricken", ""),
        Count(|arm| deaths(arm).map(|d| d.stricken)),
    ),
    Column::new(("", "detected by"), "detected by", ("known_by", ""), Own),
    Column::new(("", "read(2)"), "read(2) returned", ("read_said", ""), Own),
];

const WINDOW: &str = "on idle sockets in the window";
const FLEET: &str = "CPU µs/s per 1,000 sockets";
const MESSAGE: &str = "CPU µs/message";
const MEMORY: &str = "memory, bytes/socket";

const fn bytes(whole: &'static str, key: &'static str, value: fn(&Arm) -> Option<u64>) -> Column {
    Column::whole(whole, (key, "bytes"), Count(value))
}

const fn count(whole: &'static str, key: &'static str, value: fn(&Arm) -> Option<u64>) -> Column {
    Column::whole(whole, (key, ""), Count(value))
}

/// Messages of the connection that writes.
const LOAD: &[Column] = &[Column::new(("", "messages/s"), "messages/s", tidy(&RATE), Metric)];

const THROUGHPUT: &[Column] = &[Column::new(
    ("", "Mbit/s"),
    "goodput, Mbit/s",
    tidy(&GOODPUT),
    Number(|arm| value(arm, GOODPUT.name), 8e-6),
)];

const IDLE: &[Column] = &[Column::new(
    ("idle", "sockets"),
    "idle sockets",
    ("idle_sockets", ""),
    Count(|arm| keepalive(arm).map(|keepalive| keepalive.idle_sockets)),
)];

/// Packets of the mechanism within the window.
const COUNTED: &[Column] = &[
    Column::new(
        (WINDOW, "probes"),
        "keep-alive probes",
        ("keepalive_probes", ""),
        Count(|arm| Some(keepalive(arm)?.probes?.packets)),
    ),
    Column::new(
        (WINDOW, "answers"),
        "answers to probes",
        ("keepalive_answers", ""),
        Count(|arm| Some(keepalive(arm)?.probe_answers?.packets)),
    ),
    Column::new(
        (WINDOW, "messages"),
        "messages on idle sockets",
        ("heartbeats", ""),
        Count(|arm| Some(keepalive(arm)?.heartbeats?.packets)),
    ),
    Column::new(
        (WINDOW, "acks"),
        "acknowledgments of messages",
        ("heartbeat_acks", ""),
        Count(|arm| Some(keepalive(arm)?.heartbeat_acks?.packets)),
    ),
    Column::new(
        (WINDOW, "KiB"),
        "KiB in total",
        ("checking_bytes", "bytes"),
        Number(|arm| traffic(keepalive(arm)?).map(|t| t.bytes as f64), 1.0 / 1_024.0),
    ),
];

const PACKETS_HOURLY: &[Column] = &[
    Column::new((HOURLY, "measured"), "packets/h per socket", tidy(&PACKETS), Metric),
    Column::new(
        (HOURLY, "computed"),
        "computed packets/h",
        ("computed_packets_per_hour_per_socket", "1/h"),
        Number(|arm| keepalive(arm)?.computed_packets_per_hour(), 1.0),
    ),
];

const BYTES_HOURLY: &[Column] = &[
    Column::new(("bytes/h·socket", "measured"), "bytes/h per socket", tidy(&BYTES), Metric),
    Column::new(
        ("bytes/h·socket", "computed"),
        "computed bytes/h",
        ("computed_bytes_per_hour_per_socket", "bytes/h"),
        Number(|arm| keepalive(arm)?.computed_bytes_per_hour(), 1.0),
    ),
];

/// The share of the link that this is.
const LINK: &[Column] = &[Column::new(
    ("share of", "link, %"),
    "share of the link, %",
    ("checking_link_share", "1"),
    Number(|arm| keepalive(arm)?.link_share, 100.0),
)];

/// Bytes of each kind and whatever else a wide page has room for.
const TOOK_MORE: &[Column] = &[
    bytes("bytes of probes", "keepalive_probe_bytes", |arm| Some(keepalive(arm)?.probes?.bytes)),
    bytes("bytes of answers", "keepalive_answer_bytes", |arm| {
        Some(keepalive(arm)?.probe_answers?.bytes)
    }),
    bytes("bytes of messages", "heartbeat_bytes", |arm| Some(keepalive(arm)?.heartbeats?.bytes)),
    bytes("bytes of acknowledgments", "heartbeat_ack_bytes", |arm| {
        Some(keepalive(arm)?.heartbeat_acks?.bytes)
    }),
    count("messages retransmitted", "heartbeat_retransmissions", |arm| {
        keepalive(arm)?.heartbeats?;
        keepalive(arm).map(|keepalive| keepalive.heartbeat_retransmissions)
    }),
    count("messages counted by the program", "nulls_sent", |arm| {
        keepalive(arm).map(|keepalive| keepalive.nulls_sent).filter(|n| *n > 0)
    }),
    count("timer wake-ups", "timer_wakeups", |arm| {
        keepalive(arm).map(|keepalive| keepalive.wakeups).filter(|n| *n > 0)
    }),
    Column::new(("", "checking"), "checking", ("checking", ""), Own),
];

const IDLE_CPU: &[Column] = &[
    Column::new(
        (FLEET, "machine"),
        "machine CPU, µs/s per 1,000 sockets",
        tidy(&MACHINE_CPU),
        Metric,
    ),
    Column::new(
        (FLEET, "client"),
        "client CPU, µs/s per 1,000 sockets",
        tidy(&CLIENT_IDLE_CPU),
        Metric,
    ),
    Column::new(
        (FLEET, "server"),
        "server CPU, µs/s per 1,000 sockets",
        tidy(&SERVER_IDLE_CPU),
        Metric,
    ),
];

const MESSAGE_CPU: &[Column] = &[
    Column::new(
        (MESSAGE, "client"),
        "client CPU, µs/message",
        tidy(&CLIENT_CPU),
        Number(|arm| value(arm, CLIENT_CPU.name).or(arm.client.cpu_us_per_op), 1.0),
    ),
    Column::new(
        (MESSAGE, "server"),
        "server CPU, µs/message",
        tidy(&SERVER_CPU),
        Number(
            |arm| {
                let host = arm.server.as_ref().and_then(|host| host.cpu_us_per_op);
                value(arm, SERVER_CPU.name).or(host)
            },
            1.0,
        ),
    ),
];

const MEMORY_OF: &[Column] = &[
    Column::new((MEMORY, "client"), "client memory, bytes/socket", tidy(&CLIENT_MEMORY), Metric),
    Column::new(
        (MEMORY, "client kernel"),
        "client's kernel, bytes/socket",
        tidy(&CLIENT_KERNEL_MEMORY),
        Metric,
    ),
    Column::new(
        (MEMORY, "server kernel"),
        "server's kernel, bytes/socket",
        tidy(&SERVER_KERNEL_MEMORY),
        Metric,
    ),
];
