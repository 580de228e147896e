//! Options of `syn-queue`.

use tcptoll_core::experiment::option::Opt;
use tcptoll_core::experiment::options::{
    BACKLOG, BIND, CLIENT_SYSCTL_RETRIES, CONCURRENCY, CONNECT_COUNT, CONNECT_RATE,
    CONNECT_TIMEOUT, IPV6, LINK, MAX_SYN_BACKLOG, PACKET_RELAY, SERVER_SYSCTL, SOMAXCONN,
    SYNCOOKIES, TAP, is_chosen, run_once,
};
use tcptoll_core::study::Study;

/// Heading of the peer that fills the queue.
const PEER: &str = "Half-open requests";

/// Every option, as the help shows them.
pub(super) const OPTIONS: &[&Opt] = &[
    &LINK,
    &IPV6,
    &PACKET_RELAY,
    &CLIENT_SYSCTL_RETRIES,
    &SERVER_SYSCTL,
    &Opt::each(
        PEER,
        "half-open",
        "N|full",
        "Number of half-open requests that a peer keeps at the server, from addresses without a \
         host. full fills the SYN queue; 0 starts no peer",
    )
    .number()
    .by_default("full"),
    &Opt::each(
        PEER,
        "half-open-rate",
        "PER_SECOND",
        "Maximum number of SYNs that the peer sends per second",
    )
    .number()
    .derived("all sources send within 500ms, at most 20000 per second"),
    &Opt::each(
        PEER,
        "half-open-again",
        "TIME",
        "Time after which each source of the peer retransmits its SYN. Up to 900ms the server \
         keeps the request; after a longer time it may have timed out, and the SYN opens a new one",
    )
    .by_default("600ms"),
    &CONNECT_COUNT.worded("Total number of connections of ordinary clients").by_default("200"),
    &CONCURRENCY,
    &CONNECT_RATE.derived("100; not used with --concurrency"),
    &CONNECT_TIMEOUT.by_default("4s"),
    &BIND,
    &BACKLOG.by_default("128"),
    &SOMAXCONN,
    &MAX_SYN_BACKLOG,
    &SYNCOOKIES,
    &TAP,
];

/// Options that choose what is compared: with any of them typed, no arms are added.
const CHOSEN: [&str; 9] = [
    "backlog",
    "client-sysctl",
    "half-open",
    "half-open-again",
    "half-open-rate",
    "max-syn-backlog",
    "server-sysctl",
    "somaxconn",
    "syncookies",
];

/// The arms of a run without a choice, each with what it changes. The first two differ in the peer, and
/// each of the others is the second with one fix. 129 requests are what a backlog of 128 holds.
const ARMS: [(&str, &[(&str, &str)]); 4] = [
    (
        "no half-open requests",
        &[("half-open", "0"), ("syncookies", "0"), ("max-syn-backlog", "1024")],
    ),
    ("SYN queue full", &[("half-open", "129"), ("syncookies", "0"), ("max-syn-backlog", "1024")]),
    ("SYN cookies", &[("half-open", "129"), ("syncookies", "1"), ("max-syn-backlog", "1024")]),
    (
        "longer queue",
        &[
            ("half-open", "129"),
            ("syncookies", "0"),
            ("max-syn-backlog", "2048"),
            ("backlog", "1024"),
        ],
    ),
];

/// Without a choice, one round over a healthy arm, an ill one and two fixes.
pub(super) fn complete(study: &mut Study) {
    // Connections that fail are part of the question.
    study.failures.get_or_insert_with(|| "expected".to_owned());
    if !is_chosen(study, &CHOSEN) {
        run_once(study, &ARMS);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn study(typed: &[(&str, &str)]) -> Study {
        let mut study = Study {
            question: "What?".to_owned(),
            experiment: super::super::SPEC.name.to_owned(),
            ..Study::default()
        };
        for (option, value) in typed {
            study.settings.insert((*option).to_owned(), Value::from(*value));
        }
        complete(&mut study);
        study
    }

    #[test]
    fn without_a_choice_an_ill_arm_stands_between_a_healthy_one_and_two_fixes() {
        let arms = study(&[("link", "rtt=10ms")]).arms().unwrap();
        let names: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
        assert_eq!(names, ARMS.map(|(name, _)| name));
        let ill = &arms[1].settings;
        assert_eq!((&ill["half-open"], &ill["syncookies"]), (&"129".into(), &"0".into()));
        assert_eq!(ill["link"], "rtt=10ms", "a link is no choice");
        assert_eq!(study(&[]).rounds.fixed, Some(1));
    }

    #[test]
    fn with_a_choice_nothing_is_added_and_failures_are_expected() {
        for option in CHOSEN {
            let one = study(&[(option, "1")]);
            assert_eq!((one.arms().unwrap().len(), one.rounds.fixed), (1, None), "{option}");
            assert_eq!(one.failures.as_deref(), Some("expected"));
        }
    }
}
