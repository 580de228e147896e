//! Where does a message end, and which message is a Null? A framing for protocols without one.
//!
#![doc = include_str!("../FRAMING.md")]
//!
//! It knows no sockets and no time; [`Session`](crate::Session) adds the heartbeat.

use std::error::Error;
use std::fmt;

/// Bytes of a header, and so of a whole Null or Ask.
pub const HEADER_BYTES: usize = 4;
const NULL: u32 = 0;
const ASK: u32 = u32::MAX;
/// A whole Null, for a program that writes it itself.
pub const NULL_FRAME: [u8; HEADER_BYTES] = NULL.to_be_bytes();
/// A whole Ask.
pub const ASK_FRAME: [u8; HEADER_BYTES] = ASK.to_be_bytes();
/// The longest message that a header can announce.
pub const MAX_MESSAGE_LEN: usize = (ASK - 2) as usize;
/// An emptied buffer keeps this much memory at most.
const KEPT_BYTES: usize = 16 * 1024;

/// What has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Nothing but a sign of life.
    Null,
    /// A sign of life that wants one back.
    Ask,
    /// A message; it may be empty.
    Message(Vec<u8>),
}

/// The peer has announced a message that is longer than allowed, or something that does not speak
/// this protocol is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TooLong {
    /// Bytes announced.
    pub announced: usize,
    /// Bytes allowed.
    pub limit: usize,
}

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { announced, limit } = self;
        write!(f, "the peer announces a message of {announced} bytes, at most {limit} are allowed")
    }
}

impl Error for TooLong {}

/// Bytes in, frames out.
///
/// Memory: never more than the limit, a header, and the largest `push` together, provided that
/// [`Decoder::next_frame`] is called until it is `None` before the next. What a header announces
/// allocates nothing.
#[derive(Clone, Debug)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// Bytes of `buffer` that were taken out as frames.
    taken: usize,
    limit: usize,
    failed: Option<TooLong>,
}

impl Decoder {
    /// Makes a decoder that takes messages of up to `limit` bytes (at most [`MAX_MESSAGE_LEN`]).
    pub fn new(limit: usize) -> Self {
        Self { buffer: Vec::new(), taken: 0, limit: limit.min(MAX_MESSAGE_LEN), failed: None }
    }

    /// Takes in what was read, in pieces of any size. After an error it is thrown away.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.failed.is_some() {
            return;
        }
        self.buffer.drain(..self.taken);
        self.taken = 0;
        let needed = self.buffer.len() + bytes.len();
        if needed > self.buffer.capacity() {
            // Doubling, but not beyond what one whole frame takes.
            let frame = self.limit.saturating_add(HEADER_BYTES);
            let capacity = needed.max(frame.min(2 * self.buffer.capacity()));
            self.buffer.reserve_exact(capacity - self.buffer.len());
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Takes out the next frame; `None`: more bytes are needed.
    ///
    /// Errors: once a frame was too long, always: where the next one begins is not known.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, TooLong> {
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        let rest = &self.buffer[self.taken..];
        let Some((header, rest)) = rest.split_first_chunk::<HEADER_BYTES>() else {
            if rest.is_empty() {
                self.empty();
            }
            return Ok(None);
        };
        let (frame, length) = match u32::from_be_bytes(*header) {
            NULL => (Frame::Null, 0),
            ASK => (Frame::Ask, 0),
            header => {
                let announced = header as usize - 1;
                if announced > self.limit {
                    let failed = TooLong { announced, limit: self.limit };
                    self.failed = Some(failed);
                    self.buffer = Vec::new();
                    self.taken = 0;
                    return Err(failed);
                }
                let Some(message) = rest.get(..announced) else { return Ok(None) };
                (Frame::Message(message.to_vec()), announced)
            }
        };
        self.taken += HEADER_BYTES + length;
        Ok(Some(frame))
    }

    fn empty(&mut self) {
        self.buffer.clear();
        self.taken = 0;
        if self.buffer.capacity() > KEPT_BYTES {
            self.buffer = Vec::new();
        }
    }

    /// Whether a frame has begun that is not whole: a peer that ends now was cut off.
    pub fn is_inside_frame(&self) -> bool {
        self.taken < self.buffer.len()
    }

    /// Memory it holds, bytes.
    pub fn capacity(&self) -> usize {
        self.buffer.capacity()
    }
}

/// There is no room for this message now: [`Outbox::advance`] makes some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Full {
    /// Bytes that wait to be written.
    pub queued: usize,
    /// The most that may.
    pub limit: usize,
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes wait to be written, at most {} may", self.queued, self.limit)
    }
}

impl Error for Full {}

/// Frames in, bytes out, at whatever pace the socket takes them.
///
/// Frames are put behind one another whole, so a Null never stands inside a message, however few
/// bytes a write takes. At most one Null and one Ask wait at any time: one that waits says all that
/// a second would.
///
/// Memory: at most twice the limit and four headers.
#[derive(Clone, Debug)]
pub struct Outbox {
    buffer: Vec<u8>,
    /// Bytes of `buffer` that were written.
    written: usize,
    limit: usize,
    /// Bytes to write until the waiting Null (Ask) is out; 0: none waits.
    null_ends: usize,
    ask_ends: usize,
}

impl Outbox {
    /// Makes an outbox in which messages may wait that take `limit` bytes with their headers.
    pub fn new(limit: usize) -> Self {
        Self { buffer: Vec::new(), written: 0, limit, null_ends: 0, ask_ends: 0 }
    }

    /// Puts a message behind the others, whole.
    ///
    /// Errors: [`Full`], and nothing is done; for ever, if the message and its header are longer
    /// than the limit.
    pub fn message(&mut self, message: &[u8]) -> Result<(), Full> {
        let queued = self.as_bytes().len();
        let needed = queued.saturating_add(HEADER_BYTES).saturating_add(message.len());
        if needed > self.limit || message.len() > MAX_MESSAGE_LEN {
            return Err(Full { queued, limit: self.limit });
        }
        self.put(message.len() as u32 + 1, message);
        Ok(())
    }

    /// Puts a Null behind the others, unless one waits.
    pub fn null(&mut self) {
        if self.null_ends == 0 {
            self.put(NULL, &[]);
            self.null_ends = self.as_bytes().len();
        }
    }

    /// Puts an Ask behind the others, unless one waits.
    pub fn ask(&mut self) {
        if self.ask_ends == 0 {
            self.put(ASK, &[]);
            self.ask_ends = self.as_bytes().len();
        }
    }

    fn put(&mut self, header: u32, message: &[u8]) {
        let added = HEADER_BYTES + message.len();
        let queued = self.as_bytes().len();
        if self.buffer.len() + added > self.buffer.capacity() {
            if self.written < queued {
                // Less is gone than waits, so this stays below twice what may wait: messages, a
                // Null and an Ask.
                let most = 2 * self.limit.saturating_add(2 * HEADER_BYTES);
                let needed = self.buffer.len() + added;
                let capacity = needed.max(most.min(2 * self.buffer.capacity()));
                self.buffer.reserve_exact(capacity - self.buffer.len());
            } else {
                // More is gone than is moved: all moves together cost no more than the writes did.
                self.buffer.drain(..self.written);
                self.written = 0;
                self.buffer.reserve_exact(added);
            }
        }
        self.buffer.extend_from_slice(&header.to_be_bytes());
        self.buffer.extend_from_slice(message);
    }

    /// What is to be written next; empty: nothing.
    pub fn as_bytes(&self) -> &[u8] {
        &self.buffer[self.written..]
    }

    /// The first `count` bytes of [`Outbox::as_bytes`] were written; more than there were count as
    /// all.
    pub fn advance(&mut self, count: usize) {
        let count = count.min(self.as_bytes().len());
        self.written += count;
        self.null_ends = self.null_ends.saturating_sub(count);
        self.ask_ends = self.ask_ends.saturating_sub(count);
        if self.written == self.buffer.len() {
            self.buffer.clear();
            self.written = 0;
            if self.buffer.capacity() > KEPT_BYTES {
                self.buffer = Vec::new();
            }
        }
    }

    /// Bytes in which messages may wait, with their headers.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Memory it holds, bytes.
    pub fn capacity(&self) -> usize {
        self.buffer.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of FRAMING.md's last table.
    #[test]
    fn the_vectors_of_the_specification_are_decoded_as_it_says() {
        let text = include_str!("../FRAMING.md");
        let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
        let mut tried = 0;
        for (bytes, expected) in rows {
            let digits: Vec<char> = bytes.chars().collect();
            let byte =
                |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap();
            let bytes: Vec<u8> = digits.chunks(2).map(byte).collect();
            for piece in 1..=bytes.len() {
                assert_eq!(decoded(&bytes, piece), expected.trim_end_matches(" |"), "{bytes:?}");
            }
            tried += 1;
        }
        assert_eq!(tried, 13);
    }

    /// What a decoder gives of bytes that arrive in pieces of this size, in the words of FRAMING.md.
    fn decoded(bytes: &[u8], piece: usize) -> String {
        let mut decoder = Decoder::new(16);
        let mut words = Vec::new();
        for part in bytes.chunks(piece) {
            decoder.push(part);
            loop {
                words.push(match decoder.next_frame() {
                    Ok(None) => break,
                    Ok(Some(Frame::Null)) => "Null".to_owned(),
                    Ok(Some(Frame::Ask)) => "Ask".to_owned(),
                    Ok(Some(Frame::Message(message))) if message.is_empty() => {
                        "message of 0 bytes".to_owned()
                    }
                    Ok(Some(Frame::Message(message))) => {
                        let hex: Vec<String> =
                            message.iter().map(|byte| format!("{byte:02x}")).collect();
                        format!("message `{}`", hex.concat())
                    }
                    Err(error) => return format!("error: {} bytes announced", error.announced),
                });
            }
        }
        if decoder.is_inside_frame() {
            words.push("…".to_owned());
        }
        words.join(", ")
    }

    #[test]
    fn what_the_outbox_gives_the_decoder_takes_in_pieces_of_any_size() {
        for size in 1..20 {
            let mut outbox = Outbox::new(1_000);
            outbox.message(b"").unwrap();
            outbox.null();
            outbox.message(b"hello").unwrap();
            outbox.ask();
            let bytes = outbox.as_bytes().to_vec();
            let mut decoder = Decoder::new(5);
            let mut frames = Vec::new();
            for piece in bytes.chunks(size) {
                decoder.push(piece);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    frames.push(frame);
                }
            }
            let message = |text: &str| Frame::Message(text.into());
            assert_eq!(frames, [message(""), Frame::Null, message("hello"), Frame::Ask]);
            assert!(!decoder.is_inside_frame());
        }
    }

    #[test]
    fn a_frame_too_long_is_refused_before_its_bytes_arrive_and_for_ever() {
        let mut decoder = Decoder::new(100);
        decoder.push(&102_u32.to_be_bytes());
        let refused = TooLong { announced: 101, limit: 100 };
        assert_eq!(decoder.next_frame(), Err(refused));
        decoder.push(&[0; 400]);
        assert_eq!(decoder.next_frame(), Err(refused));
        assert_eq!(decoder.capacity(), 0);
    }

    #[test]
    fn the_longest_message_allowed_passes_and_fills_no_more_than_its_frame() {
        let mut outbox = Outbox::new(104);
        outbox.message(&[7; 100]).unwrap();
        let mut decoder = Decoder::new(100);
        for byte in outbox.as_bytes() {
            assert_eq!(decoder.next_frame(), Ok(None));
            decoder.push(&[*byte]);
        }
        assert!(decoder.capacity() <= 104, "{}", decoder.capacity());
        assert_eq!(decoder.next_frame(), Ok(Some(Frame::Message(vec![7; 100]))));
    }

    #[test]
    fn an_outbox_that_is_never_written_stays_within_its_limit() {
        let mut outbox = Outbox::new(100);
        for _ in 0..1_000 {
            outbox.null();
            outbox.ask();
            let _full = outbox.message(&[0; 10]);
        }
        assert_eq!(outbox.message(&[0; 10]), Err(Full { queued: 92, limit: 100 }));
        assert!(outbox.capacity() <= 216, "{}", outbox.capacity());
    }

    #[test]
    fn an_outbox_that_is_written_in_pieces_stays_within_its_limit() {
        for limit in [100, 1_003, 5_000] {
            for first in (HEADER_BYTES..=limit).step_by(limit / 50) {
                let mut outbox = Outbox::new(limit);
                outbox.message(&vec![0; first - HEADER_BYTES]).unwrap();
                for _ in 0..60 {
                    let room = limit.saturating_sub(outbox.as_bytes().len() + HEADER_BYTES);
                    let _full = outbox.message(&vec![0; room]);
                    outbox.null();
                    outbox.ask();
                    assert!(outbox.capacity() <= 2 * (limit + 2 * HEADER_BYTES));
                    outbox.advance(outbox.as_bytes().len() / 8);
                }
            }
        }
    }

    #[test]
    fn the_next_null_waits_for_the_last_byte_of_the_one_before() {
        let mut outbox = Outbox::new(100);
        outbox.message(b"ab").unwrap();
        outbox.null();
        outbox.advance(9);
        outbox.null();
        assert_eq!(outbox.as_bytes(), [0]);
        outbox.advance(1);
        outbox.null();
        assert_eq!(outbox.as_bytes(), [0; 4]);
    }
}
