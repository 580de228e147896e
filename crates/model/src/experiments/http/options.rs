//! Options of `http`.

use crate::experiments::option::{Only, Opt};
use crate::experiments::options::{
    BIND, CLIENT_SYSCTL, CONGESTION, IPV6, LINK, LOAD, PACKET_RELAY, PLACE, SERVER_SYSCTL, TAP,
};
use crate::http::server;

/// Heading of what is asked for.
const REQUESTS: &str = "Requests";
/// Heading of what counts as success.
const SUCCESS: &str = "Success";
/// Heading of servers that are known by name.
const SERVER: &str = "Server by name";

/// Where an option of a server known by name applies.
const BY_NAME: &[Only] = &[Only::Lab, Only::When("server", &server::NAMES)];

/// Every option, as the help shows them.
pub(super) const OPTIONS: &[&Opt] = &[
    &Opt::arguments(
        "url",
        "URL",
        "What to ask for, of a server that already runs, instead of the lab; several of one \
         server are asked for in turn",
    ),
    &LINK,
    &Opt::each(
        PLACE,
        "server",
        "NAME|COMMAND",
        "Server to start on the lab's server host: nginx, apache (apache-event, \
         apache-worker, apache-prefork), puma, null (tcptoll's own, for calibration), or a \
         command; given again, or several names: one arm each",
    )
    .split(server::split)
    .by_default("nginx")
    .only(&[Only::Lab]),
    &Opt::one(
        PLACE,
        "port",
        "PORT",
        "Port of a server that a command starts, if it listens on several",
    )
    .only(&[Only::Lab]),
    &IPV6,
    &PACKET_RELAY,
    &CLIENT_SYSCTL
        .worded("Sysctl of the client host, like net.ipv4.tcp_tw_reuse=1; may be given again"),
    &SERVER_SYSCTL,
    &Opt::each(
        REQUESTS,
        "reuse",
        "WAY",
        "How connections are used again; the ways are listed below",
    )
    .by_default("keep-alive"),
    &Opt::each(REQUESTS, "method", "NAME", "Method of every request")
        .derived("GET; POST with --body"),
    &Opt::one(
        REQUESTS,
        "path",
        "PATH",
        "Path to ask the lab's server for, or several with blanks between, in turn",
    )
    .derived("that of the server's small page")
    .only(&[Only::Lab]),
    &Opt::together(
        REQUESTS,
        "header",
        "NAME: VALUE",
        "Field of every request, like 'Accept: text/html'; may be given again",
    )
    .short('H'),
    &Opt::one(REQUESTS, "body", "TEXT|@FILE", "Content of every request, of at most 1 MiB"),
    &Opt::one(
        REQUESTS,
        "access-log",
        "FILE",
        "Ask for what a log in common or combined format asks for, in its order; of one URL, \
         or of the lab's server",
    ),
    &Opt::each(
        REQUESTS,
        "tls",
        "off,full,resumed",
        "TLS to the lab's server, or how to do the handshakes of https://: full (each time) \
         or resumed (where the server allows it)",
    )
    .derived("off; resumed with https://"),
    &Opt::one(REQUESTS, "ca", "FILE", "Further root certificates, PEM"),
    &Opt::flag(REQUESTS, "insecure", "Accept any certificate"),
    &Opt::each(LOAD, "connections", "N", "Connections at once, at most")
        .number()
        .derived("50; in a closed loop in the lab 2"),
    &Opt::each(
        LOAD,
        "rate",
        "PER_SECOND",
        "Requests due per second, whether or not others have been answered (open loop); \
         latency counts from when each was due",
    )
    .number(),
    &Opt::each(
        LOAD,
        "spread",
        "constant,poisson",
        "How these are spread: evenly, or as independent users would",
    )
    .by_default("constant")
    .only(&[Only::With("rate", "")]),
    &Opt::each(LOAD, "duration", "TIME", "Time in which each trial begins requests")
        .derived("1s without --requests"),
    &Opt::each(
        LOAD,
        "requests",
        "N",
        "Requests of each trial, instead of a time; with --duration as well, whichever comes \
         first",
    )
    .number(),
    &Opt::each(
        LOAD,
        "warmup",
        "N|TIME",
        "Requests, or time, before what is measured; connections are kept, figures are apart",
    )
    .number()
    .derived("200ms and the ramp"),
    &Opt::each(LOAD, "ramp", "TIME", "Time over which the first connections are begun, evenly")
        .derived(
            "none for up to 1000 on a link without delay, else 0.1 ms each and a round trip at \
         least",
        ),
    &Opt::each(LOAD, "threads", "N", "Threads of the client, each with a loop of its own")
        .number()
        .by_default("1"),
    &Opt::each(
        LOAD,
        "io",
        "auto,epoll,io-uring",
        "What the client waits with; auto: io_uring where the kernel allows it, else epoll",
    )
    .by_default("auto"),
    &Opt::each(
        LOAD,
        "batch",
        "TIME",
        "Handle what has happened together, at most this much later: less CPU per request; \
         latency stays exact, as the kernel stamps what it receives",
    )
    .by_default("0"),
    &Opt::each(
        LOAD,
        "timeout",
        "TIME",
        "Time limit of one request, from when it was due to its last byte",
    )
    .by_default("10s"),
    &Opt::each(LOAD, "connect-timeout", "TIME", "Time limit of one handshake")
        .derived("that of --timeout"),
    &BIND,
    &CONGESTION,
    &Opt::one(
        SUCCESS,
        "expect-status",
        "STATUS",
        "Statuses that are successes, with + between: 200, 2xx, 2xx+304",
    )
    .by_default("2xx+3xx"),
    &Opt::one(
        SUCCESS,
        "expect-sha256",
        "HEX",
        "SHA-256 that the content of every response must have",
    ),
    &Opt::one(SUCCESS, "body-limit", "SIZE", "Most content of one response").by_default("64M"),
    &Opt::each(SERVER, "workers", "N", "Its processes, or threads where it has none")
        .number()
        .by_default("1")
        .only(BY_NAME),
    &Opt::each(SERVER, "keepalive", "on,off", "Whether it lets a connection be used again")
        .by_default("on")
        .only(BY_NAME),
    &Opt::each(
        SERVER,
        "keepalive-requests",
        "N",
        "Requests after which it closes a connection, 0: never",
    )
    .number()
    .derived("the server's own")
    .only(BY_NAME),
    &Opt::each(
        SERVER,
        "keepalive-timeout",
        "TIME",
        "Time after which it closes an idle connection",
    )
    .derived("the server's own")
    .only(BY_NAME),
    &Opt::each(SERVER, "response", "SIZE", "Size of the content of its responses, like 13 or 10K")
        .number()
        .by_default("13")
        .only(BY_NAME),
    &Opt::each(SERVER, "work", "TIME", "Time it works before it answers")
        .by_default("0")
        .only(&[Only::Lab, Only::When("server", &["puma", "null"])]),
    &Opt::each(SERVER, "backlog", "N", "Backlog of its listener")
        .number()
        .derived("the server's own")
        .only(BY_NAME),
    &TAP.worded(
        "On a link without emulation: let a packet tap ride along, which counts packets by \
         kind (it costs CPU)",
    ),
];
