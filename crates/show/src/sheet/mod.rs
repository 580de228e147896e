//! A sheet in, and text, a page or Markdown out. Cleaning, escaping, wrapping and alignment happen here.

mod html;
mod markdown;
mod table;
mod text;

pub use html::{html, html_of};
pub use markdown::markdown;
pub(crate) use text::wrap_phrases;
pub use text::{parts, text};

#[cfg(test)]
mod tests;
