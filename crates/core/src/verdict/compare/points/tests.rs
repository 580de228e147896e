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
    assert_eq!((few.verdict, few.ci95, few.points.unwrap().least), (Verdict::NotEnough, None, 15));
    let enough = over(&ratios(15).collect::<Vec<_>>(), 0.01);
    assert_eq!(enough.verdict, Verdict::Lower);
    // The points' logarithms are ln 0.8, ln 0.808 and ln 0.816, five times each.
    let logs: Vec<f64> = (0..15).map(|at| (0.8 * (1.0 + 0.01 * f64::from(at % 3))).ln()).collect();
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
    points.push(PointTrials { name: "bad", trials: &trials, left_out: Some("its run is invalid") });
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
