//! Options of `time-wait`.

use tcptoll_core::experiment::option::Only;
use tcptoll_core::experiment::option::Opt;
use tcptoll_core::experiment::options::{IPV6, LINK, LOAD, PACKET_RELAY, PLACE, SERVER_SYSCTL};
use tcptoll_core::study::Study;

/// Heading of local ports and what keeps them.
const PORTS: &str = "Ports";

/// Every option, as the help shows them.
pub(super) const OPTIONS: &[&Opt] = &[
    &LINK,
    &IPV6,
    &PACKET_RELAY,
    &Opt::together(
        PLACE,
        "client-sysctl",
        "NAME=VALUE",
        "Set a sysctl on the client host in every arm, e.g. net.ipv4.tcp_timestamps=0; may be \
         repeated. To compare values, use --port-range, --tw-reuse or --max-tw-buckets",
    )
    .only(&[Only::Lab]),
    &SERVER_SYSCTL,
    &Opt::each(
        PORTS,
        "port-range",
        "LOW-HIGH",
        "net.ipv4.ip_local_port_range of the client host, e.g. 1024-65535",
    )
    .derived("kernel default, 32768-60999"),
    &Opt::each(
        PORTS,
        "tw-reuse",
        "0,1,2",
        "net.ipv4.tcp_tw_reuse of the client host: 0 (off), 1 (reuse ports in TIME-WAIT after 1s) \
         or 2 (the same on loopback only)",
    )
    .derived("kernel default, 2"),
    &Opt::each(
        PORTS,
        "max-tw-buckets",
        "N",
        "net.ipv4.tcp_max_tw_buckets of both hosts. Sockets beyond this number are closed \
         immediately, without TIME-WAIT",
    )
    .number()
    .derived("kernel default"),
    &Opt::each(PORTS, "sources", "N", "Number of source addresses of the client, used in turn")
        .number()
        .by_default("1"),
    &Opt::each(
        PORTS,
        "bind-no-port",
        "on,off",
        "IP_BIND_ADDRESS_NO_PORT of sockets that bind a source address. If on, connect(2) chooses \
         the port; if off, bind(2) does",
    )
    .by_default("on"),
    &Opt::each(
        PORTS,
        "close",
        "client,server,never",
        "Side that closes first and so holds TIME-WAIT. never: each worker keeps one long-lived \
         connection",
    )
    .by_default("client"),
    &Opt::each(
        PORTS,
        "held",
        "N|SHARE%",
        "Connections to open and close before the measurement, as a number or a share of the ports \
         of one source address. With --close client their ports are then in TIME-WAIT",
    )
    .number()
    .by_default("0"),
    &Opt::each(
        LOAD,
        "count",
        "N",
        "Operations per trial: connect, send a byte, receive one, close",
    )
    .number()
    .derived("until the ports are used up; no limit with --duration"),
    &Opt::each(LOAD, "duration", "TIME", "Time during which each trial starts operations")
        .derived("20s; no limit with --count"),
    &Opt::each(
        LOAD,
        "rate",
        "PER_SECOND",
        "Operations to start per second, whether or not earlier ones have ended (open loop). \
         Latency counts from the scheduled start of each",
    )
    .number(),
    &Opt::each(
        LOAD,
        "workers",
        "N",
        "Concurrent workers that use blocking calls, like processes of a web service",
    )
    .number()
    .by_default("4"),
    &Opt::each(LOAD, "work", "TIME", "CPU time that a worker spends before each connection")
        .by_default("0"),
    &Opt::one(LOAD, "timeout", "TIME", "Timeout of connecting, and of the answer")
        .by_default("10s"),
];

/// Running out of ports is the question: connections that fail for want of one do not spoil the run.
pub(super) fn complete(study: &mut Study) {
    study.failures.get_or_insert_with(|| "expected".to_owned());
}
