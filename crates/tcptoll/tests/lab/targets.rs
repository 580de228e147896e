//! Against a server that is not ours: are waits, failures and the time limit said as they are?
//!
//! The server is a few lines of Python: on loopback, in the test's own network, or in a lab of which
//! `connect` knows nothing.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use tcptoll_core::record::Summary;

use crate::support::{causes, checked_summary, connect, counter, no_lab, only, run, tcptoll};

/// Listens with a backlog, and takes its time for each connection it accepts.
const SERVER: &str = r#"
import socket, struct, sys, time
backlog, pause, reset = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3] == "reset"
listener = socket.socket()
listener.bind((sys.argv[4], int(sys.argv[5])))
listener.listen(backlog)
print(listener.getsockname()[1], flush=True)
while True:
    connection, _ = listener.accept()
    time.sleep(pause)
    if reset:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
"#;

/// Answers each request of each connection, and says when the first has come.
const ANSWERING: &str = r#"
import socket, threading
listener = socket.create_server(("127.0.0.1", 0), backlog=64)
print(listener.getsockname()[1], flush=True)
def serve(connection):
    while connection.recv(4096):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
for number in range(1000):
    connection, _ = listener.accept()
    if number == 0:
        print("asked", flush=True)
    threading.Thread(target=serve, args=(connection,), daemon=True).start()
"#;

/// The port, where the server is not on the machine of the client.
const PORT: &str = "7070";

/// A server of its own process; it ends with the test.
struct Server {
    child: Child,
    at: String,
}

impl Server {
    fn start(backlog: &str, pause_s: &str, ending: &str) -> Self {
        let mut child = Command::new("python3")
            .args(["-c", SERVER, backlog, pause_s, ending, "127.0.0.1", "0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Self { child, at: format!("127.0.0.1:{}", port.trim()) }
    }

    fn connect(&self, more: &[&str]) -> Summary {
        connect(&[&["--to", &self.at], more].concat())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn no_python() -> bool {
    crate::support::lacks(&["python3"])
}

#[test]
fn without_a_capture_the_client_s_kernel_says_how_much_of_a_handshake_is_the_link() {
    if no_python() || no_lab() {
        return;
    }
    // The client host of the lab connects to a server of which it knows nothing: the link is the witness.
    let line = format!("exec python3 -c '{SERVER}' 100 0 close 0.0.0.0 {PORT}");
    let within = format!(
        "exec {} connect --quiet --format json --out /dev/null --count 20 --to $TCPTOLL_SERVER:{PORT}",
        env!("CARGO_BIN_EXE_tcptoll")
    );
    let lab =
        ["lab", "--quiet", "--link", "rtt=20ms", "--server", &line, "--", "sh", "-c", &within];
    let ran = run(&mut tcptoll(&lab));
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    let summary = checked_summary(&ran.stdout);
    let arm = only(&summary);
    let timeline = arm.timeline.as_ref().unwrap();
    assert_eq!(timeline.source, "tcp-info");
    assert_eq!(timeline.matched + timeline.unmatched, arm.ok);
    let [link, rest] = timeline.steps.as_slice() else { panic!("{:?}", timeline.steps) };
    assert_eq!((link.at.as_str(), rest.at.as_str()), ("wire", "client"));
    // No packet arrives early, and no part is longer than the whole.
    let whole_us = arm.histograms["connect_us"].max.unwrap();
    assert!((19_900.0..=whole_us).contains(&link.p50_us), "{link:?} of {whole_us}");
    assert!(rest.p50_us <= whole_us - 19_900.0, "{rest:?} of {whole_us}");
}

/// The queue of a listener on this machine shares its counters with every other server of this machine.
mod alone {
    use super::*;

    #[test]
    fn connects_that_wait_at_a_server_of_this_machine_are_its_full_accept_queue() {
        if no_python() {
            return;
        }
        // The queue holds 5: whoever comes while it is full waits for the retransmission of its SYN.
        let server = Server::start("4", "0.01", "close");
        let summary = server.connect(&["--count", "30", "--rate", "2000"]);
        let arm = only(&summary);
        assert_eq!((arm.attempts, arm.ok), (30, 30), "{:?}", arm.errors);
        let waited: u64 = arm.rungs.iter().sum();
        assert!(waited > 0, "{:?}", arm.rungs);
        let own = "This load itself filled the server's accept queue: it opened ";
        assert!(summary.answer.starts_with(own), "{}", summary.answer);
        let first = format!("{waited} of 30 handshakes waited ");
        assert!(summary.answer.contains(&first), "{}", summary.answer);
        let why = " s for a retransmitted SYN: the accept queue was full.";
        assert!(summary.answer.contains(why), "{}", summary.answer);
        let share = arm.metrics["waited_share"].value;
        assert!((share - waited as f64 / 30.0).abs() < 1e-9, "{share}");
        // Other programs may add to the counters of this machine.
        assert!(counter(&arm.client.counters, "TcpExtListenOverflows") >= waited);
        let [listener] = arm.client.listeners.as_slice() else {
            panic!("{:?}", arm.client.listeners)
        };
        assert!(server.at.ends_with(&format!(":{}", listener.port)));
        assert_eq!(listener.accept_queue_limit, 4);
        assert_eq!(causes(&summary, arm), ["accept-queue-full"]);
        assert!(summary.advice.iter().any(|advice| advice.cause == "accept-queue-full"));
        let explain = "tcptoll explain accept-queue-full";
        assert!(summary.next.iter().any(|step| step.command == explain), "{:?}", summary.next);
    }

    #[test]
    fn a_closed_loop_waits_for_the_server_and_does_not_fill_its_queue() {
        if no_python() {
            return;
        }
        let server = Server::start("4", "0.01", "close");
        let summary = server.connect(&["--count", "30"]);
        let arm = only(&summary);
        assert_eq!((arm.ok, arm.rungs.iter().sum::<u64>()), (30, 0), "{:?}", arm.errors);
        assert!(causes(&summary, arm).is_empty(), "{}", summary.answer);
        // It is asked for the next one when it has closed the one before.
        assert!(arm.metrics["connections_per_s"].value <= 100.0, "{:?}", arm.metrics);
    }

    #[test]
    fn connects_that_wait_at_a_server_elsewhere_are_named_with_both_that_it_may_be() {
        if no_python() || no_lab() {
            return;
        }
        // The client host of a lab knows nothing of the server host's kernel.
        let line = format!("exec python3 -c '{SERVER}' 4 0.01 close 0.0.0.0 {PORT}");
        let to = format!("--to $TCPTOLL_SERVER:{PORT}");
        let within = format!(
            "exec {} connect --quiet --format json --out /dev/null --count 20 --rate 2000 {to}",
            env!("CARGO_BIN_EXE_tcptoll")
        );
        let ran =
            run(&mut tcptoll(&["lab", "--quiet", "--server", &line, "--", "sh", "-c", &within]));
        assert!(matches!(ran.status, Some(0 | 1)), "{:?}: {}", ran.status, ran.stderr);
        let summary = checked_summary(&ran.stdout);
        let arm = only(&summary);
        let waited: u64 = arm.rungs.iter().sum();
        assert!(waited > 0 && arm.ok == 20, "{:?} {:?}", arm.rungs, arm.errors);
        assert!(arm.client.listeners.is_empty(), "{:?}", arm.client.listeners);
        // Of this host alone: nobody else's SYNs are in it.
        assert!(counter(&arm.client.counters, "TcpExtTCPSynRetrans") >= waited);
        assert_eq!(counter(&arm.client.counters, "TcpExtListenOverflows"), 0);
        assert_eq!(causes(&summary, arm), ["syn-lost-or-queue-full"]);
        assert!(summary.answer.starts_with(&format!("{waited} of 20 handshakes waited ")));
        assert!(summary.advice[0].change.contains("TcpExtListenOverflows"), "{:?}", summary.advice);
    }

    #[test]
    fn a_run_that_its_default_time_limit_ended_is_whole_and_says_how_far_it_came() {
        if no_python() {
            return;
        }
        // After the first six each connect waits for a second: 1,000 would take minutes.
        let server = Server::start("4", "0.01", "close");
        let summary = server.connect(&["--max-time", "1500ms"]);
        let arm = only(&summary);
        assert!(arm.attempts < 1_000 && !arm.partial && !summary.partial, "{}", arm.attempts);
        assert_eq!(arm.cut_after_s, Some(1.5));
        let says = format!("limit of 1.5 s stopped the load after {} connection", arm.attempts);
        assert!(summary.answer.contains(&says), "{}", summary.answer);
    }

    #[test]
    fn where_every_connection_is_reset_no_latency_is_stated_as_its_cost() {
        if no_python() {
            return;
        }
        let server = Server::start("100", "0", "reset");
        let summary = server.connect(&["--count", "10", "--first-byte", "on"]);
        let arm = only(&summary);
        assert_eq!((arm.attempts, arm.ok, arm.errors["reset"]), (10, 0, 10), "{:?}", arm.errors);
        let says = "None of 10 connections succeeded: 10 were reset after the handshake";
        assert!(summary.answer.contains(says), "{}", summary.answer);
        assert!(!summary.answer.contains("takes"), "{}", summary.answer);
        assert!(!arm.histograms.contains_key("connect_us"));
    }

    #[test]
    fn a_first_byte_that_is_asked_for_is_waited_for_though_nothing_is_sent() {
        if no_python() {
            return;
        }
        // It accepts, waits and closes without a byte.
        let server = Server::start("100", "0.01", "close");
        let waits = server.connect(&["--count", "3", "--first-byte", "on"]);
        assert_eq!(only(&waits).errors["truncated"], 3, "{:?}", only(&waits).errors);
        let silent = server.connect(&["--count", "3"]);
        assert_eq!(only(&silent).ok, 3, "{:?}", only(&silent).errors);
    }
}

#[test]
fn a_client_that_was_stopped_is_named_and_its_trial_is_repeated() {
    let mut server = Command::new("python3")
        .args(["-c", ANSWERING])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let url = format!("http://127.0.0.1:{}/", lines.next().unwrap().unwrap());
    // Without a warm-up the first request is measured.
    let client = tcptoll(&["http", "-d", "3s", "-c", "4", "--warmup", "0", "--quiet"])
        .args(["--format", "json", "--out", "/dev/null", &url])
        .process_group(0)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "asked");
    let group = format!("-{}", client.id());
    let kill = |signal: &str| Command::new("kill").args([signal, "--", &group]).status().unwrap();
    assert!(kill("-STOP").success());
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert!(kill("-CONT").success());
    let output = client.wait_with_output().unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    let summary: Summary = serde_json::from_slice(&output.stdout).unwrap();
    let stopped = |reason: &str| reason == "the client was stopped";
    assert!(summary.excluded.iter().any(|one| stopped(&one.reason)), "{:?}", summary.excluded);
    let named = |warning: &&tcptoll_core::record::WarningEntry| warning.id == "stood-still";
    let text = &summary.warnings.iter().find(named).unwrap().text;
    assert!(text.contains("it was stopped"), "{text}");
    // The client was silent, not the server.
    assert!(summary.warnings.iter().all(|one| one.id != "server-silent"), "{:?}", summary.warnings);
    assert!(!summary.answer.contains("stood still"), "{}", summary.answer);
}
