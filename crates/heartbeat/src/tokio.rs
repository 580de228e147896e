//! A heartbeat over tokio's sockets, for `select!`.
//!
//! The heartbeat runs inside [`Connection::receive`] and, while it waits, [`Connection::send`]. A
//! program that calls neither sends none and judges none.

use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{Interest, Ready};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use crate::kernel;
use crate::session::{Options, Session, Turn};
use crate::timing::Evidence;

/// The most that is read at a time.
const PIECE_BYTES: usize = 16 * 1024;

/// A connection with a heartbeat.
///
/// It sets `TCP_USER_TIMEOUT` to [`Timing::bound`](crate::Timing::bound): the kernel's keep-alive
/// probes, and every timer for idle connections, are of no use while data is unacknowledged; then
/// only retransmission runs, which by default gives up after a quarter of an hour.
///
/// ```no_run
/// # use tcp_heartbeat::{Options, tokio::Connection};
/// # async fn run(stream: tokio::net::TcpStream) -> std::io::Result<()> {
/// # let (_to, mut orders) = tokio::sync::mpsc::channel::<Vec<u8>>(1);
/// let mut connection = Connection::new(stream, Options::default())?;
/// loop {
///     tokio::select! {
///         message = connection.receive() => match message? {
///             Some(message) => println!("{} bytes", message.len()),
///             None => break, // an orderly end
///         },
///         Some(order) = orders.recv() => connection.send(&order).await?,
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    session: Session,
    started: Instant,
    /// A write that makes no progress for this long fails.
    bound: Duration,
    piece: Box<[u8]>,
    /// The peer has ended its direction.
    ended: bool,
    /// Why the connection ended.
    failed: Option<(ErrorKind, String)>,
}

impl Connection {
    /// Takes over a connected stream.
    ///
    /// Errors: what setting options says; `Unsupported` if [`Evidence::Acknowledged`] is asked for
    /// where the kernel does not tell.
    pub fn new(stream: TcpStream, options: Options) -> io::Result<Self> {
        if options.evidence == Evidence::Acknowledged {
            kernel::unacknowledged(&stream)?;
        }
        let bound = options.timing.bound();
        kernel::give_up_after(&stream, bound)?;
        Ok(Self {
            stream,
            session: Session::new(options, Duration::ZERO),
            started: Instant::now(),
            bound,
            piece: vec![0; PIECE_BYTES].into(),
            ended: false,
            failed: None,
        })
    }

    /// Waits for the next message, keeps the heartbeat and writes what is queued meanwhile; `None`:
    /// the peer has ended the connection between two messages.
    ///
    /// Cancelled, nothing is lost.
    ///
    /// Errors: `TimedOut`: the peer is dead; `InvalidData`: it announced a message longer than
    /// allowed; `UnexpectedEof`: it ended within a message; else what the kernel says. After an
    /// error the connection is shut down.
    pub async fn receive(&mut self) -> io::Result<Option<Vec<u8>>> {
        self.check()?;
        let received = self.next_message().await;
        self.shut_down_after(received)
    }

    async fn next_message(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let message = self.session.next_message();
            let message = message.map_err(|e| io::Error::new(ErrorKind::InvalidData, e))?;
            // Asks of the peer have queued their answer.
            self.write_some()?;
            if message.is_some() {
                return Ok(message);
            }
            if self.ended && self.session.is_inside_message() {
                return Err(io::Error::new(ErrorKind::UnexpectedEof, "cut off in a message"));
            }
            if self.ended {
                return Ok(None);
            }
            if self.turn()? {
                continue;
            }
            let writes = !self.session.outgoing().is_empty();
            let interest =
                if writes { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
            let ready = timeout_at(self.due(), self.stream.ready(interest)).await;
            if ready.is_ok_and(|ready| ready.is_ok_and(Ready::is_readable)) {
                self.read_some()?;
            }
        }
    }

    /// Sends a message; waits while too much is queued.
    ///
    /// It returns when the message is queued and what the socket takes at once is written; the rest
    /// goes out in [`Connection::receive`], [`Connection::flush`] and later sends. Cancelled, the
    /// message is not sent, not even in part.
    ///
    /// Errors: `InvalidInput`: the message is longer than allowed, and nothing happened; `TimedOut`:
    /// the peer is dead or takes nothing; else what the kernel says.
    pub async fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.check()?;
        let longest = self.session.longest();
        if message.len() > longest {
            let text = format!("a message of {} bytes, at most {longest}", message.len());
            return Err(io::Error::new(ErrorKind::InvalidInput, text));
        }
        let sent = self.write_until(|session| session.send(message).is_ok()).await;
        let sent = sent.and_then(|()| self.write_some());
        self.shut_down_after(sent.map(|_| ()))
    }

    /// Waits until all that is queued was handed to the kernel. It may be cancelled.
    ///
    /// Errors: as [`Connection::send`].
    pub async fn flush(&mut self) -> io::Result<()> {
        self.check()?;
        let flushed = self.write_until(|session| session.outgoing().is_empty()).await;
        self.shut_down_after(flushed)
    }

    /// Sends what is queued, then ends this direction: the peer's `receive` gives `None`. What the
    /// peer sends can still be received.
    ///
    /// Errors: as [`Connection::send`].
    pub async fn finish(&mut self) -> io::Result<()> {
        self.flush().await?;
        SockRef::from(&self.stream).shutdown(Shutdown::Write)
    }

    /// Writes, and keeps the heartbeat, until the session says that it is enough.
    async fn write_until(&mut self, mut done: impl FnMut(&mut Session) -> bool) -> io::Result<()> {
        let mut moved = Instant::now();
        loop {
            if self.write_some()? > 0 {
                moved = Instant::now();
            }
            if done(&mut self.session) {
                return Ok(());
            }
            if moved.elapsed() >= self.bound {
                return Err(timed_out("the peer takes nothing"));
            }
            if self.turn()? {
                continue;
            }
            // Whether it is ready shows in the next write.
            let until = self.due().min(moved + self.bound);
            let _ready = timeout_at(until, self.stream.writable()).await;
        }
    }

    /// Takes the heartbeat's turn; false: nothing was due.
    fn turn(&mut self) -> io::Result<bool> {
        match self.session.next(self.now()) {
            Some(Turn::Test) => {
                self.look()?;
                self.write_some()?;
            }
            Some(Turn::Judge) => {
                // What has arrived is read first: that is evidence, too.
                if !self.read_some()? {
                    self.judge()?;
                }
            }
            None => return Ok(false),
        }
        Ok(true)
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// When the heartbeat's next turn is due.
    fn due(&self) -> Instant {
        // A time that no clock reaches is as good as a day: it is worked out anew after that.
        let wait = self.session.next_due().saturating_sub(self.now());
        Instant::now() + wait.min(Duration::from_hours(24))
    }

    /// Reads what is there; false: nothing.
    fn read_some(&mut self) -> io::Result<bool> {
        match self.stream.try_read(&mut self.piece) {
            Ok(0) => self.ended = true,
            Ok(count) => {
                let now = self.now();
                self.session.received(&self.piece[..count], now);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Writes what the socket takes at once; bytes.
    fn write_some(&mut self) -> io::Result<usize> {
        let mut written = 0;
        while !self.session.outgoing().is_empty() {
            match self.stream.try_write(self.session.outgoing()) {
                Ok(count) => {
                    self.session.sent(count);
                    written += count;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }

    /// Tells the session what the kernel knows.
    fn look(&mut self) -> io::Result<()> {
        if self.session.evidence() == Evidence::Acknowledged {
            let bytes = kernel::unacknowledged(&self.stream)?;
            self.session.unacknowledged(bytes, self.now());
        }
        Ok(())
    }

    fn judge(&mut self) -> io::Result<()> {
        self.look()?;
        if !self.session.is_tested() {
            return Ok(());
        }
        Err(timed_out(match self.session.evidence() {
            Evidence::Acknowledged => "the peer is gone: it does not acknowledge a heartbeat",
            Evidence::Answered => "the peer is gone: it does not answer a heartbeat",
        }))
    }

    fn check(&self) -> io::Result<()> {
        match &self.failed {
            Some((kind, text)) => Err(io::Error::new(*kind, text.clone())),
            None => Ok(()),
        }
    }

    fn shut_down_after<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result {
            self.failed = Some((error.kind(), error.to_string()));
            // That the peer has closed first is no matter.
            let _gone = SockRef::from(&self.stream).shutdown(Shutdown::Both);
        }
        result
    }
}

fn timed_out(text: &'static str) -> io::Error {
    io::Error::new(ErrorKind::TimedOut, text)
}
