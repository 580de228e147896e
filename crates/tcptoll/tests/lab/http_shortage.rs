//! Ports, files or the server run out, or the run is stopped: what is counted then?

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use tcptoll_core::record::Summary;

use crate::exits::{IN_SEGS, tcp};
use crate::http::{Faulty, RunOutcome, ask, closing, load};
use crate::support::{
    Folder, TOLERANCE, causes, checked_summary, lacks, last_line, no_lab, only, run, tcptoll,
};

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
        // A reset of a server that was held up must not end TIME-WAIT and free a port.
        "--client-sysctl",
        "net.ipv4.tcp_rfc1337=1",
        "--duration",
        "1s",
        "--warmup",
        "0",
        "--rounds",
        "1",
        "--connections",
        "4",
    ];
    let RunOutcome { summary, status, .. } = load(&args);
    let arm = only(&summary);
    let classes: Vec<&str> = arm.errors.keys().map(String::as_str).collect();
    assert_eq!(classes, ["local-ports"]);
    assert_eq!((arm.ok, arm.connections_ok), (64, Some(64)), "one request of each port");
    let rate = arm.metrics["requests_per_s"].value;
    assert!((rate - 64.0).abs() < 0.3, "{rate} is of successes over the planned time");
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
         --workers 4 --rounds 1 --connections 300 --duration 1s --warmup 0 --link-tolerance {TOLERANCE} \"$@\""
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
        let (_, summary) = with_files(200, &["--io", io]);
        let arm = only(&summary);
        assert_eq!(arm.attempts, arm.ok, "{io}: {:?}", arm.errors);
        assert_eq!(closing(arm).open_at_end, 300, "{io}");
        assert_eq!(arm.io.as_deref(), Some("io_uring"), "{io}");
    }
}

#[test]
fn a_server_that_is_killed_in_the_middle_makes_errors_and_the_run_ends() {
    if lacks(&["python3"]) {
        return;
    }
    // It is killed after 200, whenever that is.
    let RunOutcome { summary, .. } = ask(&Faulty::new("killed").with(&["--requests", "400"]));
    let arm = only(&summary);
    assert_eq!(arm.attempts, 400);
    assert!((190..=204).contains(&arm.ok), "{} of {:?}", arm.ok, arm.errors);
    assert!(arm.errors["connect-refused"] > 0, "{:?}", arm.errors);
    let known = ["connect-refused", "close-race", "truncated", "reset"];
    assert!(arm.errors.keys().all(|class| known.contains(&class.as_str())), "{:?}", arm.errors);
    assert!(arm.elapsed_s < 20.0, "{} s: the count ends it before its duration", arm.elapsed_s);
}

/// Whether the client of this run has received responses: 50 connections that were opened have
/// received 100 segments at most before the first one.
fn has_begun(mark: &str) -> bool {
    crate::isolation::marked(mark).iter().any(|pid| tcp(*pid, IN_SEGS) > 200)
}

/// A schedule that is kept only with a CPU.
mod alone {
    use super::*;

    #[test]
    fn an_interrupt_in_the_middle_keeps_what_was_measured() {
        if no_lab() {
            return;
        }
        for (signal, status, more) in
            [("INT", 130, ["--io", "epoll"]), ("TERM", 143, ["--rate", "200"])]
        {
            let folder = Folder::new();
            let record = folder.path("record.jsonl");
            let mut command =
                tcptoll(&["http", "--server", "null", "--connections", "50", "--duration", "100s"]);
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

    #[test]
    fn what_a_stopped_server_costs_is_in_the_latency_of_an_open_loop() {
        if lacks(&["python3"]) {
            return;
        }
        // 500 per second; after the 50th the server stops for 300 ms, in which 150 are due.
        let RunOutcome { summary, .. } = ask(&Faulty::new("stopped").with(&[
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
}
