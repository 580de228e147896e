//! How is something drawn over the levels of a factor? Points with interval bars: on an axis of numbers
//! joined by a line, on one of categories told apart by their shape. Published figures are hollow
//! squares next to ours.
//!
//! Between categories there is no line, because a line says that there is something between two levels.
//! Several series over categories keep theirs, to be told apart.

use super::plot::{self, Frame, Plot, Scale, Span};
use crate::clean;
use crate::svg::{Anchor, Svg};

/// A point of a line.
#[derive(Clone, Debug)]
pub(super) struct Point {
    /// Place among the levels.
    pub(super) level: usize,
    /// Value, and the ends of its interval.
    pub(super) value: f64,
    pub(super) ci95: Option<[f64; 2]>,
    /// Colour of its arm.
    pub(super) class: String,
    pub(super) tooltip: String,
    /// A published value with its tooltip.
    pub(super) published: Option<(f64, String)>,
}

/// One line over the levels.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// What its points have in common; empty if there is only one line.
    pub(super) label: String,
    pub(super) points: Vec<Point>,
}

/// The levels along the bottom, ascending if they are numbers.
#[derive(Clone, Debug)]
pub(super) struct Levels {
    /// Name of the factor.
    pub(super) factor: String,
    /// Each level in words.
    pub(super) names: Vec<String>,
    /// Each level as a number, where all are.
    pub(super) numbers: Option<Vec<f64>>,
}

impl Levels {
    /// Numbers over more than two decades stand on a logarithmic axis.
    pub(super) fn is_log(&self) -> bool {
        self.numbers.as_ref().is_some_and(|numbers| {
            let least = numbers.iter().copied().fold(f64::INFINITY, f64::min);
            let most = numbers.iter().copied().fold(0.0, f64::max);
            least > 0.0 && most / least > 100.0
        })
    }

    /// Place of each level between `from` and `to`.
    fn places(&self, from: f64, to: f64) -> Vec<f64> {
        let (inner_from, inner_to) = (from + 24.0, to - 24.0);
        let Some(numbers) = &self.numbers else {
            let step = (inner_to - inner_from) / self.names.len().max(1) as f64;
            return (0..self.names.len()).map(|at| inner_from + (at as f64 + 0.5) * step).collect();
        };
        let scaled = |v: f64| if self.is_log() { v.ln() } else { v };
        let least = numbers.iter().copied().map(scaled).fold(f64::INFINITY, f64::min);
        let most = numbers.iter().copied().map(scaled).fold(f64::NEG_INFINITY, f64::max);
        let span = (most - least).max(1e-12);
        let place = |v: &f64| inner_from + (scaled(*v) - least) / span * (inner_to - inner_from);
        numbers.iter().map(place).collect()
    }
}

/// A picture over levels.
pub(super) struct Chart<'a> {
    pub(super) levels: Levels,
    pub(super) lines: Vec<Line>,
    /// What the vertical axis holds.
    pub(super) span: Span,
    /// A tick of it in words.
    pub(super) tick: &'a dyn Fn(f64) -> String,
    /// What it shows.
    pub(super) label: String,
    /// A band and a line to hold the points against.
    pub(super) margin: Option<[f64; 2]>,
    pub(super) one: bool,
}

/// All values of lines that must have room on the axis.
pub(super) fn values(lines: &[Line]) -> Vec<f64> {
    let values_of = |p: &Point| {
        let published = p.published.as_ref().map(|(value, _)| *value);
        [Some(p.value), p.ci95.map(|ci| ci[0]), p.ci95.map(|ci| ci[1]), published]
    };
    lines.iter().flat_map(|line| &line.points).flat_map(values_of).flatten().collect()
}

/// Draws it.
pub(super) fn draw(chart: &Chart<'_>) -> Svg {
    let frame = Frame::across(56.0, 24.0, 210.0);
    let y = chart.span.scale(frame.bottom, frame.top);
    let ticks = plot::ticks(&y, 6, chart.tick);
    let frame = frame.beside(&ticks);
    let x = Scale::between(0.0, 1.0, frame.left, frame.right);
    // Several lines are named below, with a piece of each.
    let keyed = if chart.lines.len() > 1 { chart.lines.as_slice() } else { &[] };
    let below = plot::TICKS_AND_LABEL + plot::KEY * keyed.len() as f64;
    let mut plot = Plot::new(frame, below, x, y);
    if let Some(margin) = chart.margin {
        plot.across("margin", margin, "within the margin");
    }
    plot.y_ticks(ticks);
    if chart.one {
        plot.level("none", 1.0);
    }
    plot.base();
    let log = if chart.one { "" } else { plot::log_note(&y) };
    plot.y_label(&format!("{}{log}", chart.label));
    let places = chart.levels.places(frame.left, frame.right);
    level_axis(&mut plot, &chart.levels, &places);
    // Between categories there is nothing that a line could pass through.
    let joined = chart.levels.numbers.is_some();
    let mark = |at: usize| if joined { Mark::Line(dash(at)) } else { Mark::Shape(at % SHAPES) };
    for (at, line) in chart.lines.iter().enumerate() {
        // Lines stand beside each other, so that one interval does not hide another.
        let aside = (at as f64 - (chart.lines.len() - 1) as f64 / 2.0) * 4.0;
        let aside = aside.clamp(-16.0, 16.0);
        one_line(&mut plot, line, mark(at), &|level| places[level] + aside);
    }
    for (at, line) in keyed.iter().enumerate() {
        let y = frame.bottom + plot::TICKS_AND_LABEL + plot::KEY * (at as f64 + 0.5);
        sample(&mut plot.svg, mark(at), y);
        let name = clean::shorten(&line.label, 60);
        plot.svg.text("name", (plot::PIECE + 8.0, y), Anchor::Start, &name);
    }
    plot.svg
}

/// How the points of one line belong together; colours belong to arms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    /// Joined by a line with these dashes.
    Line(&'static str),
    /// All of this shape.
    Shape(usize),
}

/// Shapes: dot, square, triangle, diamond.
const SHAPES: usize = 4;

/// A point of a shape.
fn shape(svg: &mut Svg, class: &str, shape: usize, (x, y): (f64, f64)) {
    let corners: &[(f64, f64)] = match shape {
        1 => &[(-3.5, -3.5), (3.5, -3.5), (3.5, 3.5), (-3.5, 3.5)],
        2 => &[(0.0, -4.0), (4.0, 3.0), (-4.0, 3.0)],
        3 => &[(0.0, -4.5), (4.5, 0.0), (0.0, 4.5), (-4.5, 0.0)],
        _ => return svg.dot(class, (x, y), 3.5, ""),
    };
    let corners: Vec<(f64, f64)> = corners.iter().map(|(dx, dy)| (x + dx, y + dy)).collect();
    svg.path(class, &corners, true);
}

/// What a line looks like, for its name.
fn sample(svg: &mut Svg, mark: Mark, y: f64) {
    match mark {
        Mark::Line(dash) => svg.line(&format!("join {dash}"), (0.0, y), (plot::PIECE, y)),
        Mark::Shape(which) => shape(svg, "sample", which, (plot::PIECE / 2.0, y)),
    }
}

/// Lines differ by their dashes.
fn dash(at: usize) -> &'static str {
    ["d0", "d1", "d2", "d3"][at % 4]
}

fn level_axis(plot: &mut Plot, levels: &Levels, places: &[f64]) {
    let Frame { right, bottom, .. } = plot.frame;
    let svg = &mut plot.svg;
    let mut free = f64::MIN;
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by(|a, b| places[*a].total_cmp(&places[*b]));
    let pitch = (right - 60.0) / places.len().max(1) as f64;
    let room = if levels.numbers.is_some() { 12 } else { ((pitch / 7.0) as usize).max(4) };
    for at in order {
        let x = places[at];
        svg.line("grid", (x, bottom), (x, bottom + 4.0));
        let name = clean::shorten(&levels.names[at], room);
        let half = clean::columns(&name) as f64 * 3.6;
        // Levels too close to each other are not all named; their points are.
        if x - half > free {
            svg.text("", (x, bottom + 12.0), Anchor::Middle, &name);
            free = x + half + 2.0;
        }
    }
    let log = if levels.is_log() { " (log)" } else { "" };
    let name = clean::shorten(&levels.factor, 50);
    plot.x_label(&format!("{name}{log}"));
}

fn one_line(plot: &mut Plot, line: &Line, mark: Mark, x: &dyn Fn(usize) -> f64) {
    let y = plot.y;
    if let Mark::Line(dash) = mark {
        let path: Vec<(f64, f64)> =
            line.points.iter().map(|p| (x(p.level), y.at(p.value))).collect();
        plot.svg.path(&format!("join {dash}"), &path, false);
    }
    for p in &line.points {
        let at = x(p.level);
        plot.group(&p.class, &p.tooltip, |plot| {
            if let Some(ends) = p.ci95 {
                plot.whisker(at, ends, 3.0);
            }
            let which = if let Mark::Shape(which) = mark { which } else { 0 };
            shape(&mut plot.svg, "full", which, (at, y.at(p.value)));
        });
        if let Some((value, tooltip)) = &p.published {
            plot.group(&p.class, "", |plot| {
                let corner = (at + 4.0, y.at(*value) - 3.0);
                plot.svg.rect("hollow", corner, (6.0, 6.0), tooltip);
            });
        }
    }
}
