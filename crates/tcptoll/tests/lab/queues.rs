//! Full queues, scarce ports, silent links: are failures counted, classed and explained?

use tcptoll_core::record::Summary;

use crate::support::{causes, checked_summary, connect, counter, errors, no_lab, only, run};

const BURST: [&str; 12] = [
    "--rounds",
    "1",
    "--backlog",
    "16,4096",
    "--count",
    "200",
    "--concurrency",
    "200",
    // 0.4 s for all 200; a busy machine may need ten times as long for each.
    "--accept-delay",
    "2ms",
    "--timeout",
    "4s",
];

fn burst(more: &[&str]) -> Summary {
    let mut args = BURST.to_vec();
    args.extend(more);
    connect(&args)
}

/// A backlog that holds everybody turns nobody away.
fn long_queue_is_well(summary: &Summary) {
    let well = &summary.arms[1];
    assert_eq!((well.attempts, well.ok), (200, 200), "{:?}", well.errors);
    assert_eq!(causes(summary, well), [""; 0]);
    assert_eq!(well.rungs.iter().sum::<u64>(), 0, "{:?}", well.rungs);
    assert_eq!(counter(&well.server.as_ref().unwrap().counters, "TcpExtListenOverflows"), 0);
}

#[test]
fn a_full_accept_queue_is_named_with_overflows_and_the_rungs_of_the_ladder() {
    if no_lab() {
        return;
    }
    let summary = burst(&[]);
    let ill = &summary.arms[0];
    assert_eq!(ill.attempts, 200);
    let server = ill.server.as_ref().unwrap();
    assert!(counter(&server.counters, "TcpExtListenOverflows") > 0, "{:?}", server.counters);
    assert_eq!(server.listeners[0].accept_queue_limit, 16);
    assert!(causes(&summary, ill).contains(&"accept-queue-full"), "{:?}", summary.causes);
    // The first rung of Linux's ladder is 1 s, whatever tcp_syn_linear_timeouts is.
    assert!((ill.syn_retry_ladder_s[0] - 1.0).abs() < f64::EPSILON);
    assert!(ill.rungs.iter().sum::<u64>() > 0, "{:?}", ill.rungs);
    assert!(ill.histograms["connect_us"].max.unwrap() >= 1e6);
    let again = counter(&ill.client.counters, "TcpExtTCPSynRetrans");
    assert!(again >= ill.rungs.iter().sum::<u64>(), "{again} SYNs sent again");
    assert!(summary.advice.iter().any(|advice| advice.cause == "accept-queue-full"));
    long_queue_is_well(&summary);
}

#[test]
fn over_10_ms_without_cookies_the_queues_are_named_from_the_counters_that_count_there() {
    if no_lab() {
        return;
    }
    let off = "net.ipv4.tcp_syncookies=0";
    let summary = burst(&["--link", "rtt=10ms", "--server-sysctl", off]);
    let ill = &summary.arms[0];
    assert_eq!(ill.attempts, 200);
    assert_eq!(ill.server.as_ref().unwrap().sysctls["net.ipv4.tcp_syncookies"], "0");
    assert!(!causes(&summary, ill).is_empty());
    let counters = &ill.server.as_ref().unwrap().counters;
    let dropped =
        counter(counters, "TcpExtTCPReqQFullDrop") + counter(counters, "TcpExtListenOverflows");
    assert!(dropped > 0, "{counters:?}");
    assert_eq!(counter(counters, "TcpExtSyncookiesSent"), 0);
    long_queue_is_well(&summary);
}

#[test]
fn over_10_ms_with_cookies_connections_open_and_never_hear_the_server() {
    if no_lab() {
        return;
    }
    let summary = burst(&["--link", "rtt=10ms"]);
    let ill = &summary.arms[0];
    assert_eq!(ill.attempts, 200);
    assert!(causes(&summary, ill).contains(&"accept-queue-full"), "{:?}", summary.causes);
    // connect() succeeding proves little: the first byte decides. Every latency is of the same
    // operations, those that succeeded; handshakes of the others are apart.
    let count = |name: &str| ill.histograms.get(name).map_or(0, |histogram| histogram.count);
    assert_eq!((count("connect_us"), count("first_byte_us")), (ill.ok, ill.ok));
    // Of a trial that was repeated, as the machine was busy, the figure is one of rounds.
    let behind = if ill.rounds.is_empty() { ill.ok } else { 1 };
    assert_eq!(ill.metrics["connect_us_mean"].n, behind);
    assert!(count("connect_of_failed_us") > 0, "{:?}", ill.errors);
    long_queue_is_well(&summary);
}

#[test]
fn a_range_of_64_ports_gives_64_connections_and_the_rest_are_of_class_local_ports() {
    if no_lab() {
        return;
    }
    // A FIN that the client sends again because the server was held up meets no socket any more;
    // the RST that answers it would end the client's TIME-WAIT and free its port (RFC 1337).
    let range = "net.ipv4.ip_local_port_range=40000 40063";
    let no_assassins = "net.ipv4.tcp_rfc1337=1";
    let sysctls = ["--client-sysctl", range, "--client-sysctl", no_assassins];
    let summary = connect(&[&sysctls[..], &["--count", "200"]].concat());
    let arm = only(&summary);
    assert_eq!((arm.attempts, arm.ok), (200, 64));
    assert_eq!(arm.errors.keys().collect::<Vec<_>>(), ["local-ports"]);
    assert_eq!(causes(&summary, arm), ["local-ports-scarce"]);
    assert_eq!(counter(&arm.client.counters, "TcpActiveOpens"), 64);
}

#[test]
fn a_second_source_address_brings_its_own_ports() {
    if no_lab() {
        return;
    }
    let range = "net.ipv4.ip_local_port_range=40000 40063";
    let bind = "10.77.0.11,10.77.0.12";
    let summary = connect(&["--client-sysctl", range, "--bind", bind, "--count", "120"]);
    let arm = only(&summary);
    assert_eq!((arm.attempts, arm.ok), (120, 120), "{:?}", arm.errors);
}

#[test]
fn the_client_s_own_address_is_a_source_address_too() {
    if no_lab() {
        return;
    }
    let ipv4 = ["10.77.0.1", "10.77.0.1,10.77.0.11"].map(|bind| vec!["--bind", bind]);
    for args in ipv4.into_iter().chain([vec!["--ipv6", "--bind", "fd77::1"]]) {
        let summary = connect(&[&args[..], &["--count", "20"]].concat());
        assert_eq!(only(&summary).ok, 20, "{args:?}: {:?}", only(&summary).errors);
    }
}

#[test]
fn a_link_that_loses_nearly_everything_makes_every_attempt_a_connect_timeout() {
    if no_lab() {
        return;
    }
    let link = "rtt=10ms,loss=99.999%";
    let summary = connect(&["--link", link, "--timeout", "300ms", "--count", "5"]);
    let arm = only(&summary);
    assert_eq!((arm.attempts, arm.ok, errors(arm)), (5, 0, 5));
    assert_eq!(arm.errors["connect-timeout"], 5);
    let wire = arm.wire.as_ref().unwrap();
    assert!(wire.lost_on_purpose >= 5, "{wire:?}");
    assert_eq!((wire.server_to_client.syn_ack, wire.server_to_client.packets), (0, 0));
    assert!(!arm.histograms.contains_key("connect_us"), "nothing was measured");
}

#[test]
fn a_slow_server_is_waited_for_until_the_timeout_and_no_longer() {
    if no_lab() {
        return;
    }
    // The first is accepted after 3 s, the others later still.
    let args = ["--accept-delay", "3s", "--timeout", "800ms", "--count", "3", "--concurrency", "3"];
    let summary = connect(&args);
    let arm = only(&summary);
    assert_eq!((arm.attempts, arm.ok), (3, 0));
    assert_eq!(arm.errors["timeout"], 3, "connected, but never greeted: {:?}", arm.errors);
    assert!(arm.elapsed_s >= 0.8, "{} s", arm.elapsed_s);
}

#[test]
fn without_file_descriptors_the_failures_are_of_class_local_fds() {
    if no_lab() {
        return;
    }
    let script = "ulimit -n 80 && exec \"$0\" \"$@\"";
    let args = ["connect", "--quiet", "--format", "json", "--out", "/dev/null"];
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_tcptoll")]).args(args);
    // A server that is slow to accept keeps them all open.
    let slow = ["--count", "200", "--concurrency", "100", "--accept-delay", "5ms"];
    let ran = run(command.args(slow));
    assert!(matches!(ran.status, Some(0 | 1)), "{}", ran.stderr);
    let summary = checked_summary(&ran.stdout);
    let arm = only(&summary);
    assert_eq!(arm.attempts, 200);
    assert!(arm.ok > 0 && arm.errors["local-fds"] > 0, "{:?}", arm.errors);
    assert_eq!(arm.errors.len(), 1, "{:?}", arm.errors);
}
