//! tcptoll and its peers side by side: the same work against the same server, in turn.
//!
//! Included by two programs: `bench` compares with every peer there is, `prove` holds a few of the
//! figures against goals. [`Rounds`] are the turns in a lab, [`Ratio`] how far two are apart. Of HTTP,
//! this file is the contest, [`arena`] the lab with its server and what idle connections hold, [`peers`]
//! how each peer is called and what it prints. [`bulk`] is one stream, [`exchange`] are requests and
//! answers, the lab of both, and the least that these take.

pub(crate) mod arena;
pub(crate) mod bulk;
pub(crate) mod exchange;
pub(crate) mod peers;

use anyhow::{Context as _, bail, ensure};

use self::arena::Arena;
use self::peers::Peer;
use tcptoll_core::http::reuse::Reuse;
use tcptoll_core::stats::{sample, sequence};
use tcptoll_core::study;
use tcptoll_lab::messages::{HttpLoad, Io};

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

// Every contestant once a round, in an order shuffled anew each round.

/// Orders of rounds are drawn from this, so that a run can be repeated.
const SEED: u64 = 20_191_105;

/// What each contestant did, one sample a round.
#[derive(Debug)]
pub(crate) struct Rounds<S> {
    /// In the order given.
    entries: Vec<(&'static str, Vec<S>)>,
}

impl<S> Rounds<S> {
    /// Gives each name its turns. `turn`: called with the place of a name.
    pub(crate) fn run(
        names: &[&'static str],
        rounds: u32,
        mut turn: impl FnMut(usize) -> anyhow::Result<S>,
    ) -> anyhow::Result<Self> {
        let mut entries: Vec<(&'static str, Vec<S>)> =
            names.iter().map(|name| (*name, Vec::new())).collect();
        for round in 0..rounds {
            for place in study::order_of_round(SEED, round, names.len()) {
                let (name, samples) = &mut entries[place];
                let sample = turn(place);
                samples.push(sample.with_context(|| format!("round {}, {name}", round + 1))?);
            }
        }
        Ok(Self { entries })
    }

    /// Names and samples, in the order given.
    pub(crate) fn entries(&self) -> &[(&'static str, Vec<S>)] {
        &self.entries
    }

    /// How far two are apart in a figure. None: one of them did not take part, or a figure is not
    /// above 0.
    pub(crate) fn ratio(&self, ours: &str, theirs: &str, figure: fn(&S) -> f64) -> Option<Ratio> {
        let figures = |name: &str| -> Option<Vec<f64>> {
            let (_, samples) = self.entries.iter().find(|(other, _)| *other == name)?;
            Some(samples.iter().map(figure).collect())
        };
        Ratio::between(&figures(ours)?, &figures(theirs)?)
    }
}

// How far are two contestants apart, over rounds in which both took part?

/// The ratio of two figures, and the figures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ratio {
    /// Geometric mean of the rounds' ratios, ours over theirs: what a round does to both cancels.
    pub(crate) value: f64,
    /// Interval that holds the ratio in 95 % of runs, whenever one stops. None: too few rounds.
    pub(crate) ci95: Option<[f64; 2]>,
    /// Geometric means, whose ratio the above is.
    pub(crate) ours: f64,
    pub(crate) theirs: f64,
    pub(crate) rounds: usize,
}

impl Ratio {
    /// Of one value a round each. None: they are not paired, or a value is not above 0.
    pub(crate) fn between(ours: &[f64], theirs: &[f64]) -> Option<Self> {
        let above = |values: &[f64]| values.iter().all(|value| *value > 0.0);
        if ours.len() != theirs.len() || !above(ours) || !above(theirs) {
            return None;
        }
        let logs: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| (a / b).ln()).collect();
        let geometric = |values: &[f64]| -> Option<f64> {
            let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
            Some(sample::mean(&logs)?.exp())
        };
        Some(Self {
            value: sample::mean(&logs)?.exp(),
            ci95: sequence::interval(&logs, 0.05).map(|ends| ends.map(f64::exp)),
            ours: geometric(ours)?,
            theirs: geometric(theirs)?,
            rounds: logs.len(),
        })
    }

    /// `[0.76, 0.80]`, or why there is none.
    pub(crate) fn interval(&self) -> String {
        match self.ci95 {
            Some([low, high]) => format!("[{low:.3}, {high:.3}]"),
            None => format!("(too few rounds, {})", self.rounds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_turn_in_each_round_and_ratios_are_of_pairs() {
        let mut turns = 0.0;
        let rounds = Rounds::run(&["a", "b"], 5, |place| {
            turns += 1.0;
            Ok(if place == 0 { 3.0 } else { 6.0 })
        });
        let rounds = rounds.unwrap();
        assert!((turns - 10.0_f64).abs() < 1e-9);
        assert!(rounds.entries().iter().all(|(_, samples)| samples.len() == 5));
        let ratio = rounds.ratio("a", "b", |value| *value).unwrap();
        assert!((ratio.value - 0.5).abs() < 1e-12, "{ratio:?}");
        assert!(rounds.ratio("a", "c", |value| *value).is_none());
    }

    #[test]
    fn a_turn_that_fails_is_named() {
        let failed = Rounds::<f64>::run(&["a"], 1, |_| anyhow::bail!("no"));
        assert_eq!(format!("{:#}", failed.unwrap_err()), "round 1, a: no");
    }

    #[test]
    fn what_a_round_does_to_both_cancels() {
        let theirs = [1.0, 2.0, 4.0, 8.0, 16.0];
        let ours = theirs.map(|value| value / 2.0);
        let ratio = Ratio::between(&ours, &theirs).unwrap();
        assert!((ratio.value - 0.5).abs() < 1e-12, "{ratio:?}");
        // Five equal ratios: no spread. The geometric mean of 1 to 16 is 4.
        let [low, high] = ratio.ci95.unwrap();
        assert!((low - 0.5).abs() < 1e-12 && (high - 0.5).abs() < 1e-12, "{ratio:?}");
        assert!((ratio.theirs - 4.0).abs() < 1e-12 && ratio.rounds == 5, "{ratio:?}");
    }

    #[test]
    fn four_rounds_have_a_ratio_and_no_interval() {
        let ratio = Ratio::between(&[1.0, 1.1, 0.9, 1.0], &[1.0; 4]).unwrap();
        assert_eq!(ratio.ci95, None);
        assert_eq!(ratio.interval(), "(too few rounds, 4)");
    }

    #[test]
    fn what_has_no_logarithm_has_no_ratio() {
        assert!(Ratio::between(&[0.0], &[1.0]).is_none());
        assert!(Ratio::between(&[1.0], &[1.0, 1.0]).is_none());
        assert!(Ratio::between(&[], &[]).is_none());
    }
}
