//! Options of `visitors`.

use serde_json::Value;

use crate::experiments::option::{Only, Opt};
use crate::experiments::options::{
    CLIENT_SYSCTL, IPV6, LINK, LOAD, PACKET_RELAY, PLACE, SERVER_SYSCTL,
};
use crate::experiments::site_options::{
    COMPRESS, HAR, PAGE_SIZE, PATH, RESOURCE_KIND, RESOURCE_SIZE, RESOURCES, SHARDS, SITE, WORK,
};
use crate::study::Study;

/// Heading of the server's settings.
const SERVER: &str = "Server";
/// Heading of who comes.
const VISITORS: &str = "Visitors";

/// Every option, as the help shows them.
pub(super) const OPTIONS: &[&Opt] = &[
    &LINK.by_default("rtt=15ms"),
    &Opt::each(
        PLACE,
        "server",
        "NAME",
        "Server to start on the lab's server host: apache (apache-event, apache-worker, \
         apache-prefork) or nginx",
    )
    .by_default("apache-prefork"),
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
    &Opt::each(SERVER, "keepalive", "on,off", "Whether the server keeps connections")
        .by_default("on"),
    &Opt::each(SERVER, "keepalive-timeout", "TIME", "How long the server keeps an idle connection")
        .derived(
            "15s, 5s and 2s, an arm each; the server's own with another option of several values",
        ),
    &Opt::each(
        SERVER,
        "keepalive-requests",
        "N",
        "Responses of one connection, at most; 0: any number",
    )
    .number()
    .derived("the server's own"),
    &Opt::each(
        SERVER,
        "max-workers",
        "N",
        "Workers at most: MaxRequestWorkers of Apache, connections of all processes of nginx",
    )
    .number()
    .by_default("150"),
    &Opt::each(
        SERVER,
        "php",
        "worker,fpm",
        "Where PHP runs: in the workers of apache-prefork (mod_php), or in processes of its own",
    )
    .derived("worker with apache-prefork, otherwise fpm"),
    &Opt::each(
        SERVER,
        "worker-memory",
        "SIZE",
        "Memory that a worker takes besides once it has run PHP, as an application does",
    )
    .by_default("0")
    .only(&[Only::Lab]),
    &Opt::each(VISITORS, "rate", "PER_SECOND", "Visitors per second, independent of each other")
        .number()
        .by_default("2"),
    &Opt::each(VISITORS, "pages", "N", "Pages of a visitor, mean").number().by_default("3"),
    &Opt::each(VISITORS, "think", "TIME", "Time from a page to the next, mean").by_default("5s"),
    &Opt::each(
        VISITORS,
        "leave-after",
        "TIME",
        "Close the connections this long after the last page, as a closed tab does",
    )
    .derived("never: the server closes them"),
    &Opt::each(VISITORS, "peak-factor", "N", "In peaks so many times as many visitors come")
        .number()
        .by_default("1"),
    &Opt::one(VISITORS, "peak-every", "TIME", "From the end of one peak to the end of the next")
        .by_default("10s"),
    &Opt::one(VISITORS, "peak-for", "TIME", "Length of a peak").by_default("2s"),
    &Opt::one(LOAD, "duration", "TIME", "Length of the measured window, after the warm-up")
        .by_default("20s"),
    &Opt::one(
        LOAD,
        "warmup",
        "TIME",
        "Time in which visitors come before the measured window: longer than the longest timeout",
    )
    .derived("the longest --keepalive-timeout and 2 s more, 20 s at most"),
    &Opt::each(LOAD, "connections-per-origin", "N", "Connections of a visitor, at most")
        .number()
        .by_default("6"),
    &Opt::one(LOAD, "timeout", "TIME", "Time limit of one page").by_default("30s"),
];

/// Options whose levels are compared instead of the default arms.
const CHOSEN: [&str; 6] =
    ["keepalive", "keepalive-timeout", "keepalive-requests", "max-workers", "php", "server"];

/// Without another question: what the timeout holds.
pub(super) fn complete(study: &mut Study) {
    let several = |option: &&str| study.values(option).len() > 1;
    let timeout = study.values("keepalive-timeout");
    if !timeout.is_empty() || CHOSEN.iter().any(several) || !study.named_arms.is_empty() {
        return;
    }
    if study.values("keepalive").is_empty() {
        let levels = ["15s", "5s", "2s"].map(Value::from).to_vec();
        study.factors.insert("keepalive-timeout".to_owned(), levels);
    }
}
