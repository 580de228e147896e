//! What was observed of one host, and of the machine under both.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Passport;
use super::path::Background;

/// What one host was like during a trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostSummary {
    /// User and system time per operation, µs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_us_per_op: Option<f64>,
    /// User time per operation, µs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_user_us_per_op: Option<f64>,
    /// System time per operation, µs. On one kernel it holds softirq work of both sides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_system_us_per_op: Option<f64>,
    /// Largest resident memory of the process, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rss_peak_bytes: Option<u64>,
    /// Kernel counters of the host's namespace that changed, after less before.
    #[serde(default)]
    pub counters: BTreeMap<String, i64>,
    /// Socket counts of the namespace at the end (`TCP_tw`, `TCP_inuse` …).
    #[serde(default)]
    pub sockstat: BTreeMap<String, u64>,
    /// Sysctls asked for, as read back.
    #[serde(default)]
    pub sysctls: BTreeMap<String, String>,
    /// Listening sockets seen, with the peak of their queues.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<Listener>,
    /// TCP_INFO of some of the connections, names and units as in the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_info: Option<crate::tcp::tcp_info::PathSample>,
    /// Processes of a launched server at the end of the trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Memory of a launched server's processes at the end of the load, what they share counted
    /// once (PSS), bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// What a launched server says of its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// CPU the host was pinned to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned_cpu: Option<u32>,
    /// Its machine, where that is one of the user's, reached over ssh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passport: Option<Box<Passport>>,
    /// What else that machine did: its counters are not the run's alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<Box<Background>>,
}

impl HostSummary {
    /// How much a counter of the host's grew. None: others on that machine move it too.
    pub fn counter(&self, name: &str) -> Option<i64> {
        let left_out = self.background.as_ref().map_or(&[][..], |background| &background.left_out);
        let others = left_out.iter().any(|one| one == name);
        (!others).then(|| self.counters.get(name).copied().unwrap_or(0))
    }

    /// Whether nobody else was seen to open or accept connections there: then counters can be held against
    /// what the load counted itself.
    pub fn counts_alone(&self) -> bool {
        self.background.as_ref().is_none_or(|background| {
            background.connections_per_s == 0.0
                && background.during_load_per_s.is_none_or(|per_s| per_s == 0.0)
                && background.left_out.is_empty()
        })
    }
}

/// A listening socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Listener {
    /// Local address.
    pub address: String,
    /// Local port.
    pub port: u16,
    /// Largest accept queue seen.
    pub accept_queue_peak: u32,
    /// The effective backlog; the queue holds one more.
    pub accept_queue_limit: u32,
    /// Largest number in SYN-RECEIVED seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub syn_queue_peak: Option<u32>,
}

/// Softirq and stolen time of the whole machine during a trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Softirq {
    /// Softirq time per operation, µs, one element a CPU.
    pub per_cpu_us_per_op: Vec<f64>,
    /// All CPUs together, µs per operation.
    pub us_per_op: f64,
    /// Granularity of these figures, µs for the whole trial.
    pub resolution_us: f64,
}
