//! Is the peer's FIN seen at the close, by either driver? Is room always told of?

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Instant;

use tcptoll_kernel::ring;
use tcptoll_kernel::sock_diag::SockDiag;

use super::super::epoll::Epoll;
use super::super::uring::Uring;
use super::*;

/// FIN-WAIT-2 of `include/net/tcp_states.h`: the other end has the FIN.
const FIN_WAIT_2: u8 = 5;

/// Opens a connection in a slot, and gives the server's end.
fn open(driver: &mut impl Driver, slot: u32, listener: &TcpListener) -> TcpStream {
    driver.open(slot, 0).unwrap();
    loop {
        match driver.next() {
            Some(Event { what: What::Connected { outcome, .. }, .. }) => {
                outcome.unwrap();
                return listener.accept().unwrap().0;
            }
            Some(event) => panic!("{event:?}"),
            None => driver.wait(None).unwrap(),
        }
    }
}

/// Closes the server's end and waits until `count` FINs in all have arrived.
fn close(stream: TcpStream, target: SocketAddr, count: u64) {
    drop(stream);
    let mut diag = SockDiag::open().unwrap();
    while diag.count_in_state(FIN_WAIT_2, Some(target.port())).unwrap() < count {
        std::thread::yield_now();
    }
}

fn settled(driver: &mut impl Driver) -> u64 {
    driver.wait(Some(Duration::ZERO)).unwrap();
    while driver.next().is_some() {}
    driver.closed_after_peer()
}

/// One edge tells of both, and there is no other.
#[test]
fn room_that_comes_with_bytes_is_told_of_over_epoll() {
    let listener = &TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut driver = Epoll::new(&Setup::to(listener.local_addr().unwrap(), 1)).unwrap();
    let mut stream = open(&mut driver, 0, listener);
    let bytes = vec![1; 1 << 20];
    let mut sent = 0;
    loop {
        let length = driver.send(0, &bytes).unwrap();
        sent += length;
        driver.wait(Some(Duration::ZERO)).unwrap();
        assert!(driver.next().is_none());
        if length == 0 {
            break;
        }
    }
    driver.tell_of_room(0);
    stream.write_all(b"answer").unwrap();
    let mut rest = vec![0; 1 << 20];
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    while sent > 0 {
        sent -= stream.read(&mut rest).unwrap();
    }
    let (mut received, mut room) = (false, false);
    let begun = Instant::now();
    while !(received && room) {
        assert!(begun.elapsed() < Duration::from_secs(10), "bytes {received}, room {room}");
        driver.wait(Some(Duration::from_millis(100))).unwrap();
        while let Some(event) = driver.next() {
            match event.what {
                What::Received { .. } => received = true,
                What::Room => room = true,
                other => panic!("{other:?}"),
            }
        }
    }
}

fn sees_who_ended_first<D: Driver>(make: impl Fn(SocketAddr) -> Result<D, LoadError>) {
    let listener = &TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let target = listener.local_addr().unwrap();
    let mut driver = make(target).unwrap();
    // The server has closed, and nobody has looked.
    let stream = open(&mut driver, 0, listener);
    close(stream, target, 1);
    driver.close(0, true);
    assert_eq!(settled(&mut driver), 1);
    // The server has closed, and its end was reported.
    drop(open(&mut driver, 0, listener));
    let closed = loop {
        match driver.next() {
            Some(event) => break event,
            None => driver.wait(None).unwrap(),
        }
    };
    assert!(matches!(closed.what, What::Closed { .. }), "{closed:?}");
    driver.close(0, true);
    assert_eq!(settled(&mut driver), 2);
    // The server has not closed, also where the same slots were left by others that it had.
    for _ in 0..3 {
        let streams = [open(&mut driver, 0, listener), open(&mut driver, 1, listener)];
        driver.close(0, true);
        driver.close(1, true);
        assert_eq!(settled(&mut driver), 2);
        drop(streams);
    }
    // A connection that was not made is in no count.
    driver.open(1, 0).unwrap();
    driver.close(1, false);
    assert_eq!(settled(&mut driver), 2);
}

#[test]
fn a_fin_that_had_arrived_is_seen_over_epoll() {
    sees_who_ended_first(|target| Epoll::new(&Setup { stamps: true, ..Setup::to(target, 2) }));
}

#[test]
fn a_fin_that_had_arrived_is_seen_over_io_uring() {
    if let Err(error) = ring::available() {
        eprintln!("SKIPPED (io_uring): {error}");
        return;
    }
    sees_who_ended_first(|target| Uring::new(&Setup { stamps: true, ..Setup::to(target, 2) }));
}
