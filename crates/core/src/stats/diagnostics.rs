//! Are the rounds what a verdict takes them for: independent values of one kind?
//!
//! Four doubts, each a warning and none a reason to drop a round. False-alarm rates are those of
//! independent normal values, simulated in `tests/honesty/`.
//!
//! And do throughput and latency agree with the number of requests that were meant to be in flight? In a
//! closed loop every connection waits for its answer, so that number is known before. Where throughput
//! times latency gives another ([`in_flight`]), one of the three was not measured as believed.

use statrs::function::beta::checked_beta_reg;
use statrs::function::erf::erfc;

use super::sample::{ascending, mad, mean, median, ranks};

/// Fewest values of which anything is said.
pub const FEWEST: usize = 8;

/// Most values of which [`drift`] speaks: it looks at each pair.
pub const DRIFT_MAX: usize = 4_000;

/// A trend over the rounds, as [`drift`] finds it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drift {
    /// Probability of a trend at least as clear, either way, were the order of the rounds chance.
    pub p: f64,
    /// From the first to the last round, relative to the first: 0.05 is 5 % upwards, never below -1.
    pub change: f64,
}

/// The resemblance of neighbouring rounds, as [`autocorrelation`] finds it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Autocorrelation {
    /// Correlation of each round with the next, -1 to 1; of independent rounds about -1/n.
    pub lag1: f64,
    /// Probability of neighbours at least as alike, were the order of the rounds chance.
    pub p: f64,
}

/// Two kinds of rounds, as [`two_modes`] finds them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Modes {
    /// Mean of the low cluster.
    pub low: f64,
    /// Mean of the high cluster.
    pub high: f64,
    /// Share of the rounds in the high cluster, 0 to 1.
    pub high_share: f64,
}

/// Whether the values rise or fall with their order: Mann and Kendall's test, Theil and Sen's slope.
///
/// By ranks: one far value neither makes nor hides a trend. Rounds that resemble their neighbours
/// raise the alarm too.
/// Shape: 8 to 4,000 values in the order measured. Range: p < 0.01 in 0.6 % of runs of 8, 0.9 % of 30.
/// With 2 % of noise a change of 4 % over 30 rounds is found at p < 0.01 in 57 % of runs.
/// None: fewer or more, a value that is NaN or infinite, or a median of 0 (no share of it).
/// Cost: O(n²).
/// Source: Mann (1945), Kendall (1975), with correction for ties and continuity; Sen (1968).
#[must_use]
pub fn drift(values: &[f64]) -> Option<Drift> {
    let n = values.len();
    let middle = median(values)?.abs();
    if !(FEWEST..=DRIFT_MAX).contains(&n) || middle <= 0.0 {
        return None;
    }
    let positive = values.iter().all(|value| *value > 0.0);
    let mut slopes = Vec::with_capacity(n * (n - 1) / 2);
    let mut rises = 0_i64;
    for (early, &before) in values.iter().enumerate() {
        for (late, &after) in values.iter().enumerate().skip(early + 1) {
            rises += i64::from(after > before) - i64::from(after < before);
            let rise = if positive { (after / before).ln() } else { after - before };
            slopes.push(rise / (late - early) as f64);
        }
    }
    let spread = |count: f64| count * (count - 1.0) * (2.0 * count + 5.0);
    let ties: f64 = ranks(values).1.into_iter().map(|count| spread(count as f64)).sum();
    let variance = (spread(n as f64) - ties) / 18.0;
    let z = (rises.abs() as f64 - 1.0).max(0.0) / variance.sqrt();
    // All equal: 0 by 0, and no trend.
    let p = if variance > 0.0 { erfc(z / std::f64::consts::SQRT_2) } else { 1.0 };
    let steps = n as f64 - 1.0;
    // Of positive values the slope is that of their logarithms, so that no line goes below 0.
    let change = if positive {
        (median(&slopes)? * steps).exp() - 1.0
    } else {
        median(&slopes)? * steps / middle
    };
    Some(Drift { p, change })
}

/// Whether neighbouring rounds are alike: von Neumann's ratio of the ranks, one-sided.
///
/// Shape: at least 8 values in the order measured. Range: p < 0.05 in 5 % of runs of 8 to 300, also for
/// skewed and heavy-tailed values: all orders are equally likely, whatever the distribution. Of 30
/// rounds with a correlation of 0.5 it finds 78 %, of 0.3 42 %, of 10 with 0.5 29 %: no alarm is no proof.
/// None: fewer, all equal, or one that is NaN or infinite.
/// Source: Bartels (1982), with the symmetric beta distribution of the ratio's exact variance; against
/// all orders of 8 and 9 values its 5 % are 5.3 % and 5.2 %, its 1 % 0.95 % and 0.96 %.
#[must_use]
pub fn autocorrelation(values: &[f64]) -> Option<Autocorrelation> {
    let n = values.len();
    let middle = mean(values)?;
    if n < FEWEST {
        return None;
    }
    let square = |values: &[f64], middle: f64| -> f64 {
        values.iter().map(|value| (value - middle).powi(2)).sum()
    };
    let (ranks, _) = ranks(values);
    let count = n as f64;
    let of_ranks = square(&ranks, f64::midpoint(1.0, count));
    let of_values = square(values, middle);
    if of_ranks <= 0.0 || of_values <= 0.0 {
        return None;
    }
    let steps: f64 = ranks.windows(2).map(|pair| (pair[1] - pair[0]).powi(2)).sum();
    let ratio = steps / of_ranks;
    let variance = 4.0 * (count - 2.0) * (5.0 * count * count - 2.0 * count - 9.0)
        / (5.0 * count * (count + 1.0) * (count - 1.0).powi(2));
    // On 0 to 4 with mean 2: a beta(b, b) of this variance.
    let shape = 2.0 / variance - 0.5;
    let p = checked_beta_reg(shape, shape, (ratio / 4.0).clamp(0.0, 1.0)).ok()?;
    let products: f64 = values.windows(2).map(|pair| (pair[0] - middle) * (pair[1] - middle)).sum();
    Some(Autocorrelation { lag1: products / of_values, p })
}

/// The indices of far values, ascending: those more than `4.5 + 102 · n^(-3/2)` deviations off.
///
/// A deviation is 1.4826 times the median absolute one, which a few far values cannot stretch.
/// Shape: at least 8 values, else empty; empty too where more than half are equal, which gives nothing
/// to measure by. Range: normal values alarm in at most 1 % of runs for each `n` to 1,000; of 30, 0.6 %.
/// The bound follows the simulated 99 % quantile of the farthest value: 8.2 for 9, 7.1 for 11, 4.8 for
/// 30, 4.5 for 1,000. The usual 3.5 alarms in 9 % of runs of 30; hyperfine's 14.8 waits for 15
/// deviations. Far values are no error: of log-normal runs of 30 (sigma 0.3) 7 % have one, of
/// heavy-tailed ones (t with 3 degrees of freedom) 29 %.
/// Source: Iglewicz & Hoaglin (1993) for the score.
#[must_use]
pub fn outliers(values: &[f64]) -> Vec<usize> {
    let (Some(middle), Some(deviation)) = (median(values), mad(values)) else {
        return Vec::new();
    };
    if values.len() < FEWEST || deviation <= 0.0 {
        return Vec::new();
    }
    let bound = (4.5 + 102.0 * (values.len() as f64).powf(-1.5)) * 1.4826 * deviation;
    (0..values.len()).filter(|&index| (values[index] - middle).abs() > bound).collect()
}

/// Two clusters of rounds, if the values fall into two: the split that explains most of their variance.
///
/// Alarms if less than `0.25 - 0.64/√n` of the variance is left within the clusters, each of at least 3
/// rounds and 15 % of them; fewer slow rounds are [`outliers`]. Range: the best split of uniform values
/// leaves 0.25 for large `n`, of normal ones 0.36; below the bound lie at most 1 % of uniform runs for
/// each `n` from 8 to 1,000, and less than 0.1 % of normal, log-normal (sigma 0.3) or heavy-tailed ones.
/// Of 30 rounds, two halves are found that lie 5.1 of their own standard deviations apart.
/// None: no two clusters, fewer than 8 values, or one that is NaN or infinite.
/// Source: Fisher (1958) for the split; the bound is a fit below the simulated 1 % quantile for uniform
/// values (0.041 for 8, 0.090 for 15, 0.135 for 30, 0.186 for 100, 0.230 for 1,000).
#[must_use]
pub fn two_modes(values: &[f64]) -> Option<Modes> {
    let sorted = ascending(values)?;
    let n = sorted.len();
    if n < FEWEST {
        return None;
    }
    let count = n as f64;
    let middle = mean(&sorted)?;
    let total: f64 = sorted.iter().map(|value| (value - middle).powi(2)).sum();
    let fewest = 3.max((0.15 * count).ceil() as usize);
    let mut best: Option<(f64, usize)> = None;
    let mut below = 0.0;
    for size in 1..=n - fewest {
        below += sorted[size - 1] - middle;
        let between = below * below * count / (size as f64 * (n - size) as f64);
        let apart = sorted[size] > sorted[size - 1];
        if size >= fewest && apart && best.is_none_or(|(most, _)| between > most) {
            best = Some((between, size));
        }
    }
    let (between, size) = best?;
    if 1.0 - between / total >= 0.25 - 0.64 / count.sqrt() {
        return None;
    }
    let (low, high) = sorted.split_at(size);
    Some(Modes { low: mean(low)?, high: mean(high)?, high_share: high.len() as f64 / count })
}

/// The mean number of requests in flight: those that finish each second, times how long each took.
///
/// Unit: requests. Range: exact for any arrivals and any distribution of times, over a span that is
/// long against one request: those cut off at its two ends are the error.
/// Source: Little (1961), "A proof for the queuing formula: L = λW".
#[must_use]
pub fn in_flight(throughput_per_s: f64, mean_latency_s: f64) -> f64 {
    throughput_per_s * mean_latency_s
}

/// Whether the number `found` is below 90 % or above 105 % of the number `asked` for.
///
/// Wider below: between an answer and the next request the client works, and a connection then has
/// none in flight. Above, only requests cut off at the ends of the span explain a surplus.
/// Also true for what is no number, and for nothing asked.
#[must_use]
pub fn departs(found: f64, asked: f64) -> bool {
    let share = found / asked;
    !(0.90..=1.05).contains(&share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_rising_values_by_hand() {
        // 28 pairs rise: z = 27/√(8·7·21/18) = 27/8.083 = 3.340, p = 0.00084. Each is 1.1 times the one
        // before, over 7 steps: 1.1⁷ = 1.949.
        let grown: Vec<f64> = (0..8).map(|round| 10.0 * 1.1_f64.powi(round)).collect();
        let found = drift(&grown).unwrap();
        assert!((found.p - 0.000_837).abs() < 2e-6, "{found:?}");
        assert!((found.change - 0.948_717_1).abs() < 1e-6, "{found:?}");
        let fallen: Vec<f64> = grown.iter().rev().copied().collect();
        assert!((drift(&fallen).unwrap().change + 0.486_841).abs() < 1e-6);
        let values: Vec<f64> = (10..18).map(f64::from).collect();
        // Ranks 1 to 8: neighbours differ by 1, so 7 of 42.
        let alike = autocorrelation(&values).unwrap();
        assert!(alike.p < 0.001 && alike.lag1 > 0.5, "{alike:?}");
    }

    #[test]
    fn values_that_alternate_are_not_alike_and_do_not_drift() {
        let values: Vec<f64> = (0..20).map(|i| if i % 2 == 0 { 1.0 } else { 2.0 }).collect();
        assert!(autocorrelation(&values).unwrap().p > 0.99);
        assert!(autocorrelation(&values).unwrap().lag1 < -0.9);
        assert!(drift(&values).unwrap().p > 0.5);
    }

    #[test]
    fn equal_values_raise_no_alarm() {
        let values = [3.0; 20];
        assert_eq!(drift(&values), Some(Drift { p: 1.0, change: 0.0 }));
        assert_eq!(autocorrelation(&values), None);
        assert!(outliers(&values).is_empty());
        assert_eq!(two_modes(&values), None);
    }

    #[test]
    fn a_far_value_is_named_by_its_index() {
        // 1 to 9 and 100: median 5.5, deviations .5 .5 1.5 1.5 2.5 2.5 3.5 3.5 4.5 94.5, median 2.5.
        // The bound is (4.5 + 102/31.6) · 1.4826 · 2.5 = 28.6.
        let values = [1.0, 2.0, 3.0, 100.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0];
        assert_eq!(outliers(&values), [3]);
        let mut near = values;
        near[3] = 34.0;
        assert!(outliers(&near).is_empty());
        near[3] = 34.2;
        assert_eq!(outliers(&near), [3]);
    }

    #[test]
    fn every_fifth_round_half_as_slow_again_is_a_mode() {
        let values: Vec<f64> =
            (0..30).map(|i| if i % 5 == 0 { 1.5 } else { 1.0 } + 0.01 * f64::from(i % 3)).collect();
        let found = two_modes(&values).unwrap();
        assert!((found.high_share - 0.2).abs() < 1e-12, "{found:?}");
        assert!((found.low - 1.01).abs() < 0.01 && (found.high - 1.51).abs() < 0.01, "{found:?}");
    }

    #[test]
    fn two_far_values_are_no_mode() {
        let mut values: Vec<f64> = (0..20).map(|i| f64::from(i % 7)).collect();
        values[3] = 100.0;
        values[9] = 101.0;
        assert_eq!(two_modes(&values), None);
        assert_eq!(outliers(&values), [3, 9]);
    }

    #[test]
    fn seven_values_say_nothing() {
        let values = [1.0, 2.0, 3.0, 4.0, 100.0, 101.0, 102.0];
        assert_eq!((drift(&values), two_modes(&values)), (None, None));
        assert_eq!(autocorrelation(&values), None);
        assert!(outliers(&values).is_empty());
        let mut wrong = [1.0; 9];
        wrong[4] = f64::NAN;
        assert_eq!((drift(&wrong), two_modes(&wrong)), (None, None));
        assert!(autocorrelation(&wrong).is_none() && outliers(&wrong).is_empty());
    }

    #[test]
    fn eight_connections_with_answers_of_4_ms_finish_2000_a_second() {
        assert!((in_flight(2_000.0, 0.004) - 8.0).abs() < 1e-12);
        assert!(!departs(in_flight(2_000.0, 0.004), 8.0));
    }

    #[test]
    fn a_tenth_too_few_or_a_twentieth_too_many_departs() {
        assert!(departs(7.1, 8.0) && departs(8.5, 8.0));
        assert!(!departs(7.3, 8.0) && !departs(8.3, 8.0));
        assert!(departs(f64::NAN, 8.0) && departs(0.0, 0.0) && departs(1.0, 0.0));
    }
}
