//! One trial of `time-wait`: ports are held, workers connect until their end, and both hosts' sockets
//! are counted.

use std::net::SocketAddr;
use std::time::Duration;

use tcptoll_core::stats::Histogram;
use tcptoll_core::study::PlannedArm;
use tcptoll_core::tcp::ports::{ClientCloses, PortForecast, PortSettings, forecast};
use tcptoll_lab::lab::{Begun, Hosts, LabError};
use tcptoll_lab::messages::{
    CloseFirst, ClosedSockets, CountClosed, Done, Echo, EchoReport, Rows, ShortLoad, ShortReport,
    Watch,
};

use super::settings::{PORT_RANGE, TW_REUSE, TimeWaitSettings};
use crate::kit::hosts::{PortsNeeded, read_sysctls};
use crate::kit::notes::Notes;
use crate::kit::plan::{Context, Outcome, TrialError};
use crate::kit::procedure;
use crate::kit::procedure::{JudgementBasis, LoadObservation, Site, Trial};

/// Port of the server. The kernel would choose another one for the load than for the connections
/// before it, and on loopback one of the client's range.
const PORT: u16 = 9_000;

/// Sockets may take this long to their last state, after FINs have been waited for.
const SETTLED: Duration = Duration::from_millis(500);

/// One arm, being run.
pub(super) struct TimeWaitTrial<'a> {
    pub(super) settings: &'a TimeWaitSettings,
    pub(super) notes: Notes,
    /// What the forecast rests on.
    pub(super) ports: PortSettings,
    /// The forecast, and the operations that follow from it.
    pub(super) forecast: PortForecast,
    pub(super) count: Option<u64>,
    /// Local ports in use when the measurement began.
    pub(super) held: u64,
    /// When the first connection was opened, ns on the monotonic clock.
    pub(super) since_ns: u64,
    /// Our server, while it runs.
    server: Option<Begun<Echo>>,
    /// What it reports at its end.
    pub(super) echoed: EchoReport,
    /// Sockets of closed connections on client and server.
    pub(super) closed: [ClosedSockets; 2],
}

/// What a load reported.
pub(super) struct Driven {
    pub(super) report: ShortReport,
    /// Distributions by name, without unit.
    pub(super) histograms: Vec<(String, Histogram)>,
}

impl<'a> TimeWaitTrial<'a> {
    /// Runs a trial of an arm.
    pub(super) fn outcome(
        arm: &PlannedArm,
        settings: &'a TimeWaitSettings,
        context: &mut Context<'_>,
    ) -> Result<Outcome, TrialError> {
        let mut notes = Notes::new(&arm.name, &settings.sources);
        // Whether ports run out is what is asked.
        notes.ports_may_run_out = true;
        let mut trial = TimeWaitTrial {
            settings,
            notes,
            ports: PortSettings::default(),
            forecast: PortForecast::default(),
            count: None,
            held: 0,
            since_ns: 0,
            server: None,
            echoed: EchoReport::default(),
            closed: [ClosedSockets::default(); 2],
        };
        // The lab must not add source addresses on its own: scarcity is what is asked for.
        let needed = PortsNeeded { at_a_time: 1, connections: 1 };
        procedure::run(&mut trial, Site::Lab(settings.lab.clone(), needed), context)?;
        Ok(trial.notes.into_outcome(&arm.factors))
    }

    fn target(hosts: &Hosts) -> SocketAddr {
        SocketAddr::new(hosts.addresses.server, PORT)
    }

    /// How many connections the client's ports allow, before the first is opened.
    fn forecast(&mut self, hosts: &mut Hosts) -> Result<(u16, u16), TrialError> {
        let names = [
            PORT_RANGE,
            "net.ipv4.ip_local_reserved_ports",
            "net.ipv4.tcp_timestamps",
            TW_REUSE,
            "net.ipv4.tcp_tw_reuse_delay",
        ];
        self.ports = PortSettings {
            sysctls: read_sysctls(&mut hosts.client, &names)?,
            sources: self.settings.source_count(),
            destinations: 1,
            client_closes: match self.settings.close {
                CloseFirst::Client => ClientCloses::All,
                CloseFirst::Server | CloseFirst::Never => ClientCloses::None,
            },
            loopback: hosts.addresses.server.is_loopback(),
            ..PortSettings::default()
        };
        let unreadable = || {
            let why = format!("{PORT_RANGE} of the client host cannot be read");
            TrialError::Lab(LabError::Refused(why))
        };
        let range = self.ports.sysctls.get(PORT_RANGE).and_then(|text| range(text));
        let range = range.ok_or_else(unreadable)?;
        self.forecast = forecast(&self.ports).ok_or_else(unreadable)?;
        self.notes.arm.ports = Some(self.forecast.clone());
        let held = self.settings.held_ports(self.forecast.usable);
        self.count = self.settings.count_of(self.forecast.at_once.saturating_sub(held));
        Ok(range)
    }
}

/// Reads `32768 60999`.
fn range(text: &str) -> Option<(u16, u16)> {
    let (low, high) = text.trim().split_once(char::is_whitespace)?;
    Some((low.parse().ok()?, high.trim().parse().ok()?))
}

impl Trial for TimeWaitTrial<'_> {
    type Report = Driven;

    fn notes(&mut self) -> &mut Notes {
        &mut self.notes
    }

    fn prepare(&mut self, hosts: &mut Hosts, context: &Context<'_>) -> Result<(), TrialError> {
        let range = self.forecast(hosts)?;
        let target = Self::target(hosts);
        self.since_ns = hosts.time.now().as_nanos() as u64;
        self.held = self.settings.hold(hosts, (target, range), &self.forecast, context)?;
        Ok(())
    }

    fn listen(&mut self, hosts: &mut Hosts, _context: &Context<'_>) -> Result<Watch, TrialError> {
        let echo = self.settings.echo(Self::target(hosts));
        let (_, serving) = hosts.server()?.start(&echo)?;
        self.server = Some(serving);
        Ok(Watch::default())
    }

    fn load(&mut self, hosts: &mut Hosts, context: &mut Context<'_>) -> Result<Driven, TrialError> {
        let settings = self.settings;
        let ns = |time: Duration| time.as_nanos() as u64;
        let load = ShortLoad {
            target: Self::target(hosts),
            workers: settings.workers,
            count: self.count,
            duration_ns: settings.duration.map(ns),
            rate_per_s: settings.rate,
            sources: settings.sources.clone(),
            late_port: settings.late_port,
            close: settings.close,
            work_ns: ns(settings.work),
            timeout_ns: ns(settings.timeout),
            ports_max: self.forecast.at_once,
        };
        let begun = hosts.client.begin(&load)?;
        let total = self.count.unwrap_or(0);
        let progress = &mut context.progress;
        // How many there will be is not always known: without a total no share of it is shown.
        let total_shown = |done: Done| if total == 0 { 0 } else { total.max(done.done) };
        let tell = &mut |done: Done| progress(done, total_shown(done));
        let answered = hosts.client.wait(begun, context.interrupt, tell)?;
        Ok(Driven { report: answered.answer, histograms: answered.histograms })
    }

    fn client_done(&mut self, hosts: &mut Hosts) -> Result<(), TrialError> {
        let wanted = count_closed(Self::target(hosts));
        self.closed[0] = hosts.client.ask(&wanted)?;
        Ok(())
    }

    fn server_done(&mut self, hosts: &mut Hosts, _wire: Vec<Rows>) -> Result<(), TrialError> {
        if let Some(serving) = self.server.take() {
            self.echoed = hosts.server()?.stop(serving)?.answer;
        }
        let wanted = count_closed(Self::target(hosts));
        self.closed[1] = hosts.server()?.ask(&wanted)?;
        Ok(())
    }

    fn take(&mut self, driven: &Driven, seen: &LoadObservation<'_>) -> JudgementBasis {
        self.take_report(driven);
        self.take_port_use(&driven.report, seen.client);
        self.take_hosts(&driven.report, seen);
        self.check_time_wait(&driven.report, seen.client);
        JudgementBasis { operations: driven.report.attempts, stamped: false }
    }
}

/// Counts all sockets of connections to the server, those before the measurement too.
fn count_closed(server: SocketAddr) -> CountClosed {
    CountClosed { server, since_ns: 0, limit_ns: SETTLED.as_nanos() as u64 }
}
