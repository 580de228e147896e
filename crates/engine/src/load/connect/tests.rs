//! The loop against servers on loopback that greet, or say nothing.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::thread;

use super::*;
use crate::messages::Request;

/// A server that greets each connection and waits for its end.
fn greeter(connections: usize) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().take(connections) {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let _ = stream.write_all(b"h");
                let _ = stream.read(&mut [0; 16]);
            });
        }
    });
    at
}

fn load(target: SocketAddr) -> ConnectLoad {
    ConnectLoad {
        concurrency: 3,
        timeout_ns: 20_000_000_000,
        trace_limit: 10,
        ..ConnectLoad::to(target, 40)
    }
}

/// What came of a load that its parent may have stopped before it began.
fn ran(load: &ConnectLoad, is_stopped: bool) -> (ConnectReport, Vec<ClientRow>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (mut parent, mut channel) = (Channel::new(ours), Channel::new(theirs));
    if is_stopped {
        parent.send(&Request::<()>::Stop).unwrap();
    }
    run(load, &mut channel).unwrap()
}

#[test]
fn a_closed_loop_opens_its_number_and_keeps_within_its_slots() {
    let (report, rows) = ran(&load(greeter(40)), false);
    assert_eq!((report.attempts, report.ok, report.established), (40, 40, 40), "{report:?}");
    assert_eq!((report.connect.count(), report.first_byte.count()), (40, 40));
    assert_eq!((report.lateness.count(), report.unfinished), (0, 0));
    assert!(report.steady_ok <= 40 && report.steady_ns == report.full_ns);
    assert!(report.busy_ns <= 3 * report.full_ns, "{} of {}", report.busy_ns, report.full_ns);
    assert_eq!(rows.len(), 10);
}

#[test]
fn an_open_loop_keeps_its_schedule_and_counts_from_when_each_was_due() {
    let rate = ConnectLoad { rate_per_s: Some(1_000.0), count: 6, ..load(greeter(6)) };
    let paused = ConnectLoad { pause_every: Some(2), pause_ns: 20_000_000, ..rate };
    let (report, _) = ran(&paused, false);
    assert_eq!((report.attempts, report.ok, report.lateness.count()), (6, 6, 6), "{report:?}");
    // None follows the last two. The last is due 5 ms after the first, pauses added.
    assert_eq!((report.paused_ns, report.steady_ns), (40_000_000, 6_000_000));
    assert!(report.elapsed_ns >= 45_000_000, "{}", report.elapsed_ns);
    assert_eq!(report.steady_ok + report.unfinished, 6);
}

#[test]
fn a_server_that_says_nothing_is_waited_for_until_the_time_limit() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let silent = load(listener.local_addr().unwrap());
    let (report, _) = ran(&ConnectLoad { count: 3, timeout_ns: 50_000_000, ..silent }, false);
    assert_eq!((report.attempts, report.ok, report.errors["timeout"]), (3, 0, 3), "{report:?}");
    assert_eq!((report.established, report.connect_of_failed.count()), (3, 3));
    assert!(report.elapsed_ns >= 50_000_000, "{}", report.elapsed_ns);
}

#[test]
fn a_stop_gives_up_what_is_under_way_and_counts_it() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let silent = load(listener.local_addr().unwrap());
    let (report, _) = ran(&silent, true);
    assert!(report.partial);
    assert_eq!((report.attempts, report.errors["interrupted"]), (3, 3), "{report:?}");
    assert_eq!(report.steady_ns, 0);
}

#[test]
fn a_refused_connection_frees_its_slot() {
    let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let (report, _) = ran(&load(closed), false);
    assert_eq!((report.attempts, report.errors["connect-refused"]), (40, 40), "{report:?}");
}
