//! A heartbeat over sockets of the standard library: one thread receives, any number send.
//!
//! The heartbeat runs inside [`Connection::receive`], which waits with a time limit. A program that
//! does not receive sends none and judges none.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::link::{Link, PIECE_BYTES, aborted, passes};
use crate::session::{Options, Turn};

/// The shortest wait of a read: the kernel takes 0 as for ever.
const SHORTEST_WAIT: Duration = Duration::from_micros(1);

/// A connection with a heartbeat; the end that receives.
///
/// It sets `TCP_USER_TIMEOUT` to [`Timing::bound`](crate::Timing::bound): the kernel's keep-alive
/// probes, and every timer for idle connections, are of no use while data is unacknowledged; then
/// only retransmission runs, which by default gives up after a quarter of an hour. The same time
/// limits a write of which the peer takes nothing.
///
/// The socket is closed with the last of the connection and its senders. Without the connection a
/// sender's messages go out, but nothing tests the peer: who is done with the peer calls
/// [`Sender::abort`]. Clones of the stream share its mode and its time limits: on one that is made
/// non-blocking, `send` and `receive` do not work.
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
    state: Mutex<State>,
    /// Something was written, or the connection has failed.
    moved: Condvar,
}

#[derive(Debug)]
struct State {
    link: Link,
    /// A thread is in `write(2)`.
    writing: bool,
    /// Threads that go on writing until what they want written is.
    writers: usize,
}

impl Connection {
    /// Takes over a connected stream, in blocking mode.
    ///
    /// Errors: what setting options says; `Unsupported` if
    /// [`Evidence::Acknowledged`](crate::Evidence::Acknowledged) is asked for where the kernel does
    /// not tell.
    pub fn new(stream: TcpStream, options: Options) -> io::Result<Self> {
        let link = Link::new(&stream, options)?;
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(options.timing.bound().max(Duration::from_millis(1))))?;
        let shared = Shared {
            stream,
            started: Instant::now(),
            state: Mutex::new(State { link, writing: false, writers: 0 }),
            moved: Condvar::new(),
        };
        Ok(Self { shared: Arc::new(shared), piece: vec![0; PIECE_BYTES].into() })
    }

    /// An end that sends, for this or another thread.
    pub fn sender(&self) -> Sender {
        Sender { shared: Arc::clone(&self.shared) }
    }

    /// The stream, for its addresses and options; who reads or writes it breaks the framing.
    pub fn get_ref(&self) -> &TcpStream {
        &self.shared.stream
    }

    /// Waits for the next message, and keeps the heartbeat while it waits; `None`: the peer has
    /// ended the connection between two messages.
    ///
    /// After [`Sender::finish`] the kernel's probes (`SO_KEEPALIVE`) watch the peer instead. They
    /// cannot see a program that hangs.
    ///
    /// Errors: `TimedOut`: the peer is dead; `InvalidData`: it announced a message longer than
    /// allowed; `UnexpectedEof`: it ended within a message; `ConnectionAborted`: [`Sender::abort`];
    /// else what the kernel says. After an error the connection is shut down.
    pub fn receive(&mut self) -> io::Result<Option<Vec<u8>>> {
        let received = self.next_message();
        received.map_err(|error| self.shared.fail(&mut self.shared.lock(), error))
    }

    fn next_message(&mut self) -> io::Result<Option<Vec<u8>>> {
        let shared = &self.shared;
        loop {
            let mut state = shared.state()?;
            let message = state.link.next_message()?;
            // Asks of the peer have queued their answer.
            shared.write_some(&mut state)?;
            if message.is_some() || state.link.session.has_ended() {
                return Ok(message);
            }
            let turn = state.link.session.next(shared.now());
            if turn == Some(Turn::Test) {
                state.link.look(&shared.stream, shared.now())?;
                continue; // and write it
            }
            // Before a judgement what has arrived is read: that is evidence, too.
            let judges = turn == Some(Turn::Judge);
            let due = state.link.session.next_due().unwrap_or(Duration::MAX);
            let due = if judges { Duration::ZERO } else { due };
            drop(state);
            let wait = due.saturating_sub(shared.now()).max(SHORTEST_WAIT);
            shared.stream.set_read_timeout(Some(wait))?;
            let read = (&shared.stream).read(&mut self.piece);
            let mut state = shared.state()?;
            match read {
                Ok(count) => state.link.read(&self.piece[..count], shared.now())?,
                Err(error) if !passes(error.kind()) => return Err(error),
                Err(_) if judges => state.link.judge(&shared.stream, shared.now())?,
                Err(_) => {}
            }
        }
    }
}

impl Sender {
    /// Sends a message; waits until it was handed to the kernel, whole.
    ///
    /// A thread that waits here does not receive: two programs that only send wait for one another
    /// until the heartbeat's bound. Who receives sends from another thread, or with
    /// [`Sender::try_send`].
    ///
    /// Errors: `InvalidInput`: the message is longer than allowed; `BrokenPipe`: this side has
    /// finished; after both nothing has happened. `TimedOut`: the peer is dead, or has taken nothing
    /// for as long as the heartbeat's bound. Else why the connection has failed.
    pub fn send(&self, message: &[u8]) -> io::Result<()> {
        let mut state = self.shared.state()?;
        while !state.link.queue(message)? {
            state = self.shared.push(state)?;
        }
        self.shared.write_all(state).map(drop)
    }

    /// Sends a message if there is room for it, and never waits for the peer; false: there is none,
    /// and nothing has happened.
    ///
    /// What the socket does not take at once is left to a thread that ends when all is written. It
    /// waits for a peer that does not read no longer than the heartbeat's bound; then the connection
    /// has failed.
    ///
    /// Errors: as [`Sender::send`].
    #[must_use = "false: the message was not sent"]
    pub fn try_send(&self, message: &[u8]) -> io::Result<bool> {
        let mut state = self.shared.state()?;
        let queued = state.link.queue(message)?;
        self.shared.write_some(&mut state)?;
        Ok(queued)
    }

    /// Waits until all that is queued now was handed to the kernel.
    ///
    /// Errors: as [`Sender::send`].
    pub fn flush(&self) -> io::Result<()> {
        self.shared.write_all(self.shared.state()?).map(drop)
    }

    /// Sends what is queued, then ends this direction: the peer's `receive` gives `None`, and every
    /// `send` here fails. What the peer sends can still be received.
    ///
    /// Errors: as [`Sender::send`].
    pub fn finish(&self) -> io::Result<()> {
        let mut state = self.shared.state()?;
        state.link.session.finish();
        let state = self.shared.write_all(state)?;
        state.link.end(&self.shared.stream)
    }

    /// Ends the connection in both directions for all who use it, at once: who waits in `receive` or
    /// `send` is woken, and gets an error of kind `ConnectionAborted`. What is queued is lost.
    pub fn abort(&self) {
        let _error = self.shared.fail(&mut self.shared.lock(), aborted());
    }

    /// The stream, for its addresses and options; who reads or writes it breaks the framing.
    pub fn get_ref(&self) -> &TcpStream {
        &self.shared.stream
    }
}

impl Shared {
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// A thread that panicked while it held the state has done so between two whole steps.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of a connection that has not failed.
    fn state(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.lock();
        state.link.check()?;
        Ok(state)
    }

    /// Writes what the socket takes at once: who receives must not wait for a peer that waits for
    /// its own messages to be received. The rest gets a thread, unless it has one. What is wrong
    /// ends the connection.
    fn write_some(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        if state.writing || state.writers > 0 {
            return Ok(());
        }
        if let Err(error) = state.link.write_some(&self.stream) {
            return Err(self.fail(state, error));
        }
        if !state.link.session.outgoing().is_empty() {
            let shared = Arc::clone(self);
            let writer = move || {
                // Why it ends shows in the next call of those who use the connection.
                let _failed = shared.write_until(shared.lock(), u64::MAX).map(drop);
            };
            // Where no more threads can be had, the next send or heartbeat writes it.
            let thread = thread::Builder::new().name("heartbeat-write".to_owned()).spawn(writer);
            state.writers += usize::from(thread.is_ok());
        }
        Ok(())
    }

    /// Waits until what is queued now was written; not what others queue meanwhile.
    fn write_all<'a>(
        self: &'a Arc<Self>,
        mut state: MutexGuard<'a, State>,
    ) -> io::Result<MutexGuard<'a, State>> {
        let end = state.link.session.queued_until();
        state.writers += 1;
        self.write_until(state, end)
    }

    /// Does what one of `writers` does, until `end` was written, bytes since the beginning, or
    /// nothing is left.
    fn write_until<'a>(
        self: &'a Arc<Self>,
        mut state: MutexGuard<'a, State>,
        end: u64,
    ) -> io::Result<MutexGuard<'a, State>> {
        state.link.check()?;
        while state.link.session.written() < end && !state.link.session.outgoing().is_empty() {
            state = self.push(state)?; // after an error no writer is needed any more
        }
        state.writers -= 1;
        self.write_some(&mut state)?;
        Ok(state)
    }

    /// Writes a piece of what is queued, or waits while another thread writes one; the lock is free
    /// meanwhile.
    fn push<'a>(&'a self, mut state: MutexGuard<'a, State>) -> io::Result<MutexGuard<'a, State>> {
        if state.writing {
            let state = self.moved.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.link.check()?;
            return Ok(state);
        }
        let before = state.link.taken(&self.stream)?;
        let outgoing = state.link.session.outgoing();
        let piece = outgoing[..outgoing.len().min(4 * PIECE_BYTES)].to_vec();
        state.writing = true;
        drop(state);
        let written = (&self.stream).write(&piece);
        let mut state = self.lock();
        state.writing = false;
        self.moved.notify_all();
        state.link.check()?;
        let moved = match written {
            Ok(count) => {
                state.link.session.sent(count);
                Ok(())
            }
            // The write timeout shows as WouldBlock.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                state.link.check_taken(&self.stream, before)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        };
        match moved {
            Ok(()) => Ok(state),
            Err(error) => Err(self.fail(&mut state, error)),
        }
    }

    /// Ends the connection for all who use it, and passes the error on.
    fn fail(&self, state: &mut State, error: io::Error) -> io::Error {
        state.link.fail(&self.stream, &error);
        self.moved.notify_all();
        error
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::mpsc;

    use socket2::SockRef;

    use super::*;
    use crate::Evidence;

    #[test]
    fn a_sender_returns_when_its_message_is_out_though_others_wait_behind_it() {
        const BYTES: usize = 1 << 20;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut there, _) = listener.accept().unwrap();
        // Less than a message has room on the way.
        SockRef::from(&here).set_send_buffer_size(64 << 10).unwrap();
        SockRef::from(&there).set_recv_buffer_size(64 << 10).unwrap();
        let options = Options {
            evidence: Evidence::Answered,
            max_queued_len: 4 * BYTES,
            ..Options::default()
        };
        let connection = Connection::new(here, options).unwrap();
        let (done, returned) = mpsc::channel();
        for who in [1, 2] {
            let (sender, done) = (connection.sender(), done.clone());
            thread::spawn(move || {
                sender.send(&vec![who; BYTES]).unwrap();
                done.send(who).unwrap();
            });
        }
        let all = 2 * (BYTES as u64 + 4);
        while connection.shared.lock().link.session.queued_until() < all {
            thread::yield_now();
        }
        let mut first = vec![0; BYTES + 4];
        there.read_exact(&mut first).unwrap();
        assert_eq!(returned.recv().unwrap(), first[4]);
        assert!(connection.shared.lock().link.session.written() < all);
        there.read_exact(&mut first).unwrap();
        assert_eq!(returned.recv().unwrap(), first[4]);
    }
}
