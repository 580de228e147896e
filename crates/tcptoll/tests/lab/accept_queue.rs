//! A full accept queue, looked at from all sides: do the queue, the client's steps and the kernel's drops
//! agree?

use tcptoll_core::record::{Arm, Queues, Summary};

use crate::support::{
    Folder, TOLERANCE, checked_summary, counter, errors, no_lab, only, run, tcptoll,
};

/// Runs `accept-queue` once. Connections may fail: a full queue is what is asked for.
fn accept_queue(args: &[&str]) -> Summary {
    let folder = Folder::new();
    let record = folder.path("record.jsonl");
    let mut all = vec!["accept-queue", "--quiet", "--format", "json", "--out", &record];
    all.extend(["--link-tolerance", TOLERANCE, "--seed", "1", "--rounds", "1"]);
    all.extend(args);
    let ran = run(&mut tcptoll(&all));
    assert!(matches!(ran.status, Some(0..=2)), "{args:?}: {:?}: {}", ran.status, ran.stderr);
    checked_summary(&ran.stdout)
}

fn queues(arm: &Arm) -> &Queues {
    arm.own.queues.as_deref().expect("each arm has its queues")
}

/// Whether a client retransmitted more than SYNs. Then the server was held up, and may have answered a late
/// packet of a connection that it had closed with a reset.
fn held_up(arm: &Arm) -> bool {
    let counters = &arm.client.counters;
    counter(counters, "TcpRetransSegs") > counter(counters, "TcpExtTCPSynRetrans")
}

/// Kernel, clients and listeners agree on what was dropped, and every connection that waited for a second
/// SYN has its dropped SYN.
fn balances(summary: &Summary, arm: &Arm) {
    let disagree: Vec<_> = summary
        .warnings
        .iter()
        .filter(|warning| warning.id == "witness-disagrees")
        .filter(|warning| !(held_up(arm) && warning.text.starts_with("reset ")))
        .collect();
    assert!(disagree.is_empty(), "{disagree:?}");
    let queues = queues(arm);
    let drops = queues.drops.as_ref().expect("nothing was lost on the link");
    let server = &arm.server.as_ref().unwrap().counters;
    assert_eq!(drops.counted, counter(server, "TcpExtListenDrops"));
    let by_queue = drops.syns_dropped + drops.acks_dropped + drops.cookie_acks_refused;
    assert_eq!(by_queue, counter(server, "TcpExtListenOverflows"));
    assert_eq!(by_queue + drops.syns_dropped_half_open, drops.counted);
    assert_eq!(drops.syns_unanswered, drops.syns_dropped + drops.syns_dropped_half_open);
    // Step n was reached after n SYNs without an answer; who gave up sent one more than it retransmitted.
    let gave_up = arm.errors.get("connect-timeout").copied().unwrap_or(0);
    let retransmitted = counter(&arm.client.counters, "TcpExtTCPSynRetrans");
    assert_eq!(drops.syns_unanswered, retransmitted + gave_up);
    let climbed: u64 = (1..).zip(&queues.syn_ladder.connections).map(|(n, count)| n * count).sum();
    if gave_up == 0 && queues.syn_ladder.off == 0 && errors(arm) == 0 {
        assert_eq!(climbed, drops.syns_unanswered, "{:?}", queues.syn_ladder);
    }
    let outcomes: u64 = queues.outcomes.values().map(|outcome| outcome.count).sum();
    assert_eq!(outcomes, arm.attempts);
    for (class, count) in &arm.errors {
        assert_eq!(queues.outcomes[class].count, *count, "{class}");
    }
    for listener in &queues.listeners {
        assert!((1..=400).contains(&listener.length.points.len()), "{listener:?}");
    }
}

/// A queue that nothing is taken from is filled by more connections than it holds.
fn filled(queue: &[&str], count: &str) -> Summary {
    // The first accept comes when all have arrived; a few connections are served, the others give up.
    let load = [
        "--count",
        count,
        "--concurrency",
        count,
        "--accept-delay",
        "2s",
        "--timeout",
        "2500ms",
        "--warmup",
        "0",
    ];
    accept_queue(&[queue, &load].concat())
}

#[test]
fn a_queue_of_limit_n_holds_n_and_one() {
    if no_lab() {
        return;
    }
    for (backlog, count) in [(1, "12"), (4, "20"), (128, "160"), (4_096, "4200")] {
        let summary = filled(&["--backlog", &backlog.to_string()], count);
        let arm = only(&summary);
        let [queue] = queues(arm).listeners.as_slice() else { panic!("one listener") };
        assert_eq!((queue.limit, queue.peak), (backlog, backlog + 1), "{queue:?}");
        assert!(queue.was_full() && queue.full_samples > 0, "{queue:?}");
        assert!(queue.drops.is_some_and(|drops| drops > 0), "{queue:?}");
        let seen = &arm.server.as_ref().unwrap().listeners[0];
        assert_eq!((seen.accept_queue_limit, seen.accept_queue_peak), (backlog, backlog + 1));
        balances(&summary, arm);
    }
}

#[test]
fn the_listener_that_overflowed_is_told_from_two_others_by_its_own_drops() {
    if no_lab() {
        return;
    }
    // The listener that accepts slowly gets 100 in half a second. The others have no full queue unless the
    // machine stands still for a third of a second.
    let load = ["--listeners", "3", "--backlog", "64", "--count", "300", "--rate", "600"];
    let summary = accept_queue(&[&load[..], &["--accept-delay", "30ms"]].concat());
    let arm = only(&summary);
    let [full, second, third] = queues(arm).listeners.as_slice() else { panic!("three listeners") };
    // Samples of a busy machine may miss the moments in which the queue was full. Drops do not.
    assert!(full.peak > 32 && full.drops.is_some_and(|drops| drops > 0), "{full:?}");
    for other in [second, third] {
        assert!(!other.was_full(), "{other:?}");
        assert_eq!((other.drops, other.dropping_slices), (Some(0), 0), "{other:?}");
        assert_ne!(other.port, full.port);
    }
    let server = &arm.server.as_ref().unwrap().counters;
    assert_eq!(full.drops, Some(counter(server, "TcpExtListenDrops")));
    assert!(full.dropping_slices > 0 && full.dropping_slices <= full.slices, "{full:?}");
    balances(&summary, arm);
}

#[test]
fn every_slow_connect_on_a_direct_link_has_its_dropped_syn() {
    if no_lab() {
        return;
    }
    // Without cookies: where the machine is busy, handshakes are in flight here too, and a cookie whose ACK
    // meets a full queue is never answered.
    let load = ["--backlog", "16", "--count", "60", "--concurrency", "60", "--syncookies", "0"];
    let summary = accept_queue(&[&load[..], &["--accept-delay", "10ms"]].concat());
    let arm = only(&summary);
    assert_eq!((arm.attempts, arm.ok), (60, 60), "{:?}", arm.errors);
    let queues = queues(arm);
    let waited: u64 = queues.syn_ladder.connections.iter().sum();
    assert!(waited > 0, "{queues:?}");
    // The first step is 1 s, whatever the number of linear timeouts.
    assert!((queues.syn_ladder.at_s[0] - 1.0).abs() < f64::EPSILON);
    assert!(queues.outcomes["ok"].max_us >= 1e6, "{:?}", queues.outcomes);
    balances(&summary, arm);
}

/// Connections arrive one by one over 10 ms, so that some handshakes are in flight whenever the queue has
/// room for one: last ACKs meet a full queue.
const IN_FLIGHT: [&str; 12] = [
    "--link",
    "rtt=10ms",
    "--backlog",
    "64",
    "--rate",
    "1000",
    "--count",
    "400",
    "--accept-delay",
    "10ms",
    // Between two SYNs, the fourth at 3 s and the fifth at 7 s: what was accepted is also served by then.
    "--timeout",
    "5500ms",
];

#[test]
fn with_handshakes_in_flight_dropped_syns_and_last_acks_balance_apart() {
    if no_lab() {
        return;
    }
    let summary = accept_queue(&[&IN_FLIGHT[..], &["--syncookies", "0"]].concat());
    let arm = only(&summary);
    balances(&summary, arm);
    let queues = queues(arm);
    let drops = queues.drops.as_ref().unwrap();
    assert!(drops.syns_dropped > 0 && drops.acks_dropped > 0, "{drops:?}");
    assert_eq!(drops.cookie_acks_refused, 0);
    assert!(drops.resets_sent == 0 || held_up(arm), "{drops:?}");
    // The server's kernel sends its SYN-ACK again for a last ACK that it dropped, and the client
    // acknowledges each.
    let again = counter(&arm.server.as_ref().unwrap().counters, "TcpExtTCPSynRetrans");
    let steps: u64 = queues.syn_ack_ladder.connections.iter().sum();
    assert!(again > 0 && steps > 0, "{queues:?}");
    assert_eq!(queues.syn_ack_ladder.off, 0, "{:?}", queues.syn_ack_ladder);
    assert_eq!(queues.syn_ack_ladder.at_s, [1.0, 3.0, 7.0, 15.0, 31.0]);
    let wire = arm.wire.as_ref().unwrap();
    assert_eq!(wire.server_to_client.syn_ack, queues_established(arm) + again);
}

/// Handshakes that got a SYN-ACK: all but those that gave up connecting.
fn queues_established(arm: &Arm) -> u64 {
    arm.attempts - arm.errors.get("connect-timeout").copied().unwrap_or(0)
}

#[test]
fn with_abort_every_last_ack_of_a_request_that_met_a_full_queue_is_a_reset_on_the_wire() {
    if no_lab() {
        return;
    }
    let more = ["--syncookies", "0", "--abort-on-overflow", "on"];
    let summary = accept_queue(&[&IN_FLIGHT[..], &more].concat());
    let arm = only(&summary);
    balances(&summary, arm);
    let queues = queues(arm);
    let drops = queues.drops.as_ref().unwrap();
    let on_wire = arm.wire.as_ref().unwrap().server_to_client.rst;
    assert!(drops.acks_dropped > 0, "{drops:?}");
    assert_eq!(drops.resets_sent, on_wire);
    // On a busy machine, what a client sends again may meet a connection that has ended: more resets.
    let more = on_wire.checked_sub(drops.acks_dropped).expect("each is a reset");
    let message = || format!("{drops:?} {:?} {:?}", arm.errors, arm.client.counters);
    assert!(more == 0 || held_up(arm), "{}", message());
    let reset = arm.errors.get("reset").copied().unwrap_or(0);
    assert!((drops.acks_dropped..=on_wire).contains(&reset), "{}", message());
    assert!(drops.syns_dropped > 0, "SYNs stay silent: {drops:?}");
    // A reset takes the SYN's round trip and another one for the ACK and the RST.
    let at_once = queues.reset_at_once.as_ref().expect("some first SYNs were answered");
    assert!(at_once.min_us >= 19_000.0, "{at_once:?}");
}

#[test]
fn with_cookies_a_refused_last_ack_stays_silent_and_is_counted_apart() {
    if no_lab() {
        return;
    }
    for abort in ["off", "on"] {
        let more = ["--syncookies", "2", "--abort-on-overflow", abort];
        let summary = accept_queue(&[&IN_FLIGHT[..], &more].concat());
        let arm = only(&summary);
        balances(&summary, arm);
        let queues = queues(arm);
        let drops = queues.drops.as_ref().unwrap();
        assert!(drops.cookie_acks_refused > 0, "{drops:?}");
        assert_eq!(drops.acks_dropped, 0, "{drops:?}");
        let resets = arm.wire.as_ref().unwrap().server_to_client.rst;
        assert_eq!(drops.resets_sent, resets, "{drops:?}");
        assert!(resets == 0 || held_up(arm), "{resets} resets: {drops:?}");
        // These clients believe that they are connected, until their time is over.
        assert_eq!(arm.errors.get("timeout"), Some(&drops.cookie_acks_refused), "{:?}", arm.errors);
    }
}

#[test]
fn a_queue_that_holds_everybody_drops_nothing() {
    if no_lab() {
        return;
    }
    let load = ["--backlog", "1024", "--count", "200", "--rate", "2000", "--accept-delay", "1ms"];
    let summary = accept_queue(&load);
    let arm = only(&summary);
    assert_eq!((arm.attempts, arm.ok), (200, 200), "{:?}", arm.errors);
    balances(&summary, arm);
    let queues = queues(arm);
    assert_eq!(queues.drops.as_ref().unwrap().counted, 0);
    assert_eq!(queues.syn_ladder.connections.iter().sum::<u64>(), 0);
    assert!(!queues.listeners[0].was_full() && queues.listeners[0].full_samples == 0);
}

#[test]
fn somaxconn_clamps_the_backlog_and_the_queue_holds_one_more_than_that() {
    if no_lab() {
        return;
    }
    let summary = filled(&["--backlog", "4096", "--somaxconn", "16"], "60");
    let arm = only(&summary);
    let queue = &queues(arm).listeners[0];
    assert_eq!((queue.limit, queue.peak), (16, 17));
    assert_eq!(arm.server.as_ref().unwrap().sysctls["net.core.somaxconn"], "16");
    balances(&summary, arm);
}

#[test]
fn where_the_link_loses_packets_there_is_no_balance() {
    if no_lab() {
        return;
    }
    let summary = accept_queue(&["--link", "rtt=2ms,loss=5%", "--count", "60", "--backlog", "16"]);
    assert_eq!(queues(only(&summary)).drops, None);
}
