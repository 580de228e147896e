//! How many operations succeeded in the steady part of a load?
//!
//! Both edges of a load bias its rate: while slots fill nothing completes, and while the last
//! operations end nothing begins. So a rate is the number of successes that **complete** in the
//! steady part, divided by its length.
//!
//! - Closed loop: from when all slots are filled to when the last operation begins
//!   ([`Occupancy`](crate::load::occupancy::Occupancy)). Pauses are no part of it, and neither are
//!   operations that complete in a pause.
//! - Open loop: the planned time, pauses added: from the start to when the operation after the last
//!   would be due. Operations that complete later are in progress at its end.
//!
//! Time comes in as an argument.

/// Counts what completes in the steady part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Completions {
    /// Successes in the steady part.
    pub(super) ok: u64,
    /// Open loop: operations that ended after the steady part, failed ones too.
    pub(super) after: u64,
}

impl Completions {
    /// Closed loop: an operation has succeeded. `is_full`: all slots are to be filled now.
    /// `until_ns`: no operation begins after this. `paused_until_ns`: nor before this.
    pub(super) fn succeeded(
        &mut self,
        now_ns: u64,
        is_full: bool,
        until_ns: u64,
        paused_until_ns: u64,
    ) {
        if is_full && now_ns >= paused_until_ns && now_ns <= until_ns {
            self.ok += 1;
        }
    }

    /// Open loop: an operation has ended; the steady part ends at `until_ns`.
    pub(super) fn ended(&mut self, now_ns: u64, is_ok: bool, until_ns: u64) {
        if now_ns > until_ns {
            self.after += 1;
        } else if is_ok {
            self.ok += 1;
        }
    }
}

/// Length of the steady part of an open loop without its pauses, ns: the number of operations that
/// are due within the plan, divided by the rate. With a time limit that is no whole number of
/// intervals, this is when the first operation beyond the limit would be due: of 7 per second, 3 are
/// due within 300 ms, and they stand for 3/7 s.
///
/// `count`: operations in all, at most. `duration_ns`: none begins after this.
pub(super) fn planned_ns(count: u64, rate_per_s: f64, duration_ns: Option<u64>) -> u64 {
    let due_in_time = duration_ns.map(|ns| (ns as f64 / 1e9 * rate_per_s).ceil());
    let due = due_in_time.map_or(count as f64, |due| due.min(count as f64));
    (due / rate_per_s * 1e9) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ramp_drain_and_pauses_of_a_closed_loop_do_not_count() {
        let mut completions = Completions::default();
        completions.succeeded(50, false, u64::MAX, 0); // while slots were filled
        completions.succeeded(100, true, u64::MAX, 0);
        completions.succeeded(200, true, u64::MAX, 300); // in a pause that lasts until 300
        completions.succeeded(300, true, u64::MAX, 300);
        completions.succeeded(450, true, 400, 300); // beyond the time limit
        completions.succeeded(500, false, u64::MAX, 300); // the last one had begun
        assert_eq!(completions, Completions { ok: 2, after: 0 });
    }

    #[test]
    fn what_an_open_loop_completes_after_its_planned_time_is_in_progress_at_its_end() {
        let mut completions = Completions::default();
        completions.ended(900, true, 1_000);
        completions.ended(950, false, 1_000);
        completions.ended(1_000, true, 1_000);
        completions.ended(1_001, true, 1_000);
        completions.ended(1_002, false, 1_000);
        assert_eq!(completions, Completions { ok: 2, after: 2 });
    }

    #[test]
    fn the_planned_time_ends_when_the_operation_after_the_last_would_be_due() {
        // 20 at 10 per second: the last begins at 1.9 s.
        assert_eq!(planned_ns(20, 10.0, None), 2_000_000_000);
        // At 0, 1/7 and 2/7 s; the next would be due at 3/7 s.
        assert_eq!(planned_ns(3, 7.0, Some(300_000_000)), 428_571_428);
        // A time limit that is a whole number of intervals, and one that the number comes before.
        assert_eq!(planned_ns(1_000, 100.0, Some(500_000_000)), 500_000_000);
        assert_eq!(planned_ns(5, 100.0, Some(500_000_000)), 50_000_000);
    }
}
