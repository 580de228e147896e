//! What vantage points show together: the point is the unit, not the round.
//!
//! The rounds of one point share its path, its machine and its hour, so more rounds there say more of this point
//! and nothing of the others. Each point gives one value, the mean log-ratio of its paired rounds. The interval is
//! the confidence sequence of the mean over points ([`crate::stats::sequence`]), so it may be looked at after each
//! point that arrives. It covers the mean of all points of which these are a sample.
//!
//! A verdict needs 15 points. A confidence sequence has an end at 5, but where one kind of point in five
//! differs by 25 % and the mean is 1, verdicts of 6 points were wrong in 23 % of simulated fleets, of 10 in
//! 11 %, of 15 in 3 %. Below 15 the points' own verdicts stand, at a level divided among points.

use super::compare::{ALPHA, Counted, Estimate, Paired, blank, within_at};
use crate::record::{Comparison, OverPoints, PointRatio, Trial, Verdict};
use crate::stats::{sample, sequence};
use crate::study::PlannedArm;
use crate::study::pairs::Pair;
use crate::units::plural;

/// Paired rounds from which on a point counts: with fewer, one round may be most of its value.
pub const ROUNDS_OF_A_POINT: usize = 5;

/// Points from which on there is an interval and a verdict over points.
///
/// The sequence has an end from 5 values on, but few points may include none of a kind that is one in five. Where
/// such a kind differs by 25 % and the mean is 1, the verdict of 6 points is wrong in 23 % of fleets, of 10 in
/// 11 %, of 15 in 3 % (`tests/honesty/points.rs`).
pub const POINTS_FOR_A_VERDICT: usize = 15;

/// One vantage point with its trials.
pub struct PointTrials<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its trials, in order of running.
    pub trials: &'a [Trial],
    /// Why none of them counts.
    pub left_out: Option<&'a str>,
}

/// A point's value, from the rounds in which both arms count.
#[derive(Clone, Copy, Debug)]
pub struct PointValue {
    /// Mean log-ratio.
    pub log_ratio: f64,
    /// Standard error of that mean, from the scatter of the rounds.
    pub error: f64,
}

impl PointValue {
    /// Of the log-ratios of a point's rounds. None: fewer than [`ROUNDS_OF_A_POINT`].
    #[must_use]
    pub fn from_log_ratios(log_ratios: &[f64]) -> Option<Self> {
        if log_ratios.len() < ROUNDS_OF_A_POINT {
            return None;
        }
        let error = sample::sd(log_ratios)? / (log_ratios.len() as f64).sqrt();
        Some(Self { log_ratio: sample::mean(log_ratios)?, error })
    }
}

/// The interval of the mean over points. None: fewer than [`POINTS_FOR_A_VERDICT`], or than `alpha` needs.
#[must_use]
pub fn interval(values: &[f64], alpha: f64) -> Option<[f64; 2]> {
    (values.len() >= POINTS_FOR_A_VERDICT).then(|| sequence::interval(values, alpha)).flatten()
}

/// Standard deviation between the points themselves: the variance of their values less the mean variance that the
/// scatter of their rounds gives (Hedges and Olkin 1985). 0 if that is not above 0. None: fewer than two points.
#[must_use]
pub fn spread(points: &[PointValue]) -> Option<f64> {
    let values: Vec<f64> = points.iter().map(|point| point.log_ratio).collect();
    let of_rounds: Vec<f64> = points.iter().map(|point| point.error.powi(2)).collect();
    let between = sample::sd(&values)?.powi(2) - sample::mean(&of_rounds)?;
    Some(between.max(0.0).sqrt())
}

/// Comparisons over vantage points; 0.05 is divided among the pairs.
///
/// Verdict: as in [`crate::verdict::compare::within`], with points in the place of rounds. A point counts if both arms count in at
/// least [`ROUNDS_OF_A_POINT`] of its rounds and none of these lacks the metric. Each point's own interval is at
/// 0.05 divided among pairs and points, so that all hold together.
///
/// Shape: one comparison per pair, in their order. Panics: a pair names an arm that is not in `arms`.
#[must_use]
pub fn over_points(
    pairs: &[Pair],
    arms: &[PlannedArm],
    points: &[PointTrials<'_>],
    margin: f64,
) -> Vec<Comparison> {
    let alpha = ALPHA / pairs.len().max(1) as f64;
    let alpha_of_point = alpha / points.len().max(1) as f64;
    let own: Vec<Vec<Comparison>> = points
        .iter()
        .map(|point| within_at(pairs, arms, point.trials, margin, alpha_of_point))
        .collect();
    let counted: Vec<Counted<'_>> = points.iter().map(|point| Counted::new(point.trials)).collect();
    let compare = |(at, pair): (usize, &Pair)| {
        let (a, b) = (&arms[pair.a].name, &arms[pair.b].name);
        let (mut values, mut differences, mut of_b) = (Vec::new(), Vec::new(), Vec::new());
        let (mut ratios, mut each, mut unit) = (true, Vec::new(), None);
        for ((point, counted), own) in points.iter().zip(&counted).zip(&own) {
            let rounds = counted.pairs(a, b, &pair.metric);
            let other_unit = || {
                let (first, own) = (unit.as_ref()?, rounds.unit.as_ref()?);
                (first != own).then(|| format!("its unit is {own}, not {first}"))
            };
            let left_out = point.left_out.map(str::to_owned).or_else(|| why_not(&rounds));
            let left_out = left_out.or_else(other_unit);
            let own = &own[at];
            if left_out.is_none() {
                match rounds.log_ratios().as_deref().and_then(PointValue::from_log_ratios) {
                    Some(value) => values.push(value),
                    None => ratios = false,
                }
                differences.extend(sample::mean(&rounds.differences()));
                let b: Vec<f64> = rounds.values.iter().map(|(_, b)| *b).collect();
                of_b.extend(sample::mean(&b));
                unit = unit.or(rounds.unit);
            }
            each.push(PointRatio {
                point: point.name.to_owned(),
                ratio: own.ratio,
                ci95: own.ci95,
                rounds: own.rounds,
                verdict: if left_out.is_some() { Verdict::NotEnough } else { own.verdict },
                left_out,
            });
        }
        let logs: Vec<f64> = values.iter().map(|value| value.log_ratio).collect();
        let estimate = Estimate {
            log_ratio: sample::mean(&logs).filter(|_| ratios),
            log_interval: interval(&logs, alpha).filter(|_| ratios),
            difference: sample::mean(&differences),
            difference_interval: interval(&differences, alpha),
            difference_median: sample::median(&differences),
            mean_of_b: sample::mean(&of_b),
        };
        let blank = Comparison {
            rounds: differences.len() as u32,
            points: Some(OverPoints {
                least: sequence::fewest(alpha).max(POINTS_FOR_A_VERDICT) as u32,
                spread_log: spread(&values).filter(|_| ratios),
                each,
                ..OverPoints::default()
            }),
            ..blank(pair, arms, margin, alpha)
        };
        let mut comparison = estimate.fill(blank, unit);
        count_opposite(&mut comparison);
        comparison
    };
    pairs.iter().enumerate().map(compare).collect()
}

/// Why a point does not count for a metric.
fn why_not(rounds: &Paired) -> Option<String> {
    let count = rounds.values.len();
    if rounds.growing {
        Some("an arm was saturated, so its latency grew for as long as it ran".to_owned())
    } else if rounds.missing > 0 {
        Some(format!("the figure is missing in {}", plural(u64::from(rounds.missing), "round")))
    } else if count < ROUNDS_OF_A_POINT {
        let are = if count == 1 { "round counts" } else { "rounds count" };
        Some(format!("{count} {are} for both arms, {ROUNDS_OF_A_POINT} are needed"))
    } else {
        None
    }
}

fn count_opposite(comparison: &mut Comparison) {
    let Some(ratio) = comparison.ratio else { return };
    let Some(points) = &mut comparison.points else { return };
    let is_opposite = |point: &&PointRatio| {
        point.left_out.is_none()
            && point
                .ratio
                .is_some_and(|own| (own > 1.0 && ratio < 1.0) || (own < 1.0 && ratio > 1.0))
    };
    let opposite = points.each.iter().filter(is_opposite);
    let by_verdict =
        |point: &&PointRatio| matches!(point.verdict, Verdict::Higher | Verdict::Lower);
    points.opposite_verdicts = opposite.clone().filter(by_verdict).count() as u32;
    points.opposite = opposite.count() as u32;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Arm, Metric};
    use crate::study::Settings;

    const METRIC: &str = "connect_us_mean";

    fn arms() -> Vec<PlannedArm> {
        let arm = |name: &str| PlannedArm {
            name: name.into(),
            factors: Settings::new(),
            settings: Settings::new(),
            failures_allowed: 0.01,
        };
        vec![arm("b"), arm("a")]
    }

    fn pairs() -> Vec<Pair> {
        vec![Pair { metric: METRIC.into(), a: 1, b: 0, per: Settings::new() }]
    }

    fn trial(round: usize, name: &str, value: f64) -> Trial {
        let metric = Metric { value, unit: "us".into(), ci95: None, median: None, n: 1 };
        let arm =
            Arm { name: name.into(), metrics: [(METRIC.into(), metric)].into(), ..Arm::default() };
        Trial { round: round as u32, arm, ..Trial::default() }
    }

    /// Rounds whose ratio of a to b is this, up and down by 1 % in turn; the pair shares its size.
    fn point(ratio: f64, rounds: usize) -> Vec<Trial> {
        let trials_of_round = |round: usize| {
            let size = 100.0 + round as f64;
            let off = if round.is_multiple_of(2) { 1.01 } else { 1.0 / 1.01 };
            [trial(round, "a", size * ratio * off), trial(round, "b", size)]
        };
        (0..rounds).flat_map(trials_of_round).collect()
    }

    fn over(points: &[Vec<Trial>], margin: f64) -> Comparison {
        let names: Vec<String> = (0..points.len()).map(|at| format!("p{at}")).collect();
        let points: Vec<PointTrials<'_>> = points
            .iter()
            .zip(&names)
            .map(|(trials, name)| PointTrials { name, trials, left_out: None })
            .collect();
        over_points(&pairs(), &arms(), &points, margin).remove(0)
    }

    #[test]
    fn the_ratio_is_the_geometric_mean_of_the_points_however_many_rounds_each_has() {
        let c = over(&[point(0.5, 6), point(2.0, 60), point(1.0, 10)], 0.01);
        assert!((c.ratio.unwrap() - 1.0).abs() < 1e-12, "{:?}", c.ratio);
        assert_eq!((c.rounds, c.verdict, c.ci95), (3, Verdict::NotEnough, None));
    }

    #[test]
    fn a_verdict_needs_fifteen_points_and_then_rests_on_points() {
        let ratios = |n: usize| (0..n).map(|at| point(0.8 * (1.0 + 0.01 * (at % 3) as f64), 6));
        let few = over(&ratios(14).collect::<Vec<_>>(), 0.01);
        assert_eq!(
            (few.verdict, few.ci95, few.points.unwrap().least),
            (Verdict::NotEnough, None, 15)
        );
        let enough = over(&ratios(15).collect::<Vec<_>>(), 0.01);
        assert_eq!(enough.verdict, Verdict::Lower);
        // The points' logarithms are ln 0.8, ln 0.808 and ln 0.816, five times each.
        let logs: Vec<f64> =
            (0..15).map(|at| (0.8 * (1.0 + 0.01 * f64::from(at % 3))).ln()).collect();
        let expected = sequence::interval(&logs, 0.05).unwrap().map(f64::exp);
        let ci95 = enough.ci95.unwrap();
        assert!((ci95[0] / expected[0] - 1.0).abs() < 1e-9, "{ci95:?} {expected:?}");
        assert!((ci95[1] / expected[1] - 1.0).abs() < 1e-9, "{ci95:?} {expected:?}");
    }

    #[test]
    fn more_rounds_at_one_point_make_no_verdict_over_points() {
        let c = over(&[point(0.5, 200), point(0.5, 200)], 0.01);
        assert_eq!((c.verdict, c.ci95), (Verdict::NotEnough, None));
        let own = c.points.unwrap().each;
        assert!(own.iter().all(|point| point.verdict == Verdict::Lower), "{own:?}");
    }

    #[test]
    fn points_that_show_the_opposite_direction_are_counted() {
        let mut points: Vec<Vec<Trial>> = (0..5).map(|_| point(0.8, 15)).collect();
        points.push(point(1.1, 15));
        // One percent up and down in turn, so no verdict of its own.
        points.push(point(1.001, 15));
        let points = over(&points, 0.01).points.unwrap();
        assert_eq!((points.opposite, points.opposite_verdicts), (2, 1));
        assert!(points.spread_log.unwrap() > 0.1, "{:?}", points.spread_log);
    }

    #[test]
    fn points_that_are_alike_have_no_spread() {
        let alike = over(&(0..6).map(|_| point(0.8, 10)).collect::<Vec<_>>(), 0.01);
        assert_eq!(alike.points.unwrap().spread_log, Some(0.0));
    }

    #[test]
    fn a_point_with_few_rounds_or_a_missing_figure_does_not_count_and_says_why() {
        let mut lacks = point(0.8, 10);
        lacks[4].arm.metrics.clear();
        let c = over(&[point(0.8, 10), point(0.8, 4), point(0.8, 1), lacks], 0.01);
        assert_eq!(c.rounds, 1);
        let why: Vec<Option<String>> =
            c.points.unwrap().each.into_iter().map(|point| point.left_out).collect();
        assert_eq!(why[0], None);
        assert_eq!(why[1].as_deref(), Some("4 rounds count for both arms, 5 are needed"));
        assert_eq!(why[2].as_deref(), Some("1 round counts for both arms, 5 are needed"));
        assert_eq!(why[3].as_deref(), Some("the figure is missing in 1 round"));
    }

    #[test]
    fn an_invalid_run_counts_at_no_point_whatever_it_measured() {
        let trials = point(0.1, 20);
        let good: Vec<Vec<Trial>> = (0..15).map(|_| point(0.8, 6)).collect();
        let mut points: Vec<PointTrials<'_>> =
            good.iter().map(|trials| PointTrials { name: "p", trials, left_out: None }).collect();
        points.push(PointTrials {
            name: "bad",
            trials: &trials,
            left_out: Some("its run is invalid"),
        });
        let c = over_points(&pairs(), &arms(), &points, 0.01).remove(0);
        assert_eq!(c.rounds, 15);
        assert!((c.ratio.unwrap() - 0.8).abs() < 1e-9);
        let last = c.points.unwrap().each.pop().unwrap();
        assert_eq!(
            (last.verdict, last.left_out.as_deref()),
            (Verdict::NotEnough, Some("its run is invalid"))
        );
    }

    #[test]
    fn the_intervals_of_points_are_wider_the_more_points_there_are() {
        let width = |n: usize| {
            let c = over(&(0..n).map(|_| point(0.8, 15)).collect::<Vec<_>>(), 0.01);
            let [low, high] = c.points.unwrap().each[0].ci95.unwrap();
            high / low
        };
        assert!(width(2) < width(20));
    }

    #[test]
    fn no_points_have_no_ratio() {
        let c = over(&[], 0.01);
        assert_eq!((c.rounds, c.ratio, c.verdict), (0, None, Verdict::NotEnough));
    }
}
