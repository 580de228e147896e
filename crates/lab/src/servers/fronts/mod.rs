//! Front services: a fixed number of blocking workers that call a backend.
//!
//! `workers` is our own process, with `calls` (to Redis, in the protocol of `resp`) and `cache`; `fpm`
//! is PHP-FPM behind nginx, with `front.php`.

mod cache;
mod calls;
mod fpm;
mod resp;
pub mod workers;

use std::process::Child;
use std::time::Instant;

use super::Running;
use super::program;
use super::run_folder::RunFolder;
use super::status::{Source, StatusReader};
use super::watch::WorkersWatch;
use crate::messages::{FrontKind, FrontServing, FrontSpec, WatchWorkers};

/// Path of requests that call the backend, of both services.
const BACKEND_PATH: &str = "/backend";

/// Path of requests that do not. So is every other.
const LOCAL_PATH: &str = "/local";

/// A front service that runs. It ends with its host, or when this is dropped.
pub(super) struct Front {
    /// Only kept.
    _running: Running,
    source: Source,
}

impl Front {
    /// Begins to read its status again and again, on any of these CPUs.
    pub(super) fn watch(&self, order: WatchWorkers, cpus: Vec<u32>) -> WorkersWatch {
        WorkersWatch::begin(self.source.clone(), order, cpus)
    }
}

/// Starts a front service and waits until it answers.
///
/// Only to be called in the client host of a lab: the folder of the service's files is mounted over
/// one of this process's mount namespace.
///
/// Errors: a sentence for the user. A program that is missing is named with its Debian package.
pub(super) fn start(spec: &FrontSpec) -> Result<(Front, FrontServing), String> {
    let begun = Instant::now();
    if spec.workers == 0 {
        return Err("a front service needs at least one worker".to_owned());
    }
    program::refuse_taken_port(spec.at)?;
    let folder = RunFolder::make()?;
    let mut running = Running { children: Vec::new(), folder, status: None };
    let (source, version, configuration) = match spec.kind {
        FrontKind::Workers => start_workers(spec, &mut running),
        FrontKind::PhpFpm => start_fpm(spec, &mut running),
    }?;
    let serving = FrontServing {
        at: spec.at,
        version,
        backend_path: BACKEND_PATH.to_owned(),
        local_path: LOCAL_PATH.to_owned(),
        configuration,
        ready_ns: begun.elapsed().as_nanos() as u64,
    };
    Ok((Front { _running: running, source }, serving))
}

type Started = (Source, String, String);

fn start_workers(spec: &FrontSpec, running: &mut Running) -> Result<Started, String> {
    let name = spec.kind.name();
    let status = running.folder.file("status.sock");
    let log = running.folder.file("log");
    let (command, configuration) = workers::command(spec, &status)?;
    let child = program::spawn(command, &log).map_err(|error| format!("{name}: {error}"))?;
    running.children.push(child);
    let source = Source::Own(status);
    wait_for_status(spec, &source, running, 0)?;
    program::wait_until_it_answers(name, (spec.at, "/"), None, &log, &mut running.children)?;
    let version = concat!("tcptoll/", env!("CARGO_PKG_VERSION")).to_owned();
    Ok((source, version, configuration))
}

fn start_fpm(spec: &FrontSpec, running: &mut Running) -> Result<Started, String> {
    let prepared = fpm::prepare(spec, &running.folder)?;
    let log = running.folder.file("log");
    let fpm = program::spawn(prepared.fpm, &log).map_err(|error| format!("php-fpm: {error}"))?;
    running.children.push(fpm);
    let (requests, status) = prepared.sockets;
    let source = Source::Fpm { status, requests };
    // nginx answers with an error before PHP-FPM is there.
    wait_for_status(spec, &source, running, 0)?;
    let nginx = program::spawn(prepared.nginx, &log).map_err(|error| format!("nginx: {error}"))?;
    running.children.push(nginx);
    let of_nginx: &mut [Child] = &mut running.children[1..];
    program::wait_until_it_answers("nginx", (spec.at, "/"), None, &log, of_nginx)?;
    Ok((source, prepared.version, prepared.configuration))
}

/// Waits until the status page reports all workers.
fn wait_for_status(
    spec: &FrontSpec,
    source: &Source,
    running: &mut Running,
    first: usize,
) -> Result<(), String> {
    let mut reader = StatusReader::new(source.clone());
    let log = running.folder.file("log");
    let children = &mut running.children[first..];
    let workers = spec.workers;
    program::wait_until((spec.kind.name(), "its status page"), &log, children, |_| {
        // A socket that is not there yet is no error.
        Ok(reader.read().is_ok_and(|reading| u64::from(reading.total) == workers))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{BackendKind, Connection};

    /// A specification that every test changes a little.
    pub(super) fn spec() -> FrontSpec {
        FrontSpec {
            kind: FrontKind::Workers,
            at: "127.0.0.1:4080".parse().unwrap(),
            workers: 2,
            backlog: None,
            connections: 100,
            backend: "127.0.0.1:6379".parse().unwrap(),
            backend_kind: BackendKind::Redis,
            connection: Connection::PerRequest,
            connect_timeout_ns: None,
            timeout_ns: 20_000_000_000,
            retries: 0,
            backoff_ns: 0,
            jitter: false,
            cache_ns: None,
            work_ns: 0,
            seed: 1,
        }
    }
}
