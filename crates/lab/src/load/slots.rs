//! Connections and operations by number: where each is kept ([`Slots`]), which has waited too long
//! ([`Waiting`]), whether a closed loop had all in use ([`Occupancy`]), and whether one that waits can still
//! be answered in time ([`Service`]).

use std::ops::Range;

/// Things by a number that a poller can give back. A free number is used again.
///
/// Nothing may be put while events are still to be looked at: one of them may be of the thing that
/// had the number before.
#[derive(Debug)]
pub(super) struct Slots<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slots<T> {
    pub(super) fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }

    /// The number that the next thing will have.
    pub(super) fn vacant(&self) -> u32 {
        self.free.last().copied().unwrap_or(self.places.len() as u32)
    }

    /// Takes a thing in; gives its number.
    pub(super) fn put(&mut self, thing: T) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.places[slot as usize] = Some(thing);
            return slot;
        }
        self.places.push(Some(thing));
        self.places.len() as u32 - 1
    }

    /// Takes a thing out. None: there is none of this number.
    pub(super) fn take(&mut self, slot: u32) -> Option<T> {
        let thing = self.places.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        Some(thing)
    }

    /// The thing of a number.
    pub(super) fn get(&self, slot: u32) -> Option<&T> {
        self.places.get(slot as usize)?.as_ref()
    }

    /// The same, to be changed.
    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.places.get_mut(slot as usize)?.as_mut()
    }

    /// How many things there are.
    pub(super) fn held(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// All numbers that have been in use.
    pub(super) fn numbers(&self) -> Range<u32> {
        0..self.places.len() as u32
    }

    /// All things, by number.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().flatten()
    }

    /// The same, to be changed.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().flatten()
    }
}

/// No slot.
const NONE: u32 = u32::MAX;

/// The place of a slot in a queue.
#[derive(Clone, Copy, Debug)]
struct QueuePosition {
    before: u32,
    after: u32,
    until_ns: u64,
    /// Number of the queue it is in.
    queue: u8,
}

const NOWHERE: QueuePosition =
    QueuePosition { before: NONE, after: NONE, until_ns: 0, queue: u8::MAX };

/// Queues over one set of slots, in the order in which their waits end; a slot is in one of them at most.
///
/// Every wait of one queue has the same length, so the order of beginning is the order of ending
/// and a linked list is enough: each slot has one place, memory does not grow with the number of
/// operations, and nothing is searched. A load gives each kind of wait that it has a queue of its
/// own; slots need not be known before.
#[derive(Debug)]
pub(super) struct Waiting<const QUEUES: usize> {
    places: Vec<QueuePosition>,
    first: [u32; QUEUES],
    last: [u32; QUEUES],
}

impl<const QUEUES: usize> Waiting<QUEUES> {
    /// Nobody waits; there is room for this number of slots, and more are taken as they come.
    pub(super) fn new(slots: usize) -> Self {
        Self { places: vec![NOWHERE; slots], first: [NONE; QUEUES], last: [NONE; QUEUES] }
    }

    /// Puts a slot at the end of a queue; `until_ns` is not before that of the one before it.
    pub(super) fn begin(&mut self, queue: usize, slot: u32, until_ns: u64) {
        if slot as usize >= self.places.len() {
            self.places.resize(slot as usize + 1, NOWHERE);
        }
        self.end(slot);
        let before = self.last[queue];
        self.places[slot as usize] =
            QueuePosition { before, after: NONE, until_ns, queue: queue as u8 };
        match self.places.get_mut(before as usize) {
            Some(place) => place.after = slot,
            None => self.first[queue] = slot,
        }
        self.last[queue] = slot;
    }

    /// Takes a slot out of its queue, if it is in one.
    pub(super) fn end(&mut self, slot: u32) {
        let Some(place) = self.places.get_mut(slot as usize) else { return };
        let place = std::mem::replace(place, NOWHERE);
        let queue = usize::from(place.queue);
        if queue >= QUEUES {
            return;
        }
        match self.places.get_mut(place.before as usize) {
            Some(before) => before.after = place.after,
            None => self.first[queue] = place.after,
        }
        match self.places.get_mut(place.after as usize) {
            Some(after) => after.before = place.before,
            None => self.last[queue] = place.before,
        }
    }

    /// The first of a queue, if its wait is over; it stays there.
    pub(super) fn over(&self, queue: usize, now_ns: u64) -> Option<u32> {
        let first = self.first[queue];
        self.places.get(first as usize).filter(|place| place.until_ns <= now_ns).map(|_| first)
    }

    /// When the wait of the first of a queue ends. None: the queue is empty.
    pub(super) fn first_until_ns(&self, queue: usize) -> Option<u64> {
        self.places.get(self.first[queue] as usize).map(|place| place.until_ns)
    }

    /// Whether nobody is in a queue.
    pub(super) fn is_empty(&self, queue: usize) -> bool {
        self.first[queue] == NONE
    }

    /// When the first wait of any queue ends.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let ends = self.first.iter().filter_map(|&slot| self.places.get(slot as usize));
        ends.map(|place| place.until_ns).min()
    }
}

/// How many operations did a closed loop keep under way concurrently, when it was to keep all its
/// slots filled? Adds up the time that they took within the stretch.
///
/// The stretch looked at begins when the last slot is filled for the first time and ends when no
/// further operation is to begin: neither ramp nor drain is the client's failure, and a single
/// operation that outlasts all others by a retry of a second is none. Time comes in as an argument.
///
/// A new load calls [`Occupancy::filled`] once, [`Occupancy::ended`] for each operation, and
/// [`Occupancy::close`] when [`Pace`](super::pace::Pace) is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Occupancy {
    from: Option<u64>,
    until: Option<u64>,
    /// Nothing after this counts.
    limit: u64,
    busy: u64,
}

impl Occupancy {
    /// Nothing is filled yet. No operation begins after `limit_ns`.
    pub(super) fn new(limit_ns: u64) -> Self {
        Self { from: None, until: None, limit: limit_ns, busy: 0 }
    }

    /// All slots are filled; the first call counts.
    pub(super) fn filled(&mut self, now_ns: u64) {
        self.from.get_or_insert(now_ns);
    }

    /// Whether the stretch goes on: what ends now counts.
    pub(super) fn is_open(&self) -> bool {
        self.from.is_some() && self.until.is_none()
    }

    /// Whether what completes at this instant completes within the stretch, which is still open.
    pub(super) fn has(&self, now_ns: u64) -> bool {
        self.is_open() && now_ns <= self.limit
    }

    /// An operation has ended.
    pub(super) fn ended(&mut self, begun_ns: u64, now_ns: u64) {
        if let (Some(from), None) = (self.from, self.until) {
            self.busy += now_ns.min(self.limit).saturating_sub(begun_ns.max(from));
        }
    }

    /// No further operation begins; those that are under way began at these times. The first call
    /// counts.
    pub(super) fn close(&mut self, now_ns: u64, begun_ns: impl Iterator<Item = u64>) {
        if !self.is_open() {
            return;
        }
        let until = now_ns.min(self.limit);
        for begun_ns in begun_ns {
            self.ended(begun_ns, until);
        }
        self.until = Some(until);
    }

    /// When the stretch ended, ns; absent before that, and if the slots were never all filled.
    pub(super) fn until_ns(&self) -> Option<u64> {
        self.until
    }

    /// Length of the stretch, ns, and the time that operations took within it.
    pub(super) fn measured_ns(&self) -> (u64, u64) {
        let length = self.until.zip(self.from);
        (length.map_or(0, |(until, from)| until.saturating_sub(from)), self.busy)
    }
}

/// An operation may wait for a connection for this share of its time limit, however slow the server
/// is.
const WAIT_SHARE: u64 = 10;

/// Of this many operations the slowest is expected. In an overload each is sent at the last moment, so a
/// shorter memory loses one in a few: a server of 190/s with 64 connections then answered 93 to 182/s of
/// them, and worked on requests that nobody waited for any more.
const MEMORY: u64 = 128;

/// Recent service times: the largest, which fades.
///
/// In an open loop that is overloaded every operation waits for a connection until its time limit is nearly
/// over. One that is sent too late to be answered is worse than lost: its connection has to be closed and
/// another opened, so that the next ones come too late as well. So what can no longer be answered in time, by
/// how long responses have taken, is not sent: over 20 ms with 2 connections and ten times the load
/// throughput stays at the capacity.
///
/// A new load gives a [`Service`] each time that something took, and asks [`is_too_late`] before it
/// sends.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Service {
    recent_ns: u64,
}

impl Service {
    /// Something took this long, ns.
    pub(super) fn took(&mut self, ns: u64) {
        self.recent_ns =
            if ns > self.recent_ns { ns } else { self.recent_ns - (self.recent_ns - ns) / MEMORY };
    }

    /// Something took longer than this, ns, and was given up: it may have taken half as long again.
    pub(super) fn missed(&mut self, ns: u64) {
        self.took(ns.saturating_add(ns / 2));
    }

    /// What to expect, ns.
    pub(super) fn expected_ns(self) -> u64 {
        self.recent_ns
    }
}

/// Whether an operation of this age can no longer be answered within its time limit, if that takes
/// `expected_ns`.
pub(super) fn is_too_late(age_ns: u64, expected_ns: u64, limit_ns: u64) -> bool {
    let longest = limit_ns - limit_ns / WAIT_SHARE;
    age_ns.saturating_add(expected_ns.min(longest)) >= limit_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_used_again_and_taken_out_once() {
        let mut slots = Slots::new();
        assert_eq!((slots.vacant(), slots.put('a'), slots.put('b')), (0, 0, 1));
        assert_eq!((slots.take(0), slots.take(0), slots.take(7)), (Some('a'), None, None));
        assert_eq!((slots.held(), slots.numbers(), slots.get(0)), (1, 0..2, None));
        assert_eq!((slots.vacant(), slots.put('c'), slots.vacant()), (0, 0, 2));
        assert_eq!(slots.iter().collect::<String>(), "cb");
    }

    #[test]
    fn the_first_to_begin_is_the_first_to_be_over() {
        let mut waiting: Waiting<2> = Waiting::new(4);
        waiting.begin(0, 2, 10);
        waiting.begin(0, 0, 20);
        waiting.begin(1, 3, 15);
        assert_eq!(waiting.next_ns(), Some(10));
        assert_eq!(
            (waiting.first_until_ns(1), Waiting::<2>::new(4).first_until_ns(1)),
            (Some(15), None)
        );
        assert_eq!(
            (waiting.over(0, 9), waiting.over(0, 10), waiting.over(1, 14)),
            (None, Some(2), None)
        );
        waiting.end(2);
        assert_eq!((waiting.over(0, 25), waiting.next_ns()), (Some(0), Some(15)));
    }

    #[test]
    fn a_slot_leaves_from_the_middle_and_begins_again_at_the_end() {
        let mut waiting: Waiting<1> = Waiting::new(0);
        waiting.end(7);
        for slot in 0..3 {
            waiting.begin(0, slot, u64::from(slot));
        }
        waiting.begin(0, 1, 9);
        let mut order = Vec::new();
        while let Some(slot) = waiting.over(0, 100) {
            order.push(slot);
            waiting.end(slot);
        }
        assert_eq!(order, [0, 2, 1]);
        assert_eq!(waiting.next_ns(), None);
        waiting.end(1);
    }

    #[test]
    fn ramp_and_drain_do_not_count() {
        let mut occupancy = Occupancy::new(u64::MAX);
        // Two slots, filled at 100; the first has been busy since 0.
        occupancy.filled(100);
        occupancy.ended(0, 150); // 50 within
        occupancy.ended(100, 200); // 100
        occupancy.close(300, [160, 300].into_iter()); // 140 and nothing
        occupancy.ended(160, 9_000);
        assert_eq!(occupancy.measured_ns(), (200, 290));
    }

    #[test]
    fn what_ends_before_the_slots_are_filled_does_not_count() {
        let mut occupancy = Occupancy::new(u64::MAX);
        occupancy.ended(0, 50);
        assert_eq!(occupancy.measured_ns(), (0, 0));
        occupancy.close(60, [10].into_iter());
        assert_eq!((occupancy.measured_ns(), occupancy.until_ns()), ((0, 0), None));
    }

    #[test]
    fn the_limit_ends_the_stretch_though_it_is_noticed_later() {
        let mut occupancy = Occupancy::new(1_000);
        assert!(!occupancy.has(0));
        occupancy.filled(0);
        assert!(occupancy.has(1_000) && !occupancy.has(1_001));
        occupancy.ended(0, 400);
        occupancy.ended(500, 1_200);
        occupancy.close(1_300, std::iter::empty());
        assert_eq!(occupancy.measured_ns(), (1_000, 900));
        assert_eq!(occupancy.until_ns(), Some(1_000));
    }

    #[test]
    fn an_operation_is_sent_as_long_as_it_can_be_answered() {
        assert!(!is_too_late(700, 300, 1_001));
        assert!(is_too_late(700, 300, 1_000));
        assert!(is_too_late(1_000, 0, 1_000) && !is_too_late(999, 0, 1_000));
    }

    #[test]
    fn a_server_slower_than_the_limit_is_asked_all_the_same() {
        assert!(!is_too_late(99, u64::MAX, 1_000));
        assert!(is_too_late(100, u64::MAX, 1_000));
    }

    #[test]
    fn the_largest_of_late_is_expected_and_fades() {
        let mut service = Service::default();
        service.took(12_800);
        assert_eq!(service.expected_ns(), 12_800);
        service.took(0);
        assert_eq!(service.expected_ns(), 12_700);
        service.took(20_000);
        assert_eq!(service.expected_ns(), 20_000);
        service.missed(20_000);
        assert_eq!(service.expected_ns(), 30_000);
    }
}
