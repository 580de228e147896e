//! Over real sockets of this machine: messages both ways, heartbeats, and peers that are gone.
#![cfg(unix)]
#![allow(clippy::unwrap_used)] // helpers of tests, too

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use tcp_heartbeat::blocking::Connection;
use tcp_heartbeat::{Evidence, Options, Timing};

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (here, listener.accept().unwrap().0)
}

fn options(idle_ms: u64, answer_ms: u64, evidence: Evidence) -> Options {
    let timing = Timing {
        idle: Duration::from_millis(idle_ms),
        answer_within: Duration::from_millis(answer_ms),
    };
    Options { timing, evidence, ..Options::default() }
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
        let options = Options { tick: Duration::from_millis(1), ..patient(Evidence::Answered) };
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

#[cfg(feature = "tokio")]
mod tokio_sockets {
    use tcp_heartbeat::tokio::Connection;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn tokio_pair() -> (tokio::net::TcpStream, tokio::net::TcpStream) {
        let (here, there) = pair();
        let ends = [here, there].map(|stream| {
            stream.set_nonblocking(true).unwrap();
            tokio::net::TcpStream::from_std(stream).unwrap()
        });
        ends.into()
    }

    #[tokio::test]
    async fn receives_that_are_cancelled_again_and_again_lose_nothing() {
        const MESSAGES: usize = 2_000;
        let (here, there) = tokio_pair();
        let mut ends = Vec::new();
        for stream in [here, there] {
            ends.push(tokio::spawn(async move {
                let options = patient(Evidence::Answered);
                let mut connection = Connection::new(stream, options).unwrap();
                let (mut sent, mut seen) = (0, 0);
                while sent < MESSAGES || seen < MESSAGES {
                    let message = vec![sent as u8; sent * 31 % 5_000];
                    tokio::select! {
                        biased;
                        () = tokio::task::yield_now(), if sent < MESSAGES => {
                            connection.send(&message).await.unwrap();
                            sent += 1;
                        }
                        received = connection.receive() => {
                            let received = received.unwrap().unwrap();
                            assert_eq!(received, vec![seen as u8; seen * 31 % 5_000]);
                            seen += 1;
                        }
                    }
                }
                connection.finish().await.unwrap();
                assert_eq!(connection.receive().await.unwrap(), None);
            }));
        }
        for end in ends {
            end.await.unwrap();
        }
    }

    #[tokio::test]
    async fn an_idle_peer_whose_kernel_acknowledges_stays_on_tokio() {
        let (here, mut there) = tokio_pair();
        let options = options(20, 200, Evidence::Acknowledged);
        let mut connection = Connection::new(here, options).unwrap();
        let receiver = tokio::spawn(async move { connection.receive().await });
        let mut nulls = [9; 12];
        there.read_exact(&mut nulls).await.unwrap();
        assert_eq!(nulls, [0; 12]);
        there.write_all(&[0, 0, 0, 2, b'!']).await.unwrap();
        assert_eq!(receiver.await.unwrap().unwrap().as_deref(), Some(&b"!"[..]));
    }

    #[tokio::test]
    async fn a_peer_that_stops_answering_is_timed_out_on_tokio() {
        let (here, _there) = tokio_pair();
        let mut connection = Connection::new(here, options(20, 50, Evidence::Answered)).unwrap();
        let error = connection.receive().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(connection.send(b"x").await.unwrap_err().kind(), ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_peer_that_never_reads_cannot_block_a_sender_for_ever_on_tokio() {
        let (here, _there) = tokio_pair();
        let options = options(100, 100, Evidence::Acknowledged);
        let mut connection = Connection::new(here, options).unwrap();
        let error = loop {
            if let Err(error) = connection.send(&[7; 10_000]).await {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }
}
