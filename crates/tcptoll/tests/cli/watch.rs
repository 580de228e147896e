//! `watch` without a terminal: the text and JSON of `--once`, lines, and what is refused.

use tcptoll_model::watch::State;

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
fn impossible_times_are_refused() {
    for (option, value, says) in [
        ("--interval", "5ms", "write a time from 100ms to 1h"),
        ("--interval", "2", "has no unit"),
        ("--duration", "0s", "the watch would end before its first look"),
    ] {
        let ran = tcptoll(&["watch", "--no-screen", option, value]);
        assert_eq!(ran.status, Some(2), "{option} {value}");
        assert!(ran.stderr.contains(option) && ran.stderr.contains(says), "{}", ran.stderr);
    }
}
