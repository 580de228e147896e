//! One trial of `connect`: what is opened, who answers, and what is looked at more closely.

use std::net::SocketAddr;
use std::time::Duration;

use tcptoll_core::record::{Step, Timeline};
use tcptoll_core::study::PlannedArm;
use tcptoll_core::tcp::handshake::{accept_step, timeline};
use tcptoll_core::verdict::warning::Warning;
use tcptoll_lab::lab::{Begun, Hosts};
use tcptoll_lab::messages::{ConnectLoad, ConnectReport, Greet, GreetReport, Rows, Split, Watch};

use super::no_answer::nothing_reached;
use super::settings::ConnectSettings;
use crate::kit::hosts::{PortsNeeded, ladder_of, launch};
use crate::kit::notes::Notes;
use crate::kit::opening::{
    LADDER_SLACK, TRACE_MAX, Trace, begin_greeting, drive_measured, end_greeting,
};
use crate::kit::path::Opened;
use crate::kit::plan::{Context, Outcome, TrialError};
use crate::kit::procedure;
use crate::kit::procedure::{JudgementBasis, LoadObservation, Site, Trial};
use crate::kit::settings::LabSpec;

/// Connections of the witness: enough for a p99 of each step.
const WITNESS_COUNT: u64 = 1_000;

fn no_server() -> TrialError {
    TrialError::Target("there is no server to connect to".to_owned())
}

/// One arm, being run.
pub(super) struct ConnectTrial<'a> {
    pub(super) settings: &'a ConnectSettings,
    pub(super) notes: Notes,
    /// Where connections go, once that is known.
    pub(super) at: Option<SocketAddr>,
    /// Our own server, while it answers the load.
    server: Option<Begun<Greet>>,
    /// What our own server reports at its end.
    pub(super) greeted: Option<GreetReport>,
    /// The client's retry ladder.
    pub(super) ladder: Vec<Duration>,
    trace: Trace,
}

impl<'a> ConnectTrial<'a> {
    /// Runs a trial of an arm.
    pub(super) fn outcome(
        arm: &PlannedArm,
        settings: &'a ConnectSettings,
        context: &mut Context<'_>,
    ) -> Result<Outcome, TrialError> {
        let mut trial = ConnectTrial::new(&arm.name, settings);
        trial.run(context)?;
        let untapped = settings.to.is_none()
            && settings.lab.remote.is_none()
            && !settings.lab.link.is_emulated()
            && !settings.lab.tap
            && context.pcap.is_none();
        let whole = trial.notes.arm.ok == trial.notes.arm.attempts && !trial.notes.arm.partial;
        if context.witness && untapped && whole {
            trial.with_witness(context);
        }
        Ok(trial.notes.into_outcome(&arm.factors))
    }

    pub(super) fn new(name: &str, settings: &'a ConnectSettings) -> Self {
        Self {
            settings,
            notes: Notes::new(name, &settings.bind),
            at: None,
            server: None,
            greeted: None,
            ladder: Vec::new(),
            trace: Trace::default(),
        }
    }

    fn run(&mut self, context: &mut Context<'_>) -> Result<(), TrialError> {
        let (at_a_time, connections) = (self.settings.ports(), self.settings.expected_count());
        let site = match &self.settings.to {
            Some(target) => Site::Target(target),
            None => Site::Lab(self.lab(), PortsNeeded { at_a_time, connections }),
        };
        procedure::run(self, site, context)
    }

    /// The lab it needs.
    fn lab(&mut self) -> LabSpec {
        let mut lab = self.settings.lab.clone();
        self.allow_fast_open(&mut lab);
        lab
    }

    /// The kernel's default lets clients send data with the SYN and servers refuse it.
    fn allow_fast_open(&mut self, lab: &mut LabSpec) {
        const FAST_OPEN: &str = "net.ipv4.tcp_fastopen";
        let (client, server) = (&mut lab.client_sysctls, &mut lab.server_sysctls);
        let told = client.iter().chain(server.iter()).any(|(name, _)| name == FAST_OPEN);
        if !self.settings.fast_open || told {
            return;
        }
        for sysctls in [client, server] {
            sysctls.push((FAST_OPEN.to_owned(), "3".to_owned()));
        }
        self.notes.warn(&Warning::SettingMade {
            name: FAST_OPEN.to_owned(),
            value: "3".to_owned(),
            why: "--fast-open needs this on both hosts; servers refuse it by default".to_owned(),
        });
    }

    /// On a link without an emulator: the same again, shorter and with a packet tap, for what only
    /// the wire can tell. A tap costs CPU, so the figures come from the trial without it.
    fn with_witness(&mut self, context: &mut Context<'_>) {
        let settings = ConnectSettings {
            count: self.settings.count.min(WITNESS_COUNT),
            warmup: None,
            lab: LabSpec { tap: true, ..self.settings.lab.clone() },
            ..self.settings.clone()
        };
        let mut witness = ConnectTrial::new(&self.notes.arm.name, &settings);
        // What was measured stands without it.
        if let Err(error) = witness.run(&mut context.of_witness(&mut |_, _| {})) {
            self.notes.warn(&Warning::NoWitness { why: error.to_string() });
        }
        if let Some(timeline) = witness.notes.arm.timeline.take() {
            self.notes.arm.timeline = Some(Timeline { source: "witness".to_owned(), ..timeline });
        }
    }

    /// Where connections go.
    fn at(&self) -> Result<SocketAddr, TrialError> {
        self.at.ok_or_else(no_server)
    }

    /// Starts our own server.
    pub(super) fn greet(
        &self,
        hosts: &mut Hosts,
    ) -> Result<(Begun<Greet>, SocketAddr), TrialError> {
        let greet = Greet {
            at: SocketAddr::new(hosts.addresses.server, 0),
            backlog: self.settings.backlog,
            accept_delay_ns: self.settings.accept_delay.as_nanos() as u64,
            fast_open: self.settings.fast_open,
            speak: self.settings.first_byte,
            trace_limit: TRACE_MAX,
            further: 0,
        };
        let (greeting, listening) = begin_greeting(hosts, &greet)?;
        let at = listening.first().copied().ok_or_else(no_server)?;
        Ok((greeting, at))
    }

    pub(super) fn load_on(&self, target: SocketAddr) -> ConnectLoad {
        let settings = self.settings;
        let at_once = settings.at_once();
        ConnectLoad {
            duration_ns: settings.duration.map(|long| long.as_nanos() as u64),
            concurrency: at_once,
            rate_per_s: settings.rate,
            pause_every: settings.pause_every,
            pause_ns: settings.pause.as_nanos() as u64,
            // Asked for so many at once: they go at once. Our own choice is spread over a round trip.
            ramp_ns: if settings.concurrency.is_some_and(|_| settings.lab.link.rtt.is_zero()) {
                0
            } else {
                settings.lab.link.rtt.as_nanos() as u64 * u64::from(settings.count > at_once)
            },
            timeout_ns: settings.timeout.as_nanos() as u64,
            bind: self.notes.sources.clone(),
            fast_open: settings.fast_open,
            congestion: settings.congestion.clone(),
            send: if settings.fast_open && settings.send.is_empty() {
                b"?".to_vec()
            } else {
                settings.send.clone()
            },
            first_byte: settings.first_byte,
            until_closed_ns: settings.until_closed().as_nanos() as u64,
            ladder_ns: self.ladder.iter().map(|rung| rung.as_nanos() as u64).collect(),
            trace_limit: TRACE_MAX,
            split: (settings.to.is_some() || settings.lab.remote.is_some()) && !settings.fast_open,
            ladder_slack_ns: (LADDER_SLACK + settings.lab.link.rtt).as_nanos() as u64,
            ..ConnectLoad::to(target, settings.count)
        }
    }
}

impl Trial for ConnectTrial<'_> {
    type Report = ConnectReport;

    fn notes(&mut self) -> &mut Notes {
        &mut self.notes
    }

    fn prepare(&mut self, hosts: &mut Hosts, context: &Context<'_>) -> Result<(), TrialError> {
        self.ladder = ladder_of(&mut hosts.client)?;
        // A launched server is warmed up itself; what it does before the load is not of the load.
        self.at = match (&self.settings.to, &self.settings.server) {
            (Some(to), _) => Some(to.address()?),
            (None, Some(line)) => Some(launch(hosts, line, self.settings.port)?),
            (None, None) => None,
        };
        self.warm_up(hosts, context)
    }

    fn listen(&mut self, hosts: &mut Hosts, _context: &Context<'_>) -> Result<Watch, TrialError> {
        if self.at.is_none() {
            let (server, at) = self.greet(hosts)?;
            (self.server, self.at) = (Some(server), Some(at));
        }
        Ok(Watch { tap: self.settings.lab.tap, trace_limit: TRACE_MAX, ..Watch::default() })
    }

    fn load(
        &mut self,
        hosts: &mut Hosts,
        context: &mut Context<'_>,
    ) -> Result<ConnectReport, TrialError> {
        let load = self.load_on(self.at()?);
        let total = self.settings.expected_count();
        let report = drive_measured(&mut hosts.client, &load, &mut self.trace, total, context)?;
        match &self.settings.to {
            Some(to) if report.established == 0 && !report.partial => {
                Err(TrialError::Target(nothing_reached(&to.typed, &report)))
            }
            _ => Ok(report),
        }
    }

    fn server_done(&mut self, hosts: &mut Hosts, wire: Vec<Rows>) -> Result<(), TrialError> {
        self.trace.add(wire);
        if let Some(greeting) = self.server.take() {
            self.greeted = Some(end_greeting(hosts.server()?, greeting, &mut self.trace)?);
        }
        Ok(())
    }

    fn opened(&self, report: &ConnectReport) -> Option<Opened> {
        Some((report.attempts, report.established))
    }

    fn take(&mut self, report: &ConnectReport, seen: &LoadObservation<'_>) -> JudgementBasis {
        self.take_report(report);
        self.take_client(report, seen.client);
        match seen.server {
            Some(server) => self.take_server(server),
            None => self.note_cut(report),
        }
        let Trace { client, wire, server } = &self.trace;
        let mut traced = timeline(client, wire, server);
        if let Some(split) = &report.split {
            take_split(&mut traced, split);
            // The server's stamps are of another machine.
            let bound_ns = seen.clock_bound_ns;
            traced.steps.extend(bound_ns.and_then(|bound| accept_step(client, server, bound)));
        }
        self.notes.arm.timeline = (traced.matched > 0).then_some(traced);
        if let Some(quiet) = seen.quiet {
            self.expect(quiet);
        }
        JudgementBasis { operations: report.attempts, stamped: seen.tapped }
    }

    fn compare(&mut self, _seen: &LoadObservation<'_>) {
        // What is sent with a SYN makes another one of it.
        if !self.settings.fast_open {
            self.notes.compare_syns();
        }
    }
}

/// Without a capture, the client's kernel tells two parts of its handshakes.
fn take_split(timeline: &mut Timeline, split: &Split) {
    let (round_trip, rest) = (split.round_trip.summary_us(), split.rest.summary_us());
    let (Some(round_trip_us), Some(rest_us)) = (round_trip.p50, rest.p50) else { return };
    let step = |name: &str, at: &str, begins_us, p50_us, p99_us| Step {
        name: name.to_owned(),
        at: at.to_owned(),
        begins_us,
        p50_us,
        p99_us,
    };
    timeline.steps = vec![
        step("SYN out → SYN-ACK in, with server", "wire", 0.0, round_trip_us, round_trip.p99),
        step("the rest: connect(), waking up", "client", round_trip_us, rest_us, rest.p99),
    ];
    timeline.matched = split.round_trip.count();
    timeline.unmatched = split.unmatched;
    "tcp-info".clone_into(&mut timeline.source);
}
