//! tcptoll and its peers side by side: the same work against the same server, in turn.
//!
//! Included by two programs: `bench` compares with every peer there is, `prove` holds a few of the
//! figures against goals. [`arena`] is the lab with its server, [`peers`] how each peer is called
//! and what it prints, [`memory`] what idle connections hold, [`ratio`] how far two are apart.

pub(crate) mod arena;
pub(crate) mod memory;
pub(crate) mod peers;
pub(crate) mod ratio;

use anyhow::{Context as _, bail, ensure};
use tcptoll_engine::messages::{HttpLoad, Io};
use tcptoll_model::http::reuse::Reuse;
use tcptoll_model::order;

use self::arena::Arena;
use self::peers::Peer;
use self::ratio::Ratio;

/// Connections at once.
pub(crate) const CONNECTIONS: u64 = 50;

/// Orders of rounds are drawn from this, so that a run can be repeated.
const SEED: u64 = 20_191_105;

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
    /// In the order given; every contestant has the same number of samples, one a round.
    entries: Vec<(Contestant, Vec<Sample>)>,
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
        let mut entries: Vec<(Contestant, Vec<Sample>)> =
            contestants.iter().map(|contestant| (*contestant, Vec::new())).collect();
        for round in 0..rounds {
            for number in order::of_round(SEED, round, contestants.len()) {
                let (contestant, samples) = &mut entries[number];
                let sample = match contestant {
                    Contestant::Ours(ours) => arena.ours(case, *ours, seconds),
                    Contestant::Theirs(peer) => arena.theirs(case, peer, seconds),
                };
                let name = contestant.name();
                samples.push(sample.with_context(|| format!("round {}, {name}", round + 1))?);
            }
        }
        Ok(Self { entries, server: arena.serving.version })
    }

    /// Name and samples of each contestant.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (Contestant, &[Sample])> {
        self.entries.iter().map(|(contestant, samples)| (*contestant, samples.as_slice()))
    }

    /// How far two are apart in a figure. None: one of them did not take part, or a figure is not
    /// above 0.
    pub(crate) fn ratio(
        &self,
        ours: &str,
        theirs: &str,
        figure: fn(&Sample) -> f64,
    ) -> Option<Ratio> {
        let of = |name: &str| -> Option<Vec<f64>> {
            let (_, samples) = self.entries.iter().find(|(other, _)| other.name() == name)?;
            Some(samples.iter().map(figure).collect())
        };
        Ratio::of(&of(ours)?, &of(theirs)?)
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
