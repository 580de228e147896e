//! Time since the machine started, as one number that every process of a run agrees on.
//!
//! All instants of a run are nanoseconds of `CLOCK_MONOTONIC`: the client's, the server's and the
//! link's stamps can be subtracted from each other. Packet stamps come on `CLOCK_REALTIME` and are
//! brought over by [`FromRealtime`].

pub use tcptoll_kernel::clock::{boottime_ns, monotonic_ns, wait_until};

/// Brings stamps of `CLOCK_REALTIME` onto `CLOCK_MONOTONIC`, and notices when the former steps.
#[derive(Clone, Copy, Debug)]
pub struct FromRealtime {
    offset_ns: i128,
}

impl FromRealtime {
    /// Compares the two clocks now.
    pub fn now() -> Self {
        Self { offset_ns: tcptoll_kernel::clock::realtime_offset_ns() }
    }

    /// The same instant on `CLOCK_MONOTONIC`, ns.
    pub fn monotonic_ns(self, realtime_ns: u64) -> u64 {
        u64::try_from(i128::from(realtime_ns) - self.offset_ns).unwrap_or(0)
    }

    /// The same instant on `CLOCK_REALTIME`, ns.
    pub fn realtime_ns(self, monotonic_ns: u64) -> u64 {
        u64::try_from(i128::from(monotonic_ns) + self.offset_ns).unwrap_or(0)
    }

    /// How far the clocks have moved against each other since, ns; above 1 ms the wall clock
    /// was stepped.
    pub fn step_ns(self) -> u64 {
        u64::try_from((Self::now().offset_ns - self.offset_ns).unsigned_abs()).unwrap_or(u64::MAX)
    }
}
