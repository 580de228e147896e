//! The kernel's clocks, in nanoseconds, and a timer.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{self, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::time::{ClockId, clock_gettime};

use crate::SysError;

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock).expect("these clocks exist on every Linux since 2.6.39");
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

/// What is added to `CLOCK_MONOTONIC` in this process, ns.
static SHIFT_NS: AtomicI64 = AtomicI64::new(0);

/// `CLOCK_MONOTONIC`: the same on every process of this machine, unless one was [shifted](shift); stops in
/// suspend.
pub fn monotonic_ns() -> u64 {
    read(ClockId::CLOCK_MONOTONIC).wrapping_add_signed(SHIFT_NS.load(Ordering::Relaxed))
}

/// From now on [`monotonic_ns`] is this much later in this process, ns: so that instants of two machines can be
/// subtracted from each other. It replaces an earlier shift.
pub fn shift(ns: i64) {
    SHIFT_NS.store(ns, Ordering::Relaxed);
}

/// How far [`monotonic_ns`] is shifted in this process, ns.
pub fn shifted_ns() -> i64 {
    SHIFT_NS.load(Ordering::Relaxed)
}

/// `CLOCK_REALTIME`: what packet stamps are on; may step.
pub fn realtime_ns() -> u64 {
    read(ClockId::CLOCK_REALTIME)
}

/// `CLOCK_BOOTTIME`: monotonic, and goes on in suspend.
pub fn boottime_ns() -> u64 {
    read(ClockId::CLOCK_BOOTTIME)
}

/// How far `CLOCK_REALTIME` is ahead of `CLOCK_MONOTONIC`, ns.
pub fn realtime_offset_ns() -> i128 {
    ahead_ns(realtime_ns)
}

/// How long the machine has been suspended since it started, ns.
pub fn asleep_ns() -> u64 {
    u64::try_from(ahead_ns(boottime_ns)).unwrap_or(0)
}

/// Reads a clock between two monotonic readings, so that being scheduled away in the middle does
/// not show.
fn ahead_ns(clock: fn() -> u64) -> i128 {
    (0..5)
        .map(|_| {
            let before = monotonic_ns();
            let other = clock();
            let after = monotonic_ns();
            (after - before, i128::from(other) - i128::from(before.midpoint(after)))
        })
        .min_by_key(|(width, _)| *width)
        .map_or(0, |(_, offset)| offset)
}

/// Sleeps until `CLOCK_MONOTONIC` shows `until_ns`; the last stretch, which a sleeping thread
/// would miss by 50 to 80 µs (measured on Linux 6.18), is spun.
pub fn wait_until(until_ns: u64) {
    const SPIN_NS: u64 = 100_000;
    loop {
        let now = monotonic_ns();
        if now >= until_ns {
            return;
        }
        if until_ns - now > SPIN_NS {
            std::thread::sleep(std::time::Duration::from_nanos(until_ns - now - SPIN_NS));
        } else {
            std::hint::spin_loop();
        }
    }
}

/// A timer that a [`Poller`](crate::epoll::Poller) waits for like a socket, as exact as the kernel can make it.
///
/// The timeout of `epoll_pwait2`, `poll` and `select` gets a slack of 0.1 % of its length, and no setting of
/// a thread takes that away (`select_estimate_accuracy` in fs/select.c, Linux 6.18): a wait of 100 ms ended
/// 148 µs late in the median, and 75 µs late with this timer. So the emulated link is woken by this timer:
/// with the timeout of epoll, packets over 200 ms left 0.1 to 0.5 ms late.
#[derive(Debug)]
pub struct Timer(TimerFd);

impl Timer {
    /// Makes a timer that is not set.
    pub fn new() -> Result<Self, SysError> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        TimerFd::new(timerfd::ClockId::CLOCK_MONOTONIC, flags)
            .map(Self)
            .map_err(|e| SysError::new("timerfd_create", "the monotonic clock", e))
    }

    /// Makes it readable at this time of the monotonic clock, in the past: immediately. Replaces the time
    /// set before, and makes a timer that has fired unreadable until it fires again.
    pub fn set(&self, at: Duration) -> Result<(), SysError> {
        // The kernel's own clock; a time of 0 would switch the timer off.
        let own = (at.as_nanos() as u64).saturating_add_signed(shifted_ns().saturating_neg());
        let at = Duration::from_nanos(own);
        let at = Expiration::OneShot(TimeSpec::from_duration(at.max(Duration::from_nanos(1))));
        self.0
            .set(at, TimerSetTimeFlags::TFD_TIMER_ABSTIME)
            .map_err(|e| SysError::new("timerfd_settime", "the monotonic clock", e))
    }

    /// Lets it not fire any more, and makes it unreadable.
    pub fn unset(&self) -> Result<(), SysError> {
        self.0.unset().map_err(|e| SysError::new("timerfd_settime", "the monotonic clock", e))
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use nix::time::{ClockId as Clock, clock_gettime};

    use super::*;
    use crate::epoll::{Interest, Poller};

    fn now() -> Duration {
        clock_gettime(Clock::CLOCK_MONOTONIC).unwrap().into()
    }

    #[test]
    fn it_wakes_a_wait_when_it_is_due_and_not_before() {
        let (timer, mut poller) = (Timer::new().unwrap(), Poller::new(4).unwrap());
        poller.add(&timer, 7, Interest::READ_EDGE).unwrap();
        for _ in 0..2 {
            let due = now() + Duration::from_millis(3);
            timer.set(due).unwrap();
            let events = poller.wait(Some(Duration::from_mins(1))).unwrap();
            assert!(now() >= due);
            assert_eq!(events.iter().map(|event| event.token).collect::<Vec<_>>(), [7]);
        }
        timer.set(Duration::ZERO).unwrap();
        assert_eq!(poller.wait(Some(Duration::from_mins(1))).unwrap().len(), 1, "it was due");
    }

    #[test]
    fn a_timer_that_was_unset_or_set_anew_does_not_fire_for_the_old_time() {
        let (timer, mut poller) = (Timer::new().unwrap(), Poller::new(4).unwrap());
        poller.add(&timer, 7, Interest::READ_EDGE).unwrap();
        timer.set(Duration::ZERO).unwrap();
        timer.unset().unwrap();
        assert!(poller.wait(Some(Duration::ZERO)).unwrap().is_empty());
        timer.set(Duration::ZERO).unwrap();
        timer.set(now() + Duration::from_hours(1)).unwrap();
        assert!(poller.wait(Some(Duration::ZERO)).unwrap().is_empty());
    }
}
