//! Does `http` do what each option says, and is what it counts what others counted?
//!
//! Witnesses are the kernels' counters and socket tables, the packets on the wire, and what the
//! server wrote down itself.

use std::fs;

use serde_json::Value;
use tcptoll_core::record::{Arm, Closing, Summary};

use crate::support::{
    Folder, TOLERANCE, checked_summary, counter, lacks, last_line, measured, no_lab, only, run,
    tcptoll,
};

/// The server whose faults are chosen by name.
const FAULTY: &str = include_str!("faulty.py");

/// Time in which the requests of a short trial begin, s.
pub(crate) const PLANNED_S: f64 = 0.2;

/// What came of a run of one arm or several.
pub(crate) struct RunOutcome {
    pub(crate) summary: Summary,
    pub(crate) status: Option<i32>,
}

/// Line, fields and content of a request, as the server wrote them down.
type Written = (String, Vec<(String, String)>, String);

/// `faulty.py` in a folder of its own, and a short load on it.
pub(crate) struct Faulty {
    folder: Folder,
    fault: String,
    more: Vec<String>,
}

impl Faulty {
    pub(crate) fn new(fault: &str) -> Self {
        let folder = Folder::new();
        fs::write(folder.file("faulty.py"), FAULTY).unwrap();
        Self { folder, fault: fault.to_owned(), more: Vec::new() }
    }

    /// Further options of the load.
    pub(crate) fn with(mut self, more: &[&str]) -> Self {
        self.more.extend(more.iter().map(|&word| word.to_owned()));
        self
    }

    /// The command that starts it. What it writes down goes to `log`, in its folder.
    pub(crate) fn line(&self) -> String {
        let script = self.folder.path("faulty.py");
        format!("exec python3 {script} {} {}", self.fault, self.folder.path("log"))
    }

    /// Options of the load.
    pub(crate) fn args<'a>(&'a self, line: &'a str) -> Vec<&'a str> {
        let mut args = vec!["--server", line, "--link-tolerance", TOLERANCE, "--rounds", "1"];
        // A number of requests is made however slow the machine is.
        let counted = self.more.iter().any(|word| word == "--requests");
        let duration = if counted { "20s" } else { "200ms" };
        with_defaults(&mut args, &["--duration", duration, "--warmup", "0"], &self.more);
        with_defaults(&mut args, &["--timeout", "2s", "--connections", "4"], &self.more);
        args.extend(self.more.iter().map(String::as_str));
        args
    }

    /// What the server wrote down of each request of a run of `requests`.
    ///
    /// A busy machine may repeat the trial. Then the requests of all trials are the same, and those
    /// of the last one are given.
    fn log(&self, requests: usize) -> Vec<Written> {
        let text = fs::read_to_string(self.folder.file("log")).unwrap();
        let all: Vec<Written> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let last = all.chunks(requests).next_back().unwrap();
        assert!(all.chunks(requests).all(|trial| trial == last), "{all:?}");
        assert_eq!(last.len(), requests);
        last.to_vec()
    }
}

/// Adds options in pairs, unless they are among `more`: an option given twice makes two arms.
fn with_defaults<'a, T: AsRef<str>>(args: &mut Vec<&'a str>, pairs: &[&'a str], more: &[T]) {
    for pair in pairs.chunks(2) {
        if !more.iter().any(|word| word.as_ref() == pair[0]) {
            args.extend(pair);
        }
    }
}

/// A load on a server with a fault.
pub(crate) fn ask(faulty: &Faulty) -> RunOutcome {
    let line = faulty.line();
    load(&faulty.args(&line))
}

/// Runs `http` and gives its summary, which must be right in all that every summary must be.
pub(crate) fn load(args: &[&str]) -> RunOutcome {
    let folder = Folder::new();
    let record = folder.path("record.jsonl");
    let mut all = vec!["http", "--quiet", "--format", "json", "--seed", "1", "--out", &record];
    all.extend(args);
    let ran = run(&mut tcptoll(&all));
    assert!(matches!(ran.status, Some(0..=2)), "{args:?}: {:?}: {}", ran.status, ran.stderr);
    let summary = checked_summary(&ran.stdout);
    assert_eq!(last_line(record.as_ref()).as_ref(), Some(&summary), "the record's last line");
    // A machine that is busy with other tests may make a run invalid that is right in all else.
    let nothing = summary.arms.iter().all(|arm| arm.ok == 0);
    let expected = if nothing { 2 } else { i32::from(!summary.valid) };
    assert_eq!(ran.status, Some(expected), "{args:?}: {}", ran.stderr);
    for arm in &summary.arms {
        witnessed(arm);
    }
    let says = if nothing { "error: nothing was measured: " } else { "" };
    assert!(ran.stderr.starts_with(says) && (nothing || ran.stderr.is_empty()), "{}", ran.stderr);
    RunOutcome { summary, status: ran.status }
}

/// What is true of the connections of every arm, as the kernels counted them.
fn witnessed(arm: &Arm) {
    let made = arm.connections_ok.unwrap();
    assert!(made <= arm.connections_attempted.unwrap(), "{}", arm.name);
    let Some(server) = &arm.server else { return };
    // A connection that was made for the client was made for the server.
    let passive = counter(&server.counters, "TcpPassiveOpens");
    let active = counter(&arm.client.counters, "TcpActiveOpens");
    assert!(active >= made, "{}: {made} made, {active} begun by the kernel", arm.name);
    if arm.errors.is_empty() {
        assert_eq!((active, passive), (made, made), "{}: {:?}", arm.name, arm.closing);
    }
    let closing = arm.closing.clone().unwrap();
    assert_eq!(closing.closed() + closing.open_at_end, made, "{}: {closing:?}", arm.name);
}

/// A short load on tcptoll's own server or nginx, all of which succeeds. It is of a number of
/// requests unless `more` says for how long, so that a slow machine is slow and nothing else.
pub(crate) fn short(more: &[&str]) -> Summary {
    let mut args = vec!["--link-tolerance", TOLERANCE, "--rounds", "1", "--connections", "4"];
    with_defaults(&mut args, &["--warmup", "0"], more);
    if !more.contains(&"--rate") {
        args.extend(["--ramp", "0"]);
    }
    if !more.contains(&"--duration") {
        with_defaults(&mut args, &["--requests", "200"], more);
    }
    args.extend(more);
    let RunOutcome { summary, .. } = load(&args);
    for arm in &summary.arms {
        assert_eq!(arm.ok, arm.attempts, "{}: {:?}", arm.name, arm.errors);
        assert!(arm.ok > 0, "{}", arm.name);
    }
    summary
}

/// Who closed the connections of an arm.
pub(crate) fn closing(arm: &Arm) -> &Closing {
    arm.closing.as_ref().unwrap()
}

#[test]
fn what_a_driver_is_called_is_what_was_asked_for() {
    if no_lab() {
        return;
    }
    let summary = short(&["--server", "null", "--io", "epoll,io-uring"]);
    let names: Vec<&str> = summary.arms.iter().map(|arm| arm.io.as_deref().unwrap()).collect();
    assert_eq!(names, ["epoll", "io_uring"]);
}

#[test]
fn a_number_of_requests_is_that_number_over_several_threads_too() {
    if no_lab() {
        return;
    }
    for more in [["--threads", "1"], ["--threads", "2"], ["--threads", "4"]] {
        let mut args = vec!["--server", "null", "--requests", "1001", "--duration", "20s"];
        args.extend(more);
        let summary = short(&args);
        let arm = only(&summary);
        assert_eq!((arm.attempts, arm.ok, arm.connections_ok), (1001, 1001, Some(4)), "{more:?}");
    }
}

#[test]
fn a_number_of_requests_is_all_that_the_server_gets_also_while_connections_are_ramped_up() {
    if lacks(&["python3"]) {
        return;
    }
    let faulty = Faulty::new("log");
    let line = faulty.line();
    let args = ["--server", &line, "--link-tolerance", TOLERANCE, "--rounds", "1"];
    let load = ["--connections", "4", "--requests", "9", "--ramp", "100ms"];
    let RunOutcome { summary, .. } = super::http::load(&[args, load].concat());
    let arm = only(&summary);
    assert_eq!((arm.attempts, arm.ok, arm.warmup.is_none()), (9, 9, true));
    assert_eq!(faulty.log(9).len(), 9);
}

#[test]
fn a_warm_up_is_apart() {
    if no_lab() {
        return;
    }
    let summary = short(&["--server", "null", "--requests", "100", "--warmup", "50"]);
    let arm = only(&summary);
    let warmup = arm.warmup.as_ref().unwrap();
    assert_eq!((arm.attempts, arm.histograms["latency_us"].count), (100, 100));
    // What was under way when the 50th ended, and what began before that was seen.
    assert!((50..=58).contains(&warmup.ok), "{}", warmup.ok);
    assert!(!arm.histograms.contains_key("connect_us"), "connections are of the warm-up");
}

#[test]
fn method_fields_and_content_arrive_and_paths_are_asked_for_in_turn() {
    if lacks(&["python3"]) {
        return;
    }
    let faulty = Faulty::new("log").with(&[
        "--connections",
        "1",
        "--requests",
        "5",
        "--method",
        "PUT",
        "--header",
        "X-Mark: a, b",
        "--body",
        "some content",
        "--path",
        "/one /two?x=%20",
    ]);
    let RunOutcome { summary, .. } = ask(&faulty);
    assert_eq!((only(&summary).attempts, only(&summary).ok), (5, 5));
    let log = faulty.log(5);
    let lines: Vec<&str> = log.iter().map(|(line, ..)| line.as_str()).collect();
    let (one, two) = ("PUT /one HTTP/1.1", "PUT /two?x=%20 HTTP/1.1");
    assert_eq!(lines, [one, two, one, two, one]);
    for (_, fields, content) in &log {
        assert_eq!(content, "some content");
        let value = |name: &str| {
            let found = fields.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(value("x-mark"), ["a, b"]);
        assert_eq!(value("host"), ["10.77.0.2:7777"]);
        assert_eq!(value("content-length"), ["12"]);
        assert_eq!(value("connection"), Vec::<&str>::new());
    }
}

#[test]
fn an_answer_that_comes_before_its_request_has_left_spoils_no_other_request() {
    if lacks(&["python3"]) {
        return;
    }
    for io in ["epoll", "io-uring"] {
        let faulty = Faulty::new("hasty");
        let body = faulty.folder.path("body");
        fs::write(&body, vec![b'x'; 1 << 20]).unwrap();
        let body = format!("@{body}");
        let RunOutcome { summary, .. } = ask(&faulty.with(&["--body", &body, "--io", io]));
        let arm = only(&summary);
        assert_eq!(arm.ok, arm.attempts, "{io}: {:?}", arm.errors);
    }
}

#[test]
fn an_access_log_is_repeated_in_its_order() {
    if lacks(&["python3"]) {
        return;
    }
    let folder = Folder::new();
    let log = folder.path("access.log");
    let line = |rest: &str| format!("192.0.2.1 - - [01/Jan/2026:00:00:00 +0000] {rest}\n");
    fs::write(
        &log,
        line(r#""GET /a HTTP/1.1" 200 1"#)
            + &line(r#""GET /b?c HTTP/1.1" 200 1 "-" "agent""#)
            + "no line of a log\n"
            + &line(r#""GET /d HTTP/1.0" 404 -"#),
    )
    .unwrap();
    let faulty =
        Faulty::new("log").with(&["--connections", "1", "--requests", "4", "--access-log", &log]);
    let RunOutcome { summary, .. } = ask(&faulty);
    assert_eq!(only(&summary).ok, 4);
    let asked: Vec<String> = faulty.log(4).into_iter().map(|(line, ..)| line).collect();
    assert_eq!(
        asked,
        ["GET /a HTTP/1.1", "GET /b?c HTTP/1.1", "GET /d HTTP/1.1", "GET /a HTTP/1.1"]
    );
    assert!(summary.warnings.iter().any(|w| w.text.contains('1')), "one line was left out");
}

#[test]
fn what_is_expected_may_be_a_404_or_a_digest() {
    if lacks(&["python3"]) {
        return;
    }
    let summary = ask(&Faulty::new("steering").with(&["--expect-status", "404"])).summary;
    assert_eq!(only(&summary).ok, only(&summary).attempts);
    let right = "853ff93762a06ddbf722c4ebe9ddd66d8f63ddaea97f521c3ecc20da7c976020";
    let summary = ask(&Faulty::new("good").with(&["--expect-sha256", right])).summary;
    assert_eq!(only(&summary).ok, only(&summary).attempts);
}

#[test]
fn a_target_that_refuses_is_not_measured_and_leaves_no_record() {
    if no_lab() {
        return;
    }
    // Inside a lab, so that no port of this machine is asked.
    let line = format!(
        "{} http --quiet --format json --out record.jsonl http://$TCPTOLL_SERVER:7777/",
        env!("CARGO_BIN_EXE_tcptoll")
    );
    let folder = Folder::new();
    let mut command = tcptoll(&["lab", "--quiet", "--", "sh", "-c", &line]);
    let ran = run(command.current_dir(folder.0.path()));
    assert_eq!((ran.status, ran.stdout.as_str()), (Some(2), ""), "{}", ran.stderr);
    assert!(ran.stderr.contains("connect-refused"), "{}", ran.stderr);
}

#[test]
fn several_urls_of_a_target_are_asked_for_in_turn() {
    if lacks(&["python3"]) {
        return;
    }
    let faulty = Faulty::new("log");
    let origin = "http://$TCPTOLL_SERVER:7777";
    let line = format!(
        "{} http --quiet --format json --out /dev/null --connections 1 --requests 4 --warmup 0 \
         --rounds 1 {origin}/x {origin}/y",
        env!("CARGO_BIN_EXE_tcptoll")
    );
    let server = faulty.line();
    let ran = run(&mut tcptoll(&["lab", "--quiet", "--server", &server, "--", "sh", "-c", &line]));
    let value: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert!(measured(&ran), "{:?}: {}", ran.status, ran.stderr);
    assert_eq!(value["arms"][0]["ok"], Value::from(4), "{}", ran.stderr);
    checked_summary(&ran.stdout);
    let asked: Vec<String> = faulty.log(4).into_iter().map(|(line, ..)| line).collect();
    assert_eq!(asked, ["GET /x HTTP/1.1", "GET /y HTTP/1.1", "GET /x HTTP/1.1", "GET /y HTTP/1.1"]);
}

/// A schedule that is kept only with a CPU.
mod alone {
    use super::*;

    #[test]
    fn an_open_loop_attempts_what_was_due_and_says_how_late_it_was() {
        if no_lab() {
            return;
        }
        for spread in ["constant", "poisson"] {
            let summary = short(&[
                "--server",
                "null",
                "--rate",
                "2000",
                "--spread",
                spread,
                "--duration",
                "200ms",
            ]);
            let arm = only(&summary);
            if spread == "constant" {
                assert_eq!(arm.attempts, 400);
            } else {
                // Four standard deviations of 400.
                assert!((320..=480).contains(&arm.attempts), "{}", arm.attempts);
            }
            let intended = &arm.metrics["intended_per_s"];
            // Of a trial that was repeated, as the machine was busy, the figure is one of rounds.
            let behind = if arm.rounds.is_empty() { arm.attempts } else { 1 };
            assert_eq!((intended.value, intended.n), (2_000.0, behind));
            let late = arm.histograms["lateness_us"].count;
            assert!(late > 0 && late <= arm.attempts, "{late}");
        }
    }
}
