//! The in-house server: greets each connection with one byte, and closes once the client has.
//!
//! It exists to be cheap and to be seen through. It works for a given time before each `accept(2)`
//! if asked to, which is how a busy server looks from the accept queue.

use std::net::SocketAddr;

use tcptoll_core::tcp::handshake::{Peer, ServerRow};
use tcptoll_kernel::cpu::thread_time;
use tcptoll_kernel::epoll::{Interest, Poller};
use tcptoll_kernel::socket::Tcp;

use super::control::{CHANNEL, stop_requested};
use super::slots::Slots;
use super::{LoadError, pair, until};
use crate::channel::Channel;
use crate::clock::{monotonic_ns, wait_until};
use crate::messages::{Greet, GreetReport, Listening};

/// Token of the first listener; the others follow below it.
const LISTENER: u64 = u64::MAX - 1;

/// Listeners, at most.
pub const LISTENERS_MAX: u8 = 8;

/// Below this a sleeping thread would wake too late, so the server works by spinning.
const SPIN_NS: u64 = 1_000_000;

/// Connections taken from one listener before the others are looked at.
const ACCEPTS: u32 = 64;

/// A listener, and when the next connection may be taken from it.
struct Door {
    listener: Tcp,
    delay_ns: u64,
    /// Whether a connection may wait.
    waiting: bool,
    accept_at: u64,
    /// When a connection was last taken, if the queue was not seen empty since.
    taken_at: Option<u64>,
    /// Times between two connections that were taken one after the other: number, sum, ns.
    intervals: (u64, u64),
}

impl Door {
    fn open(at: SocketAddr, greet: &Greet, delay_ns: u64) -> Result<Self, LoadError> {
        let listener = Tcp::listener(at, greet.backlog, greet.fast_open)?;
        Ok(Self {
            listener,
            delay_ns,
            waiting: false,
            accept_at: 0,
            taken_at: None,
            intervals: (0, 0),
        })
    }

    /// Notes when a connection was taken, or that none was there.
    fn note(&mut self) {
        let now = monotonic_ns();
        if !self.waiting {
            self.taken_at = None;
        } else if let Some(before) = self.taken_at.replace(now) {
            self.intervals.0 += 1;
            self.intervals.1 += now - before;
        }
    }

    fn local(&self) -> Result<SocketAddr, LoadError> {
        let failed = |error| tcptoll_kernel::SysError::new("getsockname", "the listener", error);
        Ok(self.listener.local().map_err(failed)?)
    }

    /// Takes what may be taken now: one connection after each delay, or some.
    fn serve(&mut self, server: &mut Greeter<'_>, poller: &Poller) {
        if self.delay_ns > 0 && self.delay_ns < SPIN_NS && self.waiting {
            wait_until(self.accept_at);
        }
        for _ in 0..ACCEPTS {
            if !self.waiting || monotonic_ns() < self.accept_at {
                return;
            }
            let errors = server.failures;
            self.waiting = server.accept(&self.listener, poller);
            if server.failures > errors {
                // Out of files, say: the connection still waits, and no edge will tell of it again.
                self.waiting = true;
                self.accept_at = monotonic_ns() + SPIN_NS;
                return;
            }
            self.note();
            if self.delay_ns > 0 {
                self.accept_at = monotonic_ns() + self.delay_ns;
                return;
            }
        }
    }
}

/// Serves until the parent says stop. `at_end` is called once more while the listeners are there.
pub fn run(
    greet: &Greet,
    channel: &mut Channel,
    at_end: impl FnOnce(),
) -> Result<(GreetReport, Vec<ServerRow>), LoadError> {
    let mut doors = vec![Door::open(greet.at, greet, greet.accept_delay_ns)?];
    for _ in 0..greet.further.min(LISTENERS_MAX - 1) {
        doors.push(Door::open(SocketAddr::new(greet.at.ip(), 0), greet, 0)?);
    }
    let mut poller = Poller::new(512)?;
    poller.add(&*channel, CHANNEL, Interest::READ)?;
    for (number, door) in (0..).zip(&doors) {
        poller.add(&door.listener, LISTENER - number, Interest::READ_EDGE)?;
    }
    let mut server = Greeter {
        greet,
        slots: Slots::new(),
        report: GreetReport::default(),
        rows: Vec::new(),
        failures: 0,
    };
    let at = doors.iter().map(Door::local).collect::<Result<Vec<_>, _>>()?;
    channel.started::<Greet>(&match at[..] {
        [one] => Listening::One(one),
        _ => Listening::Several(at),
    })?;
    let cpu_before = thread_time();
    loop {
        let due = doors.iter().filter(|door| door.waiting).map(|door| door.accept_at).min();
        for event in poller.wait(due.map(until))? {
            match event.token {
                CHANNEL => {
                    stop_requested(channel)?;
                    at_end();
                    server.report.accept_intervals = doors[0].intervals;
                    server.report.cpu_us = pair(thread_time().since(cpu_before));
                    return Ok((server.report, server.rows));
                }
                token => match doors.get_mut((LISTENER - token.min(LISTENER)) as usize) {
                    Some(door) if !door.waiting => {
                        door.waiting = true;
                        door.accept_at = monotonic_ns() + door.delay_ns;
                    }
                    Some(_) => {}
                    None => server.close_if_done(token as u32),
                },
            }
        }
        // Those without a delay first: the others may spin.
        for door in doors.iter_mut().rev() {
            door.serve(&mut server, &poller);
        }
    }
}

struct Greeter<'a> {
    greet: &'a Greet,
    slots: Slots<Tcp>,
    report: GreetReport,
    rows: Vec<ServerRow>,
    failures: u64,
}

impl Greeter<'_> {
    /// Takes one connection; false when the queue was empty.
    fn accept(&mut self, listener: &Tcp, poller: &Poller) -> bool {
        let (socket, peer) = match listener.accept() {
            Ok(Some(accepted)) => accepted,
            Ok(None) => return false,
            Err(error) => {
                // Out of files, or a connection reset before it was taken: the server goes on.
                self.failures += 1;
                *self.report.errors.entry(format!("{:?}", error.kind())).or_default() += 1;
                return false;
            }
        };
        let accepted = monotonic_ns();
        self.report.accepted += 1;
        if self.rows.len() < self.greet.trace_limit {
            let client = Peer { ip: peer.ip(), port: peer.port() };
            self.rows.push(ServerRow { client, accepted });
        }
        let greeted =
            !self.greet.speak || socket.write(b"h").is_ok_and(|written| written.is_some());
        let slot = u64::from(self.slots.vacant());
        if greeted && poller.add(&socket, slot, Interest::READ).is_ok() {
            self.slots.put(socket);
        }
        true
    }

    fn close_if_done(&mut self, slot: u32) {
        let Some(socket) = self.slots.get(slot) else { return };
        let mut buffer = [0; 256];
        if !matches!(socket.read(&mut buffer), Ok(None | Some(1..))) {
            drop(self.slots.take(slot));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{Ipv4Addr, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::messages::{Reply, Request};

    #[test]
    fn further_listeners_greet_while_the_first_is_slow_to_accept() {
        let greet = Greet {
            at: (Ipv4Addr::LOCALHOST, 0).into(),
            backlog: 8,
            accept_delay_ns: 3_600_000_000_000,
            speak: true,
            fast_open: false,
            trace_limit: 0,
            further: 2,
        };
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut parent, mut channel) = (Channel::new(ours), Channel::new(theirs));
        let server = thread::spawn(move || run(&greet, &mut channel, || {}).unwrap());
        let started: Reply<(), Listening> = parent.receive(None).unwrap();
        let Reply::Started(listening) = started else { panic!("{started:?}") };
        let all = listening.all();
        assert_eq!(all.len(), 3);
        let waiting = TcpStream::connect(all[0]).unwrap();
        for at in &all[1..] {
            let mut greeted = TcpStream::connect(at).unwrap();
            greeted.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
            assert_eq!(greeted.read(&mut [0; 4]).unwrap(), 1);
        }
        parent.send(&Request::<()>::Stop).unwrap();
        let (report, _) = server.join().unwrap();
        assert_eq!((report.accepted, report.accept_intervals), (2, (0, 0)));
        drop(waiting);
    }
}
