//! Which arm is higher, and is it noise? Each comparison as a ratio with its 95 % interval, and 1 as
//! the line of no difference.

use tcptoll_model::record::{Comparison, Summary};

use super::svg::{Anchor, Scale, Screen, Svg, arm_class, for_both};
use crate::{clean, findings, number};

/// Comparisons with a ratio that can be drawn, and the place of their first arm.
fn rows(summary: &Summary) -> Vec<(usize, &Comparison)> {
    let drawable = |c: &&Comparison| {
        [c.ratio, c.ci95[0], c.ci95[1]].into_iter().all(|v| v.is_finite() && v > 0.0)
    };
    let place = |c: &Comparison| summary.arms.iter().position(|arm| arm.name == c.a).unwrap_or(0);
    summary.comparisons.iter().filter(drawable).map(|c| (place(c), c)).collect()
}

/// The picture, or `None` without comparisons.
pub(super) fn picture(summary: &Summary) -> Option<String> {
    let rows = rows(summary);
    let label = "Ratios of compared arms with their 95 % intervals";
    (!rows.is_empty()).then(|| for_both(label, |screen| draw(&rows, screen)))
}

fn draw(rows: &[(usize, &Comparison)], screen: Screen) -> Svg {
    let wide = screen == Screen::Wide;
    let (left, pitch) = if wide { (330.0, 34.0) } else { (10.0, 50.0) };
    let bottom = 14.0 + rows.len() as f64 * pitch;
    let mut svg = Svg::new(bottom + 26.0);
    let values = rows.iter().flat_map(|(_, c)| [c.ratio, c.ci95[0], c.ci95[1]]);
    let x = Scale::fit(values.chain([1.0]), left, screen.width() - 20.0);
    for ratio in x.ticks(if wide { 6 } else { 4 }) {
        svg.line("grid", (x.at(ratio), 4.0), (x.at(ratio), bottom));
        let text = format!("×{}", number::trimmed_ratio(ratio));
        svg.text("tick", (x.at(ratio), bottom + 16.0), Anchor::Middle, &text);
    }
    svg.line("none", (x.at(1.0), 4.0), (x.at(1.0), bottom));
    for (at, (arm, c)) in rows.iter().enumerate() {
        let top = 8.0 + at as f64 * pitch;
        let y = if wide { top + pitch / 2.0 } else { top + 34.0 };
        let room = if wide { 24 } else { 22 };
        let (a, b) = (clean::shorten(&c.a, room), clean::shorten(&c.b, room));
        svg.open(
            &arm_class(*arm),
            &format!("{} against {}: {}", c.a, c.b, findings::comparison(c)),
        );
        if wide {
            svg.text("name", (left - 14.0, y + 4.0), Anchor::End, &format!("{a} / {b}"));
        } else {
            svg.text("name", (left, top + 16.0), Anchor::Start, &format!("{a} / {b}"));
        }
        svg.line("bar", (x.at(c.ci95[0]), y), (x.at(c.ci95[1]), y));
        svg.dot("mark", (x.at(c.ratio), y), 4.5, "");
        svg.close();
    }
    svg
}

/// One sentence that says what to see.
pub(super) fn caption(summary: &Summary) -> String {
    let rows = rows(summary);
    let clear = rows.iter().filter(|(_, c)| c.ci95[0] > 1.0 || c.ci95[1] < 1.0).count();
    format!(
        "Bar: 95 % interval of the ratio; {clear} of {} {} off the line of no difference (×1).",
        rows.len(),
        if rows.len() == 1 { "stays" } else { "stay" }
    )
}
