//! How is a picture written? Lines, text and shapes as SVG, every string escaped here.
//!
//! Each picture is drawn twice, for wide and for narrow screens, so that its letters stay readable
//! on a phone; CSS shows one of the two.

use std::fmt::{self, Write as _};

use serde::{Serialize, Serializer};
use tcptoll_core::printable::lines;
use tcptoll_core::sheet::Markup;

/// What screen a picture is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Screen {
    /// From 640 px, and paper.
    Wide,
    /// A phone.
    Narrow,
}

impl Screen {
    /// Units of the view box.
    pub fn width(self) -> f64 {
        match self {
            Self::Wide => 800.0,
            Self::Narrow => 340.0,
        }
    }
}

/// A picture, drawn for both screens; CSS shows one.
#[derive(Clone, Debug)]
pub struct TwoScreens {
    label: String,
    wide: Svg,
    narrow: Svg,
}

/// Draws for both screens.
pub fn for_both(label: &str, draw: impl Fn(Screen) -> Svg) -> TwoScreens {
    TwoScreens { label: label.to_owned(), wide: draw(Screen::Wide), narrow: draw(Screen::Narrow) }
}

impl TwoScreens {
    /// As markup of a page.
    pub fn markup(&self) -> Markup {
        Markup(self.to_string())
    }

    /// The one for a wide screen.
    pub fn wide(&self) -> &Svg {
        &self.wide
    }
}

impl fmt::Display for TwoScreens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (svg, class, screen) in
            [(&self.wide, "wide", Screen::Wide), (&self.narrow, "narrow", Screen::Narrow)]
        {
            write!(
                f,
                "<svg class=\"{class}\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">{}</svg>",
                screen.width(),
                svg.height,
                escape(&self.label),
                svg.body
            )?;
        }
        Ok(())
    }
}

impl Serialize for TwoScreens {
    /// As markup.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Class that gives an arm its colour (and, from the tenth on, its dashes) in every picture.
pub fn arm_class(at: usize) -> String {
    format!("a{}{}", at % 9, if at >= 9 { " dash" } else { "" })
}

/// A picture in the making.
#[derive(Clone, Debug, Default)]
pub struct Svg {
    body: String,
    height: f64,
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
        Self { body: String::new(), height }
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

    /// A text.
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
    fn a_picture_is_marked_up_for_both_screens_with_its_label_escaped() {
        let both = for_both("a > b", |screen| {
            let mut svg = Svg::new(if screen == Screen::Wide { 120.5 } else { 200.0 });
            svg.text("name", (1.0, 2.0), Anchor::Start, "<wide> 800");
            svg
        });
        let markup = both.to_string();
        assert!(markup.starts_with("<svg class=\"wide\" viewBox=\"0 0 800 120.5\""), "{markup}");
        assert!(markup.contains("<svg class=\"narrow\" viewBox=\"0 0 340 200\""), "{markup}");
        assert_eq!(markup.matches("aria-label=\"a &gt; b\"").count(), 2);
        assert_eq!(markup.matches("&lt;wide&gt; 800</text></svg>").count(), 2);
    }
}
