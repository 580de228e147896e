//! Who closes connections, when, and what that leaves behind: is it as each way of reuse says?

use tcptoll_core::record::{Arm, Closing};

use crate::http::{Faulty, RunOutcome, ask, closing, short};
use crate::support::{causes, lacks, no_lab, only};

fn per_connection(arm: &Arm) -> f64 {
    arm.metrics["requests_per_connection"].value
}

/// Sockets in TIME-WAIT on the client and on the server.
pub(crate) fn time_wait(arm: &Arm) -> [Option<u64>; 2] {
    ["client_time_wait", "server_time_wait"]
        .map(|name| arm.metrics.get(name).map(|sockets| sockets.value as u64))
}

/// On a link that is emulated and so watched, every way of reuse closes as it says: connections,
/// requests of each, who sent the first FIN, and on which host TIME-WAIT is.
fn closes_as_it_says(more: &[&str]) {
    let ways = "keep-alive,requests=5,server-close,client-close,http1.0,http1.0-keep-alive";
    let mut args = vec!["--reuse", ways, "--link", "rtt=1ms"];
    args.extend(more);
    let summary = short(&args);
    let arm = |way: &str| {
        let found = summary.arms.iter().find(|arm| arm.reuse.as_deref() == Some(way));
        found.unwrap_or_else(|| panic!("no arm {way}"))
    };
    for way in ["keep-alive", "http1.0-keep-alive"] {
        let arm = arm(way);
        let none = Closing { open_at_end: 4, both: Some(0), ..Closing::default() };
        let told = closing(arm);
        assert_eq!((told, arm.connections_ok), (&none, Some(4)), "{way}");
        assert_eq!(time_wait(arm), [Some(4), Some(0)], "{way}: what was open, the client closed");
        assert_eq!(per_connection(arm).round() as u64, arm.ok / 4, "{way}");
    }
    for way in ["server-close", "http1.0"] {
        let arm = arm(way);
        let told = closing(arm);
        assert_eq!((told.by_server, told.by_client, told.ignored), (arm.ok, 0, 0), "{way}");
        assert_eq!(arm.connections_ok, Some(arm.ok), "{way}");
        // A port that is used again takes the place of its socket in TIME-WAIT on the server.
        let [on_client, on_server] = time_wait(arm);
        assert_eq!(on_client, Some(0), "{way}: TIME-WAIT is with who closed first");
        assert!(on_server.unwrap() <= arm.ok && on_server.unwrap() > arm.ok / 2, "{way}");
    }
    let told = closing(arm("client-close"));
    let ok = arm("client-close").ok;
    assert_eq!((told.by_client, told.by_server, told.both), (ok, 0, Some(0)));
    assert_eq!(time_wait(arm("client-close")), [Some(ok), Some(0)]);
    let five = arm("requests=5");
    let told = closing(five);
    // What was open at the end is closed by the client, too.
    assert_eq!(time_wait(five), [Some(told.by_client + told.open_at_end), Some(0)]);
    assert_eq!((told.by_server, told.both), (0, Some(0)));
    let of_open = five.ok - 5 * told.by_client;
    assert!(of_open <= 4 * told.open_at_end, "{of_open} requests of {}", told.open_at_end);
    for arm in &summary.arms {
        let wire = arm.wire.as_ref().unwrap();
        let retransmitted = wire.client_to_server.retransmission;
        // A small request, and a small answer, is one segment.
        assert_eq!(wire.client_to_server.data - retransmitted, arm.ok, "{}", arm.name);
        let closed = closing(arm).by_client + closing(arm).by_server;
        // A FIN each way, except of what was still open.
        assert_eq!(wire.client_to_server.syn, arm.connections_ok.unwrap(), "{}", arm.name);
        assert!(wire.client_to_server.fin >= closed, "{}: {wire:?}", arm.name);
        assert!(wire.server_to_client.fin >= closed, "{}: {wire:?}", arm.name);
        assert_eq!(wire.client_to_server.rst, 0, "{}", arm.name);
    }
}

#[test]
fn the_server_s_own_limit_of_requests_is_seen() {
    if lacks(&["nginx"]) {
        return;
    }
    for io in ["epoll", "io-uring"] {
        let summary = short(&["--server", "nginx", "--keepalive-requests", "10", "--io", io]);
        let arm = only(&summary);
        let told = closing(arm);
        assert_eq!((told.by_client, told.ignored), (0, 0), "{io}");
        let of_open = arm.ok - 10 * told.by_server;
        assert!(of_open <= 9 * told.open_at_end, "{io}: {of_open} of {}", told.open_at_end);
        let each = per_connection(arm);
        assert!((8.0..=10.0).contains(&each), "{io}: {each} requests per connection");
    }
}

#[test]
fn a_server_that_ignores_connection_close_is_noticed_and_named() {
    if lacks(&["python3"]) {
        return;
    }
    let RunOutcome { summary, .. } = ask(&Faulty::new("ignore-close").with(&[
        "--reuse",
        "server-close",
        "--duration",
        "2500ms",
    ]));
    let arm = only(&summary);
    let told = closing(arm);
    assert_eq!(arm.ok, arm.attempts, "{:?}", arm.errors);
    assert!(told.ignored > 0 && told.ignored == told.by_client, "{told:?}");
    let named = causes(&summary, arm);
    assert!(named.iter().any(|id| id.contains("close")), "{named:?}");
}

#[test]
fn a_server_that_says_it_closes_and_does_not_is_not_waited_for() {
    if lacks(&["python3"]) {
        return;
    }
    let RunOutcome { summary, .. } = ask(&Faulty::new("lazy-close"));
    let arm = only(&summary);
    assert_eq!(arm.ok, arm.attempts, "{:?}", arm.errors);
    assert_eq!(closing(arm).by_client + closing(arm).open_at_end, arm.connections_ok.unwrap());
}

/// Every packet is counted: where the tap waits for a CPU, it loses some.
mod alone {
    use super::*;

    #[test]
    fn a_rest_longer_than_the_server_keeps_a_connection_finds_its_timeout() {
        if lacks(&["nginx"]) {
            return;
        }
        let summary = short(&[
            "--server",
            "nginx",
            "--keepalive-timeout",
            "100ms",
            "--reuse",
            "idle=400ms",
            "--requests",
            "12",
        ]);
        let arm = only(&summary);
        let told = closing(arm);
        assert!(told.while_idle > 0 && told.while_idle == told.by_server, "{told:?}");
        let idle = &arm.histograms["idle_close_us"];
        assert_eq!(idle.count, told.while_idle);
        let least_ms = idle.min.unwrap() / 1e3;
        assert!(least_ms >= 95.0, "{least_ms} ms");
    }

    #[test]
    fn every_way_of_reuse_closes_as_it_says_with_our_own_server() {
        if no_lab() {
            return;
        }
        closes_as_it_says(&["--server", "null"]);
    }

    #[test]
    fn every_way_of_reuse_closes_as_it_says_over_io_uring() {
        if no_lab() {
            return;
        }
        closes_as_it_says(&["--server", "null", "--io", "io-uring"]);
    }

    #[test]
    fn every_way_of_reuse_closes_as_it_says_with_nginx() {
        if lacks(&["nginx"]) {
            return;
        }
        closes_as_it_says(&["--server", "nginx", "--keepalive-requests", "0"]);
    }

    #[test]
    fn a_lifetime_closes_what_is_older() {
        if no_lab() {
            return;
        }
        let summary = short(&["--server", "null", "--reuse", "lifetime=20ms", "--link", "rtt=1ms"]);
        let arm = only(&summary);
        let told = closing(arm);
        let by_us = told.by_client + told.open_at_end;
        assert_eq!((told.by_server, time_wait(arm)[0]), (0, Some(by_us)));
        // Each of those closed was open for 20 ms at least, four at once.
        let most = 4.0 * arm.elapsed_s / 0.02;
        assert!(told.by_client > 0 && told.by_client as f64 <= most, "{told:?}, {most} at most");
    }
}
