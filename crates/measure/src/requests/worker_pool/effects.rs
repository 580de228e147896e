//! What a stall did to an arm, and how two arms differ: the figures that causes, advice and the answer
//! state. What keeps workers from waiting for a stopped backend: each setting with its cost, how to undo it,
//! and what the arm of the same run that has it measured. A setting that the run shows to be useless is
//! stated as such.

use super::{LOCAL, LOCAL_LATENCY_MEAN};
use crate::kit::conclusion::{changed, value, variants};
use tcptoll_core::finding::Remedy;
use tcptoll_core::number;
use tcptoll_core::record::{Arm, Summary, WorkerPool};
use tcptoll_core::stats::Series;
use tcptoll_core::units::capital;

/// The cause that a run of this experiment looks for.
pub(super) const STUCK: &str = "workers-stuck";

/// From this share of busy workers on, a request that needs no backend has to wait.
const ALL_BUSY: f64 = 0.9;

/// From this factor on, a request is slower by more than chance and the CPU that others use.
const SLOWER: f64 = 2.0;

/// An upper limit of expected workers that is higher by less than this share is not stated.
const WORTH_STATING: f64 = 0.05;

/// Options that change how the backend is called. Arms that differ in others too are no proof.
const FIXES: [&str; 10] = [
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
    fn all_busy(self) -> bool {
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
            Some(most) => {
                format!(" (expected: {} to {})", number::plain(least), number::plain(most))
            }
            None => format!(" (expected: {})", number::plain(least)),
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

    /// `140×` and ` (95 % CI 120–160)`, which is empty where rounds give none.
    pub(super) fn times(self) -> [String; 2] {
        number::times(self.ratio, self.ci95)
    }

    /// How the denominator compares with the numerator: `140× lower (95 % CI 120–160)`.
    pub(super) fn lower(self) -> String {
        let (factor, word) =
            if self.ratio >= 1.0 { (self, "lower") } else { (self.inverse(), "higher") };
        let [times, interval] = factor.times();
        format!("{times} {word}{interval}")
    }
}

/// The mean of a series between two instants. None: it has no point there.
fn mean_within(series: &Series, from: f64, until: f64) -> Option<f64> {
    let inside = series.points.iter().filter(|point| (from..until).contains(&point[0]));
    let means: Vec<f64> = inside.map(|point| point[2]).collect();
    (!means.is_empty()).then(|| means.iter().sum::<f64>() / means.len() as f64)
}

/// Settings that may keep workers from waiting: a remedy's name in `docs/causes.md`, and the options of an arm that has
/// it. The more special first: the first whose options are all changed is meant.
const ALL: [(&str, &[&str]); 10] = [
    ("backoff", &["retries", "backoff"]),
    ("few-retries", &["retries"]),
    ("local-cache", &["cache"]),
    ("pool-and-timeout", &["connection", "answer-timeout"]),
    ("connection-pool", &["connection"]),
    ("abort-on-overflow", &["abort-on-overflow"]),
    ("longer-backlog", &["backend-backlog"]),
    ("more-workers", &["workers"]),
    ("connect-timeout", &["connect-timeout"]),
    ("response-timeout", &["answer-timeout"]),
];

/// Those that are advised without a proof.
const GENERAL: [(&str, &str); 3] = [
    ("local-cache", "cache"),
    ("connect-timeout", "connect-timeout"),
    ("response-timeout", "answer-timeout"),
];

/// An arm of the run that has a fix, next to one that has not.
struct TriedFix<'a> {
    told: PoolArm<'a>,
    ill: PoolArm<'a>,
    name: &'static str,
    options: &'static [&'static str],
    /// Local latency without the fix relative to that with it.
    faster: Option<Factor>,
}

impl TriedFix<'_> {
    fn helped(&self) -> bool {
        !self.told.all_busy() && self.faster.is_some_and(|faster| faster.ratio >= SLOWER)
    }

    fn ratio(&self) -> f64 {
        self.faster.map_or(0.0, |faster| faster.ratio)
    }

    fn remedy(&self) -> Remedy {
        let latency = self.faster.map(|faster| {
            let ill = &self.ill.arm.name;
            format!("latency without backend calls {} than in {ill}", faster.lower())
        });
        let busy = self.told.busy().map(|busy| {
            format!("{} of {} workers busy", number::plain(busy), self.told.pool.workers)
        });
        let figures: Vec<String> = [latency, busy].into_iter().flatten().collect();
        let proof = (!figures.is_empty())
            .then(|| format!("arm {}: {}", self.told.arm.name, figures.join("; ")));
        let remedy = Remedy::named(STUCK, self.name).proven(proof);
        if self.helped() {
            return remedy;
        }
        // The run shows where it is no remedy.
        let name = capital(&self.name.replace('-', " "));
        let change = format!("{name} did not help in this run. {}", remedy.not_if);
        Remedy { change: change.trim_end().to_owned(), not_if: String::new(), ..remedy }
    }
}

/// Every fix that the run tried, the most effective first, and what else is generally advised.
pub(super) fn remedies(summary: &Summary) -> Vec<Remedy> {
    let tried = tried(summary);
    let untried = GENERAL.iter().filter(|(_, option)| {
        let typed = summary.command.iter().any(|word| word.strip_prefix("--") == Some(option));
        let useful = *option != "connect-timeout" || connects_waited(summary);
        useful && !typed && !tried.iter().any(|tried| tried.options.contains(option))
    });
    let untried = untried.map(|(name, _)| Remedy::named(STUCK, name));
    tried.iter().map(TriedFix::remedy).chain(untried).collect()
}

/// Whether calls of an arm without a free worker waited for a connection. A connect timeout is of no
/// use to calls that wait for an answer only: those of open connections, or of a queue with room.
fn connects_waited(summary: &Summary) -> bool {
    let told = summary.arms.iter().filter_map(PoolArm::from_arm);
    told.filter(|told| told.is_stuck()).any(PoolArm::connects_waited)
}

/// The arms that differ from the plainest one without a free worker in fixes alone.
fn tried(summary: &Summary) -> Vec<TriedFix<'_>> {
    let told: Vec<PoolArm<'_>> = summary.arms.iter().filter_map(PoolArm::from_arm).collect();
    let Some(ill) = plainest(&told) else { return Vec::new() };
    let of_arm = |arm| {
        let told = PoolArm::from_arm(arm).filter(|told| told.pool.stalled_s.is_some())?;
        let changed = changed(arm, ill.arm);
        let has = |(_, options): &&(_, &[&str])| options.iter().all(|one| changed.contains(one));
        let (name, options) = *ALL.iter().find(has)?;
        let ill = without_retries(summary, told).unwrap_or(ill);
        Some(TriedFix { told, ill, name, options, faster: Factor::between(summary, ill, told) })
    };
    let mut tried: Vec<TriedFix<'_>> =
        variants(summary, ill.arm, &FIXES).filter_map(of_arm).collect();
    tried.sort_by(|a, b| {
        (b.helped(), b.ratio())
            .partial_cmp(&(a.helped(), a.ratio()))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    tried
}

/// The arm that is the same but for retries: what retries change is their effect alone.
fn without_retries<'a>(summary: &'a Summary, one: PoolArm<'a>) -> Option<PoolArm<'a>> {
    const RETRIES: [&str; 3] = ["retries", "backoff", "jitter"];
    one.arm.factors.contains_key(RETRIES[0]).then_some(())?;
    let others = variants(summary, one.arm, &RETRIES).filter_map(PoolArm::from_arm);
    let without = |other: &PoolArm<'_>| {
        other.pool.stalled_s.is_some() && !other.arm.factors.contains_key(RETRIES[0])
    };
    others.into_iter().find(without)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{arm, summary};
    use super::*;
    use serde_json::Value;
    use tcptoll_core::record::Arm;

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
        assert_eq!(factor.times().concat(), "0.0100× (95 % CI 0.0080–0.0125)");
        assert_eq!(factor.lower(), "100× higher (95 % CI 80–125)");
        let lower = Factor::between(&summary, a, b).unwrap().lower();
        assert_eq!(lower, "100× lower (95 % CI 80–125)");
        let alone = super::super::tests::summary(summary.arms.clone(), &[]);
        let [a, b] = [0, 1].map(|at| PoolArm::from_arm(&alone.arms[at]).unwrap());
        assert_eq!(Factor::between(&alone, a, b).unwrap().lower(), "636× lower");
    }

    fn with(name: &str, factors: &[(&str, &str)], busy: f64, during_us: f64) -> Arm {
        let mut arm = arm(name, busy, during_us);
        let factors =
            factors.iter().map(|(option, level)| ((*option).to_owned(), Value::from(*level)));
        arm.factors = factors.collect();
        arm
    }

    #[test]
    fn what_the_run_tried_comes_first_with_its_proof_and_a_false_remedy_is_named() {
        let arms = vec![
            with("stalled", &[], 20.0, 800e3),
            with("at once", &[("connect-timeout", "100ms"), ("retries", "3")], 20.0, 300e3),
            with("limit", &[("connect-timeout", "100ms")], 10.0, 520.0),
        ];
        let advice = remedies(&summary(arms, &[("limit", "stalled")]));
        assert!(advice[0].change.starts_with("Set a short connect timeout"), "{advice:?}");
        assert_eq!(
            advice[0].proof.as_deref(),
            Some(
                "arm limit: latency without backend calls 100× lower (95 % CI 80–125) than in \
                 stalled; 10 of 20 workers busy"
            )
        );
        assert!(
            advice[1].change.starts_with("Few retries did not help in this run. Calls fail"),
            "{advice:?}"
        );
        assert!(advice[1].proof.as_deref().unwrap().contains("20 of 20 workers busy"));
        assert!(advice[2..].iter().all(|other| other.proof.is_none()));
        assert!(advice.iter().all(|one| !one.cost.is_empty() && !one.undo.is_empty()));
    }

    #[test]
    fn arms_are_compared_with_the_one_that_has_no_fix_even_if_a_noisy_start_hides_its_stall() {
        // Slow before the stall too: on its own it does not show the cause.
        let arms = vec![
            with("published", &[], 20.0, 900.0),
            with("abort-on-overflow", &[("abort-on-overflow", "on")], 20.0, 800e3),
            with("limit", &[("connect-timeout", "100ms")], 10.0, 520.0),
        ];
        let advice = remedies(&summary(arms, &[]));
        let proofs: Vec<&str> = advice.iter().filter_map(|one| one.proof.as_deref()).collect();
        assert_eq!(proofs.len(), 2, "{proofs:?}");
        assert!(proofs.iter().all(|proof| proof.contains("than in published")), "{proofs:?}");
        assert!(!advice.iter().any(|one| one.change.starts_with("Set net.ipv4.tcp_abort")));
    }

    #[test]
    fn a_connect_time_out_is_advised_only_where_calls_waited_for_a_connection() {
        let advised = |drops, retransmitted| {
            let mut stalled = with("pooled", &[], 20.0, 800e3);
            stalled.own.worker_pool.as_mut().unwrap().backend_drops = Some(drops);
            stalled.client.counters.insert("TcpExtTCPSynRetrans".to_owned(), retransmitted);
            let advice = remedies(&summary(vec![stalled], &[]));
            assert!(advice.iter().any(|one| one.change.starts_with("Set a timeout for responses")));
            advice.iter().any(|one| one.change.starts_with("Set a short connect timeout"))
        };
        assert!(advised(40, 0) && advised(0, 3));
        assert!(!advised(0, 0), "all calls waited for an answer");
    }

    #[test]
    fn an_arm_that_differs_in_the_load_too_proves_nothing() {
        let arms = vec![
            with("stalled", &[], 20.0, 800e3),
            with("other", &[("connect-timeout", "100ms"), ("rate", "10")], 3.0, 520.0),
            with("never", &[("stall", "0")], 1.0, 510.0),
        ];
        assert!(remedies(&summary(arms, &[])).iter().all(|advice| advice.proof.is_none()));
    }

    #[test]
    fn every_option_of_a_fix_is_an_option_and_the_special_ones_come_first() {
        for (name, options) in &ALL {
            assert!(options.iter().all(|option| FIXES.contains(option)), "{options:?}");
            assert!(!Remedy::named(STUCK, name).undo.is_empty(), "{name}");
        }
        let known = |name: &&str| super::super::SPEC.option(name).is_some();
        assert!(FIXES.iter().all(known));
        let hidden = |(at, (_, options)): (usize, &(_, &[&str]))| {
            let mut earlier = ALL[..at].iter();
            earlier.any(|(_, earlier)| earlier.iter().all(|option| options.contains(option)))
        };
        assert!(!ALL.iter().enumerate().any(hidden), "a general fix stands before a special one");
    }
}
