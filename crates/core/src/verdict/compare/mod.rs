//! What do the rounds allow one to say of two arms?
//!
//! Of one run, arms are compared within rounds ([`within`]); rounds of two runs have nothing in
//! common and are not paired ([`between`]). Of several vantage points, each is one value ([`points`]). Every verdict is read from the interval that is shown,
//! and from nothing else. What the intervals take for granted is looked at by [`doubts`]; nothing is
//! dropped because of a doubt.

use crate::record::{Comparison, Trial};
use crate::study::PlannedArm;
use crate::study::pairs::Pair;

pub mod between;
mod counted;
mod doubts;
mod estimate;
pub mod points;
mod quantiles;

pub use between::{Run, between};
pub use doubts::doubts;
pub use points::{PointTrials, over_points};

use counted::{ALPHA, Counted};

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
fn within_at(
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
fn blank(pair: &Pair, arms: &[PlannedArm], margin: f64, alpha: f64) -> Comparison {
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

#[cfg(test)]
mod tests;
