//! What does the reader see of an examination? What was looked at, what is wrong, what to change.
//!
//! `text` and `html` lay out the words that are put together here.

mod html;
mod sentences;
mod text;
mod view;

pub(crate) use html::render as html;
pub(crate) use text::{proof as proof_text, render as text};
