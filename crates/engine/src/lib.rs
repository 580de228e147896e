//! Things over time: experiments and the runner, `watch` and `doctor`.
//!
//! Read in this order: [`runner`] (a study becomes trials), [`experiments`] (what one trial does);
//! where it happens, and what is done there, is the lab's crate.

// On a host of the user's standard error may be gone, and these macros panic then.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

pub mod doctor;
pub mod experiments;
pub mod record;
pub mod runner;
pub mod watch;
