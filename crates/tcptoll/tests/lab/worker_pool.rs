//! A backend that stops: which workers wait for it, which requests wait for a worker, and what
//! prevents that?
//!
//! Pools and stalls are small, so that each run takes two seconds. Expected numbers follow from the
//! settings; times have lower bounds alone, because the machine may be busy.

use std::path::Path;

use tcptoll_core::record::{Arm, RequestGroup, Summary, WorkerPool};

use crate::support::{
    Folder, TOLERANCE, checked_summary, counter, lacks, last_line, only, run, tcptoll,
};

/// Runs `worker-pool` once: 60 requests a second, half of which call the backend.
fn pooled(args: &[&str]) -> Summary {
    let folder = Folder::new();
    let record = folder.path("record.jsonl");
    let mut all = vec!["worker-pool", "--quiet", "--format", "json", "--out", &record];
    all.extend(["--link-tolerance", TOLERANCE, "--rounds", "1", "--seed", "1"]);
    for (option, value) in [("--rate", "60"), ("--duration", "1500ms"), ("--stall-after", "400ms")]
    {
        if !args.contains(&option) {
            all.extend([option, value]);
        }
    }
    all.extend(["--warmup", "300ms"]);
    all.extend(args);
    let ran = run(&mut tcptoll(&all));
    assert!(matches!(ran.status, Some(0 | 1)), "{args:?}: {:?}: {}", ran.status, ran.stderr);
    let summary = checked_summary(&ran.stdout);
    assert_eq!(last_line(Path::new(&record)).as_ref(), Some(&summary), "the record's last line");
    for arm in &summary.arms {
        check_groups(arm);
    }
    summary
}

fn pool(arm: &Arm) -> &WorkerPool {
    arm.own.worker_pool.as_deref().expect("the arm has what its pool did")
}

fn group<'a>(arm: &'a Arm, name: &str) -> &'a RequestGroup {
    &pool(arm).groups[name]
}

fn failed(group: &RequestGroup) -> u64 {
    group.errors.values().sum()
}

/// Of each group every attempt has one outcome, both together are the arm's, and each has its share
/// of what was due.
#[track_caller]
fn check_groups(arm: &Arm) {
    let groups = [group(arm, "backend"), group(arm, "local")];
    for group in groups {
        assert_eq!(group.attempts, group.ok + failed(group), "{group:?}");
    }
    let sum =
        |figure: fn(&RequestGroup) -> u64| groups.iter().map(|group| figure(group)).sum::<u64>();
    assert_eq!(sum(|group| group.attempts), arm.attempts);
    assert_eq!(sum(|group| group.ok), arm.ok);
    assert_eq!(sum(failed), arm.errors.values().sum::<u64>());
    assert!(groups[0].attempts.abs_diff(groups[1].attempts) <= 1, "half and half");
    assert_eq!(pool(arm).groups.len(), 2);
}

/// The longest that a request took which was due within this time, ms.
fn longest_ms(group: &RequestGroup, [from_s, until_s]: [f64; 2]) -> f64 {
    let points = group.latency_us.points.iter();
    let within = points.filter(|[at_s, ..]| (from_s..until_s).contains(at_s));
    within.map(|[.., greatest]| greatest / 1e3).fold(0.0, f64::max)
}

/// The second half of a stall.
fn late_part(pool: &WorkerPool) -> [f64; 2] {
    let [from_s, until_s] = pool.stalled_s.expect("the backend stalled");
    [f64::midpoint(from_s, until_s), until_s]
}

/// Slices within this time in which requests were answered.
fn answered(group: &RequestGroup, [from_s, until_s]: [f64; 2]) -> usize {
    let points = &group.rate_per_s.points;
    // Each slice as a whole.
    let width_s = points[1][0] - points[0][0];
    let within = |at_s: f64| at_s >= from_s && at_s + width_s <= until_s;
    points.iter().filter(|[at_s, _, mean, _]| within(*at_s) && *mean > 0.0).count()
}

fn metric(arm: &Arm, name: &str) -> f64 {
    arm.metrics.get(name).unwrap_or_else(|| panic!("{name} of {}", arm.name)).value
}

#[test]
fn a_stalled_backend_holds_every_worker_and_a_cache_keeps_them_free() {
    if lacks(&["redis-server"]) {
        return;
    }
    // Long enough for a busy machine: the calls of 0.15 s take every worker, and half of the stall is 0.6 s.
    let args = ["--workers", "4", "--backend-backlog", "1", "--stall", "1200ms"];
    let more = ["--duration", "2s", "--cache", "off,200ms"];
    let summary = pooled(&[&args[..], &more].concat());
    let [stalled, cached] = &summary.arms[..] else { panic!("{} arms", summary.arms.len()) };
    let found = pool(stalled);
    assert_eq!(
        (found.workers, found.front.as_str(), found.backend.as_str()),
        (4, "workers", "redis")
    );
    let [from_s, until_s] = found.stalled_s.unwrap();
    assert!(until_s - from_s >= 1.2 && from_s >= 0.39, "{:?}", found.stalled_s);
    // 30 calls a second take 4 workers within 0.2 s; none comes back before the stall ends.
    assert!((found.stuck_expected.unwrap() - 4.0).abs() < 1e-9);
    assert!(metric(stalled, "workers_busy_peak") >= 4.0);
    assert!(found.stuck_measured.unwrap() > 3.0, "{:?}", found.stuck_measured);
    // A request that never calls the backend waited for a worker, until the stall had ended.
    let local = group(stalled, "local");
    assert_eq!(failed(local), 0, "{:?}", local.errors);
    let waited_ms = longest_ms(local, [from_s, until_s]);
    assert!(waited_ms >= 100.0, "{waited_ms} ms");
    // A backlog of 1 holds 2; the calls after them met a full queue.
    assert_eq!(found.backend_limit, Some(1));
    let peak = found.backend_queue.points.iter().map(|[.., most]| *most).fold(0.0, f64::max);
    assert!((peak - 2.0).abs() < 1e-9, "{peak}");
    assert!(found.backend_drops.unwrap() >= 2, "{:?}", found.backend_drops);
    // Nothing was answered while every worker waited. With a cache one worker refreshes the value, and
    // the others answer the one before.
    assert_eq!(answered(local, late_part(found)), 0);
    let found = pool(cached);
    for name in ["local", "backend"] {
        assert!(answered(group(cached, name), late_part(found)) > 0, "{name}");
        assert_eq!(failed(group(cached, name)), 0, "{name}");
    }
}

#[test]
fn pooled_connections_lose_no_syn_to_a_full_queue() {
    if lacks(&["redis-server"]) {
        return;
    }
    // A pool of 8 fits the queue of 10.
    let args = ["--workers", "8", "--backend-backlog", "9", "--stall", "800ms"];
    let summary = pooled(&[&args[..], &["--connection", "pooled"]].concat());
    let arm = only(&summary);
    assert_eq!(pool(arm).backend_drops, Some(0));
    assert_eq!(counter(&arm.client.counters, "TcpExtTCPSynRetrans"), 0);
    assert_eq!(arm.ok, arm.attempts, "{:?}", arm.errors);
    // Nothing waited for a connection, so no time limit of connecting is advised.
    let advised = |change: &str| summary.advice.iter().any(|one| one.change.starts_with(change));
    assert!(!advised("Set a short connect timeout"), "{:?}", summary.advice);
    assert!(summary.next.iter().all(|step| !step.command.contains("--connect-timeout")));
    // Yet a backend that does not answer holds a worker with a connection like one without.
    assert!(metric(arm, "workers_busy_peak") >= 8.0);
}

#[test]
fn a_connect_time_out_bounds_the_workers_that_php_fpm_reports_stuck() {
    if lacks(&["redis-server", "nginx", "php-fpm8.2"]) {
        return;
    }
    let args = ["--front", "php-fpm", "--workers", "16", "--backend-backlog", "1"];
    let limits = ["--connect-timeout", "100ms", "--stall", "1s", "--duration", "1800ms"];
    let summary = pooled(&[&args[..], &limits, &["--rate", "100"]].concat());
    let arm = only(&summary);
    let found = pool(arm);
    assert_eq!((found.workers, found.front.as_str()), (16, "php-fpm"));
    // 2 wait for an answer; 50 calls a second wait 0.1 s each.
    assert!((found.stuck_expected.unwrap() - 7.0).abs() < 1e-9, "{:?}", found.stuck_expected);
    let stuck = found.stuck_measured.unwrap();
    // Without the time-out all 16 would be. A busy machine is late to end a call.
    assert!((4.0..15.0).contains(&stuck), "{stuck} workers stuck, 7 expected");
    // Each of these calls failed, after 100 ms at least; all others went well.
    let backend = group(arm, "backend");
    let failed_calls = failed(backend);
    assert!((20..=60).contains(&failed_calls), "{:?}", backend.errors);
    assert_eq!(failed(group(arm, "local")), 0);
    assert_eq!(backend.errors.keys().collect::<Vec<_>>(), ["status"]);
    // Workers were left, so the queue is a cause of its own, with its place.
    let full = summary.causes.iter().find(|cause| cause.id == "accept-queue-full").unwrap();
    assert_eq!(full.evidence["listener"], "10.77.0.2:6379");
    assert_eq!(full.evidence["backend_drops"], found.backend_drops.unwrap());
    assert!(
        full.text.contains("backend redis at 10.77.0.2:6379 on the server host"),
        "{}",
        full.text
    );
    // Workers that serve requests are expected as well, unless all were busy at some moment.
    assert!(found.stuck_expected_max.is_none_or(|most| most >= 7.0), "{found:?}");
}

#[test]
fn a_connect_time_out_below_the_round_trip_lets_no_call_succeed_and_is_named() {
    if lacks(&["redis-server"]) {
        return;
    }
    let args = ["--link", "rtt=40ms", "--stall", "0", "--connect-timeout", "10ms,1s"];
    let summary = pooled(&[&args[..], &["--duration", "700ms"]].concat());
    let [hurried, patient] = &summary.arms[..] else { panic!("{} arms", summary.arms.len()) };
    let (backend, local) = (group(hurried, "backend"), group(hurried, "local"));
    assert_eq!((backend.ok, failed(local)), (0, 0), "{:?}", hurried.errors);
    let short_timeout = |arm: &Arm| {
        let mut causes = summary.causes.iter().filter(|cause| cause.arm == arm.name);
        causes.find(|cause| cause.id == "connect-timeout-short").cloned()
    };
    let cause = short_timeout(hurried).expect("it is named");
    let server = hurried.server.as_ref().unwrap();
    assert_eq!(
        cause.evidence["TcpExtEmbryonicRsts"],
        counter(&server.counters, "TcpExtEmbryonicRsts")
    );
    assert_eq!(cause.evidence["status_504"], backend.attempts);
    assert!(cause.evidence["rtt_us_p50"].as_f64().unwrap() >= 40_000.0, "{:?}", cause.evidence);
    assert!((pool(hurried).connect_timeout_s.unwrap() - 0.01).abs() < 1e-9);
    assert_eq!(short_timeout(patient), None);
    assert!(group(patient, "backend").ok > 0, "{:?}", patient.errors);
    let fix = summary.advice.iter().find(|one| one.cause == "connect-timeout-short").unwrap();
    assert!(fix.change.contains("the kernel retransmits the first SYN after 1 s"), "{fix:?}");
}

#[test]
fn a_mariadb_that_never_stalls_answers_every_request() {
    if lacks(&["mariadbd", "nginx", "php-fpm8.2"]) {
        return;
    }
    let args = ["--front", "php-fpm", "--backend", "mariadb", "--workers", "4", "--stall", "0"];
    let summary = pooled(&[&args[..], &["--duration", "500ms"]].concat());
    let arm = only(&summary);
    assert_eq!(arm.ok, arm.attempts, "{:?}", arm.errors);
    let found = pool(arm);
    assert_eq!((found.backend.as_str(), found.backend_drops), ("mariadb", Some(0)));
    assert_eq!((found.stalled_s, found.stuck_measured, found.recovery_s), (None, None, None));
}
