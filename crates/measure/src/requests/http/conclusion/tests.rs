use tcptoll_core::record::{Closing, Comparison, Excluded, Lasting, Metric, Verdict, WarningEntry};
use tcptoll_core::stats::HistogramSummary;
use tcptoll_core::verdict::warning::Warning;

use super::*;

fn summary(arms: Vec<Arm>) -> Summary {
    Summary { experiment: "http".into(), arms, valid: true, ..Summary::default() }
}

fn arm(reuse: &str, metrics: &[(&str, f64)]) -> Arm {
    let metric = |value| Metric { value, unit: String::new(), ci95: None, median: None, n: 1 };
    let latency = HistogramSummary { p50: Some(431.0), count: 10, ..HistogramSummary::default() };
    Arm {
        name: reuse.to_owned(),
        reuse: Some(reuse.to_owned()),
        attempts: 1_000,
        ok: 1_000,
        metrics: metrics.iter().map(|(name, value)| ((*name).to_owned(), metric(*value))).collect(),
        histograms: [("latency_us".to_owned(), latency)].into(),
        connections_ok: Some(1_000),
        closing: Some(Closing::default()),
        ..Arm::default()
    }
}

#[test]
fn the_answer_of_a_client_at_its_limit_begins_with_the_bound() {
    let at_limit = Excluded {
        arm: "keep-alive".to_owned(),
        reason: "the client used up its CPU".to_owned(),
        lasting: Some(Lasting::ClientCpu),
        trials: 1,
        of: 1,
    };
    let arms = vec![arm("keep-alive", &[("requests_per_s", 126_987.0)])];
    let mut one = Summary { excluded: vec![at_limit.clone()], ..summary(arms.clone()) };
    conclude(&mut one);
    let says = "At least 126,000 requests/s: the client's CPU is the limit. ";
    assert!(one.answer.starts_with(says), "{}", one.answer);
    // Next to another arm it decides nothing.
    let both = [arms, vec![arm("server-close", &[("requests_per_s", 9.0)])]].concat();
    let mut two = Summary { excluded: vec![at_limit], ..summary(both) };
    conclude(&mut two);
    assert!(!two.answer.contains("At least"), "{}", two.answer);
}

fn closing(reuse: &str, by: [u64; 2], segments: f64) -> Arm {
    let [client, server] = by;
    let metrics = [
        ("requests_per_s", 7_087.0),
        ("client_time_wait", client as f64),
        ("server_time_wait", server as f64),
        ("client_segments_per_op", segments),
        ("server_segments_per_op", 4.0),
    ];
    let closing = Closing { by_client: client, by_server: server, ..Closing::default() };
    Arm { closing: Some(closing), ..arm(reuse, &metrics) }
}

fn concluded(mut summary: Summary) -> Summary {
    conclude(&mut summary);
    summary
}

#[test]
fn one_arm_is_told_by_rate_latency_and_cpu() {
    let metrics = [
        ("requests_per_s", 13_577.4),
        ("client_cpu_us_per_op", 7.1),
        ("server_cpu_us_per_op", 12.0),
    ];
    let told = concluded(summary(vec![arm("keep-alive", &metrics)]));
    assert_eq!(
        told.answer,
        "The server answered 13,577 requests/s with keep-alive at a median latency of 431 µs. Each request costs the client 7.10 µs and the server 12.0 µs of CPU."
    );
    assert!(told.next[0].command.contains("--reuse keep-alive,server-close,client-close"));
}

#[test]
fn what_was_due_and_what_succeeded_comes_first() {
    let metrics =
        [("requests_per_s", 900.0), ("intended_per_s", 2_000.0), ("achieved_per_s", 900.0)];
    let mut one = summary(vec![arm("keep-alive", &metrics)]);
    let late = Warning::GeneratorLate { p99_us: 900.0 }.entry(None);
    let missed = Warning::RateNotReached { intended_per_s: 2e3, achieved_per_s: 900.0, failed: 1 };
    one.warnings = vec![late, missed.entry(None)];
    let told = concluded(one);
    let says = "2,000 requests/s were scheduled and 900/s succeeded. The median latency with ";
    assert!(told.answer.starts_with(says), "{}", told.answer);
    let ids = |warning: &WarningEntry| warning.id.clone();
    assert_eq!(told.warnings.iter().map(ids).collect::<Vec<_>>()[0], "rate-not-reached");
}

#[test]
fn comparisons_say_what_is_left_and_arms_say_who_pays() {
    let mut three = summary(vec![
        arm("keep-alive", &[("requests_per_s", 13_577.0)]),
        closing("server-close", [0, 10_185], 5.0),
        closing("client-close", [7_087, 0], 6.0),
    ]);
    let compared = |a: &str, ratio: f64| Comparison {
        metric: "requests_per_s".into(),
        a: a.into(),
        b: "keep-alive".into(),
        ratio: Some(ratio),
        ci95: Some([ratio - 0.01, ratio + 0.01]),
        verdict: Verdict::Lower,
        ..Comparison::default()
    };
    three.comparisons = vec![compared("server-close", 0.75), compared("client-close", 0.52)];
    let answer = concluded(three.clone()).answer;
    assert_eq!(
        answer,
        "Throughput is 7,087 requests/s (server-close) to 13,577 (keep-alive). With server-close, 0 sockets are in TIME-WAIT on the client and 10,185 on the server; with client-close, 7,087 and 0."
    );
    three.comparisons.clear();
    let answer = concluded(three).answer;
    let says = "A request takes 9.0 segments with server-close, 10.0 with client-close.";
    assert!(answer.ends_with(says), "{answer}");
}

#[test]
fn who_closes_first_is_said_of_each_class_and_agrees_with_time_wait() {
    let mut mixed = closing("client-close", [117, 1_374], 6.0);
    mixed.closing.as_mut().unwrap().both = Some(509);
    for (name, sockets) in [("client_time_wait", 626.0), ("server_time_wait", 1_883.0)] {
        mixed.metrics.get_mut(name).unwrap().value = sockets;
    }
    assert_eq!(
        closers(&mixed).unwrap(),
        "The server closes first on 69 % of the connections, both on 25 %, the client on 6 %, with 626 sockets in TIME-WAIT on the client and 1,883 on the server."
    );
    let few = closing("client-close", [60, 40], 6.0);
    assert!(closers(&few).unwrap().starts_with("The client closes first on 60 % of the"));
    let nearly = closing("server-close", [3, 997], 6.0);
    assert!(closers(&nearly).unwrap().starts_with("The server closes first, with 3 sockets"));
    let mut crossed = closing("client-close", [0, 0], 6.0);
    crossed.closing.as_mut().unwrap().both = Some(10);
    let says = "Both hosts close first (their FINs cross), with 0 sockets";
    assert!(closers(&crossed).unwrap().starts_with(says));
    let mut open = closing("requests=10", [200, 0], 6.0);
    open.closing.as_mut().unwrap().open_at_end = 4;
    let told = closers(&open).unwrap();
    let says = "200 sockets in TIME-WAIT on the client (including connections that the client closed after the";
    assert!(told.contains(says), "{told}");
    assert_eq!(closers(&closing("keep-alive", [0, 0], 2.0)), None);
}

#[test]
fn arms_that_are_not_compared_have_their_throughput_stated() {
    let arms = vec![
        arm("keep-alive", &[("requests_per_s", 13_577.0)]),
        arm("requests=10", &[("requests_per_s", 9_000.0)]),
    ];
    let answer = concluded(summary(arms)).answer;
    let both = "Throughput is 13,577 requests/s (keep-alive) and 9,000 (requests=10).";
    assert!(answer.starts_with(both), "{answer}");
}

#[test]
fn a_run_of_failures_alone_says_which() {
    let mut some = arm("keep-alive", &[("requests_per_s", 1.0)]);
    some.ok = 0;
    some.errors.insert("reset".into(), 1_000);
    let answer = concluded(summary(vec![some])).answer;
    assert_eq!(answer, "No request succeeded; the most frequent error was reset.");
    assert_eq!(concluded(summary(Vec::new())).answer, "Nothing was measured.");
}

#[test]
fn lost_ports_are_cured_by_an_arm_of_the_same_run() {
    let mut ill = arm("client-close", &[]);
    ill.ok = 0;
    ill.errors.insert("local-ports".into(), 1_000);
    let well = arm("keep-alive", &[("requests_per_s", 5.0)]);
    let told = concluded(summary(vec![ill, well]));
    assert_eq!(told.causes[0].id, "local-ports-scarce");
    let proof = told.advice[0].proof.as_deref().unwrap();
    assert!(proof.contains("all 1,000 operations succeeded over 1,000 connections"), "{proof}");
    assert_eq!(told.next[0].command, "tcptoll explain local-ports-scarce");
}
