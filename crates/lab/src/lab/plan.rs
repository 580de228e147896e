//! What a lab is to be: the link, the addresses, and which CPU each host is pinned to.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
pub use tcptoll_core::link::MTU;
pub use tcptoll_core::link::lab_network::{
    Addresses, DEVICE, SILENT_ADDRESSES, client_address, is_silent, silent_address,
};

/// Packets a device may hold, above the number of sockets that act at once: at 500, 20,000 sockets
/// probing once a second lost a third of their probes (Linux 6.18).
pub const DEVICE_QUEUE: u32 = 100_000;

/// Everything the lab process needs to know; handed over as JSON on its command line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The link, in the form `--link` takes.
    pub link: String,
    /// Use IPv6.
    pub ipv6: bool,
    /// Seed of loss and jitter.
    pub seed: u64,
    /// Relay over AF_PACKET even where `/dev/net/tun` can be opened.
    pub force_packet: bool,
    /// CPU of the client host.
    pub client_cpu: Option<u32>,
    /// CPU of the server host.
    pub server_cpu: Option<u32>,
    /// Further addresses of the client host.
    pub client_addresses: Vec<IpAddr>,
    /// Whether the server is to reach the addresses of [`silent_address`] over the link.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub silent_addresses: bool,
}
