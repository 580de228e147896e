//! Half-open requests at a listener: a peer that opens them and never sends the last ACK. Only the client
//! host of a lab carries out these orders.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::order;

/// Begin to keep half-open requests at the lab's server: SYNs from addresses that no host has. Each
/// source sends its SYN again and again, so that a request that timed out is opened anew.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct KeepHalfOpen {
    /// The listener, on the lab's server host.
    pub target: SocketAddr,
    /// Sources: requests to keep, if the server holds that many.
    pub number: u64,
    /// SYNs per second, at most.
    pub rate_per_s: f64,
    /// Each source sends its SYN again after this, ns.
    pub again_ns: u64,
}

// Each source has sent its first SYN.
order!(KeepHalfOpen => (), "keep-half-open");

/// Stop that.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct EndHalfOpen;

order!(EndHalfOpen => HalfOpenReport, "end-half-open");

/// What the peer of half-open requests did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HalfOpenReport {
    /// SYNs that the kernel took.
    pub syns: u64,
    /// SYNs that it did not take, because the device's queue was full.
    pub refused: u64,
    /// Source addresses.
    pub addresses: u64,
    /// From the first SYN to the end, ns.
    pub elapsed_ns: u64,
    /// Why it ended before it was told to, if it did.
    pub failed: Option<String>,
}
