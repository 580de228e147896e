//! Are the rounds what the intervals take them for?

use std::collections::{BTreeMap, BTreeSet};

use super::Counted;
use crate::record::{Trial, WarningEntry};
use crate::stats::diagnostics;
use crate::study::PlannedArm;
use crate::study::pairs::Pair;
use crate::verdict::consolidate::{by_arm, left_out};
use crate::verdict::warning::Warning;

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
