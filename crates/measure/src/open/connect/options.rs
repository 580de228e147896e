//! Options of `connect`.

use serde_json::Value;

use tcptoll_core::experiment::option::{Only, Opt};
use tcptoll_core::experiment::options::{
    BIND, CLIENT_ADDRESS, CLIENT_HOST, CLIENT_SYSCTL_RETRIES, CONCURRENCY, CONGESTION,
    CONNECT_COUNT, CONNECT_RATE, CONNECT_TIMEOUT, DEAD_AFTER, IPV6, LINK, LOAD, PACKET_RELAY,
    PAUSE, PAUSE_EVERY, PLACE, REMOTE_BINARY, SERVE, SERVER_ADDRESS, SERVER_SYSCTL, SSH_COMMAND,
    TAP,
};
use tcptoll_core::study::{RoundsAsked, Study};

/// Heading of tcptoll's own server.
const SERVER: &str = "Server";

/// Every option, as the help shows them.
pub(super) const OPTIONS: &[&Opt] = &[
    &LINK,
    &Opt::one(PLACE, "to", "HOST:PORT", "Connect to a running server instead of using the lab"),
    &Opt::one(
        PLACE,
        "server",
        "COMMAND|ssh://HOST",
        "Command that starts a server on the lab's server host, e.g. 'redis-server --port 6379'; or a host of \
         yours for the server, ssh://[USER@]HOST[:PORT]",
    )
    .only(&[Only::Lab]),
    &Opt::one(PLACE, "port", "PORT", "Port of the server of --server, if it listens on several")
        .only(&[Only::With("server", "'command'")]),
    &IPV6,
    &PACKET_RELAY,
    &CLIENT_SYSCTL_RETRIES,
    &SERVER_SYSCTL,
    &Opt::one(
        PLACE,
        "distance-km",
        "KM",
        "Distance between the hosts in km. The result then states the shortest round trip that is \
         physically possible",
    ),
    &CLIENT_HOST,
    &SERVE,
    &SERVER_ADDRESS,
    &CLIENT_ADDRESS,
    &SSH_COMMAND,
    &REMOTE_BINARY,
    &DEAD_AFTER,
    &CONNECT_COUNT.derived("1000, or 100 for a public address; with --to, none starts after 10s"),
    &Opt::each(
        LOAD,
        "duration",
        "TIME",
        "Time during which each trial starts connections, e.g. 10s, instead of --count",
    ),
    &Opt::each(
        LOAD,
        "warmup",
        "N|TIME",
        "Warm-up before the measurement, as a number of connections or a time. Its figures are \
         reported separately",
    )
    .number()
    .derived("20 in the lab, none with --to"),
    &CONCURRENCY.derived("one for each 2 ms of round trip, at least one"),
    &CONNECT_RATE,
    &PAUSE_EVERY,
    &PAUSE,
    &CONNECT_TIMEOUT,
    &BIND,
    &CONGESTION,
    &Opt::each(LOAD, "fast-open", "on,off", "Send the first bytes in the SYN (TCP Fast Open)")
        .alone("on")
        .by_default("off"),
    &Opt::each(
        LOAD,
        "first-byte",
        "on,off",
        "Wait for the server's first byte before closing. If off, close as soon as the connection \
         is established",
    )
    .derived("on; off with --to or --server, unless --send is given"),
    &Opt::one(
        LOAD,
        "send",
        "TEXT",
        "Text to send after connecting, for a server that does not speak first. \\r, \\n and \\xHH \
         are escapes",
    ),
    &Opt::each(SERVER, "backlog", "N", "Backlog that tcptoll's own server passes to listen(2)")
        .number()
        .by_default("4096")
        .only(&[Only::Lab]),
    &Opt::each(
        SERVER,
        "accept-delay",
        "TIME",
        "Time that tcptoll's own server spends before each accept(2), e.g. 2ms",
    )
    .by_default("0")
    .only(&[Only::Lab]),
    &TAP.worded(
        "In the lab, on a direct link or loopback, capture packets in the measured trial (costs CPU). Without \
         it, a separate, shorter trial is captured",
    ),
    &Opt::setting(
        "max-time",
        "TIME",
        "With a running server (to): time after which an arm starts no more connections",
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
