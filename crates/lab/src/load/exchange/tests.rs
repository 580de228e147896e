use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;

use tcptoll_kernel::socket::Tcp;

use super::*;
use crate::messages::{Answers, AnswersReport, Exchange, ExchangeReport, Reply, Request};

const MS: u64 = 1_000_000;

fn channels() -> (Channel, Channel) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (Channel::new(ours), Channel::new(theirs))
}

fn exchange(target: SocketAddr) -> Exchange {
    Exchange {
        target,
        sockets: SocketSettings { no_delay: true, ..SocketSettings::default() },
        writes: vec![1],
        response_bytes: 1,
        work_ns: 0,
        warmup_ns: 0,
        warmup_exchanges: 10,
        duration_ns: 50 * MS,
        timeout_ns: 2_000 * MS,
    }
}

fn answers() -> Answers {
    Answers {
        at: (Ipv4Addr::LOCALHOST, 0).into(),
        sockets: SocketSettings { no_delay: true, ..SocketSettings::default() },
        request_bytes: 1,
        response_bytes: 1,
        work_ns: 0,
    }
}

fn ran(exchange: &Exchange) -> ExchangeReport {
    let (_parent, mut channel) = channels();
    run(exchange, &mut channel).unwrap()
}

/// Runs the exchanges against the answering end, and stops that.
fn both(
    answers: Answers,
    exchange: impl FnOnce(SocketAddr) -> Exchange,
) -> (ExchangeReport, AnswersReport) {
    let (mut parent, mut channel) = channels();
    let server = std::thread::spawn(move || answer(&answers, &mut channel).unwrap());
    let Reply::<(), SocketAddr>::Started(at) = parent.receive(None).unwrap() else {
        panic!("it has not started")
    };
    let report = ran(&exchange(at));
    parent.send(&Request::<()>::Stop).unwrap();
    (report, server.join().unwrap())
}

#[test]
fn an_exchange_of_one_byte_takes_two_calls_at_each_end() {
    let (report, answered) = both(answers(), exchange);
    assert!(report.ok > 10 && report.errors.is_empty(), "{report:?}");
    assert_eq!((report.attempts, report.latency.count()), (report.ok, report.ok));
    assert_eq!(report.warmup_latency.count(), 10);
    assert_eq!(report.calls, 2 * report.ok);
    // The last receive is of the FIN.
    assert_eq!(answered.answered, report.ok + 10);
    assert_eq!(answered.calls, 2 * answered.answered + 1);
    assert!(report.window_ns >= 50 * MS && report.elapsed_ns >= report.window_ns, "{report:?}");
    assert!(!report.tcp_info.is_empty() && !report.sockets.congestion.is_empty());
    assert!(!report.partial);
}

#[test]
fn a_request_in_two_writes_and_an_answer_in_pieces_are_one_exchange() {
    let large = Answers { request_bytes: 30, response_bytes: 3 << 20, ..answers() };
    let (report, answered) = both(large, |at| Exchange {
        writes: vec![10, 20],
        response_bytes: 3 << 20,
        warmup_exchanges: 0,
        ..exchange(at)
    });
    assert!(report.ok > 0 && report.errors.is_empty(), "{report:?}");
    assert!(report.calls >= (2 + 12) * report.ok, "two writes, and pieces of 256 KiB at most");
    assert_eq!(answered.answered, report.ok);
}

#[test]
fn buffers_are_set_before_the_handshake_and_reported_as_the_kernel_has_them() {
    let sockets = || SocketSettings {
        send_buffer: Some(20_000),
        receive_buffer: Some(30_000),
        congestion: Some("reno".to_owned()),
        quick_ack: true,
        no_delay: false,
    };
    let (report, answered) = both(Answers { sockets: sockets(), ..answers() }, |at| Exchange {
        sockets: sockets(),
        ..exchange(at)
    });
    let expected =
        SocketsGot { send_buffer: 40_000, receive_buffer: 60_000, congestion: "reno".to_owned() };
    assert_eq!((&report.sockets, &answered.sockets), (&expected, &expected));
    assert_eq!(report.calls, 3 * report.ok, "TCP_QUICKACK before each read");
}

#[test]
fn work_is_no_part_of_the_latency_and_is_cpu_time() {
    let (report, _) = both(answers(), |at| Exchange { work_ns: 5 * MS, ..exchange(at) });
    // 50 ms, and what the last exchange takes beyond.
    assert!((1..=11).contains(&report.ok), "{report:?}");
    assert!(report.latency.min_ns().unwrap() < 5 * MS, "{report:?}");
    let slow = Answers { work_ns: 5 * MS, ..answers() };
    let (report, _) = both(slow, |at| Exchange { warmup_exchanges: 0, ..exchange(at) });
    assert!(report.latency.min_ns().unwrap() >= 5 * MS, "{report:?}");
}

#[test]
fn a_server_that_does_not_answer_is_a_timeout_after_the_time_limit() {
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = silent.local_addr().unwrap();
    let report = ran(&Exchange { timeout_ns: 50 * MS, ..exchange(at) });
    assert_eq!((report.attempts, report.ok, report.errors["timeout"]), (1, 0, 1), "{report:?}");
    assert!(report.elapsed_ns >= 50 * MS, "{}", report.elapsed_ns);
}

#[test]
fn refused_truncated_and_reset_are_classes_of_their_own() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = listener.local_addr().unwrap();
    let closing = std::thread::spawn(move || {
        // Read to the end, a close sends a FIN; with bytes unread, a RST.
        let (mut connection, _) = listener.accept().unwrap();
        connection.read_exact(&mut [0; 2]).unwrap();
        drop(connection);
        let (connection, _) = listener.accept().unwrap();
        connection.peek(&mut [0; 2]).unwrap();
    });
    let two = || Exchange { writes: vec![2], ..exchange(at) };
    for class in ["truncated", "reset", "connect-refused"] {
        if class == "connect-refused" {
            while !closing.is_finished() {
                std::thread::yield_now();
            }
        }
        let report = ran(&two());
        assert_eq!((report.attempts, report.ok, report.errors[class]), (1, 0, 1), "{report:?}");
        assert_eq!(report.first_errors.len(), 1);
    }
}

#[test]
fn a_stop_interrupts_what_waits_at_either_end() {
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (mut parent, mut channel) = channels();
    parent.send(&Request::<()>::Stop).unwrap();
    let waiting = Exchange { timeout_ns: 60_000 * MS, ..exchange(silent.local_addr().unwrap()) };
    let report = run(&waiting, &mut channel).unwrap();
    assert!(report.partial, "{report:?}");
    assert!(report.elapsed_ns < 30_000 * MS);
    assert_eq!(report.attempts, report.ok + report.errors.values().sum::<u64>());
    assert!(report.errors.keys().all(|class| class == "interrupted"), "{report:?}");

    // Whose queue is full: the SYN is dropped, and connect(2) waits.
    let full = Tcp::listener((Ipv4Addr::LOCALHOST, 0).into(), 0, false).unwrap();
    let at = full.local().unwrap();
    let _queued = std::net::TcpStream::connect(at).unwrap();
    let (mut parent, mut channel) = channels();
    let begun = std::time::Instant::now();
    let stopping = std::thread::spawn(move || {
        // Long enough for connect(2) to be waiting, mostly; right in either case.
        std::thread::sleep(std::time::Duration::from_millis(20));
        parent.send(&Request::<()>::Stop).unwrap();
        parent
    });
    let report = run(&Exchange { target: at, ..waiting }, &mut channel).unwrap();
    assert_eq!((report.attempts, report.errors["interrupted"]), (1, 1), "{report:?}");
    assert!(begun.elapsed().as_secs() < 30);
    drop(stopping.join().unwrap());

    let (mut parent, mut channel) = channels();
    parent.send(&Request::<()>::Stop).unwrap();
    assert_eq!(answer(&answers(), &mut channel).unwrap().answered, 0, "nobody has come");
}

#[test]
fn sizes_of_nothing_and_beyond_the_limit_are_refused() {
    let (_parent, mut channel) = channels();
    let at = (Ipv4Addr::LOCALHOST, 1).into();
    for writes in [vec![], vec![0], vec![1, 0], vec![MESSAGE_MAX, 1]] {
        let refused = run(&Exchange { writes, ..exchange(at) }, &mut channel);
        assert!(matches!(refused, Err(LoadError::Refused(_))));
    }
    assert!(answer(&Answers { response_bytes: 0, ..answers() }, &mut channel).is_err());
}
