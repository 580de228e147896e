//! What does it cost to open a TCP connection, and where does the time go?

mod findings;
mod settings;
pub(crate) mod sheet;
mod timeline;
mod trial;

use tcptoll_core::experiment::brief::{self, Brief, Group};
use tcptoll_core::experiment::figures::{
    ACCEPT_QUEUE_PEAK, CLIENT_CPU, CONNECT, CONNECT_MEAN, CONNECT_OF_FAILED, CONNECTIONS_RATE,
    FIRST_BYTE, FIRST_BYTE_MEAN, IN_FLIGHT, LATENESS, RATE_RESOLUTION, RTT, SERVER_CPU, WAITED,
};
use tcptoll_core::experiment::spec::{Noun, Phrase, Spec};
use tcptoll_core::record::Resolved;
use tcptoll_core::study::{PlannedArm, Settings};
use tcptoll_lab::files::Shared;

use super::connect::settings::ConnectSettings;
use super::connect::trial::ConnectTrial;
use crate::kit::TrialError;
use crate::kit::plan::{Context, Experiment, Outcome, Plan, PublicLoad};
use crate::kit::settings::check_congestion;
use crate::kit::target::{PUBLIC_RATE_PER_S, Target};

/// Examples and explanations in the help.
const EXAMPLES: &str = "\
Examples:
  tcptoll connect --link cross-region
      connect over a link with a round trip of 37 ms
  tcptoll connect --link same-room,metro,cross-region --count 5000
      compare three links
  tcptoll connect --count 500 --concurrency 500 --accept-delay 2ms --backlog 16,4096 --allow-errors 100%
      what a full accept queue costs, and whether a longer one helps
  tcptoll connect --to db.example:5432 --count 50
      your own server; for a public address the rate is low unless you set --rate
  tcptoll connect --link metro --server 'redis-server --port 6379' --send 'PING\\r\\n'
      a server of your choice, started in the lab
  tcptoll connect --backlog 128,4096 --duration 500ms --warmup 100ms --margin 2%
      trials of half a second, repeated until a difference of 2 % is confirmed or ruled out
  tcptoll connect --link metro --rounds 10 --dry-run
      print what would run, and the expected time

An option with several values (--backlog 16,4096) makes one arm (variant) per value. The other arms
are compared with the first.";

/// What `-h` shows.
const BRIEF: Brief = Brief {
    group: Group::Load,
    line: "what opening a connection costs, and where the time goes",
    options: &[
        ("to", "a server of yours, e.g. db:5432; none: the lab"),
        brief::LINK,
        ("count", "connections in all"),
        ("duration", "start connections for this time, e.g. 10s"),
        ("concurrency", "connections at a time"),
        ("rate", "connections per second (open loop)"),
        ("timeout", "give a connection up after this time, e.g. 3s"),
        ("send", "what the server answers: 'PING\\r\\n'"),
        brief::HTML,
        brief::FAIL_IF,
    ],
    examples: &[
        ("connect db.example:5432", "where the time goes"),
        ("connect --link metro,cross-region", "what distance costs"),
        ("connect -n 1000 --fail-if 'p99 > 5ms' db:1", "in CI"),
    ],
};

pub(crate) const SPEC: Spec = Spec {
    name: "connect",
    question: "What does it cost to open a TCP connection, and where does the time go?",
    about: "Measure what opening a TCP connection costs, and where the time goes",
    examples: EXAMPLES,
    brief: BRIEF,
    options: settings::OPTIONS,
    target: Some("to"),
    complete: settings::complete,
    compares: |_| true,
    metrics: &[
        &ACCEPT_QUEUE_PEAK,
        &CLIENT_CPU,
        &CONNECT_MEAN,
        &CONNECTIONS_RATE,
        &FIRST_BYTE_MEAN,
        &IN_FLIGHT,
        &RATE_RESOLUTION,
        &SERVER_CPU,
        &WAITED,
    ],
    histograms: &[&CONNECT_OF_FAILED, &CONNECT, &FIRST_BYTE, &LATENESS, &RTT],
    primary: CONNECT_MEAN.name,
    phrases: &[
        Phrase::figures(CONNECT_MEAN.name, "Opening a connection takes {} on average"),
        Phrase::figures("connect_us_p50", "Opening a connection takes {} at the median"),
        Phrase::figures(FIRST_BYTE_MEAN.name, "The first byte arrives after {} on average"),
        Phrase::rate(
            CONNECTIONS_RATE.name,
            "The rate is {}",
            "opens {} as many connections/s as",
            "connections/s",
        ),
    ],
    answers: &[CONNECT.name, FIRST_BYTE.name],
    // Differences in connect latency below this relative size change no decision.
    margin: 0.01,
    operation: Noun::CONNECTION,
    tables: sheet::TABLES,
    causes: findings::CAUSES,
    conclude: findings::conclude,
};

pub(crate) struct Connect;

impl Experiment for Connect {
    fn spec(&self) -> &'static Spec {
        &SPEC
    }

    fn plan(&self, settings: &Settings) -> Result<Box<dyn Plan>, TrialError> {
        Ok(Box::new(ConnectSettings::from(settings)?))
    }
}

impl Plan for ConnectSettings {
    fn target(&self) -> Option<&Target> {
        self.to.as_ref()
    }

    fn resolved(&mut self, resolved: &[Resolved]) {
        if let Some(to) = &mut self.to {
            to.take(resolved);
            self.set_defaults();
        }
    }

    fn prepare(&mut self, _files: &mut Shared) -> Result<(), TrialError> {
        check_congestion(self.congestion.as_deref())
    }

    fn expected_s(&self) -> f64 {
        Self::expected_s(self)
    }

    fn operations(&self) -> Option<(u64, &'static str)> {
        self.operations_asked().map(|count| (count, "count"))
    }

    fn public_load(&self) -> Option<PublicLoad> {
        let to = self.to.as_ref().filter(|to| to.is_public())?;
        let rate = self.rate.unwrap_or(PUBLIC_RATE_PER_S);
        let count = self.expected_count();
        Some(PublicLoad {
            target: to.typed.clone(),
            size: rate,
            load: format!("{count} connections at {rate} per second will be opened to it"),
            options: "--rate and --count set other figures",
        })
    }

    fn trial(&self, arm: &PlannedArm, context: &mut Context<'_>) -> Result<Outcome, TrialError> {
        ConnectTrial::outcome(arm, self, context)
    }
}
