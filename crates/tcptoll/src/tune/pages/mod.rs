//! What does the reader see of a search? The setting, what was measured of each, the curve, the configuration.
//!
//! `words` puts sentences and rows together, `text` and `html` lay them out, `picture` draws.

mod html;
mod picture;
mod sentences;
mod text;

use crate::tune::found::Found;

use tcptoll_show::html::frame::cannot_show;
use tcptoll_show::{TextStyle, clean};

/// The result of a search for a terminal: the setting, everything measured, verdicts, the configuration.
///
/// As the text of a run, it ends with a line feed and holds no control character of a server's or file's own.
#[must_use]
pub fn found_text(found: &Found, style: TextStyle) -> String {
    match clean::copy(found) {
        Ok(clean) => text::render(&clean, style),
        Err(error) => format!("{}\n", clean::cannot_show(&error)),
    }
}

/// The result of a search as one self-contained HTML file, as the page of a run.
#[must_use]
pub fn found_html(found: &Found) -> String {
    match clean::copy(found) {
        Ok(clean) => html::render(&clean, found),
        Err(error) => cannot_show(&error),
    }
}

#[cfg(test)]
mod tests;
