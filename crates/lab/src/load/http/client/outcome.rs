//! What became of a request, what becomes of its slot then, and what a thread came to at its end.

use tcptoll_kernel::cpu::thread_time;

use super::{Client, queue};
use crate::clock::monotonic_ns;
use crate::load::control::OperationEnd;
use crate::load::driver::Driver;
use crate::load::http::groups::Group;
use crate::load::http::{Slot, State};
use crate::load::pair;
use crate::messages::Rates;

/// A slot whose connection failed waits this long before it tries again, ns: what fails immediately
/// must not become a loop that does nothing else.
const RETRY_NS: u64 = 1_000_000;

impl<D: Driver> Client<'_, D> {
    /// The request under way has succeeded.
    pub(super) fn succeed(&mut self, slot: u32, at_ns: u64) {
        let it = &mut self.slots[slot as usize];
        it.busy = false;
        let (measured, begun_ns, due_ns, request) =
            (it.measured, it.begun_ns, it.due_ns, it.request);
        let (sent_ns, first_ns, body_bytes) = (it.sent_ns, it.first_ns, it.body_bytes);
        let begun = self.pace.begun_ns().unwrap_or(at_ns);
        if self.pace.window_has(at_ns) {
            let of_ns = self.pace.planned_ns();
            self.tally.completes(at_ns.saturating_sub(begun), of_ns);
            self.silence_until(begun, at_ns);
        }
        self.tally.shares(self.pace.share(begun_ns, at_ns), body_bytes);
        if self.pace.measures(at_ns) {
            self.tally.completes_since(body_bytes);
        }
        self.responses.took(at_ns.saturating_sub(sent_ns));
        if measured {
            if let Some(latency_ns) = self.tally.span(due_ns, at_ns) {
                self.tally.success(at_ns.saturating_sub(begun), latency_ns);
                self.grouped(request, due_ns, |group, since_ns| group.ok(since_ns, latency_ns));
            } else {
                self.tally.report.ok += 1;
                self.grouped(request, due_ns, Group::ok_untimed);
            }
            self.grouped(request, at_ns, Group::completed);
            if let Some(first) = self.tally.span(sent_ns, first_ns) {
                self.tally.first_byte.record_ns(first);
            }
            self.tally.report.body_bytes += body_bytes;
        }
        self.aged(measured, due_ns, at_ns);
        let ended = OperationEnd::Ok(at_ns.saturating_sub(due_ns));
        self.leave(slot, (begun_ns, at_ns), measured, ended);
    }

    /// Nothing has succeeded since the last success within the window.
    fn silence_until(&mut self, begun_ns: u64, at_ns: u64) {
        let silent_ns = at_ns.saturating_sub(self.answered_ns.max(begun_ns));
        self.answered_ns = self.answered_ns.max(at_ns);
        let longest_ns = &mut self.tally.report.silent_ns;
        *longest_ns = silent_ns.max(*longest_ns);
    }

    /// Closed loop: no further request is to begin. Connections that got nothing in the window are in no latency.
    pub(super) fn look_at_unanswered(&mut self, now: u64) {
        let Some((begun_ns, ended_ns)) = self.pace.window_ns(now) else { return };
        self.silence_until(begun_ns, ended_ns);
        // Also one whose requests were given up, and that waits for the answer to the next one.
        let waits = |slot: &&Slot| slot.busy && slot.ended_ns < begun_ns;
        self.tally.report.starved = self.slots.iter().filter(waits).count() as u64;
        // What began within the window is counted when it ends, however late.
        for slot in self.slots.iter().filter(|slot| slot.busy && !slot.measured) {
            self.tally.unanswered.record_ns(ended_ns.saturating_sub(slot.begun_ns));
        }
    }

    /// The request under way has failed; its connection may go on.
    pub(super) fn uncounted(&mut self, slot: u32, class: &'static str, words: &str) {
        let it = &mut self.slots[slot as usize];
        if !std::mem::take(&mut it.busy) {
            return;
        }
        let (measured, begun_ns, due_ns, request) =
            (it.measured, it.begun_ns, it.due_ns, it.request);
        self.tally.failure(measured, class, words);
        if measured {
            self.grouped(request, due_ns, |group, since_ns| group.failed(since_ns, class));
        }
        let now = monotonic_ns();
        if matches!(class, "timeout" | "unsent" | "connect-timeout") {
            self.aged(measured, due_ns, now);
        }
        self.leave(slot, (begun_ns, now), measured, OperationEnd::Failed);
    }

    /// The request of a slot is no more under way; it was, from the first to the second instant.
    fn leave(
        &mut self,
        slot: u32,
        (begun_ns, ended_ns): (u64, u64),
        measured: bool,
        ended: OperationEnd,
    ) {
        self.occupancy.ended(begun_ns, ended_ns);
        self.requests.end(slot);
        self.under_way -= 1;
        self.last_end_ns = self.last_end_ns.max(ended_ns);
        self.ended(measured, ended);
    }

    /// The request under way has failed, and its connection with it.
    pub(super) fn fail(&mut self, slot: u32, class: &'static str, words: &str, by_client: bool) {
        self.uncounted(slot, class, words);
        self.abandon(slot, by_client);
        // In closed loop what fails must not be tried again immediately, as fast as it fails.
        if self.load.rate_per_s.is_some() {
            self.again(slot);
        } else {
            self.phases.begin(queue::RETRY, slot, monotonic_ns() + RETRY_NS);
        }
    }

    /// A request of either part has ended.
    pub(super) fn ended(&mut self, measured: bool, ended: OperationEnd) {
        if measured {
            self.counts.ended(ended);
        } else {
            self.tally.report.warmup.0 += 1;
            self.pace.warmed();
        }
    }

    /// Ends what a slot has of a connection: one that was not made is in no count.
    fn abandon(&mut self, slot: u32, by_client: bool) {
        if matches!(self.slots[slot as usize].state, State::Empty | State::Connecting) {
            self.phases.end(slot);
            self.empty(slot);
        } else {
            self.close(slot, by_client);
        }
    }

    /// Closes a connection that was made.
    pub(super) fn close(&mut self, slot: u32, by_client: bool) {
        let closing = &mut self.tally.report.closing;
        if by_client {
            closing.by_client += 1;
        } else {
            closing.by_server += 1;
        }
        self.phases.end(slot);
        self.empty(slot);
    }

    /// A connection that was made has nothing to do until the next request is due.
    pub(super) fn rest(&mut self, slot: u32) {
        self.slots[slot as usize].state = State::Resting;
        self.again(slot);
    }

    pub(super) fn empty(&mut self, slot: u32) {
        let it = &mut self.slots[slot as usize];
        let made = !matches!(it.state, State::Empty | State::Connecting);
        self.established -= u64::from(made);
        it.state = State::Empty;
        it.tls = None;
        it.digest = None;
        it.leaving = false;
        self.driver.close(slot, made);
    }

    /// What is under way when the run is stopped is an attempt too, and so is what was due. Its
    /// connections are open at the end, and nobody has closed them.
    pub(super) fn interrupt(&mut self) {
        for slot in 0..self.slots.len() as u32 {
            self.uncounted(slot, "interrupted", "the run was stopped");
        }
        self.give_up_waiting("interrupted");
    }
}

impl<D: Driver> Client<'_, D> {
    /// What completed within the window, per second.
    pub(super) fn rates(&self, now: u64) -> Rates {
        let report = &self.tally.report;
        let until = if report.partial { now } else { u64::MAX };
        let Some((from, to)) = self.pace.window_ns(until) else { return Rates::default() };
        let to = if to == u64::MAX { now } else { to };
        let (completed, since) = self.tally.completed();
        let in_flight = if self.load.rate_per_s.is_none() {
            self.slots.len() as u64
        } else {
            self.under_way_before.max(self.under_way_after.unwrap_or(0)).max(1)
        };
        // Where so many requests were asked for, their rate has the slowest of them too.
        let by_count = self.load.requests.is_some() && to < self.pace.window_ends_ns();
        let all = by_count && self.load.rate_per_s.is_none();
        if completed.requests > 0 && to > from && !all {
            return completed.rates(to - from, in_flight);
        }
        // Or nothing completed within it: all that has since, over the time that took.
        since.rates(self.last_end_ns.saturating_sub(from), in_flight)
    }

    pub(super) fn finish(&mut self) {
        let cpu = pair(thread_time().since(self.cpu_before));
        let now = monotonic_ns();
        let begun = self.pace.begun_ns().unwrap_or(now);
        self.tally.report.rates = self.rates(now);
        if let Some(groups) = &mut self.tally.groups {
            groups.begun(begun);
        }
        let answered = self.tally.answered;
        let report = &mut self.tally.report;
        // Spinning is system calls for the most part.
        let spun_us = self.spun_ns / 1_000;
        report.spun_us = spun_us.min(cpu.0 + cpu.1);
        let user_spun = report.spun_us * cpu.0 / (cpu.0 + cpu.1).max(1);
        report.cpu_us = (cpu.0 - user_spun, cpu.1 - (report.spun_us - user_spun).min(cpu.1));
        report.measured_ns = now.saturating_sub(begun);
        report.elapsed_ns = self.last_end_ns.max(begun) - begun;
        let (length_ns, busy_ns) = self.occupancy.measured_ns();
        report.full_ns = length_ns * self.slots.len() as u64;
        report.busy_ns = busy_ns;
        report.intended = self.pace.intended();
        report.unserved = report.intended.map_or(0, |due| due.saturating_sub(answered));
        let made = |slot: &&Slot| !matches!(slot.state, State::Empty | State::Connecting);
        report.open = self.slots.iter().filter(made).count() as u64;
        report.closing.open_at_end = report.open;
        let open = self.slots.iter().position(|slot| slot.state == State::Resting);
        if let Some((info, congestion)) = open.and_then(|slot| self.driver.look(slot as u32)) {
            report.tcp_info = info;
            report.congestion = congestion;
        }
    }
}
