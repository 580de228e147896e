use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::record::{Arm, Metric, Verdict, WarningEntry};
use crate::stats::{Histogram, sequence};
use crate::study::Settings;

mod runs;

const MARGIN: f64 = 0.01;

fn planned(names: &[&str]) -> Vec<PlannedArm> {
    let arm = |name: &&str| PlannedArm {
        name: (*name).to_owned(),
        factors: Settings::new(),
        settings: Settings::new(),
        failures_allowed: 0.01,
    };
    names.iter().map(arm).collect()
}

fn pair(metric: &str, a: usize, b: usize) -> Pair {
    Pair { metric: metric.to_owned(), a, b, per: Settings::new() }
}

/// An arm in a round, with the metric `m`.
fn trial(name: &str, round: u32, m: f64) -> Trial {
    let metric = Metric { value: m, unit: "us".to_owned(), ci95: None, median: None, n: 1 };
    let metrics = BTreeMap::from([("m".to_owned(), metric)]);
    Trial {
        round,
        arm: Arm { name: name.to_owned(), metrics, ..Arm::default() },
        ..Trial::default()
    }
}

fn excluded(mut trial: Trial, why: &str) -> Trial {
    trial.invalid = Some(why.to_owned());
    trial
}

/// One arm, a value a round.
fn rounds(name: &str, values: impl IntoIterator<Item = f64>) -> Vec<Trial> {
    (0..).zip(values).map(|(round, value)| trial(name, round, value)).collect()
}

/// Arms `a` and `b`.
fn trials(a: impl IntoIterator<Item = f64>, b: impl IntoIterator<Item = f64>) -> Vec<Trial> {
    [rounds("a", a), rounds("b", b)].concat()
}

/// `m` of `a` against `b`.
fn compared(trials: &[Trial]) -> Comparison {
    within(&[pair("m", 0, 1)], &planned(&["a", "b"]), trials, MARGIN).remove(0)
}

fn noise(round: i32) -> f64 {
    // Weyl's sequence: even over −0.5 to 0.5, no two rounds alike.
    (f64::from(round) * 0.618_033_988_749_895).fract() - 0.5
}

/// 30 rounds that share their luck: `b` around 100, `a` the factor above, ± half the spread apart.
fn thirty_apart(factor: f64, spread: f64) -> Vec<Trial> {
    let b = |round| 100.0 + 30.0 * noise(7 * round);
    let a = move |round| b(round) * factor * (1.0 + spread * noise(round));
    trials((1..=30).map(a), (1..=30).map(b))
}

fn thirty(factor: f64) -> Vec<Trial> {
    thirty_apart(factor, 0.004)
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

#[test]
fn the_ratio_is_the_geometric_mean_of_the_ratios_of_rounds() {
    // √(2 · 8) = 4; the mean difference is ((20 − 10) + (80 − 10)) / 2 = 40.
    let found = compared(&trials([20.0, 80.0], [10.0, 10.0]));
    assert!(close(found.ratio.unwrap(), 4.0), "{found:?}");
    let difference = found.difference.unwrap();
    assert_eq!((difference.value, difference.unit.as_str(), difference.n), (40.0, "us", 2));
    assert_eq!((found.rounds, found.alpha, found.margin), (2, 0.05, MARGIN));
    // Two rounds have no interval, and so no verdict.
    assert_eq!((found.ci95, found.verdict), (None, Verdict::NotEnough));
}

#[test]
fn ratio_and_difference_have_the_interval_of_the_sequence_at_the_divided_level() {
    let of_thirty = thirty(1.05);
    let pairs = [pair("m", 0, 1), pair("m", 1, 0)];
    let found = &within(&pairs, &planned(&["a", "b"]), &of_thirty, MARGIN)[0];
    let values = |name| of_thirty.iter().filter(move |t| t.arm.name == name);
    let effects = |effect: fn(f64, f64) -> f64| -> Vec<f64> {
        let both = values("a").zip(values("b"));
        both.map(|(a, b)| effect(a.arm.metrics["m"].value, b.arm.metrics["m"].value)).collect()
    };
    let logs = sequence::interval(&effects(|a, b| a.ln() - b.ln()), 0.025).unwrap();
    let [low, high] = found.ci95.unwrap();
    assert!(close(low, logs[0].exp()) && close(high, logs[1].exp()), "{found:?}");
    let difference = found.difference.as_ref().unwrap();
    assert_eq!(difference.ci95, sequence::interval(&effects(|a, b| a - b), 0.025));
    assert!(close(found.alpha, 0.025));
}

#[test]
fn the_verdict_is_read_from_the_interval() {
    for (factor, spread, expected) in [
        (1.05, 0.004, Verdict::Higher),
        (0.95, 0.004, Verdict::Lower),
        (1.0, 0.004, Verdict::NoDifference),
        (1.012, 0.004, Verdict::Higher), // about the margin: higher, and by how much is open
        (1.0, 0.1, Verdict::NotEnough),
        (1.02, 0.3, Verdict::NotEnough),
    ] {
        let found = compared(&thirty_apart(factor, spread));
        assert_eq!(found.verdict, expected, "{found:?}");
        let [low, high] = found.ci95.unwrap();
        assert!(low <= found.ratio.unwrap() && found.ratio.unwrap() <= high);
    }
}

#[test]
fn a_difference_that_is_sure_and_within_the_margin_is_none_that_matters() {
    let found = compared(&thirty(1.005));
    assert!(found.ci95.unwrap()[0] > 1.0, "{found:?}");
    assert_eq!(found.verdict, Verdict::NoDifference);
    let strict = &within(&[pair("m", 0, 1)], &planned(&["a", "b"]), &thirty(1.005), 0.0)[0];
    assert_eq!(strict.verdict, Verdict::Higher);
}

#[test]
fn rounds_that_are_all_alike_give_a_point_once_there_are_enough() {
    let fewest = sequence::fewest(0.05);
    let narrow = sequence::ROUNDS_TO_BE_NARROW;
    for (a, early, late) in [
        (100.0, Verdict::NotEnough, Verdict::NoDifference),
        (105.0, Verdict::Higher, Verdict::Higher),
    ] {
        let after_rounds = |rounds| compared(&trials(vec![a; rounds], vec![100.0; rounds]));
        let enough = after_rounds(fewest);
        let [low, high] = enough.ci95.unwrap();
        assert!(close(low, a / 100.0) && close(high, a / 100.0), "{enough:?}");
        assert_eq!((enough.verdict, after_rounds(narrow).verdict), (early, late));
        assert_eq!(after_rounds(narrow - 1).verdict, early, "a mode may not have been seen yet");
        assert_eq!(
            (after_rounds(fewest - 1).ci95, after_rounds(fewest - 1).verdict),
            (None, Verdict::NotEnough)
        );
    }
}

#[test]
fn where_a_value_is_not_above_zero_the_difference_is_read() {
    let queue = |offset: f64| (0..30).map(move |round| offset + f64::from(round % 2));
    let none = compared(&trials(queue(0.0), queue(0.0)));
    assert_eq!((none.ratio, none.ci95, none.verdict), (None, None, Verdict::NoDifference));
    let more = compared(&trials(queue(100.0), queue(0.0)));
    assert_eq!((more.ratio, more.verdict), (None, Verdict::Higher));
    let less = compared(&trials(queue(0.0), queue(100.0)));
    assert_eq!((less.ratio, less.verdict), (None, Verdict::Lower));
    assert_eq!(less.difference.unwrap().ci95, Some([-100.0, -100.0]));
    // −1,000 against −1,001: a thousandth of the mean of b.
    let near = compared(&trials(vec![-1000.0; 30], vec![-1001.0; 30]));
    assert_eq!((near.ratio, near.verdict), (None, Verdict::NoDifference));
}

#[test]
fn a_metric_that_nobody_has_is_compared_over_no_rounds() {
    let found = &within(&[pair("x", 0, 1)], &planned(&["a", "b"]), &thirty(1.1), MARGIN)[0];
    assert_eq!((found.rounds, found.verdict), (0, Verdict::NotEnough));
    assert_eq!((found.ratio, found.difference.as_ref(), found.ci95), (None, None, None));
    let nothing = within(&[pair("m", 0, 1)], &planned(&["a", "b"]), &[], MARGIN);
    assert_eq!(nothing[0].rounds, 0);
}

#[test]
fn a_round_without_a_value_takes_the_verdict_from_the_others() {
    let mut trials = thirty(1.05);
    assert_eq!(compared(&trials).verdict, Verdict::Higher);
    // Of a, one round; of b, the same and another; and one in which a does not count at all.
    for (arm, round) in [("a", 3), ("b", 3), ("b", 7)] {
        let at = trials.iter_mut().find(|t| t.arm.name == arm && t.round == round).unwrap();
        at.arm.metrics.clear();
    }
    trials.iter_mut().find(|t| t.arm.name == "a" && t.round == 9).unwrap().arm.partial = true;
    let found = compared(&trials);
    assert_eq!((found.rounds, found.ci95, found.verdict), (27, None, Verdict::NotEnough));
    assert!((found.ratio.unwrap() - 1.05).abs() < 0.01, "{found:?}");
    let difference = found.difference.unwrap();
    assert_eq!((difference.ci95, difference.n), (None, 27));
    let told = told(&trials, MARGIN);
    let entry = told.iter().find(|entry| entry.id == "metric-missing").unwrap();
    assert_eq!(entry.arm, None);
    let says = "m, a against b: no verdict, because in 2 of 29 rounds an arm has no m; these are";
    assert!(entry.text.starts_with(says), "{}", entry.text);
}

#[test]
fn a_pair_keeps_the_levels_it_shares() {
    let mut shared = pair("m", 0, 1);
    shared.per.insert("backlog".to_owned(), serde_json::json!(128));
    let found = &within(&[shared], &planned(&["a", "b"]), &thirty(1.0), MARGIN)[0];
    assert_eq!(found.per["backlog"], 128);
    assert_eq!((found.a.as_str(), found.b.as_str(), found.metric.as_str()), ("a", "b", "m"));
}

#[test]
fn only_rounds_in_which_both_arms_count_are_compared() {
    let mut trials = trials([20.0, 1.0, 1.0, 20.0, 1.0], [10.0, 10.0, 10.0, 10.0]);
    trials[1].arm.failure = Some("no server".to_owned());
    trials[2].arm.partial = true;
    let found = compared(&trials);
    assert_eq!(found.rounds, 2);
    assert!(close(found.ratio.unwrap(), 2.0), "{found:?}");
}

#[test]
fn a_trial_that_was_run_again_supersedes_the_first() {
    let mut trials = trials([1.0, 20.0], [10.0, 10.0]);
    trials.push(Trial { attempt: 1, ..trial("a", 0, 20.0) });
    trials.push(Trial { attempt: 2, ..excluded(trial("a", 0, 500.0), "stolen from") });
    assert!(close(compared(&trials).ratio.unwrap(), 2.0));
}

#[test]
fn quantiles_of_rounds_are_compared_in_the_unit_of_their_histogram() {
    let timed_trial = |name: &str, round: u32, times: u64| {
        let mut histogram = Histogram::new();
        (1..=1000).for_each(|us| histogram.record_ns(us * times * 1000));
        let mut trial = trial(name, round, 1.0);
        trial.arm.histograms.insert("connect_us".to_owned(), histogram.summary_us());
        trial
    };
    let trials: Vec<Trial> =
        (0..3).flat_map(|round| [timed_trial("a", round, 2), timed_trial("b", round, 1)]).collect();
    let pairs = [pair("connect_us_p99", 0, 1)];
    let found = &within(&pairs, &planned(&["a", "b"]), &trials, MARGIN)[0];
    assert_eq!(found.rounds, 3);
    assert!((found.ratio.unwrap() - 2.0).abs() < 0.002, "{found:?}");
    assert_eq!(found.difference.as_ref().unwrap().unit, "us");
}

fn told(trials: &[Trial], margin: f64) -> Vec<WarningEntry> {
    doubts(&[pair("m", 0, 1)], &planned(&["a", "b", "c"]), trials, "m", margin)
}

fn ids(entries: &[WarningEntry]) -> Vec<(&str, Option<&str>)> {
    entries.iter().map(|entry| (entry.id.as_str(), entry.arm.as_deref())).collect()
}

#[test]
fn quiet_rounds_raise_no_doubt() {
    // Twelve rounds in no order.
    let a = [5.0, 2.0, 9.0, 4.0, 7.0, 1.0, 8.0, 3.0, 6.0, 2.5, 7.5, 5.5].map(|m| 100.0 + m);
    let b = [3.0, 8.0, 4.0, 6.0, 1.0, 9.0, 5.0, 7.0, 2.0, 6.5, 3.5, 5.0].map(|m| 100.0 + m);
    assert_eq!(told(&trials(a, b), MARGIN), []);
    assert_eq!(told(&[], MARGIN), []);
}

#[test]
fn a_drift_is_told_of_the_arm_that_has_it_if_it_exceeds_the_margin() {
    let drifting = |round| 100.0 + f64::from(round) + 2.0 * noise(round);
    let steady = |round| 100.0 + 2.0 * noise(5 * round);
    let trials = trials((1..=30).map(drifting), (1..=30).map(steady));
    let found = told(&trials, MARGIN);
    assert!(ids(&found).contains(&("drift", Some("a"))), "{found:?}");
    assert!(!ids(&found).contains(&("drift", Some("b"))), "{found:?}");
    assert!(!ids(&told(&trials, 0.5)).contains(&("drift", Some("a"))));
}

#[test]
fn neighbours_that_are_alike_are_told_of_the_pair() {
    let wave = |round: i32| 100.0 + 5.0 * (f64::from(round) / 5.0).sin();
    let found = told(&trials((0..60).map(wave), vec![100.0; 60]), MARGIN);
    let entry = found.iter().find(|entry| entry.id == "autocorrelated").unwrap();
    assert_eq!(entry.arm, None);
    assert!(entry.text.starts_with("m, a against b: "), "{}", entry.text);
    // Where both share the wave, their ratio does not have it.
    let found = told(&trials((0..60).map(wave), (0..60).map(wave)), MARGIN);
    assert!(!ids(&found).contains(&("autocorrelated", None)), "{found:?}");
}

#[test]
fn a_far_round_is_told_by_its_number_and_stays() {
    let mut trials = thirty(1.0);
    trials.retain(|trial| trial.round != 3);
    let far = trials.iter_mut().find(|t| t.arm.name == "b" && t.round == 9).unwrap();
    far.arm.metrics.get_mut("m").unwrap().value = 10_000.0;
    let found = told(&trials, MARGIN);
    let entry = found.iter().find(|entry| entry.id == "outlier-rounds").unwrap();
    assert_eq!(entry.arm.as_deref(), Some("b"));
    assert!(entry.text.starts_with("m: round 10 lies far"), "{}", entry.text);
    assert_eq!(compared(&trials).rounds, 29);
}

#[test]
fn two_groups_of_rounds_are_told() {
    let two = |round: i32| if (round * 7) % 5 < 2 { 200.0 } else { 100.0 } + noise(round);
    let found = told(&trials((0..40).map(two), (0..40).map(|r| 150.0 + noise(r))), MARGIN);
    assert!(ids(&found).contains(&("two-modes", Some("a"))), "{found:?}");
    assert!(!ids(&found).contains(&("two-modes", Some("b"))), "{found:?}");
}

#[test]
fn arms_that_are_not_compared_are_not_looked_at() {
    let drifting = (0..30).map(|round| 100.0 * f64::from(round + 1));
    let found = told(&[thirty(1.0), rounds("c", drifting)].concat(), MARGIN);
    assert!(found.iter().all(|entry| entry.arm.as_deref() != Some("c")), "{found:?}");
}

#[test]
fn trials_left_out_are_counted_per_arm_with_the_most_frequent_reason() {
    let mut trials = trials([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]);
    trials[0] = excluded(trials[0].clone(), "late");
    trials[1] = excluded(trials[1].clone(), "stolen from");
    trials[3] = excluded(trials[3].clone(), "stolen from");
    trials[4].arm.failure = Some("no server".to_owned());
    trials[5].arm.partial = true;
    let found = told(&trials, MARGIN);
    // b: one excluded, one failed, one stopped.
    let expected = [("trials-excluded", "a"), ("trials-excluded", "b"), ("nothing-counts", "b")];
    assert_eq!(ids(&found), expected.map(|(id, arm)| (id, Some(arm))));
    assert!(found[0].text.starts_with("2 of 3 trials are excluded from verdicts: stolen from"));
    assert!(found[1].text.starts_with("2 of 3 trials are excluded from verdicts: stolen from"));
}

#[test]
fn an_arm_that_failed_or_was_stopped_says_so_itself() {
    let mut trials = rounds("a", [1.0]);
    trials[0].arm.partial = true;
    assert_eq!(told(&trials, MARGIN), []);
    trials[0].arm.failure = Some("no server".to_owned());
    assert_eq!(ids(&told(&trials, MARGIN)), [("trials-excluded", Some("a"))]);
}

/// Two rounds of `a` and `b` of 1,000 operations, of which so many failed.
fn failing(a: u64, b: u64) -> Vec<Trial> {
    let mut trials = trials([1.0, 2.0], [1.0, 2.0]);
    for trial in &mut trials {
        let failed = if trial.arm.name == "a" { a } else { b };
        trial.arm.attempts = 1_000;
        trial.arm.ok = 1_000 - failed;
        trial.arm.errors.insert("connect-timeout".to_owned(), failed);
    }
    trials
}

#[test]
fn arms_of_which_one_fails_more_are_told_once_per_pair() {
    let pairs = [pair("m", 0, 1), pair("n", 1, 0), pair("m", 2, 0)];
    let mut trials = failing(0, 478);
    // What does not count has no say.
    trials.push(excluded(Trial { round: 2, ..trials[1].clone() }, "late"));
    trials.last_mut().unwrap().arm.errors.insert("reset".to_owned(), 1_000);
    let found = doubts(&pairs, &planned(&["a", "b", "c"]), &trials, "m", MARGIN);
    let told: Vec<_> = found.iter().filter(|entry| entry.id == "failures-differ").collect();
    assert_eq!(told.len(), 1, "{found:?}");
    assert_eq!(told[0].arm, None);
    assert_eq!(
        told[0].text,
        "a against b: 0.0 % and 47.8 % of the operations failed, and the metric covers only the \
         successful ones. Compare the failures first"
    );
}

#[test]
fn failures_differ_beyond_the_margin_or_where_they_matter_and_the_other_has_less_than_half() {
    for (a, b, margin, differ) in [
        (0, 0, 0.01, false),
        (9, 0, 0.01, false), // 0.9 %
        (11, 0, 0.05, true), // 1.1 % against none
        (30, 16, 0.05, false),
        (30, 14, 0.05, true),
        (500, 440, 0.05, true),
        (500, 460, 0.05, false),
    ] {
        for (a, b) in [(a, b), (b, a)] {
            let found = told(&failing(a, b), margin);
            let found = found.iter().any(|entry| entry.id == "failures-differ");
            assert_eq!(found, differ, "{a} {b} {margin}");
        }
    }
}

/// Values of two arms that are alike, apart or wide.
fn any_values() -> impl Strategy<Value = Vec<(f64, f64)>> {
    let spread = prop_oneof![Just(0.001), Just(0.02), Just(1.0)];
    (spread, -0.1_f64..0.1, 1_usize..40).prop_flat_map(|(spread, shift, rounds)| {
        prop::collection::vec((-1.0_f64..1.0, -spread..spread), rounds).prop_map(move |rounds| {
            let both = |(luck, apart): (f64, f64)| {
                (100.0 * (luck + shift + apart).exp(), 100.0 * luck.exp())
            };
            rounds.into_iter().map(both).collect()
        })
    })
}

fn turned(verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Higher => Verdict::Lower,
        Verdict::Lower => Verdict::Higher,
        other => other,
    }
}

proptest! {
    #[test]
    fn swapping_a_and_b_inverts_the_ratio_and_turns_the_verdict(values in any_values()) {
        let (a, b): (Vec<f64>, Vec<f64>) = values.into_iter().unzip();
        let there = compared(&trials(a.clone(), b.clone()));
        let back = compared(&trials(b, a));
        prop_assert!(close(there.ratio.unwrap(), 1.0 / back.ratio.unwrap()));
        prop_assert_eq!(there.verdict, turned(back.verdict));
        prop_assert_eq!(there.ci95.is_some(), back.ci95.is_some());
        if let Some(([low, high], [back_low, back_high])) = there.ci95.zip(back.ci95) {
            prop_assert!(close(low, 1.0 / back_high) && close(high, 1.0 / back_low));
        }
        prop_assert!(close(there.difference.unwrap().value, -back.difference.unwrap().value));
    }

    #[test]
    fn neither_the_order_of_trials_nor_what_was_left_out_reaches_a_comparison(
        (kept, shuffled) in (any_values(), prop::collection::vec((0_u32..40, 0_u8..3, -1e9_f64..1e9), 0..20))
            .prop_map(|(values, left_out)| {
                let (a, b): (Vec<f64>, Vec<f64>) = values.into_iter().unzip();
                let kept = trials(a, b);
                let mut all = kept.clone();
                all.extend(left_out.into_iter().map(|(round, why, m)| {
                    let mut trial = Trial { attempt: 1, ..trial("a", round, m) };
                    match why {
                        0 => trial.invalid = Some("stolen from".to_owned()),
                        1 => trial.arm.partial = true,
                        _ => trial.arm.failure = Some("no server".to_owned()),
                    }
                    trial
                }));
                (kept, all)
            })
            .prop_flat_map(|(kept, all)| (Just(kept), Just(all).prop_shuffle())),
    ) {
        prop_assert_eq!(compared(&kept), compared(&shuffled));
    }
}

#[test]
fn latencies_of_a_saturated_arm_are_not_compared() {
    let mut trials = thirty_apart(1.5, 0.004);
    let named = |trials: &mut Vec<Trial>, metric: &str| {
        for trial in trials {
            let value = trial.arm.metrics["m"].clone();
            trial.arm.metrics.insert(metric.to_owned(), value);
        }
    };
    named(&mut trials, "latency_us_mean");
    named(&mut trials, "requests_per_s");
    let pairs = [pair("latency_us_mean", 0, 1), pair("requests_per_s", 0, 1)];
    let arms = planned(&["a", "b"]);
    let verdicts = |trials: &[Trial]| {
        within(&pairs, &arms, trials, MARGIN).iter().map(|c| c.verdict).collect::<Vec<_>>()
    };
    assert_eq!(verdicts(&trials), [Verdict::Higher; 2]);
    let last = trials.iter_mut().rev().find(|trial| trial.arm.name == "b").unwrap();
    last.arm.saturation = Some(crate::stats::saturation::Saturation::default());
    assert_eq!(verdicts(&trials), [Verdict::NotEnough, Verdict::Higher]);
    let found = doubts(&pairs, &arms, &trials, "requests_per_s", MARGIN);
    let ids: Vec<&str> = found.iter().map(|doubt| doubt.id.as_str()).collect();
    assert!(ids.contains(&"saturated-not-compared") && !ids.contains(&"metric-missing"), "{ids:?}");
}
