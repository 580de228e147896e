//! The curve of a search: page time against workers held, a dot for each setting.

use super::found::Found;
use super::setting::Cell;
use tcptoll_core::number;
use tcptoll_show::html::plot::{self, Plot, Scale, log_note};
use tcptoll_show::svg::{Anchor, Svg};

/// p95 by workers held. None: there is nothing to compare.
pub(super) fn held(found: &Found) -> Option<Svg> {
    let cells: Vec<(&Cell, f64)> =
        found.cells.iter().filter_map(|cell| Some((cell, cell.page_us_p95?))).collect();
    if cells.len() < 2 {
        return None;
    }
    let label = format!("p95 page time by {} held, a dot for each setting", found.server.workers());
    Some(draw(found, &cells).labelled(&label))
}

/// Short: the full name is in the tooltip and in the table.
fn short(cell: &Cell) -> String {
    cell.setting.timeout_ms.map_or_else(|| "off".to_owned(), |ms| number::tick(ms as f64, "ms"))
}

fn tooltip(found: &Found, cell: &Cell, us: f64) -> String {
    let memory = match cell.memory_peak_bytes {
        0 => String::new(),
        bytes => format!(", {}", number::bytes(bytes as f64)),
    };
    format!(
        "{}: p95 {}, {:.1} held{memory}{}",
        cell.setting.name(found.server),
        number::time(us),
        cell.workers_held_mean,
        if cell.refuses() { ", visitors refused" } else { "" }
    )
}

/// Logarithmic where values span decades, else from 0: small differences are to look small.
fn scale(values: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Scale {
    let fit = Scale::fit(values.clone(), from, to);
    let most = values.fold(0.0, f64::max);
    if fit.is_log() { fit } else { Scale::from_zero(most * 1.05, from, to) }
}

fn draw(found: &Found, cells: &[(&Cell, f64)]) -> Svg {
    let frame = plot::Frame::across(56.0, 24.0, 200.0);
    // Nothing held is 0.5 on a logarithmic scale.
    let x_of = |cell: &Cell| cell.workers_held_mean.max(0.5);
    let x = scale(cells.iter().map(|(cell, _)| x_of(cell)), frame.left + 8.0, frame.right - 8.0);
    let y = scale(cells.iter().map(|(_, us)| *us), frame.bottom - 8.0, frame.top);
    let notes = [log_note(&x), log_note(&y)];
    let mut plot = Plot::new(frame, plot::TICKS_AND_LABEL, x, y);
    plot.y_axis(5, |us| number::tick(us, "us"));
    plot.base();
    plot.x_ticks(6, false, number::plain);
    plot.y_label(&format!("p95 page time{}", notes[1]));
    let what = format!("{} that held a connection, mean{}", found.server.workers(), notes[0]);
    plot.x_label(&what);
    let mut labelled: Vec<(f64, f64)> = Vec::new();
    // The found one is drawn last, over the others, and its label first.
    let is_choice = |cell: &Cell| found.choice == Some(cell.setting);
    let mut order: Vec<&(&Cell, f64)> = cells.iter().collect();
    order.sort_by_key(|(cell, _)| is_choice(cell));
    for (cell, us) in &order {
        let class = match (is_choice(cell), cell.refuses()) {
            (true, _) => "chosen",
            (false, true) => "refuses",
            (false, false) => "cell",
        };
        let radius = if is_choice(cell) { 4.5 } else { 3.0 };
        plot.dot(class, (x_of(cell), *us), radius, &tooltip(found, cell, *us));
    }
    for (cell, us) in order.iter().rev() {
        let (px, py) = plot.at((x_of(cell), *us));
        if labelled.iter().any(|(lx, ly)| (lx - px).abs() < 46.0 && (ly - py).abs() < 14.0) {
            continue;
        }
        labelled.push((px, py));
        let end = px > frame.right - 60.0;
        let (anchor, dx) = if end { (Anchor::End, -7.0) } else { (Anchor::Start, 7.0) };
        plot.svg.text("name", (px + dx, py), anchor, &short(cell));
    }
    plot.svg
}
