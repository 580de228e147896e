//! What follows from the arms of `worker-pool`: the answer, causes, advice, what next.

use super::BACKEND;
use super::effects::{PoolArm, STUCK, plainest, remedies};
use serde_json::Value;

use crate::kit::compared::{failures, headline};
use crate::kit::conclusion::{
    answer_of, cured, enumerated, explain, explanations, ill, is_ill, step,
};
use crate::kit::queue_causes::ACCEPT_QUEUE_FULL;
use tcptoll_core::experiment::figures::RTT;
use tcptoll_core::experiment::spec::CauseSpec;
use tcptoll_core::finding::{Finding, Remedy};
use tcptoll_core::number;
use tcptoll_core::record::{Arm, NextStep, Summary};
use tcptoll_core::verdict::names::Names;

/// Arms whose effect is stated one by one; of more, the best and the worst.
const STATED: usize = 3;

/// Fills in what follows from the arms.
pub(super) fn conclude(summary: &mut Summary) {
    explain(summary, ALL, |_, _| None);
    summary.answer = answer(summary);
    summary.next = next(summary);
}

fn answer(summary: &Summary) -> String {
    let told: Vec<PoolArm<'_>> =
        summary.arms.iter().filter_map(PoolArm::from_arm).filter(|told| told.arm.ok > 0).collect();
    let Some(first) = told.first() else { return "No request succeeded.".to_owned() };
    let stuck = plainest(&told);
    let mut sentences = if let Some(stuck) = stuck {
        let mut sentences = vec![avalanche(summary, &told, stuck)];
        sentences.extend(others(summary, &told, stuck));
        sentences
    } else {
        let arm = told.iter().copied().find(|told| told.busy().is_some()).unwrap_or(*first);
        let mut sentences = headline(summary, &super::SPEC);
        sentences.extend(calm(arm));
        sentences
    };
    sentences.splice(1..1, too_short(summary));
    sentences.splice(0..0, failures(summary, &super::SPEC));
    answer_of(summary, sentences)
}

/// Calls that failed because connecting takes longer than the connect timeout.
fn too_short(summary: &Summary) -> Option<String> {
    let arm = ill(summary, CONNECT_TIMEOUT_SHORT.id)?;
    let group = PoolArm::from_arm(arm)?.pool.groups.get(BACKEND)?;
    Some(format!(
        "{} of {} requests that need the backend fail in {}: its connect timeout is shorter than \
         the round trip.",
        number::count(group.errors.values().sum::<u64>()),
        number::count(group.attempts),
        Names::new(&summary.arms).arm(arm)
    ))
}

/// `20 of 20 workers wait for redis (expected: 20)`.
fn waiting(told: PoolArm<'_>) -> Option<String> {
    let pool = told.pool;
    let expected = told.expected_words();
    Some(format!(
        "{} of {} workers wait for {}{expected}",
        number::plain(told.busy()?),
        pool.workers,
        pool.backend
    ))
}

/// How long requests that never call the backend take, and how many workers wait.
fn avalanche(summary: &Summary, all: &[PoolArm<'_>], stuck: PoolArm<'_>) -> String {
    let names = Names::new(&summary.arms);
    let healthy = all.iter().copied().find(|told| told.pool.stalled_s.is_none());
    let both = healthy.and_then(|healthy| Some((healthy, healthy.local_us()?, stuck.local_us()?)));
    let waiting = waiting(stuck).map_or_else(String::new, |waiting| format!(": {waiting}"));
    let subject = "Requests that never call the backend";
    match (both, stuck.slowed()) {
        (Some((healthy, least, most)), _) => format!(
            "{subject} take {} ({}) instead of {} ({}){waiting}.",
            number::time(most),
            names.arm(stuck.arm),
            number::time(least),
            names.arm(healthy.arm)
        ),
        (None, Some(slowed)) => format!(
            "{subject} take {} during the stall instead of {}{waiting}.",
            number::time(slowed.during_us),
            number::time(slowed.before_us)
        ),
        (None, None) => format!("{subject} fail or wait during the stall{waiting}."),
    }
}

/// The latency of the other arms with a stall.
fn others(summary: &Summary, all: &[PoolArm<'_>], stuck: PoolArm<'_>) -> Option<String> {
    let names = Names::new(&summary.arms);
    // As of the arm that is stuck: during the stall where no arm is without one.
    let all_stall = all.iter().all(|told| told.pool.stalled_s.is_some());
    let latency = |told: &PoolArm<'_>| match told.slowed() {
        Some(slowed) if all_stall => Some(slowed.during_us),
        _ => told.local_us(),
    };
    let mut found: Vec<(String, f64)> = all
        .iter()
        .filter(|told| told.pool.stalled_s.is_some() && told.arm.name != stuck.arm.name)
        .filter_map(|told| Some((names.arm(told.arm), latency(told)?)))
        .collect();
    found.sort_by(|a, b| a.1.total_cmp(&b.1));
    let many = found.len() > STATED;
    if many {
        found = vec![found.first()?.clone(), found.last()?.clone()];
    }
    let each: Vec<String> =
        found.iter().map(|(name, us)| format!("{} ({name})", number::time(*us))).collect();
    match each.as_slice() {
        [] => None,
        [best, worst] if many => {
            Some(format!("The same requests take {best} at best and {worst} at worst."))
        }
        all => Some(format!("The same requests take {}.", enumerated(all))),
    }
}

/// In every arm workers were free.
fn calm(told: PoolArm<'_>) -> Vec<String> {
    match (waiting(told), told.slowed(), told.local_us()) {
        (Some(waiting), Some(slowed), _) => {
            let waiting = waiting.replace(" wait for ", " are busy during the stall of ");
            let latency = format!(
                "Requests that never call it take {} during the stall and {} before.",
                number::time(slowed.during_us),
                number::time(slowed.before_us)
            );
            vec![waiting + ".", latency]
        }
        (_, _, Some(us)) => {
            let us = number::time(us);
            vec![format!("Requests that never call the backend take {us} without a stall.")]
        }
        _ => vec!["No request without a call of the backend succeeded.".to_owned()],
    }
}

fn next(summary: &Summary) -> Vec<NextStep> {
    let mut steps = explanations(summary);
    if summary.study.is_some() {
        return steps;
    }
    let told: Vec<PoolArm<'_>> = summary.arms.iter().filter_map(PoolArm::from_arm).collect();
    let tried = |option: &str| summary.arms.iter().any(|arm| arm.factors.contains_key(option));
    let stuck_connecting = |told: &PoolArm<'_>| told.is_stuck() && told.connects_waited();
    if told.iter().any(stuck_connecting) && !tried("connect-timeout") {
        steps.push(step(
            "tcptoll worker-pool --connect-timeout none,100ms",
            "what a connect timeout changes, compared in rounds",
        ));
    }
    if told.iter().all(|told| told.pool.front != "php-fpm") {
        steps.push(step(
            "tcptoll worker-pool --front php-fpm --workers 100 --stall 0,2s",
            "the same with PHP-FPM behind nginx",
        ));
    }
    steps.push(step("tcptoll study avalanche-2021", "all remedies, compared with each other"));
    steps
}

/// Every worker waits for a backend that has stopped, so requests that never call it wait too.
const WORKERS_STUCK: CauseSpec = CauseSpec::new(STUCK, workers_stuck).remedied(remedies);

/// The queue of the backend was full, and workers were left all the same. Advice to raise its backlog
/// would be false: a stopped backend answers nobody in a longer queue either.
const BACKEND_QUEUE_FULL: CauseSpec =
    CauseSpec::new(ACCEPT_QUEUE_FULL.id, backend_queue_full).remedied(|_| Vec::new());

/// The connect timeout ends before a handshake can be complete.
const CONNECT_TIMEOUT_SHORT: CauseSpec =
    CauseSpec::new("connect-timeout-short", connect_timeout_short).remedied(longer_timeout);

/// Every cause that a run may name, in the order of the answer.
pub(super) const ALL: &[&CauseSpec] =
    &[&WORKERS_STUCK, &BACKEND_QUEUE_FULL, &CONNECT_TIMEOUT_SHORT];

/// Handshakes whose SYN-ACK was answered by a reset: the client had given up.
const GAVE_UP: &str = "TcpExtEmbryonicRsts";

/// Status of a request whose call of the backend exceeded its time limit.
const TIMED_OUT: &str = "504";

/// When the kernel retransmits the first SYN, s (`TCP_TIMEOUT_INIT`, RFC 6298).
const FIRST_RETRANSMISSION_S: f64 = 1.0;

/// The backend's listener dropped packets although a worker was free, or the backend never stalled.
fn backend_queue_full(arm: &Arm) -> Option<Finding> {
    let told = PoolArm::from_arm(arm)?;
    let mut finding = (ACCEPT_QUEUE_FULL.test)(arm).filter(|_| !told.is_stuck())?;
    let pool = told.pool;
    // The server host has one listener, the backend's. That of the front service is on the client host.
    let listener = arm.server.as_ref()?.listeners.first();
    let place = listener.map(|one| {
        let ipv6 = one.address.contains(':');
        let address = if ipv6 { format!("[{}]", one.address) } else { one.address.clone() };
        format!("{address}:{}", one.port)
    });
    let at = place.as_ref().map_or_else(String::new, |place| format!(" at {place}"));
    let holds = pool.backend_limit.map_or_else(String::new, |limit| {
        format!(" (backlog {limit}, holds {})", number::count(u64::from(limit) + 1))
    });
    let dropped = pool.backend_drops.filter(|drops| *drops > 0).map_or_else(String::new, |drops| {
        format!(": its kernel dropped {} SYNs or last ACKs", number::count(drops))
    });
    let stall = if pool.stalled_s.is_some() { "" } else { " without a stall" };
    finding.text = format!(
        "The accept queue of the backend {}{at} on the server host{holds} was full{stall}{dropped}.",
        pool.backend
    );
    let more = [
        ("listener", place.map(Value::from)),
        ("host", Some(Value::from("server"))),
        ("backend_drops", pool.backend_drops.map(Value::from)),
        ("accept_queue_limit", pool.backend_limit.map(Value::from)),
        ("accept_queue_peak", told.queue_peak().map(Value::from)),
    ];
    // Clients of the front service are not clients of this listener.
    finding.evidence.remove("never_answered");
    finding.evidence.remove("gave_up_connecting");
    let more = more.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    finding.evidence.extend(more);
    Some(finding)
}

/// The setting, the round trip of the quiet path, and how often the client had given up when the
/// SYN-ACK came.
fn connect_timeout_short(arm: &Arm) -> Option<Finding> {
    let limit_us = PoolArm::from_arm(arm)?.pool.connect_timeout_s? * 1e6;
    let rtt_us = rtt_us(arm).filter(|rtt_us| limit_us < *rtt_us)?;
    let above_zero = |count: &u64| *count > 0;
    let failed = arm.statuses.get(TIMED_OUT).copied().filter(above_zero)?;
    let resets = arm.server.as_ref()?.counters.get(GAVE_UP).copied().unwrap_or(0);
    let gave_up = u64::try_from(resets).ok().filter(above_zero)?;
    let text = format!(
        "The connect timeout of {} is shorter than the round trip of {}. {} SYN-ACKs of the \
         backend arrived after the worker had given up, and {} requests failed with status \
         {TIMED_OUT}.",
        number::time(limit_us),
        number::time(rtt_us),
        number::count(gave_up),
        number::count(failed)
    );
    let evidence = [
        ("connect_timeout_us", Value::from(limit_us)),
        ("rtt_us_p50", rtt_us.into()),
        (GAVE_UP, gave_up.into()),
        ("status_504", failed.into()),
    ];
    Some(Finding::new(text, evidence))
}

/// Median round trip of the quiet path, µs.
fn rtt_us(arm: &Arm) -> Option<f64> {
    arm.histograms.get(RTT.name)?.p50
}

/// Both limits that make sense, for the longest round trip of the arms that have the cause.
fn longer_timeout(summary: &Summary) -> Vec<Remedy> {
    let id = CONNECT_TIMEOUT_SHORT.id;
    let ill = |arm: &&Arm| is_ill(summary, arm, id);
    let rtt = |arm: &Arm| rtt_us(arm).unwrap_or(0.0);
    let longest = summary.arms.iter().filter(ill).max_by(|a, b| rtt(a).total_cmp(&rtt(b)));
    let Some(arm) = longest else { return Vec::new() };
    let rtt_us = rtt(arm);
    let proof = cured(summary, arm, &["connect-timeout"]).map(|cured| {
        format!("arm {}: all {} requests succeeded", cured.name, number::count(cured.ok))
    });
    let remedy = Remedy::named(id, "longer").and(&format!(
        "Here the round trip of {} asks for a timeout above {}.",
        number::time(rtt_us),
        number::time(FIRST_RETRANSMISSION_S * 1e6 + rtt_us)
    ));
    vec![remedy.proven(proof)]
}

fn workers_stuck(arm: &Arm) -> Option<Finding> {
    let told = PoolArm::from_arm(arm).filter(|told| told.is_stuck())?;
    let pool = told.pool;
    let busy = told.busy()?;
    let [from, until] = pool.stalled_s?;
    let slowed = told.slowed();
    let evidence = [
        ("workers", Some(Value::from(pool.workers))),
        ("workers_busy", Some(Value::from(busy))),
        ("workers_busy_expected", pool.stuck_expected.map(Value::from)),
        ("workers_busy_expected_max", pool.stuck_expected_max.map(Value::from)),
        ("wait_expected_s", pool.wait_expected_s.map(Value::from)),
        ("stall_s", Some(Value::from(until - from))),
        ("backend_queue_peak", told.queue_peak().map(Value::from)),
        ("backend_queue_limit", pool.backend_limit.map(Value::from)),
        ("backend_drops", pool.backend_drops.map(Value::from)),
        ("local_latency_before_us", slowed.map(|slowed| Value::from(slowed.before_us))),
        ("local_latency_during_us", slowed.map(|slowed| Value::from(slowed.during_us))),
        ("local_failed_share", told.local_failed().map(Value::from)),
    ];
    let expected = told.expected_words();
    let waited = slowed.map_or_else(
        || "Requests that never call it waited for a worker".to_owned(),
        |slowed| {
            format!(
                "Requests that never call it took {} instead of {}",
                number::time(slowed.during_us),
                number::time(slowed.before_us)
            )
        },
    );
    let text = format!(
        "{} of {} workers waited for {} during its stall of {}{expected}. {waited}.",
        number::plain(busy),
        pool.workers,
        pool.backend,
        number::time((until - from) * 1e6),
    );
    let known = evidence.into_iter().filter_map(|(name, value)| Some((name, value?)));
    Some(Finding::new(text, known))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{arm, summary};
    use super::*;
    use tcptoll_core::record::{Arm, HostSummary, Listener};
    use tcptoll_core::stats::HistogramSummary;

    fn concluded(arms: Vec<Arm>, compared: &[(&str, &str)]) -> Summary {
        let mut summary = summary(arms, compared);
        conclude(&mut summary);
        summary
    }

    fn healthy() -> Arm {
        let mut arm = arm("healthy", 0.0, 500.0);
        let pool = arm.own.worker_pool.as_mut().unwrap();
        (pool.stalled_s, pool.stuck_measured, pool.stuck_expected) = (None, None, None);
        arm
    }

    #[test]
    fn the_answer_begins_with_both_latencies() {
        let arms =
            vec![arm("as published", 20.0, 800e3), healthy(), arm("connect time-out", 10.0, 510.0)];
        let all =
            concluded(arms, &[("as published", "healthy"), ("connect time-out", "as published")]);
        assert_eq!(
            all.answer,
            "Requests that never call the backend take 320 ms (as published) instead of 500 µs (healthy): 20 of \
             20 workers wait for redis (expected: 20). The same requests take 504 µs (connect time-out)."
        );
        assert!(all.answer.chars().count() <= 400);
        assert_eq!(all.causes[0].id, "workers-stuck");
        assert!(all.advice[0].proof.is_none(), "its factors name no fix");
    }

    #[test]
    fn one_arm_is_held_against_itself_before_the_stall() {
        let one = concluded(vec![arm("worker-pool", 20.0, 800e3)], &[]);
        assert_eq!(
            one.answer,
            "Requests that never call the backend take 800 ms during the stall instead of 500 µs: 20 of 20 workers wait for redis (expected: 20)."
        );
        let commands: Vec<&str> = one.next.iter().map(|step| step.command.as_str()).collect();
        assert_eq!(commands[0], "tcptoll explain workers-stuck");
        assert!(commands.contains(&"tcptoll worker-pool --connect-timeout none,100ms"));
    }

    #[test]
    fn where_workers_are_left_the_answer_says_how_many_were_busy() {
        let calm = concluded(vec![arm("a", 10.0, 510.0)], &[]);
        assert_eq!(
            calm.answer,
            "10 of 20 workers are busy during the stall of redis (expected: 20). Requests that \
             never call it take 510 µs during the stall and 500 µs before."
        );
        assert!(calm.causes.is_empty() && calm.advice.is_empty());
        let healthy = concluded(vec![healthy()], &[]);
        assert!(healthy.answer.ends_with("without a stall."), "{}", healthy.answer);
        assert_eq!(concluded(Vec::new(), &[]).answer, "No request succeeded.");
    }

    #[test]
    fn of_many_changes_the_best_and_the_worst_are_stated() {
        let mut arms = vec![arm("stalled", 20.0, 800e3)];
        for n in 0..8 {
            let busy = if n < 4 { 10.0 } else { 20.0 };
            let mut next = arm(&format!("change {n}"), busy, 600.0 + f64::from(n) * 90e3);
            let name = super::super::LOCAL_LATENCY_MEAN.name;
            next.metrics.get_mut(name).unwrap().value = 600.0 + f64::from(n) * 40e3;
            arms.push(next);
        }
        let all = concluded(arms, &[]);
        assert!(
            all.answer.contains(
                "The same requests take 600 µs (change 0) at best and 631 ms (change 7) at worst."
            ),
            "{}",
            all.answer
        );
        assert!(all.answer.chars().count() <= 400);
    }

    #[test]
    fn the_evidence_has_workers_queue_and_latencies() {
        let found = workers_stuck(&arm("stalled", 20.0, 800e3)).unwrap();
        assert_eq!(
            found.text,
            "20 of 20 workers waited for redis during its stall of 2.00 s (expected: 20). \
             Requests that never call it took 800 ms instead of 500 µs."
        );
        assert_eq!(found.evidence["workers_busy"], 20.0);
        assert_eq!(found.evidence["backend_queue_limit"], 4);
        assert_eq!(found.evidence["backend_drops"], 40);
    }

    fn server(counters: &[(&str, i64)]) -> HostSummary {
        HostSummary {
            counters: counters.iter().map(|(name, count)| ((*name).into(), *count)).collect(),
            listeners: vec![Listener {
                address: "10.77.0.2".into(),
                port: 6379,
                accept_queue_peak: 5,
                accept_queue_limit: 4,
                ..Listener::default()
            }],
            ..HostSummary::default()
        }
    }

    #[test]
    fn a_full_queue_is_named_with_its_host_and_listener_whether_or_not_the_backend_stalled() {
        let mut healthy = arm("healthy", 1.0, 500.0);
        let pool = healthy.own.worker_pool.as_mut().unwrap();
        (pool.stalled_s, pool.backend_drops) = (None, Some(12));
        healthy.server = Some(server(&[("TcpExtListenOverflows", 12)]));
        // Of the front service's clients.
        healthy.errors.insert("timeout".into(), 3);
        let found = backend_queue_full(&healthy).unwrap();
        assert_eq!(
            found.text,
            "The accept queue of the backend redis at 10.77.0.2:6379 on the server host (backlog 4, \
             holds 5) was full without a stall: its kernel dropped 12 SYNs or last ACKs."
        );
        assert_eq!(found.evidence["listener"], "10.77.0.2:6379");
        assert!(!found.evidence.contains_key("never_answered"));
        let mut stuck = arm("stuck", 20.0, 800e3);
        stuck.server = healthy.server;
        assert_eq!(backend_queue_full(&stuck), None, "the workers are the cause");
    }

    fn hurried(limit_s: f64, gave_up: i64, failed: u64) -> Arm {
        let mut arm = arm("hurried", 1.0, 500.0);
        arm.own.worker_pool.as_mut().unwrap().connect_timeout_s = Some(limit_s);
        let rtt = HistogramSummary { p50: Some(20_200.0), ..HistogramSummary::default() };
        arm.histograms.insert(RTT.name.into(), rtt);
        arm.statuses.insert("504".into(), failed);
        arm.server = Some(server(&[(GAVE_UP, gave_up)]));
        arm
    }

    #[test]
    fn a_connect_time_out_below_the_round_trip_is_named_with_both_and_the_resets() {
        let found = connect_timeout_short(&hurried(0.01, 125, 100)).unwrap();
        assert_eq!(
            found.text,
            "The connect timeout of 10.0 ms is shorter than the round trip of 20.2 ms. 125 \
             SYN-ACKs of the backend arrived after the worker had given up, and 100 requests \
             failed with status 504."
        );
        assert_eq!(found.evidence[GAVE_UP], 125);
        assert_eq!(connect_timeout_short(&hurried(0.03, 125, 100)), None, "above the round trip");
        assert_eq!(connect_timeout_short(&hurried(0.01, 0, 100)), None, "nobody gave up");
        assert_eq!(connect_timeout_short(&hurried(0.01, 125, 0)), None, "nothing failed");
    }

    #[test]
    fn the_fix_states_both_limits_and_the_arm_that_has_one() {
        let mut patient = hurried(0.1, 0, 0);
        patient.name = "patient".into();
        patient.factors.insert("connect-timeout".into(), "100ms".into());
        let mut run = summary(vec![hurried(0.01, 125, 100), patient], &[]);
        conclude(&mut run);
        assert_eq!(run.causes[0].id, "connect-timeout-short");
        assert!(run.advice[0].change.contains("round trip of 20.2 ms"), "{:?}", run.advice);
        assert!(run.advice[0].change.contains("above 1.02 s"), "{:?}", run.advice);
        assert_eq!(run.advice[0].proof.as_deref(), Some("arm patient: all 500 requests succeeded"));
    }

    #[test]
    fn the_expectation_has_an_upper_end_where_serving_takes_workers_too() {
        let mut cached = arm("cache", 11.8, 20e3);
        let pool = cached.own.worker_pool.as_mut().unwrap();
        (pool.stuck_expected, pool.stuck_expected_max) = (Some(1.0), Some(12.3));
        assert_eq!(PoolArm::from_arm(&cached).unwrap().expected_words(), " (expected: 1 to 12.3)");
        cached.own.worker_pool.as_mut().unwrap().stuck_expected_max = Some(1.04);
        assert_eq!(PoolArm::from_arm(&cached).unwrap().expected_words(), " (expected: 1)");
    }

    #[test]
    fn half_of_the_workers_is_nearly_and_not_the_cause() {
        assert_eq!(workers_stuck(&arm("half", 10.0, 800e3)), None);
        assert_eq!(workers_stuck(&arm("quick", 20.0, 700.0)), None);
        let mut healthy = arm("healthy", 20.0, 800e3);
        healthy.own.worker_pool.as_mut().unwrap().stalled_s = None;
        assert_eq!(workers_stuck(&healthy), None);
    }
}
