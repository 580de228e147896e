//! Options of `accept-queue`.

use serde_json::Value;

use tcptoll_core::experiment::option::Opt;
use tcptoll_core::experiment::options::{
    ABORT_ON_OVERFLOW, ACCEPT_DELAY, ARRIVALS, BACKLOG, BIND, CLIENT_ADDRESS, CLIENT_HOST,
    CLIENT_SYSCTL_RETRIES, CONCURRENCY, CONNECT_COUNT, CONNECT_RATE, CONNECT_TIMEOUT, DEAD_AFTER,
    FIRST_BYTE, IPV6, LINK, LISTENERS, LOAD, MAX_SYN_BACKLOG, PACKET_RELAY, PAUSE, PAUSE_EVERY,
    REMOTE_BINARY, SERVER_ADDRESS, SERVER_HOST, SERVER_SYSCTL, SOMAXCONN, SSH_COMMAND, SYNCOOKIES,
    TAP,
};
use tcptoll_core::study::{RoundsAsked, Study};

/// Every option, as the help shows them.
pub(super) const OPTIONS: &[&Opt] = &[
    &LINK,
    &IPV6,
    &PACKET_RELAY,
    &CLIENT_SYSCTL_RETRIES,
    &SERVER_SYSCTL,
    &SERVER_HOST,
    &CLIENT_HOST,
    &SERVER_ADDRESS,
    &CLIENT_ADDRESS,
    &SSH_COMMAND,
    &REMOTE_BINARY,
    &DEAD_AFTER,
    &CONNECT_COUNT.derived("500"),
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
    .derived("20 connections, accepted without delay"),
    &CONCURRENCY,
    &CONNECT_RATE
        .derived("twice the server's accept rate, at most 10000; not used with --concurrency"),
    &ARRIVALS,
    &PAUSE_EVERY,
    &PAUSE,
    &CONNECT_TIMEOUT,
    &FIRST_BYTE,
    &BIND,
    &BACKLOG.by_default("128"),
    &SOMAXCONN,
    &MAX_SYN_BACKLOG,
    &LISTENERS,
    &ACCEPT_DELAY.by_default("1ms"),
    &ABORT_ON_OVERFLOW,
    &SYNCOOKIES,
    &TAP,
];

/// Options that choose what is compared, or how much arrives: with any of them typed, no backlogs are
/// added.
const CHOSEN: [&str; 13] = [
    "abort-on-overflow",
    "accept-delay",
    "backlog",
    "concurrency",
    "count",
    "duration",
    "first-byte",
    "max-syn-backlog",
    "pause-every",
    "rate",
    "server-sysctl",
    "somaxconn",
    "syncookies",
];

/// The two backlogs of a run without a choice. A burst of 500 at twice the rate of accept(2) leaves
/// about 250 in the queue: the first is too short for them, the second holds them.
const BACKLOGS: [u32; 2] = [128, 1024];

/// Rounds of a run without a choice: one more than an interval needs, as a round may be excluded.
const ROUNDS: u32 = 6;

/// Time limit of a connection in a run without a choice: a refused ACK of a SYN cookie is never answered,
/// and three seconds are enough for the first steps of both ladders.
const TIMEOUT: &str = "3s";

/// Without a choice, a backlog that is too short is compared with one that is not. Wherever backlogs are
/// compared, connections of the shorter ones are expected to fail.
pub(super) fn complete(study: &mut Study) {
    if study.values("backlog").len() > 1 {
        study.failures.get_or_insert_with(|| "expected".to_owned());
    }
    let typed = |option: &&str| !study.values(option).is_empty();
    if CHOSEN.iter().any(typed) {
        return;
    }
    study.factors.insert("backlog".to_owned(), BACKLOGS.map(Value::from).to_vec());
    if study.values("timeout").is_empty() {
        study.settings.insert("timeout".to_owned(), Value::from(TIMEOUT));
    }
    if study.failures.is_none() {
        study.failures = Some("expected".to_owned());
    }
    if study.rounds == RoundsAsked::default() {
        study.rounds.fixed = Some(ROUNDS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn study(typed: &[(&str, &str)]) -> Study {
        let mut study = Study {
            question: "What?".to_owned(),
            experiment: "accept-queue".to_owned(),
            ..Study::default()
        };
        for (option, value) in typed {
            study.settings.insert((*option).to_owned(), Value::from(*value));
        }
        complete(&mut study);
        study
    }

    #[test]
    fn without_a_choice_a_short_backlog_is_compared_with_a_long_one() {
        let plain = study(&[]);
        assert_eq!(plain.values("backlog"), [Value::from(128), Value::from(1024)]);
        assert_eq!((plain.arms().unwrap().len(), plain.rounds.fixed), (2, Some(6)));
        let link = study(&[("link", "metro"), ("tap", "true")]);
        assert_eq!(link.arms().unwrap().len(), 2, "a link is no choice");
        assert_eq!(plain.values("timeout"), [Value::from("3s")]);
        assert_eq!(plain.failures.as_deref(), Some("expected"));
        assert_eq!(study(&[("timeout", "9s")]).values("timeout"), [Value::from("9s")]);
    }

    #[test]
    fn with_a_choice_nothing_is_added() {
        for option in CHOSEN {
            let one = study(&[(option, "1")]);
            assert_eq!((one.arms().unwrap().len(), one.rounds.fixed), (1, None), "{option}");
        }
        assert_eq!(study(&[]).rounds.max_time, None);
    }
}
