//! Is there a step in the cost of connecting over the ports in use, and where?
//!
//! # The method
//!
//! 1. **A split.** Of all ways to split the points into a lower and an upper part, the one is taken
//!    whose two medians are nearest to the points: the least sum of absolute differences of the
//!    logarithms. Medians, because one bad point must not make a step or move one.
//! 2. **The place.** From the split, the curve is followed to where it crosses the middle between
//!    both medians. That is the upper half of a rise that begins slowly: just before the cliff, the
//!    cost grows like 1 / (share of ports that are free).
//! 3. **The tests.** It is a step if the medians differ by [`FACTOR_MIN`], if nearly all points
//!    lie on their side of the middle, if enough points lie above, and if the rise is steep. A cost
//!    that doubles from one tenth of the range to the next is growth and not a step.

use crate::record::{Cliff, PortPoint};

/// A step is at least a rise by this factor.
const FACTOR_MIN: f64 = 2.0;

/// Points on each side of a step, at least.
const POINTS_MIN: usize = 3;

/// Share of all points that lies above a step, at least: the last few points of a run may be dear
/// for other reasons.
const ABOVE_SHARE_MIN: f64 = 0.03;

/// Share of the points of a side that lies on that side of the middle.
const AGREEING: f64 = 0.9;

/// The part of the rise from a quarter to the middle takes at most this share of the ports.
///
/// A rise in proportion to 1 / (share of free ports), up to 100 times the cost, takes 2.0 %; a
/// straight line takes 12 %, and a cost that grows a hundredfold over the range at an even pace 9 %.
const RISE_SHARE_MAX: f64 = 0.04;

/// The step in the curve.
///
/// Shape: points ascend in their ports; those without a connection or a finite cost are left out.
/// None: there is none, or there are too few points.
/// Cost: O(n²) with n points.
pub fn found(curve: &[PortPoint]) -> Option<Cliff> {
    let usable = |point: &&PortPoint| {
        point.connections > 0 && point.connect_cpu_us.is_normal() && point.connect_cpu_us > 0.0
    };
    let points: Vec<(f64, f64)> =
        curve.iter().filter(usable).map(|point| (point.ports, point.connect_cpu_us)).collect();
    let costs: Vec<f64> = points.iter().map(|(_, cost)| *cost).collect();
    let split = split(&costs)?;
    let (below, above) = (median(&costs[..split])?, median(&costs[split..])?);
    let level = |share: f64| below + (above - below) * share;
    if above < below * FACTOR_MIN {
        return None;
    }
    let middle = crossing(&points, split, level(0.5))?;
    let quarter = crossing(&points, middle.after, level(0.25))?;
    let (lower, upper) = costs.split_at(middle.after);
    let share = |side: &[f64], agrees: &dyn Fn(f64) -> bool| {
        side.iter().filter(|cost| agrees(**cost)).count() as f64 / side.len() as f64
    };
    let enough = lower.len() >= POINTS_MIN
        && upper.len() >= POINTS_MIN
        && upper.len() as f64 >= costs.len() as f64 * ABOVE_SHARE_MIN;
    let agrees = share(lower, &|cost| cost < level(0.5)) >= AGREEING
        && share(upper, &|cost| cost >= level(0.5)) >= AGREEING;
    // Between two neighbours nothing can be told.
    let rise_max = (middle.ports * RISE_SHARE_MAX).max(middle.gap);
    let is_steep = middle.ports - quarter.ports <= rise_max;
    let cliff =
        Cliff { at_ports: middle.ports, below_us: median(lower)?, above_us: median(upper)? };
    (enough && agrees && is_steep && cliff.factor() >= FACTOR_MIN).then_some(cliff)
}

/// The number of points before the best split.
///
/// None: there are too few points for one.
fn split(costs: &[f64]) -> Option<usize> {
    let logs: Vec<f64> = costs.iter().map(|cost| cost.ln()).collect();
    let last = logs.len().checked_sub(POINTS_MIN)?;
    let misfit = |side: &[f64]| {
        // Of an even number, either of the two in the middle has the least sum.
        let mut order = side.to_vec();
        let (_, median, _) = order.select_nth_unstable_by(side.len() / 2, f64::total_cmp);
        side.iter().map(|log| (log - *median).abs()).sum::<f64>()
    };
    let splits = (POINTS_MIN..=last).map(|at| (at, misfit(&logs[..at]) + misfit(&logs[at..])));
    splits.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(at, _)| at)
}

/// Where the curve crosses a level upwards.
#[derive(Clone, Copy, Debug)]
struct Crossing {
    /// Index of the first point that is above.
    after: usize,
    /// Ports in use there, between two points by proportion.
    ports: f64,
    /// Distance of these two points.
    gap: f64,
}

/// The crossing of a level that is next to the point of this index.
///
/// None: the curve is above it from its first point on, or below it to its last.
fn crossing(points: &[(f64, f64)], near: usize, level: f64) -> Option<Crossing> {
    let is_above = |index: usize| points.get(index).is_some_and(|(_, cost)| *cost >= level);
    let mut after = near;
    while after > 0 && is_above(after - 1) {
        after -= 1;
    }
    while after < points.len() && !is_above(after) {
        after += 1;
    }
    let (first, second) = (points.get(after.checked_sub(1)?)?, points.get(after)?);
    let share = (level - first.1) / (second.1 - first.1);
    let gap = second.0 - first.0;
    Some(Crossing { after, ports: first.0 + gap * share, gap })
}

/// The median. None: there are no values.
fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    Some(if sorted.len() % 2 == 1 { upper } else { f64::midpoint(sorted[middle - 1], upper) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Ports of the first pass, as of the default range.
    const HALF: f64 = 14_116.0;

    fn curve(costs: impl IntoIterator<Item = (f64, f64)>) -> Vec<PortPoint> {
        let point = |(ports, connect_cpu_us)| PortPoint {
            ports,
            connections: 100,
            connect_cpu_us,
            ..PortPoint::default()
        };
        costs.into_iter().map(point).collect()
    }

    /// `count` points at even distances up to this many ports, with the cost of each.
    fn even(count: u32, up_to: f64, cost: impl Fn(f64) -> f64) -> Vec<PortPoint> {
        let at = |index: u32| up_to * (f64::from(index) + 0.5) / f64::from(count);
        curve((0..count).map(|index| (at(index), cost(at(index)))))
    }

    /// The kernel's search, as a mean: 7 µs, and 60 ns for each port that is tried.
    fn kernel(ports: f64) -> f64 {
        let free = |taken: f64| 1.0 - (taken / HALF).min(1.0 - 1.0 / HALF);
        let tried = if ports < HALF { 1.0 / free(ports) } else { HALF + 1.0 / free(ports - HALF) };
        7.0 + 0.06 * tried
    }

    #[test]
    fn the_kernels_cliff_is_found_with_its_place_and_its_factor() {
        for count in [40, 100, 200, 400] {
            let cliff = found(&even(count, 2.0 * HALF, kernel)).unwrap();
            assert!((cliff.at_ports / HALF - 1.0).abs() < 0.02, "{count}: {}", cliff.at_ports);
            assert!((cliff.below_us - 7.1).abs() < 0.1, "{}", cliff.below_us);
            assert!((110.0..130.0).contains(&cliff.factor()), "{}", cliff.factor());
        }
    }

    #[test]
    fn a_point_with_the_cliff_inside_it_is_neither_below_nor_above() {
        // Points of 1,000 ports; the step at 14,300 is inside the one around 14,500.
        let mixed = |ports: f64| match ports {
            14_500.0 => 0.3 * 7.0 + 0.7 * 840.0,
            ports if ports < 14_500.0 => 7.0,
            _ => 840.0,
        };
        let cliff = found(&even(28, 28_000.0, mixed)).unwrap();
        assert!((cliff.at_ports - 14_300.0).abs() < 100.0, "{}", cliff.at_ports);
        assert_eq!((cliff.below_us, cliff.above_us), (7.0, 840.0));
    }

    #[test]
    fn growth_in_proportion_to_one_over_the_free_share_ends_in_the_cliff() {
        // The worst shape: the cost is all search, so that it rises long before.
        let pure =
            |ports: f64| if ports < HALF { (1.0 / (1.0 - ports / HALF)).min(100.0) } else { 100.0 };
        let cliff = found(&even(200, 2.0 * HALF, pure)).unwrap();
        assert!((cliff.at_ports / HALF - 1.0).abs() < 0.025, "{}", cliff.at_ports);
    }

    #[test]
    fn growth_without_a_step_is_none() {
        let up_to = |share: f64| even(200, HALF * share, kernel);
        assert_eq!(found(&up_to(0.99)), None, "a run that ends just before the cliff");
        assert_eq!(found(&even(200, HALF, |ports| 1.0 / (1.0 - ports / HALF))), None);
        assert_eq!(found(&even(200, 1.0, |share| 7.0 + 100.0 * share)), None);
        assert_eq!(found(&even(200, 1.0, |share| 7.0 * 100.0_f64.powf(share))), None);
    }

    #[test]
    fn a_fall_and_a_hill_are_no_cliffs() {
        assert_eq!(found(&even(100, 1.0, |share| if share < 0.5 { 840.0 } else { 7.0 })), None);
        let hill = |share: f64| if (0.4..0.6).contains(&share) { 840.0 } else { 7.0 };
        assert_eq!(found(&even(100, 1.0, hill)), None);
    }

    #[test]
    fn the_last_points_alone_are_no_cliff_and_few_points_say_nothing() {
        assert_eq!(found(&even(200, 1.0, |share| if share < 0.98 { 7.0 } else { 840.0 })), None);
        assert_eq!(found(&even(5, 1.0, |share| if share < 0.5 { 7.0 } else { 840.0 })), None);
        assert_eq!(found(&[]), None);
        let mut none = even(100, 1.0, |share| if share < 0.5 { 7.0 } else { 840.0 });
        for point in &mut none {
            point.connections = 0;
        }
        assert_eq!(found(&none), None);
    }

    #[test]
    fn points_that_cannot_be_are_left_out() {
        let mut points = even(100, 2.0 * HALF, kernel);
        points[10].connect_cpu_us = f64::NAN;
        points[60].connect_cpu_us = 0.0;
        points[70].connections = 0;
        let cliff = found(&points).unwrap();
        assert!((cliff.at_ports / HALF - 1.0).abs() < 0.02);
    }

    proptest! {
        #[test]
        fn a_flat_curve_has_no_cliff(
            base in 0.5f64..1e4, noise in proptest::collection::vec(1.0f64..1.9, 0..200),
        ) {
            let points = noise.iter().enumerate().map(|(at, noise)| (at as f64 * 10.0, base * noise));
            prop_assert_eq!(found(&curve(points)), None);
        }

        #[test]
        fn one_or_two_bad_points_make_no_cliff(
            count in 10u32..200, bad in proptest::collection::vec((0usize..200, 1e-3f64..1e3), 0..3),
        ) {
            let mut points = even(count, 1e4, |_| 7.0);
            for (at, factor) in bad {
                let at = at % points.len();
                points[at].connect_cpu_us *= factor;
            }
            prop_assert_eq!(found(&points), None);
        }

        #[test]
        fn noise_and_a_bad_point_do_not_move_the_cliff(
            noise in proptest::collection::vec(0.8f64..1.25, 200), bad in 0usize..200,
            factor in 0.01f64..100.0,
        ) {
            let mut points = even(200, 2.0 * HALF, kernel);
            for (point, noise) in points.iter_mut().zip(&noise) {
                point.connect_cpu_us *= noise;
            }
            // A bad point next to the cliff is the cliff, or hides it, by one point.
            if !(98..=101).contains(&bad) {
                points[bad].connect_cpu_us *= factor;
            }
            let cliff = found(&points);
            prop_assert!(cliff.is_some());
            prop_assert!((cliff.unwrap().at_ports / HALF - 1.0).abs() < 0.02);
        }

        #[test]
        fn a_step_of_any_factor_is_found_where_it_is(
            at in 0.1f64..0.9, factor in 2.2f64..1e3, count in 40u32..400,
        ) {
            let step = |share: f64| if share < at { 7.0 } else { 7.0 * factor };
            let cliff = found(&even(count, 1.0, step));
            prop_assert!(cliff.is_some());
            let cliff = cliff.unwrap();
            prop_assert!((cliff.at_ports - at).abs() <= 1.0 / f64::from(count), "{}", cliff.at_ports);
            prop_assert!((cliff.factor() / factor - 1.0).abs() < 1e-9);
        }
    }
}
