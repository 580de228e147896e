//! All that a rule may look at.

use std::collections::BTreeMap;

use super::config::ServerConfig;
use crate::watch::State;

/// A machine, or a network namespace of one, as it was over a few seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machine {
    /// Its state at the end of the look; rates are over the whole look.
    pub state: State,
    /// Sysctls by name, `net.core.somaxconn`; absent: not readable here.
    pub sysctls: BTreeMap<String, String>,
    /// Established connections, grouped by what is at their other end.
    pub neighbours: Vec<Neighbour>,
    /// Servers that run here, with their configuration.
    pub servers: Vec<ServerConfig>,
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
    /// Time since data last came or went, s: the longest of them.
    pub idle_max_s: Option<f64>,
    /// Whether the other end is outside this machine's own subnets.
    pub routed: Option<bool>,
}
