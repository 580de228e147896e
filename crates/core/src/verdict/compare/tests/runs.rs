//! Two runs, not paired.

use super::*;
use crate::stats::two_sample;
use crate::verdict::between::{Run, between};

fn run<'a>(arms: &'a [PlannedArm], trials: &'a [Trial]) -> Run<'a> {
    Run { arms, trials }
}

fn both(a: &[Trial], b: &[Trial], metric: &str) -> (Comparison, Vec<WarningEntry>) {
    let arms = planned(&["a"]);
    let (mut found, warnings) = between(run(&arms, a), run(&arms, b), &[metric.to_owned()], MARGIN);
    assert_eq!(found.len(), 1);
    (found.remove(0), warnings)
}

/// `count` rounds around 100 times the factor, ± 1 %; each seed another day.
fn day(factor: f64, count: i32, seed: i32) -> Vec<Trial> {
    rounds("a", (0..count).map(|round| 100.0 * factor * (1.0 + 0.02 * noise(seed + 3 * round))))
}

#[test]
fn the_ratio_of_two_runs_is_that_of_geometric_means_with_welch_s_interval() {
    // √(10 · 40) / √(5 · 20) = 2, and 25 − 12.5.
    let (found, _) = both(&rounds("a", [10.0, 40.0]), &rounds("a", [5.0, 20.0]), "m");
    assert!(close(found.ratio.unwrap(), 2.0), "{found:?}");
    let difference = found.difference.unwrap();
    assert_eq!((difference.value, difference.unit.as_str(), difference.n), (12.5, "us", 2));
    let logs = |values: [f64; 2]| values.map(f64::ln);
    let welch = two_sample::welch(&logs([10.0, 40.0]), &logs([5.0, 20.0]), 0.05).unwrap();
    let [low, high] = found.ci95.unwrap();
    assert!(close(low, welch.ci[0].exp()) && close(high, welch.ci[1].exp()));
}

#[test]
fn two_runs_have_verdicts_by_the_same_rule() {
    for (factor, expected) in
        [(1.05, Verdict::Higher), (0.95, Verdict::Lower), (1.0, Verdict::NoDifference)]
    {
        let (found, warnings) = both(&day(factor, 30, 1), &day(1.0, 20, 500), "m");
        assert_eq!((found.verdict, found.rounds), (expected, 20), "{found:?}");
        assert_eq!(warnings, []);
        let p = found.rank_test_p.unwrap();
        assert_eq!(p < 0.05, expected != Verdict::NoDifference, "{found:?}");
    }
    let (found, _) = both(&day(1.005, 2, 1), &day(1.0, 2, 500), "m");
    assert_eq!(found.verdict, Verdict::NotEnough);
}

#[test]
fn single_rounds_give_a_ratio_without_an_interval() {
    let (found, warnings) = both(&rounds("a", [30.0]), &rounds("a", [20.0]), "m");
    assert!(close(found.ratio.unwrap(), 1.5), "{found:?}");
    assert_eq!((found.ci95, found.rounds, found.verdict), (None, 1, Verdict::NotEnough));
    assert!(close(found.difference.unwrap().value, 10.0));
    assert_eq!(warnings, []);
}

#[test]
fn runs_in_which_nothing_varies_give_a_point_once_there_are_enough() {
    let constant = |value, count| rounds("a", vec![value; count]);
    let fewest = sequence::fewest(0.05);
    let narrow = sequence::ROUNDS_TO_BE_NARROW;
    for (a, rounds, expected) in [
        (129.0, fewest, Verdict::NotEnough),
        (129.0, narrow, Verdict::NoDifference),
        (17.0, fewest, Verdict::Lower),
    ] {
        let (found, _) = both(&constant(a, rounds), &constant(129.0, rounds), "m");
        assert_eq!(found.verdict, expected, "{found:?}");
        let (few, _) = both(&constant(a, fewest - 1), &constant(129.0, fewest), "m");
        assert_eq!((few.ci95, few.verdict), (None, Verdict::NotEnough));
    }
    let (zero, _) = both(&constant(0.0, narrow), &constant(0.0, narrow), "m");
    assert_eq!((zero.ratio, zero.verdict), (None, Verdict::NoDifference));
}

#[test]
fn the_level_is_divided_and_what_neither_run_has_is_not_compared() {
    let arms = planned(&["b", "a", "c"]);
    let other = planned(&["a", "b", "d"]);
    let metrics = ["m", "x"].map(str::to_owned);
    let a = [rounds("a", [1.0]), rounds("b", [1.0]), rounds("c", [1.0])].concat();
    let b = [rounds("a", [1.0]), rounds("d", [1.0])].concat();
    let (found, _) = between(run(&arms, &a), run(&other, &b), &metrics, MARGIN);
    let names: Vec<_> = found.iter().map(|c| (c.a.as_str(), c.b.as_str(), c.rounds)).collect();
    assert_eq!(names, [("b", "b", 0), ("a", "a", 1)]);
    assert!(found.iter().all(|c| close(c.alpha, 0.025) && c.metric == "m"));
    assert_eq!((found[0].ratio, found[0].difference.as_ref()), (None, None));
}

#[test]
fn tests_that_disagree_are_told_whichever_of_them_finds_something() {
    // All but one above: the ranks are sure, the one round makes the spread too wide for the mean.
    let mut far = day(1.02, 20, 1);
    far[7].arm.metrics.get_mut("m").unwrap().value = 1e-4;
    let (found, warnings) = both(&far, &day(1.0, 20, 500), "m");
    assert_eq!(found.verdict, Verdict::NotEnough, "{found:?}");
    assert_eq!(ids(&warnings), [("tests-disagree", Some("a"))]);
    assert!(warnings[0].text.starts_with("m, one run against the other: "));
    // Three rounds of each: Welch's t is sure, the ranks cannot be.
    let (found, warnings) = both(&day(1.5, 3, 1), &day(1.0, 3, 500), "m");
    assert_eq!(found.verdict, Verdict::Higher, "{found:?}");
    assert_eq!(ids(&warnings), [("tests-disagree", Some("a"))]);
    assert!((found.rank_test_p.unwrap() - 0.1).abs() < 1e-9);
}

#[test]
fn left_out_trials_reach_no_comparison_of_runs() {
    let mut a = day(1.05, 30, 1);
    let (expected, _) = both(&a, &day(1.0, 30, 500), "m");
    a.extend((0..30).map(|round| excluded(trial("a", 30 + round, 1e9), "stolen from")));
    assert_eq!(both(&a, &day(1.0, 30, 500), "m").0, expected);
}

/// A run whose rounds each hold `values` times between 500 and 1500 µs times the factor.
fn timed(rounds: u32, values: i32, factor: f64, seed: i32) -> Vec<Trial> {
    let trial_of_round = |round: u32| {
        let mut histogram = Histogram::new();
        let luck = 1.0 + 0.02 * noise(seed + round as i32);
        for value in 0..values {
            let us = 1000.0 * (1.0 + noise(seed + value + 7919 * round as i32));
            histogram.record_ns((us * factor * luck * 1e3) as u64);
        }
        let mut trial = trial("a", round, 1.0);
        trial.arm.histograms.insert("connect_us".to_owned(), histogram.summary_us());
        trial
    };
    (0..rounds).map(trial_of_round).collect()
}

#[test]
fn quantiles_of_two_runs_are_those_of_all_rounds_together() {
    for (factor, expected) in [(1.1, Verdict::Higher), (0.9, Verdict::Lower)] {
        let (found, _) =
            both(&timed(30, 500, factor, 1), &timed(20, 500, 1.0, 5), "connect_us_p99");
        assert_eq!((found.verdict, found.rounds), (expected, 20), "{found:?}");
        assert!((found.ratio.unwrap() / factor - 1.0).abs() < 0.02, "{found:?}");
        let difference = found.difference.unwrap();
        // p99 of 500 to 1500 µs is 1490.
        assert!((difference.value - 1490.0 * (factor - 1.0)).abs() < 30.0, "{difference:?}");
        assert_eq!(difference.unit, "us");
        let [low, high] = difference.ci95.unwrap();
        assert!(low < difference.value && difference.value < high);
        // A round of 500 has no p99 of its own for the rank test.
        assert_eq!(found.rank_test_p, None);
    }
    let (found, _) = both(&timed(30, 500, 1.1, 1), &timed(20, 500, 1.0, 5), "connect_us_p50");
    assert!(found.rank_test_p.unwrap() < 0.001, "{found:?}");
}

#[test]
fn fewer_than_five_rounds_have_a_quantile_and_no_interval() {
    let (found, _) = both(&timed(4, 500, 1.1, 1), &timed(30, 500, 1.0, 5), "connect_us_p99");
    assert!((found.ratio.unwrap() - 1.1).abs() < 0.03, "{found:?}");
    assert_eq!((found.ci95, found.rounds, found.verdict), (None, 4, Verdict::NotEnough));
    let (found, _) = both(&timed(1, 2000, 1.1, 1), &timed(1, 2000, 1.0, 5), "connect_us_p99");
    assert_eq!((found.ratio.is_some(), found.ci95, found.rounds), (true, None, 1));
}

#[test]
fn a_quantile_that_no_draw_moves_has_a_point_as_interval() {
    let same = || (0..15).map(|_| timed(1, 500, 1.0, 1).remove(0));
    let numbered = || (0..).zip(same()).map(|(round, t)| Trial { round, ..t }).collect::<Vec<_>>();
    let (found, _) = both(&numbered(), &numbered(), "connect_us_p99");
    assert_eq!((found.ratio, found.ci95), (Some(1.0), Some([1.0, 1.0])));
    assert_eq!(found.verdict, Verdict::NoDifference);
}

#[test]
fn five_rounds_are_too_few_for_an_interval_at_a_much_divided_level() {
    // One comparison of 20 has a level of 0.0025: Student's t of 4 degrees of freedom is 6.3.
    let [a, b] = [timed(5, 500, 1.1, 1), timed(5, 500, 1.0, 5)];
    assert!(both(&a, &b, "connect_us_p90").0.ci95.is_some());
    let arms = planned(&["a"]);
    let metrics = vec!["connect_us_p90".to_owned(); 20];
    let (found, _) = between(run(&arms, &a), run(&arms, &b), &metrics, MARGIN);
    assert!(found.iter().all(|c| c.ci95.is_none() && c.verdict == Verdict::NotEnough));
}

#[test]
fn a_quantile_with_too_few_values_beyond_it_is_not_compared() {
    let (found, _) = both(&timed(10, 99, 1.1, 1), &timed(10, 200, 1.0, 5), "connect_us_p99");
    assert_eq!((found.ratio, found.ci95, found.verdict), (None, None, Verdict::NotEnough));
}

#[test]
fn a_run_whose_histogram_cannot_be_read_has_no_rounds_of_it() {
    let mut damaged = timed(10, 500, 1.0, 1);
    damaged[3].arm.histograms.get_mut("connect_us").unwrap().hdr = Some("damage".to_owned());
    let (found, _) = both(&damaged, &timed(10, 500, 1.0, 5), "connect_us_p90");
    assert_eq!((found.rounds, found.ratio, found.verdict), (0, None, Verdict::NotEnough));
}

#[test]
fn swapping_two_runs_inverts_ratio_and_verdict() {
    for metric in ["m", "connect_us_p90"] {
        let (mut a, mut b) = (timed(12, 500, 1.1, 1), timed(12, 500, 1.0, 5));
        for (trial, day) in
            a.iter_mut().zip(day(1.1, 12, 1)).chain(b.iter_mut().zip(day(1.0, 12, 500)))
        {
            trial.arm.metrics = day.arm.metrics;
        }
        let (there, _) = both(&a, &b, metric);
        let (back, _) = both(&b, &a, metric);
        assert!(close(there.ratio.unwrap(), 1.0 / back.ratio.unwrap()));
        assert_eq!((there.verdict, back.verdict), (Verdict::Higher, Verdict::Lower));
        assert_eq!(there.rank_test_p, back.rank_test_p);
    }
}
