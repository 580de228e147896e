//! What an observer sees of a load while it runs: counts and latencies, coarser than those of its report.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use tcptoll_core::stats::enough;

use crate::messages::{Done, Live};

/// Bits that split a power of two into buckets: each is at most 1/16 wide.
const FINE: u32 = 4;

/// Buckets of all times.
const BUCKETS: usize = 64 << FINE;

/// The quantile that is shown, as a fraction.
const QUANTILE: (u64, u64) = (99, 100);

/// Figures cover this long, ns.
const SPAN_NS: u64 = 1_000_000_000;

/// How an operation ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum OperationEnd {
    /// It succeeded after this time, ns.
    Ok(u64),
    /// It failed.
    Failed,
}

/// Counts of one thread, on cache lines that it shares with no other.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Counts {
    ok: AtomicU64,
    failed: AtomicU64,
    latency: [AtomicU64; BUCKETS],
}

impl Default for Counts {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self { ok: zero(), failed: zero(), latency: std::array::from_fn(|_| zero()) }
    }
}

impl Counts {
    /// Counts a measured operation. Only the thread whose counts these are may call it.
    pub(super) fn ended(&self, ended: OperationEnd) {
        // One writer each: no locked instruction is needed.
        let count = |counter: &AtomicU64| counter.store(counter.load(Relaxed) + 1, Relaxed);
        match ended {
            OperationEnd::Ok(took_ns) => {
                count(&self.ok);
                count(&self.latency[bucket(took_ns)]);
            }
            OperationEnd::Failed => count(&self.failed),
        }
    }
}

fn bucket(ns: u64) -> usize {
    let exponent = (ns | 1 << FINE).ilog2();
    let fine = (ns >> (exponent - FINE)) & ((1 << FINE) - 1);
    (exponent << FINE) as usize | fine as usize
}

/// The upper edge of a bucket, µs.
fn edge_us(bucket: usize) -> f64 {
    let exponent = (bucket >> FINE) as i32 - FINE as i32;
    let fine = bucket & ((1 << FINE) - 1);
    ((1 << FINE) + fine + 1) as f64 * 2f64.powi(exponent) / 1e3
}

/// None: too few for this quantile.
fn quantile_us(counts: &[u64]) -> Option<f64> {
    let all: u64 = counts.iter().sum();
    if !enough(all, QUANTILE.0, QUANTILE.1) {
        return None;
    }
    let rank = (all * QUANTILE.0).div_ceil(QUANTILE.1);
    let mut below = 0;
    let at = counts.iter().position(|count| {
        below += count;
        below >= rank
    })?;
    Some(edge_us(at))
}

/// Looks at the counts of all threads from time to time.
#[derive(Debug)]
pub(super) struct Observer {
    at_ns: u64,
    ok: u64,
    latency: Vec<u64>,
    live: Option<Live>,
}

impl Observer {
    /// From the beginning of the load.
    pub(super) fn new(start_ns: u64) -> Self {
        Self { at_ns: start_ns, ok: 0, latency: vec![0; BUCKETS], live: None }
    }

    /// How far the load has come, with the figures of the last second.
    pub(super) fn look(&mut self, threads: &[Counts], now_ns: u64) -> Done {
        let sum = |counter: &dyn Fn(&Counts) -> &AtomicU64| -> u64 {
            threads.iter().map(|counts| counter(counts).load(Relaxed)).sum()
        };
        let (ok, failed) = (sum(&|counts| &counts.ok), sum(&|counts| &counts.failed));
        let span_ns = now_ns.saturating_sub(self.at_ns);
        if span_ns >= SPAN_NS {
            let now: Vec<u64> = (0..BUCKETS).map(|at| sum(&|counts| &counts.latency[at])).collect();
            let since: Vec<u64> = now.iter().zip(&self.latency).map(|(a, b)| a - b).collect();
            // Before the first measured operation there is nothing to show.
            self.live = (ok + failed > 0).then(|| Live {
                ok_per_s: (ok - self.ok) as f64 / (span_ns as f64 / 1e9),
                failed,
                p99_us: quantile_us(&since),
            });
            (self.at_ns, self.ok, self.latency) = (now_ns, ok, now);
        }
        Done { done: ok + failed, live: self.live }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_a_bucket_at_most_a_sixteenth_above_it() {
        for ns in [32, 999, 1_000, 123_456, 5_000_000, 86_400_000_000_000] {
            let (us, edge_us) = (ns as f64 / 1e3, edge_us(bucket(ns)));
            assert!(edge_us > us && edge_us <= us * (1.0 + 1.0 / 16.0) + 1e-9, "{ns}: {edge_us}");
        }
        assert!(bucket(0) < BUCKETS && bucket(u64::MAX) < BUCKETS);
    }

    #[test]
    fn the_figures_are_those_of_the_last_second_and_failures_are_in_none() {
        let threads = vec![Counts::default(), Counts::default()];
        let mut observer = Observer::new(0);
        assert_eq!(observer.look(&threads, 200_000_000), Done::default());
        for _ in 0..1_000 {
            threads[0].ended(OperationEnd::Ok(100_000));
            threads[1].ended(OperationEnd::Ok(100_000));
        }
        threads[1].ended(OperationEnd::Failed);
        let first = observer.look(&threads, 2_000_000_000);
        let live = first.live.unwrap();
        assert_eq!((first.done, live.failed, live.ok_per_s), (2_001, 1, 1_000.0));
        assert!((100.0..107.0).contains(&live.p99_us.unwrap()), "{live:?}");
        for _ in 0..1_000 {
            threads[0].ended(OperationEnd::Ok(900_000));
        }
        // Within the second the figures stay; the count goes on.
        let again = observer.look(&threads, 2_900_000_000);
        assert_eq!((again.done, again.live), (3_001, first.live));
        let live = observer.look(&threads, 3_000_000_000).live.unwrap();
        assert_eq!((live.failed, live.ok_per_s), (1, 1_000.0));
        assert!((900.0..957.0).contains(&live.p99_us.unwrap()), "{live:?}");
        // Nothing came: no rate, and no latency.
        let live = observer.look(&threads, 4_000_000_000).live.unwrap();
        assert_eq!((live.ok_per_s, live.p99_us), (0.0, None));
    }
}
