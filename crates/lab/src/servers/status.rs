//! How many workers are busy: what our own front service reports, and what is read of either service.
//!
//! The report has the form of PHP-FPM's status page (`?json`). Both services report on a Unix socket: a
//! reading adds no TCP connection to those that are measured, and it is answered while every worker is stuck.
//! PHP-FPM reports a waiting queue of 0 on a Unix socket, so its length comes from `unix_diag`.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tcptoll_core::tcp::counters::parse_net;
use tcptoll_kernel::sock_diag::SockDiag;
use tcptoll_kernel::unix_diag::UnixDiag;

use super::php;
use super::scoreboard::{Reading, Scoreboard, StatusPage};

/// A reading is answered within this, or it is missed.
const LIMIT: Duration = Duration::from_millis(500);

/// Longest report, bytes.
const REPORT_MAX: u64 = 16 << 10;

/// The report: fields of PHP-FPM's status page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Report {
    #[serde(rename = "accepted conn")]
    accepted: u64,
    #[serde(rename = "listen queue")]
    waiting: u64,
    #[serde(rename = "idle processes")]
    idle: u64,
    #[serde(rename = "active processes")]
    active: u64,
    #[serde(rename = "total processes")]
    total: u64,
    #[serde(rename = "max active processes")]
    active_max: u64,
}

/// The workers of our own front service.
#[derive(Debug)]
pub(super) struct Status {
    total: u64,
    accepted: AtomicU64,
    active: AtomicU64,
    active_max: AtomicU64,
}

/// A worker is busy while this lives.
pub(super) struct Busy<'a>(&'a Status);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Status {
    /// All are idle.
    pub(super) fn new(workers: u64) -> Self {
        let zero = || AtomicU64::new(0);
        Self { total: workers, accepted: zero(), active: zero(), active_max: zero() }
    }

    /// A worker has accepted a request.
    pub(super) fn busy(&self) -> Busy<'_> {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        let active = self.active.fetch_add(1, Ordering::Relaxed) + 1;
        self.active_max.fetch_max(active, Ordering::Relaxed);
        Busy(self)
    }

    fn now(&self, waiting: u64) -> Report {
        let active = self.active.load(Ordering::Relaxed);
        Report {
            accepted: self.accepted.load(Ordering::Relaxed),
            waiting,
            idle: self.total.saturating_sub(active),
            active,
            total: self.total,
            active_max: self.active_max.load(Ordering::Relaxed),
        }
    }

    /// Reports to whoever connects to a Unix socket, until that fails.
    pub(super) fn report(&self, path: &Path, requests: SocketAddr) -> io::Result<()> {
        let listener = UnixListener::bind(path)?;
        let mut diag = SockDiag::open().map_err(io::Error::other)?;
        loop {
            let (mut stream, _) = listener.accept()?;
            let listeners = diag.listeners().map_err(io::Error::other)?;
            let own = listeners.iter().find(|one| one.address.port() == requests.port());
            let own = own.ok_or_else(|| io::Error::other("its own listener is not there"))?;
            let text = serde_json::to_string(&self.now(own.accept_queue_len.into()))?;
            // A reader that went away is no reason to end.
            let _ = stream.set_write_timeout(Some(LIMIT));
            let _ = stream.write_all(text.as_bytes());
        }
    }
}

/// Whose status is read, and where.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// A web server: its page, and the address that requests wait at.
    Web(StatusPage, SocketAddr),
    /// Our own front service: its socket.
    Own(PathBuf),
    /// PHP-FPM: the socket of its status pool, and the one that requests wait at.
    Fpm {
        /// Of the status pool.
        status: PathBuf,
        /// Of the workers.
        requests: PathBuf,
    },
}

/// Reads a status again and again.
pub(super) enum StatusReader {
    /// Of our own front service: its socket.
    Own(PathBuf),
    /// Of PHP-FPM: the sockets of [`Source::Fpm`], and where the kernel has the second.
    Fpm(PathBuf, PathBuf, Option<UnixDiag>),
    /// Of a web server: where requests wait, and where the kernel has that.
    Web(Scoreboard, SocketAddr, Option<SockDiag>),
}

impl StatusReader {
    pub(super) fn new(source: Source) -> Self {
        match source {
            Source::Own(path) => Self::Own(path),
            Source::Fpm { status, requests } => Self::Fpm(status, requests, UnixDiag::open().ok()),
            Source::Web(page, at) => Self::Web(Scoreboard::new(page), at, SockDiag::open().ok()),
        }
    }

    /// One reading.
    ///
    /// PHP-FPM reports no waiting requests of a Unix socket (8.2 on Linux: always 0); its queue is read
    /// from the kernel. Its status pool is a pool of its own: the process that answers is not among
    /// the busy ones.
    pub(super) fn read(&mut self) -> Result<Reading, String> {
        match self {
            Self::Own(path) => {
                let text = read_own(path).map_err(|error| error.to_string())?;
                let report = report(&text)?;
                reading(&report, Some(number(report.waiting)?))
            }
            Self::Fpm(status, requests, diag) => {
                let text = php::get(status, "/status", "json", (REPORT_MAX, LIMIT))?;
                let listener = diag.as_mut().and_then(|diag| diag.listener(requests).ok());
                reading(&report(&text)?, listener.flatten().map(|listener| listener.waiting))
            }
            Self::Web(board, at, diag) => {
                let reading = board.read()?;
                let listeners = diag.as_mut().and_then(|diag| diag.listeners().ok());
                // nginx has a listener for each process.
                let waiting = listeners.map(|all| {
                    let own = all.iter().filter(|one| one.address.port() == at.port());
                    own.map(|one| one.accept_queue_len).sum()
                });
                Ok(Reading { waiting, overflows: overflows(), ..reading })
            }
        }
    }
}

fn number(value: u64) -> Result<u32, String> {
    u32::try_from(value).map_err(|_| format!("{value} processes"))
}

fn reading(report: &Report, waiting: Option<u32>) -> Result<Reading, String> {
    let (busy, total) = (number(report.active)?, number(report.total)?);
    Ok(Reading { busy, total, waiting, ..Reading::default() })
}

/// Of this network.
fn overflows() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/net/netstat").ok()?;
    u64::try_from(*parse_net(&text).get("TcpExtListenOverflows")?).ok()
}

fn read_own(path: &Path) -> io::Result<Vec<u8>> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(LIMIT))?;
    let mut text = Vec::new();
    stream.take(REPORT_MAX).read_to_end(&mut text)?;
    Ok(text)
}

/// A report whose numbers are possible.
fn report(text: &[u8]) -> Result<Report, String> {
    let report: Report =
        serde_json::from_slice(text).map_err(|error| format!("no status page: {error}"))?;
    let Report { idle, active, total, .. } = report;
    if total == 0 || active > total || idle > total {
        return Err(format!("{active} of {total} processes are active and {idle} idle"));
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As PHP-FPM 8.2 writes it.
    const PAGE: &str = r#"{"pool":"front","process manager":"static","start time":1795397651,
    "start since":1,"accepted conn":4,"listen queue":0,"max listen queue":0,"listen queue len":0,
    "idle processes":0,"active processes":4,"total processes":4,"max active processes":4,
    "max children reached":0,"slow requests":0}"#;

    #[test]
    fn a_page_of_php_fpm_is_read() {
        let report = report(PAGE.as_bytes()).unwrap();
        assert_eq!((report.active, report.idle, report.total), (4, 0, 4));
    }

    #[test]
    fn a_page_with_impossible_numbers_is_refused() {
        let page = PAGE.replace("\"active processes\":4", "\"active processes\":5");
        assert_eq!(report(page.as_bytes()).unwrap_err(), "5 of 4 processes are active and 0 idle");
        for text in ["", "{}", "File not found.", "{\"active processes\":-1}"] {
            assert!(report(text.as_bytes()).unwrap_err().starts_with("no status page"), "{text}");
        }
    }

    #[test]
    fn our_own_report_has_the_form_of_that_page_and_counts_busy_workers() {
        let status = Status::new(3);
        let (one, other) = (status.busy(), status.busy());
        drop(one);
        let text = serde_json::to_string(&status.now(7)).unwrap();
        let read = report(text.as_bytes()).unwrap();
        assert_eq!((read.active, read.idle, read.total, read.waiting), (1, 2, 3, 7));
        assert_eq!((read.accepted, read.active_max), (2, 2));
        drop(other);
        assert_eq!(status.now(0).active, 0);
    }
}
