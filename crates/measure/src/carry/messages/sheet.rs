//! Tables and pictures of `messages`: rates, latencies, what a message costs. Its pictures show goodput and
//! latency over the size of a message, and which way of sending is the fastest at each size.

use tcptoll_core::experiment::column::{Column, Figure, Quantile, Table, value};
use tcptoll_core::experiment::columns::{
    ECHO_P50, ERRORS, OK, client_cpu_column, figures, server_cpu_column, tidy,
};
use tcptoll_core::experiment::figures::{
    CLIENT_SEGMENTS, GOODPUT, LATENCY, LATENCY_MEAN, SERVER_SEGMENTS,
};
use tcptoll_core::record::Arm;
use tcptoll_core::sheet::Room;
use tcptoll_core::verdict::throughput::{Direction, limited_by};
use tcptoll_show::run::{NONE, Own};

use super::{ACK_DELAY, CALLS, CLIENT_CPU_SHARE, RATE, SERVER_CPU_SHARE};
use crate::carry::pictures as throughput;

use Figure::{Estimate, Number, Share, Words};
use Quantile::{Max, P50, P99, P999};

/// Bytes/s to Mbit/s.
const MBIT: f64 = 8e-6;

/// What limited messages that nobody answers. An exchange is limited by its own latency.
pub(super) fn limit(arm: &Arm) -> Option<&'static str> {
    let transfer = arm.own.transfer.as_ref()?;
    let (direction, way) = Direction::used_in(transfer).next()?;
    Some(limited_by(transfer, direction, way)?.by.name())
}

const fn latency(quantile: Quantile) -> Column {
    Column::quantile(("latency", quantile.name()), "", LATENCY.name, quantile)
}

const MESSAGES: Column =
    Column::new(("", "messages/s"), "messages/s", tidy(&RATE), Estimate("")).shown(Room::Always);
const MBIT_S: Column = Column::new(
    ("goodput", "Mbit/s"),
    "goodput Mbit/s",
    tidy(&GOODPUT),
    Number(|arm| value(arm, GOODPUT.name), MBIT),
);
const MEAN: Column = Column::whole("mean", tidy(&LATENCY_MEAN), Estimate(LATENCY_MEAN.unit));
const ACK_MAX: Column =
    Column::quantile(("ACK delay", "max"), "server's ACK delay max", ACK_DELAY.name, Max);
const ACK_P50: Column =
    Column::quantile(("ACK delay", "p50"), "server's ACK delay p50", ACK_DELAY.name, P50);
const PER_MESSAGE: &str = "per message";
const CALLS_EACH: Column =
    Column::new((PER_MESSAGE, "calls"), "system calls per message", tidy(&CALLS), Estimate(""));
const SENT: Column = Column::new(
    (PER_MESSAGE, "client segs"),
    "client segments per message",
    tidy(&CLIENT_SEGMENTS),
    Estimate(""),
);
const ANSWERED: Column = Column::new(
    (PER_MESSAGE, "server segs"),
    "server segments per message",
    tidy(&SERVER_SEGMENTS),
    Estimate(""),
);
const CPU: &str = "CPU µs/msg";
const CLIENT: Column = client_cpu_column(CPU, "client CPU µs/msg");
const SERVER: Column = server_cpu_column(CPU, "server CPU µs/msg");
const SHARES: &str = "CPU share";
const CLIENT_SHARE: Column = Column::new(
    (SHARES, "client"),
    "client CPU share",
    tidy(&CLIENT_CPU_SHARE),
    Share(|arm| value(arm, CLIENT_CPU_SHARE.name)),
);
const SERVER_SHARE: Column = Column::new(
    (SHARES, "server"),
    "server CPU share",
    tidy(&SERVER_CPU_SHARE),
    Share(|arm| value(arm, SERVER_CPU_SHARE.name)),
);
const LIMITED_BY: Column = Column::new(
    ("", "limited by"),
    "limited by",
    ("limited_by", ""),
    Words(|arm| limit(arm).map(str::to_owned)),
);

/// The tables, in the order of every report.
pub(super) const TABLES: &[Table] = &[figures(&[
    &[MESSAGES, MBIT_S],
    &[latency(P50), latency(P99), latency(P999).shown(Room::Page), latency(Max)],
    &[MEAN.called("latency mean")],
    &[ACK_P50.shown(Room::Page), ACK_MAX],
    &[CALLS_EACH, SENT, ANSWERED],
    &[CLIENT, SERVER],
    &[CLIENT_SHARE, SERVER_SHARE],
    &[LIMITED_BY],
    &[ECHO_P50.shown(Room::Page)],
    &[OK, ERRORS],
])];

pub(crate) const OWN: Own = Own {
    picture: throughput::picture,
    leads: throughput::leads,
    sections: |summary| throughput::sections(summary, None),
    details: throughput::details,
    ..NONE
};
