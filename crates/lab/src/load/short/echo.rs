//! The server of short connections: it answers each byte with one byte.
//!
//! It is cheap, and keeps no state of a connection but the socket. It closes once the client has, or
//! first, after its first answer. Nothing of it is measured but its CPU time.

use std::io;

use tcptoll_kernel::SysError;
use tcptoll_kernel::cpu::thread_time;
use tcptoll_kernel::epoll::{Interest, Poller};
use tcptoll_kernel::socket::Tcp;

use crate::channel::Channel;
use crate::load::control::{CHANNEL, stop_requested};
use crate::load::slots::Slots;
use crate::load::{LoadError, pair, sockets_max};
use crate::messages::{Echo, EchoReport};

/// The number under which the poller knows the listener.
const LISTENER: u64 = CHANNEL - 1;

/// Serves until the parent says stop.
pub fn run(echo: &Echo, channel: &mut Channel) -> Result<EchoReport, LoadError> {
    sockets_max().map_err(|error| SysError::new("getrlimit", "RLIMIT_NOFILE", error))?;
    let listener = Tcp::listener(echo.at, echo.backlog, false)?;
    let at = listener.local().map_err(|e| SysError::new("getsockname", "the listener", e))?;
    let mut poller = Poller::new(512)?;
    poller.add(&*channel, CHANNEL, Interest::READ)?;
    // Level-triggered: what cannot be accepted for want of files is tried again.
    poller.add(&listener, LISTENER, Interest::READ)?;
    let mut server =
        Server { closes: echo.closes, slots: Slots::new(), report: EchoReport::default() };
    channel.started::<Echo>(&at)?;
    let cpu_before = thread_time();
    loop {
        for event in poller.wait(None)? {
            match event.token {
                CHANNEL => {
                    stop_requested(channel)?;
                    server.report.cpu_us = pair(thread_time().since(cpu_before));
                    return Ok(server.report);
                }
                LISTENER => server.accept(&listener, &poller),
                slot => server.answer(slot as u32),
            }
        }
    }
}

struct Server {
    closes: bool,
    slots: Slots<Tcp>,
    report: EchoReport,
}

impl Server {
    /// Accepts all connections that wait.
    fn accept(&mut self, listener: &Tcp, poller: &Poller) {
        loop {
            match listener.accept() {
                Ok(Some((socket, _))) => {
                    self.report.accepted += 1;
                    let slot = u64::from(self.slots.vacant());
                    match poller.add(&socket, slot, Interest::READ) {
                        Ok(()) => {
                            self.slots.put(socket);
                        }
                        Err(_) => self.failed("epoll"),
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    self.failed(&format!("{:?}", error.kind()));
                    return;
                }
            }
        }
    }

    /// Answers what has come, and closes what is to be closed.
    fn answer(&mut self, slot: u32) {
        let Some(socket) = self.slots.get(slot) else { return };
        let mut buffer = [0; 256];
        let ended = match socket.read(&mut buffer) {
            Ok(None) => false,
            Ok(Some(0)) => true,
            Ok(Some(length)) => match written(socket, &buffer[..length]) {
                Ok(()) => {
                    self.report.answered += length as u64;
                    self.closes
                }
                Err(error) => {
                    self.failed(&format!("{:?}", error.kind()));
                    true
                }
            },
            Err(error) => {
                self.failed(&format!("{:?}", error.kind()));
                true
            }
        };
        if ended {
            drop(self.slots.take(slot));
        }
    }

    fn failed(&mut self, kind: &str) {
        *self.report.errors.entry(kind.to_owned()).or_default() += 1;
    }
}

/// Writes all of an answer. A few bytes always fit the send buffer of a peer that waits for them.
fn written(socket: &Tcp, bytes: &[u8]) -> io::Result<()> {
    match socket.write(bytes)? {
        Some(length) if length == bytes.len() => Ok(()),
        _ => Err(io::ErrorKind::WouldBlock.into()),
    }
}
