//! Do two samples differ that were not paired, such as the rounds of two runs on different days?
//!
//! For one look at a number of values fixed before. Where rounds are paired, or a run may stop early,
//! [`super::sequence`] decides.
//!
//! A statistic for which there is no formula, such as the ratio of two p99, has the interval of a bootstrap
//! ([`bootstrap_interval`]): rounds are drawn again with repetition, and the statistic is looked at each
//! time. The round is the unit: requests within a round share its luck, and drawing requests would make the
//! interval far too narrow. It is an illustration beside a verdict: of 30 skewed rounds a bootstrap
//! interval covers less than it says, and under early stopping less again.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use statrs::distribution::{ContinuousCDF as _, StudentsT};
use statrs::function::beta::checked_beta_reg;
use statrs::function::erf::{erfc, erfc_inv};

use super::sample::{ascending, interpolated, mean, ranks, sd};

/// What [`welch`] finds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Welch {
    /// Mean of `a` less mean of `b`, in the unit of the values.
    pub difference: f64,
    /// The difference in units of its standard error.
    pub t: f64,
    /// Degrees of freedom, rarely whole.
    pub df: f64,
    /// Probability of a `t` at least as far from 0, either way, were the means equal.
    pub p: f64,
    /// Interval of the difference, least and greatest.
    pub ci: [f64; 2],
}

/// What [`mann_whitney`] finds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankTest {
    /// Pairs in which `a` is greater, plus half of the equal ones; 0 to `a.len() · b.len()`.
    pub u: f64,
    /// Probability of a `u` at least as far from the middle, were both of one distribution.
    pub p: f64,
}

/// Welch's t test: do the means differ, whatever the two spreads?
///
/// Shape: at least two values each. Range: `alpha` 0.05 gives a 95 % interval.
/// None: fewer values, one that is NaN or infinite, no spread in both, `alpha` not between 0 and 1.
/// Error: below 1e-9 up to 10,000 values.
/// Source: Welch (1947), degrees of freedom by Satterthwaite (1946).
#[must_use]
pub fn welch(a: &[f64], b: &[f64], alpha: f64) -> Option<Welch> {
    let difference = mean(a)? - mean(b)?;
    let [of_a, of_b] = [a, b].map(|sample| Some(sd(sample)?.powi(2) / sample.len() as f64));
    let (of_a, of_b) = (of_a?, of_b?);
    let both = of_a + of_b;
    let alpha_fits = alpha > 0.0 && alpha < 1.0;
    if both <= 0.0 || !alpha_fits {
        return None;
    }
    let df =
        both * both / (of_a * of_a / (a.len() as f64 - 1.0) + of_b * of_b / (b.len() as f64 - 1.0));
    let t = difference / both.sqrt();
    let half = student_bound(alpha, df)? * both.sqrt();
    let p = student_tails(t, df)?;
    Some(Welch { difference, t, df, p, ci: [difference - half, difference + half] })
}

/// Mann and Whitney's rank test: is one of the two mostly the greater?
///
/// Exact where the smaller has at most 8 values and no two are equal; else by the normal approximation,
/// with its corrections for ties and for continuity.
/// None: no value in one of them, or one that is NaN or infinite.
/// Cost: O(n log n); exact O(8 · n·m), for at most 10,000 values (then the approximation).
/// Source: Mann & Whitney (1947); the rule of when it is exact is that of `scipy.stats.mannwhitneyu`.
#[must_use]
pub fn mann_whitney(a: &[f64], b: &[f64]) -> Option<RankTest> {
    ascending(a)?;
    ascending(b)?;
    let (na, nb) = (a.len(), b.len());
    let (ranks, ties) = ranks(&[a, b].concat());
    let (count_a, count_b) = (na as f64, nb as f64);
    let u = ranks[..na].iter().sum::<f64>() - count_a * (count_a + 1.0) / 2.0;
    let pairs = count_a * count_b;
    let tied = ties.len() < na + nb;
    let p = if na.min(nb) <= 8 && na.max(nb) <= EXACT_MAX && !tied {
        2.0 * exact_tail(na, nb, u.min(pairs - u).round() as usize)
    } else {
        let all = count_a + count_b;
        let ties: f64 = ties.iter().map(|&count| count as f64).map(|t| t * t * t - t).sum();
        let variance = pairs / 12.0 * (all + 1.0 - ties / (all * (all - 1.0)));
        let z = ((u - pairs / 2.0).abs() - 0.5) / variance.sqrt();
        // All equal: no variance, and z is minus infinite.
        erfc(z / std::f64::consts::SQRT_2)
    };
    Some(RankTest { u, p: p.min(1.0) })
}

/// The larger sample up to which ranks are counted: its counts stay below 2^100.
const EXACT_MAX: usize = 10_000;

/// The probability of at most `u` pairs in which one sample is greater, of all orders alike.
///
/// The number of orders with each `u` are the coefficients of a Gaussian binomial,
/// `Π (1 - q^(m+i)) / (1 - q^i)` for `i` to `n`; each factor is one pass up and one down.
fn exact_tail(na: usize, nb: usize, u: usize) -> f64 {
    let (n, m) = (na.min(nb), na.max(nb));
    let mut orders = vec![0_i128; u + 1];
    orders[0] = 1;
    for i in 1..=n {
        for at in (m + i..=u).rev() {
            orders[at] -= orders[at - m - i];
        }
        for at in i..=u {
            orders[at] += orders[at - i];
        }
    }
    let all = (1..=n).fold(1.0, |all, i| all * (m + i) as f64 / i as f64);
    orders.iter().sum::<i128>() as f64 / all
}

/// The probability of a Student's t at least as far from 0 as `t`, either way.
fn student_tails(t: f64, df: f64) -> Option<f64> {
    checked_beta_reg(df / 2.0, 0.5, df / (df + t * t)).ok()
}

/// The `t` beyond which, either way, Student's distribution has the share `alpha`.
fn student_bound(alpha: f64, df: f64) -> Option<f64> {
    // From the lower tail: 1 - alpha/2 would round a small alpha off.
    Some(-StudentsT::new(0.0, 1.0, df).ok()?.inverse_cdf(alpha / 2.0))
}

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
pub fn bootstrap_interval(
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
/// Simpler than [`bootstrap_interval`] and less exact where the statistic is biased or its spread depends on its
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

    #[test]
    fn welch_by_hand() {
        // Means 2 and 5, variances 1 and 4 by n - 1, errors 1/3 and 4/3: t = -3/√(5/3) = -2.3238;
        // df = (5/3)² / ((1/9)/2 + (16/9)/2) = (25/9) / (17/18) = 50/17.
        let found = welch(&[1.0, 2.0, 3.0], &[3.0, 5.0, 7.0], 0.05).unwrap();
        assert!((found.difference + 3.0).abs() < 1e-12);
        assert!((found.t + 3.0 / (5.0_f64 / 3.0).sqrt()).abs() < 1e-12);
        assert!((found.df - 50.0 / 17.0).abs() < 1e-12);
        assert!(found.ci[0] < -3.0 && found.ci[1] > 0.0 && found.p > 0.05, "{found:?}");
    }

    #[test]
    fn students_bounds_are_those_of_the_tables() {
        for (df, table) in [(1.0, 12.706_204_736), (4.0, 2.776_445_105), (29.0, 2.045_229_642)] {
            let bound = student_bound(0.05, df).unwrap();
            assert!((bound - table).abs() < 1e-8, "{df}: {bound}");
        }
    }

    #[test]
    fn three_below_three_is_one_order_in_twenty() {
        // 6 values, 20 ways to place three; the extreme one on either side: p = 2/20.
        let found = mann_whitney(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]).unwrap();
        assert!(found.u.abs() < 1e-12 && (found.p - 0.1).abs() < 1e-12, "{found:?}");
    }

    #[test]
    fn every_order_is_counted_once() {
        for (n, m) in [(1, 1), (3, 5), (8, 8), (8, 40)] {
            assert!((exact_tail(n, m, n * m) - 1.0).abs() < 1e-12, "{n} and {m}");
        }
    }

    #[test]
    fn equal_samples_do_not_differ() {
        let found = mann_whitney(&[1.0; 5], &[1.0; 5]).unwrap();
        assert!((found.p - 1.0).abs() < 1e-12 && (found.u - 12.5).abs() < 1e-12);
        assert_eq!(welch(&[1.0; 5], &[1.0; 5], 0.05), None);
    }

    #[test]
    fn too_little_is_told_apart_from_nothing_found() {
        assert_eq!(mann_whitney(&[], &[1.0]), None);
        assert_eq!(mann_whitney(&[1.0, f64::NAN], &[1.0]), None);
        assert_eq!(welch(&[1.0], &[1.0, 2.0], 0.05), None);
        assert_eq!(welch(&[1.0, 2.0], &[1.0, 2.0], 0.0), None);
    }

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
            bootstrap_interval(30, 30, &mut difference, options).unwrap(),
            percentile_interval(30, 30, &mut difference, options).unwrap(),
        ] {
            assert!((found[0] + 4.38).abs() < 0.2 && (found[1] - 4.38).abs() < 0.2, "{found:?}");
        }
    }

    #[test]
    fn the_seed_gives_the_same_interval_and_another_seed_another() {
        let values: Vec<f64> = (0..20).map(|i| f64::from(i * i)).collect();
        let mut ratio = |a: &[usize], b: &[usize]| Some(mean_of(&values, a) / mean_of(&values, b));
        let first = bootstrap_interval(20, 20, &mut ratio, OPTIONS);
        assert!(first.is_some());
        assert_eq!(first, bootstrap_interval(20, 20, &mut ratio, OPTIONS));
        assert_ne!(first, bootstrap_interval(20, 20, &mut ratio, Options { seed: 2, ..OPTIONS }));
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
        assert_eq!(bootstrap_interval(5, 5, &mut constant, OPTIONS), None);
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
