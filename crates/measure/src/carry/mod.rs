//! How much do connections carry, and what limits it?

mod advice;
pub mod messages;
mod pictures;
pub(crate) mod stream;
mod throughput;
mod transfer;
