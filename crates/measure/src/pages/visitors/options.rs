//! Options of `visitors`.

use crate::pages::options::{
    COMPRESS, HAR, PAGE_SIZE, PATH, RESOURCE_KIND, RESOURCE_SIZE, RESOURCES, SHARDS, SITE, WORK,
};
use tcptoll_core::experiment::option::{Only, Opt};
use tcptoll_core::experiment::options::{
    CLIENT_SYSCTL, IPV6, LINK, LOAD, PACKET_RELAY, PLACE, SERVER_SYSCTL, is_chosen, run_once,
};
use tcptoll_core::study::Study;

/// Heading of the server's settings.
const SERVER: &str = "Server";
/// Heading of who comes.
const VISITORS: &str = "Visitors";

/// Every option, as the help shows them.
pub(super) const OPTIONS: &[&Opt] = &[
    &Opt::arguments(
        "url",
        "URL",
        "Page of a running server to load instead of the lab's. Load only your own servers",
    ),
    &Opt::setting(
        "before",
        "COMMAND",
        "Shell command to run on this machine before each trial, e.g. to switch the configuration \
         of the server at the URL",
    )
    .only(&[Only::Target]),
    &LINK.by_default("rtt=15ms"),
    &Opt::each(
        PLACE,
        "server",
        "NAME",
        "Server to start in the lab: apache (apache-event, apache-worker, apache-prefork) or nginx",
    )
    .by_default("apache-prefork")
    .only(&[Only::Lab]),
    &IPV6,
    &PACKET_RELAY,
    &CLIENT_SYSCTL,
    &SERVER_SYSCTL,
    &RESOURCES,
    &RESOURCE_KIND,
    &RESOURCE_SIZE,
    &PAGE_SIZE,
    &WORK.by_default("20ms"),
    &SHARDS,
    &SITE,
    &PATH,
    &HAR,
    &COMPRESS,
    &Opt::each(SERVER, "keepalive", "on,off", "HTTP keep-alive: several requests per connection")
        .by_default("on")
        .only(&[Only::Lab]),
    &Opt::each(
        SERVER,
        "keepalive-timeout",
        "TIME",
        "Idle time after which the server closes a connection, e.g. 5s",
    )
    .derived(
        "15s, 5s, 2s and off, one arm each; server default with --rate, --server or another option \
         of the server",
    )
    .only(&[Only::Lab]),
    &Opt::each(
        SERVER,
        "keepalive-requests",
        "N",
        "Maximum number of responses per connection. 0 means no limit",
    )
    .number()
    .derived("server default")
    .only(&[Only::Lab]),
    &Opt::each(
        SERVER,
        "max-workers",
        "N",
        "Maximum number of workers (MaxRequestWorkers of Apache). For nginx, of connections of all \
         its processes",
    )
    .number()
    .by_default("150")
    .only(&[Only::Lab]),
    &Opt::each(
        SERVER,
        "php",
        "worker,fpm",
        "Where PHP runs: in the workers of apache-prefork (worker, mod_php) or in PHP-FPM (fpm)",
    )
    .derived("worker with apache-prefork, otherwise fpm")
    .only(&[Only::Lab]),
    &Opt::each(
        SERVER,
        "worker-memory",
        "SIZE",
        "Additional memory that each worker uses after it has run PHP, e.g. 20M",
    )
    .by_default("0")
    .only(&[Only::Lab]),
    &Opt::each(
        SERVER,
        "memory",
        "SIZE",
        "Memory limit for all processes of the server together, e.g. 512M. Beyond it the kernel \
         kills one of them",
    )
    .derived("memory of the machine")
    .only(&[Only::Lab]),
    &Opt::each(
        VISITORS,
        "rate",
        "PER_SECOND",
        "New visitors per second, at random times (Poisson)",
    )
    .number()
    .by_default("2"),
    &Opt::each(VISITORS, "pages", "N", "Mean number of pages per visitor").number().by_default("3"),
    &Opt::each(VISITORS, "think", "TIME", "Mean think time between two pages").by_default("5s"),
    &Opt::each(
        VISITORS,
        "leave-after",
        "TIME",
        "Close a visitor's connections TIME after the last page, as closing the tab does",
    )
    .derived("never: the server closes them"),
    &Opt::each(VISITORS, "peak-factor", "N", "Factor by which --rate is higher during peaks")
        .number()
        .by_default("1"),
    &Opt::one(VISITORS, "peak-every", "TIME", "Time from the end of one peak to that of the next")
        .by_default("10s"),
    &Opt::one(VISITORS, "peak-for", "TIME", "Length of each peak").by_default("2s"),
    &Opt::one(LOAD, "duration", "TIME", "Length of the measured window, after the warm-up")
        .by_default("15s"),
    &Opt::one(
        LOAD,
        "warmup",
        "TIME",
        "Time during which visitors arrive before the measured window. Make it longer than \
         --keepalive-timeout and than the server needs to start its workers",
    )
    .derived("--keepalive-timeout plus 2s, at least 8s and at most 20s"),
    &Opt::each(LOAD, "connections-per-origin", "N", "Maximum number of connections per visitor")
        .number()
        .by_default("6"),
    &Opt::one(LOAD, "timeout", "TIME", "Timeout of one page").by_default("30s"),
    &Opt::one(LOAD, "ca", "FILE", "File of additional root certificates (PEM)")
        .only(&[Only::Target]),
    &Opt::flag(LOAD, "insecure", "Do not verify the server's certificate").only(&[Only::Target]),
];

/// Options of which several values ask another question than the default arms.
const CHOSEN: [&str; 9] = [
    "keepalive",
    "keepalive-requests",
    "keepalive-timeout",
    "max-workers",
    "memory",
    "php",
    "rate",
    "server",
    "url",
];

/// The arms of a run without a choice, each with what it changes. 15 s was the default of Apache up to 2.2.
const SWEEP: [(&str, &[(&str, &str)]); 4] = [
    ("timeout of 15 s", &[("keepalive-timeout", "15s")]),
    ("timeout of 5 s", &[("keepalive-timeout", "5s")]),
    ("timeout of 2 s", &[("keepalive-timeout", "2s")]),
    ("KeepAlive off", &[("keepalive", "off")]),
];

/// Without a choice, one round over what the timeout holds.
pub(super) fn complete(study: &mut Study) {
    // Visitors whom the server turns away are part of the question.
    study.failures.get_or_insert_with(|| "expected".to_owned());
    if !is_chosen(study, &CHOSEN) && study.factors.is_empty() {
        run_once(study, &SWEEP);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn completed(settings: &[(&str, &str)]) -> Study {
        let mut study = Study {
            question: "What?".to_owned(),
            experiment: super::super::SPEC.name.to_owned(),
            ..Study::default()
        };
        for (name, value) in settings {
            study.settings.insert((*name).to_owned(), Value::from(*value));
        }
        complete(&mut study);
        study
    }

    #[test]
    fn without_a_choice_four_timeouts_run_once_each() {
        let study = completed(&[("pages", "2")]);
        assert_eq!(study.named_arms.len(), SWEEP.len());
        assert_eq!(study.rounds.fixed, Some(1));
        assert_eq!(study.failures.as_deref(), Some("expected"));
    }

    #[test]
    fn arms_of_a_study_are_not_replaced() {
        let mut study = Study::default();
        run_once(&mut study, &[("mine", &[("keepalive-timeout", "3s")])]);
        complete(&mut study);
        assert_eq!(study.named_arms.len(), 1);
    }

    #[test]
    fn a_choice_is_the_only_arm() {
        assert!(completed(&[("keepalive-timeout", "3s")]).named_arms.is_empty());
        assert!(completed(&[("server", "nginx")]).named_arms.is_empty());
    }
}
