//! How messages become system calls: one by one, held back, gathered, copied together, from a file.
//!
//! Content is a block that stays in the CPU's cache and is repeated, as with a program that fills the
//! same buffer again and again: what is measured is the way through the kernel, which copies every
//! byte of it.
//!
//! A measured window is told the time. It begins with the first look at the clock at or after its warm-up, and ends with the first
//! look at or after its length. Its length is the difference of these two looks, never the planned
//! one. Without a planned length the window is the whole transfer, from the first byte to the last.

use std::io::{self, IoSlice};

use tcptoll_kernel::socket::{MemoryFile, PARTS_MAX, Tcp};

use crate::clock::monotonic_ns;
use crate::load::LoadError;
use crate::messages::{Coalesce, Sending};

/// Size of the block. One of 16 KiB, which fits the first-level cache, costs as much CPU (10 rounds in
/// turn over a direct link, on a machine with other work).
const BLOCK: usize = 64 << 10;

/// The block: letters, so that a capture can be read.
static CONTENT: [u8; BLOCK] = content();

/// Greatest message and greatest block of messages, bytes: what one call can gather of [`CONTENT`].
const UNIT_MAX: u64 = (BLOCK * PARTS_MAX) as u64;

/// Size of the file that is sent from, unless messages are shorter.
const FILE_BYTES: usize = 4 << 20;

#[expect(clippy::large_stack_arrays, reason = "the compiler runs it, no thread does")]
const fn content() -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut at = 0;
    while at < BLOCK {
        block[at] = b'a' + (at % 26) as u8;
        at += 1;
    }
    block
}

/// How the messages of all connections are written.
#[derive(Debug)]
pub(super) struct Composer {
    message: u64,
    coalesce: Coalesce,
    /// Messages of a block.
    block_messages: u64,
    /// Messages that one call writes.
    unit_messages: u64,
    /// What one call writes, from [`CONTENT`].
    parts: Vec<IoSlice<'static>>,
    /// The program's own buffer, of one block.
    copied: Vec<u8>,
    file: Option<MemoryFile>,
    work_ns: u64,
}

/// How far one connection has come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outgoing {
    /// Bytes written.
    pub(super) bytes: u64,
    /// Bytes to write; absent: until the time is up.
    pub(super) limit: Option<u64>,
}

/// What a call of [`Composer::write`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Step {
    /// Bytes written.
    pub(super) bytes: u64,
    /// Messages completed.
    pub(super) messages: u64,
    /// System calls.
    pub(super) calls: u64,
    /// The send buffer is full: an event will tell when there is room.
    pub(super) full: bool,
}

impl Composer {
    /// Errors: sizes that cannot be done; the file cannot be made.
    pub(super) fn new(sending: &Sending) -> Result<Self, LoadError> {
        let message = u64::from(sending.message_bytes);
        if message == 0 || message > UNIT_MAX {
            return Err(LoadError::Refused(format!(
                "a message has {message} bytes; 1 to {UNIT_MAX} are possible"
            )));
        }
        let coalesce = sending.coalesce;
        let mut block_messages = match coalesce {
            Coalesce::None => 1,
            _ => (u64::from(sending.coalesce_bytes).min(UNIT_MAX) / message).max(1),
        };
        if coalesce == Coalesce::Gather {
            block_messages = block_messages.min(PARTS_MAX as u64);
        }
        let unit_messages = match coalesce {
            Coalesce::Gather | Coalesce::Buffer => block_messages,
            Coalesce::None | Coalesce::Cork | Coalesce::More => 1,
        };
        if sending.from_file && coalesce != Coalesce::None {
            return Err(LoadError::Refused(
                "messages of a file are sent one by one, not in blocks".to_owned(),
            ));
        }
        let file = if sending.from_file {
            let size = FILE_BYTES.min(message.next_multiple_of(4_096) as usize);
            let bytes: Vec<u8> = CONTENT.iter().copied().cycle().take(size).collect();
            Some(MemoryFile::new(&bytes)?)
        } else {
            None
        };
        let copied = match coalesce {
            Coalesce::Buffer => vec![0; (unit_messages * message) as usize],
            _ => Vec::new(),
        };
        let of_message = || {
            let whole = (message / BLOCK as u64) as usize;
            let rest = (message % BLOCK as u64) as usize;
            let rest = (rest > 0).then(|| IoSlice::new(&CONTENT[..rest]));
            std::iter::repeat_n(IoSlice::new(&CONTENT), whole).chain(rest)
        };
        let parts: Vec<_> = match coalesce {
            Coalesce::Buffer => Vec::new(),
            _ => (0..unit_messages).flat_map(|_| of_message()).collect(),
        };
        let work_ns = sending.work_ns;
        Ok(Self { message, coalesce, block_messages, unit_messages, parts, copied, file, work_ns })
    }

    /// What is set on a connection before its first message; gives the system calls.
    pub(super) fn begin(&self, tcp: &Tcp) -> io::Result<u64> {
        if self.coalesce == Coalesce::Cork {
            tcp.set_cork(true)?;
            return Ok(1);
        }
        Ok(0)
    }

    /// Bytes that one call writes, if they fit.
    pub(super) fn unit_bytes(&self) -> u64 {
        self.unit_messages * self.message
    }

    /// Whether a connection is between two messages.
    pub(super) fn is_between(&self, out: &Outgoing) -> bool {
        out.bytes.is_multiple_of(self.message)
    }

    /// Whether a connection has written all it has to.
    pub(super) fn is_done(out: &Outgoing) -> bool {
        out.limit.is_some_and(|limit| out.bytes >= limit)
    }

    /// Whether the next call begins a message or a block.
    pub(super) fn is_fresh(&self, out: &Outgoing) -> bool {
        out.bytes.is_multiple_of(self.unit_bytes())
    }

    /// Writes the next message or block, or what was left of it.
    pub(super) fn write(&mut self, out: &mut Outgoing, tcp: &Tcp) -> io::Result<Step> {
        let unit = self.unit_bytes();
        let place = out.bytes % unit;
        let left = out.limit.map_or(u64::MAX, |limit| limit.saturating_sub(out.bytes));
        let length = (unit - place).min(left);
        if place == 0 {
            self.prepare(length);
        }
        let index = out.bytes / self.message % self.block_messages;
        let ends_block = index + 1 == self.block_messages || length == left;
        let more = self.coalesce == Coalesce::More && !ends_block;
        let written = if let Some(file) = &self.file {
            let size = FILE_BYTES.min(self.message.next_multiple_of(4_096) as usize) as u64;
            let offset = place % size;
            let count = length.min(size - offset);
            tcp.write_file(file, offset, count as usize)?
        } else if self.coalesce == Coalesce::Buffer {
            tcp.write_flagged(&self.copied[place as usize..(place + length) as usize], false)?
        } else if place > 0 || length < unit {
            tcp.write_parts(&cut(&self.parts, place as usize, length as usize), more)?
        } else if let [part] = &self.parts[..] {
            tcp.write_flagged(part, more)?
        } else {
            tcp.write_parts(&self.parts, more)?
        };
        let bytes = written.unwrap_or(0) as u64;
        let before = out.bytes / self.message;
        out.bytes += bytes;
        // `sendfile(2)` may stop early for other reasons than a full buffer; the next call will tell.
        let full = written.is_none() || (self.file.is_none() && bytes < length);
        let mut step = Step { bytes, messages: out.bytes / self.message - before, calls: 1, full };
        if self.coalesce == Coalesce::Cork && bytes == length && ends_block {
            tcp.set_cork(false)?;
            tcp.set_cork(true)?;
            step.calls += 2;
        }
        Ok(step)
    }

    /// What the program does before it sends: its work, and copying into its own buffer.
    fn prepare(&mut self, length: u64) {
        if self.work_ns > 0 {
            work(self.work_ns.saturating_mul(length.div_ceil(self.message)));
        }
        if self.coalesce == Coalesce::Buffer {
            for message in self.copied[..length as usize].chunks_mut(self.message as usize) {
                for piece in message.chunks_mut(BLOCK) {
                    piece.copy_from_slice(&CONTENT[..piece.len()]);
                }
            }
        }
    }
}

/// Uses the CPU for this long.
pub(super) fn work(ns: u64) {
    let until_ns = monotonic_ns().saturating_add(ns);
    while monotonic_ns() < until_ns {
        std::hint::spin_loop();
    }
}

/// The parts from one byte on, of a length altogether.
fn cut<'a>(parts: &'a [IoSlice<'static>], from: usize, length: usize) -> Vec<IoSlice<'a>> {
    let (mut skip, mut left) = (from, length);
    let mut rest = Vec::new();
    for part in parts {
        if left == 0 {
            break;
        }
        if skip >= part.len() {
            skip -= part.len();
            continue;
        }
        let end = part.len().min(skip + left);
        rest.push(IoSlice::new(&part[skip..end]));
        left -= end - skip;
        skip = 0;
    }
    rest
}

/// What was carried from the start until now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    /// Payload, bytes.
    pub(super) bytes: u64,
    /// Whole messages.
    pub(super) messages: u64,
    /// System calls.
    pub(super) calls: u64,
}

impl Count {
    fn since(self, before: Self) -> Self {
        Self {
            bytes: self.bytes - before.bytes,
            messages: self.messages - before.messages,
            calls: self.calls - before.calls,
        }
    }
}

/// What a look at the clock brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edge {
    Began,
    Ended,
}

/// A look at the clock, and what had been carried by then.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at_ns: u64,
    count: Count,
}

/// The window of one direction, over all connections of one end.
#[derive(Clone, Debug)]
pub(super) struct Window {
    warmup_ns: u64,
    duration_ns: Option<u64>,
    first_ns: Option<u64>,
    /// The latest look at which bytes had been carried since the one before.
    last_ns: u64,
    began: Option<Mark>,
    ended: Option<Mark>,
}

impl Window {
    /// A window that begins a warm-up after the first byte; without a duration it is the whole transfer.
    pub(super) fn new(warmup_ns: u64, duration_ns: Option<u64>) -> Self {
        let warmup_ns = if duration_ns.is_some() { warmup_ns } else { 0 };
        Self { warmup_ns, duration_ns, first_ns: None, last_ns: 0, began: None, ended: None }
    }

    /// When the first byte was carried. None: none yet.
    pub(super) fn first_ns(&self) -> Option<u64> {
        self.first_ns
    }

    /// When the time of a window that began with the first byte is up. None: no byte yet, or no limit.
    pub(super) fn planned_end_ns(&self) -> Option<u64> {
        Some(self.first_ns?.saturating_add(self.warmup_ns).saturating_add(self.duration_ns?))
    }

    /// The clock showed `now_ns`, and this had been carried; `moved`: more than at the last look.
    ///
    /// None: no edge. At most one edge comes of a look.
    pub(super) fn look(&mut self, now_ns: u64, count: Count, moved: bool) -> Option<Edge> {
        let mark = Mark { at_ns: now_ns, count };
        if moved {
            self.last_ns = now_ns;
            if self.first_ns.is_none() {
                self.first_ns = Some(now_ns);
                if self.duration_ns.is_none() {
                    self.began = Some(Mark { at_ns: now_ns, count: Count::default() });
                    return Some(Edge::Began);
                }
            }
        }
        if now_ns < self.next_ns()? {
            return None;
        }
        if self.began.is_none() {
            self.began = Some(mark);
            return Some(Edge::Began);
        }
        self.ended = Some(mark);
        Some(Edge::Ended)
    }

    /// When the next edge is due. None: none is known.
    pub(super) fn next_ns(&self) -> Option<u64> {
        match (self.began, self.ended) {
            (None, _) => Some(self.first_ns?.saturating_add(self.warmup_ns)),
            (Some(_), None) => self.planned_end_ns(),
            (Some(_), Some(_)) => None,
        }
    }

    /// Nothing more will be carried: an open window ends.
    pub(super) fn close(&mut self, now_ns: u64, count: Count) -> Option<Edge> {
        if self.began.is_none() || self.ended.is_some() {
            return None;
        }
        let at_ns = if self.duration_ns.is_some() { now_ns } else { self.last_ns };
        self.ended = Some(Mark { at_ns, count });
        Some(Edge::Ended)
    }

    /// What was carried in it, and its length, ns; zeroes where it never began.
    pub(super) fn result(&self) -> (Count, u64) {
        match (self.began, self.ended) {
            (Some(began), Some(ended)) => {
                (ended.count.since(began.count), ended.at_ns.saturating_sub(began.at_ns))
            }
            _ => (Count::default(), 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sending(message_bytes: u32, coalesce: Coalesce, coalesce_bytes: u32) -> Sending {
        Sending { message_bytes, coalesce, coalesce_bytes, ..Sending::default() }
    }

    fn composer(message_bytes: u32, coalesce: Coalesce, coalesce_bytes: u32) -> Composer {
        Composer::new(&sending(message_bytes, coalesce, coalesce_bytes)).unwrap()
    }

    #[test]
    fn a_block_has_as_many_whole_messages_as_fit_and_at_least_one() {
        let messages = |composer: Composer| (composer.block_messages, composer.unit_messages);
        assert_eq!(messages(composer(300, Coalesce::None, 1_000)), (1, 1));
        assert_eq!(messages(composer(300, Coalesce::More, 1_000)), (3, 1));
        assert_eq!(messages(composer(300, Coalesce::Buffer, 1_000)), (3, 3));
        assert_eq!(messages(composer(3_000, Coalesce::Gather, 1_000)), (1, 1));
        assert_eq!(messages(composer(1, Coalesce::Gather, 4_096)), (1_024, 1_024), "UIO_MAXIOV");
    }

    #[test]
    fn parts_repeat_the_content_up_to_the_size_of_the_message() {
        let lengths =
            |composer: Composer| composer.parts.iter().map(|part| part.len()).collect::<Vec<_>>();
        assert_eq!(lengths(composer(100, Coalesce::None, 0)), [100]);
        assert_eq!(lengths(composer(131_077, Coalesce::None, 0)), [BLOCK, BLOCK, 5]);
        assert_eq!(lengths(composer(100, Coalesce::Gather, 300)), [100; 3]);
    }

    #[test]
    fn what_is_left_of_a_unit_begins_where_it_was_cut() {
        let parts = composer(100, Coalesce::Gather, 300).parts;
        let lengths = |from, length| cut(&parts, from, length).iter().map(|p| p.len()).collect();
        let expected: [(usize, usize, Vec<usize>); 4] = [
            (150, 150, vec![50, 100]),
            (100, 120, vec![100, 20]),
            (299, 1, vec![1]),
            (10, 20, vec![20]),
        ];
        for (from, length, lens) in expected {
            let got: Vec<usize> = lengths(from, length);
            assert_eq!(got, lens, "{from} {length}");
        }
        assert_eq!(&cut(&parts, 30, 5)[0][..], &CONTENT[30..35]);
    }

    #[test]
    fn a_message_of_no_bytes_or_of_too_many_is_refused() {
        for bytes in [0, u32::MAX] {
            let refused = Composer::new(&sending(bytes, Coalesce::None, 0)).unwrap_err();
            assert!(refused.to_string().contains("are possible"), "{refused}");
        }
    }

    fn bytes(bytes: u64) -> Count {
        Count { bytes, messages: bytes / 10, calls: 1 }
    }

    #[test]
    fn a_window_lies_between_two_looks_at_the_clock_and_is_divided_by_the_time_between() {
        let mut window = Window::new(100, Some(1_000));
        assert_eq!(window.look(40, bytes(0), false), None);
        assert_eq!((window.first_ns(), window.next_ns()), (None, None), "no byte yet");
        assert_eq!(window.look(50, bytes(10), true), None);
        assert_eq!((window.first_ns(), window.next_ns()), (Some(50), Some(150)));
        assert_eq!(window.look(149, bytes(20), true), None);
        // Both edges are late by some ns, as looks are.
        assert_eq!(window.look(157, bytes(30), true), Some(Edge::Began));
        assert_eq!(window.next_ns(), Some(1_150));
        assert_eq!(window.look(1_160, bytes(730), true), Some(Edge::Ended));
        assert_eq!(window.look(2_000, bytes(999), true), None, "it ends once");
        let expected = Count { bytes: 700, messages: 70, calls: 0 };
        assert_eq!(window.result(), (expected, 1_003));
    }

    #[test]
    fn a_silent_end_does_not_lengthen_a_window_that_is_looked_at() {
        let mut window = Window::new(0, Some(1_000));
        assert_eq!(window.look(10, bytes(10), true), Some(Edge::Began));
        assert_eq!(window.look(500, bytes(60), true), None);
        assert_eq!(window.look(1_010, bytes(60), false), Some(Edge::Ended));
        assert_eq!(window.result(), (Count { bytes: 50, messages: 5, calls: 0 }, 1_000));
    }

    #[test]
    fn without_a_duration_the_window_is_from_the_first_byte_to_the_last() {
        let mut window = Window::new(100, None);
        assert_eq!(window.look(30, bytes(10), true), Some(Edge::Began));
        assert_eq!(window.look(530, bytes(90), true), None);
        assert_eq!(window.look(900, bytes(90), false), None);
        assert_eq!(window.close(1_000, bytes(90)), Some(Edge::Ended));
        assert_eq!(window.result(), (Count { bytes: 90, messages: 9, calls: 1 }, 500));
    }

    #[test]
    fn a_transfer_that_ends_within_its_warmup_has_no_window() {
        let mut window = Window::new(100, Some(1_000));
        window.look(10, bytes(10), true);
        assert_eq!(window.close(50, bytes(10)), None);
        assert_eq!(window.result(), (Count::default(), 0));
        let mut cut = Window::new(0, Some(1_000));
        cut.look(10, bytes(10), true);
        assert_eq!(cut.close(60, bytes(30)), Some(Edge::Ended));
        assert_eq!(cut.result().1, 50, "a window that is cut has the length that it had");
    }

    #[test]
    fn a_look_after_both_edges_gives_one_edge_at_a_time() {
        let mut window = Window::new(100, Some(1_000));
        window.look(10, bytes(10), true);
        assert_eq!(window.look(5_000, bytes(20), true), Some(Edge::Began));
        assert_eq!(window.look(5_001, bytes(30), true), Some(Edge::Ended));
    }
}
