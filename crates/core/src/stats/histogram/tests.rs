use proptest::prelude::*;

use super::super::quantile::nearest_rank;
use super::*;

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
    assert_eq!(Histogram::from_hdr_text(&BASE64.encode(bytes)), Err(HistogramError::OtherBounds));
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
