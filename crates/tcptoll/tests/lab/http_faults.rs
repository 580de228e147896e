//! Whatever a server does wrong, each request is counted as what became of it, and the run ends.
//!
//! The server is `faulty.py`; RFC 9112 says what is malformed.

use tcptoll_core::record::{Arm, Summary};

use crate::http::{Faulty, PLANNED_S, RunOutcome, ask};
use crate::support::{Folder, lacks, only, run, tcptoll};

/// A run that ends takes at most this much longer than was planned, s: the timeout of 2 s, and what
/// a busy machine adds.
const OVER_S: f64 = 30.0;

/// Most resident memory of a client with a few connections.
const RESIDENT_MAX: u64 = 64 << 20;

/// Where every request takes as long as it may.
const SHORT: &[&str] = &["--timeout", "300ms"];

/// What holds whatever the server does: `attempts` = `ok` + errors is checked by the support.
fn bounded(fault: &str, arm: &Arm) {
    assert!(arm.attempts > 0, "{fault}: nothing was attempted");
    assert!(arm.elapsed_s <= PLANNED_S + OVER_S, "{fault}: it took {} s", arm.elapsed_s);
    let resident = arm.client.rss_peak_bytes.unwrap();
    assert!(resident < RESIDENT_MAX, "{fault}: the client held {resident} bytes");
    assert!(!arm.partial, "{fault}: nobody stopped it");
}

/// A load on a server with this fault, of which no request succeeds.
fn failing(fault: &str, more: &[&str]) -> Summary {
    let RunOutcome { summary, status, .. } = ask(&Faulty::new(fault).with(more));
    let arm = only(&summary);
    bounded(fault, arm);
    assert_eq!(arm.ok, 0, "{fault}: {:?}", arm.errors);
    assert_eq!(status, Some(2), "{fault}: nothing was measured");
    assert!(!summary.valid, "{fault}");
    assert!(arm.metrics["requests_per_s"].value < 1e-9, "{fault}: no rate is made of failures");
    assert!(!arm.histograms.contains_key("latency_us"), "{fault}: no latency is of failures");
    summary
}

/// Every request of every fault fails, and is of this class.
fn all_of_class(class: &str, faults: &[&str], more: &[&str]) {
    if lacks(&["python3"]) {
        return;
    }
    for fault in faults {
        let summary = failing(fault, more);
        let arm = only(&summary);
        let classes: Vec<&str> = arm.errors.keys().map(String::as_str).collect();
        assert_eq!(classes, [class], "{fault}: {:?}", arm.errors);
    }
}

#[test]
fn a_response_that_ends_before_its_end_is_truncated() {
    all_of_class(
        "truncated",
        &[
            "fin-mid-body",
            "fin-mid-head",
            "fin-before-head",
            "chunk-truncated",
            "chunk-without-last",
        ],
        &[],
    );
}

#[test]
fn a_connection_that_is_reset_in_a_response_is_of_class_reset() {
    all_of_class("reset", &["rst-mid-body", "rst-mid-head", "rst-before-head"], &[]);
}

#[test]
fn chunks_against_rfc_9112_are_malformed() {
    all_of_class(
        "malformed",
        &["chunk-size-bad", "chunk-17-digits", "chunk-no-crlf", "chunk-no-name", "chunked-in-1.0"],
        &[],
    );
}

#[test]
fn lengths_against_rfc_9112_are_malformed() {
    all_of_class(
        "malformed",
        &[
            "length-2^64",
            "length-negative",
            "length-plus",
            "length-two-different",
            "length-and-chunked",
            "length-not-a-number",
        ],
        &[],
    );
}

#[test]
fn a_status_line_or_noise_that_is_no_http_1_is_malformed() {
    all_of_class(
        "malformed",
        &["status-abc", "status-99", "version-2.0", "binary-noise", "escape-in-reason"],
        &[],
    );
}

#[test]
fn fields_against_rfc_9112_are_malformed() {
    all_of_class("malformed", &["blank-before-colon", "nul-in-field", "bare-cr"], &[]);
}

#[test]
fn bytes_after_a_response_are_ignored_and_end_its_connection() {
    if lacks(&["python3"]) {
        return;
    }
    for fault in ["extra-bytes", "two-responses"] {
        let RunOutcome { summary, .. } = ask(&Faulty::new(fault).with(&["--tap"]));
        let arm = only(&summary);
        bounded(fault, arm);
        assert_eq!(arm.ok, arm.attempts, "{fault}: {:?}", arm.errors);
        let closing = arm.closing.as_ref().unwrap();
        let closed = closing.by_client + closing.by_server;
        assert_eq!(closed + closing.open_at_end, arm.connections_ok.unwrap(), "{fault}");
        assert!(closed >= arm.ok, "{fault}: {closed} of {}: each has one request", arm.ok);
        let warned = summary.warnings.iter().any(|warning| warning.id == "unasked-bytes");
        assert!(warned, "{fault}: {:?}", summary.warnings);
    }
}

#[test]
fn heads_without_end_meet_the_limit_of_heads() {
    all_of_class(
        "header-limit",
        &[
            "infinite-1xx",
            "infinite-fields",
            "infinite-line",
            "infinite-extension",
            "infinite-trailers",
            "header-2mb",
            "too-many-fields",
        ],
        &[],
    );
}

#[test]
fn content_without_end_meets_the_limit_of_content() {
    all_of_class(
        "body-limit",
        &["infinite-body", "infinite-chunks", "length-2^63-1"],
        &["--body-limit", "1MB"],
    );
}

#[test]
fn an_answer_that_does_not_come_in_time_is_of_class_timeout() {
    all_of_class("timeout", &["silent", "drip", "slow-body", "body-short"], SHORT);
}

#[test]
fn a_status_or_content_that_was_not_expected_is_no_success() {
    all_of_class("status", &["status-500"], &[]);
    let hello = "853ff93762a06ddbf722c4ebe9ddd66d8f63ddaea97f521c3ecc20da7c976020";
    all_of_class("content", &["wrong-content"], &["--expect-sha256", hello]);
}

#[test]
fn where_nothing_listens_it_is_refused() {
    all_of_class("connect-refused", &["good"], &["--port", "7778"]);
}

#[test]
fn a_server_that_closes_before_it_has_read_truncates_or_resets() {
    if lacks(&["python3"]) {
        return;
    }
    // Whether its FIN or the RST that answers the request comes first.
    let summary = failing("close-at-once", &[]);
    let errors = &only(&summary).errors;
    assert!(errors.keys().all(|class| class == "truncated" || class == "reset"), "{errors:?}");
}

#[test]
fn a_server_that_does_not_accept_gives_no_answer_or_no_handshake_in_time() {
    if lacks(&["python3"]) {
        return;
    }
    let summary = failing("not-accepting", SHORT);
    let errors = &only(&summary).errors;
    assert!(errors["connect-timeout"] > 0, "{errors:?}");
    let known = |class: &String| class == "connect-timeout" || class == "timeout";
    assert!(errors.keys().all(known), "{errors:?}");
}

#[test]
fn a_server_that_closes_without_a_word_makes_a_close_race_of_every_fourth_request() {
    if lacks(&["python3"]) {
        return;
    }
    let RunOutcome { summary, .. } = ask(&Faulty::new("three-then-close"));
    let arm = only(&summary);
    bounded("three-then-close", arm);
    // A server that does not run for long between its last response and its close has, by the
    // clock, read the request.
    let known = ["close-race", "reset", "truncated"];
    assert!(arm.errors.contains_key("close-race"), "{:?}", arm.errors);
    assert!(arm.errors.keys().all(|class| known.contains(&class.as_str())), "{:?}", arm.errors);
    let closing = arm.closing.as_ref().unwrap();
    let made = arm.connections_ok.unwrap();
    assert_eq!((closing.by_client, closing.by_server + closing.open_at_end), (0, made));
    assert_eq!(arm.errors.values().sum::<u64>() + closing.while_idle, closing.by_server);
    // Every connection that was closed had its three.
    let of_closed = 3 * closing.by_server;
    assert!((of_closed..=of_closed + 3 * closing.open_at_end).contains(&arm.ok), "{}", arm.ok);
}

#[test]
fn a_response_before_the_request_is_accounted_for() {
    if lacks(&["python3"]) {
        return;
    }
    let RunOutcome { summary, .. } = ask(&Faulty::new("early"));
    bounded("early", only(&summary));
}

#[test]
fn what_is_read_until_the_server_closes_is_a_success() {
    if lacks(&["python3"]) {
        return;
    }
    let RunOutcome { summary, .. } = ask(&Faulty::new("until-closed"));
    let arm = only(&summary);
    bounded("until-closed", arm);
    assert_eq!(arm.ok, arm.attempts, "{:?}", arm.errors);
    let closing = arm.closing.as_ref().unwrap();
    assert_eq!((closing.by_client, closing.by_server), (0, arm.attempts));
}

#[test]
fn what_rfc_9112_lets_a_client_accept_is_a_success() {
    if lacks(&["python3"]) {
        return;
    }
    for fault in ["obs-fold", "lf-in-trailers", "chunked-not-last"] {
        let RunOutcome { summary, .. } = ask(&Faulty::new(fault));
        let arm = only(&summary);
        bounded(fault, arm);
        assert_eq!(arm.ok, arm.attempts, "{fault}: {:?}", arm.errors);
        let closing = arm.closing.as_ref().unwrap();
        let closed = if fault == "chunked-not-last" { arm.attempts } else { 0 };
        assert_eq!(closing.by_server, closed, "{fault}");
    }
}

#[test]
fn nothing_a_server_says_steers_a_terminal_or_a_page() {
    if lacks(&["python3"]) {
        return;
    }
    for fault in ["steering", "escape-in-reason", "binary-noise"] {
        let faulty = Faulty::new(fault);
        let folder = Folder::new();
        let (record, page) = (folder.path("record.jsonl"), folder.path("report.html"));
        let mut args = vec!["http", "--quiet", "--out", &record, "--html", &page];
        let line = faulty.line();
        args.extend(faulty.args(&line));
        let ran = run(&mut tcptoll(&args));
        assert_eq!(ran.status, Some(2), "{fault}: {}", ran.stderr);
        let steers = |text: &str| text.chars().any(|c| c.is_control() && c != '\n');
        assert!(!steers(&ran.stdout) && !steers(&ran.stderr), "{fault}: {:?}", ran.stdout);
        let page = std::fs::read_to_string(&page).unwrap();
        assert!(!page.contains("<script>alert(1)") && !page.contains('\x1b'), "{fault}");
    }
}

#[test]
fn over_io_uring_every_class_is_the_same() {
    let faults = [
        ("fin-mid-body", "truncated"),
        ("fin-before-head", "truncated"),
        ("rst-mid-body", "reset"),
        ("length-two-different", "malformed"),
        ("infinite-1xx", "header-limit"),
        ("silent", "timeout"),
        ("status-500", "status"),
    ];
    for (fault, class) in faults {
        let timeout = if class == "timeout" { SHORT } else { &[] };
        all_of_class(class, &[fault], &[&["--io", "io-uring"], timeout].concat());
    }
    all_of_class("body-limit", &["infinite-body"], &["--io", "io-uring", "--body-limit", "1MB"]);
    all_of_class("connect-refused", &["good"], &["--io", "io-uring", "--port", "7778"]);
}
