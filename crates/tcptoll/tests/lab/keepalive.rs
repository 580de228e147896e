//! What `keepalive` counts of idle connections: is it what was asked for, and what the kernels saw?
//!
//! Witnesses are the kernels' counters and the packets on the link; expected numbers are arithmetic
//! on the settings. Timers of the kernel may fire an eighth of their wait late, never early.

use std::ops::RangeInclusive;
use std::path::Path;
use std::process::Command;

use tcptoll_core::record::{Arm, Keepalive, Summary};

use crate::support::{
    Folder, TOLERANCE, checked_summary, counter, errors, last_line, no_lab, only, run, tcptoll,
};

/// Options of a short trial, unless the test has its own.
///
/// The link has no rate: where the machine is busy, none could be kept.
const SHORT: [[&str; 2]; 6] = [
    ["--link", "rtt=0.25ms"],
    ["--writer", "off"],
    ["--sockets", "200"],
    ["--duration", "1s"],
    ["--rounds", "1"],
    ["--link-tolerance", TOLERANCE],
];

/// Runs `keepalive` and gives its summary, which must be right in all that every summary must be.
pub(crate) fn keepalive(args: &[&str]) -> Summary {
    keepalive_by(tcptoll, args)
}

/// The same, where `program` makes the command of the words of the command line.
pub(crate) fn keepalive_by(program: impl Fn(&[&str]) -> Command, args: &[&str]) -> Summary {
    let folder = Folder::new();
    let record = folder.path("record.jsonl");
    let mut all = vec!["keepalive", "--quiet", "--format", "json", "--seed", "1", "--out", &record];
    let asked = SHORT.iter().filter(|[option, _]| !args.contains(option));
    all.extend(asked.flatten());
    all.extend(args);
    let ran = run(&mut program(&all));
    assert!(matches!(ran.status, Some(0 | 1)), "{args:?}: {:?}: {}", ran.status, ran.stderr);
    let summary = checked_summary(&ran.stdout);
    assert_eq!(last_line(Path::new(&record)).as_ref(), Some(&summary), "the record's last line");
    // A machine that is busy with other tests may make a run invalid that is right in all else.
    assert_eq!(ran.status, Some(i32::from(!summary.valid)), "{args:?}: {:?}", summary.warnings);
    assert_eq!(ran.stderr, "", "nothing is said on stderr by a quiet run without limits");
    for arm in &summary.arms {
        witnessed(&summary, arm);
    }
    summary
}

/// Probes are as many as the kernels say, to the packet, and nothing was lost that nobody lost.
fn witnessed(summary: &Summary, arm: &Arm) {
    let said: Vec<_> = summary.warnings.iter().filter(|w| w.id == "witness-disagrees").collect();
    assert!(said.is_empty(), "{}: {said:?}", arm.name);
    let (Some(wire), Some(server)) = (&arm.wire, &arm.server) else { return };
    let counted = [&arm.client.counters, &server.counters]
        .map(|counters| counter(counters, "TcpExtTCPKeepAlive"));
    let seen = [wire.client_to_server.keepalive_probe, wire.server_to_client.keepalive_probe];
    assert_eq!(seen, counted, "{}: probes on the wire, and of the kernels", arm.name);
    // A machine without a CPU for the link loses packets, and the trial is excluded.
    let dropped = arm.link.as_ref().unwrap().unwanted_drops;
    assert!(dropped == 0 || !summary.valid, "{}: {dropped}", arm.name);
}

/// What was found out about the connections of an arm.
pub(crate) fn told(arm: &Arm) -> &Keepalive {
    arm.own.keepalive.as_ref().expect("an arm of keepalive has its figures")
}

/// Connections of every arm were made, and none was closed.
fn all_live(arm: &Arm) {
    assert_eq!((arm.ok, errors(arm)), (told(arm).sockets, 0), "{}: {:?}", arm.name, arm.errors);
}

/// Checks in the window, at least and at most, if each connection is checked every `idle_s` and its
/// timer is late by at most this share. Where the machine stands still at an edge of the window, up
/// to a quarter of the checks is on its other side: that still tells one check from two.
fn expected(checked: &Keepalive, idle_s: f64, late: f64) -> RangeInclusive<f64> {
    let exact = checked.idle_sockets as f64 * checked.window_s / idle_s;
    exact / (1.0 + late) * 0.75..=exact * 1.25
}

#[test]
fn probes_on_the_wire_are_those_that_the_kernels_sent_whichever_side_checks() {
    if no_lab() {
        return;
    }
    let summary = keepalive(&["--mechanism", "tcp", "--side", "server,client,both"]);
    assert_eq!(summary.arms.len(), 3);
    for arm in &summary.arms {
        all_live(arm);
        let wire = arm.wire.as_ref().unwrap();
        let seen =
            [wire.client_to_server.keepalive_probe > 0, wire.server_to_client.keepalive_probe > 0];
        let side = told(arm).side.as_str();
        let expected = [side != "server", side != "client"];
        assert_eq!(seen, expected, "{side}: who sends probes");
        let answers = told(arm).probe_answers.unwrap().packets;
        assert!(answers > 0, "{side}");
    }
}

#[test]
fn packets_of_an_hour_are_measured_only_where_the_window_holds_a_round_of_checks() {
    if no_lab() {
        return;
    }
    let args = ["--mechanism", "tcp,heartbeat", "--idle", "2s", "--warmup", "0"];
    for (duration, measured) in [("500ms", false), ("2500ms", true)] {
        let summary = keepalive(&[&args[..], &["--duration", duration]].concat());
        for arm in &summary.arms {
            all_live(arm);
            let metrics =
                ["checking_packets_per_hour_per_socket", "checking_bytes_per_hour_per_socket"];
            let has = metrics.map(|metric| arm.metrics.contains_key(metric));
            assert_eq!(has, [measured; 2], "{} in {duration}", arm.name);
            let computed = told(arm).computed_packets_per_hour();
            assert_eq!(computed, Some(3_600.0), "{}", arm.name);
        }
    }
}

#[test]
fn every_heartbeat_that_was_sent_is_seen_on_the_wire_with_its_acknowledgment() {
    if no_lab() {
        return;
    }
    for side in ["server", "client"] {
        // All at once, 600 ms after checking began, and a second later again: one of each lies in
        // the window, far from its edges.
        let args = ["--mechanism", "heartbeat", "--idle", "600ms", "--warmup", "0", "--side", side];
        let summary = keepalive(&args);
        let arm = only(&summary);
        all_live(arm);
        let told = told(arm);
        let seen = [told.heartbeats, told.heartbeat_acks].map(|traffic| traffic.unwrap().packets);
        let sent = told.nulls_sent;
        assert_eq!(seen, [sent, sent], "{side}: in {} s", told.window_s);
        // The window of a busy machine may end late.
        assert!(sent == 200 || sent > 200 && told.window_s > 1.4, "{side}: {sent}");
        assert_eq!(told.heartbeats.unwrap().bytes, sent * 56, "{side}: 52 bytes and the Null's 4");
    }
}

#[test]
fn heartbeats_that_ask_for_an_answer_get_one_each() {
    if no_lab() {
        return;
    }
    let summary =
        keepalive(&["--mechanism", "heartbeat", "--evidence", "answered", "--idle", "500ms"]);
    let arm = only(&summary);
    all_live(arm);
    let wire = arm.wire.as_ref().unwrap();
    // Over the whole trial, so without edges: as many segments with payload each way.
    // Without retransmissions, which a busy machine causes.
    let data = [&wire.server_to_client, &wire.client_to_server]
        .map(|counted| counted.data - counted.retransmission);
    assert!(data[0] > 0 && data[0] == data[1], "{data:?}");
}

#[test]
fn who_does_not_check_by_time_sends_nothing() {
    if no_lab() {
        return;
    }
    let summary = keepalive(&["--mechanism", "none,lazy"]);
    for arm in &summary.arms {
        all_live(arm);
        let told = told(arm);
        let traffic = [told.probes, told.probe_answers, told.heartbeats, told.heartbeat_acks];
        assert!(traffic.iter().all(|t| t.unwrap().packets == 0), "{}: {traffic:?}", arm.name);
        assert_eq!(told.nulls_sent, 0, "{}", arm.name);
    }
}

#[test]
fn with_the_kernel_s_own_idle_time_no_probe_is_seen_until_the_sysctl_is_short() {
    if no_lab() {
        return;
    }
    let left =
        ["--mechanism", "tcp", "--idle", "kernel", "--interval", "kernel", "--probes", "kernel"];
    let defaults = keepalive(&left);
    let arm = only(&defaults);
    all_live(arm);
    let checking = &told(arm).checking;
    let settings = (checking.idle_s, checking.interval_s, checking.probes);
    assert_eq!(settings, (Some(7_200.0), Some(75.0), Some(9)), "a new network has the defaults");
    assert!(arm.metrics["keepalive_probes"].value.abs() < 0.5, "none was sent");
    assert_eq!(counter(&arm.server.as_ref().unwrap().counters, "TcpExtTCPKeepAlive"), 0);

    let mut short = [&left[..], &["--duration", "2500ms"]].concat();
    short.extend(["--server-sysctl", "net.ipv4.tcp_keepalive_time=1"]);
    short.extend(["--server-sysctl", "net.ipv4.tcp_keepalive_intvl=1"]);
    let summary = keepalive(&short);
    let arm = only(&summary);
    all_live(arm);
    let told = told(arm);
    assert_eq!(told.checking.idle_s, Some(1.0));
    // The window begins before the probing does: a first probe of each is due within it.
    assert!(arm.metrics["keepalive_probes"].value > 0.0, "{told:?}");
}

/// Rates of messages and of checks: who has to wait for a CPU is below them.
mod alone {
    use super::*;

    #[test]
    fn a_writer_without_pause_takes_the_line_and_what_it_says_it_wrote_was_on_it() {
        if no_lab() {
            return;
        }
        // A rate that the link keeps on a busy machine too: what it was late by, it catches up.
        let link = ["--link", "rtt=0.25ms,rate=20mbit", "--writer", "on"];
        let summary = keepalive(&[&["--mechanism", "none", "--sockets", "50"], &link[..]].concat());
        let arm = only(&summary);
        all_live(arm);
        let goodput = arm.metrics["goodput_bytes_per_s"].value;
        let messages = arm.metrics["messages_per_s"].value;
        assert!((messages * 1_000.0 / goodput - 1.0).abs() < 1e-9, "{messages} of 1000 bytes");
        // 20 Mbit/s; of each 1538 bytes on the line 1448 are payload.
        let most = 20e6 / 8.0 * 1_448.0 / 1_538.0;
        let share = goodput / most;
        assert!((0.7..=1.2).contains(&share), "{goodput} bytes/s, {share} of the line's");
    }

    #[test]
    fn a_writer_keeps_its_rate() {
        if no_lab() {
            return;
        }
        let args = ["--mechanism", "none", "--writer", "on", "--rate", "500", "--message", "100"];
        let summary = keepalive(&args);
        let arm = only(&summary);
        let messages = arm.metrics["messages_per_s"].value;
        assert!((375.0..=625.0).contains(&messages), "{messages} messages a second");
    }

    #[test]
    fn idle_connections_are_told_apart_from_the_one_that_writes() {
        if no_lab() {
            return;
        }
        let link = ["--link", "rtt=0.25ms,rate=20mbit", "--writer", "on"];
        let args = ["--mechanism", "tcp,heartbeat", "--sockets", "201"];
        let summary = keepalive(&[&args, &link[..]].concat());
        for arm in &summary.arms {
            all_live(arm);
            let told = told(arm);
            assert_eq!((told.sockets, told.idle_sockets), (201, 200));
            let checks = told.probes.unwrap().packets + told.heartbeats.unwrap().packets;
            let range = expected(told, 1.0, 0.125);
            assert!(range.contains(&(checks as f64)), "{}: {checks}, expected {range:?}", arm.name);
            // Of 200 a second each takes 52 bytes and up to 4 more, and 38 for Ethernet.
            let share = told.link_share.unwrap();
            let least = 200.0 * 90.0 * 8.0 / 20e6 * 0.65;
            assert!((least..least * 2.5).contains(&share), "{}: {share}", arm.name);
        }
    }

    #[test]
    fn every_idle_connection_is_probed_once_in_an_idle_time() {
        if no_lab() {
            return;
        }
        let summary = keepalive(&["--mechanism", "tcp", "--sockets", "1000"]);
        let arm = only(&summary);
        all_live(arm);
        let told = told(arm);
        let probes = told.probes.unwrap().packets as f64;
        let range = expected(told, 1.0, 0.125);
        assert!(range.contains(&probes), "{probes} probes, expected {range:?}");
        let per_hour = arm.metrics["checking_packets_per_hour_per_socket"].value;
        let least = 7_200.0 / 1.125 * 0.75;
        assert!((least..=7_200.0 * 1.25).contains(&per_hour), "{per_hour} packets an hour");
        assert_eq!((told.nulls_sent, told.heartbeats.unwrap().packets), (0, 0));
    }

    #[test]
    fn every_idle_connection_gets_one_heartbeat_in_an_idle_time() {
        if no_lab() {
            return;
        }
        for side in ["server", "client"] {
            let summary =
                keepalive(&["--mechanism", "heartbeat", "--sockets", "1000", "--side", side]);
            let arm = only(&summary);
            all_live(arm);
            let told = told(arm);
            let beats = told.heartbeats.unwrap().packets as f64;
            // A tick of 10 ms late, or the scheduler of a busy machine.
            let range = expected(told, 1.0, 0.1);
            assert!(range.contains(&beats), "{side}: {beats} heartbeats, expected {range:?}");
            let per_hour = arm.metrics["checking_packets_per_hour_per_socket"].value;
            assert!((5_400.0..=9_000.0).contains(&per_hour), "{side}: {per_hour} packets an hour");
            assert_eq!(told.probes.unwrap().packets, 0, "{side}");
            // A busy machine is late to acknowledge some.
            let again = told.heartbeat_retransmissions;
            assert!(again as f64 <= beats / 5.0, "{side}: {again}");
        }
    }
}
