//! The loop against servers on loopback that greet, or say nothing.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::thread;

use tcptoll_kernel::socket::blocking::{Blocking, BlockingOptions};

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

#[test]
fn several_servers_take_turns_or_each_further_one_gets_a_connection_at_times() {
    let at = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let turns = ConnectLoad { further: vec![at(2), at(3)], ..load(at(1)) };
    let mut targets = Targets::new(&turns, 0);
    assert_eq!((0..5).map(|now| targets.next(now)).collect::<Vec<_>>(), [0, 1, 2, 0, 1]);
    let mut targets = Targets::new(&ConnectLoad { further_every_ns: 100, ..turns }, 0);
    let places: Vec<usize> =
        [0, 10, 20, 99, 100, 110, 115, 120].map(|now| targets.next(now)).into();
    assert_eq!(places, [1, 2, 0, 0, 1, 2, 0, 0]);
}

#[test]
fn the_evidence_has_an_outcome_for_each_connection_and_what_was_never_answered() {
    let listener = Tcp::listener((Ipv4Addr::LOCALHOST, 0).into(), 1, false).unwrap();
    // The queue holds two; the others give up before the first step.
    let wanted = ConnectLoad {
        count: 5,
        concurrency: 5,
        timeout_ns: 300_000_000,
        evidence: true,
        ladder_ns: vec![1_000_000_000, 2_000_000_000],
        ladder_slack_ns: 600_000_000,
        syn_ack_ladder_ns: vec![1_000_000_000],
        ..load(listener.local().unwrap())
    };
    let (report, _) = ran(&wanted, false);
    let opened = report.opened.unwrap();
    let counts: Vec<(&str, u64)> =
        opened.outcomes.iter().map(|(name, outcome)| (name.as_str(), outcome.count)).collect();
    assert_eq!(counts, [("connect-timeout", 3), ("timeout", 2)]);
    assert_eq!((opened.established, opened.syns_unanswered, opened.unknown), (2, 3, 0));
    assert_eq!((opened.failure.count(), opened.syn_off, opened.reset_at_once), (5, 0, None));
    assert!(opened.outcomes["timeout"].min_us >= 300_000.0, "{:?}", opened.outcomes);
}

#[test]
fn a_handshake_that_waited_for_a_second_syn_stands_on_the_first_step() {
    let listener = Tcp::listener((Ipv4Addr::LOCALHOST, 0).into(), 1, false).unwrap();
    let at = listener.local().unwrap();
    let full: Vec<_> = (0..2).map(|_| std::net::TcpStream::connect(at).unwrap()).collect();
    // Once the load's SYN has been dropped, the queue is emptied.
    let serving = thread::spawn(move || {
        let mut diag = tcptoll_kernel::sock_diag::SockDiag::open().unwrap();
        let dropped = |listeners: Vec<tcptoll_kernel::sock_diag::ListenSocket>| {
            listeners.iter().any(|one| one.address == at && one.drops != Some(0))
        };
        while !dropped(diag.listeners().unwrap()) {
            thread::yield_now();
        }
        let mut taken = Vec::new();
        while taken.len() < 3 {
            if let Some((stream, _)) = listener.accept().unwrap() {
                stream.write(b"h").unwrap();
                taken.push(stream);
            }
        }
        drop(full);
        // Until the load has ended: a FIN would be one more segment.
        taken
    });
    let wanted = ConnectLoad {
        count: 1,
        concurrency: 1,
        evidence: true,
        ladder_ns: vec![1_000_000_000, 2_000_000_000, 3_000_000_000],
        ladder_slack_ns: 900_000_000,
        syn_ack_ladder_ns: vec![1_000_000_000],
        ..load(at)
    };
    let (report, _) = ran(&wanted, false);
    drop(serving.join().unwrap());
    let opened = report.opened.unwrap();
    assert_eq!((report.ok, opened.syns_unanswered), (1, 1), "{opened:?}");
    assert_eq!((opened.syn_steps, opened.syn_off), (vec![1, 0, 0], 0));
    assert_eq!((opened.syn_ack_steps, opened.syn_ack_off), (vec![0], 0));
}

#[test]
fn a_loop_that_waits_for_the_close_does_not_fill_the_queue_of_a_slow_server() {
    // Of a backlog of 16.
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = Blocking::listen(any, &BlockingOptions::default()).unwrap();
    let at = listener.tcp().local().unwrap();
    thread::spawn(move || {
        for _ in 0..60 {
            thread::sleep(Duration::from_millis(2));
            let _ = listener.accept().unwrap().receive(&mut [0; 16]);
        }
    });
    let paced = ConnectLoad {
        count: 60,
        concurrency: 1,
        first_byte: false,
        until_closed_ns: 20_000_000_000,
        ladder_ns: vec![1_000_000_000],
        ladder_slack_ns: 500_000_000,
        ..load(at)
    };
    let (report, _) = ran(&paced, false);
    assert_eq!((report.ok, report.rungs[0], report.unclosed), (60, 0, 0), "{report:?}");
    assert!(report.elapsed_ns >= 120_000_000, "each was accepted before the next: {report:?}");
}

#[test]
fn a_server_that_speaks_and_closes_at_once_is_not_waited_for() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().take(5) {
            stream.unwrap().write_all(b"bye").unwrap();
        }
    });
    let limit_ns = 60_000_000_000;
    let held = ConnectLoad { count: 5, concurrency: 1, until_closed_ns: limit_ns, ..load(at) };
    let (report, _) = ran(&held, false);
    assert_eq!((report.ok, report.first_byte.count()), (5, 5), "{report:?}");
    assert!(report.elapsed_ns < limit_ns, "the close that came with the byte was seen: {report:?}");
}

#[test]
fn a_server_that_never_closes_holds_a_connection_for_the_limit_alone() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let held = ConnectLoad {
        count: 3,
        concurrency: 1,
        first_byte: false,
        until_closed_ns: 20_000_000,
        ..load(listener.local_addr().unwrap())
    };
    let (report, _) = ran(&held, false);
    assert_eq!((report.ok, report.attempts, report.unclosed), (3, 3, 3), "{report:?}");
    assert!(report.elapsed_ns >= 60_000_000, "{report:?}");
}
