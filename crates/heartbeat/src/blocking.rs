//! A heartbeat over sockets of the standard library: one thread receives, any number send.
//!
//! The heartbeat runs inside [`Connection::receive`], which waits with a time limit. A program that
//! does not receive sends none and judges none.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use socket2::SockRef;

use crate::kernel;
use crate::session::{Options, Session, Turn};
use crate::timing::Evidence;

/// The most that is read or written at a time.
const PIECE_BYTES: usize = 16 * 1024;
/// The shortest wait of a read: the kernel takes 0 as for ever.
const SHORTEST_WAIT: Duration = Duration::from_micros(1);

/// A connection with a heartbeat; the end that receives.
///
/// It sets `TCP_USER_TIMEOUT` to [`Timing::bound`](crate::Timing::bound): the kernel's keep-alive
/// probes, and every timer for idle connections, are of no use while data is unacknowledged; then
/// only retransmission runs, which by default gives up after a quarter of an hour. The same time
/// limits a write that makes no progress.
#[derive(Debug)]
pub struct Connection {
    shared: Arc<Shared>,
    piece: Box<[u8]>,
}

/// The end that sends; clones share the connection.
#[derive(Clone, Debug)]
pub struct Sender {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    stream: TcpStream,
    started: Instant,
    tick: Duration,
    state: Mutex<State>,
    /// Something was written, or the connection has failed.
    moved: Condvar,
}

#[derive(Debug)]
struct State {
    session: Session,
    /// A sender is in `write(2)`, and will write what is queued meanwhile, too.
    writing: bool,
    /// Why the connection ended.
    failed: Option<(ErrorKind, String)>,
}

impl Connection {
    /// Takes over a connected stream, in blocking mode.
    ///
    /// Errors: what setting options says; `Unsupported` if [`Evidence::Acknowledged`] is asked for
    /// where the kernel does not tell.
    pub fn new(stream: TcpStream, options: Options) -> io::Result<Self> {
        if options.evidence == Evidence::Acknowledged {
            kernel::unacknowledged(&stream)?;
        }
        stream.set_nonblocking(false)?;
        let bound = options.timing.bound().max(Duration::from_millis(1));
        stream.set_write_timeout(Some(bound))?;
        kernel::give_up_after(&stream, bound)?;
        let tick = options.tick.max(Duration::from_millis(1));
        let state =
            State { session: Session::new(options, Duration::ZERO), writing: false, failed: None };
        let shared = Shared {
            stream,
            started: Instant::now(),
            tick,
            state: Mutex::new(state),
            moved: Condvar::new(),
        };
        Ok(Self { shared: Arc::new(shared), piece: vec![0; PIECE_BYTES].into() })
    }

    /// An end that sends, for this or another thread.
    pub fn sender(&self) -> Sender {
        Sender { shared: Arc::clone(&self.shared) }
    }

    /// Waits for the next message, and keeps the heartbeat while it waits; `None`: the peer has
    /// ended the connection between two messages.
    ///
    /// Errors: `TimedOut`: the peer is dead; `InvalidData`: it announced a message longer than
    /// allowed; `UnexpectedEof`: it ended within a message; else what the kernel says. After an
    /// error the connection is shut down.
    pub fn receive(&mut self) -> io::Result<Option<Vec<u8>>> {
        let received = self.next_message();
        if let Err(error) = &received {
            self.shared.fail(error);
        }
        received
    }

    fn next_message(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let mut state = self.shared.state()?;
            let message = state.session.next_message();
            let message = message.map_err(|e| io::Error::new(ErrorKind::InvalidData, e))?;
            // Asks of the peer have queued their answer.
            self.shared.write_some(&mut state)?;
            if message.is_some() {
                return Ok(message);
            }
            let mut wait = SHORTEST_WAIT;
            let turn = state.session.next(self.shared.now());
            match turn {
                Some(Turn::Test) => {
                    self.shared.look(&mut state)?;
                    self.shared.write_some(&mut state)?;
                    continue;
                }
                // What has arrived is read first: that is evidence, too.
                Some(Turn::Judge) => {}
                None => {
                    let due = state.session.next_due();
                    wait = due.saturating_sub(self.shared.now()).max(SHORTEST_WAIT);
                    if !state.session.outgoing().is_empty() && !state.writing {
                        wait = wait.min(self.shared.tick);
                    }
                }
            }
            drop(state);
            let read = self.read(wait)?;
            let mut state = self.shared.state()?;
            match read {
                Some(0) if state.session.is_inside_message() => {
                    return Err(io::Error::new(ErrorKind::UnexpectedEof, "cut off in a message"));
                }
                Some(0) => return Ok(None),
                Some(count) => state.session.received(&self.piece[..count], self.shared.now()),
                None if turn == Some(Turn::Judge) => self.shared.judge(&mut state)?,
                None => {}
            }
        }
    }

    /// Bytes read; `None`: none came within `wait`.
    fn read(&mut self, wait: Duration) -> io::Result<Option<usize>> {
        self.shared.stream.set_read_timeout(Some(wait))?;
        match (&self.shared.stream).read(&mut self.piece) {
            Ok(count) => Ok(Some(count)),
            Err(error) if passes(error.kind()) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Sender {
    /// Sends a message; waits while too much is queued.
    ///
    /// It returns when the message was handed to the kernel, or left to another sender that is
    /// writing.
    ///
    /// Errors: `InvalidInput`: the message is longer than allowed, and nothing happened; `TimedOut`:
    /// the peer takes nothing; `BrokenPipe`: the connection has ended before; else what the kernel
    /// says.
    pub fn send(&self, message: &[u8]) -> io::Result<()> {
        let shared = &*self.shared;
        let mut state = shared.state()?;
        let longest = state.session.longest();
        if message.len() > longest {
            let text = format!("a message of {} bytes, at most {longest}", message.len());
            return Err(io::Error::new(ErrorKind::InvalidInput, text));
        }
        while state.session.send(message).is_err() {
            if state.writing {
                state = shared.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
            } else {
                state = shared.write_all(state)?;
            }
            state.check()?;
        }
        if !state.writing {
            drop(shared.write_all(state)?);
        }
        Ok(())
    }

    /// Sends what is queued, then ends this direction: the peer's `receive` gives `None`. What the
    /// peer sends can still be received.
    ///
    /// Errors: as [`Sender::send`].
    pub fn finish(&self) -> io::Result<()> {
        let mut state = self.shared.state()?;
        while state.writing {
            state = self.shared.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let _state = self.shared.write_all(state)?;
        self.shared.stream.shutdown(Shutdown::Write)
    }
}

impl State {
    fn check(&self) -> io::Result<()> {
        match &self.failed {
            Some((kind, text)) => Err(io::Error::new(*kind, text.clone())),
            None => Ok(()),
        }
    }
}

impl Shared {
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// The state of a connection that has not failed. A thread that panicked while it held it has
    /// done so between two whole steps.
    fn state(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.check()?;
        Ok(state)
    }

    /// Writes what the socket takes at once, unless a sender is writing: who receives must not wait
    /// for a peer that waits for its own messages to be received.
    fn write_some(&self, state: &mut State) -> io::Result<()> {
        while !state.writing && !state.session.outgoing().is_empty() {
            match SockRef::from(&self.stream).send_with_flags(state.session.outgoing(), DO_NOT_WAIT)
            {
                Ok(count) => state.session.sent(count),
                Err(error) if passes(error.kind()) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes all that is queued; the lock is free while the socket is waited for.
    fn write_all<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
    ) -> io::Result<MutexGuard<'a, State>> {
        state.writing = true;
        let mut piece = Vec::new();
        loop {
            let outgoing = state.session.outgoing();
            if outgoing.is_empty() || state.failed.is_some() {
                state.writing = false;
                self.moved.notify_all();
                state.check()?;
                return Ok(state);
            }
            piece.clear();
            piece.extend_from_slice(&outgoing[..outgoing.len().min(4 * PIECE_BYTES)]);
            drop(state);
            let written = (&self.stream).write(&piece);
            state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            match written {
                Ok(count) => {
                    state.session.sent(count);
                    self.moved.notify_all();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    state.writing = false;
                    drop(state);
                    // The write timeout shows as WouldBlock.
                    let stuck = error.kind() == ErrorKind::WouldBlock;
                    let error = if stuck { timed_out("the peer takes nothing") } else { error };
                    self.fail(&error);
                    return Err(error);
                }
            }
        }
    }

    /// Tells the session what the kernel knows.
    fn look(&self, state: &mut State) -> io::Result<()> {
        if state.session.evidence() == Evidence::Acknowledged {
            let bytes = kernel::unacknowledged(&self.stream)?;
            state.session.unacknowledged(bytes, self.now());
        }
        Ok(())
    }

    fn judge(&self, state: &mut State) -> io::Result<()> {
        self.look(state)?;
        if !state.session.is_tested() {
            return Ok(());
        }
        Err(timed_out(match state.session.evidence() {
            Evidence::Acknowledged => "the peer is gone: it does not acknowledge a heartbeat",
            Evidence::Answered => "the peer is gone: it does not answer a heartbeat",
        }))
    }

    /// Ends the connection for all who use it.
    fn fail(&self, error: &io::Error) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.failed.is_none() {
            state.failed = Some((error.kind(), error.to_string()));
        }
        // Who waits in write(2) returns; that the peer has closed first is no matter.
        let _gone = self.stream.shutdown(Shutdown::Both);
        self.moved.notify_all();
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
const DO_NOT_WAIT: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const DO_NOT_WAIT: i32 = 0x80; // MSG_DONTWAIT of the BSDs and macOS

/// Whether a call is to be made again: no bytes within the time limit, or a signal.
fn passes(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

fn timed_out(text: &'static str) -> io::Error {
    io::Error::new(ErrorKind::TimedOut, text)
}
