//! Visitors of a site: what do their connections hold on its server, and who limits its memory?
//!
//! Witnesses: the server's own status page, the clients' own clock, and the arithmetic of schedule and
//! settings. Runs are short; times have lower bounds alone, because the machine may be busy.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use tcptoll_core::record::{Arm, SiteVisits, Summary};
use tcptoll_kernel::cpu::children_of;

use crate::support::{
    Folder, TOLERANCE, checked_summary, lacks, last_line, only, run, tcptoll, trials,
};

/// Runs `visitors` once: six visitors a second for some seconds.
fn visited(args: &[&str]) -> Summary {
    let folder = Folder::new();
    let record = folder.path("record.jsonl");
    let mut all = vec!["visitors", "--quiet", "--format", "json", "--out", &record];
    all.extend(["--link-tolerance", TOLERANCE, "--rounds", "1", "--seed", "1"]);
    for (option, value) in [
        ("--rate", "6"),
        ("--pages", "1"),
        ("--think", "500ms"),
        ("--duration", "3s"),
        ("--warmup", "1500ms"),
        ("--keepalive-timeout", "1s"),
    ] {
        if !args.contains(&option) {
            all.extend([option, value]);
        }
    }
    all.extend(args);
    let ran = run(&mut tcptoll(&all));
    assert!(matches!(ran.status, Some(0 | 1)), "{args:?}: {:?}: {}", ran.status, ran.stderr);
    let summary = checked_summary(&ran.stdout);
    assert_eq!(last_line(Path::new(&record)).as_ref(), Some(&summary), "the record's last line");
    for arm in &summary.arms {
        let groups: Vec<_> = visits(arm).pages.values().collect();
        for group in &groups {
            assert_eq!(group.attempts, group.ok + group.errors.values().sum::<u64>(), "{group:?}");
        }
        assert_eq!(groups.iter().map(|group| group.attempts).sum::<u64>(), arm.attempts);
        assert_eq!(groups.iter().map(|group| group.ok).sum::<u64>(), arm.ok);
    }
    summary
}

fn visits(arm: &Arm) -> &SiteVisits {
    arm.own.site_visits.as_deref().expect("the arm has what its visitors did")
}

fn metric(arm: &Arm, name: &str) -> f64 {
    arm.metrics.get(name).unwrap_or_else(|| panic!("{name} of {}", arm.name)).value
}

#[test]
fn workers_that_the_status_page_shows_are_those_of_schedule_and_timeout_and_of_the_clients() {
    if lacks(&["apache2"]) {
        return;
    }
    // Few connections: Apache starts the processes for many only one, two, four a second.
    let few = ["--connections-per-origin", "2", "--rate", "4", "--warmup", "4s"];
    let summary = visited(&[&["--server", "apache-prefork"], &few[..]].concat());
    let arm = only(&summary);
    let found = visits(arm);
    assert!(arm.ok > 5, "{:?}", arm.errors);
    let busy = metric(arm, "workers_held_mean");
    let expected = found.held_expected.unwrap();
    let clients = found.held_by_clients.unwrap();
    // How long a load without others took is a matter of the machine, the timeout is not.
    let visitors = found.visitors as f64 / 7.0;
    assert!(expected > visitors && busy > visitors, "{busy}, {expected} of {visitors}");
    assert!(
        (busy / clients - 1.0).abs() < 0.25,
        "the page shows {busy}, the clients had {clients}"
    );
    assert!(metric(arm, "connections_kept_mean") <= busy + 0.5);
    assert!(found.readings > 50 && found.memory_bytes.points.len() >= 2);
    assert_eq!((found.worker.as_str(), found.timeout_s), ("process", Some(1.0)));
}

#[test]
fn an_idle_connection_holds_a_worker_of_prefork_and_worker_and_none_of_event_and_nginx() {
    if lacks(&["apache2", "nginx"]) {
        return;
    }
    let servers = "apache-prefork,apache-worker,apache,nginx";
    let summary = visited(&["--server", servers, "--max-workers", "100", "--php", "fpm"]);
    let [prefork, worker, event, nginx] = &summary.arms[..] else { panic!("four arms") };
    for arm in [prefork, worker] {
        let (busy, kept) = (metric(arm, "workers_held_mean"), metric(arm, "connections_kept_mean"));
        assert!(kept > 1.0 && busy >= kept, "{}: {kept} of {busy}", arm.name);
    }
    let (busy, kept) = (metric(event, "workers_held_mean"), metric(event, "connections_kept_mean"));
    assert!(visits(event).idle_is_free && busy < kept, "{busy} threads, {kept} connections");
    assert_eq!(visits(nginx).worker, "connection");
    assert!(metric(nginx, "workers_held_mean") >= metric(nginx, "connections_kept_mean"));
}

#[test]
fn max_keep_alive_requests_limits_responses_of_a_connection_and_not_visitors() {
    if lacks(&["apache2"]) {
        return;
    }
    let summary = visited(&["--keepalive-requests", "100,3", "--duration", "2s"]);
    let [many, few] = &summary.arms[..] else { panic!("two arms") };
    // 21 requests over six connections, and three on each.
    assert!(metric(many, "connections_per_page") <= 6.01);
    assert!(metric(few, "connections_per_page") >= 7.0);
    assert_eq!(visits(many).visitors, visits(few).visitors, "as many come");
    assert!(few.ok > 3, "more visitors than 3 / 6 were served: {:?}", few.errors);
}

/// Groups of the kernel that a run of this process would have made.
fn groups(owner: u32) -> Vec<PathBuf> {
    fn within(folder: &Path, name: &str, depth: u32, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if entry.file_name().to_string_lossy().starts_with(name) {
                found.push(entry.path());
            } else if depth > 0 {
                within(&entry.path(), name, depth - 1, found);
            }
        }
    }
    let mut found = Vec::new();
    within(Path::new("/sys/fs/cgroup"), &format!("tcptoll-{owner}-"), 5, &mut found);
    found
}

#[test]
fn processes_beyond_the_memory_are_killed_and_named_by_the_kernel_or_by_the_watch() {
    if lacks(&["apache2"]) {
        return;
    }
    let memory = ["--memory", "128M", "--worker-memory", "30M", "--max-workers", "20"];
    let summary = visited(&[&memory[..], &["--rate", "8", "--work", "50ms"]].concat());
    let arm = only(&summary);
    let limit = visits(arm).memory_limit.as_ref().unwrap();
    assert_eq!(limit.bytes, 128 << 20);
    match limit.by.as_str() {
        "kernel" => assert_eq!(limit.why, None),
        "watch" => assert!(limit.why.as_ref().is_some_and(|why| !why.is_empty())),
        other => panic!("{other}"),
    }
    assert!(limit.kills > 0);
    let cause = summary.causes.iter().find(|cause| cause.id == "memory-limit-kills-workers");
    assert_eq!(cause.unwrap().evidence["memory_kills"], limit.kills);
}

/// Waits until something is so; the test's own limit is far longer than it ever takes.
fn wait_until(mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < Duration::from_mins(2));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn after_kill_9_the_keeper_removes_the_group_of_the_kernel() {
    if lacks(&["apache2"]) {
        return;
    }
    let folder = Folder::new();
    let record = folder.path("record.jsonl");
    let args = ["visitors", "--quiet", "--keepalive-timeout", "1s", "--memory", "256M"];
    let more = ["--duration", "60s", "--link-tolerance", TOLERANCE, "--out", &record];
    let mut command = tcptoll(&[&args[..], &more].concat());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut made = Vec::new();
    // Where the kernel gives no group, the server starts without one.
    let started = || Path::new(&record).exists();
    let begun = Instant::now();
    while made.is_empty() && !(started() && begun.elapsed() > Duration::from_secs(10)) {
        made = groups(child.id());
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until(|| groups(child.id()).is_empty());
    for group in made {
        assert!(!group.exists());
    }
}

/// The first process of a server that a process started, through all between.
fn server_of(ancestor: u32, name: &str) -> Option<u32> {
    let mut pending = vec![ancestor];
    while let Some(pid) = pending.pop() {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if comm.trim() == name {
            return Some(pid);
        }
        pending.extend(children_of(pid));
    }
    None
}

#[test]
fn a_server_that_dies_in_the_middle_fails_pages_and_ends_no_run() {
    if lacks(&["apache2"]) {
        return;
    }
    let folder = Folder::new();
    let record = folder.path("record.jsonl");
    let args = ["visitors", "--quiet", "--format", "json", "--rounds", "1", "--out", &record];
    let more = ["--keepalive-timeout", "1s", "--rate", "5", "--pages", "1", "--duration", "4s"];
    let last = ["--warmup", "100ms", "--timeout", "1s", "--link-tolerance", TOLERANCE];
    let mut command = tcptoll(&[&args[..], &more, &last].concat());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut server = None;
    wait_until(|| {
        // One that only tells its version has no children.
        server = server_of(child.id(), "apache2").filter(|pid| !children_of(*pid).is_empty());
        server.is_some()
    });
    // Its page was loaded over six connections at most before the load.
    wait_until(|| clients_of(server.unwrap()) > 6);
    tcptoll_kernel::process::kill_group(server.unwrap());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{:?}: {said}", output.status);
    checked_summary(&String::from_utf8(output.stdout).unwrap());
    // On a busy machine the trial is repeated, with a server that lives.
    let trials = trials(Path::new(&record));
    let refused = |arm: &Arm| arm.errors.contains_key("connect-refused");
    let died = trials.iter().map(|trial| &trial.arm).find(|arm| refused(arm));
    let errors: Vec<_> = trials.iter().map(|trial| &trial.arm.errors).collect();
    assert!(visits(died.unwrap_or_else(|| panic!("{errors:?}"))).readings_missed > 0);
}

/// Ports of clients that a server has or had connections to.
fn clients_of(server: u32) -> usize {
    let text = fs::read_to_string(format!("/proc/{server}/net/tcp")).unwrap_or_default();
    let clients: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .filter(|address| !address.ends_with(":0000"))
        .collect();
    clients.len()
}
