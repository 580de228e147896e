//! Readiness by epoll, with timeouts in nanoseconds.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use crate::SysError;

/// What to be told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest(EpollFlags);

impl Interest {
    /// Data or a connection can be read, or the peer closed.
    pub const READ: Self = Self(EpollFlags::EPOLLIN);
    /// Data can be written, or a connect is decided.
    pub const WRITE: Self = Self(EpollFlags::EPOLLOUT);
    /// Both, told once each time they become true, so that no change of mind costs a system call.
    pub const EDGES: Self =
        Self(EpollFlags::EPOLLIN.union(EpollFlags::EPOLLOUT).union(EpollFlags::EPOLLET));
    /// Both, and that the peer has closed, told once each time they become true.
    pub const STREAM: Self = Self(
        EpollFlags::EPOLLIN
            .union(EpollFlags::EPOLLOUT)
            .union(EpollFlags::EPOLLRDHUP)
            .union(EpollFlags::EPOLLET),
    );
    /// Reading, told once each time it becomes true.
    pub const READ_EDGE: Self = Self(EpollFlags::EPOLLIN.union(EpollFlags::EPOLLET));
}

/// What happened to one file descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// The number given with the file descriptor.
    pub token: u64,
    /// Reading will not block.
    pub readable: bool,
    /// Writing will not block.
    pub writable: bool,
    /// The peer has closed its side; only told to [`Interest::STREAM`].
    pub finished: bool,
    /// An error or hang-up is pending.
    pub broken: bool,
}

/// A time as the kernel takes it; the C library's may be of 32 bits.
#[repr(C)]
struct KernelTimespec {
    seconds: i64,
    nanoseconds: i64,
}

/// A set of file descriptors that are waited on together.
#[derive(Debug)]
pub struct Poller {
    epoll: Epoll,
    buffer: Vec<EpollEvent>,
    /// Events of the last wait.
    count: usize,
}

impl Poller {
    /// Makes an empty set that reports at most `events` at a time.
    pub fn new(events: usize) -> Result<Self, SysError> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
            .map_err(|e| SysError::new("epoll_create1", "a new set", e))?;
        Ok(Self { epoll, buffer: vec![EpollEvent::empty(); events.max(1)], count: 0 })
    }

    /// Adds a file descriptor under a number of the caller's.
    pub fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> Result<(), SysError> {
        self.epoll
            .add(fd, EpollEvent::new(interest.0, token))
            .map_err(|e| SysError::new("EPOLL_CTL_ADD", format!("token {token}"), e))
    }

    /// Waits for events; empty when `timeout` has passed or a signal came. `None` waits for ever.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<Vec<Event>, SysError> {
        let count = self.wait_count(timeout)?;
        Ok((0..count).map(|at| self.event(at)).collect())
    }

    /// As [`Poller::wait`], without the list: how many events there are for [`Poller::event`].
    pub fn wait_count(&mut self, timeout: Option<Duration>) -> Result<usize, SysError> {
        let count = self.wait_raw(timeout)?;
        self.count = count;
        Ok(count)
    }

    /// Event number `at` of the last wait.
    ///
    /// Panics: there were not so many.
    pub fn event(&self, at: usize) -> Event {
        let event = &self.buffer[..self.count][at];
        let flags = event.events();
        Event {
            token: event.data(),
            readable: flags.intersects(EpollFlags::EPOLLIN),
            writable: flags.intersects(EpollFlags::EPOLLOUT),
            finished: flags.intersects(EpollFlags::EPOLLRDHUP),
            broken: flags.intersects(EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP),
        }
    }

    fn wait_raw(&mut self, timeout: Option<Duration>) -> Result<usize, SysError> {
        let spec = timeout.map(|t| KernelTimespec {
            seconds: t.as_secs().min(86_400) as i64,
            nanoseconds: i64::from(t.subsec_nanos()),
        });
        let spec_pointer = spec.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let fd = self.epoll.0.as_raw_fd();
        // By its number: glibc has a wrapper since 2.35 only, and musl has none.
        // SAFETY: EpollEvent is repr(transparent) over epoll_event; the buffer is as long as said
        // and lives across the call; the time, if any, too. There is no signal mask.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                fd,
                self.buffer.as_mut_ptr().cast::<libc::epoll_event>(),
                self.buffer.len() as libc::c_int,
                spec_pointer,
                std::ptr::null::<libc::sigset_t>(),
                0_usize,
            )
        };
        if count >= 0 {
            return Ok(count as usize);
        }
        match io::Error::last_os_error() {
            e if e.kind() == io::ErrorKind::Interrupted => Ok(0),
            // epoll_pwait2 is there since Linux 5.11; older kernels wait in whole milliseconds.
            e if e.raw_os_error() == Some(libc::ENOSYS) => self.wait_milliseconds(timeout),
            e => Err(SysError::new("epoll_pwait2", "the set", e)),
        }
    }

    fn wait_milliseconds(&mut self, timeout: Option<Duration>) -> Result<usize, SysError> {
        use nix::sys::epoll::EpollTimeout;
        let limit = timeout.map_or(EpollTimeout::NONE, |t| {
            EpollTimeout::try_from(t.as_nanos().div_ceil(1_000_000).min(86_400_000) as i32)
                .unwrap_or(EpollTimeout::NONE)
        });
        match self.epoll.wait(&mut self.buffer, limit) {
            Ok(count) => Ok(count),
            Err(nix::errno::Errno::EINTR) => Ok(0),
            Err(e) => Err(SysError::new("epoll_wait", "the set", e)),
        }
    }
}

/// Waits until `fd` can be read or its other end is gone; false when `timeout` has passed.
pub fn readable(fd: impl AsFd, timeout: Duration) -> Result<bool, SysError> {
    let mut set = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    match poll(&mut set, whole_milliseconds(timeout)) {
        Ok(count) => Ok(count > 0),
        Err(nix::errno::Errno::EINTR) => Ok(false),
        Err(e) => Err(SysError::new("poll", "one descriptor", e)),
    }
}

/// As poll(2) takes it: not shorter, and a day at most.
fn whole_milliseconds(timeout: Duration) -> PollTimeout {
    let milliseconds = timeout.as_nanos().div_ceil(1_000_000).min(86_400_000) as i32;
    PollTimeout::try_from(milliseconds).unwrap_or(PollTimeout::NONE)
}

/// A descriptor, and what to wait for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    fd: Option<BorrowedFd<'a>>,
    read: bool,
    write: bool,
}

impl<'a> Wanted<'a> {
    /// Nothing of this descriptor yet but its end.
    pub fn new(fd: BorrowedFd<'a>) -> Self {
        Self::maybe(Some(fd))
    }

    /// None: there is nothing to wait for.
    pub fn maybe(fd: Option<BorrowedFd<'a>>) -> Self {
        Self { fd, read: false, write: false }
    }

    /// Whether to wait until it can be read.
    #[must_use]
    pub fn to_read(self, read: bool) -> Self {
        Self { read, ..self }
    }

    /// Whether to wait until it can be written.
    #[must_use]
    pub fn to_write(self, write: bool) -> Self {
        Self { write, ..self }
    }
}

/// What a descriptor is ready for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// A read does not wait: there is something, or the end, or an error.
    pub readable: bool,
    /// A write does not wait.
    pub writable: bool,
}

/// Waits with `poll(2)` until one of a few descriptors is ready, at most so long; none is ready when the
/// time has passed or a signal came. `None` waits for ever.
///
/// What is not waited for is not told, even where it is so.
pub fn ready<const N: usize>(
    wanted: &[Wanted<'_>; N],
    timeout: Option<Duration>,
) -> Result<[Readiness; N], SysError> {
    let limit = timeout.map_or(PollTimeout::NONE, whole_milliseconds);
    let mut places = Vec::new();
    let mut set = Vec::new();
    for (place, one) in wanted.iter().enumerate() {
        let Some(fd) = one.fd.filter(|_| one.read || one.write) else { continue };
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::POLLIN, one.read);
        flags.set(PollFlags::POLLOUT, one.write);
        places.push(place);
        set.push(PollFd::new(fd, flags));
    }
    let mut found = [Readiness::default(); N];
    match poll(&mut set, limit) {
        Ok(_) => {}
        Err(nix::errno::Errno::EINTR) => return Ok(found),
        Err(e) => return Err(SysError::new("poll", "some descriptors", e)),
    }
    for (place, fd) in places.into_iter().zip(set) {
        let flags = fd.revents().unwrap_or(PollFlags::empty());
        let broken =
            flags.intersects(PollFlags::POLLERR | PollFlags::POLLHUP | PollFlags::POLLNVAL);
        found[place] = Readiness {
            readable: wanted[place].read && (broken || flags.intersects(PollFlags::POLLIN)),
            writable: wanted[place].write && (broken || flags.intersects(PollFlags::POLLOUT)),
        };
    }
    Ok(found)
}

/// Waits for any of these with `select(2)`, which looks at each of them every time; how many may be
/// read from or written to.
///
/// Errors: `EINVAL` for a descriptor of 1024 or above.
pub fn select(read: &[impl AsFd], write: &impl AsFd, timeout: Duration) -> io::Result<usize> {
    use nix::sys::select::{FD_SETSIZE, FdSet, select};
    use nix::sys::time::TimeVal;
    let (mut to_read, mut to_write) = (FdSet::new(), FdSet::new());
    for fd in read {
        if fd.as_fd().as_raw_fd() as usize >= FD_SETSIZE {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        to_read.insert(fd.as_fd());
    }
    to_write.insert(write.as_fd());
    let mut limit = TimeVal::new(timeout.as_secs() as i64, i64::from(timeout.subsec_micros()));
    match select(None, &mut to_read, &mut to_write, None, &mut limit) {
        Ok(count) => Ok(count as usize),
        Err(nix::errno::Errno::EINTR) => Ok(0),
        Err(error) => Err(error.into()),
    }
}
