//! How is a figure written? Three significant digits and a unit; latency in µs below 1 ms and in
//! ms above. Values inside the summary are never rounded.

pub(crate) use tcptoll_model::units::{
    human_count as count, human_rate as bit_rate, human_us as time,
};

/// Shown where there is no figure.
pub(crate) const ABSENT: &str = "—";

/// Three significant digits, thousands grouped: `0.0201`, `8.10`, `37.1`, `1,003`.
///
/// Whole numbers of four digits and more keep them all. Not a number gives [`ABSENT`].
pub(crate) fn three(value: f64) -> String {
    significant(value, 3)
}

/// As [`three`], with `digits` significant digits (1 to 9).
pub(crate) fn significant(value: f64, digits: u8) -> String {
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

/// Unit of a latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeUnit {
    /// Microseconds.
    Micro,
    /// Milliseconds.
    Milli,
}

impl TimeUnit {
    /// For one value of `us` microseconds.
    pub(crate) fn of(us: f64) -> Self {
        // 999.6 would be written 1,000 µs.
        if us.abs() < 999.5 { Self::Micro } else { Self::Milli }
    }

    /// For a row of values: that of the first, unless the largest would be unreadable in it.
    pub(crate) fn of_row(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values = values.into_iter();
        let Some(first) = values.next() else { return Self::Micro };
        if values.any(|us| us >= 99_999.5) { Self::Milli } else { Self::of(first) }
    }

    /// `µs` or `ms`.
    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Self::Micro => "µs",
            Self::Milli => "ms",
        }
    }

    /// The figure in this unit, without it.
    pub(crate) fn figure(self, us: f64) -> String {
        three(match self {
            Self::Micro => us,
            Self::Milli => us / 1_000.0,
        })
    }
}

/// A latency to be compared with another: one digit more than [`time`], `37.06 ms`.
pub(crate) fn exact_time(us: f64) -> String {
    let unit = TimeUnit::of(us);
    let value = if unit == TimeUnit::Milli { us / 1_000.0 } else { us };
    format!("{} {}", significant(value, 4), unit.symbol())
}

/// [`time`], or [`ABSENT`].
pub(crate) fn time_or_absent(us: Option<f64>) -> String {
    us.map_or_else(|| ABSENT.to_owned(), time)
}

/// A latency for the tick of an axis: without needless zeros, in s from one second on.
pub(crate) fn tick(us: f64) -> String {
    let (value, unit) = match us {
        us if us >= 999_999.0 => (us / 1e6, "s"),
        us if us >= 999.999 => (us / 1e3, "ms"),
        us => (us, "µs"),
    };
    let text = format!("{value:.4}");
    format!("{} {unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// A small factor without needless zeros: `1`, `1.5`.
pub(crate) fn trimmed(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A ratio for the tick of an axis: `0.98`, `1,000`.
pub(crate) fn trimmed_ratio(value: f64) -> String {
    if value >= 100.0 {
        return three(value);
    }
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Bytes, 1024-based: `3.82 GiB`.
pub(crate) fn bytes(value: u64) -> String {
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

/// A value of a metric with its unit, as [`tcptoll_model::record::Metric`] names it.
pub(crate) fn metric(value: f64, unit: &str) -> String {
    match unit {
        "us" | "µs" => time(value),
        "bytes" => bytes(value.max(0.0) as u64),
        "bytes/s" | "bytes_per_s" => bit_rate(value * 8.0),
        "" | "1" => three(value),
        "1/s" => format!("{} /s", three(value)),
        unit => format!("{} {unit}", three(value)),
    }
}

/// Distance from 1 in percent with its sign: `+0.03 %`; from three times on, the ratio.
pub(crate) fn percent_off(ratio: f64) -> String {
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
pub(crate) fn percent(share: f64) -> String {
    format!("{} %", three(share * 100.0))
}

/// A ratio: `×1.03`.
pub(crate) fn ratio(value: f64) -> String {
    format!("×{}", three(value))
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
        assert_eq!(TimeUnit::of_row([48.0, 3_003_000.0]).figure(48.0), "0.0480");
    }

    #[test]
    fn ticks_are_short() {
        assert_eq!([20.0, 37_050.0, 1e6].map(tick), ["20 µs", "37.05 ms", "1 s"]);
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
}
