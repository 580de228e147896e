//! From what client, server and link report of a load to the record of its queues.
//!
//! The client's evidence says which connections waited for which retransmission, the server's observer how
//! long each queue was, the kernels' counters which packets were dropped. This file puts them together, and
//! notes where figures that must be equal are not.
//!
//! Drops belong to a listener by its own count (`sk_drops` by `sock_diag`), because `/proc/net/netstat` has
//! one count for a whole namespace. On Linux 6.18 `sk_drops` counts a dropped last ACK twice, and a
//! retransmitted SYN of an open request although it is answered. So where one listener dropped, the host's
//! `TcpExtListenDrops` decides. Several listeners have exact figures only if their `sk_drops` add up to
//! `TcpExtListenDrops`; otherwise each figure is an upper bound, and marked as one (`drops_at_most`).

use std::net::SocketAddr;
use std::time::Duration;
use tcptoll_core::units::ns;

use tcptoll_core::experiment::figures::{FAILED_SHARE, FAILURE};
use tcptoll_core::link::LinkSpec;
use tcptoll_core::record::{DropBalance, ListenerQueue, Queues, RetryLadder};
use tcptoll_core::tcp::syn::HalfOpenSettings;
use tcptoll_core::verdict::drops::{Counted, Doubt, balance};
use tcptoll_core::verdict::warning::Warning;
use tcptoll_lab::lab::{Begun, Handle, Hosts, LabError};
use tcptoll_lab::messages::{ConnectLoad, ConnectReport, Greet, GreetReport, Opened, WatchQueues};

use crate::kit::TrialError;
use crate::kit::hosts::{ladder_of, read_sysctls, syn_ack_ladder_of};
use crate::kit::notes::Notes;
use crate::kit::opening::{
    Flow, LADDER_SLACK, Trace, begin_greeting, end_greeting, recorded_queues, take_opened,
};
use crate::kit::procedure::LoadObservation;

/// A SYN that is answered later than this is retransmitted, although nobody dropped it.
const ANSWERED_WITHIN: Duration = Duration::from_millis(900);

/// The retry ladders of both hosts.
#[derive(Clone, Debug, Default)]
struct Ladders {
    /// Of the client's SYNs.
    pub(crate) syn: Vec<Duration>,
    /// Of the server's SYN-ACKs.
    syn_ack: Vec<Duration>,
}

/// What the client's kernel knows, on both ladders, with the server's queues.
fn queues_of(
    opened: &Opened,
    ladders: &Ladders,
    listeners: Vec<ListenerQueue>,
    accept_intervals: (u64, u64),
) -> Queues {
    let ladder = |at: &[Duration], connections: &[u64], off| RetryLadder {
        at_s: at.iter().map(Duration::as_secs_f64).collect(),
        connections: connections.to_vec(),
        off,
    };
    let (number, sum_ns) = accept_intervals;
    Queues {
        listeners,
        outcomes: opened.outcomes.clone(),
        syn_ladder: ladder(&ladders.syn, &opened.syn_steps, opened.syn_off),
        syn_ack_ladder: ladder(&ladders.syn_ack, &opened.syn_ack_steps, opened.syn_ack_off),
        accept_interval_us: (number > 0).then(|| sum_ns as f64 / 1e3 / number as f64),
        reset_at_once: opened.reset_at_once.clone(),
        ..Queues::default()
    }
}

/// Fills in how many half-open requests each listener holds, from this host's settings.
fn limit_half_open(host: &mut Handle, listeners: &mut [ListenerQueue]) -> Result<(), LabError> {
    const BACKLOG: &str = "net.ipv4.tcp_max_syn_backlog";
    const COOKIES: &str = "net.ipv4.tcp_syncookies";
    let got = read_sysctls(host, &[BACKLOG, COOKIES])?;
    let number = |name: &str| got.get(name).and_then(|text| text.parse().ok());
    // A kernel without cookies does not have that sysctl.
    let (max_syn_backlog, syncookies) = (number(BACKLOG), number(COOKIES).unwrap_or(0));
    for listener in listeners {
        listener.half_open_limit = max_syn_backlog.map(|max_syn_backlog| {
            HalfOpenSettings { backlog: listener.limit, max_syn_backlog, syncookies }.holds()
        });
    }
    Ok(())
}

/// The drops of a trial whose counters and wire have been taken, by kind; absent where retransmissions
/// have other reasons too, and where others use the machines. Figures that must be equal and are not become warnings.
///
/// `aborts`: `tcp_abort_on_overflow` is on. The load's clients are the only ones that connect.
pub(super) fn balance_of(
    notes: &mut Notes,
    link: &LinkSpec,
    opened: &Opened,
    listeners: &mut [ListenerQueue],
    aborts: bool,
) -> Option<DropBalance> {
    let arm = &notes.arm;
    let server = arm.server.as_ref()?;
    if !(arm.client.counts_alone() && server.counts_alone()) {
        // Each listener's own count stays, in which some packets are counted twice.
        for listener in listeners {
            listener.drops_at_most = listener.drops.is_some_and(|drops| drops > 0);
        }
        return None;
    }
    let by_sockets: Option<u64> = listeners.iter().map(|listener| listener.drops).sum();
    let dropped = server.counters.get("TcpExtListenDrops").copied().unwrap_or(0);
    attribute(listeners, u64::try_from(dropped).unwrap_or(0));
    let lossy = link.loss > 0.0 || link.queue.is_some();
    let late = link.rtt + link.jitter * 2 >= ANSWERED_WITHIN;
    let lost = arm.link.as_ref().is_some_and(|link| link.unwanted_drops > 0)
        || arm.wire.as_ref().is_some_and(|wire| wire.lost_on_purpose + wire.queue_drops > 0);
    if lossy || late || lost || arm.partial || opened.unknown > 0 {
        return None;
    }
    let counter = |counters: &std::collections::BTreeMap<String, i64>, name: &str| {
        counters.get(name).map_or(0, |&value| u64::try_from(value).unwrap_or(0))
    };
    let (at_client, at_server) = (
        |name: &str| counter(&arm.client.counters, name),
        |name: &str| counter(&server.counters, name),
    );
    let counted = Counted {
        syns_unanswered: opened.syns_unanswered,
        established: opened.established,
        unfinished: arm.attempts.saturating_sub(opened.established),
        syn_acks_again: at_client("TcpExtTCPSYNChallenge"),
        opened: at_server("TcpPassiveOpens"),
        overflows: at_server("TcpExtListenOverflows"),
        drops: at_server("TcpExtListenDrops"),
        cookies_sent: at_server("TcpExtSyncookiesSent"),
        cookies_received: at_server("TcpExtSyncookiesRecv"),
        requests_reset: at_server("TcpExtEmbryonicRsts"),
        resets_on_wire: arm
            .wire
            .as_ref()
            .filter(|wire| wire.tap_drops == 0)
            .map(|wire| wire.server_to_client.rst),
        aborts,
    };
    let (drops, mut doubts) = balance(&counted);
    let expected = drops.as_ref().and_then(|drops| counted.by_sockets(drops));
    if let (Some(expected), Some(by_sockets)) = (expected, by_sockets) {
        // A retransmitted SYN of an open request counts too, although it is answered.
        if by_sockets < expected {
            doubts.push(Doubt {
                what: "packet dropped at the listeners",
                ours: by_sockets,
                witness: expected,
            });
        }
    }
    for doubt in doubts {
        notes.warn(&Warning::WitnessDisagrees {
            what: doubt.what.to_owned(),
            ours: doubt.ours,
            witness: doubt.witness,
        });
    }
    drops
}

/// Corrects each listener's drops by the host's own count. `sk_drops` counts some packets twice, and some
/// that were answered.
///
/// The drops of a single listener are the host's. With several, the sum shows whether any packet was
/// counted twice: if it is the host's count, each figure is exact. Otherwise each is an upper bound.
fn attribute(listeners: &mut [ListenerQueue], counted: u64) {
    let suspects = listeners.iter().filter(|one| one.drops.is_some_and(|drops| drops > 0)).count();
    let by_sockets: u64 = listeners.iter().filter_map(|one| one.drops).sum();
    for listener in listeners.iter_mut().filter(|one| one.drops.is_some_and(|drops| drops > 0)) {
        if counted == 0 {
            listener.drops = Some(0);
            listener.dropping_slices = 0;
            listener.dropped_so_far = None;
        } else if suspects == 1 {
            listener.drops = Some(counted);
        } else {
            listener.drops_at_most = by_sockets != counted;
        }
    }
}

/// One look at the queues of this number counts half-open requests too: every 50 ms, for 1 % of a CPU.
const HALF_OPEN_EVERY: u32 = 5;

/// Our own server while it runs, and what its host and its clients report of the queues.
#[derive(Default)]
pub(super) struct QueueLoad {
    ladders: Ladders,
    server: Option<Begun<Greet>>,
    /// Addresses of its listeners, the measured one first.
    listening: Vec<SocketAddr>,
    /// What the server reports at its end.
    pub(crate) greeted: GreetReport,
    /// The queues of its listeners, the measured one first.
    pub(crate) listeners: Vec<ListenerQueue>,
    /// What the client's kernel knows.
    pub(crate) opened: Opened,
}

impl QueueLoad {
    /// Reads the retry ladders of both hosts.
    pub(crate) fn prepare(&mut self, hosts: &mut Hosts) -> Result<(), TrialError> {
        self.ladders = Ladders {
            syn: ladder_of(&mut hosts.client)?,
            syn_ack: syn_ack_ladder_of(hosts.server()?)?,
        };
        Ok(())
    }

    /// Starts the server. Its host records the queues from before the first listener on.
    pub(crate) fn listen(&mut self, hosts: &mut Hosts, greet: &Greet) -> Result<(), TrialError> {
        hosts.server()?.ask(&WatchQueues { half_open_every: HALF_OPEN_EVERY })?;
        let (server, listening) = begin_greeting(hosts, greet)?;
        (self.server, self.listening) = (Some(server), listening);
        Ok(())
    }

    /// The address of the measured listener.
    pub(crate) fn target(&self) -> Result<SocketAddr, TrialError> {
        measured(&self.listening)
    }

    /// The addresses of all other listeners.
    pub(crate) fn further(&self) -> &[SocketAddr] {
        self.listening.get(1..).unwrap_or_default()
    }

    /// Connections to the measured listener, from the sources of the trial over a link of this round
    /// trip. The client reports its kernel's evidence of retransmissions on both ladders.
    pub(crate) fn order(
        &self,
        count: u64,
        notes: &Notes,
        rtt: Duration,
    ) -> Result<ConnectLoad, TrialError> {
        let rungs = |ladder: &[Duration]| ladder.iter().copied().map(ns).collect();
        Ok(ConnectLoad {
            bind: notes.sources.clone(),
            ladder_ns: rungs(&self.ladders.syn),
            ladder_slack_ns: ns(LADDER_SLACK + rtt),
            evidence: true,
            syn_ack_ladder_ns: rungs(&self.ladders.syn_ack),
            ..ConnectLoad::to(self.target()?, count)
        })
    }

    /// Ends the server, and takes what its host recorded of the queues.
    pub(crate) fn end(&mut self, hosts: &mut Hosts) -> Result<(), TrialError> {
        let Some(greeting) = self.server.take() else { return Ok(()) };
        let host = hosts.server()?;
        self.greeted = end_greeting(host, greeting, &mut Trace::default())?;
        self.listeners = recorded_queues(host, &self.listening)?;
        Ok(limit_half_open(host, &mut self.listeners)?)
    }

    /// Notes what every load on a queue has: what [`take_opened`] notes, CPU and memory of both hosts,
    /// and failures.
    pub(crate) fn take(
        &mut self,
        notes: &mut Notes,
        report: &ConnectReport,
        flow: Flow,
        seen: &LoadObservation<'_>,
    ) {
        take_opened(notes, report, &self.ladders.syn, flow);
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
        self.opened = report.opened.clone().unwrap_or_default();
        notes.histogram(&FAILURE, &self.opened.failure);
    }

    /// What is recorded of the queues, without the drops.
    pub(crate) fn recorded(&mut self) -> Queues {
        let listeners = std::mem::take(&mut self.listeners);
        queues_of(&self.opened, &self.ladders, listeners, self.greeted.accept_intervals)
    }
}

/// The measured one of a server's listeners: the first.
///
/// Errors: it has none.
pub(crate) fn measured(listening: &[SocketAddr]) -> Result<SocketAddr, TrialError> {
    let no_listener =
        || TrialError::Lab(LabError::Refused("the server host reported no listener".to_owned()));
    listening.first().copied().ok_or_else(no_listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The drops of each listener after they were corrected, and which are upper bounds.
    fn attributed(by_sockets: [u64; 3], counted: u64) -> Vec<(Option<u64>, bool)> {
        let queue = |drops| ListenerQueue { drops: Some(drops), ..ListenerQueue::default() };
        let mut listeners = by_sockets.map(queue);
        attribute(&mut listeners, counted);
        listeners.iter().map(|one| (one.drops, one.drops_at_most)).collect()
    }

    #[test]
    fn drops_of_a_single_listener_are_those_that_the_host_counted() {
        let none = (Some(0), false);
        assert_eq!(attributed([0, 30, 0], 20), [none, (Some(20), false), none]);
        assert_eq!(attributed([0, 30, 4], 0), [none; 3]);
    }

    #[test]
    fn drops_of_several_listeners_are_exact_or_upper_bounds() {
        let exact = [(Some(0), false), (Some(30), false), (Some(4), false)];
        assert_eq!(attributed([0, 30, 4], 34), exact);
        let bounds = [(Some(0), false), (Some(30), true), (Some(4), true)];
        assert_eq!(attributed([0, 30, 4], 25), bounds);
    }
}
