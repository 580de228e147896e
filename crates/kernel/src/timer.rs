//! A timer that a [`Poller`](crate::epoll::Poller) waits for like a socket, as exact as the kernel can make it.
//!
//! The timeout of `epoll_pwait2`, `poll` and `select` gets a slack of 0.1 % of its length, and no setting of
//! a thread takes that away (`select_estimate_accuracy` in fs/select.c, Linux 6.18): a wait of 100 ms ended
//! 148 µs late in the median, and 75 µs late with this timer. So the emulated link is woken by this timer:
//! with the timeout of epoll, packets over 200 ms left 0.1 to 0.5 ms late.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::SysError;
use crate::clock::shifted_ns;

/// A timer on the monotonic clock.
#[derive(Debug)]
pub struct Timer(TimerFd);

impl Timer {
    /// Makes a timer that is not set.
    pub fn new() -> Result<Self, SysError> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)
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
