//! Servers that run in this network namespace, and the configuration that each was started with.
//!
//! Nothing is run: no server is asked for its configuration (`nginx -T` would open its log files).
//! `process` finds main processes, `files` reads what they read, in their own root directory.

mod files;
mod glob;
mod process;
mod version;

use tcptoll_model::doctor::ServerConfig;
use tcptoll_model::doctor::config::read;

/// Servers that are read, at most.
const SERVERS_MAX: usize = 64;

/// The configuration of each nginx, Apache, Redis, `HAProxy`, PHP-FPM and MariaDB that runs in the
/// network namespace of this thread, by process.
///
/// Cost: one file of each process of the machine, and the configuration of each server. What may
/// not be read is in [`ServerConfig::unread`].
pub fn configured() -> Vec<ServerConfig> {
    let mut servers: Vec<ServerConfig> = Vec::new();
    for found in process::main_processes().into_iter().take(SERVERS_MAX) {
        let (process, root) = process::describe(&found);
        let mut files = files::Rooted::new(root);
        servers.push(read(found.program, &process, &mut files));
    }
    servers
}
