//! Options of `stream`.

use crate::experiments::option::{Only, Opt};
use crate::experiments::options::{
    CLIENT_SYSCTL, CONGESTION_OF_BOTH, IPV6, LINK, LOAD, PACKET_RELAY, SERVER_SYSCTL, SOCKETS, TAP,
    WINDOW,
};
use crate::study::Study;

/// Every option, as the help shows them.
pub(super) const OPTIONS: &[&Opt] = &[
    &LINK,
    &IPV6,
    &PACKET_RELAY,
    &CLIENT_SYSCTL,
    &SERVER_SYSCTL,
    &Opt::each(LOAD, "direction", "up,down,both", "Direction of the data: up is client to server")
        .by_default("up"),
    &Opt::each(LOAD, "streams", "N", "Concurrent connections").number().by_default("1"),
    &Opt::each(LOAD, "message", "SIZE", "Size of one write, like 128K").by_default("128K"),
    &Opt::each(LOAD, "duration", "TIME", "Length of the measured window, after the warm-up")
        .by_default("2s"),
    &Opt::each(
        LOAD,
        "warmup",
        "TIME",
        "Time from the first byte that is reported separately, as slow start is in it",
    )
    .derived("20 round trips, at least 300ms"),
    &Opt::each(
        LOAD,
        "bytes",
        "SIZE",
        "Send this much over each connection instead, and measure the time of the whole transfer",
    ),
    &Opt::each(
        LOAD,
        "rate",
        "RATE",
        "Limit of what the program sends, all connections together, like 500mbit",
    ),
    &Opt::each(
        LOAD,
        "zerocopy",
        "off,send,receive,both",
        "Copies to skip: send from the page cache with sendfile(2), discard at the receiver with \
         MSG_TRUNC",
    )
    .alone("send")
    .by_default("off"),
    &Opt::one(
        LOAD,
        "timeout",
        "TIME",
        "Time limit of connecting, and of data that is still under way",
    )
    .by_default("10s"),
    &WINDOW,
    &Opt::each(SOCKETS, "send-buffer", "auto|SIZE", "SO_SNDBUF alone, on both hosts")
        .derived("as --window"),
    &Opt::each(SOCKETS, "receive-buffer", "auto|SIZE", "SO_RCVBUF alone, on both hosts")
        .derived("as --window"),
    &Opt::each(SOCKETS, "nagle", "on,off", "Nagle's algorithm; off sets TCP_NODELAY")
        .by_default("on"),
    &CONGESTION_OF_BOTH,
    &Opt::flag("Memory", "memory", "Measure the kernel memory of open connections instead"),
    &Opt::each("Memory", "connections", "N", "Open connections; a list makes an arm of each")
        .number()
        .by_default("100")
        .only(&[Only::With("memory", "")]),
    &TAP.worded("On a link without emulation: watch the link with a packet tap (it costs CPU)"),
];

/// Arms are compared by goodput. Memory is the same in every round, and no single figure compares it.
pub(super) fn compares(study: &Study) -> bool {
    study.values("memory").is_empty()
}
