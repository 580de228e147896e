//! Options of `time-wait`.

use crate::experiments::option::Only;
use crate::experiments::option::Opt;
use crate::experiments::options::{IPV6, LINK, LOAD, PACKET_RELAY, PLACE, SERVER_SYSCTL};
use crate::study::Study;

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
        "Sysctl of the client host, like net.ipv4.tcp_timestamps=0; may be given again. All apply to \
         every arm: a list of values makes no arms. --port-range, --tw-reuse and --max-tw-buckets do",
    )
    .only(&[Only::Lab]),
    &SERVER_SYSCTL,
    &Opt::each(
        PORTS,
        "port-range",
        "LOW-HIGH",
        "net.ipv4.ip_local_port_range of the client host, like 1024-65535",
    )
    .derived("the kernel's own, 32768-60999"),
    &Opt::each(
        PORTS,
        "tw-reuse",
        "0,1,2",
        "net.ipv4.tcp_tw_reuse of the client host: 1 reuses ports in TIME-WAIT after 1 s, 2 on \
         loopback only",
    )
    .derived("the kernel's own, 2"),
    &Opt::each(
        PORTS,
        "max-tw-buckets",
        "N",
        "net.ipv4.tcp_max_tw_buckets of both hosts: sockets in TIME-WAIT beyond N are closed \
         immediately",
    )
    .number()
    .derived("the kernel's own"),
    &Opt::each(
        PORTS,
        "sources",
        "N",
        "Source addresses of the client; connections take them in turn",
    )
    .number()
    .by_default("1"),
    &Opt::each(
        PORTS,
        "bind-no-port",
        "on,off",
        "IP_BIND_ADDRESS_NO_PORT for sockets that bind a source address: on lets connect(2) \
         choose the port, off lets bind(2) take one for itself",
    )
    .by_default("on"),
    &Opt::each(
        PORTS,
        "close",
        "client,server,never",
        "End that closes first and so keeps TIME-WAIT; never: each worker keeps one long-lived \
         connection",
    )
    .by_default("client"),
    &Opt::each(
        PORTS,
        "held",
        "N|SHARE%",
        "Connections before the measurement, closed by the end that --close names; the client's \
         leave their ports in TIME-WAIT. A number, or a share of the ports of one source address",
    )
    .number()
    .by_default("0"),
    &Opt::each(LOAD, "count", "N", "Operations in all: connect, send a byte, receive one, close")
        .number()
        .derived("until the ports are used up; without a limit with --duration"),
    &Opt::each(LOAD, "duration", "TIME", "Time in which each trial begins operations")
        .derived("20s, or until --count"),
    &Opt::each(
        LOAD,
        "rate",
        "PER_SECOND",
        "Operations due per second, whether or not others have ended (open loop); latency counts \
         from when each was due",
    )
    .number(),
    &Opt::each(
        LOAD,
        "workers",
        "N",
        "Workers that block in each call, as a process per request does",
    )
    .number()
    .by_default("4"),
    &Opt::each(LOAD, "work", "TIME", "CPU time that each operation takes besides its connection")
        .by_default("0"),
    &Opt::one(LOAD, "timeout", "TIME", "Time limit of connecting, and of the answer")
        .by_default("10s"),
];

/// Running out of ports is the question: connections that fail for want of one do not spoil the run.
pub(super) fn complete(study: &mut Study) {
    study.failures.get_or_insert_with(|| "expected".to_owned());
}
