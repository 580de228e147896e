//! What does the reader see of a run? A [`Summary`] comes in, terminal text or one HTML file goes out.
//!
//! Nothing here measures, reads a file or knows the time, so the same summary always gives the same
//! bytes. Every string of a summary may come from a peer and is cleaned before it is shown
//! (`clean`). Read `figures` for what is said of an arm, `text` and `html` for how.

mod clean;
mod figures;
mod findings;
mod html;
mod number;
mod text;

use std::path::Path;

use tcptoll_model::record::Summary;

/// How the terminal text is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextStyle {
    /// Whether ANSI colours underline what the words already say.
    pub colour: bool,
    /// Columns of the terminal; 80 if unknown. Less than 60 is treated as 60.
    pub width: usize,
}

impl Default for TextStyle {
    fn default() -> Self {
        Self { colour: false, width: 80 }
    }
}

/// The run for a terminal: the answer, the figures, the doubts, what to do next.
///
/// `record` is where the run is kept; it is shown, not opened. The text ends with a line feed and
/// holds no control character of the summary's own.
#[must_use]
pub fn text(summary: &Summary, record: Option<&Path>, style: TextStyle) -> String {
    match clean::summary(summary) {
        Ok(clean) => text::render(&clean, record, style),
        Err(error) => format!("{}\n", clean::cannot_show(&error)),
    }
}

/// The run as one self-contained HTML file: no network, light and dark, for screens and paper.
///
/// The summary is embedded unchanged as JSON, in `<script type="application/json" id="summary">`.
#[must_use]
pub fn html(summary: &Summary) -> String {
    match clean::summary(summary) {
        Ok(clean) => html::render(&clean, summary),
        Err(error) => html::cannot_show(&error),
    }
}
