//! How did latency go over the run? Mean as a line, least to greatest as a band.

use tcptoll_core::stats::Series;

use super::plot::{self, Frame, Plot, Scale};
use crate::svg::{Screen, Svg, TwoScreens, for_both};
use crate::{figures, number};

/// The picture of `what`, a latency; `None` with fewer than two points.
pub(super) fn picture(series: &Series, what: &str, class: &str, arm: &str) -> Option<TwoScreens> {
    let label = format!("{} of {arm} over the run", figures::capital(what));
    (series.points.len() > 1).then(|| for_both(&label, |screen| draw(series, what, class, screen)))
}

fn draw(series: &Series, what: &str, class: &str, screen: Screen) -> Svg {
    let wide = screen == Screen::Wide;
    let [left, bottom] = if wide { [72.0, 170.0] } else { [60.0, 150.0] };
    let frame = Frame::across(screen, left, 24.0, bottom);
    let points = &series.points;
    let last = points.iter().map(|p| p[0]).fold(0.0, f64::max);
    let y = Scale::fit(points.iter().flat_map(|p| [p[1], p[2], p[3]]), bottom, frame.top);
    let ticks = plot::ticks(&y, 4, number::tick);
    let frame = frame.beside(&ticks);
    let x = Scale::from_zero(last, frame.left, frame.right);
    let mut plot = Plot::new(frame, 26.0, x, y);
    plot.y_ticks(ticks);
    plot.x_ticks(if wide { 8 } else { 4 }, false, plot::seconds);
    plot.base();
    plot.y_label(&format!("{what}{}, mean and range", plot::log_note(&y)));
    plot.group(class, "", |plot| {
        plot.band("band", points.iter().map(|p| [p[0], p[1], p[3]]));
        plot.line("curve", points.iter().map(|p| (p[0], p[2])));
        let step = ((frame.right - frame.left) / points.len() as f64).max(1.0);
        for [s, min, mean, max] in points.iter().filter(|_| wide) {
            let [min, mean, max] = [min, mean, max].map(|us| number::time(*us));
            let at = number::trimmed(*s);
            let tooltip = format!("at {at} s: mean {mean}, min {min}, max {max}");
            let place = (x.at(*s) - step / 2.0, frame.top);
            plot.svg.rect("hit", place, (step, bottom - frame.top), &tooltip);
        }
    });
    plot.svg
}

/// One sentence that says what to see.
pub(super) fn caption(series: &Series) -> String {
    let means = series.points.iter().map(|p| p[2]);
    let least = means.clone().fold(f64::INFINITY, f64::min);
    let most = means.fold(0.0, f64::max);
    let slowest = series.points.iter().max_by(|a, b| a[3].total_cmp(&b[3]));
    slowest.map_or_else(String::new, |p| {
        format!(
            "The mean stayed between {} and {}. The slowest operation took {}, {} s after the start.",
            number::exact_time(least),
            number::exact_time(most),
            number::time(p[3]),
            number::trimmed(p[0])
        )
    })
}
