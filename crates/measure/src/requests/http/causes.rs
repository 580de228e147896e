//! Causes that lie in the reuse of connections, and in who closes them.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::kit::causes::ports::LOCAL_PORTS_SCARCE;
use crate::kit::causes::queues::{ACCEPT_QUEUE_FULL, SYN_QUEUE_FULL};
use tcptoll_core::experiment::spec::{CauseSpec, Finding, Remedy};
use tcptoll_core::http::reuse::Reuse;
use tcptoll_core::record::Arm;
use tcptoll_core::units::{human_count, human_us, plural};

/// A connection that carries no more requests than this was hardly reused: what Apache allows by
/// itself, 100, and a little.
const FEW: f64 = 110.0;

/// Fewer closed connections than this may be chance.
const CLOSED_MIN: u64 = 10;

/// Measured requests per connection are a limit of the server if they are this near to a round
/// number: connections that were still open at the end carried fewer.
const ROUND_SHARE: f64 = 0.05;

/// Every cause that a run may name, in the order of the answer.
pub(super) const ALL: &[&CauseSpec] = &[
    &ACCEPT_QUEUE_FULL,
    &SYN_QUEUE_FULL,
    &LOCAL_PORTS_SCARCE,
    &CLOSE_IGNORED,
    &KEEPALIVE_INERT,
    &CLOSE_RACE,
];

/// The server was asked to close and did not.
const CLOSE_IGNORED: CauseSpec = CauseSpec {
    id: "close-ignored",
    test: close_ignored,
    remedy: Remedy::Setting {
        change: "Let the client close after the response (--reuse client-close), or find the proxy or load balancer on the path that does not forward `Connection: close` to the server.",
        cost: "A client that closes first holds TIME-WAIT, and with it a local port.",
        undo: "Use --reuse server-close again.",
    },
};

/// The server closed connections that were to be reused.
const KEEPALIVE_INERT: CauseSpec = CauseSpec {
    id: "keepalive-inert",
    test: keepalive_inert,
    remedy: Remedy::Setting {
        change: "Raise the server's keep-alive timeout and its maximum number of requests per connection, and check that keep-alive is on at every proxy on the path. nginx: keepalive_requests, keepalive_timeout, and towards its upstream proxy_http_version 1.1 with an empty Connection header. Apache: KeepAlive, MaxKeepAliveRequests, KeepAliveTimeout.",
        cost: "Idle connections occupy memory on both hosts. A server with one process per connection needs a whole process for each.",
        undo: "Restore the previous values.",
    },
};

/// The server closed idle connections just as requests left.
const CLOSE_RACE: CauseSpec = CauseSpec {
    id: "close-race",
    test: close_race,
    remedy: Remedy::Setting {
        change: "If connections were idle before, let the client close them first: make its idle timeout shorter than the server's keep-alive timeout, by at least one round trip plus one second. For a load balancer and its servers, set the servers' keep-alive timeout above the balancer's idle timeout. If they were not idle (closed_while_idle 0), look in the server's log for workers that end, and for a maximum of requests.",
        cost: "The server keeps idle connections longer, which occupies memory.",
        undo: "Restore the previous timeouts.",
    },
};

/// Errors that come with a close of the server.
const BROKEN: [&str; 3] = ["truncated", "reset", "close-race"];

/// The server was asked to close and did not.
fn close_ignored(arm: &Arm) -> Option<Finding> {
    let closing = arm.closing.as_ref().filter(|closing| closing.ignored > 0)?;
    let text = format!(
        "The server kept the connection open {} although it was to close it (Connection: close, or HTTP/1.0 without keep-alive), and the client closed in its place. The run therefore does not measure a server that closes.",
        plural(closing.ignored, "time")
    );
    let evidence = BTreeMap::from([
        ("ignored".to_owned(), Value::from(closing.ignored)),
        ("closed_by_server".to_owned(), Value::from(closing.by_server)),
    ]);
    Some(Finding { text, evidence })
}

/// Connections were to be used again, and the server closed them soon. Without a single success
/// that says nothing of keep-alive: a server may close after each error.
///
/// Where the accept queue overflowed, connections that the server never accepted are among those that carried
/// few requests: that is no policy of the server.
fn keepalive_inert(arm: &Arm) -> Option<Finding> {
    if arm.ok == 0 || (ACCEPT_QUEUE_FULL.test)(arm).is_some() {
        return None;
    }
    let asked = match arm.reuse.as_deref()?.parse::<Reuse>().ok()? {
        Reuse::KeepAlive | Reuse::Http10KeepAlive | Reuse::Lifetime(_) | Reuse::Idle(_) => {
            f64::INFINITY
        }
        Reuse::Requests(count) if count > 1 => count as f64,
        _ => return None,
    };
    let closing = arm.closing.as_ref()?;
    let found = arm.metrics.get("requests_per_connection")?.value;
    let made = arm.connections_ok?;
    let often = |closed: u64| closed >= CLOSED_MIN && closed.saturating_mul(2) >= made;
    let mut evidence = BTreeMap::from([
        ("requests_per_connection".to_owned(), Value::from(found)),
        ("closed_by_server".to_owned(), Value::from(closing.by_server)),
        ("connections_ok".to_owned(), Value::from(made)),
    ]);
    if often(closing.while_idle) {
        evidence.insert("closed_while_idle".into(), closing.while_idle.into());
        let after = arm.histograms.get("idle_close_us").and_then(|h| h.p50.or(h.mean));
        let mut text = format!(
            "The server's keep-alive timeout expired before the next request: it closed {} of {} connections while they were idle",
            human_count(closing.while_idle),
            human_count(made)
        );
        if let Some(us) = after {
            evidence.insert("idle_close_us".into(), us.into());
            text += &format!(", after {}", human_us(us));
        }
        return Some(Finding { text: text + ".", evidence });
    }
    // A close that breaks a response, or takes the place of one, is a failure and no policy.
    let broken = BROKEN.iter().filter_map(|class| arm.errors.get(*class)).sum();
    let in_use = closing.by_server.saturating_sub(closing.while_idle).saturating_sub(broken);
    if !often(in_use) || found > FEW.min(asked * (1.0 - ROUND_SHARE)) {
        return None;
    }
    let text = match round(found) {
        Some(1) => "Keep-alive had no effect: the server closed the connection after each request."
            .to_owned(),
        Some(limit) => {
            evidence.insert("limit".into(), limit.into());
            format!(
                "The server closed connections after {} requests on average: that may be its configured maximum.",
                human_count(limit)
            )
        }
        None => format!(
            "The server closed connections that the client would have reused: each carried {found:.1} requests on average."
        ),
    };
    Some(Finding { text, evidence })
}

/// The round number that this is, nearly: 1, 2 or 5 times a power of ten.
fn round(found: f64) -> Option<u64> {
    let numbers = [1_u64, 2, 5, 10, 20, 50, 100, 200, 500, 1_000];
    numbers.into_iter().find(|&number| {
        let number = number as f64;
        (found - number).abs() <= number * ROUND_SHARE
    })
}

/// The server closed an idle connection just as a request left.
fn close_race(arm: &Arm) -> Option<Finding> {
    let lost = arm.errors.get("close-race").copied().filter(|&count| count > 0)?;
    let mut evidence = BTreeMap::from([("close-race".to_owned(), Value::from(lost))]);
    let mut text = format!(
        "{} of {} requests failed because the server closed their connection right after they were sent: it \
         may have been closing it already",
        human_count(lost),
        human_count(arm.attempts)
    );
    let idle = arm.histograms.get("idle_close_us").and_then(|h| h.p50.or(h.mean));
    if let Some(us) = idle {
        evidence.insert("idle_close_us".into(), us.into());
        text += &format!(". It closes idle connections after {}", human_us(us));
    }
    if let Some(closing) = &arm.closing {
        evidence.insert("closed_while_idle".into(), closing.while_idle.into());
    }
    text += ". It is unknown whether the server processed them.";
    Some(Finding { text, evidence })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::causes;
    use tcptoll_core::record::{Closing, Metric};
    use tcptoll_core::stats::HistogramSummary;

    fn arm(reuse: &str, each: f64, made: u64, closing: Closing) -> Arm {
        let metric =
            Metric { value: each, unit: "requests".into(), ci95: None, median: None, n: made };
        Arm {
            name: "a".into(),
            reuse: Some(reuse.into()),
            metrics: [("requests_per_connection".to_owned(), metric)].into(),
            ok: (each * made as f64) as u64,
            connections_ok: Some(made),
            closing: Some(closing),
            ..Arm::default()
        }
    }

    #[test]
    fn a_close_that_breaks_a_response_is_no_maximum_of_the_server() {
        let policy = arm("keep-alive", 5.0, 100, by_server(100));
        assert!(keepalive_inert(&policy).unwrap().text.contains("5 requests"));
        let broken = Arm { errors: [("truncated".to_owned(), 100)].into(), ..policy };
        assert_eq!(keepalive_inert(&broken), None);
    }

    fn by_server(count: u64) -> Closing {
        Closing { by_server: count, ..Closing::default() }
    }

    fn texts(arm: &Arm) -> Vec<(String, String)> {
        causes::supported(arm, ALL).into_iter().map(|cause| (cause.id, cause.text)).collect()
    }

    #[test]
    fn a_server_that_closes_after_each_request_makes_keep_alive_inert() {
        let found = texts(&arm("keep-alive", 1.0, 900, by_server(900)));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0, "keepalive-inert");
        assert!(found[0].1.contains("after each request"), "{}", found[0].1);
    }

    #[test]
    fn where_no_request_succeeded_a_server_that_closes_says_nothing_of_keep_alive() {
        let failed = Arm { ok: 0, ..arm("keep-alive", 1.0, 900, by_server(900)) };
        assert!(texts(&failed).is_empty());
    }

    #[test]
    fn connections_that_the_server_never_accepted_say_nothing_of_keep_alive() {
        let server = tcptoll_core::record::HostSummary {
            counters: [("TcpExtListenOverflows".to_owned(), 84)].into(),
            ..Default::default()
        };
        let full = Arm { server: Some(server), ..arm("keep-alive", 1.0, 900, by_server(900)) };
        let found = texts(&full);
        assert_eq!(
            found.iter().map(|one| one.0.as_str()).collect::<Vec<_>>(),
            ["accept-queue-full"]
        );
    }

    #[test]
    fn a_limit_of_requests_per_connection_is_named() {
        let found = texts(&arm("keep-alive", 98.7, 200, by_server(150)));
        assert!(found[0].1.contains("after 100 requests"), "{}", found[0].1);
        let odd = texts(&arm("keep-alive", 37.0, 200, by_server(150)));
        assert!(odd[0].1.contains("37.0 requests"), "{}", odd[0].1);
    }

    #[test]
    fn what_was_asked_for_is_no_cause() {
        assert!(texts(&arm("server-close", 1.0, 900, by_server(900))).is_empty());
        assert!(texts(&arm("requests=50", 49.0, 900, by_server(900))).is_empty());
        assert!(texts(&arm("keep-alive", 5_000.0, 50, Closing::default())).is_empty());
        // A thousand requests are a connection well used.
        assert!(texts(&arm("keep-alive", 1_000.0, 50, by_server(40))).is_empty());
    }

    #[test]
    fn connections_closed_while_idle_are_the_servers_keep_alive_time() {
        let closing = Closing { by_server: 100, while_idle: 100, ..Closing::default() };
        let mut idle = arm("idle=6s", 1.0, 100, closing);
        let after = HistogramSummary { p50: Some(5e6), ..HistogramSummary::default() };
        idle.histograms.insert("idle_close_us".into(), after);
        let found = texts(&idle);
        assert!(found[0].1.contains("after 5.00 s"), "{}", found[0].1);
    }

    #[test]
    fn an_ignored_wish_and_a_lost_race_are_told() {
        let closing = Closing { ignored: 3, ..Closing::default() };
        let ignored = texts(&arm("server-close", 1.0, 3, closing));
        assert_eq!(ignored[0].0, "close-ignored");
        let mut race = arm("idle=5s", 5.0, 100, Closing::default());
        race.attempts = 1_000;
        race.errors.insert("close-race".into(), 7);
        let found = texts(&race);
        assert_eq!(found[0].0, "close-race");
        assert!(found[0].1.starts_with("7 of 1,000 requests"), "{}", found[0].1);
    }
}
