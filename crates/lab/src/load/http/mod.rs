//! HTTP requests over connections that are used again in a given way.
//!
//! Read `client` (the loop), `Slot` (one connection), `tally` (what is counted). When a request
//! begins, how bytes come and go, and how threads are looked after is that of all loads
//! ([`load`](crate::load)). This file says what of it an HTTP load takes, and looks at the process
//! while connections are open.

mod client;
mod groups;
mod tally;
pub(super) mod tls;

use ::ring::digest::Context;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use tcptoll_core::http::response::ResponseReader;
use tcptoll_core::http::reuse::Reuse;
use tcptoll_core::stats::Histogram;
use tcptoll_kernel::sock_diag::SockDiag;
use tcptoll_kernel::{cpu, ring};

use self::client::Client;
use self::tls::{Session, Tls};
use super::control::{self, THREADS_MAX, Team};
use super::driver::{Driver, Setup};
use super::epoll::Epoll;
use super::pace::{Pace, Plan};
use super::uring::{Uring, most_slots};
use super::{LoadError, socket_memory};
use crate::channel::Channel;
use crate::messages::{GroupReport, HttpLoad, HttpReport, HttpRequests, Io};

/// A distribution by its name.
pub type Named = (&'static str, Histogram);

/// What the threads of a load share.
struct Shared {
    requests: Vec<Request>,
    /// The group of each request; empty: they are not grouped.
    groups: Vec<u8>,
    tls: Option<Tls>,
    /// SHA-256 that content must have.
    digest: Option<Vec<u8>>,
    team: Team,
}

/// What came of a load.
pub struct Done {
    /// Counts.
    pub report: HttpReport,
    /// Distributions.
    pub histograms: Vec<Named>,
    /// Each group of requests; empty: they were not grouped.
    pub groups: Vec<GroupReport>,
}

/// Runs a load to its end, or until the parent says stop. `requests`: JSON of [`HttpRequests`].
pub fn run(load: &HttpLoad, requests: &str, channel: &mut Channel) -> Result<Done, LoadError> {
    let mut requests: HttpRequests = serde_json::from_str(requests)
        .map_err(|error| LoadError::Refused(format!("the requests: {error}")))?;
    let groups = std::mem::take(&mut requests.groups);
    groups::check(&groups, requests.lines.len()).map_err(LoadError::Refused)?;
    let requests = write(&requests, load.reuse).map_err(LoadError::Refused)?;
    let tls = load.tls.as_ref().map(Tls::new).transpose().map_err(LoadError::Refused)?;
    // The soft limit is raised to the hard one: a socket is a file.
    let _ = cpu::file_limit();
    let ringed = over_io_uring(load)?;
    let threads = if ringed {
        // A ring's table of sockets is bounded by the limit of open files, too.
        load.threads.max(load.connections.div_ceil(most_slots().max(1).into()))
    } else {
        load.threads
    };
    let threads = threads.clamp(1, THREADS_MAX).min(load.connections.max(1));
    let resident_before = cpu::rss_bytes();
    let shared = Shared {
        requests,
        groups,
        tls,
        digest: load.expect_sha256.as_deref().and_then(bytes_of_hex),
        team: Team::new(threads),
    };
    let mut seen = Look::default();
    let look = || seen = Look::now();
    let tallies = if ringed {
        control::run(&shared.team, channel, |thread| part(load, &shared, thread, Uring::new), look)
    } else {
        control::run(&shared.team, channel, |thread| part(load, &shared, thread, Epoll::new), look)
    }?;
    let mut tallies = tallies.into_iter();
    let mut tally = tallies.next().ok_or_else(|| LoadError::Refused("no thread ran".into()))?;
    tallies.for_each(|other| tally.add(&other));
    let mut report = tally.report();
    if ringed { Uring::NAME } else { Epoll::NAME }.clone_into(&mut report.io);
    if report.tcp_info.is_empty() {
        report.tcp_info = seen.tcp_info;
    }
    report.resident_bytes = seen.resident_bytes.saturating_sub(resident_before);
    report.socket_bytes = seen.socket_bytes.map(|bytes| (bytes * report.open as f64) as u64);
    let told = tally.histograms().into_iter().filter(|(_, histogram)| histogram.count() > 0);
    let mut histograms: Vec<Named> =
        told.map(|(name, histogram)| (name, histogram.clone())).collect();
    let mut groups = Vec::new();
    if let Some(grouped) = tally.groups.take() {
        groups = grouped.reports();
        histograms.extend(grouped.into_histograms());
    }
    Ok(Done { report, histograms, groups })
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
            tcp_info: of_one
                .and_then(|mut found| found.pop())
                .map(|(.., info)| info)
                .unwrap_or_default(),
            socket_bytes: socket_memory().ok().and_then(|(_, bytes)| bytes),
        }
    }
}

/// How requests follow each other.
fn plan(load: &HttpLoad) -> Plan {
    // Without a warm-up a number of requests is that of the whole load, those of the ramp among them.
    let counts_all = load.requests.is_some() && load.warmup_requests == 0 && load.warmup_ns == 0;
    let unmeasured_ramp_ns = if counts_all { 0 } else { load.ramp_ns };
    Plan {
        rate_per_s: load.rate_per_s,
        spread: load.spread,
        seed: load.seed,
        slots: load.connections.max(1),
        ramp_ns: load.ramp_ns,
        warmup_operations: load.warmup_requests,
        warmup_ns: load.warmup_ns + unmeasured_ramp_ns,
        operations: load.requests,
        duration_ns: load.duration_ns,
        timeout_ns: load.timeout_ns,
        pause: None,
    }
}

/// The part of thread number `part`.
fn part<'a, D: Driver>(
    load: &'a HttpLoad,
    shared: &'a Shared,
    part: u64,
    driver: impl FnOnce(&Setup<'_>) -> Result<D, LoadError>,
) -> Result<Client<'a, D>, LoadError> {
    let parts = shared.team.threads();
    let pace = Pace::new(&plan(load), shared.team.start_ns(), part, parts);
    let setup = Setup {
        target: load.target,
        bind: &load.bind,
        congestion: load.congestion.as_deref(),
        slots: pace.slots() as u32,
        batch_ns: load.batch_ns,
        stamps: true,
    };
    Ok(Client::new(load, shared, driver(&setup)?, pace, part))
}

fn bytes_of_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> =
        text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect::<Option<_>>()?;
    Some(
        digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect(),
    )
}

/// One request.
#[derive(Clone, Debug)]
struct Request {
    /// Head and content.
    bytes: Box<[u8]>,
    /// It is a HEAD request: the response has no content.
    to_head: bool,
}

/// Writes the requests for a way of using connections.
///
/// Errors: there is none, or the content is no base64; a sentence.
fn write(requests: &HttpRequests, reuse: Reuse) -> Result<Vec<Request>, String> {
    if requests.lines.is_empty() {
        return Err("there is no request to send".to_owned());
    }
    let body = BASE64.decode(&requests.body).map_err(|error| format!("the content: {error}"))?;
    let (version, connection) = reuse.request();
    let mut common = String::new();
    if !requests.fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        common += &format!("Host: {}\r\n", requests.authority);
    }
    for (name, value) in &requests.fields {
        common += &format!("{name}: {value}\r\n");
    }
    if let Some(connection) = connection {
        common += &format!("Connection: {connection}\r\n");
    }
    let one = |(method, target): &(String, String)| {
        let mut bytes = format!("{method} {target} {version}\r\n{common}").into_bytes();
        let bare = matches!(method.as_str(), "GET" | "HEAD");
        if !bare {
            bytes.extend(format!("Content-Length: {}\r\n", body.len()).into_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        if !bare {
            bytes.extend_from_slice(&body);
        }
        Request { bytes: bytes.into_boxed_slice(), to_head: method == "HEAD" }
    };
    Ok(requests.lines.iter().map(one).collect())
}

/// What a slot is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Nothing, and there is no connection.
    #[default]
    Empty,
    /// TCP's handshake.
    Connecting,
    /// TLS's handshake.
    Handshaking,
    /// The request is leaving, or the response is awaited or coming.
    Asking,
    /// The response is whole; the server is to close.
    Closing,
    /// Nothing, with a connection that may be used again.
    Resting,
}

/// A connection's place.
#[derive(Default)]
struct Slot {
    state: State,
    /// Whether the request under way is of the measured part.
    measured: bool,
    /// Whether a request is under way, from its beginning until it has succeeded or failed.
    busy: bool,
    /// There was no room for all bytes; the driver will tell when there is.
    leaving: bool,
    /// The request did not leave in one piece.
    in_parts: bool,
    reader: ResponseReader,
    /// Requests of this connection that have ended.
    served: u32,
    /// Which request it is.
    request: u32,
    /// Bytes of the request that have left.
    written: u32,
    /// When the request was due, and when it was begun, before any connection was opened.
    due_ns: u64,
    begun_ns: u64,
    /// When the connection was begun, and when TCP's handshake was done.
    called_ns: u64,
    opened_ns: u64,
    /// When the request was sent.
    sent_ns: u64,
    /// When the first byte of the response came; 0: not yet.
    first_ns: u64,
    /// When the last response ended.
    ended_ns: u64,
    /// Bytes of content so far.
    body_bytes: u64,
    tls: Option<Box<Session>>,
    digest: Option<Box<Context>>,
}

impl Slot {
    /// Whether a close of the server that comes now may have crossed the request: of a connection
    /// that has carried others, and within the time that a packet takes there and back. A server
    /// that closes later has had the request.
    fn raced(&self, now_ns: u64) -> bool {
        let round_trip_ns = self.opened_ns.saturating_sub(self.called_ns);
        let limit_ns = round_trip_ns.saturating_mul(2).saturating_add(RACE_NS);
        self.served > 0 && now_ns <= self.sent_ns.saturating_add(limit_ns)
    }
}

/// A server may be this late with its close, ns: on a busy machine it may not run meanwhile.
const RACE_NS: u64 = 20_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn text(reuse: Reuse, method: &str, fields: &[(&str, &str)]) -> String {
        let requests = HttpRequests {
            lines: vec![(method.to_owned(), "/a?b".to_owned())],
            fields: fields.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
            authority: "h:81".to_owned(),
            body: BASE64.encode("xyz"),
            groups: Vec::new(),
        };
        String::from_utf8(write(&requests, reuse).unwrap()[0].bytes.to_vec()).unwrap()
    }

    #[test]
    fn the_way_of_use_decides_version_and_connection_field() {
        assert_eq!(text(Reuse::KeepAlive, "GET", &[]), "GET /a?b HTTP/1.1\r\nHost: h:81\r\n\r\n");
        assert_eq!(text(Reuse::ClientClose, "GET", &[]), text(Reuse::KeepAlive, "GET", &[]));
        let closing = text(Reuse::ServerClose, "HEAD", &[("Accept", "*/*")]);
        assert_eq!(
            closing,
            "HEAD /a?b HTTP/1.1\r\nHost: h:81\r\nAccept: */*\r\nConnection: close\r\n\r\n"
        );
        assert!(text(Reuse::Http10, "GET", &[]).starts_with("GET /a?b HTTP/1.0\r\n"));
        assert!(text(Reuse::Http10KeepAlive, "GET", &[]).contains("Connection: keep-alive\r\n"));
    }

    #[test]
    fn content_comes_with_its_length_and_a_host_may_be_given() {
        let post = text(Reuse::KeepAlive, "POST", &[("host", "other")]);
        assert_eq!(post, "POST /a?b HTTP/1.1\r\nhost: other\r\nContent-Length: 3\r\n\r\nxyz");
    }

    #[test]
    fn a_close_long_after_the_request_was_sent_is_no_race() {
        let slot =
            Slot { served: 1, called_ns: 0, opened_ns: 1_000, sent_ns: 5_000, ..Slot::default() };
        assert!(slot.raced(5_000 + 2_000 + RACE_NS) && !slot.raced(5_000 + 2_001 + RACE_NS));
        assert!(!Slot { served: 0, ..slot }.raced(5_000));
    }

    #[test]
    fn an_idle_connection_takes_less_than_a_quarter_of_a_kilobyte() {
        assert!(size_of::<Slot>() <= 256, "{}", size_of::<Slot>());
    }
}
