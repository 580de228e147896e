//! What the queues of a server's listeners did and what its clients experienced, and what a pool of
//! blocking workers did while its backend did not accept connections.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::merge::{Merge, merged, parts, sum, sum_of_some, summed, summed_by_place};
use crate::stats::Series;

/// The queues of the server's listeners during a load, and the outcome of each connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Queues {
    /// The listeners, in the order in which they were made. The first is the one that is measured.
    pub listeners: Vec<ListenerQueue>,
    /// What clients were told, and when, by outcome: `ok`, `reset`, `connect-timeout` …
    pub outcomes: BTreeMap<String, Outcome>,
    /// Handshakes that waited for a retransmitted SYN, by step of the client's ladder.
    pub syn_ladder: RetryLadder,
    /// Connections whose first byte waited for a retransmitted SYN-ACK, by step of the server's
    /// ladder.
    pub syn_ack_ladder: RetryLadder,
    /// Drops that the steps imply, next to those that the kernel counted; absent where packets were
    /// lost on the link too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drops: Option<DropBalance>,
    /// The peer that never sends the last ACK; absent where there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_open_peer: Option<HalfOpenPeer>,
    /// Connections that were reset although their first SYN was answered, with the time from connect(2) to
    /// the reset; absent where there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset_at_once: Option<Outcome>,
    /// Mean time between two accept(2) of the measured listener while connections waited, µs; absent
    /// where too few waited to tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accept_interval_us: Option<f64>,
}

/// One listener and its queues.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ListenerQueue {
    /// Local address.
    pub address: String,
    /// Local port.
    pub port: u16,
    /// The effective backlog: the argument of listen(2) clamped to `net.core.somaxconn`. The queue
    /// holds one more.
    pub limit: u32,
    /// The longest accept queue seen.
    pub peak: u32,
    /// The largest number of half-open requests (SYN-RECEIVED) seen; absent if it was not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_open_peak: Option<u32>,
    /// Half-open requests beyond which the kernel drops SYNs or sends cookies, from its settings;
    /// absent where they are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_open_limit: Option<u32>,
    /// SYNs and ACKs that the kernel dropped at this listener; absent where the kernel does not report
    /// it (`sk_drops`). It is exact unless `drops_at_most` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drops: Option<u64>,
    /// Whether `drops` is an upper bound. `sk_drops` counts a dropped last ACK twice (Linux 6.18). Where
    /// several listeners dropped packets, `TcpExtListenDrops` of the host does not tell whose they were.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drops_at_most: bool,
    /// Samples of the queue's length until it last held a connection or dropped one (all samples where
    /// it never did), and those in which it held `limit` + 1.
    pub samples: u64,
    /// See `samples`.
    pub full_samples: u64,
    /// Slices of 100 ms in the same time, and those in which the kernel dropped something here.
    pub slices: u64,
    /// See `slices`.
    pub dropping_slices: u64,
    /// Length of the accept queue over time.
    #[serde(default)]
    pub length: Series,
    /// Half-open requests over time; absent if they were not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_open: Option<Series>,
    /// Packets dropped since the beginning, over time; absent where `drops` is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped_so_far: Option<Series>,
}

/// Connections of one outcome.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Outcome {
    /// Connections.
    pub count: u64,
    /// From connect(2) to the outcome, µs: the least.
    pub min_us: f64,
    /// The median.
    pub p50_us: f64,
    /// The greatest.
    pub max_us: f64,
}

/// A ladder of retransmissions, and connections by the step at which they went on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RetryLadder {
    /// Time of each retransmission after the first packet, s, from the host's own sysctls.
    pub at_s: Vec<f64>,
    /// Connections that went on with this retransmission, by step.
    pub connections: Vec<u64>,
    /// Connections that waited as if for a step, and are at none.
    pub off: u64,
}

/// Retransmissions imply drops. These are both, counted apart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DropBalance {
    /// SYNs that got no answer, from `tcpi_total_retrans` of each connection of the client.
    pub syns_unanswered: u64,
    /// SYNs that the server's kernel dropped because its accept queue was full:
    /// `TcpExtListenOverflows` less the ACKs below.
    pub syns_dropped: u64,
    /// SYNs that the server's kernel dropped because its SYN queue was full, or three quarters full
    /// without cookies: `TcpExtListenDrops` less `TcpExtListenOverflows`. `TcpExtTCPReqQFullDrop` has
    /// the former alone.
    pub syns_dropped_half_open: u64,
    /// Final ACKs of half-open requests that met a full accept queue. A request's later ACKs, in answer
    /// to retransmitted SYN-ACKs, count as well.
    ///
    /// With those of cookies they are the ACKs that opened nothing: handshakes that the client's kernel
    /// completed, and retransmitted SYN-ACKs that it acknowledged (its `TcpExtTCPSYNChallenge`), less
    /// `TcpPassiveOpens` of the server.
    pub acks_dropped: u64,
    /// ACKs of SYN cookies that met a full accept queue: `TcpExtSyncookiesRecv` less the connections that
    /// cookies opened.
    pub cookie_acks_refused: u64,
    /// Resets from the server: on the wire where it was watched, else half-open requests that
    /// `tcp_abort_on_overflow` ended (`TcpExtEmbryonicRsts`).
    pub resets_sent: u64,
    /// All that the kernel counted: `TcpExtListenDrops`.
    pub counted: u64,
}

/// The peer that fills the SYN queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HalfOpenPeer {
    /// SYNs sent.
    pub syns_sent: u64,
    /// Source addresses.
    pub addresses: u64,
    /// Sources, each an address and a port: half-open requests that it kept, if the server held them.
    #[serde(default)]
    pub sources: u64,
    /// SYNs per second while the load ran.
    pub per_s: f64,
}

impl ListenerQueue {
    /// Whether the queue held as much as it can.
    pub fn was_full(&self) -> bool {
        self.peak > self.limit
    }

    /// Share of the samples in which the queue was full. None: there are no samples.
    pub fn full_share(&self) -> Option<f64> {
        (self.samples > 0).then(|| self.full_samples as f64 / self.samples as f64)
    }

    /// Share of the slices of time with drops. None: there are none.
    pub fn dropping_share(&self) -> Option<f64> {
        (self.slices > 0).then(|| self.dropping_slices as f64 / self.slices as f64)
    }
}

impl Merge for Queues {
    /// Counts are added; series are those of the first round.
    fn merge(rounds: &[&Self]) -> Option<Self> {
        let first = *rounds.first()?;
        let listener = |at: usize| {
            let same: Vec<&ListenerQueue> =
                rounds.iter().filter_map(|round| round.listeners.get(at)).collect();
            ListenerQueue::merge(&same)
        };
        let mut outcomes: BTreeMap<String, Vec<&Outcome>> = BTreeMap::new();
        for (name, outcome) in rounds.iter().flat_map(|round| &round.outcomes) {
            outcomes.entry(name.clone()).or_default().push(outcome);
        }
        Some(Self {
            listeners: (0..first.listeners.len()).filter_map(listener).collect(),
            outcomes: outcomes
                .into_iter()
                .filter_map(|(name, all)| Some((name, Outcome::merge(&all)?)))
                .collect(),
            syn_ladder: RetryLadder::merge(&parts(rounds, |round| &round.syn_ladder))?,
            syn_ack_ladder: RetryLadder::merge(&parts(rounds, |round| &round.syn_ack_ladder))?,
            drops: merged(rounds, |round| round.drops.as_ref()),
            half_open_peer: merged(rounds, |round| round.half_open_peer.as_ref()),
            reset_at_once: merged(rounds, |round| round.reset_at_once.as_ref()),
            accept_interval_us: mean(rounds.iter().filter_map(|round| round.accept_interval_us)),
        })
    }
}

/// None: there are no values.
fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let all: Vec<f64> = values.collect();
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}

impl Merge for ListenerQueue {
    fn merge(rounds: &[&Self]) -> Option<Self> {
        let first = *rounds.first()?;
        let count = |value: fn(&Self) -> u64| sum(rounds.iter().map(|round| value(round)));
        Some(Self {
            peak: rounds.iter().map(|round| round.peak).max()?,
            half_open_peak: rounds.iter().filter_map(|round| round.half_open_peak).max(),
            drops: sum_of_some(rounds, |round| round.drops),
            drops_at_most: rounds.iter().any(|round| round.drops_at_most),
            samples: count(|round| round.samples),
            full_samples: count(|round| round.full_samples),
            slices: count(|round| round.slices),
            dropping_slices: count(|round| round.dropping_slices),
            ..first.clone()
        })
    }
}

impl Merge for Outcome {
    /// The median of all is the mean of the rounds' medians, weighted by count.
    fn merge(rounds: &[&Self]) -> Option<Self> {
        let count = sum(rounds.iter().map(|round| round.count));
        let weighted: f64 = rounds.iter().map(|round| round.p50_us * round.count as f64).sum();
        (count > 0).then(|| Self {
            count,
            min_us: rounds.iter().map(|round| round.min_us).fold(f64::INFINITY, f64::min),
            p50_us: weighted / count as f64,
            max_us: rounds.iter().map(|round| round.max_us).fold(0.0, f64::max),
        })
    }
}

impl Merge for RetryLadder {
    fn merge(rounds: &[&Self]) -> Option<Self> {
        let first = *rounds.first()?;
        Some(Self {
            at_s: first.at_s.clone(),
            connections: summed_by_place(&parts(rounds, |round| &round.connections)),
            off: sum(rounds.iter().map(|round| round.off)),
        })
    }
}

impl Merge for DropBalance {
    fn merge(rounds: &[&Self]) -> Option<Self> {
        let count = |value: fn(&Self) -> u64| sum(rounds.iter().map(|round| value(round)));
        (!rounds.is_empty()).then(|| Self {
            syns_unanswered: count(|round| round.syns_unanswered),
            syns_dropped: count(|round| round.syns_dropped),
            syns_dropped_half_open: count(|round| round.syns_dropped_half_open),
            acks_dropped: count(|round| round.acks_dropped),
            cookie_acks_refused: count(|round| round.cookie_acks_refused),
            resets_sent: count(|round| round.resets_sent),
            counted: count(|round| round.counted),
        })
    }
}

impl Merge for HalfOpenPeer {
    fn merge(rounds: &[&Self]) -> Option<Self> {
        let first = *rounds.first()?;
        Some(Self {
            syns_sent: sum(rounds.iter().map(|round| round.syns_sent)),
            per_s: rounds.iter().map(|round| round.per_s).sum::<f64>() / rounds.len() as f64,
            ..first.clone()
        })
    }
}

/// A front service with a fixed number of blocking workers, and its backend.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerPool {
    /// Workers.
    pub workers: u64,
    /// The front service: `php-fpm`, `workers`.
    pub front: String,
    /// The backend: `redis`, `mariadb`.
    pub backend: String,
    /// When the backend stopped accepting and answering, s after the load began, and when it went
    /// on; absent where it never stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalled_s: Option<[f64; 2]>,
    /// Requests by what they need: `backend`, `local`.
    pub groups: BTreeMap<String, RequestGroup>,
    /// Workers busy with a request, over time, from the front service's own status page.
    #[serde(default)]
    pub busy: Series,
    /// Requests that waited for a worker, over time, from the same page.
    #[serde(default)]
    pub waiting: Series,
    /// Connections in the backend's accept queue, over time.
    #[serde(default)]
    pub backend_queue: Series,
    /// Effective backlog of the backend's listener; its queue holds one more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend_limit: Option<u32>,
    /// SYNs and ACKs that the kernel dropped at the backend's listener.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend_drops: Option<u64>,
    /// Busy workers, mean over the steady part of the stall; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stuck_measured: Option<f64>,
    /// The same from arithmetic: arrivals that need the backend, multiplied by how long each waits, at
    /// most the number of workers; absent where the settings do not say how long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stuck_expected: Option<f64>,
    /// The same, and in addition the workers that requests hold while they are served: all requests
    /// per second, multiplied by the mean latency of requests without the backend in the steady part.
    /// That is an upper limit, because latency has waiting outside of workers in it. Absent where no
    /// worker was free at some moment, or nothing was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stuck_expected_max: Option<f64>,
    /// The steady part of the stall, over which both are taken, s after the load began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steady_s: Option<[f64; 2]>,
    /// Time limit of connecting to the backend, s; absent: the kernel's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connect_timeout_s: Option<f64>,
    /// From arithmetic: the time for which a call that meets the backend's full queue holds its
    /// worker, s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_expected_s: Option<f64>,
    /// From arithmetic: the longest time that a request without the backend waits for a worker, s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_wait_expected_s: Option<f64>,
    /// From the end of the stall until requests that need no backend were as fast as before it, s;
    /// absent where they never were, or never slowed down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery_s: Option<f64>,
}

/// Requests of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RequestGroup {
    /// Requests due.
    pub attempts: u64,
    /// Requests that were answered with success.
    pub ok: u64,
    /// Requests that failed, by class.
    pub errors: BTreeMap<String, u64>,
    /// Successes per second over time.
    #[serde(default)]
    pub rate_per_s: Series,
    /// Latency of successes from when each was due, over time, µs.
    #[serde(default)]
    pub latency_us: Series,
}

impl Merge for WorkerPool {
    /// Counts are added, means are means; series are those of the first round.
    fn merge(rounds: &[&Self]) -> Option<Self> {
        let first = *rounds.first()?;
        let mean = |value: fn(&Self) -> Option<f64>| {
            let all: Vec<f64> = rounds.iter().filter_map(|round| value(round)).collect();
            (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
        };
        let mut groups: BTreeMap<String, Vec<&RequestGroup>> = BTreeMap::new();
        for (name, group) in rounds.iter().flat_map(|round| &round.groups) {
            groups.entry(name.clone()).or_default().push(group);
        }
        Some(Self {
            groups: groups
                .into_iter()
                .filter_map(|(name, all)| Some((name, RequestGroup::merge(&all)?)))
                .collect(),
            backend_drops: sum_of_some(rounds, |round| round.backend_drops),
            stuck_measured: mean(|round| round.stuck_measured),
            stuck_expected: mean(|round| round.stuck_expected),
            stuck_expected_max: mean(|round| round.stuck_expected_max),
            recovery_s: mean(|round| round.recovery_s),
            ..first.clone()
        })
    }
}

impl Merge for RequestGroup {
    fn merge(rounds: &[&Self]) -> Option<Self> {
        let first = *rounds.first()?;
        Some(Self {
            attempts: sum(rounds.iter().map(|round| round.attempts)),
            ok: sum(rounds.iter().map(|round| round.ok)),
            errors: summed(&parts(rounds, |round| &round.errors)),
            ..first.clone()
        })
    }
}
