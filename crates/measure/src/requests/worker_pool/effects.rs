//! What a stall did to an arm, and how two arms differ: the figures that causes, advice and the answer
//! state.

use crate::kit::conclusion::value;
use tcptoll_core::record::{Arm, Summary, WorkerPool};
use tcptoll_core::stats::Series;
use tcptoll_core::units::human_count;

use super::{LOCAL, LOCAL_LATENCY_MEAN};

/// The cause that a run of this experiment looks for.
pub(super) const STUCK: &str = "workers-stuck";

/// From this share of busy workers on, a request that needs no backend has to wait.
const ALL_BUSY: f64 = 0.9;

/// From this factor on, a request is slower by more than chance and the CPU that others use.
pub(super) const SLOWER: f64 = 2.0;

/// An upper limit of expected workers that is higher by less than this share is not stated.
const WORTH_STATING: f64 = 0.05;

/// Options that change how the backend is called. Arms that differ in others too are no proof.
pub(super) const FIXES: [&str; 10] = [
    "abort-on-overflow",
    "answer-timeout",
    "backend-backlog",
    "backoff",
    "cache",
    "connect-timeout",
    "connection",
    "jitter",
    "retries",
    "workers",
];

/// An arm with its pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct PoolArm<'a> {
    pub(super) arm: &'a Arm,
    pub(super) pool: &'a WorkerPool,
}

/// Mean latency of requests that need no backend, by when they were due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Slowed {
    /// Before the stall, µs.
    pub(super) before_us: f64,
    /// During the stall, µs.
    pub(super) during_us: f64,
}

/// How many times as large one figure is as another, with its 95 % interval where rounds give one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Factor {
    pub(super) ratio: f64,
    pub(super) ci95: Option<[f64; 2]>,
}

impl<'a> PoolArm<'a> {
    /// None: it failed, or nothing of a pool is recorded.
    pub(super) fn from_arm(arm: &'a Arm) -> Option<Self> {
        let pool = arm.own.worker_pool.as_deref()?;
        (arm.failure.is_none()).then_some(Self { arm, pool })
    }

    /// Busy workers during the stall: in its steady part, or else over all of it.
    ///
    /// None: there was no stall, or nothing was read during it.
    pub(super) fn busy(self) -> Option<f64> {
        let [from, until] = self.pool.stalled_s?;
        self.pool.stuck_measured.or_else(|| mean_within(&self.pool.busy, from, until))
    }

    /// Whether next to no worker was left for other requests.
    pub(super) fn all_busy(self) -> bool {
        self.busy().is_some_and(|busy| busy >= self.pool.workers as f64 * ALL_BUSY)
    }

    /// None: there was no stall, or one of the two parts has no success.
    pub(super) fn slowed(self) -> Option<Slowed> {
        let [from, until] = self.pool.stalled_s?;
        let latency = &self.pool.groups.get(LOCAL)?.latency_us;
        let before_us = mean_within(latency, 0.0, from).filter(|us| *us > 0.0)?;
        Some(Slowed { before_us, during_us: mean_within(latency, from, until)? })
    }

    /// Share of the requests that need no backend and failed. None: there were none.
    pub(super) fn local_failed(self) -> Option<f64> {
        let group = self.pool.groups.get(LOCAL).filter(|group| group.attempts > 0)?;
        Some(group.errors.values().sum::<u64>() as f64 / group.attempts as f64)
    }

    /// Mean latency of requests that need no backend, over the whole window, µs.
    pub(super) fn local_us(self) -> Option<f64> {
        value(self.arm, LOCAL_LATENCY_MEAN.name)
    }

    /// Whether requests that need no backend suffered because workers waited for it.
    pub(super) fn is_stuck(self) -> bool {
        let slower = self.slowed().is_some_and(|slowed| slowed.factor() >= SLOWER);
        // A request that timed out has no latency.
        let failed = self.local_failed().is_some_and(|share| share > 0.0);
        self.all_busy() && (slower || failed)
    }

    /// ` (expected: 20)`, ` (expected: 1 to 3.7)`; empty where nothing is expected.
    pub(super) fn expected_words(self) -> String {
        let Some(least) = self.pool.stuck_expected else { return String::new() };
        match self.pool.stuck_expected_max.filter(|_| self.expects_a_range()) {
            Some(most) => format!(" (expected: {} to {})", workers(least), workers(most)),
            None => format!(" (expected: {})", workers(least)),
        }
    }

    /// Whether serving requests may take so many workers that the expected number is a range.
    pub(super) fn expects_a_range(self) -> bool {
        let ends = self.pool.stuck_expected.zip(self.pool.stuck_expected_max);
        ends.is_some_and(|(least, most)| most >= least * (1.0 + WORTH_STATING))
    }

    /// Whether calls waited for a connection: SYNs were dropped at the backend's full queue, or
    /// retransmitted.
    pub(super) fn connects_waited(self) -> bool {
        let retransmitted = self.arm.client.counters.get("TcpExtTCPSynRetrans");
        self.pool.backend_drops.is_some_and(|drops| drops > 0)
            || retransmitted.is_some_and(|count| *count > 0)
    }

    /// The longest accept queue of the backend.
    pub(super) fn queue_peak(self) -> Option<f64> {
        self.pool.backend_queue.points.iter().map(|point| point[3]).reduce(f64::max)
    }
}

/// Of the arms without a free worker, the one with the fewest fixes: what others are compared with.
///
/// None: in no arm requests without the backend suffered.
pub(super) fn plainest<'a>(all: &[PoolArm<'a>]) -> Option<PoolArm<'a>> {
    all.iter().find(|told| told.is_stuck())?;
    let fixes = |told: &PoolArm<'_>| {
        let factors = told.arm.factors.keys();
        factors.filter(|option| FIXES.contains(&option.as_str())).count()
    };
    all.iter().copied().filter(|told| told.all_busy()).min_by_key(fixes)
}

impl Slowed {
    pub(super) fn factor(self) -> f64 {
        self.during_us / self.before_us
    }
}

impl Factor {
    /// Local latency in one arm relative to another.
    ///
    /// None: one of them has none.
    pub(super) fn between(
        summary: &Summary,
        numerator: PoolArm<'_>,
        denominator: PoolArm<'_>,
    ) -> Option<Self> {
        let compared = |a: &str, b: &str| {
            summary
                .comparisons
                .iter()
                .find(|one| one.metric == LOCAL_LATENCY_MEAN.name && one.a == a && one.b == b)
        };
        let (a, b) = (numerator.arm.name.as_str(), denominator.arm.name.as_str());
        if let Some((ratio, one)) = compared(a, b).and_then(|one| Some((one.ratio?, one))) {
            return Some(Self { ratio, ci95: one.ci95 });
        }
        let above = |ratio: &f64| *ratio > 0.0;
        if let Some((ratio, one)) =
            compared(b, a).and_then(|one| Some((one.ratio.filter(above)?, one)))
        {
            return Some(Self { ratio, ci95: one.ci95 }.inverse());
        }
        let below = denominator.local_us().filter(above)?;
        Some(Self { ratio: numerator.local_us()? / below, ci95: None })
    }

    fn inverse(self) -> Self {
        let inverse = |[low, high]: [f64; 2]| (low > 0.0).then(|| [1.0 / high, 1.0 / low]);
        Self { ratio: 1.0 / self.ratio, ci95: self.ci95.and_then(inverse) }
    }

    /// `140×`.
    pub(super) fn times(self) -> String {
        format!("{}×", digits(self.ratio))
    }

    /// ` (95 % CI 120–160)`; empty where rounds give none.
    pub(super) fn interval(self) -> String {
        self.ci95.map_or_else(String::new, |[low, high]| {
            format!(" (95 % CI {}–{})", digits(low), digits(high))
        })
    }

    /// How the denominator compares with the numerator: `140× lower (95 % CI 120–160)`.
    pub(super) fn lower(self) -> String {
        let (factor, word) =
            if self.ratio >= 1.0 { (self, "lower") } else { (self.inverse(), "higher") };
        format!("{} {word}{}", factor.times(), factor.interval())
    }
}

/// Three significant digits: `0.048`, `1.02`, `14.2`, `1,420`.
pub(super) fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 => {
            let step = 10_f64.powf((size.log10().floor() - 2.0).max(0.0));
            human_count(((value / step).round() * step) as u64)
        }
        size if size >= 9.995 => format!("{value:.1}"),
        size if size >= 0.9995 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Workers on average: `20`, `10.3`.
pub(super) fn workers(count: f64) -> String {
    let tenths = (count * 10.0).round() / 10.0;
    if tenths.fract() == 0.0 { format!("{tenths:.0}") } else { format!("{tenths:.1}") }
}

/// The mean of a series between two instants. None: it has no point there.
fn mean_within(series: &Series, from: f64, until: f64) -> Option<f64> {
    let inside = series.points.iter().filter(|point| (from..until).contains(&point[0]));
    let means: Vec<f64> = inside.map(|point| point[2]).collect();
    (!means.is_empty()).then(|| means.iter().sum::<f64>() / means.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{arm, summary};
    use super::*;

    #[test]
    fn latency_during_the_stall_is_held_against_latency_before_it() {
        let stalled = arm("stalled", 20.0, 800e3);
        let told = PoolArm::from_arm(&stalled).unwrap();
        assert_eq!(told.slowed(), Some(Slowed { before_us: 500.0, during_us: 800e3 }));
        assert!((told.slowed().unwrap().factor() - 1_600.0).abs() < 1e-9);
        assert!(told.is_stuck());
        assert_eq!(told.queue_peak(), Some(5.0));
    }

    #[test]
    fn busy_workers_alone_or_slow_requests_alone_are_not_stuck() {
        let half = arm("half", 10.0, 800e3);
        assert!(!PoolArm::from_arm(&half).unwrap().is_stuck(), "workers were left");
        let quick = arm("quick", 20.0, 900.0);
        assert!(!PoolArm::from_arm(&quick).unwrap().is_stuck(), "nobody had to wait");
        let mut failing = quick;
        let pool = failing.own.worker_pool.as_mut().unwrap();
        pool.groups.get_mut(LOCAL).unwrap().errors.insert("timeout".to_owned(), 3);
        assert!(
            PoolArm::from_arm(&failing).unwrap().is_stuck(),
            "a request that timed out has no latency"
        );
    }

    #[test]
    fn a_factor_has_the_interval_of_its_comparison_in_either_direction() {
        let summary = summary(vec![arm("a", 20.0, 800e3), arm("b", 10.0, 510.0)], &[("b", "a")]);
        let [a, b] = [0, 1].map(|at| PoolArm::from_arm(&summary.arms[at]).unwrap());
        let factor = Factor::between(&summary, b, a).unwrap();
        assert_eq!(factor.times() + &factor.interval(), "0.010× (95 % CI 0.008–0.013)");
        assert_eq!(factor.lower(), "100× higher (95 % CI 80.0–125)");
        let lower = Factor::between(&summary, a, b).unwrap().lower();
        assert_eq!(lower, "100× lower (95 % CI 80.0–125)");
        let alone = super::super::tests::summary(summary.arms.clone(), &[]);
        let [a, b] = [0, 1].map(|at| PoolArm::from_arm(&alone.arms[at]).unwrap());
        assert_eq!(Factor::between(&alone, a, b).unwrap().lower(), "636× lower");
    }

    #[test]
    fn factors_have_three_digits() {
        let words = [0.0478, 1.024, 14.23, 99.96, 1_424.0, 2_000_400.0].map(digits);
        assert_eq!(words, ["0.048", "1.02", "14.2", "100", "1,420", "2,000,000"]);
        assert_eq!([19.97, 10.26, 0.0].map(workers), ["20", "10.3", "0"]);
    }
}
