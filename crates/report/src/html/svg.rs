//! How is a picture drawn? Axes, text and marks as SVG, every string escaped here.
//!
//! Each picture is drawn twice, for wide and for narrow screens, so that its letters stay readable
//! on a phone; CSS shows one of the two.

use std::fmt::Write as _;

use crate::number;

/// What screen a picture is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Screen {
    /// From 640 px, and paper.
    Wide,
    /// A phone.
    Narrow,
}

impl Screen {
    /// Units of the view box.
    pub(crate) fn width(self) -> f64 {
        match self {
            Self::Wide => 800.0,
            Self::Narrow => 340.0,
        }
    }
}

/// Draws for both screens; CSS shows one.
pub(crate) fn for_both(label: &str, draw: impl Fn(Screen) -> Svg) -> String {
    let wide = draw(Screen::Wide).finish("wide", label, Screen::Wide.width());
    wide + &draw(Screen::Narrow).finish("narrow", label, Screen::Narrow.width())
}

/// Class that gives an arm its colour (and, from the tenth on, its dashes) in every picture.
pub(crate) fn arm_class(at: usize) -> String {
    format!("a{}{}", at % 9, if at >= 9 { " dash" } else { "" })
}

/// A picture in the making.
#[derive(Clone, Debug, Default)]
pub(crate) struct Svg {
    body: String,
    height: f64,
}

/// Where a text stands relative to its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

impl Svg {
    /// An empty picture of a height.
    pub(crate) fn new(height: f64) -> Self {
        Self { body: String::new(), height }
    }

    fn finish(self, class: &str, label: &str, width: f64) -> String {
        format!(
            "<svg class=\"{class}\" viewBox=\"0 0 {width} {}\" role=\"img\" aria-label=\"{}\">{}</svg>",
            self.height,
            escape(label),
            self.body
        )
    }

    fn put(&mut self, element: &str) {
        self.body.push_str(element);
    }

    /// Opens a group of a class, with a tooltip if there is any.
    pub(crate) fn open(&mut self, class: &str, tooltip: &str) {
        self.put(&format!("<g class=\"{class}\">{}", title(tooltip)));
    }

    /// Closes what [`Svg::open`] opened.
    pub(crate) fn close(&mut self) {
        self.put("</g>");
    }

    /// A straight line.
    pub(crate) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let (x1, y1, x2, y2) = (round(from.0), round(from.1), round(to.0), round(to.1));
        self.put(&format!(
            "<line class=\"{class}\" x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"/>"
        ));
    }

    /// A line through points, or with `closed` an area.
    pub(crate) fn path(&mut self, class: &str, points: &[(f64, f64)], closed: bool) {
        let mut d = String::new();
        for (at, (x, y)) in points.iter().enumerate() {
            let command = if at == 0 { 'M' } else { 'L' };
            let _ = write!(d, "{command}{} {}", round(*x), round(*y));
        }
        let end = if closed { "Z" } else { "" };
        self.put(&format!("<path class=\"{class}\" d=\"{d}{end}\"/>"));
    }

    /// A box.
    pub(crate) fn rect(&mut self, class: &str, at: (f64, f64), size: (f64, f64), tooltip: &str) {
        let (x, y, w, h) = (round(at.0), round(at.1), round(size.0), round(size.1));
        let title = title(tooltip);
        self.put(&format!(
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\">{title}</rect>"
        ));
    }

    /// A dot.
    pub(crate) fn dot(&mut self, class: &str, at: (f64, f64), radius: f64, tooltip: &str) {
        let (x, y, title) = (round(at.0), round(at.1), title(tooltip));
        self.put(&format!(
            "<circle class=\"{class}\" cx=\"{x}\" cy=\"{y}\" r=\"{radius}\">{title}</circle>"
        ));
    }

    /// A hollow cross: what does not count.
    pub(crate) fn cross(&mut self, class: &str, at: (f64, f64), radius: f64, tooltip: &str) {
        let (x, y) = at;
        self.open(class, tooltip);
        self.line("stroke", (x - radius, y - radius), (x + radius, y + radius));
        self.line("stroke", (x - radius, y + radius), (x + radius, y - radius));
        // Something to point at: the strokes alone are too thin.
        self.dot("hit", at, radius + 2.0, "");
        self.close();
    }

    /// A text.
    pub(crate) fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let (x, y, text) = (round(at.0), round(at.1), escape(text));
        self.put(&format!(
            "<text class=\"{class}\" x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>"
        ));
    }

    /// An axis of time along the bottom, with grid lines up to `top` and its unit in each label.
    pub(crate) fn time_axis(&mut self, scale: &Scale, top: f64, bottom: f64, most: usize) {
        for us in scale.ticks(most) {
            let x = scale.at(us);
            self.line("grid", (x, top), (x, bottom));
            let near_end = x > scale.to - 14.0;
            let anchor = if near_end { Anchor::End } else { Anchor::Middle };
            self.text("tick", (x, bottom + 16.0), anchor, &number::tick(us));
        }
        self.line("axis", (scale.from, bottom), (scale.to, bottom));
    }
}

fn title(tooltip: &str) -> String {
    if tooltip.is_empty() { String::new() } else { format!("<title>{}</title>", escape(tooltip)) }
}

fn round(value: f64) -> f64 {
    if value.is_finite() { (value * 10.0).round() / 10.0 } else { 0.0 }
}

/// For text and quoted attributes of HTML and SVG.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// From values to places on the paper, linear or logarithmic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    least: f64,
    most: f64,
    log: bool,
    /// Place of the least value.
    pub(crate) from: f64,
    /// Place of the greatest value.
    pub(crate) to: f64,
}

/// From this ratio of greatest to least on, an axis is logarithmic.
const SPANS_DECADES: f64 = 20.0;

impl Scale {
    /// A scale that holds all `values`; logarithmic if they span decades.
    pub(crate) fn fit(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let values: Vec<f64> = values.filter(|v| v.is_finite() && *v >= 0.0).collect();
        let least = values.iter().copied().filter(|v| *v > 0.0).reduce(f64::min).unwrap_or(1.0);
        let most = values.iter().copied().reduce(f64::max).unwrap_or(1.0).max(least);
        if most / least >= SPANS_DECADES {
            return Self { least: least * 0.9, most: most * 1.1, log: true, from, to };
        }
        let margin = ((most - least) * 0.04).max(most * 1e-4);
        Self { least: (least - margin).max(0.0), most: most + margin, log: false, from, to }
    }

    /// A logarithmic scale that holds all `values` above 0, with some room at both ends.
    pub(crate) fn log(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let values: Vec<f64> = values.filter(|v| v.is_finite() && *v > 0.0).collect();
        let least = values.iter().copied().reduce(f64::min).unwrap_or(1.0);
        let most = values.iter().copied().reduce(f64::max).unwrap_or(1.0);
        let room = (most / least).powf(0.05).max(1.000_5);
        Self { least: least / room, most: most * room, log: true, from, to }
    }

    /// A linear scale between two values.
    pub(crate) fn between(least: f64, most: f64, from: f64, to: f64) -> Self {
        let most = if most > least { most } else { least + least.abs().max(1e-9) * 1e-3 };
        Self { least, most, log: false, from, to }
    }

    /// A linear scale from 0.
    pub(crate) fn from_zero(most: f64, from: f64, to: f64) -> Self {
        Self { least: 0.0, most: most.max(1e-9), log: false, from, to }
    }

    /// Whether it is logarithmic.
    pub(crate) fn is_log(&self) -> bool {
        self.log
    }

    /// Place of a value.
    pub(crate) fn at(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.least) / self.least).ln() / (self.most / self.least).ln()
        } else {
            (value - self.least) / (self.most - self.least)
        };
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// Round values inside, at most about `most`.
    pub(crate) fn ticks(&self, most: usize) -> Vec<f64> {
        // Within a few times the least value, decades have no ticks to offer.
        if self.log && self.most / self.least > 5.0 {
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
        let of = |multiples: &[f64], every: i32| -> Vec<f64> {
            (first..=last)
                .filter(|exponent| exponent.rem_euclid(every) == 0)
                .flat_map(|e| multiples.iter().map(move |m| m * 10_f64.powi(e)))
                .filter(|v| *v >= self.least && *v <= self.most)
                .collect()
        };
        let finest = [of(&[1.0, 2.0, 5.0], 1), of(&[1.0], 1), of(&[1.0], 2)];
        let [_, _, coarsest] = finest.clone();
        finest.into_iter().find(|ticks| ticks.len() <= most).unwrap_or(coarsest)
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
    fn a_single_value_stands_in_the_middle_of_its_scale() {
        let scale = Scale::fit([50.0].into_iter(), 0.0, 100.0);
        assert!((scale.at(50.0) - 50.0).abs() < 1.0);
    }
}
