//! Which connections can go when room is needed? Lazy reaping: no timer runs and nothing is sent
//! while there is room.
//!
//! It sends nothing, closes nothing and reads no clock. Connections that find no room stay in the
//! listener's backlog: accept only while [`Reaper::has_room`].

use std::time::Duration;

use crate::fleet::FleetStep;
use crate::queue::{Member, Queues, Stamp};

/// Resting; stamp: opened, used or passed over.
const RESTING: usize = 0;
/// Resting; stamp: when the Null was sent that has been acknowledged. Apart because these dates lie
/// in the past.
const PROVEN: usize = 1;
/// The judgement is awaited; stamp: when it was asked for.
const ASKED: usize = 2;
/// Under test; stamp: when the Null was sent. One queue for each look that comes next, in the order
/// of [`LOOKS`]; the last is the judgement's.
const TESTED: usize = 3;
/// When to look after a test, as parts of the time for an answer. Most peers answer within a
/// fraction of it, and each that has answered lets the next test begin.
const LOOKS: [u64; 5] = [16, 8, 4, 2, 1];
const QUEUES: usize = TESTED + LOOKS.len();

/// When a reap begins no further tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stop {
    /// As soon as there is room; tests that have begun are finished.
    #[default]
    BelowMost,
    /// When all connections that were there at its beginning have been tested.
    WholeSet,
}

/// Which connections are tested first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Order {
    /// The least recently used.
    #[default]
    LastUse,
    /// The oldest. What was tested, or passed over, goes to the end of the line: otherwise the
    /// oldest would be tested again and again, and a dead one behind them never.
    Age,
}

/// How to make room: [`Reaping::new`], then change what is to be different.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reaping {
    /// Connections there may be; at least 1.
    pub limit: usize,
    /// A peer that has shown no evidence this long after a Null is dead.
    pub answer_within: Duration,
    /// Only those are tested that have shown no sign of life for this long; `None`: all.
    pub unused_for: Option<Duration>,
    /// When a reap begins no further tests.
    pub stop: Stop,
    /// Which are tested first.
    pub order: Order,
    /// Connections under test at any moment, at least 1. All of them dead, a reap of `n`
    /// takes `n / at_once × answer_within`.
    pub at_once: usize,
    /// The least time from the beginning of one reap to that of the next: it bounds the traffic that
    /// any number of arrivals can cause. At least the tick.
    pub min_interval: Duration,
    /// Looks wait for the next multiple of this; who was asked for a judgement and gave none is
    /// asked again after it. At least 1 µs.
    pub tick: Duration,
}

impl Reaping {
    /// At most `limit` connections; answers within 10 s, the least recently used first, until there
    /// is room, 64 at once, at most one reap in 10 s, a tick of 100 ms.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            answer_within: Duration::from_secs(10),
            unused_for: None,
            stop: Stop::default(),
            order: Order::default(),
            at_once: 64,
            min_interval: Duration::from_secs(10),
            tick: Duration::from_millis(100),
        }
    }
}

/// What to do about one connection of a [`Reaper`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReaperStep<K> {
    /// Send a Null now; a full socket is dealt with as for [`FleetStep::Test`](crate::FleetStep::Test).
    Test(Member, K),
    /// Is there evidence already? If so say [`Reaper::acknowledged`] or [`Reaper::used`]; if not, do
    /// nothing.
    Look(Member, K),
    /// The last look: say [`Reaper::acknowledged`] or [`Reaper::used`] if the peer is alive,
    /// [`Reaper::remove`] if it is dead. Read what has arrived first.
    ///
    /// Who says nothing is asked again a tick later: nothing is ever removed on its own.
    Judge(Member, K),
}

/// For programs that treat the steps of both alike.
impl<K> From<FleetStep<K>> for ReaperStep<K> {
    fn from(step: FleetStep<K>) -> Self {
        match step {
            FleetStep::Test(member, key) => Self::Test(member, key),
            FleetStep::Judge(member, key) => Self::Judge(member, key),
        }
    }
}

#[derive(Clone, Debug)]
struct Subject<K> {
    key: K,
    /// When the last Null was sent.
    sent: Stamp,
    /// The last sign of life.
    alive: Stamp,
}

/// The connections of a server that tests them only when it needs room.
///
/// `K` is what the caller knows a connection by. Times are since any fixed moment, the same for all
/// calls. A reap tests each connection at most once, and of those that came after its beginning
/// none. A call is O(1), or O(log n) after evidence that is told out of the order of the tests.
/// Memory: 64 bytes a connection with a `K` of 4 bytes, and about 30 for each of the latter.
///
/// ```
/// use std::time::Duration;
/// use tcp_heartbeat::{Reaper, ReaperStep, Reaping};
///
/// let s = Duration::from_secs;
/// let mut reaping = Reaping::new(2);
/// reaping.answer_within = s(4);
/// let mut reaper = Reaper::new(reaping);
/// let first = reaper.insert(1_u32, s(0));
/// let second = reaper.insert(2_u32, s(10));
/// assert!(!reaper.has_room());
/// assert_eq!(reaper.next_due(), None); // no timer
///
/// reaper.room_wanted(s(100)); // a third waits in the backlog
/// assert_eq!(reaper.next(s(100)), Some(ReaperStep::Test(first, 1))); // send a Null
/// assert_eq!(reaper.next(s(100)), Some(ReaperStep::Test(second, 2)));
/// assert_eq!(reaper.next(s(100)), None);
/// reaper.used(second, s(101)); // its answer
///
/// assert_eq!(reaper.next(s(104)), Some(ReaperStep::Judge(first, 1)));
/// reaper.remove(first); // close it
/// assert!(reaper.has_room()); // accept the third
/// ```
#[derive(Clone, Debug)]
pub struct Reaper<K: Copy> {
    reaping: Reaping,
    answer_within: Stamp,
    tick: Stamp,
    queues: Queues<Subject<K>, QUEUES>,
    /// Under test, and those whose judgement is awaited.
    under_test: usize,
    /// When the last reap began.
    began: Option<Stamp>,
    /// It may begin further tests.
    scanning: bool,
    /// Since it began, somebody has asked for room.
    wanted: bool,
}

impl<K: Copy> Reaper<K> {
    /// Makes an empty set; what is out of range in `reaping` is taken as the nearest that is not.
    pub fn new(mut reaping: Reaping) -> Self {
        reaping.limit = reaping.limit.max(1);
        reaping.at_once = reaping.at_once.max(1);
        reaping.tick = reaping.tick.max(Duration::from_micros(1));
        reaping.answer_within = reaping.answer_within.max(reaping.tick);
        reaping.min_interval = reaping.min_interval.max(reaping.tick);
        Self {
            answer_within: reaping.answer_within.into(),
            tick: reaping.tick.into(),
            queues: Queues::new(),
            under_test: 0,
            began: None,
            scanning: false,
            wanted: false,
            reaping,
        }
    }

    /// The settings, in range.
    pub fn reaping(&self) -> &Reaping {
        &self.reaping
    }

    /// Takes in a connection that was established now.
    pub fn insert(&mut self, key: K, now: Duration) -> Member {
        let now = Stamp::from(now);
        self.queues.insert(Subject { key, sent: now, alive: now }, RESTING, self.behind(now))
    }

    /// Where in a queue they stand who rest from `stamp` on: behind all that the last reap has to
    /// test, though the clock may have stood still since it began.
    fn behind(&self, stamp: Stamp) -> Stamp {
        self.began.map_or(stamp, |began| stamp.max(began.next()))
    }

    /// Takes out a connection that was closed; `None` if it was taken out before.
    pub fn remove(&mut self, member: Member) -> Option<K> {
        self.end_test(member);
        self.queues.remove(member).map(|subject| subject.key)
    }

    /// Something has arrived: the peer is alive, and a test has ended.
    pub fn used(&mut self, member: Member, now: Duration) {
        let now = Stamp::from(now);
        let tested = self.end_test(member);
        let Some(subject) = self.queues.get_mut(member) else { return };
        subject.alive = now;
        let sent = subject.sent;
        match self.reaping.order {
            Order::LastUse => self.queues.place(member, RESTING, self.behind(now)),
            Order::Age if tested => self.queues.place(member, PROVEN, self.behind(sent)),
            Order::Age => {}
        }
    }

    /// The peer's kernel has acknowledged the Null: the peer was alive when it arrived, and the test
    /// has ended. Without a test it is nothing.
    pub fn acknowledged(&mut self, member: Member) {
        if !self.end_test(member) {
            return;
        }
        let Some(subject) = self.queues.get_mut(member) else { return };
        let sent = subject.sent;
        subject.alive = subject.alive.max(sent);
        self.queues.place(member, PROVEN, self.behind(sent));
    }

    /// Counts a test as ended; false: there was none.
    fn end_test(&mut self, member: Member) -> bool {
        let tested = self.queues.queue_of(member).is_some_and(|queue| queue >= ASKED);
        self.under_test -= usize::from(tested);
        tested
    }

    /// Whether a connection may be accepted.
    pub fn has_room(&self) -> bool {
        self.len() < self.reaping.limit
    }

    /// A connection waits. Unless there is room, a reap begins: at once, or when the one that runs
    /// has ended and `min_interval` has passed since it began. Room that came up meanwhile is enough.
    ///
    /// Call it once more if there is still none, and still somebody waiting, when a reap has ended
    /// ([`Reaper::is_reaping`]).
    pub fn room_wanted(&mut self, now: Duration) {
        self.wanted = true;
        self.begin(now.into());
    }

    /// Begins a reap if one is wanted, needed and allowed.
    fn begin(&mut self, now: Stamp) {
        if self.has_room() {
            self.wanted = false;
        }
        if self.wanted && self.allowed_from().is_some_and(|from| from <= now) {
            self.wanted = false;
            self.scanning = true;
            self.began = Some(now);
        }
    }

    /// From when on the next reap may begin; `None`: when the one that runs has ended.
    fn allowed_from(&self) -> Option<Stamp> {
        if self.is_reaping() {
            return None;
        }
        let min_interval = self.reaping.min_interval.into();
        Some(self.began.map_or_else(Stamp::default, |began| began.after(min_interval)))
    }

    /// Whether a reap runs: until no further test will begin and those begun have ended.
    pub fn is_reaping(&self) -> bool {
        self.scanning || self.under_test > 0
    }

    /// When the last reap began.
    pub fn reap_began(&self) -> Option<Duration> {
        self.began.map(Duration::from)
    }

    /// Connections under test.
    pub fn under_test(&self) -> usize {
        self.under_test
    }

    /// When [`Reaper::next`] has something to say next, if nothing happens until then; `None`: no
    /// timer is needed. It lies in the past when the next test can begin.
    pub fn next_due(&self) -> Option<Duration> {
        let begun = self.began.filter(|_| self.scanning && self.under_test < self.reaping.at_once);
        let next = self.allowed_from().filter(|_| self.wanted && !self.has_room());
        let looks = (ASKED..QUEUES).filter_map(|queue| self.due(queue)).map(|(_, due)| due);
        looks.chain(begun).chain(next).min().map(Duration::from)
    }

    /// The first of a queue of tested ones, and when its next look is due.
    fn due(&self, queue: usize) -> Option<(Member, Stamp)> {
        let (member, stamp) = self.queues.front(queue)?;
        if queue == ASKED {
            return Some((member, stamp.after(self.tick)));
        }
        Some((member, self.look_due(queue - TESTED, stamp)))
    }

    /// When a look is due after a Null that was `sent`; the judgement, unlike the others, to the
    /// nanosecond.
    fn look_due(&self, look: usize, sent: Stamp) -> Stamp {
        let judgement = sent.after(self.answer_within);
        let at = sent.after(self.answer_within.part(LOOKS[look]));
        if look + 1 == LOOKS.len() { judgement } else { at.up_to(self.tick).min(judgement) }
    }

    /// Says what to do next. Called until it is `None`, it gives all that is due by `now`.
    #[must_use = "a step that is not done is a Null that is not sent"]
    pub fn next(&mut self, now: Duration) -> Option<ReaperStep<K>> {
        let now = Stamp::from(now);
        if let Some(step) = self.look(now) {
            return Some(step);
        }
        self.begin(now);
        self.test(now)
    }

    fn look(&mut self, now: Stamp) -> Option<ReaperStep<K>> {
        for queue in (ASKED..QUEUES).rev() {
            let Some((member, due)) = self.due(queue) else { continue };
            if due > now {
                continue;
            }
            let subject = self.queues.get(member)?;
            let (key, sent) = (subject.key, subject.sent);
            // Who comes late may have missed some looks.
            let next = (0..LOOKS.len()).find(|&look| self.look_due(look, sent) > now);
            if queue == ASKED || next.is_none() {
                self.queues.place(member, ASKED, now);
                return Some(ReaperStep::Judge(member, key));
            }
            let look = next?;
            self.queues.place(member, TESTED + look, sent);
            return Some(ReaperStep::Look(member, key));
        }
        None
    }

    fn test(&mut self, now: Stamp) -> Option<ReaperStep<K>> {
        let unused_for = self.reaping.unused_for.map(Stamp::from);
        while self.scanning {
            if self.reaping.stop == Stop::BelowMost && self.has_room() {
                self.scanning = false;
                break;
            }
            if self.under_test >= self.reaping.at_once {
                break;
            }
            let Some(member) = self.untested() else {
                self.scanning = false;
                break;
            };
            let subject = self.queues.get_mut(member)?;
            if unused_for.is_some_and(|unused_for| subject.alive.after(unused_for) > now) {
                // By last use, all that follow were used later.
                match self.reaping.order {
                    Order::LastUse => self.scanning = false,
                    Order::Age => self.queues.place(member, RESTING, self.behind(now)),
                }
                continue;
            }
            subject.sent = now;
            let key = subject.key;
            self.queues.place(member, TESTED, now);
            self.under_test += 1;
            return Some(ReaperStep::Test(member, key));
        }
        None
    }

    /// The next that was there when this reap began, and that it has not tested; `None`: all are.
    fn untested(&self) -> Option<Member> {
        let fronts = [RESTING, PROVEN].into_iter().filter_map(|queue| self.queues.front(queue));
        let (member, stamp) = fronts.min_by_key(|&(_, stamp)| stamp)?;
        self.began.filter(|&began| stamp <= began).map(|_| member)
    }

    /// What the caller knows a connection by.
    pub fn get(&self, member: Member) -> Option<&K> {
        self.queues.get(member).map(|subject| &subject.key)
    }

    /// Connections, those under test among them.
    pub fn len(&self) -> usize {
        self.queues.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests;
