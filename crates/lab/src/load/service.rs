//! How long may an operation still wait for a connection, if it is to be answered in time?
//!
//! In an open loop that is overloaded every operation waits for a connection until its time limit is nearly
//! over. One that is sent too late to be answered is worse than lost: its connection has to be closed and
//! another opened, so that the next ones come too late as well. So what can no longer be answered in time, by
//! how long responses have taken, is not sent: over 20 ms with 2 connections and ten times the load
//! throughput stays at the capacity.
//!
//! A new load gives a [`Service`] each time that something took, and asks [`is_too_late`] before it
//! sends.

/// An operation may wait for a connection for this share of its time limit, however slow the server
/// is.
const WAIT_SHARE: u64 = 10;

/// Of this many operations the slowest is expected. In an overload each is sent at the last moment, so a
/// shorter memory loses one in a few: a server of 190/s with 64 connections then answered 93 to 182/s of
/// them, and worked on requests that nobody waited for any more.
const MEMORY: u64 = 128;

/// Recent service times: the largest, which fades.
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
