//! TLS: its handshake has a time of its own, and what goes wrong in it a class of its own.

use std::process::{Command, Stdio};

use tcptoll_core::record::{Arm, Summary};

use crate::http::{Faulty, short};
use crate::support::{Folder, Ran, checked_summary, lacks, only, run, tcptoll};

/// A short load on nginx over TLS.
fn over_tls(more: &[&str]) -> Summary {
    short(&[&["--server", "nginx"], more].concat())
}

fn resumed_share(arm: &Arm) -> f64 {
    arm.metrics["tls_resumed_share"].value
}

#[test]
fn each_handshake_of_tls_is_timed_apart_from_that_of_tcp() {
    if lacks(&["nginx"]) {
        return;
    }
    let summary = over_tls(&["--tls", "full", "--reuse", "server-close", "--link", "rtt=4ms"]);
    let arm = only(&summary);
    let (tls, connect) = (&arm.histograms["tls_us"], &arm.histograms["connect_us"]);
    assert_eq!((tls.count, connect.count), (arm.ok, arm.ok));
    assert!(resumed_share(arm) < 1e-9);
    // One round trip each (RFC 8446), and the answer another; the link may be a little early.
    for histogram in ["tls_us", "connect_us", "first_byte_us"] {
        let mean = arm.histograms[histogram].mean.unwrap();
        assert!(mean > 3_800.0, "{histogram}: {mean} us");
    }
    assert!(arm.histograms["latency_us"].mean.unwrap() > 3.0 * 3_800.0);
}

#[test]
fn sessions_are_resumed_where_that_was_asked_for() {
    if lacks(&["nginx"]) {
        return;
    }
    let summary = over_tls(&["--tls", "full,resumed", "--reuse", "server-close"]);
    let [full, resumed] = summary.arms.as_slice() else { panic!("two arms") };
    assert!(resumed_share(full) < 1e-9);
    // The first handshake of each connection at once is full.
    let made = resumed.connections_ok.unwrap();
    let first = 4.0 / made as f64;
    assert!(resumed_share(resumed) >= 1.0 - 2.0 * first, "{} of {made}", resumed_share(resumed));
}

#[test]
fn every_way_of_reuse_works_over_tls() {
    if lacks(&["nginx"]) {
        return;
    }
    // With the tenth response the server says that TLS ends, too, as the client does.
    let all = "keep-alive,requests=10,server-close,client-close,http1.0,http1.0-keep-alive";
    let some = "keep-alive,server-close,client-close";
    for (ways, more) in [(all, ["--keepalive-requests", "10"]), (some, ["--io", "io-uring"])] {
        let mut args = vec!["--tls", "resumed", "--reuse", ways];
        args.extend(more);
        let summary = over_tls(&args);
        assert_eq!(summary.arms.len(), ways.split(',').count());
        for arm in &summary.arms {
            let closing = arm.closing.as_ref().unwrap();
            assert_eq!(closing.ignored, 0, "{more:?}: {}: {closing:?}", arm.name);
        }
    }
}

#[test]
fn content_longer_than_a_record_of_tls_arrives_whole() {
    if lacks(&["nginx"]) {
        return;
    }
    for io in ["epoll", "io-uring"] {
        let summary =
            over_tls(&["--tls", "full", "--response", "1000000", "--io", io, "--requests", "20"]);
        let arm = only(&summary);
        let bytes = arm.metrics["goodput_bytes_per_s"].value / arm.metrics["requests_per_s"].value;
        assert!((bytes - 1e6).abs() < 1.0, "{io}: {bytes} bytes of content each");
    }
}

/// A load on `https://`, in a lab with this server, with further options.
fn https(faulty: &Faulty, more: &str) -> Ran {
    let line = format!(
        "{} http --quiet --format json --out /dev/null --connections 2 --duration 200ms \
         --warmup 0 --timeout 2s --rounds 1 {more} https://$TCPTOLL_SERVER:7777/",
        env!("CARGO_BIN_EXE_tcptoll")
    );
    let server = faulty.line();
    run(&mut tcptoll(&["lab", "--quiet", "--server", &server, "--", "sh", "-c", &line]))
}

/// The answer is one sentence with the reason, and no result.
fn all_fail_in_tls(faulty: &Faulty, reason: &str) {
    let ran = https(faulty, "");
    assert_eq!((ran.status, ran.stdout.as_str()), (Some(2), ""), "{}", ran.stderr);
    assert!(
        ran.stderr.contains(":7777/: every TLS handshake failed (the first: "),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains(reason), "{}", ran.stderr);
}

#[test]
fn a_server_without_tls_that_is_asked_by_https_is_of_class_tls() {
    if lacks(&["python3"]) {
        return;
    }
    for fault in ["fin-before-head", "early"] {
        all_fail_in_tls(&Faulty::new(fault), "");
    }
}

#[test]
fn a_certificate_that_nobody_vouches_for_is_of_class_tls_unless_it_is_accepted() {
    if lacks(&["python3", "openssl"]) {
        return;
    }
    let folder = Folder::new();
    let pem = folder.path("server.pem");
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .args(["-nodes", "-days", "2", "-subj", "/CN=lab", "-addext"])
        .args(["subjectAltName=IP:10.77.0.2", "-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-keyout", &pem, "-out", &folder.path("certificate.pem")])
        .stderr(Stdio::null())
        .status();
    assert!(made.unwrap().success());
    let certificate = std::fs::read_to_string(folder.file("certificate.pem")).unwrap();
    let key = std::fs::read_to_string(&pem).unwrap();
    std::fs::write(&pem, key + &certificate).unwrap();
    let faulty = Faulty::new(&format!("tls {pem}"));
    all_fail_in_tls(&faulty, "write --ca FILE with its authority, or --insecure");
    for more in ["--insecure".to_owned(), format!("--ca {}", folder.path("certificate.pem"))] {
        let ran = https(&faulty, &more);
        let summary = checked_summary(&ran.stdout);
        let arm = only(&summary);
        assert_eq!(arm.ok, arm.attempts, "{more}: {:?}", arm.errors);
    }
}
