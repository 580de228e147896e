//! How often does a verdict say what is not so? Seeded simulations; `--nocapture` shows the figures.
//!
//! Two arms `a` and `b` are independent sources, paired by round. After each round from 5 to 30 the
//! comparison and the stop rule are asked as the runner asks them, with a margin of 1 %.

use std::time::Duration;

use statrs::distribution::{ContinuousCDF as _, StudentsT};
use tcptoll_model::compare;
use tcptoll_model::pairs::Pair;
use tcptoll_model::record::{self, Arm, Metric, Trial};
use tcptoll_model::stats::{diagnostics, sequence, two_sample};
use tcptoll_model::stop::{StopRule, Target};
use tcptoll_model::study::{PlannedArm, Settings};

const RUNS: usize = 1_000;
const ROUNDS: std::ops::RangeInclusive<usize> = 5..=30;
const ALPHA: f64 = 0.05;
const MARGIN: f64 = 0.01;

/// Sources of rounds: shapes of noise on a seeded generator.
mod source {
    use rand_core::{Rng as _, SeedableRng as _};
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// How one round differs from the next.
    #[derive(Clone, Copy, Debug)]
    pub(super) enum Shape {
        /// 2 % of noise.
        Normal,
        /// Sigma 0.3, so the mean is `exp(0.045)`.
        LogNormal,
        /// 20 % of rounds take half as long again; 2 % of noise.
        Bimodal,
        /// The same with 0.2 % of noise.
        QuietBimodal,
        /// 0.2 % of noise.
        Quiet,
        /// The log is Student's t with 3 degrees of freedom, times 0.02.
        HeavyTailed,
    }

    impl Shape {
        /// What rounds of latency look like.
        pub(super) const ALL: [Self; 4] =
            [Self::Normal, Self::LogNormal, Self::Bimodal, Self::HeavyTailed];

        /// The mean of its rounds.
        pub(super) fn mean(self) -> f64 {
            match self {
                Self::Normal | Self::Quiet | Self::HeavyTailed => 1.0,
                Self::LogNormal => 0.045_f64.exp(),
                Self::Bimodal | Self::QuietBimodal => 1.1,
            }
        }
    }

    pub(super) struct Source(Xoshiro256PlusPlus);

    impl Source {
        pub(super) fn new(seed: u64) -> Self {
            Self(Xoshiro256PlusPlus::seed_from_u64(seed))
        }

        /// Between 0 and 1, neither included.
        pub(super) fn uniform(&mut self) -> f64 {
            ((self.0.next_u64() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
        }

        /// Box and Muller (1958).
        pub(super) fn normal(&mut self) -> f64 {
            let radius = (-2.0 * self.uniform().ln()).sqrt();
            radius * (std::f64::consts::TAU * self.uniform()).cos()
        }

        pub(super) fn round(&mut self, shape: Shape) -> f64 {
            match shape {
                Shape::Normal => 1.0 + 0.02 * self.normal(),
                Shape::LogNormal => (0.3 * self.normal()).exp(),
                Shape::Bimodal => self.slow() * (1.0 + 0.02 * self.normal()),
                Shape::QuietBimodal => self.slow() * (1.0 + 0.002 * self.normal()),
                Shape::Quiet => 1.0 + 0.002 * self.normal(),
                Shape::HeavyTailed => (0.02 * self.student_3()).exp(),
            }
        }

        fn slow(&mut self) -> f64 {
            if self.uniform() < 0.2 { 1.5 } else { 1.0 }
        }

        /// Student's t with 3 degrees of freedom: a normal value by the root of a mean of 3 squares.
        fn student_3(&mut self) -> f64 {
            let squares: f64 = (0..3).map(|_| self.normal().powi(2)).sum();
            self.normal() / (squares / 3.0).sqrt()
        }

        /// Noise of standard deviation 1 of which each value resembles the one before by `rho`.
        pub(super) fn resembling(&mut self, rho: f64, n: usize) -> Vec<f64> {
            let mut value = self.normal();
            let fresh = (1.0 - rho * rho).sqrt();
            (0..n)
                .map(|_| {
                    let now = value;
                    value = rho * value + fresh * self.normal();
                    now
                })
                .collect()
        }
    }
}

use source::{Shape, Source};

/// What a run says when it stops.
#[derive(Clone, Copy, PartialEq)]
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

/// Stops at the first round with a verdict; "within the margin" counts from `within_from` rounds.
fn stop(log_ratios: &[f64], within_from: usize) -> Stop {
    let margin = MARGIN.ln_1p();
    let mut last = None;
    for rounds in ROUNDS {
        let interval = ours(&log_ratios[..rounds]);
        let verdict = if interval[0] > 0.0 || interval[1] < 0.0 {
            Verdict::Differs
        } else if rounds >= within_from && interval[0] > -margin && interval[1] < margin {
            Verdict::Within
        } else {
            Verdict::Open
        };
        last = Some(Stop { verdict, rounds, interval });
        if verdict != Verdict::Open {
            break;
        }
    }
    last.expect("five rounds and more")
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

fn runs_of(shapes: [Shape; 2], ratio: f64, within_from: usize) -> Vec<Stop> {
    let mut source = Source::new(2024 + shapes[0] as u64);
    (0..RUNS).map(|_| stop(&log_ratios(&mut source, shapes, ratio), within_from)).collect()
}

/// A whole study as the runner does it: trials in, the stop rule asked after every round, the
/// verdict and interval of the comparison out.
fn studied(log_ratios: &[f64]) -> Stop {
    let arm = |name: &str| PlannedArm {
        name: name.into(),
        factors: Settings::new(),
        settings: Settings::new(),
    };
    let arms = [arm("b"), arm("a")];
    let pairs = [Pair { metric: "m".into(), a: 1, b: 0, per: Settings::new() }];
    let rule = StopRule { target: Target::Verdicts, min: 5, max: 30, max_time: None };
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
    (0..RUNS).map(|_| studied(&log_ratios(&mut source, [shape; 2], ratio))).collect()
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
    }
    // With 2 % of noise in each arm it takes about ten rounds.
    let found = share(&studies_of(Shape::Normal, 1.05), |run| run.verdict == Verdict::Differs);
    assert!(found >= 0.99, "{found}");
}

#[test]
fn looking_each_round_at_a_fixed_interval_would_be_wrong_far_more_often() {
    let bounds: Vec<f64> = (0..=*ROUNDS.end())
        .map(|n| (n as f64 - 1.0).max(1.0))
        .map(|df| StudentsT::new(0.0, 1.0, df).unwrap().inverse_cdf(1.0 - ALPHA / 2.0))
        .collect();
    let fixed = |values: &[f64]| {
        let n = values.len();
        let mean = values.iter().sum::<f64>() / n as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let half = bounds[n] * (squares / (n as f64 - 1.0) / n as f64).sqrt();
        [mean - half, mean + half]
    };
    let mut source = Source::new(2024);
    let runs: Vec<[bool; 2]> = (0..RUNS)
        .map(|_| log_ratios(&mut source, [Shape::Normal; 2], 1.0))
        .map(|values| {
            let ever = |of: &dyn Fn(&[f64]) -> [f64; 2]| {
                ROUNDS.map(|n| of(&values[..n])).any(|found| found[0] > 0.0 || found[1] < 0.0)
            };
            [ever(&fixed), ever(&ours)]
        })
        .collect();
    let [fixed, ours] = [0, 1].map(|which| share(&runs, |run| run[which]));
    println!(
        "ever leaves out the truth, rounds 5 to 30: Student's t {fixed:.3}, sequence {ours:.3}"
    );
    assert!((0.20..0.26).contains(&fixed) && ours <= 0.05, "{fixed}, {ours}");
}

/// Runs of one arm that stop when its interval reaches 5 % to each side, `fewest` rounds at least:
/// the share whose interval holds the true mean, and the mean number of rounds.
fn one_arm(shape: Shape, fewest: usize) -> (f64, f64) {
    let mut source = Source::new(7);
    let runs: Vec<Stop> = (0..RUNS)
        .map(|_| {
            let values: Vec<f64> = (0..*ROUNDS.end()).map(|_| source.round(shape)).collect();
            let reached = |rounds: &usize| {
                let [least, greatest] = ours(&values[..*rounds]);
                (greatest - least) / 2.0 <= 0.05 * f64::midpoint(least, greatest)
            };
            let rounds = (fewest..=*ROUNDS.end()).find(reached).unwrap_or(*ROUNDS.end());
            Stop { verdict: Verdict::Open, rounds, interval: ours(&values[..rounds]) }
        })
        .collect();
    (share(&runs, |run| run.holds(shape.mean())), mean_rounds(&runs))
}

#[test]
fn an_arms_own_interval_holds_its_mean_if_it_runs_15_rounds_before_it_may_stop() {
    for shape in [Shape::Normal, Shape::LogNormal, Shape::Bimodal] {
        let (covers, rounds) = one_arm(shape, 15);
        figure(
            &format!(
                "one arm until its interval reaches 5 % to each side, {shape:?}: interval holds its mean"
            ),
            "at least 94 %",
            &format!("{:.1} % ({rounds:.1} rounds)", covers * 100.0),
            covers >= 0.94,
        );
        assert!(covers >= 0.94, "{shape:?}: {covers}");
    }
}

#[test]
fn a_mode_not_seen_yet_is_left_out_by_what_stops_after_5_rounds() {
    // Why the 15: 0.8^5 = 33 % of runs see no slow round in five, 0.8^15 = 3.5 % none in fifteen. No
    // interval of a mean survives it without knowing how slow a round can be.
    let (normal, _) = one_arm(Shape::Normal, 5);
    let (bimodal, rounds) = one_arm(Shape::Bimodal, 5);
    println!(
        "one arm from 5 rounds: Normal {normal:.3}, Bimodal {bimodal:.3} ({rounds:.1} rounds)"
    );
    assert!(normal >= 0.94 && (0.65..0.85).contains(&bimodal), "{normal}, {bimodal}");
    // The same for a comparison in which one arm alone has slow rounds, and little other noise. A
    // difference needs no such floor: its interval is as wide as the modes seen are apart.
    let truth = 0.2 * 1.5_f64.ln();
    for (within_from, expected) in [(5, 0.55..0.80), (15, 0.94..1.0)] {
        let runs = runs_of([Shape::QuietBimodal, Shape::Quiet], 1.0, within_from);
        let covers = share(&runs, |run| run.holds(truth));
        let within = share(&runs, |run| run.verdict == Verdict::Within);
        println!(
            "slow rounds in one arm, within from {within_from}: interval holds the ratio \
             {covers:.3}, wrongly within the margin {within:.3}"
        );
        assert!(expected.contains(&covers), "{within_from}: {covers}, {within}");
    }
}

#[test]
fn rounds_that_resemble_their_neighbours_cost_honesty_and_raise_the_alarm() {
    // Correlation, the most that may be told apart, the least of runs that must raise the alarm.
    for (rho, cost, fires) in [(0.3, 0.15, 0.30), (0.5, 0.30, 0.72), (0.7, 0.55, 0.93)] {
        let mut source = Source::new(3);
        let runs: Vec<Vec<f64>> =
            (0..RUNS).map(|_| source.resembling(rho, *ROUNDS.end())).collect();
        let stops: Vec<Stop> = runs
            .iter()
            .map(|run| run.iter().map(|value| 0.028 * value).collect::<Vec<_>>())
            .map(|run| studied(&run))
            .collect();
        let differs = share(&stops, |run| run.verdict == Verdict::Differs);
        let alarm = share(&runs, |run| diagnostics::autocorrelation(run).unwrap().p < 0.05);
        figure(
            &format!(
                "A/A, neighbouring rounds correlated by {rho}: told apart; the warning fires in 30 rounds"
            ),
            "its cost stated; fires",
            &format!("{:.1} %; in {:.1} % of runs", differs * 100.0, alarm * 100.0),
            alarm >= fires,
        );
        assert!((0.05..cost).contains(&differs) && alarm >= fires, "{rho}: {differs}, {alarm}");
    }
}

#[test]
fn doubts_are_raised_by_at_most_one_in_a_hundred_runs_of_honest_rounds() {
    for n in [8, 9, 11, 15, 30, 100] {
        let mut source = Source::new(n as u64);
        let normal: Vec<Vec<f64>> =
            (0..RUNS).map(|_| (0..n).map(|_| source.round(Shape::Normal)).collect()).collect();
        let uniform: Vec<Vec<f64>> =
            (0..RUNS).map(|_| (0..n).map(|_| source.uniform()).collect()).collect();
        let log_normal: Vec<Vec<f64>> =
            (0..RUNS).map(|_| (0..n).map(|_| source.round(Shape::LogNormal)).collect()).collect();
        let drift = share(&normal, |run| diagnostics::drift(run).unwrap().p < 0.01);
        let alike = share(&normal, |run| diagnostics::autocorrelation(run).unwrap().p < 0.01);
        let far = share(&normal, |run| !diagnostics::outliers(run).is_empty());
        let modes = [&normal, &uniform, &log_normal]
            .map(|runs| share(runs, |run| diagnostics::two_modes(run).is_some()));
        println!(
            "alarms of {n}: drift {drift:.3}, autocorrelation {alike:.3}, outliers {far:.3} \
             (log-normal {:.3}), two modes {modes:?}",
            share(&log_normal, |run| !diagnostics::outliers(run).is_empty())
        );
        // 1 % and three standard deviations of 1,000 runs.
        for alarm in [drift, alike, far, modes[0], modes[1], modes[2]] {
            assert!(alarm <= 0.02, "{n}: {alarm}");
        }
    }
}

#[test]
fn doubts_are_raised_where_there_is_reason() {
    let mut source = Source::new(11);
    let mut runs_of = |round: &dyn Fn(&mut Source, usize) -> f64| -> Vec<Vec<f64>> {
        (0..RUNS).map(|_| (0..30).map(|at| round(&mut source, at)).collect()).collect()
    };
    // 4 % over the run with 2 % of noise; one round of 30 that is 20 % slower; one in five slow.
    let drifting =
        runs_of(&|source, at| source.round(Shape::Normal) * (1.0 + 0.04 * at as f64 / 29.0));
    let far = runs_of(&|source, at| source.round(Shape::Normal) * if at == 7 { 1.2 } else { 1.0 });
    let bimodal = runs_of(&|source, _| source.round(Shape::Bimodal));
    let drift = share(&drifting, |run| diagnostics::drift(run).unwrap().p < 0.01);
    let outlier = share(&far, |run| diagnostics::outliers(run).contains(&7));
    let modes = share(&bimodal, |run| diagnostics::two_modes(run).is_some());
    // Fewer than 5 of 30 are no mode but far values.
    let either = share(&bimodal, |run| {
        diagnostics::two_modes(run).is_some() || !diagnostics::outliers(run).is_empty()
    });
    println!(
        "found: 4 % of drift {drift:.3}, a round 20 % slower {outlier:.3}, two modes {modes:.3}, \
         these or outliers {either:.3}"
    );
    assert!(drift >= 0.5 && outlier >= 0.98, "{drift}, {outlier}");
    assert!(modes >= 0.7 && either >= 0.98, "{modes}, {either}");
}

/// The ends of Student's interval of `n` values about their mean, for one look.
fn students(values: &[f64]) -> [f64; 2] {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let bound = StudentsT::new(0.0, 1.0, n - 1.0)
        .expect("two values and more")
        .inverse_cdf(1.0 - ALPHA / 2.0);
    let half = bound * (squares / (n - 1.0) / n).sqrt();
    [mean - half, mean + half]
}

/// The percentile interval of a bootstrap of the mean.
fn bootstrapped(source: &mut Source, values: &[f64]) -> [f64; 2] {
    const DRAWS: usize = 400;
    let n = values.len();
    let mut means: Vec<f64> = (0..DRAWS)
        .map(|_| {
            let drawn = (0..n).map(|_| values[(source.uniform() * n as f64) as usize]);
            drawn.sum::<f64>() / n as f64
        })
        .collect();
    means.sort_unstable_by(f64::total_cmp);
    [means[DRAWS / 40], means[DRAWS - 1 - DRAWS / 40]]
}

#[test]
fn what_is_done_instead_is_wrong_more_often() {
    let mut source = Source::new(11);
    let mut noise =
        |n: usize, shift: f64| -> Vec<f64> { (0..n).map(|_| shift + source.normal()).collect() };
    let least = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
    let best_of_three: Vec<f64> = (0..20_000)
        .map(|_| (1.0 + 0.02 * least(&noise(3, 0.0))) / (1.0 + 0.02 * least(&noise(3, 0.0))))
        .collect();
    let told_apart = share(&best_of_three, |ratio| (ratio.ln()).abs() > MARGIN);
    println!("best of three, 2 % of scatter: apart by more than 1 % in {told_apart:.3} of A/A");
    assert!((0.60..0.66).contains(&told_apart), "{told_apart}");

    let mut part = |shift: f64| {
        let pairs: Vec<[bool; 2]> = (0..4_000)
            .map(|_| {
                let (a, b) = (noise(10, shift), noise(10, 0.0));
                let bars = students(&a)[0] > students(&b)[1] || students(&b)[0] > students(&a)[1];
                [bars, two_sample::welch(&a, &b, ALPHA).is_some_and(|t| t.p < ALPHA)]
            })
            .collect();
        [0, 1].map(|which| share(&pairs, |pair| pair[which]))
    };
    let (none, some) = (part(0.0), part(1.2));
    println!("bars that do not overlap, t test: A/A {none:.3?}, 1.2 deviations apart {some:.3?}");
    assert!(none[0] < 0.015 && (0.03..0.07).contains(&none[1]), "{none:?}");
    assert!(some[0] < 0.45 && some[1] > 0.65, "{some:?}");

    let mut draws = Source::new(12);
    let once: Vec<bool> = (0..1_000)
        .map(|_| bootstrapped(&mut draws, &noise(10, 0.0)))
        .map(|[low, high]| low <= 0.0 && 0.0 <= high)
        .collect();
    let once = share(&once, |holds| *holds);
    let ever: Vec<bool> = (0..150)
        .map(|_| noise(30, 0.0))
        .map(|all| {
            ROUNDS.map(|n| bootstrapped(&mut draws, &all[..n])).any(|[l, h]| l > 0.0 || h < 0.0)
        })
        .collect();
    let ever = share(&ever, |missed| *missed);
    println!(
        "percentile bootstrap: of 10 rounds holds {once:.3}, looked at 26 times misses {ever:.3}"
    );
    assert!((0.88..0.93).contains(&once) && (0.30..0.50).contains(&ever), "{once}, {ever}");
}
