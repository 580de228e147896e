//! What do the rounds allow one to say of two arms?
//!
//! Of one run, arms are compared within rounds ([`within`]); rounds of two runs have nothing in
//! common and are not paired ([`super::between`]). Of several vantage points, each is one value
//! ([`super::points`]). Every verdict is read from the interval that is shown, and from nothing else. What the intervals take for granted is looked at by [`doubts`]; nothing is
//! dropped because of a doubt.

use std::collections::{BTreeMap, BTreeSet};

use super::consolidate::{by_arm, counting, exact, left_out, unit};
use super::warning::Warning;
use crate::record::{Arm, Comparison, Metric, Trial, Verdict, WarningEntry};
use crate::stats::sequence::ROUNDS_TO_BE_NARROW;
use crate::stats::{diagnostics, sample, sequence};
use crate::study::PlannedArm;
use crate::study::pairs::Pair;

/// Comparisons paired within rounds; 0.05 is divided among them.
///
/// A pair's value of a round is that of the last trial that counts. Where both arms count in a round
/// and one has no value of the metric (no operation succeeded, a quantile has too few values), what
/// is left are the better rounds of that arm: ratio and rounds are given, and neither an interval
/// nor a verdict ([`doubts`] says so). The ratio is the geometric mean
/// of the ratios of rounds: what a round did to both arms cancels, and so does the unit; b over a
/// is its inverse, which the mean of ratios is not. Its interval is the confidence sequence of the
/// mean log-ratio ([`crate::stats::sequence`]), valid at every look.
///
/// Verdict: no difference, if the interval lies within the margin, 1 / (1 + m) to 1 + m, after at
/// least 15 rounds ([`crate::stats::sequence::ROUNDS_TO_BE_NARROW`]); higher or lower, if it does not lie there
/// and does not hold 1. Where a value is not above 0 there is no ratio: the
/// verdict is then read from the interval of the difference, with the margin as a share of the mean
/// of b.
///
/// Shape:   one comparison per pair, in their order; without a common round, of 0 rounds.
/// Panics:  a pair names an arm that is not in `arms`.
pub fn within(
    pairs: &[Pair],
    arms: &[PlannedArm],
    trials: &[Trial],
    margin: f64,
) -> Vec<Comparison> {
    within_at(pairs, arms, trials, margin, ALPHA / pairs.len().max(1) as f64)
}

/// As [`within`], at this level for each comparison.
pub(super) fn within_at(
    pairs: &[Pair],
    arms: &[PlannedArm],
    trials: &[Trial],
    margin: f64,
    alpha: f64,
) -> Vec<Comparison> {
    let counted = Counted::new(trials);
    let compare = |pair: &Pair| {
        let rounds = counted.pairs(&arms[pair.a].name, &arms[pair.b].name, &pair.metric);
        let blank =
            Comparison { rounds: rounds.values.len() as u32, ..blank(pair, arms, margin, alpha) };
        let estimate = rounds.estimate(alpha);
        let estimate = if rounds.missing > 0 { estimate.without_intervals() } else { estimate };
        estimate.fill(blank, rounds.unit)
    };
    pairs.iter().map(compare).collect()
}

/// What a comparison is of, before anything is known.
pub(super) fn blank(pair: &Pair, arms: &[PlannedArm], margin: f64, alpha: f64) -> Comparison {
    Comparison {
        metric: pair.metric.clone(),
        a: arms[pair.a].name.clone(),
        b: arms[pair.b].name.clone(),
        per: pair.per.clone(),
        margin,
        alpha,
        ..Comparison::default()
    }
}

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
    fn failed_share(&self, arm: &str) -> Option<f64> {
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

/// Ratio and difference of two arms with their intervals, however they were found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Estimate {
    /// Logarithm of a / b. None: a value is not above 0, or there is none.
    pub log_ratio: Option<f64>,
    /// Of [`Self::log_ratio`]. None: too few rounds, or rounds that lack the metric.
    pub log_interval: Option<[f64; 2]>,
    /// a − b.
    pub difference: Option<f64>,
    /// Of [`Self::difference`]. None: as [`Self::log_interval`].
    pub difference_interval: Option<[f64; 2]>,
    /// Median of the rounds' differences, where rounds are paired.
    pub difference_median: Option<f64>,
    /// What a margin is relative to, where there is no ratio.
    pub mean_of_b: Option<f64>,
}

impl Estimate {
    /// The same figures with nothing to be concluded from them.
    fn without_intervals(self) -> Self {
        Self { log_interval: None, difference_interval: None, ..self }
    }

    /// The comparison with what was found, and the verdict that its interval gives.
    pub(super) fn fill(self, blank: Comparison, unit: Option<String>) -> Comparison {
        let difference = self.difference.zip(unit).map(|(value, unit)| Metric {
            value,
            unit,
            ci95: self.difference_interval,
            median: self.difference_median,
            n: u64::from(blank.rounds),
        });
        let finite = |ends: &[f64; 2]| ends.iter().all(|end| end.is_finite());
        let ci95 = self.log_interval.map(|ends| ends.map(f64::exp)).filter(finite);
        let least = 1.0 + blank.margin;
        let verdict = if self.log_ratio.is_some() {
            read(ci95, 1.0, [1.0 / least, least], blank.rounds)
        } else {
            let least = self.mean_of_b.map_or(0.0, |b| blank.margin * b.abs());
            read(self.difference_interval, 0.0, [-least, least], blank.rounds)
        };
        let ratio = self.log_ratio.map(f64::exp).filter(|ratio| ratio.is_finite());
        Comparison { ratio, ci95, difference, verdict, ..blank }
    }
}

/// What an interval says: `even` is no difference, `same` the values that do not matter.
///
/// That it is narrow is believed from [`ROUNDS_TO_BE_NARROW`] rounds on, that it is elsewhere at once.
fn read(interval: Option<[f64; 2]>, even: f64, same: [f64; 2], rounds: u32) -> Verdict {
    match interval {
        Some([low, high]) if low >= same[0] && high <= same[1] => {
            if rounds as usize >= ROUNDS_TO_BE_NARROW {
                Verdict::NoDifference
            } else {
                Verdict::NotEnough
            }
        }
        Some([low, _]) if low > even => Verdict::Higher,
        Some([_, high]) if high < even => Verdict::Lower,
        _ => Verdict::NotEnough,
    }
}

/// Probability that a test of drift warns of a run that has nothing wrong.
const DRIFT_ALPHA: f64 = 0.01;

/// The same for autocorrelation. It is larger because what it finds breaks the intervals' promise:
/// at a correlation of 0.5 it warns of 78 % of runs of 30, and 18 % of A/A verdicts are wrong there.
const ALIKE_ALPHA: f64 = 0.05;

/// A share of failed operations that is looked at, however large the margin is.
const FAILURES_MATTER: f64 = 0.01;

/// Doubts about rounds: trials left out, failures that differ, a metric that is missing, drift,
/// outliers, two modes, autocorrelation.
///
/// Looked at are the metrics that are compared, of the arms that are; `primary`, of every arm, where
/// nothing is compared. A drift is told if it is
/// beyond chance and beyond the margin: a smaller one does not matter, by the study's own measure.
///
/// Panics:  a pair names an arm that is not in `arms`.
pub fn doubts(
    pairs: &[Pair],
    arms: &[PlannedArm],
    trials: &[Trial],
    primary: &str,
    margin: f64,
) -> Vec<WarningEntry> {
    let counted = Counted::new(trials);
    let mut doubts = left_out_of(arms, trials);
    doubts.extend(failures(pairs, arms, &counted, margin).iter().map(|w| w.entry(None)));
    let mut compared: BTreeSet<(usize, &str)> =
        pairs.iter().flat_map(|p| [(p.a, p.metric.as_str()), (p.b, p.metric.as_str())]).collect();
    if compared.is_empty() {
        compared.extend((0..arms.len()).map(|arm| (arm, primary)));
    }
    let alpha = DRIFT_ALPHA / compared.len().max(1) as f64;
    for (arm, metric) in compared {
        let arm = arms[arm].name.as_str();
        let rounds = counted.values(arm, metric);
        doubts.extend(of_arm(metric, &rounds, margin, alpha).iter().map(|w| w.entry(Some(arm))));
    }
    let alpha = ALIKE_ALPHA / pairs.len().max(1) as f64;
    for pair in pairs {
        let (a, b) = (arms[pair.a].name.as_str(), arms[pair.b].name.as_str());
        let rounds = counted.pairs(a, b, &pair.metric);
        let what = format!("{}, {a} against {b}", pair.metric);
        if rounds.growing {
            let what = what.clone();
            doubts.push(Warning::SaturatedNotCompared { what }.entry(None));
        } else if rounds.missing > 0 {
            let all = rounds.missing + rounds.values.len() as u32;
            let what = what.clone();
            doubts.push(Warning::MetricMissing { what, rounds: rounds.missing, all }.entry(None));
        }
        let effects = rounds.log_ratios().unwrap_or_else(|| rounds.differences());
        if let Some(found) = diagnostics::autocorrelation(&effects).filter(|test| test.p < alpha) {
            doubts.push(Warning::Autocorrelated { what, lag1: found.lag1 }.entry(None));
        }
    }
    doubts
}

fn of_arm(metric: &str, rounds: &BTreeMap<u32, f64>, margin: f64, alpha: f64) -> Vec<Warning> {
    let metric = metric.to_owned();
    let values: Vec<f64> = rounds.values().copied().collect();
    let mut warnings = Vec::new();
    if let Some(drift) = diagnostics::drift(&values)
        && drift.p < alpha
        && drift.change.abs() > margin
    {
        warnings.push(Warning::Drift { metric: metric.clone(), change: drift.change });
    }
    let numbers: Vec<u32> = rounds.keys().map(|round| round + 1).collect();
    let far: Vec<u32> = diagnostics::outliers(&values)
        .into_iter()
        .filter_map(|at| numbers.get(at).copied())
        .collect();
    if !far.is_empty() {
        warnings.push(Warning::OutlierRounds { metric: metric.clone(), rounds: far });
    }
    if let Some(modes) = diagnostics::two_modes(&values) {
        warnings.push(Warning::TwoModes { metric, low: modes.low, high: modes.high });
    }
    warnings
}

/// Pairs of arms of which one fails more often: metrics are of operations that succeeded, so what
/// an arm gave up on is missing from its figures.
///
/// Shape:   at most one per pair of arms, whatever metrics they are compared in.
fn failures(
    pairs: &[Pair],
    arms: &[PlannedArm],
    counted: &Counted<'_>,
    margin: f64,
) -> Vec<Warning> {
    let mut seen = BTreeSet::new();
    let differ = |pair: &Pair| {
        let (a, b) = (arms[pair.a].name.as_str(), arms[pair.b].name.as_str());
        let shares = counted.failed_share(a).zip(counted.failed_share(b))?;
        let (less, more) = (shares.0.min(shares.1), shares.0.max(shares.1));
        let differ = more - less > margin || (more > FAILURES_MATTER && less < more / 2.0);
        differ.then(|| Warning::FailuresDiffer {
            what: format!("{a} against {b}"),
            a: shares.0,
            b: shares.1,
        })
    };
    let once = pairs.iter().filter(|pair| seen.insert((pair.a.min(pair.b), pair.a.max(pair.b))));
    once.filter_map(differ).collect()
}

/// Trials that were excluded or failed, by arm. What a signal stopped is told by the run being partial.
fn left_out_of(arms: &[PlannedArm], trials: &[Trial]) -> Vec<WarningEntry> {
    let by_arm = by_arm(trials);
    let of_arm = |arm: &PlannedArm| {
        let trials_of_arm = by_arm.get(arm.name.as_str()).map(Vec::as_slice).unwrap_or_default();
        let mut warnings = Vec::new();
        warnings.extend(excluded(trials_of_arm));
        let by_rule = |trial: &&Trial| trial.invalid.is_some() && trial.arm.failure.is_none();
        if !trials_of_arm.iter().any(|trial| trial.counts()) && trials_of_arm.iter().any(by_rule) {
            warnings.push(Warning::NothingCounts);
        }
        warnings.into_iter().map(|warning| warning.entry(Some(&arm.name))).collect::<Vec<_>>()
    };
    arms.iter().flat_map(of_arm).collect()
}

/// How many trials of an arm were excluded or failed, and why most of them were.
fn excluded(trials: &[&Trial]) -> Option<Warning> {
    let by_rule = |trial: &&&Trial| trial.invalid.is_some() || trial.arm.failure.is_some();
    let mut reasons: BTreeMap<String, u64> = BTreeMap::new();
    for why in trials.iter().filter(by_rule).filter_map(|trial| left_out(trial)) {
        *reasons.entry(why).or_default() += 1;
    }
    let count: u64 = reasons.values().sum();
    // Of reasons that are as frequent, the last of the alphabet: the order of trials is no matter.
    let (why, _) = reasons.into_iter().max_by_key(|(_, times)| *times)?;
    Some(Warning::TrialsExcluded { count, all: trials.len() as u64, why })
}

#[cfg(test)]
mod tests;
