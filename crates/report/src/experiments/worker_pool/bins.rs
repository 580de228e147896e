//! How is a series of many slices made coarse enough to read? Slices of equal length are put together
//! until each holds some requests.

use tcptoll_model::record::Series;

use super::BINS;

/// Requests that a point of a line stands for, at least: a rate of fewer only shows their spacing.
const EACH: u64 = 5;

/// `(seconds, mean)` of bins over the whole time, as many as `requests` allow. A bin without a value has
/// no point; a point stands in the middle of its bin.
pub(super) fn of(series: &Series, requests: u64, last_s: f64) -> Vec<(f64, f64)> {
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
pub(super) fn whole(series: &Series, last_s: f64) -> Vec<(f64, f64)> {
    let inside = series.points.iter().filter(|point| point[0] <= last_s);
    inside.map(|point| (point[0], point[2])).collect()
}
