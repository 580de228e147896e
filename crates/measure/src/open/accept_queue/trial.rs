//! One trial of `accept-queue`: a server that accepts slowly, a load, and what the queue did meanwhile.

use std::net::SocketAddr;
use std::time::Duration;
use tcptoll_core::units::ns;

use tcptoll_core::experiment::figures::{ACCEPT_QUEUE_PEAK, DROPS, QUEUE_FULL};
use tcptoll_core::record::Own;
use tcptoll_core::study::PlannedArm;
use tcptoll_lab::lab::{Hosts, LabError};
use tcptoll_lab::messages::{ConnectLoad, ConnectReport, Greet, Rows, Watch};

use super::settings::AcceptQueueSettings;
use crate::kit::TrialError;
use crate::kit::hosts::PortsNeeded;
use crate::kit::notes::Notes;
use crate::kit::opening::{Trace, begin_greeting, drive, drive_measured, end_greeting, warmed};
use crate::kit::path::Opened;
use crate::kit::plan::{Context, Outcome};
use crate::kit::procedure;
use crate::kit::procedure::{JudgementBasis, LoadObservation, Site, Trial};
use crate::kit::settings::WarmUp;
use crate::open::queues::{QueueLoad, balance_of, measured};

/// Time between two connections to the same further listener.
const FURTHER_EVERY: Duration = Duration::from_millis(100);

/// Backlog of the warm-up's server, which nothing overflows.
const LONG: i32 = 4096;

/// Connections of the warm-up at a time: few enough for any queue.
const WARM_AT_ONCE: u64 = 8;

/// Whoever is not connected within this by a server that accepts immediately never will be.
const WARM_LIMIT: Duration = Duration::from_secs(10);

pub(super) struct AcceptQueueTrial<'a> {
    settings: &'a AcceptQueueSettings,
    notes: Notes,
    queue: QueueLoad,
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
            queue: QueueLoad::default(),
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
        let at = measured(&listening)?;
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

    fn order(&self, seed: u64) -> Result<ConnectLoad, TrialError> {
        let settings = self.settings;
        Ok(ConnectLoad {
            concurrency: settings.flow().at_once,
            rate_per_s: settings.rate,
            spread: settings.arrivals,
            seed,
            duration_ns: settings.duration.map(ns),
            pause_every: settings.pause_every,
            pause_ns: ns(settings.pause),
            timeout_ns: ns(settings.timeout),
            first_byte: settings.first_byte,
            further: self.queue.further().to_vec(),
            further_every_ns: ns(FURTHER_EVERY),
            ..self.queue.order(settings.count, &self.notes, settings.lab.link.rtt)?
        })
    }

    /// Once counters and wire are known: what was dropped, and the whole record of the queues.
    fn record_queues(&mut self) {
        let settings = self.settings;
        let link = &settings.lab.link;
        let QueueLoad { opened, listeners, .. } = &mut self.queue;
        // A client that does not wait for the first byte sends a FIN, which a half-open request takes as
        // one more last ACK.
        let drops = if settings.first_byte {
            balance_of(&mut self.notes, link, opened, listeners, settings.aborts)
        } else {
            None
        };
        let attempts = self.notes.arm.attempts;
        let exact = listeners.first().filter(|first| !first.drops_at_most);
        let dropped = exact.and_then(|first| first.drops).filter(|_| attempts > 0);
        let each = dropped.map(|dropped| dropped as f64 / attempts as f64);
        self.notes.metric(&DROPS, each, attempts);
        let mut queues = self.queue.recorded();
        queues.drops = drops;
        self.notes.arm.own = Own::from(Box::new(queues));
    }
}

impl Trial for AcceptQueueTrial<'_> {
    type Report = ConnectReport;

    fn notes(&mut self) -> &mut Notes {
        &mut self.notes
    }

    fn prepare(&mut self, hosts: &mut Hosts, context: &Context<'_>) -> Result<(), TrialError> {
        self.queue.prepare(hosts)?;
        self.warm_up(hosts, context)
    }

    fn listen(&mut self, hosts: &mut Hosts, _context: &Context<'_>) -> Result<Watch, TrialError> {
        let greet = self.greet(hosts);
        self.queue.listen(hosts, &greet)?;
        Ok(Watch { tap: self.settings.lab.tap, ..Watch::default() })
    }

    fn load(
        &mut self,
        hosts: &mut Hosts,
        context: &mut Context<'_>,
    ) -> Result<ConnectReport, TrialError> {
        let load = self.order(context.seed)?;
        let total = self.settings.expected_count();
        drive_measured(&mut hosts.client, &load, &mut Trace::default(), total, context)
    }

    fn server_done(&mut self, hosts: &mut Hosts, _wire: Vec<Rows>) -> Result<(), TrialError> {
        self.queue.end(hosts)
    }

    fn opened(&self, report: &ConnectReport) -> Option<Opened> {
        Some((report.attempts, report.established))
    }

    fn take(&mut self, report: &ConnectReport, seen: &LoadObservation<'_>) -> JudgementBasis {
        let notes = &mut self.notes;
        self.queue.take(notes, report, self.settings.flow(), seen);
        if let Some(first) = self.queue.listeners.first() {
            notes.metric(&ACCEPT_QUEUE_PEAK, Some(f64::from(first.peak)), 1);
            notes.metric(&QUEUE_FULL, first.full_share(), first.samples);
        }
        JudgementBasis { operations: report.attempts, stamped: false }
    }
}
