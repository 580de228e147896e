//! A name is resolved once in a run, and every trial goes to the address that was found.
//!
//! `names.py` has a DNS server whose answers never have an address in common, and counts what it is
//! asked. It runs in namespaces of its own.

use std::collections::BTreeMap;
use std::process::Command;

use serde::Deserialize;
use tcptoll_core::record::Summary;
use tcptoll_measure::record::Record;

use crate::support::{Folder, checked_summary, lacks, refuses, run};

const TCPTOLL: &str = env!("CARGO_BIN_EXE_tcptoll");

/// What came of one command.
#[derive(Deserialize)]
struct CommandOutcome {
    status: i32,
    stdout: String,
    stderr: String,
    /// Questions of type A by name.
    questions: BTreeMap<String, u64>,
    /// Addresses on which a server of the test accepted a connection.
    accepted: Vec<String>,
}

impl CommandOutcome {
    fn questions_in_all(&self) -> u64 {
        self.questions.values().sum()
    }
}

/// Whether the test cannot have a resolver of its own.
fn no_names() -> bool {
    lacks(&["python3", "unshare", "ip", "mount"]) || refuses(&["unshare", "-Urmn", "true"])
}

/// Runs commands beside the DNS server, one after the other.
fn ask(folder: &Folder, commands: &[&[&str]]) -> Vec<CommandOutcome> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/names.py");
    let commands = serde_json::to_string(commands).unwrap();
    let folder = folder.0.path().display().to_string();
    let ran = run(Command::new("unshare")
        .args(["-Urmn", "python3", script, &folder, &commands])
        .env("XDG_DATA_HOME", &folder));
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    serde_json::from_str(&ran.stdout).unwrap()
}

/// What holds of a run in rounds against `moving.test`: one question, one address for all trials.
fn went_to_one_address(asked: &CommandOutcome, name: &str) -> Summary {
    assert!(matches!(asked.status, 0 | 1), "{}", asked.stderr);
    assert_eq!(asked.questions, [("moving.test".to_owned(), 1)].into());
    let summary = checked_summary(&asked.stdout);
    let [resolved] = summary.resolved.as_slice() else { panic!("{:?}", summary.resolved) };
    assert_eq!((resolved.name.as_str(), resolved.addresses.len()), (name, 3));
    assert_eq!(asked.accepted, [resolved.used.as_str()], "every trial went to the one address");
    assert!(resolved.addresses.contains(&resolved.used));
    assert_eq!(summary.arms.len(), 2);
    for arm in &summary.arms {
        // A trial that the machine disturbed is repeated.
        assert!(arm.rounds.len() >= 3 && arm.failure.is_none(), "{}: {arm:?}", arm.name);
        assert!(arm.ok > 0, "{}: {:?}", arm.name, arm.errors);
    }
    summary
}

#[test]
fn a_name_is_asked_for_once_in_a_run_of_any_experiment() {
    if no_names() {
        return;
    }
    let quiet = ["--quiet", "--format", "json", "--rounds", "3", "--out", "/dev/null"];
    let command = |more: &[&'static str]| [&[TCPTOLL], more, &quiet].concat();
    let connect = ["connect", "--to", "moving.test:7001", "--count", "20", "--concurrency", "1,2"];
    let http = ["http", "http://moving.test:8080/", "--reuse", "keep-alive,server-close"];
    let http = [&http[..], &["--requests", "20", "--warmup", "5"]].concat();
    let keepalive = ["keepalive", "--to", "moving.test:7001", "--sockets", "20"];
    let mechanisms = ["--mechanism", "none,tcp", "--warmup", "50ms", "--duration", "200ms"];
    let keepalive = [&keepalive[..], &mechanisms].concat();
    let [connect, http, keepalive] = [&connect[..], &http, &keepalive].map(command);
    let asked = ask(&Folder::new(), &[&connect, &http, &keepalive]);
    let used: Vec<String> = asked
        .iter()
        .zip(["moving.test:7001", "moving.test:8080", "moving.test:7001"])
        .map(|(asked, name)| went_to_one_address(asked, name).resolved[0].used.clone())
        .collect();
    // Each run asked anew, and got what the others did not.
    assert!(used[0] != used[1] && used[1] != used[2] && used[0] != used[2], "{used:?}");
}

#[test]
fn two_ports_of_one_name_are_asked_for_once_and_are_of_one_server() {
    if no_names() {
        return;
    }
    let folder = Folder::new();
    let study = folder.path("study.toml");
    let text = "question = 'which port?'\nexperiment = 'connect'\n[settings]\ncount = 5\n\
                [factors]\nto = ['moving.test:7001', 'MOVING.test:8080']\n[rounds]\nfixed = 2\n";
    std::fs::write(&study, text).unwrap();
    let check = [TCPTOLL, "study", "check", &study];
    let run = [TCPTOLL, "study", "run", &study, "--quiet", "--format", "json"];
    let run = [&run[..], &["--out", "/dev/null"]].concat();
    let asked = ask(&folder, &[&check, &run]);
    let [check, run] = asked.as_slice() else { panic!() };
    assert_eq!((check.status, check.questions_in_all()), (0, 0), "{}", check.stderr);
    assert!(matches!(run.status, 0 | 1), "{}", run.stderr);
    assert_eq!(run.questions_in_all(), 1, "{}", run.stderr);
    let resolved = checked_summary(&run.stdout).resolved;
    let names: Vec<&str> = resolved.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["moving.test:7001", "moving.test:8080"]);
    assert!(resolved.iter().all(|entry| run.accepted == [entry.used.as_str()]));
}

#[test]
fn a_run_that_goes_on_uses_the_recorded_address_and_a_report_asks_for_nothing() {
    if no_names() {
        return;
    }
    let folder = Folder::new();
    let [whole, killed] = ["whole.jsonl", "killed.jsonl"].map(|name| folder.path(name));
    let run = ["connect", "--quiet", "--to", "moving.test:7001", "--count", "5"];
    let run = [&[TCPTOLL], &run[..], &["--concurrency", "1,2", "--rounds", "3", "--out", &whole]];
    // The header and two trials: as a run that was killed.
    let kill = format!("head -n 3 {whole} > {killed}");
    let resume = [TCPTOLL, "study", "--quiet", "--format", "json", "--resume", &killed];
    let asked = ask(
        &folder,
        &[&run.concat(), &["sh", "-c", &kill], &resume, &[TCPTOLL, "report", &killed]],
    );
    let [first, _, resumed, report] = asked.as_slice() else { panic!() };
    assert_eq!(first.questions_in_all(), 1, "{}", first.stderr);
    assert!(matches!(resumed.status, 0 | 1), "{}", resumed.stderr);
    assert_eq!(resumed.questions_in_all(), 0, "{}", resumed.stderr);
    assert_eq!((&resumed.accepted, first.accepted.len()), (&first.accepted, 1));
    assert_eq!((report.status, report.questions_in_all()), (0, 0), "{}", report.stderr);
    let used = &first.accepted[0];
    let said = format!("moving.test:7001 is {used} (1 of 3 addresses)\n");
    assert!(first.stdout.contains(&said) && report.stdout.contains(&said), "{}", report.stdout);
    let record = Record::read(killed.as_ref()).unwrap();
    let header = record.header().unwrap();
    assert_eq!(header.resolved, checked_summary(&resumed.stdout).resolved);
    assert_eq!(&header.resolved[0].used, used);
}

#[test]
fn a_record_without_addresses_is_reported_without_a_question_and_goes_on_with_one() {
    if no_names() {
        return;
    }
    let folder = Folder::new();
    let [whole, old] = ["whole.jsonl", "old.jsonl"].map(|name| folder.path(name));
    let run = ["connect", "--quiet", "--to", "moving.test:7001", "--count", "5"];
    let run = [&[TCPTOLL], &run[..], &["--concurrency", "1,2", "--rounds", "3", "--out", &whole]];
    let age = format!(
        r#"head -n 3 {whole} | sed 's/"resolved":\[[^]]*\(\[[^]]*\][^]]*\)*\],//' > {old}"#
    );
    let age: [&str; 3] = ["sh", "-c", &age];
    let resume = [TCPTOLL, "study", "--quiet", "--format", "json", "--resume", &old];
    let report = [TCPTOLL, "report", "--format", "json", &old];
    let asked = ask(&folder, &[&run.concat(), &age, &report, &resume]);
    let [_, _, report, resumed] = asked.as_slice() else { panic!() };
    assert_eq!((report.status, report.questions_in_all()), (0, 0), "{}", report.stderr);
    assert_eq!(checked_summary(&report.stdout).resolved, []);
    assert!(matches!(resumed.status, 0 | 1), "{}", resumed.stderr);
    assert_eq!(resumed.questions_in_all(), 1, "{}", resumed.stderr);
    let resolved = checked_summary(&resumed.stdout).resolved;
    assert_eq!(resumed.accepted, [resolved[0].used.as_str()]);
    let record = Record::read(old.as_ref()).unwrap();
    assert_eq!(record.header().unwrap().resolved, []);
    assert_eq!(record.resumed().next().unwrap().resolved, resolved);
}

#[test]
fn a_name_that_does_not_resolve_ends_the_command_before_there_is_a_record() {
    if no_names() {
        return;
    }
    let folder = Folder::new();
    let record = folder.path("record.jsonl");
    let out = ["--rounds", "3", "--out", &record];
    let to = ["--to", "missing.test:7001"];
    let asked = ask(
        &folder,
        &[
            &[&[TCPTOLL, "connect", "--count", "5,6"], &to[..], &out].concat(),
            &[&[TCPTOLL, "keepalive"], &to[..], &out].concat(),
            &[&[TCPTOLL, "http", "http://missing.test:8080/"], &out[..]].concat(),
        ],
    );
    for (asked, begins) in asked.iter().zip([
        "error: --to missing.test:7001: the name does not resolve (",
        "error: --to missing.test:7001: the name does not resolve (",
        "error: http://missing.test:8080/: the name does not resolve (",
    ]) {
        assert_eq!((asked.status, asked.stdout.as_str()), (2, ""), "{}", asked.stderr);
        assert_eq!(asked.questions_in_all(), 1);
        assert!(asked.stderr.starts_with(begins), "{}", asked.stderr);
        assert!(asked.stderr.contains("check its spelling, or write the address"));
    }
    assert!(!folder.file("record.jsonl").exists(), "a record of nothing was left");
}

#[test]
fn a_name_with_a_public_address_gets_little_and_is_announced_after_one_question() {
    if no_names() {
        return;
    }
    let to = ["--to", "public.test:7001", "--out", "/dev/null"];
    let dry = [&[TCPTOLL, "connect"], &to[..], &["--dry-run"]].concat();
    let asked = ask(
        &Folder::new(),
        &[
            &[&[TCPTOLL, "connect", "--count", "3"], &to[..]].concat(),
            &[&[TCPTOLL, "keepalive", "--sockets", "9"], &to[..]].concat(),
            &[TCPTOLL, "http", "http://public.test/", "--requests", "3", "--out", "/dev/null"],
            &dry,
        ],
    );
    let [connect, keepalive, http, dry] = asked.as_slice() else { panic!() };
    for (asked, notice) in [
        (connect, "notice: public.test:7001 is a public address: 3 connections at 20 per second"),
        (keepalive, "notice: public.test:7001 is a public address: 9 connections will be held"),
        (http, "notice: http://public.test/ is a public address: up to 20 requests per second"),
    ] {
        // Nothing of this network leads there.
        assert_eq!((asked.status, asked.questions_in_all()), (2, 1), "{}", asked.stderr);
        assert!(asked.stderr.starts_with(notice), "{}", asked.stderr);
        assert!(asked.accepted.is_empty());
    }
    // 100 connections at 20 per second take 5 s, and nothing is asked for it.
    assert_eq!((dry.status, dry.questions_in_all()), (0, 0), "{}", dry.stderr);
    assert!(dry.stdout.contains("1 arm, at least 5."), "{}", dry.stdout);
}
