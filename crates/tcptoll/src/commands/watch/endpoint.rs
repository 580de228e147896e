//! `--listen`: the newest state for Prometheus, over HTTP.
//!
//! The socket is bound before the watch joins another network namespace, so `--netns` is watched and the
//! machine's own namespace is listened in. Clients are served by threads that never touch the reader: they
//! take the page of the newest state, which is made when it is first asked for.
//!
//! A page is served while it is new: no look for three intervals (5 s at least) is answered with 503, so
//! that a scrape fails (`up` is 0) and Prometheus marks the series as stale. Values of a look that is past
//! are not repeated as if they were measured now.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use anyhow::{Context as _, bail};

use super::Sink;
use crate::commands::watch::request::{
    HEAD_MAX, Hosts, Refusal, Request, TOO_LARGE, TOO_SLOW, Target, parse,
};
use crate::exit::say;
use tcptoll_live::metrics::{Metrics, MetricsFormat};
use tcptoll_live::watch::{State, WatchSummary};

/// A look may be missing for this many intervals.
const MISSED_INTERVALS: u32 = 3;
/// And for this time: a busy machine delays short intervals.
const MISSED_MIN: Duration = Duration::from_secs(5);

/// A socket that scrapers can connect to. Nobody is served yet.
pub(super) struct Bound {
    listener: TcpListener,
    at: SocketAddr,
    hosts: Hosts,
}

impl Bound {
    /// Binds in the namespace that the caller is in. No thread is started.
    pub(super) fn new(listen: &str, allow_hosts: &[String]) -> anyhow::Result<Self> {
        let Ok(wanted) = listen.parse::<SocketAddr>() else {
            bail!(
                "--listen {listen}: this is not a numeric address with a port. Write one like 127.0.0.1:9464 or \
                 [::1]:9464"
            )
        };
        let hosts = match Hosts::new(allow_hosts) {
            Ok(hosts) => hosts,
            Err(name) => {
                bail!(
                    "--allow-host {name}: write a host name or an address, without scheme and port"
                )
            }
        };
        let listener = TcpListener::bind(wanted).map_err(|error| not_bound(wanted, &error))?;
        let at = listener.local_addr().context("reading the address of the metrics")?;
        Ok(Self { listener, at, hosts })
    }

    /// Starts to serve, and says where.
    pub(super) fn serve(self, interval: Duration) -> anyhow::Result<Endpoint> {
        let at = self.at;
        if !at.ip().to_canonical().is_loopback() {
            say(&format!(
                "warning: --listen {at} is not a loopback address. Everyone who reaches it can read which \
                 listeners and destinations this machine has."
            ));
        }
        let endpoint = Endpoint { page: Arc::new(MetricsPage::new(interval)) };
        let page = Arc::clone(&endpoint.page);
        let pages: Arc<Pages> = Arc::new(move |format| page.get(format, Instant::now()));
        thread::Builder::new()
            .name("metrics".into())
            .spawn(move || serve(&self.listener, &self.hosts, BOUNDS, &pages))
            .context("starting the thread that serves the metrics")?;
        say(&format!("metrics http://{at}/metrics"));
        Ok(endpoint)
    }
}

/// Why an address cannot be listened on, and what to do.
fn not_bound(at: SocketAddr, error: &std::io::Error) -> anyhow::Error {
    let port = at.port();
    let why = match error.kind() {
        ErrorKind::AddrInUse => format!(
            "another program listens on this port. Choose another port, or end that program: \
             `ss -ltnp 'sport = :{port}'` names it"
        ),
        ErrorKind::AddrNotAvailable => {
            "this machine does not have this address. `ip address` lists those that it has; 127.0.0.1 is local"
                .to_owned()
        }
        ErrorKind::PermissionDenied if port < 1_024 => {
            "a port below 1024 needs CAP_NET_BIND_SERVICE. Choose a port from 1024 on".to_owned()
        }
        _ => format!("this address cannot be listened on: {error}"),
    };
    anyhow::anyhow!("--listen {at}: {why}")
}

/// Takes states, for the page.
pub(super) struct Endpoint {
    page: Arc<MetricsPage>,
}

impl Sink for Endpoint {
    fn state(&mut self, state: &State) -> anyhow::Result<()> {
        let time: jiff::Timestamp = state.time.parse().context("reading the time of a look")?;
        self.page.take(state, time.as_nanosecond() as f64 / 1e9, Instant::now());
        Ok(())
    }

    fn failed(&mut self) {
        let mut made = self.page.made();
        made.metrics.failed();
        made.texts = [None, None];
    }

    fn end(&mut self, _: &WatchSummary) -> anyhow::Result<()> {
        Ok(())
    }
}

/// The page of the newest state.
struct MetricsPage {
    stale_after: Duration,
    made: Mutex<Made>,
}

struct Made {
    metrics: Metrics,
    looked: Option<Instant>,
    /// As `OpenMetrics` and as text, once somebody asked for it.
    texts: [Option<Arc<str>>; 2],
}

impl MetricsPage {
    fn new(interval: Duration) -> Self {
        let metrics = Metrics::new(env!("CARGO_PKG_VERSION"), interval.as_secs_f64());
        let stale_after = interval.saturating_mul(MISSED_INTERVALS).max(MISSED_MIN);
        Self { stale_after, made: Mutex::new(Made { metrics, looked: None, texts: [None, None] }) }
    }

    fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, state: &State, unix_s: f64, now: Instant) {
        let mut made = self.made();
        made.metrics.take(state, unix_s);
        made.looked = Some(now);
        made.texts = [None, None];
    }

    fn get(&self, format: MetricsFormat, now: Instant) -> Result<Arc<str>, String> {
        let mut made = self.made();
        let Some(age) = made.looked.map(|looked| now.saturating_duration_since(looked)) else {
            return Err("The first look has not been taken yet.".to_owned());
        };
        if age > self.stale_after {
            return Err(format!(
                "The last look was {:.1} s ago, and none succeeded since: see the messages of tcptoll watch.",
                age.as_secs_f64()
            ));
        }
        let number = usize::from(format == MetricsFormat::Classic);
        if made.texts[number].is_none() {
            made.texts[number] = made.metrics.page(format).map(Arc::from);
        }
        made.texts[number].clone().ok_or_else(|| "There is no state yet.".to_owned())
    }
}

// HTTP/1.1 for a few scrapers: a thread for each client, and a bound for everything that a client does.

/// Bounds of what clients may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Clients at a time.
    pub clients: usize,
    /// Time for the head of a request, from the connection or from its first byte.
    pub head: Duration,
    /// Time for the answer, from then on.
    pub exchange: Duration,
    /// Time between two requests of a connection. Above 60 s, Prometheus' default interval: a connection
    /// that is closed just when the next scrape begins costs that scrape a second attempt.
    pub idle: Duration,
    /// Requests of one connection.
    pub requests: usize,
}

pub(super) const BOUNDS: Bounds = Bounds {
    clients: 64,
    head: Duration::from_secs(2),
    exchange: Duration::from_secs(10),
    idle: Duration::from_secs(75),
    requests: 1_000,
};

/// What is read of a client that is told to go, so that the answer arrives before the reset.
const DRAINED_MAX: usize = 64 * 1024;
const DRAIN: Duration = Duration::from_millis(500);
/// Pause after accept(2) failed, as when no file descriptor is free.
const PAUSE: Duration = Duration::from_millis(100);
/// A client's thread needs little.
const STACK: usize = 256 * 1024;

const FULL: Refusal =
    Refusal { status: "503 Service Unavailable", text: "Too many clients are connected." };

const INDEX: &str = "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>tcptoll watch</title>\n\
    <h1>tcptoll watch</h1>\n\
    <p>This program watches the TCP connections of this machine.\n\
    Prometheus reads the figures at <a href=\"/metrics\">/metrics</a>.</p></html>\n";

/// The page in a format, or why there is none now.
pub(super) type Pages = dyn Fn(MetricsFormat) -> Result<Arc<str>, String> + Send + Sync;

/// Serves until the process ends. Accept errors never end it.
fn serve(listener: &TcpListener, hosts: &Hosts, bounds: Bounds, pages: &Arc<Pages>) {
    let seats = Arc::new(Seats::default());
    loop {
        let Ok((stream, _)) = listener.accept() else {
            thread::sleep(PAUSE);
            continue;
        };
        let seat = Seat::take(&seats);
        // Who asks for nothing gives way: clients that trickle or idle must not keep a scraper out.
        if seat.number >= bounds.clients && !seats.make_room() {
            // The buffer of a new socket takes this without waiting, or it is not said.
            let _told = stream.set_nonblocking(true).and_then(|()| {
                (&stream).write_all(&answer(FULL.status, TEXT, FULL.text.as_bytes(), false))
            });
            continue;
        }
        let (hosts, pages) = (hosts.clone(), Arc::clone(pages));
        // Where no thread can be made the client is closed, and the next may have more luck.
        let _started =
            thread::Builder::new().name("client".into()).stack_size(STACK).spawn(move || {
                let Ok(local) = stream.local_addr() else { return };
                let client = Client { stream, local: local.ip(), hosts, bounds, pages, seat };
                // A client that vanished or was too slow has no answer; nobody is left to tell.
                let _gone = client.serve();
            });
    }
}

/// All places.
#[derive(Default)]
struct Seats {
    taken: AtomicUsize,
    /// Clients whose request is yet to come, in the order in which they began to wait.
    waiting: Mutex<BTreeMap<u64, TcpStream>>,
    next: AtomicU64,
}

impl Seats {
    fn waiting(&self) -> MutexGuard<'_, BTreeMap<u64, TcpStream>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the client that has waited longest. False: each has a request that is being answered.
    fn make_room(&self) -> bool {
        let longest = self.waiting().pop_first();
        longest.is_some_and(|(_, stream)| stream.shutdown(Shutdown::Both).is_ok())
    }
}

/// A client's place, free again when it is dropped.
struct Seat {
    all: Arc<Seats>,
    /// Clients that were there before.
    number: usize,
}

impl Seat {
    fn take(all: &Arc<Seats>) -> Self {
        Self { all: Arc::clone(all), number: all.taken.fetch_add(1, Ordering::SeqCst) }
    }

    /// Has the client count as waiting while `request` is read.
    fn waiting<T>(&self, stream: &TcpStream, request: impl FnOnce() -> T) -> io::Result<T> {
        let number = self.all.next.fetch_add(1, Ordering::SeqCst);
        self.all.waiting().insert(number, stream.try_clone()?);
        let request = request();
        self.all.waiting().remove(&number);
        Ok(request)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.all.taken.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Client {
    stream: TcpStream,
    local: IpAddr,
    hosts: Hosts,
    bounds: Bounds,
    pages: Arc<Pages>,
    seat: Seat,
}

/// How reading a request ended, other than with one.
enum ReadFailure {
    /// The client closed, or sent nothing in time.
    Gone,
    Refused(Refusal),
}

impl Client {
    fn serve(&self) -> io::Result<()> {
        self.stream.set_nodelay(true)?;
        let mut buffer = Vec::new();
        for number in 1..=self.bounds.requests {
            let wait = if number == 1 { self.bounds.head } else { self.bounds.idle };
            let mut deadline = Instant::now() + wait;
            let read = || self.request(&mut buffer, &mut deadline);
            let request = match self.seat.waiting(&self.stream, read)? {
                Ok(request) => {
                    deadline = Instant::now() + self.bounds.exchange;
                    request
                }
                Err(ReadFailure::Gone) => return Ok(()),
                Err(ReadFailure::Refused(refusal)) => {
                    let body = format!("{}\n", refusal.text);
                    let answer = answer(refusal.status, TEXT, body.as_bytes(), false);
                    self.write(&answer, deadline.max(Instant::now() + DRAIN))?;
                    return self.close();
                }
            };
            let keep_alive = request.keep_alive && number < self.bounds.requests;
            self.respond(&request, keep_alive, deadline)?;
            if !keep_alive {
                return self.close();
            }
        }
        Ok(())
    }

    /// The next request. What follows it stays in the buffer. `deadline`: of its first byte; becomes that
    /// of its head.
    fn request(
        &self,
        buffer: &mut Vec<u8>,
        deadline: &mut Instant,
    ) -> Result<Request, ReadFailure> {
        let mut looked = 0;
        let mut waiting = true;
        loop {
            if waiting && !buffer.is_empty() {
                waiting = false;
                *deadline = (*deadline).min(Instant::now() + self.bounds.head);
            }
            // Only where a head may have ended: a client that drips bytes costs no parse a byte.
            if ends_head(&buffer[looked..])
                && let Some((request, taken)) = parse(buffer, &self.hosts, self.local)
            {
                buffer.drain(..taken);
                return request.map_err(ReadFailure::Refused);
            }
            looked = buffer.len().saturating_sub(2);
            if buffer.len() >= HEAD_MAX {
                return Err(ReadFailure::Refused(TOO_LARGE));
            }
            match self.read(buffer, *deadline) {
                Ok(0) => return Err(ReadFailure::Gone),
                Ok(_) => {}
                Err(error) if is_late(&error) && !buffer.is_empty() => {
                    return Err(ReadFailure::Refused(TOO_SLOW));
                }
                Err(_) => return Err(ReadFailure::Gone),
            }
        }
    }

    /// Reads what is there, at most up to [`HEAD_MAX`] bytes in the buffer.
    fn read(&self, buffer: &mut Vec<u8>, deadline: Instant) -> io::Result<usize> {
        let mut part = [0; 4096];
        let room = part.len().min(HEAD_MAX - buffer.len());
        loop {
            self.stream.set_read_timeout(Some(left(deadline)?))?;
            match (&self.stream).read(&mut part[..room]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(read) => {
                    buffer.extend_from_slice(&part[..read]);
                    return Ok(read);
                }
            }
        }
    }

    fn respond(&self, request: &Request, keep_alive: bool, deadline: Instant) -> io::Result<()> {
        let (status, kind, body) = match request.target {
            Target::Index => ("200 OK", "text/html; charset=utf-8", Arc::from(INDEX)),
            Target::Metrics(format) => match (self.pages)(format) {
                Ok(page) => ("200 OK", format.media_type(), page),
                Err(why) => ("503 Service Unavailable", TEXT, Arc::from(why + "\n")),
            },
        };
        self.write(head(status, kind, body.len(), keep_alive).as_bytes(), deadline)?;
        if request.head_only { Ok(()) } else { self.write(body.as_bytes(), deadline) }
    }

    /// Writes all of it, and gives up at the deadline however slowly the client reads.
    fn write(&self, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            self.stream.set_write_timeout(Some(left(deadline)?))?;
            match (&self.stream).write(bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => bytes = &bytes[written..],
            }
        }
        Ok(())
    }

    /// Says that nothing more comes, and reads what the client still sends, within bounds: a socket that
    /// is closed with bytes unread resets the connection, and the answer may be lost.
    fn close(&self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)?;
        let deadline = Instant::now() + DRAIN;
        let mut part = [0; 4096];
        let mut drained = 0;
        while drained < DRAINED_MAX {
            self.stream.set_read_timeout(Some(left(deadline)?))?;
            match (&self.stream).read(&mut part)? {
                0 => break,
                read => drained += read,
            }
        }
        Ok(())
    }
}

/// Time until then; an error where it is over.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock)
}

/// Whether an empty line ends in these bytes.
fn ends_head(bytes: &[u8]) -> bool {
    let line_ends = || bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    line_ends().any(|(at, _)| matches!(bytes[at + 1..], [b'\n', ..] | [b'\r', b'\n', ..]))
}

const TEXT: &str = "text/plain; charset=utf-8";

fn head(status: &str, kind: &str, length: usize, keep_alive: bool) -> String {
    let date = jiff::fmt::rfc2822::DateTimePrinter::new()
        .timestamp_to_rfc9110_string(&jiff::Timestamp::now())
        .map(|date| format!("Date: {date}\r\n"))
        .unwrap_or_default();
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let connection = if keep_alive { "" } else { "Connection: close\r\n" };
    format!(
        "HTTP/1.1 {status}\r\n{date}{allow}{connection}Content-Type: {kind}\r\nContent-Length: {length}\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
         Content-Security-Policy: default-src 'none'\r\n\r\n"
    )
}

fn answer(status: &str, kind: &str, body: &[u8], keep_alive: bool) -> Vec<u8> {
    let mut bytes = head(status, kind, body.len(), keep_alive).into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

#[cfg(test)]
mod tests;
