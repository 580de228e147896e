//! How far do the arms reach? Median, 99th percentile and maximum of each arm on one axis.

use tcptoll_core::stats::HistogramSummary;

use super::plot::{Frame, Plot, Scale};
use crate::figures::{self, Primary};
use crate::run::Run;
use crate::svg::{Anchor, Screen, Svg, TwoScreens, arm_class, for_both};
use crate::{clean, number};

struct Row<'a> {
    at: usize,
    name: &'a str,
    histogram: &'a HistogramSummary,
}

fn rows<'a>(summary: &'a Run, primary: &Primary) -> Vec<Row<'a>> {
    let arms = summary.arms.iter().enumerate();
    arms.filter_map(|(at, arm)| {
        let histogram = arm.histograms.get(&primary.key).filter(|h| h.max.is_some())?;
        Some(Row { at, name: &arm.name, histogram })
    })
    .collect()
}

/// The picture; `None` with fewer than two arms to compare.
pub(super) fn picture(summary: &Run, primary: &Primary) -> Option<TwoScreens> {
    let rows = rows(summary, primary);
    let label = format!("Median, p99 and maximum of {} per arm", primary.name);
    (rows.len() > 1).then(|| for_both(&label, |screen| draw(&rows, screen)))
}

fn draw(rows: &[Row<'_>], screen: Screen) -> Svg {
    let wide = screen == Screen::Wide;
    let (left, pitch) = if wide { (230.0, 30.0) } else { (10.0, 46.0) };
    let frame = Frame::across(screen, left, 4.0, 14.0 + rows.len() as f64 * pitch);
    let values = rows.iter().flat_map(|row| {
        let h = row.histogram;
        [figures::middle(h), h.p99, h.max].into_iter().flatten()
    });
    let mut plot = Plot::of_rows(frame, 26.0, Scale::fit(values, left, frame.right));
    plot.time_axis(if wide { 8 } else { 4 });
    for (at, row) in rows.iter().enumerate() {
        let top = 8.0 + at as f64 * pitch;
        let y = if wide { top + pitch / 2.0 } else { top + 30.0 };
        let (place, anchor) = if wide {
            ((left - 14.0, y + 4.0), Anchor::End)
        } else {
            ((left, top + 16.0), Anchor::Start)
        };
        let name = clean::shorten(row.name, if wide { 32 } else { 46 });
        plot.group(&arm_class(row.at), &tooltip(row), |plot| {
            plot.svg.text("name", place, anchor, &name);
            reach(plot, row.histogram, y);
        });
    }
    plot.svg
}

fn reach(plot: &mut Plot, h: &HistogramSummary, y: f64) {
    let (Some(middle), Some(max)) = (figures::middle(h), h.max) else { return };
    let [from, to] = [middle, max].map(|us| plot.x.at(us));
    plot.svg.line("whisker", (from, y), (to, y));
    // Longer than the dot is wide: of a short range it would be hidden.
    plot.svg.line("whisker", (to, y - 8.0), (to, y + 8.0));
    if let Some(p99) = h.p99.map(|us| plot.x.at(us)) {
        plot.svg.line("bar", (from, y), (p99, y));
    }
    plot.svg.dot("mark", (from, y), 5.0, "");
}

fn tooltip(row: &Row<'_>) -> String {
    let h = row.histogram;
    let middle = if h.p50.is_some() { "median" } else { "mean" };
    let time = |us: Option<f64>| {
        format!("{}{}", us.map_or("", |us| h.sign(us)), number::time_or_absent(us))
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
pub(super) fn caption(summary: &Run, primary: &Primary) -> String {
    let reach = |row: &Row<'_>| {
        let middle = figures::middle(row.histogram).filter(|us| *us > 0.0)?;
        Some((row.name.to_owned(), middle, row.histogram.max?))
    };
    let rows = rows(summary, primary);
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
