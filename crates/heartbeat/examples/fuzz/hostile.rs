//! What a hostile peer may send, and what a decoder and a session must bear.

use std::time::Duration;

use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use tcp_heartbeat::frame::{Decoder, Frame, HEADER_BYTES, Outbox};
use tcp_heartbeat::{Evidence, Options, Session, Timing};

/// What was tried.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Attempts {
    pub(crate) inputs: u64,
    pub(crate) bytes: u64,
    pub(crate) frames: u64,
    pub(crate) refused: u64,
    /// The largest memory of a decoder, as a share of what it may hold: at most 1.
    pub(crate) decoder: f64,
    /// The same of a session whose peer never reads.
    pub(crate) session: f64,
}

impl Attempts {
    pub(crate) fn add(&mut self, other: Self) {
        self.inputs += other.inputs;
        self.bytes += other.bytes;
        self.frames += other.frames;
        self.refused += other.refused;
        self.decoder = self.decoder.max(other.decoder);
        self.session = self.session.max(other.session);
    }

    /// Whether memory was bounded.
    pub(crate) fn is_bounded(&self) -> bool {
        self.decoder <= 1.0 && self.session <= 1.0
    }
}

/// Bytes that never were frames, or were and have been damaged; those of a seed.
fn input(random: &mut Xoshiro256PlusPlus, limit: usize) -> Vec<u8> {
    let mut below = |end: u64| random.next_u64() % end;
    let mut bytes = Vec::new();
    if below(4) == 0 {
        // Headers of small messages are more telling than those of gigabytes.
        let high = below(257);
        bytes.extend((0..below(3_000)).map(|_| below(256).min(high) as u8));
        return bytes;
    }
    let mut outbox = Outbox::new(64 * 1024);
    for _ in 0..below(40) {
        let length = below(limit as u64 + 20) as usize;
        let fill = below(256) as u8;
        match below(4) {
            0 => outbox.null(),
            1 => outbox.ask(),
            _ => outbox.message(&vec![fill; length]).expect("an empty outbox has room"),
        }
        bytes.extend_from_slice(outbox.as_bytes());
        outbox.advance(usize::MAX);
    }
    for _ in 0..below(6) {
        if bytes.is_empty() {
            break;
        }
        let at = below(bytes.len() as u64) as usize;
        match below(4) {
            0 => bytes[at] ^= 1 << below(8),
            1 => bytes.truncate(at),
            2 => drop(bytes.remove(at)),
            _ => bytes.insert(at, below(256) as u8),
        }
    }
    bytes
}

/// The frames of `bytes`, by the description of the format and nothing else; whether it ends with
/// one that is too long.
fn expected(mut bytes: &[u8], limit: usize) -> (Vec<Frame>, bool) {
    let mut frames = Vec::new();
    while let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() {
        bytes = rest;
        match u32::from_be_bytes(*header) {
            0 => frames.push(Frame::Null),
            u32::MAX => frames.push(Frame::Ask),
            header if header as usize - 1 > limit => return (frames, true),
            header => {
                let length = header as usize - 1;
                let Some(message) = bytes.get(..length) else { break };
                frames.push(Frame::Message(message.to_vec()));
                bytes = &bytes[length..];
            }
        }
    }
    (frames, false)
}

/// Feeds the input of a seed, in pieces of random sizes, to a decoder and to a session.
pub(crate) fn run(seed: u64) -> Attempts {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let limit = [0, 1, 16, 300, 2_000][(random.next_u64() % 5) as usize];
    let bytes = input(&mut random, limit);
    let (frames, too_long) = expected(&bytes, limit);
    let mut tried = Attempts {
        inputs: 1,
        bytes: bytes.len() as u64,
        frames: frames.len() as u64,
        refused: u64::from(too_long),
        ..Attempts::default()
    };

    let mut decoder = Decoder::new(limit);
    let queued = 256;
    let ms = Duration::from_millis(1);
    let mut options = Options::default();
    options.timing = Timing::new(ms, ms);
    options.evidence = Evidence::Answered;
    options.max_message_len = limit;
    options.max_queued_len = queued;
    options.tick = ms;
    let mut session = Session::new(options, Duration::ZERO);
    let mut seen = Vec::new();
    let mut refused = false;
    let mut rest = &bytes[..];
    let mut now = Duration::ZERO;
    let mut largest = 0;
    while !rest.is_empty() {
        let most = [1, 5, 100, 4_096][(random.next_u64() % 4) as usize];
        let count = (1 + random.next_u64() % most).min(rest.len() as u64) as usize;
        let (piece, after) = rest.split_at(count);
        rest = after;
        decoder.push(piece);
        // A buffer is kept for the next piece; so the largest so far counts.
        largest = largest.max(piece.len());
        let bound = limit + HEADER_BYTES + largest;
        tried.decoder = tried.decoder.max(decoder.capacity() as f64 / bound as f64);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => seen.push(frame),
                Ok(None) => break,
                Err(_) => {
                    refused = true;
                    break;
                }
            }
        }
        now += Duration::from_micros(random.next_u64() % 3_000);
        session.received(piece, now);
        while let Ok(Some(message)) = session.next_message() {
            // A program that echoes, to a peer that does not read.
            let _full = session.send(&message);
        }
        let _turn = session.next(now);
        let outbox = 2 * (queued.max(limit + HEADER_BYTES) + 2 * HEADER_BYTES);
        tried.session = tried.session.max(session.capacity() as f64 / (bound + outbox) as f64);
    }
    assert_eq!(seen, frames, "seed {seed}");
    assert_eq!(refused, too_long, "seed {seed}");
    tried
}
