//! A client loop's sockets over `io_uring`: all that a turn asks for goes to the kernel in one
//! call, and sockets are direct descriptors, which the limit of open files does not count.
//!
//! A slot's socket stands in a place of the ring's table. A place is used again only after its
//! close was submitted and all that was under way on it has completed, so a late completion cannot
//! be taken for one of the next connection. No connection has a buffer of its own.
//!
//! `io_uring` is the default of the HTTP load, and epoll the fallback (`--io`), for every arm alike, so that
//! arms do not differ in the engine. CPU relative to wrk in the same rounds on a quiet machine: per request
//! 0.82 to 0.86 over `io_uring` and 0.92 over epoll, per connection 0.77 to 0.80 and 0.95 to 0.98, with
//! `--batch 100us` 0.74 to 0.77. Operations are not linked into chains, so that the completion of each
//! connect is seen.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use tcptoll_kernel::SysError;
use tcptoll_kernel::ring::{Completion, Operation, Ring, Route, Settings, Until, max_direct};

use super::LoadError;
use super::driver::{Driver, Event, Left, Setup, Sources, Stamps, What};
use crate::clock::monotonic_ns;
use crate::load::departures::{Departures, EMPTY, NONE, RingSocket, State, cost};

/// Operations queued before they go to the kernel in the middle of a turn.
const ENTRIES: u32 = 1024;

/// Completions before the kernel keeps them elsewhere, which costs it an allocation each.
const COMPLETIONS: u32 = 8192;

/// All buffers to receive into together, bytes: at 10,000 connections 105 bytes each.
const BUFFERS: u32 = 1 << 20;

/// With batches: most completions waited for.
const BATCH: usize = 64;

/// `ENOBUFS`, `ECANCELED`: no buffer was free; what was under way has been ended by a close.
const NO_BUFFER: i32 = 105;
const CANCELLED: i32 = 125;

/// See [`Driver`].
#[derive(Debug)]
pub(super) struct Uring {
    ring: Ring,
    routes: usize,
    places: Vec<RingSocket>,
    /// The place of each slot.
    of_slot: Vec<u32>,
    /// Slots with a connection.
    busy: u32,
    free: Vec<u32>,
    /// Empty as soon as their close was submitted.
    leaving: Vec<u32>,
    /// Connections that wait for a place, with their source.
    waiting: VecDeque<(u32, usize)>,
    /// Places that are to receive from the end of this turn on.
    to_receive: Vec<u32>,
    /// Places of which room was asked.
    to_tell: Vec<u32>,
    departures: Departures,
    known: VecDeque<Event>,
    turn: u32,
    /// When the completions of this turn were seen.
    seen_ns: u64,
    batch: Option<Duration>,
    stamps: Stamps,
    /// The ring took an operation no more; ends the load.
    broken: Option<io::Error>,
    closed_after_peer: u64,
    /// Looks at whether the peer has closed that were queued and not yet answered.
    peeking: usize,
}

/// Places beyond the slots, for connections that are being closed.
fn spare(slots: u32) -> u32 {
    64 + slots / 16
}

/// Most slots of one driver; more need more drivers, each on a thread of its own.
pub(super) fn most_slots() -> u32 {
    max_direct().saturating_sub(64) / 17 * 16
}

impl Uring {
    /// No connection yet. To be made on the thread that will use it.
    pub(super) fn new(setup: &Setup<'_>) -> Result<Self, LoadError> {
        let &Setup { target, bind, congestion, slots, batch_ns, stamps } = setup;
        let table = slots + spare(slots);
        let buffers = (slots.saturating_mul(2)).next_power_of_two().clamp(64, 512);
        let settings = Settings {
            entries: ENTRIES,
            completions: COMPLETIONS,
            direct: table,
            buffers: buffers as u16,
            buffer_bytes: BUFFERS / buffers,
            stamps,
        };
        let routes: Vec<Route> = Sources::new(bind, congestion, false)
            .iter()
            .map(|options| Route {
                target,
                source: options.bind,
                congestion: options.congestion.clone(),
            })
            .collect();
        let (ring, stamps) = match ring(&settings, &routes) {
            Err(error) if stamps && error.op == "setsockopt" => {
                let plain = Settings { stamps: false, ..settings };
                (ring(&plain, &routes)?, false)
            }
            made => (made?, stamps),
        };
        Ok(Self {
            ring,
            routes: routes.len(),
            places: vec![EMPTY; table as usize],
            of_slot: vec![NONE; slots as usize],
            busy: 0,
            free: (0..table).rev().collect(),
            leaving: Vec::new(),
            waiting: VecDeque::new(),
            to_receive: Vec::new(),
            to_tell: Vec::new(),
            departures: Departures::default(),
            known: VecDeque::new(),
            turn: 1,
            seen_ns: monotonic_ns(),
            batch: (batch_ns > 0).then_some(Duration::from_nanos(batch_ns)),
            stamps: Stamps::new(stamps),
            broken: None,
            closed_after_peer: 0,
            peeking: 0,
        })
    }

    fn begin(&mut self, slot: u32, source: usize, direct: u32) -> io::Result<()> {
        if let Err(error) = self.ring.connect(direct, source % self.routes) {
            self.free.push(direct);
            return Err(error);
        }
        self.places[direct as usize] =
            RingSocket { slot, state: State::Connecting, under_way: 1, ..EMPTY };
        self.of_slot[slot as usize] = direct;
        self.departures.handshake(direct);
        Ok(())
    }

    /// Gives to the kernel what was queued, and works out when each part of it left: they leave one
    /// after the other while the kernel is in that call.
    fn submit(&mut self) -> Result<(), LoadError> {
        if self.departures.is_empty() {
            self.departures.clear();
            return Ok(());
        }
        let begun_ns = monotonic_ns();
        // Of a queue that was too short a part has left before.
        let earliest_ns = if self.ring.take_flushed() { 0 } else { begun_ns };
        // One alone leaves immediately, and needs no call of its own.
        if self.departures.len() > 1 {
            self.ring.submit()?;
        }
        let took_ns = monotonic_ns() - begun_ns;
        for (direct, after_ns) in self.departures.submitted(took_ns) {
            let left = Left { earliest_ns, likely_ns: begun_ns + after_ns };
            self.places[direct as usize].left = left;
        }
        Ok(())
    }

    fn place(&mut self, slot: u32) -> Option<(u32, &mut RingSocket)> {
        let direct = self.of_slot[slot as usize];
        self.places.get_mut(direct as usize).map(|place| (direct, place))
    }

    /// Remembers that the ring took an operation no more.
    fn note(&mut self, outcome: io::Result<()>) {
        if let Err(error) = outcome {
            self.broken.get_or_insert(error);
        }
    }

    /// Has a place receive from the end of this turn on: bytes that are sent meanwhile go first.
    fn will_receive(&mut self, direct: u32) {
        let place = &mut self.places[direct as usize];
        if !place.receiving {
            place.receiving = true;
            self.to_receive.push(direct);
        }
    }

    fn receive_again(&mut self) {
        let mut to_receive = std::mem::take(&mut self.to_receive);
        for direct in to_receive.drain(..) {
            let place = &mut self.places[direct as usize];
            if place.slot == NONE || place.state != State::Open {
                place.receiving = false;
                continue;
            }
            // A connection used once receives once, so that nothing has to be cancelled when it
            // is closed; one used again keeps its receive.
            let until = if place.sends > 1 || place.receives > 1 {
                Until::Ended
            } else {
                Until::Once { waiting: place.receives == 0 }
            };
            place.under_way += 1;
            self.departures.other(cost::RECEIVE);
            let outcome = self.ring.receive(direct, until);
            self.note(outcome);
        }
        self.to_receive = to_receive;
    }

    /// What a completion means; `None`: nothing for the caller.
    fn look_at(&mut self, done: Completion) -> Option<Event> {
        let direct = done.direct;
        // Of a connection that its slot has left; the place may be in use again.
        if done.operation == Operation::Peek {
            self.peeking = self.peeking.saturating_sub(1);
            let open = match &done.result {
                Ok(bytes) => *bytes > 0,
                Err(error) => error.kind() == io::ErrorKind::WouldBlock,
            };
            self.closed_after_peer += u64::from(!open);
            return None;
        }
        let place = self.places.get_mut(direct as usize)?;
        let ended = match done.operation {
            Operation::Close | Operation::Cancel | Operation::Peek | Operation::Short => {
                return None;
            }
            Operation::Socket | Operation::Option | Operation::Bind | Operation::Connect => true,
            Operation::Receive => {
                place.receiving = done.more;
                !done.more
            }
            Operation::Send => std::mem::take(&mut place.sending),
        };
        if ended {
            place.under_way = place.under_way.saturating_sub(1);
        }
        if place.slot == NONE {
            if ended && place.under_way == 0 {
                self.leaving.push(direct);
            }
            return None;
        }
        let slot = place.slot;
        if place.state == State::Over {
            return None;
        }
        let at_ns = self.seen_ns;
        let what = match (done.operation, done.result) {
            (Operation::Receive, Ok(0)) => {
                place.state = State::Over;
                What::Closed { at_ns }
            }
            (Operation::Receive, Ok(_)) => {
                place.receives = place.receives.saturating_add(1).min(2);
                if !done.more {
                    self.will_receive(direct);
                }
                What::Received { at_ns: self.stamps.arrived_ns(done.stamp_ns, at_ns) }
            }
            (Operation::Receive, Err(error)) if error.raw_os_error() == Some(NO_BUFFER) => {
                place.receives = 2;
                self.will_receive(direct);
                return None;
            }
            (Operation::Receive, Err(error)) if error.raw_os_error() == Some(CANCELLED) => {
                return None;
            }
            (Operation::Send, Ok(_)) => {
                if !std::mem::take(&mut place.wants_room) {
                    return None;
                }
                What::Room
            }
            (Operation::Receive | Operation::Send, Err(error)) => {
                place.state = State::Over;
                What::Failed(error)
            }
            (_, Ok(_)) => {
                place.state = State::Open;
                self.will_receive(direct);
                What::Connected { outcome: Ok(()), at_ns }
            }
            (_, Err(error)) => {
                place.state = State::Over;
                What::Connected { outcome: Err(error), at_ns }
            }
        };
        Some(Event { slot, what })
    }

    /// What the end of a wait decides: sends that need time, places that are empty now.
    fn settle(&mut self) {
        for at in 0..self.ring.held().len() {
            let direct = self.ring.held()[at];
            let place = &mut self.places[direct as usize];
            place.sending = true;
            place.under_way += 1;
            self.leaving.retain(|&leaving| leaving != direct);
        }
        if self.ring.submitted() {
            self.free.append(&mut self.leaving);
        }
        for direct in std::mem::take(&mut self.to_tell) {
            let place = &mut self.places[direct as usize];
            if place.slot == NONE || place.state != State::Open {
                continue;
            }
            if place.sending {
                place.wants_room = true;
            } else {
                let what = What::Room;
                self.known.push_back(Event { slot: place.slot, what });
            }
        }
        while let Some((slot, source)) = self.waiting.pop_front() {
            let Some(direct) = self.free.pop() else {
                self.waiting.push_front((slot, source));
                break;
            };
            if let Err(error) = self.begin(slot, source, direct) {
                self.busy -= 1;
                let what = What::Connected { outcome: Err(error), at_ns: self.seen_ns };
                self.known.push_back(Event { slot, what });
            }
        }
    }
}

/// A ring with these routes.
fn ring(settings: &Settings, routes: &[Route]) -> Result<Ring, SysError> {
    let mut ring = Ring::new(settings)?;
    for route in routes {
        ring.add_route(route)?;
    }
    Ok(ring)
}

impl Driver for Uring {
    const NAME: &'static str = "io_uring";

    fn open(&mut self, slot: u32, source: usize) -> io::Result<()> {
        self.close(slot, false);
        match self.free.pop() {
            Some(direct) => self.begin(slot, source, direct)?,
            None => self.waiting.push_back((slot, source)),
        }
        self.busy += 1;
        Ok(())
    }

    fn send(&mut self, slot: u32, bytes: &[u8]) -> io::Result<usize> {
        let turn = self.turn;
        let Some((direct, place)) = self.place(slot) else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        // A second send before the first is decided might come between its parts.
        if place.sending || place.sent_in == turn || bytes.is_empty() {
            return Ok(0);
        }
        place.sent_in = turn;
        place.sends = place.sends.saturating_add(1).min(2);
        let accepted = self.ring.send(direct, bytes);
        if let Ok(accepted) = &accepted
            && accepted.told
        {
            let place = &mut self.places[direct as usize];
            place.sending = true;
            place.under_way += 1;
        }
        self.departures.bytes(direct);
        accepted.map(|accepted| accepted.bytes)
    }

    fn tell_of_room(&mut self, slot: u32) {
        if let Some((direct, _)) = self.place(slot) {
            self.to_tell.push(direct);
        }
    }

    fn close(&mut self, slot: u32, made: bool) {
        if !self.known.is_empty() {
            self.known.retain(|event| event.slot != slot);
        }
        let direct = std::mem::replace(&mut self.of_slot[slot as usize], NONE);
        if direct == NONE {
            let before = self.waiting.len();
            self.waiting.retain(|(waiting, _)| *waiting != slot);
            self.busy -= (before - self.waiting.len()) as u32;
            return;
        }
        self.busy -= 1;
        let place = &mut self.places[direct as usize];
        place.slot = NONE;
        let ended = place.state == State::Over;
        if place.under_way > 0 {
            let outcome = self.ring.cancel(direct);
            self.note(outcome);
        } else {
            self.leaving.push(direct);
        }
        if made && ended {
            self.closed_after_peer += 1;
        } else if made {
            // In the same submission as the close, and answered in it.
            self.peeking += 1;
            self.departures.other(cost::PEEK);
            let outcome = self.ring.peek(direct);
            self.note(outcome);
        }
        self.departures.other(cost::CLOSE);
        let outcome = self.ring.close(direct);
        self.note(outcome);
    }

    fn closed_after_peer(&self) -> u64 {
        self.closed_after_peer
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<(), LoadError> {
        self.receive_again();
        if let Some(error) = self.broken.take() {
            return Err(SysError::new("io_uring_enter", "a ring", error).into());
        }
        let room = self.to_tell.iter().any(|&direct| !self.places[direct as usize].sending);
        let known = room || !self.known.is_empty();
        let timeout = if known { Some(Duration::ZERO) } else { timeout };
        let want = if self.batch.is_some() { (self.busy as usize / 2).clamp(1, BATCH) } else { 1 };
        self.submit()?;
        // Answers to peeks come with the submission: they are no reason to return from it.
        self.ring.wait(want + self.peeking, self.batch, timeout)?;
        self.turn = self.turn.wrapping_add(1);
        self.seen_ns = monotonic_ns();
        self.stamps.compare(self.seen_ns);
        self.settle();
        Ok(())
    }

    fn next(&mut self) -> Option<Event> {
        if let Some(event) = self.known.pop_front() {
            return Some(event);
        }
        loop {
            let done = self.ring.next()?;
            if let Some(event) = self.look_at(done) {
                return Some(event);
            }
        }
    }

    fn left(&self, slot: u32) -> Option<Left> {
        self.places.get(self.of_slot[slot as usize] as usize).map(|place| place.left)
    }

    fn bytes(&self) -> &[u8] {
        self.ring.received()
    }

    fn look(&self, _slot: u32) -> Option<(Vec<u8>, String)> {
        None
    }
}

#[cfg(test)]
mod tests;
