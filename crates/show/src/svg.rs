//! How is a picture written? Lines, text and shapes as SVG, every string escaped here.
//!
//! A picture is drawn once and fills its column. The style of the page makes letters larger, in units of the view
//! box, where that is narrow: a picture leaves them room.

use std::fmt;

use tcptoll_core::printable::{line, lines};
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
    /// The class of the line that was drawn last; another of the same goes on with its element.
    line: Option<String>,
}

impl fmt::Display for Svg {
    /// As markup.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { label, body, height, .. } = self;
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
        self.line = None;
    }

    /// An element of a name, with its attributes and a tooltip if there is any.
    fn element(&mut self, name: &str, class: &str, attributes: &str, tooltip: &str) {
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        let end = if tooltip.is_empty() { "/>" } else { &format!(">{}</{name}>", title(tooltip)) };
        self.put(&format!("<{name}{class}{attributes}{end}"));
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
        const END: &str = "\"/>";
        if self.line.as_deref() == Some(class) {
            self.body.truncate(self.body.len() - END.len());
            self.body += &(through(&[from, to]) + END);
        } else {
            self.path(class, &[from, to], false);
            self.line = Some(class.to_owned());
        }
    }

    /// A line through points, or with `closed` an area.
    pub fn path(&mut self, class: &str, points: &[(f64, f64)], closed: bool) {
        let end = if closed { "z" } else { "" };
        self.element("path", class, &format!(" d=\"{}{end}\"", through(points)), "");
    }

    /// A box.
    pub fn rect(&mut self, class: &str, at: (f64, f64), size: (f64, f64), tooltip: &str) {
        self.element("rect", class, &place(at, size), tooltip);
    }

    /// Places of equal width in a box, each with a tooltip: `words` with the texts of the place between them. They
    /// are made when the picture is pointed at, so that they take little room; a place without texts has none.
    pub fn hits(
        &mut self,
        at: (f64, f64),
        size: (f64, f64),
        words: &[String],
        texts: &[Vec<String>],
    ) {
        let words: Vec<String> = words.iter().map(|text| line(text)).collect();
        let texts: Vec<String> = texts.iter().map(|texts| texts.join(";")).collect();
        let [words, texts] = [words, texts].map(|all| escape(&all.join("\n")));
        let data = format!("{} data-words=\"{words}\" data-texts=\"{texts}\"", place(at, size));
        self.element("rect", "hits", &data, "");
    }

    /// A dot.
    pub fn dot(&mut self, class: &str, at: (f64, f64), radius: f64, tooltip: &str) {
        let (x, y) = (round(at.0), round(at.1));
        self.element("circle", class, &format!(" cx=\"{x}\" cy=\"{y}\" r=\"{radius}\""), tooltip);
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
            Anchor::Start => "",
            Anchor::Middle => "m",
            Anchor::End => "e",
        };
        let class = format!("{class} {anchor}");
        let class = match class.trim() {
            "" => String::new(),
            class => format!(" class=\"{class}\""),
        };
        let (x, y, text) = (round(at.0), round(at.1), escape(text));
        self.put(&format!("<text{class} x=\"{x}\" y=\"{y}\">{text}</text>"));
    }
}

/// Attributes of a box.
fn place(at: (f64, f64), size: (f64, f64)) -> String {
    let (x, y, w, h) = (round(at.0), round(at.1), round(size.0), round(size.1));
    format!(" x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\"")
}

/// The commands of a path through points, in tenths of a unit, each from the one before: these are short.
fn through(points: &[(f64, f64)]) -> String {
    let tenths = |value: f64| (round(value) * 10.0).round() as i64;
    let mut all = points.iter().map(|(x, y)| (tenths(*x), tenths(*y)));
    let Some(mut last) = all.next() else { return String::new() };
    let mut steps: Vec<(i64, i64)> = Vec::new();
    for next in all {
        let (dx, dy) = (next.0 - last.0, next.1 - last.1);
        last = next;
        let straight_on = |(x, y): &(i64, i64)| {
            (dx == 0 && *x == 0 && dy * y >= 0) || (dy == 0 && *y == 0 && dx * x >= 0)
        };
        match steps.last_mut() {
            Some(before) if straight_on(before) => *before = (before.0 + dx, before.1 + dy),
            Some(_) if (dx, dy) == (0, 0) => {}
            _ => steps.push((dx, dy)),
        }
    }
    let first = points.first().map_or((0, 0), |(x, y)| (tenths(*x), tenths(*y)));
    let mut out = "M".to_owned();
    number(&mut out, first.0);
    number(&mut out, first.1);
    let mut command = 'M';
    for (dx, dy) in steps {
        let (next, parts) = match (dx, dy) {
            (_, 0) => ('h', &[dx][..]),
            (0, _) => ('v', &[dy][..]),
            _ => ('l', &[dx, dy][..]),
        };
        if next != command {
            out.push(next);
            command = next;
        }
        for part in parts {
            number(&mut out, *part);
        }
    }
    out
}

/// Adds a number of tenths, apart from the one before it.
fn number(out: &mut String, tenths: i64) {
    let (sign, whole, tenth) =
        (if tenths < 0 { "-" } else { "" }, tenths.abs() / 10, tenths.abs() % 10);
    if sign.is_empty() && out.ends_with(|c: char| c.is_ascii_digit()) {
        out.push(' ');
    }
    *out += sign;
    if whole > 0 || tenth == 0 {
        *out += &whole.to_string();
    }
    if tenth > 0 {
        *out += &format!(".{tenth}");
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
    if !text.contains(['&', '<', '>', '"', '\'']) {
        return text;
    }
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
    fn a_path_is_written_in_steps_of_tenths() {
        let points =
            [(50.0, 20.04), (50.5, 19.0), (51.0, 19.0), (60.0, 19.0), (60.0, 30.26), (59.96, 30.3)];
        assert_eq!(through(&points), "M50 20l.5-1h9.5v11.3");
        assert_eq!(through(&[(1.0, 2.0), (f64::NAN, 2.5)]), "M1 2l-1 .5");
        assert_eq!(through(&[(1.0, 2.0), (1.0, 2.0)]), "M1 2h0");
    }

    #[test]
    fn lines_of_a_class_are_one_element() {
        let mut svg = Svg::new(10.0);
        for y in [1.0, 2.0] {
            svg.line("grid", (0.0, y), (9.0, y));
        }
        svg.text("", (0.0, 1.0), Anchor::End, "a");
        svg.line("grid", (0.0, 3.0), (9.0, 3.0));
        let (first, then) =
            ("<path class=\"grid\" d=\"M0 1h9M0 2h9\"/>", "<path class=\"grid\" d=\"M0 3h9\"/>");
        assert_eq!(svg.body(), format!("{first}<text class=\"e\" x=\"0\" y=\"1\">a</text>{then}"));
    }

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
