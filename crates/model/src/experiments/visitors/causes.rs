//! Causes that a run with visitors may name.

use serde_json::Value;

use super::{WORKERS_BUSY, WORKERS_BUSY_PEAK, WORKERS_KEPT};
use crate::causes::queues::ACCEPT_QUEUE_FULL;
use crate::causes::spec::{CauseSpec, Finding, Remedy};
use crate::experiments::conclusion::value;
use crate::record::Arm;

/// Every cause that a run may name, in the order of the answer.
pub(super) const ALL: &[&CauseSpec] = &[&IDLE_HOLDS_WORKERS, &ACCEPT_QUEUE_FULL];

/// All workers are taken, and most of them by connections that wait for another request.
const IDLE_HOLDS_WORKERS: CauseSpec = CauseSpec {
    id: "idle-connections-hold-workers",
    test: idle_holds,
    remedy: Remedy::Setting {
        change: "Lower `KeepAliveTimeout`, or use `mpm_event` with PHP-FPM, where an idle connection \
                 holds no worker",
        cost: "With a shorter timeout a visitor's next page may open connections anew",
        undo: "The former timeout",
    },
};

/// Idle connections are named where they hold this share of the workers.
const SHARE: f64 = 0.5;

fn idle_holds(arm: &Arm) -> Option<Finding> {
    let visits = arm.own.site_visits.as_deref()?;
    // A connection of nginx or of Apache's `event` holds no worker while it waits.
    if visits.worker == "connection" || visits.idle_is_free {
        return None;
    }
    let peak = value(arm, WORKERS_BUSY_PEAK.name).filter(|peak| *peak >= visits.workers as f64)?;
    let busy = value(arm, WORKERS_BUSY.name).filter(|busy| *busy > 0.0)?;
    let kept = value(arm, WORKERS_KEPT.name).filter(|kept| *kept >= SHARE * busy)?;
    let text = format!(
        "All {} workers were taken at times. On average {busy:.0} were, of which {kept:.0} held a \
         connection that waited for another request.",
        visits.workers
    );
    let evidence = [
        (WORKERS_BUSY.name, busy),
        (WORKERS_BUSY_PEAK.name, peak),
        (WORKERS_KEPT.name, kept),
        ("workers", visits.workers as f64),
    ];
    let evidence =
        evidence.into_iter().map(|(name, value)| (name.to_owned(), Value::from(value))).collect();
    Some(Finding { text, evidence })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Metric, SiteVisits};

    fn arm(kept: f64, peak: f64, idle_is_free: bool) -> Arm {
        let visits = SiteVisits {
            workers: 20,
            worker: "process".to_owned(),
            idle_is_free,
            ..SiteVisits::default()
        };
        let metric = |value| Metric { value, ..Metric::default() };
        let metrics =
            [(WORKERS_BUSY.name, 18.0), (WORKERS_BUSY_PEAK.name, peak), (WORKERS_KEPT.name, kept)];
        Arm {
            metrics: metrics.map(|(name, value)| (name.to_owned(), metric(value))).into(),
            own: Box::new(visits).into(),
            ..Arm::default()
        }
    }

    #[test]
    fn idle_connections_are_named_where_they_take_the_last_worker_and_hold_most() {
        assert!(idle_holds(&arm(15.0, 20.0, false)).is_some());
        assert_eq!(idle_holds(&arm(2.0, 20.0, false)), None);
        assert_eq!(idle_holds(&arm(15.0, 19.0, false)), None);
        assert_eq!(idle_holds(&arm(15.0, 20.0, true)), None);
    }
}
