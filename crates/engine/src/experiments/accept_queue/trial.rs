//! One trial of `accept-queue`: a server that accepts slowly, a load, and what the queue did meanwhile.

use std::net::SocketAddr;
use std::time::Duration;

use tcptoll_model::experiments::figures::{
    ACCEPT_QUEUE_PEAK, DROPS, FAILED_SHARE, FAILURE, QUEUE_FULL,
};
use tcptoll_model::record::{ListenerQueue, Own};
use tcptoll_model::study::PlannedArm;

use super::settings::AcceptQueueSettings;
use crate::experiments::bench::hosts::{PortsNeeded, ladder_of, syn_ack_ladder_of};
use crate::experiments::bench::notes::Notes;
use crate::experiments::bench::opening::{
    LADDER_SLACK, Trace, begin_greeting, drive, end_greeting, recorded_queues, take_opened, warmed,
};
use crate::experiments::bench::procedure::{self, Seen, Site, Taken, Trial};
use crate::experiments::bench::queues::{Ladders, balance_of, limit_half_open, queues_of};
use crate::experiments::bench::settings::WarmUp;
use crate::experiments::{Context, Outcome, TrialError};
use crate::lab::{Begun, Hosts, LabError};
use crate::messages::{
    ConnectLoad, ConnectReport, Greet, GreetReport, Opened, Rows, Watch, WatchQueues,
};

/// Time between two connections to the same further listener.
const FURTHER_EVERY: Duration = Duration::from_millis(100);

/// One look at the queues of this number counts half-open requests too: every 50 ms, for 1 % of a CPU.
const HALF_OPEN_EVERY: u32 = 5;

/// Backlog of the warm-up's server, which nothing overflows.
const LONG: i32 = 4096;

/// Connections of the warm-up at a time: few enough for any queue.
const WARM_AT_ONCE: u64 = 8;

/// Whoever is not connected within this by a server that accepts immediately never will be.
const WARM_LIMIT: Duration = Duration::from_secs(10);

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// One arm, being run.
pub(super) struct AcceptQueueTrial<'a> {
    settings: &'a AcceptQueueSettings,
    notes: Notes,
    ladders: Ladders,
    /// Our server while it runs, and where it listens.
    server: Option<Begun<Greet>>,
    listening: Vec<SocketAddr>,
    greeted: GreetReport,
    listeners: Vec<ListenerQueue>,
    /// What the client's kernel knows.
    opened: Opened,
}

impl<'a> AcceptQueueTrial<'a> {
    /// Runs a trial of an arm.
    pub(super) fn outcome(
        arm: &PlannedArm,
        settings: &'a AcceptQueueSettings,
        context: &mut Context<'_>,
    ) -> Result<Outcome, TrialError> {
        let mut trial = Self {
            settings,
            notes: Notes::new(&arm.name, &settings.bind),
            ladders: Ladders::default(),
            server: None,
            listening: Vec::new(),
            greeted: GreetReport::default(),
            listeners: Vec::new(),
            opened: Opened::default(),
        };
        let ports =
            PortsNeeded { at_a_time: settings.ports(), connections: settings.expected_count() };
        procedure::run(&mut trial, Site::Lab(settings.lab.clone(), ports), context)?;
        trial.record_queues();
        Ok(trial.notes.into_outcome(&arm.factors))
    }

    /// Opens connections to a server that no setting makes slow: for caches, routes and branch
    /// predictors.
    fn warm_up(&mut self, hosts: &mut Hosts, context: &Context<'_>) -> Result<(), TrialError> {
        let (count, duration_ns) = match self.settings.warmup {
            WarmUp::Operations(0) | WarmUp::Time(Duration::ZERO) => return Ok(()),
            WarmUp::Operations(count) => (count, None),
            WarmUp::Time(long) => (u64::MAX, Some(ns(long))),
        };
        let greet = Greet {
            backlog: LONG,
            accept_delay_ns: 0,
            speak: true,
            further: 0,
            ..self.greet(hosts)
        };
        let (greeting, listening) = begin_greeting(hosts, &greet)?;
        let at = *listening.first().ok_or_else(no_listener)?;
        let load = ConnectLoad {
            concurrency: WARM_AT_ONCE,
            duration_ns,
            timeout_ns: ns(WARM_LIMIT),
            bind: self.notes.sources.clone(),
            ..ConnectLoad::to(at, count)
        };
        let mut unseen = Trace::default();
        let report = drive(&mut hosts.client, &load, &mut unseen, context.interrupt, &mut |_| {})?;
        end_greeting(hosts.server()?, greeting, &mut unseen)?;
        if context.interrupt.signal().is_some() {
            return Err(LabError::Interrupted.into());
        }
        self.notes.arm.warmup = Some(warmed(report));
        Ok(())
    }

    fn greet(&self, hosts: &Hosts) -> Greet {
        Greet {
            at: SocketAddr::new(hosts.addresses.server, 0),
            backlog: self.settings.backlog,
            accept_delay_ns: ns(self.settings.accept_delay),
            speak: self.settings.first_byte,
            fast_open: false,
            trace_limit: 0,
            further: self.settings.listeners - 1,
        }
    }

    fn load_on(&self, target: SocketAddr, seed: u64) -> ConnectLoad {
        let settings = self.settings;
        let rungs = |ladder: &[Duration]| ladder.iter().copied().map(ns).collect();
        ConnectLoad {
            concurrency: settings.flow().at_once,
            rate_per_s: settings.rate,
            spread: settings.arrivals,
            seed,
            duration_ns: settings.duration.map(ns),
            pause_every: settings.pause_every,
            pause_ns: ns(settings.pause),
            timeout_ns: ns(settings.timeout),
            first_byte: settings.first_byte,
            bind: self.notes.sources.clone(),
            ladder_ns: rungs(&self.ladders.syn),
            ladder_slack_ns: ns(LADDER_SLACK + settings.lab.link.rtt),
            evidence: true,
            syn_ack_ladder_ns: rungs(&self.ladders.syn_ack),
            further: self.listening.iter().skip(1).copied().collect(),
            further_every_ns: ns(FURTHER_EVERY),
            ..ConnectLoad::to(target, settings.count)
        }
    }

    /// Once counters and wire are known: what was dropped, and the whole record of the queues.
    fn record_queues(&mut self) {
        let settings = self.settings;
        let link = &settings.lab.link;
        // A client that does not wait for the first byte sends a FIN, which a half-open request takes as
        // one more last ACK.
        let drops = if settings.first_byte {
            let (opened, aborts) = (&self.opened, settings.aborts);
            balance_of(&mut self.notes, link, opened, &mut self.listeners, aborts)
        } else {
            None
        };
        let listeners = std::mem::take(&mut self.listeners);
        let attempts = self.notes.arm.attempts;
        let dropped = listeners.first().and_then(|first| first.drops).filter(|_| attempts > 0);
        let each = dropped.map(|dropped| dropped as f64 / attempts as f64);
        self.notes.metric(&DROPS, each, attempts);
        let intervals = self.greeted.accept_intervals;
        let mut queues = queues_of(&self.opened, &self.ladders, listeners, intervals);
        queues.drops = drops;
        self.notes.arm.own = Own::from(Box::new(queues));
    }
}

fn no_listener() -> TrialError {
    TrialError::Lab(LabError::Refused("the server host reported no listener".to_owned()))
}

impl Trial for AcceptQueueTrial<'_> {
    type Report = ConnectReport;

    fn notes(&mut self) -> &mut Notes {
        &mut self.notes
    }

    fn prepare(&mut self, hosts: &mut Hosts, context: &Context<'_>) -> Result<(), TrialError> {
        self.ladders = Ladders {
            syn: ladder_of(&mut hosts.client)?,
            syn_ack: syn_ack_ladder_of(hosts.server()?)?,
        };
        self.warm_up(hosts, context)
    }

    fn listen(&mut self, hosts: &mut Hosts, _context: &Context<'_>) -> Result<Watch, TrialError> {
        hosts.server()?.ask(&WatchQueues { half_open_every: HALF_OPEN_EVERY })?;
        let greet = self.greet(hosts);
        let (server, listening) = begin_greeting(hosts, &greet)?;
        (self.server, self.listening) = (Some(server), listening);
        Ok(Watch { tap: self.settings.lab.tap, ..Watch::default() })
    }

    fn load(
        &mut self,
        hosts: &mut Hosts,
        context: &mut Context<'_>,
    ) -> Result<ConnectReport, TrialError> {
        let target = *self.listening.first().ok_or_else(no_listener)?;
        let load = self.load_on(target, context.seed);
        let total = self.settings.expected_count();
        let progress = &mut context.progress;
        let tell = &mut |done: u64| progress(done, total.max(done));
        drive(&mut hosts.client, &load, &mut Trace::default(), context.interrupt, tell)
    }

    fn server_done(&mut self, hosts: &mut Hosts, _wire: Vec<Rows>) -> Result<(), TrialError> {
        let Some(greeting) = self.server.take() else { return Ok(()) };
        let server = hosts.server()?;
        self.greeted = end_greeting(server, greeting, &mut Trace::default())?;
        self.listeners = recorded_queues(server, &self.listening)?;
        Ok(limit_half_open(server, &mut self.listeners)?)
    }

    fn take(&mut self, report: &ConnectReport, seen: &Seen<'_>) -> Taken {
        take_opened(&mut self.notes, report, &self.ladders.syn, self.settings.flow());
        let notes = &mut self.notes;
        let attempts = report.attempts;
        notes.arm.client.rss_peak_bytes = Some(seen.client.after.rss_peak_bytes);
        notes.client_cpu(report.cpu_us, attempts, attempts);
        notes.server_cpu(self.greeted.cpu_us, self.greeted.accepted, attempts);
        if let (Some(server), Some(span)) = (&mut notes.arm.server, seen.server) {
            server.rss_peak_bytes = Some(span.after.rss_peak_bytes);
        }
        let failed: u64 = report.errors.values().sum();
        let share = (attempts > 0).then(|| failed as f64 / attempts as f64);
        notes.metric(&FAILED_SHARE, share, attempts);
        if let Some(first) = self.listeners.first() {
            notes.metric(&ACCEPT_QUEUE_PEAK, Some(f64::from(first.peak)), 1);
            notes.metric(&QUEUE_FULL, first.full_share(), first.samples);
        }
        self.opened = report.opened.clone().unwrap_or_default();
        self.notes.histogram(&FAILURE, &self.opened.failure);
        Taken { operations: attempts, stamped: false }
    }
}
