//! Options of `page`.

use serde_json::Value;

use crate::experiments::option::{Only, Opt};
use crate::experiments::options::{
    CLIENT_SYSCTL, IPV6, LINK, LOAD, PACKET_RELAY, PLACE, SERVER_SYSCTL, TAP,
};
use crate::experiments::site_options::{
    COMPRESS, HAR, PAGE, PAGE_SIZE, PATH, RESOURCE_KIND, RESOURCE_SIZE, RESOURCES, SHARDS, SITE,
    WORK,
};
use crate::study::Study;

/// Heading of the server's settings.
const SERVER: &str = "Server";

/// Every option, as the help shows them.
pub(super) const OPTIONS: &[&Opt] = &[
    &Opt::arguments("url", "URL", "Page of a server that already runs, instead of the lab"),
    &LINK.by_default("rtt=15ms"),
    &Opt::each(
        PLACE,
        "server",
        "NAME",
        "Server to start on the lab's server host: apache (apache-event, apache-worker, \
         apache-prefork) or nginx",
    )
    .by_default("apache")
    .only(&[Only::Lab]),
    &IPV6,
    &PACKET_RELAY,
    &CLIENT_SYSCTL,
    &SERVER_SYSCTL,
    &RESOURCES,
    &RESOURCE_KIND,
    &RESOURCE_SIZE,
    &PAGE_SIZE,
    &WORK,
    &SHARDS,
    &SITE,
    &PATH,
    &HAR,
    &COMPRESS,
    &Opt::flag(PAGE, "other-origins", "Load resources of other hosts too"),
    &Opt::each(
        PAGE,
        "next-page-after",
        "TIME",
        "Load the page a second time, this long after the first, over connections that are still \
         open",
    ),
    &Opt::each(SERVER, "keepalive", "on,off", "Whether the server keeps connections")
        .derived(
            "on and off, an arm each; on with --browser, --protocol or --tls of several values",
        )
        .only(&[Only::Lab]),
    &Opt::each(
        SERVER,
        "keepalive-requests",
        "N",
        "Responses of one connection, at most; 0: any number",
    )
    .number()
    .derived("the server's own")
    .only(&[Only::Lab]),
    &Opt::each(SERVER, "keepalive-timeout", "TIME", "How long the server keeps an idle connection")
        .derived("the server's own")
        .only(&[Only::Lab]),
    &Opt::each(SERVER, "workers", "N", "Processes of the server")
        .number()
        .derived("2; of apache-prefork one for each connection")
        .only(&[Only::Lab]),
    &Opt::each(LOAD, "browser", "off,on", "Let headless Chromium load the page").by_default("off"),
    &Opt::each(LOAD, "connections-per-origin", "N", "Connections to one origin, at most")
        .number()
        .by_default("6"),
    &Opt::each(
        LOAD,
        "protocol",
        "NAME",
        "How requests share a connection: http/1.1; http/1.1-pipelined; h2: HTTP/2, all on one \
         connection, needs TLS",
    )
    .by_default("http/1.1"),
    &Opt::each(LOAD, "tls", "on,off", "TLS to the lab's server")
        .derived("off; on with --protocol h2")
        .only(&[Only::Lab]),
    &Opt::one(LOAD, "ca", "FILE", "Further root certificates, PEM"),
    &Opt::flag(LOAD, "insecure", "Accept any certificate"),
    &Opt::one(
        LOAD,
        "loads",
        "N",
        "Loads of each trial, one after the other, each with new connections",
    )
    .number()
    .by_default("2"),
    &Opt::one(LOAD, "timeout", "TIME", "Time limit of one page").by_default("30s"),
    &TAP,
];

/// Options whose levels are compared with each other and not with KeepAlive off.
const CHOSEN: [&str; 4] = ["keepalive", "browser", "protocol", "tls"];

/// Without another question, the one that the experiment is for: KeepAlive on and off.
pub(super) fn complete(study: &mut Study) {
    let typed = |option: &&str| !study.values(option).is_empty();
    if typed(&"url") || CHOSEN.iter().any(typed) || !study.named_arms.is_empty() {
        return;
    }
    let levels = ["on", "off"].map(Value::from).to_vec();
    study.factors.insert("keepalive".to_owned(), levels);
}
