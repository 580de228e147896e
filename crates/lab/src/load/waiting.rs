//! Who waits, and until when? Slots in the order in which their waits end.
//!
//! Every wait of one queue has the same length, so the order of beginning is the order of ending
//! and a linked list is enough: each slot has one place, memory does not grow with the number of
//! operations, and nothing is searched. A load gives each kind of wait that it has a queue of its
//! own; slots need not be known before.

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

/// Queues over one set of slots; a slot is in one of them at most.
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
