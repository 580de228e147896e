//! Options of `http`.

use tcptoll_core::experiment::option::{Only, Opt};
use tcptoll_core::experiment::options::{
    BIND, CLIENT_ADDRESS, CLIENT_HOST, CLIENT_SYSCTL, CONGESTION, DEAD_AFTER, IPV6, LINK, LOAD,
    PACKET_RELAY, PLACE, REMOTE_BINARY, SERVE, SERVER_ADDRESS, SERVER_SYSCTL, SSH_COMMAND, TAP,
};
use tcptoll_core::http::server;

/// Heading of what is asked for.
const REQUESTS: &str = "Requests";
/// Heading of what counts as success.
const SUCCESS: &str = "Success criteria";
/// Heading of servers that are known by name.
const SERVER: &str = "Server settings";

/// Where an option of a server known by name applies.
const BY_NAME: &[Only] = &[Only::Lab, Only::When("server", &server::NAMES)];

/// Every option, as the help shows them.
pub(super) const OPTIONS: &[&Opt] = &[
    &Opt::arguments(
        "url",
        "URL",
        "URL to request from a running server instead of the lab's. Several URLs of one server are \
         requested in turn; several servers are compared",
    ),
    &LINK,
    &Opt::each(
        PLACE,
        "server",
        "NAME|COMMAND|ssh://HOST",
        "Server to start in the lab, or with --serve on a host of yours, ssh://[USER@]HOST[:PORT]: nginx, apache (apache-event, apache-worker, apache-prefork), \
         puma, null (tcptoll's own, for calibration) or a command. Repeat the option, or list \
         several names, to compare servers",
    )
    .split(server::split)
    .by_default("nginx")
    .only(&[Only::Lab]),
    &Opt::one(
        PLACE,
        "port",
        "PORT",
        "Port of the server that a command starts, if it listens on several",
    )
    .only(&[Only::Lab]),
    &IPV6,
    &PACKET_RELAY,
    &CLIENT_SYSCTL
        .worded("Set a sysctl on the client host, e.g. net.ipv4.tcp_tw_reuse=1; may be repeated"),
    &SERVER_SYSCTL,
    &CLIENT_HOST,
    &SERVE,
    &SERVER_ADDRESS,
    &CLIENT_ADDRESS,
    &SSH_COMMAND,
    &REMOTE_BINARY,
    &DEAD_AFTER,
    &Opt::each(
        REQUESTS,
        "reuse",
        "WAY",
        "How connections are reused; the values are explained below",
    )
    .by_default("keep-alive"),
    &Opt::each(REQUESTS, "method", "NAME", "HTTP method of every request")
        .letters(&['m'])
        .derived("GET; POST with --body"),
    &Opt::one(
        REQUESTS,
        "path",
        "PATH",
        "Path to request from the lab's server. Several paths, separated by spaces, are requested \
         in turn",
    )
    .derived("the path of the server's small page")
    .only(&[Only::Lab]),
    &Opt::together(
        REQUESTS,
        "header",
        "NAME: VALUE",
        "Header of every request, e.g. 'Accept: text/html'; may be repeated",
    )
    .letters(&['H']),
    &Opt::one(REQUESTS, "body", "TEXT|@FILE", "Body of every request, at most 1 MiB"),
    &Opt::one(
        REQUESTS,
        "access-log",
        "FILE",
        "Replay the GET and HEAD requests of an access log (common or combined format) in their \
         order, to one URL or to the lab's server",
    ),
    &Opt::each(
        REQUESTS,
        "tls",
        "off,full,resumed",
        "Use TLS with full handshakes (full), or with session resumption if the server allows it \
         (resumed). With an https:// URL only these two are possible",
    )
    .derived("off; resumed with https://"),
    &Opt::one(REQUESTS, "ca", "FILE", "File of additional root certificates (PEM)"),
    &Opt::flag(REQUESTS, "insecure", "Do not verify the server's certificate"),
    &Opt::each(LOAD, "connections", "N", "Maximum number of concurrent connections")
        .letters(&['c'])
        .alias(&["concurrency"])
        .number()
        .derived("50; in the lab without --rate the larger of 2 and --threads"),
    &Opt::each(
        LOAD,
        "rate",
        "PER_SECOND",
        "Requests to send per second, whether or not earlier ones have been answered (open loop). \
         Latency counts from the scheduled time of each",
    )
    .letters(&['R', 'q'])
    .number(),
    &Opt::one(
        LOAD,
        "share",
        "PART/OF",
        "Send one part of the load of --rate, e.g. 2/3: the second of three machines. Together they \
         send the whole load, and tcptoll merge adds up what they measured",
    )
    .only(&[Only::With("rate", "")]),
    &Opt::each(
        LOAD,
        "spread",
        "constant,poisson",
        "Spacing of the requests of --rate: constant, or random like independent users (poisson)",
    )
    .by_default("constant")
    .only(&[Only::With("rate", "")]),
    &Opt::each(LOAD, "duration", "TIME", "Time during which each trial starts requests, e.g. 30s")
        .letters(&['d', 'z'])
        .derived("1s without --requests"),
    &Opt::each(
        LOAD,
        "requests",
        "N",
        "Number of requests per trial, instead of --duration; without --warmup no others are sent. \
         With both, the trial ends at whichever comes first",
    )
    .letters(&['n'])
    .number(),
    &Opt::each(
        LOAD,
        "warmup",
        "N|TIME",
        "Warm-up before the measurement, as a number of requests or a time. Its connections stay \
         open; its figures are reported separately",
    )
    .number()
    .derived("200ms plus --ramp; none with --requests or for a public address"),
    &Opt::each(LOAD, "ramp", "TIME", "Time over which the first connections are opened, evenly")
        .derived(
            "0 with --rate, or for up to 1000 connections on a link without delay; otherwise 0.1ms \
             per connection, at least one round trip",
        ),
    &Opt::each(LOAD, "threads", "N", "Client threads, each with its own event loop")
        .letters(&['t'])
        .number()
        .by_default("1"),
    &Opt::each(
        LOAD,
        "io",
        "auto,epoll,io-uring",
        "I/O interface of the client. auto uses io_uring if the kernel allows it, otherwise epoll",
    )
    .by_default("auto"),
    &Opt::each(
        LOAD,
        "batch",
        "TIME",
        "Process events in batches, delaying each by at most TIME, e.g. 100us. Saves CPU; latency \
         stays exact because it uses kernel receive timestamps",
    )
    .by_default("0"),
    &Opt::each(
        LOAD,
        "timeout",
        "TIME",
        "Timeout of a request, from when it was due to the last byte of its response",
    )
    .by_default("10s"),
    &Opt::each(LOAD, "connect-timeout", "TIME", "Timeout of the handshake of a connection")
        .derived("same as --timeout"),
    &BIND,
    &CONGESTION,
    &Opt::one(
        SUCCESS,
        "expect-status",
        "STATUS",
        "Status codes that count as success, joined by +, e.g. 200, 2xx or 2xx+304",
    )
    .by_default("2xx+3xx"),
    &Opt::one(
        SUCCESS,
        "expect-sha256",
        "HEX",
        "SHA-256 that the body of every response must have, in hexadecimal",
    ),
    &Opt::one(SUCCESS, "body-limit", "SIZE", "Maximum size of a response body").by_default("64M"),
    &Opt::each(SERVER, "workers", "N", "Worker processes of the server, or threads if it has none")
        .number()
        .derived("1; with apache-prefork one per connection")
        .only(BY_NAME),
    &Opt::each(SERVER, "keepalive", "on,off", "HTTP keep-alive: several requests per connection")
        .by_default("on")
        .only(BY_NAME),
    &Opt::each(
        SERVER,
        "keepalive-requests",
        "N",
        "Requests after which the server closes a connection. 0 means no limit",
    )
    .number()
    .derived("server default")
    .only(BY_NAME),
    &Opt::each(
        SERVER,
        "keepalive-timeout",
        "TIME",
        "Idle time after which the server closes a connection, e.g. 5s",
    )
    .derived("server default")
    .only(BY_NAME),
    &Opt::each(SERVER, "response", "SIZE", "Size of the response body in bytes, e.g. 13 or 10K")
        .number()
        .by_default("13")
        .only(BY_NAME),
    &Opt::each(SERVER, "work", "TIME", "Time before the server answers, e.g. 5ms")
        .by_default("0")
        .only(&[Only::Lab, Only::When("server", &["puma", "null"])]),
    &Opt::each(SERVER, "backlog", "N", "Backlog that the server passes to listen(2)")
        .number()
        .derived("server default")
        .only(BY_NAME),
    &TAP.worded(
        "On a direct link or loopback, capture packets in the measured trial and count them by \
         kind (costs CPU)",
    ),
];
