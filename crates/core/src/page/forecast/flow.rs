//! When the segments of a response leave the server: slow start, at once or paced.

use std::collections::VecDeque;

/// Payload of a segment over Ethernet with time stamps, bytes.
pub(super) const SEGMENT_BYTES: u64 = 1_448;

/// Initial window, segments: RFC 6928, and Linux since 2.6.39.
const INITIAL_WINDOW: f64 = 10.0;

/// BBR's gain while it starts: 2 / ln 2 (`bbr_high_gain` of `net/ipv4/tcp_bbr.c`).
const STARTUP_GAIN: f64 = 2.885;

/// Segments of one response whose times are computed one by one.
const SEGMENTS_MAX: u64 = 1_000_000;

/// How a congestion control sends a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// As soon as it may: CUBIC, Reno.
    Burst,
    /// Spread over the round trip: BBR.
    Paced,
}

impl Flow {
    /// By the name of the congestion control.
    pub(super) fn from_congestion(congestion: &str) -> Self {
        if congestion.starts_with("bbr") { Self::Paced } else { Self::Burst }
    }
}

/// The sending side of one connection; it keeps its window from one response to the next.
#[derive(Debug)]
pub(super) struct Sender {
    flow: Flow,
    rtt_us: f64,
    /// Segments that may be unacknowledged.
    window: f64,
    /// Acknowledgments of segments under way, µs.
    unacknowledged: VecDeque<f64>,
    /// Paced: segments per µs.
    rate: f64,
    /// Paced: when the next segment may leave, µs.
    next_us: f64,
    /// Paced: acknowledgments of the last round trip, µs.
    acknowledged: VecDeque<f64>,
}

impl Sender {
    pub(super) fn new(flow: Flow, rtt_us: u64) -> Self {
        let rtt_us = (rtt_us as f64).max(1.0);
        Self {
            flow,
            rtt_us,
            window: INITIAL_WINDOW,
            unacknowledged: VecDeque::new(),
            rate: STARTUP_GAIN * INITIAL_WINDOW / rtt_us,
            next_us: 0.0,
            acknowledged: VecDeque::new(),
        }
    }

    /// Times at which segments leave, µs, in ascending order, with their payload, bytes.
    pub(super) fn send(&mut self, ready_us: u64, bytes: u64) -> Vec<(u64, u64)> {
        let count = bytes.div_ceil(SEGMENT_BYTES).clamp(1, SEGMENTS_MAX);
        let mut now = ready_us as f64;
        let mut segments = Vec::new();
        for number in 0..count {
            if self.flow == Flow::Paced {
                now = now.max(self.next_us);
            }
            self.acknowledge(now);
            while self.unacknowledged.len() as f64 >= self.window {
                now = now.max(self.unacknowledged.front().copied().unwrap_or(now));
                self.acknowledge(now);
            }
            if self.flow == Flow::Paced {
                self.next_us = now + 1.0 / self.rate;
            }
            self.unacknowledged.push_back(now + self.rtt_us);
            let payload =
                if number + 1 == count { bytes - number * SEGMENT_BYTES } else { SEGMENT_BYTES };
            segments.push((now as u64, payload));
        }
        segments
    }

    /// Takes the acknowledgments that have arrived: each lets one more segment leave, and opens the window by
    /// one.
    fn acknowledge(&mut self, now: f64) {
        while let Some(&at) = self.unacknowledged.front().filter(|at| **at <= now) {
            self.unacknowledged.pop_front();
            self.window += 1.0;
            if self.flow == Flow::Paced {
                self.acknowledged.push_back(at);
                while self.acknowledged.front().is_some_and(|first| *first < at - self.rtt_us) {
                    self.acknowledged.pop_front();
                }
                // The delivery rate of the round trip that ends here.
                let delivered = self.acknowledged.len() as f64 / self.rtt_us;
                self.rate = self.rate.max(STARTUP_GAIN * delivered);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_leaves_at_once_and_doubles_each_round_trip() {
        let mut sender = Sender::new(Flow::Burst, 10_000);
        let segments = sender.send(0, 70 * SEGMENT_BYTES);
        let left_at = |time: u64| segments.iter().filter(|(at, _)| *at == time).count();
        assert_eq!([left_at(0), left_at(10_000), left_at(20_000)], [10, 20, 40]);
    }

    #[test]
    fn a_paced_window_is_spread_over_a_third_of_the_round_trip() {
        let mut sender = Sender::new(Flow::Paced, 100_000);
        let segments = sender.send(0, 10 * SEGMENT_BYTES);
        let last = segments.last().unwrap().0;
        assert!((30_000..32_000).contains(&last), "{last}");
    }

    #[test]
    fn a_connection_keeps_its_window() {
        let mut sender = Sender::new(Flow::Burst, 1_000);
        sender.send(0, 10 * SEGMENT_BYTES);
        let again = sender.send(5_000, 20 * SEGMENT_BYTES);
        assert!(again.iter().all(|(at, _)| *at == 5_000), "{again:?}");
    }

    #[test]
    fn the_payload_of_segments_is_what_was_given() {
        for bytes in [0, 1, 1_448, 1_449, 200_000] {
            let segments = Sender::new(Flow::Burst, 1_000).send(7, bytes);
            assert_eq!(segments.iter().map(|(_, bytes)| bytes).sum::<u64>(), bytes);
        }
    }
}
