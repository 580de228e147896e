//! How does the record of a watch look? What was wrong when, on top; then where, and how much.
//!
//! `tables` has the words and figures that text, Markdown and page share, `clock` the time of day,
//! `pictures` the curves.

mod clock;
mod csv;
mod markdown;
mod page;
mod pictures;
mod tables;
mod text;

use std::path::Path;

use crate::watch::review::{Review, Series};

pub use clock::Clock;
pub use csv::WatchCsv;

use tcptoll_show::{TextStyle, clean};

/// The record of a watch, summed up.
#[derive(Clone, Debug)]
pub struct Watched<'a> {
    /// What it says.
    pub review: &'a Review,
    /// The time of day that times are shown in.
    pub clock: Clock,
    /// Where the record is; it is shown, not opened.
    pub record: Option<&'a Path>,
}

/// A cleaned review with its clock.
struct CleanReview<'a> {
    review: Review,
    clock: &'a Clock,
    /// Whether times need their date.
    days: bool,
}

impl CleanReview<'_> {
    fn new<'a>(watched: &'a Watched<'_>) -> Result<CleanReview<'a>, serde_json::Error> {
        let review = clean::copy(watched.review)?;
        let clock = &watched.clock;
        let days = clock.day(0.0) != clock.day(review.lasted_s);
        Ok(CleanReview { review, clock, days })
    }

    /// The time of day of a moment of the watch.
    fn at(&self, at_s: f64) -> String {
        self.clock.text(at_s, self.days)
    }
}

/// The record of a watch for a terminal: what was wrong when, the busiest listeners, ports, gaps.
///
/// As [`text()`](tcptoll_show::text()), it ends with a line feed and holds no control character of the record's own.
#[must_use]
pub fn watch_text(watched: &Watched<'_>, style: TextStyle) -> String {
    match CleanReview::new(watched) {
        Ok(view) => text::render(&view, watched.record, style),
        Err(error) => format!("{}\n", clean::cannot_show(&error)),
    }
}

/// The record of a watch as GitHub-flavoured Markdown.
#[must_use]
pub fn watch_markdown(watched: &Watched<'_>) -> String {
    match CleanReview::new(watched) {
        Ok(view) => markdown::render(&view),
        Err(error) => format!("{}\n", clean::cannot_show(&error)),
    }
}

/// The record of a watch as one self-contained HTML file, as [`html`](tcptoll_show::html()).
#[must_use]
pub fn watch_html(watched: &Watched<'_>, series: &Series) -> String {
    match CleanReview::new(watched) {
        Ok(view) => page::render(&view, watched.review, series),
        Err(error) => tcptoll_show::html::cannot_show(&error),
    }
}
