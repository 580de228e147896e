//! The idle CPU of the client over the rate that was reached: a point per arm, published figures hollow.

use crate::open::time_wait::{IDLE_SHARE, RATE};
use tcptoll_core::record::Arm;

use tcptoll_show::html::plot::{Frame, Plot, Scale};
use tcptoll_show::own::Picture;
use tcptoll_show::run::Run;
use tcptoll_show::svg::{Anchor, Screen, Svg, arm_class, for_both};
use tcptoll_show::{clean, number, published, rounds};

/// Half of a mark at the end of an interval.
const END: f64 = 6.0;

/// Columns of an arm's name beside its point.
const NAME: usize = 22;

/// Rates nearer than this share of the greatest are drawn as one place.
const SAME: f64 = 0.04;

/// A point.
struct Point<'a> {
    at: usize,
    arm: &'a Arm,
    rate: f64,
    idle: f64,
    ci95: Option<[f64; 2]>,
    /// Published rate and idle share, with the source.
    published: Option<(f64, f64, &'a str)>,
}

fn points(summary: &Run) -> Vec<Point<'_>> {
    let point = |at: usize, arm| -> Option<Point<'_>> {
        let (rate, idle) =
            (rounds::measured(arm, RATE.name)?, rounds::measured(arm, IDLE_SHARE.name)?);
        let theirs = published::figure(summary, &arm.name, IDLE_SHARE.name);
        let their_rate = published::figure(summary, &arm.name, RATE.name);
        let published = theirs.map(|theirs| {
            let rate = their_rate.map_or(rate.value, |rate| rate.value);
            (rate, theirs.value, theirs.source.as_str())
        });
        Some(Point { at, arm, rate: rate.value, idle: idle.value, ci95: idle.ci95, published })
    };
    let found = summary.arms.iter().enumerate().filter_map(|(at, arm)| point(at, arm));
    found.collect()
}

/// The picture; `None` with fewer than two arms that have both figures.
pub(super) fn picture(summary: &Run) -> Option<Picture> {
    let points = points(summary);
    (points.len() > 1).then(|| Picture {
        both_svg: for_both("Idle CPU of the client over operations per second", |screen| {
            draw(&points, screen)
        }),
        caption: caption(&points),
        drawn: points.iter().map(|point| point.at).collect(),
    })
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn draw(points: &[Point<'_>], screen: Screen) -> Svg {
    let wide = screen == Screen::Wide;
    let [left, bottom] = if wide { [60.0, 300.0] } else { [52.0, 250.0] };
    let frame = Frame::across(screen, left, 28.0, bottom);
    let rates = points.iter().flat_map(|p| [p.rate, p.published.map_or(p.rate, |(rate, ..)| rate)]);
    let most = rates.fold(0.0, f64::max);
    let x = Scale::from_zero(most * 1.12, left, frame.right);
    let y = Scale::between(0.0, 1.0, bottom, frame.top);
    let mut plot = Plot::new(frame, 44.0, x, y);
    plot.y_axis(6, percent);
    plot.x_ticks(if wide { 8 } else { 4 }, true, |rate| number::count(rate as u64));
    plot.base();
    plot.y_label("idle CPU of the client");
    plot.x_label(34.0, "operations per second");
    for (rate, idle, source) in points.iter().filter_map(|point| point.published) {
        let tooltip =
            format!("published: {} at {}/s ({source})", percent(idle), number::three(rate));
        plot.group("echo", &tooltip, |plot| plot.dot("hollow", (rate, idle), 6.0, ""));
    }
    // Points of one rate would hide each other: they stand side by side.
    let mut places: Vec<f64> = Vec::new();
    for point in points {
        let same = places.iter().filter(|rate| (**rate - point.rate).abs() < most * SAME).count();
        places.push(point.rate);
        let tooltip = format!(
            "{}: {} idle at {}/s",
            point.arm.name,
            percent(point.idle),
            number::three(point.rate)
        );
        let side = if same % 2 == 0 { 1.0 } else { -1.0 };
        let shift = side * same.div_ceil(2) as f64 * 15.0;
        let (at, level) = plot.at((point.rate, point.idle));
        plot.group(&arm_class(point.at), &tooltip, |plot| {
            if let Some(ends) = point.ci95 {
                plot.whisker(at + shift, ends, END);
            }
            plot.svg.dot("full", (at + shift, level), 4.5, "");
        });
        if wide && same == 0 && point.rate < most * (1.0 - SAME) {
            let name = clean::shorten(&point.arm.name, NAME);
            plot.svg.text("name", (at + 12.0, level - 8.0), Anchor::Start, &name);
        }
    }
    plot.svg
}

fn caption(points: &[Point<'_>]) -> String {
    let by_idle = |a: &&Point<'_>, b: &&Point<'_>| a.idle.total_cmp(&b.idle);
    let ends = points.iter().min_by(by_idle).zip(points.iter().max_by(by_idle));
    let words = ends.map(|(least, most)| {
        let phrase = |point: &Point<'_>| {
            let rate = number::count(point.rate.round() as u64);
            format!("{} at {rate}/s ({})", percent(point.idle), point.arm.name)
        };
        format!("Idle CPU ranges from {} to {}.", phrase(least), phrase(most))
    });
    let hollow = points.iter().any(|point| point.published.is_some());
    let hollow = if hollow { " Hollow grey: published." } else { "" };
    words.unwrap_or_default() + hollow
}
