use super::*;
use crate::kit::conclusion::{ANSWER_MAX, VERDICT_MAX};
use tcptoll_core::record::{
    Comparison, DropBalance, HostSummary, ListenerQueue, Outcome, Queues, RetryLadder,
};
use tcptoll_core::stats::HistogramSummary;

fn histogram(count: u64, max: f64) -> HistogramSummary {
    HistogramSummary { count, p50: Some(max / 2.0), max: Some(max), ..<_>::default() }
}

fn queues(limit: u32, peak: u32, waited: u64) -> Queues {
    let listener = ListenerQueue {
        address: "10.77.0.2".into(),
        port: 80,
        limit,
        peak,
        drops: Some(waited),
        samples: 1_000,
        full_samples: if peak > limit { 60 } else { 0 },
        slices: 12,
        dropping_slices: if waited > 0 { 2 } else { 0 },
        ..ListenerQueue::default()
    };
    Queues {
        listeners: vec![listener],
        syn_ladder: RetryLadder { at_s: vec![1.0, 2.0], connections: vec![waited, 0], off: 0 },
        drops: Some(DropBalance { syns_dropped: waited, ..DropBalance::default() }),
        accept_interval_us: Some(500.0),
        ..Queues::default()
    }
}

/// An arm of 500 connections of which `waited` waited for a second SYN.
fn arm(name: &str, factors: &[(&str, &str)], queues: Queues) -> Arm {
    let waited = queues.syn_ladder.connections[0];
    let slowest = if waited > 0 { 1_050_000.0 } else { 131_000.0 };
    Arm {
        name: name.into(),
        factors: factors.iter().map(|(k, v)| ((*k).to_owned(), (*v).into())).collect(),
        attempts: 500,
        ok: 500,
        syn_retry_ladder_s: vec![1.0, 2.0],
        rungs: vec![waited, 0],
        histograms: [("first_byte_us".to_owned(), histogram(500, slowest))].into(),
        server: Some(HostSummary {
            counters: [("TcpExtListenOverflows".to_owned(), waited as i64)].into(),
            ..HostSummary::default()
        }),
        own: Box::new(queues).into(),
        ..Arm::default()
    }
}

fn concluded(arms: Vec<Arm>) -> Summary {
    let mut summary = tcptoll_core::record::Summary::default();
    summary.arms = arms;
    summary.comparisons.clear();
    conclude(&mut summary);
    summary
}

fn short() -> Arm {
    arm("backlog=128", &[("backlog", "128")], queues(128, 129, 246))
}

fn long() -> Arm {
    arm("backlog=1024", &[("backlog", "1024")], queues(1_024, 251, 0))
}

#[test]
fn the_answer_begins_with_the_connections_that_waited_and_then_names_the_arm_that_was_spared() {
    let summary = concluded(vec![short(), long()]);
    assert_eq!(
        summary.answer,
        "In arm backlog=128, 246 of 500 connections (49.2 %) waited for a retransmission: the \
         accept queue (limit 128) was full. In arm backlog=1024, all 500 received their first byte \
         within 131 ms instead of 1.05 s."
    );
    let advice = &summary.advice[0];
    assert!(advice.change.contains("to more than 251"), "{}", advice.change);
    assert!(advice.cost.contains("1,025 × 500 µs = 512 ms"), "{}", advice.cost);
    let proof = advice.proof.as_deref().unwrap();
    assert!(proof.starts_with("arm backlog=1024: all 500 connections"), "{proof}");
    assert_eq!(summary.advice.len(), 1, "{:?}", summary.advice);
}

#[test]
fn an_answer_leaves_room_for_the_verdict_before_it() {
    let with = |comparison: Comparison| {
        let mut summary = tcptoll_core::record::Summary::default();
        summary.arms = vec![short(), long()];
        summary.comparisons = vec![comparison];
        conclude(&mut summary);
        summary.answer
    };
    let name = |length: usize| "n".repeat(length);
    let brief = Comparison { a: name(11), b: name(10), ..Comparison::default() };
    assert!(with(brief).contains("instead of 1.05 s"), "both sentences have room");
    let long = Comparison { a: name(60), b: name(60), ..Comparison::default() };
    let answer = with(long);
    assert!(answer.ends_with("was full.") && answer.contains("246 of 500"), "{answer}");
    assert!(answer.chars().count() + VERDICT_MAX + 120 <= ANSWER_MAX, "{answer}");
}

#[test]
fn an_arm_that_differs_in_another_option_too_is_no_proof() {
    let other = arm("both", &[("backlog", "1024"), ("accept-delay", "1us")], queues(1_024, 2, 0));
    let summary = concluded(vec![short(), other]);
    assert_eq!(summary.advice[0].proof, None);
    let faster = arm("fast", &[("backlog", "128"), ("accept-delay", "1us")], queues(128, 2, 0));
    let slow = Arm {
        factors: [("backlog".into(), "128".into()), ("accept-delay".into(), "1ms".into())].into(),
        ..short()
    };
    let summary = concluded(vec![slow, faster]);
    let proven = summary.advice.iter().find(|advice| advice.proof.is_some()).unwrap();
    assert!(proven.change.starts_with("Accept faster"), "{}", proven.change);
}

#[test]
fn what_clients_were_told_is_stated_where_no_arm_was_spared() {
    let outcome = |count, us| Outcome { count, p50_us: us, max_us: us, ..Outcome::default() };
    let mut told = queues(16, 17, 30);
    told.outcomes = [
        ("ok".to_owned(), outcome(420, 900.0)),
        ("reset".to_owned(), outcome(30, 1_200.0)),
        ("timeout".to_owned(), outcome(50, 10e6)),
    ]
    .into();
    let errors = [("reset".to_owned(), 30), ("timeout".to_owned(), 50)];
    let reset = Arm {
        ok: 420,
        errors: errors.into(),
        histograms: [("failure_us".to_owned(), histogram(80, 10e6))].into(),
        ..arm("on", &[("abort-on-overflow", "on")], told)
    };
    let summary = concluded(vec![reset.clone()]);
    assert_eq!(
        summary.answer,
        "110 of 500 connections (22 %) waited for a retransmission or failed (80 failed): the \
         accept queue (limit 16) was full. Of these, 30 were reset after 1.20 ms (median), and 50 \
         timed out without a response (after at most 10.0 s)."
    );
    let off = Arm {
        factors: [("abort-on-overflow".into(), "off".into())].into(),
        name: "off".into(),
        ..reset.clone()
    };
    let summary = concluded(vec![off, reset]);
    let abort = summary.advice.iter().find(|advice| advice.change.starts_with("Alternative"));
    let proof = abort.and_then(|advice| advice.proof.as_deref()).unwrap();
    assert!(
        proof.contains("arm on: 80 connections failed (median after 5.00 s), 30 of them"),
        "{proof}"
    );
}

#[test]
fn a_rare_overflow_needs_no_change_and_a_lasting_one_a_faster_server_first() {
    let mut rare = Arm { attempts: 100_000, ok: 100_000, rungs: vec![9, 0], ..short() };
    let queue = rare.own.queues.as_deref_mut().unwrap();
    queue.syn_ladder.connections = vec![9, 0];
    queue.listeners[0].full_samples = 10;
    queue.listeners[0].dropping_slices = 1;
    let summary = concluded(vec![rare]);
    assert!(summary.answer.contains("was full, but only rarely."), "{}", summary.answer);
    assert!(summary.advice[0].change.starts_with("No change is needed"), "{:?}", summary.advice);
    let mut lasting = short();
    let queue = lasting.own.queues.as_deref_mut().unwrap();
    queue.listeners[0].full_samples = 900;
    queue.listeners[0].dropping_slices = 11;
    let summary = concluded(vec![lasting]);
    assert!(summary.answer.contains("was full most of the time."), "{}", summary.answer);
    assert!(summary.advice[0].change.starts_with("Accept faster"), "{:?}", summary.advice);
}

#[test]
fn a_queue_that_nobody_felt_is_stated_with_its_peak() {
    let summary = concluded(vec![long()]);
    assert_eq!(
        summary.answer,
        "All 500 connections received their first byte within 131 ms; the accept queue held at most \
         251 of 1,025."
    );
    assert!(summary.advice.is_empty());
}

#[test]
fn without_a_figure_the_answer_says_so() {
    let failed = Arm { failure: Some("no".into()), ..Arm::default() };
    assert_eq!(concluded(vec![failed]).answer, "Nothing was measured.");
    let bare = Arm { name: "a".into(), attempts: 5, ok: 5, ..Arm::default() };
    assert_eq!(concluded(vec![bare]).answer, "5 of 5 connections succeeded.");
}

#[test]
fn backlogs_that_the_kernel_clamped_to_one_value_are_said_to_be_the_same() {
    let clamped = arm("backlog=4096", &[("backlog", "4096")], queues(128, 129, 246));
    let summary = concluded(vec![short(), clamped]);
    let same = summary.warnings.iter().any(|warning| warning.id == "same-effective-value");
    assert!(same, "{:?}", summary.warnings);
}

#[test]
fn an_answer_never_exceeds_its_room() {
    let named = |mut arm: Arm, letter: char| {
        arm.name = letter.to_string().repeat(120);
        arm
    };
    let summary = concluded(vec![named(short(), 'a'), named(long(), 'b')]);
    assert!(summary.answer.chars().count() <= ANSWER_MAX, "{}", summary.answer);
    assert!(summary.answer.ends_with('.'));
}
