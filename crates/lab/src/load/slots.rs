//! Where is each thing kept, by a number that a poller can give back? A free number is used again.
//!
//! Nothing may be put while events are still to be looked at: one of them may be of the thing that
//! had the number before.

use std::ops::Range;

/// Things by their number.
#[derive(Debug)]
pub(super) struct Slots<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slots<T> {
    /// Holds nothing.
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
}
