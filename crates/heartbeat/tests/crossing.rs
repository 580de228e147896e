//! Two sessions over a wire that delays, cuts and joins: heartbeats cross with data.

#![allow(clippy::unwrap_used)] // helpers of tests, too

use std::collections::VecDeque;
use std::time::Duration;

use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use tcp_heartbeat::{Evidence, Options, Session, Timing, Turn};

const MESSAGES: usize = 60;

/// One side, what it has sent and received, and its half of the wire: bytes in order, each piece
/// with the moment of its arrival.
struct Side {
    session: Session,
    sent: usize,
    received: usize,
    tests: usize,
    wire: VecDeque<(u64, Vec<u8>)>,
}

fn message(from: usize, count: usize) -> Vec<u8> {
    // Lengths around those of headers, contents that look like headers.
    let length = [0, 1, 3, 4, 5, 8, 100, 999][(from + count) % 8];
    let byte = [0x00, 0xFF, count as u8][count % 3];
    vec![byte; length]
}

/// Runs one world; how many tests there were.
fn cross(seed: u64) -> usize {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut below = move |end: u64| random.next_u64() % end;
    let ms = Duration::from_millis;
    let mut sides = [0, 1].map(|_| {
        let evidence = [Evidence::Acknowledged, Evidence::Answered][below(2) as usize];
        let mut options = Options::default();
        options.timing = Timing::new(ms(1 + below(20)), ms(400));
        options.evidence = evidence;
        options.max_message_len = 999;
        options.tick = ms(1 + below(3));
        // At times room for one message only.
        options.max_queued_len = [0, 5_000][below(2) as usize];
        let session = Session::new(options, ms(0));
        Side { session, sent: 0, received: 0, tests: 0, wire: VecDeque::new() }
    });
    let mut now_ms = 0;
    while sides.iter().any(|side| side.received < MESSAGES) {
        now_ms += 1;
        let now = ms(now_ms);
        for here in 0..2 {
            let there = 1 - here;
            if below(4) == 0 && sides[here].sent < MESSAGES {
                let message = message(here, sides[here].sent);
                sides[here].sent += usize::from(sides[here].session.send(&message).is_ok());
            }
            // Partial writes, and none at all.
            if below(3) > 0 {
                let outgoing = sides[here].session.outgoing();
                let count = below(outgoing.len() as u64 + 1).min(1 + below(300)) as usize;
                let piece = outgoing[..count.min(outgoing.len())].to_vec();
                sides[here].session.sent(piece.len());
                let last = sides[here].wire.back().map_or(0, |(at, _)| *at);
                let arrives = (now_ms + below(10)).max(last);
                sides[here].wire.push_back((arrives, piece));
            }
            while sides[here].wire.front().is_some_and(|(at, _)| *at <= now_ms) {
                let (_, bytes) = sides[here].wire.pop_front().unwrap();
                for piece in bytes.chunks(1 + below(50) as usize) {
                    sides[there].session.received(piece, now);
                    while let Some(received) = sides[there].session.next_message().unwrap() {
                        let side = &mut sides[there];
                        assert_eq!(received, message(here, side.received), "seed {seed}");
                        side.received += 1;
                    }
                }
            }
            while let Some(turn) = sides[here].session.next(now) {
                // The wire's bytes are not acknowledged until they have arrived.
                let bytes = sides[here].wire.iter().map(|(_, piece)| piece.len()).sum();
                sides[here].session.unacknowledged(bytes, now);
                match turn {
                    Turn::Test => sides[here].tests += 1,
                    Turn::Judge => {
                        assert!(!sides[here].session.is_tested(), "seed {seed}: a live peer dies");
                    }
                }
            }
        }
        assert!(now_ms < 1_000_000, "seed {seed}: it ends");
    }
    assert!(sides.iter().all(|side| side.received == MESSAGES && side.sent == MESSAGES));
    sides.iter().map(|side| side.tests).sum()
}

#[test]
fn every_message_arrives_once_in_order_and_whole_whatever_heartbeats_cross_it() {
    let tests: usize = (0..500).map(cross).sum();
    assert!(tests > 2_000, "heartbeats did cross: {tests}");
}
