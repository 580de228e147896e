//! `doctor`: wrong input, what it prints, how it ends. Faults of machines are planted in the lab tests.

use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tcptoll_live::doctor::{Examination, ProofVerdict};

use crate::refused::refused;
use crate::{Ran, tcptoll};

/// Examines this machine for a second; something may be wrong with it.
fn examined(args: &[&str]) -> Ran {
    let ran = tcptoll(&[&["doctor", "--duration", "1s"], args].concat());
    assert!(matches!(ran.status, Some(0 | 1)), "{:?}: {}", ran.status, ran.stderr);
    assert_eq!(ran.stderr, "", "progress in a pipe");
    ran
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_examined() {
    for (args, names) in [
        (&["--duration", "0s"][..], "--duration 0s: write a time from 1s to 1h"),
        (&["--duration", "61m"], "--duration 61m: write a time from 1s to 1h"),
        (&["--duration", "soon"], "--duration soon"),
        (&["--duration", "-5s"], "--duration -5s"),
        (&["--netns", "a b"], "--netns a b: write a process id"),
        (&["--netns", "4294967295"], "--netns 4294967295"),
        (&["--netns", "/dev/null"], "not a network namespace"),
        (&["--html", "/no/such/folder/page.html"], "there is no folder /no/such/folder"),
        (&["--html", "/"], "this is a folder; name a file in it"),
        (&["--prove", "accept-queue"], "did you mean accept-queue-full"),
        (&["--prove", "zzz"], "no finding has this name. The lab can re-create accept-queue-full,"),
        (&["--prove", "x\u{1b}[2J"], "no finding has this name"),
    ] {
        refused(&[&["doctor"], args].concat(), names);
    }
}

#[test]
fn the_object_is_what_the_schema_says_and_the_status_follows_from_it() {
    let schema = tcptoll(&["schema", "doctor"]);
    assert_eq!((schema.status, schema.stderr.as_str()), (Some(0), ""));
    let schema: Value = serde_json::from_str(&schema.stdout).unwrap();
    jsonschema::meta::validate(&schema).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    assert!(!validator.is_valid(&serde_json::json!({})), "an empty object is no examination");
    let ran = examined(&["--format", "json"]);
    let object: Value = serde_json::from_str(&ran.stdout).unwrap();
    let problems: Vec<String> = validator.iter_errors(&object).map(|one| one.to_string()).collect();
    assert!(problems.is_empty(), "{problems:#?}");
    let examination: Examination = serde_json::from_value(object.clone()).unwrap();
    assert_eq!(ran.status, Some(i32::from(!examination.findings.is_empty())));
    assert!(examination.lasted_s >= 1.0, "{}", examination.lasted_s);
    assert_eq!(examination.report_version, 1);
    assert_eq!(serde_json::to_value(&examination).unwrap(), object, "nothing is lost");
}

#[test]
fn a_finding_that_is_not_here_is_not_proved_and_text_object_and_status_say_so() {
    // It needs an nginx that passes requests on, which no test of this file starts.
    let says = "upstream-not-reused was not found here, so nothing was proved.";
    let args = ["doctor", "--duration", "1s", "--prove", "upstream-not-reused"];
    let ran = tcptoll(&args);
    assert_eq!((ran.status, ran.stderr.as_str()), (Some(2), ""));
    let (_, proof) = ran.stdout.rsplit_once("\n\n").unwrap();
    assert!(proof.starts_with("proof         upstream-not-reused: not run\n"), "{proof}");
    assert!(proof.contains(says), "{proof}");
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("doctor.html");
    let ran =
        tcptoll(&[&args[..], &["--format", "json", "--html", page.to_str().unwrap()]].concat());
    assert_eq!((ran.status, ran.stderr.trim_end()), (Some(2), &*format!("--prove {says}")));
    let examination: Examination = serde_json::from_str(&ran.stdout).unwrap();
    let [proof] = &examination.proofs[..] else { panic!("{}", ran.stdout) };
    assert_eq!((proof.verdict, proof.text.as_str()), (ProofVerdict::NotRun, says));
    assert!(fs::read_to_string(page).unwrap().contains(says));
}

#[test]
fn the_text_says_what_was_examined_then_what_was_found() {
    let ran = examined(&["--details"]);
    let text = &ran.stdout;
    assert!(text.starts_with("tcptoll doctor · "), "{text}");
    assert!(text.contains("examined for 1") && text.contains("\n  servers "), "{text}");
    let nothing = text.contains("\nNothing found in 1");
    assert_eq!(ran.status, Some(i32::from(!nothing)), "{text}");
    if nothing {
        for part in ["\n  examined    queues and drops of ", "faults at other times: "] {
            assert!(text.contains(part), "{text}");
        }
    }
    assert!(!text.contains('\x1b'), "colour in a pipe");
}

#[test]
fn one_screen_has_the_verdict_first_and_what_was_not_seen_last() {
    let ran = examined(&[]);
    let text = &ran.stdout;
    let nothing = text.starts_with("Nothing found in 1");
    assert_eq!(ran.status, Some(i32::from(!nothing)), "{text}");
    assert!(text.lines().count() <= 22, "{text}");
    assert!(text.contains("\nnot seen    "), "{text}");
    assert!(text.ends_with("\nall         tcptoll doctor --details\n"), "{text}");
}

#[test]
fn the_page_is_written_and_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("doctor.html");
    examined(&["-q", "--html", path.to_str().unwrap()]);
    let page = fs::read_to_string(&path).unwrap();
    assert!(
        page.starts_with("<!doctype html>")
            && page.ends_with("</html>\n<!-- written by tcptoll -->\n")
    );
    for outside in ["http://", "https://", "src=", "@import", "url("] {
        assert!(!page.contains(outside), "the page names {outside}");
    }
}

#[test]
fn a_result_that_cannot_be_printed_is_no_result_for_a_script() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tcptoll"));
    command.args(["doctor", "--duration", "1s"]).stdin(Stdio::null()).stdout(full);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("standard output cannot be written"), "{error}");
}

/// Waits until the program catches this signal.
fn until_caught(child: &mut Child, signal: u32) {
    let begun = Instant::now();
    loop {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        if caught.is_some_and(|mask| mask & (1 << (signal - 1)) != 0) {
            return;
        }
        assert_eq!(child.try_wait().unwrap(), None, "it ended");
        assert!(begun.elapsed() < Duration::from_mins(1), "{status}");
        // Not for luck: it is asked again until it answers or time is up.
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_signal_ends_a_long_examination_and_nothing_is_reported() {
    for (name, number) in [("-INT", 2), ("-TERM", 15)] {
        for format in ["text", "json"] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_tcptoll"));
            command.args(["doctor", "--duration", "1h", "--format", format]).stdin(Stdio::null());
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            until_caught(&mut child, number);
            let pid = child.id().to_string();
            assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
            let output = child.wait_with_output().unwrap();
            assert_eq!(output.status.code(), Some(128 + number as i32));
            assert_eq!(String::from_utf8(output.stdout).unwrap(), "");
            let error = String::from_utf8(output.stderr).unwrap();
            assert!(error.contains("nothing is reported"), "{error}");
        }
    }
}
