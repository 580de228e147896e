use std::collections::BTreeMap;

use tcptoll_core::experiment::spec::{MetricSpec, Noun};
use tcptoll_core::record::{Metric, Rounds};

use super::*;

const TOOK: MetricSpec =
    MetricSpec { name: "took_us_mean", unit: "us", words: "mean time", better: Better::Lower };
const RATE: MetricSpec =
    MetricSpec { name: "rate_per_s", unit: "1/s", words: "rate", better: Better::Higher };
const SPEC: Spec = Spec {
    metrics: &[&RATE, &TOOK],
    phrases: &[
        Phrase::figures(TOOK.name, "Opening a connection takes {} on average"),
        Phrase::rate(RATE.name, "The rate is {}", "answers {} as many requests/s as", "requests/s"),
    ],
    operation: Noun::CONNECTION,
    ..Spec::BARE
};

/// Arms of one option with the value of a metric.
fn arms(metric: MetricSpec, option: &str, levels: &[(&str, f64)]) -> Vec<Arm> {
    let arm = |(level, value): &(&str, f64)| {
        let figure = Metric { value: *value, unit: metric.unit.to_owned(), ..Metric::default() };
        Arm {
            name: if option.is_empty() { (*level).into() } else { format!("{option} {level}") },
            factors: if option.is_empty() {
                BTreeMap::default()
            } else {
                [(option.to_owned(), (*level).into())].into()
            },
            metrics: [(metric.name.to_owned(), figure)].into(),
            attempts: 200,
            ok: 200,
            ..Arm::default()
        }
    };
    levels.iter().map(arm).collect()
}

/// All others compared with the first arm, all with this verdict and interval.
fn compared(
    metric: MetricSpec,
    arms: Vec<Arm>,
    verdict: Verdict,
    ci95: Option<[f64; 2]>,
) -> Summary {
    let value = |arm: &Arm| arm.metrics[metric.name].value;
    let comparisons = arms
        .iter()
        .skip(1)
        .map(|arm| Comparison {
            metric: metric.name.to_owned(),
            a: arm.name.clone(),
            b: arms[0].name.clone(),
            ratio: Some(value(arm) / value(&arms[0])),
            ci95,
            margin: 0.02,
            rounds: 30,
            alpha: 0.05,
            verdict,
            ..Comparison::default()
        })
        .collect();
    let rounds = Rounds { done: 30, elapsed_s: 60.0, ..Rounds::default() };
    Summary {
        comparisons,
        arms,
        rounds: Some(rounds),
        primary_metric: Some(metric.name.to_owned()),
        ..Summary::default()
    }
}

fn said(summary: &Summary) -> String {
    headline(summary, &SPEC).join(" ")
}

#[test]
fn times_are_stated_in_their_unit_by_level() {
    let arms =
        arms(TOOK, "link", &[("loopback", 34.12), ("metro", 1_802.0), ("cross-region", 37_210.0)]);
    assert_eq!(
        said(&compared(TOOK, arms, Verdict::Higher, None)),
        "Opening a connection takes 34.1 µs (loopback), 1.80 ms (metro) and 37.2 ms (cross-region) on \
         average."
    );
}

#[test]
fn of_two_rates_the_greater_is_the_subject_whichever_was_given_first() {
    let summary = |levels: &[(&str, f64)]| {
        let verdict = if levels[1].1 > levels[0].1 { Verdict::Higher } else { Verdict::Lower };
        said(&compared(RATE, arms(RATE, "", levels), verdict, Some([0.1, 9.0])))
    };
    let says = "B answers 2.7 times as many requests/s as A (12,400 and 4,600).";
    assert_eq!(summary(&[("A", 4_600.0), ("B", 12_400.0)]), says);
    assert_eq!(summary(&[("B", 12_400.0), ("A", 4_600.0)]), says);
    assert_eq!(
        summary(&[("A", 4_600.0), ("B", 4_756.4)]),
        "B answers 3.4 % more requests/s than A (4,756 and 4,600)."
    );
    assert_eq!(
        summary(&[("127.0.0.1:80", 100.0), ("as it was", 4_400.0)]),
        "\"as it was\" answers 44 times as many requests/s as 127.0.0.1:80 (4,400 and 100)."
    );
}

#[test]
fn where_no_difference_was_found_the_margin_is_stated() {
    let arms = arms(RATE, "", &[("A", 4_600.0), ("B", 4_610.0)]);
    assert_eq!(
        said(&compared(RATE, arms, Verdict::NoDifference, Some([0.99, 1.01]))),
        "No difference above 2 % was found: 4,600 and 4,610 requests/s."
    );
}

#[test]
fn what_is_not_told_yet_is_an_interval_and_what_would_tell() {
    let rates = || arms(RATE, "", &[("old", 4_600.0), ("new", 4_610.0)]);
    let narrow = compared(RATE, rates(), Verdict::NotEnough, Some([0.97, 1.09]));
    assert_eq!(
        said(&narrow),
        "Not told yet: new may be between 3 % slower and 9 % faster than old (4,610 and 4,600 \
         requests/s). On this machine 2 % would take about 9 min: --rounds 270."
    );
    let wide = compared(RATE, rates(), Verdict::NotEnough, Some([0.4, 2.5]));
    assert!(
        said(&wide)
            .starts_with("Not told yet: new may be between 0.40 and 2.5 times as fast as old ("),
        "{}",
        said(&wide)
    );
    assert!(
        said(&wide).ends_with("This machine is too noisy for a margin of 2 %."),
        "{}",
        said(&wide)
    );
    let times = arms(TOOK, "link", &[("a", 100.0), ("b", 101.0)]);
    let times = compared(TOOK, times, Verdict::NotEnough, Some([0.985, 1.031]));
    assert!(
        said(&times).starts_with(
            "Not told yet: b may take between 1.5 % less and 3.1 % more time than a (101 µs and 100 µs)."
        ),
        "{}",
        said(&times)
    );
}

#[test]
fn without_an_interval_both_figures_are_stated_and_that_the_rounds_are_too_few() {
    let mut summary = compared(
        RATE,
        arms(RATE, "", &[("A", 4_600.0), ("B", 12_400.0)]),
        Verdict::NotEnough,
        None,
    );
    summary.comparisons[0].rounds = 3;
    assert_eq!(
        said(&summary),
        "The rate is 4,600 requests/s (A) and 12,400 (B); 3 rounds are too few for a verdict."
    );
}

#[test]
fn of_many_arms_the_best_the_worst_and_the_base_are_stated() {
    let levels = [("64K", 50.0), ("1K", 10.0), ("4K", 20.0), ("16K", 30.0), ("1M", 90.0)];
    let all = compared(RATE, arms(RATE, "window", &levels), Verdict::Higher, None);
    assert_eq!(
        said(&all),
        "The rate is 90.0 requests/s (window 1M) at best, 10.0 (window 1K) at worst, and 50.0 (window 64K) \
         to compare with."
    );
}

#[test]
fn of_several_comparisons_those_without_a_verdict_are_named() {
    let levels = [("A", 100.0), ("B", 101.0), ("C", 200.0)];
    let mut all = compared(RATE, arms(RATE, "", &levels), Verdict::Higher, Some([0.99, 1.03]));
    all.comparisons[0].verdict = Verdict::NotEnough;
    assert_eq!(
        said(&all),
        "The rate is 100 requests/s (A), 101 (B) and 200 (C). Not told yet: B, compared with A. On this \
         machine 2 % would take about 70 s: --rounds 31."
    );
    all.comparisons[0].verdict = Verdict::NoDifference;
    assert!(said(&all).ends_with("No difference above 2 % was found for B, compared with A."));
}

#[test]
fn failures_are_stated_with_the_arm_and_what_a_signal_stopped_is_none() {
    let mut all =
        compared(TOOK, arms(TOOK, "backlog", &[("4", 1.0), ("16", 1.0)]), Verdict::Higher, None);
    assert_eq!(failures(&all, &SPEC), None);
    all.arms[1].errors.insert("interrupted".to_owned(), 3);
    assert_eq!(failures(&all, &SPEC), None);
    all.arms[0].errors.insert("reset".to_owned(), 149);
    assert_eq!(
        failures(&all, &SPEC).as_deref(),
        Some("149 of 200 connections failed (backlog 4).")
    );
    all.arms[1].errors.insert("reset".to_owned(), 5);
    assert_eq!(
        failures(&all, &SPEC).as_deref(),
        Some("149 of 200 connections failed (backlog 4) and 5 of 200 (backlog 16).")
    );
    all.arms.pop();
    let one = failures(&all, &SPEC);
    assert_eq!(one.as_deref(), Some("149 of 200 connections failed (reset)."));
}

#[test]
fn a_figure_that_no_two_arms_have_gives_no_sentence() {
    let mut all = compared(TOOK, arms(TOOK, "", &[("A", 1.0), ("B", 2.0)]), Verdict::Higher, None);
    all.arms[0].metrics.clear();
    assert_eq!(said(&all), "");
    all.comparisons.clear();
    assert_eq!(said(&all), "");
}
