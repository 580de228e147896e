//! What does the reader see of a search? The setting, what was measured of each, the curve, the configuration.
//!
//! `words` puts sentences and rows together, `text` and `html` lay them out, `picture` draws.

mod html;
mod picture;
mod sentences;
#[cfg(test)]
mod tests;
mod text;

pub(crate) use html::render as html;
pub(crate) use text::render as text;
