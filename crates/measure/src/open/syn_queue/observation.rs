//! From what the hosts and the link reported of `syn-queue` to the arm that is recorded.

use std::time::Duration;

use crate::open::syn_queue::HALF_OPEN_PEAK;
use tcptoll_core::experiment::figures::DROPS;
use tcptoll_core::record::{Arm, DropBalance, HalfOpenPeer, ListenerQueue, Own};
use tcptoll_core::verdict::warning::Warning;
use tcptoll_lab::messages::ConnectReport;

use super::trial::SynQueueTrial;
use crate::kit::procedure::LoadObservation;
use crate::open::queue_load::QueueLoad;
use crate::open::queues::balance_of;

/// A source that sends again within this keeps its request: the request's first timer runs for 1 s.
const KEPT_WITHIN: Duration = Duration::from_millis(900);

impl SynQueueTrial<'_> {
    pub(super) fn take_load(&mut self, report: &ConnectReport, seen: &LoadObservation<'_>) {
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
    pub(super) fn record_queues(&mut self) {
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
