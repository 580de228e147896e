//! One trial of `syn-queue`: a peer fills the SYN queue, and ordinary clients connect meanwhile.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use tcptoll_core::study::PlannedArm;
use tcptoll_core::tcp::drops::HalfOpenSettings;
use tcptoll_lab::lab::{Handle, Hosts, LabError};
use tcptoll_lab::messages::{
    ConnectLoad, ConnectReport, EndHalfOpen, Greet, HalfOpenReport, KeepHalfOpen, Rows, Watch,
};

use super::settings::{HalfOpen, SynQueueSettings};
use crate::kit::hosts::{PortsNeeded, read_sysctls};
use crate::kit::notes::Notes;
use crate::kit::opening::{Trace, drive_measured};
use crate::kit::plan::{Context, Outcome, TrialError};
use crate::kit::procedure;
use crate::kit::procedure::{JudgementBasis, LoadObservation, Site, Trial};
use crate::open::queue_load::QueueLoad;

/// The last of the peer's first SYNs has arrived after this, on top of the way: two looks at half-open
/// requests, so that a full queue is seen before the load too.
const ARRIVED: Duration = Duration::from_millis(100);

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// What the peer did to the server.
#[derive(Clone, Debug, Default)]
pub(super) struct Pressed {
    /// Sources that sent SYNs; 0: there was no peer.
    pub(super) sources: u64,
    /// Half-open requests that the server holds, by its settings.
    pub(super) holds: u32,
    /// What the peer reported at its end.
    pub(super) report: HalfOpenReport,
}

impl Pressed {
    /// Requests of the peer that the server should hold.
    pub(super) fn expected(&self) -> u64 {
        self.sources.min(self.holds.into())
    }
}

/// One arm, being run.
pub(super) struct SynQueueTrial<'a> {
    pub(super) settings: &'a SynQueueSettings,
    pub(super) notes: Notes,
    pub(super) queue: QueueLoad,
    pub(super) pressed: Pressed,
}

impl<'a> SynQueueTrial<'a> {
    /// Runs a trial of an arm.
    pub(super) fn outcome(
        arm: &PlannedArm,
        settings: &'a SynQueueSettings,
        context: &mut Context<'_>,
    ) -> Result<Outcome, TrialError> {
        let mut trial = Self {
            settings,
            notes: Notes::new(&arm.name, &settings.bind),
            queue: QueueLoad::default(),
            pressed: Pressed::default(),
        };
        let ports = PortsNeeded { at_a_time: settings.ports(), connections: settings.count };
        procedure::run(&mut trial, Site::Lab(settings.lab.clone(), ports), context)?;
        trial.record_queues();
        Ok(trial.notes.into_outcome(&arm.factors))
    }

    fn order(&self, seed: u64) -> Result<ConnectLoad, TrialError> {
        let settings = self.settings;
        Ok(ConnectLoad {
            concurrency: settings.flow().at_once,
            rate_per_s: settings.rate,
            seed,
            timeout_ns: ns(settings.timeout),
            ..self.queue.order(settings.count, &self.notes, settings.lab.link.rtt)?
        })
    }

    /// Begins the peer, and waits until all of its first SYNs have arrived.
    fn press(&mut self, hosts: &mut Hosts, context: &Context<'_>) -> Result<(), TrialError> {
        let number = self.pressed.sources;
        if number == 0 {
            return Ok(());
        }
        let order = KeepHalfOpen {
            target: self.queue.target()?,
            number,
            rate_per_s: self.settings.peer_rate(number),
            again_ns: ns(self.settings.again),
        };
        let begun = hosts.client.begin(&order)?;
        hosts.client.wait(begun, context.interrupt, &mut |_| {})?;
        let link = &self.settings.lab.link;
        hosts.time.pause(link.rtt / 2 + link.jitter + ARRIVED);
        Ok(())
    }
}

/// How many half-open requests the server's listener will hold, by its sysctls; and how many with
/// cookies, which for every SYN hold none.
fn holds(server: &mut Handle, backlog: i32) -> Result<(u32, u32), TrialError> {
    const SOMAXCONN: &str = "net.core.somaxconn";
    const MAX_SYN_BACKLOG: &str = "net.ipv4.tcp_max_syn_backlog";
    const SYNCOOKIES: &str = "net.ipv4.tcp_syncookies";
    let got: BTreeMap<String, String> =
        read_sysctls(server, &[SOMAXCONN, MAX_SYN_BACKLOG, SYNCOOKIES])?;
    let number = |name: &str| got.get(name).and_then(|text| text.parse::<u32>().ok());
    let needed = |name: &str| {
        number(name).ok_or_else(|| {
            TrialError::Lab(LabError::Refused(format!(
                "--half-open full: {name} of the server host cannot be read here, so write a number instead of full"
            )))
        })
    };
    let settings = HalfOpenSettings {
        backlog: backlog.unsigned_abs().min(needed(SOMAXCONN)?),
        max_syn_backlog: needed(MAX_SYN_BACKLOG)?,
        // A kernel without cookies does not have that sysctl.
        syncookies: number(SYNCOOKIES).unwrap_or(0),
    };
    let when_full = HalfOpenSettings { syncookies: settings.syncookies.min(1), ..settings };
    Ok((settings.holds(), when_full.holds()))
}

impl Trial for SynQueueTrial<'_> {
    type Report = ConnectReport;

    fn notes(&mut self) -> &mut Notes {
        &mut self.notes
    }

    fn prepare(&mut self, hosts: &mut Hosts, _context: &Context<'_>) -> Result<(), TrialError> {
        self.queue.prepare(hosts)?;
        let (now, when_full) = holds(hosts.server()?, self.settings.backlog)?;
        self.pressed.holds = now;
        self.pressed.sources = match self.settings.half_open {
            HalfOpen::Number(number) => number,
            HalfOpen::Full => when_full.into(),
        };
        Ok(())
    }

    fn listen(&mut self, hosts: &mut Hosts, _context: &Context<'_>) -> Result<Watch, TrialError> {
        let greet = Greet {
            at: SocketAddr::new(hosts.addresses.server, 0),
            backlog: self.settings.backlog,
            accept_delay_ns: 0,
            speak: true,
            fast_open: false,
            trace_limit: 0,
            further: 0,
        };
        self.queue.listen(hosts, &greet)?;
        Ok(Watch { tap: self.settings.lab.tap, ..Watch::default() })
    }

    fn load(
        &mut self,
        hosts: &mut Hosts,
        context: &mut Context<'_>,
    ) -> Result<ConnectReport, TrialError> {
        self.press(hosts, context)?;
        let load = self.order(context.seed)?;
        let (client, total) = (&mut hosts.client, self.settings.count);
        let report = drive_measured(client, &load, &mut Trace::default(), total, context)?;
        if self.pressed.sources > 0 {
            self.pressed.report = hosts.client.ask(&EndHalfOpen)?;
            if let Some(why) = &self.pressed.report.failed {
                return Err(TrialError::Lab(LabError::Refused(why.clone())));
            }
        }
        Ok(report)
    }

    fn server_done(&mut self, hosts: &mut Hosts, _wire: Vec<Rows>) -> Result<(), TrialError> {
        self.queue.end(hosts)
    }

    fn take(&mut self, report: &ConnectReport, seen: &LoadObservation<'_>) -> JudgementBasis {
        self.take_load(report, seen);
        JudgementBasis { operations: report.attempts, stamped: false }
    }

    fn compare(&mut self, _seen: &LoadObservation<'_>) {
        self.notes.compare_syns_beside(self.pressed.report.syns);
    }
}
