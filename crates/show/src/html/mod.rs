//! What does the HTML report look like? One file with its style, script, pictures and numbers in it.
//!
//! The template decides the order, `view` prepares words and tables, the other files draw.

mod alone;
mod arm;
mod chart;
mod counted;
mod distribution;
mod forest;
pub mod frame;
mod levels;
pub mod picture;
pub mod plot;
mod range;
mod rounds;
mod section;
mod series;
mod table;
mod view;

use serde::Serialize;
use tcptoll_core::record::Summary;

pub use self::frame::{COPY, Frame, cannot_show};
use crate::run::Run;

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
    alone::draw(&view::build(run))
}
