//! A load on our own server whose queues are recorded: what the trials of queues share.
//!
//! Order of use: [`QueueLoad::prepare`], [`QueueLoad::listen`], [`QueueLoad::order`] for the load,
//! [`QueueLoad::end`], [`QueueLoad::take`], [`QueueLoad::recorded`]. Experiments choose the server and
//! the load, and attribute the drops.

use std::net::SocketAddr;
use std::time::Duration;

use tcptoll_core::experiment::figures::{FAILED_SHARE, FAILURE};
use tcptoll_core::record::{ListenerQueue, Queues};
use tcptoll_lab::lab::{Begun, Hosts, LabError};
use tcptoll_lab::messages::{ConnectLoad, ConnectReport, Greet, GreetReport, Opened, WatchQueues};

use super::queues::{Ladders, limit_half_open, queues_of};
use crate::kit::hosts::{ladder_of, syn_ack_ladder_of};
use crate::kit::notes::Notes;
use crate::kit::opening::{
    Flow, LADDER_SLACK, Trace, begin_greeting, end_greeting, recorded_queues, take_opened,
};
use crate::kit::plan::TrialError;
use crate::kit::procedure::LoadObservation;

/// One look at the queues of this number counts half-open requests too: every 50 ms, for 1 % of a CPU.
const HALF_OPEN_EVERY: u32 = 5;

/// Our own server while it runs, and what its host and its clients report of the queues.
#[derive(Default)]
pub(crate) struct QueueLoad {
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

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
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
