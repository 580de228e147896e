//! Do two samples differ that were not paired, such as the rounds of two runs on different days?
//!
//! For one look at a number of values fixed before. Where rounds are paired, or a run may stop early,
//! [`super::sequence`] decides.

use statrs::distribution::{ContinuousCDF as _, StudentsT};
use statrs::function::beta::checked_beta_reg;
use statrs::function::erf::erfc;

use super::sample::{ascending, mean, ranks, sd};

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
}
