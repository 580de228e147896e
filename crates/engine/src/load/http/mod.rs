//! HTTP requests over connections that are used again in a given way.
//!
//! Read `client` (the loop), `pace` (when a request begins), `slot` (one connection),
//! `driver` with `epoll` and `uring` (how bytes come and go), `tally` (what is counted).
//! This file spreads a load over threads and looks at the process while connections are open.

mod client;
mod requests;
mod slot;
mod tally;
mod tls;

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use tcptoll_kernel::epoll::{Interest, Poller};
use tcptoll_kernel::sock_diag::SockDiag;
use tcptoll_kernel::{cpu, ring};
use tcptoll_model::stats::Histogram;

use self::client::Client;
use self::requests::Request;
use self::tally::Tally;
use self::tls::Tls;
use super::driver::Driver;
use super::epoll::Epoll;
use super::pace::{Pace, share};
use super::uring::Uring;
use super::{CHANNEL, LoadError, socket_memory, stop_requested};
use crate::channel::Channel;
use crate::clock::monotonic_ns;
use crate::messages::{HttpLoad, HttpReport, HttpRequests, Io};

/// Progress is told this often.
const PROGRESS: Duration = Duration::from_millis(200);

/// The number under which the poller knows the threads.
const THREADS: u64 = CHANNEL - 1;

/// Most threads of a load.
pub const THREADS_MAX: u64 = 64;

/// A distribution by its name.
pub type Named = (&'static str, Histogram);

/// What the threads of a load share.
struct Shared {
    requests: Vec<Request>,
    tls: Option<Tls>,
    /// SHA-256 that content must have.
    digest: Option<Vec<u8>>,
    start_ns: u64,
    /// End with what there is.
    stop: AtomicBool,
    /// Measured requests that have ended.
    done: AtomicU64,
    /// All threads and the one that looks after them: passed before and after it has looked.
    open: Barrier,
}

/// Runs a load to its end, or until the parent says stop. `requests`: JSON of [`HttpRequests`].
pub fn run(
    load: &HttpLoad,
    requests: &str,
    channel: &mut Channel,
) -> Result<(HttpReport, Vec<Named>), LoadError> {
    let requests: HttpRequests = serde_json::from_str(requests)
        .map_err(|error| LoadError::Refused(format!("the requests: {error}")))?;
    let requests = requests::write(&requests, load.reuse).map_err(LoadError::Refused)?;
    let tls = load.tls.as_ref().map(Tls::new).transpose().map_err(LoadError::Refused)?;
    // The soft limit is raised to the hard one: a socket is a file.
    let _ = cpu::file_limit();
    let ringed = over_io_uring(load)?;
    let threads = if ringed {
        // A ring's table of sockets is bounded by the limit of open files, too.
        load.threads.max(load.connections.div_ceil(crate::load::uring::most_slots().max(1).into()))
    } else {
        load.threads
    };
    let threads = threads.clamp(1, THREADS_MAX).min(load.connections.max(1));
    let resident_before = cpu::rss_bytes();
    let shared = Shared {
        requests,
        tls,
        digest: load.expect_sha256.as_deref().and_then(bytes_of_hex),
        start_ns: monotonic_ns(),
        stop: AtomicBool::new(false),
        done: AtomicU64::new(0),
        open: Barrier::new(threads as usize + 1),
    };
    let mut look = Look::default();
    let tallies = std::thread::scope(|scope| {
        let (ended, told) = UnixStream::pair().map_err(kernel("socketpair"))?;
        let mut handles = Vec::new();
        for part in 0..threads {
            let told = told.try_clone().map_err(kernel("dup"))?;
            let shared = &shared;
            handles.push(scope.spawn(move || thread(load, shared, (part, threads), ringed, told)));
        }
        let waited = watch(&ended, channel, &shared, threads);
        look = Look::now();
        shared.open.wait();
        let tallies = joined(handles);
        waited.and(tallies)
    })?;
    let mut tallies = tallies.into_iter();
    let mut tally = tallies.next().ok_or_else(|| LoadError::Refused("no thread ran".into()))?;
    tallies.for_each(|other| tally.add(&other));
    let mut report = tally.report();
    if ringed { Uring::NAME } else { Epoll::NAME }.clone_into(&mut report.io);
    if report.tcp_info.is_empty() {
        report.tcp_info = look.tcp_info;
    }
    report.resident_bytes = look.resident_bytes.saturating_sub(resident_before);
    report.socket_bytes = look.socket_bytes.map(|bytes| (bytes * report.open as f64) as u64);
    let told = tally.histograms().into_iter().filter(|(_, histogram)| histogram.count() > 0);
    Ok((report, told.map(|(name, histogram)| (name, histogram.clone())).collect()))
}

/// Whether connections are to be direct descriptors of `io_uring`.
///
/// Errors: it was asked for, and the kernel does not allow it.
fn over_io_uring(load: &HttpLoad) -> Result<bool, LoadError> {
    match load.io {
        Io::Epoll => Ok(false),
        Io::IoUring => match ring::available() {
            Ok(()) => Ok(true),
            Err(error) => Err(LoadError::Refused(format!(
                "--io io-uring: this kernel does not allow it ({error}); containers often forbid it: use --io epoll"
            ))),
        },
        Io::Auto => Ok(ring::available().is_ok()),
    }
}

/// What the process and its sockets hold while connections are open.
#[derive(Default)]
struct Look {
    resident_bytes: u64,
    /// Of one socket.
    socket_bytes: Option<f64>,
    /// Of one connection; a direct descriptor cannot be asked itself.
    tcp_info: Vec<u8>,
}

impl Look {
    fn now() -> Self {
        let of_one = SockDiag::open().ok().and_then(|mut diag| diag.tcp_info(1).ok());
        Self {
            resident_bytes: cpu::rss_bytes(),
            tcp_info: of_one.and_then(|mut of| of.pop()).map(|(.., info)| info).unwrap_or_default(),
            socket_bytes: socket_memory().ok().and_then(|(_, bytes)| bytes),
        }
    }
}

/// Looks after the threads until each has come to its end.
fn watch(
    ended: &UnixStream,
    channel: &mut Channel,
    shared: &Shared,
    threads: u64,
) -> Result<(), LoadError> {
    let watched = (|| {
        let mut poller = Poller::new(8)?;
        poller.add(&*channel, CHANNEL, Interest::READ)?;
        poller.add(ended, THREADS, Interest::READ)?;
        let mut running = threads;
        while running > 0 {
            for event in poller.wait(Some(PROGRESS))? {
                if event.token == THREADS {
                    let mut bytes = [0; THREADS_MAX as usize];
                    let length = std::io::Read::read(&mut &*ended, &mut bytes);
                    running -= length.map_err(kernel("read"))? as u64;
                    continue;
                }
                stop_requested(channel)?;
                shared.stop.store(true, Ordering::Relaxed);
            }
            let done = shared.done.load(Ordering::Relaxed);
            channel.progress(done)?;
        }
        Ok(())
    })();
    // Whatever went wrong here, the threads must come to their end.
    if watched.is_err() {
        shared.stop.store(true, Ordering::Relaxed);
    }
    watched
}

fn joined(
    handles: Vec<ScopedJoinHandle<'_, Result<Tally, LoadError>>>,
) -> Result<Vec<Tally>, LoadError> {
    let lost = || LoadError::Refused("a thread of the load failed".to_owned());
    handles.into_iter().map(|handle| handle.join().map_err(|_| lost())?).collect()
}

/// One thread of the load.
fn thread(
    load: &HttpLoad,
    shared: &Shared,
    (part, parts): (u64, u64),
    ringed: bool,
    told: UnixStream,
) -> Result<Tally, LoadError> {
    let slots = share(load.connections.max(1), part, parts) as u32;
    let pace = Pace::new(load, shared.start_ns, part, parts);
    // Threads begin at different requests and source addresses.
    let first = (slots, part as u32, (part * load.connections / parts) as usize);
    let congestion = load.congestion.as_deref();
    if ringed {
        let driver = Uring::new(load.target, &load.bind, congestion, slots, load.batch_ns, true);
        go(load, shared, driver, pace, first, told)
    } else {
        let driver = Epoll::new(load.target, &load.bind, congestion, slots, load.batch_ns, true);
        go(load, shared, driver, pace, first, told)
    }
}

fn go<D: Driver>(
    load: &HttpLoad,
    shared: &Shared,
    driver: Result<D, LoadError>,
    pace: Pace,
    first: (u32, u32, usize),
    mut told: UnixStream,
) -> Result<Tally, LoadError> {
    let mut client = driver.map(|driver| Client::new(load, shared, driver, pace, first));
    let ran = match &mut client {
        Ok(client) => client.run(),
        Err(_) => Ok(()),
    };
    if ran.is_err() || client.is_err() {
        shared.stop.store(true, Ordering::Relaxed);
    }
    // One byte each; the stream holds more than there are threads.
    let _ = told.write_all(b".");
    shared.open.wait();
    let tally = client?.close_all();
    ran.map(|()| tally)
}

fn bytes_of_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> =
        text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect::<Option<_>>()?;
    Some(
        digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect(),
    )
}

fn kernel(op: &'static str) -> impl Fn(std::io::Error) -> LoadError {
    move |error| tcptoll_kernel::SysError::new(op, "the load", error).into()
}
