//! The picture that a page begins with, as a file of its own: for documents, slides and chats.

use super::frame::STYLE;
use super::picture::Picture;
use super::view::ReportPage;
use crate::svg::{Anchor, Screen, Svg, escape};

/// What the page's own style leaves to the page.
const OWN_STYLE: &str = "svg { background: var(--paper); font-family: system-ui, sans-serif; }";

/// Letters of the heading in a line.
const ACROSS: usize = 90;

/// Height of the heading with one line, of a further line of it, and of a line of the legend.
const HEADING: f64 = 28.0;
const FURTHER: f64 = 17.0;
const LINE: f64 = 20.0;

/// Width of a letter of the legend, about, and of its dot with the space around.
const LETTER: f64 = 7.0;
const DOT: f64 = 34.0;

/// The picture with its heading and legend, in light and dark. None: the run has none.
pub(super) fn draw(view: &ReportPage) -> Option<String> {
    let (title, picture) = view.lead()?;
    let drawn = picture.both_svg().wide();
    let width = Screen::Wide.width();
    let mut head = Svg::new(0.0);
    let lines = textwrap::wrap(title, ACROSS);
    for (at, line) in lines.iter().enumerate() {
        head.text("name strong", (8.0, 19.0 + FURTHER * at as f64), Anchor::Start, line);
    }
    let heading = HEADING + FURTHER * lines.len().saturating_sub(1) as f64;
    let below = heading + legend(&mut head, picture, (width, heading));
    let all = below + drawn.height();
    Some(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {all}\" width=\"{width}\" height=\"{all}\" \
         role=\"img\"><title>{title}</title><desc>{caption}</desc><style><![CDATA[{STYLE}{OWN_STYLE}]]></style>\
         {head}<g transform=\"translate(0 {below})\">{body}</g></svg>\n",
        title = escape(title),
        caption = escape(picture.caption()),
        head = head.body(),
        body = drawn.body(),
    ))
}

/// Draws the arms' colours and names below the heading; the height that they take.
fn legend(head: &mut Svg, picture: &Picture, (width, heading): (f64, f64)) -> f64 {
    let mut at = (8.0, heading + LINE / 2.0);
    for arm in picture.legend() {
        let wide = DOT + arm.name().chars().count() as f64 * LETTER;
        if at.0 > 8.0 && at.0 + wide > width {
            at = (8.0, at.1 + LINE);
        }
        let shape = if arm.class().ends_with("dash") { "hollow" } else { "full" };
        head.dot(&format!("{} {shape}", arm.class()), (at.0 + 6.0, at.1), 5.0, "");
        head.text("", (at.0 + 17.0, at.1 + 4.0), Anchor::Start, arm.name());
        at.0 += wide;
    }
    if picture.legend().is_empty() { 0.0 } else { at.1 + LINE / 2.0 - heading }
}
