use std::collections::BTreeMap;

use tcptoll_core::record::{Metric, Verdict};
use tcptoll_core::stats::HistogramSummary;
use tcptoll_core::tcp::checking::{Checking, Evidence};
use tcptoll_core::tcp::wire::Traffic;

use super::*;

fn summary(arms: Vec<Arm>) -> Summary {
    Summary { experiment: "keepalive".into(), arms, valid: true, ..Summary::default() }
}

fn concluded(arms: Vec<Arm>) -> Summary {
    let mut summary = summary(arms);
    conclude(&mut summary);
    summary
}

fn checking(mechanism: Mechanism) -> Checking {
    let plain = Checking { mechanism, ..Checking::default() };
    match mechanism {
        Mechanism::Tcp => {
            Checking { idle_s: Some(1.0), interval_s: Some(1.0), probes: Some(3), ..plain }
        }
        Mechanism::Heartbeat => Checking {
            idle_s: Some(1.0),
            answer_within_s: Some(1.0),
            evidence: Some(Evidence::Acknowledged),
            null_bytes: Some(4),
            tick_s: Some(0.01),
            ..plain
        },
        _ => plain,
    }
}

fn metrics(values: &[(&str, f64)]) -> BTreeMap<String, Metric> {
    let metric = |value| Metric { value, unit: String::new(), ci95: None, median: None, n: 1 };
    values.iter().map(|(name, value)| ((*name).to_owned(), metric(*value))).collect()
}

fn arm(mechanism: Mechanism, packets_per_hour: f64) -> Arm {
    let checking = checking(mechanism);
    let keepalive =
        Keepalive { checking, window_s: 2.0, idle_sockets: 1_000, ..Keepalive::default() };
    Arm {
        name: format!("mechanism {mechanism}"),
        own: keepalive.into(),
        metrics: metrics(&[("checking_packets_per_hour_per_socket", packets_per_hour)]),
        ..Arm::default()
    }
}

/// 100 of 1,000 died; the last of those known was known after so many seconds.
fn dying(mechanism: Mechanism, fault: &str, known: u64, last_s: f64) -> Arm {
    let mut arm = arm(mechanism, 7_200.0);
    let checked = arm.own.keepalive.as_mut().unwrap();
    checked.deaths = Some(Deaths {
        fault: fault.into(),
        stricken: 100,
        dead: 100,
        known,
        watched_s: 5.0,
        bound_s: checked.checking.bound_s(),
        granularity_s: checked.checking.granularity_s(),
        alive: 900,
        ..Deaths::default()
    });
    if known > 0 {
        let detection = HistogramSummary {
            count: known,
            min: Some(last_s * 0.9e6),
            max: Some(last_s * 1e6),
            ..HistogramSummary::default()
        };
        arm.histograms.insert("detection_us".to_owned(), detection);
    }
    arm
}

fn deaths(arm: &mut Arm) -> &mut Deaths {
    arm.own.keepalive.as_mut().unwrap().deaths.as_mut().unwrap()
}

#[test]
fn mechanisms_that_detected_deaths_are_stated_with_time_and_cost_and_those_that_did_not() {
    let told = concluded(vec![
        dying(Mechanism::None, "cut", 0, 0.0),
        dying(Mechanism::Tcp, "cut", 100, 4.0),
    ]);
    assert_eq!(
        told.answer,
        "Kernel probes detected all 100 dead connections after 3.60 to 4.00 s (expected: within 4.51 s). With reading alone, 100 of 100 dead connections were not detected within 5.00 s: nothing is sent that could fail. A live connection costs 7,200 packets per hour with kernel probes."
    );
}

#[test]
fn where_nothing_is_sent_the_answer_says_how_long_connections_stayed_open() {
    let idle = Arm { ok: 5, attempts: 5, ..arm(Mechanism::None, 0.0) };
    let says = "5 of 5 idle connections stayed open for 2.00 s, and nothing was sent on them: a dead peer would stay undetected.";
    assert_eq!(concluded(vec![idle]).answer, says);
}

#[test]
fn a_stopped_process_is_explained_by_its_kernel() {
    let told = concluded(vec![dying(Mechanism::Tcp, "freeze", 0, 0.0)]);
    assert!(told.answer.contains("the stopped peer's kernel answers probes"), "{}", told.answer);
    // Probes cannot be the advice then, and an acknowledgment is no evidence.
    let changes: Vec<&str> = told.advice.iter().map(|advice| advice.change.as_str()).collect();
    assert_eq!(changes.len(), 1);
    assert!(changes[0].contains("Evidence::Answered"), "{}", changes[0]);
}

#[test]
fn unnoticed_deaths_bring_the_cheapest_settings_for_half_a_minute() {
    let told = concluded(vec![dying(Mechanism::None, "cut", 0, 0.0)]);
    assert_eq!(told.causes[0].id, "dead-peer-unnoticed");
    assert_eq!(told.advice.len(), 2);
    let probes = &told.advice[0];
    assert!(
        probes.change.contains("SO_KEEPALIVE=1, TCP_KEEPIDLE=22, TCP_KEEPINTVL=1"),
        "{probes:?}"
    );
    assert!(probes.change.contains("net.ipv4.tcp_keepalive_time=22"), "{probes:?}");
    // 3600 s / 22 s, a probe and its answer each; 52 bytes a packet.
    // A test of four tries fails 1.6e-7 of the time where each try fails with 0.0199.
    assert_eq!(
        probes.cost,
        "327 packets and 17,018 bytes per hour for each idle connection; 90.9 packets/s and 37.8 kbit/s for 1,000 connections. With 1 % independent packet loss each way and a round trip of at most 200 ms, 0.03 of 1,000 live connections are closed per hour. An interruption of 4.00 s closes connections that are just being tested, one of 26.0 s closes all."
    );
    // (22 + 4) s, an eighth and 10 ms: not before the timers of the probes.
    assert!(probes.change.contains("TCP_USER_TIMEOUT=29300 (ms) too."), "{probes:?}");
    assert!(probes.undo.contains("TCP_USER_TIMEOUT=0"), "{probes:?}");
    assert!(probes.proof.is_none());
    assert!(told.advice[1].change.contains("Timing::new(Duration::from_millis("));
    assert_eq!(told.next[0].command, "tcptoll explain dead-peer-unnoticed");
    assert_eq!(told.next[1].command, "tcptoll keepalive --detect-within 30s");
}

#[test]
fn a_wanted_detection_time_brings_settings_with_cost_and_proof() {
    let mut arm = dying(Mechanism::Tcp, "cut", 100, 4.0);
    arm.own.keepalive.as_mut().unwrap().detect_within_s = Some(5.0);
    let told = concluded(vec![arm]);
    let [advice] = told.advice.as_slice() else { panic!("{:?}", told.advice) };
    assert!(
        advice.change.starts_with(
            "To detect a dead peer within 5.00 s with kernel probes, set SO_KEEPALIVE=1"
        ),
        "{}",
        advice.change
    );
    assert!(advice.cost.contains("idle connection (measured: 7,200 packets); "), "{}", advice.cost);
    assert_eq!(
        advice.proof.as_deref(),
        Some(
            "arm mechanism tcp: all 100 dead connections detected, the last after 4.00 s (computed bound: 4.00 s, plus 510 ms for timers); 0 of 900 live connections closed"
        )
    );
}

#[test]
fn what_was_detected_late_proves_nothing() {
    let mut arm = dying(Mechanism::Tcp, "cut", 100, 9.0);
    arm.own.keepalive.as_mut().unwrap().detect_within_s = Some(5.0);
    deaths(&mut arm).late = 3;
    let mut cruel = dying(Mechanism::Tcp, "cut", 100, 4.0);
    cruel.own.keepalive.as_mut().unwrap().detect_within_s = Some(5.0);
    deaths(&mut cruel).wrongly_closed = 1;
    assert_eq!(concluded(vec![cruel]).advice[0].proof, None, "a live one was closed");
    let told = concluded(vec![arm]);
    assert_eq!(told.advice[0].proof, None);
    assert!(told.answer.contains("3 of them too late"), "{}", told.answer);
}

#[test]
fn false_alarms_are_stated_with_the_expected_number() {
    let mut arm = dying(Mechanism::Tcp, "loss=5%", 0, 0.0);
    let lossy = deaths(&mut arm);
    (lossy.dead, lossy.alive, lossy.wrongly_closed) = (0, 1_000, 3);
    lossy.expected_wrongly = Some([0.0, 4.25, 10.0]);
    arm.errors.insert("closed-alive".to_owned(), 3);
    assert_eq!(
        concluded(vec![arm]).answer,
        "Kernel probes closed 3 of 1,000 live connections (expected: 4.25; 0 to 10 in 99 of 100 runs)."
    );
}

#[test]
fn live_connections_that_were_closed_without_any_loss_are_stated() {
    let mut arm = arm(Mechanism::Heartbeat, 7_128.0);
    arm.errors.insert("closed-alive".to_owned(), 2);
    let told = concluded(vec![arm]);
    assert!(
        told.answer.starts_with("Heartbeats closed 2 live connections (false alarms). "),
        "{}",
        told.answer
    );
    assert!(told.valid, "it is a finding");
}

#[test]
fn without_deaths_packets_and_cpu_are_stated() {
    let cpu = |arm: Arm, us| {
        let mut arm = arm;
        arm.metrics.extend(metrics(&[("machine_cpu_us_per_s_per_1000_sockets", us)]));
        arm
    };
    let mut told = summary(vec![
        cpu(arm(Mechanism::None, 0.0), 900.0),
        cpu(arm(Mechanism::Tcp, 7_120.0), 5_100.0),
    ]);
    told.comparisons.push(Comparison {
        metric: "messages_per_s".to_owned(),
        a: "mechanism tcp".to_owned(),
        b: "mechanism none".to_owned(),
        ratio: Some(0.998),
        ci95: Some([0.99, 1.006]),
        verdict: Verdict::NoDifference,
        ..Comparison::default()
    });
    conclude(&mut told);
    assert_eq!(
        told.answer,
        "An idle connection costs 7,120 packets per hour with kernel probes. CPU per 1,000 idle connections (whole machine): 900 µs/s unchecked, 5.10 ms/s with kernel probes.",
        "the verdict on a single comparison stands before it"
    );
    let mut other = told.comparisons[0].clone();
    (other.a, other.ratio) = ("mechanism tcp, sockets 51".to_owned(), Some(0.9));
    told.comparisons.push(other);
    conclude(&mut told);
    assert!(
        told.answer.starts_with(
            "Messages/s range from 0.900× (mechanism tcp, sockets 51 relative to mechanism none) to 0.998×"
        ),
        "{}",
        told.answer
    );
    assert_eq!(told.next[0].command, "tcptoll keepalive --fault cut");
    assert!(told.advice.is_empty());
}

#[test]
fn probes_that_were_never_due_are_stated() {
    let mut arm = arm(Mechanism::Tcp, 0.0);
    arm.metrics.clear();
    let checked = arm.own.keepalive.as_mut().unwrap();
    checked.probes = Some(Traffic::default());
    let checking = &mut checked.checking;
    (checking.idle_s, checking.interval_s, checking.probes) = (Some(7_200.0), Some(75.0), Some(9));
    assert_eq!(
        concluded(vec![arm]).answer,
        "No probe was sent because the idle time of 7,200 s is longer than any trial."
    );
}

#[test]
fn what_a_short_window_could_not_count_is_computed() {
    let mut arm = dying(Mechanism::Tcp, "cut", 100, 4.0);
    arm.metrics.clear();
    let answer = concluded(vec![arm]).answer;
    assert!(
        answer.contains("costs 7,200 packets per hour (computed) with kernel probes"),
        "{answer}"
    );
}

#[test]
fn of_many_arms_the_fastest_and_the_slowest_are_stated() {
    let arms = (1..=6).map(|s| {
        let mut arm = dying(Mechanism::Tcp, "cut", 100, f64::from(s));
        arm.name = format!("idle {s}s");
        arm
    });
    let answer = concluded(arms.collect()).answer;
    assert!(
        answer.starts_with(
            "Of 6 arms, the fastest was idle 1s, which detected all 100 dead connections after 900 ms to 1.00 s"
        ),
        "{answer}"
    );
    assert!(answer.contains("the slowest idle 6s, after 5.40 to 6.00 s"), "{answer}");
    assert!(!answer.contains("idle 3s"), "{answer}");
}

#[test]
fn lazy_reaping_detects_deaths_when_places_are_needed_and_has_no_price() {
    let mut arm = dying(Mechanism::Lazy, "cut", 100, 2.0);
    arm.metrics = metrics(&[("checking_packets_per_hour_per_socket", 0.0)]);
    assert_eq!(
        concluded(vec![arm]).answer,
        "Lazy reaping detected all 100 dead connections after 1.80 to 2.00 s (when new connections needed places)."
    );
}

#[test]
fn a_reset_reports_itself_and_has_no_price() {
    let mut arm = dying(Mechanism::None, "reset", 100, 0.001);
    deaths(&mut arm).bound_s = None;
    assert_eq!(
        concluded(vec![arm]).answer,
        "Reading alone detected all 100 dead connections after 900 µs to 1.00 ms."
    );
}
