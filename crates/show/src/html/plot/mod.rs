//! What have pictures in common? Two scales in a frame, axes with ticks and labels, marks at values, and
//! a key. A picture says what is drawn; where its parts stand is decided here.

mod scale;

pub use scale::{Scale, Span};

use crate::svg::{Anchor, Screen, Svg};
use crate::{clean, number};

/// The rectangle between the axes, in units of the view box.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Where the vertical axis stands.
    pub left: f64,
    /// The other end of the horizontal axis.
    pub right: f64,
    /// The upper end of the vertical axis.
    pub top: f64,
    /// Where the horizontal axis stands.
    pub bottom: f64,
    /// What is free at the right of it.
    pub room: f64,
}

/// Room at the right for half a tick.
const HALF: f64 = 14.0;

/// Between a tick and the axis.
const BESIDE: f64 = 6.0;

/// Between two ticks at least.
const GAP: f64 = 3.0;

/// How wide a tick is in a broad font, in units of the view box.
fn breadth(text: &str) -> f64 {
    clean::columns(text) as f64 * 7.7
}

impl Frame {
    /// The whole width of a screen but the room for ticks at the left and for half a tick at the right.
    pub fn across(screen: Screen, left: f64, top: f64, bottom: f64) -> Self {
        Self::between((left, screen.width() - HALF), top, bottom)
    }

    /// From left to right, where half a tick has room beyond it.
    pub fn between((left, right): (f64, f64), top: f64, bottom: f64) -> Self {
        Self { left, right, top, bottom, room: HALF }
    }

    /// The same, begun so far right that ticks of the vertical axis have room.
    pub fn beside(self, ticks: &[(f64, String)]) -> Self {
        let room = ticks.iter().map(|(_, text)| breadth(text) + BESIDE).fold(0.0, f64::max);
        Self { left: self.left.max(room), ..self }
    }

    /// The same, with other room at the right.
    pub fn with_room(self, room: f64) -> Self {
        Self { right: self.right + self.room - room, room, ..self }
    }
}

/// A picture with two scales.
#[derive(Clone, Debug)]
pub struct Plot {
    /// What is drawn so far; for what has no place on the scales.
    pub svg: Svg,
    /// Where the axes stand.
    pub frame: Frame,
    /// Places along the bottom.
    pub x: Scale,
    /// Places from the bottom up.
    pub y: Scale,
}

impl Plot {
    /// An empty picture with room for ticks and labels `below` the frame.
    pub fn new(frame: Frame, below: f64, x: Scale, y: Scale) -> Self {
        Self::on(Svg::new(frame.bottom + below), frame, x, y)
    }

    /// A part of a larger picture.
    pub fn on(svg: Svg, frame: Frame, x: Scale, y: Scale) -> Self {
        Self { svg, frame, x, y }
    }

    /// A picture without a vertical scale: its rows stand where the picture puts them.
    pub fn of_rows(frame: Frame, below: f64, x: Scale) -> Self {
        let y = Scale::between(0.0, 1.0, frame.bottom, frame.top);
        Self::new(frame, below, x, y)
    }

    /// The place of two values.
    pub fn at(&self, (x, y): (f64, f64)) -> (f64, f64) {
        (self.x.at(x), self.y.at(y))
    }

    /// Grid lines over the whole width, each with its text at the left.
    pub fn y_ticks(&mut self, ticks: impl IntoIterator<Item = (f64, String)>) {
        let Frame { left, right, .. } = self.frame;
        for (value, text) in ticks {
            let y = self.y.at(value);
            self.svg.line("grid", (left, y), (right, y));
            self.svg.text("tick", (left - BESIDE, y + 4.0), Anchor::End, &text);
        }
    }

    /// Round values of the vertical scale, `most` at most.
    pub fn y_axis(&mut self, most: usize, text: impl Fn(f64) -> String) {
        self.y_ticks(ticks(&self.y, most, text));
    }

    /// Round values of the horizontal scale, `most` at most, below the axis; with `grid` also a line
    /// up to the top.
    pub fn x_ticks(&mut self, most: usize, grid: bool, text: impl Fn(f64) -> String) {
        let Frame { top, bottom, right, room, .. } = self.frame;
        let mut free = f64::MIN;
        for value in self.x.ticks(most) {
            let x = self.x.at(value);
            if grid {
                self.svg.line("grid", (x, top), (x, bottom));
            }
            let text = text(value);
            let breadth = breadth(&text);
            // None may reach beyond the picture, and of two that would touch the first is written.
            let from = (x - breadth / 2.0).min(right + room - breadth).max(0.0);
            if from > free {
                let place = (from + breadth / 2.0, bottom + 16.0);
                self.svg.text("tick", place, Anchor::Middle, &text);
                free = from + breadth + GAP;
            }
        }
    }

    /// The horizontal axis.
    pub fn base(&mut self) {
        let Frame { left, right, bottom, .. } = self.frame;
        self.svg.line("axis", (left, bottom), (right, bottom));
    }

    /// A horizontal axis of latencies, in µs, with a grid.
    pub fn time_axis(&mut self, most: usize) {
        self.x_ticks(most, true, number::tick);
        self.base();
    }

    /// What the vertical axis shows, above it.
    pub fn y_label(&mut self, text: &str) {
        self.svg.text("label", (4.0, 12.0), Anchor::Start, text);
    }

    /// What the horizontal axis shows, at its end and so far below it.
    pub fn x_label(&mut self, below: f64, text: &str) {
        let Frame { right, bottom, .. } = self.frame;
        self.svg.text("label", (right, bottom + below), Anchor::End, text);
    }

    /// What belongs together, with a class and a tooltip.
    pub fn group(&mut self, class: &str, tooltip: &str, draw: impl FnOnce(&mut Self)) {
        self.svg.open(class, tooltip);
        draw(self);
        self.svg.close();
    }

    /// A line through values.
    pub fn line(&mut self, class: &str, values: impl IntoIterator<Item = (f64, f64)>) {
        let points: Vec<(f64, f64)> = values.into_iter().map(|at| self.at(at)).collect();
        self.svg.path(class, &points, false);
    }

    /// The area between lower and upper values, each at its place: `[x, lower, upper]`.
    pub fn band(&mut self, class: &str, values: impl IntoIterator<Item = [f64; 3]>) {
        let values: Vec<[f64; 3]> = values.into_iter().collect();
        let over = values.iter().map(|[x, _, upper]| self.at((*x, *upper)));
        let under = values.iter().rev().map(|[x, lower, _]| self.at((*x, *lower)));
        let points: Vec<(f64, f64)> = over.chain(under).collect();
        self.svg.path(class, &points, true);
    }

    /// A band over the whole width between two values.
    pub fn across(&mut self, class: &str, [lower, upper]: [f64; 2], tooltip: &str) {
        let Frame { left, right, .. } = self.frame;
        let size = (right - left, self.y.at(lower) - self.y.at(upper));
        self.svg.rect(class, (left, self.y.at(upper)), size, tooltip);
    }

    /// A line over the whole width at a value.
    pub fn level(&mut self, class: &str, value: f64) {
        let Frame { left, right, .. } = self.frame;
        self.svg.line(class, (left, self.y.at(value)), (right, self.y.at(value)));
    }

    /// A dot at values.
    pub fn dot(&mut self, class: &str, at: (f64, f64), radius: f64, tooltip: &str) {
        self.svg.dot(class, self.at(at), radius, tooltip);
    }

    /// A range from value to value at a place along the bottom, with marks of half a width at its ends.
    pub fn whisker(&mut self, x: f64, ends: [f64; 2], half: f64) {
        let [lower, upper] = ends.map(|end| self.y.at(end));
        self.svg.line("whisker", (x, lower), (x, upper));
        for end in [lower, upper] {
            self.svg.line("whisker", (x - half, end), (x + half, end));
        }
    }

    /// What the lines are, below the picture: a piece of each with its class and its name.
    pub fn key<'a>(
        &mut self,
        below: f64,
        length: f64,
        lines: impl IntoIterator<Item = (String, &'a str)>,
    ) {
        for (at, (class, name)) in lines.into_iter().enumerate() {
            let y = self.frame.bottom + below + KEY * at as f64;
            self.svg.line(&class, (6.0, y - 4.0), (6.0 + length, y - 4.0));
            self.svg.text("name", (14.0 + length, y), Anchor::Start, name);
        }
    }
}

/// Round values of a scale, `most` at most, with their texts.
pub fn ticks(scale: &Scale, most: usize, text: impl Fn(f64) -> String) -> Vec<(f64, String)> {
    scale.ticks(most).into_iter().map(|value| (value, text(value))).collect()
}

/// Height of a line of a key.
pub const KEY: f64 = 18.0;

/// ` (log)` behind the label of a logarithmic axis.
pub fn log_note(scale: &Scale) -> &'static str {
    if scale.is_log() { " (log)" } else { "" }
}

/// A tick of an axis of seconds.
pub fn seconds(s: f64) -> String {
    format!("{} s", number::trimmed(s))
}
