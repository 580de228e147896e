//! Options of `worker-pool`.

use tcptoll_core::experiment::option::{Only, Opt};
use tcptoll_core::experiment::options::{
    IPV6, LINK, LOAD, PACKET_RELAY, PLACE, SERVER_SYSCTL, is_chosen, run_once,
};
use tcptoll_core::study::Study;

/// Heading of the stall.
const STALL: &str = "Stall";
/// Heading of the front service.
const FRONT: &str = "Front";
/// Heading of the backend, and of how the front service calls it.
const BACKEND: &str = "Backend";

/// Every option, as the help shows them.
pub(super) const OPTIONS: &[&Opt] = &[
    &LINK,
    &IPV6,
    &PACKET_RELAY,
    &Opt::together(
        PLACE,
        "client-sysctl",
        "NAME=VALUE",
        "Set a sysctl on the client host in every arm, e.g. net.ipv4.tcp_syn_retries=2; may be \
         repeated. To compare values, write a study with client-sysctl in its arms",
    )
    .only(&[Only::Lab]),
    &SERVER_SYSCTL,
    &Opt::each(LOAD, "rate", "PER_SECOND", "Requests per second, at scheduled times (open loop)")
        .number()
        .by_default("100"),
    &Opt::one(
        LOAD,
        "arrivals",
        "even,poisson",
        "Spacing of the requests: even, or random like independent clients (poisson)",
    )
    .by_default("even"),
    &Opt::each(LOAD, "backend-share", "SHARE", "Share of requests that need the backend")
        .by_default("50%"),
    &Opt::one(LOAD, "duration", "TIME", "Length of the measured window, after the warm-up")
        .by_default("5s"),
    &Opt::one(LOAD, "warmup", "TIME", "Time before the measured window").by_default("500ms"),
    &Opt::one(LOAD, "timeout", "TIME", "Timeout of a request, from its scheduled time")
        .by_default("10s"),
    &Opt::each(
        STALL,
        "stall",
        "TIME",
        "Time for which the backend neither accepts nor answers. 0 means no stall",
    )
    .by_default("2s"),
    &Opt::one(STALL, "stall-after", "TIME", "Time from the start of the window to the stall")
        .by_default("1s"),
    &Opt::each(
        FRONT,
        "front",
        "workers,php-fpm",
        "Front service: workers (tcptoll's own blocking workers) or php-fpm (PHP-FPM behind nginx)",
    )
    .by_default("workers"),
    &Opt::each(FRONT, "workers", "N", "Number of blocking workers of the front service")
        .number()
        .by_default("20"),
    &Opt::each(FRONT, "work", "TIME", "CPU time that a worker spends on each request")
        .by_default("0"),
    &Opt::each(
        FRONT,
        "cache",
        "TIME|off",
        "Time for which the front service answers from a local cache instead of the backend. One \
         worker at a time refreshes the cache",
    )
    .by_default("off"),
    &Opt::each(BACKEND, "backend", "redis,mariadb", "Backend that the workers call")
        .by_default("redis"),
    &Opt::each(BACKEND, "backend-backlog", "N", "Backlog that the backend passes to listen(2)")
        .number()
        .by_default("4"),
    &Opt::each(
        BACKEND,
        "abort-on-overflow",
        "on,off",
        "net.ipv4.tcp_abort_on_overflow of the backend's host. If on, a final ACK that meets a \
         full accept queue is answered with a reset",
    )
    .by_default("off"),
    &Opt::each(
        BACKEND,
        "connection",
        "per-request,pooled",
        "Connections to the backend: one per request, or one that each worker keeps open (pooled)",
    )
    .by_default("per-request"),
    &Opt::each(BACKEND, "connect-timeout", "TIME|none", "Timeout of connecting to the backend")
        .by_default("none"),
    &Opt::each(
        BACKEND,
        "answer-timeout",
        "TIME",
        "Timeout of the backend's answer on an established connection",
    )
    .derived("same as --timeout"),
    &Opt::each(BACKEND, "retries", "N", "Number of retries after a failed call of the backend")
        .number()
        .by_default("0"),
    &Opt::each(
        BACKEND,
        "backoff",
        "TIME",
        "Pause before the first retry, e.g. 200ms. It doubles before each further retry",
    )
    .by_default("0")
    .only(&[Only::With("retries", "N")]),
    &Opt::each(BACKEND, "jitter", "on,off", "Randomise each pause between 0 and its full length")
        .by_default("on")
        .only(&[Only::With("backoff", "TIME")]),
];

/// Options that choose the arms: with any of them typed, nothing is swept.
const CHOSEN: [&str; 14] = [
    "abort-on-overflow",
    "answer-timeout",
    "backend",
    "backend-backlog",
    "backoff",
    "cache",
    "connect-timeout",
    "connection",
    "front",
    "jitter",
    "retries",
    "stall",
    "work",
    "workers",
];

/// The arms of a run without a choice, each with what it changes.
const SWEEP: [(&str, &[(&str, &str)]); 4] = [
    ("healthy", &[("stall", "0")]),
    ("stalled", &[]),
    ("connect time-out", &[("connect-timeout", "100ms")]),
    ("retries immediately", &[("connect-timeout", "100ms"), ("retries", "3")]),
];

/// Without a choice, one round over four arms that show the avalanche, a remedy and a false remedy.
pub(super) fn complete(study: &mut Study) {
    // Requests that fail are part of the question.
    study.failures.get_or_insert_with(|| "expected".to_owned());
    if !is_chosen(study, &CHOSEN) && study.factors.is_empty() {
        run_once(study, &SWEEP);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn study(settings: &[(&str, &str)]) -> Study {
        let mut study = Study {
            question: "What?".to_owned(),
            experiment: super::super::SPEC.name.to_owned(),
            ..Study::default()
        };
        for (option, value) in settings {
            study.settings.insert((*option).to_owned(), Value::from(*value));
        }
        complete(&mut study);
        study
    }

    #[test]
    fn without_a_choice_four_arms_run_once() {
        let plain = study(&[("rate", "50")]);
        let arms = plain.arms().unwrap();
        let names: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
        assert_eq!(names, ["healthy", "stalled", "connect time-out", "retries immediately"]);
        assert_eq!(plain.rounds.fixed, Some(1));
        assert!(!(super::super::SPEC.compares)(&plain), "one round gives no interval");
        assert_eq!(arms[0].settings["stall"], "0");
        assert_eq!(arms[0].settings["rate"], "50");
    }

    #[test]
    fn a_typed_option_of_the_front_service_or_the_backend_leaves_one_arm() {
        for option in CHOSEN {
            let one = study(&[(option, "1")]);
            assert_eq!((one.arms().unwrap().len(), one.rounds.fixed), (1, None), "{option}");
        }
    }

    #[test]
    fn every_option_that_chooses_or_is_swept_is_an_option() {
        let known = |name: &str| OPTIONS.iter().any(|option| option.name == name);
        assert!(CHOSEN.iter().all(|name| known(name)));
        for (_, settings) in SWEEP {
            assert!(settings.iter().all(|(name, _)| CHOSEN.contains(name)));
        }
    }
}
