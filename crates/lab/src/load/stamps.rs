//! When did bytes arrive? By the kernel's stamp, brought over to `CLOCK_MONOTONIC`.

use crate::clock::{FromRealtime, monotonic_ns};

/// The wall clock is compared with the monotonic one again after this, ns.
const COMPARE_NS: u64 = 100_000_000;

/// Reads receive stamps, if they are asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamps {
    used: bool,
    wall: FromRealtime,
    compared_ns: u64,
}

impl Stamps {
    /// `used`: whether sockets are asked for stamps.
    pub(super) fn new(used: bool) -> Self {
        Self { used, wall: FromRealtime::now(), compared_ns: monotonic_ns() }
    }

    /// Whether sockets are asked for stamps.
    pub(super) fn are_used(&self) -> bool {
        self.used
    }

    /// Compares the clocks again if that is due: they drift apart.
    pub(super) fn compare(&mut self, now_ns: u64) {
        if self.used && now_ns >= self.compared_ns + COMPARE_NS {
            self.wall = FromRealtime::now();
            self.compared_ns = now_ns;
        }
    }

    /// When bytes with this stamp (0: none) arrived; never after they were seen.
    pub(super) fn arrived_ns(&self, stamp_ns: u64, seen_ns: u64) -> u64 {
        if stamp_ns == 0 { seen_ns } else { self.wall.monotonic_ns(stamp_ns).min(seen_ns) }
    }
}
