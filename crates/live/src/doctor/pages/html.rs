//! What does the page of an examination look like? One file, with its style, script and numbers in it.

use crate::doctor::Examination;

use super::view;
use tcptoll_show::html::{COPY, Frame};

const FRAME: Frame =
    Frame { content: include_str!("page.html"), style: include_str!("page.css"), script: COPY };

/// The page of a cleaned examination; `original` is embedded as data.
pub(crate) fn render(
    examination: &Examination,
    original: &Examination,
    provable: &[&str],
) -> String {
    let view = view::build(examination, provable);
    FRAME.page(&view.title, &view, &[original])
}
