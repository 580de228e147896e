//! How is a series of many slices made coarse enough to read? Slices of equal length are put together
//! until each holds some requests.

use tcptoll_core::stats::Series;

/// Points of a line at most.
const BINS: usize = 60;

/// Requests that a point of a line stands for, at least: a rate of fewer only shows their spacing.
const EACH: u64 = 5;

/// `(seconds, mean)` of bins over the whole time, as many as `requests` allow. A bin without a value has
/// no point; a point stands in the middle of its bin.
pub fn means(series: &Series, requests: u64, last_s: f64) -> Vec<(f64, f64)> {
    let bins = usize::try_from(requests / EACH).unwrap_or(BINS).clamp(4, BINS);
    let width = last_s / bins as f64;
    if width <= 0.0 {
        return Vec::new();
    }
    let mut sums = vec![(0.0, 0_u32); bins];
    for point in &series.points {
        let at = ((point[0] / width) as usize).min(bins - 1);
        sums[at].0 += point[2];
        sums[at].1 += 1;
    }
    let mean = |(at, (sum, count)): (usize, (f64, u32))| {
        (count > 0).then(|| ((at as f64 + 0.5) * width, sum / f64::from(count)))
    };
    sums.into_iter().enumerate().filter_map(mean).collect()
}

/// `(seconds, mean)` of each point up to the end.
pub fn whole(series: &Series, last_s: f64) -> Vec<(f64, f64)> {
    let inside = series.points.iter().filter(|point| point[0] <= last_s);
    inside.map(|point| (point[0], point[2])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_hold_some_requests_each_and_their_mean() {
        let points =
            (0..200_i32).map(|n| [f64::from(n) / 40.0, 0.0, f64::from(n % 2) * 80.0, 80.0]);
        let series = Series { points: points.collect() };
        let binned = means(&series, 100, 5.0);
        assert_eq!(binned.len(), 20, "100 requests, five in each");
        assert!(binned.iter().all(|(_, rate)| (rate - 40.0).abs() < 1e-9), "{binned:?}");
        assert!((binned[0].0 - 0.125).abs() < 1e-9, "the middle of a bin");
        assert!(means(&Series::default(), 100, 5.0).is_empty());
    }
}
