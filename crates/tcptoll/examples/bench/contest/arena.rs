//! One lab with one nginx in it: the client host on one CPU, the server host on the other.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, ensure};

use super::exchange::{Pair, Ran};
use super::peers::Peer;
use tcptoll_core::http::reuse::Reuse;
use tcptoll_core::http::status::Expected;
use tcptoll_core::stats::Histogram;
use tcptoll_core::stats::arrivals::Spread;
use tcptoll_lab::lab::{Interrupt, client_address};
use tcptoll_lab::messages::{
    HttpLoad, HttpReport, HttpRequests, Io, ServerKind, ServerSpec, Serving, UPLOAD_MAX, Upload,
};

/// Content of a response, bytes.
const BODY_BYTES: u64 = 13;

/// nginx must not end a connection that is held open.
const KEEPALIVE_NS: u64 = 600_000_000_000;

/// A lab and its server.
pub(crate) struct Arena {
    pair: Pair,
    pub(crate) serving: Serving,
    addresses: Vec<IpAddr>,
}

/// What came of a load.
pub(crate) struct Loaded {
    pub(crate) report: HttpReport,
    histograms: Vec<(String, Histogram)>,
}

impl Loaded {
    /// Values in a distribution; 0 if there is none.
    pub(crate) fn count(&self, name: &str) -> u64 {
        let named = self.histograms.iter().find(|(other, _)| other == name);
        named.map_or(0, |(_, histogram)| histogram.count())
    }
}

impl Arena {
    /// Makes the lab and starts nginx with so many workers, for so many connections that come from
    /// the client host's own address, or from so many further ones.
    pub(crate) fn open(connections: u64, workers: u64, addresses: u16) -> anyhow::Result<Self> {
        let addresses: Vec<IpAddr> =
            (1..=addresses).map(|number| client_address(number, false)).collect();
        let mut pair = Pair::open(&addresses)?;
        let spec = ServerSpec {
            kind: ServerKind::Nginx,
            at: SocketAddr::new(pair.server_address(), 8080),
            workers: Some(workers),
            keepalive: true,
            keepalive_timeout_ns: Some(KEEPALIVE_NS),
            keepalive_requests: Some(0),
            tls: false,
            body_bytes: BODY_BYTES,
            work_ns: 0,
            backlog: Some(4096),
            connections,
            site: None,
            site_uploaded: false,
            limits: None,
        };
        let serving = pair.hosts.server()?.ask(&spec)?;
        Ok(Self { pair, serving, addresses })
    }

    /// What is asked for.
    pub(crate) fn url(&self) -> String {
        format!("http://{}{}", self.serving.at, self.serving.path)
    }

    /// One thread, 50 connections that are used again, no end: to be completed.
    pub(crate) fn load(&self) -> HttpLoad {
        HttpLoad {
            target: self.serving.at,
            tls: None,
            reuse: Reuse::KeepAlive,
            connections: super::CONNECTIONS,
            threads: 1,
            rate_per_s: None,
            spread: Spread::default(),
            ramp_ns: 0,
            warmup_requests: 0,
            // Peers have none either.
            warmup_ns: 0,
            requests: None,
            duration_ns: None,
            timeout_ns: 30_000_000_000,
            connect_timeout_ns: 30_000_000_000,
            bind: self.addresses.clone(),
            congestion: None,
            io: Io::Epoll,
            batch_ns: 0,
            expect_status: Expected::default(),
            expect_sha256: None,
            body_limit: 1 << 20,
            seed: 7,
        }
    }

    /// Runs a load on the client host.
    pub(crate) fn http(&mut self, load: &HttpLoad) -> anyhow::Result<Loaded> {
        let requests = HttpRequests {
            lines: vec![("GET".to_owned(), self.serving.path.clone())],
            fields: Vec::new(),
            authority: self.serving.at.to_string(),
            body: String::new(),
            groups: Vec::new(),
        };
        let requests = serde_json::to_string(&requests)?;
        anyhow::ensure!(requests.len() <= UPLOAD_MAX, "more than one piece");
        let client = &mut self.pair.hosts.client;
        client.ask(&Upload(requests))?;
        let begun = client.begin(load)?;
        let answered = client.wait(begun, &Interrupt::new(), &mut |_| {})?;
        Ok(Loaded { report: answered.answer, histograms: answered.histograms })
    }

    /// Runs a line of shell on the client host, for as long as it takes.
    ///
    /// Errors: it ended with another status than 0.
    pub(crate) fn shell(&mut self, line: &str) -> anyhow::Result<Ran> {
        self.pair.shell(line)
    }
}

// What does a client's process hold for each connection that is open?

/// Connections of one source address: half of the usual range of ports, past which the kernel
/// searches long for a free one.
const OF_ONE_ADDRESS: u64 = 12_500;

/// Workers of nginx, which may open 20,000 files each where the limit is that.
const WORKERS: u64 = 6;

/// Time for each connection to be begun in, ns: the server's side takes 30 µs or so of its CPU.
const RAMP_NS: u64 = 100_000;

/// Length of the part after the ramp where nothing is to happen in it, ns.
const QUIET_NS: u64 = 100_000_000;

/// A connection rests for longer than the load takes.
const REST_NS: u64 = 300_000_000_000;

/// Opens so many connections one after the other and keeps all of them.
///
/// Each answers one request as soon as it is open, and with the last of these the load's warm-up
/// ends. Then it rests: to the end, or (`again`) until it answers a second one, which is what the
/// report counts. The lab is new, so that memory that an earlier load has freed is not used again
/// unseen.
pub(crate) fn hold(connections: u64, io: Io, again: bool) -> anyhow::Result<HttpReport> {
    let addresses = u16::try_from(connections.div_ceil(OF_ONE_ADDRESS))?;
    let mut arena = Arena::open(connections, WORKERS, addresses)?;
    let ramp_ns = connections * RAMP_NS;
    let load = HttpLoad {
        // Three ramps: the last has been opened long before the first is used again.
        reuse: Reuse::Idle(if again { 3 * ramp_ns } else { REST_NS }),
        connections,
        ramp_ns,
        warmup_requests: connections,
        requests: again.then_some(connections),
        duration_ns: (!again).then_some(QUIET_NS),
        io,
        ..arena.load()
    };
    Ok(arena.http(&load)?.report)
}

/// Bytes that tcptoll holds for each of so many idle connections: all that the load added to the
/// process, its own buffers and distributions too.
///
/// Errors: not all of them were open at the end, or not all had been used.
pub(crate) fn ours(connections: u64, io: Io) -> anyhow::Result<f64> {
    let report = hold(connections, io, false)?;
    let (used, failed) = &report.warmup;
    ensure!(
        report.open == connections
            && *used == connections
            && report.attempts == 0
            && failed.is_empty(),
        "{} of {connections} connections were open, {used} were used, failures {failed:?}",
        report.open,
    );
    ensure!(io == Io::Auto || report.io == io_name(io), "{} was used", report.io);
    Ok(report.resident_bytes as f64 / report.open as f64)
}

/// What a report calls it.
fn io_name(io: Io) -> &'static str {
    match io {
        Io::IoUring => "io_uring",
        Io::Auto | Io::Epoll => "epoll",
    }
}

/// Bytes that a peer holds for each of so many connections: the largest resident memory while all
/// of them were open, without that of the same peer with a single one.
pub(crate) fn theirs(peer: &Peer, connections: u64) -> anyhow::Result<f64> {
    let mut arena = Arena::open(connections, WORKERS, 0)?;
    let one = resident_bytes(&mut arena, peer, 1, 2)?;
    let all = resident_bytes(&mut arena, peer, connections, 6)?;
    Ok(all.saturating_sub(one) as f64 / (connections - 1) as f64)
}

/// Largest resident memory of a peer while it has so many connections open, bytes.
fn resident_bytes(
    arena: &mut Arena,
    peer: &Peer,
    connections: u64,
    seconds: u64,
) -> anyhow::Result<u64> {
    let line = peer.holding(&arena.url(), connections, seconds);
    // Ten looks a second at memory and at the sockets of this network namespace; the memory of a
    // process that has ended is not there any more, which ends the loop.
    let script = format!(
        "{line} & p=$!; \
         while r=$(sed -n 's/^VmRSS:[^0-9]*\\([0-9]*\\).*/\\1/p' /proc/$p/status 2>/dev/null) \
         && [ -n \"$r\" ]; do \
         echo \"look $r $(sed -n 's/^TCP: inuse \\([0-9]*\\).*/\\1/p' /proc/net/sockstat)\"; \
         sleep 0.1; done; wait $p"
    );
    let ran = arena.shell(&script)?;
    most(&ran.output, connections)
        .with_context(|| format!("{} never had {connections} connections open", peer.program))
}

/// The most memory of the looks at which so many sockets were there, KiB in, bytes out.
fn most(looks: &str, connections: u64) -> Option<u64> {
    let look = |line: &str| -> Option<(u64, u64)> {
        let (kib, sockets) = line.strip_prefix("look ")?.split_once(' ')?;
        Some((kib.parse().ok()?, sockets.trim().parse().ok()?))
    };
    let full = looks.lines().filter_map(look).filter(|(_, sockets)| *sockets >= connections);
    full.map(|(kib, _)| kib * 1024).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_counts_only_while_all_connections_are_open() {
        let looks = "Running 6s test\nlook 900 12\nlook 200 100\nlook 300 101\nlook 10 \n";
        assert_eq!(most(looks, 100), Some(300 * 1024));
        assert_eq!(most(looks, 1_000), None);
    }
}
