//! The control channel between the parent and a host: typed messages over one stream.
//!
//! A message is a length (4 bytes, big endian) and as many bytes of JSON, at most [`MESSAGE_MAX`]; the length
//! is checked before anything is allocated. Longer things are sent as several messages. The stream is a
//! [`Carrier`]: a socket, or whatever else can be read, written and polled. How a host carries out orders
//! stands in [`orders`]. [`Channel`] holds its carrier as a trait object, so that handles, places and trials
//! need no type parameter. Loads register the same descriptor with epoll, so nothing became slower. Each
//! process of the lab inherits one socketpair with the parent; the first message over it has the version of
//! the protocol.

pub mod orders;

use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tcptoll_kernel::epoll::readable;

/// Longest message in bytes.
pub const MESSAGE_MAX: usize = 64 << 10;

/// The rest of a message must follow its beginning within this.
const REST_LIMIT: Duration = Duration::from_secs(10);

/// Why a message did not come or go.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// The other end is gone.
    #[error("the other process has ended")]
    Closed,
    /// Nothing came in time.
    #[error("no answer within {0:?}")]
    Silent(Duration),
    /// A message began, and its rest did not come.
    #[error("the rest of a message did not come within {REST_LIMIT:?}")]
    Unfinished,
    /// The message is longer than allowed.
    #[error("a message of {0} bytes, at most {MESSAGE_MAX} are allowed")]
    TooLong(usize),
    /// The message is not what it should be.
    #[error("an unreadable message: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// The stream failed.
    #[error("the control channel failed: {0}")]
    Io(io::Error),
}

impl From<io::Error> for ChannelError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset => Self::Closed,
            _ => Self::Io(error),
        }
    }
}

/// A stream that a channel runs over. It blocks.
pub trait Carrier: Read + Write + AsFd + Debug + Send {
    /// Waits until something can be read without blocking, or the end of the stream, at most this
    /// long; `false`: nothing came.
    ///
    /// Errors: the stream failed.
    fn readable_within(&self, limit: Duration) -> io::Result<bool> {
        let begun = Instant::now();
        // A signal ends a wait early; it is no silence of the peer.
        loop {
            let left = limit.saturating_sub(begun.elapsed());
            if readable(self, left).map_err(|error| error.source)? {
                return Ok(true);
            }
            if begun.elapsed() >= limit {
                return Ok(false);
            }
        }
    }

    /// Ends both directions; the other end reads that its peer is gone.
    fn close(&self);
}

impl Carrier for UnixStream {
    fn close(&self) {
        let _ = self.shutdown(std::net::Shutdown::Both);
    }
}

/// One end of the control channel.
///
/// What carries it is chosen while the program runs, so that a host's place is no parameter of every
/// type and function that speaks with hosts.
#[derive(Debug)]
pub struct Channel(Box<dyn Carrier>);

impl Channel {
    /// Takes over a connected stream.
    pub fn new(carrier: impl Carrier + 'static) -> Self {
        Self(Box::new(carrier))
    }

    /// Sends one message.
    pub fn send(&mut self, message: &impl Serialize) -> Result<(), ChannelError> {
        let mut bytes = vec![0; 4];
        serde_json::to_writer(&mut bytes, message)?;
        let length = bytes.len() - 4;
        if length > MESSAGE_MAX {
            return Err(ChannelError::TooLong(length));
        }
        bytes[..4].copy_from_slice(&(length as u32).to_be_bytes());
        self.0.write_all(&bytes)?;
        Ok(self.0.flush()?)
    }

    /// Waits for one message; `None` waits for ever.
    pub fn receive<T: DeserializeOwned>(
        &mut self,
        timeout: Option<Duration>,
    ) -> Result<T, ChannelError> {
        if let Some(limit) = timeout
            && !self.0.readable_within(limit)?
        {
            return Err(ChannelError::Silent(limit));
        }
        let mut length = [0; 4];
        // Once a message has begun, its rest is on its way.
        let begun = self.some(&mut length)?;
        self.fill(&mut length[begun..])?;
        let length = u32::from_be_bytes(length) as usize;
        if length > MESSAGE_MAX {
            return Err(ChannelError::TooLong(length));
        }
        let mut bytes = vec![0; length];
        self.fill(&mut bytes)?;
        Ok(serde_json::from_slice(&bytes)?)
    }

    /// Ends both directions; the other end reads that its peer is gone.
    pub fn close(&self) {
        self.0.close();
    }

    /// Reads all of it within [`REST_LIMIT`].
    fn fill(&mut self, mut bytes: &mut [u8]) -> Result<(), ChannelError> {
        let begun = Instant::now();
        while !bytes.is_empty() {
            if !self.0.readable_within(REST_LIMIT.saturating_sub(begun.elapsed()))? {
                return Err(ChannelError::Unfinished);
            }
            let read = self.some(bytes)?;
            bytes = &mut bytes[read..];
        }
        Ok(())
    }

    /// Reads at least one byte.
    fn some(&mut self, bytes: &mut [u8]) -> Result<usize, ChannelError> {
        loop {
            match self.0.read(bytes) {
                Ok(0) => return Err(ChannelError::Closed),
                Ok(read) => return Ok(read),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, PipeWriter, pipe};

    use super::*;

    /// What a program has that another one started with pipes: `ssh HOST tcptoll`.
    #[derive(Debug)]
    struct Pipes(PipeReader, PipeWriter);

    impl Read for Pipes {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            self.0.read(bytes)
        }
    }

    impl Write for Pipes {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            self.1.flush()
        }
    }

    impl AsFd for Pipes {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    impl Carrier for Pipes {
        fn close(&self) {}
    }

    #[test]
    fn two_pipes_carry_a_channel_as_a_socket_does() {
        let [(from_b, to_a), (from_a, to_b)] = [pipe().unwrap(), pipe().unwrap()];
        let mut a = Channel::new(Pipes(from_b, to_b));
        let mut b = Channel::new(Pipes(from_a, to_a));
        a.send(&[1, 2]).unwrap();
        assert_eq!(b.receive::<[u8; 2]>(None).unwrap(), [1, 2]);
        let limit = Some(Duration::from_millis(5));
        assert!(matches!(a.receive::<u8>(limit), Err(ChannelError::Silent(_))));
        b.send(&3).unwrap();
        assert_eq!(a.receive::<u8>(None).unwrap(), 3);
        drop(b);
        assert!(matches!(a.receive::<u8>(limit), Err(ChannelError::Closed)));
    }

    fn pair() -> (Channel, UnixStream) {
        let (a, b) = UnixStream::pair().unwrap();
        (Channel::new(a), b)
    }

    #[test]
    fn a_message_comes_out_as_it_went_in() {
        let (mut a, b) = pair();
        let mut b = Channel::new(b);
        a.send(&vec![1, 2, 3]).unwrap();
        assert_eq!(b.receive::<Vec<u8>>(None).unwrap(), [1, 2, 3]);
    }

    #[test]
    fn a_length_above_the_limit_is_refused_before_anything_is_read() {
        let (mut a, mut b) = pair();
        b.write_all(&u32::MAX.to_be_bytes()).unwrap();
        assert!(matches!(a.receive::<u8>(None), Err(ChannelError::TooLong(_))));
    }

    #[test]
    fn half_a_message_and_an_end_is_a_closed_channel() {
        let (mut a, mut b) = pair();
        b.write_all(&[0, 0, 0, 9, b'1']).unwrap();
        drop(b);
        assert!(matches!(a.receive::<u8>(None), Err(ChannelError::Closed)));
    }

    #[test]
    fn a_silent_peer_is_told_from_a_dead_one() {
        let (mut a, _b) = pair();
        let limit = Some(Duration::from_millis(5));
        assert!(matches!(a.receive::<u8>(limit), Err(ChannelError::Silent(_))));
    }

    #[test]
    fn a_message_of_another_type_is_unreadable_and_no_panic() {
        let (mut a, mut b) = pair();
        b.write_all(b"\0\0\0\x04\"no\"").unwrap();
        assert!(matches!(a.receive::<u32>(None), Err(ChannelError::Unreadable(_))));
    }

    #[test]
    fn a_message_too_long_to_send_is_an_error_at_the_sender() {
        let (mut a, _b) = pair();
        assert!(matches!(a.send(&"x".repeat(MESSAGE_MAX)), Err(ChannelError::TooLong(_))));
    }
}
