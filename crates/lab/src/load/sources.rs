//! Where does each connection come from, and with which settings? Source addresses take turns, so
//! that a load is not bound by the ports of one.
//!
//! More addresses help more than a wider port range. Beyond half of a range the kernel searches long for a
//! free port: 50,000 connections from one address cost 0.9 ms of CPU each, from four addresses 0.05 ms.

use std::net::IpAddr;

use tcptoll_kernel::socket::ClientOptions;

/// Settings of client sockets, one for each source address; at least one.
#[derive(Clone, Debug)]
pub(super) struct Sources(Vec<ClientOptions>);

impl Sources {
    /// The addresses given, or the one that the kernel chooses.
    pub(super) fn new(given: &[IpAddr], congestion: Option<&str>, fast_open: bool) -> Self {
        let options =
            |bind| ClientOptions { bind, congestion: congestion.map(str::to_owned), fast_open };
        if given.is_empty() {
            Self(vec![options(None)])
        } else {
            Self(given.iter().copied().map(Some).map(options).collect())
        }
    }

    /// Settings of connection number `number`.
    pub(super) fn options(&self, number: u64) -> &ClientOptions {
        &self.0[(number % self.0.len() as u64) as usize]
    }

    /// One after the other.
    pub(super) fn iter(&self) -> impl Iterator<Item = &ClientOptions> {
        self.0.iter()
    }
}
