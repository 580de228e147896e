//! How many operations did a closed loop keep under way concurrently, when it was to keep all its
//! slots filled?
//!
//! The stretch looked at begins when the last slot is filled for the first time and ends when no
//! further operation is to begin: neither ramp nor drain is the client's failure, and a single
//! operation that outlasts all others by a retry of a second is none. Time comes in as an argument.
//!
//! A new load calls [`Occupancy::filled`] once, [`Occupancy::ended`] for each operation, and
//! [`Occupancy::close`] when [`Pace`](super::pace::Pace) is over.

/// Adds up the time that operations took within the stretch.
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
