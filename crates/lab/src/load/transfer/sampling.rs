//! What did the sender's kernel know over time? `TCP_INFO` of one connection, sampled while it sends.
//!
//! About 150 samples over warm-up and window, at least 2 ms apart, and one at each edge of the window.
//! Where the length is not known before, every second sample is dropped whenever there are too many.
//!
//! And of the receiver: how did goodput run over time, and when had it reached its steady value?

use std::time::Duration;

use tcptoll_core::record::Sender;
use tcptoll_core::stats::{Series, SeriesBuilder};
use tcptoll_core::tcp::tcp_info::{PathSample, TcpInfo};
use tcptoll_kernel::socket::Tcp;

/// Samples that are aimed at.
const SAMPLES: u64 = 150;

/// Samples that are kept.
const KEPT: usize = 400;

/// Closest distance of two samples, ns.
const CLOSEST_NS: u64 = 2_000_000;

/// Points of a series: a message on the channel has at most 64 KiB.
const POINTS: usize = 100;

/// One sample, and when it was taken.
#[derive(Clone, Debug)]
struct Sample {
    at_ns: u64,
    in_window: bool,
    info: PathSample,
}

/// Samples of one connection.
#[derive(Clone, Debug)]
pub(super) struct Sampler {
    interval_ns: u64,
    next_ns: u64,
    samples: Vec<Sample>,
    /// At the edges of the window.
    began: Option<Sample>,
    ended: Option<Sample>,
}

impl Sampler {
    /// For a transfer of this length, warm-up and window, or of any length.
    pub(super) fn new(length_ns: Option<u64>) -> Self {
        let interval_ns = length_ns.map_or(CLOSEST_NS, |ns| (ns / SAMPLES).max(CLOSEST_NS));
        Self { interval_ns, next_ns: 0, samples: Vec::new(), began: None, ended: None }
    }

    /// When the next sample is due, ns.
    pub(super) fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Takes a sample.
    pub(super) fn sample(&mut self, tcp: &Tcp, now_ns: u64) {
        self.next_ns = now_ns + self.interval_ns;
        let in_window = self.began.is_some() && self.ended.is_none();
        let Some(sample) = read(tcp, now_ns, in_window) else { return };
        if self.samples.len() == KEPT {
            let mut keep = false;
            self.samples.retain(|_| {
                keep = !keep;
                keep
            });
            self.interval_ns *= 2;
        }
        self.samples.push(sample);
    }

    /// The window begins.
    pub(super) fn begin(&mut self, tcp: &Tcp, now_ns: u64) {
        self.began = read(tcp, now_ns, true);
    }

    /// The window ends.
    pub(super) fn end(&mut self, tcp: &Tcp, now_ns: u64) {
        self.ended = read(tcp, now_ns, true);
    }

    /// The sender in its window. `syn_counted`: `tcpi_bytes_acked` counts the SYN, as it does at the
    /// end that connected.
    pub(super) fn sender(&self, syn_counted: bool) -> Sender {
        let edges = self.began.iter().chain(&self.ended);
        let inside: Vec<&PathSample> =
            self.samples.iter().filter(|s| s.in_window).chain(edges).map(|s| &s.info).collect();
        let median_of = |value: &dyn Fn(&PathSample) -> Option<f64>| median(&inside, value);
        let in_flight = |info: &PathSample| in_flight_bytes(info, syn_counted);
        let limited: Vec<bool> =
            inside.iter().filter_map(|info| info.delivery_rate_app_limited).collect();
        let application_share = (!limited.is_empty())
            .then(|| limited.iter().filter(|&&yes| yes).count() as f64 / limited.len() as f64);
        let share = |time_us: fn(&PathSample) -> Option<u64>| {
            let (began, ended) = (self.began.as_ref()?, self.ended.as_ref()?);
            let window_us = ended.at_ns.saturating_sub(began.at_ns) as f64 / 1e3;
            let us = time_us(&ended.info)?.saturating_sub(time_us(&began.info)?) as f64;
            // The kernel counts in ticks of its own (jiffies), which may exceed a short window.
            (window_us > 0.0).then(|| (us / window_us).min(1.0))
        };
        let retransmitted = |sample: &Option<Sample>| {
            sample.as_ref().map_or(0, |sample| u64::from(sample.info.total_retrans_segments))
        };
        let last = inside.last();
        Sender {
            samples: inside.len() as u64,
            busy_share: share(|info| info.busy_time_us),
            receive_window_share: share(|info| info.rwnd_limited_us),
            send_buffer_share: share(|info| info.sndbuf_limited_us),
            application_share,
            peer_window_bytes: median_of(&|info| info.snd_wnd_bytes.map(f64::from)),
            congestion_window_bytes: median_of(&|info| Some(congestion_window_bytes(info))),
            in_flight_bytes: median_of(&|info| Some(in_flight(info))),
            in_flight_max_bytes: inside.iter().map(|info| in_flight(info)).reduce(f64::max),
            segment_bytes: last.map(|info| f64::from(info.snd_mss_bytes)),
            min_rtt_us: last.and_then(|info| info.min_rtt_us).map(f64::from),
            rtt_us: median_of(&|info| (info.rtt_us > 0).then(|| f64::from(info.rtt_us))),
            retransmitted_segments: retransmitted(&self.ended)
                .saturating_sub(retransmitted(&self.began)),
        }
    }

    /// Round trip, congestion window and data in flight over time since the first byte.
    pub(super) fn series(
        &self,
        first_ns: u64,
        syn_counted: bool,
    ) -> impl Iterator<Item = (String, Series)> {
        let series_of = |value: &dyn Fn(&PathSample) -> f64| {
            let mut series = SeriesBuilder::new(POINTS);
            for sample in &self.samples {
                let at = Duration::from_nanos(sample.at_ns.saturating_sub(first_ns));
                series.push(at, value(&sample.info).round());
            }
            series.build()
        };
        let series = [
            ("rtt_us", series_of(&|info| f64::from(info.rtt_us))),
            ("congestion_window_bytes", series_of(&congestion_window_bytes)),
            ("in_flight_bytes", series_of(&|info| in_flight_bytes(info, syn_counted))),
        ];
        series.into_iter().map(|(name, series)| (name.to_owned(), series))
    }
}

fn read(tcp: &Tcp, at_ns: u64, in_window: bool) -> Option<Sample> {
    match TcpInfo::decode(&tcp.tcp_info().ok()?)? {
        TcpInfo::Connection(info) => Some(Sample { at_ns, in_window, info }),
        TcpInfo::Listener(_) => None,
    }
}

fn congestion_window_bytes(info: &PathSample) -> f64 {
    f64::from(info.snd_cwnd_segments) * f64::from(info.snd_mss_bytes)
}

/// Sent and not acknowledged: by bytes where the kernel counts them, else by segments.
fn in_flight_bytes(info: &PathSample, syn_counted: bool) -> f64 {
    match (info.bytes_sent, info.bytes_retransmitted, info.bytes_acked) {
        (Some(sent), Some(again), Some(acked)) => {
            let acked = acked.saturating_sub(u64::from(syn_counted));
            sent.saturating_sub(again).saturating_sub(acked) as f64
        }
        _ => f64::from(info.unacked_segments) * f64::from(info.snd_mss_bytes),
    }
}

/// The median of what some samples have; of an even number the mean of the middle two.
fn median(samples: &[&PathSample], value: &dyn Fn(&PathSample) -> Option<f64>) -> Option<f64> {
    let mut values: Vec<f64> = samples.iter().filter_map(|info| value(info)).collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        1 => Some(values[middle]),
        _ => Some(values.get(middle.checked_sub(1)?)?.midpoint(values[middle])),
    }
}

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

    fn sample(at_ms: u64, rtt_us: u32, busy_us: u64, limited: bool) -> Sample {
        let info = PathSample {
            rtt_us,
            busy_time_us: Some(busy_us),
            rwnd_limited_us: Some(busy_us / 2),
            snd_cwnd_segments: 10,
            snd_mss_bytes: 1_000,
            bytes_sent: Some(9_000),
            bytes_retransmitted: Some(1_000),
            bytes_acked: Some(3_001),
            delivery_rate_app_limited: Some(limited),
            snd_wnd_bytes: Some(rtt_us * 10),
            total_retrans_segments: at_ms as u32,
            ..PathSample::default()
        };
        Sample { at_ns: at_ms * 1_000_000, in_window: (100..=200).contains(&at_ms), info }
    }

    #[test]
    fn medians_are_of_the_window_and_shares_are_differences_over_it() {
        let sampler = Sampler {
            samples: vec![sample(0, 9_999, 0, true), sample(150, 300, 60_000, true)],
            began: Some(sample(100, 100, 20_000, false)),
            ended: Some(sample(200, 200, 100_000, false)),
            ..Sampler::new(None)
        };
        let sender = sampler.sender(true);
        assert_eq!((sender.samples, sender.rtt_us), (3, Some(200.0)));
        assert_eq!((sender.busy_share, sender.receive_window_share), (Some(0.8), Some(0.4)));
        assert_eq!(sender.send_buffer_share, None, "the kernel did not count it");
        assert_eq!(sender.application_share, Some(1.0 / 3.0));
        assert_eq!(sender.peer_window_bytes, Some(2_000.0));
        assert_eq!(sender.congestion_window_bytes, Some(10_000.0));
        assert_eq!((sender.in_flight_bytes, sender.retransmitted_segments), (Some(5_000.0), 100));
    }

    #[test]
    fn a_sender_that_was_never_sampled_has_no_figures() {
        assert_eq!(Sampler::new(Some(1)).sender(false), Sender::default());
    }

    #[test]
    fn samples_are_a_hundred_and_fifty_but_not_closer_than_two_milliseconds() {
        assert_eq!(Sampler::new(Some(15_000_000_000)).interval_ns, 100_000_000);
        assert_eq!(Sampler::new(Some(100_000_000)).interval_ns, 2_000_000);
    }

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
