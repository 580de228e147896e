//! How is a figure with its interval written?

use super::{ABSENT, TEN_SECONDS_US, TimeUnit, group};

/// A figure and its 95 % interval, if there is one.
type WithInterval = (f64, Option<[f64; 2]>);

/// A figure with its interval, all in one unit and with the same decimals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// The figure, without unit.
    pub value: String,
    /// Its interval: `[13,480, 13,600]`.
    pub ci95: Option<String>,
    /// The unit; empty if there is none.
    pub symbol: String,
}

impl Estimate {
    /// Three digits, or as many as the width of the interval gives a meaning to.
    pub fn new(value: f64, ci95: Option<[f64; 2]>, unit: &str) -> Self {
        Self::within(value, ci95, unit, None)
    }

    /// A column of figures, each with its interval; times are all in one unit.
    pub fn column(figures: &[Option<WithInterval>], unit: &str) -> Vec<Option<Self>> {
        let time = is_time(unit)
            .then(|| TimeUnit::of_column(figures.iter().flatten().map(|(value, _)| *value)));
        let cell = |(value, ci95): (f64, _)| Self::within(value, ci95, unit, time);
        figures.iter().map(|figure| figure.map(cell)).collect()
    }

    /// The figure in the unit of its column, if it has one.
    pub fn within(
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
    pub fn signed(value: f64, ci95: Option<[f64; 2]>, unit: &str) -> Self {
        let mut estimate = Self::new(value, ci95, unit);
        if value > 0.0 {
            estimate.value.insert(0, '+');
        }
        estimate
    }

    /// `13,540 [13,480, 13,600] /s`.
    pub fn text(&self) -> String {
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
pub fn is_time(unit: &str) -> bool {
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
pub fn ratio_with_interval(ratio: f64, ci95: [f64; 2]) -> (String, String) {
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
