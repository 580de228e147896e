//! Time since the machine started, as one number that every process of a run agrees on.
//!
//! All instants of a run are nanoseconds of `CLOCK_MONOTONIC`: the client's, the server's and the
//! link's stamps can be subtracted from each other. Packet stamps come on `CLOCK_REALTIME` and are
//! brought over by [`FromRealtime`].

use std::fmt::Debug;
use std::time::Duration;

pub use tcptoll_kernel::clock::{boottime_ns, monotonic_ns, wait_until};

/// The wall clock as RFC 3339 has it, in UTC, to 1 ms.
pub fn wall_clock() -> String {
    let now = jiff::Timestamp::now();
    now.round(jiff::Unit::Millisecond).unwrap_or(now).to_string()
}

/// The time of a trial, as the parent has it. What a trial decides by time it decides by this, so
/// that a recorded trial can be run again in less time.
pub trait Time: Debug {
    /// The time on `CLOCK_MONOTONIC`.
    fn now(&self) -> Duration;

    /// How long ago a moment is; 0 if it is still to come.
    fn since(&self, moment: Duration) -> Duration {
        self.now().saturating_sub(moment)
    }

    /// Waits this long.
    fn pause(&self, time: Duration);
}

/// The machine's time.
#[derive(Clone, Copy, Debug)]
pub struct MachineTime;

impl Time for MachineTime {
    fn now(&self) -> Duration {
        Duration::from_nanos(monotonic_ns())
    }

    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

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

    /// How far the wall clock has moved against the monotonic one since, ns; positive: forwards.
    fn moved_ns(self) -> i64 {
        i64::try_from(Self::now().offset_ns - self.offset_ns).unwrap_or(i64::MAX)
    }
}

/// Notices what happens to the clocks while something is measured.
#[derive(Clone, Copy, Debug)]
pub struct ClockWatch {
    wall: FromRealtime,
    asleep_ns: u64,
}

/// What happened to the clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockChange {
    /// How far the wall clock was set, ns; positive: forwards.
    pub step_ns: i64,
    /// How long the machine was suspended, ns.
    pub slept_ns: u64,
}

impl ClockWatch {
    /// Begins to watch.
    pub fn begin() -> Self {
        Self { wall: FromRealtime::now(), asleep_ns: tcptoll_kernel::clock::asleep_ns() }
    }

    /// What has happened since.
    pub fn end(self) -> ClockChange {
        let slept_ns = tcptoll_kernel::clock::asleep_ns().saturating_sub(self.asleep_ns);
        // The wall clock goes on in suspend, and nobody has set it.
        let step_ns = self.wall.moved_ns() - i64::try_from(slept_ns).unwrap_or(i64::MAX);
        ClockChange { step_ns, slept_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_in_which_nothing_happens_changes_no_clock() {
        let change = ClockWatch::begin().end();
        assert!(change.step_ns.unsigned_abs() < 1_000_000, "{change:?}");
        assert!(change.slept_ns < 1_000_000, "{change:?}");
    }
}
