//! What is wrong with a machine's connections, from its state, its sysctls and its servers' configuration.
//!
//! A rule is a function from [`Machine`] to diagnoses. It names a fault only from evidence in it.

pub mod config;
mod machine;
pub mod neighbours;
pub mod routes;
pub mod rules;
pub mod seen;

pub use config::{Buffers, Listen, Place, Program, ServerConfig, Sourced, Upstream};
pub use machine::{Machine, Neighbour, Opening, StandingQueue};
pub use rules::diagnose;
