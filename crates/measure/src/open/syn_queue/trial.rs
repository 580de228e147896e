//! One trial of `syn-queue`: a peer fills the SYN queue, ordinary clients connect meanwhile; and what is
//! recorded of it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use tcptoll_core::units::ns;

use tcptoll_core::experiment::figures::DROPS;
use tcptoll_core::record::{Arm, DropBalance, HalfOpenPeer, ListenerQueue, Own};
use tcptoll_core::study::PlannedArm;
use tcptoll_core::tcp::syn::HalfOpenSettings;
use tcptoll_core::verdict::warning::Warning;
use tcptoll_lab::lab::{Handle, Hosts, LabError};
use tcptoll_lab::messages::{
    ConnectLoad, ConnectReport, EndHalfOpen, Greet, HalfOpenReport, KeepHalfOpen, Rows, Watch,
};

use super::HALF_OPEN_PEAK;
use super::settings::{HalfOpen, SynQueueSettings};
use crate::kit::TrialError;
use crate::kit::hosts::{PortsNeeded, read_sysctls};
use crate::kit::notes::Notes;
use crate::kit::opening::{Trace, drive_measured};
use crate::kit::plan::{Context, Outcome};
use crate::kit::procedure;
use crate::kit::procedure::{JudgementBasis, LoadObservation, Site, Trial};
use crate::open::queues::{QueueLoad, balance_of};

/// The last of the peer's first SYNs has arrived after this, on top of the way: two looks at half-open
/// requests, so that a full queue is seen before the load too.
const ARRIVED: Duration = Duration::from_millis(100);

/// What the peer did to the server.
#[derive(Clone, Debug, Default)]
struct Pressed {
    /// Sources that sent SYNs; 0: there was no peer.
    sources: u64,
    /// Half-open requests that the server holds, by its settings.
    holds: u32,
    /// What the peer reported at its end.
    report: HalfOpenReport,
}

impl Pressed {
    /// Requests of the peer that the server should hold.
    fn expected(&self) -> u64 {
        self.sources.min(self.holds.into())
    }
}

pub(super) struct SynQueueTrial<'a> {
    settings: &'a SynQueueSettings,
    notes: Notes,
    queue: QueueLoad,
    pressed: Pressed,
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

/// A source that sends again within this keeps its request: the request's first timer runs for 1 s.
const KEPT_WITHIN: Duration = Duration::from_millis(900);

impl SynQueueTrial<'_> {
    fn take_load(&mut self, report: &ConnectReport, seen: &LoadObservation<'_>) {
        let notes = &mut self.notes;
        self.queue.take(notes, report, self.settings.flow(), seen);
        let attempts = report.attempts;
        if let Some(first) = self.queue.listeners.first_mut() {
            if self.pressed.sources > 0 {
                drops_of_the_only(first, &notes.arm);
            }
            notes.metric(&HALF_OPEN_PEAK, first.half_open_peak.map(f64::from), 1);
            let drops = first.drops.filter(|_| attempts > 0);
            notes.metric(&DROPS, drops.map(|drops| drops as f64 / attempts as f64), attempts);
        }
        let expected = self.pressed.expected();
        let held =
            self.queue.listeners.first().and_then(|first| first.half_open_peak).map(u64::from);
        if let Some(held) = held.filter(|held| *held < expected && !report.partial) {
            notes.warn(&Warning::WitnessDisagrees {
                what: "half-open request of the peer at the server".to_owned(),
                ours: expected,
                witness: held,
            });
        }
    }

    /// Once counters and wire are known: what was dropped, and the whole record of the queues.
    fn record_queues(&mut self) {
        let drops = if self.peer_competes() {
            self.counted_together()
        } else {
            let link = &self.settings.lab.link;
            let QueueLoad { opened, listeners, .. } = &mut self.queue;
            balance_of(&mut self.notes, link, opened, listeners, false)
        };
        let mut queues = self.queue.recorded();
        queues.drops = drops;
        let report = &self.pressed.report;
        queues.half_open_peer = (self.pressed.sources > 0).then(|| HalfOpenPeer {
            syns_sent: report.syns,
            addresses: report.addresses,
            sources: self.pressed.sources,
            per_s: report.syns as f64 / (report.elapsed_ns.max(1) as f64 / 1e9),
        });
        self.notes.arm.own = Own::from(Box::new(queues));
    }

    /// Whether the server may have dropped SYNs of the peer too, or answered them with cookies: the
    /// peer has more sources than the queue holds, or requests time out before their source sends again.
    fn peer_competes(&self) -> bool {
        let sources = self.pressed.sources;
        let pass_s = sources as f64 / self.settings.peer_rate(sources);
        let again_s = self.settings.again.as_secs_f64().max(pass_s);
        sources > u64::from(self.pressed.holds) || again_s > KEPT_WITHIN.as_secs_f64()
    }

    /// Drops of the clients' SYNs and of the peer's, which no counter separates. The clients' alone are
    /// no more than all.
    fn counted_together(&mut self) -> Option<DropBalance> {
        let counters = &self.notes.arm.server.as_ref()?.counters;
        let counter = |name: &str| counters.get(name).map_or(0, |&n| u64::try_from(n).unwrap_or(0));
        let (counted, overflows) = (counter("TcpExtListenDrops"), counter("TcpExtListenOverflows"));
        let link = &self.settings.lab.link;
        let unanswered = self.queue.opened.syns_unanswered;
        if link.loss == 0.0 && link.queue.is_none() && unanswered > counted {
            self.notes.warn(&Warning::WitnessDisagrees {
                what: "SYN without an answer".to_owned(),
                ours: unanswered,
                witness: counted,
            });
        }
        Some(DropBalance {
            syns_unanswered: unanswered,
            syns_dropped: overflows,
            syns_dropped_half_open: counted.checked_sub(overflows)?,
            counted,
            ..DropBalance::default()
        })
    }
}

/// Takes the drops of the only listener from its host's counter.
///
/// The kernel also counts each retransmitted SYN of an open request in the listener's own `sk_drops`:
/// it answers the SYN and discards it (`tcp_check_req()`, seen on Linux 6.18). With a peer that
/// retransmits SYNs all the time, that figure says nothing, nor does its course over time.
fn drops_of_the_only(listener: &mut ListenerQueue, arm: &Arm) {
    let counters = arm.server.as_ref().map(|server| &server.counters);
    let drops = counters.map(|counters| counters.get("TcpExtListenDrops").copied().unwrap_or(0));
    listener.drops = drops.and_then(|drops| u64::try_from(drops).ok());
    listener.dropped_so_far = None;
    (listener.slices, listener.dropping_slices) = (0, 0);
}
