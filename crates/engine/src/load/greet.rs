//! The in-house server: greets each connection with one byte, and closes once the client has.
//!
//! It exists to be cheap and to be seen through. It works for a given time before each `accept(2)`
//! if asked to, which is how a busy server looks from the accept queue.

use tcptoll_kernel::cpu::thread_time;
use tcptoll_kernel::epoll::{Interest, Poller};
use tcptoll_kernel::socket::Tcp;
use tcptoll_model::handshake::{Peer, ServerRow};

use super::control::{CHANNEL, stop_requested};
use super::slots::Slots;
use super::{LoadError, pair, until};
use crate::channel::Channel;
use crate::clock::{monotonic_ns, wait_until};
use crate::messages::{Greet, GreetReport};

const LISTENER: u64 = u64::MAX - 1;

/// Below this a sleeping thread would wake too late, so the server works by spinning.
const SPIN_NS: u64 = 1_000_000;

/// Serves until the parent says stop.
pub fn run(
    greet: &Greet,
    channel: &mut Channel,
) -> Result<(GreetReport, Vec<ServerRow>), LoadError> {
    let listener = Tcp::listener(greet.at, greet.backlog, greet.fast_open)?;
    let at = listener
        .local()
        .map_err(|error| tcptoll_kernel::SysError::new("getsockname", "the listener", error))?;
    let mut poller = Poller::new(512)?;
    poller.add(&*channel, CHANNEL, Interest::READ)?;
    poller.add(&listener, LISTENER, Interest::READ_EDGE)?;
    let mut server = Greeter {
        greet,
        slots: Slots::new(),
        report: GreetReport::default(),
        rows: Vec::new(),
        failures: 0,
    };
    channel.started::<Greet>(&at)?;
    let cpu_before = thread_time();
    let mut waiting = false;
    let mut accept_at = 0;
    loop {
        let timeout = waiting.then(|| until(accept_at));
        for event in poller.wait(timeout)? {
            match event.token {
                CHANNEL => {
                    stop_requested(channel)?;
                    server.report.cpu_us = pair(thread_time().since(cpu_before));
                    return Ok((server.report, server.rows));
                }
                LISTENER if !waiting => {
                    waiting = true;
                    accept_at = monotonic_ns() + greet.accept_delay_ns;
                }
                LISTENER => {}
                slot => server.close_if_done(slot as u32),
            }
        }
        if greet.accept_delay_ns > 0 && greet.accept_delay_ns < SPIN_NS && waiting {
            wait_until(accept_at);
        }
        while waiting && monotonic_ns() >= accept_at {
            let errors = server.failures;
            waiting = server.accept(&listener, &poller);
            if server.failures > errors {
                // Out of files, say: the connection still waits, and no edge will tell of it again.
                waiting = true;
                accept_at = monotonic_ns() + SPIN_NS;
                break;
            }
            if greet.accept_delay_ns > 0 {
                accept_at = monotonic_ns() + greet.accept_delay_ns;
                break;
            }
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
