//! The network of a lab's two hosts: the name of their device and their addresses.
//!
//! These are constants of the lab, known to whoever makes it and to whoever must not leave it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Name of the device on both hosts.
pub const DEVICE: &str = "link0";

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
    pub fn new(loopback: bool, ipv6: bool) -> Self {
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
            let own = Addresses::new(false, ipv6);
            for number in 1..=SILENT_ADDRESSES {
                let silent = silent_address(number, ipv6);
                assert!(is_silent(silent) && silent != own.client && silent != own.server);
            }
            assert!((1..=200).all(|number| !is_silent(client_address(number, ipv6))));
            assert!(!is_silent(own.client) && !is_silent(own.server));
        }
    }
}
