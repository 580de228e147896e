//! What goes over one connection: messages, and heartbeats between them.
//!
//! A [`Session`] is a decoder, an outbox and a fleet of one. It does no I/O and reads no clock;
//! [`crate::blocking`] and, with the feature `tokio`, `tcp_heartbeat::tokio_net` move its bytes.

use std::time::Duration;

use crate::fleet::{Fleet, FleetStep};
use crate::frame::{Decoder, Frame, Full, HEADER_BYTES, Outbox, TooLong};
use crate::queue::Member;
use crate::timing::{Evidence, Timing};

/// How a connection is to be treated.
///
/// ```
/// use tcp_heartbeat::{Evidence, Options};
///
/// let mut options = Options::default();
/// options.evidence = Evidence::Answered;
/// options.max_message_len = 4_096;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// How long to wait for bytes, and for evidence.
    pub timing: Timing,
    /// What shows that the peer is alive.
    pub evidence: Evidence,
    /// The longest message received or sent, bytes. A peer can make this side hold that much.
    pub max_message_len: usize,
    /// Messages that wait to be written, bytes with a header of 4 for each; at least one message of
    /// `max_message_len` has room. A peer that does not read can make this side hold twice that and 16.
    pub max_queued_len: usize,
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
            max_message_len: 1 << 20,
            max_queued_len: 2 << 20,
            tick: Duration::from_millis(10),
        }
    }
}

/// What is to be done about a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// A Null or an Ask has been queued: tell [`Session::unacknowledged`], if the kernel says it,
    /// then write [`Session::outgoing`].
    Test,
    /// The last look: read what has arrived and tell [`Session::received`]; then tell
    /// [`Session::unacknowledged`], if the kernel says it. If [`Session::is_tested`] is still true
    /// then, the peer is dead. Who lets it live is asked again a tick later.
    Judge,
}

/// One connection: messages in and out, and the heartbeat.
///
/// Times are since any fixed moment. Both sides may send heartbeats: one that hears the other's
/// sends none of its own. The heartbeat rests as soon as either side has ended its direction: who
/// has ended may send no Null, and who has seen the end gets no answer.
///
/// ```
/// use std::time::Duration;
/// use tcp_heartbeat::{Options, Session, Turn};
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
/// assert_eq!(here.next_due(), Some(s(45))); // nothing has arrived here
/// assert_eq!(here.next(s(45)), Some(Turn::Test));
/// assert_eq!(here.outgoing(), [0; 4]); // a Null
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Session {
    options: Options,
    decoder: Decoder,
    outbox: Outbox,
    heart: Fleet<()>,
    member: Member,
    /// A test has begun that nothing has ended or put off.
    tested: bool,
    /// Bytes handed to the kernel.
    written: u64,
    /// How many of them were acknowledged when last told; `None`: not told since the test began.
    acknowledged: Option<u64>,
    /// What is sent before the Ask of the test, bytes since the beginning.
    before_ask: u64,
    /// The judgement was put off until then.
    put_off: Duration,
    /// This side has ended its direction.
    finished: bool,
    /// The peer has ended its direction.
    ended: bool,
}

impl Session {
    /// Makes the session of a connection that was established now.
    pub fn new(options: Options, now: Duration) -> Self {
        let mut heart = Fleet::new(options.timing, options.tick);
        let member = heart.insert((), now);
        let frame = options.max_message_len.saturating_add(HEADER_BYTES);
        Self {
            options,
            decoder: Decoder::new(options.max_message_len),
            outbox: Outbox::new(options.max_queued_len.max(frame)),
            heart,
            member,
            tested: false,
            written: 0,
            acknowledged: None,
            before_ask: 0,
            put_off: Duration::ZERO,
            finished: false,
            ended: false,
        }
    }

    /// Bytes have arrived; call [`Session::next_message`] until it is `None` before more are read.
    pub fn received(&mut self, bytes: &[u8], now: Duration) {
        if !bytes.is_empty() {
            self.decoder.push(bytes);
            self.heart.heard(self.member, now);
            self.tested = false;
            self.put_off = Duration::ZERO;
        }
    }

    /// The peer has ended its direction.
    pub fn received_end(&mut self) {
        self.ended = true;
        self.tested = false;
    }

    /// The next message that is whole; `None`: more bytes are needed. An Ask queues its answer.
    ///
    /// Errors: [`TooLong`], from then on always: close the connection.
    pub fn next_message(&mut self) -> Result<Option<Vec<u8>>, TooLong> {
        while let Some(frame) = self.decoder.next_frame()? {
            match frame {
                Frame::Ask if !self.finished => self.outbox.null(),
                Frame::Null | Frame::Ask => {}
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
    /// than `max_message_len` never has room, and none has after [`Session::finish`].
    pub fn send(&mut self, message: &[u8]) -> Result<(), Full> {
        if message.len() > self.options.max_message_len || self.finished {
            return Err(Full { queued: self.outgoing().len(), limit: self.outbox.limit() });
        }
        self.outbox.message(message)
    }

    /// Queues nothing from now on, answers to the peer's Asks included: when
    /// [`Session::outgoing`] is empty this direction can be ended.
    pub fn finish(&mut self) {
        self.finished = true;
        self.tested = false;
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

    /// When [`Session::next`] has something to say next, if nothing happens until then; `None`: the
    /// heartbeat rests.
    pub fn next_due(&self) -> Option<Duration> {
        if self.finished || self.ended {
            return None;
        }
        self.heart.next_due().map(|due| due.max(self.put_off))
    }

    /// What is to be done by `now`. Call it until it is `None`, or the peer is given up.
    #[must_use = "a turn that is not taken is a Null that is not sent"]
    pub fn next(&mut self, now: Duration) -> Option<Turn> {
        if self.finished || self.ended || now < self.put_off {
            return None;
        }
        let step = self.heart.next(now)?;
        self.tested = true;
        if !matches!(step, FleetStep::Test(..)) {
            return Some(Turn::Judge);
        }
        self.acknowledged = None;
        self.before_ask = self.queued_until();
        match self.options.evidence {
            Evidence::Acknowledged => self.outbox.null(),
            Evidence::Answered => self.outbox.ask(),
        }
        Some(Turn::Test)
    }

    /// The kernel says that `bytes` are not acknowledged ([`crate::kernel::unacknowledged`]).
    ///
    /// A test ends when everything has been acknowledged, or more than when this was told before in
    /// the same test: a long transfer over a slow link is a sign of life long before it has arrived.
    ///
    /// With [`Evidence::Answered`] it can end no test. But an Ask cannot be answered before all that
    /// was sent before it has arrived. As long as that moves, the judgement is put off, for another
    /// `answer_within`. Where this is never told, nothing is put off. What the peer's kernel has taken
    /// and its program has not read shows nowhere: `answer_within` leaves room for reading that.
    pub fn unacknowledged(&mut self, bytes: usize, now: Duration) {
        let acknowledged = self.written.saturating_sub(bytes as u64);
        let before = self.acknowledged.replace(acknowledged).unwrap_or(acknowledged);
        if !self.tested {
            return;
        }
        let all = bytes == 0 && self.outgoing().is_empty();
        match self.options.evidence {
            Evidence::Acknowledged if all || acknowledged > before => {
                self.heart.acknowledged(self.member, now);
                self.tested = false;
            }
            Evidence::Answered if acknowledged > before && before < self.before_ask => {
                self.put_off = now.saturating_add(self.options.timing.answer_within);
                self.tested = false;
            }
            _ => {}
        }
    }

    /// Whether a test has begun that nothing has ended or put off.
    pub fn is_tested(&self) -> bool {
        self.tested
    }

    /// How the connection is treated.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Whether this side has ended its direction.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// Whether the peer has ended its direction.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Bytes handed to the kernel.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// What [`Session::written`] will be when all that is queued now was written.
    pub fn queued_until(&self) -> u64 {
        self.written.saturating_add(self.outgoing().len() as u64)
    }

    /// Memory of its buffers, bytes.
    pub fn capacity(&self) -> usize {
        self.decoder.capacity() + self.outbox.capacity()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::frame::ASK_FRAME;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn session(evidence: Evidence) -> Session {
        let timing = Timing::new(s(30), s(5));
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
        assert_eq!((session.next(s(35)), session.next_due()), (None, Some(s(36))));
        session.received(&[0; 4], s(35));
        assert!(!session.is_tested());
        assert_eq!(session.next_due(), Some(s(65)));
    }

    #[test]
    fn an_acknowledged_null_proves_the_moment_it_was_sent() {
        let mut session = session(Evidence::Acknowledged);
        assert_eq!(session.next(s(30)), Some(Turn::Test));
        session.sent(4);
        assert_eq!(session.next(s(35)), Some(Turn::Judge));
        session.unacknowledged(0, s(35));
        assert!(!session.is_tested());
        assert_eq!(session.next_due(), Some(s(60)));
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
        assert_eq!(session.next_due(), Some(s(60))); // it may have moved for the last time at 30 s
        assert_eq!(session.next(s(60)), Some(Turn::Test));
        session.unacknowledged(48_000, s(60));
        assert!(session.is_tested(), "it has moved since the test before, nobody knows when");
        assert_eq!(session.next(s(65)), Some(Turn::Judge));
        session.unacknowledged(48_000, s(65));
        assert!(session.is_tested(), "it has not moved since this one");
    }

    /// A peer whose kernel takes `rate` bytes a second of what is sent, from 0 s until it dies; its
    /// program reads each as it arrives and answers Asks, until it hangs. Returns when it was given
    /// up.
    fn given_up(session: &mut Session, rate: u64, dies: u64, hangs: u64) -> Option<u64> {
        let mut peer = Decoder::new(1 << 20);
        let (mut written, mut arrived) = (VecDeque::new(), 0);
        for now in 0..=1_000 {
            if now <= dies {
                let room = (rate as usize).min(written.len());
                arrived += room as u64;
                let bytes: Vec<u8> = written.drain(..room).collect();
                peer.push(&bytes);
                while let Some(frame) = peer.next_frame().unwrap() {
                    if frame == Frame::Ask && now < hangs {
                        session.received(&[0; 4], s(now));
                    }
                }
            }
            while let Some(turn) = session.next(s(now)) {
                let unacknowledged = session.written() - arrived;
                session.unacknowledged(unacknowledged as usize, s(now));
                if turn == Turn::Judge && session.is_tested() {
                    return Some(now);
                }
            }
            written.extend(session.outgoing());
            session.sent(usize::MAX);
        }
        None
    }

    #[test]
    fn what_was_acknowledged_before_a_test_is_no_sign_of_life_in_it() {
        let mut session = session(Evidence::Acknowledged);
        session.send(b"news").unwrap();
        // Acknowledged at 1 s, dead at 2 s: tested at 30 s and known within 5 s.
        assert_eq!(given_up(&mut session, 1_000, 2, 1_000), Some(35));
    }

    #[test]
    fn a_peer_that_reads_slowly_cannot_answer_before_it_has_read_and_is_given_time() {
        let mut session = session(Evidence::Answered);
        session.send(&vec![0; 100_000]).unwrap();
        assert_eq!(given_up(&mut session, 1_000, 1_000, 1_000), None);
    }

    #[test]
    fn a_peer_that_dies_in_a_transfer_is_given_up_when_nothing_moves_any_more() {
        let mut session = session(Evidence::Answered);
        session.send(&vec![0; 100_000]).unwrap();
        // Judged at 35, 40 and 45 s: it moved; at 50 s: it has not since 45 s.
        assert_eq!(given_up(&mut session, 1_000, 45, 1_000), Some(50));
    }

    #[test]
    fn a_program_that_hangs_is_given_up_though_its_kernel_took_all_before_the_ask() {
        let mut session = session(Evidence::Answered);
        session.send(&vec![0; 38_000]).unwrap();
        // The Ask of 30 s arrives with the last data at 38 s; seen at 40 s, and judged at 45 s.
        assert_eq!(given_up(&mut session, 1_000, 1_000, 0), Some(45));
        let mut session = self::session(Evidence::Answered);
        session.send(&vec![0; 20_000]).unwrap();
        assert_eq!(given_up(&mut session, 1_000, 1_000, 0), Some(35), "nothing was before the Ask");
    }

    #[test]
    fn who_has_finished_queues_nothing_and_tests_nothing() {
        for evidence in [Evidence::Acknowledged, Evidence::Answered] {
            let mut session = session(evidence);
            session.finish();
            session.received(&ASK_FRAME, s(1));
            assert_eq!(session.next_message(), Ok(None));
            assert!(session.send(b"late").is_err());
            assert_eq!((session.next_due(), session.next(s(500))), (None, None));
            assert_eq!(session.outgoing(), []);
            session.received(&[0, 0, 0, 2, 7], s(600));
            assert_eq!(session.next_message(), Ok(Some(vec![7])));
        }
    }

    #[test]
    fn a_peer_that_has_ended_its_direction_cannot_answer_and_is_not_asked() {
        let mut session = session(Evidence::Answered);
        assert_eq!(session.next(s(30)), Some(Turn::Test));
        session.received_end();
        assert_eq!((session.next_due(), session.next(s(500))), (None, None));
        session.send(b"still").unwrap();
    }

    #[test]
    fn a_null_that_still_waits_here_is_not_acknowledged() {
        let mut session = session(Evidence::Acknowledged);
        assert_eq!(session.next(s(30)), Some(Turn::Test));
        session.unacknowledged(0, s(31));
        assert!(session.is_tested());
    }
}
