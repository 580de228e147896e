//! Options of `connect`.

use serde_json::Value;

use crate::experiments::option::{Only, Opt};
use crate::experiments::options::{
    BIND, CLIENT_SYSCTL_RETRIES, CONCURRENCY, CONGESTION, CONNECT_COUNT, CONNECT_RATE,
    CONNECT_TIMEOUT, IPV6, LINK, LOAD, PACKET_RELAY, PAUSE, PAUSE_EVERY, PLACE, SERVER_SYSCTL, TAP,
};
use crate::study::{RoundsAsked, Study};

/// Heading of tcptoll's own server.
const SERVER: &str = "Server";

/// Every option, as the help shows them.
pub(super) const OPTIONS: &[&Opt] = &[
    &LINK,
    &Opt::one(PLACE, "to", "HOST:PORT", "A server that already runs, instead of the lab"),
    &Opt::one(
        PLACE,
        "server",
        "COMMAND",
        "Command of a real server to start on the lab's server host",
    )
    .only(&[Only::Lab]),
    &Opt::one(PLACE, "port", "PORT", "Port of that server, if it listens on several")
        .only(&[Only::With("server", "'command'")]),
    &IPV6,
    &PACKET_RELAY,
    &CLIENT_SYSCTL_RETRIES,
    &SERVER_SYSCTL,
    &Opt::one(
        PLACE,
        "distance-km",
        "KM",
        "Distance between the hosts, for the physical floor beside the result",
    ),
    &CONNECT_COUNT.derived("1000, within 10s with --to"),
    &Opt::each(
        LOAD,
        "duration",
        "TIME",
        "Time each trial opens connections for, instead of a number of them; list: one arm \
         each",
    ),
    &Opt::each(
        LOAD,
        "warmup",
        "N|TIME",
        "Connections, or time, before what is measured; they are counted apart",
    )
    .number()
    .derived("20 in the lab, none with --to"),
    &CONCURRENCY.derived("about 500 per second's worth"),
    &CONNECT_RATE,
    &PAUSE_EVERY,
    &PAUSE,
    &CONNECT_TIMEOUT,
    &BIND,
    &CONGESTION,
    &Opt::each(LOAD, "fast-open", "on,off", "Send the first bytes with the SYN (TCP Fast Open)")
        .alone("on")
        .by_default("off"),
    &Opt::each(
        LOAD,
        "first-byte",
        "on,off",
        "Wait for the server's first byte before closing; off: close once connected",
    )
    .derived("on; off with --to or --server, unless there is something to --send"),
    &Opt::one(
        LOAD,
        "send",
        "TEXT",
        "Bytes to send once connected, to a server that does not speak first; \\r \\n \\xHH are \
         bytes",
    ),
    &Opt::each(SERVER, "backlog", "N", "Backlog of tcptoll's own server")
        .number()
        .by_default("4096")
        .only(&[Only::Lab]),
    &Opt::each(SERVER, "accept-delay", "TIME", "Time its process works before each accept(2)")
        .by_default("0")
        .only(&[Only::Lab]),
    &TAP.worded(
        "On a link without emulation: let the packet tap ride along in the measured trial, \
         instead of a shorter one of its own (it costs CPU)",
    ),
    &Opt::setting(
        "max-time",
        "TIME",
        "Time limit of the connections of an arm, on a server that already runs",
    ),
];

/// `--max-time` of one arm on a server that is not ours limits that arm and not a number of rounds,
/// unless other options ask for rounds or limit the arm.
pub(super) fn complete(study: &mut Study) {
    let has = |option: &str| study.settings.contains_key(option);
    let only_time = RoundsAsked { max_time: study.rounds.max_time.clone(), ..<_>::default() };
    if !has("to") || has("duration") || !study.factors.is_empty() || study.rounds != only_time {
        return;
    }
    if let Some(time) = study.rounds.max_time.take() {
        study.settings.insert("max-time".to_owned(), Value::from(time));
    }
}
