//! The open loop: what is due takes a connection, waits for one, or is given up unsent.

use super::super::slot::State;
use super::{Client, SYN_NS, queue};
use crate::clock::monotonic_ns;
use crate::load::driver::Driver;
use crate::load::live::OperationEnd;
use crate::load::pace::burst;
use crate::load::service::is_too_late;

impl<D: Driver> Client<'_, D> {
    pub(super) fn begin_scheduled(&mut self, now: u64) -> bool {
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
    pub(super) fn free_slot(&mut self) -> Option<u32> {
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
    pub(super) fn give_back(&mut self, slot: u32) {
        match self.slots[slot as usize].state {
            State::Empty => self.empty.push(slot),
            _ => self.resting.push_front(slot),
        }
    }

    /// Open loop: why a request was not sent in time. That no handshake is answered is said only
    /// where none is: no connection is open, and a SYN has waited for as long as the kernel does
    /// before it sends the next one.
    pub(super) fn why_unsent(&self, now: u64) -> (&'static str, &'static str) {
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
    pub(super) fn aged(&mut self, measured: bool, due_ns: u64, ended_ns: u64) {
        if measured && self.load.rate_per_s.is_some() {
            let begun = self.pace.begun_ns().unwrap_or(due_ns);
            let since_ns = due_ns.saturating_sub(begun);
            self.tally.aging.observe(since_ns, ended_ns.saturating_sub(due_ns));
        }
    }

    /// Open loop: what is due and waits for a connection is given up.
    pub(super) fn give_up_waiting(&mut self, class: &'static str) {
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
