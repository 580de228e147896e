//! What do two runs allow one to say of the arms they share?
//!
//! Two runs are not paired, and are looked at once: Welch's t on logarithms decides, and the rank test is a
//! witness next to it. Quantiles have no formula, so their interval is a bootstrap over rounds
//! (`compare::quantiles`).

use super::counted::{ALPHA, Counted};
use super::estimate::Estimate;
use super::quantiles::Quantile;
use crate::record::{Comparison, Trial, Verdict, WarningEntry};
use crate::stats::{sample, sequence, two_sample};
use crate::study::PlannedArm;
use crate::verdict::warning::Warning;

/// A rank test above this finds nothing.
const RANK_NOTHING: f64 = 0.05;

/// The trials of a run, for [`between`].
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Its arms.
    pub arms: &'a [PlannedArm],
    /// Its trials.
    pub trials: &'a [Trial],
}

/// Two runs: arms of the same name in both, `a` over `b`. What their rounds allow one to say.
///
/// Rounds are not paired: those of another day have nothing in common. 0.05 is divided among the
/// comparisons; one looks once, so the interval need not hold at every look as in
/// [`super::within`]. The verdict is read from it by the same rule.
///
/// - Single figures: ratio of the geometric means of the rounds' values, interval by Welch's t on
///   their logarithms. The rank test stands beside it; where the two disagree, a warning says so.
///   Of 3 rounds each the rank test finds nothing (p is at least 0.1): what Welch's t finds there
///   rests on its normal distribution alone, and the warning is due.
/// - Quantiles of a histogram (`connect_us_p99`): ratio of the quantiles of all rounds together,
///   interval by the bootstrap over rounds, from 5 rounds on each side (more, where the level is
///   divided among many).
///
/// Where every value of each run is the same, the interval is a point, given with as many rounds
/// as [`sequence::fewest`] asks. Of one round each there is a ratio and no interval.
///
/// Shape:   one comparison per arm and metric that either run has, arms in the order of `a`,
///          metrics as given; `rounds` is that of the run with fewer. What one run lacks has
///          0 rounds.
pub fn between(
    a: Run<'_>,
    b: Run<'_>,
    metrics: &[String],
    margin: f64,
) -> (Vec<Comparison>, Vec<WarningEntry>) {
    let runs = [Counted::new(a.trials), Counted::new(b.trials)];
    let shared = a.arms.iter().filter(|arm| b.arms.iter().any(|other| other.name == arm.name));
    let sides: Vec<(&str, &String, Sides)> = shared
        .flat_map(|arm| metrics.iter().map(|metric| (arm.name.as_str(), metric)))
        .map(|(arm, metric)| (arm, metric, Sides::new(&runs, arm, metric)))
        .filter(|(.., sides)| sides.rounds.iter().any(|rounds| *rounds > 0))
        .collect();
    let alpha = ALPHA / sides.len().max(1) as f64;
    let mut comparisons = Vec::with_capacity(sides.len());
    let mut warnings = Vec::new();
    for (arm, metric, sides) in sides {
        let blank = Comparison {
            metric: metric.clone(),
            a: arm.to_owned(),
            b: arm.to_owned(),
            margin,
            rounds: sides.rounds[0].min(sides.rounds[1]) as u32,
            alpha,
            rank_test_p: two_sample::mann_whitney(&sides.values[0], &sides.values[1])
                .map(|test| test.p),
            ..Comparison::default()
        };
        let comparison = sides.estimate(alpha).fill(blank, sides.unit);
        if let Some(rank_p) = comparison.rank_test_p.filter(|p| disagrees(&comparison, *p)) {
            let what = format!("{metric}, one run against the other");
            warnings.push(Warning::TestsDisagree { what, rank_p }.entry(Some(arm)));
        }
        comparisons.push(comparison);
    }
    (comparisons, warnings)
}

/// Whether the rank test finds nothing where the interval finds something, or the other way round.
/// That both find a difference too small to matter is no disagreement.
fn disagrees(comparison: &Comparison, rank_p: f64) -> bool {
    match comparison.verdict {
        Verdict::Higher | Verdict::Lower => rank_p > RANK_NOTHING,
        Verdict::NotEnough => comparison.difference.is_some() && rank_p < comparison.alpha,
        Verdict::NoDifference => false,
    }
}

/// What two runs have of one arm and metric.
struct Sides {
    /// Of each run, the rounds that have it.
    rounds: [usize; 2],
    /// Of each run, one value a round; of a quantile, empty unless every round has it.
    values: [Vec<f64>; 2],
    /// Where the metric is a quantile of a histogram.
    quantile: Option<Quantile>,
    unit: Option<String>,
}

impl Sides {
    fn new(runs: &[Counted<'_>; 2], arm: &str, metric: &str) -> Self {
        let unit = runs.iter().find_map(|run| run.unit(arm, metric));
        let mut values =
            [0, 1].map(|run| runs[run].values(arm, metric).into_values().collect::<Vec<_>>());
        let quantile = Quantile::find(metric, [0, 1].map(|run| runs[run].rounds(arm)));
        let rounds = match &quantile {
            Some(quantile) => quantile.rounds(),
            None => [values[0].len(), values[1].len()],
        };
        if [0, 1].iter().any(|&run| values[run].len() < rounds[run]) {
            values = [Vec::new(), Vec::new()];
        }
        Self { rounds, values, quantile, unit }
    }

    fn estimate(&self, alpha: f64) -> Estimate {
        if let Some(quantile) = &self.quantile {
            return quantile.estimate(alpha);
        }
        let [a, b] = &self.values;
        let (mean_of_a, mean_of_b) = (sample::mean(a), sample::mean(b));
        let logs = logs(a).zip(logs(b));
        let log_means = logs.as_ref().and_then(|(a, b)| sample::mean(a).zip(sample::mean(b)));
        Estimate {
            log_ratio: log_means.map(|(a, b)| a - b),
            log_interval: logs.and_then(|(a, b)| interval(&a, &b, alpha)),
            difference: mean_of_a.zip(mean_of_b).map(|(a, b)| a - b),
            difference_interval: interval(a, b, alpha),
            difference_median: None,
            mean_of_b,
        }
    }
}

/// None: a value is not above 0.
fn logs(values: &[f64]) -> Option<Vec<f64>> {
    values.iter().map(|value| (*value > 0.0).then(|| value.ln())).collect()
}

/// The interval of the difference of two means.
///
/// Welch's t has no answer where nothing varies: whole numbers, like the peak of a full queue, are
/// often the same in all rounds. Then it is the point.
fn interval(a: &[f64], b: &[f64], alpha: f64) -> Option<[f64; 2]> {
    let constant = |values: &[f64]| values.iter().all(|value| value.total_cmp(&values[0]).is_eq());
    if !a.is_empty() && !b.is_empty() && constant(a) && constant(b) {
        let fewest = sequence::fewest(alpha);
        return (a.len().min(b.len()) >= fewest).then(|| [a[0] - b[0]; 2]);
    }
    two_sample::welch(a, b, alpha).map(|welch| welch.ci)
}
