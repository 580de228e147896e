//! What one thread of a load came to, once its loop has ended.

use tcptoll_kernel::cpu::thread_time;

use super::super::slot::{Slot, State};
use super::Client;
use crate::clock::monotonic_ns;
use crate::load::driver::Driver;
use crate::load::pair;
use crate::messages::Rates;

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
