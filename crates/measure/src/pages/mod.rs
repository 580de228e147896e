//! How long do pages of a site take, and what do their visitors need of a server?

mod content;
mod options;
pub(crate) mod page;
pub mod server;
pub(crate) mod visitors;
