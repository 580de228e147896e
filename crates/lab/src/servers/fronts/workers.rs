//! The front service of our own: a fixed number of threads, each of which blocks while it serves one
//! request. A process of its own, started by re-executing the binary.
//!
//! Requests are GET over HTTP/1 and nothing more. Each response closes its connection, so no worker
//! is held by a client that is idle.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Once};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tcptoll_kernel::socket::Tcp;
use tcptoll_kernel::{cpu, process};

use super::calls::{Caller, Failure};
use super::{BACKEND_PATH, Cache, LOCAL_PATH};
use crate::clock::monotonic_ns;
use crate::messages::{BackendKind, FrontSpec};
use crate::servers;
use crate::servers::status::Status;

/// The hidden sub-command that makes a front service of the re-executed binary.
pub const FRONT_COMMAND: &str = "__front";

/// The argument of listen(2) where none is asked for.
const BACKLOG: u64 = 4_096;

/// A request may be this long.
const REQUEST_MAX: usize = 8 << 10;

/// A client must send its request, and take the response, within this.
const CLIENT_LIMIT: Duration = Duration::from_secs(10);

/// A worker needs little more than its buffers.
const STACK_BYTES: usize = 256 << 10;

/// Descriptors besides the two of each worker.
const OWN_FILES: u64 = 64;

/// What the process is told.
#[derive(Debug, Serialize, Deserialize)]
struct Orders {
    spec: FrontSpec,
    /// Path of the socket on which it reports its status.
    status: PathBuf,
}

/// The command that starts it, and the text of its orders.
pub(super) fn command(spec: &FrontSpec, status: &Path) -> Result<(Command, String), String> {
    if spec.backend_kind != BackendKind::Redis {
        return Err(format!(
            "the front service `workers` supports only redis: use php-fpm in front of {}",
            spec.backend_kind.name()
        ));
    }
    let limit = cpu::file_limit().map_err(|error| format!("RLIMIT_NOFILE: {error}"))?;
    let needed = spec.workers.saturating_mul(2).saturating_add(OWN_FILES);
    if needed > limit {
        return Err(format!(
            "workers: {} workers need {needed} open files, but the limit is {limit} (ulimit -Hn)",
            spec.workers
        ));
    }
    let orders = Orders { spec: spec.clone(), status: status.to_owned() };
    let text = serde_json::to_string(&orders).map_err(|error| error.to_string())?;
    let mut command = Command::new("/proc/self/exe");
    command.arg(FRONT_COMMAND).arg(&text);
    Ok((command, text))
}

/// Becomes the front service; returns only if it cannot go on, with its exit status.
pub fn run(orders: &str) -> i32 {
    process::set_name("tcptoll-front");
    let _ = cpu::file_limit();
    let served = serde_json::from_str(orders)
        .map_err(|error| error.to_string())
        .and_then(|orders: Orders| serve(&orders));
    if let Err(error) = served {
        servers::say(&error);
    }
    1
}

fn serve(orders: &Orders) -> Result<(), String> {
    let spec = &orders.spec;
    let backlog = i32::try_from(spec.backlog.unwrap_or(BACKLOG)).unwrap_or(i32::MAX);
    let listener = Tcp::blocking_listener(spec.at, backlog).map_err(|error| error.to_string())?;
    let shared = Arc::new(Shared {
        listener,
        status: Status::new(spec.workers),
        cache: spec.cache_ns.map(Cache::new),
        work: Duration::from_nanos(spec.work_ns),
    });
    for number in 0..spec.workers {
        let shared = Arc::clone(&shared);
        let caller = Caller::new(spec, number);
        let worker = thread::Builder::new().stack_size(STACK_BYTES);
        worker.spawn(move || work(&shared, caller)).map_err(|error| format!("thread: {error}"))?;
    }
    // The first of all threads reports while every worker may be stuck.
    shared.status.report(&orders.status, spec.at).map_err(|error| format!("status: {error}"))
}

/// What all workers use.
struct Shared {
    listener: TcpListener,
    status: Status,
    cache: Option<Cache>,
    work: Duration,
}

/// One worker: accepts, serves, and accepts again.
fn work(shared: &Shared, mut caller: Caller) {
    loop {
        match shared.listener.accept() {
            Ok((stream, _)) => {
                let _busy = shared.status.busy();
                // A client that went away is no fault of the worker.
                let _ = serve_one(shared, &mut caller, &stream);
            }
            Err(error) => {
                // Reset while it waited, or no descriptor left: the latter stays so until a
                // connection is closed, and is not to be asked for all the time.
                static SAID: Once = Once::new();
                SAID.call_once(|| servers::say(&format!("accept: {error}")));
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

fn serve_one(shared: &Shared, caller: &mut Caller, mut stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(CLIENT_LIMIT))?;
    stream.set_write_timeout(Some(CLIENT_LIMIT))?;
    stream.set_nodelay(true)?;
    let (status, content) = match read_path(stream)? {
        None => ("400 Bad Request", b"bad request".to_vec()),
        Some(path) => {
            use_cpu(shared.work);
            if path == BACKEND_PATH {
                match value(shared, caller) {
                    Ok(value) => ("200 OK", value),
                    Err(failure) => (failure.status(), failure.reason().into_bytes()),
                }
            } else {
                ("200 OK", LOCAL_PATH.as_bytes().to_vec())
            }
        }
    };
    let mut response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        content.len()
    )
    .into_bytes();
    response.extend(content);
    stream.write_all(&response)?;
    stream.shutdown(Shutdown::Write)
}

fn value(shared: &Shared, caller: &mut Caller) -> Result<Vec<u8>, Failure> {
    match &shared.cache {
        Some(cache) => cache.value(monotonic_ns, || caller.call()),
        None => caller.call(),
    }
}

/// The path of a request. `Ok(None)`: it is no GET over HTTP/1, or too long.
fn read_path(mut stream: impl Read) -> io::Result<Option<String>> {
    let mut head = Vec::new();
    let mut part = [0; 1_024];
    loop {
        match stream.read(&mut part) {
            Ok(0) => return Ok(None),
            Ok(length) => head.extend_from_slice(&part[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        if let Some(end) = head.windows(4).position(|four| four == b"\r\n\r\n") {
            return Ok(path(&head[..end]));
        }
        if head.len() > REQUEST_MAX {
            return Ok(None);
        }
    }
}

/// The path in the head of a request, without its query.
fn path(head: &[u8]) -> Option<String> {
    let line = std::str::from_utf8(head).ok()?.split("\r\n").next()?;
    let words: Vec<&str> = line.split(' ').collect();
    let ["GET", target, "HTTP/1.1" | "HTTP/1.0"] = words[..] else { return None };
    target.split('?').next().map(str::to_owned)
}

/// Uses CPU for this time.
fn use_cpu(time: Duration) {
    let us = time.as_micros() as u64;
    let begun = cpu::thread_time();
    loop {
        let used = cpu::thread_time().since(begun);
        if used.user_us + used.system_us >= us {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::fronts::tests::spec;

    #[test]
    fn a_backend_that_it_cannot_speak_to_is_refused_with_the_service_that_can() {
        let spec = FrontSpec { backend_kind: BackendKind::Mariadb, ..spec() };
        let error = command(&spec, Path::new("/status")).unwrap_err();
        assert!(error.ends_with("use php-fpm in front of mariadb"), "{error}");
    }

    #[test]
    fn more_workers_than_open_files_allow_are_refused() {
        let spec = FrontSpec { workers: u64::MAX, ..spec() };
        assert!(command(&spec, Path::new("/status")).unwrap_err().contains("open files"));
    }

    #[test]
    fn the_orders_are_read_back_as_they_were_given() {
        let (_, text) = command(&spec(), Path::new("/status")).unwrap();
        let orders: Orders = serde_json::from_str(&text).unwrap();
        assert_eq!((orders.spec.workers, orders.status), (2, PathBuf::from("/status")));
    }

    #[test]
    fn the_path_of_a_request_is_found_and_anything_else_is_a_bad_request() {
        let read = |text: &str| read_path(text.as_bytes()).unwrap();
        assert_eq!(read("GET /backend?1 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap(), "/backend");
        for text in [
            "",
            "GET /backend HTTP/1.1\r\n",
            "POST /backend HTTP/1.1\r\n\r\n",
            "GET /backend\r\n\r\n",
            "GET / / HTTP/1.1\r\n\r\n",
            "GET / HTTP/2\r\n\r\n",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(read(&"x".repeat(REQUEST_MAX * 4)), None);
    }

    #[test]
    fn work_takes_cpu_time() {
        let before = cpu::thread_time();
        use_cpu(Duration::from_millis(3));
        let used = cpu::thread_time().since(before);
        assert!(used.user_us + used.system_us >= 3_000);
    }
}
