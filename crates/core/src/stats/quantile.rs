//! Which measured value is the p99, and are there enough values to say so?

/// How many values must lie beyond a quantile before it is shown.
///
/// With ten beyond, their number varies by about a third (1/√10) from run to run; with one beyond, a
/// "p99.9" is the maximum under another name.
pub(super) const BEYOND_MIN: u64 = 10;

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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
}
