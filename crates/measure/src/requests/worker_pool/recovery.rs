//! When were requests that need no backend as fast again as before the stall?
//!
//! It looks at slices of the window by when requests were due. Pure: nothing is measured here.

use tcptoll_lab::messages::{GroupReport, GroupSlice};

/// Recovery is over when this many slices in a row are fast: one fast slice among slow ones is
/// chance.
const CALM: usize = 5;

/// A slice is slow if its mean latency is above this multiple of the mean before the stall …
const FACTOR: f64 = 2.0;

/// … and above that mean by this much, ns: below a millisecond the scheduler decides.
const NOISE_NS: f64 = 1e6;

/// Time from the end of a stall until requests were as fast as before it, s; 0 or more. The stall's
/// begin and end are s after the load began.
///
/// None: no request came before the stall to compare with, none was slow, or they stayed slow until
/// the end.
pub(super) fn recovery_s(group: &GroupReport, [from_s, until_s]: [f64; 2]) -> Option<f64> {
    let width_s = group.slice_ns as f64 / 1e9;
    let begins_s = |at: usize| at as f64 * width_s;
    let slices = || group.slices.iter().enumerate().filter(|(_, slice)| slice.due > 0);
    let calm = slices().filter(|(at, _)| begins_s(at + 1) <= from_s).map(|(_, slice)| slice);
    let fast_ns = fast_ns(calm)?;
    let is_slow =
        |slice: &GroupSlice| slice.failed > 0 || mean_ns(slice).is_none_or(|mean| mean > fast_ns);
    let after: Vec<(usize, bool)> = slices()
        .filter(|(at, _)| begins_s(at + 1) > from_s)
        .map(|(at, slice)| (at, is_slow(slice)))
        .collect();
    after.iter().position(|(_, slow)| *slow)?;
    // Slices from the one in which the stall ended on.
    let last = after.partition_point(|(at, _)| begins_s(at + 1) <= until_s);
    let fast = after[last..].windows(CALM).find(|five| five.iter().all(|(_, slow)| !slow))?;
    Some((begins_s(fast[0].0) - until_s).max(0.0))
}

/// The latency up to which a slice is as fast as these. None: there are none.
fn fast_ns<'a>(calm: impl Iterator<Item = &'a GroupSlice>) -> Option<f64> {
    let (mut sum, mut count, mut greatest) = (0.0, 0_u64, 0.0_f64);
    for slice in calm {
        let Some([_, of_slice, _]) = slice.latency_ns else { continue };
        sum += of_slice as f64;
        count += slice.ok;
        greatest = greatest.max(mean_ns(slice).unwrap_or(0.0));
    }
    let mean = (count > 0).then(|| sum / count as f64)?;
    Some((mean * FACTOR).max(greatest).max(mean + NOISE_NS))
}

/// Mean latency of a slice's successes. None: it has none.
fn mean_ns(slice: &GroupSlice) -> Option<f64> {
    let [_, sum, _] = slice.latency_ns?;
    (slice.ok > 0).then(|| sum as f64 / slice.ok as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Slices of 100 ms with two requests each, which took this many ms; None: one failed.
    fn group(means_ms: &[Option<u64>]) -> GroupReport {
        let one = |mean: &Option<u64>| GroupSlice {
            due: 2,
            ok: if mean.is_some() { 2 } else { 1 },
            failed: u64::from(mean.is_none()),
            completed: 0,
            latency_ns: Some([MS, mean.unwrap_or(1) * 2 * MS, mean.unwrap_or(1) * MS]),
        };
        let slices = means_ms.iter().map(one).collect();
        GroupReport { slice_ns: 100 * MS, slices, ..GroupReport::default() }
    }

    /// 1 s of 1 ms, a stall of 0.5 s, and this after it.
    fn after(means_ms: &[Option<u64>]) -> Option<f64> {
        let mut all = vec![Some(1); 10];
        all.extend([Some(500), Some(400), Some(300), Some(200), Some(100)]);
        all.extend(means_ms);
        recovery_s(&group(&all), [1.0, 1.5])
    }

    #[test]
    fn it_counts_from_the_end_of_the_stall_to_the_first_of_five_fast_slices() {
        let calm = [Some(1); 5];
        let found = after(&[&[Some(80), Some(60), Some(1), Some(40)], &calm[..]].concat()).unwrap();
        assert!((found - 0.4).abs() < 1e-9, "{found}");
        assert!(after(&calm).unwrap().abs() < 1e-9);
    }

    #[test]
    fn a_failed_request_is_slow_and_so_is_what_stays_slow_to_the_end() {
        let found = after(&[&[Some(1), None], &[Some(1); 5][..]].concat()).unwrap();
        assert!((found - 0.2).abs() < 1e-9, "{found}");
        assert_eq!(after(&[Some(1), Some(1), Some(1), Some(1), Some(50)]), None);
    }

    #[test]
    fn without_a_slow_request_there_is_nothing_to_recover_from() {
        assert_eq!(recovery_s(&group(&[Some(1); 30]), [1.0, 1.5]), None);
        // Within the noise of a scheduler.
        let mut noise = vec![Some(1); 12];
        noise.extend([Some(2); 18]);
        assert_eq!(recovery_s(&group(&noise), [1.0, 1.5]), None);
    }

    #[test]
    fn nothing_before_the_stall_is_nothing_to_compare_with() {
        assert_eq!(recovery_s(&group(&[Some(1); 30]), [0.05, 0.5]), None);
    }
}
