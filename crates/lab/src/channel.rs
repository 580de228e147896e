//! The control channel between the parent and a host: typed messages over one stream.
//!
//! A message is a length (4 bytes, big endian) and as many bytes of JSON, at most [`MESSAGE_MAX`]; the length
//! is checked before anything is allocated. Longer things are sent as several messages. The stream is a
//! [`Carrier`]: a socket, or whatever else can be read, written and polled. A host carries
//! out orders by a table of handlers, [`Orders`]. [`Channel`] holds its carrier as a trait object, so that handles, places and trials
//! need no type parameter. Loads register the same descriptor with epoll, so nothing became slower. Each
//! process of the lab inherits one socketpair with the parent; the first message over it has the version of
//! the protocol.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tcptoll_core::stats::Histogram;
use tcptoll_kernel::epoll::readable;

use crate::messages::{Done, Order, Reply, Request, Rows, Service};

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

/// Most rows in one message, so that it stays below [`MESSAGE_MAX`].
const ROWS_MAX: usize = 150;

/// Why an order is not carried out: a sentence for the user.
#[derive(Debug)]
pub struct Refusal(pub String);

impl<E: std::error::Error> From<E> for Refusal {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

/// Carries out an order that came as JSON, and answers it.
type Handler<H> = Box<dyn Fn(&mut H, Value, &mut Channel) -> Result<(), ChannelError>>;

/// The orders that a kind of host `H` carries out.
pub struct Orders<H> {
    /// `host`, `link`: who refuses an order that is not in the table.
    kind: &'static str,
    handlers: BTreeMap<&'static str, Handler<H>>,
}

impl<H: 'static> Orders<H> {
    /// An empty table of one kind of host.
    pub fn new(kind: &'static str) -> Self {
        Self { kind, handlers: BTreeMap::new() }
    }

    /// Adds an order with its handler. The handler may send what belongs to the answer and comes
    /// before it.
    #[must_use]
    pub fn on<O: Order>(
        mut self,
        handler: impl Fn(&mut H, O, &mut Channel) -> Result<O::Answer, Refusal> + 'static,
    ) -> Self {
        let handler = move |host: &mut H, body: Value, channel: &mut Channel| {
            let answered = serde_json::from_value(body)
                .map_err(Refusal::from)
                .and_then(|order| handler(host, order, channel));
            match answered {
                Ok(answer) => channel.answer::<O>(&answer),
                Err(Refusal(sentence)) => channel.refuse(sentence),
            }
        };
        let other = self.handlers.insert(O::NAME, Box::new(handler));
        debug_assert!(other.is_none(), "two orders are called {}", O::NAME);
        self
    }

    /// Whether an order of this name is in the table.
    #[cfg(test)]
    pub fn knows(&self, name: &str) -> bool {
        self.handlers.contains_key(name)
    }

    /// Waits for the next order, carries it out and answers it.
    ///
    /// Errors: the parent is gone, or does not speak as it should.
    pub fn carry_out_next(&self, host: &mut H, channel: &mut Channel) -> Result<(), ChannelError> {
        match channel.receive(None)? {
            Request::Order { name, body } => match self.handlers.get(&*name) {
                Some(handler) => handler(host, body, channel),
                None => channel.refuse(format!("the {} knows no order {name}", self.kind)),
            },
            // The order to stop has ended meanwhile.
            Request::Stop => Ok(()),
        }
    }
}

impl Channel {
    pub fn order<O: Order>(&mut self, order: &O) -> Result<(), ChannelError> {
        self.send(&Request::Order { name: Cow::Borrowed(O::NAME), body: order })
    }

    /// Sends the answer to an order.
    pub fn answer<O: Order>(&mut self, answer: &O::Answer) -> Result<(), ChannelError> {
        match self.send(&Reply::<_, ()>::Answer(answer)) {
            Err(error @ (ChannelError::TooLong(_) | ChannelError::Unreadable(_))) => {
                self.refuse(error.to_string())
            }
            sent => sent,
        }
    }

    /// Sends a sentence for the user instead of an answer.
    pub fn refuse(&mut self, sentence: String) -> Result<(), ChannelError> {
        self.send(&Reply::<()>::Failed(sentence))
    }

    /// Reports that a service has begun.
    pub fn started<O: Service>(&mut self, started: &O::Started) -> Result<(), ChannelError> {
        self.send(&Reply::<(), _>::Started(started))
    }

    /// Reports how many operations of a load have finished.
    pub fn progress(&mut self, done: impl Into<Done>) -> Result<(), ChannelError> {
        self.send(&Reply::<()>::Progress(done.into()))
    }

    /// Sends the rows of a trace, in several messages if they are many.
    pub fn rows<R: Clone>(
        &mut self,
        rows: &[R],
        part_of: fn(Vec<R>) -> Rows,
    ) -> Result<(), ChannelError> {
        rows.chunks(ROWS_MAX)
            .try_for_each(|part| self.send(&Reply::<()>::Rows(part_of(part.to_vec()))))
    }

    /// Sends a distribution that belongs to the answer.
    pub fn histogram(&mut self, name: &str, histogram: Histogram) -> Result<(), ChannelError> {
        let (name, histogram) = (name.to_owned(), Box::new(histogram));
        self.send(&Reply::<()>::Histogram { name, histogram })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, PipeWriter, pipe};
    use std::os::unix::net::UnixStream;

    use serde::{Deserialize, Serialize};

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

    /// Add a number to the host's.
    #[derive(Serialize, Deserialize)]
    struct Add(u64);

    impl Order for Add {
        type Answer = u64;
        const NAME: &'static str = "add";
    }

    /// Report more than fits a message.
    #[derive(Serialize, Deserialize)]
    struct Fill;

    impl Order for Fill {
        type Answer = String;
        const NAME: &'static str = "fill";
    }

    fn orders() -> Orders<u64> {
        Orders::new("adder")
            .on(|sum: &mut u64, Add(number), channel| {
                channel.progress(number)?;
                *sum = sum.checked_add(number).ok_or_else(|| Refusal("too much".to_owned()))?;
                Ok(*sum)
            })
            .on(|_, Fill, _| Ok("x".repeat(super::MESSAGE_MAX)))
    }

    /// Gives one request to an adder that has 1, and its replies as JSON.
    fn replies(request: &Value) -> Vec<String> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut parent, mut host) = (Channel::new(ours), Channel::new(theirs));
        parent.send(request).unwrap();
        orders().carry_out_next(&mut 1, &mut host).unwrap();
        drop(host);
        std::iter::from_fn(|| parent.receive::<Value>(None).ok().map(|reply| reply.to_string()))
            .collect()
    }

    fn order(name: &str, body: u64) -> Value {
        serde_json::json!({ "order": { "name": name, "body": body } })
    }

    #[test]
    fn an_order_finds_its_handler_by_its_name_and_is_answered() {
        let expected = [r#"{"progress":{"done":41}}"#, r#"{"answer":42}"#];
        assert_eq!(replies(&order("add", 41)), expected);
    }

    #[test]
    fn an_order_is_sent_with_its_name_and_body() {
        let request = Request::Order { name: Cow::Borrowed(Add::NAME), body: Add(41) };
        assert_eq!(serde_json::to_value(&request).unwrap(), order("add", 41));
    }

    #[test]
    fn a_refusal_is_a_sentence() {
        let expected =
            [r#"{"progress":{"done":18446744073709551615}}"#, r#"{"failed":"too much"}"#];
        assert_eq!(replies(&order("add", u64::MAX)), expected);
    }

    #[test]
    fn an_order_that_is_not_in_the_table_is_refused_by_name() {
        let expected = [r#"{"failed":"the adder knows no order subtract"}"#];
        assert_eq!(replies(&order("subtract", 1)), expected);
    }

    #[test]
    fn a_body_of_another_form_is_refused() {
        let request = serde_json::json!({ "order": { "name": "add", "body": "much" } });
        let replies = replies(&request);
        assert!(replies.len() == 1 && replies[0].contains("invalid type"), "{replies:?}");
    }

    #[test]
    fn stop_has_no_effect_where_nothing_runs() {
        assert!(replies(&Value::from("stop")).is_empty());
    }

    #[test]
    fn an_answer_too_long_for_a_message_is_a_refusal() {
        let request = serde_json::json!({ "order": { "name": "fill", "body": null } });
        let expected = [r#"{"failed":"a message of 65549 bytes, at most 65536 are allowed"}"#];
        assert_eq!(replies(&request), expected);
    }
}
