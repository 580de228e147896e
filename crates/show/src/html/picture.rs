//! Pictures of arms: latency over time, and how far each reaches.

use tcptoll_core::units::capital;

use super::plot;
use super::plot::{Frame, Plot, Scale};
use crate::figures::Primary;
use crate::html::over_time::{Axis, Line, Panel, Stack};
use crate::run::Run;
use crate::svg::{Anchor, Svg, arm_class};
use crate::{clean, figures, number};
use tcptoll_core::record::Arm;
use tcptoll_core::stats::{HistogramSummary, Series};

/// What `make` gives for each arm with its place.
pub(crate) fn each_arm<T>(summary: &Run, make: impl Fn(usize, &Arm) -> Option<T>) -> Vec<T> {
    summary.arms.iter().enumerate().filter_map(|(at, arm)| make(at, arm)).collect()
}

// How did latency go over the run? Mean as a line, least to greatest as a band.

/// The picture of `what`, a latency; `None` with fewer than two points.
pub(crate) fn series(series: &Series, what: &str, class: &str, arm: &str) -> Option<Svg> {
    let points = series.points.clone();
    (points.len() > 1).then(|| {
        let values = points.iter().flat_map(|point| point[1..].iter().copied());
        let log = plot::log_note(&Scale::fit(values, 0.0, 1.0));
        let panel = Panel {
            axis: Axis::Fit,
            lines: vec![Line::range(class.to_owned(), points)],
            ..Panel::new(
                format!("{what}{log}, mean and range"),
                |us| number::tick(us, "us"),
                number::time,
            )
        };
        let stack = Stack { height: 120.0, hits: 100, ..Stack::new(vec![panel]) };
        stack.draw().labelled(&format!("{} of {arm} over the run", capital(what)))
    })
}

/// One sentence that says what to see.
pub(crate) fn series_caption(series: &Series) -> String {
    let means = series.points.iter().map(|p| p[2]);
    let least = means.clone().fold(f64::INFINITY, f64::min);
    let most = means.fold(0.0, f64::max);
    let slowest = series.points.iter().max_by(|a, b| a[3].total_cmp(&b[3]));
    slowest.map_or_else(String::new, |p| {
        format!(
            "The mean stayed between {} and {}. The slowest operation took {}, {} after the start.",
            number::exact_time(least),
            number::exact_time(most),
            number::time(p[3]),
            number::time(p[0] * 1e6)
        )
    })
}

// How far do the arms reach? Median, 99th percentile and maximum of each arm on one axis.

struct Reach<'a> {
    at: usize,
    name: &'a str,
    histogram: &'a HistogramSummary,
}

fn reach_rows<'a>(summary: &'a Run, primary: &Primary) -> Vec<Reach<'a>> {
    let arms = summary.arms.iter().enumerate();
    arms.filter_map(|(at, arm)| {
        let histogram = arm.histograms.get(&primary.key).filter(|h| h.max.is_some())?;
        Some(Reach { at, name: &arm.name, histogram })
    })
    .collect()
}

/// The picture; `None` with fewer than two arms to compare.
pub(crate) fn reaches(summary: &Run, primary: &Primary) -> Option<Svg> {
    let rows = reach_rows(summary, primary);
    let label = format!("Median, p99 and maximum of {} per arm", primary.name);
    (rows.len() > 1).then(|| draw_reaches(&rows).labelled(&label))
}

fn draw_reaches(rows: &[Reach<'_>]) -> Svg {
    const PITCH: f64 = 32.0;
    let frame = Frame::across(14.0, 0.0, rows.len() as f64 * PITCH);
    let values = rows.iter().flat_map(|row| {
        let h = row.histogram;
        [figures::middle(h), h.p99, h.max].into_iter().flatten()
    });
    let x = Scale::fit(values, frame.left, frame.right);
    let mut plot = Plot::of_rows(frame, plot::TICKS, x);
    plot.time_axis(6);
    for (at, row) in rows.iter().enumerate() {
        let top = at as f64 * PITCH;
        let name = clean::shorten(row.name, 62);
        plot.group(&arm_class(row.at), &tooltip(row), |plot| {
            plot.svg.text("name", (0.0, top + 8.0), Anchor::Start, &name);
            reach(plot, row.histogram, top + 22.0);
        });
    }
    plot.svg
}

fn reach(plot: &mut Plot, h: &HistogramSummary, y: f64) {
    let (Some(middle), Some(max)) = (figures::middle(h), h.max) else { return };
    let [from, to] = [middle, max].map(|us| plot.x.at(us));
    plot.svg.line("whisker", (from, y), (to, y));
    // Longer than the dot is wide: of a short range it would be hidden.
    plot.svg.line("whisker", (to, y - 5.5), (to, y + 5.5));
    if let Some(p99) = h.p99.map(|us| plot.x.at(us)) {
        plot.svg.line("bar", (from, y), (p99, y));
    }
    plot.svg.dot("mark", (from, y), 3.5, "");
}

fn tooltip(row: &Reach<'_>) -> String {
    let h = row.histogram;
    let middle = if h.p50.is_some() { "median" } else { "mean" };
    let time = |us: Option<f64>| {
        format!(
            "{}{}",
            us.map_or("", |us| h.sign(us)),
            us.map_or_else(|| number::ABSENT.to_owned(), number::time)
        )
    };
    format!(
        "{}: {middle} {}, p99 {}, maximum {}",
        row.name,
        time(figures::middle(h)),
        time(h.p99),
        time(h.max)
    )
}

/// One sentence that says what to see.
pub(crate) fn reaches_caption(summary: &Run, primary: &Primary) -> String {
    let reach = |row: &Reach<'_>| {
        let middle = figures::middle(row.histogram).filter(|us| *us > 0.0)?;
        Some((row.name.to_owned(), middle, row.histogram.max?))
    };
    let rows = reach_rows(summary, primary);
    let thick =
        if rows.iter().any(|row| row.histogram.p99.is_some()) { " Thick: to p99." } else { "" };
    let widest = rows.iter().filter_map(reach).max_by(|a, b| (a.2 / a.1).total_cmp(&(b.2 / b.1)));
    widest.map_or_else(String::new, |(name, middle, max)| {
        format!(
            "Dot: median.{thick} Thin: to the maximum. {name} has the largest maximum relative to its median: {} to {} ({}).",
            number::time(middle),
            number::time(max),
            number::ratio(max / middle)
        )
    })
}
