//! One connection's place in the client loop, and the request under way on it.

use ring::digest::Context;
use tcptoll_core::http::response::ResponseReader;

use super::tls::Session;

/// What a slot is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing, and there is no connection.
    #[default]
    Empty,
    /// TCP's handshake.
    Connecting,
    /// TLS's handshake.
    Handshaking,
    /// The request is leaving, or the response is awaited or coming.
    Asking,
    /// The response is whole; the server is to close.
    Closing,
    /// Nothing, with a connection that may be used again.
    Resting,
}

/// A connection's place.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) state: State,
    /// Whether the request under way is of the measured part.
    pub(super) measured: bool,
    /// Whether a request is under way, from its beginning until it has succeeded or failed.
    pub(super) busy: bool,
    /// There was no room for all bytes; the driver will tell when there is.
    pub(super) leaving: bool,
    /// The request did not leave in one piece.
    pub(super) in_parts: bool,
    pub(super) reader: ResponseReader,
    /// Requests of this connection that have ended.
    pub(super) served: u32,
    /// Which request it is.
    pub(super) request: u32,
    /// Bytes of the request that have left.
    pub(super) written: u32,
    /// When the request was due, and when it was begun, before any connection was opened.
    pub(super) due_ns: u64,
    pub(super) begun_ns: u64,
    /// When the connection was begun, and when TCP's handshake was done.
    pub(super) called_ns: u64,
    pub(super) opened_ns: u64,
    /// When the request was sent.
    pub(super) sent_ns: u64,
    /// When the first byte of the response came; 0: not yet.
    pub(super) first_ns: u64,
    /// When the last response ended.
    pub(super) ended_ns: u64,
    /// Bytes of content so far.
    pub(super) body_bytes: u64,
    pub(super) tls: Option<Box<Session>>,
    pub(super) digest: Option<Box<Context>>,
}

impl Slot {
    /// Whether a close of the server that comes now may have crossed the request: of a connection
    /// that has carried others, and within the time that a packet takes there and back. A server
    /// that closes later has had the request.
    pub(super) fn raced(&self, now_ns: u64) -> bool {
        let round_trip_ns = self.opened_ns.saturating_sub(self.called_ns);
        let limit_ns = round_trip_ns.saturating_mul(2).saturating_add(RACE_NS);
        self.served > 0 && now_ns <= self.sent_ns.saturating_add(limit_ns)
    }
}

/// A server may be this late with its close, ns: on a busy machine it may not run meanwhile.
const RACE_NS: u64 = 20_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_close_long_after_the_request_was_sent_is_no_race() {
        let slot =
            Slot { served: 1, called_ns: 0, opened_ns: 1_000, sent_ns: 5_000, ..Slot::default() };
        assert!(slot.raced(5_000 + 2_000 + RACE_NS) && !slot.raced(5_000 + 2_001 + RACE_NS));
        assert!(!Slot { served: 0, ..slot }.raced(5_000));
    }

    #[test]
    fn an_idle_connection_takes_less_than_a_quarter_of_a_kilobyte() {
        assert!(size_of::<Slot>() <= 256, "{}", size_of::<Slot>());
    }
}
