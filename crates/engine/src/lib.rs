//! Things over time: the lab, load, observation, experiments and the runner.
//!
//! Read in this order: [`runner`] (a study becomes trials), [`experiments`] (what one trial does),
//! [`lab`] (where it happens), [`load`] and [`observe`] (what is done and what is seen), [`host`]
//! and [`channel`] (how the parent speaks to its hosts).

// On a host of the user's standard error may be gone, and these macros panic then.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

pub mod channel;
pub mod clock;
mod control_group;
pub mod doctor;
pub mod experiments;
pub mod files;
pub mod host;
pub mod lab;
pub mod load;
pub mod messages;
pub mod observe;
pub mod passport;
pub mod record;
mod run_folder;
pub mod runner;
pub mod servers;
pub mod watch;

pub use tcptoll_kernel::standard_output;
