//! Does `connect` measure what it says, on each kind of link?

use tcptoll_core::record::{Arm, LinkKind};

use crate::support::{
    Folder, MEASURED, TOLERANCE, connect, counter, errors, measured, min_ms, no_lab, only, run,
    tcptoll,
};

/// Every connection opened, and both kernels agree.
fn all_opened(arm: &Arm, count: u64) {
    assert_eq!((arm.attempts, arm.ok, errors(arm)), (count, count, 0), "{:?}", arm.errors);
    assert_eq!(counter(&arm.client.counters, "TcpActiveOpens"), count);
    let server = arm.server.as_ref().unwrap();
    assert_eq!(counter(&server.counters, "TcpPassiveOpens"), count);
    assert_eq!(arm.histograms["connect_us"].count, count);
    assert_eq!(arm.histograms["first_byte_us"].count, count);
}

fn kind(arm: &Arm) -> LinkKind {
    arm.link.as_ref().unwrap().kind
}

#[test]
fn on_a_direct_link_every_attempt_succeeds_and_both_kernels_agree() {
    if no_lab() {
        return;
    }
    let summary = connect(&["--count", "200"]);
    let arm = only(&summary);
    all_opened(arm, 200);
    assert_eq!(kind(arm), LinkKind::Direct);
    assert!(!summary.partial && summary.causes.is_empty());
    // No program between the hosts: the timeline is of a run with a tap.
    assert_eq!(arm.timeline.as_ref().unwrap().source, "witness");
}

#[test]
fn ipv6_works_on_a_direct_and_on_an_emulated_link() {
    if no_lab() {
        return;
    }
    let summary = connect(&["--ipv6", "--count", "50"]);
    all_opened(only(&summary), 50);
    let summary = connect(&["--ipv6", "--link", "rtt=10ms", "--count", "50"]);
    let arm = only(&summary);
    all_opened(arm, 50);
    assert!(min_ms(arm, "connect_us") >= 9.0, "{} ms", min_ms(arm, "connect_us"));
    assert_eq!(arm.wire.as_ref().unwrap().client_to_server.syn, 50);
    assert!(arm.server.as_ref().unwrap().listeners[0].address.contains(':'));
}

#[test]
fn loopback_has_one_host_whose_counters_hold_both_ends() {
    if no_lab() {
        return;
    }
    let summary = connect(&["--link", "loopback", "--count", "50"]);
    let arm = only(&summary);
    all_opened(arm, 50);
    assert_eq!(kind(arm), LinkKind::Loopback);
    assert_eq!(counter(&arm.client.counters, "TcpPassiveOpens"), 50);
}

#[test]
fn a_closed_loop_over_20_ms_opens_no_more_than_a_hundred_per_second_with_two_at_once() {
    if no_lab() {
        return;
    }
    let args = ["--link", "rtt=20ms", "--concurrency", "2", "--first-byte", "off"];
    let summary = connect(&[&args[..], &["--count", "60"]].concat());
    let arm = only(&summary);
    assert_eq!((arm.attempts, arm.ok), (60, 60), "{:?}", arm.errors);
    let [rate, resolution] =
        ["connections_per_s", "rate_resolution_per_s"].map(|name| arm.metrics[name].value);
    // Two that take a round trip each: 2 / 20 ms. A busy machine makes them slower, and only a link
    // calibrated on one makes them faster, by half a millisecond.
    assert!(rate <= 2.0 / 0.019 + resolution, "{rate} ± {resolution}");
    // 58 begin after the two that fill the slots, each when another has completed. Where the client
    // is held up, two complete before the next begins.
    let completed = 2.0 * rate / resolution;
    assert!((55.5..59.5).contains(&completed), "{completed}: {rate} ± {resolution}");
}

#[test]
fn an_open_loop_has_no_fence_post_in_its_rate() {
    if no_lab() {
        return;
    }
    let summary = connect(&["--rate", "7", "--duration", "300ms"]);
    let arm = only(&summary);
    assert!((1..=3).contains(&arm.attempts), "{}", arm.attempts);
    // Those due at 0, 1/7 and 2/7 s stand for 3/7 s.
    let rate = arm.metrics["connections_per_s"].value;
    let completed = rate * 3.0 / 7.0;
    assert!(rate < 7.000_001 && (completed - completed.round()).abs() < 1e-6, "{rate}");
}

#[test]
fn a_rate_spreads_the_attempts_over_its_time() {
    if no_lab() {
        return;
    }
    let summary = connect(&["--rate", "500", "--count", "100"]);
    let arm = only(&summary);
    all_opened(arm, 100);
    // The hundredth is due 99/500 s after the first.
    assert!(arm.elapsed_s >= 0.198, "{} s", arm.elapsed_s);
    assert_eq!(arm.histograms["lateness_us"].count, 100);
}

#[test]
fn a_pause_is_taken_after_every_so_many_and_not_after_the_last() {
    if no_lab() {
        return;
    }
    let args = ["--pause-every", "25", "--pause", "100ms", "--count", "100"];
    let summary = connect(&args);
    let arm = only(&summary);
    all_opened(arm, 100);
    assert!(arm.elapsed_s >= 0.3, "three pauses: {} s", arm.elapsed_s);
}

#[test]
fn every_level_of_a_list_is_an_arm_named_after_it() {
    if no_lab() {
        return;
    }
    let summary = connect(&["--count", "10,20", "--link", "direct,loopback", "--rounds", "1"]);
    let arms: Vec<(&str, u64)> =
        summary.arms.iter().map(|arm| (arm.name.as_str(), arm.attempts)).collect();
    assert_eq!(
        arms,
        [
            ("count 10, link direct", 10),
            ("count 10, link loopback", 10),
            ("count 20, link direct", 20),
            ("count 20, link loopback", 20),
        ]
    );
    assert_eq!(summary.arms[3].factors["link"], "loopback");
}

#[test]
fn a_link_that_is_not_measured_says_so_and_nothing_else_is_other() {
    if no_lab() {
        return;
    }
    let words = ["--link", "rtt=5ms", "--count", "20", "--link-tolerance"];
    for (tolerance, is_measured) in [(TOLERANCE, false), (MEASURED, true)] {
        let summary = connect(&[&words[..], &[tolerance]].concat());
        let arm = only(&summary);
        all_opened(arm, 20);
        let link = arm.link.as_ref().unwrap();
        assert_eq!((link.asked.rtt_us, link.rtt_us.is_some()), (5e3, is_measured), "{link:?}");
        let told = summary.warnings.iter().any(|warning| warning.id == "link-not-measured");
        assert_eq!(told, !is_measured, "{:?}", summary.warnings);
        // A link that was measured sends early by what it was late then, on a machine that may be less busy now.
        let least_ms = if is_measured { 4.0 } else { 5.0 };
        assert!(min_ms(arm, "connect_us") >= least_ms, "{:?}", arm.histograms["connect_us"]);
    }
}

#[test]
fn two_runs_are_compared_with_a_word_of_the_links_that_nobody_measured() {
    if no_lab() {
        return;
    }
    let folder = Folder::new();
    let records = ["rtt=5ms", "direct"].map(|link| {
        let record = folder.path(&format!("{link}.jsonl"));
        let tail = ["--link-tolerance", TOLERANCE, "--out", &record];
        let words = ["connect", "--count", "20", "--link", link];
        let ran = run(&mut tcptoll(&[&words[..], &tail].concat()));
        assert!(measured(&ran), "{}", ran.stderr);
        record
    });
    let compared = run(&mut tcptoll(&["compare", &records[0], &records[1], "--format", "json"]));
    let about = format!("{}: the link was not measured", records[0]);
    assert!(compared.stdout.contains(&about), "{} {}", compared.stdout, compared.stderr);
    // Of a direct link nothing was asked that could be other.
    let other = format!("{}: the link", records[1]);
    assert!(!compared.stdout.contains(&other), "{}", compared.stdout);
}

#[test]
fn a_link_with_a_rate_is_measured_in_both_directions() {
    if no_lab() {
        return;
    }
    for (link, carried_by) in [
        ("rate=100mbit", LinkKind::Direct),
        ("rtt=5ms,rate=100mbit,queue=100p", LinkKind::EmulatedTun),
    ] {
        let summary = connect(&["--link", link, "--count", "50", "--link-tolerance", MEASURED]);
        let arm = only(&summary);
        all_opened(arm, 50);
        let measured = arm.link.as_ref().unwrap();
        assert_eq!((measured.kind, measured.asked.rate_bit_per_s), (carried_by, Some(100e6)));
        assert!(measured.rate_client_to_server_bit_per_s.is_some(), "{measured:?}");
        assert!(measured.rate_server_to_client_bit_per_s.is_some(), "{measured:?}");
    }
}

#[test]
fn syns_lost_on_purpose_are_sent_again_and_both_are_counted() {
    if no_lab() {
        return;
    }
    let link = "rtt=5ms,loss=20%";
    let summary = connect(&["--link", link, "--count", "60", "--concurrency", "60"]);
    let arm = only(&summary);
    assert_eq!(arm.attempts, 60);
    let (wire, counters) = (arm.wire.as_ref().unwrap(), &arm.client.counters);
    let again = counter(counters, "TcpExtTCPSynRetrans");
    assert!(again > 0 && wire.lost_on_purpose > 0, "{again}, {wire:?}");
    assert_eq!(wire.client_to_server.syn, counter(counters, "TcpActiveOpens") + again);
    assert!(arm.rungs.iter().sum::<u64>() > 0, "{:?}", arm.rungs);
    // Loss is no full queue.
    assert!(summary.causes.is_empty(), "{:?}", summary.causes);
}

/// Times that have to be less than twice a round trip.
mod alone {
    use super::*;

    /// The quickest operation took less than this, unless the link itself was late for want of a CPU.
    fn is_quicker(arm: &Arm, histogram: &str, limit_ms: f64) {
        let lateness = arm.link.as_ref().and_then(|link| link.lateness_us.as_ref());
        let late_us = lateness.and_then(|late| late.mean).unwrap_or(0.0);
        let least_ms = min_ms(arm, histogram);
        assert!(least_ms < limit_ms || late_us > 500.0, "{least_ms} ms, link late by {late_us} µs");
    }

    #[test]
    fn a_connection_over_20_ms_takes_one_round_trip_and_its_first_byte_two() {
        if no_lab() {
            return;
        }
        let summary = connect(&["--link", "rtt=20ms", "--count", "200"]);
        let arm = only(&summary);
        all_opened(arm, 200);
        assert_eq!(kind(arm), LinkKind::EmulatedTun);
        // A link calibrated on a busy machine releases its first packets up to half a millisecond early.
        assert!(min_ms(arm, "connect_us") >= 19.0, "{} ms", min_ms(arm, "connect_us"));
        is_quicker(arm, "connect_us", 40.0);
        assert!(min_ms(arm, "first_byte_us") >= 38.0, "{} ms", min_ms(arm, "first_byte_us"));

        let wire = arm.wire.as_ref().unwrap();
        let again = counter(&arm.client.counters, "TcpExtTCPSynRetrans");
        assert_eq!(wire.client_to_server.syn, arm.attempts + again);
        assert!(wire.server_to_client.syn_ack >= arm.ok, "{wire:?}");
        assert!(wire.client_to_server.fin + wire.server_to_client.fin >= 2 * arm.ok, "{wire:?}");
        assert_eq!((wire.lost_on_purpose, wire.queue_drops, wire.tap_drops), (0, 0, 0));
    }

    #[test]
    fn the_timeline_has_the_eight_steps_in_order_and_three_points_of_view_that_agree() {
        if no_lab() {
            return;
        }
        let summary = connect(&["--link", "rtt=20ms", "--count", "100"]);
        let timeline = only(&summary).timeline.as_ref().unwrap();
        let steps: Vec<(&str, &str)> =
            timeline.steps.iter().map(|step| (step.at.as_str(), step.name.as_str())).collect();
        assert_eq!(
            steps,
            [
                ("client", "connect() → SYN out"),
                ("wire", "SYN on its way"),
                ("server", "SYN in → SYN-ACK out"),
                ("wire", "SYN-ACK on its way"),
                ("client", "SYN-ACK in → connect() back"),
                ("client", "SYN-ACK in → ACK out"),
                ("wire", "ACK on its way"),
                ("server", "ACK in → accept() back"),
            ]
        );
        assert_eq!(timeline.source, "measured");
        assert!(timeline.matched + timeline.unmatched <= 100);
        // Medians, each read from a histogram of three digits.
        for pair in timeline.steps.windows(2) {
            assert!(pair[1].begins_us >= pair[0].begins_us * 0.998, "{pair:#?}");
        }
        for at in [1, 3, 6] {
            let step = &timeline.steps[at];
            assert!(step.p50_us >= 9_400.0, "half a round trip: {step:?}");
        }
        let view = |name: &str| {
            let found = timeline.views.iter().find(|view| view.name == name);
            found.unwrap_or_else(|| panic!("no view {name}"))
        };
        let (client, wire) = (view("client"), view("wire"));
        assert_eq!((client.expected_rtts, wire.expected_rtts), (1.0, 1.0));
        // The client's view holds the wire's.
        assert!(wire.p50_us <= client.p50_us * 1.002, "{wire:?} in {client:?}");
        assert!(wire.p50_us >= 19_000.0, "{wire:?}");
        assert!(view("server kernel").p50_us >= 19_000.0);
        assert!(view("server process").p50_us >= 28_500.0);
        assert!((view("server process").expected_rtts - 1.5).abs() < f64::EPSILON);
    }

    #[test]
    fn the_packet_relay_keeps_the_delay_and_says_what_it_is() {
        if no_lab() {
            return;
        }
        let summary = connect(&["--packet-relay", "--link", "rtt=10ms", "--count", "50"]);
        let arm = only(&summary);
        all_opened(arm, 50);
        assert_eq!(kind(arm), LinkKind::EmulatedPacket);
        assert!(min_ms(arm, "connect_us") >= 9.0, "{} ms", min_ms(arm, "connect_us"));
        is_quicker(arm, "connect_us", 20.0);
        // It was asked for, so it is no doubt.
        assert!(summary.warnings.iter().all(|warning| warning.id != "packet-fallback"));
    }

    #[test]
    fn fast_open_saves_one_of_two_round_trips_once_the_client_has_the_cookie() {
        if no_lab() {
            return;
        }
        let summary = connect(&[
            "--fast-open",
            "on",
            "--link",
            "rtt=20ms",
            "--count",
            "100",
            "--client-sysctl",
            "net.ipv4.tcp_fastopen=3",
            "--server-sysctl",
            "net.ipv4.tcp_fastopen=3",
        ]);
        let arm = only(&summary);
        assert_eq!((arm.attempts, arm.ok), (100, 100), "{:?}", arm.errors);
        assert!(counter(&arm.client.counters, "TcpExtTCPFastOpenActive") > 50);
        assert!(min_ms(arm, "first_byte_us") >= 19.0, "{} ms", min_ms(arm, "first_byte_us"));
        is_quicker(arm, "first_byte_us", 40.0);
        assert!(!arm.histograms.contains_key("connect_us"), "connect() waits for nothing");
    }
}
