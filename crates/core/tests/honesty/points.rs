//! How often is a verdict over vantage points wrong, and from how many points on is it honest?
//!
//! Points differ in their noise, their number of rounds and, in most kinds of fleet, in their true ratio. The
//! mean over all such points is the truth.

use tcptoll_core::stats::sequence;
use tcptoll_core::study::stop::MIN_ROUNDS;
use tcptoll_core::verdict::points::{POINTS_FOR_A_VERDICT, PointValue, interval, spread};

use crate::source::Source;
use crate::{ALPHA, RUNS, figure, modes, share};

/// Most points of a fleet.
const POINTS: usize = 100;

/// How the true log-ratios of points lie about their mean.
#[derive(Clone, Copy, Debug)]
enum Between {
    /// All alike.
    Alike,
    /// Normal, 1 %.
    Little,
    /// Normal, 5 %.
    Normal,
    /// Student's t with 3 degrees of freedom, times 3 %.
    HeavyTailed,
    /// Exponential, 5 %: a few points differ much, all to one side.
    Skewed,
    /// One point in five differs by 25 %.
    OneInFive,
    /// One point in ten differs by 25 %.
    OneInTen,
}

impl Between {
    /// Those for which the verdict is promised to be right.
    const PROMISED: [Self; 6] =
        [Self::Alike, Self::Little, Self::Normal, Self::HeavyTailed, Self::Skewed, Self::OneInFive];

    fn draw(self, source: &mut Source) -> f64 {
        let mode = |source: &mut Source, share: f64| {
            let other = if source.uniform() < share { 1.0 } else { 0.0 };
            (other - share) * 1.25_f64.ln() + 0.01 * source.normal()
        };
        match self {
            Self::Alike => 0.0,
            Self::Little => 0.01 * source.normal(),
            Self::Normal => 0.05 * source.normal(),
            Self::HeavyTailed => 0.03 * source.student_3(),
            Self::Skewed => 0.05 * (-source.uniform().ln() - 1.0),
            Self::OneInFive => mode(source, 0.2),
            Self::OneInTen => mode(source, 0.1),
        }
    }
}

/// When a point ends its rounds.
#[derive(Clone, Copy, Debug)]
enum Ends {
    /// After a number that has nothing to do with its figures, 5 to 30.
    Fixed,
    /// By its own verdict, from the 15th round to the 30th.
    Verdict,
}

/// The values of a fleet's points, in the order of arrival.
fn fleet(source: &mut Source, between: Between, ends: Ends, truth: f64) -> Vec<PointValue> {
    let point = |_| {
        let own = truth + between.draw(source);
        // From a quiet machine to a busy one.
        let noise = 0.002 * 50.0_f64.powf(source.uniform());
        let rounds: Vec<f64> = (0..30).map(|_| own + noise * source.normal()).collect();
        let n = match ends {
            Ends::Fixed => 5 + (source.uniform() * 26.0) as usize,
            Ends::Verdict => modes::stop(&rounds, MIN_ROUNDS as usize, MIN_ROUNDS as usize).rounds,
        };
        PointValue::from_log_ratios(&rounds[..n]).expect("five rounds and more")
    };
    (0..POINTS).map(point).collect()
}

/// The share of fleets, and their number of points, with a wrong verdict where the mean is 1; and of those where it
/// is 1.05, the share whose interval holds it and that found it. Each fleet is looked at a single time.
fn once(between: Between, ends: Ends, points: impl Fn(&mut Source) -> usize) -> [f64; 3] {
    let mut source = Source::new(4_100 + between as u64);
    let mut intervals = |truth: f64| -> Vec<Option<[f64; 2]>> {
        let one = |_| {
            let points = points(&mut source);
            let fleet = fleet(&mut source, between, ends, truth);
            let logs: Vec<f64> = fleet[..points].iter().map(|point| point.log_ratio).collect();
            interval(&logs, ALPHA)
        };
        (0..RUNS).map(one).collect()
    };
    let wrong =
        share(&intervals(0.0), |ends| ends.is_some_and(|[low, high]| low > 0.0 || high < 0.0));
    let truth = 1.05_f64.ln();
    let five: Vec<[f64; 2]> = intervals(truth).into_iter().flatten().collect();
    let covers = share(&five, |[low, high]| *low <= truth && truth <= *high);
    [wrong, covers, share(&five, |[low, _]| *low > 0.0)]
}

/// From 3 to 100 points; as many fleets have 3 to 10 as have 30 to 100.
fn any_size(source: &mut Source) -> usize {
    (3.0 * (101.0_f64 / 3.0).powf(source.uniform())) as usize
}

#[test]
fn a_fleet_of_3_to_100_points_is_wrong_in_at_most_5_percent() {
    for between in Between::PROMISED {
        for ends in [Ends::Fixed, Ends::Verdict] {
            let [wrong, covers, found] = once(between, ends, any_size);
            let met = wrong <= 0.05 && covers >= 0.94;
            figure(
                &format!(
                    "1,000 fleets of 3 to 100 points, {between:?}, rounds end by {ends:?}: wrong verdict; a mean of 1.05 is covered"
                ),
                "at most 5 %; at least 94 %",
                &format!(
                    "{:.1} %; {:.1} % (found {:.1} %)",
                    wrong * 100.0,
                    covers * 100.0,
                    found * 100.0
                ),
                met,
            );
            assert!(met, "{between:?}, {ends:?}: {wrong}, {covers}");
        }
    }
}

#[test]
fn with_the_fewest_points_one_kind_of_point_in_five_is_seen() {
    for between in Between::PROMISED {
        let [wrong, covers, _] = once(between, Ends::Fixed, |_| POINTS_FOR_A_VERDICT);
        let met = wrong <= 0.05 && covers >= 0.94;
        figure(
            &format!(
                "1,000 fleets of {POINTS_FOR_A_VERDICT} points, {between:?}: wrong verdict; a mean of 1.05 is covered"
            ),
            "at most 5 %; at least 94 %",
            &format!("{:.1} %; {:.1} %", wrong * 100.0, covers * 100.0),
            met,
        );
        assert!(met, "{between:?}: {wrong}, {covers}");
    }
}

/// What fewer points would cost, a rarer kind of point does cost, and looking after each point that arrives.
#[test]
fn fewer_points_and_rarer_kinds_cost_honesty() {
    let wrong_with = |between: Between, points: usize| {
        let mut source = Source::new(4_200 + between as u64);
        let runs: Vec<[f64; 2]> = (0..RUNS)
            .map(|_| {
                let fleet = fleet(&mut source, between, Ends::Fixed, 0.0);
                let logs: Vec<f64> = fleet[..points].iter().map(|point| point.log_ratio).collect();
                sequence::interval(&logs, ALPHA).expect("five points and more")
            })
            .collect();
        share(&runs, |[low, high]| *low > 0.0 || *high < 0.0)
    };
    // The table of docs/guide/statistics.md.
    for points in [6, 10, POINTS_FOR_A_VERDICT, 30] {
        let cells = [
            Between::Alike,
            Between::Normal,
            Between::Skewed,
            Between::OneInFive,
            Between::OneInTen,
        ]
        .map(|between| format!("{between:?} {:.1} %", wrong_with(between, points) * 100.0));
        figure(
            &format!("1,000 fleets of {points} points: wrong verdict by kind"),
            "its cost stated",
            &cells.join(", "),
            true,
        );
    }
    for (between, points, least, most) in [
        (Between::OneInFive, 6, 0.15, 0.35),
        (Between::OneInFive, 10, 0.07, 0.20),
        (Between::OneInTen, POINTS_FOR_A_VERDICT, 0.13, 0.30),
        (Between::OneInTen, 30, 0.02, 0.08),
    ] {
        let wrong = wrong_with(between, points);
        let met = (least..most).contains(&wrong);
        figure(
            &format!("1,000 fleets of {points} points, {between:?}: wrong verdict"),
            "its cost stated",
            &format!("{:.1} %", wrong * 100.0),
            met,
        );
        assert!(met, "{between:?}, {points}: {wrong}");
    }
    for (between, most) in [
        (Between::Normal, 0.05),
        (Between::HeavyTailed, 0.05),
        (Between::Skewed, 0.12),
        (Between::OneInFive, 0.12),
    ] {
        let mut source = Source::new(4_300 + between as u64);
        let ever = |fleet: &Vec<PointValue>| {
            let logs: Vec<f64> = fleet.iter().map(|point| point.log_ratio).collect();
            (POINTS_FOR_A_VERDICT..=POINTS).any(|points| {
                interval(&logs[..points], ALPHA).is_some_and(|[low, high]| low > 0.0 || high < 0.0)
            })
        };
        let fleets: Vec<_> =
            (0..RUNS).map(|_| fleet(&mut source, between, Ends::Fixed, 0.0)).collect();
        let wrong = share(&fleets, ever);
        figure(
            &format!(
                "1,000 fleets looked at after each of {POINTS_FOR_A_VERDICT} to 100 points, {between:?}: ever a wrong verdict"
            ),
            "its cost stated",
            &format!("{:.1} %", wrong * 100.0),
            wrong <= most,
        );
        assert!(wrong <= most, "{between:?}: {wrong}");
    }
}

#[test]
fn the_spread_between_points_is_that_of_the_points_and_not_of_their_rounds() {
    for (between, truth) in
        [(Between::Alike, 0.0), (Between::Little, 0.01), (Between::Normal, 0.05)]
    {
        let mut source = Source::new(4_400);
        let spreads: Vec<f64> = (0..RUNS)
            .map(|_| spread(&fleet(&mut source, between, Ends::Fixed, 0.0)).expect("100 points"))
            .collect();
        let root_mean_square =
            (spreads.iter().map(|s| s * s).sum::<f64>() / spreads.len() as f64).sqrt();
        assert!((root_mean_square - truth).abs() < 0.004, "{between:?}: {root_mean_square}");
    }
}
