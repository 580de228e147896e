//! Servers that run in this network namespace, and the configuration that each was started with.
//!
//! No program of the machine is run: `nginx -T` would open log files and resolve names. `process` finds main
//! processes, `files` reads what they read, in the root directory of each (`openat2` with `RESOLVE_IN_ROOT`),
//! bounded in number, depth and size.

mod files;
mod glob;
mod process;
mod version;

use std::collections::BTreeSet;
use std::path::Path;

use crate::doctor::config::{Process, read};
use crate::doctor::{Listen, Program, ServerConfig};
use tcptoll_core::printable::copy;
use tcptoll_kernel::root::Root;

/// Servers that are read, at most.
const SERVERS_MAX: usize = 64;

/// A configuration without what steers a terminal: its files, names and values may be anybody's. Nothing is
/// opened by these names any more.
fn printable(config: &ServerConfig) -> ServerConfig {
    copy(config).unwrap_or_else(|_| {
        let why = "a value in its configuration is not a number (NaN or infinite)";
        let unread = vec![why.to_owned()];
        ServerConfig { unread, ..ServerConfig::new(config.program, config.pid) }
    })
}

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
        let config = printable(&read(found.program, &process, &mut files));
        let mut its = config.listens.iter().filter_map(Listen::port).peekable();
        if found.is_certain || its.peek().is_none() || its.any(|port| ports.contains(&port)) {
            servers.push(config);
        }
    }
    servers
}

/// The configuration that a file of this machine begins, as Apache or nginx would read it if it were started
/// with it.
///
/// Cost: the file and those that it includes. What may not be read is in [`ServerConfig::unread`].
pub fn begun_by(program: Program, file: &Path) -> ServerConfig {
    let option = if program == Program::Nginx { "-c" } else { "-f" };
    let arguments = [program.name(), option, &file.display().to_string()].map(str::to_owned);
    let cpus = std::thread::available_parallelism().map_or(0, |cpus| cpus.get() as u64);
    let process = Process { arguments: arguments.into(), cpus, ..Process::default() };
    let root = Root::open(Path::new("/")).map_err(|error| files::reason(&error));
    printable(&read(program, &process, &mut files::Rooted::new(root)))
}

#[cfg(test)]
mod tests {
    use crate::doctor::{ConfigPosition, Sourced};

    use super::*;

    #[test]
    fn a_file_is_read_as_if_a_server_were_started_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("apache2.conf");
        let included = folder.path().join("more.conf");
        std::fs::write(&included, "KeepAliveTimeout 7\n").unwrap();
        let text = format!("MaxKeepAliveRequests 33\nInclude {}\n", included.display());
        std::fs::write(&file, text).unwrap();
        let config = begun_by(Program::Apache, &file);
        assert!((config.keepalive_timeout_s.unwrap().value - 7.0).abs() < 1e-9);
        assert_eq!(config.keepalive_requests.unwrap().value, 33);
        assert_eq!(config.files_read.len(), 2, "{:?}", config.unread);
        let nginx = folder.path().join("nginx.conf");
        let text = "worker_processes auto;\nevents { worker_connections 100; }\nhttp { keepalive_timeout 1m; }\n";
        std::fs::write(&nginx, text).unwrap();
        let config = begun_by(Program::Nginx, &nginx);
        assert!(
            (config.keepalive_timeout_s.unwrap().value - 60.0).abs() < 1e-9,
            "without a server"
        );
        assert!(config.workers.unwrap().value >= 100);
        let none = begun_by(Program::Nginx, &folder.path().join("none.conf"));
        assert!(!none.unread.is_empty() && none.keepalive_timeout_s.is_none());
    }

    #[test]
    fn a_hostile_configuration_is_printable_and_one_that_cannot_be_written_is_named_unread() {
        let mut config = ServerConfig::new(Program::Nginx, 7);
        config.files_read = vec!["/etc/\u{9b}2J\u{202e}.conf".to_owned()];
        config.listens =
            vec![Listen { on: "/run/\u{7f}\u{200b}s".to_owned(), ..Listen::default() }];
        let clean = printable(&config);
        assert_eq!(clean.files_read, ["/etc/·2J.conf"]);
        assert_eq!(clean.listens[0].on, "/run/·s");
        assert_eq!(printable(&clean), clean);
        let at = ConfigPosition { file: "/etc/a.conf".to_owned(), line: Some(1) };
        config.keepalive_timeout_s = Some(Sourced { value: f64::NAN, at });
        let unread = printable(&config);
        assert!(unread.unread[0].contains("not a number") && unread.files_read.is_empty());
    }
}
