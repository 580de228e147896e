//! Options of `stream`.

use tcptoll_core::experiment::option::{Only, Opt};
use tcptoll_core::experiment::options::{
    CLIENT_ADDRESS, CLIENT_HOST, CLIENT_SYSCTL, CONGESTION_OF_BOTH, DEAD_AFTER, IPV6, LINK, LOAD,
    PACKET_RELAY, REMOTE_BINARY, SERVER_ADDRESS, SERVER_HOST, SERVER_SYSCTL, SOCKETS, SSH_COMMAND,
    TAP, WINDOW,
};
use tcptoll_core::study::Study;

/// Every option, as the help shows them.
pub(super) const OPTIONS: &[&Opt] = &[
    &LINK,
    &IPV6,
    &PACKET_RELAY,
    &CLIENT_SYSCTL,
    &SERVER_SYSCTL,
    &SERVER_HOST,
    &CLIENT_HOST,
    &SERVER_ADDRESS,
    &CLIENT_ADDRESS,
    &SSH_COMMAND,
    &REMOTE_BINARY,
    &DEAD_AFTER,
    &Opt::each(LOAD, "direction", "up,down,both", "Direction of the data. up: client to server")
        .by_default("up"),
    &Opt::each(LOAD, "streams", "N", "Number of concurrent connections")
        .letters(&['P'])
        .number()
        .by_default("1"),
    &Opt::each(LOAD, "message", "SIZE", "Size of each write, e.g. 128K").by_default("128K"),
    &Opt::each(LOAD, "duration", "TIME", "Length of the measured window, after the warm-up")
        .by_default("2s"),
    &Opt::each(
        LOAD,
        "warmup",
        "TIME",
        "Time after the first byte that is not part of the measured window, because of slow start",
    )
    .derived("20 round trips, at least 300ms"),
    &Opt::each(
        LOAD,
        "bytes",
        "SIZE",
        "Bytes to send over each connection, e.g. 100M. Measures the whole transfer instead of a \
         window",
    ),
    &Opt::each(
        LOAD,
        "rate",
        "RATE",
        "Limit of the sending rate of all connections together, e.g. 500mbit",
    ),
    &Opt::each(
        LOAD,
        "zerocopy",
        "off,send,receive,both",
        "Copies to avoid: send (sendfile(2) from the page cache), receive (discard with MSG_TRUNC) \
         or both",
    )
    .alone("send")
    .by_default("off"),
    &Opt::one(
        LOAD,
        "timeout",
        "TIME",
        "Timeout of connecting, and of data that is still in flight",
    )
    .by_default("10s"),
    &WINDOW,
    &Opt::each(SOCKETS, "send-buffer", "auto|SIZE", "SO_SNDBUF on both hosts, e.g. 256K")
        .derived("same as --window"),
    &Opt::each(SOCKETS, "receive-buffer", "auto|SIZE", "SO_RCVBUF on both hosts, e.g. 256K")
        .derived("same as --window"),
    &Opt::each(SOCKETS, "nagle", "on,off", "Nagle's algorithm. off sets TCP_NODELAY")
        .by_default("on"),
    &CONGESTION_OF_BOTH,
    &Opt::flag("Memory", "memory", "Measure kernel memory of open connections, not throughput"),
    &Opt::each("Memory", "connections", "N", "Number of open connections")
        .number()
        .by_default("100")
        .only(&[Only::With("memory", "")]),
    &TAP,
];

/// Arms are compared by goodput. Memory is the same in every round, and no single figure compares it.
pub(super) fn compares(study: &Study) -> bool {
    study.values("memory").is_empty()
}
