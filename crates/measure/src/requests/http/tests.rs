//! What `http` concludes.

use super::complete;
use super::findings::{ALL, closers, conclude, keepalive_inert, unexpected};
use crate::kit::conclusion::supported;
use serde_json::Value;
use tcptoll_core::record::{
    Arm, Closing, Comparison, Excluded, Lasting, Metric, Summary, Verdict, WarningEntry,
};
use tcptoll_core::stats::HistogramSummary;
use tcptoll_core::study::{Study, level_text};
use tcptoll_core::verdict::warning::Warning;

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
        "The rate is 13,577 requests/s (keep-alive), 7,087 (server-close) and 7,087 (client-close). With server-close, 0 sockets are in TIME-WAIT on the client and 10,185 on the server; with client-close, 7,087 and 0."
    );
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
        "The server closes first on 68.7 % of the connections, both on 25.4 %, the client on 5.85 %, with 626 sockets in TIME-WAIT on the client and 1,883 on the server."
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
    let both = "The rate is 13,577 requests/s (keep-alive) and 9,000 (requests=10).";
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

fn answered(ok: u64, failed: u64, statuses: &[(&str, u64)]) -> Arm {
    Arm {
        name: "a".into(),
        attempts: ok + failed,
        ok,
        errors: [("status".to_owned(), failed)].into(),
        statuses: statuses.iter().map(|(s, n)| ((*s).to_owned(), *n)).collect(),
        ..Arm::default()
    }
}

#[test]
fn a_status_that_made_all_or_most_answers_failures_is_named_with_its_option() {
    let all = answered(0, 67_500, &[("404", 67_500)]);
    assert_eq!(
        unexpected(&[&all]).as_deref(),
        Some(
            "All 67,500 responses had status 404; `--expect-status 404` counts them as \
             successes."
        )
    );
    let most = answered(100, 900, &[("200", 100), ("404", 2), ("503", 898)]);
    let text = unexpected(&[&answered(5, 0, &[("200", 5)]), &most]).unwrap();
    assert!(text.starts_with("In arm a, 898 of 1,000 responses had status 503; "), "{text}");
}

#[test]
fn successes_and_failures_of_another_kind_are_not_named() {
    assert_eq!(unexpected(&[&answered(900, 100, &[("200", 900), ("404", 100)])]), None);
    assert_eq!(unexpected(&[&answered(0, 0, &[])]), None);
    let odd = answered(400, 600, &[("200", 400), ("404", 300), ("500", 300)]);
    assert_eq!(unexpected(&[&odd]), None, "none came more often than the successes");
}

fn reusing(reuse: &str, each: f64, made: u64, closing: Closing) -> Arm {
    let metric = Metric { value: each, unit: "requests".into(), ci95: None, median: None, n: made };
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
    let policy = reusing("keep-alive", 5.0, 100, by_server(100));
    assert!(keepalive_inert(&policy).unwrap().text.contains("5 requests"));
    let broken = Arm { errors: [("truncated".to_owned(), 100)].into(), ..policy };
    assert_eq!(keepalive_inert(&broken), None);
}

fn by_server(count: u64) -> Closing {
    Closing { by_server: count, ..Closing::default() }
}

fn texts(arm: &Arm) -> Vec<(String, String)> {
    supported(arm, ALL).into_iter().map(|cause| (cause.id, cause.text)).collect()
}

#[test]
fn a_server_that_closes_after_each_request_makes_keep_alive_inert() {
    let found = texts(&reusing("keep-alive", 1.0, 900, by_server(900)));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].0, "keepalive-inert");
    assert!(found[0].1.contains("after each request"), "{}", found[0].1);
}

#[test]
fn where_no_request_succeeded_a_server_that_closes_says_nothing_of_keep_alive() {
    let failed = Arm { ok: 0, ..reusing("keep-alive", 1.0, 900, by_server(900)) };
    assert!(texts(&failed).is_empty());
}

#[test]
fn connections_that_the_server_never_accepted_say_nothing_of_keep_alive() {
    let server = tcptoll_core::record::HostSummary {
        counters: [("TcpExtListenOverflows".to_owned(), 84)].into(),
        ..Default::default()
    };
    let full = Arm { server: Some(server), ..reusing("keep-alive", 1.0, 900, by_server(900)) };
    let found = texts(&full);
    assert_eq!(found.iter().map(|one| one.0.as_str()).collect::<Vec<_>>(), ["accept-queue-full"]);
}

#[test]
fn a_limit_of_requests_per_connection_is_named() {
    let found = texts(&reusing("keep-alive", 98.7, 200, by_server(150)));
    assert!(found[0].1.contains("after 100 requests"), "{}", found[0].1);
    let odd = texts(&reusing("keep-alive", 37.0, 200, by_server(150)));
    assert!(odd[0].1.contains("37.0 requests"), "{}", odd[0].1);
}

#[test]
fn what_was_asked_for_is_no_cause() {
    assert!(texts(&reusing("server-close", 1.0, 900, by_server(900))).is_empty());
    assert!(texts(&reusing("requests=50", 49.0, 900, by_server(900))).is_empty());
    assert!(texts(&reusing("keep-alive", 5_000.0, 50, Closing::default())).is_empty());
    // A thousand requests are a connection well used.
    assert!(texts(&reusing("keep-alive", 1_000.0, 50, by_server(40))).is_empty());
}

#[test]
fn connections_closed_while_idle_are_the_servers_keep_alive_time() {
    let closing = Closing { by_server: 100, while_idle: 100, ..Closing::default() };
    let mut idle = reusing("idle=6s", 1.0, 100, closing);
    let after = HistogramSummary { p50: Some(5e6), ..HistogramSummary::default() };
    idle.histograms.insert("idle_close_us".into(), after);
    let found = texts(&idle);
    assert!(found[0].1.contains("after 5.00 s"), "{}", found[0].1);
}

#[test]
fn an_ignored_wish_and_a_lost_race_are_told() {
    let closing = Closing { ignored: 3, ..Closing::default() };
    let ignored = texts(&reusing("server-close", 1.0, 3, closing));
    assert_eq!(ignored[0].0, "close-ignored");
    let mut race = reusing("idle=5s", 5.0, 100, Closing::default());
    race.attempts = 1_000;
    race.errors.insert("close-race".into(), 7);
    let found = texts(&race);
    assert_eq!(found[0].0, "close-race");
    assert!(found[0].1.starts_with("7 of 1,000 requests"), "{}", found[0].1);
}

fn completed(url: &str) -> Study {
    let mut study = Study::default();
    study.settings.insert("url".to_owned(), Value::from(url));
    complete(&mut study);
    study
}

#[test]
fn urls_of_several_servers_are_an_arm_each() {
    let study = completed("http://a:81/x,http://a:81/y,z b:82,HTTP://a:81/w");
    let arms: Vec<(&str, String)> = study
        .named_arms
        .iter()
        .map(|arm| (arm.name.as_str(), level_text(&arm.settings["url"])))
        .collect();
    let first = "http://a:81/x http://a:81/y,z HTTP://a:81/w".to_owned();
    assert_eq!(arms, [("a:81", first), ("b:82", "b:82".to_owned())]);
    assert!(!study.settings.contains_key("url"));
    let names = |url| completed(url).named_arms.into_iter().map(|arm| arm.name);
    assert!(names("http://a/ https://a/").eq(["http://a", "https://a"]));
}

#[test]
fn urls_of_one_server_stay_one_arm() {
    for (typed, kept) in [
        ("http://a/x http://a/y", "http://a/x http://a/y"),
        ("a:80/x,y", "a:80/x,y"),
        ("http://a/,http://b:0/", "http://a/ http://b:0/"),
    ] {
        let study = completed(typed);
        assert!(study.named_arms.is_empty(), "{typed}");
        assert_eq!(study.settings["url"], kept);
    }
}
