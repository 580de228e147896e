//! Which interval has a statistic for which there is no formula, such as the ratio of two p99?
//!
//! Rounds are drawn again with repetition, and the statistic is looked at each time. The round is the
//! unit: requests within a round share its luck, and drawing requests would make the interval far too
//! narrow. For one look at the end, as an illustration beside a verdict: of 30 skewed rounds a bootstrap
//! interval covers less than it says, and under early stopping less again ([`super::sequence`]).

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use statrs::function::erf::{erfc, erfc_inv};

use super::sample::{ascending, interpolated, mean};

/// Most resamples: above, the bounds of 95 % move by less than 0.5 % of the width anyway.
pub const RESAMPLES_MAX: usize = 100_000;

/// How to draw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// How often rounds are drawn, 1 to [`RESAMPLES_MAX`]; a tail of 2.5 % wants at least 2,000.
    pub resamples: usize,
    /// The same seed draws the same rounds.
    pub seed: u64,
    /// 0.05 gives a 95 % interval.
    pub alpha: f64,
}

/// The statistic of some rounds of `a` and some of `b`, told by their indices, with repetitions.
pub type Statistic<'a> = dyn FnMut(&[usize], &[usize]) -> Option<f64> + 'a;

/// The bias-corrected and accelerated interval (`BCa`) of a statistic of `na` and `nb` rounds.
///
/// The two samples are drawn independently. Shape: least and greatest.
/// None: fewer than 2 rounds in one; resamples not 1 to [`RESAMPLES_MAX`]; `alpha` not between 0 and 1;
/// a draw without statistic (leaving such draws out would hide the bad ones) or one that is not
/// finite; a statistic that hardly varies, so that its bias has no number.
/// Cost: the statistic once for every resample and round.
/// Source: Efron (1987); for two samples as `scipy.stats.bootstrap(method="BCa")` does it.
#[must_use]
pub fn interval(
    na: usize,
    nb: usize,
    statistic: &mut Statistic<'_>,
    options: Options,
) -> Option<[f64; 2]> {
    let drawn = resample(na, nb, statistic, options)?;
    let whole: [Vec<usize>; 2] = [na, nb].map(|n| (0..n).collect());
    let found = statistic(&whole[0], &whole[1])?;
    let [below, equal_or_below] = [
        drawn.partition_point(|value| *value < found),
        drawn.partition_point(|value| *value <= found),
    ];
    let bias = normal_quantile((below + equal_or_below) as f64 / (2.0 * drawn.len() as f64));
    let acceleration = acceleration(&whole, statistic)?;
    let tail = normal_quantile(options.alpha / 2.0);
    let share = |z: f64| {
        let from_bias = bias + z;
        normal_share(bias + from_bias / (1.0 - acceleration * from_bias))
    };
    let shares = [share(tail), share(-tail)];
    // NaN where all draws lie on one side of what was found: the bias is infinite.
    shares
        .iter()
        .all(|share| share.is_finite())
        .then(|| shares.map(|share| interpolated(&drawn, share)))
}

/// The percentile interval: what `alpha / 2` of the draws lie below, and above.
///
/// Simpler than [`interval`] and less exact where the statistic is biased or its spread depends on its
/// value. None and cost as there.
/// Source: Efron (1979); as `scipy.stats.bootstrap(method="percentile")`.
#[must_use]
pub fn percentile_interval(
    na: usize,
    nb: usize,
    statistic: &mut Statistic<'_>,
    options: Options,
) -> Option<[f64; 2]> {
    let drawn = resample(na, nb, statistic, options)?;
    let tail = options.alpha / 2.0;
    Some([tail, 1.0 - tail].map(|share| interpolated(&drawn, share)))
}

/// The statistic of every draw, ascending.
fn resample(
    na: usize,
    nb: usize,
    statistic: &mut Statistic<'_>,
    options: Options,
) -> Option<Vec<f64>> {
    let alpha_fits = options.alpha > 0.0 && options.alpha < 1.0;
    let resamples_fit = (1..=RESAMPLES_MAX).contains(&options.resamples);
    if na.min(nb) < 2 || !alpha_fits || !resamples_fit {
        return None;
    }
    let mut random = Xoshiro256PlusPlus::seed_from_u64(options.seed);
    let mut rounds = [vec![0; na], vec![0; nb]];
    let mut drawn = Vec::with_capacity(options.resamples);
    for _ in 0..options.resamples {
        for sample in &mut rounds {
            let n = sample.len();
            // The high half of a product is as even as 2^64 by n allows: off by less than 2^-50.
            sample.fill_with(|| ((u128::from(random.next_u64()) * n as u128) >> 64) as usize);
        }
        drawn.push(statistic(&rounds[0], &rounds[1])?);
    }
    ascending(&drawn)
}

/// How fast the statistic's spread changes with its value: the skewness of leaving one round out.
///
/// Source: Efron & Tibshirani (1993), equation 15.36.
fn acceleration(whole: &[Vec<usize>; 2], statistic: &mut Statistic<'_>) -> Option<f64> {
    let (mut cubes, mut squares) = (0.0, 0.0);
    for (which, sample) in whole.iter().enumerate() {
        let n = sample.len() as f64;
        let mut without = Vec::with_capacity(sample.len());
        for left_out in 0..sample.len() {
            let mut rest = sample.clone();
            rest.remove(left_out);
            without.push(if which == 0 {
                statistic(&rest, &whole[1])?
            } else {
                statistic(&whole[0], &rest)?
            });
        }
        let middle = mean(&without)?;
        let influence = without.iter().map(|value| (n - 1.0) * (middle - value));
        cubes += influence.clone().map(|u| u.powi(3)).sum::<f64>() / n.powi(3);
        squares += influence.map(|u| u.powi(2)).sum::<f64>() / n.powi(2);
    }
    (squares > 0.0).then(|| cubes / squares.powf(1.5) / 6.0)
}

fn normal_share(z: f64) -> f64 {
    0.5 * erfc(-z / std::f64::consts::SQRT_2)
}

fn normal_quantile(share: f64) -> f64 {
    -std::f64::consts::SQRT_2 * erfc_inv(2.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: Options = Options { resamples: 2_000, seed: 1, alpha: 0.05 };

    fn mean_of(values: &[f64], rounds: &[usize]) -> f64 {
        rounds.iter().map(|&round| values[round]).sum::<f64>() / rounds.len() as f64
    }

    #[test]
    fn means_of_normal_like_rounds_have_about_the_interval_of_the_formula() {
        // 0 to 29 in both: variance by n is 74.92, so the difference's error is √(2·74.92/30) = 2.235
        // and its interval ±1.96 · 2.235 = ±4.38.
        let values: Vec<f64> = (0..30).map(f64::from).collect();
        let mut difference =
            |a: &[usize], b: &[usize]| Some(mean_of(&values, a) - mean_of(&values, b));
        // 20,000 draws leave a standard deviation of 0.04 in each bound.
        let options = Options { resamples: 20_000, ..OPTIONS };
        for found in [
            interval(30, 30, &mut difference, options).unwrap(),
            percentile_interval(30, 30, &mut difference, options).unwrap(),
        ] {
            assert!((found[0] + 4.38).abs() < 0.2 && (found[1] - 4.38).abs() < 0.2, "{found:?}");
        }
    }

    #[test]
    fn the_seed_gives_the_same_interval_and_another_seed_another() {
        let values: Vec<f64> = (0..20).map(|i| f64::from(i * i)).collect();
        let mut ratio = |a: &[usize], b: &[usize]| Some(mean_of(&values, a) / mean_of(&values, b));
        let first = interval(20, 20, &mut ratio, OPTIONS);
        assert!(first.is_some());
        assert_eq!(first, interval(20, 20, &mut ratio, OPTIONS));
        assert_ne!(first, interval(20, 20, &mut ratio, Options { seed: 2, ..OPTIONS }));
    }

    #[test]
    fn every_round_is_drawn_about_equally_often() {
        let mut counts = [0_u32; 7];
        let mut count = |a: &[usize], _: &[usize]| {
            for &round in a {
                counts[round] += 1;
            }
            Some(0.0)
        };
        let _ = percentile_interval(7, 2, &mut count, OPTIONS);
        // 2,000 expected of each, with a standard deviation of 41.
        assert!(counts.iter().all(|count| (1_800..2_200).contains(count)), "{counts:?}");
    }

    #[test]
    fn without_rounds_variation_or_statistic_there_is_no_interval() {
        let mut constant = |_: &[usize], _: &[usize]| Some(1.0);
        assert_eq!(interval(5, 5, &mut constant, OPTIONS), None);
        assert_eq!(percentile_interval(1, 5, &mut constant, OPTIONS), None);
        let mut fails = |a: &[usize], _: &[usize]| a.contains(&3).then_some(1.0);
        assert_eq!(percentile_interval(5, 5, &mut fails, OPTIONS), None);
        let mut nan = |_: &[usize], _: &[usize]| Some(f64::NAN);
        assert_eq!(percentile_interval(5, 5, &mut nan, OPTIONS), None);
        for wrong in [
            Options { resamples: 0, ..OPTIONS },
            Options { resamples: RESAMPLES_MAX + 1, ..OPTIONS },
            Options { alpha: 1.0, ..OPTIONS },
        ] {
            assert_eq!(percentile_interval(5, 5, &mut constant, wrong), None);
        }
    }
}
