//! HTTP requests over connections that are used again in a given way.
//!
//! Read `client` (the loop), `slot` (one connection), `tally` (what is counted). When a request
//! begins, how bytes come and go, and how threads are looked after is that of all loads
//! ([`load`](crate::load)). This file says what of it an HTTP load takes, and looks at the process
//! while connections are open.

mod client;
mod groups;
mod requests;
mod slot;
mod tally;
pub(super) mod tls;

use tcptoll_core::stats::Histogram;
use tcptoll_kernel::sock_diag::SockDiag;
use tcptoll_kernel::{cpu, ring};

use self::client::Client;
use self::requests::Request;
use self::tls::Tls;
use super::driver::{Driver, Setup};
use super::epoll::Epoll;
use super::pace::{Pace, Plan};
use super::threads::{self, THREADS_MAX, Team};
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
    let requests = requests::write(&requests, load.reuse).map_err(LoadError::Refused)?;
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
        threads::run(&shared.team, channel, |thread| part(load, &shared, thread, Uring::new), look)
    } else {
        threads::run(&shared.team, channel, |thread| part(load, &shared, thread, Epoll::new), look)
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
