//! Options of `page`.

use serde_json::Value;

use crate::pages::options::{
    COMPRESS, HAR, PAGE, PAGE_SIZE, PATH, RESOURCE_KIND, RESOURCE_SIZE, RESOURCES, SHARDS, SITE,
    WORK,
};
use tcptoll_core::experiment::option::{Only, Opt};
use tcptoll_core::experiment::options::{
    CLIENT_SYSCTL, IPV6, LINK, LOAD, PACKET_RELAY, PLACE, SERVER_SYSCTL, TAP,
};
use tcptoll_core::study::Study;

/// Heading of the server's settings.
const SERVER: &str = "Server";

/// Every option, as the help shows them.
pub(super) const OPTIONS: &[&Opt] = &[
    &Opt::arguments("url", "URL", "Page of a running server to load instead of the lab's"),
    &LINK.by_default("rtt=15ms"),
    &Opt::each(
        PLACE,
        "server",
        "NAME",
        "Server to start in the lab: apache (apache-event, apache-worker, apache-prefork), nginx or \
         null (tcptoll's own)",
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
    &Opt::flag(PAGE, "other-origins", "Also load resources from other hosts"),
    &Opt::each(
        PAGE,
        "next-page-after",
        "TIME",
        "Load the page a second time, TIME after the first load, over the connections that are \
         still open",
    ),
    &Opt::each(SERVER, "keepalive", "on,off", "HTTP keep-alive: several requests per connection")
        .derived("on and off, one arm each; on if --browser, --protocol or --tls is given")
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
        "keepalive-timeout",
        "TIME",
        "Idle time after which the server closes a connection, e.g. 5s",
    )
    .derived("server default")
    .only(&[Only::Lab]),
    &Opt::each(SERVER, "workers", "N", "Worker processes of the server")
        .number()
        .derived("2; with apache-prefork one per connection")
        .only(&[Only::Lab]),
    &Opt::each(LOAD, "browser", "off,on", "Load the page in headless Chromium").by_default("off"),
    &Opt::each(LOAD, "connections-per-origin", "N", "Maximum number of connections per origin")
        .number()
        .by_default("6"),
    &Opt::each(
        LOAD,
        "protocol",
        "NAME",
        "Protocol: http/1.1, http/1.1-pipelined, or h2 (HTTP/2 over TLS, all requests on one \
         connection)",
    )
    .by_default("http/1.1"),
    &Opt::each(LOAD, "tls", "on,off", "Use TLS to the lab's server")
        .derived("off; on in the arms with --protocol h2")
        .only(&[Only::Lab]),
    &Opt::one(LOAD, "ca", "FILE", "File of additional root certificates (PEM)"),
    &Opt::flag(LOAD, "insecure", "Do not verify the server's certificate"),
    &Opt::one(
        LOAD,
        "loads",
        "N",
        "Page loads per trial, one after the other, each with new connections",
    )
    .number()
    .by_default("2"),
    &Opt::one(LOAD, "timeout", "TIME", "Timeout of one page load").by_default("30s"),
    &TAP,
];

/// Options that let a page keep its connections.
pub(super) const KEPT: [&str; 3] = ["keepalive", "keepalive-timeout", "keepalive-requests"];

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
