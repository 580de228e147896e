//! One lab with one nginx in it: the client host on one CPU, the server host on the other.

use std::net::{IpAddr, SocketAddr};

use tcptoll_core::http::reuse::Reuse;
use tcptoll_core::http::status::Expected;
use tcptoll_core::stats::Histogram;
use tcptoll_core::stats::arrivals::Spread;
use tcptoll_lab::lab::Interrupt;
use tcptoll_lab::lab::plan::client_address;
use tcptoll_lab::messages::{
    HttpLoad, HttpReport, HttpRequests, Io, ServerKind, ServerSpec, Serving, UPLOAD_MAX, Upload,
};

use super::pair::{Pair, Ran};

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
