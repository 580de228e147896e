//! What was observed of the hosts and of the machine under both, of the lab's link between them, and
//! of the path between two hosts of the user's, where the lab has a certificate of its link.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Passport;
use crate::stats::HistogramSummary;

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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// Samples of the accept queue from the first to the last that found a connection in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// Those of them that found it full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_samples: Option<u64>,
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

/// A link as it was asked for; see [`crate::link::LinkSpec`] for the meaning of each key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkAsked {
    /// The text that `--link` takes: a profile's name or `rtt=37ms,…`.
    pub spec: String,
    /// Round-trip time in µs; both directions together.
    pub rtt_us: f64,
    /// Width of the round-trip's random variation in µs, to each side.
    pub jitter_us: f64,
    /// Line rate in bit/s, each direction; absent: not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bit_per_s: Option<f64>,
    /// Probability that a packet is lost, each direction, 0 to 1.
    pub loss: f64,
    /// Queue limit in packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_packets: Option<u64>,
    /// Queue limit in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_bytes: Option<u64>,
}

/// What carried the packets between the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LinkKind {
    /// A veth pair: no program between the hosts.
    Direct,
    /// Both ends on 127.0.0.1 of one host.
    Loopback,
    /// Our link emulator between two TUN devices.
    EmulatedTun,
    /// Our link emulator between two AF_PACKET sockets, where `/dev/net/tun` cannot be opened.
    EmulatedPacket,
    /// The network as it is (`--to`).
    Network,
}

/// A link as the lab measured it before the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkMeasured {
    /// What carried the packets.
    pub kind: LinkKind,
    /// What was asked for.
    pub asked: LinkAsked,
    /// ICMP echo round trips before the run, µs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_us: Option<HistogramSummary>,
    /// Line rate at the receiver, client to server, bit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_client_to_server_bit_per_s: Option<f64>,
    /// Line rate at the receiver, server to client, bit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_server_to_client_bit_per_s: Option<f64>,
    /// Loss seen by the receivers of both directions together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<LossMeasured>,
    /// How late the link emulator released packets during the trial, µs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness_us: Option<HistogramSummary>,
    /// Packets lost by the lab itself (device or softnet queues), which nobody asked for.
    pub unwanted_drops: u64,
}

/// Loss counted by a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LossMeasured {
    /// Packets sent.
    pub sent: u64,
    /// Packets that did not arrive.
    pub lost: u64,
    /// Exact binomial 95 % interval of the loss probability (Clopper and Pearson).
    pub ci95: [f64; 2],
}

/// The path as it was before and after a load, and what the clocks of its ends are apart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Path {
    /// The client's host and the server's, as they were typed.
    #[serde(default)]
    pub hosts: [String; 2],
    /// Address that the client connected to.
    pub server_address: String,
    /// How the client's packets leave its host. Absent: its kernel did not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<Route>,
    /// Round trips of small UDP datagrams on the quiet path, µs; none came back: absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_us: Option<HistogramSummary>,
    /// Datagrams sent, and those that came back.
    pub datagrams: [u64; 2],
    /// The server's clock less the client's before the load, µs. Both are monotonic clocks, which begin when
    /// a machine starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_offset_us: Option<f64>,
    /// Its error is at most this, µs: half of the shortest round trip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_offset_bound_us: Option<f64>,
    /// How much faster the server's clock ran than the client's during the load, ppm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_drift_ppm: Option<f64>,
    /// Its error is at most this, ppm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_drift_bound_ppm: Option<f64>,
    /// Instants of the two hosts during the load compare within this, µs: no step between two hosts that
    /// takes less than three times as long is shown. Absent: the clocks could not be compared before and
    /// after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_bound_us: Option<f64>,
}

/// What a kernel says of the way to an address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Route {
    /// Network device that packets leave by.
    pub device: String,
    /// Router they are handed to. Absent: the address is on the device's own network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// Address they come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Longest IP packet that this kernel sends there, bytes; a router on the way may pass less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu_bytes: Option<u32>,
}

/// What else a machine did while nothing of the run was under way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Background {
    /// Length of the idle window before the load, s; there is another one after it.
    pub seconds: f64,
    /// Connections that others opened or accepted, per second.
    pub connections_per_s: f64,
    /// Connections during the load that the load did not open, per second: what the kernel counted beyond
    /// the load's own. Absent: the load does not count its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub during_load_per_s: Option<f64>,
    /// Counters that are not the load's own, so they are left out of the host's `counters`: each moved at
    /// least a hundredth as fast before the load or after it, or others opened a tenth of all connections during it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

/// A name of a server we do not control, resolved once for the whole run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Resolved {
    /// `host:port`, the host in lower case: `db.example:5432`.
    pub name: String,
    /// Every address, in the order of the resolver's answer; an IPv6 address may have a `%scope`.
    pub addresses: Vec<String>,
    /// The address that every trial connects to: the first IPv4 address, or else the first.
    pub used: String,
}
