//! What a pool of blocking workers did while its backend did not accept connections.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::record::merge::{Merge, parts, sum, summed};
use crate::stats::Series;

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
            backend_drops: crate::record::merge::sum_of_some(rounds, |round| round.backend_drops),
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
