//! How often does a verdict say what is not so? Seeded simulations; `--nocapture` shows the figures.
//!
//! Two arms `a` and `b` are independent sources, paired by round. After each round the comparison and
//! the stop rule are asked as the runner asks them, with a margin of 1 %: the default rule, from the
//! 15th round to the 30th, where nothing else is said.

mod doubts;
mod instead;
mod modes;
mod points;
mod source;
mod unanswered;

use std::time::Duration;

use tcptoll_core::record;
use tcptoll_core::record::{Arm, Metric, Trial};
use tcptoll_core::stats::{diagnostics, sequence};
use tcptoll_core::study::pairs::Pair;
use tcptoll_core::study::stop::{MAX_ROUNDS, MIN_ROUNDS, StopRule, Target};
use tcptoll_core::study::{PlannedArm, Settings};
use tcptoll_core::verdict::compare;

use source::{Shape, Source};

const RUNS: usize = 1_000;
/// After how many rounds an interval can be looked at: from its first end on.
const ROUNDS: std::ops::RangeInclusive<usize> = 5..=30;
const ALPHA: f64 = 0.05;
const MARGIN: f64 = 0.01;

/// What a run says when it stops.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    Differs,
    Within,
    Open,
}

struct Stop {
    verdict: Verdict,
    rounds: usize,
    interval: [f64; 2],
}

impl Stop {
    fn holds(&self, truth: f64) -> bool {
        self.interval[0] <= truth && truth <= self.interval[1]
    }
}

fn ours(values: &[f64]) -> [f64; 2] {
    sequence::interval(values, ALPHA).expect("five finite rounds and more")
}

/// The share of `runs` of which `is` is true.
fn share<T>(runs: &[T], is: impl Fn(&T) -> bool) -> f64 {
    runs.iter().filter(|run| is(run)).count() as f64 / runs.len() as f64
}

/// Log-ratios of `a` over `b` for a full run, `a` being `ratio` times as long.
fn log_ratios(source: &mut Source, shapes: [Shape; 2], ratio: f64) -> Vec<f64> {
    (0..*ROUNDS.end())
        .map(|_| (ratio * source.round(shapes[0]) / source.round(shapes[1])).ln())
        .collect()
}

/// The rule of a study that does not say other, its time limit apart.
fn rule() -> StopRule {
    StopRule { target: Target::Verdicts, min: MIN_ROUNDS, max: MAX_ROUNDS, max_time: None }
}

/// A whole study as the runner does it: trials in, the stop rule asked after every round, the
/// verdict and interval of the comparison out.
fn studied(log_ratios: &[f64], rule: &StopRule) -> Stop {
    let arm = |name: &str| PlannedArm {
        name: name.into(),
        factors: Settings::new(),
        settings: Settings::new(),
        failures_allowed: 0.01,
    };
    let arms = [arm("b"), arm("a")];
    let pairs = [Pair { metric: "m".into(), a: 1, b: 0, per: Settings::new() }];
    let trial = |round: usize, name: &str, value: f64| Trial {
        round: round as u32,
        arm: Arm {
            name: name.into(),
            metrics: [(
                "m".to_owned(),
                Metric { value, unit: "us".into(), ci95: None, median: None, n: 1 },
            )]
            .into(),
            ..Arm::default()
        },
        ..Trial::default()
    };
    let mut trials = Vec::new();
    for (round, log_ratio) in log_ratios.iter().enumerate() {
        trials.extend([trial(round, "a", 100.0 * log_ratio.exp()), trial(round, "b", 100.0)]);
        let done = round as u32 + 1;
        if done < rule.min {
            continue;
        }
        let found = compare::within(&pairs, &arms, &trials, MARGIN);
        if rule.reached(done, Duration::ZERO, 0.0, &[], "m", &found).is_some() {
            let verdict = match found[0].verdict {
                record::Verdict::Higher | record::Verdict::Lower => Verdict::Differs,
                record::Verdict::NoDifference => Verdict::Within,
                record::Verdict::NotEnough => Verdict::Open,
            };
            let interval = found[0].ci95.expect("five rounds and more").map(f64::ln);
            return Stop { verdict, rounds: round + 1, interval };
        }
    }
    panic!("the rule has an end");
}

fn studies_of(shape: Shape, ratio: f64) -> Vec<Stop> {
    let mut source = Source::new(2024 + shape as u64);
    (0..RUNS).map(|_| studied(&log_ratios(&mut source, [shape; 2], ratio), &rule())).collect()
}

/// A row of `cargo xtask prove honesty`.
fn figure(what: &str, goal: &str, measured: &str, met: bool) {
    println!("figure: {what} | {goal} | {measured} | {}", if met { "met" } else { "MISSED" });
}

fn mean_rounds(runs: &[Stop]) -> f64 {
    runs.iter().map(|run| run.rounds as f64).sum::<f64>() / runs.len() as f64
}

#[test]
fn an_arm_against_itself_differs_in_at_most_5_percent_with_early_stopping() {
    for shape in [Shape::Quiet].into_iter().chain(Shape::ALL) {
        let runs = studies_of(shape, 1.0);
        let differs = share(&runs, |run| run.verdict == Verdict::Differs);
        let covers = share(&runs, |run| run.holds(0.0));
        let within = share(&runs, |run| run.verdict == Verdict::Within);
        figure(
            &format!(
                "A/A, {shape:?}, 1,000 studies with early stopping: told apart; interval holds the truth"
            ),
            "at most 5 %; at least 94 %",
            &format!(
                "{:.1} %; {:.1} % (no difference found {:.1} %, {:.1} rounds)",
                differs * 100.0,
                covers * 100.0,
                within * 100.0,
                mean_rounds(&runs)
            ),
            differs <= 0.05 && covers >= 0.94,
        );
        assert!(differs <= 0.05 && covers >= 0.94, "{shape:?}: {differs}, {covers}");
    }
}

#[test]
fn a_study_stops_where_its_intervals_say() {
    for (shape, min) in [(Shape::Quiet, 5), (Shape::Normal, 5), (Shape::HeavyTailed, MIN_ROUNDS)] {
        let mut source = Source::new(1);
        for ratio in (0..50).map(|at| 1.0 + 0.001 * f64::from(at)) {
            let rounds = log_ratios(&mut source, [shape; 2], ratio);
            let study = studied(&rounds, &StopRule { min, ..rule() });
            let bare = modes::stop(&rounds, min as usize, 15);
            assert_eq!((study.rounds, study.verdict), (bare.rounds, bare.verdict), "{shape:?}");
        }
    }
}

#[test]
fn a_true_5_percent_is_within_the_interval_at_the_stopping_time() {
    for shape in Shape::ALL {
        let runs = studies_of(shape, 1.05);
        let covers = share(&runs, |run| run.holds(1.05_f64.ln()));
        let found = share(&runs, |run| run.verdict == Verdict::Differs && run.interval[0] > 0.0);
        figure(
            &format!(
                "true ratio 1.05, {shape:?}, 1,000 studies: interval at the stopping time holds it"
            ),
            "at least 94 %",
            &format!(
                "{:.1} % (found {:.1} %, {:.1} rounds)",
                covers * 100.0,
                found * 100.0,
                mean_rounds(&runs)
            ),
            covers >= 0.94,
        );
        assert!(covers >= 0.94, "{shape:?}: {covers}");
        // With 2 % of noise in each arm ten rounds would do, so it takes the least.
        assert!(!matches!(shape, Shape::Normal) || found >= 0.99, "{found}");
    }
}

#[test]
fn arms_of_different_shapes_keep_the_true_ratio_within_the_interval() {
    for shapes in [
        [Shape::LogNormal, Shape::Normal],
        [Shape::HeavyTailed, Shape::Normal],
        [Shape::Waiting, Shape::Normal],
        [Shape::Waiting, Shape::Quiet],
        [Shape::Bimodal, Shape::Normal],
    ] {
        let truth = shapes[0].mean_log() - shapes[1].mean_log();
        let mut source = Source::new(5);
        let runs: Vec<Stop> =
            (0..RUNS).map(|_| studied(&log_ratios(&mut source, shapes, 1.0), &rule())).collect();
        let covers = share(&runs, |run| run.holds(truth));
        figure(
            &format!("{:?} against {:?}: interval holds the true ratio", shapes[0], shapes[1]),
            "at least 94 %",
            &format!("{:.1} % ({:.1} rounds)", covers * 100.0, mean_rounds(&runs)),
            covers >= 0.94,
        );
        assert!(covers >= 0.94, "{shapes:?}: {covers}");
    }
}

#[test]
fn rounds_that_resemble_their_neighbours_cost_honesty_and_raise_the_alarm() {
    // Correlation, the most that may be told apart, and the least of runs that must raise the alarm:
    // of 30 rounds, and of those with a wrong verdict when it was found.
    for (rho, cost, fires, fires_if_wrong) in
        [(0.3, 0.12, 0.30, 0.10), (0.5, 0.25, 0.72, 0.33), (0.7, 0.46, 0.93, 0.60)]
    {
        let mut source = Source::new(3);
        let runs: Vec<Vec<f64>> =
            (0..RUNS).map(|_| source.resembling(rho, *ROUNDS.end())).collect();
        let warns = |rounds: &[f64]| diagnostics::autocorrelation(rounds).unwrap().p < ALPHA;
        let wrong: Vec<bool> = runs
            .iter()
            .map(|run| {
                let log_ratios: Vec<f64> = run.iter().map(|value| 0.028 * value).collect();
                let stop = modes::stop(&log_ratios, MIN_ROUNDS as usize, 15);
                (stop.verdict == Verdict::Differs, warns(&run[..stop.rounds]))
            })
            .filter_map(|(differs, warned)| differs.then_some(warned))
            .collect();
        let differs = wrong.len() as f64 / RUNS as f64;
        let warned = share(&wrong, |warned| *warned);
        let alarm = share(&runs, |run| warns(run));
        let met = (0.03..cost).contains(&differs) && alarm >= fires && warned >= fires_if_wrong;
        figure(
            &format!(
                "A/A, neighbouring rounds correlated by {rho}: told apart; the warning fires in 30 \
                 rounds; warned given a wrong verdict, at the stopping time"
            ),
            "its cost stated; fires",
            &format!(
                "{:.1} %; in {:.1} % of runs; in {:.1} %",
                differs * 100.0,
                alarm * 100.0,
                warned * 100.0
            ),
            met,
        );
        assert!(met, "{rho}: {differs}, {alarm}, {warned}");
    }
}
