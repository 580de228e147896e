//! What does the HTML report look like? One file with its style, script, pictures and numbers in it.
//!
//! The template decides the order, `view` prepares words and tables, the other files draw.

mod alone;
mod arm;
mod chart;
mod counted;
mod distribution;
mod forest;
mod frame;
mod levels;
mod picture;
pub(crate) mod plot;
mod range;
mod rounds;
mod section;
mod series;
mod table;
mod view;

use serde::Serialize;
use tcptoll_model::record::Summary;

pub(crate) use self::frame::{Frame, cannot_show};
use crate::own::Own;

const FRAME: Frame = Frame { content: include_str!("report.html"), style: "", script: "" };

/// A run as the page shows it.
pub(crate) struct Run<'a> {
    /// Its cleaned summary.
    pub(crate) summary: Summary,
    pub(crate) own: &'static Own,
    /// Embedded as data.
    pub(crate) original: &'a Summary,
}

#[derive(Serialize)]
struct Views {
    runs: Vec<view::ReportPage>,
}

/// The page of one run, or of several with a table of contents.
pub(crate) fn render(runs: &[Run<'_>]) -> String {
    let views = runs.iter().map(|run| view::build(&run.summary, run.own)).collect();
    let title = match runs {
        [run] => format!("{} · tcptoll", run.summary.question),
        runs => format!("{} answers · tcptoll", runs.len()),
    };
    let originals: Vec<&Summary> = runs.iter().map(|run| run.original).collect();
    FRAME.page(&title, Views { runs: views }, &originals)
}

/// The picture that the page of a run begins with, as an SVG file. None: it has none.
pub(crate) fn picture(summary: &Summary, own: &Own) -> Option<String> {
    alone::draw(&view::build(summary, own))
}
