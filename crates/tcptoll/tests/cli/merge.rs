//! Wrong input of `merge`.

use crate::tcptoll;

fn refused(args: &[&str], says: &[&str]) {
    let ran = tcptoll(&[&["merge"], args].concat());
    assert_eq!((ran.status, ran.stdout.as_str()), (Some(2), ""), "{args:?}");
    for words in says {
        assert!(ran.stderr.contains(words), "{args:?}: {words}: {}", ran.stderr);
    }
}

#[test]
fn what_cannot_be_merged_is_named_with_the_reason() {
    refused(&[], &["<RECORD>"]);
    refused(&["no.jsonl"], &["no record can be merged:\n  no.jsonl: No such file"]);
    refused(&["Cargo.toml"], &["Cargo.toml: it does not begin with the header of a record"]);
    refused(&["a.jsonl", "--missing", "../x"], &["--missing", "sgp1='the machine was down'"]);
    refused(&["a.jsonl", "--margin", "0%"], &["--margin", "like 1%"]);
    for bound in ["long", "0s"] {
        refused(&["a.jsonl", "--clock-bound", bound], &["--clock-bound", "like 3.2ms"]);
    }
}

#[test]
fn names_and_times_of_a_point_are_checked_before_anything_is_measured() {
    for (args, says) in [
        (["--vantage", "../x"], "letters, digits, dots"),
        (["--start-at", "noon"], "2026-11-26T12:00:00Z"),
        (["--every", "0s"], "write a time above 0"),
    ] {
        let ran = tcptoll(&[&["connect"], &args[..]].concat());
        assert_eq!(ran.status, Some(2), "{args:?}");
        assert!(ran.stderr.contains(says), "{args:?}: {}", ran.stderr);
    }
    let begin = ["--start-at", "2026-11-26T12:00:00Z", "--every", "1s"];
    let ran = tcptoll(&[&["connect", "--backlog", "4,8", "--count", "50"], &begin[..]].concat());
    assert!(ran.stderr.contains("--start-at needs a fixed number of rounds"), "{}", ran.stderr);
    for (args, says) in [
        (&["--share", "2/3"][..], "--share"),
        (&["--share", "4/3", "--rate", "10"], "like 2/3"),
        (&["--share", "1/3", "--rate", "10", "--spread", "poisson"], "leave --spread poisson out"),
    ] {
        let ran = tcptoll(&[&["http", "http://127.0.0.1:9/"], args].concat());
        assert_eq!(ran.status, Some(2), "{args:?}");
        assert!(ran.stderr.contains(says), "{args:?}: {}", ran.stderr);
    }
}
