//! How is a figure written? All figures that are shown are written here, so that the same one reads
//! alike in a sentence, a table and a picture.
//!
//! A measured figure has three significant digits and a unit that leaves 1 to 999 of it. What was set,
//! or stands at an axis, has no needless zeros. Bytes and bits are 1000-based; sizes as options take
//! them, which are 1024-based, and times as options take them are written by [`crate::units`].
//! Values in a record are never rounded.

/// Shown where there is no figure.
pub const ABSENT: &str = "—";

/// From here on, µs, milliseconds are unreadable: what rounds to ten seconds.
pub const TEN_SECONDS_US: f64 = 9_999_500.0;

/// A count with its thousands apart: `2`, `-3`, `50,000`.
#[must_use]
pub fn count(n: impl Into<i128>) -> String {
    group(&n.into().to_string())
}

/// Three significant digits: `0.0201`, `8.10`, `37.1`, `1,003`.
///
/// Whole numbers of four digits and more keep them all. Not a number gives [`ABSENT`].
#[must_use]
pub fn three(value: f64) -> String {
    significant(value, 3)
}

/// As [`three`], with `digits` significant digits (1 to 9).
#[must_use]
pub fn significant(value: f64, digits: u8) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let after_first = digits.clamp(1, 9) - 1;
    // The exponent after rounding, so that 9.996 counts as 10.0.
    let rounded = format!("{value:.*e}", usize::from(after_first));
    let exponent: i32 = rounded.split_once('e').and_then(|(_, e)| e.parse().ok()).unwrap_or(0);
    fixed(value, (i32::from(after_first) - exponent).clamp(0, 9) as usize)
}

/// So many decimals, thousands apart; what rounds to 0 has no sign.
#[must_use]
pub fn fixed(value: f64, decimals: usize) -> String {
    if !value.is_finite() {
        return ABSENT.to_owned();
    }
    let text = format!("{value:.decimals$}");
    let zero = !text.contains(|c: char| ('1'..='9').contains(&c));
    let text = if zero { text.trim_start_matches('-') } else { &text };
    match text.split_once('.') {
        Some((whole, rest)) => format!("{}.{rest}", group(whole)),
        None => group(text),
    }
}

/// A figure that was set, or one of an axis: at most four significant digits, without needless zeros:
/// `1`, `1.5`, `0.9825`, `1,003`.
#[must_use]
pub fn plain(value: f64) -> String {
    without_zeros(significant(value, 4))
}

/// A latency, in µs: `48.1 µs`, `37.1 ms`, `1.02 s`.
#[must_use]
pub fn time(us: f64) -> String {
    metric(us, "us")
}

/// A latency, in µs, to be compared with another: one digit more than [`time`] and in ms up to ten
/// seconds: `37.06 ms`, `3,012 ms`.
#[must_use]
pub fn exact_time(us: f64) -> String {
    let (per_unit, unit) = match us.abs() {
        us if us >= TEN_SECONDS_US => (1e6, "s"),
        us if us >= 999.5 => (1e3, "ms"),
        _ => (1.0, "µs"),
    };
    format!("{} {unit}", significant(us / per_unit, 4))
}

/// How long something took, in seconds: `41.2 ms`, `4.1 s`, `4 s`, `41 s`, `2 min 5 s`, `3 h 20 min`, `41 d 7 h`.
#[must_use]
pub fn duration(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return ABSENT.to_owned();
    }
    if (f64::MIN_POSITIVE..0.05).contains(&seconds) {
        return time(seconds * 1e6);
    }
    if seconds < 9.95 {
        return format!("{} s", without_zeros(format!("{seconds:.1}")));
    }
    let whole = seconds.round() as u64;
    let [minutes, hours, days] = [60, 3_600, 86_400].map(|unit| whole / unit);
    match whole {
        0..120 => format!("{whole} s"),
        120..7_200 => format!("{minutes} min {} s", whole % 60),
        7_200..172_800 => format!("{hours} h {} min", minutes % 60),
        _ => format!("{} d {} h", count(days), hours % 24),
    }
}

/// Bytes that were carried or held: `18.8 kB`, `3.82 GB`; below 1 kB whole ones.
#[must_use]
pub fn bytes(value: f64) -> String {
    metric(value, "bytes")
}

/// A size that was asked for, exact and 1024-based: `1 byte`, `1,500 bytes`, `16 KiB`.
#[must_use]
pub fn size(bytes: u64) -> String {
    let units = [("GiB", 1_u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.into_iter().find(|(_, size)| bytes > 0 && bytes.is_multiple_of(*size)) {
        Some((unit, size)) => format!("{} {unit}", bytes / size),
        None => format!("{} byte{}", count(bytes), if bytes == 1 { "" } else { "s" }),
    }
}

/// A rate, in bit/s: `941 Mbit/s`.
#[must_use]
pub fn bit_rate(bit_per_s: f64) -> String {
    metric(bit_per_s, "bit/s")
}

/// A share of 0 to 1: `96.4 %`, `1 %`, `0.25 %`.
#[must_use]
pub fn percent(share: f64) -> String {
    format!("{} %", without_zeros(three(share * 100.0)))
}

/// Distance of a ratio from 1, with its sign: `+0.03 %`; from three times on, the ratio.
#[must_use]
pub fn percent_off(ratio: f64) -> String {
    if ratio >= 2.995 {
        return self::ratio(ratio);
    }
    let off = (ratio - 1.0) * 100.0;
    let size = off.abs();
    // Two digits carry a distance; the sign says which way.
    let text = match size {
        size if size < 0.005 => return "±0 %".to_owned(),
        size if size < 1.0 => format!("{size:.2}"),
        size if size < 10.0 => format!("{size:.1}"),
        size => fixed(size, 0),
    };
    format!("{}{text} %", if off < 0.0 { "-" } else { "+" })
}

/// A ratio: `×1.03`.
#[must_use]
pub fn ratio(value: f64) -> String {
    format!("×{}", three(value))
}

/// A ratio in a sentence, and its interval: `0.752×` and ` (95 % CI 0.740–0.760)`, empty where there is none.
#[must_use]
pub fn times(ratio: f64, ci95: Option<[f64; 2]>) -> [String; 2] {
    let Some(ends) = ci95 else { return [format!("{}×", three(ratio)), String::new()] };
    let [ratio, low, high] = ratio_within(ratio, ends);
    [format!("{ratio}×"), format!(" (95 % CI {low}–{high})")]
}

/// Two figures as a range, their unit once: `3.10 to 4.09 s`; one, if both are written alike.
#[must_use]
pub fn range(least: &str, most: &str) -> String {
    match least.split_once(' ').zip(most.split_once(' ')) {
        _ if least == most => most.to_owned(),
        Some(((figure, one), (_, other))) if one == other => format!("{figure} to {most}"),
        _ => format!("{least} to {most}"),
    }
}

/// A ratio and the ends of its interval, all with the decimals that its width gives a meaning to:
/// `0.752`, `0.740`, `0.760`.
#[must_use]
pub fn ratio_within(ratio: f64, [low, high]: [f64; 2]) -> [String; 3] {
    // Around 1 both sides of it show as many.
    let least = if (0.9..1.1).contains(&ratio) { 3 } else { 0 };
    // A ratio far below 1 has two digits that are not 0: ×0.0047.
    let small = if ratio < 0.1 && ratio > 0.0 { 1 - ratio.log10().floor() as i32 } else { 0 };
    let small = small.clamp(0, 6) as usize;
    let decimals = decimals(ratio.max(high), Some(high - low)).clamp(least, 4).max(small);
    [ratio, low, high].map(|value| fixed(value, decimals))
}

/// Decimals that show three digits of `greatest`, and one of an interval's `width` or two where the
/// first is a 1; at most 6.
#[must_use]
pub fn decimals(greatest: f64, width: Option<f64>) -> usize {
    let digits = |value: f64, digits: i32| {
        if value > 0.0 && value.is_finite() { digits - 1 - value.log10().floor() as i32 } else { 0 }
    };
    let of_width = width.map_or(0, |width| {
        let first = width / 10_f64.powf(width.log10().floor());
        digits(width, if first < 2.0 { 2 } else { 1 })
    });
    digits(greatest, 3).max(of_width).clamp(0, 6) as usize
}

/// A value of a metric in the unit that [`crate::record::Metric`] names, as [`three`].
#[must_use]
pub fn metric(value: f64, unit: &str) -> String {
    with_unit(value, unit, three)
}

/// A value of a metric for the tick of an axis, as [`plain`].
#[must_use]
pub fn tick(value: f64, unit: &str) -> String {
    with_unit(value, unit, plain)
}

fn with_unit(value: f64, unit: &str, digits: fn(f64) -> String) -> String {
    let (factor, symbol) = scale(unit, value.abs());
    let figure = if symbol == "B" { fixed(value, 0) } else { digits(value * factor) };
    match symbol {
        _ if !value.is_finite() => figure,
        "" => figure,
        per if per.starts_with('/') => format!("{figure}{per}"),
        symbol => format!("{figure} {symbol}"),
    }
}

/// The factor from a metric's unit to the reader's for values up to `greatest`, and its symbol.
#[must_use]
pub fn scale(unit: &str, greatest: f64) -> (f64, &str) {
    let steps = |value: f64, symbols: &[&'static str]| {
        let (mut factor, mut at) = (1.0, 0);
        // 999.5 has the three digits 1000, so it belongs to the next unit.
        while value * factor >= 999.5 && at + 1 < symbols.len() {
            factor /= 1e3;
            at += 1;
        }
        (factor, symbols[at])
    };
    let bits = ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"];
    match unit {
        "us" | "µs" => steps(greatest, &["µs", "ms", "s"]),
        "bytes" => steps(greatest, &["B", "kB", "MB", "GB", "TB"]),
        "bit/s" => steps(greatest, &bits),
        "bytes/s" | "bytes_per_s" => {
            let (factor, symbol) = steps(greatest * 8.0, &bits);
            (factor * 8.0, symbol)
        }
        "" | "1" => (1.0, ""),
        "1/s" => (1.0, "/s"),
        "1/h" => (1.0, "/h"),
        "us/s" => (1.0, "µs/s"),
        "ms" => (1e-3, "s"),
        "share" => (100.0, "%"),
        unit => (1.0, unit),
    }
}

/// Thousands apart.
fn group(digits: &str) -> String {
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |rest| ("-", rest));
    let mut out = String::from(sign);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A figure less the zeros at the end of its decimals.
fn without_zeros(text: String) -> String {
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_count_after_rounding() {
        let cases =
            [(0.0, "0"), (0.0201, "0.0201"), (8.1, "8.10"), (9.996, "10.0"), (999.6, "1,000")];
        for (value, text) in cases {
            assert_eq!(three(value), text);
        }
        assert_eq!(three(1_234_567.4), "1,234,567");
        assert_eq!(three(f64::NAN), ABSENT);
    }

    #[test]
    fn counts_have_their_thousands_apart() {
        let cases = [(0, "0"), (999, "999"), (1000, "1,000"), (50_000, "50,000"), (-3, "-3")];
        for (n, text) in cases {
            assert_eq!(count(n), text);
        }
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn a_figure_that_was_set_has_no_needless_zeros() {
        let cases = [(1.0, "1"), (1.5, "1.5"), (0.9825, "0.9825"), (0.0, "0"), (1_003.4, "1,003")];
        for (value, text) in cases {
            assert_eq!(plain(value), text);
        }
        assert_eq!([0.01, 0.005, 0.964, 1.0].map(percent), ["1 %", "0.5 %", "96.4 %", "100 %"]);
    }

    #[test]
    fn a_measured_figure_has_three_digits_in_the_readers_unit() {
        let cases = [
            (0.0, "0 µs"),
            (0.1234, "0.123 µs"),
            (48.14, "48.1 µs"),
            (999.4, "999 µs"),
            (999.6, "1.00 ms"),
            (9.996, "10.0 µs"),
            (37_100.0, "37.1 ms"),
            (999_900.0, "1.00 s"),
            (1_020_000.0, "1.02 s"),
            (3.6e9, "3,600 s"),
            (-5.0, "-5.00 µs"),
            (f64::NAN, "—"),
        ];
        for (us, text) in cases {
            assert_eq!(time(us), text);
        }
        assert_eq!(
            [941.48e6, 1e9, 9600.0].map(bit_rate),
            ["941 Mbit/s", "1.00 Gbit/s", "9.60 kbit/s"]
        );
        assert_eq!([0.4, 999.0, 18_840.0].map(bytes), ["0 B", "999 B", "18.8 kB"]);
        assert_eq!(metric(125_000_000.0, "bytes/s"), "1.00 Gbit/s");
        assert_eq!(metric(13_540.0, "1/s"), "13,540/s");
        assert_eq!([3_012_400.0, 45_012_400.0].map(exact_time), ["3,012 ms", "45.01 s"]);
    }

    #[test]
    fn a_size_that_was_asked_for_is_exact() {
        assert_eq!([1, 1_500, 65_536].map(size), ["1 byte", "1,500 bytes", "64 KiB"]);
    }

    #[test]
    fn ticks_are_short() {
        let times = [20.0, 37_050.0, 1e6, 2e9].map(|us| tick(us, "us"));
        assert_eq!(times, ["20 µs", "37.05 ms", "1 s", "2,000 s"]);
        assert_eq!([tick(5e7, "bit/s"), tick(2e4, "bytes")], ["50 Mbit/s", "20 kB"]);
        assert_eq!([tick(2.5, "1/s"), tick(0.98, "")], ["2.5/s", "0.98"]);
    }

    #[test]
    fn a_distance_has_a_sign() {
        assert_eq!(
            [1.000_3, 0.95, 2.5, 7.0].map(percent_off),
            ["+0.03 %", "-5.0 %", "+150 %", "×7.00"]
        );
    }

    #[test]
    fn ratios_near_one_show_the_same_decimals() {
        assert_eq!(ratio_within(1.0, [0.98, 1.03]), ["1.000", "0.980", "1.030"]);
        assert_eq!(ratio_within(0.52, [0.51, 0.541])[1..], ["0.510", "0.541"]);
        assert_eq!(ratio_within(0.0031, [0.0001, 5.0])[0], "0.0031");
    }

    #[test]
    fn a_range_has_its_unit_once() {
        let range = |least, most| range(&time(least), &time(most));
        assert_eq!(range(3.1e6, 4.09e6), "3.10 to 4.09 s");
        assert_eq!(range(31.0, 4.09e6), "31.0 µs to 4.09 s");
        assert_eq!(range(31.0, 31.01), "31.0 µs");
    }

    #[test]
    fn durations_are_said_as_one_would() {
        assert_eq!(
            [4.06, 41.2, 125.0, 12_000.0, 3_567_600.0].map(duration),
            ["4.1 s", "41 s", "2 min 5 s", "3 h 20 min", "41 d 7 h"]
        );
    }
}
