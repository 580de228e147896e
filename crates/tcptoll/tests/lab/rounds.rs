//! Rounds: their order, what is on disk, what goes on after a signal or a kill, what is left out.
//!
//! On a machine that others disturb, trials are excluded and run again: nothing here depends on how
//! many.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use serde_json::Value;
use tcptoll_core::record::{Lasting, Summary, Trial, Verdict};

use crate::support::{
    Folder, Ran, TOLERANCE, checked_summary, counter, no_lab, only, run, tcptoll, trials,
};

/// Three arms that are the same but for their names' sake, five rounds.
const STUDY: &str = "question = 'what?'\nexperiment = 'connect'\n\
    [settings]\ncount = 40\n[rounds]\nfixed = 5\n\
    [factors]\nbacklog = [16, 64, 256]\n[[compare]]\nall_pairs = true\n";

fn args<'a>(study: &'a str, record: &'a str) -> Vec<&'a str> {
    let mut args = vec!["study", "run", study, "--format", "json", "--quiet", "--out", record];
    args.extend(["--link-tolerance", TOLERANCE]);
    args
}

/// Runs the study into `name` of the folder.
fn study(folder: &Folder, name: &str, more: &[&str]) -> (Ran, Vec<Trial>) {
    let (file, record) = (folder.path("study.toml"), folder.path(name));
    fs::write(&file, STUDY).unwrap();
    let ran = run(tcptoll(&args(&file, &record)).args(more));
    (ran, trials(Path::new(&record)))
}

/// The same study with seed 7, which runs once for all tests: its end, its trials, and its record in
/// `name` of the folder.
fn studied(folder: &Folder, name: &str) -> (&'static Ran, Vec<Trial>) {
    static STUDIED: LazyLock<(Ran, Vec<u8>)> = LazyLock::new(|| {
        let folder = Folder::new();
        let (ran, _) = study(&folder, "record.jsonl", &["--seed", "7"]);
        (ran, fs::read(folder.file("record.jsonl")).unwrap())
    });
    let (ran, record) = &*STUDIED;
    let file = folder.file(name);
    fs::write(&file, record).unwrap();
    (ran, trials(&file))
}

/// The order of running, without repetitions.
fn order(trials: &[Trial]) -> Vec<(u32, &str)> {
    let first = trials.iter().filter(|trial| trial.attempt == 0 && !trial.arm.partial);
    first.map(|trial| (trial.round, trial.arm.name.as_str())).collect()
}

/// Runs `connect` into a record of its own and gives its trials, too.
fn connect(more: &[&str]) -> (Summary, Vec<Trial>, Option<i32>) {
    let folder = Folder::new();
    let record = folder.path("record.jsonl");
    let mut all = vec!["connect", "--quiet", "--format", "json", "--out", &record];
    all.extend(["--link-tolerance", TOLERANCE]);
    all.extend(more);
    let ran = run(&mut tcptoll(&all));
    assert!(matches!(ran.status, Some(0 | 1)), "{}", ran.stderr);
    (checked_summary(&ran.stdout), trials(Path::new(&record)), ran.status)
}

#[test]
fn every_round_runs_every_arm_once_in_an_order_of_its_own_that_the_seed_gives_again() {
    if no_lab() {
        return;
    }
    let folder = Folder::new();
    let (ran, first) = studied(&folder, "a.jsonl");
    assert!(matches!(ran.status, Some(0 | 1)), "{}", ran.stderr);
    for round in 0..5 {
        let arms: BTreeSet<&str> =
            first.iter().filter(|t| t.round == round).map(|t| t.arm.name.as_str()).collect();
        assert_eq!(arms.len(), 3, "round {round}");
    }
    assert_eq!(order(&first).len(), 15);
    let orders: BTreeSet<Vec<&str>> =
        order(&first).chunks(3).map(|round| round.iter().map(|(_, arm)| *arm).collect()).collect();
    assert!(orders.len() > 1, "shuffled anew each round: {orders:?}");
    let (_, again) = study(&folder, "b.jsonl", &["--seed", "7"]);
    assert_eq!(order(&first), order(&again));
    let (_, other) = study(&folder, "c.jsonl", &["--seed", "8"]);
    assert_ne!(order(&first), order(&other));
}

#[test]
fn the_summary_is_what_arithmetic_makes_of_the_trials_on_disk() {
    if no_lab() {
        return;
    }
    let folder = Folder::new();
    let (ran, trials) = studied(&folder, "a.jsonl");
    let summary = checked_summary(&ran.stdout);
    let means = |name: &str| -> BTreeMap<u32, f64> {
        let counting = trials.iter().filter(|trial| trial.arm.name == name && trial.counts());
        counting.map(|trial| (trial.round, trial.arm.metrics["connect_us_mean"].value)).collect()
    };
    for arm in &summary.arms {
        let values = means(&arm.name);
        let n = values.len() as u64;
        if n == 0 {
            // Every trial was excluded. There are figures, and no verdict.
            assert!(!summary.valid && arm.attempts == 40 * 5, "{}: {}", arm.name, arm.attempts);
            continue;
        }
        let tried = trials.iter().filter(|trial| trial.arm.name == arm.name).count();
        assert_eq!((arm.attempts, arm.rounds.len()), (40 * n, tried));
        let mean = values.values().sum::<f64>() / n as f64;
        let metric = &arm.metrics["connect_us_mean"];
        assert!((metric.value / mean - 1.0).abs() < 1e-9 && metric.n == n, "{metric:?}");
        assert!(n < 5 || metric.ci95.is_some_and(|[low, high]| low < mean && mean < high));
        assert_eq!(arm.histograms["connect_us"].count, 40 * n);
        assert_eq!(counter(&arm.client.counters, "TcpActiveOpens"), 40 * n);
    }
    assert_eq!(summary.comparisons.len(), 3);
    for comparison in &summary.comparisons {
        let b = means(&comparison.b);
        let logs: Vec<f64> = means(&comparison.a)
            .into_iter()
            .filter_map(|(round, a)| Some((a / b.get(&round)?).ln()))
            .collect();
        if logs.is_empty() {
            assert_eq!((comparison.rounds, comparison.verdict), (0, Verdict::NotEnough));
            continue;
        }
        let ratio = (logs.iter().sum::<f64>() / logs.len() as f64).exp();
        assert!((comparison.ratio.unwrap() / ratio - 1.0).abs() < 1e-9, "{comparison:?}");
        assert_eq!((comparison.rounds as usize, comparison.alpha), (logs.len(), 0.05 / 3.0));
    }
    let rounds = summary.rounds.unwrap();
    assert_eq!((rounds.done, rounds.most), (5, 5));
}

#[test]
fn trials_have_hosts_of_their_own_so_no_time_wait_is_handed_on() {
    if no_lab() {
        return;
    }
    let (_, trials, _) = connect(&["--backlog", "64,128", "--count", "100", "--rounds", "3"]);
    assert!(trials.len() >= 6);
    for trial in &trials {
        let waiting = trial.arm.client.sockstat.get("TCP_tw").copied().unwrap_or(0);
        let warm = trial.arm.warmup.as_ref().map_or(0, |warmup| warmup.attempts);
        assert!(waiting <= 100 + warm, "{waiting} in TIME-WAIT in round {}", trial.round);
    }
}

#[test]
fn the_warm_up_is_measured_and_in_no_other_figure() {
    if no_lab() {
        return;
    }
    let (summary, ..) = connect(&["--count", "100", "--warmup", "50"]);
    let arm = only(&summary);
    let warmup = arm.warmup.as_ref().unwrap();
    assert_eq!((warmup.attempts, warmup.ok), (50, 50));
    assert_eq!(warmup.histograms["connect_us"].count, 50);
    assert_eq!((arm.attempts, arm.histograms["connect_us"].count), (100, 100));
    assert_eq!(counter(&arm.client.counters, "TcpActiveOpens"), 100);
    let none = connect(&["--count", "10", "--warmup", "0"]).0;
    assert_eq!(only(&none).warmup, None);
}

#[test]
fn a_duration_ends_a_trial_that_has_no_count() {
    if no_lab() {
        return;
    }
    let (summary, ..) = connect(&["--link", "rtt=2ms", "--duration", "2s"]);
    let arm = only(&summary);
    assert!(!summary.partial && arm.ok > 20, "{}", arm.ok);
    // What has begun by then is ended, not cut off.
    assert_eq!((arm.attempts, arm.errors.len()), (arm.ok, 0));
    assert!(arm.elapsed_s >= 2.0, "{}", arm.elapsed_s);
}

/// Ends the run once `trials` trials are on disk, by a signal.
fn stopped_after(folder: &Folder, trials: usize, signal: &str) -> (Option<i32>, String) {
    let (file, record) = (folder.path("study.toml"), folder.path("record.jsonl"));
    fs::write(&file, STUDY).unwrap();
    let mut child = tcptoll(&args(&file, &record))
        .args(["--seed", "7"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines =
        || fs::read(&record).map_or(0, |b| b.split_inclusive(|byte| *byte == b'\n').count());
    while lines() < trials + 1 {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(Duration::from_millis(5));
    }
    let kill = format!("kill -s {signal} {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

/// Goes on, and checks that what was on disk is untouched and the plan is done once.
fn goes_on(folder: &Folder) -> Summary {
    let record = folder.path("record.jsonl");
    let before = fs::read(&record).unwrap();
    let whole = before.iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    let kept = trials(Path::new(&record)).len();
    let ran = run(&mut tcptoll(&["study", "--resume", &record, "--format", "json", "--quiet"]));
    assert!(matches!(ran.status, Some(0 | 1)), "{}", ran.stderr);
    assert_eq!(fs::read(&record).unwrap()[..whole], before[..whole]);
    let all = trials(Path::new(&record));
    let ended = || all.iter().filter(|trial| !trial.arm.partial);
    let done: BTreeSet<(u32, &str)> =
        ended().map(|trial| (trial.round, trial.arm.name.as_str())).collect();
    let failures: Vec<_> = ended().filter_map(|trial| trial.arm.failure.as_ref()).collect();
    assert_eq!((done.len(), failures), (15, vec![]));
    let counting = ended().filter(|trial| trial.counts());
    let distinct: BTreeSet<(u32, &str)> =
        counting.clone().map(|trial| (trial.round, trial.arm.name.as_str())).collect();
    assert_eq!(counting.count(), distinct.len(), "none was run twice");
    assert!(kept < all.len());
    let summary = checked_summary(&ran.stdout);
    assert!(!summary.partial);
    summary
}

#[test]
fn a_run_stopped_by_a_signal_keeps_its_rounds_and_goes_on_later() {
    if no_lab() {
        return;
    }
    let folder = Folder::new();
    let (status, stdout) = stopped_after(&folder, 4, "TERM");
    assert_eq!(status, Some(143));
    let partial = checked_summary(&stdout);
    assert!(partial.partial);
    assert_eq!(partial.rounds.unwrap().stopped, "a signal stopped the run");
    goes_on(&folder);
}

#[test]
fn a_killed_run_is_read_back_and_goes_on_in_the_order_it_would_have_had() {
    if no_lab() {
        return;
    }
    let folder = Folder::new();
    let (status, _) = stopped_after(&folder, 5, "KILL");
    assert_eq!(status, None, "killed");
    let record = folder.path("record.jsonl");
    let said = run(&mut tcptoll(&["report", &record, "--format", "json"]));
    assert!(checked_summary(&said.stdout).partial);
    goes_on(&folder);
    let (_, whole) = studied(&folder, "whole.jsonl");
    assert_eq!(order(&trials(&folder.file("record.jsonl"))), order(&whole));
}

#[test]
fn a_run_that_is_done_is_not_run_again() {
    if no_lab() {
        return;
    }
    let folder = Folder::new();
    let (ran, first) = studied(&folder, "record.jsonl");
    let record = folder.path("record.jsonl");
    let again = run(&mut tcptoll(&["study", "--resume", &record, "--format", "json", "--quiet"]));
    assert_eq!(again.status, ran.status, "{}", again.stderr);
    assert_eq!(trials(Path::new(&record)), first);
    assert_eq!(
        checked_summary(&again.stdout).comparisons,
        checked_summary(&ran.stdout).comparisons
    );
}

#[test]
fn what_would_be_excluded_again_is_not_repeated_and_never_in_a_verdict() {
    if no_lab() {
        return;
    }
    // More connections than ports: a repetition would find the same.
    let range = "net.ipv4.ip_local_port_range=40000 40063";
    let (summary, trials, status) =
        connect(&["--client-sysctl", range, "--count", "50,150", "--rounds", "2", "--warmup", "0"]);
    for round in 0..2 {
        let ill: Vec<&Trial> =
            trials.iter().filter(|t| t.arm.name == "count 150" && t.round == round).collect();
        let (last, before) = ill.split_last().unwrap();
        assert!(ill.iter().all(|trial| trial.invalid.is_some()));
        // An unfit machine may pass, so it is tried again: three times at most, and not in the round after
        // one that no repetition mended.
        assert!(before.iter().all(|trial| trial.lasting.is_none()));
        let short = last.lasting == Some(Lasting::Shortage);
        assert!(short || before.len() == 3 || round > 0, "{last:?}");
    }
    let [comparison] = summary.comparisons.as_slice() else { panic!("{:?}", summary.comparisons) };
    assert_eq!((comparison.rounds, comparison.verdict), (0, Verdict::NotEnough));
    assert!(summary.warnings.iter().any(|warning| warning.id == "trials-excluded"));
    assert!(!summary.valid);
    assert_eq!(status, Some(1));
    let tried = trials.iter().filter(|trial| trial.arm.name == "count 150").count();
    let excluded = summary.arms[1].rounds.iter().filter(|round| round.left_out.is_some()).count();
    assert!(tried >= 2);
    assert_eq!(excluded, tried);
    assert!(summary.rounds.unwrap().excluded as usize >= tried);
}

#[test]
fn what_may_pass_is_repeated_three_times_and_announced() {
    if no_lab() {
        return;
    }
    let folder = Folder::new();
    let record = folder.path("record.jsonl");
    // No link is exact to the nanosecond.
    let ran =
        run(tcptoll(&["connect", "--link", "rtt=1ms,direct", "--link-tolerance", "delay=0us"])
            .args(["--count", "20", "--rounds", "1", "--out", &record]));
    let of_link: Vec<(u32, bool)> = trials(Path::new(&record))
        .iter()
        .filter(|trial| trial.arm.name == "link rtt=1ms")
        .map(|trial| (trial.attempt, trial.invalid.is_some()))
        .collect();
    let (last, repeated) = of_link.split_last().unwrap();
    assert_eq!(repeated, [(0, true), (1, true), (2, true)], "{}", ran.stderr);
    // The last one is measured all the same; a busy machine may be a reason to exclude it.
    assert_eq!(last.0, 3);
    for attempt in 2..=4 {
        let says = format!(
            "repeating link rtt=1ms, round 1, attempt {attempt} of 4: the link's round trip"
        );
        assert_eq!(ran.stderr.matches(&says).count(), 1, "{}", ran.stderr);
    }
    let says = "invalid: link rtt=1ms: the link's round trip is ";
    assert!(ran.stdout.contains(says), "{}", ran.stdout);
    assert_eq!(ran.status, Some(1));
}

#[test]
fn a_client_that_cannot_keep_its_schedule_runs_once_and_gives_a_bound() {
    if no_lab() {
        return;
    }
    let (summary, trials, status) =
        connect(&["--rate", "1000000", "--count", "3000", "--warmup", "0"]);
    let last = trials.last().unwrap();
    if last.lasting.is_none() {
        // The machine was unfit at every attempt.
        assert!(last.invalid.is_some() && !summary.valid, "{last:?}");
        return;
    }
    assert!(trials[..trials.len() - 1].iter().all(|trial| trial.lasting.is_none()));
    assert_eq!((summary.valid, status), (true, Some(0)));
    assert!(summary.answer.starts_with("At least "), "{}", summary.answer);
    assert!(summary.warnings.iter().any(|warning| warning.id == "generator-late"));
}

#[test]
fn an_arm_that_fails_in_every_round_does_not_keep_the_others_from_theirs() {
    if no_lab() {
        return;
    }
    let folder = Folder::new();
    let (file, record) = (folder.path("study.toml"), folder.path("record.jsonl"));
    let text = "question = 'what?'\nexperiment = 'connect'\n[settings]\ncount = 20\n\
        [rounds]\nfixed = 3\n[[arm]]\nname = 'ill'\nserver = 'exit 4'\n[[arm]]\nname = 'well'\n";
    fs::write(&file, text).unwrap();
    let ran = run(&mut tcptoll(&args(&file, &record)));
    assert_eq!(ran.status, Some(1), "{}", ran.stderr);
    let summary = checked_summary(&ran.stdout);
    assert!(summary.arms[0].failure.as_ref().is_some_and(|why| why.contains("exit 4")));
    assert!(summary.arms[1].ok >= 20);
    assert_eq!(summary.rounds.unwrap().failed, 3);
}

#[test]
fn a_dry_run_prints_the_plan_and_measures_nothing() {
    let folder = Folder::new();
    let (file, record) = (folder.path("study.toml"), folder.path("record.jsonl"));
    fs::write(&file, STUDY).unwrap();
    let ran = run(&mut tcptoll(&["study", "run", &file, "--dry-run", "--out", &record]));
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    for said in ["backlog 16", "backlog 256", "5 rounds", "3 arms"] {
        assert!(ran.stdout.contains(said), "{said}: {}", ran.stdout);
    }
    assert!(!Path::new(&record).exists());
}

#[test]
fn one_record_has_one_writer() {
    if no_lab() {
        return;
    }
    let folder = Folder::new();
    studied(&folder, "record.jsonl");
    let held = fs::File::open(folder.file("record.jsonl")).unwrap();
    held.lock().unwrap();
    let record = folder.path("record.jsonl");
    let ran = run(&mut tcptoll(&["connect", "--count", "5", "--quiet", "--out", &record]));
    assert_eq!(ran.status, Some(2));
    assert!(ran.stderr.contains("another run is writing it"), "{}", ran.stderr);
}

/// Verdicts that need figures without the noise of other tests.
mod alone {
    use super::*;

    #[test]
    fn a_round_trip_of_four_times_the_length_is_told_from_once_and_the_run_stops_there() {
        if no_lab() {
            return;
        }
        let links = ["--link", "rtt=10ms", "--link", "rtt=40ms"];
        let (summary, ..) =
            connect(&[&links[..], &["--count", "30", "--concurrency", "10"]].concat());
        let [comparison] = summary.comparisons.as_slice() else {
            panic!("{:?}", summary.comparisons)
        };
        assert_eq!(
            (comparison.a.as_str(), comparison.b.as_str()),
            ("link rtt=40ms", "link rtt=10ms")
        );
        let rounds = summary.rounds.unwrap();
        if comparison.verdict != Verdict::Higher {
            // A machine of which a hypervisor takes much excludes rounds, or needs all of the time for
            // repetitions: no verdict, and never a wrong one.
            assert_eq!(comparison.verdict, Verdict::NotEnough, "{comparison:?}");
            let out_of_time = rounds.stopped.contains("time limit");
            assert!(rounds.excluded > 0 || out_of_time, "{rounds:?}");
            return;
        }
        assert!(
            comparison.ratio.is_some_and(|ratio| (2.0..5.0).contains(&ratio)),
            "{comparison:?}"
        );
        assert!(rounds.done < rounds.most, "{rounds:?}");
        assert!(rounds.stopped.contains("verdict"), "{rounds:?}");
    }

    #[test]
    fn two_records_are_compared_and_listed_and_printed_in_every_form() {
        if no_lab() {
            return;
        }
        let folder = Folder::new();
        let (near, far) = (folder.path("near.jsonl"), folder.path("far.jsonl"));
        for (record, link) in [(&near, "rtt=5ms"), (&far, "rtt=20ms")] {
            let mut all =
                vec!["connect", "--quiet", "--link", link, "--count", "20", "--rounds", "8"];
            all.extend(["--link-tolerance", TOLERANCE, "--out", record]);
            let ran = run(&mut tcptoll(&all));
            assert!(matches!(ran.status, Some(0 | 1)), "{}", ran.stderr);
        }
        let ran = run(&mut tcptoll(&["compare", &far, &near, "--format", "json"]));
        assert_eq!(ran.status, Some(0), "{}", ran.stderr);
        let said: Value = serde_json::from_str(&ran.stdout).unwrap();
        let text = run(&mut tcptoll(&["compare", &far, &near]));
        // Five rounds of each are enough. A machine of which a hypervisor takes much may have fewer.
        let counting = |record: &str| {
            let trials = trials(Path::new(record));
            trials.iter().filter(|trial| trial.counts()).count()
        };
        if counting(&near).min(counting(&far)) >= 5 {
            let comparison = &said["comparisons"][0];
            assert_eq!(comparison["verdict"], "higher", "{said}");
            // One round of eight in which the machine stood still gives 0.0104.
            assert!(comparison["rank_test_p"].as_f64().is_some_and(|p| p < 0.05), "{said}");
            assert!(text.stdout.contains("higher"), "{}", text.stdout);
        }
        let (csv, markdown) = (folder.path("far.csv"), folder.path("far.md"));
        let ran = run(&mut tcptoll(&["report", &far, "--csv", &csv, "--markdown", &markdown]));
        assert_eq!(ran.status, Some(0), "{}", ran.stderr);
        assert!(fs::read_to_string(&csv).unwrap().contains("connect_us_mean"));
        assert!(fs::read_to_string(&markdown).unwrap().contains('|'));
        // The default folder of records, newest first.
        let records = folder.file("tcptoll");
        fs::create_dir(&records).unwrap();
        fs::copy(&far, records.join("far.jsonl")).unwrap();
        fs::write(records.join("empty.jsonl"), "").unwrap();
        let mut runs = tcptoll(&["runs", "--format", "json"]);
        let ran = run(runs.env("XDG_DATA_HOME", folder.0.path()));
        let listed: Value = serde_json::from_str(&ran.stdout).unwrap();
        let states: BTreeSet<&str> =
            listed.as_array().unwrap().iter().map(|run| run["state"].as_str().unwrap()).collect();
        assert_eq!(states, BTreeSet::from(["complete", "empty"]));
    }
}
