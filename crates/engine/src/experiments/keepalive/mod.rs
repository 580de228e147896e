//! What does it cost to know that idle connections are alive, and how soon is a death known?

mod observation;
pub mod settings;
mod stage;

use std::time::Duration;

use tcptoll_model::checking::{Checking, Mechanism, WHEEL_SHARE, given_up_by_s, rto_s};
use tcptoll_model::record::{Resolved, Summary};
use tcptoll_model::study::{PlannedArm, Settings};
use tcptoll_model::warning::Warning;

use self::observation::{FaultResult, Memory};
use self::settings::{Fault, KeepaliveSettings, OPTIONS, Side, check_together};
use self::stage::{End, Moment, Ports, Stage};
use crate::clock::ClockWatch;
use crate::experiments::bench::hosts::{ECHOES, Wish, count, read_sysctls, settle};
use crate::experiments::bench::notes::{Span, Trial};
use crate::experiments::bench::settings::check_congestion;
use crate::experiments::bench::target::Target;
use crate::experiments::{Context, Experiment, Outcome, Plan, PublicLoad, TrialError};
use crate::files::Shared;
use crate::lab::certification::echoes;
use crate::lab::{LabError, Place};
use crate::messages::{Check, Faulted, Freeze, Lazy, Leave, Rest, Watch};
use tcptoll_model::experiments::keepalive::conclusion;

/// Differences in messages per second below this relative size change no decision.
const MARGIN: f64 = 0.02;

/// A link that is late by less changes nothing here. No figure is a latency of µs, and the kernel's
/// timer wheel sends probes in bursts: of 50,000 sockets that are idle for 5 s some 5,000 probe
/// within a millisecond twice a second, which takes the link 40 ms to carry.
const LATENESS_US: f64 = 500_000.0;

/// After a fault the fleets are looked at this often.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Every metric of a trial.
const METRICS: &[&str] = &[
    "checking_bytes_per_hour_per_socket",
    "checking_packets_per_hour_per_socket",
    "client_bytes_per_socket",
    "client_cpu_us_per_op",
    "client_fleet_cpu_us_per_s_per_1000_sockets",
    "client_kernel_bytes_per_socket",
    "deaths_known",
    "deaths_unnoticed",
    "goodput_bytes_per_s",
    "heartbeats_per_s",
    "keepalive_probes",
    "link_cpu_us_per_s_per_1000_sockets",
    "machine_cpu_us_per_s_per_1000_sockets",
    "messages_per_s",
    "probes_per_s",
    "server_bytes_per_socket",
    "server_cpu_us_per_op",
    "server_fleet_cpu_us_per_s_per_1000_sockets",
    "server_kernel_bytes_per_socket",
];

/// Every distribution of a trial.
const HISTOGRAMS: &[&str] = &["arrival_us", "detection_us", "lateness_us", "rtt_us"];

/// The experiment.
pub struct Keepalive;

impl Experiment for Keepalive {
    fn name(&self) -> &'static str {
        "keepalive"
    }

    fn question(&self) -> &'static str {
        "What does it cost to know that idle connections are alive, and how soon is a death known?"
    }

    fn options(&self) -> &'static [&'static str] {
        OPTIONS
    }

    fn primary_metric(&self) -> &'static str {
        "messages_per_s"
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
        Ok(Box::new(KeepaliveSettings::from(settings)?))
    }

    fn check_together(&self, arms: &[PlannedArm]) -> Result<(), TrialError> {
        check_together(arms)
    }

    fn conclude(&self, summary: &mut Summary) {
        conclusion::conclude(summary);
    }
}

impl Plan for KeepaliveSettings {
    fn target(&self) -> Option<&Target> {
        self.to.as_ref()
    }

    fn resolved(&mut self, resolved: &[Resolved]) {
        if let Some(to) = &mut self.to {
            to.take(resolved);
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
        Some(PublicLoad {
            target: to.typed.clone(),
            size: self.sockets as f64,
            load: format!("{} connections will be held open to it", self.sockets),
            options: "--sockets sets another number",
        })
    }

    fn trial(&self, arm: &PlannedArm, context: &mut Context<'_>) -> Result<Outcome, TrialError> {
        let mut trial = KeepaliveTrial {
            checking: self.checking.clone(),
            common: Trial::new(&arm.name, &self.bind),
            settings: self,
        };
        match &self.to {
            None => trial.in_lab(context)?,
            Some(_) => trial.at_target(context)?,
        }
        Ok(trial.common.into_outcome(&arm.factors))
    }
}

/// One arm, being run.
struct KeepaliveTrial<'a> {
    settings: &'a KeepaliveSettings,
    /// How connections are checked, with what the host's sysctls say.
    checking: Checking,
    common: Trial,
}

/// What the stage showed, from the opening of the connections to the end.
struct Seen {
    memory: Memory,
    /// The measured window.
    begins: Moment,
    ends: Moment,
    /// What the fault did.
    faulted: Option<FaultResult>,
    processes: [u64; 2],
}

impl KeepaliveTrial<'_> {
    fn in_lab(&mut self, context: &mut Context<'_>) -> Result<(), TrialError> {
        let settings = self.settings;
        let mut wish = Wish {
            link: &settings.link,
            ipv6: settings.ipv6,
            packet_relay: settings.packet_relay,
            client_sysctls: settings.client_sysctls.clone(),
            server_sysctls: settings.server_sysctls.clone(),
        };
        let connections = settings.sockets + settings.arriving();
        self.common.spread_ports(connections, connections, &mut wish);
        let mut place = self.common.lab(wish, context)?;
        self.common.tolerance_us = self.common.tolerance_us.max(LATENESS_US);
        let (number, interval_ns) = ECHOES[usize::from(!context.witness)];
        let quiet = echoes(&mut place, number, interval_ns, context.interrupt)?;
        self.common.take_echoes(&quiet);
        self.read_kernel(&mut place)?;
        let clocks = ClockWatch::begin();
        let mut stage = Stage {
            settings,
            sources: self.common.sources.clone(),
            interrupt: context.interrupt,
            place: &mut place,
        };
        let client_before = stage.observe(End::Client)?;
        let server_before = stage.observe(End::Server)?;
        let ports = stage.listen_all()?;
        let watch = Watch {
            tap: context.pcap.is_some(),
            pcap: context.pcap.map(str::to_owned),
            quiet_ports: vec![ports.healthy.port(), ports.faulted.port()],
            ..Watch::default()
        };
        let tapped = settings.link.is_emulated() || watch.tap;
        stage.place.link()?.ask(&watch)?;
        let seen = self.play(&mut stage, ports, context)?;
        let clocks = clocks.end();
        settle(stage.place, &settings.link)?;
        let client_after = stage.observe(End::Client)?;
        let server_after = stage.observe(End::Server)?;
        let (counted, _) = count(place.link()?)?;
        let client = Span { before: &client_before, after: &client_after };
        let server = Span { before: &server_before, after: &server_after };
        self.take_hosts(client, Some(server));
        let drops = client.device_drops() + server.device_drops();
        if self.common.take_link(counted, tapped, client, server) {
            self.common.compare_syns();
            self.compare_probes(drops);
        }
        self.take_seen(&seen, ports);
        self.common.take_machine(client, self.common.arm.attempts);
        self.common.take_clocks(clocks, false);
        Ok(())
    }

    fn at_target(&mut self, context: &mut Context<'_>) -> Result<(), TrialError> {
        let settings = self.settings;
        let mut place = context.places.target()?;
        if let Some(to) = &settings.to {
            place.addresses.server = to.address()?.ip();
        }
        // A firewall may eat echoes, and this user may not be allowed to send them.
        if let Ok(quiet) = echoes(&mut place, 20, 20_000_000, context.interrupt) {
            self.common.take_echoes(&quiet);
        }
        if context.interrupt.signal().is_some() {
            return Err(LabError::Interrupted.into());
        }
        self.read_kernel(&mut place)?;
        let clocks = ClockWatch::begin();
        let mut stage = Stage {
            settings,
            sources: settings.bind.clone(),
            interrupt: context.interrupt,
            place: &mut place,
        };
        let before = stage.observe(End::Client)?;
        let ports = stage.listen_all()?;
        let seen = self.play(&mut stage, ports, context)?;
        let after = stage.observe(End::Client)?;
        let client = Span { before: &before, after: &after };
        self.take_hosts(client, None);
        self.take_seen(&seen, ports);
        self.common.take_machine(client, self.common.arm.attempts);
        self.common.take_clocks(clocks.end(), false);
        Ok(())
    }

    /// What was left to the kernel, as the sysctls of the checking host say.
    fn read_kernel(&mut self, place: &mut Place) -> Result<(), TrialError> {
        const NAMES: [&str; 4] = [
            "net.ipv4.tcp_keepalive_time",
            "net.ipv4.tcp_keepalive_intvl",
            "net.ipv4.tcp_keepalive_probes",
            "net.ipv4.tcp_retries2",
        ];
        let host = match self.settings.side {
            Side::Client => &mut place.client,
            Side::Server | Side::Both => place.server()?,
        };
        let got = read_sysctls(host, &NAMES)?;
        let number = |name: &str| got.get(name).and_then(|text| text.parse::<u32>().ok());
        let checking = &mut self.checking;
        match checking.mechanism {
            Mechanism::Tcp => {
                checking.idle_s = checking.idle_s.or(number(NAMES[0]).map(f64::from));
                checking.interval_s = checking.interval_s.or(number(NAMES[1]).map(f64::from));
                checking.probes = checking.probes.or(number(NAMES[2]));
            }
            Mechanism::Write => {
                let rto_s = rto_s(self.settings.link.rtt.as_secs_f64());
                checking.retransmission_s =
                    number(NAMES[3]).map(|retries| given_up_by_s(retries, rto_s));
            }
            Mechanism::None | Mechanism::Heartbeat | Mechanism::Lazy => {}
        }
        Ok(())
    }

    /// From the opening of the connections to the last look.
    fn play(
        &mut self,
        stage: &mut Stage<'_>,
        ports: Ports,
        context: &mut Context<'_>,
    ) -> Result<Seen, TrialError> {
        let settings = self.settings;
        stage.connect_all(ports)?;
        stage.look_away()?;
        let mut memory = Memory { client: stage.socket_memory(End::Client)?, server: None };
        if stage.is_lab() {
            memory.server = stage.socket_memory(End::Server)?;
        }
        let [client, server] = [stage.look_at(End::Client)?, stage.look_at(End::Server)?];
        if let Some(to) = &settings.to
            && client.made == 0
            && settings.idle_sockets() > 0
        {
            let class = client.errors.keys().next().cloned().unwrap_or_default();
            return Err(TrialError::Target(format!(
                "--to {}: no connection was made ({class}): check that something listens there",
                to.typed
            )));
        }
        let processes = [client, server].map(|report| report.processes);
        self.begin_checks(stage, processes)?;
        let all = settings.warmup + settings.duration + settings.watched_by(&self.checking);
        let total = all.as_millis() as u64;
        let mut tell = |time: Duration| (context.progress)(time.as_millis() as u64, total);
        if !stage.wait(settings.warmup, &mut tell) {
            return Err(LabError::Interrupted.into());
        }
        if settings.fault.is_none() {
            stage.arrive(ports.healthy)?;
        }
        let begins = stage.moment(true)?;
        // A signal ends the window, not what was measured in it.
        let whole = stage.wait(settings.duration, &mut |time| tell(settings.warmup + time));
        let ends = stage.moment(false)?;
        let until = settings.warmup + settings.duration;
        let faulted = match &settings.fault {
            Some((_, fault)) if whole => {
                Some(self.inject(stage, ports, *fault, &mut |time| tell(until + time))?)
            }
            _ => None,
        };
        // No probe is on its way when the counters are read.
        for end in self.checking_ends() {
            stage.check(end, Rest)?;
        }
        stage.rest_writer()?;
        self.common.arm.partial = stage.interrupt.signal().is_some();
        Ok(Seen { memory, begins, ends, faulted, processes })
    }

    fn checking_ends(&self) -> Vec<End> {
        match self.settings.side {
            Side::Server => vec![End::Server],
            Side::Client => vec![End::Client],
            Side::Both => vec![End::Server, End::Client],
        }
    }

    fn begin_checks(
        &mut self,
        stage: &mut Stage<'_>,
        processes: [u64; 2],
    ) -> Result<(), TrialError> {
        let settings = self.settings;
        let spread = settings.warmup.min(Duration::from_secs_f64(
            self.checking.period_s().unwrap_or(0.0).clamp(0.0, 86_400.0),
        ));
        let checks = self.checking_ends();
        for end in [End::Server, End::Client] {
            if end == End::Server && !stage.is_lab() {
                continue;
            }
            let mut checking = settings.checking.clone();
            if !checks.contains(&end) {
                checking = Checking::default();
            }
            // What a wake-up is for on either side is handled together.
            checking.tick_s = checking.tick_s.or(Some(settings.tick.as_secs_f64()));
            // A client has nobody who arrives: it needs a timer all the same.
            if checking.mechanism == Mechanism::Lazy && end == End::Client {
                checking.mechanism = Mechanism::Heartbeat;
                checking.idle_s = Some(settings.client_idle.as_secs_f64());
            }
            let count = processes[usize::from(end == End::Server)].max(1);
            let most =
                if settings.lazy.most > 0 { settings.lazy.most } else { settings.idle_sockets() };
            let lazy = Lazy { most: most.div_ceil(count), ..settings.lazy };
            if checking.mechanism == Mechanism::Lazy {
                self.checking.most = Some(most);
                self.checking.variant = Some(variant(&settings.lazy));
            }
            let check = Check {
                checking,
                spread_ns: spread.as_nanos() as u64,
                null: settings.null.clone(),
                lazy,
                ..Check::default()
            };
            stage.check(end, check)?;
        }
        stage.check_peers_of_faulted(settings.tick)
    }

    /// Injects the fault, and watches how it is detected.
    fn inject(
        &mut self,
        stage: &mut Stage<'_>,
        ports: Ports,
        fault: Fault,
        progress: &mut dyn FnMut(Duration),
    ) -> Result<FaultResult, TrialError> {
        let settings = self.settings;
        let end = self.checking_ends()[0];
        let before = stage.look_at_checks(end)?;
        // So that what is known at once is known since when; corrected below.
        let wire_before = stage.counted()?;
        stage.check(end, Faulted { at_ns: stage.now().as_nanos() as u64 })?;
        let began_ns = match fault {
            Fault::Cut => stage.fault_link(ports.faulted.port(), 1.0)?,
            Fault::Loss(share) => stage.fault_link(ports.faulted.port(), share)?,
            Fault::Freeze => stage.fault_peers(Freeze)?,
            Fault::Reset => stage.fault_peers(Leave { reset: true })?,
            Fault::Close => stage.fault_peers(Leave { reset: false })?,
        };
        if !matches!(fault, Fault::Reset | Fault::Close) {
            // Until then the peers were alive, and a test could succeed.
            stage.check(end, Faulted { at_ns: began_ns })?;
        }
        stage.arrive(ports.healthy)?;
        let dead = !matches!(fault, Fault::Loss(_));
        let watched = settings.watched_by(&self.checking);
        // A test that begins later than this is not over at the end.
        let tests_until = watched.saturating_sub(self.longest_test());
        let mut tested = None;
        let began = stage.now();
        let after = loop {
            let waited = stage.since(began);
            let slice = LOOK_EVERY.min(watched.saturating_sub(waited));
            let whole = stage.wait(slice, &mut |time| progress(waited + time));
            let report = stage.look_at_checks(end)?;
            let waited = stage.since(began);
            if !dead && tested.is_none() && waited >= tests_until {
                tested = Some((stage.counted()?, report.nulls));
            }
            if !whole || waited >= watched || (dead && report.open[1] == 0) {
                break report;
            }
        };
        let watched = stage.since(began);
        let wire_after = stage.counted()?;
        if !dead {
            stage.fault_link(ports.faulted.port(), 0.0)?;
        }
        let arrived = stage.arrived()?;
        Ok(FaultResult { fault, before, after, watched, arrived, wire_before, wire_after, tested })
    }

    /// From the first probe or message of a test to the verdict. The kernel's timers are late by an
    /// eighth at most, so by half of that in the middle.
    fn longest_test(&self) -> Duration {
        let checking = &self.checking;
        let kernel = || {
            let probes = f64::from(checking.probes_in_a_test()?);
            Some(probes * checking.interval_s? * (1.0 + WHEEL_SHARE / 2.0))
        };
        let time_s = match checking.mechanism {
            Mechanism::Tcp => kernel(),
            Mechanism::Heartbeat | Mechanism::Lazy => checking.answer_within_s,
            Mechanism::None | Mechanism::Write => None,
        };
        time_s.and_then(|s| Duration::try_from_secs_f64(s).ok()).unwrap_or_default()
    }

    fn compare_probes(&mut self, device_drops: u64) {
        let ours = self.probes_sent();
        let Some(wire) = &self.common.arm.wire else { return };
        let seen = wire.client_to_server.keepalive_probe + wire.server_to_client.keepalive_probe;
        if seen + device_drops < ours || seen > ours {
            self.common.warn(&Warning::WitnessDisagrees {
                what: "keep-alive probes".to_owned(),
                ours,
                witness: seen,
            });
        }
    }
}

/// How room is made, in words.
fn variant(lazy: &Lazy) -> String {
    let which = match lazy.unused_for_ns {
        None => "all".to_owned(),
        Some(ns) => format!("idle for {} s", ns as f64 / 1e9),
    };
    let until = if lazy.whole_set { "until all are tested" } else { "until below the limit" };
    let order = if lazy.by_age { "the oldest first" } else { "the least recently used first" };
    format!("{which}, {until}, {order}")
}
