//! Which figures stand in the tables of `accept-queue`.

use tcptoll_core::experiment::column::{Column, Figure, Quantile, Table, value};
use tcptoll_core::experiment::columns::{
    CLIENT_CPU_EACH, CONN_RATE, CONNECT_MEAN_COLUMN, CONNECT_OF_FAILED_P50, CONNECT_P50,
    DROPS_EACH, ECHO_P50, ERRORS, FAILED_AFTER, FAILED_OF_CONNECTIONS, FIRST_BYTE_MEAN_COLUMN, OK,
    SERVER_CPU_EACH, WAITED_SHARE, every, figures, tidy,
};
use tcptoll_core::experiment::figures::{CONNECT, FIRST_BYTE, QUEUE_FULL};
use tcptoll_core::number;
use tcptoll_core::record::{Arm, ListenerQueue};
use tcptoll_core::sheet::Room;

use crate::kit::queue_causes::overflowed;

use Figure::{Count, Share, Words};
use Quantile::{Max, P50, P90, P99};

/// What is shown beyond the tables.
pub(crate) use crate::open::pictures::OWN;

/// The listener whose queue is shown: the one that overflowed, or else the measured one.
pub(super) fn listener(arm: &Arm) -> Option<&ListenerQueue> {
    overflowed(arm.own.queues.as_deref()?)
}

/// Its longest queue, of how many it holds: `129 of 129`.
fn queue(arm: &Arm) -> Option<String> {
    let listener = listener(arm)?;
    let holds = u64::from(listener.limit) + 1;
    Some(format!("{} of {}", number::count(listener.peak), number::count(holds)))
}

fn queue_share(arm: &Arm) -> Option<f64> {
    let listener = listener(arm)?;
    Some(f64::from(listener.peak) / (f64::from(listener.limit) + 1.0))
}

/// Packets that the kernel dropped at the listener.
fn drops(arm: &Arm) -> Option<u64> {
    listener(arm)?.drops
}

/// Where the drops of the listener are an upper bound.
fn drops_bound(arm: &Arm) -> Option<String> {
    listener(arm)?.drops_at_most.then(|| "at most".to_owned())
}

const GROUP: &str = "first byte";

const fn first_byte(quantile: Quantile) -> Column {
    Column::quantile((GROUP, quantile.name()), "", FIRST_BYTE.name, quantile)
}

const CONNECT_MAX: Column =
    Column::quantile((CONNECT_P50.group, "max"), "connect max", CONNECT.name, Max);
const QUEUE: Column =
    Column::new(("", "queue"), "accept queue peak", ("accept_queue", ""), Words(queue))
        .flush_right()
        .sorted_by(queue_share)
        .shown(Room::Always);
const DROPPED: Column =
    Column::new(("", "drops"), "packets dropped", ("listener_drops", "packets"), Count(drops))
        .flush_right();
const DROPPED_BOUND: Column = Column::new(
    ("", "bound"),
    "bound of packets dropped",
    ("listener_drops_bound", ""),
    Words(drops_bound),
);
const FULL: Column =
    Column::whole("queue full", tidy(&QUEUE_FULL), Share(|arm| value(arm, QUEUE_FULL.name)));

/// The tables, in the order of every report.
pub(super) const TABLES: &[Table] = &[
    figures(&[
        &[
            first_byte(P50),
            first_byte(P90).shown(Room::Page),
            first_byte(P99),
            first_byte(Max).shown(Room::Always),
        ],
        &[FIRST_BYTE_MEAN_COLUMN],
        &[CONNECT_P50, CONNECT_MAX],
        &[QUEUE, FULL, DROPPED_BOUND, DROPPED, WAITED_SHARE],
        &[FAILED_OF_CONNECTIONS, FAILED_AFTER, OK, ERRORS],
    ]),
    Table {
        id: "costs",
        title: "Connections: rate, CPU and handshakes",
        has: every,
        room: Room::Page,
        parts: &[&[
            CONN_RATE,
            CONNECT_MEAN_COLUMN,
            CONNECT_OF_FAILED_P50,
            DROPS_EACH,
            CLIENT_CPU_EACH,
            SERVER_CPU_EACH,
            ECHO_P50,
        ]],
    },
];
