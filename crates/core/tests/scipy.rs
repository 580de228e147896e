//! Do our statistics agree with `SciPy`'s, computed independently by `tests/scipy/make.py`?

use serde::Deserialize;
use tcptoll_core::stats::{sample, sequence, two_sample};

#[derive(Deserialize)]
struct Expected {
    made_with: String,
    alpha: f64,
    resamples: usize,
    pairs: Vec<Pair>,
    bootstrap: Vec<Bootstrap>,
    reach: Vec<Reach>,
}

#[derive(Deserialize)]
struct Pair {
    name: String,
    a: Described,
    b: Described,
    welch: Welch,
    mann_whitney: RankTest,
}

#[derive(Deserialize)]
struct Described {
    values: Vec<f64>,
    mean: f64,
    sd: f64,
    median: f64,
    mad: f64,
}

#[derive(Deserialize)]
struct Welch {
    t: f64,
    df: f64,
    p: f64,
    ci: [f64; 2],
}

#[derive(Deserialize)]
struct RankTest {
    u: f64,
    p: f64,
}

#[derive(Deserialize)]
struct Bootstrap {
    name: String,
    #[serde(rename = "BCa")]
    bca: [f64; 2],
    percentile: [f64; 2],
    error: f64,
}

#[derive(Deserialize)]
struct Reach {
    n: usize,
    alpha: f64,
    #[serde(rename = "reach")]
    half_width: f64,
}

fn expected() -> Expected {
    serde_json::from_str(include_str!("scipy/expected.json")).expect("make.py's shape")
}

/// The largest relative error met.
#[derive(Default)]
struct Worst(f64);

impl Worst {
    /// Fails unless the two agree to 1e-9 of the expected one.
    #[track_caller]
    fn agree(&mut self, found: f64, expected: f64, what: &str) {
        let error = (found - expected).abs();
        assert!(error <= 1e-9 * expected.abs(), "{what}: {found} here, {expected} there");
        if expected != 0.0 {
            self.0 = self.0.max(error / expected.abs());
        }
    }
}

/// A row of `cargo xtask prove honesty`; what is not met has failed before.
fn figure(what: &str, goal: &str, measured: &str) {
    println!("figure: {what} | {goal} | {measured} | met");
}

#[test]
fn fifty_pairs_are_described_as_by_scipy() {
    let expected = expected();
    assert_eq!((expected.pairs.len(), &*expected.made_with), (50, "numpy 2.4.6, scipy 1.17.1"));
    let mut worst = Worst::default();
    for pair in &expected.pairs {
        for one in [&pair.a, &pair.b] {
            let (values, name) = (&one.values, &pair.name);
            worst.agree(sample::mean(values).unwrap(), one.mean, name);
            worst.agree(sample::sd(values).unwrap(), one.sd, name);
            worst.agree(sample::median(values).unwrap(), one.median, name);
            worst.agree(sample::mad(values).unwrap(), one.mad, name);
        }
    }
    figure(
        "mean, sd, median, MAD of 50 pairs of data sets against numpy and scipy",
        "1e-9",
        &format!("{:.0e} at most", worst.0),
    );
}

#[test]
fn fifty_pairs_differ_as_by_scipys_welch_and_mann_whitney() {
    let expected = expected();
    let mut worst = Worst::default();
    for Pair { name, a, b, welch, mann_whitney } in &expected.pairs {
        let found = two_sample::welch(&a.values, &b.values, expected.alpha).unwrap();
        worst.agree(found.t, welch.t, name);
        worst.agree(found.df, welch.df, name);
        worst.agree(found.p, welch.p, name);
        worst.agree(found.ci[0], welch.ci[0], name);
        worst.agree(found.ci[1], welch.ci[1], name);
        let found = two_sample::mann_whitney(&a.values, &b.values).unwrap();
        worst.agree(found.u, mann_whitney.u, name);
        worst.agree(found.p, mann_whitney.p, name);
    }
    figure(
        "Welch's t, df, p, interval; Mann-Whitney's U, p of 50 pairs of data sets against scipy",
        "1e-9",
        &format!("{:.0e} at most", worst.0),
    );
}

#[test]
fn the_sequence_ends_where_the_integrated_bayes_factor_does() {
    // To 1e-7: the noncentral t behind the integral is good for about nine digits.
    let mut worst = 0.0_f64;
    for Reach { n, alpha, half_width } in expected().reach {
        let found = sequence::reach(n, alpha).unwrap();
        worst = worst.max((found / half_width - 1.0).abs());
        assert!(
            (found / half_width - 1.0).abs() < 1e-7,
            "n {n}, alpha {alpha}: {found}, {half_width}"
        );
    }
    figure(
        "the sequence's half width against the Bayes factor integrated by scipy",
        "1e-7, the integral's own error",
        &format!("{worst:.0e} at most"),
    );
}

#[test]
fn bootstrap_intervals_are_scipys_to_the_error_of_drawing() {
    let expected = expected();
    let mut worst = 0.0_f64;
    let mean_of = |values: &[f64], rounds: &[usize]| {
        rounds.iter().map(|&round| values[round]).sum::<f64>() / rounds.len() as f64
    };
    for Bootstrap { name, bca, percentile, error } in &expected.bootstrap {
        let pair = expected.pairs.iter().find(|pair| pair.name == *name).unwrap();
        let (a, b) = (&pair.a.values, &pair.b.values);
        let mut ratio = |of_a: &[usize], of_b: &[usize]| Some(mean_of(a, of_a) / mean_of(b, of_b));
        let options =
            two_sample::Options { resamples: expected.resamples, seed: 1, alpha: expected.alpha };
        let found = [
            two_sample::bootstrap_interval(a.len(), b.len(), &mut ratio, options).unwrap(),
            two_sample::percentile_interval(a.len(), b.len(), &mut ratio, options).unwrap(),
        ];
        // A quantile at 2.5 % of 20,000 draws is off by 0.019 standard errors, BCa's by 0.023; both
        // sides draw, so √2 times that; four times it is 0.13. A wrong formula shifts BCa by more:
        // percentile and BCa intervals differ by up to 0.5.
        for (found, expected) in found.into_iter().zip([bca, percentile]) {
            for (bound, scipys) in found.into_iter().zip(expected) {
                assert!((bound - scipys).abs() < 0.13 * error, "{name}: {found:?}, {expected:?}");
                worst = worst.max((bound - scipys).abs() / error);
            }
        }
    }
    figure(
        "bootstrap intervals, BCa and percentile, against scipy: apart by",
        "0.13 standard errors, four times the error of drawing",
        &format!("{worst:.3} at most"),
    );
}
