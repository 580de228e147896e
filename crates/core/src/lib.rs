//! What is true without a machine: no clock, socket, file or environment is touched here.
//!
//! Captured bytes and text come in, values go out. Read [`link`] for what joins two hosts,
//! [`packet`] for what the wire says, [`counters`] and [`tcp_info`] for what the kernel says,
//! [`stats`] for what the numbers allow one to say, and [`record`] for what is kept.
//!
//! A release is built without optimising this crate, most of which runs once a second. What runs once a
//! packet or once a request is `#[inline]`: it is compiled with the caller, and as well as the caller.

pub mod experiment;
pub mod http;
pub mod link;
pub mod page;
pub mod printable;
mod random;
pub mod record;
pub mod shell;
pub mod stats;
pub mod study;
pub mod tcp;
pub mod units;
pub mod verdict;
