//! One trial of `syn-queue`: a peer fills the SYN queue, and ordinary clients connect meanwhile.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use tcptoll_model::half_open::HalfOpenSettings;
use tcptoll_model::record::ListenerQueue;
use tcptoll_model::study::PlannedArm;

use super::settings::{HalfOpen, SynQueueSettings};
use crate::experiments::bench::hosts::{PortsNeeded, ladder_of, read_sysctls, syn_ack_ladder_of};
use crate::experiments::bench::notes::Notes;
use crate::experiments::bench::opening::{
    LADDER_SLACK, Trace, begin_greeting, drive, end_greeting, recorded_queues,
};
use crate::experiments::bench::procedure::{self, Seen, Site, Taken, Trial};
use crate::experiments::bench::queues::{Ladders, limit_half_open};
use crate::experiments::{Context, Outcome, TrialError};
use crate::lab::{Begun, Handle, Hosts, LabError};
use crate::messages::{
    ConnectLoad, ConnectReport, EndHalfOpen, Greet, GreetReport, HalfOpenReport, KeepHalfOpen,
    Opened, Rows, Watch, WatchQueues,
};

/// One look at the queues of this number counts half-open requests too: every 50 ms, for 1 % of a CPU.
const HALF_OPEN_EVERY: u32 = 5;

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
    pub(super) ladders: Ladders,
    /// Our server while it runs, and where it listens.
    server: Option<Begun<Greet>>,
    at: Option<SocketAddr>,
    pub(super) greeted: GreetReport,
    pub(super) listeners: Vec<ListenerQueue>,
    pub(super) pressed: Pressed,
    /// What the client's kernel knows.
    pub(super) opened: Opened,
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
            ladders: Ladders::default(),
            server: None,
            at: None,
            greeted: GreetReport::default(),
            listeners: Vec::new(),
            pressed: Pressed::default(),
            opened: Opened::default(),
        };
        let ports = PortsNeeded { at_a_time: settings.ports(), connections: settings.count };
        procedure::run(&mut trial, Site::Lab(settings.lab.clone(), ports), context)?;
        trial.record_queues();
        Ok(trial.notes.into_outcome(&arm.factors))
    }

    fn load_on(&self, target: SocketAddr, seed: u64) -> ConnectLoad {
        let settings = self.settings;
        let rungs = |ladder: &[Duration]| ladder.iter().copied().map(ns).collect();
        ConnectLoad {
            concurrency: settings.flow().at_once,
            rate_per_s: settings.rate,
            seed,
            timeout_ns: ns(settings.timeout),
            bind: self.notes.sources.clone(),
            ladder_ns: rungs(&self.ladders.syn),
            ladder_slack_ns: ns(LADDER_SLACK + settings.lab.link.rtt),
            evidence: true,
            syn_ack_ladder_ns: rungs(&self.ladders.syn_ack),
            ..ConnectLoad::to(target, settings.count)
        }
    }

    /// Begins the peer, and waits until all of its first SYNs have arrived.
    fn press(
        &mut self,
        hosts: &mut Hosts,
        target: SocketAddr,
        context: &Context<'_>,
    ) -> Result<(), TrialError> {
        let number = self.pressed.sources;
        if number == 0 {
            return Ok(());
        }
        let order = KeepHalfOpen {
            target,
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

    fn at(&self) -> Result<SocketAddr, TrialError> {
        self.at.ok_or_else(|| {
            TrialError::Lab(LabError::Refused("the server host reported no listener".to_owned()))
        })
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
                "this kernel does not say {name} of a host: --half-open full needs it, write a number"
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
        self.ladders = Ladders {
            syn: ladder_of(&mut hosts.client)?,
            syn_ack: syn_ack_ladder_of(hosts.server()?)?,
        };
        let (now, when_full) = holds(hosts.server()?, self.settings.backlog)?;
        self.pressed.holds = now;
        self.pressed.sources = match self.settings.half_open {
            HalfOpen::Number(number) => number,
            HalfOpen::Full => when_full.into(),
        };
        Ok(())
    }

    fn listen(&mut self, hosts: &mut Hosts, _context: &Context<'_>) -> Result<Watch, TrialError> {
        hosts.server()?.ask(&WatchQueues { half_open_every: HALF_OPEN_EVERY })?;
        let greet = Greet {
            at: SocketAddr::new(hosts.addresses.server, 0),
            backlog: self.settings.backlog,
            accept_delay_ns: 0,
            speak: true,
            fast_open: false,
            trace_limit: 0,
            further: 0,
        };
        let (server, listening) = begin_greeting(hosts, &greet)?;
        (self.server, self.at) = (Some(server), listening.first().copied());
        Ok(Watch { tap: self.settings.lab.tap, ..Watch::default() })
    }

    fn load(
        &mut self,
        hosts: &mut Hosts,
        context: &mut Context<'_>,
    ) -> Result<ConnectReport, TrialError> {
        let target = self.at()?;
        self.press(hosts, target, context)?;
        let load = self.load_on(target, context.seed);
        let total = self.settings.count;
        let progress = &mut context.progress;
        let tell = &mut |done: u64| progress(done, total.max(done));
        let report =
            drive(&mut hosts.client, &load, &mut Trace::default(), context.interrupt, tell)?;
        if self.pressed.sources > 0 {
            self.pressed.report = hosts.client.ask(&EndHalfOpen)?;
            if let Some(why) = &self.pressed.report.failed {
                return Err(TrialError::Lab(LabError::Refused(why.clone())));
            }
        }
        Ok(report)
    }

    fn server_done(&mut self, hosts: &mut Hosts, _wire: Vec<Rows>) -> Result<(), TrialError> {
        let Some(greeting) = self.server.take() else { return Ok(()) };
        let at = self.at()?;
        let server = hosts.server()?;
        self.greeted = end_greeting(server, greeting, &mut Trace::default())?;
        self.listeners = recorded_queues(server, &[at])?;
        Ok(limit_half_open(server, &mut self.listeners)?)
    }

    fn take(&mut self, report: &ConnectReport, seen: &Seen<'_>) -> Taken {
        self.take_load(report, seen);
        Taken { operations: report.attempts, stamped: false }
    }

    fn compare(&mut self, _seen: &Seen<'_>) {
        self.notes.compare_syns_beside(self.pressed.report.syns);
    }
}
