//! What a lab is to be: the link, the addresses, and which CPU each host is pinned to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};
pub use tcptoll_model::link::MTU;

/// Name of the device on both hosts.
pub const DEVICE: &str = "link0";

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
    #[serde(default)]
    pub silent_addresses: bool,
}

/// Addresses of the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The client host's.
    pub client: IpAddr,
    /// The server host's.
    pub server: IpAddr,
    /// Length of their common prefix.
    pub prefix: u8,
}

impl Addresses {
    /// Outside 127/8, because the kernel treats loopback kinder (`tcp_tw_reuse=2`, MTU 65536);
    /// on the loopback place both are the loopback address.
    pub fn of(loopback: bool, ipv6: bool) -> Self {
        let (client, server, prefix): (IpAddr, IpAddr, u8) = match (loopback, ipv6) {
            (true, false) => (Ipv4Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into(), 8),
            (true, true) => (Ipv6Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into(), 128),
            (false, false) => {
                (Ipv4Addr::new(10, 77, 0, 1).into(), Ipv4Addr::new(10, 77, 0, 2).into(), 24)
            }
            (false, true) => {
                let host = |n| Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, n);
                (host(1).into(), host(2).into(), 64)
            }
        };
        Self { client, server, prefix }
    }

    /// What commands on either host find in their environment.
    pub fn variables(self) -> Vec<(String, String)> {
        vec![
            ("TCPTOLL_CLIENT".to_owned(), self.client.to_string()),
            ("TCPTOLL_SERVER".to_owned(), self.server.to_string()),
        ]
    }
}

/// A further address of the client host, from 1; beside the two of the link.
pub fn client_address(number: u16, ipv6: bool) -> IpAddr {
    if ipv6 {
        Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 1, number).into()
    } else {
        let [high, low] = number.to_be_bytes();
        Ipv4Addr::new(10, 77, 1 + high, low).into()
    }
}

/// Addresses that no host has; see [`silent_address`].
pub const SILENT_ADDRESSES: u16 = 64;

/// An address that belongs to nobody, from 1 to [`SILENT_ADDRESSES`]. The server reaches it over the
/// link; the client host drops what comes for it.
pub fn silent_address(number: u16, ipv6: bool) -> IpAddr {
    if ipv6 {
        Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 2, number).into()
    } else {
        let [high, low] = number.to_be_bytes();
        Ipv4Addr::new(10, 77, 254 + high, low).into()
    }
}

/// Whether an address is one of [`silent_address`].
pub fn is_silent(address: IpAddr) -> bool {
    (1..=SILENT_ADDRESSES).any(|number| silent_address(number, address.is_ipv6()) == address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_address_is_of_the_lab_and_no_host_s() {
        for ipv6 in [false, true] {
            let own = Addresses::of(false, ipv6);
            for number in 1..=SILENT_ADDRESSES {
                let silent = silent_address(number, ipv6);
                assert!(is_silent(silent) && silent != own.client && silent != own.server);
            }
            assert!((1..=200).all(|number| !is_silent(client_address(number, ipv6))));
            assert!(!is_silent(own.client) && !is_silent(own.server));
        }
    }
}
