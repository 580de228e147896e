//! What does the HTML report look like? One file with its style, script, pictures and numbers in it.
//!
//! `drawn` says what there is to draw, the other files draw it.

mod chart;
mod distribution;
pub(crate) mod drawn;
pub(crate) mod forest;
mod levels;
pub mod over_time;
pub(crate) mod picture;
pub mod plot;
mod rounds;

pub use self::drawn::of_arms;
use crate::clean::keep_units;
use crate::run::{Picture, Run};
use crate::svg::{Anchor, Svg, WIDTH, escape};
use tcptoll_core::sheet::Arm;

/// The picture that the page of a run begins with, as an SVG file. None: it has none.
pub fn picture(run: &Run) -> Option<String> {
    let (title, picture) = drawn::lead(run)?;
    Some(draw(&title, &picture, &picture.legend(run)))
}

/// The style of every page.
pub(crate) const STYLE: &str = include_str!("style.css");
/// Sorts tables, saves figures.
pub(crate) const SCRIPT: &str = include_str!("script.js");
/// Copies commands.
pub(crate) const COPY: &str = include_str!("copy.js");

// The picture that a page begins with, as a file of its own: for documents, slides and chats.

/// What the page's own style leaves to the page.
const OWN_STYLE: &str =
    "svg { background: var(--paper); font-family: system-ui, sans-serif; max-width: none; }";

/// Letters of the heading in a line.
const ACROSS: usize = 68;

/// Units around it.
const PAD: f64 = 6.0;

/// How large a unit is, px: what a window gives it at most.
const SCALE: f64 = 800.0 / WIDTH;

/// Height of the heading with one line, of a further line of it, and of a line of the legend.
const HEADING: f64 = 22.0;
const FURTHER: f64 = 13.0;
const LINE: f64 = 16.0;

/// Width of a letter of the legend, about, and of its dot with the space around.
const LETTER: f64 = 6.5;
const DOT: f64 = 24.0;

/// The picture with its heading and legend, in light and dark.
fn draw(title: &str, picture: &Picture, arms: &[Arm]) -> String {
    let drawn = &picture.svg;
    let mut head = Svg::new(0.0);
    let lines = textwrap::wrap(title, ACROSS);
    for (at, line) in lines.iter().enumerate() {
        head.text("name strong", (0.0, 8.0 + FURTHER * at as f64), Anchor::Start, line);
    }
    let heading = HEADING + FURTHER * lines.len().saturating_sub(1) as f64;
    let below = heading + legend(&mut head, arms, heading);
    let (wide, high) = (WIDTH + 2.0 * PAD, below + drawn.height() + 2.0 * PAD);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"-{PAD} -{PAD} {wide} {high}\" width=\"{px}\" height=\"{py}\" \
         role=\"img\"><title>{title}</title><desc>{caption}</desc><style><![CDATA[{STYLE}{OWN_STYLE}]]></style>\
         {head}<g transform=\"translate(0 {below})\">{body}</g></svg>\n",
        px = (wide * SCALE).round(),
        py = (high * SCALE).round(),
        title = escape(title),
        caption = escape(&keep_units(&picture.caption)),
        head = head.body(),
        body = drawn.body(),
    )
}

/// Draws the arms' colours and names below the heading; the height that they take.
fn legend(head: &mut Svg, arms: &[Arm], heading: f64) -> f64 {
    let mut at = (0.0, heading + LINE / 2.0);
    for arm in arms {
        let wide = DOT + arm.name.chars().count() as f64 * LETTER;
        if at.0 > 0.0 && at.0 + wide > WIDTH {
            at = (0.0, at.1 + LINE);
        }
        let shape = if arm.class.ends_with("dash") { "hollow" } else { "full" };
        head.dot(&format!("{} {shape}", arm.class), (at.0 + 4.0, at.1), 3.5, "");
        head.text("", (at.0 + 12.0, at.1), Anchor::Start, &arm.name);
        at.0 += wide;
    }
    if arms.is_empty() { 0.0 } else { at.1 + LINE / 2.0 - heading }
}
