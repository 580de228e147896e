//! When does a packet leave one direction of the emulated link, or does it at all?
//!
//! A model only: time is an argument, what is carried is the caller's, nothing is read or sent. The
//! order of fates: loss, then the queue before the wire, then the wire at its rate, then the delay
//! with its jitter. What the settings mean to a user stands at [`crate::link::LinkSpec`].
//!
//! Why the jitter is a function of time and flow, and not a draw for each packet. netem draws for
//! each packet, so that packets of one connection overtake each other and TCP takes that for loss;
//! on measured paths that is rare (RFC 4737, Paxson 1997), because packets of one flow wait in one
//! queue, while flows go over paths of their own. mahimahi keeps all in order, and has no jitter. To
//! draw and then keep the order makes every packet wait for the latest before it: the mean rises
//! with the density of the load, by a quarter of the jitter and more, which is a difference between
//! two loads that no path has. So each flow has a delay that changes by less than the time that
//! passes: its packets keep their order without waiting, and the mean is the same at any density.

use std::collections::VecDeque;
use std::time::Duration;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::link::{LinkSpec, Order, QueueLimit};
use crate::random::mixed;

/// What one direction of a link may hold in memory unless told otherwise: 256 MiB.
///
/// 2.5 Gbit/s, the most the emulator moved at 10 ms, fill 100 ms of delay with 31 MB; the rest is for
/// slow links without a queue limit.
pub const MEMORY_LIMIT_BYTES: u64 = 256 << 20;

/// Settings of one direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// From the end of a frame's time on the wire to its arrival.
    pub delay: Duration,
    /// Total width of the delay's random part: uniform from `-jitter/2` to `+jitter/2`.
    pub jitter: Duration,
    /// What keeps its order.
    pub order: Order,
    /// Line rate; what is no positive number does not limit.
    pub rate_bit_per_s: Option<f64>,
    /// Probability that a frame is lost, 0 to 1.
    pub loss: f64,
    /// What may wait for the wire; has no effect without a rate.
    pub queue: Option<QueueLimit>,
    /// Seed of loss and jitter. Give each direction its own, or both lose the same frames.
    pub seed: u64,
    /// What the model may hold; frames beyond are dropped and counted as overflow.
    pub memory_limit_bytes: u64,
}

/// The settings of one direction of a link: half the round trip, and the seed given.
#[must_use]
pub fn settings(spec: &LinkSpec, seed: u64) -> Settings {
    Settings {
        delay: spec.rtt / 2,
        jitter: spec.jitter,
        order: spec.order,
        rate_bit_per_s: spec.rate_bit_per_s,
        loss: spec.loss,
        queue: spec.queue,
        seed,
        memory_limit_bytes: MEMORY_LIMIT_BYTES,
    }
}

/// What became of a frame that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It will come out.
    Queued,
    /// Lost on purpose, by chance.
    Lost,
    /// Dropped on purpose: the queue before the wire was full.
    QueueFull,
    /// Dropped because the model holds all it may: the trial is not what was asked for.
    Overflow,
}

/// Frames by fate. `pushed` = `lost` + `queue_full` + `overflow` + `popped` + `inside`, always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Offered.
    pub pushed: u64,
    /// Lost by chance.
    pub lost: u64,
    /// Dropped at the full queue.
    pub queue_full: u64,
    /// Dropped for want of memory.
    pub overflow: u64,
    /// Come out.
    pub popped: u64,
    /// Still in the link.
    pub inside: u64,
}

/// One direction of the link. Packets of one flow come out in the order in which they went in.
///
/// Times are since any epoch, the same for all calls. Cost: O(1) a call, on average, and with jitter a
/// copy of what is overtaken; no allocation but the growth of its queues.
#[derive(Debug)]
pub struct Pipe<T> {
    delay: Duration,
    jitter: Jitter,
    loss: Loss,
    memory_limit_bytes: u64,
    wire: Option<Wire>,
    in_flight: VecDeque<InFlight<T>>,
    memory_bytes: u64,
    counts: Counts,
}

/// Loses frames by chance, independent of each other.
#[derive(Clone, Debug)]
pub struct Loss {
    /// A frame is lost if a uniform `u64` is below; 2^64 loses every one.
    threshold: u128,
    random: Xoshiro256PlusPlus,
}

impl Loss {
    /// Each frame is lost with this probability, 0 to 1; the seed fixes which.
    #[must_use]
    pub fn new(probability: f64, seed: u64) -> Self {
        Self {
            threshold: (probability.clamp(0.0, 1.0) * 2f64.powi(64)) as u128,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
        }
    }

    /// Whether the next frame is lost.
    #[inline]
    pub fn takes_one(&mut self) -> bool {
        self.threshold > 0 && u128::from(self.random.next_u64()) < self.threshold
    }
}

#[derive(Debug)]
struct InFlight<T> {
    due: Duration,
    memory_bytes: u64,
    frame: T,
}

impl<T> Pipe<T> {
    /// An empty link.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            delay: settings.delay,
            jitter: Jitter { width: settings.jitter, order: settings.order, seed: settings.seed },
            loss: Loss::new(settings.loss, settings.seed),
            memory_limit_bytes: settings.memory_limit_bytes,
            wire: settings.rate_bit_per_s.and_then(|rate| Wire::new(rate, settings.queue)),
            in_flight: VecDeque::new(),
            memory_bytes: 0,
            counts: Counts::default(),
        }
    }

    /// Offers a frame at `now`, and says what became of it.
    ///
    /// Unit: `line_bytes` is what it takes on the line (see [`crate::link::line_bytes`]) and counts
    /// for rate and queue; `memory_bytes` is what holding it takes. `flow`: see
    /// [`crate::tcp::packet::flow`].
    #[inline]
    pub fn push(
        &mut self,
        now: Duration,
        line_bytes: u64,
        memory_bytes: u64,
        flow: u64,
        frame: T,
    ) -> Fate {
        self.counts.pushed += 1;
        if self.loss.takes_one() {
            self.counts.lost += 1;
            return Fate::Lost;
        }
        if self.wire.as_mut().is_some_and(|wire| !wire.has_room(now, line_bytes)) {
            self.counts.queue_full += 1;
            return Fate::QueueFull;
        }
        let held = self.memory_bytes.saturating_add(memory_bytes);
        if held > self.memory_limit_bytes {
            self.counts.overflow += 1;
            return Fate::Overflow;
        }
        let left_wire = self.wire.as_mut().map_or(now, |wire| wire.send(now, line_bytes));
        let due = (left_wire + self.delay + self.jitter.part(left_wire, flow))
            .saturating_sub(self.jitter.width / 2)
            .max(left_wire);
        self.memory_bytes = held;
        let entry = InFlight { due, memory_bytes, frame };
        if self.in_flight.back().is_none_or(|last| last.due <= due) {
            self.in_flight.push_back(entry);
        } else {
            let place = self.in_flight.partition_point(|other| other.due <= due);
            self.in_flight.insert(place, entry);
        }
        Fate::Queued
    }

    /// Takes the next frame that has arrived by `now`, and when it was due.
    #[inline]
    pub fn pop(&mut self, now: Duration) -> Option<(Duration, T)> {
        let next = self.in_flight.pop_front_if(|next| next.due <= now)?;
        self.memory_bytes -= next.memory_bytes;
        self.counts.popped += 1;
        Some((next.due, next.frame))
    }

    /// When the next frame is due; `None` while the link is empty.
    #[must_use]
    #[inline]
    pub fn next_due(&self) -> Option<Duration> {
        self.in_flight.front().map(|next| next.due)
    }

    /// Frames by fate, so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts { inside: self.in_flight.len() as u64, ..self.counts }
    }
}

/// How the delay varies: for each flow a random function of time, without a memory of flows.
#[derive(Debug)]
struct Jitter {
    width: Duration,
    order: Order,
    seed: u64,
}

impl Jitter {
    /// From 0 to the whole width, evenly at each moment.
    ///
    /// Between two random values, 9/4 of the width apart, the line is straight; what is met on it
    /// is spread evenly again by its own distribution, which is that of a weighted sum of two even
    /// ones. The result falls by at most 8/9 of the time that passes, so nothing overtakes.
    #[inline]
    fn part(&self, at: Duration, flow: u64) -> Duration {
        if self.width.is_zero() {
            return Duration::ZERO;
        }
        let flow = mixed(self.seed ^ if self.order == Order::Kept { 0 } else { mixed(flow) });
        let stretch_ns = (self.width.as_nanos() as u64 * 9 / 4).max(1);
        // Each flow has its own moments, or all would be at their random values together.
        let at_ns = at.as_nanos() as u64 + flow % stretch_ns;
        let (number, weight) =
            (at_ns / stretch_ns, (at_ns % stretch_ns) as f64 / stretch_ns as f64);
        let value = |number: u64| mixed(flow ^ mixed(number)) as f64 / u64::MAX as f64;
        let sum = (1.0 - weight) * value(number) + weight * value(number + 1);
        self.width.mul_f64(share_below(sum, weight))
    }
}

/// How probable it is that `(1 - w) a + w b` is below `sum`, `a` and `b` even from 0 to 1.
#[inline]
fn share_below(sum: f64, weight: f64) -> f64 {
    let (less, more) = (weight.min(1.0 - weight), weight.max(1.0 - weight));
    let corner = |side: f64| side * side / (2.0 * less * more);
    let share = if sum < less {
        corner(sum)
    } else if sum <= more {
        (sum - less / 2.0) / more
    } else {
        1.0 - corner(1.0 - sum)
    };
    share.clamp(0.0, 1.0)
}

/// The wire at its rate, with the queue before it.
#[derive(Debug)]
struct Wire {
    /// Millionths of a bit per second, so that any rate of interest is a whole number.
    micro_bit_per_s: u64,
    /// When the last frame has left, in whole ns …
    free_at: Duration,
    /// … and this many `micro_bit_per_s`ths of a ns: rounding each frame would let the rate drift, at
    /// 1 ns in 672 (a minimum frame at 1 Gbit/s) by 0.1 %.
    remainder: u64,
    queue: Option<QueueLimit>,
    /// When each waiting frame begins, and its bytes. Empty without a limit, when nobody asks.
    waiting: VecDeque<(Duration, u64)>,
    waiting_bytes: u64,
}

impl Wire {
    fn new(rate_bit_per_s: f64, queue: Option<QueueLimit>) -> Option<Self> {
        (rate_bit_per_s > 0.0 && rate_bit_per_s.is_finite()).then(|| Self {
            micro_bit_per_s: ((rate_bit_per_s * 1e6).round() as u64).max(1),
            free_at: Duration::ZERO,
            remainder: 0,
            queue,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
        })
    }

    /// Whether a frame offered at `now` may go on the wire, or wait for it.
    #[inline]
    fn has_room(&mut self, now: Duration, line_bytes: u64) -> bool {
        while let Some((_, bytes)) = self.waiting.pop_front_if(|(begins, _)| *begins <= now) {
            self.waiting_bytes -= bytes;
        }
        let idle = self.free() <= now;
        idle || match self.queue {
            None => true,
            Some(QueueLimit::Packets(most)) => (self.waiting.len() as u64) < most,
            Some(QueueLimit::Bytes(most)) => self.waiting_bytes.saturating_add(line_bytes) <= most,
        }
    }

    /// Puts a frame on the wire, at `now` or after those before it; returns when it has left.
    #[inline]
    fn send(&mut self, now: Duration, line_bytes: u64) -> Duration {
        let begins = self.free();
        if begins <= now {
            (self.free_at, self.remainder) = (now, 0);
        } else if self.queue.is_some() {
            self.waiting.push_back((begins, line_bytes));
            self.waiting_bytes += line_bytes;
        }
        // bits · 10^9 ns/s · 10^6 µbit/bit; u128, since 2,306 bytes already pass 2^64.
        let parts = u128::from(line_bytes) * 8_000_000_000_000_000 + u128::from(self.remainder);
        let per_ns = u128::from(self.micro_bit_per_s);
        let ns = u64::try_from(parts / per_ns).unwrap_or(u64::MAX);
        self.free_at = self.free_at.saturating_add(Duration::from_nanos(ns));
        self.remainder = (parts % per_ns) as u64;
        self.free()
    }

    /// When the wire is free, to the next whole ns: nothing leaves early.
    #[inline]
    fn free(&self) -> Duration {
        self.free_at.saturating_add(Duration::from_nanos(u64::from(self.remainder > 0)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::stats::sample::exact_interval;

    const MS: Duration = Duration::from_millis(1);

    fn plain() -> Settings {
        settings(&LinkSpec::parse("direct").unwrap(), 1)
    }

    fn rated(rate: f64, queue: Option<QueueLimit>) -> Settings {
        Settings { rate_bit_per_s: Some(rate), queue, ..plain() }
    }

    #[test]
    fn without_delay_and_rate_a_frame_is_there_at_once() {
        let mut pipe = Pipe::new(plain());
        assert_eq!(pipe.push(5 * MS, 1538, 1500, 0, 'a'), Fate::Queued);
        assert_eq!(pipe.pop(5 * MS), Some((5 * MS, 'a')));
        assert_eq!((pipe.pop(5 * MS), pipe.next_due()), (None, None));
    }

    #[test]
    fn each_direction_has_half_the_round_trip() {
        let spec = LinkSpec::parse("rtt=37ms,jitter=2ms").unwrap();
        let one_way = settings(&spec, 9);
        assert_eq!(one_way.delay, Duration::from_micros(18_500));
        assert_eq!((one_way.jitter, one_way.seed), (2 * MS, 9));
    }

    #[test]
    fn two_frames_at_12_mbit_leave_a_millisecond_apart_and_arrive_after_the_delay() {
        // 1,500 bytes on the line are 12,000 bit: 1 ms each at 12 Mbit/s, then 10 ms of delay.
        let mut pipe = Pipe::new(Settings { delay: 10 * MS, ..rated(12e6, None) });
        pipe.push(Duration::ZERO, 1500, 1500, 0, 'a');
        pipe.push(Duration::ZERO, 1500, 1500, 0, 'b');
        assert_eq!(pipe.pop(10 * MS), None);
        assert_eq!(pipe.pop(11 * MS), Some((11 * MS, 'a')));
        assert_eq!(pipe.next_due(), Some(12 * MS));
        assert_eq!(pipe.pop(20 * MS), Some((12 * MS, 'b')));
    }

    #[test]
    fn a_full_queue_drops_the_newcomer_and_has_room_again_when_the_wire_takes_one() {
        let mut pipe = Pipe::new(rated(12e6, Some(QueueLimit::Packets(2))));
        let fates: Vec<_> = (0..4).map(|n| pipe.push(Duration::ZERO, 1500, 1500, 0, n)).collect();
        // One on the wire, two waiting, the fourth finds the queue full.
        assert_eq!(fates, [Fate::Queued, Fate::Queued, Fate::Queued, Fate::QueueFull]);
        assert_eq!(pipe.push(MS / 2, 1500, 1500, 0, 4), Fate::QueueFull);
        assert_eq!(pipe.push(MS, 1500, 1500, 0, 5), Fate::Queued);
    }

    #[test]
    fn a_queue_in_bytes_counts_what_waits_and_not_what_is_on_the_wire() {
        let mut pipe = Pipe::new(rated(12e6, Some(QueueLimit::Bytes(1600))));
        assert_eq!(pipe.push(Duration::ZERO, 9000, 9000, 0, 0), Fate::Queued);
        assert_eq!(pipe.push(Duration::ZERO, 1500, 1500, 0, 1), Fate::Queued);
        assert_eq!(pipe.push(Duration::ZERO, 101, 101, 0, 2), Fate::QueueFull);
        assert_eq!(pipe.push(Duration::ZERO, 100, 100, 0, 3), Fate::Queued);
    }

    #[test]
    fn what_memory_cannot_hold_is_dropped_and_said() {
        let mut pipe = Pipe::new(Settings { memory_limit_bytes: 3000, delay: MS, ..plain() });
        let fates: Vec<_> = (0..3).map(|n| pipe.push(Duration::ZERO, 1538, 1500, 0, n)).collect();
        assert_eq!(fates, [Fate::Queued, Fate::Queued, Fate::Overflow]);
        assert!(pipe.pop(MS).is_some());
        assert_eq!(pipe.push(MS, 1538, 1500, 0, 3), Fate::Queued);
        assert_eq!(pipe.counts().overflow, 1);
    }

    #[test]
    fn loss_is_inside_the_exact_interval_and_repeats_with_its_seed() {
        for (loss, seed) in [(0.001, 1), (0.01, 2), (0.5, 3)] {
            let fates = |seed, jitter| -> Vec<Fate> {
                let mut pipe = Pipe::new(Settings { jitter, loss, seed, ..plain() });
                (0..100_000).map(|n| pipe.push(Duration::from_micros(n), 1538, 0, 0, ())).collect()
            };
            let first = fates(seed, Duration::ZERO);
            let lost = first.iter().filter(|fate| **fate == Fate::Lost).count() as u64;
            let [least, greatest] = exact_interval(lost, 100_000, 0.999).unwrap();
            assert!((least..=greatest).contains(&loss), "{lost} lost at {loss}");
            assert_eq!(first, fates(seed, MS), "jitter must not change which frames are lost");
            assert_ne!(first, fates(seed + 1, Duration::ZERO));
        }
    }

    #[test]
    fn nothing_is_lost_at_no_loss_and_everything_at_100_percent() {
        let mut none = Pipe::new(plain());
        let mut all = Pipe::new(Settings { loss: 1.0, ..plain() });
        for _ in 0..1000 {
            assert_eq!(none.push(MS, 84, 46, 0, ()), Fate::Queued);
            assert_eq!(all.push(MS, 84, 46, 0, ()), Fate::Lost);
        }
    }

    #[test]
    fn jitter_fills_its_width_evenly_and_leaves_the_mean() {
        // Uniform over ±1 ms: mean 10 ms, standard error of 100,000 is 1 ms / √3 / √100,000 = 1.8 µs.
        let mut pipe = Pipe::new(Settings { delay: 10 * MS, jitter: 2 * MS, ..plain() });
        let mut delays = Vec::new();
        for n in 0..100_000 {
            let sent = n * 10 * MS;
            pipe.push(sent, 84, 46, 0, ());
            delays.push(pipe.pop(sent + 11 * MS).unwrap().0.checked_sub(sent).unwrap());
        }
        let mean = delays.iter().sum::<Duration>() / 100_000;
        assert!(mean.abs_diff(10 * MS) < Duration::from_micros(9), "{mean:?}");
        let edge = MS / 100;
        assert!(*delays.iter().min().unwrap() < 9 * MS + edge);
        assert!(*delays.iter().max().unwrap() + edge > 11 * MS);
    }

    #[test]
    fn the_mean_delay_is_that_asked_for_at_any_density_in_either_order() {
        for order in [Order::Flow, Order::Kept] {
            for jitter_ms in [1, 5, 10, 20] {
                for every_us in [200, 700, 10_000, 40_000] {
                    let delay = 25 * MS;
                    let set = Settings { delay, jitter: jitter_ms * MS, order, ..plain() };
                    let mut pipe = Pipe::new(set);
                    let mut sum = Duration::ZERO;
                    // Two minutes at least: a flow is at 2.25 times the jitter from itself as random
                    // as any other.
                    let packets = 120_000_000 / every_us;
                    for n in 0..packets {
                        pipe.push(Duration::from_micros(n * every_us), 84, 46, 7, n);
                        let (due, n) = pipe.pop(Duration::MAX).unwrap();
                        sum += due.saturating_sub(Duration::from_micros(n * every_us));
                    }
                    let mean = sum / packets as u32;
                    assert!(mean.abs_diff(delay) < delay / 50, "{order:?} {jitter_ms} {mean:?}");
                }
            }
        }
    }

    #[test]
    fn flows_overtake_each_other_unless_all_order_is_kept() {
        let came = |order| -> Vec<u64> {
            let set = Settings { delay: 25 * MS, jitter: 20 * MS, order, ..plain() };
            let mut pipe = Pipe::new(set);
            (0..200).for_each(|n| _ = pipe.push(MS / 10 * n, 84, 46, u64::from(n), u64::from(n)));
            std::iter::from_fn(|| Some(pipe.pop(Duration::MAX)?.1)).collect()
        };
        assert!(!came(Order::Flow).is_sorted());
        assert!(came(Order::Kept).is_sorted());
    }

    #[test]
    fn minutes_at_full_rate_do_not_drift() {
        // 30 Mbit/s take 410,133.33… ns for 1,538 bytes: rounding each would be off by 0.1 ms.
        let mut pipe = Pipe::new(rated(30e6, None));
        let frames = 300_001_u64;
        let mut last = Duration::ZERO;
        for _ in 0..frames {
            pipe.push(Duration::ZERO, 1538, 0, 0, ());
            last = pipe.pop(Duration::MAX).unwrap().0;
        }
        let exact = u128::from(frames) * 1538 * 8 * 1_000_000_000 / 30_000_000;
        assert!(last.as_nanos().abs_diff(exact) <= 1, "{last:?}");
    }

    proptest! {
        #[test]
        fn back_to_back_frames_take_their_bytes_over_the_rate(
            rate in 1_000_u64..100_000_000_000,
            line_bytes in 84_u64..70_000,
            frames in 1_u64..200,
        ) {
            let mut pipe = Pipe::new(rated(rate as f64, None));
            let mut last = Duration::ZERO;
            for _ in 0..frames {
                pipe.push(Duration::ZERO, line_bytes, 0, 0, ());
                last = pipe.pop(Duration::MAX).unwrap().0;
            }
            let exact = u128::from(frames * line_bytes * 8) * 1_000_000_000 / u128::from(rate);
            prop_assert!(last.as_nanos().abs_diff(exact) <= 1);
        }

        #[test]
        fn frames_are_conserved_in_order_and_in_time(
            rtt_us in 0_u64..5000,
            jitter_share in 0.0..=1.0_f64,
            rate in prop::option::of(1e5..1e9_f64),
            loss in prop_oneof![Just(0.0), 0.0..=1.0_f64],
            queue in prop::option::of(prop_oneof![
                (1_u64..20).prop_map(QueueLimit::Packets),
                (100_u64..20_000).prop_map(QueueLimit::Bytes),
            ]),
            seed in any::<u64>(),
            kept in any::<bool>(),
            steps in prop::collection::vec((any::<bool>(), 0_u64..2000, 84_u64..3000), 1..300),
        ) {
            let delay = Duration::from_micros(rtt_us / 2);
            let jitter = (delay * 2).mul_f64(jitter_share);
            let set = Settings {
                delay,
                jitter,
                order: if kept { Order::Kept } else { Order::Flow },
                loss,
                queue,
                seed,
                rate_bit_per_s: rate,
                memory_limit_bytes: 40_000,
            };
            let mut pipe = Pipe::new(set);
            let mut twin = Pipe::new(set);
            let mut now = Duration::ZERO;
            // Two flows, or one that is all.
            let (mut next, mut last_due) = ([0; 2], Duration::ZERO);
            for (n, (push, wait_us, line_bytes)) in steps.into_iter().enumerate() {
                now += Duration::from_micros(wait_us);
                if push {
                    let flow = line_bytes % 2;
                    let frame = (n, now, if kept { 0 } else { flow as usize });
                    let fate = pipe.push(now, line_bytes, line_bytes, flow, frame);
                    prop_assert_eq!(twin.push(now, line_bytes, line_bytes, flow, frame), fate);
                } else {
                    while let Some((due, (frame, sent, flow))) = pipe.pop(now) {
                        twin.pop(now);
                        prop_assert!(frame >= next[flow] && due <= now);
                        // Half of an odd number of nanoseconds is rounded either way.
                        let half = (jitter + Duration::from_nanos(1)) / 2;
                        prop_assert!(due + half >= sent + delay);
                        let within = due <= sent + delay + half;
                        prop_assert!(within || rate.is_some());
                        next[flow] = frame + 1;
                        // What is taken out late may be followed by what overtakes it.
                        prop_assert!(due >= last_due || !kept);
                        last_due = due;
                    }
                }
                let c = pipe.counts();
                prop_assert_eq!(
                    c.pushed,
                    c.lost + c.queue_full + c.overflow + c.popped + c.inside
                );
                prop_assert_eq!(c, twin.counts());
            }
        }
    }
}
