//! Tables and pictures of `stream`: goodput and what limited it, round trips, CPU, buffers. Its pictures show
//! goodput over buffer and message size beside what limits it, the round trip that the load causes, and how both went
//! over time.

use tcptoll_core::experiment::column::{Column, Figure, Table, value};
use tcptoll_core::experiment::columns::{ECHO_P50, ERRORS, OK, any_has, tidy};
use tcptoll_core::experiment::figures::GOODPUT;
use tcptoll_core::record::{Arm, Buffer, Sender, Summary, Transfer};
use tcptoll_core::sheet::Room;
use tcptoll_core::verdict::throughput::{
    Direction, Limited, bandwidth_delay_product_bytes, limited_by,
};
use tcptoll_show::run::{NONE, Own};

use super::{
    CLIENT_CPU_PER_GB, GOODPUT_DOWN, GOODPUT_UP, LINK_SHARE, LOADED_RTT, RETRANSMITTED,
    SERVER_CPU_PER_GB, STARTUP, TRANSFER, memory,
};
use crate::carry::pictures as throughput;

use Figure::{Count, Number, OfGreatest, Share, Time, Words};

/// Bytes/s to Mbit/s.
const MBIT: f64 = 8e-6;
/// Bytes to kB.
const KILO: f64 = 1e-3;
/// Bytes to KiB.
const KIBI: f64 = 1.0 / 1_024.0;

/// What bulk data showed of an arm.
pub(super) fn transfer(arm: &Arm) -> Option<&Transfer> {
    arm.own.transfer.as_ref()
}

fn carried(arm: &Arm) -> bool {
    transfer(arm).is_some()
}

/// What limited each direction of an arm.
pub(super) fn limits(arm: &Arm) -> Vec<(Direction, Option<Limited>)> {
    let of_transfer = |transfer| {
        Direction::used_in(transfer)
            .map(move |(direction, way)| (direction, limited_by(transfer, direction, way)))
    };
    transfer(arm).into_iter().flat_map(of_transfer).collect()
}

/// The name of a limit; of two that cannot be told apart both: `receive-window or link-rate`.
fn name(limited: Option<Limited>) -> String {
    let Some(limited) = limited else { return "not known".to_owned() };
    match limited.or {
        Some(or) => format!("{} or {}", limited.by.name(), or.name()),
        None => limited.by.name().to_owned(),
    }
}

/// What limited an arm, in words: of two directions once if it is the same.
pub(super) fn limited_by_words(arm: &Arm) -> Option<String> {
    let limits: Vec<(Direction, String)> =
        limits(arm).into_iter().map(|(way, limited)| (way, name(limited))).collect();
    let (_, first) = limits.first()?;
    if limits.iter().all(|(_, other)| other == first) {
        return Some(first.clone());
    }
    let each = limits.iter().map(|(way, name)| format!("{}: {name}", way.name()));
    Some(each.collect::<Vec<_>>().join(", "))
}

/// The direction that the columns of one sender show: to the server, where data flows both ways.
fn shown(arm: &Arm) -> Option<(&Transfer, Direction, &Sender)> {
    let transfer = transfer(arm)?;
    let (direction, way) = Direction::used_in(transfer).next()?;
    Some((transfer, direction, &way.sender))
}

fn sender(arm: &Arm) -> Option<&Sender> {
    shown(arm).map(|(_, _, sender)| sender)
}

/// The send buffer of the sender and the receive buffer of the receiver.
fn buffers(arm: &Arm) -> Option<[Buffer; 2]> {
    let (transfer, direction, _) = shown(arm)?;
    let [sender, receiver] = direction.ends(transfer);
    Some([sender.send_buffer, receiver.receive_buffer])
}

/// The whole goodput of an arm.
fn goodput(arm: &Arm) -> Option<f64> {
    value(arm, GOODPUT.name)
}

fn product(arm: &Arm) -> Option<f64> {
    let transfer = transfer(arm)?;
    let (_, way) = Direction::used_in(transfer).next()?;
    bandwidth_delay_product_bytes(transfer, way)
}

fn several_arms(summary: &Summary) -> bool {
    summary.arms.iter().filter(|arm| goodput(arm).is_some()).count() > 1
}

fn both_ways(summary: &Summary) -> bool {
    summary.arms.iter().filter_map(transfer).any(|transfer| transfer.ways().count() > 1)
}

/// Whether an arm asked for a buffer.
fn asked(summary: &Summary, at: usize) -> bool {
    let is_asked_for = |arm| buffers(arm).and_then(|both| both[at].asked_bytes).is_some();
    summary.arms.iter().any(is_asked_for)
}

fn any_retransmitted(summary: &Summary) -> bool {
    summary.arms.iter().any(|arm| value(arm, RETRANSMITTED.name).is_some_and(|share| share > 0.0))
}

fn transferred(summary: &Summary) -> bool {
    any_has(summary, TRANSFER.name)
}

/// What a page says: as it is.
fn asked_words(buffer: Buffer) -> String {
    buffer.asked_bytes.map_or_else(|| "auto".to_owned(), tcptoll_core::units::text_size)
}

const MBIT_S: &str = "Mbit/s";
const RATE: Column = Column::new(
    ("goodput", MBIT_S),
    "goodput, Mbit/s",
    tidy(&GOODPUT),
    Number(|arm| value(arm, GOODPUT.name), MBIT),
)
.shown(Room::Always);
const UP: Column = Column::new(
    (MBIT_S, "up"),
    "goodput to the server, Mbit/s",
    tidy(&GOODPUT_UP),
    Number(|arm| value(arm, GOODPUT_UP.name), MBIT),
)
.when(both_ways);
const DOWN: Column = Column::new(
    (MBIT_S, "down"),
    "goodput to the client, Mbit/s",
    tidy(&GOODPUT_DOWN),
    Number(|arm| value(arm, GOODPUT_DOWN.name), MBIT),
)
.when(both_ways);
const OF_LINK: Column = Column::new(
    ("share of", "link"),
    "share of the link's rate",
    tidy(&LINK_SHARE),
    Share(|arm| value(arm, LINK_SHARE.name)),
);
const OF_BEST: Column = Column::new(
    ("share of", "best"),
    "share of the best arm",
    ("share_of_best", "share"),
    OfGreatest(goodput),
)
.when(several_arms);
const TIME: Column = Column::new(
    ("whole", "transfer"),
    "transfer time",
    tidy(&TRANSFER),
    Time(|arm| value(arm, TRANSFER.name)),
)
.when(transferred);
const LIMIT: Column =
    Column::new(("", "limited by"), "limited by", ("limited_by", ""), Words(limited_by_words))
        .shown(Room::Always)
        .sorted_by(goodput);
const ROUND_TRIP: &str = "round trip";
const QUIET: Column = Column::new(
    (ROUND_TRIP, "quiet"),
    "round trip of the quiet link",
    ("quiet_rtt_us", "us"),
    Time(|arm| transfer(arm)?.quiet_rtt_us),
)
.flush_right();
const LOADED: Column = Column::new(
    (ROUND_TRIP, "loaded"),
    "round trip under load",
    tidy(&LOADED_RTT),
    Time(|arm| value(arm, LOADED_RTT.name)),
)
.flush_right();
const AGAIN: Column = Column::new(
    ("retrans-", "mitted"),
    "retransmitted",
    tidy(&RETRANSMITTED),
    Share(|arm| value(arm, RETRANSMITTED.name)),
)
.when(any_retransmitted);
const CPU: &str = "CPU s/GB";
const CLIENT: Column = Column::new(
    (CPU, "client"),
    "client CPU, s/GB",
    tidy(&CLIENT_CPU_PER_GB),
    Number(|arm| value(arm, CLIENT_CPU_PER_GB.name), 1.0),
);
const SERVER: Column = Column::new(
    (CPU, "server"),
    "server CPU, s/GB",
    tidy(&SERVER_CPU_PER_GB),
    Number(|arm| value(arm, SERVER_CPU_PER_GB.name), 1.0),
);
const SEND: &str = "send buffer";
const RECEIVE: &str = "receive buffer";
const SEND_ASKED: Column = Column::new(
    (SEND, "asked"),
    "send buffer asked for",
    ("send_buffer_asked", ""),
    Words(|arm| buffers(arm).map(|[send, _]| asked_words(send))),
)
.flush_right()
.when(|summary| asked(summary, 0));
const SEND_GOT: Column = Column::new(
    (SEND, "KiB"),
    "effective send buffer, KiB",
    ("send_buffer_effective_bytes", "bytes"),
    Number(|arm| buffers(arm).map(|[send, _]| send.effective_bytes as f64), KIBI),
)
.when(|summary| asked(summary, 0));
const RECEIVE_ASKED: Column = Column::new(
    (RECEIVE, "asked"),
    "receive buffer asked for",
    ("receive_buffer_asked", ""),
    Words(|arm| buffers(arm).map(|[_, receive]| asked_words(receive))),
)
.flush_right()
.when(|summary| asked(summary, 1));
const RECEIVE_GOT: Column = Column::new(
    (RECEIVE, "KiB"),
    "effective receive buffer, KiB",
    ("receive_buffer_effective_bytes", "bytes"),
    Number(|arm| buffers(arm).map(|[_, receive]| receive.effective_bytes as f64), KIBI),
)
.when(|summary| asked(summary, 1));
const WINDOWS: &str = "window, kB";
const PEER_WINDOW: Column = Column::new(
    (WINDOWS, "receive"),
    "receive window, kB",
    ("peer_window_bytes", "bytes"),
    Number(|arm| sender(arm)?.peer_window_bytes, KILO),
);
const CONGESTION_WINDOW: Column = Column::new(
    (WINDOWS, "congestion"),
    "congestion window, kB",
    ("congestion_window_bytes", "bytes"),
    Number(|arm| sender(arm)?.congestion_window_bytes, KILO),
);
const PRODUCT: Column = Column::new(
    ("rate ×", "RTT, kB"),
    "bandwidth-delay product, kB",
    ("bandwidth_delay_product_bytes", "bytes"),
    Number(product, KILO),
);
const START: Column = Column::new(
    ("start-", "up"),
    "time to steady goodput",
    tidy(&STARTUP),
    Time(|arm| value(arm, STARTUP.name)),
)
.flush_right();

const fn share(
    heads: (&'static str, &'static str),
    whole: &'static str,
    key: &'static str,
    value: fn(&Arm) -> Option<f64>,
) -> Column {
    Column::new(heads, whole, (key, "share"), Share(value))
}

const WAITED: &str = "time waiting for";
/// What the kernel counted.
const SHARES: &[Column] = &[
    share((WAITED, "receiver"), "limited by the receive window", "receive_window_share", |arm| {
        sender(arm)?.receive_window_share
    }),
    share((WAITED, "send buffer"), "limited by the send buffer", "send_buffer_share", |arm| {
        sender(arm)?.send_buffer_share
    }),
    share((WAITED, "program"), "limited by the program", "application_share", |arm| {
        sender(arm)?.application_share
    }),
];
/// Counts for files and pages.
const COUNTED: &[Column] = &[
    Column::whole("in flight, peak kB", ("in_flight_max_bytes", "bytes"), {
        Number(|arm| sender(arm)?.in_flight_max_bytes, KILO)
    }),
    Column::whole("bytes per call", ("bytes_per_call", "bytes"), {
        Number(|arm| Direction::used_in(transfer(arm)?).next()?.1.bytes_per_call(), 1.0)
    }),
    Column::whole("segments retransmitted", ("retransmitted_segments", ""), {
        Count(|arm| sender(arm).map(|one| one.retransmitted_segments))
    }),
];

/// The tables of data, in the order of every report.
pub(super) const TABLES: &[Table] = &[
    memory::FIGURES,
    memory::COUNTERS,
    memory::PLAIN,
    Table {
        id: "figures",
        title: "",
        has: |arm| memory::connection_memory(arm).is_none(),
        room: Room::Always,
        parts: &[
            &[RATE, UP, DOWN, OF_LINK, OF_BEST, TIME],
            &[LIMIT],
            &[QUIET, LOADED],
            &[AGAIN],
            &[CLIENT, SERVER],
            &[START.shown(Room::Page), OK.shown(Room::Page), ERRORS],
            &[SEND_ASKED, SEND_GOT],
            &[RECEIVE_ASKED, RECEIVE_GOT],
            &[PEER_WINDOW, PRODUCT],
        ],
    },
    Table {
        id: "limits",
        title: "Windows, and the time spent waiting for buffers",
        has: carried,
        room: Room::Page,
        parts: &[&[CONGESTION_WINDOW], SHARES, COUNTED, &[ECHO_P50]],
    },
];

pub(crate) const OWN: Own = Own {
    picture: throughput::picture,
    leads: throughput::leads,
    sections: |summary| throughput::sections(summary, Some(LOADED_RTT.name)),
    details: throughput::details,
    ..NONE
};
