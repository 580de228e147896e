//! In which order do connections come due? Queues with links inside their nodes.
//!
//! Fleet and reaper stand on this. It knows neither what a connection is nor why it is in a queue.
//! A node is in exactly one queue, and each queue is ordered by the nodes' stamps. Callers arrange
//! it so that a new stamp is nearly always the latest of its queue: then every step is O(1). Those
//! that are not go to a tree beside it: O(log n), however many there are.

use std::array;
use std::collections::BTreeSet;
use std::time::Duration;

use slotmap::{SlotMap, new_key_type};

new_key_type! {
    /// One connection of a [`Fleet`](crate::Fleet) or a [`Reaper`](crate::Reaper).
    ///
    /// A member that was removed is not taken for a later one that has its place: every method
    /// takes it and does nothing, until the place has been given away 2³¹ times. A member of another
    /// fleet or reaper cannot be told from one's own.
    pub struct Member;
}

/// Nanoseconds since the caller's fixed moment: half the size of a [`Duration`], enough for 584
/// years. The last of them is never: no [`Duration`] becomes it, so what is due then stays so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stamp(u64);

impl Stamp {
    /// The next there is.
    pub(crate) fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// `self + time`; never rather than overflow.
    pub(crate) fn after(self, time: Self) -> Self {
        Self(self.0.saturating_add(time.0))
    }

    /// `self - time`; not before the fixed moment.
    pub(crate) fn before(self, time: Self) -> Self {
        Self(self.0.saturating_sub(time.0))
    }

    /// The first multiple of `tick`, which is not zero, that is not before `self`.
    pub(crate) fn up_to(self, tick: Self) -> Self {
        Self(self.0.checked_next_multiple_of(tick.0).unwrap_or(u64::MAX))
    }

    /// `self / parts`.
    pub(crate) fn part(self, parts: u64) -> Self {
        Self(self.0 / parts)
    }
}

impl From<Duration> for Stamp {
    fn from(time: Duration) -> Self {
        let seconds = time.as_secs().saturating_mul(1_000_000_000);
        Self(seconds.saturating_add(u64::from(time.subsec_nanos())).min(u64::MAX - 1))
    }
}

impl From<Stamp> for Duration {
    fn from(stamp: Stamp) -> Self {
        Self::from_nanos(stamp.0)
    }
}

#[derive(Clone, Debug)]
struct Node<T> {
    value: T,
    stamp: Stamp,
    previous: Option<Member>,
    next: Option<Member>,
    queue: u8,
    /// It is among its queue's strays.
    stray: bool,
}

/// One queue: a list, and beside it those that came when the list's back had a later stamp.
#[derive(Clone, Debug, Default)]
struct Queue {
    front: Option<Member>,
    back: Option<Member>,
    strays: BTreeSet<(Stamp, Member)>,
}

/// `N` queues over one store of nodes.
#[derive(Clone, Debug)]
pub(crate) struct Queues<T, const N: usize> {
    nodes: SlotMap<Member, Node<T>>,
    queues: [Queue; N],
}

impl<T, const N: usize> Queues<T, N> {
    /// What one node takes in the store: itself, and the generation of its place.
    #[cfg(test)]
    pub(crate) const ENTRY_BYTES: usize =
        (size_of::<Node<T>>() + size_of::<u32>()).next_multiple_of(align_of::<Node<T>>());

    pub(crate) fn new() -> Self {
        Self { nodes: SlotMap::with_key(), queues: array::from_fn(|_| Queue::default()) }
    }

    pub(crate) fn reserve(&mut self, more: usize) {
        self.nodes.reserve(more);
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn get(&self, member: Member) -> Option<&T> {
        self.nodes.get(member).map(|node| &node.value)
    }

    pub(crate) fn get_mut(&mut self, member: Member) -> Option<&mut T> {
        self.nodes.get_mut(member).map(|node| &mut node.value)
    }

    /// The queue that `member` is in.
    pub(crate) fn queue_of(&self, member: Member) -> Option<usize> {
        self.nodes.get(member).map(|node| usize::from(node.queue))
    }

    /// First of a queue, with its stamp.
    pub(crate) fn front(&self, queue: usize) -> Option<(Member, Stamp)> {
        let Queue { front, strays, .. } = &self.queues[queue];
        let front = front.and_then(|front| Some((front, self.nodes.get(front)?.stamp)));
        let stray = strays.first().map(|&(stamp, member)| (member, stamp));
        front.into_iter().chain(stray).min_by_key(|&(_, stamp)| stamp)
    }

    pub(crate) fn insert(&mut self, value: T, queue: usize, stamp: Stamp) -> Member {
        let node = Node { value, stamp, previous: None, next: None, queue: 0, stray: false };
        let member = self.nodes.insert(node);
        self.link(member, queue, stamp);
        member
    }

    pub(crate) fn remove(&mut self, member: Member) -> Option<T> {
        self.unlink(member);
        self.nodes.remove(member).map(|node| node.value)
    }

    /// Puts `member` into a queue, behind all whose stamps are earlier. Of those with the same stamp
    /// it is the last, unless it or they came out of order.
    ///
    /// Cost: O(1) if no stamp of the queue is later, else O(log n).
    pub(crate) fn place(&mut self, member: Member, queue: usize, stamp: Stamp) {
        self.unlink(member);
        self.link(member, queue, stamp);
    }

    fn link(&mut self, member: Member, queue: usize, stamp: Stamp) {
        let back = self.queues[queue].back;
        let stray = back.and_then(|at| self.nodes.get(at)).is_some_and(|node| node.stamp > stamp);
        let Some(node) = self.nodes.get_mut(member) else { return };
        (node.queue, node.stamp, node.stray) = (queue as u8, stamp, stray);
        if stray {
            self.queues[queue].strays.insert((stamp, member));
            return;
        }
        self.join(queue, back, Some(member));
        self.join(queue, Some(member), None);
    }

    fn unlink(&mut self, member: Member) {
        let Some(node) = self.nodes.get(member) else { return };
        let queue = usize::from(node.queue);
        if node.stray {
            self.queues[queue].strays.remove(&(node.stamp, member));
            return;
        }
        let (previous, next) = (node.previous, node.next);
        self.join(queue, previous, next);
    }

    /// Makes two nodes neighbours; in the place of a node that is not there stands the queue's end.
    fn join(&mut self, queue: usize, left: Option<Member>, right: Option<Member>) {
        match left.and_then(|left| self.nodes.get_mut(left)) {
            Some(node) => node.next = right,
            None => self.queues[queue].front = right,
        }
        match right.and_then(|right| self.nodes.get_mut(right)) {
            Some(node) => node.previous = left,
            None => self.queues[queue].back = left,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(nanoseconds: u64) -> Stamp {
        Stamp(nanoseconds)
    }

    fn drain(queues: &mut Queues<u32, 2>, queue: usize) -> Vec<u32> {
        let mut values = Vec::new();
        while let Some((member, _)) = queues.front(queue) {
            values.extend(queues.remove(member));
        }
        values
    }

    #[test]
    fn a_queue_is_ordered_by_stamp_and_equal_stamps_by_arrival_if_they_came_in_order() {
        let mut queues = Queues::new();
        for (value, at) in [(1, 10), (2, 30), (3, 20), (4, 30), (5, 5)] {
            queues.insert(value, 0, stamp(at));
        }
        assert_eq!(drain(&mut queues, 0), [5, 1, 3, 2, 4]);
    }

    #[test]
    fn a_node_is_in_the_queue_it_was_placed_in_last() {
        let mut queues = Queues::new();
        let members: Vec<_> = (0..5).map(|v| queues.insert(v, 0, stamp(u64::from(v)))).collect();
        queues.place(members[0], 1, stamp(1));
        queues.place(members[2], 1, stamp(0));
        queues.place(members[4], 1, stamp(9));
        assert_eq!(queues.queue_of(members[2]), Some(1));
        assert_eq!(drain(&mut queues, 1), [2, 0, 4]);
        assert_eq!(drain(&mut queues, 0), [1, 3]);
    }

    #[test]
    fn two_hundred_thousand_that_come_in_any_order_are_put_in_order_without_a_search() {
        // With a search from the back for each it would not end: 30 thousand million steps.
        let mut queues = Queues::<u64, 2>::new();
        let count = 200_003;
        for turn in 0..count {
            queues.insert(turn, 0, stamp(turn * 123_456 % count)); // each once: it is a prime
        }
        for turn in (0..count).rev() {
            queues.insert(turn, 1, stamp(turn));
        }
        for queue in [0, 1] {
            for expected in 0..count {
                let (member, at) = queues.front(queue).unwrap();
                assert_eq!(at, stamp(expected));
                queues.remove(member);
            }
        }
        assert_eq!(queues.len(), 0);
    }

    #[test]
    fn a_stale_member_names_nothing() {
        let mut queues = Queues::<u32, 2>::new();
        let old = queues.insert(1, 0, stamp(0));
        assert_eq!(queues.remove(old), Some(1));
        let new = queues.insert(2, 0, stamp(0));
        queues.place(old, 1, stamp(0));
        assert_eq!(queues.remove(old), None);
        assert_eq!(queues.front(1), None);
        assert_eq!(queues.front(0), Some((new, stamp(0))));
    }

    #[test]
    fn rounding_goes_up_and_stops_at_the_end_of_time() {
        assert_eq!(stamp(21).up_to(stamp(10)), stamp(30));
        assert_eq!(stamp(30).up_to(stamp(10)), stamp(30));
        assert_eq!(stamp(u64::MAX - 1).up_to(stamp(1_000)), stamp(u64::MAX));
    }
}
