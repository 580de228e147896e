use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::Duration;

use super::*;
use crate::messages::{Echo, EchoReport, Request};

/// A server on loopback, and what stops it.
struct Serving {
    at: SocketAddr,
    parent: Channel,
    server: JoinHandle<EchoReport>,
}

impl Serving {
    fn start(closes: bool) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut parent = Channel::new(ours);
        let echo = Echo { at: "127.0.0.1:0".parse().unwrap(), backlog: 64, closes };
        let server =
            std::thread::spawn(move || run_echo(&echo, &mut Channel::new(theirs)).unwrap());
        let started: serde_json::Value = parent.receive(Some(Duration::from_secs(10))).unwrap();
        let at = started["started"].as_str().unwrap().parse().unwrap();
        Self { at, parent, server }
    }

    fn stop(mut self) -> EchoReport {
        self.parent.send(&Request::<()>::Stop).unwrap();
        self.server.join().unwrap()
    }
}

fn load(target: SocketAddr) -> ShortLoad {
    ShortLoad {
        target,
        workers: 3,
        count: Some(30),
        duration_ns: None,
        rate_per_s: None,
        sources: Vec::new(),
        late_port: true,
        close: CloseFirst::Server,
        work_ns: 0,
        timeout_ns: 5_000_000_000,
        ports_max: 1_000,
    }
}

fn ran(load: &ShortLoad) -> (ShortReport, ShortHistograms) {
    let (_parent, host) = UnixStream::pair().unwrap();
    run(load, &mut Channel::new(host)).unwrap()
}

#[test]
fn each_operation_has_a_connection_of_its_own_unless_workers_keep_theirs() {
    for (close, connections) in [(CloseFirst::Server, 30), (CloseFirst::Never, 3)] {
        let serving = Serving::start(close == CloseFirst::Server);
        let load = ShortLoad { close, ..load(serving.at) };
        let (report, histograms) = ran(&load);
        assert_eq!((report.attempts, report.ok, report.errors.len()), (30, 30, 0), "{report:?}");
        // A worker that had no turn has no connection.
        assert!(report.connections <= connections && report.connections > 0, "{report:?}");
        assert_eq!(histograms.connect_cpu.count(), report.connections);
        assert_eq!(histograms.latency.count(), 30);
        assert_eq!(report.curve.iter().map(|p| p.connections).sum::<u64>(), report.connections);
        assert_eq!(report.moments.iter().map(|moment| moment.ok).sum::<u64>(), 30);
        let echoed = serving.stop();
        assert_eq!((echoed.accepted, echoed.answered), (report.connections, 30));
    }
}

#[test]
fn an_open_loop_counts_what_no_worker_began_in_time() {
    let serving = Serving::start(true);
    // 20 due in 0.2 s, each with 50 ms of work on the one worker: at most 5 begin.
    let load = ShortLoad {
        workers: 1,
        count: None,
        duration_ns: Some(200_000_000),
        rate_per_s: Some(100.0),
        work_ns: 50_000_000,
        ..load(serving.at)
    };
    let (report, histograms) = ran(&load);
    let unsent = report.errors["unsent"];
    assert_eq!((report.attempts, report.ok + unsent), (20, 20), "{report:?}");
    assert!(unsent >= 15, "{report:?}");
    assert!(report.cpu_us.0 + report.cpu_us.1 >= 50_000 * report.ok, "{report:?}");
    // The last one that began was due long before: its latency counts from then.
    assert!(histograms.latency.max_ns().unwrap() > 50_000_000);
    serving.stop();
}

#[test]
fn a_server_that_is_not_there_is_an_error_of_every_operation() {
    let serving = Serving::start(true);
    let nobody = load(serving.at);
    serving.stop();
    let (report, histograms) = ran(&nobody);
    assert_eq!((report.attempts, report.ok), (30, 0));
    assert_eq!(report.errors["connect-refused"], 30, "{report:?}");
    assert_eq!(histograms.connect.count(), 0);
}

#[test]
fn a_load_without_end_is_refused() {
    let (_parent, host) = UnixStream::pair().unwrap();
    let mut channel = Channel::new(host);
    let at = "127.0.0.1:9".parse().unwrap();
    let endless = ShortLoad { count: None, ..load(at) };
    assert!(matches!(run(&endless, &mut channel), Err(LoadError::Refused(_))));
    let crowd = ShortLoad { workers: WORKERS_MAX + 1, ..load(at) };
    assert!(matches!(run(&crowd, &mut channel), Err(LoadError::Refused(_))));
}

#[test]
fn a_stop_ends_a_load_whose_workers_wait() {
    // Connections are established and nobody answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let load = ShortLoad { timeout_ns: 600_000_000_000, ..load(silent.local_addr().unwrap()) };
    let (ours, host) = UnixStream::pair().unwrap();
    let mut parent = Channel::new(ours);
    let running = std::thread::spawn(move || run(&load, &mut Channel::new(host)).unwrap());
    let mut first = || parent.receive::<serde_json::Value>(Some(Duration::from_secs(10))).unwrap();
    first();
    parent.send(&Request::<()>::Stop).unwrap();
    let (report, _) = running.join().unwrap();
    assert!(report.partial, "{report:?}");
    assert_eq!(report.attempts, report.errors["interrupted"], "{report:?}");
}
