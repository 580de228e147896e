//! What does it cost to open a TCP connection, and where does the time go?

mod hosts;
mod observation;
pub mod settings;
mod warmup;
mod words;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tcptoll_kernel::socket::Udp;
use tcptoll_model::handshake::timeline;
use tcptoll_model::record::{Resolved, Summary, Timeline};
use tcptoll_model::study::{PlannedArm, Settings};
use tcptoll_model::warning::Warning;

use self::hosts::{Server, Trace, drive, end_serving, nothing_reached};
use self::settings::{ConnectSettings, OPTIONS, PUBLIC_RATE_PER_S};
use crate::clock::ClockWatch;
use crate::experiments::bench::hosts::{ECHOES, Wish, count, ladder_of, launch, observe, settle};
use crate::experiments::bench::notes::{Span, Trial};
use crate::experiments::bench::settings::check_congestion;
use crate::experiments::bench::target::Target;
use crate::experiments::{Context, Experiment, Outcome, Plan, PublicLoad, TrialError};
use crate::files::Shared;
use crate::lab::certification::echoes;
use crate::lab::{LabError, Place};
use crate::messages::{ConnectLoad, ConnectReport, Greet, Watch, WatchListener};
use tcptoll_model::experiments::connect::conclusion;

/// Handshakes remembered for the timeline, at most.
const TRACE_MAX: usize = 20_000;

/// Connections of the witness: enough for a p99 of each step.
const WITNESS_COUNT: u64 = 1_000;

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
    "rate_resolution_per_s",
    "server_cpu_us_per_op",
    "waited_share",
];

/// Every distribution of a trial.
const HISTOGRAMS: &[&str] =
    &["connect_of_failed_us", "connect_us", "first_byte_us", "lateness_us", "rtt_us"];

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

    fn plan(&self, settings: &Settings) -> Result<Box<dyn Plan>, TrialError> {
        Ok(Box::new(ConnectSettings::from(settings)?))
    }

    fn conclude(&self, summary: &mut Summary) {
        conclusion::conclude(summary);
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
        let mut trial = ConnectTrial::new(&arm.name, self);
        if self.to.is_some() {
            trial.at_target(context)?;
        } else {
            trial.in_lab(context)?;
            let untapped = !self.link.is_emulated() && !self.tap && context.pcap.is_none();
            if context.witness
                && untapped
                && trial.common.arm.ok == trial.common.arm.attempts
                && !trial.common.arm.partial
            {
                trial.with_witness(context);
            }
        }
        Ok(trial.common.into_outcome(&arm.factors))
    }
}

/// Whether this machine has the address: only then may a socket be bound to it.
fn is_own(address: IpAddr) -> bool {
    Udp::bind(SocketAddr::new(address, 0)).is_ok()
}

/// One arm, being run.
struct ConnectTrial<'a> {
    settings: &'a ConnectSettings,
    common: Trial,
}

impl<'a> ConnectTrial<'a> {
    fn new(name: &str, settings: &'a ConnectSettings) -> Self {
        Self { settings, common: Trial::new(name, &settings.bind) }
    }

    /// A lab with its link certified and its sysctls set.
    fn lab(&mut self, context: &mut Context<'_>) -> Result<Place, TrialError> {
        let settings = self.settings;
        let mut wish = Wish {
            link: &settings.link,
            ipv6: settings.ipv6,
            packet_relay: settings.packet_relay,
            client_sysctls: settings.client_sysctls.clone(),
            server_sysctls: settings.server_sysctls.clone(),
        };
        self.common.spread_ports(settings.ports(), settings.expected_count(), &mut wish);
        self.allow_fast_open(&mut wish);
        self.common.lab(wish, context)
    }

    /// The kernel's default lets clients send data with the SYN and servers refuse it.
    fn allow_fast_open(&mut self, wish: &mut Wish<'_>) {
        const FAST_OPEN: &str = "net.ipv4.tcp_fastopen";
        let (client, server) = (&mut wish.client_sysctls, &mut wish.server_sysctls);
        let told = client.iter().chain(server.iter()).any(|(name, _)| name == FAST_OPEN);
        if !self.settings.fast_open || told {
            return;
        }
        for sysctls in [client, server] {
            sysctls.push((FAST_OPEN.to_owned(), "3".to_owned()));
        }
        self.common.warn(&Warning::SettingMade {
            name: FAST_OPEN.to_owned(),
            value: "3".to_owned(),
            why: "--fast-open needs it on both hosts; servers refuse by default".to_owned(),
        });
    }

    fn in_lab(&mut self, context: &mut Context<'_>) -> Result<(), TrialError> {
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
            ..Watch::default()
        };
        let tapped = watch.tap || watch.pcap.is_some() || self.settings.link.is_emulated();
        place.link()?.ask(&watch)?;
        let ladder = ladder_of(&mut place.client)?;
        let load = self.load(at, &ladder);
        let mut trace = Trace::default();
        let clocks = ClockWatch::begin();
        let report = self.drive(&mut place, &load, &mut trace, context)?;
        settle(&mut place, &self.settings.link)?;
        let clocks = clocks.end();
        let client_after = observe(&mut place.client)?;
        let (counted, rows) = count(place.link()?)?;
        trace.add(rows);
        let (server_after, greeted) = end_serving(&mut place, server, &mut trace)?;
        self.take_report(&report, &load, &ladder);
        self.take_hosts(&report, greeted.as_ref(), &client_before, &client_after);
        self.take_server(&server_before, &server_after);
        let client = Span { before: &client_before, after: &client_after };
        let server = Span { before: &server_before, after: &server_after };
        if self.common.take_link(counted, tapped, client, server) && !self.settings.fast_open {
            self.common.compare_syns();
        }
        self.common.take_machine(client, self.common.arm.attempts);
        // The emulated link stamps its packets itself.
        self.common.take_clocks(clocks, tapped && !self.settings.link.is_emulated());
        let traced = timeline(&trace.client, &trace.wire, &trace.server);
        self.common.arm.timeline = (traced.matched > 0).then_some(traced);
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
            places: context.places,
        };
        let mut witness = ConnectTrial::new(&self.common.arm.name, &settings);
        // What was measured stands without it.
        if let Err(error) = witness.in_lab(&mut quiet) {
            self.common.warn(&Warning::NoWitness { why: error.to_string() });
        }
        if let Some(timeline) = witness.common.arm.timeline.take() {
            self.common.arm.timeline = Some(Timeline { source: "witness".to_owned(), ..timeline });
        }
    }

    fn at_target(&mut self, context: &mut Context<'_>) -> Result<(), TrialError> {
        let Some(to) = &self.settings.to else { return Ok(()) };
        let address = to.address()?;
        let mut place = context.places.target()?;
        place.addresses.server = address.ip();
        let quiet = echoes(&mut place, 20, 20_000_000, context.interrupt);
        if context.interrupt.signal().is_some() {
            return Err(LabError::Interrupted.into());
        }
        let ladder = ladder_of(&mut place.client)?;
        let load = self.load(address, &ladder);
        let mut trace = Trace::default();
        self.warm_up(&mut place, Some(address), context)?;
        // Of a server on this machine the queue can be seen, and its drops are this machine's.
        let is_here = is_own(address.ip());
        if is_here {
            place.client.ask(&WatchListener(address))?;
        }
        let client_before = observe(&mut place.client)?;
        let clocks = ClockWatch::begin();
        let report = self.drive(&mut place, &load, &mut trace, context)?;
        let clocks = clocks.end();
        let client_after = observe(&mut place.client)?;
        if report.established == 0 && !report.partial {
            return Err(TrialError::Target(nothing_reached(&to.typed, &report)));
        }
        self.take_report(&report, &load, &ladder);
        self.take_hosts(&report, None, &client_before, &client_after);
        if is_here {
            self.take_own_listener(&client_after);
        }
        self.note_cut(&report, &load);
        let client = Span { before: &client_before, after: &client_after };
        self.common.take_machine(client, self.common.arm.attempts);
        self.common.take_clocks(clocks, false);
        let traced = timeline(&trace.client, &[], &[]);
        self.common.arm.timeline = (traced.matched > 0).then_some(traced);
        // A firewall may eat echoes, and this user may not be allowed to send them.
        if let Ok(rtt) = quiet {
            self.expect(&rtt);
        }
        Ok(())
    }

    fn serve(&self, place: &mut Place) -> Result<(Server, SocketAddr), TrialError> {
        if let Some(line) = &self.settings.server {
            return Ok((Server::Launched, launch(place, line, self.settings.port)?));
        }
        let greet = Greet {
            at: SocketAddr::new(place.addresses.server, 0),
            backlog: self.settings.backlog,
            accept_delay_ns: self.settings.accept_delay.as_nanos() as u64,
            fast_open: self.settings.fast_open,
            speak: self.settings.first_byte,
            trace_limit: TRACE_MAX,
        };
        let server = place.server()?;
        let (at, greeting) = server.start(&greet)?;
        Ok((Server::Ours(greeting), at))
    }

    fn load(&self, target: SocketAddr, ladder: &[Duration]) -> ConnectLoad {
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
            bind: self.common.sources.clone(),
            fast_open: settings.fast_open,
            congestion: settings.congestion.clone(),
            send: if settings.fast_open && settings.send.is_empty() {
                b"?".to_vec()
            } else {
                settings.send.clone()
            },
            first_byte: settings.first_byte,
            ladder_ns: ladder.iter().map(|rung| rung.as_nanos() as u64).collect(),
            trace_limit: TRACE_MAX,
            // Timers fire the later the longer they wait: 0.6 s late on the rung of 35 s.
            ladder_slack_ns: (Duration::from_millis(600) + settings.link.rtt).as_nanos() as u64,
        }
    }
}
