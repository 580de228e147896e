//! What is true without a machine: no clock, socket, file or environment is touched here.
//!
//! Captured bytes, text and instants come in, values go out. What is where:
//!
//! - [`number`]: how figures are written; [`units`]: how options are read; [`printable`]: text of others
//!   without control characters.
//! - [`link`]: what joins two hosts, as asked for and as the emulator has it, packet by packet.
//! - [`tcp`]: what the kernel counts and says of sockets, what the wire says, and the arithmetic over both.
//! - [`http`]: responses, URLs, the use of connections, and pools of blocking workers.
//! - [`page`]: what a browser loads and when, what came of it, and who visits.
//! - [`stats`]: what the numbers allow one to say, without knowing what was measured.
//! - [`experiment`]: what an experiment is described with: options, metrics, columns, causes.
//! - [`finding`]: what is wrong, and what to change.
//! - [`study`]: which arms of an experiment run, what is compared, and when a run has seen enough.
//! - [`record`]: what is kept of a run; its names and shapes are a contract.
//! - [`sheet`]: what there is to see of a run, a watch, an examination or a search.
//! - [`verdict`]: which trials count, how two arms compare, and what is in doubt.
//!
//! A release is built without optimising this crate, most of which runs once a second. What runs once a
//! packet or once a request is `#[inline]`: it is compiled with the caller, and as well as the caller.

pub mod experiment;
pub mod finding;
pub mod http;
pub mod link;
pub mod number;
pub mod page;
pub mod printable;
mod random;
pub mod record;
pub mod sheet;
pub mod stats;
pub mod study;
pub mod tcp;
pub mod units;
pub mod verdict;
