//! How long does the kernel take for what is submitted in one call?
//!
//! Operations of one submission leave one after the other, so the time of the call is shared out
//! among them. But a thread that is scheduled away in the middle makes the call last milliseconds
//! in which nothing leaves, and where in the middle is not known. Shared out, that time put the
//! departure of requests after the arrival of their responses (latencies of 0, 0.02 to 0.33 % of
//! all on a machine with other work). So no more is shared out than such operations usually take,
//! and the departure comes out early rather than late.

/// A call that took longer than this, times what is usual, was interrupted.
const USUAL_MAX: f64 = 1.5;

/// A longer call moves what is usual by this share of its excess, a shorter one by the other: the
/// usual stays near the fast calls.
const SLOWER: f64 = 1.0 / 64.0;
const FASTER: f64 = 1.0 / 8.0;

/// What a unit of cost usually takes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Submission {
    usual_ns: f64,
}

impl Submission {
    /// Of a call that took `took_ns` for operations of this cost: what they themselves took, ns.
    pub(super) fn spent_ns(&mut self, took_ns: u64, cost: u32) -> u64 {
        let cost = f64::from(cost.max(1));
        let unit_ns = took_ns as f64 / cost;
        if self.usual_ns == 0.0 {
            self.usual_ns = unit_ns;
        }
        let limit_ns = self.usual_ns * USUAL_MAX;
        let speed = if unit_ns < self.usual_ns { FASTER } else { SLOWER };
        self.usual_ns += (unit_ns.min(limit_ns) - self.usual_ns) * speed;
        if unit_ns > limit_ns { (self.usual_ns * cost) as u64 } else { took_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_was_interrupted_is_given_its_usual_time() {
        let mut submission = Submission::default();
        for _ in 0..100 {
            assert_eq!(submission.spent_ns(100_000, 100), 100_000);
        }
        assert_eq!(submission.spent_ns(130_000, 100), 130_000);
        let spent = submission.spent_ns(4_000_000, 100);
        assert!((100_000..110_000).contains(&spent), "{spent}");
    }

    #[test]
    fn a_first_call_that_was_interrupted_is_soon_forgotten() {
        let mut submission = Submission::default();
        submission.spent_ns(4_000_000, 100);
        for _ in 0..50 {
            submission.spent_ns(100_000, 100);
        }
        assert!(submission.spent_ns(4_000_000, 100) < 150_000);
    }
}
