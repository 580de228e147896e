//! The loop of one thread: begins requests, follows each to its end, counts what became of it.
//!
//! [`Pace`] says when a request may begin, the [`Driver`] carries bytes, core's reader says
//! what a response is. Of every request exactly one thing becomes: [`Client::succeed`] or
//! [`Client::uncounted`].
//!
//! In an open loop a connection does not belong to the request for which it is opened: if that request's time
//! is up before the handshake is done, it has not been sent (`unsent`), and the connection serves the next
//! one. Requests that had waited in the client used to open connections and give them up immediately, so a
//! healthy server was measured at 0 of 3,000.

mod exchange;
mod outcome;

use std::collections::VecDeque;
use std::time::Duration;

use tcptoll_core::http::response::Limits;
use tcptoll_core::http::reuse::Reuse;
use tcptoll_kernel::cpu::thread_time;

use super::groups::{Group, Groups};
use super::tally::Tally;
use super::{Shared, Slot, State};
use crate::clock::monotonic_ns;
use crate::load::control::{Counts, OperationEnd, Part};
use crate::load::driver::Driver;
use crate::load::pace::{Pace, burst};
use crate::load::slots::{Occupancy, Service, Waiting, is_too_late};
use crate::load::{LoadError, class_of};
use crate::messages::HttpLoad;

/// When the load has ended, connections are closed in groups of this many, so that no queue
/// overflows.
const CLOSED_TOGETHER: u32 = 512;

/// The loop looks up at least this often, ns.
const LOOK_NS: u64 = 50_000_000;

/// A thread that sleeps until this much before a request is due wakes up in time; the rest is spun,
/// ns. A sleeping thread wakes 50 to 80 µs late here (Linux 6.18 in a virtual machine).
const SPIN_NS: u64 = 150_000;

/// A handshake that is not done after this has lost a SYN, or its answer, ns: the kernel sends the
/// next one then (RFC 6298).
const SYN_NS: u64 = 1_000_000_000;

/// Numbers of the queues: what a slot waits for beside its request.
mod queue {
    pub(super) const CONNECT: usize = 0;
    pub(super) const CLOSE: usize = 1;
    pub(super) const REST: usize = 2;
    pub(super) const RETRY: usize = 3;
}

/// One thread's loop.
pub(super) struct Client<'a, D: Driver> {
    load: &'a HttpLoad,
    shared: &'a Shared,
    /// What an observer sees of this thread.
    counts: &'a Counts,
    driver: D,
    pace: Pace,
    limits: Limits,
    slots: Vec<Slot>,
    /// Until when a request may take.
    requests: Waiting<1>,
    /// What a slot waits for beside that.
    phases: Waiting<4>,
    /// Closed loop: slots that have been begun.
    begun_slots: u32,
    /// Open loop: slots with a connection and without, some of which may have lost theirs.
    resting: VecDeque<u32>,
    empty: Vec<u32>,
    /// Open loop: since when there has been no slot for what was due, and until when that was so.
    starved: bool,
    starved_until_ns: u64,
    /// How long handshakes and responses have taken of late.
    handshakes: Service,
    responses: Service,
    /// Requests under way; and when the measured part began.
    under_way: u64,
    under_way_before: u64,
    /// The same when the window ended; open loop, and not before.
    under_way_after: Option<u64>,
    /// Connections that are made and not closed.
    established: u64,
    next_request: u32,
    opened: usize,
    tally: Tally,
    occupancy: Occupancy,
    cpu_before: tcptoll_kernel::cpu::CpuTime,
    /// Time that was spun away in the measured part, ns.
    spun_ns: u64,
    last_end_ns: u64,
    /// When a request last succeeded within the window.
    answered_ns: u64,
    plain: Vec<u8>,
}

impl<'a, D: Driver> Client<'a, D> {
    /// Threads begin at different requests and source addresses.
    pub(super) fn new(
        load: &'a HttpLoad,
        shared: &'a Shared,
        driver: D,
        pace: Pace,
        part: u64,
    ) -> Self {
        let slots = pace.slots() as u32;
        let mut tally = Tally::new(pace.planned_ns());
        tally.groups = Groups::from_groups(&shared.groups, pace.planned_ns());
        Self {
            load,
            shared,
            counts: shared.team.counts(part),
            driver,
            pace,
            limits: Limits { body_bytes: load.body_limit, ..Limits::default() },
            slots: (0..slots).map(|_| Slot::default()).collect(),
            requests: Waiting::new(slots as usize),
            phases: Waiting::new(slots as usize),
            begun_slots: 0,
            resting: VecDeque::with_capacity(slots as usize),
            empty: (0..slots).rev().collect(),
            starved: false,
            starved_until_ns: 0,
            handshakes: Service::default(),
            responses: Service::default(),
            under_way: 0,
            under_way_before: 0,
            under_way_after: None,
            established: 0,
            next_request: part as u32 % shared.requests.len() as u32,
            opened: (part * load.connections / shared.team.threads()) as usize,
            tally,
            occupancy: Occupancy::new(u64::MAX),
            cpu_before: thread_time(),
            spun_ns: 0,
            last_end_ns: 0,
            answered_ns: 0,
            plain: Vec::new(),
        }
    }
}

impl<D: Driver> Part for Client<'_, D> {
    type Result = Tally;

    fn run(&mut self) -> Result<(), LoadError> {
        loop {
            let mut now = monotonic_ns();
            if self.shared.team.is_stopped() {
                self.tally.report.partial = true;
                self.interrupt();
                break;
            }
            if self.tally.is_hopeless() {
                self.interrupt();
                break;
            }
            if self.pace.advance(now) {
                self.begin_measuring(now);
            }
            if now >= self.pace.window_ends_ns() && self.under_way_after.is_none() {
                self.under_way_after = Some(self.under_way);
            }
            let more = self.begin_those_due(now);
            self.end_waits(now);
            if self.pace.is_over(now) {
                if self.occupancy.is_open() {
                    self.look_at_unanswered(now);
                    let since =
                        self.slots.iter().filter(|slot| slot.busy).map(|slot| slot.begun_ns);
                    self.occupancy.close(now, since);
                }
                let until_ns = self.pace.ends_ns().saturating_add(self.load.timeout_ns);
                self.counts.waits(self.under_way, until_ns);
                // A server that is to close first is let do so.
                if self.under_way == 0 && self.phases.is_empty(queue::CLOSE) {
                    break;
                }
            }
            if now >= self.pace.gives_up_ns() {
                self.give_up_waiting("unsent");
            }
            let timeout = if more { Duration::ZERO } else { self.timeout(now) };
            self.driver.wait(Some(timeout))?;
            let mut idle = true;
            while let Some(event) = self.driver.next() {
                idle = false;
                self.handle(event);
            }
            if idle && timeout.is_zero() && !more && self.pace.begun_ns().is_some() {
                let before = std::mem::replace(&mut now, monotonic_ns());
                self.spun_ns += now - before;
            }
        }
        self.finish();
        Ok(())
    }

    /// Closes what is open, and says of all connections who ended them first.
    fn end(mut self) -> Tally {
        let by_server = self.closed_after_peer();
        for slot in 0..self.slots.len() as u32 {
            let state = self.slots[slot as usize].state;
            if state != State::Empty {
                self.driver.close(slot, state != State::Connecting);
            }
            if slot % CLOSED_TOGETHER == CLOSED_TOGETHER - 1 {
                self.closed_after_peer();
            }
        }
        let at_end = self.closed_after_peer() - by_server;
        let report = &mut self.tally.report;
        let closed = report.closing.by_client + report.closing.by_server;
        (report.closing.by_client, report.closing.by_server) = (closed - by_server, by_server);
        report.ended_at_end = at_end;
        self.tally
    }
}

impl<D: Driver> Client<'_, D> {
    fn begin_measuring(&mut self, now: u64) {
        self.cpu_before = thread_time();
        self.under_way_before = self.under_way;
        self.occupancy = Occupancy::new(self.pace.ends_ns());
        if self.pace.intended().is_none() && !matches!(self.load.reuse, Reuse::Idle(_)) {
            self.occupancy.filled(now);
        }
    }

    /// Connections closed so far that the server had ended before.
    fn closed_after_peer(&mut self) -> u64 {
        // A driver may ask the kernel only now; of what fails here nothing depends any more, and
        // what happened to connections that are to be closed the driver keeps to itself.
        let _ = self.driver.wait(Some(Duration::ZERO));
        while self.driver.next().is_some() {}
        self.driver.closed_after_peer()
    }

    /// How long nothing is to be done.
    fn timeout(&self, now: u64) -> Duration {
        let due = self.pace.next_due().filter(|_| !self.starved);
        let begin = if due.is_none() && self.begun_slots < self.slots.len() as u32 {
            self.slot_due()
        } else {
            None
        };
        let early = due.map(|due| due.saturating_sub(SPIN_NS));
        let ends = [self.requests.next_ns(), self.phases.next_ns(), early, begin];
        let next = ends.into_iter().flatten().min().unwrap_or(u64::MAX);
        let next = next.min(self.pace.changes_ns(now));
        Duration::from_nanos(next.saturating_sub(now).min(LOOK_NS))
    }

    /// Closed loop: when the next slot is to be begun.
    fn slot_due(&self) -> Option<u64> {
        let due = self.pace.slot_due(self.begun_slots.into());
        (self.pace.next_due().is_none() && !self.pace.is_over(due)).then_some(due)
    }

    /// Begins what is due, a few at a time: what has happened meanwhile must be seen. True if more
    /// is due.
    fn begin_those_due(&mut self, now: u64) -> bool {
        if self.load.rate_per_s.is_some() {
            return self.begin_scheduled(now);
        }
        for _ in 0..burst::REQUESTS {
            if self.begun_slots == self.slots.len() as u32 {
                return false;
            }
            match self.slot_due() {
                Some(due) if due <= now => {
                    let slot = self.begun_slots;
                    self.begun_slots += 1;
                    self.again(slot);
                }
                _ => return false,
            }
        }
        true
    }

    /// What has waited long enough.
    fn end_waits(&mut self, now: u64) {
        while let Some(slot) = self.requests.over(0, now) {
            let it = &self.slots[slot as usize];
            let making = matches!(it.state, State::Connecting | State::Handshaking);
            let called_ns = it.called_ns;
            if !making {
                self.responses.missed(now.saturating_sub(it.sent_ns));
                self.fail(slot, "timeout", "no answer in time", true);
            } else if self.load.rate_per_s.is_none() {
                let (class, words) = match it.state {
                    State::Connecting => ("connect-timeout", "no handshake in time"),
                    _ => ("timeout", "no answer to the TLS handshake in time"),
                };
                self.fail(slot, class, words, true);
            } else if now >= called_ns + SYN_NS.min(self.load.timeout_ns) {
                // The connection goes on: it may serve another.
                self.uncounted(slot, "connect-timeout", "no handshake in time");
            } else {
                self.uncounted(slot, "unsent", "no connection was free in time");
            }
        }
        while let Some(slot) = self.phases.over(queue::CONNECT, now) {
            self.fail(slot, "connect-timeout", "no handshake in time", true);
        }
        while let Some(slot) = self.phases.over(queue::CLOSE, now) {
            self.tally.report.closing.ignored += 1;
            self.close(slot, true);
            self.again(slot);
        }
        for number in [queue::REST, queue::RETRY] {
            while let Some(slot) = self.phases.over(number, now) {
                self.phases.end(slot);
                self.again(slot);
            }
        }
    }

    /// The slot has nothing to do: closed loop: the next request, if there is one; open loop: it
    /// waits for what is due.
    fn again(&mut self, slot: u32) {
        if self.load.rate_per_s.is_some() {
            match self.slots[slot as usize].state {
                State::Empty => self.empty.push(slot),
                _ => self.resting.push_back(slot),
            }
            return;
        }
        let now = monotonic_ns();
        if self.pace.may_begin(now) {
            self.begin(slot, now, now);
        }
    }

    fn begin(&mut self, slot: u32, due: u64, now: u64) {
        let measured = self.pace.measures(due);
        self.tally.report.attempts += u64::from(measured);
        self.under_way += 1;
        let request = self.take_request();
        if measured {
            self.grouped(request, due, Group::due);
        }
        self.requests.begin(0, slot, due + self.load.timeout_ns);
        let it = &mut self.slots[slot as usize];
        (it.measured, it.busy) = (measured, true);
        (it.due_ns, it.begun_ns, it.request) = (due, now, request);
        if it.state == State::Resting {
            self.ask(slot, now);
        } else {
            self.open(slot, now);
        }
    }

    /// The request whose turn it is.
    fn take_request(&mut self) -> u32 {
        let request = self.next_request;
        self.next_request = (request + 1) % self.shared.requests.len() as u32;
        request
    }

    /// Counts something of a measured request in its group, if it has one; `at_ns` is given as time
    /// since the measured part began.
    fn grouped(&mut self, request: u32, at_ns: u64, count: impl FnOnce(&mut Group, u64)) {
        let Some(groups) = &mut self.tally.groups else { return };
        let Some(&number) = self.shared.groups.get(request as usize) else { return };
        let begun_ns = self.pace.begun_ns().unwrap_or(at_ns);
        count(groups.group(number), at_ns.saturating_sub(begun_ns));
    }

    fn open(&mut self, slot: u32, now: u64) {
        let report = &mut self.tally.report;
        let it = &mut self.slots[slot as usize];
        report.connections.0 += 1;
        report.measured_connections.0 += u64::from(it.measured);
        (it.state, it.called_ns, it.served) = (State::Connecting, now, 0);
        self.phases.begin(queue::CONNECT, slot, now + self.load.connect_timeout_ns);
        let source = self.opened;
        self.opened += 1;
        if let Err(error) = self.driver.open(slot, source) {
            self.slots[slot as usize].state = State::Empty;
            let class = class_of(&error);
            self.fail(slot, class, &error.to_string(), true);
        }
    }
}

impl<D: Driver> Client<'_, D> {
    fn begin_scheduled(&mut self, now: u64) -> bool {
        let mut now = now;
        for _ in 0..burst::REQUESTS {
            let Some(due) = self.pace.next_due().filter(|&due| due <= now) else {
                self.starved = false;
                return false;
            };
            let measured = self.pace.measures(due);
            let slot = self.free_slot();
            let made = slot.is_some_and(|slot| self.slots[slot as usize].state == State::Resting);
            let handshake_ns = if made { 0 } else { self.handshakes.expected_ns() };
            let expected_ns = self.responses.expected_ns().saturating_add(handshake_ns);
            if is_too_late(now - due, expected_ns, self.load.timeout_ns) {
                if let Some(slot) = slot {
                    self.give_back(slot);
                }
                let (class, words) = self.why_unsent(now);
                self.give_up(due, now, class, words);
                continue;
            }
            let Some(slot) = slot else {
                self.starved = true;
                return false;
            };
            if std::mem::take(&mut self.starved) {
                self.starved_until_ns = now;
            }
            self.pace.take_due(now);
            if measured && due <= self.starved_until_ns {
                self.tally.report.queued += 1;
            } else if measured {
                self.tally.lateness.record_ns(now - due);
            }
            self.begin(slot, due, now);
            now = monotonic_ns();
        }
        true
    }

    /// Open loop: a slot for a request, with a connection if there is one.
    fn free_slot(&mut self) -> Option<u32> {
        while let Some(slot) = self.resting.pop_front() {
            if self.slots[slot as usize].state == State::Resting {
                return Some(slot);
            }
            // It lost its connection meanwhile.
            self.empty.push(slot);
        }
        self.empty.pop()
    }

    /// A slot that [`Client::free_slot`] gave and that is not needed.
    fn give_back(&mut self, slot: u32) {
        match self.slots[slot as usize].state {
            State::Empty => self.empty.push(slot),
            _ => self.resting.push_front(slot),
        }
    }

    /// Open loop: why a request was not sent in time. That no handshake is answered is said only
    /// where none is: no connection is open, and a SYN has waited for as long as the kernel does
    /// before it sends the next one.
    fn why_unsent(&self, now: u64) -> (&'static str, &'static str) {
        let patience_ns = SYN_NS.min(self.load.timeout_ns);
        let oldest = self.phases.first_until_ns(queue::CONNECT);
        let called_ns = oldest.map(|until| until.saturating_sub(self.load.connect_timeout_ns));
        if self.established == 0 && called_ns.is_some_and(|called| now >= called + patience_ns) {
            ("connect-timeout", "no handshake in time")
        } else {
            ("unsent", "no connection was free in time")
        }
    }

    /// Open loop: how old a request is that has ended, answered or given up.
    fn aged(&mut self, measured: bool, due_ns: u64, ended_ns: u64) {
        if measured && self.load.rate_per_s.is_some() {
            let begun = self.pace.begun_ns().unwrap_or(due_ns);
            let since_ns = due_ns.saturating_sub(begun);
            self.tally.aging.observe(since_ns, ended_ns.saturating_sub(due_ns));
        }
    }

    /// Open loop: what is due and waits for a connection is given up.
    fn give_up_waiting(&mut self, class: &'static str) {
        let now = monotonic_ns();
        while let Some(due) = self.pace.next_due().filter(|&due| due <= now) {
            let (why, words) = self.why_unsent(now);
            self.give_up(due, now, if class == "unsent" { why } else { class }, words);
        }
    }

    /// The request that is due next is given up before it was sent.
    fn give_up(&mut self, due: u64, now: u64, class: &'static str, words: &str) {
        self.pace.take_due(now);
        let measured = self.pace.measures(due);
        self.tally.report.attempts += u64::from(measured);
        self.tally.report.queued += u64::from(measured);
        self.tally.failure(measured, class, words);
        if measured && self.tally.groups.is_some() {
            // The mixture of groups is of what was due, not of what was sent.
            let request = self.take_request();
            self.grouped(request, due, |group, since_ns| {
                group.due(since_ns);
                group.failed(since_ns, class);
            });
        }
        self.aged(measured, due, now);
        self.ended(measured, OperationEnd::Failed);
    }
}

#[cfg(test)]
mod tests;
