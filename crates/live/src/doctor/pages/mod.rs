//! What does the reader see of an examination? What was looked at, what is wrong, what to change.
//!
//! `text` and `html` lay out the words that are put together here.

mod html;
mod sentences;
mod text;
mod view;

use crate::doctor::{Examination, Proof};

use tcptoll_show::html::cannot_show;
use tcptoll_show::{TextStyle, clean};

/// An examination for a terminal: what was looked at, what is wrong, what to type.
///
/// `provable` names the findings that `--prove` can re-create. As the text of a run, it ends with a line feed
/// and holds no control character of the machine's own.
#[must_use]
pub fn examination_text(examination: &Examination, provable: &[&str], style: TextStyle) -> String {
    match clean::copy(examination) {
        Ok(clean) => text::render(&clean, provable, style),
        Err(error) => format!("{}\n", clean::cannot_show(&error)),
    }
}

/// What the lab showed of a finding, for a terminal, as [`examination_text`].
#[must_use]
pub fn proof_text(proof: &Proof, style: TextStyle) -> String {
    match clean::copy(proof) {
        Ok(clean) => text::proof(&clean, style),
        Err(error) => format!("{}\n", clean::cannot_show(&error)),
    }
}

/// An examination as one self-contained HTML file, as the page of a run.
#[must_use]
pub fn examination_html(examination: &Examination, provable: &[&str]) -> String {
    match clean::copy(examination) {
        Ok(clean) => html::render(&clean, examination, provable),
        Err(error) => cannot_show(&error),
    }
}
