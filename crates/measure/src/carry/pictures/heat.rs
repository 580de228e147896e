//! Which way of sending is the fastest at each size? A cell per size and way: its goodput relative to
//! the greatest of all, as a figure and as a colour.

use super::lines::{Line, Lines};
use super::over::spoken;
use tcptoll_show::html::plot::{Frame, Plot, Scale};
use tcptoll_show::own::Picture;
use tcptoll_show::svg::{Anchor, Screen, Svg, for_both};
use tcptoll_show::{clean, effect, number};

/// More sizes than this stand in rows on wide screens too.
const ACROSS: usize = 17;

/// Shades of the colour.
const SHADES: f64 = 10.0;

/// Ways whose goodput differs by less are alike for a caption.
const ALIKE: f64 = 1.05;

/// The picture; `None` with fewer than two ways or sizes, and of times.
pub(super) fn picture(lines: &Lines<'_>) -> Option<Picture> {
    let drawn = lines.rate && lines.all.len() > 1 && lines.sizes().len() > 1;
    let best = lines.points().map(|point| point.value).reduce(f64::max).filter(|_| drawn)?;
    let label =
        format!("Goodput per {} and way of sending, relative to the greatest", lines.size.noun);
    Some(Picture {
        both_svg: for_both(&label, |screen| draw(lines, best, screen)),
        caption: caption(lines, best),
        drawn: Vec::new(),
    })
}

/// Labels without the words that all begin with.
fn names<'a>(lines: &'a Lines<'_>) -> Vec<&'a str> {
    let labels: Vec<&str> = lines.all.iter().map(|line| line.label.as_str()).collect();
    // `nagle on` and `nagle off` keep their word.
    let long = labels.iter().any(|label| clean::columns(label) > 18);
    let from = if long { effect::common_words(&labels) } else { 0 };
    labels.into_iter().map(|label| &label[from..]).collect()
}

fn draw(lines: &Lines<'_>, best: f64, screen: Screen) -> Svg {
    let sizes = lines.sizes();
    let names = names(lines);
    let across = screen == Screen::Wide && sizes.len() <= ACROSS;
    // Places of a way and of a size: the one of columns, the other of rows.
    let (columns, rows) =
        if across { (sizes.len(), names.len()) } else { (names.len(), sizes.len()) };
    let longest = names.iter().map(|name| clean::columns(name)).max().unwrap_or(0) as f64;
    let left = if across { (longest * 6.8 + 14.0).clamp(60.0, 190.0) } else { 48.0 };
    let (top, height) = (24.0, if across { 34.0 } else { 26.0 });
    let frame = Frame::between((left, screen.width() - 2.0), top, top + height * rows as f64);
    let cell = (frame.right - left) / columns.max(1) as f64;
    let mut plot = Plot::of_rows(frame, 8.0, Scale::between(0.0, 1.0, left, frame.right));
    let heads: Vec<String> = sizes.iter().map(|size| number::size(*size)).collect();
    let ways: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let (over, beside) = if across { (&heads, &ways) } else { (&ways, &heads) };
    for (at, text) in over.iter().enumerate() {
        let text = clean::shorten(text, ((cell / 6.8) as usize).max(3));
        let x = left + (at as f64 + 0.5) * cell;
        plot.svg.text("tick", (x, top - 8.0), Anchor::Middle, &text);
    }
    for (at, text) in beside.iter().enumerate() {
        let text = clean::shorten(text, 26);
        let y = top + (at as f64 + 0.5) * height + 4.0;
        plot.svg.text("tick", (left - 8.0, y), Anchor::End, &text);
    }
    for (way, line) in lines.all.iter().enumerate() {
        for (size, bytes) in sizes.iter().enumerate() {
            let Some(point) = line.of_size(*bytes) else { continue };
            let (column, row) = if across { (size, way) } else { (way, size) };
            let corner = (left + column as f64 * cell, top + row as f64 * height);
            let share = point.value / best;
            let tooltip = format!("{}: {}", point.arm.name, number::bit_rate(point.value));
            plot.group("", &tooltip, |plot| {
                let shade = (share * SHADES).ceil().clamp(0.0, SHADES);
                let inner = (cell - 2.0, height - 2.0);
                plot.svg.rect(
                    &format!("heat h{shade}"),
                    (corner.0 + 1.0, corner.1 + 1.0),
                    inner,
                    "",
                );
                let place = (corner.0 + cell / 2.0, corner.1 + height / 2.0 + 4.0);
                plot.svg.text("cell", place, Anchor::Middle, &percent(share));
            });
        }
    }
    plot.svg
}

/// A share in at most four columns: `100`, `3.4`, `0.04`.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    let decimals = match percent {
        p if p >= 9.95 => 0,
        p if p >= 0.095 => 1,
        p if p >= 0.01 => 2,
        _ => return "0".to_owned(),
    };
    format!("{percent:.decimals$}")
}

/// From which size on the ways are alike, and where they are not.
fn caption(lines: &Lines<'_>, best: f64) -> String {
    let range = |size: f64| -> Option<f64> {
        let values: Vec<f64> = lines
            .all
            .iter()
            .filter_map(|line: &Line<'_>| Some(line.of_size(size)?.value))
            .collect();
        let least = values.iter().copied().reduce(f64::min)?;
        let most = values.iter().copied().reduce(f64::max)?;
        (values.len() > 1).then_some(most / least)
    };
    let ranges: Vec<(f64, f64)> =
        lines.sizes().into_iter().filter_map(|size| Some((size, range(size)?))).collect();
    let unlike = ranges.iter().rposition(|(_, ratio)| *ratio > ALIKE);
    let alike = match unlike {
        None => "At every size the ways of sending are within 5 % of each other.".to_owned(),
        Some(last) => ranges.get(last + 1).map_or_else(
            || {
                let ratio = ranges[last].1;
                format!(
                    "At the largest size the ways of sending differ by {}.",
                    number::ratio(ratio)
                )
            },
            |(size, _)| {
                format!(
                    "From {} on, the ways of sending are within 5 % of each other.",
                    spoken(*size)
                )
            },
        ),
    };
    format!(
        "{alike} Cells: percent of the greatest {}, {}.",
        lines.shown.words,
        number::bit_rate(best)
    )
}
