//! `serve keepalive`: two ports, of which the kernel probes the connections of one.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use crate::keepalive::told;
use crate::support::{Folder, checked_summary, measured, only, run, tcptoll};

/// A server that runs until it is stopped.
struct Served {
    child: Child,
    off: SocketAddr,
    on: SocketAddr,
}

impl Served {
    fn new(more: &[&str]) -> Self {
        let mut command = tcptoll(&["serve", "keepalive"]);
        command.args(more).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut at = |what: &str| {
            let line = lines.next().expect("two lines").unwrap();
            line.strip_prefix(what).unwrap_or_else(|| panic!("{line}")).parse().unwrap()
        };
        Self { off: at("keepalive off "), on: at("keepalive on "), child }
    }

    /// Stops it as Ctrl-C does; gives what it said.
    fn interrupted(mut self) -> String {
        let kill = format!("kill -s INT -- {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
        let mut stderr = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(130), "{stderr}");
        stderr
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // A test that failed must not leave it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Which timer the kernel runs for the server's end of a connection: `02` is keep-alive, `00` none.
///
/// `None`: there is no such connection in ESTABLISHED.
fn timer(served: SocketAddr, peer: SocketAddr) -> Option<String> {
    let ends = [served, peer].map(|at| format!(":{:04X}", at.port()));
    let table = fs::read_to_string("/proc/self/net/tcp").unwrap();
    table.lines().find_map(|line| {
        // sl local_address rem_address st tx_queue:rx_queue tr:tm->when …
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, local, remote, "01", _, timer, ..] = words[..] else { return None };
        let found = local.ends_with(&ends[0]) && remote.ends_with(&ends[1]);
        found.then(|| timer.split(':').next().unwrap_or_default().to_owned())
    })
}

#[test]
fn the_kernel_probes_connections_to_the_second_port_only() {
    for settings in [&[][..], &["--idle", "45s", "--interval", "10s", "--probes", "3"]] {
        let served = Served::new(settings);
        let off = TcpStream::connect(served.off).unwrap();
        let on = TcpStream::connect(served.on).unwrap();
        // Accepted in the order they came: once the second has its timer, the first had its turn.
        while timer(served.on, on.local_addr().unwrap()).as_deref() != Some("02") {
            std::thread::yield_now();
        }
        assert_eq!(timer(served.off, off.local_addr().unwrap()).as_deref(), Some("00"));
        let said = served.interrupted();
        assert!(said.contains("2 connections accepted"), "{said}");
    }
}

#[test]
fn a_port_that_is_taken_is_named_and_nothing_is_served() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let ran = run(&mut tcptoll(&["serve", "keepalive", "--ports", &format!("0,{port}")]));
    assert_eq!((ran.status, ran.stdout.as_str()), (Some(2), ""), "{}", ran.stderr);
    assert!(ran.stderr.starts_with("error: "), "{}", ran.stderr);
    let named = ran.stderr.contains(&port.to_string()) && ran.stderr.contains("in use");
    assert!(named, "{}", ran.stderr);
}

#[test]
fn a_server_that_closes_idle_connections_is_not_taken_for_a_false_alarm() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    // Closes each when it hears of it. A busy machine repeats a trial, so there may be more than 20.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || drop(stream.read(&mut [0; 64])));
        }
    });
    let folder = Folder::new();
    let record = folder.path("record.jsonl");
    let mut command = tcptoll(&["keepalive", "--to", &to, "--mechanism", "heartbeat"]);
    command.args(["--sockets", "20", "--quiet", "--format", "json", "--out", &record]);
    let ran = run(&mut command);
    let summary = checked_summary(&ran.stdout);
    let arm = only(&summary);
    assert_eq!((arm.attempts, arm.ok), (20, 0), "{:?}", arm.errors);
    assert_eq!(arm.errors, BTreeMap::from([("closed-by-peer".to_owned(), 20)]));
    assert!(!summary.answer.contains("false alarms"), "{}", summary.answer);
}

/// Checks of a window: where its end is late for want of a CPU, there are more.
mod alone {
    use super::*;

    #[test]
    fn keepalive_measures_what_is_served_elsewhere() {
        let served = Served::new(&[]);
        let mut connections = 0;
        for (mechanism, at) in
            [("tcp", served.on), ("heartbeat", served.on), ("heartbeat", served.off)]
        {
            let folder = Folder::new();
            let (to, record) = (at.to_string(), folder.path("record.jsonl"));
            let mut command = tcptoll(&["keepalive", "--to", &to, "--mechanism", mechanism]);
            command.args(["--quiet", "--format", "json", "--out", &record]);
            command.args(["--sockets", "20", "--duration", "1s"]);
            let ran = run(&mut command);
            assert!(measured(&ran) && ran.stderr.is_empty(), "{mechanism}: {}", ran.stderr);
            let summary = checked_summary(&ran.stdout);
            let arm = only(&summary);
            assert_eq!((arm.attempts, arm.ok), (20, 20), "{mechanism}: {:?}", arm.errors);
            assert_eq!(told(arm).side, "client");
            // A busy machine repeats a trial.
            connections += 20 * arm.rounds.len().max(1);
            if mechanism == "heartbeat" {
                // One each in a second, or two where the window ends late.
                assert!((15..=45).contains(&told(arm).nulls_sent), "{}", told(arm).nulls_sent);
            } else {
                assert!(arm.metrics["keepalive_probes"].value > 0.0, "{:?}", arm.metrics);
            }
        }
        let said = served.interrupted();
        assert!(said.contains(&format!("{connections} connections accepted")), "{said}");
    }
}
