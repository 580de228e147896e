//! How is a figure written? Three significant digits and a unit; latency in µs below 1 ms and in
//! ms above. Values inside the summary are never rounded.

pub use tcptoll_core::units::{
    human_bytes, human_count as count, human_rate as bit_rate, human_us as time, text_size,
};

/// Shown where there is no figure.
pub const ABSENT: &str = "—";

/// Three significant digits, thousands grouped: `0.0201`, `8.10`, `37.1`, `1,003`.
///
/// Whole numbers of four digits and more keep them all. Not a number gives [`ABSENT`].
pub fn three(value: f64) -> String {
    significant(value, 3)
}

/// Three digits, and no more than a µs of a second has a meaning.
pub fn figure(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 1e-3 || size == 0.0 => 3,
        size if size >= 1e-4 => 2,
        _ => 1,
    };
    significant(value, digits)
}

/// As [`three`], with `digits` significant digits (1 to 9).
fn significant(value: f64, digits: u8) -> String {
    let after_first = digits.clamp(1, 9) - 1;
    let last = usize::from(after_first);
    if !value.is_finite() {
        return ABSENT.to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    // The exponent after rounding, so that 9.996 counts as 10.0.
    let rounded = format!("{value:.last$e}");
    let exponent: i32 = rounded.split_once('e').and_then(|(_, e)| e.parse().ok()).unwrap_or(0);
    let decimals = (i32::from(after_first) - exponent).clamp(0, 9) as usize;
    let plain = format!("{value:.decimals$}");
    match plain.split_once('.') {
        Some(_) => plain,
        None => group(&plain),
    }
}

/// A counter, thousands grouped: `2`, `-3`, `1,234`.
pub fn whole(n: i64) -> String {
    group(&n.to_string())
}

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

/// What rounds to ten seconds: from here on milliseconds are unreadable.
const TEN_SECONDS_US: f64 = 9_999_500.0;

/// Unit of a latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    /// Microseconds.
    Micro,
    /// Milliseconds.
    Milli,
    /// Seconds.
    Second,
}

impl TimeUnit {
    /// For one value of `us` microseconds.
    fn for_us(us: f64) -> Self {
        // 999.6 would be written 1,000 µs.
        if us.abs() < 999.5 { Self::Micro } else { Self::Milli }
    }

    /// For a column of values: that of the least one, unless the greatest would be unreadable in it.
    /// Every column of times is written in one unit, so that its figures can be compared.
    pub fn of_column(values: impl IntoIterator<Item = f64>) -> Self {
        let sizes = values.into_iter().map(f64::abs).filter(|us| us.is_finite() && *us > 0.0);
        let (least, greatest) =
            sizes.fold((f64::INFINITY, 0.0), |(a, b): (f64, f64), us| (a.min(us), b.max(us)));
        // Five digits before the point are read with less ease than two zeros after it, but not than three.
        let readable = |unit: &Self| {
            let most = if least < 10.0 * unit.us() { 99_999.5 } else { 9_999.5 };
            greatest / unit.us() < most
        };
        match least {
            // No value, or none but 0.
            us if us.is_infinite() => Some(Self::Micro),
            us if us < 999.5 => [Self::Micro, Self::Milli].into_iter().find(readable),
            us if us < 999_500.0 => [Self::Milli].into_iter().find(readable),
            _ => None,
        }
        .unwrap_or(Self::Second)
    }

    /// Microseconds in one of it.
    fn us(self) -> f64 {
        match self {
            Self::Micro => 1.0,
            Self::Milli => 1e3,
            Self::Second => 1e6,
        }
    }

    /// `µs`, `ms` or `s`.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Micro => "µs",
            Self::Milli => "ms",
            Self::Second => "s",
        }
    }

    /// The figure in this unit, without it.
    pub fn figure(self, us: f64) -> String {
        three(us / self.us())
    }

    /// The figure with this unit.
    pub fn text(self, us: f64) -> String {
        format!("{} {}", self.figure(us), self.symbol())
    }
}

/// A column of latencies, all in one unit; [`ABSENT`] where there is none.
pub fn times(column: &[Option<f64>]) -> Vec<String> {
    let unit = TimeUnit::of_column(column.iter().flatten().copied());
    let cell = |us: &Option<f64>| us.map_or_else(|| ABSENT.to_owned(), |us| unit.text(us));
    column.iter().map(cell).collect()
}

/// As [`times`], with the digits of [`exact_time`].
pub fn exact_times(column: &[f64]) -> Vec<String> {
    let unit = TimeUnit::of_column(column.iter().copied());
    let cell = |us: &f64| format!("{} {}", significant(us / unit.us(), 4), unit.symbol());
    column.iter().map(cell).collect()
}

/// A latency to be compared with another: one digit more than [`time`], `37.06 ms`.
/// From ten seconds on in s.
pub fn exact_time(us: f64) -> String {
    if us.abs() >= TEN_SECONDS_US {
        return format!("{} s", significant(us / 1e6, 4));
    }
    let unit = TimeUnit::for_us(us);
    format!("{} {}", significant(us / unit.us(), 4), unit.symbol())
}

/// [`time`], or [`ABSENT`].
pub fn time_or_absent(us: Option<f64>) -> String {
    us.map_or_else(|| ABSENT.to_owned(), time)
}

/// A latency for the tick of an axis: without needless zeros, in s from one second on.
pub fn tick(us: f64) -> String {
    let (value, unit) = match us {
        us if us >= 999_999.0 => (us / 1e6, "s"),
        us if us >= 999.999 => (us / 1e3, "ms"),
        us => (us, "µs"),
    };
    if value >= 1_000.0 {
        return format!("{} {unit}", three(value));
    }
    let text = format!("{value:.4}");
    format!("{} {unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// A small factor without needless zeros: `1`, `1.5`.
pub fn trimmed(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A ratio for the tick of an axis: `0.98`, `1,000`.
pub fn trimmed_ratio(value: f64) -> String {
    if value >= 100.0 {
        return three(value);
    }
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A size as options take it: `512`, `64K`, `4M`.
pub fn size(bytes: f64) -> String {
    text_size(bytes as u64)
}

/// A rate for the tick of an axis: `50 Mbit/s`, without needless zeros.
pub fn rate_tick(bit_per_s: f64) -> String {
    without_zeros(bit_rate(bit_per_s))
}

/// Bytes for the tick of an axis: `20 kB`, without needless zeros.
pub fn bytes_tick(bytes: f64) -> String {
    without_zeros(human_bytes(bytes))
}

/// A figure and its unit, without zeros at the end of decimals.
fn without_zeros(text: String) -> String {
    match text.split_once(' ') {
        Some((figure, unit)) if figure.contains('.') => {
            format!("{} {unit}", figure.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text,
    }
}

/// Bytes, 1024-based: `3.82 GiB`.
pub fn bytes(value: u64) -> String {
    scaled(value as f64, 1_024.0, &["B", "KiB", "MiB", "GiB", "TiB"])
}

fn scaled(mut value: f64, base: f64, units: &[&str]) -> String {
    let mut at = 0;
    while value.abs() >= base && at + 1 < units.len() {
        value /= base;
        at += 1;
    }
    format!("{} {}", three(value), units[at])
}

/// A value of a metric with its unit, as [`tcptoll_core::record::Metric`] names it.
pub fn metric(value: f64, unit: &str) -> String {
    match unit {
        "us" | "µs" => time(value),
        "bytes" => bytes(value.max(0.0) as u64),
        "bytes/s" | "bytes_per_s" => bit_rate(value * 8.0),
        "" | "1" => three(value),
        "1/s" => format!("{} /s", three(value)),
        "us/s" => format!("{} µs/s", three(value)),
        unit => format!("{} {unit}", three(value)),
    }
}

/// Distance from 1 in percent with its sign: `+0.03 %`; from three times on, the ratio.
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
        size => three(size.round()),
    };
    format!("{}{text} %", if off < 0.0 { "-" } else { "+" })
}

/// A share of 0 to 1 in percent: `96.4 %`.
pub fn percent(share: f64) -> String {
    format!("{} %", three(share * 100.0))
}

/// A ratio: `×1.03`.
pub fn ratio(value: f64) -> String {
    if value == 0.0 {
        return "×0".to_owned();
    }
    format!("×{}", three(value))
}

/// A share of 0 to 1 in percent without needless zeros: `1 %`, `0.5 %`.
pub fn plain_percent(share: f64) -> String {
    format!("{} %", trimmed(share * 100.0))
}

/// How long something took: `4.1 s`, `41 s`, `2 min 5 s`, `3 h 20 min`.
pub fn duration(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return ABSENT.to_owned();
    }
    if seconds < 9.95 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds.round() as u64;
    match whole {
        0..120 => format!("{whole} s"),
        120..7_200 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3_600, whole % 3_600 / 60),
    }
}

// How is a figure with its interval written?

/// A figure and its 95 % interval, if there is one.
type WithInterval = (f64, Option<[f64; 2]>);

/// A figure with its interval, all in one unit and with the same decimals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Estimate {
    /// The figure, without unit.
    pub value: String,
    /// Its interval: `[13,480, 13,600]`.
    pub ci95: Option<String>,
    /// The unit; empty if there is none.
    pub symbol: String,
}

impl Estimate {
    /// Three digits, or as many as the width of the interval gives a meaning to.
    pub(crate) fn new(value: f64, ci95: Option<[f64; 2]>, unit: &str) -> Self {
        Self::within(value, ci95, unit, None)
    }

    /// A column of figures, each with its interval; times are all in one unit.
    pub(crate) fn column(figures: &[Option<WithInterval>], unit: &str) -> Vec<Option<Self>> {
        let time = is_time(unit)
            .then(|| TimeUnit::of_column(figures.iter().flatten().map(|(value, _)| *value)));
        let cell = |(value, ci95): (f64, _)| Self::within(value, ci95, unit, time);
        figures.iter().map(|figure| figure.map(cell)).collect()
    }

    /// The figure in the unit of its column, if it has one.
    pub(crate) fn within(
        value: f64,
        ci95: Option<[f64; 2]>,
        unit: &str,
        column: Option<TimeUnit>,
    ) -> Self {
        let ends = ci95.unwrap_or([value; 2]);
        let greatest = ends.into_iter().fold(value.abs(), |most, end| most.max(end.abs()));
        let of_column = |time: TimeUnit| (1.0 / time.us(), time.symbol().to_owned());
        let (factor, symbol) = column.map_or_else(|| scale(unit, greatest), of_column);
        let width = ci95.map(|[low, high]| (high - low) * factor);
        let decimals = decimals(greatest * factor, width);
        let text = |value: f64| fixed(value * factor, decimals);
        Self {
            value: text(value),
            ci95: ci95.map(|[low, high]| format!("[{}, {}]", text(low), text(high))),
            symbol,
        }
    }

    /// A difference: a figure above 0 has its sign too.
    pub(crate) fn signed(value: f64, ci95: Option<[f64; 2]>, unit: &str) -> Self {
        let mut estimate = Self::new(value, ci95, unit);
        if value > 0.0 {
            estimate.value.insert(0, '+');
        }
        estimate
    }

    /// `13,540 [13,480, 13,600] /s`.
    pub(crate) fn text(&self) -> String {
        let parts = [Some(&self.value), self.ci95.as_ref(), Some(&self.symbol)];
        let parts: Vec<&str> = parts
            .into_iter()
            .flatten()
            .map(String::as_str)
            .filter(|part| !part.is_empty())
            .collect();
        parts.join(" ")
    }
}

/// Whether values of this unit are times, which are written in µs, ms or s.
pub(crate) fn is_time(unit: &str) -> bool {
    matches!(unit, "us" | "µs")
}

/// The factor from a metric's unit to the reader's for values up to `greatest`, and its symbol.
fn scale(unit: &str, greatest: f64) -> (f64, String) {
    let steps = |base: f64, symbols: &[&str], greatest: f64| {
        let mut factor = 1.0;
        let mut at = 0;
        while greatest * factor >= base && at + 1 < symbols.len() {
            factor /= base;
            at += 1;
        }
        (factor, symbols[at].to_owned())
    };
    match unit {
        "us" | "µs" if greatest >= TEN_SECONDS_US => (1e-6, "s".to_owned()),
        "us" | "µs" => match TimeUnit::for_us(greatest) {
            TimeUnit::Micro => (1.0, "µs".to_owned()),
            TimeUnit::Milli => (1e-3, "ms".to_owned()),
            TimeUnit::Second => (1e-6, "s".to_owned()),
        },
        "bytes" => steps(1_024.0, &["B", "KiB", "MiB", "GiB", "TiB"], greatest),
        "bytes/s" | "bytes_per_s" => {
            let bits = ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"];
            let (factor, symbol) = steps(1_000.0, &bits, greatest * 8.0);
            (factor * 8.0, symbol)
        }
        "" | "1" => (1.0, String::new()),
        "1/s" => (1.0, "/s".to_owned()),
        "us/s" => (1.0, "µs/s".to_owned()),
        unit => (1.0, unit.to_owned()),
    }
}

/// Decimals that show three digits of `greatest`, and one of an interval's `width` or two where the
/// first is a 1; at most 6.
fn decimals(greatest: f64, width: Option<f64>) -> usize {
    let digits = |value: f64, digits: i32| {
        if value > 0.0 && value.is_finite() { digits - 1 - value.log10().floor() as i32 } else { 0 }
    };
    let of_width = width.map_or(0, |width| {
        let first = width / 10_f64.powf(width.log10().floor());
        digits(width, if first < 2.0 { 2 } else { 1 })
    });
    digits(greatest, 3).max(of_width).clamp(0, 6) as usize
}

/// A value with so many decimals, thousands grouped.
fn fixed(value: f64, decimals: usize) -> String {
    if !value.is_finite() {
        return ABSENT.to_owned();
    }
    let plain = format!("{value:.decimals$}");
    // What rounds to 0 has no sign.
    let zero = !plain.contains(|c: char| ('1'..='9').contains(&c));
    let plain = if zero { plain.trim_start_matches('-') } else { &plain };
    match plain.split_once('.') {
        Some((whole, rest)) => format!("{}.{rest}", group(whole)),
        None => group(plain),
    }
}

/// A ratio with its interval: `×0.752` and `[0.740, 0.760]`, with the same decimals.
pub(crate) fn ratio_with_interval(ratio: f64, ci95: [f64; 2]) -> (String, String) {
    let [low, high] = ci95;
    // Around 1 both sides of it show as many.
    let least = if (0.9..1.1).contains(&ratio) { 3 } else { 0 };
    // A ratio far below 1 has a digit that is not 0, as ×0.00 is none.
    let small = if ratio > 0.0 { (-ratio.log10()).ceil().clamp(0.0, 6.0) as usize } else { 0 };
    let decimals = decimals(ratio.max(high), Some(high - low)).clamp(least, 4).max(small);
    let text = |value| fixed(value, decimals);
    (format!("×{}", text(ratio)), format!("[{}, {}]", text(low), text(high)))
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
    fn latency_changes_unit_at_one_millisecond() {
        assert_eq!(time(999.0), "999 µs");
        assert_eq!(time(999.7), "1.00 ms");
        assert_eq!(exact_time(3_012_400.0), "3,012 ms");
        assert_eq!(exact_time(45_012_400.0), "45.01 s");
    }

    #[test]
    fn a_column_of_times_has_one_unit() {
        let some = |values: &[f64]| times(&values.iter().copied().map(Some).collect::<Vec<_>>());
        assert_eq!(some(&[1_120.0, 850.0]), ["1,120 µs", "850 µs"]);
        assert_eq!(some(&[37_100.0, 48.0, 0.0]), ["37.1 ms", "0.0480 ms", "0 ms"]);
        assert_eq!(some(&[37_100.0, 4.8]), ["37,100 µs", "4.80 µs"]);
        assert_eq!(some(&[48.0, 3_003_000.0]), ["0.0480 ms", "3,003 ms"]);
        assert_eq!(some(&[1_500.0, 3_003_000.0]), ["1.50 ms", "3,003 ms"]);
        assert_eq!(some(&[1_000_000.0, 200e6]), ["1.00 s", "200 s"]);
        assert_eq!(times(&[None, Some(5.0)]), [ABSENT, "5.00 µs"]);
        assert_eq!(exact_times(&[37_060.0, 75.12]), ["37.06 ms", "0.07512 ms"]);
        let figures = [Some((850.0, Some([800.0, 1_200.0]))), None, Some((1_120.0, None))];
        let texts: Vec<Option<String>> = Estimate::column(&figures, "us")
            .iter()
            .map(|e| e.as_ref().map(Estimate::text))
            .collect();
        let expected = ["850 [800, 1,200] µs", "1,120 µs"].map(|text| Some(text.to_owned()));
        assert_eq!([texts[0].clone(), texts[2].clone()], expected);
        assert_eq!(texts[1], None);
    }

    #[test]
    fn ticks_are_short() {
        assert_eq!([20.0, 37_050.0, 1e6, 2e9].map(tick), ["20 µs", "37.05 ms", "1 s", "2,000 s"]);
    }

    #[test]
    fn a_distance_has_a_sign() {
        assert_eq!(
            [1.000_3, 0.95, 2.5, 7.0].map(percent_off),
            ["+0.03 %", "-5.0 %", "+150 %", "×7.00"]
        );
    }

    #[test]
    fn metrics_are_written_in_the_readers_unit() {
        assert_eq!(metric(48.1, "us"), "48.1 µs");
        assert_eq!(metric(125_000_000.0, "bytes/s"), "1.00 Gbit/s");
        assert_eq!(metric(13_540.0, "1/s"), "13,540 /s");
    }

    #[test]
    fn durations_are_said_as_one_would() {
        assert_eq!(
            [4.06, 41.2, 125.0, 12_000.0].map(duration),
            ["4.1 s", "41 s", "2 min 5 s", "3 h 20 min"]
        );
    }

    #[test]
    fn an_interval_decides_how_many_digits_are_shown() {
        let text = |value, ci95, unit| Estimate::new(value, ci95, unit).text();
        assert_eq!(text(13_540.4, Some([13_480.0, 13_600.0]), "1/s"), "13,540 [13,480, 13,600] /s");
        assert_eq!(text(37_051.0, Some([37_049.0, 37_054.0]), "us"), "37.051 [37.049, 37.054] ms");
        assert_eq!(text(0.61, None, "1"), "0.610");
        assert_eq!(
            Estimate::signed(2e6, Some([-1e6, 5e6]), "bytes/s").text(),
            "+16.0 [-8.0, 40.0] Mbit/s"
        );
    }

    #[test]
    fn ratios_near_one_show_the_same_decimals() {
        let text = |ratio, ci95| ratio_with_interval(ratio, ci95);
        assert_eq!(text(1.0, [0.98, 1.03]), ("×1.000".to_owned(), "[0.980, 1.030]".to_owned()));
        assert_eq!(text(0.52, [0.51, 0.541]).1, "[0.510, 0.541]");
        assert_eq!(text(0.0031, [0.0001, 5.0]).0, "×0.003");
    }
}
