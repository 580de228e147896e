//! Does `http` do what each option says, and is what it counts what others counted?
//!
//! Witnesses are the kernels' counters and socket tables, the packets on the wire, and what the
//! server wrote down itself.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use serde_json::Value;
use tcptoll_model::record::{Arm, Closing, Summary};

use crate::support::{
    Folder, TOLERANCE, causes, checked_summary, counter, lacks, last_line, no_lab, only, run,
    tcptoll,
};

/// The server whose faults are chosen by name.
const FAULTY: &str = include_str!("faulty.py");

/// Time in which the requests of a short trial begin, s.
pub(crate) const PLANNED_S: f64 = 0.4;

/// What came of a run of one arm or several.
pub(crate) struct Asked {
    pub(crate) summary: Summary,
    pub(crate) status: Option<i32>,
    pub(crate) stderr: String,
}

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
        format!("python3 {script} {} {}", self.fault, self.folder.path("log"))
    }

    /// Options of the load.
    pub(crate) fn args<'a>(&'a self, line: &'a str) -> Vec<&'a str> {
        let mut args = vec!["--server", line, "--link-tolerance", TOLERANCE, "--rounds", "1"];
        with_defaults(&mut args, &["--duration", "400ms", "--warmup", "0"], &self.more);
        with_defaults(&mut args, &["--timeout", "2s", "--connections", "4"], &self.more);
        args.extend(self.more.iter().map(String::as_str));
        args
    }

    /// What the server wrote down: line, fields and content of each request.
    fn log(&self) -> Vec<(String, Vec<(String, String)>, String)> {
        let text = fs::read_to_string(self.folder.file("log")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
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
pub(crate) fn ask(faulty: &Faulty) -> Asked {
    let line = faulty.line();
    load(&faulty.args(&line))
}

/// Runs `http` and gives its summary, which must be right in all that every summary must be.
pub(crate) fn load(args: &[&str]) -> Asked {
    let folder = Folder::new();
    let record = folder.path("record.jsonl");
    let mut all = vec!["http", "--quiet", "--format", "json", "--seed", "1", "--out", &record];
    all.extend(args);
    let ran = run(&mut tcptoll(&all));
    assert!(matches!(ran.status, Some(0 | 1)), "{args:?}: {:?}: {}", ran.status, ran.stderr);
    let summary = checked_summary(&ran.stdout);
    assert_eq!(last_line(record.as_ref()).as_ref(), Some(&summary), "the record's last line");
    for arm in &summary.arms {
        witnessed(arm);
    }
    Asked { summary, status: ran.status, stderr: ran.stderr }
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
    let Closing { by_client, by_server, open_at_end, .. } = arm.closing.clone().unwrap();
    assert_eq!(by_client + by_server + open_at_end, made, "{}: {:?}", arm.name, arm.closing);
}

/// A short load on tcptoll's own server or nginx.
fn short(more: &[&str]) -> Summary {
    let mut args = vec!["--link-tolerance", TOLERANCE, "--rounds", "1", "--connections", "4"];
    with_defaults(&mut args, &["--duration", "300ms", "--warmup", "0"], more);
    args.extend(more);
    let Asked { summary, status, stderr } = load(&args);
    assert_eq!((status, stderr.as_str()), (Some(0), ""), "{args:?}: {:?}", summary.warnings);
    for arm in &summary.arms {
        assert_eq!(arm.ok, arm.attempts, "{}: {:?}", arm.name, arm.errors);
        assert!(arm.ok > 0, "{}", arm.name);
    }
    summary
}

fn closing(arm: &Arm) -> &Closing {
    arm.closing.as_ref().unwrap()
}

fn server_counter(arm: &Arm, name: &str) -> u64 {
    counter(&arm.server.as_ref().unwrap().counters, name)
}

fn per_connection(arm: &Arm) -> f64 {
    arm.metrics["requests_per_connection"].value
}

/// On a link that is emulated and so watched, every way of reuse closes as it says: connections,
/// requests of each, who sent the first FIN, and on which host TIME-WAIT is.
fn closes_as_it_says(more: &[&str]) {
    let ways = "keep-alive,requests=5,server-close,client-close,http1.0,http1.0-keep-alive";
    let mut args = vec!["--reuse", ways, "--link", "rtt=1ms"];
    args.extend(more);
    let summary = short(&args);
    let arm = |way: &str| {
        let found = summary.arms.iter().find(|arm| arm.reuse.as_deref() == Some(way));
        found.unwrap_or_else(|| panic!("no arm {way}"))
    };
    for way in ["keep-alive", "http1.0-keep-alive"] {
        let arm = arm(way);
        let none = Closing { open_at_end: 4, ..Closing::default() };
        let told = closing(arm);
        let counts = (told.client_time_wait, told.server_time_wait);
        assert_eq!(
            (told, arm.connections_ok),
            (&Closing { client_time_wait: counts.0, server_time_wait: counts.1, ..none }, Some(4)),
            "{way}"
        );
        assert_eq!(per_connection(arm), arm.ok as f64 / 4.0, "{way}");
    }
    for way in ["server-close", "http1.0"] {
        let arm = arm(way);
        let told = closing(arm);
        assert_eq!((told.by_server, told.by_client, told.ignored), (arm.ok, 0, 0), "{way}");
        assert_eq!(per_connection(arm), 1.0, "{way}");
        assert_eq!(
            (told.client_time_wait, told.server_time_wait),
            (Some(0), Some(arm.ok)),
            "{way}: TIME-WAIT is with who closed first"
        );
    }
    let told = closing(arm("client-close"));
    let ok = arm("client-close").ok;
    assert_eq!((told.by_client, told.by_server), (ok, 0));
    assert_eq!((told.client_time_wait, told.server_time_wait), (Some(ok), Some(0)));
    let five = arm("requests=5");
    let told = closing(five);
    // What was open at the end is closed by the client, too.
    assert_eq!(told.client_time_wait, Some(told.by_client + told.open_at_end));
    assert_eq!((told.by_server, told.server_time_wait), (0, Some(0)));
    let of_open = five.ok - 5 * told.by_client;
    assert!(of_open <= 4 * told.open_at_end, "{of_open} requests of {}", told.open_at_end);
    for arm in &summary.arms {
        let wire = arm.wire.as_ref().unwrap();
        let retransmitted = wire.client_to_server.retransmission;
        // A small request, and a small answer, is one segment.
        assert_eq!(wire.client_to_server.data - retransmitted, arm.ok, "{}", arm.name);
        let closed = closing(arm).by_client + closing(arm).by_server;
        // A FIN each way, except of what was still open.
        assert_eq!(wire.client_to_server.syn, arm.connections_ok.unwrap(), "{}", arm.name);
        assert!(wire.client_to_server.fin >= closed, "{}: {wire:?}", arm.name);
        assert!(wire.server_to_client.fin >= closed, "{}: {wire:?}", arm.name);
        assert_eq!(wire.client_to_server.rst, 0, "{}", arm.name);
    }
}

#[test]
fn every_way_of_reuse_closes_as_it_says_with_our_own_server() {
    if no_lab() {
        return;
    }
    closes_as_it_says(&["--server", "null"]);
}

#[test]
fn every_way_of_reuse_closes_as_it_says_over_io_uring() {
    if no_lab() {
        return;
    }
    closes_as_it_says(&["--server", "null", "--io", "io-uring"]);
}

#[test]
fn every_way_of_reuse_closes_as_it_says_with_nginx() {
    if lacks(&["nginx"]) {
        return;
    }
    closes_as_it_says(&["--server", "nginx", "--keepalive-requests", "0"]);
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
fn a_lifetime_closes_what_is_older() {
    if no_lab() {
        return;
    }
    let summary = short(&["--server", "null", "--reuse", "lifetime=50ms", "--link", "rtt=1ms"]);
    let arm = only(&summary);
    let told = closing(arm);
    let by_us = told.by_client + told.open_at_end;
    assert_eq!((told.by_server, told.client_time_wait), (0, Some(by_us)));
    // Four at once, each for 50 ms and a request longer, in 300 ms.
    assert!((4..=24).contains(&told.by_client), "{told:?}");
    assert!(per_connection(arm) > 2.0, "{}", per_connection(arm));
}

#[test]
fn the_server_s_own_limit_of_requests_is_seen() {
    if lacks(&["nginx"]) {
        return;
    }
    for io in ["epoll", "io-uring"] {
        let summary = short(&["--server", "nginx", "--keepalive-requests", "10", "--io", io]);
        let arm = only(&summary);
        let told = closing(arm);
        assert_eq!((told.by_client, told.ignored), (0, 0), "{io}");
        let of_open = arm.ok - 10 * told.by_server;
        assert!(of_open <= 9 * told.open_at_end, "{io}: {of_open} of {}", told.open_at_end);
        let each = per_connection(arm);
        assert!((8.0..=10.0).contains(&each), "{io}: {each} requests per connection");
    }
}

#[test]
fn a_rest_longer_than_the_server_keeps_a_connection_finds_its_timeout() {
    if lacks(&["nginx"]) {
        return;
    }
    let summary =
        short(&["--server", "nginx", "--keepalive-timeout", "100ms", "--reuse", "idle=160ms"]);
    let arm = only(&summary);
    let told = closing(arm);
    assert!(told.while_idle > 0 && told.while_idle == told.by_server, "{told:?}");
    let idle = &arm.histograms["idle_close_us"];
    assert_eq!(idle.count, told.while_idle);
    let least_ms = idle.min.unwrap() / 1e3;
    assert!((95.0..160.0).contains(&least_ms), "{least_ms} ms");
}

#[test]
fn a_server_that_ignores_connection_close_is_noticed_and_named() {
    if lacks(&["python3"]) {
        return;
    }
    let Asked { summary, .. } = ask(&Faulty::new("ignore-close").with(&[
        "--reuse",
        "server-close",
        "--duration",
        "1200ms",
    ]));
    let arm = only(&summary);
    let told = closing(arm);
    assert_eq!(arm.ok, arm.attempts, "{:?}", arm.errors);
    assert!(told.ignored > 0 && told.ignored == told.by_client, "{told:?}");
    let named = causes(&summary, arm);
    assert!(named.iter().any(|id| id.contains("close")), "{named:?}");
}

#[test]
fn a_server_that_says_it_closes_and_does_not_is_not_waited_for() {
    if lacks(&["python3"]) {
        return;
    }
    let Asked { summary, .. } = ask(&Faulty::new("lazy-close"));
    let arm = only(&summary);
    assert_eq!(arm.ok, arm.attempts, "{:?}", arm.errors);
    assert_eq!(closing(arm).by_client + closing(arm).open_at_end, arm.connections_ok.unwrap());
}

#[test]
fn an_open_loop_attempts_what_was_due_and_says_how_late_it_was() {
    if no_lab() {
        return;
    }
    for spread in ["constant", "poisson"] {
        let summary = short(&["--server", "null", "--rate", "2000", "--spread", spread]);
        let arm = only(&summary);
        let intended = arm.metrics["intended_per_s"].value * 0.3;
        if spread == "constant" {
            assert_eq!(arm.attempts, 600);
        } else {
            // Four standard deviations of 600.
            assert!((500..=700).contains(&arm.attempts), "{}", arm.attempts);
        }
        assert!((intended - arm.attempts as f64).abs() < 1.0, "{intended} of {}", arm.attempts);
        let late = arm.histograms["lateness_us"].count;
        assert!(late > 0 && late <= arm.attempts, "{late}");
    }
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
fn a_warm_up_is_apart() {
    if no_lab() {
        return;
    }
    let summary = short(&["--server", "null", "--requests", "100", "--warmup", "50"]);
    let arm = only(&summary);
    let warmup = arm.warmup.as_ref().unwrap();
    assert_eq!((arm.attempts, arm.histograms["latency_us"].count), (100, 100));
    assert!((50..=54).contains(&warmup.ok), "{}", warmup.ok);
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
    let Asked { summary, .. } = ask(&faulty);
    assert_eq!((only(&summary).attempts, only(&summary).ok), (5, 5));
    let log = faulty.log();
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
        let Asked { summary, .. } = ask(&faulty.with(&["--body", &body, "--io", io]));
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
    let Asked { summary, .. } = ask(&faulty);
    assert_eq!(only(&summary).ok, 4);
    let asked: Vec<String> = faulty.log().into_iter().map(|(line, ..)| line).collect();
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
    assert_eq!((only(&summary).ok, summary.valid), (only(&summary).attempts, true));
    let right = "853ff93762a06ddbf722c4ebe9ddd66d8f63ddaea97f521c3ecc20da7c976020";
    let summary = ask(&Faulty::new("good").with(&["--expect-sha256", right])).summary;
    assert_eq!((only(&summary).ok, summary.valid), (only(&summary).attempts, true));
}

#[test]
fn with_64_local_ports_every_failure_is_of_class_local_ports_and_the_run_is_invalid() {
    if no_lab() {
        return;
    }
    let args = [
        "--server",
        "null",
        "--reuse",
        "client-close",
        "--client-sysctl",
        "net.ipv4.ip_local_port_range=40000 40063",
        "--duration",
        "300ms",
        "--warmup",
        "0",
        "--rounds",
        "1",
        "--connections",
        "4",
    ];
    let Asked { summary, status, .. } = load(&args);
    let arm = only(&summary);
    let classes: Vec<&str> = arm.errors.keys().map(String::as_str).collect();
    assert_eq!(classes, ["local-ports"]);
    assert_eq!((arm.ok, arm.connections_ok), (64, Some(64)), "one request of each port");
    let rate = arm.metrics["requests_per_s"].value;
    assert!((rate - 64.0 / 0.3).abs() < 1.0, "{rate} is of successes over the planned time");
    assert_eq!((summary.valid, status), (false, Some(1)));
    assert_eq!(causes(&summary, arm), ["local-ports-scarce"]);
    assert!(!summary.advice.is_empty());
    let forecast = arm.ports.as_ref().unwrap();
    assert_eq!(forecast.usable, 64, "{forecast:?}");
}

/// A load under a limit of open files.
fn with_files(files: u32, more: &[&str]) -> (Option<i32>, Summary) {
    let line = format!(
        "ulimit -n {files}; exec \"$0\" http --quiet --format json --out /dev/null --server null \
         --workers 4 --rounds 1 --connections 300 --duration 300ms --warmup 0 --link-tolerance {TOLERANCE} \"$@\""
    );
    let mut command = Command::new("sh");
    command.args(["-c", &line, env!("CARGO_BIN_EXE_tcptoll")]).args(more).stdin(Stdio::null());
    let ran = run(&mut command);
    assert!(matches!(ran.status, Some(0 | 1)), "{:?}: {}", ran.status, ran.stderr);
    (ran.status, checked_summary(&ran.stdout))
}

#[test]
fn more_connections_than_files_are_of_class_local_fds_over_epoll() {
    if no_lab() {
        return;
    }
    let (status, summary) = with_files(200, &["--io", "epoll"]);
    let arm = only(&summary);
    let classes: Vec<&str> = arm.errors.keys().map(String::as_str).collect();
    assert_eq!((classes, summary.valid, status), (vec!["local-fds"], false, Some(1)));
    assert!(arm.ok > 0, "those that were open were used");
    let open = closing(arm).open_at_end;
    assert!((100..200).contains(&open), "{open}");
}

#[test]
fn more_connections_than_files_are_all_open_over_io_uring() {
    if no_lab() {
        return;
    }
    for io in ["io-uring", "auto"] {
        let (status, summary) = with_files(200, &["--io", io]);
        let arm = only(&summary);
        assert_eq!((arm.attempts, status), (arm.ok, Some(0)), "{io}: {:?}", arm.errors);
        assert_eq!(closing(arm).open_at_end, 300, "{io}");
        assert_eq!(arm.io.as_deref(), Some("io_uring"), "{io}");
    }
}

#[test]
fn what_a_stopped_server_costs_is_in_the_latency_of_an_open_loop() {
    if lacks(&["python3"]) {
        return;
    }
    // 500 per second; after the 50th the server stops for 300 ms, in which 150 are due.
    let Asked { summary, .. } = ask(&Faulty::new("stopped").with(&[
        "--rate",
        "500",
        "--duration",
        "800ms",
        "--timeout",
        "3s",
        "--connections",
        "20",
    ]));
    let arm = only(&summary);
    assert_eq!((arm.attempts, arm.ok), (400, 400), "{:?}", arm.errors);
    let latency = &arm.histograms["latency_us"];
    let most_ms = latency.max.unwrap() / 1e3;
    assert!(most_ms >= 290.0, "{most_ms} ms at most");
    // Those due in the stop wait from 0 to 300 ms, 150 ms in the mean; they are 150 of 400.
    let mean_ms = latency.mean.unwrap() / 1e3;
    assert!(mean_ms > 45.0, "{mean_ms} ms in the mean: the wait of those due was left out");
}

#[test]
fn a_server_that_is_killed_in_the_middle_makes_errors_and_the_run_ends() {
    if lacks(&["python3"]) {
        return;
    }
    let Asked { summary, status, .. } = ask(&Faulty::new("killed"));
    let arm = only(&summary);
    assert!((190..=204).contains(&arm.ok), "{} of {:?}", arm.ok, arm.errors);
    assert!(arm.errors["connect-refused"] > 0, "{:?}", arm.errors);
    let known = ["connect-refused", "close-race", "truncated", "reset"];
    assert!(arm.errors.keys().all(|class| known.contains(&class.as_str())), "{:?}", arm.errors);
    assert!(arm.elapsed_s < PLANNED_S + 2.0, "{} s", arm.elapsed_s);
    assert_eq!(status, Some(0), "what was measured is measured; limits are --fail-if's");
}

#[test]
fn an_interrupt_in_the_middle_keeps_what_was_measured() {
    if no_lab() {
        return;
    }
    for (signal, status, more) in
        [("INT", 130, ["--io", "epoll"]), ("TERM", 143, ["--rate", "5000"])]
    {
        let folder = Folder::new();
        let record = folder.path("record.jsonl");
        let mut command = tcptoll(&["http", "--server", "null", "--duration", "100s"]);
        command.args(["--format", "json", "--out", &record, "--rounds", "1", "--warmup", "0"]);
        command.args(more);
        let mark = format!("http-{signal}-{}", std::process::id());
        command.env(crate::isolation::MARK, &mark);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().unwrap();
        while !has_begun(&mark) {
            assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let kill = format!("kill -s {signal} {}", child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{stderr}");
        let summary = checked_summary(&String::from_utf8(output.stdout).unwrap());
        let arm = only(&summary);
        assert!(summary.partial && arm.partial);
        // What was under way is an attempt, and is told apart.
        let given_up = arm.errors.get("interrupted").copied().unwrap_or(0);
        assert!(arm.ok > 0 && given_up <= 50, "{} and {:?}", arm.ok, arm.errors);
        assert!(arm.elapsed_s < 100.0, "{}", arm.elapsed_s);
        assert_eq!(last_line(record.as_ref()), Some(summary));
    }
}

/// Whether the client of this run has connections.
fn has_begun(mark: &str) -> bool {
    crate::isolation::marked(mark).iter().any(|pid| {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let sockets = fs::read_to_string(format!("/proc/{pid}/net/sockstat")).unwrap_or_default();
        // TCP: inuse 50 orphan …
        let inuse = sockets.lines().find_map(|line| line.strip_prefix("TCP: inuse "));
        let inuse = inuse.and_then(|rest| rest.split(' ').next()?.parse::<u32>().ok());
        comm.trim() == "tcptoll-client" && inuse.is_some_and(|inuse| inuse >= 50)
    })
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
    assert_eq!((ran.status, &value["arms"][0]["ok"]), (Some(0), &Value::from(4)), "{}", ran.stderr);
    checked_summary(&ran.stdout);
    let asked: Vec<String> = faulty.log().into_iter().map(|(line, ..)| line).collect();
    assert_eq!(asked, ["GET /x HTTP/1.1", "GET /y HTTP/1.1", "GET /x HTTP/1.1", "GET /y HTTP/1.1"]);
}
