//! What is done on a host: the lab and its link, orders, loads, servers, observation.
//!
//! Read in this order: [`lab`] (where it happens), [`load`] and [`observe`] (what is done and what is
//! seen), [`host`] and [`channel`] (how the parent speaks to its hosts). It is a crate of its own
//! because it is built for speed, and what stands on it for small.

// On a host of the user's standard error may be gone, and these macros panic then.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

pub mod channel;
pub mod clock;
mod control_group;
pub mod files;
pub mod host;
pub mod lab;
pub mod load;
pub mod messages;
pub mod observe;
pub mod passport;
pub mod servers;

pub use tcptoll_kernel::standard_output;
