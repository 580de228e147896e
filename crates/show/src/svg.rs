//! How is a picture written? Lines, text and shapes as SVG, every string escaped here.
//!
//! A picture is drawn once and fills its column. The style of the page makes letters larger, in units of the view
//! box, where that is narrow: a picture leaves them room.

use std::fmt::{self, Write as _};

use tcptoll_core::printable::lines;
use tcptoll_core::sheet::Markup;

/// Units of the view box from left to right. On a phone letters are of 12.5, and at most 7.7 wide.
pub const WIDTH: f64 = 480.0;

/// Class that gives an arm its colour (and, from the tenth on, its dashes) in every picture.
pub fn arm_class(at: usize) -> String {
    format!("a{}{}", at % 9, if at >= 9 { " dash" } else { "" })
}

/// A picture.
#[derive(Clone, Debug, Default)]
pub struct Svg {
    label: String,
    body: String,
    height: f64,
}

impl fmt::Display for Svg {
    /// As markup.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { label, body, height } = self;
        let label = escape(label);
        write!(
            f,
            "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{label}\">{body}</svg>"
        )
    }
}

impl From<Svg> for Markup {
    fn from(svg: Svg) -> Self {
        Self(svg.to_string())
    }
}

/// Where a text stands relative to its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

impl Svg {
    /// An empty picture of a height.
    pub fn new(height: f64) -> Self {
        Self { height, ..Self::default() }
    }

    /// The same, with what it shows in words.
    #[must_use]
    pub fn labelled(self, label: &str) -> Self {
        Self { label: label.to_owned(), ..self }
    }

    /// Its height, in units of the view box.
    pub fn height(&self) -> f64 {
        self.height
    }

    /// What has been drawn.
    pub fn body(&self) -> &str {
        &self.body
    }

    fn put(&mut self, element: &str) {
        self.body.push_str(element);
    }

    /// Opens a group of a class, with a tooltip if there is any.
    pub fn open(&mut self, class: &str, tooltip: &str) {
        self.put(&format!("<g class=\"{class}\">{}", title(tooltip)));
    }

    /// Closes what [`Svg::open`] opened.
    pub fn close(&mut self) {
        self.put("</g>");
    }

    /// Begins a link to a place on the page.
    pub fn open_link(&mut self, to: &str) {
        self.put(&format!("<a href=\"{}\">", escape(to)));
    }

    /// Ends what [`Svg::open_link`] began.
    pub fn close_link(&mut self) {
        self.put("</a>");
    }

    /// A straight line.
    pub fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let (x1, y1, x2, y2) = (round(from.0), round(from.1), round(to.0), round(to.1));
        self.put(&format!(
            "<line class=\"{class}\" x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"/>"
        ));
    }

    /// A line through points, or with `closed` an area.
    pub fn path(&mut self, class: &str, points: &[(f64, f64)], closed: bool) {
        let mut d = String::new();
        for (at, (x, y)) in points.iter().enumerate() {
            let command = if at == 0 { 'M' } else { 'L' };
            let _ = write!(d, "{command}{} {}", round(*x), round(*y));
        }
        let end = if closed { "Z" } else { "" };
        self.put(&format!("<path class=\"{class}\" d=\"{d}{end}\"/>"));
    }

    /// A box.
    pub fn rect(&mut self, class: &str, at: (f64, f64), size: (f64, f64), tooltip: &str) {
        let (x, y, w, h) = (round(at.0), round(at.1), round(size.0), round(size.1));
        let title = title(tooltip);
        self.put(&format!(
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\">{title}</rect>"
        ));
    }

    /// A dot.
    pub fn dot(&mut self, class: &str, at: (f64, f64), radius: f64, tooltip: &str) {
        let (x, y, title) = (round(at.0), round(at.1), title(tooltip));
        self.put(&format!(
            "<circle class=\"{class}\" cx=\"{x}\" cy=\"{y}\" r=\"{radius}\">{title}</circle>"
        ));
    }

    /// A hollow cross: what does not count.
    pub fn cross(&mut self, class: &str, at: (f64, f64), radius: f64, tooltip: &str) {
        let (x, y) = at;
        self.open(class, tooltip);
        self.line("stroke", (x - radius, y - radius), (x + radius, y + radius));
        self.line("stroke", (x - radius, y + radius), (x + radius, y - radius));
        // Something to point at: the strokes alone are too thin.
        self.dot("hit", at, radius + 2.0, "");
        self.close();
    }

    /// A text: its letters stand around the height of the point.
    pub fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str) {
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
}

fn title(tooltip: &str) -> String {
    if tooltip.is_empty() { String::new() } else { format!("<title>{}</title>", escape(tooltip)) }
}

fn round(value: f64) -> f64 {
    if value.is_finite() { (value * 10.0).round() / 10.0 } else { 0.0 }
}

/// For text and quoted attributes of HTML and SVG.
pub fn escape(text: &str) -> String {
    let text = lines(text);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_marked_up_with_its_label_escaped() {
        let mut svg = Svg::new(120.5);
        svg.text("name", (1.0, 2.0), Anchor::Start, "<480>");
        let markup = svg.labelled("a > b").to_string();
        assert!(markup.starts_with("<svg viewBox=\"0 0 480 120.5\""), "{markup}");
        assert!(markup.contains("aria-label=\"a &gt; b\""), "{markup}");
        assert!(markup.ends_with("&lt;480&gt;</text></svg>"), "{markup}");
    }
}
