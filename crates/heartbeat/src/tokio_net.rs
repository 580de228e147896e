//! A heartbeat over tokio's sockets: one task receives, any number send.
//!
//! The heartbeat runs inside [`Connection::receive`]. A program that does not receive sends none and
//! judges none.

use std::future::poll_fn;
use std::io::{self, ErrorKind, Read as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use crate::link::{Link, PIECE_BYTES, aborted, passes, write_now};
use crate::session::{Options, Turn};

/// A connection with a heartbeat; the end that receives.
///
/// It sets `TCP_USER_TIMEOUT` to [`Timing::bound`](crate::Timing::bound): the kernel's keep-alive
/// probes, and every timer for idle connections, are of no use while data is unacknowledged; then
/// only retransmission runs, which by default gives up after a quarter of an hour.
///
/// The socket is closed with the last of the connection and its senders; what [`Sender::try_send`]
/// has left is lost then, unless [`Sender::flush`] or [`Sender::finish`] came before. A peer that
/// must see the last message gets a `finish`, and `receive` until it is `None`: a socket that is
/// closed while the peer sends is reset.
///
/// ```no_run
/// # use tcp_heartbeat::{Options, tokio_net::Connection};
/// # async fn run(stream: tokio::net::TcpStream) -> std::io::Result<()> {
/// # let (_to, mut orders) = tokio::sync::mpsc::channel::<Vec<u8>>(1);
/// let mut connection = Connection::new(stream, Options::default())?;
/// let sender = connection.sender();
/// // A task of its own: `receive` must not wait for `send`.
/// tokio::spawn(async move {
///     while let Some(order) = orders.recv().await {
///         sender.send(&order).await?;
///     }
///     sender.finish().await
/// });
/// while let Some(message) = connection.receive().await? {
///     println!("{} bytes", message.len());
/// }
/// // receive() ended with None: the peer did so in order. A dead peer is an error of kind TimedOut.
/// # Ok(())
/// # }
/// ```
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
    /// A write of which the peer takes nothing for this long fails.
    bound: Duration,
    /// Never locked across an `await`.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    link: Link,
    /// Who waits in `receive`.
    receiver: Option<Waker>,
}

impl Connection {
    /// Takes over a connected stream.
    ///
    /// Errors: what setting options says; `Unsupported` if
    /// [`Evidence::Acknowledged`](crate::Evidence::Acknowledged) is asked for where the kernel does
    /// not tell.
    pub fn new(stream: TcpStream, options: Options) -> io::Result<Self> {
        let link = Link::new(&stream, options)?;
        let shared = Shared {
            stream,
            started: Instant::now(),
            bound: options.timing.bound(),
            state: Mutex::new(State { link, receiver: None }),
        };
        Ok(Self { shared: Arc::new(shared), piece: vec![0; PIECE_BYTES].into() })
    }

    /// An end that sends, for this or another task.
    pub fn sender(&self) -> Sender {
        Sender { shared: Arc::clone(&self.shared) }
    }

    /// The stream, for its addresses and options; who reads or writes it breaks the framing.
    pub fn get_ref(&self) -> &TcpStream {
        &self.shared.stream
    }

    /// Waits for the next message, keeps the heartbeat and writes what is queued meanwhile; `None`:
    /// the peer has ended the connection between two messages.
    ///
    /// Cancelled, nothing is lost. After [`Sender::finish`] the kernel's probes (`SO_KEEPALIVE`)
    /// watch the peer instead. They cannot see a program that hangs.
    ///
    /// Errors: `TimedOut`: the peer is dead; `InvalidData`: it announced a message longer than
    /// allowed; `UnexpectedEof`: it ended within a message; `ConnectionAborted`: [`Sender::abort`];
    /// else what the kernel or tokio says. After an error the connection is shut down.
    pub async fn receive(&mut self) -> io::Result<Option<Vec<u8>>> {
        let received = self.next_message().await;
        received.map_err(|error| self.shared.fail(&mut self.shared.lock(), error))
    }

    async fn next_message(&mut self) -> io::Result<Option<Vec<u8>>> {
        let shared = &*self.shared;
        loop {
            let due = {
                let mut state = shared.state()?;
                let message = state.link.next_message()?;
                // Asks of the peer have queued their answer.
                shared.write_some(&mut state)?;
                if message.is_some() || state.link.session.has_ended() {
                    return Ok(message);
                }
                match state.link.session.next(shared.now()) {
                    Some(Turn::Test) => {
                        state.link.look(&shared.stream, shared.now())?;
                        continue; // and write it
                    }
                    Some(Turn::Judge) => {
                        // What has arrived is read first: that is evidence, too. By a call of its
                        // own: tokio makes none before its driver has run, and a program that was
                        // busy would take a live peer for dead.
                        let read = (&*SockRef::from(&shared.stream)).read(&mut self.piece);
                        match read {
                            Ok(count) => state.link.read(&self.piece[..count], shared.now())?,
                            Err(error) if !passes(error.kind()) => return Err(error),
                            Err(_) => state.link.judge(&shared.stream, shared.now())?,
                        }
                        continue;
                    }
                    None => shared.when(state.link.session.next_due()),
                }
            };
            // What the time limit says shows in the next turn.
            let stirred = timeout_at(due, poll_fn(|cx| shared.poll_stir(cx))).await;
            if stirred.unwrap_or(Ok(false))? {
                match shared.stream.try_read(&mut self.piece) {
                    Ok(count) => {
                        shared.state()?.link.read(&self.piece[..count], shared.now())?;
                    }
                    Err(error) if !passes(error.kind()) => return Err(error),
                    Err(_) => {}
                }
            }
        }
    }
}

impl Sender {
    /// Sends a message; waits until it was handed to the kernel, whole.
    ///
    /// A task that waits here does not receive: two programs that do both in one task wait for one
    /// another until the heartbeat's bound. Who receives sends from another task, or with
    /// [`Sender::try_send`].
    ///
    /// Cancelled, the message was either not sent at all, or goes out whole as after `try_send`.
    ///
    /// Errors: `InvalidInput`: the message is longer than allowed; `BrokenPipe`: this side has
    /// finished; after both nothing has happened. `TimedOut`: the peer is dead, or has taken nothing
    /// for as long as the heartbeat's bound. Else why the connection has failed.
    pub async fn send(&self, message: &[u8]) -> io::Result<()> {
        while !self.try_send(message)? {
            self.shared.written().await?;
        }
        self.flush().await
    }

    /// Sends a message if there is room for it, without waiting; false: there is none, and nothing
    /// has happened.
    ///
    /// What the socket does not take at once goes out in [`Connection::receive`] and in all that
    /// waits here.
    ///
    /// Errors: as [`Sender::send`].
    #[must_use = "false: the message was not sent"]
    pub fn try_send(&self, message: &[u8]) -> io::Result<bool> {
        let mut state = self.shared.state()?;
        self.shared.write_some(&mut state)?;
        let queued = state.link.queue(message)?;
        self.shared.write_some(&mut state)?;
        if !state.link.session.outgoing().is_empty() {
            state.wake(); // it waits until it can write the rest
        }
        Ok(queued)
    }

    /// Waits until all that is queued now was handed to the kernel. It may be cancelled.
    ///
    /// Errors: as [`Sender::send`].
    pub async fn flush(&self) -> io::Result<()> {
        let end = self.shared.state()?.link.session.queued_until();
        while self.shared.state()?.link.session.written() < end {
            self.shared.written().await?;
        }
        Ok(())
    }

    /// Sends what is queued, then ends this direction: the peer's `receive` gives `None`, and every
    /// `send` here fails. What the peer sends can still be received.
    ///
    /// Errors: as [`Sender::send`].
    pub async fn finish(&self) -> io::Result<()> {
        self.shared.state()?.link.session.finish();
        self.flush().await?;
        self.shared.state()?.link.end(&self.shared.stream)
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

    /// The moment on tokio's clock.
    fn when(&self, due: Option<Duration>) -> Instant {
        let due = due.unwrap_or(Duration::MAX);
        // A time that no clock reaches is as good as a day: it is worked out anew after that.
        Instant::now() + due.saturating_sub(self.now()).min(Duration::from_secs(86_400))
    }

    /// A task that panicked while it held the state has done so between two whole steps.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of a connection that has not failed.
    fn state(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.lock();
        state.link.check()?;
        Ok(state)
    }

    /// Ready when `receive` has something to do; true: to read.
    ///
    /// tokio says that a socket is ready only as often as the task may go on: a peer that sends
    /// without end keeps no other task waiting.
    fn poll_stir(&self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if self.stream.poll_read_ready(cx)?.is_ready() {
            return Poll::Ready(Ok(true));
        }
        let mut state = self.lock();
        let writes = !state.link.session.outgoing().is_empty();
        if state.link.check().is_err() || writes && self.stream.poll_write_ready(cx)?.is_ready() {
            return Poll::Ready(Ok(false));
        }
        state.receiver = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Writes what the socket takes at once; what is wrong ends the connection.
    fn write_some(&self, state: &mut State) -> io::Result<()> {
        while !state.link.session.outgoing().is_empty() {
            let outgoing = state.link.session.outgoing();
            let written = match self.stream.try_write(outgoing) {
                // tokio makes no call before its driver has run; a task that sends and ends need
                // never let it. This call tokio does not see; it has seen that the socket was full.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    write_now(&self.stream, outgoing)
                }
                written => written,
            };
            match written {
                Ok(count) => state.link.session.sent(count),
                Err(error) if passes(error.kind()) => break,
                Err(error) => return Err(self.fail(state, error)),
            }
        }
        Ok(())
    }

    /// Waits until some of what is queued was written.
    async fn written(&self) -> io::Result<()> {
        let before = self.state()?.link.taken(&self.stream)?;
        let writable = timeout(self.bound, self.stream.writable()).await;
        let mut state = self.state()?;
        let taken = match writable {
            Ok(Ok(())) => return self.write_some(&mut state),
            Ok(Err(error)) => Err(error),
            Err(_) => state.link.check_taken(&self.stream, before),
        };
        taken.map_err(|error| self.fail(&mut state, error))
    }

    /// Ends the connection for all who use it, and passes the error on.
    fn fail(&self, state: &mut State, error: io::Error) -> io::Error {
        state.link.fail(&self.stream, &error);
        state.wake();
        error
    }
}

impl State {
    /// Makes `receive` look again.
    fn wake(&mut self) {
        if let Some(receiver) = self.receiver.take() {
            receiver.wake();
        }
    }
}
