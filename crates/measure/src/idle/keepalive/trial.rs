//! One trial of `keepalive`: connections are opened, idle while they are checked, and some may fault.
//!
//! Checking begins when the server has all connections, because the last ACKs of handshakes are still on
//! their way when the client has them all. Over 200 ms, 20 connections of one fault were checked at one
//! moment, and their deaths all detected after 8.10 s; now the checks are spread.

use std::time::Duration;

use super::settings::{Fault, KeepaliveSettings, Side};
use super::stage::{End, Moment, Ports, Stage};
use crate::kit::TrialError;
use crate::kit::hosts::{PortsNeeded, read_sysctls};
use crate::kit::notes::{Notes, Span};
use crate::kit::plan::{Context, Outcome};
use crate::kit::procedure;
use crate::kit::procedure::{JudgementBasis, Site, Trial};
use tcptoll_core::study::PlannedArm;
use tcptoll_core::tcp::checking::{Checking, Mechanism, WHEEL_SHARE, given_up_by_s, rto_s};
use tcptoll_core::verdict::warning::Warning;
use tcptoll_lab::lab::{Hosts, Interrupt, LabError};
use tcptoll_lab::messages::{
    Check, Counted, Faulted, Freeze, IdleReport, Lazy, Leave, Rest, Watch,
};

/// A link that is late by less changes nothing here. No figure is a latency of µs, and the kernel's
/// timer wheel sends probes in bursts: of 50,000 sockets that are idle for 5 s some 5,000 probe
/// within a millisecond twice a second, which takes the link 40 ms to carry.
const LATENESS_US: f64 = 500_000.0;

/// After a fault the fleets are looked at this often.
const LOOK_EVERY: Duration = Duration::from_millis(100);

pub(super) struct KeepaliveTrial<'a> {
    pub(super) settings: &'a KeepaliveSettings,
    /// How connections are checked, with what the host's sysctls say.
    pub(super) checking: Checking,
    pub(super) notes: Notes,
    /// Where connections go, once that is known.
    ports: Option<Ports>,
}

/// What the stage showed, from the opening of the connections to the end.
pub(super) struct StageObservation {
    pub(super) memory: Memory,
    pub(super) begins: Moment,
    pub(super) ends: Moment,
    pub(super) faulted: Option<FaultResult>,
    pub(super) processes: [u64; 2],
}

/// Kernel memory of one connection on each host, bytes.
pub(super) struct Memory {
    pub(super) client: Option<f64>,
    pub(super) server: Option<f64>,
}

pub(super) struct FaultResult {
    pub(super) fault: Fault,
    /// What the checking fleet had seen before it, and at the end.
    pub(super) before: IdleReport,
    pub(super) after: IdleReport,
    pub(super) watched: Duration,
    /// Connections that arrived after it.
    pub(super) arrived: IdleReport,
    pub(super) wire_before: Option<Counted>,
    pub(super) wire_after: Option<Counted>,
    /// What the link had carried, and Null messages sent, when the last tests began that were over
    /// at the end.
    pub(super) tested: Option<(Option<Counted>, u64)>,
}

impl<'a> KeepaliveTrial<'a> {
    /// Runs a trial of an arm.
    pub(super) fn outcome(
        arm: &PlannedArm,
        settings: &'a KeepaliveSettings,
        context: &mut Context<'_>,
    ) -> Result<Outcome, TrialError> {
        let connections = settings.sockets + settings.arriving();
        let site = match &settings.to {
            None => {
                let needed = PortsNeeded { at_a_time: connections, connections };
                Site::Lab(settings.lab.clone(), needed)
            }
            Some(target) => Site::Target(target),
        };
        let mut trial = KeepaliveTrial {
            checking: settings.checking.clone(),
            notes: Notes::new(&arm.name, &settings.bind),
            settings,
            ports: None,
        };
        procedure::run(&mut trial, site, context)?;
        Ok(trial.notes.into_outcome(&arm.factors))
    }
}

impl Trial for KeepaliveTrial<'_> {
    type Report = (StageObservation, Ports);

    fn notes(&mut self) -> &mut Notes {
        &mut self.notes
    }

    /// With 50,000 idle connections open the looks take a quarter of a CPU.
    fn watches_listener(&self) -> bool {
        false
    }

    fn prepare(&mut self, hosts: &mut Hosts, _context: &Context<'_>) -> Result<(), TrialError> {
        self.notes.tolerance_us = self.notes.tolerance_us.max(LATENESS_US);
        self.read_kernel(hosts)
    }

    fn listen(&mut self, hosts: &mut Hosts, context: &Context<'_>) -> Result<Watch, TrialError> {
        let ports = self.stage(hosts, context.interrupt).listen_all()?;
        self.ports = Some(ports);
        let quiet_ports = vec![ports.healthy.port(), ports.faulted.port()];
        Ok(Watch { quiet_ports, ..Watch::default() })
    }

    fn load(
        &mut self,
        hosts: &mut Hosts,
        context: &mut Context<'_>,
    ) -> Result<(StageObservation, Ports), TrialError> {
        let ports = self.ports.ok_or_else(|| LabError::Refused("nothing listens".to_owned()))?;
        let mut stage = self.stage(hosts, context.interrupt);
        Ok((self.play(&mut stage, ports, context)?, ports))
    }

    fn take(
        &mut self,
        (seen, ports): &(StageObservation, Ports),
        _: &procedure::LoadObservation<'_>,
    ) -> JudgementBasis {
        self.take_seen(seen, *ports);
        JudgementBasis { operations: self.notes.arm.attempts, stamped: false }
    }

    fn compare(&mut self, seen: &procedure::LoadObservation<'_>) {
        let server_drops = seen.server.map_or(0, Span::device_drops);
        self.notes.compare_syns();
        self.compare_probes(seen.client.device_drops() + server_drops);
    }
}

impl<'a> KeepaliveTrial<'a> {
    fn stage<'b>(&self, hosts: &'b mut Hosts, interrupt: &'b Interrupt) -> Stage<'b>
    where
        'a: 'b,
    {
        Stage { settings: self.settings, sources: self.notes.sources.clone(), interrupt, hosts }
    }

    /// What was left to the kernel, as the sysctls of the checking host say.
    fn read_kernel(&mut self, hosts: &mut Hosts) -> Result<(), TrialError> {
        const NAMES: [&str; 4] = [
            "net.ipv4.tcp_keepalive_time",
            "net.ipv4.tcp_keepalive_intvl",
            "net.ipv4.tcp_keepalive_probes",
            "net.ipv4.tcp_retries2",
        ];
        let host = match self.settings.side {
            Side::Client => &mut hosts.client,
            Side::Server | Side::Both => hosts.server()?,
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
                let rto_s = rto_s(self.settings.lab.link.rtt.as_secs_f64());
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
    ) -> Result<StageObservation, TrialError> {
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
                "--to {}: no connection could be opened ({class}): check that something listens there",
                to.typed
            )));
        }
        let processes = [client, server].map(|report| report.processes);
        self.begin_checks(stage, processes)?;
        let all = settings.warmup + settings.duration + settings.watched_by(&self.checking);
        let total = all.as_millis() as u64;
        let mut tell = |time: Duration| (context.progress)((time.as_millis() as u64).into(), total);
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
        self.notes.arm.partial = stage.interrupt.signal().is_some();
        Ok(StageObservation { memory, begins, ends, faulted, processes })
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
        let Some(ours) = self.probes_sent() else { return };
        let Some(wire) = &self.notes.arm.wire else { return };
        let seen = wire.client_to_server.keepalive_probe + wire.server_to_client.keepalive_probe;
        if seen + device_drops < ours || seen > ours {
            self.notes.warn(&Warning::WitnessDisagrees {
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
