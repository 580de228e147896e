//! Traffic that certifies a link.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::{Service, order};

/// Round trips that fit one message.
pub const PING_MAX: u16 = 4_000;

/// ICMP echo requests, evenly spread; several may be on their way at once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ping {
    /// To whom.
    pub target: IpAddr,
    /// How many, at most [`PING_MAX`].
    pub count: u16,
    /// Time between two requests, ns.
    pub interval_ns: u64,
    /// An answer that takes longer than this, ns, is lost.
    pub limit_ns: u64,
}

// Round trips, ns, in the order the echoes came back.
order!(Ping => Vec<u64>, "ping");

/// Receive datagrams.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Sink {
    /// Address to bind to; the kernel chooses the port.
    pub at: IpAddr,
}

order!(Sink => Arrivals, "sink");

impl Service for Sink {
    /// Where datagrams are received.
    type Started = SocketAddr;
}

/// Datagrams received.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Arrivals {
    /// How many.
    pub packets: u64,
    /// How many the socket had no room for, of this host in all.
    pub no_room: u64,
    /// How many of them arrived in `steady_ns`.
    pub steady_packets: u64,
    /// How many were sent between the first and the last of these, by their numbers: what the
    /// receiving socket had no room for has crossed the wire all the same.
    pub steady_span: u64,
    /// From the end of the first fifth to the last, ns: the steady state.
    pub steady_ns: u64,
}

/// A train of datagrams.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Train {
    /// To whom.
    pub target: SocketAddr,
    /// How many.
    pub packets: u64,
    /// Bytes of payload.
    pub payload: usize,
    /// Time between two, ns; 0: as fast as they go.
    pub interval_ns: u64,
    /// Hand several to the kernel at once, which cuts them behind the link's queue.
    pub together: bool,
}

// Datagrams sent.
order!(Train => u64, "train");
