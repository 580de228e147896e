//! When does a measured window begin and end, and what was carried in it? Pure: it is told the time.
//!
//! A window begins with the first look at the clock at or after its warm-up, and ends with the first
//! look at or after its length. Its length is the difference of these two looks, never the planned
//! one. Without a planned length the window is the whole transfer, from the first byte to the last.

/// What was carried from the start until now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    /// Payload, bytes.
    pub(super) bytes: u64,
    /// Whole messages.
    pub(super) messages: u64,
    /// System calls.
    pub(super) calls: u64,
}

impl Count {
    fn since(self, before: Self) -> Self {
        Self {
            bytes: self.bytes - before.bytes,
            messages: self.messages - before.messages,
            calls: self.calls - before.calls,
        }
    }
}

/// What a look at the clock brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edge {
    Began,
    Ended,
}

/// A look at the clock, and what had been carried by then.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at_ns: u64,
    count: Count,
}

/// The window of one direction, over all connections of one end.
#[derive(Clone, Debug)]
pub(super) struct Window {
    warmup_ns: u64,
    duration_ns: Option<u64>,
    first_ns: Option<u64>,
    /// The latest look at which bytes had been carried since the one before.
    last_ns: u64,
    began: Option<Mark>,
    ended: Option<Mark>,
}

impl Window {
    /// A window that begins a warm-up after the first byte; without a duration it is the whole transfer.
    pub(super) fn new(warmup_ns: u64, duration_ns: Option<u64>) -> Self {
        let warmup_ns = if duration_ns.is_some() { warmup_ns } else { 0 };
        Self { warmup_ns, duration_ns, first_ns: None, last_ns: 0, began: None, ended: None }
    }

    /// When the first byte was carried. None: none yet.
    pub(super) fn first_ns(&self) -> Option<u64> {
        self.first_ns
    }

    /// When the time of a window that began with the first byte is up. None: no byte yet, or no limit.
    pub(super) fn planned_end_ns(&self) -> Option<u64> {
        Some(self.first_ns?.saturating_add(self.warmup_ns).saturating_add(self.duration_ns?))
    }

    /// The clock showed `now_ns`, and this had been carried; `moved`: more than at the last look.
    ///
    /// None: no edge. At most one edge comes of a look.
    pub(super) fn look(&mut self, now_ns: u64, count: Count, moved: bool) -> Option<Edge> {
        let mark = Mark { at_ns: now_ns, count };
        if moved {
            self.last_ns = now_ns;
            if self.first_ns.is_none() {
                self.first_ns = Some(now_ns);
                if self.duration_ns.is_none() {
                    self.began = Some(Mark { at_ns: now_ns, count: Count::default() });
                    return Some(Edge::Began);
                }
            }
        }
        if now_ns < self.next_ns()? {
            return None;
        }
        if self.began.is_none() {
            self.began = Some(mark);
            return Some(Edge::Began);
        }
        self.ended = Some(mark);
        Some(Edge::Ended)
    }

    /// When the next edge is due. None: none is known.
    pub(super) fn next_ns(&self) -> Option<u64> {
        match (self.began, self.ended) {
            (None, _) => Some(self.first_ns?.saturating_add(self.warmup_ns)),
            (Some(_), None) => self.planned_end_ns(),
            (Some(_), Some(_)) => None,
        }
    }

    /// Nothing more will be carried: an open window ends.
    pub(super) fn close(&mut self, now_ns: u64, count: Count) -> Option<Edge> {
        if self.began.is_none() || self.ended.is_some() {
            return None;
        }
        let at_ns = if self.duration_ns.is_some() { now_ns } else { self.last_ns };
        self.ended = Some(Mark { at_ns, count });
        Some(Edge::Ended)
    }

    /// What was carried in it, and its length, ns; zeroes where it never began.
    pub(super) fn result(&self) -> (Count, u64) {
        match (self.began, self.ended) {
            (Some(began), Some(ended)) => {
                (ended.count.since(began.count), ended.at_ns.saturating_sub(began.at_ns))
            }
            _ => (Count::default(), 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(bytes: u64) -> Count {
        Count { bytes, messages: bytes / 10, calls: 1 }
    }

    #[test]
    fn a_window_lies_between_two_looks_at_the_clock_and_is_divided_by_the_time_between() {
        let mut window = Window::new(100, Some(1_000));
        assert_eq!(window.look(40, bytes(0), false), None);
        assert_eq!((window.first_ns(), window.next_ns()), (None, None), "no byte yet");
        assert_eq!(window.look(50, bytes(10), true), None);
        assert_eq!((window.first_ns(), window.next_ns()), (Some(50), Some(150)));
        assert_eq!(window.look(149, bytes(20), true), None);
        // Both edges are late by some ns, as looks are.
        assert_eq!(window.look(157, bytes(30), true), Some(Edge::Began));
        assert_eq!(window.next_ns(), Some(1_150));
        assert_eq!(window.look(1_160, bytes(730), true), Some(Edge::Ended));
        assert_eq!(window.look(2_000, bytes(999), true), None, "it ends once");
        let expected = Count { bytes: 700, messages: 70, calls: 0 };
        assert_eq!(window.result(), (expected, 1_003));
    }

    #[test]
    fn a_silent_end_does_not_lengthen_a_window_that_is_looked_at() {
        let mut window = Window::new(0, Some(1_000));
        assert_eq!(window.look(10, bytes(10), true), Some(Edge::Began));
        assert_eq!(window.look(500, bytes(60), true), None);
        assert_eq!(window.look(1_010, bytes(60), false), Some(Edge::Ended));
        assert_eq!(window.result(), (Count { bytes: 50, messages: 5, calls: 0 }, 1_000));
    }

    #[test]
    fn without_a_duration_the_window_is_from_the_first_byte_to_the_last() {
        let mut window = Window::new(100, None);
        assert_eq!(window.look(30, bytes(10), true), Some(Edge::Began));
        assert_eq!(window.look(530, bytes(90), true), None);
        assert_eq!(window.look(900, bytes(90), false), None);
        assert_eq!(window.close(1_000, bytes(90)), Some(Edge::Ended));
        assert_eq!(window.result(), (Count { bytes: 90, messages: 9, calls: 1 }, 500));
    }

    #[test]
    fn a_transfer_that_ends_within_its_warmup_has_no_window() {
        let mut window = Window::new(100, Some(1_000));
        window.look(10, bytes(10), true);
        assert_eq!(window.close(50, bytes(10)), None);
        assert_eq!(window.result(), (Count::default(), 0));
        let mut cut = Window::new(0, Some(1_000));
        cut.look(10, bytes(10), true);
        assert_eq!(cut.close(60, bytes(30)), Some(Edge::Ended));
        assert_eq!(cut.result().1, 50, "a window that is cut has the length that it had");
    }

    #[test]
    fn a_look_after_both_edges_gives_one_edge_at_a_time() {
        let mut window = Window::new(100, Some(1_000));
        window.look(10, bytes(10), true);
        assert_eq!(window.look(5_000, bytes(20), true), Some(Edge::Began));
        assert_eq!(window.look(5_001, bytes(30), true), Some(Edge::Ended));
    }
}
