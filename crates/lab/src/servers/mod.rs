//! Real servers, known by name: each writes its configuration, is started inside the server host,
//! and is waited for until it answers.
//!
//! One file per server says what its configuration is and why. `program` finds, starts and waits
//! for them, `crate::files::RunFolder` is where their files are, `site` what they serve and speak TLS with, and
//! `null` the one of our own. `pool` has blocking workers in front of a backend (`fronts`, `backends`).
//! `status` reads how many workers are busy (`scoreboard` of a web server, `php` of PHP-FPM), and
//! `watch` does so while a load runs. `memory` limits what a server may take.
//! `perform` runs a program that measures by itself, on either host. What
//! a server's settings mean for its user is in `docs/guide/servers.md`.

mod apache;
mod backends;
mod certificate;
pub mod fronts;
pub mod memory;
mod nginx;
pub mod null;
mod perform;
mod php;
mod pool;
mod program;
mod puma;
mod scoreboard;
mod site;
mod status;
mod watch;

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command};

use certificate::Certificate;
pub(crate) use perform::perform;
pub(crate) use pool::Pool;
pub(crate) use program::command;
use scoreboard::StatusPage;
use status::Source;
use tcptoll_core::page::site::Site;
use tcptoll_kernel::{cpu, process};
pub(crate) use watch::WorkersWatch;

use crate::files::RunFolder;
use crate::messages::{BackendKind, FrontKind, ServerKind, ServerSpec, Serving, WatchWorkers};

/// The uid that a real server sees itself run as; not 0, because servers that start as root want
/// to change owners, which a namespace of one id cannot.
pub const SERVER_UID: u32 = 1000;

/// Descriptors that a server needs besides its connections: listeners, logs, pipes.
const OWN_FILES: u64 = 64;

/// Tells whoever reads standard error; it may be gone, and a server goes on without it.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// A server that runs; it ends with its host, or when this is dropped.
#[derive(Debug)]
pub struct Running {
    children: Vec<Child>,
    /// Only kept: it is removed after the processes that use it have ended.
    folder: RunFolder,
    /// Where its status is read, if that is wanted.
    status: Option<Source>,
}

impl Running {
    /// Begins to read its status again and again, on any of these CPUs.
    ///
    /// Errors: it was not started with limits, so it has no status page.
    pub(crate) fn watch(
        &self,
        order: WatchWorkers,
        cpus: Vec<u32>,
    ) -> Result<WorkersWatch, String> {
        let none = || "the server was started without a status page".to_owned();
        let source = self.status.clone().ok_or_else(none)?;
        Ok(WorkersWatch::begin(source, order, cpus))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.children {
            // Each was started as the leader of a group, in which its workers are too.
            process::kill_group(child.id());
            let _ = child.wait();
        }
    }
}

/// What a server needs to be started.
struct Prepared {
    /// As messages call it: `nginx`.
    name: &'static str,
    /// One, or several that listen on the same port.
    commands: Vec<Command>,
    version: String,
    /// Path that is to be asked for.
    path: String,
    configuration: String,
}

/// Starts a server and waits until it answers a request.
///
/// Only to be called in the server host of a lab: the folder of the server's files is mounted over
/// one of this process's mount namespace.
///
/// Errors: a sentence for the user; a program that is missing is named with its Debian package.
pub fn start(spec: &ServerSpec) -> Result<(Running, Serving), String> {
    program::refuse_taken_port(spec.at)?;
    let folder = RunFolder::make()?;
    let names = spec.site.as_ref().map_or(&[][..], |site| &site.names);
    if let Some(site) = &spec.site {
        refuse_site(spec.kind, site)?;
    }
    let certificate =
        spec.tls.then(|| Certificate::make(spec.at.ip(), names, &folder)).transpose()?;
    let tls = certificate.as_ref();
    let in_worker = spec.limits.as_ref().filter(|limits| limits.php_in_worker);
    if in_worker.is_some() && spec.kind != ServerKind::ApachePrefork {
        return Err(
            "PHP in the web server's workers needs apache-prefork, whose workers have no threads"
                .to_owned(),
        );
    }
    let in_worker = in_worker.map(|limits| limits.worker_bytes);
    // Our own server has a site in memory, and waits by itself where PHP would.
    let to_lay = spec.site.as_ref().filter(|_| spec.kind != ServerKind::Null);
    let mut laid = to_lay.map(|site| site::lay(site, spec.tls, in_worker, &folder)).transpose()?;
    let prepared = match spec.kind {
        ServerKind::Nginx => nginx::prepare(spec, &folder, tls, laid.as_ref()),
        ServerKind::ApacheEvent => {
            apache::prepare(apache::Mpm::Event, spec, &folder, tls, laid.as_ref())
        }
        ServerKind::ApacheWorker => {
            apache::prepare(apache::Mpm::Worker, spec, &folder, tls, laid.as_ref())
        }
        ServerKind::ApachePrefork => {
            apache::prepare(apache::Mpm::Prefork, spec, &folder, tls, laid.as_ref())
        }
        ServerKind::Puma => puma::prepare(spec, &folder, tls),
        ServerKind::Null => null::prepare(spec, &folder),
    }?;
    let name = prepared.name;
    let status = spec.limits.as_ref().map(|_| status_of(spec, &folder)).transpose()?;
    let mut running = Running { children: Vec::new(), folder, status };
    let log = running.folder.file("log");
    let mut version = prepared.version;
    let inside = spec.limits.as_ref().and_then(|limits| limits.memory.as_ref());
    let inside = inside.map(memory::inside).transpose()?;
    if let Some(site::Php::Fpm(fpm)) = laid.as_mut().and_then(|laid| laid.php.as_mut()) {
        version += &format!(", {}", fpm.version);
        start_php(fpm, &mut running, &log)?;
    }
    let helpers = running.children.len();
    for command in prepared.commands {
        let child = program::spawn(command, &log).map_err(|error| format!("{name}: {error}"))?;
        running.children.push(child);
    }
    drop(inside);
    let asked = if spec.site.is_some() { site::READY_PATH } else { "/" };
    let children = &mut running.children[helpers..];
    program::wait_until_it_answers(name, (spec.at, asked), tls, &log, children)?;
    let serving = Serving {
        at: spec.at,
        version,
        certificate: certificate.map(|certificate| certificate.pem),
        path: prepared.path,
        configuration: cut(prepared.configuration),
    };
    Ok((running, serving))
}

/// Whether a server's program is on this machine.
///
/// Errors: a sentence that names its Debian package.
pub fn installed(kind: ServerKind) -> Result<(), String> {
    match kind {
        ServerKind::Nginx => nginx::find().map(drop),
        ServerKind::ApacheEvent | ServerKind::ApacheWorker | ServerKind::ApachePrefork => {
            apache::find().map(drop)
        }
        ServerKind::Puma => puma::find().map(drop),
        ServerKind::Null => Ok(()),
    }
}

/// The same of a backend, and of what calls it.
///
/// Errors: as above.
pub fn pool_installed(front: FrontKind, backend: BackendKind) -> Result<(), String> {
    let php = front == FrontKind::PhpFpm;
    let found = || [php::find().map(drop), nginx::find().map(drop)];
    all(std::iter::once(backends::installed(backend)).chain(php.then(found).into_iter().flatten()))
}

/// One sentence of all that is missing.
fn all(found: impl IntoIterator<Item = Result<(), String>>) -> Result<(), String> {
    let missing: Vec<String> = found.into_iter().filter_map(Result::err).collect();
    if missing.is_empty() { Ok(()) } else { Err(missing.join("; ")) }
}

/// The same of a server of pages, and of the PHP that runs their scripts.
///
/// Errors: as above.
pub fn site_installed(kind: ServerKind, scripts: bool, in_worker: bool) -> Result<(), String> {
    match (scripts, in_worker) {
        (false, _) => installed(kind),
        (true, false) => all([installed(kind), php::find().map(drop)]),
        (true, true) => {
            installed(kind)?;
            php::module(&apache::modules()?).map(drop)
        }
    }
}

/// Where the status of a web server is read.
fn status_of(spec: &ServerSpec, folder: &RunFolder) -> Result<Source, String> {
    let page = match spec.kind {
        ServerKind::Nginx => {
            let all = spec.limits.as_ref().map_or(0, |limits| limits.workers);
            StatusPage::Nginx(nginx::status_socket(folder), u32::try_from(all).unwrap_or(u32::MAX))
        }
        ServerKind::ApacheEvent | ServerKind::ApacheWorker | ServerKind::ApachePrefork => {
            StatusPage::Apache(apache::status_at(spec))
        }
        ServerKind::Puma | ServerKind::Null => {
            return Err("only Apache and nginx have limits of workers here".to_owned());
        }
    };
    Ok(Source::Web(page, spec.at))
}

/// Starts PHP and waits until it takes connections.
fn start_php(php: &mut site::Fpm, running: &mut Running, log: &Path) -> Result<(), String> {
    let Some(command) = php.command.take() else { return Ok(()) };
    let child = program::spawn(command, log).map_err(|error| format!("php-fpm: {error}"))?;
    running.children.push(child);
    let at = php.socket.display().to_string();
    program::wait_until(("php-fpm", &at), log, &mut running.children, |_| Ok(php.listens()))
}

/// Configurations are for the record, and an answer is one message: a site of 3,000 files has a longer one.
fn cut(mut configuration: String) -> String {
    const MAX: usize = 16 << 10;
    if configuration.len() > MAX {
        configuration.truncate(configuration.floor_char_boundary(MAX));
        configuration += "\n# cut here\n";
    }
    configuration
}

/// The refusal of a site by a server that serves none.
fn refuse_site(kind: ServerKind, site: &Site) -> Result<(), String> {
    let name = match kind {
        ServerKind::ApachePrefork if site.http2 => {
            return Err(
                "apache-prefork has no HTTP/2, which needs threads: use apache or apache-worker"
                    .to_owned(),
            );
        }
        ServerKind::Nginx
        | ServerKind::ApacheEvent
        | ServerKind::ApacheWorker
        | ServerKind::ApachePrefork => return Ok(()),
        ServerKind::Null if site.folder.is_some() || site.compress => {
            return Err(
                "null neither serves a folder nor compresses: use nginx or apache".to_owned()
            );
        }
        ServerKind::Null => {
            let bytes: u64 = site.files.iter().map(|file| file.content.bytes()).sum();
            return if bytes > null::SITE_MAX {
                Err("null holds a site of at most 32 MiB: use nginx or apache".to_owned())
            } else {
                site.check()
            };
        }
        ServerKind::Puma => "puma",
    };
    Err(format!("{name} cannot serve a site of several files: use nginx or apache"))
}

/// Processes asked for, or as many as the CPUs this host may use.
fn workers(spec: &ServerSpec) -> u64 {
    spec.workers.unwrap_or(cpu::allowed().len() as u64).max(1)
}

/// Files that each of so many processes must be able to open, so that all hold the connections
/// asked for together; one may get a quarter more than its share.
///
/// Errors: where the limit of open files forbids it.
fn files_each(name: &str, spec: &ServerSpec, workers: u64) -> Result<u64, String> {
    let limit = cpu::file_limit().map_err(|error| format!("RLIMIT_NOFILE: {error}"))?;
    let share = spec.connections.div_ceil(workers);
    let room = limit.saturating_sub(OWN_FILES);
    if share > room {
        return Err(format!(
            "{name}: {} connections need at least {} worker processes, since each may open {limit} files \
             (ulimit -Hn)",
            spec.connections,
            spec.connections.div_ceil(room.max(1)),
        ));
    }
    Ok((share + share / 4 + OWN_FILES).max(1024).min(limit))
}

/// Connections that servers of the lab can hold in any case: those of one process. 0: the limit is not known.
pub fn connections_held() -> u64 {
    cpu::file_limit().map_or(0, |limit| limit.saturating_sub(OWN_FILES))
}

/// A time in the form that nginx and Apache take, whole milliseconds.
fn milliseconds(ns: u64) -> String {
    format!("{}ms", ns.div_ceil(1_000_000))
}

/// The refusal of a time of work by a server that only serves files.
fn refuse_work(name: &str, spec: &ServerSpec) -> Result<(), String> {
    if spec.work_ns == 0 {
        return Ok(());
    }
    Err(format!("{name} answers immediately and cannot work for a time; puma and null can"))
}

/// Content of a response.
fn content(spec: &ServerSpec) -> Vec<u8> {
    vec![b'x'; spec.body_bytes as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A specification that every test changes a little.
    pub(super) fn spec(kind: ServerKind) -> ServerSpec {
        ServerSpec {
            kind,
            at: "10.77.0.2:80".parse().unwrap(),
            workers: Some(2),
            keepalive: true,
            keepalive_timeout_ns: None,
            keepalive_requests: None,
            tls: false,
            body_bytes: 5,
            work_ns: 0,
            backlog: None,
            connections: 100,
            site: None,
            site_uploaded: false,
            limits: None,
        }
    }

    #[test]
    fn a_time_is_rounded_up_to_whole_milliseconds() {
        assert_eq!([0, 1, 1_000_000, 1_500_000].map(milliseconds), ["0ms", "1ms", "1ms", "2ms"]);
    }

    #[test]
    fn more_connections_than_files_are_refused_with_the_number_of_workers_that_would_do() {
        let limit = cpu::file_limit().unwrap();
        let all = ServerSpec { connections: 2 * limit, ..spec(ServerKind::Nginx) };
        let error = files_each("nginx", &all, 1).unwrap_err();
        assert!(error.contains("at least 3 worker processes"), "{error}");
        assert!(files_each("nginx", &all, 3).is_ok_and(|files| files <= limit));
    }

    #[test]
    fn a_server_of_files_refuses_to_work_and_names_those_that_do() {
        let slow = ServerSpec { work_ns: 1, ..spec(ServerKind::Nginx) };
        assert!(refuse_work("nginx", &slow).unwrap_err().contains("puma and null"));
        assert_eq!(refuse_work("nginx", &spec(ServerKind::Nginx)), Ok(()));
    }
}
