//! Servers that run in this network namespace, and the configuration that each was started with.
//!
//! Nothing is run: no server is asked for its configuration (`nginx -T` would open its log files).
//! `process` finds main processes, `files` reads what they read, in their own root directory.

mod files;
mod glob;
mod process;
mod version;

use std::collections::BTreeSet;

use tcptoll_model::doctor::config::read;
use tcptoll_model::doctor::{Listen, ServerConfig};

/// Servers that are read, at most.
const SERVERS_MAX: usize = 64;

/// The configuration of each nginx, Apache, Redis, `HAProxy`, PHP-FPM and MariaDB that runs in the
/// network namespace of this thread, by process. `ports`: those that have a listener here.
///
/// The namespace of another user's process may not be readable. It counts as here unless its
/// configuration names ports and none of them has a listener here.
///
/// Cost: one file of each process of the machine, and the configuration of each server. What may
/// not be read is in [`ServerConfig::unread`].
pub fn configured(ports: &BTreeSet<u16>) -> Vec<ServerConfig> {
    let mut servers: Vec<ServerConfig> = Vec::new();
    for found in process::main_processes().into_iter().take(SERVERS_MAX) {
        let (process, root) = process::describe(&found);
        let mut files = files::Rooted::new(root);
        let config = read(found.program, &process, &mut files);
        let mut its = config.listens.iter().filter_map(Listen::port).peekable();
        if found.is_certain || its.peek().is_none() || its.any(|port| ports.contains(&port)) {
            servers.push(config);
        }
    }
    servers
}
