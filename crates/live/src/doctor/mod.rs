//! What is wrong with a machine's connections, from its state, its sysctls and its servers' configuration.
//!
//! A rule is a function from [`Machine`] to diagnoses. It names a fault only from evidence in it.
//! [`Examination`] is what the user gets.

mod brief;
pub mod config;
mod examination;
pub mod look;
mod neighbours;
mod proof;
pub mod rules;
mod sentences;
pub mod servers;
mod sheet;

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::watch::State;
pub use brief::brief;
pub use config::{Buffers, ConfigPosition, Listen, Program, ServerConfig, Sourced, Upstream};
pub use examination::{Examination, ExaminationCost, Examined, NotExamined, prove_command};
pub use proof::{Filled, Proof, ProofArm, ProofVerdict, ProvenFix, Template, failures, judge};
pub use rules::diagnose;
pub use sheet::{examination_sheet, proof_parts};

/// A machine, or a network namespace of one, as it was over a few seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machine {
    /// Whether root examined it: `sudo` would show nothing more.
    pub by_root: bool,
    /// Its state at the end of the examination. Rates, peaks and diagnoses are of the whole
    /// examination, which lasted `interval_s`.
    pub state: State,
    /// Sysctls by name, `net.core.somaxconn`, at the end; absent: not readable here.
    pub sysctls: BTreeMap<String, String>,
    /// Established connections, grouped by what is at their other end.
    pub neighbours: Vec<Neighbour>,
    /// Servers that run here, with their configuration.
    pub servers: Vec<ServerConfig>,
    /// Addresses of this machine, loopback included.
    pub addresses: Vec<IpAddr>,
    /// Listeners whose queue was empty at no look.
    pub standing: Vec<StandingQueue>,
    /// Destinations that this machine opened connections to all the time.
    pub openings: Vec<Opening>,
    /// Entries that the table of tracked connections gains, per second: the smaller of the rates of
    /// both halves of the examination. Absent: it did not grow in both, or is not readable.
    pub tracked_per_s: Option<f64>,
    /// What limits this examination, one sentence each: files that could not be read, settings that
    /// changed meanwhile.
    pub notes: Vec<String>,
}

impl Machine {
    /// A sysctl that is one number.
    pub fn number(&self, sysctl: &str) -> Option<u64> {
        self.sysctls.get(sysctl)?.trim().parse().ok()
    }
}

/// Established connections between a local process and one other end, grouped.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Neighbour {
    /// Local port if this host listens on it, else absent.
    pub local_port: Option<u16>,
    /// Remote address, and port if this host opened the connections.
    pub remote: String,
    /// Connections.
    pub connections: u64,
    /// Of those, with a keep-alive timer running.
    pub with_keepalive: u64,
    /// Of those, unprotected: no keep-alive timer, or one whose next probe is due later than
    /// common NATs and balancers wait. Connections whose timer retransmits or probes a closed
    /// window are not counted: that timer hides the other.
    pub unprotected: u64,
    /// Of the unprotected, idle for as long as the shortest of those waits, or longer.
    pub unprotected_idle: u64,
    /// Time since data last came or went, s: the longest of the unprotected.
    pub unprotected_idle_max_s: Option<f64>,
    /// Time from the last packet received to the next probe, s: the longest of those with a timer.
    pub probe_after_max_s: Option<f64>,
    /// Of the connections, accepted and idle for a second or longer: what was sent last was answered, and nothing
    /// is unread.
    pub waiting: u64,
    /// Time since data last came or went, s: the longest of them.
    pub idle_max_s: Option<f64>,
    /// Whether the way to the other end leads over a router.
    pub routed: Option<bool>,
}

/// A listener whose accept queue was empty at no look.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StandingQueue {
    /// Local address and port, as diagnoses have it.
    pub on: String,
    /// The shortest queue of any look.
    pub shortest: u32,
    /// The longest queue of any look.
    pub longest: u32,
    /// The backlog after the clamp to `somaxconn`; the queue holds one more.
    pub limit: u32,
    /// Looks.
    pub looks: u32,
}

/// A destination that this machine opened connections to all the time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Opening {
    /// Remote address and port, as diagnoses have it.
    pub to: String,
    /// Local ports taken, per second: the smaller of the rates of both halves of the examination.
    pub ports_per_s: f64,
    /// Of those, that went to TIME-WAIT.
    pub time_wait_per_s: f64,
}
