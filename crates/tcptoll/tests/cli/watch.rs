//! `watch` without a terminal: the text and JSON of `--once`, lines, and what is refused.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use tcptoll_live::watch::State;

use super::tcptoll;

#[test]
fn once_prints_a_verdict_first_and_then_what_was_seen() {
    let ran = tcptoll(&["watch", "--once", "--interval", "200ms"]);
    assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""), "{}", ran.stdout);
    let mut blocks = ran.stdout.split("\n\n");
    assert!(blocks.next().unwrap().starts_with("tcptoll watch · "), "{}", ran.stdout);
    let verdict = blocks.next().unwrap();
    let begins = ["Nothing is wrong: ", "1 problem", "1 warning"];
    let counts = verdict.contains(" problems") || verdict.contains(" warnings");
    assert!(counts || begins.iter().any(|text| verdict.starts_with(text)), "{}", ran.stdout);
    for part in ["accepted ", "sockets ", "watching took "] {
        assert!(ran.stdout.contains(part), "{part}: {}", ran.stdout);
    }
}

#[test]
fn once_prints_one_json_object_with_a_table_of_this_look() {
    let ran =
        tcptoll(&["watch", "--once", "--interval", "100ms", "--format", "json", "--no-owners"]);
    assert_eq!((ran.status, ran.stdout.lines().count()), (Some(0), 1), "{}", ran.stderr);
    let state: State = serde_json::from_str(&ran.stdout).unwrap();
    assert!(state.interval_s >= 0.1 && state.rates.is_some());
    // The table was read in this look: it is not absent, but new.
    assert_eq!(state.table_age_s, Some(0.0));
    assert!(state.listeners.iter().all(|one| one.process.is_none()));
}

#[test]
fn without_a_terminal_lines_say_what_is_watched_and_how_it_ended() {
    let ran = tcptoll(&["watch", "--interval", "100ms", "--duration", "400ms"]);
    assert_eq!((ran.status, ran.stdout.as_str()), (Some(0), ""), "{}", ran.stderr);
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert!(
        lines[0].contains(" watching ") && lines[0].contains("a look every 100ms"),
        "{lines:?}"
    );
    assert!(lines.last().unwrap().starts_with("watched for 0 s: "), "{lines:?}");
}

#[test]
fn a_namespace_that_cannot_be_watched_is_refused_with_a_remedy() {
    let refused = |netns: &str| {
        let ran = tcptoll(&["watch", "--once", "--netns", netns]);
        assert_eq!((ran.status, ran.stdout.as_str()), (Some(2), ""), "{netns}: {}", ran.stderr);
        ran.stderr
    };
    let gone = refused("4194304");
    assert!(gone.contains("--netns 4194304: there is no such process. Write the id of"), "{gone}");
    let gone = refused("/run/netns/no-such-namespace");
    assert!(gone.contains("there is no such file. `ip netns list` prints"), "{gone}");
    let other = refused("/proc/self/ns/uts");
    assert!(other.contains("not a network namespace. Write a process id, or a file"), "{other}");
    let word = refused("web1");
    assert!(word.contains("write a process id, or a file like /run/netns/NAME"), "{word}");
}

#[test]
fn without_once_json_is_a_line_for_each_look_and_ends_with_its_reader() {
    let args = ["watch", "--format", "json", "--interval", "100ms", "--no-owners"];
    for more in [&["--duration", "1s"][..], &["--duration", "1s", "--no-screen"]] {
        let ran = tcptoll(&[&args, more].concat());
        assert_eq!(ran.status, Some(0), "{}", ran.stderr);
        let states: Vec<State> =
            ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(states.len() >= 2, "{}", ran.stderr);
        assert!(states[0].rates.is_none() && states[1].rates.is_some(), "the first has no rates");
        assert!(states.is_sorted_by(|a, b| a.at_s < b.at_s));
    }
    // Whoever reads one line ends the watch, and that is no failure.
    let mut child = Command::new(env!("CARGO_BIN_EXE_tcptoll"));
    child.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = child.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    serde_json::from_str::<State>(&line).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn what_cannot_be_printed_is_watched_and_not_stored() {
    for more in [&["--once"][..], &["--once", "--format", "json"], &["--format", "json"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tcptoll"));
        command.args(["watch", "--interval", "100ms"]).args(more).stdin(Stdio::null()).stdout(full);
        let output = command.output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{more:?}: {error}");
        assert!(error.contains("watched, but standard output cannot be written"), "{error}");
    }
}

#[test]
fn an_address_that_cannot_be_listened_on_is_named_with_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let (at, port) = (taken.local_addr().unwrap().to_string(), taken.local_addr().unwrap().port());
    let of_port = format!("`ss -ltnp 'sport = :{port}'` names it");
    for (address, says) in [
        ("9464", "this is not a numeric address with a port. Write one like 127.0.0.1:9464"),
        ("localhost:9464", "this is not a numeric address with a port"),
        ("127.0.0.1:99999", "this is not a numeric address with a port"),
        ("192.0.2.1:9464", "this machine does not have this address"),
        (&at, "another program listens on this port. Choose another port"),
        (&at, &of_port),
    ] {
        let ran = tcptoll(&["watch", "--listen", address, "--duration", "100ms"]);
        assert_eq!((ran.status, ran.stdout.as_str()), (Some(2), ""), "{address}: {}", ran.stderr);
        let names = format!("error: --listen {address}: ");
        assert!(ran.stderr.starts_with(&names) && ran.stderr.contains(says), "{}", ran.stderr);
    }
}

#[test]
fn a_record_in_no_folder_is_refused_and_the_end_says_where_a_record_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let record = |file: &str| {
        tcptoll(&["watch", "--record", file, "--interval", "100ms", "--duration", "300ms"])
    };
    for (file, says) in [
        (path("none/night.jsonl"), format!("there is no folder {}; create it first", path("none"))),
        (path(""), "this is a folder; name a file in it".to_owned()),
    ] {
        let ran = record(&file);
        assert_eq!(ran.status, Some(2), "{file}");
        assert_eq!(ran.stderr.lines().last(), Some(&*format!("error: --record {file}: {says}")));
    }
    let file = path("a night.jsonl");
    let ran = record(&file);
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    let says = format!("\nrecorded in '{file}'; to draw it:\ntcptoll report '{file}'\n");
    assert!(ran.stderr.contains(&says), "{}", ran.stderr);
    let drawn = tcptoll(&["report", &file]);
    assert_eq!(drawn.status, Some(0), "{}", drawn.stderr);
}

#[test]
fn options_that_once_would_ignore_are_refused() {
    for ignored in [&["--record-limit", "1M"][..], &["--allow-host", "a.example"], &["--no-screen"]]
    {
        let ran = tcptoll(&[&["watch", "--once"], ignored].concat());
        assert_eq!((ran.status, ran.stdout.as_str()), (Some(2), ""), "{ignored:?}");
        assert!(ran.stderr.contains(ignored[0]) && ran.stderr.contains("--once"), "{}", ran.stderr);
    }
}

#[test]
fn impossible_times_are_refused() {
    for (option, value, says) in [
        ("--interval", "5ms", "write a time from 100ms to 1h"),
        ("--interval", "2", "has no unit"),
        ("--interval", "-1s", "is not a time"),
        ("--duration", "0s", "the watch would end before its first look"),
        ("--duration", "-8h", "is not a time"),
    ] {
        let ran = tcptoll(&["watch", "--no-screen", option, value]);
        assert_eq!(ran.status, Some(2), "{option} {value}");
        let names = format!("error: {option} {value}: ");
        assert!(ran.stderr.starts_with(&names) && ran.stderr.contains(says), "{}", ran.stderr);
    }
}
