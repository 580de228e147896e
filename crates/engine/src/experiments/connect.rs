//! What does it cost to open a TCP connection, and where does the time go?

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tcptoll_model::handshake::timeline;
use tcptoll_model::record::{Arm, HostSummary, LinkKind, Summary, Timeline, WarningEntry};
use tcptoll_model::study::{PlannedArm, Settings};
use tcptoll_model::warning::Warning;

use super::connect_hosts::{
    Server, Trace, count, drive, end_serving, ladder_of, look_at_server, observe, set_sysctls,
};
use super::connect_report;
use super::connect_settings::{ConnectSettings, OPTIONS};
use super::{Context, Experiment, Outcome, TrialError};
use crate::lab::certification::{Certificate, certify, echoes};
use crate::lab::plan::Plan;
use crate::lab::{LabError, Place};
use crate::messages::{Ask, ConnectLoad, ConnectReport, Greet, Launch, Tell, Watch};

/// Handshakes remembered for the timeline, at most.
const TRACE_MAX: usize = 20_000;

/// Connections that are opened before any is measured.
const WARM_UP: u64 = 20;

/// Connections of the witness: enough for a p99 of each step.
const WITNESS_COUNT: u64 = 1_000;

/// Ports of the kernel's default range, 32768 to 60999.
const DEFAULT_PORTS: u64 = 28_232;

/// Most source addresses that are added.
const SOURCES_MAX: u64 = 200;

/// A range that leaves the ports below 5000 to servers.
const WIDE_RANGE: &str = "5000 65000";

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
            if untapped && trial.arm.ok == trial.arm.attempts && !trial.arm.partial {
                trial.with_witness(context);
            }
        }
        trial.judge();
        trial.arm.factors = arm.factors.clone().into_iter().collect();
        Ok(Outcome { arm: trial.arm, warnings: trial.warnings, valid: trial.valid })
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
    pub(super) valid: bool,
    /// Source addresses: those asked for, or those the lab added.
    sources: Vec<IpAddr>,
    /// Median lateness of the link that is still allowed, µs.
    pub(super) tolerance_us: f64,
}

impl<'a> Trial<'a> {
    fn new(name: &str, settings: &'a ConnectSettings) -> Self {
        let arm = Arm { name: name.to_owned(), ..Arm::default() };
        let sources = settings.bind.clone();
        Self {
            settings,
            arm,
            warnings: Vec::new(),
            valid: true,
            sources,
            tolerance_us: f64::INFINITY,
        }
    }

    pub(super) fn warn(&mut self, warning: &Warning) {
        self.warnings.push(warning.entry(Some(&self.arm.name)));
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
        if told || self.settings.count <= per_address {
            return;
        }
        let (name, value) = if self.settings.link.loopback {
            if self.settings.count <= DEFAULT_PORTS {
                return;
            }
            sysctls.push((RANGE.to_owned(), WIDE_RANGE.to_owned()));
            (RANGE.to_owned(), WIDE_RANGE.to_owned())
        } else {
            let addresses = self.settings.count.div_ceil(per_address).min(SOURCES_MAX);
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
                self.settings.count
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
        self.warm_up(&mut place, context)?;
        let client_before = observe(&mut place.client)?;
        // A greeting server answers nothing else; what a launched one does before the load is not
        // of the load.
        let idle = observe(place.server()?)?;
        let (server, at) = self.serve(&mut place)?;
        let quiet = echoes(&mut place, 50, 2_000_000, context.interrupt)?;
        let watch = Watch {
            tap: self.settings.tap,
            trace_limit: TRACE_MAX,
            pcap: context.pcap.map(str::to_owned),
        };
        let tapped = watch.tap || watch.pcap.is_some() || self.settings.link.is_emulated();
        place.link()?.ask(&Ask::Watch(watch))?;
        let server_before = look_at_server(&mut place, &server, idle)?;
        let ladder = ladder_of(&mut place.client)?;
        let load = self.load(at, &ladder, matches!(server, Server::Ours));
        let mut trace = Trace::default();
        let report = drive(&mut place.client, &load, &mut trace, context)?;
        // The last FINs are still on their way.
        std::thread::sleep(self.settings.link.rtt * 2 + Duration::from_millis(30));
        let client_after = observe(&mut place.client)?;
        let counted = count(place.link()?, &mut trace)?;
        let (server_after, greeted) = end_serving(&mut place, &server, &mut trace)?;
        self.take_report(&report, &load, &ladder);
        self.take_hosts(&report, greeted.as_ref(), &client_before, &client_after);
        self.take_server(&server_before, &server_after);
        let server_drops = server_after.device_drops.saturating_sub(server_before.device_drops);
        self.take_link(counted, tapped, server_drops, &client_before, &client_after);
        self.take_machine(&client_before, &client_after);
        let traced = timeline(&trace.client, &trace.wire, &trace.server);
        self.arm.timeline = (traced.matched > 0).then_some(traced);
        self.expect(&quiet);
        Ok(())
    }

    /// On a link without an emulator: the same again, shorter and with a packet tap, for what only
    /// the wire can tell. A tap costs CPU, so the figures come from the trial without it.
    fn with_witness(&mut self, context: &mut Context<'_>) {
        let settings = ConnectSettings {
            count: self.settings.count.min(WITNESS_COUNT),
            tap: true,
            ..self.settings.clone()
        };
        let mut silent = |_, _| {};
        let mut quiet = Context {
            interrupt: context.interrupt,
            progress: &mut silent,
            seed: context.seed,
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
        let client_before = observe(&mut place.client)?;
        let report = drive(&mut place.client, &load, &mut trace, context)?;
        let client_after = observe(&mut place.client)?;
        if report.established == 0 && !report.partial {
            return Err(TrialError::Target(nothing_reached(name, &report)));
        }
        self.take_report(&report, &load, &ladder);
        self.take_hosts(&report, None, &client_before, &client_after);
        self.take_machine(&client_before, &client_after);
        let traced = timeline(&trace.client, &[], &[]);
        self.arm.timeline = (traced.matched > 0).then_some(traced);
        // A firewall may eat echoes, and this user may not be allowed to send them.
        if let Ok(rtt) = quiet {
            self.expect(&rtt);
        }
        Ok(())
    }

    /// Opens a few connections to a server of its own, for caches, routes and branch predictors;
    /// nothing of them is counted.
    fn warm_up(&self, place: &mut Place, context: &Context<'_>) -> Result<(), TrialError> {
        let warm = ConnectSettings {
            count: WARM_UP,
            concurrency: Some(WARM_UP),
            rate: None,
            pause_every: None,
            backlog: 4096,
            accept_delay: Duration::ZERO,
            fast_open: false,
            first_byte: true,
            send: Vec::new(),
            server: None,
            port: None,
            timeout: Duration::from_secs(2),
            ..self.settings.clone()
        };
        let trial = Trial { sources: self.sources.clone(), ..Trial::new("", &warm) };
        let (server, at) = trial.serve(place)?;
        let mut load = trial.load(at, &[], true);
        load.trace_limit = 0;
        place.client.begin(&Ask::Connect(Box::new(load)))?;
        place.client.wait(context.interrupt, &mut |_| {})?;
        end_serving(place, &server, &mut Trace::default())?;
        Ok(())
    }

    fn serve(&self, place: &mut Place) -> Result<(Server, SocketAddr), TrialError> {
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

    fn load(&self, target: SocketAddr, ladder: &[Duration], speaks: bool) -> ConnectLoad {
        let settings = self.settings;
        let at_once = settings.at_once();
        ConnectLoad {
            target,
            count: settings.count,
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

fn nothing_reached(name: &str, report: &ConnectReport) -> String {
    let Some((class, _)) = report.errors.iter().max_by_key(|(_, count)| **count) else {
        return format!("--to {name}: no connection was begun");
    };
    let words = report.first_errors.get(class).map_or("", String::as_str);
    let advice = match class.as_str() {
        "connect-refused" => "nothing listens there: check the port, or start the server",
        "connect-timeout" => {
            "nothing answers there: check address and firewall, or raise --timeout"
        }
        "unreachable" => "there is no route to it: check the address",
        "bind" => "--bind names an address that this host does not have",
        "local-fds" => "raise the limit of open files: ulimit -n",
        "local-ports" => "no local port is free: add --bind addresses, or wait a minute",
        "timeout" => "it accepts but does not speak: give it something with --send",
        _ => "see the error",
    };
    format!(
        "--to {name}: none of {} connections was made ({class}: {words}): {advice}",
        report.attempts
    )
}
