//! When is each of many connections to be tested, and which are dead? Heartbeats with one timer.
//!
//! It sends nothing and reads no clock: the caller says what happened and when, and is told what to
//! do. [`Session`](crate::Session) is the same for one connection, with a framing; [`Reaper`](crate::Reaper) does
//! without a timer.

use std::time::Duration;

use crate::queue::{Member, Queues, Stamp};
use crate::timing::Timing;

/// Resting; stamp: when something arrived.
const HEARD: usize = 0;
/// Resting; stamp: when the Null was sent that has been acknowledged. A queue of its own because
/// these dates lie in the past: among those that were heard since, the place would have to be
/// searched for.
const PROVEN: usize = 1;
/// Under test; stamp: when the Null was sent.
const TESTED: usize = 2;
/// The judgement is awaited; stamp: when it was asked for.
const ASKED: usize = 3;

/// What to do about one connection of a [`Fleet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FleetStep<K> {
    /// Send a Null now.
    ///
    /// If the socket is full: with [`Evidence::Acknowledged`](crate::Evidence::Acknowledged) nothing need
    /// be done, because what fills the socket is unacknowledged, and serves as well. With
    /// [`Evidence::Answered`](crate::Evidence::Answered) keep the Null, and send it when there is room: its
    /// answer can come only after all that lies before it. Until then, that less is unacknowledged than at
    /// the look before is a sign of life: say [`Fleet::acknowledged`].
    Test(Member, K),
    /// The last look: say [`Fleet::acknowledged`] or [`Fleet::heard`] if the peer is alive,
    /// [`Fleet::remove`] if it is dead.
    ///
    /// Read what has arrived first: a program that was busy has the evidence waiting in the socket.
    /// And where much was being sent, not all of it need have been acknowledged: if less is
    /// unacknowledged than at the test, say [`Fleet::acknowledged`].
    ///
    /// Who says nothing is asked again a tick later: nothing is ever removed on its own.
    Judge(Member, K),
}

#[derive(Clone, Debug)]
struct Beat<K> {
    key: K,
    /// When the last Null was sent.
    sent: Stamp,
}

/// Heartbeats of any number of connections.
///
/// `K` is what the caller knows a connection by: an index, a token, a descriptor. Times are since
/// any fixed moment, the same for all calls.
///
/// All connections share one [`Timing`]; so the first of each queue is the next due, and a call is
/// O(1): also [`Fleet::acknowledged`] where it is told in the order of the tests, and
/// [`Fleet::insert_heard`] in ascending order; otherwise these are O(log n). Memory: 56 bytes a
/// connection with a `K` of 4 bytes, in one vector that grows by doubling
/// ([`Fleet::with_capacity`] takes it at once), and about 30 for each that was told of out of order.
///
/// ```
/// use std::time::Duration;
/// use tcp_heartbeat::{Fleet, FleetStep, Timing};
///
/// let s = Duration::from_secs;
/// let mut fleet = Fleet::new(Timing::new(s(30), s(5)), s(1));
/// let first = fleet.insert(1_u32, s(0));
/// let second = fleet.insert(2_u32, s(0));
/// fleet.heard(second, s(20)); // bytes have arrived
///
/// assert_eq!(fleet.next_due(), Some(s(30)));
/// assert_eq!(fleet.next(s(30)), Some(FleetStep::Test(first, 1))); // send a Null
/// assert_eq!(fleet.next(s(30)), None);
/// assert_eq!(fleet.next(s(35)), Some(FleetStep::Judge(first, 1))); // nothing came back
/// assert_eq!(fleet.remove(first), Some(1)); // close it
/// assert_eq!(fleet.next_due(), Some(s(50)));
/// ```
#[derive(Clone, Debug)]
pub struct Fleet<K: Copy> {
    idle: Stamp,
    answer_within: Stamp,
    tick: Stamp,
    queues: Queues<Beat<K>, 4>,
}

impl<K: Copy> Fleet<K> {
    /// Makes an empty fleet.
    ///
    /// Tests wait for the next multiple of `tick`, so that all of one tick are sent in one wake-up;
    /// judgements come `answer_within` after that, and so in one wake-up, too. A death is known
    /// within [`Timing::bound`] and one tick of the last sign of life.
    ///
    /// Range: no time is taken shorter than 1 µs, and neither of `timing`'s shorter than the tick.
    pub fn new(timing: Timing, tick: Duration) -> Self {
        let tick = tick.max(Duration::from_micros(1));
        Self {
            idle: timing.idle.max(tick).into(),
            answer_within: timing.answer_within.max(tick).into(),
            tick: tick.into(),
            queues: Queues::new(),
        }
    }

    /// Makes an empty fleet with memory for `connections`.
    pub fn with_capacity(timing: Timing, tick: Duration, connections: usize) -> Self {
        let mut fleet = Self::new(timing, tick);
        fleet.queues.reserve(connections);
        fleet
    }

    /// Takes in a connection that was established now.
    pub fn insert(&mut self, key: K, now: Duration) -> Member {
        self.insert_heard(key, now, now)
    }

    /// Takes in a connection that was last heard of at `heard_at`; what lies after `now` counts as
    /// now.
    ///
    /// Connections that were all established at once are tested all at once for ever, unless they
    /// are spread: give each a moment of the last `idle`.
    ///
    /// Cost: O(1) if nobody was heard of later, else O(log n); so a whole fleet is best given in
    /// ascending order.
    pub fn insert_heard(&mut self, key: K, heard_at: Duration, now: Duration) -> Member {
        let heard = Stamp::from(heard_at.min(now));
        self.queues.insert(Beat { key, sent: heard }, HEARD, heard)
    }

    /// Takes out a connection that was closed; `None` if it was taken out before.
    pub fn remove(&mut self, member: Member) -> Option<K> {
        self.queues.remove(member).map(|beat| beat.key)
    }

    /// Bytes have arrived: the peer is alive, and a test has ended.
    pub fn heard(&mut self, member: Member, now: Duration) {
        self.queues.place(member, HEARD, now.into());
    }

    /// The peer's kernel has acknowledged the Null, some time between its sending and now: the test
    /// has ended. Without a test it is nothing.
    ///
    /// When it was acknowledged is not known. So the next Null goes `idle` after the one that
    /// proved it; not before `now`.
    ///
    /// Cost: O(1) if nobody tested later was acknowledged before, else O(log n).
    pub fn acknowledged(&mut self, member: Member, now: Duration) {
        if !matches!(self.queues.queue_of(member), Some(TESTED | ASKED)) {
            return;
        }
        let Some(sent) = self.queues.get(member).map(|beat| beat.sent) else { return };
        let proof = sent.max(Stamp::from(now).before(self.idle));
        self.queues.place(member, PROVEN, proof);
    }

    /// When [`Fleet::next`] has something to say next, if nothing happens until then; `None`: the
    /// fleet is empty. It may lie in the past.
    pub fn next_due(&self) -> Option<Duration> {
        let dues = [HEARD, PROVEN, TESTED, ASKED].map(|queue| self.due(queue));
        dues.into_iter().flatten().map(|(_, due)| due).min().map(Duration::from)
    }

    /// The first of a queue, and when its next step is due.
    fn due(&self, queue: usize) -> Option<(Member, Stamp)> {
        let (member, stamp) = self.queues.front(queue)?;
        let due = match queue {
            TESTED => stamp.after(self.answer_within),
            ASKED => stamp.after(self.tick),
            _ => stamp.after(self.idle).up_to(self.tick),
        };
        Some((member, due))
    }

    /// Says what to do next. Called until it is `None`, it gives all that is due by `now`.
    ///
    /// Give one `now` for all of a wake-up, unless sending takes a good part of `answer_within`:
    /// then take the time again for each, or the last would have less time to answer.
    #[must_use = "a step that is not done is a Null that is not sent"]
    pub fn next(&mut self, now: Duration) -> Option<FleetStep<K>> {
        let now = Stamp::from(now);
        for queue in [TESTED, ASKED, PROVEN, HEARD] {
            let Some((member, due)) = self.due(queue) else { continue };
            if due > now {
                continue;
            }
            let Some(beat) = self.queues.get_mut(member) else { continue };
            let key = beat.key;
            if matches!(queue, TESTED | ASKED) {
                self.queues.place(member, ASKED, now);
                return Some(FleetStep::Judge(member, key));
            }
            beat.sent = now;
            self.queues.place(member, TESTED, now);
            return Some(FleetStep::Test(member, key));
        }
        None
    }

    /// What the caller knows a connection by.
    pub fn get(&self, member: Member) -> Option<&K> {
        self.queues.get(member).map(|beat| &beat.key)
    }

    /// Connections.
    pub fn len(&self) -> usize {
        self.queues.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn fleet(tick: u64) -> Fleet<u32> {
        Fleet::new(Timing::new(ms(1_000), ms(300)), ms(tick))
    }

    fn steps(fleet: &mut Fleet<u32>, now: u64) -> Vec<FleetStep<u32>> {
        std::iter::from_fn(|| fleet.next(ms(now))).collect()
    }

    #[test]
    fn tests_of_one_tick_go_together_and_judgements_a_fixed_time_later() {
        let mut fleet = fleet(100);
        let members = [3, 40, 100].map(|at| fleet.insert(at as u32, ms(at)));
        assert_eq!(fleet.next_due(), Some(ms(1_100)));
        assert_eq!(steps(&mut fleet, 1_099), []);
        let tests: Vec<_> =
            [3, 40, 100].iter().zip(members).map(|(&k, m)| FleetStep::Test(m, k)).collect();
        assert_eq!(steps(&mut fleet, 1_105), tests);
        assert_eq!(fleet.next_due(), Some(ms(1_405)));
    }

    #[test]
    fn what_was_heard_ends_a_test_and_counts_from_then() {
        let mut fleet = fleet(1);
        let member = fleet.insert(1, ms(0));
        assert_eq!(steps(&mut fleet, 1_000), [FleetStep::Test(member, 1)]);
        fleet.heard(member, ms(1_200));
        assert_eq!(fleet.next_due(), Some(ms(2_200)));
    }

    #[test]
    fn what_was_acknowledged_counts_from_the_null_but_never_from_the_past() {
        let mut fleet = fleet(1);
        let member = fleet.insert(1, ms(0));
        assert_eq!(steps(&mut fleet, 1_000), [FleetStep::Test(member, 1)]);
        fleet.acknowledged(member, ms(1_300));
        assert_eq!(fleet.next_due(), Some(ms(2_000)));
        assert_eq!(steps(&mut fleet, 2_000), [FleetStep::Test(member, 1)]);
        fleet.acknowledged(member, ms(9_000)); // a program that slept
        assert_eq!(fleet.next_due(), Some(ms(9_000)));
        fleet.acknowledged(member, ms(9_500)); // without a test
        assert_eq!(fleet.next_due(), Some(ms(9_000)));
    }

    #[test]
    fn a_judgement_put_off_is_asked_for_a_tick_later_and_nothing_closes_on_its_own() {
        let mut fleet = fleet(50);
        let member = fleet.insert(1, ms(0));
        assert_eq!(steps(&mut fleet, 1_000), [FleetStep::Test(member, 1)]);
        for at in [1_300, 1_350, 1_400] {
            assert_eq!(fleet.next_due(), Some(ms(at)));
            assert_eq!(steps(&mut fleet, at), [FleetStep::Judge(member, 1)]);
        }
        assert_eq!(fleet.get(member), Some(&1));
        assert_eq!(fleet.remove(member), Some(1));
        assert_eq!((fleet.next_due(), fleet.is_empty()), (None, true));
    }

    #[test]
    fn the_end_of_time_gives_each_step_once() {
        let mut fleet = fleet(1);
        let member = fleet.insert(1, ms(0));
        let mut steps = || fleet.next(Duration::MAX);
        assert_eq!((steps(), steps()), (Some(FleetStep::Test(member, 1)), None));
        let mut fleet = self::fleet(1);
        let member = fleet.insert(1, ms(0));
        assert_eq!(fleet.next(ms(1_000)), Some(FleetStep::Test(member, 1)));
        let mut steps = || fleet.next(Duration::MAX);
        assert_eq!((steps(), steps()), (Some(FleetStep::Judge(member, 1)), None));
    }

    #[test]
    fn what_was_acknowledged_is_tested_in_time_in_whatever_order_it_is_told() {
        let mut fleet = fleet(1);
        let members = [0, 1, 2, 3].map(|key| fleet.insert(key, ms(u64::from(key))));
        let sent = |at: u64| ms(1_000 + at);
        for at in 0..4 {
            assert_eq!(
                fleet.next(sent(at)),
                Some(FleetStep::Test(members[at as usize], at as u32))
            );
        }
        for at in [2, 0, 3, 1] {
            fleet.acknowledged(members[at], ms(1_100));
        }
        for at in 0..4 {
            assert_eq!(fleet.next_due(), Some(sent(1_000 + at)));
            let expected = FleetStep::Test(members[at as usize], at as u32);
            assert_eq!(steps(&mut fleet, 2_000 + at), [expected]);
        }
    }

    #[test]
    fn members_that_were_heard_of_earlier_come_first_in_whatever_order_they_are_given() {
        let mut fleet = fleet(1);
        for heard_at in [700, 100, 400] {
            fleet.insert_heard(heard_at as u32, ms(heard_at), ms(800));
        }
        for heard_at in [100, 400, 700] {
            assert_eq!(fleet.next_due(), Some(ms(heard_at + 1_000)));
            let Some(FleetStep::Test(member, key)) = fleet.next(ms(heard_at + 1_000)) else {
                panic!("a test is due");
            };
            assert_eq!(u64::from(key), heard_at);
            fleet.remove(member);
        }
    }

    #[test]
    fn an_entry_takes_the_memory_that_the_documentation_says() {
        assert_eq!(Queues::<Beat<u32>, 4>::ENTRY_BYTES, 56);
    }
}
