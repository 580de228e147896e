//! Which figures stand in the tables of `syn-queue`.

use tcptoll_core::experiment::column::{Column, Figure, Quantile, Table};
use tcptoll_core::experiment::columns::{
    CLIENT_CPU_EACH, CONN_RATE, CONNECT_MEAN_COLUMN, DROPS_EACH, ECHO_P50, ERRORS, FAILED_AFTER,
    FAILED_OF_CONNECTIONS, FIRST_BYTE_MEAN_COLUMN, FIRST_BYTE_P50, OK, SERVER_CPU_EACH,
    WAITED_SHARE, every, figures, tidy,
};
use tcptoll_core::experiment::figures::CONNECT;
use tcptoll_core::number;
use tcptoll_core::record::{Arm, ListenerQueue};
use tcptoll_core::sheet::Room;

use super::HALF_OPEN_PEAK;

use Figure::{Count, Estimate, Words};
use Quantile::{Max, P50, P90, P99};

/// What is shown beyond the tables.
pub(crate) use crate::open::pictures::OWN;

/// The measured listener.
pub(super) fn listener(arm: &Arm) -> Option<&ListenerQueue> {
    arm.own.queues.as_deref()?.listeners.first()
}

/// Half-open requests at most, of how many it holds: `129 of 129`.
pub(super) fn half_open(arm: &Arm) -> Option<String> {
    let listener = listener(arm)?;
    let peak = number::count(u64::from(listener.half_open_peak?));
    Some(match listener.half_open_limit {
        Some(limit) => format!("{peak} of {}", number::count(limit)),
        None => peak,
    })
}

fn half_open_peak(arm: &Arm) -> Option<f64> {
    listener(arm)?.half_open_peak.map(f64::from)
}

/// A counter of the server's kernel; `None`: the kernel does not have it, or it stayed 0.
pub(super) fn of_server(arm: &Arm, name: &str) -> Option<u64> {
    let value = arm.server.as_ref()?.counters.get(name)?;
    u64::try_from(*value).ok().filter(|value| *value > 0)
}

/// SYNs that the server's kernel dropped for its SYN queue.
pub(super) fn dropped(arm: &Arm) -> Option<u64> {
    let drops = arm.own.queues.as_deref()?.drops.as_ref()?;
    Some(drops.syns_dropped_half_open)
}

fn cookies(arm: &Arm) -> Option<u64> {
    of_server(arm, "TcpExtSyncookiesSent")
}

/// TCP options that a connection near the end had agreed on.
pub(super) fn options(arm: &Arm) -> Option<String> {
    /// `TCPI_OPT_*` of `linux/tcp.h`.
    const NAMES: [(u8, &str); 3] = [(1, "timestamps"), (2, "SACK"), (4, "window scale")];
    let options = arm.client.tcp_info.as_ref()?.options;
    let has: Vec<&str> =
        NAMES.iter().filter(|(bit, _)| options & bit != 0).map(|(_, name)| *name).collect();
    Some(if has.is_empty() { "none".to_owned() } else { has.join(", ") })
}

const fn connect(quantile: Quantile) -> Column {
    Column::quantile(("connected in", quantile.name()), "", CONNECT.name, quantile)
}

const HALF_OPEN: Column =
    Column::new(("", "half-open"), "half-open requests", ("half_open", ""), Words(half_open))
        .flush_right()
        .sorted_by(half_open_peak)
        .shown(Room::Always);
const DROPPED: Column = Column::new(
    ("", "SYNs dropped"),
    "SYNs dropped",
    ("syns_dropped_half_open", "packets"),
    Count(dropped),
)
.flush_right();
const COOKIES: Column = Column::new(
    ("", "cookies"),
    "SYN cookies sent",
    ("syn_cookies_sent", "packets"),
    Count(cookies),
)
.flush_right();
const OPTIONS: Column = Column::whole("TCP options", ("tcp_options", ""), Words(options));

/// The tables, in the order of every report.
pub(super) const TABLES: &[Table] = &[
    figures(&[
        &[
            connect(P50).shown(Room::Always),
            connect(P90).shown(Room::Page),
            connect(P99),
            connect(Max),
        ],
        &[CONNECT_MEAN_COLUMN, FIRST_BYTE_P50.shown(Room::Page)],
        &[HALF_OPEN, DROPPED, COOKIES, WAITED_SHARE],
        &[FAILED_OF_CONNECTIONS, FAILED_AFTER, OK, ERRORS],
    ]),
    Table {
        id: "costs",
        title: "Connections: rate, CPU and TCP options",
        has: every,
        room: Room::Page,
        parts: &[&[
            CONN_RATE,
            FIRST_BYTE_MEAN_COLUMN,
            OPTIONS,
            DROPS_EACH,
            Column::whole("half-open peak", tidy(&HALF_OPEN_PEAK), Estimate("")),
            CLIENT_CPU_EACH,
            SERVER_CPU_EACH,
            ECHO_P50,
        ]],
    },
];
