//! The path between two hosts of the user's: its round trip and what their clocks are apart.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use tcptoll_core::link::clocks::Exchange;
use tcptoll_core::record::Route;

use super::{Service, order};

/// Exchanges that fit one message.
pub const EXCHANGES_MAX: u16 = 500;

/// What a reflector answers to, and nobody else knows.
pub type Token = [u8; 16];

/// Answer datagrams with this token, never with more bytes than came.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Reflect {
    /// Address to bind to; the kernel chooses the port.
    pub at: IpAddr,
    /// Whose datagrams are answered. Absent: the first that has the token.
    pub peer: Option<IpAddr>,
    /// What they begin with.
    pub token: Token,
}

order!(Reflect => Reflected, "reflect");

impl Service for Reflect {
    /// Where datagrams are answered.
    type Started = SocketAddr;
}

/// What came to a reflector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reflected {
    /// Datagrams that were answered.
    pub answered: u64,
    /// Datagrams of others, or without the token.
    pub refused: u64,
}

/// Set the host's clock for this trial: from now on its instants are on the clock of the other host.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ShiftClock {
    /// Added to `CLOCK_MONOTONIC`, ns.
    pub ns: i64,
}

order!(ShiftClock => (), "shift-clock");

/// Tell the time.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Now;

// On the monotonic clock, ns.
order!(Now => u64, "now");

/// Ask the kernel how packets leave the host.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct AskRoute {
    /// Where they go.
    pub to: IpAddr,
    /// Address they come from. Absent: the kernel chooses.
    pub from: Option<IpAddr>,
}

// Absent: the kernel does not tell.
order!(AskRoute => Option<Route>, "ask-route");

/// Exchange stamps with a reflector.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct AskClock {
    /// The reflector.
    pub target: SocketAddr,
    /// Address to send from. Absent: the kernel chooses.
    pub from: Option<IpAddr>,
    /// The reflector's token.
    pub token: Token,
    /// How many, at most [`EXCHANGES_MAX`].
    pub count: u16,
    /// Time between two, ns.
    pub interval_ns: u64,
    /// An answer that takes longer than this, ns, is lost.
    pub limit_ns: u64,
}

// Those that came back, in this order.
order!(AskClock => Vec<Exchange>, "ask-clock");
