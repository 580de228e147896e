//! Holds local ports in TIME-WAIT, quickly: each connection is opened from a given port, and closed.
//!
//! A load that fills the ports by itself needs 12 s for the second half of the default range, because
//! the kernel searches longer and longer. Here each socket may only use one port
//! (`IP_LOCAL_PORT_RANGE`, since Linux 6.3), so nothing is searched. Ports are taken in the order in
//! which `connect(2)` would: all of the parity of the range's lowest port first. The kernel keeps such
//! a port as one that it chose itself. A port given to `bind(2)` is different: `connect(2)` passes it
//! by without a look at its connections, which is cheaper than what is to be measured.
//!
//! Source: `__inet_hash_connect()` in `net/ipv4/inet_hashtables.c`, `inet_csk_find_open_port()` in
//! `net/ipv4/inet_connection_sock.c`, Linux 6.18.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tcptoll_kernel::SysError;
use tcptoll_kernel::epoll::{Interest, Poller};
use tcptoll_kernel::sock_diag::{Closed, End, SockDiag};
use tcptoll_kernel::socket::blocking::{Blocking, BlockingOptions};
use tcptoll_kernel::socket::errno;

use super::worker::{exchange, to_end};
use super::{class_of_connecting, failed, lock, spawn};
use crate::channel::Channel;
use crate::clock::monotonic_ns;
use crate::load::LoadError;
use crate::load::control::{CHANNEL, stop_requested};
use crate::messages::{CloseFirst, HoldPorts, PortsHeld};

/// Connections that are opened concurrently: with a round trip of 10 ms, 28,000 take 5 s.
const THREADS: u64 = 128;

/// Failures after which holding ends: other sockets may have some of the ports, but not many.
const FAILURES_MAX: u64 = 1_000;

/// The last sockets reach TIME-WAIT within this, ns.
const SETTLED_NS: u64 = 500_000_000;

/// Rounds of opening connections. Few are needed twice: on two CPUs the client may acknowledge twice
/// as it closes. The second ACK meets no socket, and the server's reset ends the TIME-WAIT (RFC 1337;
/// up to 7 of 600 connections on Linux 6.18).
const ROUNDS_MAX: u32 = 5;

/// The number under which the poller knows the threads.
const THREADS_ENDED: u64 = 0;

/// Holds ports until as many are held as asked, all have been tried, or the parent says stop.
pub fn run(order: &HoldPorts, channel: &mut Channel) -> Result<PortsHeld, LoadError> {
    let begun_ns = monotonic_ns();
    let shared = Shared::default();
    let mut candidates = Candidates::new(order);
    let mut wanted = order.count;
    let mut time_wait = Vec::new();
    for _ in 0..ROUNDS_MAX {
        shared.fill_all(order, &candidates, wanted, channel)?;
        time_wait = settled(order)?;
        wanted = order.expected.saturating_sub(time_wait.len() as u64);
        let stopped = shared.stopped.load(Ordering::SeqCst);
        if wanted == 0 || stopped || shared.failures.load(Ordering::Relaxed) >= FAILURES_MAX {
            break;
        }
        candidates = candidates.without(&time_wait);
    }
    Ok(PortsHeld {
        closed: shared.closed.load(Ordering::Relaxed),
        errors: std::mem::take(&mut *lock(&shared.errors)),
        time_wait: time_wait.len() as u64,
        took_ns: monotonic_ns().saturating_sub(begun_ns),
        kernel_chose: shared.kernel_chooses.load(Ordering::Relaxed),
    })
}

/// Pairs of port and source address, in the order in which they are taken.
struct Candidates(Vec<(u16, Option<IpAddr>)>);

impl Candidates {
    fn new(order: &HoldPorts) -> Self {
        let (low, high) = order.range;
        // connect(2) begins with the parity of the lowest port, bind(2) with the other one.
        let first = if order.late_port { low % 2 } else { (low + 1) % 2 };
        let of_parity = |parity: u16| (low..=high).filter(move |port| port % 2 == parity);
        let mut sources: Vec<_> = order.sources.iter().copied().map(Some).collect();
        if sources.is_empty() {
            sources.push(None);
        }
        let ports = of_parity(first).chain(of_parity(1 - first));
        Self(ports.flat_map(|port| sources.iter().map(move |source| (port, *source))).collect())
    }

    /// Those that are not held.
    fn without(&self, held: &[SocketAddr]) -> Self {
        let ends: HashSet<_> = held.iter().map(|end| (end.port(), Some(end.ip()))).collect();
        let ports: HashSet<_> = held.iter().map(SocketAddr::port).collect();
        let is_free = |(port, source): &&(u16, Option<IpAddr>)| match source {
            Some(_) => !ends.contains(&(*port, *source)),
            None => !ports.contains(port),
        };
        Self(self.0.iter().filter(is_free).copied().collect())
    }
}

#[derive(Default)]
struct Shared {
    closed: AtomicU64,
    failures: AtomicU64,
    errors: Mutex<BTreeMap<String, u64>>,
    /// Whether this kernel lets no socket have a port of its own.
    kernel_chooses: AtomicBool,
    /// Whether the parent said stop: no further connection is opened.
    stopped: AtomicBool,
}

/// How far one round has come.
#[derive(Default)]
struct Round {
    next: AtomicUsize,
    /// Connections that were begun and have not failed.
    begun: AtomicU64,
}

impl Shared {
    /// Opens and closes this number of connections, and looks at the channel meanwhile.
    fn fill_all(
        &self,
        order: &HoldPorts,
        candidates: &Candidates,
        wanted: u64,
        channel: &mut Channel,
    ) -> Result<(), LoadError> {
        let round = Round::default();
        let (told, ended) = UnixStream::pair().map_err(failed("socketpair"))?;
        let mut poller = Poller::new(2)?;
        poller.add(&*channel, CHANNEL, Interest::READ)?;
        poller.add(&told, THREADS_ENDED, Interest::READ)?;
        // The last thread that ends closes it, which ends the wait below.
        let ended = Arc::new(ended);
        std::thread::scope(|scope| {
            for _ in 0..THREADS.min(wanted) {
                let (ended, round) = (Arc::clone(&ended), &round);
                let work = move || {
                    self.fill(order, round, candidates, wanted);
                    drop(ended);
                };
                if let Err(error) = spawn(scope, work) {
                    self.stopped.store(true, Ordering::SeqCst);
                    return Err(SysError::new("clone", "a thread", error).into());
                }
            }
            drop(ended);
            let watched = self.watch(channel, &mut poller);
            if watched.is_err() {
                self.stopped.store(true, Ordering::SeqCst);
            }
            watched
        })
    }

    /// Waits until the threads have ended; a stop of the parent ends them.
    fn watch(&self, channel: &mut Channel, poller: &mut Poller) -> Result<(), LoadError> {
        loop {
            for event in poller.wait(None)? {
                if event.token == THREADS_ENDED {
                    return Ok(());
                }
                stop_requested(channel)?;
                self.stopped.store(true, Ordering::SeqCst);
            }
        }
    }

    fn fill(&self, order: &HoldPorts, round: &Round, candidates: &Candidates, wanted: u64) {
        while self.failures.load(Ordering::Relaxed) < FAILURES_MAX
            && !self.stopped.load(Ordering::SeqCst)
        {
            if round.begun.fetch_add(1, Ordering::SeqCst) >= wanted {
                return;
            }
            let next = round.next.fetch_add(1, Ordering::Relaxed);
            let Some(place) = candidates.0.get(next) else { return };
            match self.hold(order, *place) {
                Ok(()) => {
                    self.closed.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => {
                    let class = class_of_connecting(&error).to_owned();
                    *lock(&self.errors).entry(class).or_default() += 1;
                    self.failures.fetch_add(1, Ordering::Relaxed);
                    // Another port takes its place.
                    round.begun.fetch_sub(1, Ordering::SeqCst);
                }
            }
        }
    }

    /// Opens a connection from one port, and closes it first.
    fn hold(&self, order: &HoldPorts, (port, source): (u16, Option<IpAddr>)) -> io::Result<()> {
        let limit = Duration::from_nanos(order.timeout_ns);
        let socket = Blocking::client(order.target, &BlockingOptions::default(), limit)?;
        match source {
            Some(address) if !order.late_port => socket.bind_to(SocketAddr::new(address, port))?,
            _ => {
                self.allow_only(&socket, port)?;
                if let Some(address) = source {
                    socket.bind(address, true)?;
                }
            }
        }
        socket.connect(order.target)?;
        exchange(&socket)?;
        // The socket's end closes it.
        if order.close == CloseFirst::Server { to_end(&socket) } else { Ok(()) }
    }

    /// Has the socket take this port, where the kernel can.
    fn allow_only(&self, socket: &Blocking, port: u16) -> io::Result<()> {
        if self.kernel_chooses.load(Ordering::Relaxed) {
            return Ok(());
        }
        match socket.allow_only_port(port) {
            Err(error) if error.raw_os_error() == Some(errno::ENOPROTOOPT) => {
                self.kernel_chooses.store(true, Ordering::Relaxed);
                Ok(())
            }
            set => set,
        }
    }
}

/// This host's ends that are in TIME-WAIT, as soon as there are as many as expected and no connection
/// is being closed, or after a time.
fn settled(order: &HoldPorts) -> Result<Vec<SocketAddr>, SysError> {
    let deadline = monotonic_ns().saturating_add(SETTLED_NS);
    let mut diag = SockDiag::open()?;
    loop {
        let (mut held, mut under_way) = (Vec::new(), 0);
        diag.closed(End::Remote, order.target, |socket| match socket {
            Closed::UnderWay | Closed::HalfClosed { .. } => under_way += 1,
            Closed::TimeWait { other, .. } => held.push(other),
        })?;
        if under_way == 0 || monotonic_ns() >= deadline {
            return Ok(held);
        }
        // Not for luck: the question is asked again until it is answered or time is up.
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(sources: &[&str], late_port: bool) -> HoldPorts {
        HoldPorts {
            target: "10.0.0.2:1".parse().unwrap(),
            sources: sources.iter().map(|address| address.parse().unwrap()).collect(),
            range: (10, 14),
            count: 1,
            late_port,
            close: CloseFirst::Client,
            expected: 1,
            timeout_ns: 1,
        }
    }

    fn ports(order: &HoldPorts) -> Vec<u16> {
        Candidates::new(order).0.iter().map(|(port, _)| *port).collect()
    }

    #[test]
    fn ports_of_the_lowest_ports_parity_are_taken_first_as_connect_does() {
        assert_eq!(ports(&order(&[], true)), [10, 12, 14, 11, 13]);
        assert_eq!(ports(&order(&["10.0.0.1"], false)), [11, 13, 10, 12, 14], "as bind does");
    }

    #[test]
    fn each_port_is_taken_from_every_source_address_and_what_is_held_is_not_taken_again() {
        let two = order(&["10.0.0.1", "10.0.0.3"], true);
        assert_eq!(ports(&two), [10, 10, 12, 12, 14, 14, 11, 11, 13, 13]);
        let held: Vec<SocketAddr> =
            ["10.0.0.1:10", "10.0.0.3:12"].iter().map(|end| end.parse().unwrap()).collect();
        let free = |order: &HoldPorts| Candidates::new(order).without(&held).0;
        let of_two: Vec<_> = free(&two).iter().map(|(port, _)| *port).collect();
        assert_eq!(of_two, [10, 12, 14, 14, 11, 11, 13, 13]);
        assert_eq!(free(&two)[0].1.unwrap().to_string(), "10.0.0.3");
        let any: Vec<_> = free(&order(&[], true)).iter().map(|(port, _)| *port).collect();
        assert_eq!(any, [14, 11, 13]);
    }
}
