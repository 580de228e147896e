//! What the client's kernel knows of connections that were slow or failed.
//!
//! The time that a handshake took only suggests how often its SYN was sent. `TCP_INFO` says it: a
//! connection's SYNs are the only packets that it ever retransmits here, and the segments that it received
//! beyond one SYN-ACK and one byte are SYN-ACKs that the server's kernel retransmitted (seen on Linux 6.18,
//! with a server that sends one byte and a client that sends none). So the steps of the retry ladders come
//! from each connection's `TCP_INFO`, and not from its latency alone.
//!
//! Connections that failed are closed with a RST instead of a FIN. A FIN would be retransmitted, and each
//! copy that meets the listener counts there as one more ACK for a full queue.

use std::time::Duration;

use tcptoll_core::record::Outcome;
use tcptoll_core::stats::Histogram;
use tcptoll_core::tcp::syn::on_ladder;
use tcptoll_core::tcp::tcp_info::{PathSample, TcpInfo};
use tcptoll_kernel::socket::{Tcp, reset_when_closed};

use crate::messages::{ConnectLoad, Opened};

/// One connection of the load.
pub(super) struct Operation {
    pub(super) socket: Tcp,
    /// Before its socket was made.
    pub(super) begun_ns: u64,
    pub(super) due_ns: u64,
    pub(super) called_ns: u64,
    pub(super) established_ns: Option<u64>,
    /// Whether the request has left.
    pub(super) sent: bool,
    /// Whether it has succeeded, and the server is yet to close it.
    pub(super) is_closing: bool,
}

/// Collects it, connection by connection.
pub(super) struct Evidence {
    opened: Opened,
    /// From connect(2) to the outcome.
    outcomes: Vec<(&'static str, Histogram)>,
    reset_at_once: Histogram,
    ladder: Vec<Duration>,
    slack: Duration,
    syn_ack_ladder: Vec<Duration>,
}

impl Evidence {
    /// Of a load that asks for it.
    pub(super) fn for_load(load: &ConnectLoad) -> Option<Self> {
        let times = |ns: &[u64]| ns.iter().copied().map(Duration::from_nanos).collect::<Vec<_>>();
        load.evidence.then(|| Self {
            opened: Opened {
                syn_steps: vec![0; load.ladder_ns.len()],
                syn_ack_steps: vec![0; load.syn_ack_ladder_ns.len()],
                ..Opened::default()
            },
            outcomes: Vec::new(),
            reset_at_once: Histogram::new(),
            ladder: times(&load.ladder_ns),
            slack: Duration::from_nanos(load.ladder_slack_ns),
            syn_ack_ladder: times(&load.syn_ack_ladder_ns),
        })
    }

    /// Takes an operation at its end, before its socket is closed. `failed`: its class of error.
    pub(super) fn take(&mut self, operation: &Operation, failed: Option<&'static str>, now: u64) {
        let since = |from: u64, to: u64| Duration::from_nanos(to.saturating_sub(from));
        self.outcome(failed.unwrap_or("ok"), now.saturating_sub(operation.called_ns));
        if failed.is_some() {
            self.opened.failure.record_ns(now.saturating_sub(operation.due_ns));
            // Without effect on a socket that the kernel has closed already.
            let _ = reset_when_closed(&operation.socket);
        }
        // In SYN-SENT the kernel says ECONNREFUSED of a RST: a reset connection was established, if
        // only between two looks.
        let established = operation.established_ns.is_some() || failed == Some("reset");
        self.opened.established += u64::from(established);
        let half = |ladder: &[Duration]| ladder.first().map_or(Duration::MAX, |first| *first / 2);
        let handshake = operation.established_ns.map(|at| since(operation.called_ns, at));
        let waited = operation.established_ns.map(|at| since(at, now));
        let slow = handshake.is_some_and(|took| took >= half(&self.ladder))
            || waited.is_some_and(|took| took >= half(&self.syn_ack_ladder));
        if !slow && failed.is_none() {
            return;
        }
        let info = operation.socket.tcp_info().ok();
        let Some(TcpInfo::Connection(info)) = info.as_deref().and_then(TcpInfo::decode) else {
            self.opened.unknown += 1;
            return;
        };
        let again = u64::from(info.total_retrans_segments);
        // Of a connection that gave up in SYN-SENT, the last SYN was not answered either.
        let silent = !established && matches!(failed, Some("connect-timeout" | "interrupted"));
        self.opened.syns_unanswered += again + u64::from(silent);
        if failed == Some("reset") && again == 0 {
            self.reset_at_once.record_ns(now.saturating_sub(operation.called_ns));
        }
        if let Some(handshake) = handshake {
            self.syn_step(again, handshake);
        }
        if let (Some(waited), None) = (waited, failed) {
            self.syn_ack_step(&info, waited);
        }
    }

    /// A socket that was not made, or a handshake that was not begun.
    pub(super) fn refused(&mut self, class: &'static str) {
        self.outcome(class, 0);
        self.opened.failure.record_ns(0);
    }

    fn outcome(&mut self, name: &'static str, took_ns: u64) {
        if let Some((_, times)) = self.outcomes.iter_mut().find(|(outcome, _)| *outcome == name) {
            times.record_ns(took_ns);
        } else {
            let mut times = Histogram::new();
            times.record_ns(took_ns);
            self.outcomes.push((name, times));
        }
    }

    /// A handshake that took long stands on the step of its retransmissions, or on none.
    fn syn_step(&mut self, again: u64, handshake: Duration) {
        let by_count = again.checked_sub(1).and_then(|step| usize::try_from(step).ok());
        let by_time = on_ladder(handshake, &self.ladder, self.slack);
        let slow = self.ladder.first().is_some_and(|first| handshake >= *first / 2);
        match by_count.and_then(|step| self.opened.syn_steps.get_mut(step)) {
            Some(connections) if by_time == by_count => *connections += 1,
            None if again == 0 && !slow => {}
            _ => self.opened.syn_off += 1,
        }
    }

    /// The first byte came after this number of retransmitted SYN-ACKs; waiting in the accept queue
    /// comes on top of a step.
    fn syn_ack_step(&mut self, info: &PathSample, waited: Duration) {
        let (Some(segments), Some(bytes)) = (info.segs_in, info.bytes_received) else { return };
        let beyond = u64::from(segments).saturating_sub(1 + u64::from(bytes > 0));
        let Some(step) = beyond.checked_sub(1).and_then(|step| usize::try_from(step).ok()) else {
            return;
        };
        let at = self.syn_ack_ladder.get(step);
        match self.opened.syn_ack_steps.get_mut(step) {
            Some(connections) if at.is_some_and(|at| waited >= *at) => *connections += 1,
            _ => self.opened.syn_ack_off += 1,
        }
    }

    /// What was collected.
    pub(super) fn end(mut self) -> Opened {
        for (name, times) in &self.outcomes {
            let outcome = outcome_of(times);
            self.opened.outcomes.extend(outcome.map(|outcome| ((*name).to_owned(), outcome)));
        }
        self.opened.reset_at_once = outcome_of(&self.reset_at_once);
        self.opened
    }
}

/// None: there are no times.
fn outcome_of(times: &Histogram) -> Option<Outcome> {
    let us = |ns: u64| ns as f64 / 1e3;
    Some(Outcome {
        count: times.count(),
        min_us: us(times.min_ns()?),
        p50_us: us(times.quantile_ns(1, 2)?),
        max_us: us(times.max_ns()?),
    })
}
