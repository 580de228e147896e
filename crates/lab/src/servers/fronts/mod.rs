//! Front services: a fixed number of blocking workers that call a backend.
//!
//! `workers` is our own process, with `calls` (to Redis) and a `Cache`; `fpm`
//! is PHP-FPM behind nginx, with `front.php`.

mod calls;
mod fpm;
pub mod workers;

use std::process::Child;
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::Instant;

use super::status::{Source, StatusReader};
use super::watch::WorkersWatch;
use super::{Running, program};
use crate::files::RunFolder;
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

/// A value, and when it came, ns.
#[derive(Clone, Debug)]
struct CachedValue {
    value: Vec<u8>,
    since_ns: u64,
}

/// One value of the backend, shared by all workers of our own front service.
///
/// One worker refreshes an expired value. Until it has succeeded, all others answer the expired value,
/// and so does that worker if its call fails: a backend that stalls holds one worker.
#[derive(Debug)]
struct Cache {
    /// For this long, ns.
    keep_ns: u64,
    kept: RwLock<Option<CachedValue>>,
    /// Held by the worker that refreshes.
    refreshing: Mutex<()>,
}

impl Cache {
    /// Empty.
    fn new(keep_ns: u64) -> Self {
        Self { keep_ns, kept: RwLock::new(None), refreshing: Mutex::new(()) }
    }

    /// The value. `call` asks the backend, `now` tells the time, ns.
    ///
    /// Errors: those of `call` while there is no value at all.
    fn value<E>(
        &self,
        now: impl Fn() -> u64,
        call: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<Vec<u8>, E> {
        let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner).clone();
        let refresh = || {
            let value = call()?;
            let new = CachedValue { value: value.clone(), since_ns: now() };
            *self.kept.write().unwrap_or_else(PoisonError::into_inner) = Some(new);
            Ok(value)
        };
        let Some(kept) = kept else { return refresh() };
        if now().saturating_sub(kept.since_ns) < self.keep_ns {
            return Ok(kept.value);
        }
        match self.refreshing.try_lock() {
            Ok(_held) => Ok(refresh().unwrap_or(kept.value)),
            Err(_) => Ok(kept.value),
        }
    }
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

    type Answer = Result<Vec<u8>, &'static str>;

    #[expect(clippy::unnecessary_wraps, reason = "it is compared with answers")]
    fn ok(text: &str) -> Answer {
        Ok(text.as_bytes().to_vec())
    }

    #[test]
    fn a_fresh_value_is_answered_without_a_call_and_an_expired_one_is_refreshed() {
        let cache = Cache::new(100);
        assert_eq!(cache.value(|| 0, || Err("down")), Err("down"));
        assert_eq!(cache.value(|| 0, || ok("one")), ok("one"));
        assert_eq!(cache.value(|| 99, || Err("not called")), ok("one"));
        assert_eq!(cache.value(|| 100, || ok("two")), ok("two"));
        assert_eq!(cache.value(|| 199, || Err("not called")), ok("two"));
    }

    #[test]
    fn an_expired_value_is_answered_if_the_backend_fails() {
        let cache = Cache::new(100);
        assert_eq!(cache.value(|| 0, || ok("old")), ok("old"));
        assert_eq!(cache.value(|| 100, || Err("down")), ok("old"));
    }

    #[test]
    fn while_one_worker_refreshes_the_others_answer_the_expired_value() {
        let cache = Cache::new(100);
        assert_eq!(cache.value(|| 0, || ok("old")), ok("old"));
        let refreshed = cache.value(
            || 100,
            || {
                assert_eq!(cache.value(|| 100, || -> Answer { panic!("called") }), ok("old"));
                ok("new")
            },
        );
        assert_eq!(refreshed, ok("new"));
    }
}
