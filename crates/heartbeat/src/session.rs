//! What goes over one connection: messages, and heartbeats between them.
//!
//! A [`Session`] is a decoder, an outbox and a fleet of one. It does no I/O and reads no clock;
//! [`crate::blocking`] and, with the feature of that name, `tcp_heartbeat::tokio` move its bytes.

use std::time::Duration;

use crate::fleet::Fleet;
use crate::frame::{Decoder, Frame, Full, HEADER_BYTES, Outbox, TooLong};
use crate::queue::Member;
use crate::timing::{Evidence, Step, Timing};

/// How a connection is to be treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How long to wait for bytes, and for evidence.
    pub timing: Timing,
    /// What shows that the peer is alive.
    pub evidence: Evidence,
    /// The longest message taken or sent, bytes. A peer can make this side hold that much.
    pub longest: usize,
    /// Messages that wait to be written, bytes with a header of 4 for each; taken as at least one
    /// longest message. A peer that does not read can make this side hold twice that.
    pub queued: usize,
    /// The timer's granularity: tests wait for its next multiple.
    pub tick: Duration,
}

impl Default for Options {
    /// The default [`Timing`], the peer's kernel as evidence, messages of up to 1 MiB, 2 MiB of
    /// them waiting, a tick of 10 ms.
    fn default() -> Self {
        Self {
            timing: Timing::default(),
            evidence: Evidence::default(),
            longest: 1 << 20,
            queued: 2 << 20,
            tick: Duration::from_millis(10),
        }
    }
}

/// What is to be done about a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// A Null or an Ask has been queued: write [`Session::outgoing`], after telling
    /// [`Session::unacknowledged`], if the kernel's acknowledgments are the evidence.
    Test,
    /// The last look: read what has arrived and tell [`Session::received`]; with
    /// [`Evidence::Acknowledged`] tell [`Session::unacknowledged`], too. If [`Session::is_tested`] is
    /// still true then, the peer is dead. Who lets it live is asked again a tick later.
    Judge,
}

/// One connection: messages in and out, and the heartbeat.
///
/// Times are since any fixed moment. Both sides may send heartbeats: one that hears the other's
/// sends none of its own.
///
/// ```
/// use std::time::Duration;
/// use tcp_heartbeat::session::{Options, Session, Turn};
///
/// let s = Duration::from_secs;
/// let mut here = Session::new(Options::default(), s(0));
/// let mut there = Session::new(Options::default(), s(0));
///
/// here.send(b"hello")?;
/// there.received(here.outgoing(), s(1));
/// here.sent(here.outgoing().len());
/// assert_eq!(there.next_message()?.as_deref(), Some(&b"hello"[..]));
/// assert_eq!(there.next_message()?, None);
///
/// assert_eq!(here.next_due(), s(45)); // nothing has arrived here
/// assert_eq!(here.next(s(45)), Some(Turn::Test));
/// assert_eq!(here.outgoing(), [0; 4]); // a Null
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Session {
    decoder: Decoder,
    outbox: Outbox,
    heart: Fleet<()>,
    member: Member,
    evidence: Evidence,
    longest: usize,
    /// A test has begun and nothing has ended it.
    tested: bool,
    /// Bytes handed to the kernel, and of these acknowledged when last told.
    written: u64,
    acknowledged: u64,
}

impl Session {
    /// Makes the session of a connection that was established now.
    pub fn new(options: Options, now: Duration) -> Self {
        let mut heart = Fleet::new(options.timing, options.tick);
        let member = heart.insert((), now);
        let frame = options.longest.saturating_add(HEADER_BYTES);
        Self {
            decoder: Decoder::new(options.longest),
            outbox: Outbox::new(options.queued.max(frame)),
            heart,
            member,
            evidence: options.evidence,
            longest: options.longest,
            tested: false,
            written: 0,
            acknowledged: 0,
        }
    }

    /// Bytes have arrived; call [`Session::next_message`] until it is `None` before more are read.
    pub fn received(&mut self, bytes: &[u8], now: Duration) {
        if !bytes.is_empty() {
            self.decoder.push(bytes);
            self.alive(now);
        }
    }

    fn alive(&mut self, now: Duration) {
        self.heart.heard(self.member, now);
        self.tested = false;
    }

    /// The next message that is whole; `None`: more bytes are needed. An Ask queues its answer.
    ///
    /// Errors: [`TooLong`], from then on always: close the connection.
    pub fn next_message(&mut self) -> Result<Option<Vec<u8>>, TooLong> {
        while let Some(frame) = self.decoder.next_frame()? {
            match frame {
                Frame::Null => {}
                Frame::Ask => self.outbox.null(),
                Frame::Message(message) => return Ok(Some(message)),
            }
        }
        Ok(None)
    }

    /// Whether a message has begun that is not whole: a peer that ends now was cut off.
    pub fn is_inside_message(&self) -> bool {
        self.decoder.is_inside_frame()
    }

    /// Queues a message, whole.
    ///
    /// Errors: [`Full`], and nothing is queued: write [`Session::outgoing`] first. A message longer
    /// than `longest` never has room.
    pub fn send(&mut self, message: &[u8]) -> Result<(), Full> {
        if message.len() > self.longest {
            return Err(Full { queued: self.outgoing().len(), limit: self.outbox.limit() });
        }
        self.outbox.message(message)
    }

    /// What is to be written next; empty: nothing.
    pub fn outgoing(&self) -> &[u8] {
        self.outbox.as_bytes()
    }

    /// The first `count` bytes of [`Session::outgoing`] were written to the socket.
    pub fn sent(&mut self, count: usize) {
        let count = count.min(self.outgoing().len());
        self.outbox.advance(count);
        self.written = self.written.saturating_add(count as u64);
    }

    /// When [`Session::next`] has something to say next, if nothing happens until then.
    pub fn next_due(&self) -> Duration {
        self.heart.next_due().unwrap_or(Duration::MAX)
    }

    /// What is to be done by `now`. Call it until it is `None`, or the peer is given up.
    #[must_use = "a turn that is not taken is a Null that is not sent"]
    pub fn next(&mut self, now: Duration) -> Option<Turn> {
        match self.heart.next(now)? {
            Step::Test(..) => {
                match self.evidence {
                    Evidence::Acknowledged => self.outbox.null(),
                    Evidence::Answered => self.outbox.ask(),
                }
                self.tested = true;
                Some(Turn::Test)
            }
            Step::Look(..) | Step::Judge(..) => Some(Turn::Judge),
        }
    }

    /// The kernel says that `bytes` are not acknowledged ([`crate::kernel::unacknowledged`]).
    ///
    /// With [`Evidence::Acknowledged`] a test ends when everything has arrived; also when more has
    /// than at the last time this was told: a long transfer over a slow link is a sign of life long
    /// before it has arrived. With [`Evidence::Answered`] it is nothing.
    pub fn unacknowledged(&mut self, bytes: usize, now: Duration) {
        let before = self.acknowledged;
        self.acknowledged = self.written.saturating_sub(bytes as u64).max(before);
        if !self.tested || self.evidence == Evidence::Answered {
            return;
        }
        if bytes == 0 && self.outgoing().is_empty() {
            self.heart.acknowledged(self.member, now);
            self.tested = false;
        } else if self.acknowledged > before {
            self.alive(now);
        }
    }

    /// Whether a test has begun that nothing has ended yet.
    pub fn is_tested(&self) -> bool {
        self.tested
    }

    /// What shows that the peer is alive.
    pub fn evidence(&self) -> Evidence {
        self.evidence
    }

    /// The longest message taken or sent, bytes.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Memory of its buffers, bytes.
    pub fn capacity(&self) -> usize {
        self.decoder.capacity() + self.outbox.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn session(evidence: Evidence) -> Session {
        let timing = Timing { idle: s(30), answer_within: s(5) };
        Session::new(Options { timing, evidence, tick: s(1), ..Options::default() }, s(0))
    }

    #[test]
    fn an_ask_is_answered_once_until_the_answer_is_out() {
        let mut session = session(Evidence::Acknowledged);
        session.received(&[0xFF; 400], s(1));
        assert_eq!(session.next_message(), Ok(None));
        assert_eq!(session.outgoing(), [0; 4]);
        session.sent(4);
        session.received(&[0xFF; 4], s(1));
        assert_eq!(session.next_message(), Ok(None));
        assert_eq!(session.outgoing(), [0; 4]);
    }

    #[test]
    fn a_test_that_nothing_answers_is_judged_and_asked_for_again() {
        let mut session = session(Evidence::Answered);
        assert_eq!(session.next(s(30)), Some(Turn::Test));
        assert_eq!(session.outgoing(), [0xFF; 4]);
        session.sent(4);
        session.unacknowledged(0, s(34)); // the peer's kernel alone is not enough
        assert_eq!(session.next(s(34)), None);
        assert_eq!(session.next(s(35)), Some(Turn::Judge));
        assert!(session.is_tested());
        assert_eq!((session.next(s(35)), session.next_due()), (None, s(36)));
        session.received(&[0; 4], s(35));
        assert!(!session.is_tested());
        assert_eq!(session.next_due(), s(65));
    }

    #[test]
    fn an_acknowledged_null_proves_the_moment_it_was_sent() {
        let mut session = session(Evidence::Acknowledged);
        assert_eq!(session.next(s(30)), Some(Turn::Test));
        session.sent(4);
        assert_eq!(session.next(s(35)), Some(Turn::Judge));
        session.unacknowledged(0, s(35));
        assert!(!session.is_tested());
        assert_eq!(session.next_due(), s(60));
    }

    #[test]
    fn a_slow_transfer_is_alive_as_long_as_it_moves() {
        let mut session = session(Evidence::Acknowledged);
        session.send(&vec![0; 100_000]).unwrap();
        session.sent(50_000);
        assert_eq!(session.next(s(30)), Some(Turn::Test));
        session.unacknowledged(50_000, s(30));
        assert_eq!(session.next(s(35)), Some(Turn::Judge));
        session.unacknowledged(49_000, s(35));
        assert!(!session.is_tested());
        assert_eq!(session.next(s(65)), Some(Turn::Test));
        session.unacknowledged(49_000, s(65));
        assert_eq!(session.next(s(70)), Some(Turn::Judge));
        session.unacknowledged(49_000, s(70));
        assert!(session.is_tested(), "it has moved since the test before, not since this one");
    }

    #[test]
    fn a_null_that_still_waits_here_is_not_acknowledged() {
        let mut session = session(Evidence::Acknowledged);
        assert_eq!(session.next(s(30)), Some(Turn::Test));
        session.unacknowledged(0, s(31));
        assert!(session.is_tested());
    }
}
