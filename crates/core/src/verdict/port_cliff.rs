//! From how many ports in use on does the kernel search long for a free one, and when do ports run
//! out?
//!
//! Arithmetic on settings, made before a run. [`found`] finds the step in what a run measured; the
//! number of connections that ports allow is in [`crate::tcp::ports`].
//!
//! # Why there is a cliff
//!
//! `connect(2)` looks for a local port in two passes (`__inet_hash_connect` in
//! `net/ipv4/inet_hashtables.c`, Linux 6.18). The first pass tries every second port of the range:
//! those with the parity of its lower end. `bind(2)` does the opposite (`inet_csk_find_open_port`
//! in `inet_connection_sock.c`), so that the two rarely meet. While a port of the first pass is
//! free, the search is short, because it begins behind the port that the connection before it took.
//! Once all are taken, every `connect(2)` tries all of them in vain before its second pass begins:
//! 14,116 of the 28,232 ports of the default range. The first pass is thus full at half of the
//! range, and the cost rises there in one step.
//!
//! The step is expected from the kernel's rule, and looked for in the curve without that knowledge. Both are
//! recorded: at 28,232 ports they were 14,116 and 14,119.
//!
//! # How the step is found
//!
//! 1. **A split.** Of all ways to split the points into a lower and an upper part, the one is taken
//!    whose two medians are nearest to the points: the least sum of absolute differences of the
//!    logarithms. Medians, because one bad point must not make a step or move one.
//! 2. **The place.** From the split, the curve is followed to where it crosses the middle between
//!    both medians. That is the upper half of a rise that begins slowly: just before the cliff, the
//!    cost grows like 1 / (share of ports that are free).
//! 3. **The tests.** It is a step if the medians differ by `FACTOR_MIN`, if nearly all points
//!    lie on their side of the middle, if enough points lie above, and if the rise is steep. A cost
//!    that doubles from one tenth of the range to the next is growth and not a step.

use crate::record::{Cliff, PortPoint};
use crate::tcp::ports::{PortForecast, PortSettings, range, reserved, reuse_after_s};

/// The system call that chooses the local port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Chooser {
    /// `connect(2)`, with or without a source address that `IP_BIND_ADDRESS_NO_PORT` bound.
    #[default]
    Connect,
    /// `bind(2)` with a source address and port 0.
    Bind,
}

/// Ports in use at which the first pass of the search has no port left, all source addresses
/// together; they take turns.
///
/// In a range with an odd number of ports it may be one port more per source address: the first pass
/// then leaves out either the first or the last port, depending on where it begins.
///
/// None: the range cannot be read or has one port, all ports of the first pass are reserved, or
/// `net.ipv4.tcp_tw_reuse` is in force. With it, ports in TIME-WAIT are free to the search after a
/// second.
///
/// Source: see the module.
pub fn expected(settings: &PortSettings, chooser: Chooser) -> Option<f64> {
    let text = |name: &str| settings.sysctls.get(name).map(|value| value.trim());
    let (low, high) = range(text("net.ipv4.ip_local_port_range")?)?;
    if reuse_after_s(settings).is_some() {
        return None;
    }
    let list = text("net.ipv4.ip_local_reserved_ports").unwrap_or_default();
    let first_pass = first_pass(low, high, &reserved(list, low, high), chooser);
    (first_pass > 0).then(|| first_pass as f64 * settings.sources.max(1) as f64)
}

/// Ports that the first pass tries.
fn first_pass(low: u16, high: u16, reserved: &[(u16, u16)], chooser: Chooser) -> u64 {
    let ports = u64::from(high - low) + 1;
    let parity = match chooser {
        Chooser::Connect => low % 2,
        Chooser::Bind => 1 - low % 2,
    };
    let reserved: u64 = reserved.iter().map(|&ends| of_parity(ends, parity)).sum();
    if ports < 2 { 0 } else { (ports / 2).saturating_sub(reserved) }
}

/// Ports of this parity from the first to the last.
fn of_parity((first, last): (u16, u16), parity: u16) -> u64 {
    let first = u64::from(first) + u64::from(first % 2 != parity);
    let last = u64::from(last);
    if first > last { 0 } else { (last - first) / 2 + 1 }
}

/// After how many seconds a load of new connections has used all local ports.
///
/// `held`: ports that are in TIME-WAIT when it begins, and stay so.
///
/// None: a port is free again before the last one is taken, so the load may go on for ever.
/// Range: a rate of 0 or less takes no ports.
pub fn lasts_s(forecast: &PortForecast, rate_per_s: f64, held: u64) -> Option<f64> {
    let sustained = forecast.sustained_per_s?;
    let left = forecast.at_once.saturating_sub(held);
    (rate_per_s > sustained).then(|| left as f64 / rate_per_s)
}

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
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use rand_core::SeedableRng as _;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;
    use crate::tcp::ports::{ClientCloses, forecast};

    fn settings(sysctls: &[(&str, &str)]) -> PortSettings {
        let named = |(name, value): &(&str, &str)| (format!("net.ipv4.{name}"), (*value).into());
        PortSettings {
            sysctls: sysctls.iter().map(named).collect(),
            sources: 1,
            destinations: 1,
            client_closes: ClientCloses::All,
            loopback: false,
            ..PortSettings::default()
        }
    }

    const RANGE: (&str, &str) = ("ip_local_port_range", "32768\t60999\n");

    /// The search of `__inet_hash_connect`, port for port, without another user of ports.
    struct Kernel {
        low: u32,
        high: u32, // one above the last
        reserved: BTreeSet<u32>,
        taken: BTreeSet<u32>,
        perturb: u32,
        random: Xoshiro256PlusPlus,
    }

    impl Kernel {
        fn new(low: u16, high: u16, reserved: &[u16], seed: u64) -> Self {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            Self {
                low: low.into(),
                high: u32::from(high) + 1,
                reserved: reserved.iter().map(|&port| port.into()).collect(),
                taken: BTreeSet::new(),
                perturb: random.next_u32() / 2,
                random,
            }
        }

        /// Takes a port. The answer is whether the first pass found it; absent: none is free.
        fn connect(&mut self) -> Option<bool> {
            let mut remaining = self.high - self.low;
            if remaining > 1 {
                remaining &= !1;
            }
            let mut offset = (self.perturb % remaining) & !1;
            loop {
                let mut port = self.low + offset;
                for i in (0..remaining).step_by(2) {
                    if port >= self.high {
                        port -= remaining;
                    }
                    if !self.reserved.contains(&port) && self.taken.insert(port) {
                        let more = i.max(self.random.next_u32() % 8 * 2) + 2;
                        self.perturb = self.perturb.wrapping_add(more);
                        return Some(offset & 1 == 0);
                    }
                    port += 2;
                }
                offset += 1;
                if offset & 1 == 0 || remaining == 1 {
                    return None;
                }
            }
        }
    }

    proptest! {
        #[test]
        fn the_first_pass_fails_where_it_is_expected_to(
            low in 1_024u16..2_000, ports in 2u16..400, reserved in proptest::collection::vec(0u16..400, 0..20),
            seed: u64,
        ) {
            let high = low + ports - 1;
            let reserved: Vec<u16> = reserved.iter().map(|offset| low + offset).collect();
            let list: Vec<String> = reserved.iter().map(u16::to_string).collect();
            let range = format!("{low} {high}");
            let settings = settings(&[
                ("ip_local_port_range", range.as_str()),
                ("ip_local_reserved_ports", list.join(",").as_str()),
            ]);
            let expected = expected(&settings, Chooser::Connect).unwrap_or_default();
            let mut kernel = Kernel::new(low, high, &reserved, seed);
            let mut found = 0;
            while kernel.connect() == Some(true) {
                found += 1;
            }
            let found = f64::from(found);
            let odd = f64::from(ports % 2);
            prop_assert!((expected..=expected + odd).contains(&found), "{expected} but {found}");
        }
    }

    #[test]
    fn the_cliff_is_at_half_of_the_range_for_each_source_address() {
        let mut settings = settings(&[RANGE, ("tcp_tw_reuse", "2")]);
        assert_eq!(expected(&settings, Chooser::Connect), Some(14_116.0));
        assert_eq!(expected(&settings, Chooser::Bind), Some(14_116.0));
        settings.sources = 2;
        assert_eq!(expected(&settings, Chooser::Connect), Some(28_232.0));
    }

    #[test]
    fn reserved_ports_count_only_where_their_parity_is_searched_first() {
        // Even ports of 1000-1009: five. 1002 and 1004 are reserved and even, 1003 is not even.
        let cliff = |reserved, chooser| {
            let list =
                [("ip_local_port_range", "1000 1009"), ("ip_local_reserved_ports", reserved)];
            expected(&settings(&list), chooser)
        };
        assert_eq!(cliff("", Chooser::Connect), Some(5.0));
        assert_eq!(cliff("1002-1004,1004", Chooser::Connect), Some(3.0));
        assert_eq!(cliff("1002-1004", Chooser::Bind), Some(4.0));
        assert_eq!(cliff("1000-1009", Chooser::Connect), None);
    }

    #[test]
    fn of_an_odd_range_one_pass_tries_half_rounded_down() {
        let cliff =
            |range, chooser| expected(&settings(&[("ip_local_port_range", range)]), chooser);
        assert_eq!(cliff("1000 1010", Chooser::Connect), Some(5.0)); // 11 ports, 6 of them even
        assert_eq!(cliff("1000 1010", Chooser::Bind), Some(5.0));
        assert_eq!(cliff("1001 1001", Chooser::Connect), None);
        assert_eq!(cliff("1001 1000", Chooser::Connect), None);
    }

    #[test]
    fn with_reuse_in_force_there_is_no_rule() {
        let cliff =
            |reuse| expected(&settings(&[RANGE, ("tcp_tw_reuse", reuse)]), Chooser::Connect);
        assert_eq!(cliff("1"), None);
        assert_eq!(cliff("0"), Some(14_116.0));
        assert_eq!(expected(&settings(&[]), Chooser::Connect), None);
    }

    #[test]
    fn two_thousand_a_second_use_up_the_default_range_in_fourteen_seconds() {
        let default = forecast(&settings(&[RANGE])).unwrap();
        assert!((lasts_s(&default, 2_000.0, 0).unwrap() - 14.116).abs() < 1e-9);
        assert!((lasts_s(&default, 2_000.0, 20_232).unwrap() - 4.0).abs() < 1e-9);
        assert_eq!(lasts_s(&default, 2_000.0, 40_000), Some(0.0));
        assert_eq!(lasts_s(&default, 470.0, 0), None); // 28,232 / 60 = 470.5
        let reused = forecast(&settings(&[RANGE, ("tcp_tw_reuse", "1")])).unwrap();
        assert_eq!(lasts_s(&reused, 2_000.0, 0), None);
        let server = PortSettings { client_closes: ClientCloses::None, ..settings(&[RANGE]) };
        assert_eq!(lasts_s(&forecast(&server).unwrap(), 1e6, 0), None);
    }

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
