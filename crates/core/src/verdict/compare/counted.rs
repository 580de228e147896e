//! The trials of a run that count, and the values of two arms that may be compared.

use std::collections::BTreeMap;

use super::estimate::Estimate;
use crate::record::{Arm, Trial};
use crate::stats::{sample, sequence};
use crate::verdict::consolidate::{by_arm, counting, exact, unit};

/// Probability that any interval of a run misses the truth; it is divided among the comparisons
/// (Bonferroni), so that it holds for all of them together.
pub(super) const ALPHA: f64 = 0.05;

/// The trials of a run that count, by arm and round.
pub(super) struct Counted<'a>(BTreeMap<&'a str, BTreeMap<u32, &'a Trial>>);

impl<'a> Counted<'a> {
    pub(super) fn new(trials: &'a [Trial]) -> Self {
        Self(by_arm(trials).into_iter().map(|(name, trials)| (name, counting(&trials))).collect())
    }

    /// The arm's rounds, in order of running; none if nothing of it counts.
    pub(super) fn rounds(&self, arm: &str) -> impl Iterator<Item = (u32, &'a Trial)> {
        self.0.get(arm).into_iter().flatten().map(|(round, trial)| (*round, *trial))
    }

    /// Round and value of every round that has the metric.
    pub(super) fn values(&self, arm: &str, metric: &str) -> BTreeMap<u32, f64> {
        self.rounds(arm)
            .filter_map(|(round, trial)| Some((round, exact(&trial.arm, metric)?)))
            .collect()
    }

    /// Share of the arm's operations that failed, 0 to 1. None: nothing of it counts, or it had none.
    pub(super) fn failed_share(&self, arm: &str) -> Option<f64> {
        let (mut failed, mut attempts) = (0.0, 0.0);
        for (_, trial) in self.rounds(arm) {
            failed += trial.arm.errors.values().map(|count| *count as f64).sum::<f64>();
            attempts += trial.arm.attempts as f64;
        }
        (attempts > 0.0).then(|| failed / attempts)
    }

    pub(super) fn unit(&self, arm: &str, metric: &str) -> Option<String> {
        self.rounds(arm).find_map(|(_, trial)| unit(&trial.arm, metric))
    }

    /// The rounds in which both arms count.
    pub(super) fn pairs(&self, a: &str, b: &str, metric: &str) -> Paired {
        let of_b: BTreeMap<u32, &Trial> = self.rounds(b).collect();
        let both = self.rounds(a).filter_map(|(round, a)| Some((a, *of_b.get(&round)?)));
        let (mut values, mut missing, mut growing) = (Vec::new(), 0, false);
        for (a, b) in both {
            growing |= grows(&a.arm, metric) || grows(&b.arm, metric);
            match comparable(&a.arm, metric).zip(comparable(&b.arm, metric)) {
                Some(pair) => values.push(pair),
                None => missing += 1,
            }
        }
        Paired {
            values,
            missing,
            growing,
            unit: self.unit(a, metric).or_else(|| self.unit(b, metric)),
        }
    }
}

/// Distributions of the time from when a request was due, or sent, to its response: what they say
/// of a saturated arm depends on how long it ran.
const GROWING: [&str; 2] = ["latency_us", "first_byte_us"];

/// Whether a metric is a latency, and the arm's grew for as long as it ran.
fn grows(arm: &Arm, metric: &str) -> bool {
    arm.saturation.is_some() && GROWING.iter().any(|name| metric.starts_with(name))
}

/// The value of a metric, if it may be compared.
fn comparable(arm: &Arm, metric: &str) -> Option<f64> {
    exact(arm, metric).filter(|_| !grows(arm, metric))
}

/// Values of two arms, a round each.
pub(super) struct Paired {
    /// Of the rounds that have both, in order of running.
    pub(super) values: Vec<(f64, f64)>,
    /// Rounds in which both arms count, and one or both have no value.
    pub(super) missing: u32,
    /// The metric is a latency, and an arm was saturated.
    pub(super) growing: bool,
    pub(super) unit: Option<String>,
}

impl Paired {
    pub(super) fn differences(&self) -> Vec<f64> {
        self.values.iter().map(|(a, b)| a - b).collect()
    }

    /// None: a value is not above 0.
    pub(super) fn log_ratios(&self) -> Option<Vec<f64>> {
        self.values.iter().map(|&(a, b)| (a > 0.0 && b > 0.0).then(|| a.ln() - b.ln())).collect()
    }

    pub(super) fn estimate(&self, alpha: f64) -> Estimate {
        let differences = self.differences();
        let logs = self.log_ratios();
        let of_b: Vec<f64> = self.values.iter().map(|(_, b)| *b).collect();
        Estimate {
            log_ratio: logs.as_deref().and_then(sample::mean),
            log_interval: logs.and_then(|logs| sequence::interval(&logs, alpha)),
            difference: sample::mean(&differences),
            difference_interval: sequence::interval(&differences, alpha),
            difference_median: sample::median(&differences),
            mean_of_b: sample::mean(&of_b),
        }
    }
}
