//! How much do connections carry, and what limits it?

pub mod messages;
mod pictures;
mod service;
pub(crate) mod stream;
mod throughput;
mod transfer;
