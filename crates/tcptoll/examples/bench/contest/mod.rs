//! tcptoll and its peers side by side: the same work against the same server, in turn.
//!
//! Included by two programs: `bench` compares with every peer there is, `prove` holds a few of the
//! figures against goals. [`pair`] is the lab and [`rounds`] the turns in it, [`ratio`] how far two
//! are apart. Of HTTP, this file is the contest, [`arena`] the lab with its server, [`peers`] how each
//! peer is called and what it prints, [`memory`] what idle connections hold. [`bulk`] is one stream,
//! [`exchange`] are requests and answers, [`bare`] the least that these take.

pub(crate) mod arena;
pub(crate) mod bare;
pub(crate) mod bulk;
pub(crate) mod exchange;
pub(crate) mod memory;
mod pair;
pub(crate) mod peers;
pub(crate) mod ratio;
pub(crate) mod rounds;

use anyhow::{Context as _, bail, ensure};
use tcptoll_core::http::reuse::Reuse;
use tcptoll_lab::messages::{HttpLoad, Io};

use self::arena::Arena;
use self::peers::Peer;
use self::ratio::Ratio;
use self::rounds::Rounds;

/// Connections at once.
pub(crate) const CONNECTIONS: u64 = 50;

/// How connections are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    /// One request after another.
    KeepAlive,
    /// One request each; the server closes, because `Connection: close` was sent.
    ServerClose,
}

/// One way in which tcptoll can be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ours {
    pub(crate) name: &'static str,
    io: Io,
    batch_ns: u64,
}

/// As it is unless told otherwise: what happened is handled at once.
pub(crate) const PLAIN: Ours = Ours { name: "tcptoll", io: Io::Auto, batch_ns: 0 };

/// What happened is handled together, at most 100 µs later.
pub(crate) const BATCHED: Ours = Ours { name: "tcptoll --batch 100us", batch_ns: 100_000, ..PLAIN };

/// What happened is handled at once, over epoll, where containers forbid `io_uring`.
pub(crate) const POLLED: Ours = Ours { name: "tcptoll --io epoll", io: Io::Epoll, ..PLAIN };

/// Who takes part.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Contestant {
    Ours(Ours),
    Theirs(&'static Peer),
}

impl Contestant {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours(ours) => ours.name,
            Self::Theirs(peer) => peer.program,
        }
    }
}

/// What one contestant did in one round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Requests that succeeded.
    pub(crate) ok: u64,
    /// Requests that failed.
    pub(crate) errors: u64,
    /// CPU time of the client, µs, for each request that succeeded.
    pub(crate) cpu_us: f64,
    /// Requests per second that succeeded.
    pub(crate) per_s: f64,
}

/// All rounds of one case.
#[derive(Debug)]
pub(crate) struct Contest {
    contestants: Vec<Contestant>,
    rounds: Rounds<Sample>,
    /// What the server says of itself.
    pub(crate) server: String,
}

impl Contest {
    /// Runs every contestant once a round, each round in an order of its own, against one server.
    ///
    /// All are in one lab: the client on one CPU, nginx with one worker on the other. Errors: what
    /// tcptoll reports does not add up, or a peer printed nothing that can be read.
    pub(crate) fn run(
        case: Case,
        contestants: &[Contestant],
        rounds: u32,
        seconds: u64,
    ) -> anyhow::Result<Self> {
        let mut arena = Arena::open(CONNECTIONS, 1, 0)?;
        let names: Vec<&'static str> = contestants.iter().map(|one| one.name()).collect();
        let rounds = Rounds::run(&names, rounds, |place| match contestants[place] {
            Contestant::Ours(ours) => arena.ours(case, ours, seconds),
            Contestant::Theirs(peer) => arena.theirs(case, peer, seconds),
        })?;
        Ok(Self { contestants: contestants.to_vec(), rounds, server: arena.serving.version })
    }

    /// Each contestant and its samples.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (Contestant, &[Sample])> {
        let samples = self.rounds.entries().iter().map(|(_, samples)| samples.as_slice());
        self.contestants.iter().copied().zip(samples)
    }

    /// As [`Rounds::ratio`].
    pub(crate) fn ratio(
        &self,
        ours: &str,
        theirs: &str,
        figure: fn(&Sample) -> f64,
    ) -> Option<Ratio> {
        self.rounds.ratio(ours, theirs, figure)
    }
}

/// Whether the kernel lets us use `io_uring`; if not, why.
pub(crate) fn ring_refused() -> anyhow::Result<Option<String>> {
    let mut arena = Arena::open(CONNECTIONS, 1, 0)?;
    let load = HttpLoad { requests: Some(100), io: Io::IoUring, ..arena.load() };
    Ok(match arena.http(&load) {
        Ok(loaded) if loaded.report.io == "io_uring" => None,
        Ok(loaded) => Some(format!("{} was used instead", loaded.report.io)),
        Err(error) => Some(format!("{error:#}")),
    })
}

impl Arena {
    fn ours(&mut self, case: Case, ours: Ours, seconds: u64) -> anyhow::Result<Sample> {
        let reuse = match case {
            Case::KeepAlive => Reuse::KeepAlive,
            Case::ServerClose => Reuse::ServerClose,
        };
        let load = HttpLoad {
            reuse,
            io: ours.io,
            batch_ns: ours.batch_ns,
            duration_ns: Some(seconds * 1_000_000_000),
            ..self.load()
        };
        let loaded = self.http(&load)?;
        let report = &loaded.report;
        let errors: u64 = report.errors.values().sum();
        ensure!(report.attempts == report.ok + errors, "attempts are not ok + errors: {report:?}");
        if case == Case::ServerClose {
            let (timed, made) = (loaded.count("connect"), report.measured_connections.1);
            ensure!(
                timed == made && made >= report.ok,
                "{timed} handshakes were timed, {made} were made, {} requests succeeded",
                report.ok
            );
        }
        // What was spun away is work of the client's CPU, too.
        let cpu_us = report.cpu_us.0 + report.cpu_us.1 + report.spun_us;
        sample(report.ok, errors, cpu_us, report.ok as f64 * 1e9 / report.measured_ns as f64)
    }

    fn theirs(&mut self, case: Case, peer: &Peer, seconds: u64) -> anyhow::Result<Sample> {
        let line = peer.line(case, &self.url(), seconds).context("it cannot do this")?;
        let ran = self.shell(&format!("exec {line}"))?;
        let Some(counted) = (peer.read)(&ran.output) else {
            bail!("what it printed cannot be read: {}", ran.output);
        };
        sample(counted.ok, counted.errors, ran.cpu_us, counted.per_s())
    }
}

fn sample(ok: u64, errors: u64, cpu_us: u64, per_s: f64) -> anyhow::Result<Sample> {
    ensure!(ok > 0, "no request succeeded, {errors} failed");
    Ok(Sample { ok, errors, cpu_us: cpu_us as f64 / ok as f64, per_s })
}
