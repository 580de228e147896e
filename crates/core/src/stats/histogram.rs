//! How are the measured times distributed, in bounded memory, mergeable and storable?
//!
//! Buckets are those of HdrHistogram (at most 0.1 % wide, or 1 ns); count, sum, least and greatest
//! value are exact and kept beside. For the rule of quantiles see [`super::nearest_rank`].

use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::read::ZlibDecoder;
use hdrhistogram::Histogram as Hdr;
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2DeflateSerializer};
use serde::{Deserialize, Serialize};

use super::sample::enough;
use super::summary::{HistogramSummary, Unanswered};

/// The longest time that has a bucket: an hour.
pub const TOP_NS: u64 = 3600 * 1_000_000_000;

/// Significant decimal digits of a bucket.
const DIGITS: u8 = 3;

/// The longest text that is read back; the longest we write is below 300 KiB.
pub const HDR_TEXT_MAX: usize = 1 << 20;

/// The longest it may be once inflated: a header and 9 bytes for each of 32,768 buckets fit.
const HDR_PLAIN_MAX: usize = 512 << 10;

/// Why a stored histogram cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HistogramError {
    /// Longer than anything tcptoll writes.
    #[error("the histogram is {0} bytes long, more than the limit of {HDR_TEXT_MAX}")]
    TooLong(usize),
    /// The text is no base64.
    #[error("the histogram is not base64")]
    NotBase64,
    /// The bytes are no HDR histogram.
    #[error("the histogram is not in HDR V2 format: {0}")]
    NotHdr(String),
    /// Another range or precision than ours.
    #[error("the histogram does not span 1 ns to 3600 s with 3 digits")]
    OtherBounds,
    /// Count, sum, least and greatest value contradict each other.
    #[error("the sum, minimum and maximum of the histogram do not match its counts")]
    Contradiction,
}

/// A distribution of times.
///
/// Unit: ns, 1 ns to 3600 s. 0 counts as 1 ns; a longer time is counted in the top bucket and in
/// [`Histogram::saturated`], and at its true length in mean and maximum.
/// Cost: 270 KB each; recording is O(1) and allocates nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "WireForm", into = "WireForm")]
pub struct Histogram {
    hdr: Hdr<u64>,
    sum_ns: u128,
    min_ns: u64, // u64::MAX and 0 while empty, so that the first value sets both
    max_ns: u64,
    saturated: u64,
}

/// How a histogram travels in a JSON message. The sum is text: JSON numbers lose digits at 2^53.
#[derive(Serialize, Deserialize)]
struct WireForm {
    hdr: String,
    sum_ns: String,
    min: Option<u64>,
    max: Option<u64>,
    saturated: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// An empty histogram.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "the bounds are constants")]
    pub fn new() -> Self {
        let hdr =
            Hdr::new_with_bounds(1, TOP_NS, DIGITS).expect("the bounds are constants that fit");
        Self::beside(hdr, 0, None, 0)
    }

    fn beside(hdr: Hdr<u64>, sum_ns: u128, bounds: Option<(u64, u64)>, saturated: u64) -> Self {
        let (min_ns, max_ns) = bounds.unwrap_or((u64::MAX, 0));
        Self { hdr, sum_ns, min_ns, max_ns, saturated }
    }

    /// Records one time.
    #[inline]
    pub fn record_ns(&mut self, ns: u64) {
        let ns = ns.max(1);
        self.hdr.saturating_record(ns.min(TOP_NS));
        self.saturated += u64::from(ns > TOP_NS);
        self.sum_ns += u128::from(ns);
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds every value of `other`. Exact: the same as if all had been recorded in one.
    #[expect(clippy::missing_panics_doc, reason = "every histogram has the same bounds")]
    pub fn merge(&mut self, other: &Self) {
        self.hdr.add(&other.hdr).expect("every histogram here has the same bounds");
        self.sum_ns += other.sum_ns;
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.saturated = self.saturated.saturating_add(other.saturated);
    }

    /// Values recorded.
    pub fn count(&self) -> u64 {
        self.hdr.len()
    }

    /// Values that were longer than 3600 s.
    pub fn saturated(&self) -> u64 {
        self.saturated
    }

    /// The least value, exact.
    pub fn min_ns(&self) -> Option<u64> {
        (self.count() > 0).then_some(self.min_ns)
    }

    /// The greatest value, exact.
    pub fn max_ns(&self) -> Option<u64> {
        (self.count() > 0).then_some(self.max_ns)
    }

    /// The arithmetic mean, exact (of the values, not of their buckets).
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.sum_ns as f64 / self.count() as f64)
    }

    /// The `num/den` quantile by nearest rank, in ns, whether or not there are enough values.
    ///
    /// The value is the middle of its bucket, at most 0.05 % off what was measured; the first and the
    /// last rank are exact. None: empty, or `num/den` is not within 0 to 1.
    #[must_use]
    pub fn quantile_ns(&self, num: u64, den: u64) -> Option<u64> {
        let count = self.count();
        if count == 0 || den == 0 || num > den {
            return None;
        }
        let rank = (u128::from(count) * u128::from(num)).div_ceil(u128::from(den)).max(1);
        if rank == 1 {
            return Some(self.min_ns);
        }
        if rank == u128::from(count) {
            return Some(self.max_ns);
        }
        let mut below = 0_u128;
        let bucket = self.hdr.iter_recorded().find(|bucket| {
            below += u128::from(bucket.count_since_last_iteration());
            below >= rank
        })?;
        let middle = self.hdr.median_equivalent(bucket.value_iterated_to());
        Some(middle.clamp(self.min_ns, self.max_ns))
    }

    /// What the record keeps: µs; quantiles with fewer than ten values beyond are left out.
    #[must_use]
    pub fn summary_us(&self) -> HistogramSummary {
        let us = |ns: u64| ns as f64 / 1e3;
        let quantile = |num, den| {
            enough(self.count(), num, den).then(|| self.quantile_ns(num, den).map(us)).flatten()
        };
        HistogramSummary {
            count: self.count(),
            min: self.min_ns().map(us),
            mean: self.mean_ns().map(|ns| ns / 1e3),
            p50: quantile(1, 2),
            p90: quantile(9, 10),
            p99: quantile(99, 100),
            p99_9: quantile(999, 1000),
            max: self.max_ns().map(us),
            unanswered: None,
            hdr: (self.count() > 0).then(|| self.hdr_text()),
        }
    }

    /// The same, with values that are only known not to be shorter than `ages`.
    #[must_use]
    pub fn summary_with_unanswered_us(&self, ages: &Self) -> HistogramSummary {
        let mut all = self.clone();
        all.merge(ages);
        // A quantile is the middle of its bucket, which may be below the least age in it.
        let least = ages.min_ns().map(|ns| ages.hdr.lowest_equivalent(ns));
        let unanswered =
            least.map(|ns| Unanswered { count: ages.count(), at_least: ns as f64 / 1e3 });
        all.summary_us().with_unanswered(unanswered)
    }

    /// The whole histogram as HDR V2, deflated, in base64.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "writing to memory does not fail")]
    pub fn hdr_text(&self) -> String {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new()
            .serialize(&self.hdr, &mut bytes)
            .expect("writing to memory cannot fail, and the buckets are below the format's limit");
        BASE64.encode(bytes)
    }

    /// Reads back what [`Histogram::hdr_text`] wrote.
    ///
    /// The text holds buckets only: mean, least and greatest value are those of the buckets, up to
    /// 0.1 % off. With the summary at hand, [`Histogram::from_summary`] has them exactly.
    pub fn from_hdr_text(text: &str) -> Result<Self, HistogramError> {
        let hdr = read_hdr(text)?;
        if hdr.is_empty() {
            return Ok(Self::beside(hdr, 0, None, 0));
        }
        let sum_of = |value: u64, count: u64| u128::from(value) * u128::from(count);
        let sum = hdr
            .iter_recorded()
            .map(|b| sum_of(hdr.median_equivalent(b.value_iterated_to()), b.count_at_value()))
            .sum();
        let bounds = (hdr.min().max(1), hdr.max());
        Ok(Self::beside(hdr, sum, Some(bounds), 0))
    }

    /// Reads back a summary with its histogram: count, least and greatest value are as recorded, the
    /// mean to f64's precision. None: the summary has no histogram.
    pub fn from_summary(summary: &HistogramSummary) -> Result<Option<Self>, HistogramError> {
        let Some(text) = &summary.hdr else { return Ok(None) };
        let mut histogram = Self::from_hdr_text(text)?;
        if let (Some(min), Some(mean), Some(max)) = (summary.min, summary.mean, summary.max) {
            histogram.min_ns = (min * 1e3).round() as u64;
            histogram.max_ns = (max * 1e3).round() as u64;
            histogram.sum_ns = (mean * 1e3 * histogram.count() as f64).round() as u128;
        }
        histogram.checked().map(Some)
    }

    /// Middle of each bucket that holds values, in ns, and how many it holds; ascending.
    #[must_use]
    pub fn buckets_ns(&self) -> Vec<(u64, u64)> {
        let middle = |value| self.hdr.median_equivalent(value);
        self.hdr
            .iter_recorded()
            .map(|b| (middle(b.value_iterated_to()), b.count_at_value()))
            .collect()
    }

    /// The distribution as a line to draw: times in µs and the share of values up to there, both
    /// ascending, the last share 1.
    ///
    /// At most `max_points` (at least 2): half of them even in share, to draw the bulk, half even in
    /// buckets, to draw the tail.
    #[must_use]
    pub fn points_us(&self, max_points: usize) -> Vec<(f64, f64)> {
        let buckets: Vec<(u64, u64)> = self
            .hdr
            .iter_recorded()
            .map(|b| (b.value_iterated_to(), b.count_since_last_iteration()))
            .collect();
        let last = buckets.len().saturating_sub(1);
        // A step of 1/half crosses at most half - 1 inner marks in each sense; two ends come on top.
        let half = (max_points / 2).max(1);
        let all = buckets.len() <= max_points;
        let mut seen = 0;
        let mut marks = (0, 0);
        let mut points = Vec::with_capacity(max_points.min(buckets.len()));
        for (at, (value, count)) in buckets.into_iter().enumerate() {
            seen += count;
            let share = seen as f64 / self.count() as f64;
            let here = ((share * half as f64) as usize, at * half / (last + 1));
            if all || at == 0 || at == last || here.0 != marks.0 || here.1 != marks.1 {
                let value = value.clamp(self.min_ns, self.max_ns);
                points.push((value as f64 / 1e3, share));
                marks = here;
            }
        }
        points
    }

    /// The histogram, if what is kept beside the buckets can be true of them.
    fn checked(self) -> Result<Self, HistogramError> {
        let count = u128::from(self.count());
        let fits = if count == 0 {
            self.sum_ns == 0 && self.saturated == 0
        } else {
            // A mean that came through f64 may pass a bound by its rounding.
            let slack = self.sum_ns >> 40;
            let near = |a: u64, b: u64| self.hdr.equivalent(a.clamp(1, TOP_NS), b);
            near(self.min_ns, self.hdr.min())
                && near(self.max_ns, self.hdr.max())
                && self.sum_ns + slack >= count.saturating_mul(u128::from(self.min_ns))
                && self.sum_ns <= count.saturating_mul(u128::from(self.max_ns)) + slack
                && u128::from(self.saturated) <= count
        };
        fits.then_some(self).ok_or(HistogramError::Contradiction)
    }
}

fn read_hdr(text: &str) -> Result<Hdr<u64>, HistogramError> {
    if text.len() > HDR_TEXT_MAX {
        return Err(HistogramError::TooLong(text.len()));
    }
    let bytes = BASE64.decode(text).map_err(|_| HistogramError::NotBase64)?;
    let plain = inflated(&bytes).ok_or_else(|| HistogramError::NotHdr("damaged".to_owned()))?;
    let hdr: Hdr<u64> = Deserializer::new()
        .deserialize(&mut plain.as_slice())
        .map_err(|error| HistogramError::NotHdr(error.to_string()))?;
    if (hdr.low(), hdr.high(), hdr.sigfig()) == (1, TOP_NS, DIGITS) {
        Ok(hdr)
    } else {
        Err(HistogramError::OtherBounds)
    }
}

/// The V2 bytes inside the V2 deflate bytes, if they are no longer than ours can be.
///
/// hdrhistogram 7.6.0 reserves what the inflated header claims (4 GiB for 120 bytes of text, seen) and
/// overflows on a run of 2^63 zeros; so length and runs are looked at before it sees them.
fn inflated(bytes: &[u8]) -> Option<Vec<u8>> {
    const OUTER: usize = 8; // cookie and length of the deflated part
    const INNER: usize = 40; // cookie, length, offset, digits, least, greatest, ratio
    let mut plain = Vec::new();
    let inflating = ZlibDecoder::new(bytes.get(OUTER..)?);
    inflating.take(HDR_PLAIN_MAX as u64 + 1).read_to_end(&mut plain).ok()?;
    let claimed = u32::from_be_bytes(plain.get(4..8)?.try_into().ok()?) as usize;
    // Nine bytes of ones are the number -2^63; the counts of a histogram never come near.
    let overflows = plain.windows(9).any(|nine| nine.iter().all(|byte| *byte == 0xff));
    let fits = plain.len() <= HDR_PLAIN_MAX && claimed + INNER == plain.len() && !overflows;
    fits.then_some(plain)
}

impl From<Histogram> for WireForm {
    fn from(histogram: Histogram) -> Self {
        Self {
            hdr: histogram.hdr_text(),
            sum_ns: histogram.sum_ns.to_string(),
            min: histogram.min_ns(),
            max: histogram.max_ns(),
            saturated: histogram.saturated,
        }
    }
}

impl TryFrom<WireForm> for Histogram {
    type Error = HistogramError;

    fn try_from(form: WireForm) -> Result<Self, HistogramError> {
        let hdr = read_hdr(&form.hdr)?;
        let sum_ns = form.sum_ns.parse().map_err(|_| HistogramError::Contradiction)?;
        let bounds = form.min.zip(form.max);
        Self::beside(hdr, sum_ns, bounds, form.saturated).checked()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::stats::sample::nearest_rank;

    fn histogram_of(values: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::new();
        values.into_iter().for_each(|ns| histogram.record_ns(ns));
        histogram
    }

    /// Times around 37 ms with a long tail, without a generator: a Weyl sequence through a logarithm.
    fn typical(count: u64) -> Histogram {
        histogram_of((1..=count).map(|n| {
            let uniform = (n as f64 * 0.618_033_988_749_895).fract();
            37_000_000 + (-(1.0 - uniform).ln() * 80_000.0) as u64
        }))
    }

    #[test]
    fn mean_least_and_greatest_are_those_of_the_values_and_not_of_buckets() {
        // (1,000,001 + 1,000,003 + 9,999,999) / 3 = 4,000,001; the buckets there are 512 ns and 8 µs.
        let histogram = histogram_of([1_000_001, 1_000_003, 9_999_999]);
        assert_eq!(histogram.min_ns(), Some(1_000_001));
        assert_eq!(histogram.max_ns(), Some(9_999_999));
        assert_eq!(histogram.mean_ns(), Some(4_000_001.0));
    }

    #[test]
    fn an_empty_histogram_has_no_figures() {
        let empty = Histogram::new();
        assert_eq!((empty.mean_ns(), empty.min_ns(), empty.max_ns()), (None, None, None));
        assert_eq!(empty.quantile_ns(1, 2), None);
        assert_eq!(empty.summary_us(), HistogramSummary::default());
        assert!(empty.points_us(10).is_empty());
    }

    #[test]
    fn zero_counts_as_a_nanosecond_and_the_top_saturates() {
        let histogram = histogram_of([0, TOP_NS, TOP_NS + 1, u64::MAX]);
        assert_eq!((histogram.count(), histogram.saturated()), (4, 2));
        assert_eq!((histogram.min_ns(), histogram.max_ns()), (Some(1), Some(u64::MAX)));
    }

    #[test]
    fn the_summary_leaves_out_what_too_few_values_cannot_say() {
        let summary = histogram_of((1..=100).map(|n| n * 1000)).summary_us();
        assert_eq!((summary.count, summary.min, summary.max), (100, Some(1.0), Some(100.0)));
        assert_eq!(summary.mean, Some(50.5));
        assert!((summary.p50.unwrap() - 50.0).abs() < 0.025, "{summary:?}");
        assert!((summary.p90.unwrap() - 90.0).abs() < 0.045, "{summary:?}");
        assert_eq!((summary.p99, summary.p99_9), (None, None));
    }

    #[test]
    fn a_record_gives_back_the_histogram_it_was_made_of() {
        let histogram = typical(20_000);
        let summary = histogram.summary_us();
        let back = Histogram::from_summary(&summary).unwrap().unwrap();
        assert_eq!(back.summary_us(), summary);
        let rough = Histogram::from_hdr_text(summary.hdr.as_deref().unwrap()).unwrap();
        assert_eq!(rough.count(), 20_000);
        assert_eq!(rough.quantile_ns(1, 2), histogram.quantile_ns(1, 2));
        assert!((rough.mean_ns().unwrap() / histogram.mean_ns().unwrap() - 1.0).abs() < 1e-3);
        assert_eq!(Histogram::from_summary(&HistogramSummary::default()), Ok(None));
    }

    #[test]
    fn a_message_carries_it_exactly_and_is_small() {
        for histogram in
            [Histogram::new(), histogram_of([7]), histogram_of([u64::MAX, 1]), typical(100_000)]
        {
            let json = serde_json::to_string(&histogram).unwrap();
            assert!(json.len() < 30 * 1024, "{} bytes", json.len());
            assert_eq!(serde_json::from_str::<Histogram>(&json).unwrap(), histogram);
        }
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let json = serde_json::to_value(histogram_of([5_000, 7_000])).unwrap();
        let bad = [
            ("sum_ns", serde_json::json!("3")),
            ("sum_ns", serde_json::json!("a lot")),
            ("min", serde_json::json!(900_000)),
            ("max", serde_json::json!(null)),
            ("saturated", serde_json::json!(3)),
        ];
        for (key, value) in bad {
            let mut damaged = json.clone();
            damaged[key] = value;
            let error = serde_json::from_value::<Histogram>(damaged).unwrap_err().to_string();
            assert!(error.contains("do not match"), "{key}: {error}");
        }
    }

    #[test]
    fn text_that_is_no_histogram_is_told_apart() {
        let long = "A".repeat(HDR_TEXT_MAX + 1);
        assert_eq!(Histogram::from_hdr_text(&long), Err(HistogramError::TooLong(long.len())));
        assert_eq!(Histogram::from_hdr_text("~"), Err(HistogramError::NotBase64));
        assert!(matches!(Histogram::from_hdr_text("AAAA"), Err(HistogramError::NotHdr(_))));
        let mut bytes = Vec::new();
        let other: Hdr<u64> = Hdr::new_with_bounds(1, 1000, 2).unwrap();
        V2DeflateSerializer::new().serialize(&other, &mut bytes).unwrap();
        assert_eq!(
            Histogram::from_hdr_text(&BASE64.encode(bytes)),
            Err(HistogramError::OtherBounds)
        );
    }

    /// A histogram of our bounds whose inflated header claims `claimed` bytes.
    fn crafted(claimed: u32, payload: &[u8]) -> String {
        let mut plain = vec![0x1c, 0x84, 0x93, 0x13];
        plain.extend(claimed.to_be_bytes());
        plain.extend([0, 0, 0, 0, 0, 0, 0, DIGITS]);
        plain.extend(1_u64.to_be_bytes());
        plain.extend(TOP_NS.to_be_bytes());
        plain.extend(1_f64.to_be_bytes());
        plain.extend(payload);
        let mut deflated = Vec::new();
        flate2::read::ZlibEncoder::new(plain.as_slice(), flate2::Compression::best())
            .read_to_end(&mut deflated)
            .unwrap();
        let mut bytes = vec![0x1c, 0x84, 0x93, 0x14];
        bytes.extend((deflated.len() as u32).to_be_bytes());
        bytes.extend(deflated);
        BASE64.encode(bytes)
    }

    #[test]
    fn a_crafted_record_costs_neither_gigabytes_nor_a_panic() {
        assert_eq!(Histogram::from_hdr_text(&crafted(1, &[2])).map(|h| h.count()), Ok(1));
        let bomb = vec![0; 2 << 20];
        let crafted = [
            crafted(u32::MAX - 100, &[]),
            crafted(bomb.len() as u32, &bomb),
            crafted(10, &[0xff; 10]),
            crafted(3, &[2]),
        ];
        for text in crafted {
            assert!(matches!(Histogram::from_hdr_text(&text), Err(HistogramError::NotHdr(_))));
        }
    }

    #[test]
    fn the_fullest_histogram_is_read_back() {
        let mut histogram = Histogram::new();
        let mut ns = 1;
        while ns < TOP_NS {
            (0..ns % 211).for_each(|_| histogram.record_ns(ns));
            ns += 1 + ns / 2048;
        }
        let text = histogram.hdr_text();
        assert!(text.len() < 300 * 1024, "{}", text.len());
        assert_eq!(Histogram::from_hdr_text(&text).unwrap().count(), histogram.count());
    }

    #[test]
    fn the_picture_is_bounded_and_ends_at_the_last_value() {
        let histogram = typical(50_000);
        for max_points in [2, 3, 10, 200, 100_000] {
            let points = histogram.points_us(max_points);
            assert!(points.len() <= max_points, "{} of {max_points}", points.len());
            assert!(points.windows(2).all(|p| p[0].0 < p[1].0 && p[0].1 < p[1].1));
            let &(last, share) = points.last().unwrap();
            assert_eq!((last, share), (histogram.max_ns().unwrap() as f64 / 1e3, 1.0));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn quantiles_are_within_a_thousandth_of_the_nearest_rank(
            mut values in prop::collection::vec(1..=TOP_NS, 1..300),
            num in 0_u64..=1000,
        ) {
            let histogram = histogram_of(values.iter().copied());
            values.sort_unstable();
            let exact = nearest_rank(&values, num as usize, 1000).unwrap() as f64;
            let ours = histogram.quantile_ns(num, 1000).unwrap() as f64;
            prop_assert!((ours - exact).abs() <= 0.001 * exact, "{} {}", ours, exact);
        }

        #[test]
        fn merging_is_recording_in_one(
            a in prop::collection::vec(any::<u64>(), 0..100),
            b in prop::collection::vec(0..TOP_NS, 0..100),
        ) {
            let mut merged = histogram_of(a.iter().copied());
            merged.merge(&histogram_of(b.iter().copied()));
            let one = histogram_of(a.into_iter().chain(b));
            prop_assert_eq!(&merged, &one);
            prop_assert_eq!(merged.summary_us(), one.summary_us());
        }

        #[test]
        fn no_text_makes_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Histogram::from_hdr_text(&BASE64.encode(&bytes));
            let _ = Histogram::from_hdr_text(&String::from_utf8_lossy(&bytes));
        }
    }
}
