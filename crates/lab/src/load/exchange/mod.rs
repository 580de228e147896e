//! Requests and answers over one connection, one exchange after another.
//!
//! It is as fast as a bare socket: a thread of its own blocks in `send(2)` and `recv(2)`, one call each for
//! an exchange of small messages, and reads the clock once. The caller's thread looks at the control channel
//! and ends the other's wait with `shutdown(2)`. sockperf and qperf do the same; epoll would take two calls
//! more. Read `client`, then `server`.

mod client;
mod server;

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tcptoll_kernel::SysError;
use tcptoll_kernel::epoll::{Interest, Poller};
use tcptoll_kernel::socket::blocking::{Blocking, BlockingOptions};

pub use self::client::run;
pub use self::server::answer;
use super::LoadError;
use super::control::{CHANNEL, PROGRESS, stop_requested};
use crate::channel::Channel;
use crate::clock::monotonic_ns;
use crate::messages::{SocketSettings, SocketsGot};

/// Longest message, bytes.
const MESSAGE_MAX: u32 = 64 << 20;

/// Bytes received in a call at most.
const CHUNK: usize = 256 << 10;

/// What the thread that blocks shares with the one that looks after it.
#[derive(Default)]
struct Shared {
    done: AtomicU64,
    stopped: AtomicBool,
    /// Whatever the thread may wait in.
    open: Mutex<Vec<Blocking>>,
}

impl Shared {
    /// Whether to end with what there is.
    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// A stop interrupts this socket from now on, and those before it no more, but for `keep` of them.
    ///
    /// Errors: a stop has come already.
    fn waits_in(&self, socket: &Blocking, keep: usize) -> io::Result<()> {
        let again = socket.again()?;
        let mut open = self.open.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        open.truncate(keep);
        open.push(again);
        drop(open);
        if self.is_stopped() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        Ok(())
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        let open = self.open.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        open.iter().for_each(Blocking::interrupt);
    }
}

/// Does the work on a thread of its own until it ends, or the parent says stop, which interrupts it.
fn beside_channel<R: Send>(
    shared: &Shared,
    channel: &mut Channel,
    work: impl FnOnce() -> R + Send,
) -> Result<R, LoadError> {
    let (told, ended) = std::os::unix::net::UnixStream::pair().map_err(failed("socketpair"))?;
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let result = work();
            // Closing it tells the other thread.
            drop(ended);
            result
        });
        let watched = watch(shared, channel, &told);
        if watched.is_err() {
            shared.stop();
        }
        let lost = |_| LoadError::Refused("a thread of the load failed".to_owned());
        let result = thread.join().map_err(lost);
        watched.and(result)
    })
}

/// Looks at the channel until the work has ended.
fn watch(
    shared: &Shared,
    channel: &mut Channel,
    told: &std::os::unix::net::UnixStream,
) -> Result<(), LoadError> {
    /// The number under which the poller knows the other thread.
    const WORK: u64 = 0;
    let mut poller = Poller::new(2)?;
    poller.add(&*channel, CHANNEL, Interest::READ)?;
    poller.add(told, WORK, Interest::READ)?;
    loop {
        for event in poller.wait(Some(PROGRESS))? {
            if event.token == WORK {
                return Ok(());
            }
            stop_requested(channel)?;
            shared.stop();
        }
        if shared.is_stopped() {
            // The other thread may have been just before a call that waits.
            shared.stop();
        }
        channel.progress(shared.done.load(Ordering::Relaxed))?;
    }
}

fn failed(op: &'static str) -> impl Fn(io::Error) -> LoadError {
    move |error| SysError::new(op, "the connection", error).into()
}

/// The kernel's side of the settings. `TCP_QUICKACK` is no option of a socket but of each read.
fn options(settings: &SocketSettings) -> BlockingOptions<'_> {
    BlockingOptions {
        send_buffer: settings.send_buffer,
        receive_buffer: settings.receive_buffer,
        no_delay: settings.no_delay,
        congestion: settings.congestion.as_deref(),
    }
}

fn got(socket: &Blocking) -> io::Result<SocketsGot> {
    let (send_buffer, receive_buffer) = socket.buffers()?;
    Ok(SocketsGot { send_buffer, receive_buffer, congestion: socket.tcp().congestion()? })
}

/// Refuses sizes that cannot be.
fn check(sizes: &[u32]) -> Result<(), LoadError> {
    let total: u64 = sizes.iter().map(|&size| u64::from(size)).sum();
    if sizes.is_empty() || sizes.contains(&0) || total > u64::from(MESSAGE_MAX) {
        return Err(LoadError::Refused(format!(
            "a message of {total} bytes: it must have at least 1 byte and at most {MESSAGE_MAX}"
        )));
    }
    Ok(())
}

/// One end of a connection, and its system calls.
struct Talk<'a> {
    socket: &'a Blocking,
    quick_ack: bool,
    /// Where received bytes go.
    buffer: Vec<u8>,
    calls: u64,
}

impl<'a> Talk<'a> {
    /// `receives`: size of the messages that it receives.
    fn over(socket: &'a Blocking, quick_ack: bool, receives: u32) -> Self {
        let buffer = vec![0; (receives as usize).min(CHUNK)];
        Self { socket, quick_ack, buffer, calls: 0 }
    }

    /// Sends all of it. `deadline_ns`: looked at when a message goes in pieces, so that none takes for
    /// ever.
    ///
    /// Errors: `TimedOut` after the deadline.
    fn send(&mut self, mut bytes: &[u8], deadline_ns: u64) -> io::Result<()> {
        loop {
            self.calls += 1;
            let sent = self.socket.send(bytes)?;
            if sent >= bytes.len() {
                return Ok(());
            }
            bytes = &bytes[sent..];
            in_time(deadline_ns)?;
        }
    }

    /// Receives a message of this many bytes; `false` if the peer closed before its first byte.
    /// `deadline_ns`: as in [`Talk::send`].
    ///
    /// Errors: `UnexpectedEof` if the peer closed in it, `TimedOut` after the deadline.
    fn receive(&mut self, bytes: u32, deadline_ns: u64) -> io::Result<bool> {
        let mut missing = bytes as usize;
        loop {
            if self.quick_ack {
                self.calls += 1;
                self.socket.acknowledge_quickly()?;
            }
            self.calls += 1;
            let room = missing.min(self.buffer.len());
            let received = self.socket.receive(&mut self.buffer[..room])?;
            missing -= received;
            if missing == 0 {
                return Ok(true);
            }
            if received == 0 {
                let between = missing == bytes as usize;
                return if between { Ok(false) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
            in_time(deadline_ns)?;
        }
    }
}

fn in_time(deadline_ns: u64) -> io::Result<()> {
    let is_late = deadline_ns < u64::MAX && monotonic_ns() > deadline_ns;
    if is_late { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
}

/// Works for this CPU time; gives the time at its end if it read the clock.
fn work(work_ns: u64) -> Option<u64> {
    if work_ns == 0 {
        return None;
    }
    let until = monotonic_ns().saturating_add(work_ns);
    loop {
        let now = monotonic_ns();
        if now >= until {
            return Some(now);
        }
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests;
