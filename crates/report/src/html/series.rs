//! How did latency go over the run? Mean as a line, least to greatest as a band.

use tcptoll_model::record::Series;

use super::svg::{Anchor, Scale, Screen, Svg, for_both};
use crate::{figures, number};

/// The picture of `what`, a latency; `None` with fewer than two points.
pub(super) fn picture(series: &Series, what: &str, class: &str, arm: &str) -> Option<String> {
    let label = format!("{} of {arm} over the run", figures::capital(what));
    (series.points.len() > 1).then(|| for_both(&label, |screen| draw(series, what, class, screen)))
}

fn draw(series: &Series, what: &str, class: &str, screen: Screen) -> Svg {
    let wide = screen == Screen::Wide;
    let (left, top) = (if wide { 72.0 } else { 60.0 }, 24.0);
    let bottom = if wide { 170.0 } else { 150.0 };
    let mut svg = Svg::new(bottom + 26.0);
    let points = &series.points;
    let last = points.iter().map(|p| p[0]).fold(0.0, f64::max);
    let x = Scale::from_zero(last, left, screen.width() - 14.0);
    let y = Scale::fit(points.iter().flat_map(|p| [p[1], p[2], p[3]]), bottom, top);
    for us in y.ticks(4) {
        svg.line("grid", (left, y.at(us)), (x.to, y.at(us)));
        svg.text("tick", (left - 6.0, y.at(us) + 4.0), Anchor::End, &number::tick(us));
    }
    for s in x.ticks(if wide { 8 } else { 4 }) {
        let anchor = if x.at(s) > x.to - 14.0 { Anchor::End } else { Anchor::Middle };
        svg.text("tick", (x.at(s), bottom + 16.0), anchor, &format!("{} s", number::trimmed(s)));
    }
    svg.line("axis", (left, bottom), (x.to, bottom));
    let log = if y.is_log() { " (log)" } else { "" };
    svg.text(
        "label",
        (4.0, 12.0),
        Anchor::Start,
        &format!("{what}{log}: mean, and least to greatest"),
    );
    svg.open(class, "");
    let over = points.iter().map(|p| (x.at(p[0]), y.at(p[3])));
    let under = points.iter().rev().map(|p| (x.at(p[0]), y.at(p[1])));
    svg.path("band", &over.chain(under).collect::<Vec<_>>(), true);
    svg.path("curve", &points.iter().map(|p| (x.at(p[0]), y.at(p[2]))).collect::<Vec<_>>(), false);
    if wide {
        for p in points {
            let [s, min, mean, max] = *p;
            let (min, mean, max) = (number::time(min), number::time(mean), number::time(max));
            let at = number::trimmed(s);
            let tooltip = format!("at {at} s: mean {mean}, least {min}, greatest {max}");
            let step = ((x.to - x.from) / points.len() as f64).max(1.0);
            svg.rect("hit", (x.at(s) - step / 2.0, top), (step, bottom - top), &tooltip);
        }
    }
    svg.close();
    svg
}

/// One sentence that says what to see.
pub(super) fn caption(series: &Series) -> String {
    let means = series.points.iter().map(|p| p[2]);
    let least = means.clone().fold(f64::INFINITY, f64::min);
    let most = means.fold(0.0, f64::max);
    let slowest = series.points.iter().max_by(|a, b| a[3].total_cmp(&b[3]));
    slowest.map_or_else(String::new, |p| {
        format!(
            "The mean stayed between {} and {}; the slowest single operation, {}, was {} s after the start.",
            number::exact_time(least),
            number::exact_time(most),
            number::time(p[3]),
            number::trimmed(p[0])
        )
    })
}
