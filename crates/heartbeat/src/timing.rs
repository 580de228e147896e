//! The words of this crate: how long to wait, and what counts as a sign of life.
//!
//! An acknowledgment counts as a sign of life only from the test on: evidence from before it made a bound of
//! 55 s one of 100 s.

use std::borrow::Cow;
use std::time::Duration;

/// How long to wait: for bytes before a test, and for evidence after one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timing {
    /// A Null goes out when nothing has arrived for this long.
    pub idle: Duration,
    /// A peer that has shown no evidence this long after a Null is dead.
    ///
    /// It has to leave room for losses: on a short path Linux sends a segment that is not
    /// acknowledged again at 0.2, 0.4, 0.8, 1.6, 3.2 and 6.4 s, an eighth later at most. So 2 s
    /// outlive four losses in a row, 4 s five, 8 s six. Over a round trip of 200 ms the first repeat
    /// goes at 0.6 s: 2 s outlive two losses, 4 s three, 8 s four.
    pub answer_within: Duration,
}

impl Timing {
    /// Tests after `idle` without a byte, and waits `answer_within` for evidence.
    pub fn new(idle: Duration, answer_within: Duration) -> Self {
        Self { idle, answer_within }
    }

    /// The longest time from a peer's last sign of life until its death is known, the timer's tick
    /// not counted.
    ///
    /// It is `idle + answer_within`. Where `idle` is the shorter of the two, `answer_within` takes
    /// its place: no second test begins while one runs.
    pub fn bound(&self) -> Duration {
        self.idle.max(self.answer_within).saturating_add(self.answer_within)
    }
}

impl Default for Timing {
    /// Idle for 45 s, 10 s for an answer.
    fn default() -> Self {
        Self { idle: Duration::from_secs(45), answer_within: Duration::from_secs(10) }
    }
}

/// What shows that a peer is alive after a test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Evidence {
    /// The peer's kernel has acknowledged all that was sent
    /// ([`kernel::unacknowledged`](crate::kernel::unacknowledged) is 0).
    ///
    /// The peer's program does nothing for it. So a program that hangs on a running machine passes.
    #[default]
    Acknowledged,
    /// The peer's program has sent something.
    Answered,
}

/// A protocol's own message without meaning, and what shows that it arrived.
///
/// For protocols that have such a message; those that have none use [`Session`](crate::Session) on
/// both ends.
///
/// ```
/// use tcp_heartbeat::{Evidence, Null};
///
/// // MQTT: a server must answer PINGREQ (MQTT-3.12.4-1 of version 3.1.1).
/// let mqtt = Null::new(b"\xC0\0", Evidence::Answered);
/// // WebSocket, sent by a server: a ping must be answered (RFC 6455, section 5.5.2).
/// let web_socket = Null::new(b"\x89\0", Evidence::Answered);
/// // SMTP between commands, not within a message (RFC 5321, section 4.1.1.9).
/// let smtp = Null::new(b"NOOP\r\n", Evidence::Answered);
/// // Telnet has a no-operation that is not answered (RFC 854).
/// let telnet = Null::new(b"\xFF\xF1", Evidence::Acknowledged);
/// # assert!([mqtt, web_socket, smtp, telnet].iter().all(|null| !null.bytes.is_empty()));
/// ```
///
/// Read what the protocol says of the states of a connection. Redis (7.0) answers `PING`, but not
/// while the connection waits in a command that blocks, such as `BLPOP`, nor after
/// `CLIENT REPLY OFF`; after `MULTI` a `PING` becomes part of the transaction. HTTP/1.1 has no Null:
/// a server should ignore *one* empty line before a request, and a client must not send it (RFC
/// 9112, section 2.2).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Null {
    /// What is sent, only between the protocol's other messages. Not empty: nothing would be
    /// acknowledged without having gone anywhere.
    pub bytes: Cow<'static, [u8]>,
    /// What shows that the peer is alive.
    pub evidence: Evidence,
}

impl Null {
    /// Names a protocol's Null. An empty one does not compile:
    ///
    /// ```compile_fail,E0080
    /// tcp_heartbeat::Null::new(b"", tcp_heartbeat::Evidence::Answered);
    /// ```
    pub fn new<const N: usize>(bytes: &'static [u8; N], evidence: Evidence) -> Self {
        const { assert!(N > 0, "a Null is at least one byte") };
        Self { bytes: Cow::Borrowed(bytes), evidence }
    }
}
