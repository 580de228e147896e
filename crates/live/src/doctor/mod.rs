//! What is wrong with a machine's connections, from its state, its sysctls and its servers' configuration.
//!
//! A rule is a function from [`Machine`] to diagnoses. It names a fault only from evidence in it.
//! [`Examination`] is what the user gets.

pub mod config;
mod examination;
pub mod look;
mod machine;
mod neighbours;
pub mod pages;
mod proof;
mod routes;
pub mod rules;
mod seen;
mod template;

pub use config::{Buffers, ConfigPosition, Listen, Program, ServerConfig, Sourced, Upstream};
pub use examination::{
    Examination, ExaminationCost, Examined, NotExamined, REPORT_VERSION, prove_command,
};
pub use machine::{Machine, Neighbour, Opening, StandingQueue};
pub use proof::{Proof, ProofArm, ProofVerdict, ProvenFix, failures, judge};
pub use rules::diagnose;
pub use template::{Filled, Template};
