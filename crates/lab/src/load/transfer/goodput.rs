//! How did goodput run over time, and when had it reached its steady value?

use std::time::Duration;

use tcptoll_core::stats::{Series, SeriesBuilder};

/// Buckets of one transfer; a message on the channel has room for so many points.
const BUCKETS: usize = 100;

/// Goodput counts as steady from this share of the window's on.
const STEADY: f64 = 0.9;

/// Width of the first buckets where the length is not known before, ns.
const FIRST_WIDTH_NS: u64 = 1_000_000;

/// Bytes received, in buckets of equal width since the first byte.
#[derive(Clone, Debug)]
pub(super) struct Goodput {
    width_ns: u64,
    bytes: Vec<u64>,
    /// Whether the width doubles when there is no room; otherwise later bytes belong to no bucket.
    grows: bool,
}

impl Goodput {
    /// Buckets for a transfer of this length, or of any length.
    pub(super) fn new(length_ns: Option<u64>) -> Self {
        let width_ns = length_ns.map_or(FIRST_WIDTH_NS, |ns| (ns / BUCKETS as u64).max(1));
        Self { width_ns, bytes: Vec::with_capacity(BUCKETS), grows: length_ns.is_none() }
    }

    /// Bytes that were received by this time since the first.
    pub(super) fn add(&mut self, since_first_ns: u64, bytes: u64) {
        let mut bucket = since_first_ns / self.width_ns;
        while self.grows && bucket >= BUCKETS as u64 {
            self.bytes = self.bytes.chunks(2).map(|pair| pair.iter().sum()).collect();
            self.width_ns = self.width_ns.saturating_mul(2);
            bucket = since_first_ns / self.width_ns;
        }
        if bucket >= BUCKETS as u64 {
            return;
        }
        let bucket = bucket as usize;
        if bucket >= self.bytes.len() {
            self.bytes.resize(bucket + 1, 0);
        }
        self.bytes[bucket] += bytes;
    }

    /// From the first byte to the start of the first bucket with at least 90 % of the steady goodput,
    /// ns. None: no bucket has.
    pub(super) fn startup_ns(&self, steady_bytes_per_s: f64) -> Option<u64> {
        let enough = STEADY * steady_bytes_per_s * self.width_ns as f64 / 1e9;
        let steady = |&bytes: &u64| enough > 0.0 && bytes as f64 >= enough;
        self.bytes.iter().position(steady).map(|bucket| bucket as u64 * self.width_ns)
    }

    /// Bytes/s over time.
    pub(super) fn series(&self) -> Series {
        let mut series = SeriesBuilder::new(BUCKETS);
        for (bucket, &bytes) in self.bytes.iter().enumerate() {
            let at = Duration::from_nanos(bucket as u64 * self.width_ns);
            // Whole bytes/s: digits that nobody needs would fill the channel's message.
            series.push(at, (bytes as f64 * 1e9 / self.width_ns as f64).round());
        }
        series.build()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn startup_ends_with_the_first_bucket_of_nine_tenths() {
        let mut goodput = Goodput::new(Some(1_000_000_000));
        for (bucket, bytes) in [(0, 10), (1, 80), (2, 89), (3, 90), (4, 100)] {
            goodput.add(bucket * 10_000_000 + 5, bytes);
        }
        // 100 bytes in 10 ms are 10,000 bytes/s.
        assert_eq!(goodput.startup_ns(10_000.0), Some(30_000_000));
        assert_eq!(goodput.startup_ns(20_000.0), None);
        assert_eq!(goodput.startup_ns(0.0), None, "no goodput is no steady goodput");
    }

    #[test]
    fn a_bucket_without_bytes_is_zero_and_what_comes_after_the_last_belongs_to_none() {
        let mut goodput = Goodput::new(Some(100));
        goodput.add(0, 1);
        goodput.add(2, 3);
        goodput.add(100, 9);
        let expected = [[0.0, 1e9, 1e9, 1e9], [1e-9, 0.0, 0.0, 0.0], [2e-9, 3e9, 3e9, 3e9]];
        assert_eq!(goodput.series().points, expected);
    }

    #[test]
    fn buckets_of_an_unknown_length_widen_and_lose_no_byte() {
        let mut goodput = Goodput::new(None);
        for millisecond in 0..1_000 {
            goodput.add(millisecond * 1_000_000, 5);
        }
        assert_eq!(goodput.bytes.iter().sum::<u64>(), 5_000);
        assert_eq!((goodput.width_ns, goodput.bytes.len()), (16_000_000, 63));
    }
}
