//! A place of the ring's table of sockets: what it holds, and what is under way on it.

use crate::load::driver::Left;

/// No slot, or no place.
pub(super) const NONE: u32 = u32::MAX;

/// What a place of the table holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Connecting,
    Open,
    /// Refused, closed by the peer or failed: nothing more is told.
    Over,
}

/// A socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingSocket {
    /// Whose; [`NONE`]: nobody's any more.
    pub(super) slot: u32,
    /// The turn of the last send.
    pub(super) sent_in: u32,
    pub(super) state: State,
    /// Operations that will complete: connect, receive, a long send.
    pub(super) under_way: u8,
    /// Sends and receives so far, up to 2.
    pub(super) sends: u8,
    pub(super) receives: u8,
    /// A receive is under way, or queued for the end of the turn.
    pub(super) receiving: bool,
    /// A send is under way that will be told of.
    pub(super) sending: bool,
    pub(super) wants_room: bool,
    /// When its last handshake or bytes were given to the kernel.
    pub(super) left: Left,
}

pub(super) const EMPTY: RingSocket = RingSocket {
    slot: NONE,
    sent_in: 0,
    state: State::Over,
    under_way: 0,
    sends: 0,
    receives: 0,
    receiving: false,
    sending: false,
    wants_room: false,
    left: Left { earliest_ns: 0, likely_ns: 0 },
};
