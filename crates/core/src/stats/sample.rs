//! What is the middle of a few values, how far do they spread, which value is the p99, and are there
//! enough values to say so? Between which shares does the true one lie, if some of a number of trials
//! succeeded?
//!
//! A description only: what may be concluded from it is told by [`super::sequence`]. A value that is
//! NaN or infinite makes all of it `None`: it was not measured, and leaving it out would hide that.

use statrs::function::gamma::ln_gamma;

/// The arithmetic mean.
///
/// Unit: that of the values. Error: below 1e-15 of the greatest value's size.
/// None: no value, or one that is NaN or infinite.
#[must_use]
pub fn mean(values: &[f64]) -> Option<f64> {
    let mean = sum(values) / values.len() as f64;
    mean.is_finite().then_some(mean)
}

/// The standard deviation, its variance by `n - 1`.
///
/// Unit: that of the values. In two passes: a sum of squares less the square of a sum loses all digits
/// of 1 µs of spread about 100 s.
/// None: fewer than two values, or one that is NaN or infinite.
#[must_use]
pub fn sd(values: &[f64]) -> Option<f64> {
    let middle = mean(values)?;
    if values.len() < 2 {
        return None;
    }
    let n = values.len() as f64;
    let squares: Vec<f64> = values.iter().map(|value| (value - middle).powi(2)).collect();
    // What the mean's own rounding adds to each square, taken off again.
    let rest: f64 = values.iter().map(|value| value - middle).sum();
    let variance = (sum(&squares) - rest * rest / n).max(0.0) / (n - 1.0);
    variance.is_finite().then(|| variance.sqrt())
}

/// The median: of an even number of values the mean of the two in the middle.
///
/// None: no value, or one that is NaN or infinite.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    Some(interpolated(&ascending(values)?, 0.5))
}

/// The median absolute deviation from the median, not scaled; 0 if more than half are equal.
///
/// None: no value, or one that is NaN or infinite.
/// Source: Hampel (1974). Times 1.4826 it estimates a normal distribution's standard deviation.
#[must_use]
pub fn mad(values: &[f64]) -> Option<f64> {
    let middle = median(values)?;
    let distances: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    median(&distances)
}

/// The values in ascending order. None: no value, or one that is NaN or infinite.
pub(super) fn ascending(values: &[f64]) -> Option<Vec<f64>> {
    if values.is_empty() || !values.iter().all(|value| value.is_finite()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(sorted)
}

/// The value below which `share` of `sorted` lies, between neighbours in proportion.
///
/// Range: `sorted` has a value, `share` is 0 to 1 (outside it is the nearer end).
/// Source: Hyndman & Fan (1996), definition 7, which is `NumPy`'s default.
pub(super) fn interpolated(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len() - 1;
    let place = (share * last as f64).clamp(0.0, last as f64);
    let (below, part) = (place.floor() as usize, place.fract());
    let (low, high) = (sorted[below], sorted[(below + 1).min(last)]);
    // From the nearer side, as NumPy does: both ends come out exactly.
    if part < 0.5 { low + (high - low) * part } else { high - (high - low) * (1.0 - part) }
}

/// The ranks from 1, in the order of the values, and how many values share each rank.
///
/// Equal values share the mean of their ranks. Shape: one rank for each value; one count for each
/// different value, ascending by value.
pub(super) fn ranks(values: &[f64]) -> (Vec<f64>, Vec<usize>) {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut counts = Vec::new();
    let mut before = 0;
    for equal in order.chunk_by(|&a, &b| values[a] >= values[b]) {
        for &index in equal {
            ranks[index] = before as f64 + f64::midpoint(1.0, equal.len() as f64);
        }
        before += equal.len();
        counts.push(equal.len());
    }
    (ranks, counts)
}

/// The sum, with what each addition rounds off kept and added at the end.
///
/// Source: Neumaier (1974). The rounding of a plain sum grows with the number of values.
pub(super) fn sum(values: &[f64]) -> f64 {
    let (mut total, mut lost) = (0.0_f64, 0.0);
    for &value in values {
        let next = total + value;
        lost += if total.abs() >= value.abs() {
            (total - next) + value
        } else {
            (value - next) + total
        };
        total = next;
    }
    total + lost
}

/// How many values must lie beyond a quantile before it is shown.
///
/// With ten beyond, their number varies by about a third (1/√10) from run to run; with one beyond, a
/// "p99.9" is the maximum under another name.
const BEYOND_MIN: u64 = 10;

/// The `num/den` quantile of `sorted` by the nearest-rank rule: always a value that was measured.
///
/// Shape: one entry per observation, ascending; may be empty.
/// Unit: that of the input. `num/den` is `999/1000` for p99.9: in `f64`, `0.07 * 100.0` is above 7
/// and would round up to the 8th value.
/// None: `sorted` is empty, or `num/den` is not within 0 to 1.
/// Source: Hyndman & Fan (1996), definition 1. `NumPy` interpolates by default (definition 7).
#[must_use]
pub fn nearest_rank<T: Copy + PartialOrd>(sorted: &[T], num: usize, den: usize) -> Option<T> {
    debug_assert!(sorted.is_sorted(), "nearest_rank needs ascending values");
    if den == 0 || num > den {
        return None;
    }
    let rank = (sorted.len() as u128 * num as u128).div_ceil(den as u128) as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

/// Whether `count` values leave at least ten beyond their `num/den` quantile, on its shorter side.
///
/// The median needs 20, p90 100, p99 1,000, p99.9 10,000; see [`need`].
#[must_use]
pub fn enough(count: u64, num: u64, den: u64) -> bool {
    count >= need(num, den)
}

/// How many values the `num/den` quantile needs for ten beyond it.
///
/// Range: the least and greatest value (0 and 1) have nothing beyond: `u64::MAX`, never enough.
#[must_use]
pub fn need(num: u64, den: u64) -> u64 {
    match num.min(den.saturating_sub(num)) {
        0 => u64::MAX,
        // Beyond rank ceil(n·num/den) lie floor(n·(den-num)/den) values.
        shorter => (u128::from(BEYOND_MIN) * u128::from(den)).div_ceil(u128::from(shorter)) as u64,
    }
}

/// The exact interval of a binomial probability (Clopper and Pearson), least and greatest.
///
/// Exact: it holds the true probability at least as often as `confidence` says, for any of them, also
/// with 0 successes, where the normal approximation gives a width of 0.
///
/// Unit: probability, 0 to 1. Error: below 1e-6 of the bound up to 10 million trials.
/// None: no trials, more successes than trials, or a confidence not between 0 and 1.
/// Cost: about 100 evaluations of a continued fraction of O(√trials) steps; below 1 ms.
///
/// Source: Clopper & Pearson (1934); as quantiles of the beta distribution: `B(α/2; k, n-k+1)` and
/// `B(1-α/2; k+1, n-k)`. statrs 0.19.1's own inverse was tried: 0.16 % off at 3 of 1,000,000.
#[must_use]
pub fn exact_interval(successes: u64, trials: u64, confidence: f64) -> Option<[f64; 2]> {
    let confidence_fits = confidence > 0.0 && confidence < 1.0;
    if trials == 0 || successes > trials || !confidence_fits {
        return None;
    }
    let tail = (1.0 - confidence) / 2.0;
    let (k, n) = (successes as f64, trials as f64);
    // The greatest bound is 1 less the least bound of the failures: one tail, one direction.
    let least = if successes == 0 { 0.0 } else { beta_quantile(k, n - k + 1.0, tail) };
    let greatest =
        if successes == trials { 1.0 } else { 1.0 - beta_quantile(n - k, k + 1.0, tail) };
    Some([least, greatest])
}

/// The least number of successes that so many trials do not exceed with probability `share`.
///
/// Range: 0 to `trials`; `probability` and `share` are taken as within 0 to 1.
/// Cost:  a continued fraction of O(√trials) steps for each halving of `trials`; below 1 ms.
///
/// Source: the share of at most `k` successes is the beta distribution's, `1 - B(p; k+1, n-k)`.
#[must_use]
pub(crate) fn binomial_quantile(trials: u64, probability: f64, share: f64) -> u64 {
    let (p, n) = (probability.clamp(0.0, 1.0), trials as f64);
    let reaches = |k: u64| {
        // By its complement: the share of few successes keeps its digits.
        k >= trials || beta_share(n - k as f64, k as f64 + 1.0, 1.0 - p) >= share.clamp(0.0, 1.0)
    };
    let (mut low, mut high) = (0, trials);
    while low < high {
        let middle = u64::midpoint(low, high);
        if reaches(middle) { high = middle } else { low = middle + 1 }
    }
    low
}

/// The `x` at which [`beta_share`] is `p`, by bisection.
///
/// Bisects the exponent until the bound is within a factor of 2, so that tiny bounds keep their
/// digits; then the value itself.
fn beta_quantile(a: f64, b: f64, p: f64) -> f64 {
    let mut high = 1.0_f64;
    while high > f64::MIN_POSITIVE && beta_share(a, b, high / 2.0) > p {
        high /= 2.0;
    }
    let mut low = high / 2.0;
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if beta_share(a, b, middle) > p {
            high = middle;
        } else {
            low = middle;
        }
    }
    f64::midpoint(low, high)
}

/// The regularised incomplete beta function: the share of `B(a, b)` below `x`.
fn beta_share(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p()).exp();
    // The continued fraction converges fast on this side of the mean only.
    if x < (a + 1.0) / (a + b + 2.0) {
        front * continued_fraction(a, b, x) / a
    } else {
        1.0 - front * continued_fraction(b, a, 1.0 - x) / b
    }
}

/// The continued fraction of the incomplete beta function.
///
/// Source: NIST Digital Library of Mathematical Functions, 8.17.22, evaluated by Lentz's method
/// (Numerical Recipes, 3rd edition, 5.2). Statrs stops after 140 steps; the number needed grows with
/// the root of the larger parameter.
#[expect(clippy::many_single_char_names, reason = "the letters of the source")]
fn continued_fraction(a: f64, b: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let steps = 200 + 10 * a.max(b).sqrt() as u64;
    let off_zero = |v: f64| if v.abs() < TINY { TINY } else { v };
    let mut c = 1.0;
    let mut d = 1.0 / off_zero(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for step in 1..steps {
        let m = step as f64;
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for numerator in [even, odd] {
            d = 1.0 / off_zero(1.0 + numerator * d);
            c = off_zero(1.0 + numerator / c);
            change = c * d;
            fraction *= change;
        }
        if (change - 1.0).abs() < 1e-15 {
            break;
        }
    }
    fraction
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn eight_values_by_hand() {
        // Sum 40, mean 5; squares 9+1+1+1+0+0+4+16 = 32, by 7; the middle two are 4 and 5.
        let values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        assert_eq!(mean(&values), Some(5.0));
        assert_eq!(sd(&values), Some((32.0_f64 / 7.0).sqrt()));
        assert_eq!(median(&values), Some(4.5));
        // Distances 2.5, .5, .5, .5, .5, .5, 2.5, 4.5.
        assert_eq!(mad(&values), Some(0.5));
    }

    #[test]
    fn nothing_is_said_of_nothing_and_of_what_is_no_number() {
        assert_eq!((mean(&[]), sd(&[]), median(&[]), mad(&[])), (None, None, None, None));
        assert_eq!((sd(&[1.0]), mean(&[1.0])), (None, Some(1.0)));
        for wrong in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let values = [1.0, wrong, 2.0];
            assert_eq!((mean(&values), sd(&values), median(&values)), (None, None, None));
            assert_eq!(mad(&values), None);
        }
    }

    #[test]
    fn a_large_offset_leaves_the_spread_as_it_is() {
        // 1, 2, 3, 4 have the variance 5/3; 1e9 added is exact in f64, its square is not.
        let sd = sd(&[1e9 + 1.0, 1e9 + 2.0, 1e9 + 3.0, 1e9 + 4.0]).unwrap();
        assert!((sd - (5.0_f64 / 3.0).sqrt()).abs() < 1e-15, "{sd}");
    }

    #[test]
    #[expect(clippy::float_cmp, reason = "1 is exact where the compensation works")]
    fn a_sum_keeps_what_a_huge_value_hides() {
        assert_eq!(sum(&[1.0, 1e100, -1e100]), 1.0);
    }

    #[test]
    fn equal_values_share_the_mean_of_their_ranks() {
        let (ranks, counts) = ranks(&[3.0, 1.0, 3.0, 2.0, 3.0]);
        assert_eq!(ranks, [4.0, 1.0, 4.0, 2.0, 4.0]);
        assert_eq!(counts, [1, 1, 3]);
    }

    proptest! {
        #[test]
        fn the_median_is_between_the_extremes(
            values in prop::collection::vec(-1e9..1e9_f64, 1..100),
        ) {
            let middle = median(&values).unwrap();
            let sorted = ascending(&values).unwrap();
            prop_assert!(sorted[0] <= middle && middle <= sorted[sorted.len() - 1]);
        }
    }

    #[test]
    fn quantiles_of_one_to_a_hundred_are_their_percentage() {
        // rank = ceil(100 · p): 99, 7 (not 8), 100, and rank 0 counts as 1.
        let sorted: Vec<u64> = (1..=100).collect();
        assert_eq!(nearest_rank(&sorted, 99, 100), Some(99));
        assert_eq!(nearest_rank(&sorted, 7, 100), Some(7));
        assert_eq!(nearest_rank(&sorted, 1, 1), Some(100));
        assert_eq!(nearest_rank(&sorted, 0, 1), Some(1));
        assert_eq!(nearest_rank(&[1.5, 2.5, 9.0], 1, 2), Some(2.5));
    }

    #[test]
    fn a_quantile_of_nothing_is_not_zero() {
        assert_eq!(nearest_rank::<u64>(&[], 1, 2), None);
        assert_eq!(nearest_rank(&[1], 1, 0), None);
        assert_eq!(nearest_rank(&[1], 3, 2), None);
    }

    #[test]
    fn ten_values_beyond_make_a_quantile_worth_showing() {
        for (num, den, least) in
            [(1, 2, 20), (9, 10, 100), (99, 100, 1_000), (999, 1000, 10_000), (1, 10, 100)]
        {
            assert_eq!(need(num, den), least);
            assert!(enough(least, num, den) && !enough(least - 1, num, den), "{num}/{den}");
        }
        assert!(!enough(1_000_000, 1, 1) && !enough(1_000_000, 0, 1) && !enough(5, 0, 0));
    }

    proptest! {
        #[test]
        fn a_quantile_is_a_member_and_grows_with_its_rank(
            mut values in prop::collection::vec(any::<u64>(), 1..200),
            a in 0_usize..=1000,
            b in 0_usize..=1000,
        ) {
            values.sort_unstable();
            let low = nearest_rank(&values, a.min(b), 1000).unwrap();
            let high = nearest_rank(&values, a.max(b), 1000).unwrap();
            prop_assert!(values.contains(&low) && values.contains(&high));
            prop_assert!(low <= high);
        }
    }

    /// Made with scipy 1.17.1, for each row (k, n, c):
    /// `a = (1 - c) / 2; beta.ppf(a, k, n - k + 1), beta.ppf(1 - a, k + 1, n - k)`
    /// where `from scipy.stats import beta`.
    const SCIPY: &[(u64, u64, f64, [f64; 2])] = &[
        (0, 10, 0.95, [0.0, 0.308_497_107_818_760_7]),
        (10, 10, 0.999, [0.467_624_223_911_310_7, 1.0]),
        (1, 100, 0.95, [0.000_253_146_032_977_420_86, 0.054_459_385_392_080_645]),
        (1, 100, 0.999, [5.001_237_910_590_967e-6, 0.095_610_111_074_344_24]),
        (5, 1000, 0.95, [0.001_625_419_517_562_760_4, 0.011_629_470_559_812_147]),
        (1000, 100_000, 0.95, [0.009_392_556_089_098_503, 0.010_636_111_529_354_269]),
        (1000, 100_000, 0.999, [0.008_996_586_329_502_732, 0.011_077_920_227_375_604]),
        (50_000, 100_000, 0.95, [0.496_896_062_491_800_4, 0.503_103_937_508_199_6]),
        (3, 1_000_000, 0.95, [6.186_725_501_906_402e-7, 8.767_247_788_067_677e-6]),
        (0, 1_000_000, 0.95, [0.0, 3.688_872_650_206_488e-6]),
        (999, 1000, 0.999, [0.990_046_185_659_049_2, 0.999_999_499_875_083_4]),
        (123_456, 10_000_000, 0.95, [0.012_277_251_721_786_982, 0.012_414_230_835_979_78]),
    ];

    #[test]
    fn intervals_are_those_of_scipy() {
        for &(successes, trials, confidence, scipy) in SCIPY {
            let ours = exact_interval(successes, trials, confidence).unwrap();
            for (bound, expected) in ours.into_iter().zip(scipy) {
                let error = (bound - expected).abs();
                assert!(error <= 1e-6 * expected, "{successes}/{trials}: {ours:?}, {scipy:?}");
            }
        }
    }

    #[test]
    fn no_failure_in_ten_trials_by_hand() {
        // With 0 of n seen, the greatest p satisfies (1-p)^n = α/2: p = 1 - 0.025^(1/10) = 0.3085.
        let [least, greatest] = exact_interval(0, 10, 0.95).unwrap();
        assert!(least == 0.0 && (greatest - (1.0 - 0.025_f64.powf(0.1))).abs() < 1e-12);
    }

    /// Made by adding up the distribution with 60 digits: trials, probability, and the quantiles
    /// 0.5 %, 50 % and 99.5 %.
    const SUMMED: &[(u64, f64, [u64; 3])] = &[
        (10, 0.3, [0, 3, 7]),
        (1000, 0.5, [459, 500, 541]),
        (50_000, 9.036_878_906_25e-5, [0, 4, 11]),
        (100_000, 9.268_593_75e-4, [69, 93, 118]),
        (1_000_000, 1e-6, [0, 1, 4]),
        (10_000_000, 0.01, [99_190, 100_000, 100_811]),
    ];

    #[test]
    fn quantiles_are_those_of_the_distribution_added_up() {
        for &(trials, p, expected) in SUMMED {
            let ours = [0.005, 0.5, 0.995].map(|share| binomial_quantile(trials, p, share));
            assert_eq!(ours, expected, "{trials} at {p}");
        }
    }

    #[test]
    fn quantiles_end_at_none_and_at_all() {
        assert_eq!([0.0, 0.5, 1.0].map(|share| binomial_quantile(10, 0.0, share)), [0, 0, 0]);
        assert_eq!([0.005, 0.5, 1.0].map(|share| binomial_quantile(10, 1.0, share)), [10, 10, 10]);
        assert_eq!(binomial_quantile(0, 0.5, 0.5), 0);
        // Two coins: a quarter shows none, three quarters at most one.
        assert_eq!(
            [0.24, 0.26, 0.74, 0.76].map(|share| binomial_quantile(2, 0.5, share)),
            [0, 1, 1, 2]
        );
    }

    #[test]
    fn nothing_seen_says_nothing() {
        assert_eq!(exact_interval(0, 0, 0.95), None);
        assert_eq!(exact_interval(2, 1, 0.95), None);
        for confidence in [0.0, 1.0, -1.0, f64::NAN] {
            assert_eq!(exact_interval(1, 2, confidence), None);
        }
    }
}
