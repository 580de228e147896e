//! The fleets of `keepalive`: who connects to whom, and the orders they are given.
//!
//! Connections that idle go to two ports of the server: one for those that nothing happens to, one
//! for those that a fault hits. So the link can tell them apart. The host that checks holds both
//! kinds in one fleet; the peers of faulted connections are a fleet of their own, because a process is
//! stopped or not as a whole.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::settings::{KeepaliveSettings, Side};
use crate::kit::TrialError;
use tcptoll_core::tcp::checking::Checking;
use tcptoll_core::tcp::counters::CpuTimes;
use tcptoll_lab::lab::{Handle, Hosts, Interrupt, LabError};
use tcptoll_lab::messages::{
    Began, Check, Counted, FaultPorts, IdleReport, IdleSpec, Look, LookAway, Made, Make, Order,
    Peek, ReadCpu, ReadSocketMemory, Rest, ToGroup,
};

/// Names of fleets.
const KEPT: &str = "kept";
const FAULTED: &str = "faulted";
const ARRIVING: &str = "arriving";
const WRITER: &str = "writer";
const SINK: &str = "sink";

/// Handshakes in flight may take this long when no more are begun: a lost SYN is repeated after 1 s.
const HANDSHAKES_END: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// A tick of `/proc/stat`, µs.
const TICK_US: u64 = 10_000;

/// An interrupt is looked for this often.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A host of the stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Client,
    Server,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    /// Those that nothing happens to.
    pub(super) healthy: SocketAddr,
    /// Those that a fault hits.
    pub(super) faulted: SocketAddr,
    /// The one that writes.
    pub(super) sink: SocketAddr,
}

/// Everything that is known at one moment.
pub(super) struct Moment {
    pub(super) client: IdleReport,
    pub(super) server: IdleReport,
    pub(super) writer: IdleReport,
    /// Where the writer's messages go.
    pub(super) sink: IdleReport,
    /// Connections that arrived since the window began.
    pub(super) arrived: IdleReport,
    pub(super) machine: Machine,
    pub(super) counted: Option<Counted>,
}

/// The machine under both hosts.
#[derive(Clone, Copy)]
pub(super) struct Machine {
    /// On the monotonic clock.
    at: Duration,
    cpus: u32,
    not_running_us: u64,
}

impl Machine {
    /// CPU time that anything used since `before`, µs.
    pub(super) fn used_us(&self, before: &Self) -> f64 {
        let all = self.at.saturating_sub(before.at).as_nanos() as f64 / 1e3 * f64::from(self.cpus);
        (all - self.not_running_us.saturating_sub(before.not_running_us) as f64).max(0.0)
    }
}

pub(super) struct Stage<'a> {
    pub(super) settings: &'a KeepaliveSettings,
    pub(super) hosts: &'a mut Hosts,
    pub(super) interrupt: &'a Interrupt,
    pub(super) sources: Vec<IpAddr>,
}

impl Stage<'_> {
    fn host(&mut self, end: End) -> Result<&mut Handle, LabError> {
        match end {
            End::Client => Ok(&mut self.hosts.client),
            End::Server => self.hosts.server(),
        }
    }

    /// The time on the monotonic clock.
    pub(super) fn now(&self) -> Duration {
        self.hosts.time.now()
    }

    /// How long ago a moment is.
    pub(super) fn since(&self, moment: Duration) -> Duration {
        self.hosts.time.since(moment)
    }

    /// Whether there is a server host of ours.
    pub(super) fn is_lab(&self) -> bool {
        self.hosts.server.is_some()
    }

    /// Gives an order to a fleet of a host.
    fn order<O: Order>(
        &mut self,
        end: End,
        fleet: &str,
        order: O,
    ) -> Result<O::Answer, TrialError> {
        let interrupt = self.interrupt.clone();
        let host = self.host(end)?;
        let begun = host.begin(&ToGroup { group: fleet.to_owned(), order })?;
        Ok(host.wait(begun, &interrupt, &mut |_| {})?.answer)
    }

    fn look(&mut self, end: End, fleet: &str) -> Result<IdleReport, TrialError> {
        self.order(end, fleet, Look)
    }

    fn listen(
        &mut self,
        fleet: &str,
        ports: u64,
        sockets: u64,
    ) -> Result<Vec<SocketAddr>, TrialError> {
        let at = SocketAddr::new(self.hosts.addresses.server, 0);
        let spec = IdleSpec::Listen {
            at: (0..ports).map(|_| at).collect(),
            sockets,
            // One that arrives is told when it was let in.
            greet: self.settings.arrivals.is_some(),
            shared: false,
        };
        let Made { listening, .. } = self.order(End::Server, fleet, Make(spec))?;
        Ok(listening)
    }

    /// Whether the peers of faulted connections are a fleet of their own on this host.
    fn is_parted(&self, end: End) -> bool {
        let checks = match end {
            End::Client => self.settings.side == Side::Client,
            End::Server => self.settings.side != Side::Client,
        };
        !checks && self.settings.faulted() > 0
    }

    /// The server's fleets listen.
    pub(super) fn listen_all(&mut self) -> Result<Ports, TrialError> {
        if let Some(to) = &self.settings.to {
            let to = to.address()?;
            return Ok(Ports { healthy: to, faulted: to, sink: to });
        }
        let sockets = self.settings.idle_sockets() + self.settings.arriving();
        let short = || TrialError::Target("a fleet listens on too few ports".to_owned());
        let (healthy, faulted) = if self.is_parted(End::Server) {
            let healthy = self.listen(KEPT, 1, sockets)?;
            let faulted = self.listen(FAULTED, 1, sockets)?;
            (healthy.first().copied(), faulted.first().copied())
        } else {
            let both = self.listen(KEPT, 2, sockets)?;
            (both.first().copied(), both.get(1).copied())
        };
        let sink =
            if self.settings.writer { self.listen(SINK, 1, 1)?.first().copied() } else { healthy };
        match (healthy, faulted, sink) {
            (Some(healthy), Some(faulted), Some(sink)) => Ok(Ports { healthy, faulted, sink }),
            _ => Err(short()),
        }
    }

    fn connect(
        &mut self,
        fleet: &str,
        to: Vec<(SocketAddr, u64)>,
        rate_per_s: Option<f64>,
    ) -> Result<(), TrialError> {
        let spec = IdleSpec::Connect {
            to,
            bind: self.sources.clone(),
            rate_per_s,
            congestion: self.settings.congestion.clone(),
        };
        self.order(End::Client, fleet, Make(spec)).map(drop)
    }

    /// The client's fleets connect, and the one that writes begins.
    pub(super) fn connect_all(&mut self, ports: Ports) -> Result<(), TrialError> {
        let faulted = self.settings.faulted();
        // A program that asks select() about all of them holds them itself.
        let held = if self.settings.selects { self.settings.idle_sockets() } else { 0 };
        let healthy = self.settings.idle_sockets() - faulted - held;
        if self.is_parted(End::Client) {
            self.connect(KEPT, vec![(ports.healthy, healthy)], None)?;
            self.connect(FAULTED, vec![(ports.faulted, faulted)], None)?;
        } else {
            self.connect(KEPT, vec![(ports.healthy, healthy), (ports.faulted, faulted)], None)?;
        }
        if self.settings.writer {
            let spec = IdleSpec::Write {
                to: ports.sink,
                message_bytes: self.settings.message_bytes,
                rate_per_s: self.settings.rate,
                select: self.settings.selects.then_some((ports.healthy, held)),
                congestion: self.settings.congestion.clone(),
            };
            self.order(End::Client, WRITER, Make(spec))?;
        }
        self.accepted_all()
    }

    /// The last ACKs of handshakes are still on their way when the client has them all; who comes
    /// after checking has begun has no part in spreading it.
    fn accepted_all(&mut self) -> Result<(), TrialError> {
        let began = self.now();
        while self.is_lab() && self.since(began) < HANDSHAKES_END {
            let server = self.look_at(End::Server)?;
            if server.open[0] + server.open[1] >= self.settings.idle_sockets() {
                break;
            }
            self.hosts.time.pause(LOOK_AGAIN);
        }
        Ok(())
    }

    /// All connections are open: no queue is watched any more, because the watching would cost more
    /// than what is measured.
    pub(super) fn look_away(&mut self) -> Result<(), TrialError> {
        if self.is_lab() {
            self.hosts.server()?.ask(&LookAway)?;
        }
        Ok(())
    }

    /// New connections begin to arrive.
    pub(super) fn arrive(&mut self, at: SocketAddr) -> Result<(), TrialError> {
        let Some(rate) = self.settings.arrivals else { return Ok(()) };
        self.connect(ARRIVING, vec![(at, self.settings.arriving())], Some(rate))
    }

    /// No more connections arrive; gives what became of those that did.
    pub(super) fn arrived(&mut self) -> Result<IdleReport, TrialError> {
        if self.settings.arrivals.is_none() {
            return Ok(IdleReport::default());
        }
        self.order(End::Client, ARRIVING, Rest)?;
        let began = self.now();
        loop {
            let report = self.look(End::Client, ARRIVING)?;
            let over = report.made + report.errors.values().sum::<u64>() >= report.attempted;
            if over || self.since(began) >= HANDSHAKES_END {
                return Ok(report);
            }
            self.hosts.time.pause(LOOK_AGAIN);
        }
    }

    /// The fleet that checks begins to, or ends.
    pub(super) fn check(
        &mut self,
        end: End,
        order: impl Order<Answer = Began>,
    ) -> Result<(), TrialError> {
        self.order(end, KEPT, order).map(drop)
    }

    /// The peers of faulted connections do nothing but handle together what happens within a tick.
    pub(super) fn check_peers_of_faulted(&mut self, tick: Duration) -> Result<(), TrialError> {
        for end in [End::Client, End::Server] {
            if self.is_parted(end) {
                let checking = Checking { tick_s: Some(tick.as_secs_f64()), ..Checking::default() };
                let check = Check { checking, ..Check::default() };
                self.order(end, FAULTED, check)?;
            }
        }
        Ok(())
    }

    /// What the fleets of one host have seen of connections that idle.
    pub(super) fn look_at(&mut self, end: End) -> Result<IdleReport, TrialError> {
        if end == End::Server && !self.is_lab() {
            return Ok(IdleReport::default());
        }
        let mut report = self.look(end, KEPT)?;
        if self.is_parted(end) {
            report.add(self.look(end, FAULTED)?);
        }
        Ok(report)
    }

    /// What the checking fleet of a host has seen.
    pub(super) fn look_at_checks(&mut self, end: End) -> Result<IdleReport, TrialError> {
        self.look(end, KEPT)
    }

    /// An order to the peers of faulted connections; gives when it was begun, ns.
    pub(super) fn fault_peers(
        &mut self,
        order: impl Order<Answer = Began>,
    ) -> Result<u64, TrialError> {
        let end = if self.is_parted(End::Client) { End::Client } else { End::Server };
        Ok(self.order(end, FAULTED, order)?.at_ns)
    }

    /// The link loses packets of connections to this port; gives since when, ns.
    pub(super) fn fault_link(&mut self, port: u16, share: f64) -> Result<u64, TrialError> {
        let link = self.hosts.link()?;
        Ok(link.ask(&FaultPorts { ports: vec![port], share })?.at_ns)
    }

    /// Ends the writing.
    pub(super) fn rest_writer(&mut self) -> Result<(), TrialError> {
        if self.settings.writer {
            self.order(End::Client, WRITER, Rest)?;
        }
        Ok(())
    }

    /// What is known now; what costs the least to tell is told nearest to the window.
    pub(super) fn moment(&mut self, begins: bool) -> Result<Moment, TrialError> {
        let at_end = if begins { None } else { Some(self.machine()?) };
        let (mut writer, mut sink) = (IdleReport::default(), IdleReport::default());
        if self.settings.writer {
            writer = self.look(End::Client, WRITER)?;
            if self.is_lab() {
                sink = self.look(End::Server, SINK)?;
            }
        }
        let arrives = !begins && self.settings.fault.is_none();
        let arrived = if arrives { self.arrived()? } else { IdleReport::default() };
        let client = self.look_at(End::Client)?;
        let server = self.look_at(End::Server)?;
        let counted = self.counted()?;
        let machine = match at_end {
            Some(machine) => machine,
            None => self.machine()?,
        };
        Ok(Moment { client, server, writer, sink, arrived, machine, counted })
    }

    /// What the emulated link has counted so far.
    pub(super) fn counted(&mut self) -> Result<Option<Counted>, TrialError> {
        Ok(match self.hosts.link.as_mut() {
            Some(link) if self.settings.lab.link.is_emulated() => Some(link.ask(&Peek)?),
            _ => None,
        })
    }

    fn machine(&mut self) -> Result<Machine, TrialError> {
        let client = &mut self.hosts.client;
        let times = client.ask(&ReadCpu)?;
        Ok(Machine {
            at: self.now(),
            cpus: times.len() as u32,
            not_running_us: times.iter().map(CpuTimes::not_running).sum::<u64>() * TICK_US,
        })
    }

    /// Connections and kernel memory of one, bytes.
    pub(super) fn socket_memory(&mut self, end: End) -> Result<Option<f64>, TrialError> {
        let host = self.host(end)?;
        Ok(host.ask(&ReadSocketMemory)?.bytes_each)
    }

    /// Waits so long, telling how long has been waited; `false`: a signal ended it.
    pub(super) fn wait(&mut self, time: Duration, progress: &mut dyn FnMut(Duration)) -> bool {
        let begun = self.now();
        loop {
            if self.interrupt.signal().is_some() {
                return false;
            }
            let left = time.saturating_sub(self.since(begun));
            if left.is_zero() {
                return true;
            }
            self.hosts.time.pause(left.min(LOOK_EVERY));
            progress(self.since(begun).min(time));
        }
    }
}
