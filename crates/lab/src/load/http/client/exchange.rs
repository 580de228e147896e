//! What happens to a request and its connection, event by event.

use std::io;

use tcptoll_core::http::response::{Fault, Progress};
use tcptoll_core::http::reuse::Reuse;

use super::{Client, queue};
use crate::clock::monotonic_ns;
use crate::load::class_of;
use crate::load::driver::{Driver, Event, What};
use crate::load::http::State;
use crate::load::slots::is_too_late;

/// A server that was asked to close does so within this, or has ignored it, ns.
const CLOSE_NS: u64 = 500_000_000;

/// After so many that were ignored nobody waits for a server any more that does not say it closes.
const IGNORED_MAX: u64 = 3;

/// What came with the end of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// Nothing.
    Plain,
    /// The end of the connection.
    Closed,
    /// Bytes that no request has asked for.
    Unasked,
}

/// Whether these bytes behind a response say anything: empty lines do not (RFC 9112, section 2.2).
fn is_unasked(bytes: &[u8]) -> bool {
    bytes.iter().any(|byte| !b"\r\n".contains(byte))
}

impl<D: Driver> Client<'_, D> {
    pub(super) fn handle(&mut self, Event { slot, what }: Event) {
        match what {
            What::Connected { outcome: Ok(()), at_ns } => self.connected(slot, at_ns),
            What::Connected { outcome: Err(error), .. } => {
                self.fail(slot, class_of(&error), &error.to_string(), true);
            }
            What::Received { at_ns } => self.received(slot, at_ns),
            What::Closed { at_ns } => self.closed(slot, at_ns),
            What::Room => {
                self.slots[slot as usize].leaving = false;
                self.flush(slot);
            }
            What::Failed(error) => self.failed(slot, &error),
        }
    }

    fn connected(&mut self, slot: u32, at_ns: u64) {
        self.phases.end(slot);
        let left_ns = self.driver.left(slot).map_or(0, |left| left.likely_ns);
        let it = &mut self.slots[slot as usize];
        it.opened_ns = at_ns;
        it.called_ns = it.called_ns.max(left_ns);
        if self.load.rate_per_s.is_none() {
            it.due_ns = it.due_ns.max(left_ns);
        }
        let called_ns = it.called_ns;
        let measured = it.measured;
        self.established += 1;
        self.tally.report.connections.1 += 1;
        self.handshakes.took(at_ns.saturating_sub(called_ns));
        if self.pace.measures(at_ns) {
            self.tally.connects(self.pace.window_has(at_ns));
        }
        if measured {
            self.tally.report.measured_connections.1 += 1;
            if let Some(took_ns) = self.tally.span(called_ns, at_ns) {
                self.tally.connect.record_ns(took_ns);
            }
        }
        let it = &mut self.slots[slot as usize];
        let Some(tls) = &self.shared.tls else {
            // Made, and not asked anything yet.
            it.state = State::Handshaking;
            return self.ready(slot);
        };
        match tls.session() {
            Ok(session) => {
                it.tls = Some(Box::new(session));
                it.state = State::Handshaking;
                self.flush(slot);
            }
            Err(error) => self.fail(slot, "tls", &error.to_string(), true),
        }
    }

    /// A connection is made, with TLS where it is spoken: it takes the request that it was opened
    /// for, or rests if that one is over.
    fn ready(&mut self, slot: u32) {
        let it = &self.slots[slot as usize];
        let now = monotonic_ns();
        if it.busy && self.load.rate_per_s.is_some() {
            let age_ns = now.saturating_sub(it.due_ns);
            if is_too_late(age_ns, self.responses.expected_ns(), self.load.timeout_ns) {
                self.uncounted(slot, "unsent", "no connection was free in time");
            }
        }
        if self.slots[slot as usize].busy { self.ask(slot, now) } else { self.rest(slot) }
    }

    /// Sends the request over a connection that is open.
    pub(super) fn ask(&mut self, slot: u32, now: u64) {
        let it = &mut self.slots[slot as usize];
        let request = &self.shared.requests[it.request as usize];
        (it.state, it.in_parts) = (State::Asking, false);
        (it.written, it.body_bytes, it.first_ns, it.sent_ns) = (0, 0, 0, now);
        it.reader.begin(request.to_head);
        if self.shared.digest.is_some() {
            let context = ring::digest::Context::new(&ring::digest::SHA256);
            it.digest = Some(Box::new(context));
        }
        if let Some(tls) = &mut it.tls {
            tls.put(&request.bytes);
            it.written = request.bytes.len() as u32;
        }
        self.flush(slot);
    }

    /// Sends what is to leave, as far as there is room.
    fn flush(&mut self, slot: u32) {
        let shared = self.shared;
        loop {
            let it = &mut self.slots[slot as usize];
            if it.leaving {
                return;
            }
            let bytes = match &mut it.tls {
                Some(tls) => tls.pending(),
                None if it.state == State::Asking => {
                    &shared.requests[it.request as usize].bytes[it.written as usize..]
                }
                None => &[],
            };
            if bytes.is_empty() {
                return;
            }
            let length = bytes.len();
            match self.driver.send(slot, bytes) {
                Ok(sent) => {
                    match &mut it.tls {
                        Some(tls) => tls.left(sent),
                        None => it.written += sent as u32,
                    }
                    if sent < length {
                        (it.leaving, it.in_parts) = (true, true);
                        return self.driver.tell_of_room(slot);
                    }
                    if it.tls.is_none() {
                        return;
                    }
                }
                Err(error) => return self.failed(slot, &error),
            }
        }
    }

    fn received(&mut self, slot: u32, at_ns: u64) {
        if self.slots[slot as usize].tls.is_none() {
            return self.content(slot, at_ns, None);
        }
        let mut plain = std::mem::take(&mut self.plain);
        plain.clear();
        let it = &mut self.slots[slot as usize];
        let Some(tls) = &mut it.tls else { return };
        match tls.take(self.driver.bytes(), &mut plain) {
            Ok(ended) => {
                let done = it.state == State::Handshaking && !tls.is_handshaking();
                if done {
                    self.shaken(slot, at_ns);
                } else {
                    self.flush(slot);
                }
                let opened_ns = self.slots[slot as usize].opened_ns;
                if !plain.is_empty() {
                    self.content(slot, at_ns, Some(&plain));
                }
                // The response may have ended this connection and begun the slot's next one, which
                // nobody has closed.
                let it = &self.slots[slot as usize];
                if ended && it.state != State::Connecting && it.opened_ns == opened_ns {
                    self.closed(slot, at_ns);
                }
            }
            Err(error) => {
                // The peer is told why.
                self.flush(slot);
                self.fail(slot, "tls", &error.to_string(), true);
            }
        }
        self.plain = plain;
    }

    /// TLS's handshake is done.
    fn shaken(&mut self, slot: u32, at_ns: u64) {
        let it = &mut self.slots[slot as usize];
        let Some(tls) = &it.tls else { return };
        let resumed = u64::from(tls.resumed());
        match &mut self.tally.report.tls {
            Some((_, count)) => *count += resumed,
            none => *none = Some((tls.words(), resumed)),
        }
        if it.measured {
            let opened_ns = it.opened_ns;
            if let Some(took_ns) = self.tally.span(opened_ns, at_ns) {
                self.tally.tls.record_ns(took_ns);
            }
        }
        self.ready(slot);
    }

    /// Bytes of a response: what the driver has, or what TLS made of that.
    fn content(&mut self, slot: u32, at_ns: u64, plain: Option<&[u8]>) {
        let it = &mut self.slots[slot as usize];
        let bytes = plain.unwrap_or_else(|| self.driver.bytes());
        match it.state {
            State::Asking => {}
            State::Resting | State::Closing => return self.unasked(slot, plain),
            _ => return,
        }
        if it.first_ns == 0 {
            it.first_ns = at_ns;
            let asked_ns = it.sent_ns;
            // The driver knows when the last part left; an answer may come after the first.
            let left = self.driver.left(slot).filter(|_| !it.in_parts);
            let earliest_ns = left.map_or(asked_ns, |left| left.earliest_ns.max(asked_ns));
            if at_ns < earliest_ns {
                let fault = Fault::Malformed(
                    "the response came before its request was sent (RFC 9112, section 9.2)",
                );
                return self.fail(slot, fault.class(), &fault.to_string(), true);
            }
            // Where it was not yet gone when the answer came, it went earlier than is likely.
            let likely_ns = left.map_or(asked_ns, |left| left.likely_ns.max(asked_ns));
            let left_ns = if likely_ns > at_ns { earliest_ns } else { likely_ns };
            // What waited in the client's own queue is the client's delay, not the request's.
            if self.load.rate_per_s.is_none() && it.due_ns == it.sent_ns {
                it.due_ns = left_ns;
            }
            it.sent_ns = left_ns;
        }
        let (body, digest) = (&mut it.body_bytes, &mut it.digest);
        let fed = it.reader.feed(bytes, &self.limits, &mut |content: &[u8]| {
            *body += content.len() as u64;
            if let Some(digest) = digest {
                digest.update(content);
            }
        });
        match fed {
            Ok(Progress::More) => {}
            Ok(Progress::Done { taken }) => {
                let ending =
                    if is_unasked(&bytes[taken..]) { Ending::Unasked } else { Ending::Plain };
                self.whole(slot, at_ns, ending);
            }
            Err(fault) => self.fail(slot, fault.class(), &fault.to_string(), true),
        }
    }

    /// The peer has closed.
    fn closed(&mut self, slot: u32, at_ns: u64) {
        let it = &mut self.slots[slot as usize];
        match it.state {
            State::Asking if it.reader.has_begun() => match it.reader.end() {
                Ok(()) => self.whole(slot, at_ns, Ending::Closed),
                Err(fault) => self.fail(slot, fault.class(), &fault.to_string(), false),
            },
            State::Asking if it.raced(at_ns) => {
                self.fail(slot, "close-race", "the server closed as the request left", false);
            }
            State::Asking => self.fail(slot, "truncated", "closed without a response", false),
            State::Handshaking => self.fail(slot, "tls", "closed in the handshake", false),
            State::Connecting => self.fail(slot, "reset", "closed in the handshake", false),
            State::Closing => {
                // Until then the slot was not free.
                self.occupancy.ended(it.ended_ns, at_ns);
                self.close(slot, false);
                self.again(slot);
            }
            State::Resting => self.lost(slot, at_ns),
            State::Empty => {}
        }
    }

    /// Bytes that no request has asked for: as a rule a "408" before the server closes. They are no
    /// response, and what follows them could be taken for one (RFC 9112, section 9.2).
    fn unasked(&mut self, slot: u32, plain: Option<&[u8]>) {
        if !is_unasked(plain.unwrap_or_else(|| self.driver.bytes())) {
            return;
        }
        self.tally.report.unasked += 1;
        // A connection that rests is opened anew by the next request; one that is to be closed
        // by the server has a wait of its own.
        if self.slots[slot as usize].state == State::Resting {
            self.tally.report.closing.by_client += 1;
            self.empty(slot);
        }
    }

    /// The server closed a connection that had nothing to do.
    fn lost(&mut self, slot: u32, at_ns: u64) {
        let ended_ns = self.slots[slot as usize].ended_ns;
        self.tally.idle_close.record_ns(at_ns.saturating_sub(ended_ns));
        self.tally.report.closing.while_idle += 1;
        self.tally.report.closing.by_server += 1;
        // Its rest goes on: the next request opens another.
        self.empty(slot);
    }

    fn failed(&mut self, slot: u32, error: &io::Error) {
        let it = &self.slots[slot as usize];
        let reset = class_of(error) == "reset";
        match it.state {
            State::Asking if reset && it.raced(monotonic_ns()) && !it.reader.has_begun() => {
                self.fail(slot, "close-race", "the server reset as the request left", false);
            }
            State::Closing | State::Resting => self.closed(slot, monotonic_ns()),
            State::Empty => {}
            _ => self.fail(slot, class_of(error), &error.to_string(), false),
        }
    }

    /// The response is whole: is it what was expected, and what becomes of the connection?
    fn whole(&mut self, slot: u32, at_ns: u64, ending: Ending) {
        let it = &mut self.slots[slot as usize];
        it.served += 1;
        it.ended_ns = at_ns;
        self.tally.report.carried.0 += 1;
        self.tally.report.carried.1 += u64::from(it.served == 1);
        if it.measured && self.pace.window_has(at_ns) {
            self.tally.answered += 1;
        }
        let Some(head) = it.reader.head() else {
            return self.fail(slot, "malformed", "a response without a head", true);
        };
        // The answer may come while its request is still leaving. The rest would have to leave
        // before anything else can, so the connection is of no more use.
        let (served, opened_ns, halfway) = (it.served, it.opened_ns, it.leaving);
        if it.measured {
            self.tally.status(head.status);
        }
        let digest = it.digest.take().map(|digest| digest.finish());
        if !self.load.expect_status.has(head.status) {
            let words = format!("status {}", head.status);
            self.uncounted(slot, "status", &words);
        } else if digest.is_some_and(|got| {
            self.shared.digest.as_deref().is_some_and(|wanted| wanted != got.as_ref())
        }) {
            self.uncounted(slot, "content", "the content has another SHA-256");
        } else {
            self.succeed(slot, at_ns);
        }
        let asked_to_close = matches!(self.load.reuse, Reuse::ServerClose | Reuse::Http10);
        let over = match self.load.reuse {
            Reuse::ClientClose => true,
            Reuse::Requests(most) => u64::from(served) >= most,
            Reuse::Lifetime(long) => at_ns.saturating_sub(opened_ns) >= long,
            _ => false,
        };
        self.tally.report.unasked += u64::from(ending == Ending::Unasked);
        if ending == Ending::Closed {
            self.close(slot, false);
            self.again(slot);
        } else if over || halfway || ending == Ending::Unasked {
            self.close(slot, true);
            self.again(slot);
        } else if asked_to_close || !head.persists {
            self.await_close(slot, at_ns, head.persists);
        } else {
            self.slots[slot as usize].state = State::Resting;
            if let Reuse::Idle(long) = self.load.reuse {
                self.phases.begin(queue::REST, slot, at_ns + long);
            } else {
                self.again(slot);
            }
        }
    }

    /// The server is to close now.
    fn await_close(&mut self, slot: u32, at_ns: u64, persists: bool) {
        if persists && self.tally.report.closing.ignored >= IGNORED_MAX {
            self.tally.report.closing.ignored += 1;
            self.close(slot, true);
            return self.again(slot);
        }
        self.slots[slot as usize].state = State::Closing;
        self.phases.begin(queue::CLOSE, slot, at_ns + CLOSE_NS);
    }
}
