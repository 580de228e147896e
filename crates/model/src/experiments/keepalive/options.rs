//! Options of `keepalive`, and which of its arms are compared.

use serde_json::Value;

use crate::experiments::option::{Only, Opt};
use crate::experiments::options::{
    CLIENT_SYSCTL, CONGESTION, IPV6, PACKET_RELAY, PLACE, SERVER_SYSCTL, links,
};
use crate::study::Study;

/// Heading of the connections and the writer.
const CONNECTIONS: &str = "Connections";
/// Heading of how idle connections are checked.
const CHECKING: &str = "Checking";
/// Heading of lazy reaping.
const LAZY: &str = "Lazy reaping";
/// Heading of faults.
const DEATHS: &str = "Deaths";

/// The option whose value decides which others apply.
const MECHANISM: &str = "mechanism";
/// Where an option of lazy reaping applies.
const LAZILY: &[Only] = &[Only::Lab, Only::When(MECHANISM, &["lazy"])];
/// Where an option of a fault applies.
const OF_FAULT: &[Only] = &[Only::Lab, Only::With("fault", "")];
/// Where an option of judged tests applies.
const JUDGED: &[Only] = &[Only::When(MECHANISM, &["heartbeat", "lazy"])];

/// Every option, as the help shows them.
pub(super) const OPTIONS: &[&Opt] = &[
    &Opt::each(
        PLACE,
        "link",
        "LINK",
        "Link between the two hosts: a name (see `tcptoll links`) or \
         rtt=37ms,rate=1gbit,loss=0.1%; given again, or several names: one arm each",
    )
    .split(links)
    .by_default("rtt=0.25ms,rate=100mbit")
    .only(&[Only::Lab]),
    &Opt::one(
        PLACE,
        "to",
        "HOST:PORT",
        "A server that already runs, instead of the lab; `tcptoll serve keepalive` is one",
    ),
    &IPV6,
    &PACKET_RELAY,
    &Opt::one(
        PLACE,
        "bind",
        "ADDRESS",
        "Source addresses of the client, separated by commas; taken in turn",
    ),
    &CLIENT_SYSCTL
        .worded("Sysctl of the client host, like net.ipv4.tcp_retries2=8; may be given again"),
    &SERVER_SYSCTL.worded(
        "Sysctl of the server host, like net.ipv4.tcp_keepalive_time=60; may be given again",
    ),
    &Opt::each(CONNECTIONS, "sockets", "N", "Connections, the one that writes among them")
        .number()
        .by_default("1000"),
    &Opt::each(CONNECTIONS, "writer", "on|off", "Whether one of them writes while the others idle")
        .derived("on; off with --to"),
    &Opt::each(CONNECTIONS, "message", "SIZE", "Bytes of a message that it writes")
        .number()
        .by_default("1000"),
    &Opt::each(CONNECTIONS, "rate", "PER_SECOND", "Messages per second")
        .number()
        .derived("without pause"),
    &Opt::each(
        CONNECTIONS,
        "wait",
        "own|select",
        "What the program that writes waits for: its own socket, or all of them with \
         select(2) before each message",
    )
    .by_default("own"),
    &CONGESTION.in_group(CONNECTIONS),
    &Opt::each(CONNECTIONS, "warmup", "TIME", "Time before the measured window")
        .derived("one round of checks, at most 1m"),
    &Opt::each(CONNECTIONS, "duration", "TIME", "Length of the measured window")
        .derived("2s, or one round of checks, at most 1m, if that is longer"),
    &Opt::each(
        CHECKING,
        "mechanism",
        "NAME",
        "How connections that idle are checked; listed below",
    )
    .derived("none,tcp,heartbeat,lazy, with --fault cut"),
    &Opt::each(CHECKING, "side", "HOST", "Which host checks: server, client or both")
        .by_default("server")
        .only(&[Only::Lab, Only::When(MECHANISM, &["tcp", "heartbeat", "lazy", "write"])]),
    &Opt::each(
        CHECKING,
        "idle",
        "TIME",
        "Idle time before the first probe or Null; `kernel`: the host's tcp_keepalive_time",
    )
    .by_default("1s")
    .only(&[Only::When(MECHANISM, &["tcp", "heartbeat", "lazy"])]),
    &Opt::each(
        CHECKING,
        "interval",
        "TIME",
        "Between unanswered probes, or between two writes; `kernel`: the host's \
         tcp_keepalive_intvl",
    )
    .by_default("1s")
    .only(&[Only::When(MECHANISM, &["tcp", "write"])]),
    &Opt::each(
        CHECKING,
        "probes",
        "N",
        "Unanswered probes until a peer is given up; `kernel`: the host's \
         tcp_keepalive_probes",
    )
    .number()
    .by_default("3")
    .only(&[Only::When(MECHANISM, &["tcp"])]),
    &Opt::each(
        CHECKING,
        "answer-within",
        "TIME",
        "Evidence of life must come so soon after a Null",
    )
    .by_default("1s")
    .only(JUDGED),
    &Opt::each(
        CHECKING,
        "evidence",
        "WHAT",
        "What counts as evidence: acknowledged (by the peer's kernel) or answered (by its \
         program)",
    )
    .by_default("acknowledged")
    .only(JUDGED),
    &Opt::each(CHECKING, "user-timeout", "TIME", "TCP_USER_TIMEOUT of checked connections")
        .derived("not set")
        .only(&[Only::When(MECHANISM, &["tcp", "heartbeat", "lazy", "write"])]),
    &Opt::one(
        CHECKING,
        "null",
        "TEXT",
        "What a heartbeat sends to a server of yours, like 'PING\\r\\n'",
    )
    .only(&[Only::Target, Only::When(MECHANISM, &["heartbeat", "write"])]),
    &Opt::each(CHECKING, "tick", "TIME", "What is due within this is handled in one wake-up")
        .by_default("10ms")
        .only(&[Only::When(MECHANISM, &["heartbeat", "lazy", "write"])]),
    &Opt::each(
        CHECKING,
        "detect-within",
        "TIME",
        "Choose the cheapest settings that know of a death within this time",
    )
    .only(&[Only::When(MECHANISM, &["tcp", "heartbeat", "write"])]),
    &Opt::each(
        CHECKING,
        "assumed-loss",
        "SHARE",
        "Packet loss each way that those settings have to stand",
    )
    .by_default("1%")
    .only(&[Only::With("detect-within", "")]),
    &Opt::each(LAZY, "most", "N", "lazy: connections from which on room is made")
        .number()
        .derived("as many as idle")
        .only(LAZILY),
    &Opt::each(LAZY, "unused-for", "TIME", "lazy: test only those unused for so long")
        .derived("all")
        .only(LAZILY),
    &Opt::each(LAZY, "until", "WHEN", "lazy: test until below --most, or until all-tested")
        .by_default("below")
        .only(LAZILY),
    &Opt::each(LAZY, "order", "ORDER", "lazy: first those with the earliest last-use, or by age")
        .by_default("last-use")
        .only(LAZILY),
    &Opt::each(LAZY, "at-once", "N", "lazy: connections under test at any moment")
        .number()
        .by_default("64")
        .only(LAZILY),
    &Opt::each(
        LAZY,
        "arrivals",
        "PER_SECOND",
        "Connections that arrive per second, after the fault if there is one",
    )
    .number()
    .derived("lazy with a fault: as many in 2 s as die")
    .only(&[Only::Lab]),
    &Opt::each(
        DEATHS,
        "fault",
        "WHAT",
        "What happens to idle connections after the window: cut, freeze, reset, close or \
         loss=5%",
    )
    .only(&[Only::Lab]),
    &Opt::each(DEATHS, "fault-share", "SHARE", "To which share of them")
        .derived("10%; loss: all")
        .only(OF_FAULT),
    &Opt::each(DEATHS, "watch", "TIME", "How long is watched for it to be known")
        .derived("the bound by arithmetic and 1s, or 5s")
        .only(OF_FAULT),
];

/// Without a mechanism all are measured, and in the lab some connections die. A server that is not
/// ours is left unchecked unless a detection time is wanted.
pub(super) fn complete(study: &mut Study) {
    let has = |option: &str| !study.values(option).is_empty();
    if has(MECHANISM) {
        return;
    }
    let (lab, cuts) = (!has("to"), !has("to") && !has("fault"));
    let mechanisms: &[&str] = match (has("detect-within"), lab) {
        (false, true) => &["none", "tcp", "heartbeat", "lazy"],
        (true, true) => &["tcp", "heartbeat", "lazy"],
        (true, false) => &["tcp", "heartbeat"],
        (false, false) => &[],
    };
    if !mechanisms.is_empty() {
        let levels = mechanisms.iter().map(|&name| Value::from(name)).collect();
        study.factors.insert(MECHANISM.to_owned(), levels);
    }
    if cuts {
        study.settings.insert("fault".to_owned(), Value::from("cut"));
    }
}

/// Arms are compared by the rate of their writer. Where there is none, or where connections die,
/// what matters is detection and its cost, which no single metric compares.
pub(super) fn compares(study: &Study) -> bool {
    let silent = study.values("writer").iter().any(|writer| writer == "off");
    study.values("fault").is_empty() && !silent && study.values("to").is_empty()
}
