//! Options of `messages`.

use crate::experiments::option::{Only, Opt};
use crate::experiments::options::{CLIENT_SYSCTL, IPV6, LINK, LOAD, PACKET_RELAY, SERVER_SYSCTL};

/// Heading of socket options.
const SOCKETS: &str = "Sockets";
/// Heading of the programs at both ends.
const PROGRAM: &str = "Program";

/// Every option, as the help shows them.
pub(super) const OPTIONS: &[&Opt] = &[
    &LINK,
    &IPV6,
    &PACKET_RELAY,
    &CLIENT_SYSCTL,
    &SERVER_SYSCTL,
    &Opt::each(
        LOAD,
        "pattern",
        "PATTERN",
        "one-way: the client sends, the server reads; request-response: a message, then an answer; \
         write-write-read: a request in two writes, then an answer",
    )
    .by_default("one-way"),
    &Opt::each(LOAD, "message", "SIZE", "Size of a message: 1, 64, 1K, 4M").by_default("1K"),
    &Opt::each(LOAD, "response", "SIZE", "Size of the answer")
        .derived("as the message")
        .only(&[Only::When("pattern", &["request-response", "write-write-read"])]),
    &Opt::each(
        LOAD,
        "coalesce",
        "HOW",
        "How messages are put together: none: a write for each; cork: TCP_CORK; more: MSG_MORE; \
         gather: one sendmsg(2) for several; buffer: copied into a buffer of the program",
    )
    .by_default("none"),
    &Opt::each(LOAD, "coalesce-bytes", "SIZE", "Bytes that are put together")
        .by_default("4K")
        .only(&[Only::When("coalesce", &["cork", "more", "gather", "buffer"])]),
    &Opt::each(LOAD, "duration", "TIME", "Length of the measured window, after the warm-up")
        .by_default("1s"),
    &Opt::each(LOAD, "warmup", "TIME", "Time before the measured window")
        .derived("20 round trips, at least 300ms"),
    &Opt::one(LOAD, "timeout", "TIME", "Time limit of connecting, and of one exchange")
        .by_default("10s"),
    &Opt::each(SOCKETS, "nagle", "on,off", "Nagle's algorithm; off sets TCP_NODELAY")
        .by_default("on"),
    &Opt::each(SOCKETS, "quick-ack", "on,off", "Set TCP_QUICKACK on the server before each read")
        .by_default("off"),
    &Opt::each(
        SOCKETS,
        "window",
        "auto|SIZE",
        "Socket buffers of both hosts (SO_SNDBUF and SO_RCVBUF), like 256K; auto: the kernel tunes \
         them",
    )
    .by_default("auto"),
    &Opt::each(SOCKETS, "congestion", "NAME", "Congestion control of both hosts: cubic, bbr, reno")
        .derived("the kernel's own"),
    &Opt::each(PROGRAM, "program", "native,java", "Program that sends and receives")
        .by_default("native"),
    &Opt::each(
        PROGRAM,
        "encoding",
        "ENCODING",
        "Encoding of a message in Java: raw bytes, fields (DataOutput), serialization, xml",
    )
    .by_default("raw")
    .only(&[Only::When("program", &["java"])]),
    &Opt::each(PROGRAM, "work", "TIME", "CPU time that the sender works on each message")
        .by_default("0"),
    &Opt::each(
        PROGRAM,
        "receiver-work",
        "TIME",
        "CPU time that the receiver works on each message",
    )
    .by_default("0"),
    &Opt::flag(
        "Output",
        "tap",
        "On a link without emulation: watch the link with a packet tap (it costs CPU)",
    )
    .only(&[Only::Lab]),
];
