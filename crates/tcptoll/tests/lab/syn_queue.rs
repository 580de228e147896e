//! A full SYN queue: what do ordinary clients experience, what does the kernel hold and count, and is the
//! peer that fills the queue refused outside a lab?

use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::process::Command;

use tcptoll_core::record::{Arm, ListenerQueue, Queues, Summary};
use tcptoll_kernel::process::spawn_with;
use tcptoll_lab::channel::Channel;
use tcptoll_lab::lab::{HOST_COMMAND, Handle, LAB_COMMAND, Plan};
use tcptoll_lab::messages::KeepHalfOpen;

use crate::support::{
    Folder, TOLERANCE, causes, checked_summary, counter, no_lab, only, run, tcptoll,
};

fn syn_queue(args: &[&str]) -> Summary {
    let folder = Folder::new();
    let record = folder.path("record.jsonl");
    let mut all = vec!["syn-queue", "--quiet", "--format", "json", "--out", &record];
    all.extend(["--link-tolerance", TOLERANCE, "--seed", "1", "--rounds", "1"]);
    all.extend(args);
    let ran = run(&mut tcptoll(&all));
    assert!(matches!(ran.status, Some(0..=2)), "{args:?}: {:?}: {}", ran.status, ran.stderr);
    checked_summary(&ran.stdout)
}

fn queues(arm: &Arm) -> &Queues {
    arm.own.queues.as_deref().expect("each arm has its queues")
}

fn listener(arm: &Arm) -> &ListenerQueue {
    &queues(arm).listeners[0]
}

fn at_server(arm: &Arm, name: &str) -> u64 {
    counter(&arm.server.as_ref().unwrap().counters, name)
}

/// Kernel, clients and listener agree.
fn no_doubt(summary: &Summary) {
    let disagree: Vec<_> =
        summary.warnings.iter().filter(|warning| warning.id == "witness-disagrees").collect();
    assert!(disagree.is_empty(), "{disagree:?}");
}

#[test]
fn with_cookies_off_every_syn_of_a_client_that_meets_a_full_queue_is_dropped_and_counted() {
    if no_lab() {
        return;
    }
    let summary = syn_queue(&[
        "--syncookies",
        "0",
        "--count",
        "20",
        "--timeout",
        "2500ms",
        "--half-open",
        "129",
    ]);
    let arm = only(&summary);
    assert_eq!((arm.attempts, arm.ok), (20, 0), "{:?}", arm.errors);
    assert_eq!(arm.errors["connect-timeout"], 20);
    let peer = queues(arm).half_open_peer.as_ref().unwrap();
    assert!(peer.syns_sent >= 129 && peer.sources == 129, "{peer:?}");
    assert_eq!(listener(arm).half_open_limit, Some(129));
    assert_eq!(listener(arm).half_open_peak, Some(129), "n + 1, and no client beside them");
    // Each client sent its SYN at 0, 1 and 2 s, and none of the peer's was dropped.
    let drops = queues(arm).drops.as_ref().unwrap();
    assert!(drops.syns_unanswered >= 60, "{drops:?}");
    assert_eq!(drops.syns_unanswered, drops.syns_dropped_half_open);
    assert_eq!(drops.syns_unanswered, at_server(arm, "TcpExtTCPReqQFullDrop"));
    assert_eq!(drops.counted, at_server(arm, "TcpExtListenDrops"));
    assert_eq!(at_server(arm, "TcpExtSyncookiesSent"), 0);
    assert_eq!(causes(&summary, arm), ["syn-queue-full"]);
    assert_eq!(summary.causes[0].evidence["half_open_peak"], 129);
    no_doubt(&summary);
}

#[test]
fn with_cookies_ordinary_clients_connect_beside_the_same_peer() {
    if no_lab() {
        return;
    }
    let summary = syn_queue(&["--syncookies", "1,2", "--count", "30", "--half-open", "129"]);
    for (arm, held) in summary.arms.iter().zip([129, 0]) {
        assert_eq!((arm.attempts, arm.ok), (30, 30), "{}: {:?}", arm.name, arm.errors);
        assert_eq!(listener(arm).half_open_peak, Some(held), "{}", arm.name);
        assert!(at_server(arm, "TcpExtSyncookiesSent") >= 30, "{}", arm.name);
        assert!(at_server(arm, "TcpExtSyncookiesRecv") >= 30, "{}", arm.name);
        assert_eq!(at_server(arm, "TcpExtListenDrops"), 0, "{}", arm.name);
        assert_eq!(causes(&summary, arm), [""; 0]);
    }
    no_doubt(&summary);
}

#[test]
fn a_listener_holds_the_number_of_requests_that_follows_from_its_settings() {
    if no_lab() {
        return;
    }
    // More sources than any of these holds.
    let more = ["--half-open", "4200", "--count", "5", "--timeout", "1s"];
    let by_backlog =
        syn_queue(&[&more[..], &["--syncookies", "1", "--backlog", "1,4,128,4096"]].concat());
    let held = |summary: &Summary| -> Vec<(Option<u32>, Option<u32>)> {
        let half_open = |arm: &Arm| (listener(arm).half_open_peak, listener(arm).half_open_limit);
        summary.arms.iter().map(half_open).collect()
    };
    let all = [2, 5, 129, 4_097].map(|n| (Some(n), Some(n)));
    assert_eq!(held(&by_backlog), all);
    // Without cookies the last quarter of tcp_max_syn_backlog is kept for known clients.
    let off = ["--syncookies", "0", "--backlog", "128", "--max-syn-backlog", "16,128"];
    let by_quarter = syn_queue(&[&more[..], &off].concat());
    assert_eq!(held(&by_quarter), [13, 97].map(|n| (Some(n), Some(n))));
    for arm in &by_quarter.arms {
        assert_eq!(at_server(arm, "TcpExtTCPReqQFullDrop"), 0, "the queue itself was not full");
        assert!(at_server(arm, "TcpExtListenDrops") > 0);
    }
}

#[test]
fn clients_of_a_queue_that_empties_stand_on_the_ladder_with_a_dropped_syn_for_each_step() {
    if no_lab() {
        return;
    }
    // A request lives 3 s: 1 s, and 2 s after its one retransmission. The peer comes back after 20 s only.
    let summary = syn_queue(&[
        "--syncookies",
        "0",
        "--half-open",
        "129",
        "--half-open-again",
        "20s",
        "--server-sysctl",
        "net.ipv4.tcp_synack_retries=1",
        "--count",
        "40",
        "--timeout",
        "12s",
    ]);
    let arm = only(&summary);
    assert_eq!((arm.attempts, arm.ok), (40, 40), "{:?}", arm.errors);
    let queues = queues(arm);
    let waited: u64 = arm.rungs.iter().sum();
    assert!(waited > 0, "{:?}", arm.rungs);
    let climbed: u64 = (1..).zip(&queues.syn_ladder.connections).map(|(n, count)| n * count).sum();
    let drops = queues.drops.as_ref().unwrap();
    // The peer's own SYNs came first and were all taken.
    assert_eq!(climbed, drops.syns_unanswered, "{:?}", queues.syn_ladder);
    assert_eq!(climbed, at_server(arm, "TcpExtTCPReqQFullDrop"));
    assert_eq!(climbed, counter(&arm.client.counters, "TcpExtTCPSynRetrans"));
    assert_eq!(queues.half_open_peer.as_ref().unwrap().syns_sent, 129);
    assert_eq!(listener(arm).half_open_peak, Some(129));
    assert_eq!(causes(&summary, arm), ["syn-queue-full"]);
    no_doubt(&summary);
}

#[test]
fn the_peer_fills_the_queue_over_every_link_and_either_ip() {
    if no_lab() {
        return;
    }
    for place in [
        &["--ipv6"][..],
        &["--link", "rtt=10ms"],
        &["--link", "rtt=10ms", "--ipv6"],
        &["--link", "rtt=10ms", "--packet-relay"],
    ] {
        let load = ["--syncookies", "0", "--backlog", "8", "--count", "5", "--timeout", "1500ms"];
        let summary = syn_queue(&[place, &load].concat());
        let arm = only(&summary);
        assert_eq!((arm.attempts, arm.ok), (5, 0), "{place:?}: {:?}", arm.errors);
        assert_eq!(listener(arm).half_open_peak, Some(9), "{place:?}");
        assert!(at_server(arm, "TcpExtTCPReqQFullDrop") >= 10, "{place:?}");
        if let Some(wire) = &arm.wire {
            let peer = queues(arm).half_open_peer.as_ref().unwrap();
            assert!(wire.client_to_server.syn >= peer.syns_sent + 10, "{place:?}: {wire:?}");
            assert_eq!(wire.client_to_server.rst, 0, "nobody answers: {place:?}");
        }
        no_doubt(&summary);
    }
}

#[test]
fn a_longer_queue_is_the_proof_of_a_fix_and_no_peer_is_healthy() {
    if no_lab() {
        return;
    }
    let summary = syn_queue(&[
        "--syncookies",
        "0",
        "--half-open",
        "30",
        "--backlog",
        "16,256",
        "--count",
        "10",
        "--timeout",
        "1500ms",
    ]);
    let [ill, well] = summary.arms.as_slice() else { panic!("two arms") };
    assert_eq!((ill.ok, well.ok), (0, 10), "{:?}", well.errors);
    let advice = summary.advice.iter().find(|advice| advice.cause == "syn-queue-full").unwrap();
    assert!(advice.proof.as_ref().unwrap().contains("all 10 connected"), "{advice:?}");
    let healthy = syn_queue(&["--half-open", "0", "--syncookies", "0", "--count", "10"]);
    assert_eq!(only(&healthy).ok, 10);
    assert_eq!(queues(only(&healthy)).half_open_peer, None);
    assert!(healthy.causes.is_empty(), "{:?}", healthy.causes);
}

#[test]
fn no_option_lets_the_peer_out_of_the_lab() {
    for args in [
        &["--to", "127.0.0.1:80"][..],
        &["--link", "loopback"],
        &["--half-open", "65537"],
        &["--half-open-rate", "1000000"],
    ] {
        let ran = run(&mut tcptoll(&[&["syn-queue", "--quiet"], args].concat()));
        assert_eq!(ran.status, Some(2), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.starts_with("error: "), "{}", ran.stderr);
    }
}

#[test]
fn a_host_outside_a_lab_does_not_know_the_order() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tcptoll"));
    command.arg(HOST_COMMAND).arg(theirs.as_raw_fd().to_string());
    let mut process = spawn_with(&mut command, &[theirs.as_fd()]).unwrap();
    drop(theirs);
    let mut host = Handle::new(Channel::new(ours), "client host").unwrap();
    let order = KeepHalfOpen {
        target: "10.77.0.2:80".parse().unwrap(),
        number: 1,
        rate_per_s: 1.0,
        again_ns: 600_000_000,
    };
    let refused = host.ask(&order).unwrap_err().to_string();
    assert!(refused.contains("knows no order keep-half-open"), "{refused}");
    drop(host);
    process.wait().unwrap();
}

#[test]
fn a_client_host_of_a_lab_refuses_every_target_but_the_lab_s_server() {
    if no_lab() {
        return;
    }
    let plan = Plan {
        link: "direct".to_owned(),
        ipv6: false,
        seed: 1,
        force_packet: false,
        client_cpu: None,
        server_cpu: None,
        client_addresses: Vec::new(),
        silent_addresses: true,
    };
    let pairs = [(); 3].map(|()| UnixStream::pair().unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_tcptoll"));
    command.arg(LAB_COMMAND).arg(serde_json::to_string(&plan).unwrap());
    command.args(pairs.each_ref().map(|pair| pair.1.as_raw_fd().to_string()));
    let mut process =
        spawn_with(&mut command, &pairs.each_ref().map(|pair| pair.1.as_fd())).unwrap();
    let [client, server, link] = pairs.map(|(ours, _)| Channel::new(ours));
    let mut client = Handle::new(client, "client host").unwrap();
    for target in ["10.77.0.1:80", "192.0.2.1:80", "127.0.0.1:80", "[2001:db8::1]:80"] {
        let order = KeepHalfOpen {
            target: target.parse().unwrap(),
            number: 1,
            rate_per_s: 1.0,
            again_ns: 600_000_000,
        };
        let refused = client.ask(&order).unwrap_err().to_string();
        assert!(refused.contains("at the lab's server"), "{target}: {refused}");
    }
    drop((client, server, link));
    process.wait().unwrap();
}
