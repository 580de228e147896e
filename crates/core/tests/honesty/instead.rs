//! How often is what is done elsewhere wrong? And what does it cost to compare two runs as if the
//! number of their rounds had been chosen before?

use statrs::distribution::{ContinuousCDF as _, StudentsT};
use tcptoll_core::stats::two_sample;
use tcptoll_core::study::stop::MIN_ROUNDS;

use crate::modes::stop;
use crate::source::{Shape, Source};
use crate::{ALPHA, MARGIN, ROUNDS, RUNS, figure, log_ratios, ours, share};

#[test]
fn looking_each_round_at_a_fixed_interval_would_be_wrong_far_more_often() {
    let bounds: Vec<f64> = (0..=*ROUNDS.end()).map(|n| students_bound(n.max(2))).collect();
    let fixed = |values: &[f64]| about_mean(values, bounds[values.len()]);
    let mut source = Source::new(2024);
    let runs: Vec<[bool; 2]> = (0..RUNS)
        .map(|_| log_ratios(&mut source, [Shape::Normal; 2], 1.0))
        .map(|values| {
            let ever = |interval: &dyn Fn(&[f64]) -> [f64; 2]| {
                ROUNDS.map(|n| interval(&values[..n])).any(|found| found[0] > 0.0 || found[1] < 0.0)
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

/// Half of Student's interval of `n` values, for one look, in standard errors.
fn students_bound(n: usize) -> f64 {
    let students = StudentsT::new(0.0, 1.0, n as f64 - 1.0).expect("two values and more");
    students.inverse_cdf(1.0 - ALPHA / 2.0)
}

/// The ends of the interval that reaches `bound` standard errors from the mean.
fn about_mean(values: &[f64], bound: f64) -> [f64; 2] {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let half = bound * (squares / (n - 1.0) / n).sqrt();
    [mean - half, mean + half]
}

fn students(values: &[f64]) -> [f64; 2] {
    about_mean(values, students_bound(values.len()))
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

/// The logarithms of arm `a` in a record whose run ended at the verdict of `a` and `b`, looked for
/// from `min` rounds on; `b` is truly by `effect` below.
fn recorded(source: &mut Source, effect: f64, min: usize) -> Vec<f64> {
    let mut rounds =
        || -> Vec<f64> { (0..*ROUNDS.end()).map(|_| source.round(Shape::Normal).ln()).collect() };
    let (mut a, b) = (rounds(), rounds());
    let log_ratios: Vec<f64> = a.iter().zip(&b).map(|(a, b)| effect + a - b).collect();
    a.truncate(stop(&log_ratios, min, 15).rounds);
    a
}

#[test]
fn two_runs_that_ended_by_their_own_result_differ_a_little_more_often_than_promised() {
    // Welch's t takes the numbers of rounds for chosen before. Here both runs of the same arm went
    // on until that arm was told apart from another.
    const PAIRS: u32 = 4_000;
    for min in [5, MIN_ROUNDS as usize] {
        let levels = [0.0, 0.01, 0.015, 0.02].map(|effect| {
            let mut source = Source::new(77);
            let wrong = (0..PAIRS)
                .filter(|_| {
                    let [a, b] = [0, 1].map(|_| recorded(&mut source, effect, min));
                    two_sample::welch(&a, &b, ALPHA).is_some_and(|found| found.p < ALPHA)
                })
                .count();
            wrong as f64 / f64::from(PAIRS)
        });
        let worst = levels.into_iter().fold(0.0, f64::max);
        let met = (0.05..0.085).contains(&worst);
        figure(
            &format!(
                "two records of the same arm, each ended by its own verdict from {min} rounds on: \
                 told apart by Welch's t"
            ),
            "its cost stated (5 % if the rounds are fixed)",
            &format!("{:.1} % at worst", worst * 100.0),
            met,
        );
        assert!(met, "{min}: {levels:?}");
    }
}
