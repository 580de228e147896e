//! What the blocking and the asynchronous connection have in common: a session and its socket.
//!
//! It waits for nothing; how to wait is all that [`crate::blocking`] and `tcp_heartbeat::tokio_net`
//! differ in.
//!
//! A connection sends through a handle of its own, with tokio as with the standard library. Two programs that
//! send and receive in one loop wait for each other when both buffers are full, and both are right to take
//! the other for dead.

use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

use crate::kernel;
use crate::session::{Options, Session};
use crate::timing::{Evidence, Timing};

/// The most that is read or written at a time.
pub(crate) const PIECE_BYTES: usize = 16 * 1024;

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) session: Session,
    /// Why the connection ended.
    failed: Option<(ErrorKind, String)>,
}

impl Link {
    /// Sets the socket's options.
    pub(crate) fn new(socket: &impl AsFd, options: Options) -> io::Result<Self> {
        if options.evidence == Evidence::Acknowledged {
            kernel::unacknowledged(socket)?;
        }
        kernel::give_up_after(socket, options.timing.bound())?;
        Ok(Self { session: Session::new(options, Duration::ZERO), failed: None })
    }

    /// Errors: why the connection has failed.
    pub(crate) fn check(&self) -> io::Result<()> {
        match &self.failed {
            Some((kind, text)) => Err(io::Error::new(*kind, text.clone())),
            None => Ok(()),
        }
    }

    /// Ends the connection for all who use it.
    pub(crate) fn fail(&mut self, socket: &impl AsFd, error: &io::Error) {
        if self.failed.is_none() {
            self.failed = Some((error.kind(), error.to_string()));
            // Who waits for the socket returns; that the peer has closed first is no matter.
            let _gone = SockRef::from(socket).shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn next_message(&mut self) -> io::Result<Option<Vec<u8>>> {
        self.session.next_message().map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
    }

    /// What a read gave; empty: the end.
    pub(crate) fn read(&mut self, bytes: &[u8], now: Duration) -> io::Result<()> {
        self.session.received(bytes, now);
        if bytes.is_empty() {
            self.session.received_end();
            if self.session.is_inside_message() {
                return Err(io::Error::new(ErrorKind::UnexpectedEof, "cut off in a message"));
            }
        }
        Ok(())
    }

    /// Queues a message; false: there is no room now.
    ///
    /// Errors: `InvalidInput`, `BrokenPipe`, why the connection has failed.
    pub(crate) fn queue(&mut self, message: &[u8]) -> io::Result<bool> {
        self.check()?;
        let most = self.session.options().max_message_len;
        if message.len() > most {
            let text = format!("a message of {} bytes, at most {most}", message.len());
            return Err(io::Error::new(ErrorKind::InvalidInput, text));
        }
        if self.session.is_finished() {
            return Err(io::Error::new(ErrorKind::BrokenPipe, "this side has finished"));
        }
        Ok(self.session.send(message).is_ok())
    }

    /// Writes what the socket takes at once.
    pub(crate) fn write_some(&mut self, socket: &impl AsFd) -> io::Result<()> {
        while !self.session.outgoing().is_empty() {
            match write_now(socket, self.session.outgoing()) {
                Ok(count) => self.session.sent(count),
                Err(error) if passes(error.kind()) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Tells the session what the kernel knows, if it does.
    pub(crate) fn look(&mut self, socket: &impl AsFd, now: Duration) -> io::Result<()> {
        match kernel::unacknowledged(socket) {
            Ok(bytes) => self.session.unacknowledged(bytes, now),
            Err(error) if error.kind() == ErrorKind::Unsupported => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Errors: `TimedOut`: the peer is dead. What has arrived was read before.
    pub(crate) fn judge(&mut self, socket: &impl AsFd, now: Duration) -> io::Result<()> {
        self.look(socket, now)?;
        if !self.session.is_tested() {
            return Ok(());
        }
        let text = match self.session.options().evidence {
            Evidence::Acknowledged => "the peer is gone: it does not acknowledge a heartbeat",
            Evidence::Answered => "the peer is gone: it does not answer a heartbeat",
        };
        Err(io::Error::new(ErrorKind::TimedOut, text))
    }

    /// How much the peer has taken of what was written, bytes since the beginning.
    ///
    /// A socket takes more only when a third of its buffer is free. So a peer that reads slowly, but
    /// reads, shows here long before a write succeeds.
    pub(crate) fn taken(&self, socket: &impl AsFd) -> io::Result<u64> {
        match kernel::unacknowledged(socket) {
            Ok(bytes) => Ok(self.session.written().saturating_sub(bytes as u64)),
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(self.session.written()),
            Err(error) => Err(error),
        }
    }

    /// Errors: `TimedOut`: the peer has taken nothing since it had taken `before`.
    pub(crate) fn check_taken(&self, socket: &impl AsFd, before: u64) -> io::Result<()> {
        if self.taken(socket)? > before {
            return Ok(());
        }
        Err(io::Error::new(ErrorKind::TimedOut, "the peer takes nothing"))
    }

    /// Ends this direction, when all that was queued is written.
    pub(crate) fn end(&self, socket: &impl AsFd) -> io::Result<()> {
        let socket = SockRef::from(socket);
        // No Null can be sent any more: from now on the kernel's probes find out whether the peer,
        // which may go on sending for long, is still there.
        socket.set_tcp_keepalive(&probes(self.session.options().timing))?;
        socket.shutdown(Shutdown::Write)
    }
}

/// Probes that know of a death in about the time in which a heartbeat does.
///
/// Unit: whole seconds, from 1 to 32767: Linux takes no others. With `TCP_USER_TIMEOUT` it gives up
/// by that (`tcp_keepalive_timer` in `net/ipv4/tcp_timer.c`); four probes leave room for losses.
fn probes(timing: Timing) -> TcpKeepalive {
    let seconds = |time: Duration| time.clamp(Duration::from_secs(1), Duration::from_secs(32_767));
    let probes = TcpKeepalive::new().with_time(seconds(timing.idle));
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let probes = probes.with_interval(seconds(timing.answer_within / 4)).with_retries(4);
    probes
}

/// Writes what the socket takes, whether or not it is in blocking mode.
pub(crate) fn write_now(socket: &impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    SockRef::from(socket).send_with_flags(bytes, DO_NOT_WAIT)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
const DO_NOT_WAIT: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const DO_NOT_WAIT: i32 = 0x80; // MSG_DONTWAIT of the BSDs and macOS

/// Whether a call is to be made again: no bytes within the time limit, or a signal.
pub(crate) fn passes(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// What those find who use a connection after [`Link::fail`] with it.
pub(crate) fn aborted() -> io::Error {
    io::Error::new(ErrorKind::ConnectionAborted, "the connection was aborted here")
}
