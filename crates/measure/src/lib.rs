//! What is measured: the runner, and the experiments, a folder each in five families.
//!
//! Read in this order: [`runner`] (a study becomes trials), [`kit`] (the procedure of one trial), [`experiments`] (the
//! table of all). Where a trial happens, and what is done there, is the lab's crate.

// On a host of the user's standard error may be gone, and these macros panic then.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

pub mod carry;
pub mod experiments;
mod idle;
pub mod kit;
pub mod limit;
pub mod merged;
mod open;
pub mod pages;
pub mod record;
mod requests;
pub mod runner;
