//! A link as it was asked for, and as the lab measured it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::stats::HistogramSummary;

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
