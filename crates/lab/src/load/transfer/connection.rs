//! One connection of a transfer: its handshake, its turns to write and read, its end.

use std::io;
use std::net::{IpAddr, SocketAddr};

use tcptoll_core::tcp::tcp_info::{TcpInfo, TcpState};
use tcptoll_kernel::epoll::{Event, Interest};
use tcptoll_kernel::socket::{Begun, Tcp};

use super::sending::{Composer, Outgoing, work};
use super::{ACCEPT_NS, DRAIN, HANDSHAKE, LOOK_BYTES, LOOK_CALLS, Load, got, prepare};
use crate::clock::monotonic_ns;
use crate::load::class_of;
use crate::load::driver::Sources;

/// Why a connection is an error: its class, and the kernel's words.
pub(super) type Failure = (&'static str, io::Error);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The handshake is on its way.
    Connecting,
    /// Data may flow.
    Open,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) tcp: Tcp,
    pub(super) state: State,
    /// What it sends. None: nothing.
    pub(super) out: Option<Outgoing>,
    writable: bool,
    readable: bool,
    /// The peer's FIN has come, or an error: reading goes on until it is seen.
    finished: bool,
    /// It is in the queue of those with something to do.
    queued: bool,
    /// Writing is shut down: everything has been given to the kernel.
    pub(super) shut: bool,
    /// The peer's end has been read.
    eof: bool,
    pub(super) received: u64,
    /// Bytes received when the window began.
    pub(super) window_from: u64,
    /// When bytes were read last, ns.
    pub(super) read_ns: u64,
}

/// What a connection does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// It has more to do.
    Again,
    /// An event will tell.
    Wait,
    /// The rate will tell.
    Paced,
    /// All is done.
    Ended,
}

impl Load<'_> {
    /// Begins all connections.
    pub(super) fn connect(&mut self, target: SocketAddr, connections: u32, bind: &[IpAddr]) {
        let sources = Sources::new(bind, None, false);
        let address = target.into();
        self.begun_ns = Some(monotonic_ns());
        for number in 0..connections {
            self.report.attempts += 1;
            let made = Tcp::client(target, sources.options(u64::from(number))).and_then(|tcp| {
                prepare(&tcp, &self.flow.sockets)?;
                let begun = tcp.connect(&address)?;
                Ok((tcp, begun))
            });
            match made {
                Ok((tcp, begun)) => {
                    let Some(slot) = self.take_in(tcp) else { continue };
                    self.connecting += 1;
                    let until_ns = monotonic_ns().saturating_add(self.connect_timeout_ns);
                    self.deadlines.begin(HANDSHAKE, slot, until_ns);
                    if begun == Begun::Done {
                        self.established(slot);
                    }
                }
                Err(error) => self.count_error(class_of(&error), &error),
            }
        }
        self.go_on_if_decided();
    }

    /// Takes the connections that wait in the queue.
    pub(super) fn accept(&mut self) {
        self.accept_ns = None;
        while let Some(listener) = &self.listener {
            match listener.accept() {
                Ok(Some((tcp, _))) => {
                    self.accept_failed = false;
                    self.report.attempts += 1;
                    self.begun_ns.get_or_insert_with(monotonic_ns);
                    if let Some(slot) = self.take_in(tcp) {
                        self.connecting += 1;
                        self.established(slot);
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    // Out of files: the connection still waits, and is counted once.
                    if !std::mem::replace(&mut self.accept_failed, true) {
                        self.report.attempts += 1;
                        self.count_error(class_of(&error), &error);
                    }
                    self.accept_ns = Some(self.now_ns + ACCEPT_NS);
                    return;
                }
            }
        }
    }

    /// Gives a connection its number. None: the poller refused it.
    fn take_in(&mut self, tcp: Tcp) -> Option<u32> {
        let limit = self.flow.send.as_ref().map(|sending| sending.bytes);
        let connection = Connection {
            tcp,
            state: State::Connecting,
            out: limit.map(|limit| Outgoing { bytes: 0, limit }),
            writable: false,
            readable: false,
            finished: false,
            queued: false,
            shut: false,
            eof: false,
            received: 0,
            window_from: 0,
            read_ns: 0,
        };
        let slot = u64::from(self.slots.vacant());
        if let Err(error) = self.poller.add(&connection.tcp, slot, Interest::STREAM) {
            self.count_error(class_of(&error.source), &error.source);
            return None;
        }
        // Silence counts from now on at the earliest.
        self.moved_ns = self.moved_ns.max(self.now_ns);
        Some(self.slots.put(connection))
    }

    /// Data may flow.
    fn established(&mut self, slot: u32) {
        self.connecting -= 1;
        self.deadlines.end(slot);
        let Some(connection) = self.slots.get_mut(slot) else { return };
        connection.state = State::Open;
        connection.writable = true;
        if self.first.is_none() {
            self.first = Some(slot);
            self.report.sockets = got(&connection.tcp).unwrap_or_default();
        }
        if let Some(composer) = &self.composer {
            match composer.begin(&connection.tcp) {
                Ok(calls) => self.sent.count.calls += calls,
                Err(error) => return self.fail(slot, (class_of(&error), error)),
            }
        }
        self.go_on_if_decided();
        self.queue(slot);
    }

    /// Data flows once all handshakes are decided.
    pub(super) fn go_on_if_decided(&mut self) {
        if self.connecting == 0 && !self.going {
            self.going = true;
            self.queue_all();
        }
    }

    /// Gives a connection a turn.
    fn queue(&mut self, slot: u32) {
        let Some(connection) = self.slots.get_mut(slot) else { return };
        if self.going && connection.state == State::Open && !connection.queued {
            connection.queued = true;
            self.ready.push_back(slot);
        }
    }

    /// Gives every connection a turn.
    pub(super) fn queue_all(&mut self) {
        for slot in self.slots.numbers() {
            self.queue(slot);
        }
    }

    /// Something happened to a connection.
    pub(super) fn happened(&mut self, slot: u32, event: Event) {
        let Some(connection) = self.slots.get_mut(slot) else { return };
        if connection.state == State::Connecting {
            match connection.tcp.take_error() {
                Ok(None) if event.writable && !event.broken => self.established(slot),
                Ok(None) if !event.broken => return,
                Ok(None) => {
                    let error = io::ErrorKind::ConnectionReset.into();
                    return self.fail(slot, ("reset", error));
                }
                Ok(Some(error)) | Err(error) => {
                    return self.fail(slot, (class_of(&error), error));
                }
            }
        }
        // The same event may tell of data too, and will not come again.
        let Some(connection) = self.slots.get_mut(slot) else { return };
        let ends = event.finished || event.broken;
        connection.writable |= event.writable;
        connection.readable |= event.readable || ends;
        connection.finished |= ends;
        self.queue(slot);
    }

    /// A connection's turn.
    pub(super) fn serve_one(&mut self, slot: u32) {
        let Some(connection) = self.slots.get_mut(slot) else { return };
        connection.queued = false;
        match self.advance(slot) {
            Ok(Next::Again) => self.queue(slot),
            Ok(Next::Wait) => {}
            Ok(Next::Paced) => self.paced.push(slot),
            Ok(Next::Ended) => self.end(slot),
            Err(failure) => self.fail(slot, failure),
        }
    }

    fn advance(&mut self, slot: u32) -> Result<Next, Failure> {
        let failed = |error: io::Error| (class_of(&error), error);
        let written = self.write(slot).map_err(failed)?;
        let read = self.read(slot)?;
        let Some(connection) = self.slots.get(slot) else { return Ok(Next::Wait) };
        if connection.eof && connection.has_ended(self.flow.receive.is_some())? {
            return Ok(Next::Ended);
        }
        if read == Next::Again { Ok(read) } else { Ok(written) }
    }

    /// Writes for a while.
    fn write(&mut self, slot: u32) -> io::Result<Next> {
        let Some(composer) = &mut self.composer else { return Ok(Next::Wait) };
        let Some(connection) = self.slots.get_mut(slot) else { return Ok(Next::Wait) };
        let Some(out) = connection.out.as_mut().filter(|_| !connection.shut) else {
            return Ok(Next::Wait);
        };
        let rate = self.flow.send.as_ref().and_then(|sending| sending.rate_bytes_per_s);
        let (mut bytes, mut calls) = (0, 0);
        let next = loop {
            if Composer::is_done(out) || (self.time_is_up && composer.is_between(out)) {
                connection.shut = true;
                connection.tcp.shutdown_write()?;
                let until_ns = monotonic_ns().saturating_add(self.flow.drain_ns);
                self.deadlines.begin(DRAIN, slot, until_ns);
                break Next::Wait;
            }
            if !connection.writable {
                break Next::Wait;
            }
            if bytes >= LOOK_BYTES || calls >= LOOK_CALLS {
                break Next::Again;
            }
            let fresh = composer.is_fresh(out);
            if fresh && let Some(rate) = rate {
                let from_ns = *self.pace_from_ns.get_or_insert(self.now_ns);
                let due_ns = due_ns(from_ns, self.pace_bytes, rate);
                if due_ns > self.now_ns {
                    self.now_ns = monotonic_ns();
                    if due_ns > self.now_ns {
                        break Next::Paced;
                    }
                }
            }
            let step = composer.write(out, &connection.tcp)?;
            if fresh && step.bytes > 0 {
                self.pace_bytes += composer.unit_bytes();
            }
            connection.writable = !step.full;
            bytes += step.bytes;
            calls += step.calls;
            let count = &mut self.sent.count;
            count.bytes += step.bytes;
            count.messages += step.messages;
            count.calls += step.calls;
        };
        if calls > 0 {
            self.look();
        }
        Ok(next)
    }

    /// When the next message may begin, by the rate, ns.
    pub(super) fn pace_ns(&self) -> u64 {
        let rate = self.flow.send.as_ref().and_then(|sending| sending.rate_bytes_per_s);
        rate.map_or(0, |rate| due_ns(self.pace_from_ns.unwrap_or(0), self.pace_bytes, rate))
    }

    /// Reads for a while.
    fn read(&mut self, slot: u32) -> Result<Next, Failure> {
        let Some(connection) = self.slots.get_mut(slot) else { return Ok(Next::Wait) };
        let receiving = self.flow.receive.as_ref();
        let discards = receiving.is_some_and(|receiving| receiving.discard);
        let (mut bytes, mut calls) = (0, 0);
        while connection.readable && !connection.eof && bytes < LOOK_BYTES && calls < LOOK_CALLS {
            if self.flow.sockets.quick_ack {
                let _ = connection.tcp.set_quick_ack();
                calls += 1;
            }
            calls += 1;
            let read = if discards {
                connection.tcp.discard(self.read_bytes)
            } else {
                connection.tcp.read(&mut self.buffer[..self.read_bytes])
            };
            let read = read.map_err(|error| (class_of(&error), error))?;
            let Some(length) = read else {
                connection.readable = false;
                break;
            };
            connection.eof = length == 0;
            // Nothing was left, so the next byte is an event; but not an end that has come already.
            connection.readable = length == self.read_bytes || connection.finished;
            let Some(receiving) = receiving else {
                if length > 0 {
                    let error = io::Error::other("the peer sent data that was not expected");
                    return Err(("other", error));
                }
                continue;
            };
            let length = length as u64;
            let message = u64::from(receiving.message_bytes.max(1));
            let before = connection.received / message;
            connection.received += length;
            bytes += length;
            if receiving.work_ns > 0 {
                work(receiving.work_ns.saturating_mul(connection.received / message - before));
            }
        }
        if calls == 0 {
            return Ok(Next::Wait);
        }
        let again = connection.readable && !connection.eof;
        if receiving.is_some() {
            self.received.count.bytes += bytes;
            self.received.count.calls += calls;
        }
        self.look();
        if bytes > 0
            && let Some(connection) = self.slots.get_mut(slot)
        {
            connection.read_ns = self.now_ns;
        }
        Ok(if again { Next::Again } else { Next::Wait })
    }
}

/// When a message may begin after so many bytes, ns.
fn due_ns(from_ns: u64, bytes: u64, rate_bytes_per_s: f64) -> u64 {
    from_ns.saturating_add((bytes as f64 / rate_bytes_per_s * 1e9) as u64)
}

impl Connection {
    /// Whether nothing more is to come, after the peer's end has been read.
    ///
    /// Errors: the peer ended while it had still to receive.
    fn has_ended(&self, receives: bool) -> Result<bool, Failure> {
        if self.out.is_none() {
            return Ok(true);
        }
        if !self.shut {
            if receives {
                return Ok(false);
            }
            let error = io::Error::other("the peer closed before all data had been sent");
            return Err(("truncated", error));
        }
        if let Ok(Some(error)) = self.tcp.take_error() {
            return Err((class_of(&error), error));
        }
        Ok(self.all_is_acknowledged())
    }

    /// Whether the peer's kernel has acknowledged every byte, and the FIN.
    fn all_is_acknowledged(&self) -> bool {
        let Ok(bytes) = self.tcp.tcp_info() else { return false };
        let Some(TcpInfo::Connection(info)) = TcpInfo::decode(&bytes) else { return false };
        match info.state {
            TcpState::Closed | TcpState::TimeWait | TcpState::FinWait2 => true,
            _ => info.unacked_segments == 0 && info.notsent_bytes == Some(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_due_when_those_before_it_have_had_their_time() {
        assert_eq!(due_ns(7, 0, 1_000.0), 7);
        assert_eq!(due_ns(7, 500, 1_000.0), 500_000_007);
    }
}
