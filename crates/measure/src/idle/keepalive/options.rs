//! Options of `keepalive`, and which of its arms are compared.

use serde_json::Value;
use tcptoll_core::experiment::option::{Only, Opt};
use tcptoll_core::experiment::options::{
    CLIENT_ADDRESS, CLIENT_HOST, CLIENT_SYSCTL, CONGESTION, DEAD_AFTER, IPV6, PACKET_RELAY, PLACE,
    REMOTE_BINARY, SERVER_ADDRESS, SERVER_HOST, SERVER_SYSCTL, SSH_COMMAND, an_arm_each,
    is_over_ssh, links,
};
use tcptoll_core::study::Study;

/// Heading of the connections and the writer.
const CONNECTIONS: &str = "Connections";
/// Heading of how idle connections are checked.
const CHECKING: &str = "Detection";
const LAZY: &str = "Idle-connection reaping (--mechanism lazy)";
const DEATHS: &str = "Faults";

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
        "Link between client and server: a name (see `tcptoll links`) or values like \
         rtt=37ms,rate=1gbit,loss=0.1%. Repeat the option, or list several names, to compare links",
    )
    .split(links)
    .by_default("rtt=0.25ms,rate=100mbit")
    .only(&[Only::Lab, Only::OwnNetwork]),
    &Opt::each(
        PLACE,
        "to",
        "HOST:PORT",
        "Connect to a running server instead of using the lab, e.g. to `tcptoll serve keepalive`; several are \
         an arm each",
    ),
    &IPV6,
    &PACKET_RELAY,
    &Opt::one(
        PLACE,
        "bind",
        "ADDRESS",
        "Source addresses of the client, separated by commas and used in turn",
    ),
    &CLIENT_SYSCTL
        .worded("Set a sysctl on the client host, e.g. net.ipv4.tcp_retries2=8; may be repeated"),
    &SERVER_SYSCTL.worded(
        "Set a sysctl on the server host, e.g. net.ipv4.tcp_keepalive_time=60; may be repeated",
    ),
    &SERVER_HOST,
    &CLIENT_HOST,
    &SERVER_ADDRESS,
    &CLIENT_ADDRESS,
    &SSH_COMMAND,
    &REMOTE_BINARY,
    &DEAD_AFTER,
    &Opt::each(CONNECTIONS, "sockets", "N", "Number of connections, including the one that writes")
        .letters(&['c'])
        .alias(&["connections"])
        .number()
        .by_default("1000"),
    &Opt::each(
        CONNECTIONS,
        "writer",
        "on|off",
        "Write on one connection while the others are idle",
    )
    .derived("on; off with --to"),
    &Opt::each(CONNECTIONS, "message", "SIZE", "Size of each message of the writing connection")
        .number()
        .by_default("1000"),
    &Opt::each(CONNECTIONS, "rate", "PER_SECOND", "Messages of the writing connection per second")
        .number()
        .derived("as many as possible"),
    &Opt::each(
        CONNECTIONS,
        "wait",
        "own|select",
        "What the writing program waits for before each message: its own socket (own), or all \
         sockets with select(2) (select)",
    )
    .by_default("own"),
    &CONGESTION.in_group(CONNECTIONS),
    &Opt::each(CONNECTIONS, "warmup", "TIME", "Time before the measured window")
        .derived("one round of probes or heartbeats, at least 100ms; 100ms if a round exceeds 1m"),
    &Opt::each(CONNECTIONS, "duration", "TIME", "Length of the measured window")
        .letters(&['d'])
        .derived("one round of probes or heartbeats, at least 2s; 2s if a round exceeds 1m"),
    &Opt::each(
        CHECKING,
        "mechanism",
        "NAME",
        "How idle connections are tested for dead peers; the values are explained below",
    )
    .derived(
        "none,tcp,heartbeat,lazy, with --fault cut unless --writer off or --fault is given; none with --to",
    ),
    &Opt::each(CHECKING, "side", "HOST", "Host that tests its peers: server, client or both")
        .by_default("server")
        .only(&[Only::Lab, Only::When(MECHANISM, &["tcp", "heartbeat", "lazy", "write"])]),
    &Opt::each(
        CHECKING,
        "idle",
        "TIME",
        "Idle time before the first probe (TCP_KEEPIDLE) or heartbeat, e.g. 60s. `kernel` uses the \
         host's tcp_keepalive_time",
    )
    .by_default("1s")
    .only(&[Only::When(MECHANISM, &["tcp", "heartbeat", "lazy"])]),
    &Opt::each(
        CHECKING,
        "interval",
        "TIME",
        "Time between unanswered probes (TCP_KEEPINTVL), or between two writes. `kernel` uses the \
         host's tcp_keepalive_intvl",
    )
    .by_default("1s")
    .only(&[Only::When(MECHANISM, &["tcp", "write"])]),
    &Opt::each(
        CHECKING,
        "probes",
        "N",
        "Unanswered probes after which a peer counts as dead (TCP_KEEPCNT). `kernel` uses the \
         host's tcp_keepalive_probes",
    )
    .number()
    .by_default("3")
    .only(&[Only::When(MECHANISM, &["tcp"])]),
    &Opt::each(
        CHECKING,
        "answer-within",
        "TIME",
        "Time within which a heartbeat must be acknowledged or answered (see --evidence)",
    )
    .by_default("1s")
    .only(JUDGED),
    &Opt::each(
        CHECKING,
        "evidence",
        "WHAT",
        "What proves that a peer is alive: acknowledged (its kernel has acknowledged the \
         heartbeat) or answered (its program has answered)",
    )
    .by_default("acknowledged")
    .only(JUDGED),
    &Opt::each(CHECKING, "user-timeout", "TIME", "TCP_USER_TIMEOUT of tested connections")
        .derived("not set")
        .only(&[Only::When(MECHANISM, &["tcp", "heartbeat", "lazy", "write"])]),
    &Opt::one(
        CHECKING,
        "null",
        "TEXT",
        "Bytes that a heartbeat sends to your own server, e.g. 'PING\\r\\n'",
    )
    .only(&[Only::Target, Only::When(MECHANISM, &["heartbeat", "write"])]),
    &Opt::each(
        CHECKING,
        "tick",
        "TIME",
        "Timer resolution: timers due within TIME share a wake-up",
    )
    .by_default("10ms")
    .only(&[Only::When(MECHANISM, &["heartbeat", "lazy", "write"])]),
    &Opt::each(
        CHECKING,
        "detect-within",
        "TIME",
        "Choose the cheapest settings that detect a dead peer within TIME, e.g. 30s",
    )
    .only(&[Only::When(MECHANISM, &["tcp", "heartbeat", "write"])]),
    &Opt::each(
        CHECKING,
        "assumed-loss",
        "SHARE",
        "Packet loss in each direction that the settings of --detect-within must tolerate",
    )
    .by_default("1%")
    .only(&[Only::With("detect-within", "")]),
    &Opt::each(
        LAZY,
        "most",
        "N",
        "Connection limit; at this number the server starts testing idle connections",
    )
    .number()
    .derived("number of idle connections")
    .only(LAZILY),
    &Opt::each(LAZY, "unused-for", "TIME", "Test only connections that were unused for this time")
        .derived("test all")
        .only(LAZILY),
    &Opt::each(
        LAZY,
        "until",
        "WHEN",
        "When to stop testing: at fewer connections than --most (below), or when all were tested \
         (all-tested)",
    )
    .by_default("below")
    .only(LAZILY),
    &Opt::each(
        LAZY,
        "order",
        "ORDER",
        "Connections to test first: the least recently used (last-use) or the oldest (age)",
    )
    .by_default("last-use")
    .only(LAZILY),
    &Opt::each(LAZY, "at-once", "N", "Maximum number of connections that are tested concurrently")
        .number()
        .by_default("64")
        .only(LAZILY),
    &Opt::each(
        LAZY,
        "arrivals",
        "PER_SECOND",
        "New connections per second, with any mechanism. If there is a fault, they arrive after it",
    )
    .number()
    .derived("none; with lazy and a fault, as many within 2s as the fault hits")
    .only(&[Only::Lab]),
    &Opt::each(
        DEATHS,
        "fault",
        "WHAT",
        "Fault of idle connections after the measured window: cut (the link drops their packets), \
         freeze (the peer's process stops), reset, close or loss=5%",
    )
    .only(&[Only::Lab]),
    &Opt::each(DEATHS, "fault-share", "SHARE", "Share of idle connections that the fault hits")
        .derived("10%; 100% for loss")
        .only(OF_FAULT),
    &Opt::each(DEATHS, "watch", "TIME", "Maximum time to wait until the fault is detected")
        .derived(
            "the computed bound plus 1s; 5s if there is no bound, or if it exceeds 2m without \
             --detect-within",
        )
        .only(OF_FAULT),
];

/// Without a mechanism all are measured, and in the lab some connections die. A server that is not
/// ours is left unchecked unless a detection time is wanted.
pub(super) fn complete(study: &mut Study) {
    choose(study);
    an_arm_each(study, "to");
    if !study.named_arms.is_empty() {
        // They are not compared by the rate of a writer that they do not have.
        study.compare.clear();
    }
}

fn choose(study: &mut Study) {
    let has = |option: &str| !study.values(option).is_empty();
    if has(MECHANISM) {
        return;
    }
    let lab = !has("to");
    // Without a writer the question is the cost, which is measured while all are alive.
    let writers = study.values("writer");
    let silent = !writers.is_empty() && writers.iter().all(|writer| writer == "off");
    let cuts = lab && !has("fault") && (!silent || has("detect-within"));
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
        // Between machines of the user's no packets are dropped.
        let over_ssh = is_over_ssh(study);
        let fault = if over_ssh { "freeze" } else { "cut" };
        study.settings.insert("fault".to_owned(), Value::from(fault));
    }
}

/// Arms are compared by the rate of their writer. Where there is none, or where connections die,
/// what matters is detection and its cost, which no single metric compares.
pub(super) fn compares(study: &Study) -> bool {
    let silent = study.values("writer").iter().any(|writer| writer == "off");
    let in_lab = study.values("to").is_empty() && study.named_arms.is_empty();
    study.values("fault").is_empty() && !silent && in_lab
}
