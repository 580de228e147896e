//! What does it cost to open a TCP connection, and where does the time go?

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tcptoll_model::handshake::timeline;
use tcptoll_model::record::{Arm, HostSummary, LinkKind, Summary, Timeline, WarningEntry};
use tcptoll_model::study::{PlannedArm, Settings};
use tcptoll_model::validity::Finding;
use tcptoll_model::warning::Warning;

use super::connect_hosts::{
    Server, Trace, count, drive, end_serving, ladder_of, nothing_reached, observe, set_sysctls,
    settle,
};
use super::connect_report;
use super::connect_settings::{ConnectSettings, OPTIONS};
use super::{Context, Experiment, Outcome, TrialError};
use crate::clock::ClockWatch;
use crate::lab::certification::{Certificate, certify, echoes};
use crate::lab::plan::Plan;
use crate::lab::{LabError, Place};
use crate::messages::{Ask, ConnectLoad, ConnectReport, Greet, Launch, Tell, Watch};

/// Handshakes remembered for the timeline, at most.
const TRACE_MAX: usize = 20_000;

/// Echoes on a quiet link and the time between two, ns, where the trial looks closer and where it
/// does not: there are many such trials, and what they have adds up.
const ECHOES: [(u16, u64); 2] = [(50, 2_000_000), (10, 1_000_000)];

/// Connections of the witness: enough for a p99 of each step.
const WITNESS_COUNT: u64 = 1_000;

/// Ports of the kernel's default range, 32768 to 60999.
const DEFAULT_PORTS: u64 = 28_232;

/// Most source addresses that are added.
const SOURCES_MAX: u64 = 200;

/// A range that leaves the ports below 5000 to servers.
const WIDE_RANGE: &str = "5000 65000";

/// Differences in connect latency below this relative size change no decision.
const MARGIN: f64 = 0.01;

/// Every metric of a trial.
const METRICS: &[&str] = &[
    "accept_queue_peak",
    "client_cpu_us_per_op",
    "connect_us_mean",
    "connections_per_s",
    "first_byte_us_mean",
    "in_flight_mean",
    "server_cpu_us_per_op",
];

/// Every distribution of a trial.
const HISTOGRAMS: &[&str] = &["connect_us", "first_byte_us", "lateness_us", "rtt_us"];

/// The experiment.
pub struct Connect;

impl Experiment for Connect {
    fn name(&self) -> &'static str {
        "connect"
    }

    fn question(&self) -> &'static str {
        "What does it cost to open a TCP connection, and where does the time go?"
    }

    fn options(&self) -> &'static [&'static str] {
        OPTIONS
    }

    fn primary_metric(&self) -> &'static str {
        "connect_us_mean"
    }

    fn metrics(&self) -> &'static [&'static str] {
        METRICS
    }

    fn histograms(&self) -> &'static [&'static str] {
        HISTOGRAMS
    }

    fn margin(&self) -> f64 {
        MARGIN
    }

    fn check(&self, settings: &Settings) -> Result<(), TrialError> {
        ConnectSettings::from(settings).map(drop)
    }

    fn expected_s(&self, settings: &Settings) -> f64 {
        ConnectSettings::from(settings).map_or(1.0, |settings| settings.expected_s())
    }

    fn run(&self, arm: &PlannedArm, context: &mut Context<'_>) -> Result<Outcome, TrialError> {
        let settings = ConnectSettings::from(&arm.settings)?;
        let mut trial = Trial::new(&arm.name, &settings);
        if settings.to.is_some() {
            trial.at_target(context)?;
        } else {
            trial.in_lab(context)?;
            let untapped = !settings.link.is_emulated() && !settings.tap && context.pcap.is_none();
            if context.witness
                && untapped
                && trial.arm.ok == trial.arm.attempts
                && !trial.arm.partial
            {
                trial.with_witness(context);
            }
        }
        trial.judge();
        trial.arm.factors = arm.factors.clone().into_iter().collect();
        Ok(Outcome { arm: trial.arm, warnings: trial.warnings, invalid: trial.invalid })
    }

    fn conclude(&self, summary: &mut Summary) {
        connect_report::conclude(summary);
    }
}

/// One arm, being run.
pub(super) struct Trial<'a> {
    pub(super) settings: &'a ConnectSettings,
    pub(super) arm: Arm,
    warnings: Vec<WarningEntry>,
    /// Why the trial is useless for its question.
    pub(super) invalid: Option<String>,
    /// Source addresses: those asked for, or those the lab added.
    pub(super) sources: Vec<IpAddr>,
    /// Median lateness of the link that is still allowed, µs.
    pub(super) tolerance_us: f64,
}

impl<'a> Trial<'a> {
    pub(super) fn new(name: &str, settings: &'a ConnectSettings) -> Self {
        let arm = Arm { name: name.to_owned(), ..Arm::default() };
        let sources = settings.bind.clone();
        Self {
            settings,
            arm,
            warnings: Vec::new(),
            invalid: None,
            sources,
            tolerance_us: f64::INFINITY,
        }
    }

    /// Excludes the trial from verdicts; the first reason stays.
    pub(super) fn exclude(&mut self, why: &str) {
        self.invalid.get_or_insert_with(|| why.to_owned());
    }

    pub(super) fn warn(&mut self, warning: &Warning) {
        self.warnings.push(warning.entry(Some(&self.arm.name)));
    }

    /// Takes what was found wrong, if anything was.
    pub(super) fn found(&mut self, finding: Option<Finding>) {
        let Some(Finding { warning, reason }) = finding else { return };
        self.warn(&warning);
        if let Some(reason) = reason {
            self.exclude(reason);
        }
    }

    /// A lab with its link certified and its sysctls set.
    fn lab(&mut self, context: &mut Context<'_>) -> Result<Place, TrialError> {
        let settings = self.settings;
        let mut client_sysctls = settings.client_sysctls.clone();
        self.spread_ports(&mut client_sysctls);
        let mut server_sysctls = settings.server_sysctls.clone();
        self.allow_fast_open(&mut client_sysctls, &mut server_sysctls);
        let cpus = tcptoll_kernel::cpu::allowed();
        let pair = if cpus.len() > 1 { (Some(cpus[0]), Some(cpus[1])) } else { (None, None) };
        let plan = Plan {
            link: settings.link.text.clone(),
            ipv6: settings.ipv6,
            seed: settings.link.seed.unwrap_or(context.seed),
            force_packet: settings.packet_relay,
            client_cpu: pair.0,
            server_cpu: pair.1,
            client_addresses: if settings.link.loopback {
                Vec::new()
            } else {
                self.sources.clone()
            },
        };
        let mut place = Place::lab(&plan, &settings.link)?;
        let key = format!("{} {} {}", plan.link, plan.ipv6, plan.force_packet);
        let certificate: Certificate = match context.certificates.get(&key) {
            Some(known) => {
                place.link()?.ask(&Ask::Calibrate { early_ns: known.early_ns })?;
                known.clone()
            }
            None => certify(&mut place, &settings.link, context.tolerance, context.interrupt)?,
        };
        context.certificates.insert(key, certificate.clone());
        if certificate.measured.kind == LinkKind::EmulatedPacket && !settings.packet_relay {
            self.warn(&Warning::PacketFallback);
        }
        self.arm.link = Some(certificate.measured);
        self.arm.client.pinned_cpu = place.client.ready.pinned_cpu;
        self.arm.client.sysctls = set_sysctls(&mut place.client, client_sysctls)?;
        let server = place.server()?;
        let server_sysctls = set_sysctls(server, server_sysctls)?;
        self.arm.server = Some(HostSummary {
            sysctls: server_sysctls,
            pinned_cpu: server.ready.pinned_cpu,
            ..HostSummary::default()
        });
        Ok(place)
    }

    /// Where one address's ports would become scarce, the lab's client takes more addresses: past
    /// half of the range the kernel searches long for a port (measured on Linux 6.18: 50,000 from
    /// one address cost 0.9 ms of CPU each, from four 0.05 ms). On loopback, where the addresses
    /// are one, the range is widened.
    fn spread_ports(&mut self, sysctls: &mut Vec<(String, String)>) {
        const RANGE: &str = "net.ipv4.ip_local_port_range";
        let per_address = DEFAULT_PORTS / 2;
        let told = sysctls.iter().any(|(name, _)| name == RANGE) || !self.settings.bind.is_empty();
        let ports = self.settings.ports();
        if told || ports <= per_address {
            return;
        }
        let (name, value) = if self.settings.link.loopback {
            if ports <= DEFAULT_PORTS {
                return;
            }
            sysctls.push((RANGE.to_owned(), WIDE_RANGE.to_owned()));
            (RANGE.to_owned(), WIDE_RANGE.to_owned())
        } else {
            let addresses = ports.div_ceil(per_address).min(SOURCES_MAX);
            self.sources = (1..=addresses)
                .map(|n| crate::lab::plan::client_address(n as u16, self.settings.ipv6))
                .collect();
            ("--bind".to_owned(), format!("{addresses} source addresses"))
        };
        self.warn(&Warning::SettingMade {
            name,
            value,
            why: format!(
                "{} connections from one address leave it short of local ports (--bind or --client-sysctl to choose yourself)",
                self.settings.expected_count()
            ),
        });
    }

    /// The kernel's default lets clients send data with the SYN and servers refuse it.
    fn allow_fast_open(
        &mut self,
        client: &mut Vec<(String, String)>,
        server: &mut Vec<(String, String)>,
    ) {
        const FAST_OPEN: &str = "net.ipv4.tcp_fastopen";
        let told = client.iter().chain(server.iter()).any(|(name, _)| name == FAST_OPEN);
        if !self.settings.fast_open || told {
            return;
        }
        for sysctls in [client, server] {
            sysctls.push((FAST_OPEN.to_owned(), "3".to_owned()));
        }
        self.warn(&Warning::SettingMade {
            name: FAST_OPEN.to_owned(),
            value: "3".to_owned(),
            why: "--fast-open needs it on both hosts; servers refuse by default".to_owned(),
        });
    }

    fn in_lab(&mut self, context: &mut Context<'_>) -> Result<(), TrialError> {
        self.tolerance_us = context.tolerance.delay_us;
        let mut place = self.lab(context)?;
        // A launched server is warmed up itself; what it does before the load is not of the load.
        let launched = match self.settings.server {
            Some(_) => Some(self.serve(&mut place)?),
            None => None,
        };
        self.warm_up(&mut place, launched.as_ref().map(|(_, at)| *at), context)?;
        let (number, interval_ns) = ECHOES[usize::from(!context.witness)];
        let quiet = echoes(&mut place, number, interval_ns, context.interrupt)?;
        let client_before = observe(&mut place.client)?;
        // A greeting server answers nothing else.
        let server_before = observe(place.server()?)?;
        let (server, at) = match launched {
            Some(launched) => launched,
            None => self.serve(&mut place)?,
        };
        let watch = Watch {
            tap: self.settings.tap,
            trace_limit: TRACE_MAX,
            pcap: context.pcap.map(str::to_owned),
        };
        let tapped = watch.tap || watch.pcap.is_some() || self.settings.link.is_emulated();
        place.link()?.ask(&Ask::Watch(watch))?;
        let ladder = ladder_of(&mut place.client)?;
        let load = self.load(at, &ladder, matches!(server, Server::Ours));
        let mut trace = Trace::default();
        let clocks = ClockWatch::begin();
        let report = self.drive(&mut place, &load, &mut trace, context)?;
        settle(&mut place.client, &self.settings.link)?;
        let clocks = clocks.end();
        let client_after = observe(&mut place.client)?;
        let counted = count(place.link()?, &mut trace)?;
        let (server_after, greeted) = end_serving(&mut place, &server, &mut trace)?;
        self.take_report(&report, &load, &ladder);
        self.take_hosts(&report, greeted.as_ref(), &client_before, &client_after);
        self.take_server(&server_before, &server_after);
        let server_drops = server_after.device_drops.saturating_sub(server_before.device_drops);
        self.take_link(counted, tapped, server_drops, &client_before, &client_after);
        self.take_machine(&client_before, &client_after);
        // The emulated link stamps its packets itself.
        self.take_clocks(clocks, tapped && !self.settings.link.is_emulated());
        let traced = timeline(&trace.client, &trace.wire, &trace.server);
        self.arm.timeline = (traced.matched > 0).then_some(traced);
        self.expect(&quiet);
        Ok(())
    }

    /// Runs the load of the measurement.
    fn drive(
        &self,
        place: &mut Place,
        load: &ConnectLoad,
        trace: &mut Trace,
        context: &mut Context<'_>,
    ) -> Result<ConnectReport, TrialError> {
        let total = self.settings.expected_count();
        let progress = &mut context.progress;
        let tell = &mut |done: u64| progress(done, total.max(done));
        drive(&mut place.client, load, trace, context.interrupt, tell)
    }

    /// On a link without an emulator: the same again, shorter and with a packet tap, for what only
    /// the wire can tell. A tap costs CPU, so the figures come from the trial without it.
    fn with_witness(&mut self, context: &mut Context<'_>) {
        let settings = ConnectSettings {
            count: self.settings.count.min(WITNESS_COUNT),
            warmup: None,
            tap: true,
            ..self.settings.clone()
        };
        let mut silent = |_, _| {};
        let mut quiet = Context {
            interrupt: context.interrupt,
            progress: &mut silent,
            seed: context.seed,
            witness: false,
            tolerance: context.tolerance,
            pcap: None,
            certificates: context.certificates,
        };
        let mut witness = Trial::new(&self.arm.name, &settings);
        // What was measured stands without it.
        if let Err(error) = witness.in_lab(&mut quiet) {
            self.warn(&Warning::NoWitness { why: error.to_string() });
        }
        if let Some(timeline) = witness.arm.timeline.take() {
            self.arm.timeline = Some(Timeline { source: "witness".to_owned(), ..timeline });
        }
    }

    fn at_target(&mut self, context: &mut Context<'_>) -> Result<(), TrialError> {
        let Some((name, address)) = &self.settings.to else { return Ok(()) };
        let mut place = Place::target()?;
        place.addresses.server = address.ip();
        let quiet = echoes(&mut place, 20, 20_000_000, context.interrupt);
        if context.interrupt.signal().is_some() {
            return Err(LabError::Interrupted.into());
        }
        let ladder = ladder_of(&mut place.client)?;
        let load = self.load(*address, &ladder, !self.settings.send.is_empty());
        let mut trace = Trace::default();
        self.warm_up(&mut place, Some(*address), context)?;
        let client_before = observe(&mut place.client)?;
        let clocks = ClockWatch::begin();
        let report = self.drive(&mut place, &load, &mut trace, context)?;
        let clocks = clocks.end();
        let client_after = observe(&mut place.client)?;
        if report.established == 0 && !report.partial {
            return Err(TrialError::Target(nothing_reached(name, &report)));
        }
        self.take_report(&report, &load, &ladder);
        self.take_hosts(&report, None, &client_before, &client_after);
        self.take_machine(&client_before, &client_after);
        self.take_clocks(clocks, false);
        let traced = timeline(&trace.client, &[], &[]);
        self.arm.timeline = (traced.matched > 0).then_some(traced);
        // A firewall may eat echoes, and this user may not be allowed to send them.
        if let Ok(rtt) = quiet {
            self.expect(&rtt);
        }
        Ok(())
    }

    pub(super) fn serve(&self, place: &mut Place) -> Result<(Server, SocketAddr), TrialError> {
        let address = place.addresses.server;
        let variables = place.addresses.variables();
        let server = place.server()?;
        let (kind, ask) = match &self.settings.server {
            None => {
                let greet = Greet {
                    at: SocketAddr::new(address, 0),
                    backlog: self.settings.backlog,
                    accept_delay_ns: self.settings.accept_delay.as_nanos() as u64,
                    fast_open: self.settings.fast_open,
                    speak: self.settings.first_byte,
                    trace_limit: TRACE_MAX,
                };
                (Server::Ours, Ask::Greet(greet))
            }
            Some(line) => {
                let launch = Launch {
                    words: vec![line.clone()],
                    shell: true,
                    environment: variables,
                    ordinary_user: true,
                };
                (Server::Launched, Ask::Launch(launch))
            }
        };
        match server.ask(&ask)? {
            Tell::Listening { at } => {
                let port = self.settings.port.unwrap_or(at.port());
                Ok((kind, SocketAddr::new(address, port)))
            }
            other => Err(server.unexpected(&other).into()),
        }
    }

    pub(super) fn load(
        &self,
        target: SocketAddr,
        ladder: &[Duration],
        speaks: bool,
    ) -> ConnectLoad {
        let settings = self.settings;
        let at_once = settings.at_once();
        ConnectLoad {
            target,
            count: settings.count,
            duration_ns: settings.duration.map(|long| long.as_nanos() as u64),
            concurrency: at_once,
            rate_per_s: settings.rate,
            pause_every: settings.pause_every,
            pause_ns: settings.pause.as_nanos() as u64,
            // Asked for so many at once: they go at once. Our own choice is spread over a round trip.
            ramp_ns: if settings.concurrency.is_some_and(|_| settings.link.rtt.is_zero()) {
                0
            } else {
                settings.link.rtt.as_nanos() as u64 * u64::from(settings.count > at_once)
            },
            timeout_ns: settings.timeout.as_nanos() as u64,
            bind: self.sources.clone(),
            fast_open: settings.fast_open,
            congestion: settings.congestion.clone(),
            send: if settings.fast_open && settings.send.is_empty() {
                b"?".to_vec()
            } else {
                settings.send.clone()
            },
            first_byte: settings.first_byte && (speaks || !settings.send.is_empty()),
            ladder_ns: ladder.iter().map(|rung| rung.as_nanos() as u64).collect(),
            trace_limit: TRACE_MAX,
            // Timers fire the later the longer they wait: 0.6 s late on the rung of 35 s.
            ladder_slack_ns: (Duration::from_millis(600) + settings.link.rtt).as_nanos() as u64,
        }
    }
}
