//! What a client loop needs of the kernel, so that one loop runs over epoll and over `io_uring`.
//!
//! A slot is one connection's place; the driver keeps its socket. What happened comes one by one
//! from [`Driver::next`]; received bytes stay readable in [`Driver::bytes`] until the next call.
//!
//! A new load states its [`Setup`], makes an [`Epoll`](super::epoll::Epoll) or a
//! [`Uring`](super::uring::Uring) on each of its threads, and repeats: begin what its
//! [`Pace`](super::pace::Pace) says, [`Driver::wait`], take every event. What a short
//! [`Driver::send`] has left over goes when [`What::Room`] comes.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tcptoll_kernel::socket::ClientOptions;

use super::LoadError;
use crate::clock::{FromRealtime, monotonic_ns};

/// What a driver opens, and how it waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup<'a> {
    /// To whom.
    pub(super) target: SocketAddr,
    /// Source addresses, taken in turn; none: the one that the kernel chooses.
    pub(super) bind: &'a [IpAddr],
    /// Congestion control, by the kernel's name.
    pub(super) congestion: Option<&'a str>,
    /// How many connections there can be concurrently.
    pub(super) slots: u32,
    /// What happens within this is handled together, ns; 0: immediately.
    pub(super) batch_ns: u64,
    /// Use the kernel's receive stamps, where it has them.
    pub(super) stamps: bool,
}

impl Setup<'_> {
    /// Connections with the kernel's own settings.
    pub(super) fn to(target: SocketAddr, slots: u32) -> Self {
        Self { target, bind: &[], congestion: None, slots, batch_ns: 0, stamps: false }
    }
}

/// Something that happened to a slot.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) slot: u32,
    pub(super) what: What,
}

#[derive(Debug)]
pub(super) enum What {
    /// The handshake is decided. `at_ns`: when this was seen, `CLOCK_MONOTONIC`.
    Connected { outcome: io::Result<()>, at_ns: u64 },
    /// Bytes have come, they are in [`Driver::bytes`]; at least one. `at_ns`: when the last of them
    /// arrived, by the kernel's stamp where it has one, else when it was seen.
    Received { at_ns: u64 },
    /// The peer has closed; all bytes before have been given.
    Closed { at_ns: u64 },
    /// There is room for more bytes, after [`Driver::tell_of_room`].
    Room,
    /// The socket has failed.
    Failed(io::Error),
}

/// When a handshake or bytes were given to the kernel, `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Left {
    /// Surely not before this.
    pub(super) earliest_ns: u64,
    /// Most likely then, and as a rule not before.
    pub(super) likely_ns: u64,
}

/// Sockets of one thread and what is waited with.
pub(super) trait Driver {
    /// Name in the record: `epoll`, `io_uring`.
    const NAME: &'static str;

    /// Begins a connection from source address number `source` in an empty slot.
    ///
    /// Errors: none was begun; the slot is still empty.
    fn open(&mut self, slot: u32, source: usize) -> io::Result<()>;

    /// Sends bytes; gives how many were taken, all or as many as there was room for.
    fn send(&mut self, slot: u32, bytes: &[u8]) -> io::Result<usize>;

    /// Tells by [`What::Room`] when there is room for more bytes, after a send was short.
    fn tell_of_room(&mut self, slot: u32);

    /// Closes the slot's socket. Nothing is reported of it any more; the slot is empty immediately.
    ///
    /// `made`: its handshake was completed, so [`Driver::closed_after_peer`] is to count it.
    fn close(&mut self, slot: u32, made: bool);

    /// How many of the connections closed so far the peer had ended before: its FIN, or its RST, had
    /// arrived when the socket was closed. Complete when all events after a [`Driver::wait`] have
    /// been taken.
    ///
    /// A FIN that crosses ours is not seen, nor is one that arrives between the look and the close;
    /// over `io_uring` the close comes at the end of the system call if a receive has to be
    /// cancelled first. Both together: up to 35 % of connections to servers that close by themselves.
    fn closed_after_peer(&self) -> u64;

    /// Waits until something has happened or `timeout` has passed.
    fn wait(&mut self, timeout: Option<Duration>) -> Result<(), LoadError>;

    /// The next thing that happened, in order; `None`: wait again.
    fn next(&mut self) -> Option<Event>;

    /// When the handshake or the bytes last asked for in a slot were given to the kernel. None: with
    /// the call.
    fn left(&self, _slot: u32) -> Option<Left> {
        None
    }

    /// The bytes of the last [`What::Received`].
    fn bytes(&self) -> &[u8];

    /// `TCP_INFO` and congestion control of a slot; not to be had of a direct descriptor.
    fn look(&self, slot: u32) -> Option<(Vec<u8>, String)>;
}

/// The wall clock is compared with the monotonic one again after this, ns.
const COMPARE_NS: u64 = 100_000_000;

/// Reads receive stamps, if they are asked for: the kernel's, brought over to `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamps {
    used: bool,
    wall: FromRealtime,
    compared_ns: u64,
}

impl Stamps {
    /// `used`: whether sockets are asked for stamps.
    pub(super) fn new(used: bool) -> Self {
        Self { used, wall: FromRealtime::now(), compared_ns: monotonic_ns() }
    }

    /// Whether sockets are asked for stamps.
    pub(super) fn are_used(&self) -> bool {
        self.used
    }

    /// Compares the clocks again if that is due: they drift apart.
    pub(super) fn compare(&mut self, now_ns: u64) {
        if self.used && now_ns >= self.compared_ns + COMPARE_NS {
            self.wall = FromRealtime::now();
            self.compared_ns = now_ns;
        }
    }

    /// When bytes with this stamp (0: none) arrived; never after they were seen.
    pub(super) fn arrived_ns(&self, stamp_ns: u64, seen_ns: u64) -> u64 {
        if stamp_ns == 0 { seen_ns } else { self.wall.monotonic_ns(stamp_ns).min(seen_ns) }
    }
}

/// Settings of client sockets, one for each source address; at least one. They take turns, so that a
/// load is not bound by the ports of one.
///
/// More addresses help more than a wider port range. Beyond half of a range the kernel searches long for a
/// free port: 50,000 connections from one address cost 0.9 ms of CPU each, from four addresses 0.05 ms.
#[derive(Clone, Debug)]
pub(super) struct Sources(Vec<ClientOptions>);

impl Sources {
    /// The addresses given, or the one that the kernel chooses.
    pub(super) fn new(given: &[IpAddr], congestion: Option<&str>, fast_open: bool) -> Self {
        let options =
            |bind| ClientOptions { bind, congestion: congestion.map(str::to_owned), fast_open };
        if given.is_empty() {
            Self(vec![options(None)])
        } else {
            Self(given.iter().copied().map(Some).map(options).collect())
        }
    }

    /// Settings of connection number `number`.
    pub(super) fn options(&self, number: u64) -> &ClientOptions {
        &self.0[(number % self.0.len() as u64) as usize]
    }

    /// One after the other.
    pub(super) fn iter(&self) -> impl Iterator<Item = &ClientOptions> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
    use std::time::Instant;

    use tcptoll_kernel::ring;
    use tcptoll_kernel::sock_diag::SockDiag;

    use super::*;
    use crate::load::epoll::Epoll;
    use crate::load::uring::Uring;

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
}
