//! How a run ends: by a signal, with a full disk, with a condition that is true, and read again later.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::isolation::{MARK, marked};
use crate::support::{
    Folder, TOLERANCE, checked_summary, last_line, measured, no_lab, run, tcptoll,
};

/// A run that would take minutes, in a process group of its own, once its load has begun.
fn long_run(folder: &Folder, mark: &str) -> Child {
    let record = folder.path("record.jsonl");
    let mut command = tcptoll(&["connect", "--link", "metro", "--count", "1000000"]);
    command.args(["--format", "json", "--link-tolerance", TOLERANCE, "--out", &record]);
    command.env(MARK, mark).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().unwrap();
    let begun = Instant::now();
    while !marked(mark).iter().any(|pid| active_opens(*pid) > 20) {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        assert!(begun.elapsed() < Duration::from_mins(2), "the load does not begin");
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

/// Connections opened in a process's network, or 0 if that is no client of a lab.
fn active_opens(pid: u32) -> u64 {
    let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    if comm.trim() != "tcptoll-client" {
        return 0;
    }
    let snmp = fs::read_to_string(format!("/proc/{pid}/net/snmp")).unwrap_or_default();
    let values = snmp.lines().rfind(|line| line.starts_with("Tcp:"));
    // Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens …
    values.and_then(|line| line.split_whitespace().nth(5)?.parse().ok()).unwrap_or(0)
}

/// Sends the signal to one process, or to a group as a terminal does (`to` below 0), and checks
/// what the stopped run leaves.
fn stopped_by(signal: &str, status: i32, group: bool) {
    let folder = Folder::new();
    let child = long_run(&folder, &format!("{signal}-{group}-{}", std::process::id()));
    let to = if group { format!("-{}", child.id()) } else { child.id().to_string() };
    let asked = Instant::now();
    let kill = format!("kill -s {signal} -- {to}");
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let took = asked.elapsed();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{stderr}");
    // The whole run would take minutes.
    assert!(took < Duration::from_secs(30), "{took:?}");
    let summary = checked_summary(&String::from_utf8(output.stdout).unwrap());
    assert!(summary.partial && summary.arms[0].partial);
    assert!((1..1_000_000).contains(&summary.arms[0].attempts), "{}", summary.arms[0].attempts);
    assert_eq!(last_line(&folder.file("record.jsonl")), Some(summary));
}

#[test]
fn sigint_to_the_program_keeps_what_was_measured() {
    if no_lab() {
        return;
    }
    stopped_by("INT", 130, false);
}

#[test]
fn sigterm_to_the_program_keeps_what_was_measured() {
    if no_lab() {
        return;
    }
    stopped_by("TERM", 143, false);
}

#[test]
fn an_interrupt_from_the_terminal_reaches_the_whole_group_and_keeps_what_was_measured() {
    if no_lab() {
        return;
    }
    stopped_by("INT", 130, true);
}

#[test]
fn with_a_full_disk_the_summary_is_still_printed_and_the_status_is_3() {
    if no_lab() {
        return;
    }
    let args = ["connect", "--quiet", "--format", "json", "--count", "20", "--out", "/dev/full"];
    let ran = run(&mut tcptoll(&args));
    assert_eq!(ran.status, Some(3), "{}", ran.stderr);
    assert_eq!(checked_summary(&ran.stdout).arms[0].ok, 20);
    assert!(ran.stderr.contains("/dev/full") && ran.stderr.contains("No space left on device"));
}

#[test]
fn where_standard_output_cannot_be_written_the_error_says_where_the_record_is() {
    if no_lab() {
        return;
    }
    let folder = Folder::new();
    let record = folder.path("record.jsonl");
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = tcptoll(&["connect", "--quiet", "--count", "20", "--out", &record]);
    let output = command.stdout(full).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    let says = format!("error: the record is in {record}; standard output cannot be written: ");
    assert!(stderr.starts_with(&says), "{stderr}");
    assert_eq!(last_line(&folder.file("record.jsonl")).unwrap().arms[0].ok, 20);
}

#[test]
fn a_report_or_capture_that_cannot_be_written_loses_no_measurement() {
    if no_lab() {
        return;
    }
    for option in ["--html", "--pcap"] {
        let folder = Folder::new();
        let record = folder.path("record.jsonl");
        let args = ["connect", "--quiet", "--format", "json", "--count", "20", "--out", &record];
        let ran = run(tcptoll(&args).args([option, "/dev/full"]));
        assert!(!matches!(ran.status, None | Some(0)), "{option}: {}", ran.stderr);
        let named = ran.stderr.contains(option) && ran.stderr.contains("No space left on device");
        assert!(named, "{option}: {}", ran.stderr);
        assert_eq!(checked_summary(&ran.stdout).arms[0].ok, 20, "{option}");
    }
}

#[test]
fn a_broken_limit_is_said_and_gives_status_1_and_one_that_holds_gives_0() {
    if no_lab() {
        return;
    }
    let args = ["connect", "--quiet", "--format", "json", "--count", "50", "--out", "/dev/null"];
    let broken = run(tcptoll(&args).args(["--fail-if", "connect_us_mean > 1"]));
    assert_eq!(broken.status, Some(1));
    assert!(broken.stderr.starts_with("failed: connect_us_mean > 1, it is "), "{}", broken.stderr);
    checked_summary(&broken.stdout);
    let held = run(tcptoll(&args).args(["--fail-if", "p50(connect_us) > 1e9"]));
    let expected = i32::from(!checked_summary(&held.stdout).valid);
    assert_eq!((held.status, held.stderr.as_str()), (Some(expected), ""));
    let unknown = run(tcptoll(&args).args(["--fail-if", "p50(connect_s) > 1"]));
    assert_eq!(unknown.status, Some(2));
    let says = "there is no distribution connect_s; did you mean connect_us?";
    assert!(unknown.stderr.contains(says), "{}", unknown.stderr);
    assert_eq!(unknown.stdout, "", "a limit that cannot be is known before the run");
}

#[test]
fn a_stored_record_is_shown_again_as_it_was() {
    if no_lab() {
        return;
    }
    let folder = Folder::new();
    let (record, html) = (folder.path("record.jsonl"), folder.path("report.html"));
    let args = ["connect", "--quiet", "--count", "50", "--format", "json", "--out", &record];
    let ran = run(&mut tcptoll(&args));
    assert!(measured(&ran), "{}", ran.stderr);

    let again = run(&mut tcptoll(&["report", &record, "--format", "json", "--html", &html]));
    assert_eq!((again.status, again.stdout.as_str()), (Some(0), ran.stdout.as_str()));
    assert!(fs::read_to_string(&html).unwrap().starts_with("<!doctype html>"));
    let lines: Vec<Value> = fs::read_to_string(&record)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let mut kinds: Vec<&str> = lines.iter().map(|line| line["line"].as_str().unwrap()).collect();
    // On a busy machine the trial may have been repeated.
    kinds.dedup();
    assert_eq!(kinds, ["header", "trial", "summary"]);

    for colour in [None, Some("1")] {
        let mut command = tcptoll(&["report", &record]);
        if let Some(value) = colour {
            command.env("NO_COLOR", value);
        }
        let text = run(&mut command).stdout;
        assert!(!text.contains('\x1b'), "colour in a pipe");
        assert!(text.contains("50"), "{text}");
        for line in text.lines() {
            // Neither a path nor a command is ever broken, so that it can be copied.
            let whole = line.contains(&record) || line.contains("tcptoll connect ");
            let wide = console::measure_text_width(line);
            assert!(wide <= 80 || whole, "{wide} columns: {line}");
        }
    }
}

#[test]
fn without_out_the_record_goes_to_the_data_folder_and_two_runs_share_none() {
    if no_lab() {
        return;
    }
    let folder = Folder::new();
    for _ in 0..2 {
        let mut command = tcptoll(&["connect", "--quiet", "--count", "5"]);
        let ran = run(command.env("XDG_DATA_HOME", folder.0.path()));
        assert!(measured(&ran), "{}", ran.stderr);
    }
    let records = fs::read_dir(folder.file("tcptoll")).unwrap().count();
    assert_eq!(records, 2);
}

#[test]
fn of_a_record_torn_while_its_summary_was_written_every_finished_trial_is_shown() {
    if no_lab() {
        return;
    }
    let folder = Folder::new();
    let record = folder.path("record.jsonl");
    let mut args = vec!["connect", "--quiet", "--count", "20,30", "--rounds", "1"];
    args.extend(["--format", "json", "--out", &record]);
    let ran = run(&mut tcptoll(&args));
    assert!(measured(&ran), "{}", ran.stderr);
    let text = fs::read_to_string(&record).unwrap();
    let whole = text.trim_end().rfind('\n').unwrap();
    fs::write(&record, &text[..whole + 100]).unwrap();

    let again = run(&mut tcptoll(&["report", &record, "--format", "json"]));
    assert_eq!(again.status, Some(0), "{}", again.stderr);
    let (told, was) = (checked_summary(&again.stdout), checked_summary(&ran.stdout));
    assert_eq!(told.arms, was.arms);
    assert!(told.partial && !was.partial, "a run without its end is partial");
}

#[test]
fn the_tour_ends_with_the_path_of_its_report() {
    if no_lab() {
        return;
    }
    let folder = Folder::new();
    let mut command = tcptoll(&["tour", "--quiet", "--link-tolerance", TOLERANCE]);
    command.current_dir(folder.0.path()).env("XDG_DATA_HOME", folder.0.path());
    let ran = run(&mut command);
    // A busy machine makes a run invalid, which is 1.
    assert!(measured(&ran), "{}", ran.stderr);
    let report = folder.file("tcptoll-report.html");
    let last = ran.stderr.lines().last().unwrap_or_default();
    assert!(last.ends_with(&report.display().to_string()), "{}", ran.stderr);
    let html = fs::read_to_string(report).unwrap();
    for outside in ["src=\"http", "href=\"http", "@import", "url(http"] {
        assert!(!html.contains(outside), "the report needs the network: {outside}");
    }
    for number in 1..=9 {
        assert!(ran.stdout.contains(&format!("\n{number}/9  ")), "{}", ran.stdout);
        assert!(
            html.contains(&format!("id=\"run-{number}\"")),
            "answer {number} is not in the report"
        );
    }
    // Several arms of an answer have such a link; it says so once.
    for answer in ran.stdout.split("\n     more: ") {
        assert!(answer.matches("the link was not measured").count() <= 1, "{answer}");
    }
    assert!(ran.stdout.contains("the link was not measured"), "{}", ran.stdout);
}
