//! Percentiles of a closed loop of which some requests never end, against a truth that is known.
//!
//! A server of four slots and exponential service times; its queue is served in order, at random, or
//! the newest first, which starves those that wait: the client that was just answered is served again.
//! The truth is a load of a thousand seconds. What is measured is a window of five, as `http` counts it:
//! requests begun within it with their whole latency, and those begun before it and still under way at
//! its end as at least their age.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use tcptoll_core::stats::Histogram;

const SLOTS: usize = 4;
const SERVICE_NS: f64 = 20e6;
const SECOND_NS: u64 = 1_000_000_000;
const QUANTILES: [(u64, u64); 3] = [(1, 2), (9, 10), (99, 100)];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    Fifo,
    Random,
    Newest,
}

/// Begin and end of each request, ns; `None`: it had not ended when nothing was under way in a slot.
type Requests = Vec<(u64, Option<u64>)>;

/// Clients that ask again as soon as they are answered, until `until_ns`.
fn load(order: Order, clients: usize, until_ns: u64, seed: u64) -> Requests {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut requests: Requests = vec![(0, None); clients];
    let mut waiting: Vec<usize> = (0..clients).collect();
    let mut served = BinaryHeap::new();
    let mut now = 0;
    loop {
        while served.len() < SLOTS && !waiting.is_empty() {
            let at = match order {
                Order::Fifo => 0,
                Order::Random => (random.next_u64() % waiting.len() as u64) as usize,
                Order::Newest => waiting.len() - 1,
            };
            let uniform = (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
            let takes = (-(1.0 - uniform).ln() * SERVICE_NS) as u64;
            served.push(Reverse((now + takes, waiting.remove(at))));
        }
        let Some(Reverse((at, request))) = served.pop() else { return requests };
        now = at;
        requests[request].1 = Some(now);
        if now < until_ns {
            waiting.push(requests.len());
            requests.push((now, None));
        } else if order == Order::Newest {
            // Those that starve are answered once the load is over, which is no answer to it.
            waiting.clear();
        }
    }
}

/// The latencies whose share is `share`, with a long window: the greatest possible where it never ends.
fn truth(latencies: &[u64], share: f64) -> u64 {
    let rank = (latencies.len() as f64 * share.clamp(0.0, 1.0)).ceil() as usize;
    latencies[rank.clamp(1, latencies.len()) - 1]
}

#[test]
fn percentiles_with_unanswered_requests_are_true_or_bounds_that_hold() {
    let (mut exact, mut bounds) = (0, 0);
    for order in [Order::Fifo, Order::Random, Order::Newest] {
        for clients in [2, 4, 8, 20, 80] {
            let long = load(order, clients, 1_000 * SECOND_NS, 1);
            let mut latencies: Vec<u64> =
                long.iter().map(|(begun, end)| end.map_or(u64::MAX, |end| end - begun)).collect();
            // A thousand seconds of answers hide those who had none: of five they are a part.
            let starved = latencies.iter().filter(|ns| **ns == u64::MAX).count();
            latencies.extend(std::iter::repeat_n(u64::MAX, starved * 199));
            latencies.sort_unstable();
            for seed in 10..30 {
                let (from, to) = (SECOND_NS, 6 * SECOND_NS);
                let (mut answered, mut ages) = (Histogram::new(), Histogram::new());
                for (begun, end) in load(order, clients, to, seed) {
                    match end {
                        Some(end) if begun >= from => answered.record_ns(end - begun),
                        None if begun < from => ages.record_ns(to - begun),
                        Some(end) if end > to => ages.record_ns(to - begun),
                        _ => {}
                    }
                }
                let summary = answered.summary_with_unanswered_us(&ages);
                for (num, den) in QUANTILES {
                    let figure = match (num, den) {
                        (1, 2) => summary.p50,
                        (9, 10) => summary.p90,
                        _ => summary.p99,
                    };
                    let Some(us) = figure else { continue };
                    let share = num as f64 / den as f64;
                    // Clients wait in one queue together: a turn of all tells one thing.
                    let apart = summary.count as f64 / clients.max(10) as f64;
                    let off = 2.6 * (share * (1.0 - share) / apart).sqrt();
                    let [low, high] =
                        [share - off, share + off].map(|share| truth(&latencies, share));
                    let told =
                        format!("{order:?} {clients} clients, {num}/{den}: {us} µs, {low}..{high}");
                    if summary.is_bound(us) {
                        assert!(us * 1e3 <= high as f64 * 1.001, "{told}");
                        bounds += 1;
                    } else {
                        assert!(
                            (low as f64 * 0.999..=high as f64 * 1.001).contains(&(us * 1e3)),
                            "{told}"
                        );
                        exact += 1;
                    }
                }
            }
        }
    }
    println!("percentiles: {exact} inside the interval of the truth, {bounds} as bounds that hold");
    assert!(exact > 500 && bounds > 20, "{exact} and {bounds}");
}
