//! One trial of `connect`: what is opened, who answers, and what is looked at more closely.
//!
//! With a server of the user's, a handshake has two parts, from `TCP_INFO`: packets of a network that is not
//! ours are not captured, which would need root. Right after the handshake `tcpi_rtt` is the time from SYN to
//! SYN-ACK as the client's kernel measured it; the rest is the client's. Reading it costs one system call
//! after the latency was taken.
//!
//! What arithmetic expects is one round trip and the CPU of both ends, and never less than light needs for
//! the distance. It does not know the network's detours, queues or losses: what is measured above it is theirs.

use std::net::SocketAddr;
use std::time::Duration;

use tcptoll_core::record::{Expectation, Step, Timeline};
use tcptoll_core::study::PlannedArm;
use tcptoll_core::tcp::handshake::{accept_step, timeline};
use tcptoll_core::verdict::warning::Warning;
use tcptoll_lab::lab::certification::median;
use tcptoll_lab::lab::{Begun, Hosts, LabError};
use tcptoll_lab::messages::{ConnectLoad, ConnectReport, Greet, GreetReport, Rows, Split, Watch};

use super::settings::ConnectSettings;
use crate::kit::TrialError;
use crate::kit::hosts::{PortsNeeded, ladder_of, launch};
use crate::kit::notes::{Notes, Span, path_sample, set_cpu};
use crate::kit::opening::{
    Flow, LADDER_SLACK, TRACE_MAX, Trace, begin_greeting, drive, drive_measured, end_greeting,
    take_opened, warmed,
};
use crate::kit::path::Opened;
use crate::kit::plan::{Context, Outcome};
use crate::kit::procedure;
use crate::kit::procedure::{JudgementBasis, LoadObservation, Site, Trial};
use crate::kit::settings::LabSpec;
use crate::kit::target::Unreached;

/// Connections of the witness: enough for a p99 of each step.
const WITNESS_COUNT: u64 = 1_000;

fn no_server() -> TrialError {
    TrialError::Target("there is no server to connect to".to_owned())
}

pub(super) struct ConnectTrial<'a> {
    settings: &'a ConnectSettings,
    notes: Notes,
    /// Where connections go, once that is known.
    at: Option<SocketAddr>,
    /// Our own server, while it answers the load.
    server: Option<Begun<Greet>>,
    /// What our own server reports at its end.
    greeted: Option<GreetReport>,
    ladder: Vec<Duration>,
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

    fn new(name: &str, settings: &'a ConnectSettings) -> Self {
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

    fn at(&self) -> Result<SocketAddr, TrialError> {
        self.at.ok_or_else(no_server)
    }

    fn greet(&self, hosts: &mut Hosts) -> Result<(Begun<Greet>, SocketAddr), TrialError> {
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

    fn load_on(&self, target: SocketAddr) -> ConnectLoad {
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

impl ConnectTrial<'_> {
    /// Opens connections for caches, routes and branch predictors: to the server that is measured
    /// if there is one already and the user asked for it, else to one of their own.
    fn warm_up(&mut self, hosts: &mut Hosts, context: &Context<'_>) -> Result<(), TrialError> {
        let Some(warm) = self.settings.warm_up() else { return Ok(()) };
        let mut trial = ConnectTrial::new("", &warm);
        trial.notes.sources.clone_from(&self.notes.sources);
        let running = self.at.filter(|_| warm.server.is_some() || warm.to.is_some());
        let (server, at) = match running {
            Some(at) => (None, at),
            None => trial.greet(hosts).map(|(server, at)| (Some(server), at))?,
        };
        let mut load = trial.load_on(at);
        load.trace_limit = 0;
        let mut unseen = Trace::default();
        let report = drive(&mut hosts.client, &load, &mut unseen, context.interrupt, &mut |_| {})?;
        if let Some(greeting) = server {
            end_greeting(hosts.server()?, greeting, &mut unseen)?;
        }
        if context.interrupt.signal().is_some() {
            return Err(LabError::Interrupted.into());
        }
        self.notes.arm.warmup = Some(warmed(report));
        Ok(())
    }
}

impl ConnectTrial<'_> {
    fn take_report(&mut self, report: &ConnectReport) {
        let settings = self.settings;
        let flow = Flow {
            rate: settings.rate,
            at_once: settings.at_once(),
            pause_every: settings.pause_every,
        };
        take_opened(&mut self.notes, report, &self.ladder, flow);
    }

    fn take_client(&mut self, report: &ConnectReport, span: Span<'_>) {
        let n = report.attempts;
        self.notes.arm.client.rss_peak_bytes = Some(span.after.rss_peak_bytes);
        self.notes.client_cpu(report.cpu_us, report.attempts, n);
        // The listener of a server that is not ours, but runs on this machine.
        if !self.notes.arm.client.listeners.is_empty() {
            self.notes.queue_peak(&span.after.listeners);
        }
    }

    /// Notes that the time limit nobody asked for came before the number of connections.
    fn note_cut(&mut self, report: &ConnectReport) {
        let settings = self.settings;
        let cut = settings.is_cut && !report.partial && report.attempts < settings.count;
        let limit = self.settings.duration.filter(|_| cut);
        self.notes.arm.cut_after_s = limit.map(|limit| limit.as_secs_f64());
    }

    fn take_server(&mut self, span: Span<'_>) {
        let arm = &mut self.notes.arm;
        let (attempts, ok) = (arm.attempts, arm.ok);
        if let Some(server) = &mut arm.server {
            // Of connections that a server keeps open; those of the load are closed by now.
            server.tcp_info = span.after.connections.iter().find_map(|info| path_sample(info, ""));
            match &self.greeted {
                Some(_) => server.rss_peak_bytes = Some(span.after.rss_peak_bytes),
                None => set_cpu(server, span.children_cpu_us(), ok),
            }
        }
        if let Some(greeted) = &self.greeted {
            self.notes.server_cpu(greeted.cpu_us, greeted.accepted, attempts);
        }
        self.notes.queue_peak(&span.after.listeners);
    }

    /// What arithmetic expects: round trips from the setting where the link has one, from the echo
    /// where it has none, and the CPU of the steps that one handshake waits for.
    fn expect(&mut self, quiet: &[u64]) {
        let echo_us = median(quiet).map(|ns| ns as f64 / 1e3);
        let asked = self.settings.lab.link.rtt;
        let (rtt_us, from) = match echo_us {
            _ if self.settings.to.is_none() && !asked.is_zero() => {
                (asked.as_nanos() as f64 / 1e3, "link setting")
            }
            Some(us) if self.settings.to.is_some() => (us, "ICMP echo"),
            // Without distance there is nothing to expect but what is measured.
            _ => return,
        };
        let cpu_us = self.notes.arm.timeline.as_ref().and_then(|timeline| {
            let step_us = |name: &str| {
                timeline.steps.iter().find(|step| step.name == name).map(|step| step.p50_us)
            };
            Some(
                step_us("connect() → SYN out")?
                    + step_us("SYN in → SYN-ACK out")?
                    + step_us("SYN-ACK in → connect() back")?,
            )
        });
        let cpu_us = if from == "link setting" { cpu_us } else { None };
        self.notes.arm.expectation =
            Some(expectation(rtt_us, from, cpu_us, self.settings.distance_km));
    }
}

/// Speed of light in vacuum, km/s. Exact by the definition of the metre (SI, 1983).
const LIGHT_VACUUM_KM_PER_S: f64 = 299_792.458;

/// Group index of refraction of telecommunication fibre at 1550 nm: light is this many times slower.
///
/// Source: typical of single-mode fibre of class ITU-T G.652 (Corning's data sheet of SMF-28e gives
/// 1.4682 at 1550 nm); the recommendation itself fixes no value.
const FIBRE_INDEX: f64 = 1.468;

/// The least round trip over `distance_km` there and back, in µs; `index` is 1 in vacuum.
///
/// 1,000 km of fibre: 2 * 1000 / 299,792.458 * 1.468 = 9.79 ms.
#[must_use]
fn floor_rtt_us(distance_km: f64, index: f64) -> f64 {
    2.0 * distance_km * index / LIGHT_VACUUM_KM_PER_S * 1e6
}

/// What arithmetic expects of one connection.
///
/// The client has it after one round trip (SYN there, SYN-ACK back); the process that accepts has it
/// half a round trip later, when the client's ACK arrives.
///
/// Unit: µs and km. `rtt_from` says where the round trip is from: `link setting`, `ICMP echo`.
/// None: CPU that was not measured adds nothing; without a distance there are no floors.
#[must_use]
fn expectation(
    rtt_us: f64,
    rtt_from: &str,
    cpu_us: Option<f64>,
    distance_km: Option<f64>,
) -> Expectation {
    let cpu = cpu_us.unwrap_or(0.0);
    Expectation {
        client_us: rtt_us + cpu,
        server_process_us: 1.5 * rtt_us + cpu,
        rtt_us,
        rtt_from: rtt_from.to_owned(),
        cpu_us,
        distance_km,
        floor_fibre_us: distance_km.map(|km| floor_rtt_us(km, FIBRE_INDEX)),
        floor_vacuum_us: distance_km.map(|km| floor_rtt_us(km, 1.0)),
    }
}

/// Why a target gave nothing, with what to do about it.
fn nothing_reached(name: &str, report: &ConnectReport) -> String {
    let unreached = Unreached {
        subject: format!("--to {name}"),
        operation: "connection",
        outcome: format!("none of {} connections succeeded", report.attempts),
        errors: &report.errors,
        first_errors: &report.first_errors,
    };
    unreached.sentence(&[
        ("bind", "--bind names an address that this host does not have"),
        ("local-ports", "no local port is free: add --bind addresses, or wait a minute"),
        ("timeout", "it accepts connections but sends nothing: write a request with --send"),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_of_one_light_second_is_two_seconds_there_and_back() {
        assert!((floor_rtt_us(LIGHT_VACUUM_KM_PER_S, 1.0) - 2e6).abs() < 1e-6);
    }

    #[test]
    fn the_server_process_has_the_connection_half_a_round_trip_later() {
        // 37 ms and 50 µs of CPU: 37,050 µs at the client, 1.5 * 37,000 + 50 at the process.
        let expected = expectation(37_000.0, "link setting", Some(50.0), None);
        assert!((expected.client_us - 37_050.0).abs() < 1e-9);
        assert!((expected.server_process_us - 55_550.0).abs() < 1e-9);
        assert_eq!(expected.floor_fibre_us, None);
        assert_eq!(expected.rtt_from, "link setting");
    }

    #[test]
    fn a_distance_gives_both_floors_and_fibre_is_the_slower() {
        // Hebei to Guangdong, about 1,800 km: 12.0 ms in vacuum, 17.6 ms in fibre; 37 ms were seen.
        let expected = expectation(37_000.0, "ICMP echo", None, Some(1800.0));
        let vacuum = expected.floor_vacuum_us.unwrap();
        let fibre = expected.floor_fibre_us.unwrap();
        assert!((vacuum - 12_008.3).abs() < 0.1, "{vacuum}");
        assert!((fibre - 17_628.2).abs() < 0.1, "{fibre}");
        assert_eq!(expected.cpu_us, None);
    }
}
