//! One lab with one nginx in it: the client host on one CPU, the server host on the other.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use tcptoll_engine::lab::plan::{Plan, client_address};
use tcptoll_engine::lab::{HostSource as _, Hosts, Interrupt, Machine};
use tcptoll_engine::messages::{
    HttpLoad, HttpReport, HttpRequests, Io, Launch, Observe, Run, ServerKind, ServerSpec, Serving,
    UPLOAD_MAX, Upload,
};
use tcptoll_kernel::cpu;
use tcptoll_model::arrivals::Spread;
use tcptoll_model::http::reuse::Reuse;
use tcptoll_model::http::status::Expected;
use tcptoll_model::link::LinkSpec;
use tcptoll_model::stats::Histogram;

/// Content of a response, bytes.
const BODY_BYTES: u64 = 13;

/// nginx must not end a connection that is held open.
const KEEPALIVE_NS: u64 = 600_000_000_000;

/// A lab and its server.
pub(crate) struct Arena {
    hosts: Hosts,
    pub(crate) serving: Serving,
    addresses: Vec<IpAddr>,
    /// What a command prints.
    output: Output,
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

/// What came of a command.
pub(crate) struct Ran {
    /// What it printed on both streams.
    pub(crate) output: String,
    /// CPU time of it and of its children, µs, from its first instruction on.
    pub(crate) cpu_us: u64,
}

impl Arena {
    /// Makes the lab and starts nginx with so many workers, for so many connections that come from
    /// the client host's own address, or from so many further ones.
    pub(crate) fn open(connections: u64, workers: u64, addresses: u16) -> anyhow::Result<Self> {
        let cpus = cpu::allowed();
        let [client, server, ..] = cpus.as_slice() else {
            bail!("two CPUs are needed, one for each host; there is {}", cpus.len());
        };
        let addresses: Vec<IpAddr> =
            (1..=addresses).map(|number| client_address(number, false)).collect();
        let plan = Plan {
            link: "direct".to_owned(),
            ipv6: false,
            seed: 7,
            force_packet: false,
            client_cpu: Some(*client),
            server_cpu: Some(*server),
            client_addresses: addresses.clone(),
        };
        let mut hosts = Machine::default().lab(&plan, &LinkSpec::parse("direct")?)?;
        let spec = ServerSpec {
            kind: ServerKind::Nginx,
            at: SocketAddr::new(hosts.addresses.server, 8080),
            workers: Some(workers),
            keepalive: true,
            keepalive_timeout_ns: Some(KEEPALIVE_NS),
            keepalive_requests: Some(0),
            tls: false,
            body_bytes: BODY_BYTES,
            work_ns: 0,
            backlog: Some(4096),
            connections,
        };
        let server = hosts.server()?;
        let serving = server.ask(&spec)?;
        Ok(Self { hosts, serving, addresses, output: Output::new()? })
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
        };
        let requests = serde_json::to_string(&requests)?;
        anyhow::ensure!(requests.len() <= UPLOAD_MAX, "more than one piece");
        let client = &mut self.hosts.client;
        client.ask(&Upload(requests))?;
        let begun = client.begin(load)?;
        let answered = client.wait(begun, &Interrupt::new(), &mut |_| {})?;
        Ok(Loaded { report: answered.answer, histograms: answered.histograms })
    }

    /// Runs a line of shell on the client host, for as long as it takes.
    ///
    /// Errors: it ended with another status than 0.
    pub(crate) fn shell(&mut self, line: &str) -> anyhow::Result<Ran> {
        let path = self.output.0.display();
        let launch = Launch {
            words: vec![format!("{{ {line}; }} > {path} 2>&1 < /dev/null")],
            shell: true,
            environment: Vec::new(),
            ordinary_user: false,
        };
        let before = self.children_cpu_us()?;
        let client = &mut self.hosts.client;
        let begun = client.begin(&Run(launch))?;
        let status = client.wait(begun, &Interrupt::new(), &mut |_| {})?.answer;
        let cpu_us = self.children_cpu_us()? - before;
        let output = fs::read(&self.output.0)
            .with_context(|| format!("reading {}", self.output.0.display()))?;
        let output = String::from_utf8_lossy(&output).into_owned();
        if status != 0 {
            bail!("{line} ended with status {status}: {output}");
        }
        Ok(Ran { output, cpu_us })
    }

    /// CPU time of all that the client host has started, µs.
    fn children_cpu_us(&mut self) -> anyhow::Result<u64> {
        let (user, system) = self.hosts.client.ask(&Observe)?.children_cpu_us;
        Ok(user + system)
    }
}

/// A file for what a command prints; it goes with the arena.
struct Output(PathBuf);

impl Output {
    fn new() -> anyhow::Result<Self> {
        let name = format!("tcptoll-contest-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, "").with_context(|| format!("writing {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
