//! What one thread of a load came to, once its loop has ended.

use tcptoll_kernel::cpu::thread_time;

use super::super::driver::Driver;
use super::super::slot::{Slot, State};
use super::super::tally::Completed;
use super::Client;
use crate::clock::monotonic_ns;
use crate::load::pair;
use crate::messages::Rates;

impl<D: Driver> Client<'_, D> {
    /// What completed within the window, per second.
    pub(super) fn rates(&self, now: u64) -> Rates {
        let report = &self.tally.report;
        let until = if report.partial { now } else { u64::MAX };
        let Some((from, to)) = self.pace.window_ns(until) else { return Rates::default() };
        let to = if to == u64::MAX { now } else { to };
        let completed = self.tally.completed();
        let slots = self.slots.len() as u64;
        let closed = report.intended.is_none() && self.load.rate_per_s.is_none();
        // Less than one request of every slot: the ends are all there is.
        let few = if closed { slots } else { 1 };
        if completed.requests >= few && to > from {
            let in_flight = if closed {
                slots
            } else {
                self.under_way_before.max(self.under_way_after.unwrap_or(0)).max(1)
            };
            return completed.rates(to - from, in_flight, false);
        }
        let all = Completed {
            requests: report.ok,
            body_bytes: report.body_bytes,
            connections: report.measured_connections.1,
        };
        let took = self.last_end_ns.saturating_sub(self.first_begun_ns.unwrap_or(from));
        all.rates(took, 0, true)
    }

    pub(super) fn finish(&mut self) {
        let cpu = pair(thread_time().since(self.cpu_before));
        let now = monotonic_ns();
        let begun = self.pace.begun_ns().unwrap_or(now);
        self.tally.report.rates = self.rates(now);
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
