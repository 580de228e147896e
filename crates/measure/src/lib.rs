//! Things over time: experiments and the runner, `watch` and `doctor`.
//!
//! Read in this order: [`runner`] (a study becomes trials), [`experiments`] (what one trial does);
//! where it happens, and what is done there, is the lab's crate.

// On a host of the user's standard error may be gone, and these macros panic then.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

pub mod carry;
pub mod experiments;
mod idle;
pub mod kit;
mod open;
pub mod pages;
pub mod record;
mod requests;
pub mod runner;
