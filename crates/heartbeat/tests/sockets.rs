//! Over real sockets of this machine: messages both ways, heartbeats, and peers that are gone.
#![cfg(unix)]
#![allow(clippy::unwrap_used)] // helpers of tests, too

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use tcp_heartbeat::blocking::Connection;
use tcp_heartbeat::frame::ASK_FRAME;
use tcp_heartbeat::{Evidence, Options, Timing};

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (here, listener.accept().unwrap().0)
}

fn options(idle_ms: u64, answer_ms: u64, evidence: Evidence) -> Options {
    let mut options = Options::default();
    options.timing = Timing::new(Duration::from_millis(idle_ms), Duration::from_millis(answer_ms));
    options.evidence = evidence;
    options
}

/// Heartbeats often, and more time for an answer than any test takes.
fn patient(evidence: Evidence) -> Options {
    options(10, 60_000, evidence)
}

#[test]
fn messages_of_several_threads_arrive_whole_both_ways_among_heartbeats() {
    const EACH: usize = 300;
    let (here, there) = pair();
    let ends = [here, there].map(|stream| {
        let mut options = patient(Evidence::Answered);
        options.tick = Duration::from_millis(1);
        Connection::new(stream, options).unwrap()
    });
    let sides = ends.map(|mut connection| {
        let writers = [1_u8, 2].map(|writer| {
            let sender = connection.sender();
            thread::spawn(move || {
                for count in 0..EACH {
                    let mut message = vec![writer; 2 + count * 37 % 9_000];
                    message[0] = count as u8;
                    sender.send(&message).unwrap();
                }
            })
        });
        thread::spawn(move || {
            let mut seen = [0; 3];
            while seen[1] + seen[2] < 2 * EACH {
                let message = connection.receive().unwrap().unwrap();
                let writer = message[1];
                let count = &mut seen[usize::from(writer)];
                assert_eq!(message.len(), 2 + *count * 37 % 9_000);
                assert_eq!(message[0], *count as u8);
                assert!(message[1..].iter().all(|&byte| byte == writer));
                *count += 1;
            }
            for writer in writers {
                writer.join().unwrap();
            }
            connection.sender().finish().unwrap();
            assert_eq!(connection.receive().unwrap(), None);
        })
    });
    for side in sides {
        side.join().unwrap();
    }
}

#[test]
fn an_idle_peer_whose_kernel_acknowledges_stays() {
    let (here, mut there) = pair();
    let mut connection = Connection::new(here, options(20, 200, Evidence::Acknowledged)).unwrap();
    let receiver = thread::spawn(move || connection.receive());
    let mut nulls = [9; 12];
    there.read_exact(&mut nulls).unwrap(); // three heartbeats, none answered
    assert_eq!(nulls, [0; 12]);
    there.write_all(&[0, 0, 0, 3, b'h', b'i']).unwrap();
    assert_eq!(receiver.join().unwrap().unwrap().as_deref(), Some(&b"hi"[..]));
}

#[test]
fn a_peer_that_answers_stays_and_one_that_stops_is_timed_out() {
    let (here, mut there) = pair();
    let mut connection = Connection::new(here, options(20, 1_000, Evidence::Answered)).unwrap();
    let receiver = thread::spawn(move || (connection.receive(), Instant::now()));
    let mut ask = [0; 4];
    let mut answered = Instant::now();
    for _ in 0..3 {
        there.read_exact(&mut ask).unwrap();
        assert_eq!(ask, [0xFF; 4]);
        answered = Instant::now();
        there.write_all(&[0; 4]).unwrap();
    }
    let (received, known) = receiver.join().unwrap();
    let error = received.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(error.to_string().contains("does not answer"), "{error}");
    assert!(known - answered >= Duration::from_millis(1_020));
}

#[test]
fn a_peer_that_never_reads_cannot_block_a_sender_for_ever() {
    let (here, _there) = pair();
    let connection = Connection::new(here, options(100, 100, Evidence::Acknowledged)).unwrap();
    let sender = connection.sender();
    let error = loop {
        if let Err(error) = sender.send(&[7; 10_000]) {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(sender.send(b"x").unwrap_err().kind(), ErrorKind::TimedOut);
}

#[test]
fn ends_between_messages_and_within_one_are_told_apart() {
    for (sent, expected) in [(&[0, 0, 0, 1][..], None), (&[0, 0, 0, 3, 7], Some(()))] {
        let (here, mut there) = pair();
        let mut connection = Connection::new(here, patient(Evidence::Answered)).unwrap();
        there.write_all(sent).unwrap();
        drop(there);
        if expected.is_none() {
            assert_eq!(connection.receive().unwrap(), Some(Vec::new()));
            assert_eq!(connection.receive().unwrap(), None);
        } else {
            assert_eq!(connection.receive().unwrap_err().kind(), ErrorKind::UnexpectedEof);
        }
    }
}

#[test]
fn who_has_finished_receives_on_and_answers_nothing() {
    let (here, mut there) = pair();
    let mut connection = Connection::new(here, patient(Evidence::Answered)).unwrap();
    let sender = connection.sender();
    sender.send(b"bye").unwrap();
    sender.finish().unwrap();
    assert!(socket2::SockRef::from(connection.get_ref()).keepalive().unwrap());
    assert_eq!(sender.send(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    let mut seen = Vec::new();
    there.read_to_end(&mut seen).unwrap();
    assert_eq!(seen, b"\0\0\0\x04bye");
    there.write_all(&ASK_FRAME).unwrap(); // the answer would fail
    there.write_all(&[0, 0, 0, 3, b'h', b'i']).unwrap();
    assert_eq!(connection.receive().unwrap().as_deref(), Some(&b"hi"[..]));
    there.write_all(&ASK_FRAME).unwrap();
    drop(there);
    assert_eq!(connection.receive().unwrap(), None);
}

#[test]
fn what_is_tried_never_waits_and_arrives_whole_when_the_peer_reads_at_last() {
    let (here, there) = pair();
    let mut connection = Connection::new(here, patient(Evidence::Acknowledged)).unwrap();
    let sender = connection.sender();
    let mut taken = 0;
    while sender.try_send(&vec![taken as u8; 100_000]).unwrap() {
        taken += 1;
    }
    let mut peer = Connection::new(there, patient(Evidence::Acknowledged)).unwrap();
    for count in 0..taken {
        assert_eq!(peer.receive().unwrap().unwrap(), vec![count as u8; 100_000]);
    }
    peer.sender().finish().unwrap();
    assert_eq!(connection.receive().unwrap(), None);
}

#[test]
fn an_abort_wakes_who_receives_and_who_sends() {
    let (here, there) = pair();
    let address = there.local_addr().unwrap();
    let mut connection = Connection::new(here, patient(Evidence::Acknowledged)).unwrap();
    let (full, sender) = (connection.sender(), connection.sender());
    assert_eq!(sender.get_ref().peer_addr().unwrap(), address);
    let receives = thread::spawn(move || connection.receive().map(drop));
    let sends = thread::spawn(move || {
        loop {
            full.send(&[7; 10_000])?;
        }
    });
    sender.abort();
    for ended in [receives.join().unwrap(), sends.join().unwrap()] {
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::ConnectionAborted);
    }
    assert_eq!(sender.send(b"x").unwrap_err().kind(), ErrorKind::ConnectionAborted);
}
