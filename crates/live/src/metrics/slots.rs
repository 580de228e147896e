//! Named things that keep their place: the labels of a page must not change from look to look.

use std::collections::BTreeMap;

/// A place stays taken for this time after its thing was last seen, s. So names that come and go take at
/// most one room of places in this time, and the number of series stays bounded over days.
pub(super) const HOLD_S: f64 = 600.0;

/// Places for things by name.
#[derive(Debug)]
pub(super) struct Slots<T> {
    by_name: BTreeMap<String, Slot<T>>,
    room: usize,
    /// Places beyond `room` for what is urgent.
    reserve: usize,
    now_s: f64,
}

#[derive(Debug)]
struct Slot<T> {
    seen_s: f64,
    value: T,
}

impl<T: Default> Slots<T> {
    pub(super) fn new(room: usize, reserve: usize) -> Self {
        Self { by_name: BTreeMap::new(), room, reserve, now_s: 0.0 }
    }

    /// A look begins: places whose things were not seen for [`HOLD_S`] become free.
    pub(super) fn look(&mut self, at_s: f64) {
        self.now_s = at_s;
        self.by_name.retain(|_, slot| at_s - slot.seen_s <= HOLD_S);
    }

    /// The place of a thing that this look shows; none if there is no room. One that has a place keeps it.
    pub(super) fn place(&mut self, name: &str, urgent: bool) -> Option<&mut T> {
        let room = self.room + if urgent { self.reserve } else { 0 };
        if !self.by_name.contains_key(name) {
            if self.by_name.len() >= room {
                return None;
            }
            let slot = Slot { seen_s: self.now_s, value: T::default() };
            self.by_name.insert(name.to_owned(), slot);
        }
        let slot = self.by_name.get_mut(name)?;
        slot.seen_s = self.now_s;
        Some(&mut slot.value)
    }

    /// Whether a thing has a place.
    pub(super) fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// What was seen in the newest look or at most `within_s` before it, by name.
    pub(super) fn seen(&self, within_s: f64) -> impl Iterator<Item = (&str, &T)> {
        let seen = move |slot: &Slot<T>| self.now_s - slot.seen_s <= within_s;
        let all = self.by_name.iter().filter(move |(_, slot)| seen(slot));
        all.map(|(name, slot)| (name.as_str(), &slot.value))
    }
}

/// The largest value of the last 30 to 60 s: a scrape every 30 s misses no queue.
#[derive(Debug, Default)]
pub(super) struct Peak {
    began_s: f64,
    /// Of this part and of the one before.
    parts: [Option<f64>; 2],
}

/// A part of a [`Peak`], s.
const PART_S: f64 = 30.0;

impl Peak {
    pub(super) fn see(&mut self, at_s: f64, value: Option<f64>) {
        let since = at_s - self.began_s;
        if !(0.0..2.0 * PART_S).contains(&since) {
            *self = Self { began_s: at_s, parts: [None, None] };
        } else if since >= PART_S {
            *self = Self { began_s: at_s, parts: [None, self.parts[0]] };
        }
        self.parts[0] = larger(self.parts[0], value);
    }

    pub(super) fn value(&self) -> Option<f64> {
        larger(self.parts[0], self.parts[1])
    }
}

fn larger(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(slots: &Slots<u32>, within_s: f64) -> Vec<&str> {
        slots.seen(within_s).map(|(name, _)| name).collect()
    }

    #[test]
    fn one_that_has_a_place_keeps_it_and_the_reserve_is_for_the_urgent() {
        let mut slots = Slots::<u32>::new(2, 1);
        slots.look(0.0);
        assert!(slots.place("b", false).is_some() && slots.place("c", false).is_some());
        assert!(slots.place("a", false).is_none(), "more important by order, and yet too late");
        assert!(slots.place("d", true).is_some());
        assert!(slots.place("e", true).is_none(), "the reserve has an end too");
        slots.look(1.0);
        assert!(slots.place("d", false).is_some(), "no longer urgent, and it stays");
        assert_eq!(names(&slots, 0.0), ["d"], "what a look does not show is not exported");
        assert_eq!(names(&slots, 1.0), ["b", "c", "d"]);
        slots.look(HOLD_S);
        assert!(slots.place("a", false).is_none(), "names that come and go use places up");
        slots.look(HOLD_S + 0.5);
        assert!(slots.place("a", false).is_some());
        assert_eq!(names(&slots, 0.0), ["a"]);
    }

    #[test]
    fn a_peak_lasts_for_30_to_60_seconds() {
        let mut peak = Peak::default();
        assert_eq!(peak.value(), None);
        peak.see(0.0, Some(9.0));
        for at_s in 1..60_u32 {
            peak.see(at_s.into(), Some(1.0));
            assert_eq!(peak.value(), Some(9.0), "{at_s}");
        }
        peak.see(60.0, Some(1.0));
        assert_eq!(peak.value(), Some(1.0));
        peak.see(1_000.0, None);
        assert_eq!(peak.value(), None, "a suspended machine");
    }
}
