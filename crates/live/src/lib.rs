//! The live machine: what `watch` and `doctor` see, what is wrong there, and how it is shown.
//!
//! Read [`watch`] first: a look at the kernel becomes a state, and rules find what is wrong in it.

// On a host of the user's standard error may be gone, and these macros panic then.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

pub mod doctor;
pub mod metrics;
pub mod watch;
