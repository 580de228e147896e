//! What have pictures in common? Two scales in a frame, axes with ticks and labels, marks at values, and
//! a key. A picture says what is drawn; where its parts stand is decided here.

use crate::svg::{Anchor, Svg, WIDTH};
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
    /// The whole width but the room for ticks at the left and for half a tick at the right.
    pub fn across(left: f64, top: f64, bottom: f64) -> Self {
        Self::between((left, WIDTH - HALF), top, bottom)
    }

    /// From left to right, where half a tick has room beyond it.
    pub fn between((left, right): (f64, f64), top: f64, bottom: f64) -> Self {
        Self { left, right, top, bottom, room: HALF }
    }

    /// The same, begun so far right that ticks of the vertical axis have room.
    #[must_use]
    pub fn beside(self, ticks: &[(f64, String)]) -> Self {
        let room = ticks.iter().map(|(_, text)| breadth(text) + BESIDE).fold(0.0, f64::max);
        Self { left: self.left.max(room), ..self }
    }

    /// The same, with other room at the right.
    #[must_use]
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
    pub(crate) fn y_ticks(&mut self, ticks: impl IntoIterator<Item = (f64, String)>) {
        let left = self.frame.left;
        let ticks: Vec<(f64, String)> = ticks.into_iter().collect();
        for (value, _) in &ticks {
            self.level("grid", *value);
        }
        for (value, text) in ticks {
            self.svg.text("", (left - BESIDE, self.y.at(value)), Anchor::End, &text);
        }
    }

    /// Round values of the vertical scale, `most` at most.
    pub fn y_axis(&mut self, most: usize, text: impl Fn(f64) -> String) {
        self.y_ticks(ticks(&self.y, most, text));
    }

    /// Round values of the horizontal scale, `most` at most, below the axis; with `grid` also a line
    /// up to the top.
    pub fn x_ticks(&mut self, most: usize, grid: bool, text: impl Fn(f64) -> String) {
        self.x_marks(grid, ticks(&self.x, most, text));
    }

    /// Values of the horizontal scale with their texts, as of [`Self::x_ticks`].
    pub fn x_marks(&mut self, grid: bool, ticks: impl IntoIterator<Item = (f64, String)>) {
        let Frame { top, bottom, right, room, .. } = self.frame;
        let mut free = f64::MIN;
        let ticks: Vec<(f64, String)> =
            ticks.into_iter().map(|(value, text)| (self.x.at(value), text)).collect();
        for (x, _) in ticks.iter().filter(|_| grid) {
            self.svg.line("grid", (*x, top), (*x, bottom));
        }
        for (x, text) in ticks {
            let breadth = breadth(&text);
            // None may reach beyond the picture, and of two that would touch the first is written.
            let from = (x - breadth / 2.0).min(right + room - breadth).max(0.0);
            if from > free {
                let place = (from + breadth / 2.0, bottom + 12.0);
                self.svg.text("", place, Anchor::Middle, &text);
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
        self.x_ticks(most, true, |us| number::tick(us, "us"));
        self.base();
    }

    /// What the vertical axis shows, above it.
    pub fn y_label(&mut self, text: &str) {
        self.svg.text("", (0.0, 8.0), Anchor::Start, text);
    }

    /// What the horizontal axis shows, at its end below the ticks.
    pub fn x_label(&mut self, text: &str) {
        let Frame { right, bottom, .. } = self.frame;
        self.svg.text("", (right, bottom + 29.0), Anchor::End, text);
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

    /// Places of equal width over the whole frame, to point at.
    pub(crate) fn hits(&mut self, words: &[String], texts: &[Vec<String>]) {
        let Frame { left, right, top, bottom, .. } = self.frame;
        self.svg.hits((left, top), (right - left, bottom - top), words, texts);
    }

    /// A range from value to value at a place along the bottom, with marks of half a width at its ends.
    pub fn whisker(&mut self, x: f64, ends: [f64; 2], half: f64) {
        let [lower, upper] = ends.map(|end| self.y.at(end));
        self.svg.line("whisker", (x, lower), (x, upper));
        for end in [lower, upper] {
            self.svg.line("whisker", (x - half, end), (x + half, end));
        }
    }

    /// What the lines are, at the end of the picture: a piece of each with its class and its name.
    pub fn key<'a>(&mut self, lines: impl ExactSizeIterator<Item = (String, &'a str)>) {
        let top = self.svg.height() - KEY * lines.len() as f64;
        for (at, (class, name)) in lines.enumerate() {
            let y = top + KEY * (at as f64 + 0.5);
            self.svg.line(&class, (0.0, y), (PIECE, y));
            self.svg.text("name", (PIECE + 8.0, y), Anchor::Start, name);
        }
    }
}

/// Round values of a scale, `most` at most, with their texts.
pub fn ticks(scale: &Scale, most: usize, text: impl Fn(f64) -> String) -> Vec<(f64, String)> {
    scale.ticks(most).into_iter().map(|value| (value, text(value))).collect()
}

/// Below the frame: ticks, and ticks with a label of the axis.
pub const TICKS: f64 = 20.0;
pub const TICKS_AND_LABEL: f64 = 38.0;

/// Height of a line of a key.
pub const KEY: f64 = 17.0;

/// Length of the piece of a line in a key.
pub(crate) const PIECE: f64 = 34.0;

/// ` (log)` behind the label of a logarithmic axis.
pub fn log_note(scale: &Scale) -> &'static str {
    if scale.is_log() { " (log)" } else { "" }
}

// From values to places, and round values for ticks.

/// How values go with places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Equal differences are equally far apart.
    Linear,
    /// Equal ratios are, with ticks at 1, 2 and 5 times powers of ten.
    Log,
    /// Equal ratios are, with ticks at powers of two: sizes in bytes.
    Bytes,
}

/// From values to places on the paper, linear or logarithmic.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    least: f64,
    most: f64,
    kind: Kind,
    /// Place of the least value.
    pub from: f64,
    /// Place of the greatest value.
    pub to: f64,
}

/// What a scale is to hold, before its places are known.
#[derive(Clone, Debug)]
pub(crate) enum Span {
    /// From 0 to a value.
    FromZero(f64),
    /// As of [`Scale::fit`].
    Fit(Vec<f64>),
    /// As of [`Scale::log`].
    Log(Vec<f64>),
}

impl Span {
    /// The scale for places.
    pub(crate) fn scale(&self, from: f64, to: f64) -> Scale {
        match self {
            Self::FromZero(most) => Scale::from_zero(*most, from, to),
            Self::Fit(values) => Scale::fit(values.iter().copied(), from, to),
            Self::Log(values) => Scale::log(values.iter().copied(), from, to),
        }
    }
}

/// From this ratio of greatest to least on, an axis is logarithmic.
const SPANS_DECADES: f64 = 20.0;

impl Scale {
    /// A scale that holds all `values`; logarithmic if they span decades.
    pub fn fit(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let values: Vec<f64> = values.filter(|v| v.is_finite() && *v >= 0.0).collect();
        let least = values.iter().copied().filter(|v| *v > 0.0).reduce(f64::min).unwrap_or(1.0);
        let most = values.iter().copied().reduce(f64::max).unwrap_or(1.0).max(least);
        if most / least >= SPANS_DECADES {
            return Self { least: least * 0.9, most: most * 1.1, kind: Kind::Log, from, to };
        }
        let margin = ((most - least) * 0.04).max(most * 1e-4);
        Self { least: (least - margin).max(0.0), most: most + margin, kind: Kind::Linear, from, to }
    }

    /// A logarithmic scale that holds all `values` above 0, with some room at both ends.
    pub fn log(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let values: Vec<f64> = values.filter(|v| v.is_finite() && *v > 0.0).collect();
        let least = values.iter().copied().reduce(f64::min).unwrap_or(1.0);
        let most = values.iter().copied().reduce(f64::max).unwrap_or(1.0);
        let room = (most / least).powf(0.05).max(1.000_5);
        Self { least: least / room, most: most * room, kind: Kind::Log, from, to }
    }

    /// The same for sizes in bytes, with ticks at powers of two.
    pub fn bytes(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        Self { kind: Kind::Bytes, ..Self::log(values, from, to) }
    }

    /// A linear scale between two values.
    pub fn between(least: f64, most: f64, from: f64, to: f64) -> Self {
        let most = if most > least { most } else { least + least.abs().max(1e-9) * 1e-3 };
        Self { least, most, kind: Kind::Linear, from, to }
    }

    /// A linear scale from 0.
    pub fn from_zero(most: f64, from: f64, to: f64) -> Self {
        Self { least: 0.0, most: most.max(1e-9), kind: Kind::Linear, from, to }
    }

    /// Whether it is logarithmic.
    pub fn is_log(&self) -> bool {
        self.kind != Kind::Linear
    }

    /// Place of a value.
    pub fn at(&self, value: f64) -> f64 {
        let share = if self.is_log() {
            (value.max(self.least) / self.least).ln() / (self.most / self.least).ln()
        } else {
            (value - self.least) / (self.most - self.least)
        };
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// The greatest value that has a place.
    pub fn most(&self) -> f64 {
        self.most
    }

    /// Round values inside, at most about `most`.
    pub fn ticks(&self, most: usize) -> Vec<f64> {
        if self.kind == Kind::Bytes {
            return self.byte_ticks(most);
        }
        // Within a few times the least value, decades have no ticks to offer.
        if self.is_log() && self.most / self.least > 5.0 {
            self.log_ticks(most)
        } else {
            self.linear_ticks(most)
        }
    }

    fn linear_ticks(&self, most: usize) -> Vec<f64> {
        let rough = (self.most - self.least) / most.max(2) as f64;
        let decade = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|n| n * decade).into_iter().find(|s| *s >= rough);
        let step = step.unwrap_or(decade * 10.0);
        let first = (self.least / step).ceil() as i64;
        let last = (self.most / step).floor() as i64;
        (first..=last).map(|n| n as f64 * step).collect()
    }

    fn log_ticks(&self, most: usize) -> Vec<f64> {
        let first = self.least.log10().floor() as i32;
        let last = self.most.log10().ceil() as i32;
        let ticks = |multiples: &[f64], every: i32| -> Vec<f64> {
            (first..=last)
                .filter(|exponent| exponent.rem_euclid(every) == 0)
                .flat_map(|e| multiples.iter().map(move |m| m * 10_f64.powi(e)))
                .filter(|v| *v >= self.least && *v <= self.most)
                .collect()
        };
        let finest = [ticks(&[1.0, 2.0, 5.0], 1), ticks(&[1.0], 1), ticks(&[1.0], 2)];
        let [_, _, coarsest] = finest.clone();
        finest.into_iter().find(|ticks| ticks.len() <= most).unwrap_or(coarsest)
    }

    /// Powers of two, or of 4, 8, 32 or 1,024 where those are too many.
    fn byte_ticks(&self, most: usize) -> Vec<f64> {
        let first = self.least.log2().ceil() as i32;
        let last = self.most.log2().floor() as i32;
        let ticks = |every: i32| -> Vec<f64> {
            let exponents = (first..=last).filter(|exponent| exponent.rem_euclid(every) == 0);
            exponents.map(|exponent| 2_f64.powi(exponent)).collect()
        };
        let found = [1, 2, 3, 5].into_iter().map(ticks).find(|ticks| ticks.len() <= most);
        found.unwrap_or_else(|| ticks(10))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        let linear = Scale::fit([37_000.0, 38_400.0].into_iter(), 0.0, 100.0);
        assert_eq!(linear.ticks(4), [37_000.0, 37_500.0, 38_000.0]);
        let log = Scale::fit([20.0, 3e6].into_iter(), 0.0, 100.0);
        assert_eq!(log.ticks(6), [100.0, 1e3, 1e4, 1e5, 1e6]);
        assert!(log.is_log() && !linear.is_log());
    }

    #[test]
    fn a_logarithmic_axis_close_to_one_has_plain_ticks() {
        let near = Scale::log([0.96, 1.04].into_iter(), 0.0, 100.0);
        assert_eq!(near.ticks(5).len(), 5);
        let far = Scale::log([0.1, 10.0].into_iter(), 0.0, 100.0);
        assert!((far.at(1.0) - 50.0).abs() < 1e-9);
        assert_eq!(far.ticks(9), [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0]);
    }

    #[test]
    fn sizes_have_ticks_at_powers_of_two() {
        let windows = Scale::bytes([2_048.0, 4_194_304.0].into_iter(), 0.0, 100.0);
        let kib = |n: f64| n * 1_024.0;
        assert_eq!(windows.ticks(6), [4.0, 16.0, 64.0, 256.0, 1_024.0, 4_096.0].map(kib));
        assert_eq!(windows.ticks(12).len(), 12);
        let messages = Scale::bytes([1.0, 4_194_304.0].into_iter(), 0.0, 100.0);
        assert_eq!(messages.ticks(5), [1.0, 32.0, 1_024.0, 32_768.0, 1_048_576.0]);
        assert!(messages.is_log());
    }

    #[test]
    fn a_single_value_stands_in_the_middle_of_its_scale() {
        let scale = Scale::fit([50.0].into_iter(), 0.0, 100.0);
        assert!((scale.at(50.0) - 50.0).abs() < 1.0);
    }
}
