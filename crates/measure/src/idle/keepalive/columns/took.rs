//! What checking idle connections took: packets and bytes, CPU, memory.

use super::super::{
    BYTES, CLIENT_IDLE_CPU, CLIENT_KERNEL_MEMORY, CLIENT_MEMORY, MACHINE_CPU, PACKETS, RATE,
    SERVER_IDLE_CPU, SERVER_KERNEL_MEMORY,
};
use super::{HOURLY, keepalive, traffic};
use tcptoll_core::experiment::column::{Column, Figure, value};
use tcptoll_core::experiment::columns::tidy;
use tcptoll_core::experiment::figures::{CLIENT_CPU, GOODPUT, SERVER_CPU};
use tcptoll_core::record::Arm;

use Figure::{Count, Metric, Number, Own};

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
pub(super) const LOAD: &[Column] =
    &[Column::new(("", "messages/s"), "messages/s", tidy(&RATE), Metric)];

/// Payload.
pub(super) const THROUGHPUT: &[Column] = &[Column::new(
    ("", "Mbit/s"),
    "goodput, Mbit/s",
    tidy(&GOODPUT),
    Number(|arm| value(arm, GOODPUT.name), 8e-6),
)];

/// Idle connections.
pub(super) const IDLE: &[Column] = &[Column::new(
    ("idle", "sockets"),
    "idle sockets",
    ("idle_sockets", ""),
    Count(|arm| keepalive(arm).map(|keepalive| keepalive.idle_sockets)),
)];

/// Packets of the mechanism within the window.
pub(super) const COUNTED: &[Column] = &[
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

/// Packets of an hour.
pub(super) const PACKETS_HOURLY: &[Column] = &[
    Column::new((HOURLY, "measured"), "packets/h per socket", tidy(&PACKETS), Metric),
    Column::new(
        (HOURLY, "computed"),
        "computed packets/h",
        ("computed_packets_per_hour_per_socket", "1/h"),
        Number(|arm| keepalive(arm)?.computed_packets_per_hour(), 1.0),
    ),
];

/// Bytes of an hour.
pub(super) const BYTES_HOURLY: &[Column] = &[
    Column::new(("bytes/h·socket", "measured"), "bytes/h per socket", tidy(&BYTES), Metric),
    Column::new(
        ("bytes/h·socket", "computed"),
        "computed bytes/h",
        ("computed_bytes_per_hour_per_socket", "bytes/h"),
        Number(|arm| keepalive(arm)?.computed_bytes_per_hour(), 1.0),
    ),
];

/// The share of the link that this is.
pub(super) const LINK: &[Column] = &[Column::new(
    ("share of", "link, %"),
    "share of the link, %",
    ("checking_link_share", "1"),
    Number(|arm| keepalive(arm)?.link_share, 100.0),
)];

/// Bytes of each kind and whatever else a wide page has room for.
pub(super) const MORE: &[Column] = &[
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

/// CPU for idle connections.
pub(super) const IDLE_CPU: &[Column] = &[
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

/// CPU for messages.
pub(super) const MESSAGE_CPU: &[Column] = &[
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

/// Memory of a connection.
pub(super) const MEMORY_OF: &[Column] = &[
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
