//! A terminal: its modes, and waiting for its keys.

use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};

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

/// The modes of a terminal: who echoes, and what a line is (`termios(3)`).
#[derive(Clone, Debug)]
pub struct Modes(Termios);

impl Modes {
    /// Those that it has.
    ///
    /// Errors: `fd` is no terminal.
    pub fn read(fd: impl AsFd) -> Result<Self, SysError> {
        tcgetattr(fd).map(Self).map_err(|errno| SysError::new("tcgetattr", "the terminal", errno))
    }

    /// The same without echo, lines and signals: each byte of a key is to be read as it comes.
    #[must_use]
    pub fn raw(&self) -> Self {
        let mut raw = self.0.clone();
        cfmakeraw(&mut raw);
        Self(raw)
    }

    /// Gives a terminal these.
    ///
    /// Errors: `fd` is no terminal, or it is gone.
    pub fn set(&self, fd: impl AsFd) -> Result<(), SysError> {
        tcsetattr(fd, SetArg::TCSANOW, &self.0)
            .map_err(|errno| SysError::new("tcsetattr", "the terminal", errno))
    }
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
