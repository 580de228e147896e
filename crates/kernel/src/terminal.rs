//! Waiting for keys of a terminal.

use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::SysError;

/// What waiting for keys came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// Something can be read without waiting.
    Ready,
    /// The time passed, or a signal came.
    None,
    /// The terminal is gone: reading it gives nothing any more.
    HungUp,
}

/// Waits until keys can be read, but not longer than this. A signal with a handler ends the wait.
///
/// Errors: `fd` cannot be waited for.
pub fn wait_for_keys(fd: impl AsFd, at_most: Duration) -> Result<Keys, SysError> {
    // Rounded up: a wait of 0.4 ms is not to become a busy loop.
    let ms = at_most.as_nanos().div_ceil(1_000_000);
    let timeout = i32::try_from(ms).ok().and_then(|ms| PollTimeout::try_from(ms).ok());
    let mut waited = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    match poll(&mut waited, timeout.unwrap_or(PollTimeout::MAX)) {
        Ok(0) | Err(Errno::EINTR) => return Ok(Keys::None),
        Ok(_) => {}
        Err(errno) => return Err(SysError::new("poll", "the terminal", errno)),
    }
    let came = waited[0].revents().unwrap_or(PollFlags::POLLERR);
    let gone = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
    Ok(if came.intersects(gone) { Keys::HungUp } else { Keys::Ready })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn keys_are_ready_after_they_were_written_and_gone_with_the_other_end() {
        let (keys, mut keyboard) = std::io::pipe().unwrap();
        assert_eq!(wait_for_keys(&keys, Duration::ZERO).unwrap(), Keys::None);
        keyboard.write_all(b"q").unwrap();
        assert_eq!(wait_for_keys(&keys, Duration::from_hours(1)).unwrap(), Keys::Ready);
        drop(keyboard);
        assert_eq!(wait_for_keys(&keys, Duration::from_hours(1)).unwrap(), Keys::HungUp);
    }
}
