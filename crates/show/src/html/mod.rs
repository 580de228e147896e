//! What does the HTML report look like? One file with its style, script, pictures and numbers in it.
//!
//! The template decides the order, `view` prepares words and tables, the other files draw.

mod chart;
mod distribution;
mod forest;
mod levels;
mod picture;
pub mod plot;
mod rounds;
mod tables;
mod view;

use minijinja::value::{Serde, Value};
use minijinja::{Environment, context};
use serde::Serialize;

use self::picture::{ArmName, Picture, name};
use self::tables::Table;
use self::view::ReportPage;
use crate::run::Run;
use crate::svg::{Anchor, Screen, Svg, escape};
use crate::{clean, columns, own};
use tcptoll_core::experiment::column::Form;
use tcptoll_core::record::Summary;

const FRAME: Frame = Frame { content: include_str!("report.html"), style: "", script: "" };

#[derive(Serialize)]
struct Views {
    runs: Vec<view::ReportPage>,
}

/// The page of one run, or of several with a table of contents.
///
/// With each its summary as it was read, which is embedded as data.
pub fn render(runs: &[(Run, &Summary)]) -> String {
    let views = runs.iter().map(|(run, _)| view::build(run)).collect();
    let title = match runs {
        [(run, _)] => format!("{} · tcptoll", run.question),
        runs => format!("{} answers · tcptoll", runs.len()),
    };
    let originals: Vec<&Summary> = runs.iter().map(|&(_, original)| original).collect();
    FRAME.page(&title, Views { runs: views }, &originals)
}

/// The picture that the page of a run begins with, as an SVG file. None: it has none.
pub fn picture(run: &Run) -> Option<String> {
    draw(&view::build(run))
}

// What is the same in all pages: the head, the style and script of all, and the figures as data at the end.

const BASE: &str = include_str!("base.html");
const MACROS: &str = include_str!("macros.html");
/// The style of every page.
const STYLE: &str = include_str!("style.css");
pub(crate) const SCRIPT: &str = include_str!("script.js");
/// Script of pages that have commands to copy.
pub const COPY: &str = include_str!("copy.js");

/// A kind of page.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Template of what stands in the page's `main`.
    pub content: &'static str,
    /// Style and script after those of every page.
    pub style: &'static str,
    pub script: &'static str,
}

impl Frame {
    /// The page of a view; the originals of what it shows are embedded as data.
    ///
    /// If it cannot be made, it is a page that says why.
    pub fn page<T: Serialize>(self, title: &str, view: impl Serialize, originals: &[T]) -> String {
        let jsons: Result<Vec<String>, _> = originals.iter().map(serde_json::to_string).collect();
        match jsons {
            Ok(jsons) => self
                .render(title, Value::from(Serde(view)), &jsons)
                .unwrap_or_else(|error| error_page(&error.to_string())),
            Err(error) => cannot_show(&error),
        }
    }

    fn render(
        self,
        title: &str,
        view: Value,
        jsons: &[String],
    ) -> Result<String, minijinja::Error> {
        let jsons = jsons.iter().map(|json| Value::from_safe_string(json_in_script(json)));
        let mut environment = Environment::new();
        // The suffix .html turns on escaping of everything not marked safe.
        environment.add_template("base.html", BASE)?;
        environment.add_template("macros.html", MACROS)?;
        environment.add_template("content.html", self.content)?;
        environment.get_template("base.html")?.render(context! {
            title,
            view,
            style => Value::from_safe_string(STYLE.to_owned() + self.style),
            script => Value::from_safe_string(SCRIPT.to_owned() + self.script),
            jsons => jsons.collect::<Vec<_>>(),
        })
    }
}

/// JSON that cannot end its script element, and that JavaScript of any age reads the same.
pub(crate) fn json_in_script(json: &str) -> String {
    json.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// A page that says why there is no report.
pub fn cannot_show(error: &serde_json::Error) -> String {
    error_page(&clean::cannot_show(error))
}

/// A page of one sentence.
pub(crate) fn error_page(text: &str) -> String {
    let text = escape(&clean::line(text));
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>tcptoll</title><p>{text}</p></html>\n"
    )
}

// What an experiment shows of its own on the page: its sections, ready for the template.

/// A section.
#[derive(Serialize)]
pub(super) struct Section {
    title: &'static str,
    items: Vec<Item>,
}

/// A piece of a section.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum Item {
    Table { title: &'static str, table: Table },
    Picture { picture: Picture },
    Notes { notes: Vec<Note> },
    Paragraph { text: String },
    Small { text: String },
    Rows { heads: Vec<&'static str>, rows: Vec<Vec<String>>, words: Vec<usize> },
    Details { title: String, small: String, items: Vec<Item> },
    Arms { arms: Vec<OfArm> },
}

#[derive(Serialize)]
struct Note {
    text: String,
    bad: bool,
}

#[derive(Serialize)]
struct OfArm {
    arm: ArmName,
    items: Vec<Item>,
}

/// What sections are made with.
struct Maker<'a> {
    pub(super) summary: &'a Run,
    /// The experiment's picture, unless the page begins with it.
    lead: Option<Picture>,
}

impl Maker<'_> {
    /// The sections that have anything to show.
    pub(super) fn sections(&self, sections: Vec<own::Section>) -> Vec<Section> {
        let made = sections
            .into_iter()
            .map(|section| Section { title: section.title, items: self.items(section.items) });
        made.filter(|section| !section.items.is_empty()).collect()
    }

    fn items(&self, items: Vec<own::Item>) -> Vec<Item> {
        items.into_iter().filter_map(|item| self.item(item)).collect()
    }

    fn item(&self, item: own::Item) -> Option<Item> {
        Some(match item {
            own::Item::Table(title, id) => {
                let table = columns::table(self.summary, Form::Page, id)?;
                let table = tables::fill(self.summary, &table);
                (!table.is_empty()).then_some(Item::Table { title, table })?
            }
            own::Item::Lead => Item::Picture { picture: self.lead.clone()? },
            own::Item::Picture(picture) => {
                Item::Picture { picture: Picture::from_own(picture, self.summary) }
            }
            own::Item::Notes(notes) => {
                let note = |note: own::Note| Note { text: note.text, bad: note.bad };
                let notes: Vec<Note> = notes.into_iter().map(note).collect();
                (!notes.is_empty()).then_some(Item::Notes { notes })?
            }
            own::Item::Paragraph(text) => Item::Paragraph { text },
            own::Item::Small(text) => Item::Small { text },
            own::Item::Rows(heads, rows, words) => Item::Rows { heads, rows, words },
            own::Item::Details(title, small, items) => {
                let items = self.items(items);
                (!items.is_empty()).then_some(Item::Details { title, small, items })?
            }
            own::Item::Arms(arms) => {
                let items_of_arm = |(at, items): (usize, Vec<own::Item>)| {
                    let arm = name(at, self.summary.arms.get(at)?);
                    Some(OfArm { arm, items: self.items(items) })
                };
                Item::Arms { arms: arms.into_iter().filter_map(items_of_arm).collect() }
            }
        })
    }
}

// The picture that a page begins with, as a file of its own: for documents, slides and chats.

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
fn draw(view: &ReportPage) -> Option<String> {
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
