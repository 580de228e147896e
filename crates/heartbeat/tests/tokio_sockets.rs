//! The same over tokio's sockets, and what only a runtime can do wrong.
#![cfg(all(unix, feature = "tokio"))]
#![allow(clippy::unwrap_used)] // helpers of tests, too

use std::future::Future;
use std::future::poll_fn;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use socket2::SockRef;
use tcp_heartbeat::tokio_net::Connection;
use tcp_heartbeat::*; // nothing of it hides `tokio`
use tokio::task::{coop, yield_now};

fn pair() -> (tokio::net::TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (tokio_stream(here), listener.accept().unwrap().0)
}

fn tokio_stream(stream: TcpStream) -> tokio::net::TcpStream {
    stream.set_nonblocking(true).unwrap();
    tokio::net::TcpStream::from_std(stream).unwrap()
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

/// What one poll gives; `None`: it waits.
async fn poll_once<T>(mut future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    poll_fn(|cx| {
        Poll::Ready(match future.as_mut().poll(cx) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}

#[tokio::test]
async fn receives_that_are_cancelled_again_and_again_lose_nothing() {
    const MESSAGES: usize = 2_000;
    let (here, there) = pair();
    let mut ends = Vec::new();
    for stream in [here, tokio_stream(there)] {
        ends.push(tokio::spawn(async move {
            let mut connection = Connection::new(stream, patient(Evidence::Answered)).unwrap();
            let sender = connection.sender();
            let (mut sent, mut seen) = (0, 0);
            while sent < MESSAGES || seen < MESSAGES {
                tokio::select! {
                    biased;
                    () = yield_now(), if sent < MESSAGES => {
                        let message = vec![sent as u8; sent * 31 % 5_000];
                        sent += usize::from(sender.try_send(&message).unwrap());
                    }
                    received = connection.receive() => {
                        let received = received.unwrap().unwrap();
                        assert_eq!(received, vec![seen as u8; seen * 31 % 5_000]);
                        seen += 1;
                    }
                }
            }
            sender.finish().await.unwrap();
            assert_eq!(connection.receive().await.unwrap(), None);
        }));
    }
    for end in ends {
        end.await.unwrap();
    }
}

#[tokio::test]
async fn two_programs_that_both_have_much_to_say_hear_one_another() {
    const MESSAGES: usize = 40;
    let (here, there) = pair();
    let mut ends = Vec::new();
    for stream in [here, tokio_stream(there)] {
        SockRef::from(&stream).set_send_buffer_size(128 << 10).unwrap();
        SockRef::from(&stream).set_recv_buffer_size(128 << 10).unwrap();
        let mut connection = Connection::new(stream, patient(Evidence::Answered)).unwrap();
        let sender = connection.sender();
        ends.push(tokio::spawn(async move {
            for _ in 0..MESSAGES {
                sender.send(&vec![1; 1 << 20]).await.unwrap();
            }
            sender.finish().await.unwrap();
            MESSAGES
        }));
        ends.push(tokio::spawn(async move {
            let mut seen = 0;
            while connection.receive().await.unwrap().is_some() {
                seen += 1;
            }
            seen
        }));
    }
    for end in ends {
        assert_eq!(end.await.unwrap(), MESSAGES);
    }
}

#[tokio::test]
async fn an_idle_peer_whose_kernel_acknowledges_stays() {
    let (here, there) = pair();
    let options = options(20, 200, Evidence::Acknowledged);
    let mut connection = Connection::new(here, options).unwrap();
    let peer = thread::spawn(move || {
        let mut nulls = [9; 12];
        (&there).read_exact(&mut nulls).unwrap();
        assert_eq!(nulls, [0; 12]);
        (&there).write_all(&[0, 0, 0, 2, b'!']).unwrap();
    });
    assert_eq!(connection.receive().await.unwrap().as_deref(), Some(&b"!"[..]));
    assert_eq!(connection.receive().await.unwrap(), None);
    peer.join().unwrap();
}

#[tokio::test]
async fn a_peer_that_stops_answering_is_timed_out() {
    let (here, _there) = pair();
    let mut connection = Connection::new(here, options(20, 50, Evidence::Answered)).unwrap();
    let error = connection.receive().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(connection.sender().send(b"x").await.unwrap_err().kind(), ErrorKind::TimedOut);
}

#[tokio::test]
async fn an_answer_that_waits_in_the_socket_of_a_busy_program_is_found() {
    let (here, there) = pair();
    let inbox = TcpStream::from(SockRef::from(&here).try_clone().unwrap());
    let answer_ms = 500;
    let options = options(10, answer_ms, Evidence::Answered);
    let mut connection = Connection::new(here, options).unwrap();
    thread::sleep(Duration::from_millis(20)); // an Ask is due
    assert!(poll_once(pin!(connection.receive())).await.is_none());
    let mut ask = [0; 4];
    (&there).read_exact(&mut ask).unwrap();
    (&there).write_all(&frame::NULL_FRAME).unwrap();
    while inbox.peek(&mut ask).is_err() {
        thread::yield_now();
    }
    thread::sleep(Duration::from_millis(answer_ms)); // the program is busy, tokio's driver waits
    assert!(poll_once(pin!(connection.receive())).await.is_none(), "no error");
}

#[tokio::test]
async fn a_peer_that_never_reads_cannot_block_a_sender_for_ever() {
    let (here, _there) = pair();
    let connection = Connection::new(here, options(100, 100, Evidence::Acknowledged)).unwrap();
    let sender = connection.sender();
    let error = loop {
        if let Err(error) = sender.send(&[7; 10_000]).await {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::TimedOut);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_peer_that_reads_less_than_makes_the_socket_writable_is_not_given_up() {
    let (here, there) = pair();
    let outbox = SockRef::from(&here).try_clone().unwrap();
    let message = vec![7; 16 << 20];
    let mut options = options(100, 100, Evidence::Acknowledged);
    options.max_message_len = message.len();
    let connection = Connection::new(here, options).unwrap();
    let sender = connection.sender();
    let mut send = pin!(sender.send(&message));
    assert!(poll_once(send.as_mut()).await.is_none(), "the socket is full");
    let full = kernel::unacknowledged(&outbox).unwrap();
    let mut piece = [0; 4_096];
    let mut seen = 0;
    while kernel::unacknowledged(&outbox).unwrap() >= full {
        seen += (&there).read(&mut piece).unwrap();
    }
    thread::sleep(options.timing.bound());
    yield_now().await; // tokio's clock goes on
    assert!(poll_once(send.as_mut()).await.is_none(), "no error");
    while poll_once(send.as_mut()).await.map(Result::unwrap).is_none() {
        seen += (&there).read(&mut piece).unwrap();
        yield_now().await;
    }
    sender.finish().await.unwrap();
    seen += std::io::copy(&mut &there, &mut std::io::sink()).unwrap() as usize;
    assert_eq!(seen, message.len() + 4);
}

#[tokio::test]
async fn what_was_sent_arrives_though_the_connection_is_dropped() {
    let (here, there) = pair();
    SockRef::from(&here).set_send_buffer_size(64 << 10).unwrap();
    SockRef::from(&there).set_recv_buffer_size(64 << 10).unwrap();
    let peer = thread::spawn(move || {
        let mut seen = Vec::new();
        (&there).read_to_end(&mut seen).unwrap();
        seen.len()
    });
    let connection = Connection::new(here, Options::default()).unwrap();
    connection.sender().send(&vec![1; 1 << 20]).await.unwrap();
    drop(connection);
    assert_eq!(peer.join().unwrap(), (1 << 20) + 4);
}

#[tokio::test]
async fn what_is_tried_is_written_before_tokio_has_looked_at_the_socket() {
    let (here, there) = pair();
    let connection = Connection::new(here, Options::default()).unwrap();
    assert!(connection.sender().try_send(b"bye").unwrap());
    drop(connection);
    let mut seen = Vec::new();
    (&there).read_to_end(&mut seen).unwrap();
    assert_eq!(seen, b"\0\0\0\x04bye");
}

#[tokio::test]
async fn what_is_tried_goes_out_while_a_task_waits_in_receive() {
    let (here, there) = pair();
    let hour = options(3_600_000, 60_000, Evidence::Acknowledged); // no heartbeat wakes it
    let mut connection = Connection::new(here, hour).unwrap();
    let sender = connection.sender();
    let receiver = tokio::spawn(async move { connection.receive().await });
    yield_now().await;
    let mut taken = 0;
    while sender.try_send(&vec![taken as u8; 100_000]).unwrap() {
        taken += 1;
    }
    let mut peer = Connection::new(tokio_stream(there), hour).unwrap();
    for count in 0..taken {
        assert_eq!(peer.receive().await.unwrap().unwrap(), vec![count as u8; 100_000]);
    }
    peer.sender().finish().await.unwrap();
    assert_eq!(receiver.await.unwrap().unwrap(), None);
}

#[test]
fn a_connection_whose_runtime_is_gone_says_so() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let (mut connection, _there) = first.block_on(async {
        let (here, there) = pair();
        (Connection::new(here, patient(Evidence::Acknowledged)).unwrap(), there)
    });
    drop(first);
    runtime().block_on(connection.receive()).unwrap_err();
}

#[tokio::test]
async fn a_peer_that_always_sends_does_not_keep_the_task_from_yielding() {
    let (here, there) = pair();
    let mut connection = Connection::new(here, patient(Evidence::Acknowledged)).unwrap();
    (&there).write_all(&[0, 0, 0, 3, b'h', b'i']).unwrap();
    connection.get_ref().readable().await.unwrap();
    let spent = poll_fn(|cx| {
        while coop::has_budget_remaining() {
            let _spends = pin!(coop::consume_budget()).poll(cx);
        }
        Poll::Ready(pin!(connection.receive()).poll(cx).is_pending())
    });
    assert!(spent.await, "it waits for its next turn");
    yield_now().await;
    let received = poll_once(pin!(connection.receive())).await.unwrap();
    assert_eq!(received.unwrap().as_deref(), Some(&b"hi"[..]));
}

#[tokio::test]
async fn an_abort_wakes_who_receives_and_who_sends() {
    let (here, there) = pair();
    let mut connection = Connection::new(here, patient(Evidence::Acknowledged)).unwrap();
    let (full, sender) = (connection.sender(), connection.sender());
    assert_eq!(sender.get_ref().peer_addr().unwrap(), there.local_addr().unwrap());
    let receives = tokio::spawn(async move { connection.receive().await.map(drop) });
    let sends = tokio::spawn(async move {
        loop {
            full.send(&[7; 10_000]).await?;
        }
    });
    yield_now().await;
    sender.abort();
    for ended in [receives.await.unwrap(), sends.await.unwrap()] {
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::ConnectionAborted);
    }
}

#[tokio::test]
async fn who_has_finished_receives_on_and_answers_nothing() {
    let (here, there) = pair();
    let mut connection = Connection::new(here, patient(Evidence::Answered)).unwrap();
    let sender = connection.sender();
    sender.finish().await.unwrap();
    assert!(SockRef::from(connection.get_ref()).keepalive().unwrap());
    assert_eq!(sender.send(b"x").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
    (&there).write_all(&frame::ASK_FRAME).unwrap(); // the answer would fail
    (&there).write_all(&[0, 0, 0, 3, b'h', b'i']).unwrap();
    assert_eq!(connection.receive().await.unwrap().as_deref(), Some(&b"hi"[..]));
}
