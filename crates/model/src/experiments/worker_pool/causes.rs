//! Causes that a run with a pool of workers may name.

use serde_json::Value;

use crate::causes::queues::ACCEPT_QUEUE_FULL;
use crate::causes::spec::{CauseSpec, Finding, Remedy};
use crate::record::Arm;
use crate::units::human_us;

use super::advice;
use super::effects::{STUCK, Told, workers};

/// Every worker waits for a backend that has stopped, so requests that never call it wait too.
pub(super) const WORKERS_STUCK: CauseSpec =
    CauseSpec { id: STUCK, test: workers_stuck, remedy: Remedy::Computed(advice::of) };

/// The queue of the backend was full, and workers were left all the same. Advice to raise its backlog
/// would be false: a stopped backend answers nobody in a longer queue either.
const BACKEND_QUEUE_FULL: CauseSpec = CauseSpec {
    test: |arm| {
        let stuck = Told::of(arm).is_some_and(Told::is_stuck);
        if stuck { None } else { (ACCEPT_QUEUE_FULL.test)(arm) }
    },
    remedy: Remedy::Computed(|_| Vec::new()),
    ..ACCEPT_QUEUE_FULL
};

/// Every cause that a run may name, in the order of the answer.
pub(super) const ALL: &[&CauseSpec] = &[&WORKERS_STUCK, &BACKEND_QUEUE_FULL];

fn workers_stuck(arm: &Arm) -> Option<Finding> {
    let told = Told::of(arm).filter(|told| told.is_stuck())?;
    let pool = told.pool;
    let busy = told.busy()?;
    let [from, until] = pool.stalled_s?;
    let slowed = told.slowed();
    let mut evidence = vec![
        ("workers", Some(Value::from(pool.workers))),
        ("workers_busy", Some(Value::from(busy))),
        ("workers_busy_expected", pool.stuck_expected.map(Value::from)),
        ("wait_expected_s", pool.wait_expected_s.map(Value::from)),
        ("stall_s", Some(Value::from(until - from))),
        ("backend_queue_peak", told.queue_peak().map(Value::from)),
        ("backend_queue_limit", pool.backend_limit.map(Value::from)),
        ("backend_drops", pool.backend_drops.map(Value::from)),
        ("local_latency_before_us", slowed.map(|slowed| Value::from(slowed.before_us))),
        ("local_latency_during_us", slowed.map(|slowed| Value::from(slowed.during_us))),
        ("local_failed_share", told.local_failed().map(Value::from)),
    ];
    evidence.retain(|(_, value)| value.is_some());
    let expected = pool
        .stuck_expected
        .map_or_else(String::new, |expected| format!(" (expected: {})", workers(expected)));
    let waited = slowed.map_or_else(
        || "requests that never call it waited for a worker".to_owned(),
        |slowed| {
            format!(
                "requests that never call it took {} instead of {}",
                human_us(slowed.during_us),
                human_us(slowed.before_us)
            )
        },
    );
    let text = format!(
        "{} of {} workers waited for {} during its stall of {}{expected}; {waited}.",
        workers(busy),
        pool.workers,
        pool.backend,
        human_us((until - from) * 1e6),
    );
    let evidence =
        evidence.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    Some(Finding { text, evidence })
}

#[cfg(test)]
mod tests {
    use super::super::tests::arm;
    use super::*;

    #[test]
    fn the_evidence_has_workers_queue_and_latencies() {
        let found = workers_stuck(&arm("stalled", 20.0, 800e3)).unwrap();
        assert_eq!(
            found.text,
            "20 of 20 workers waited for redis during its stall of 2.00 s (expected: 20); \
             requests that never call it took 800 ms instead of 500 µs."
        );
        assert_eq!(found.evidence["workers_busy"], 20.0);
        assert_eq!(found.evidence["backend_queue_limit"], 4);
        assert_eq!(found.evidence["backend_drops"], 40);
    }

    #[test]
    fn half_of_the_workers_is_nearly_and_not_the_cause() {
        assert_eq!(workers_stuck(&arm("half", 10.0, 800e3)), None);
        assert_eq!(workers_stuck(&arm("quick", 20.0, 700.0)), None);
        let mut healthy = arm("healthy", 20.0, 800e3);
        healthy.own.worker_pool.as_mut().unwrap().stalled_s = None;
        assert_eq!(workers_stuck(&healthy), None);
    }
}
