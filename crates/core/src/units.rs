//! How do times, rates, sizes, shares and counts read on the command line?
//!
//! Sizes are 1024-based (`K`, `M`, `G`), rates 1000-based (`kbit`, `mbit`, `gbit`), as in tc and in
//! datasheets. Nothing here knows what a quantity is for; [`crate::link`] does.

use std::fmt;
use std::time::Duration;

use crate::number;

/// The longest time that is read: a day.
pub const TIME_MAX: Duration = Duration::from_hours(24);

/// The highest rate that is read, bit/s.
pub const RATE_MAX_BIT_PER_S: f64 = 1e12;

/// The longest piece of the user's text that a message repeats.
const ECHO_MAX: usize = 60;

/// A text that is not the quantity it should be. Displays as one sentence that says what to write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}: {remedy}")]
pub struct UnitError {
    problem: String,
    remedy: String,
}

impl UnitError {
    /// What is wrong: `"37parsecs" is not a time`.
    pub fn problem(&self) -> &str {
        &self.problem
    }

    /// What to write: `write a number with ns, us, ms, s, m or h, like 37ms`.
    pub fn remedy(&self) -> &str {
        &self.remedy
    }

    pub(crate) fn new(text: &str, problem: impl fmt::Display, remedy: &str) -> Self {
        Self { problem: format!("\"{}\" {problem}", echo(text)), remedy: remedy.to_owned() }
    }
}

/// The user's text as a message may repeat it: printable, not long.
#[must_use]
pub fn echo(text: &str) -> String {
    let text = crate::printable::line(text);
    let mut shown: String = text.chars().take(ECHO_MAX).collect();
    if text.chars().nth(ECHO_MAX).is_some() {
        shown.push('…');
    }
    shown
}

/// Splits `37ms` into 37 and `ms`; `None` if it does not begin with a plain decimal number.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let value: f64 = number.parse().ok()?; // at most one point: `1.2.3` is refused here
    value.is_finite().then_some((value, unit.trim()))
}

/// Reads a time: `37ms`, `0.25ms`, `1s`, `500us`, `2m`, `1h`; a bare `0` needs no unit.
///
/// Range: 0 to [`TIME_MAX`], rounded to the nearest ns.
/// Errors: no number, no unit, an unknown unit, a time above the range.
pub fn parse_time(text: &str) -> Result<Duration, UnitError> {
    const REMEDY: &str = "write a number with ns, us, ms, s, m or h, like 37ms";
    let (value, unit) = split(text).ok_or_else(|| UnitError::new(text, "is not a time", REMEDY))?;
    let ns_per_unit = match unit {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" | "min" => 60e9,
        "h" => 3600e9,
        "" if value == 0.0 => 1.0,
        "" => return Err(UnitError::new(text, "has no unit", REMEDY)),
        _ => return Err(UnitError::new(text, "is not a time", REMEDY)),
    };
    let ns = (value * ns_per_unit).round();
    if ns > TIME_MAX.as_nanos() as f64 {
        return Err(UnitError::new(text, "is longer than a day", "write a time of at most 24h"));
    }
    Ok(Duration::from_nanos(ns as u64))
}

/// Reads a rate in bit/s: `1gbit`, `100mbit`, `64kbit`, `10.5mbit`, `9600bit`; 1000-based.
///
/// Range: above 0 and at most [`RATE_MAX_BIT_PER_S`], rounded to a thousandth of a bit per second.
/// Errors: no number, no unit, an unknown unit, a rate outside the range.
pub fn parse_rate(text: &str) -> Result<f64, UnitError> {
    const REMEDY: &str = "write a number with bit, kbit, mbit or gbit (per second), like 100mbit";
    let (value, unit) = split(text).ok_or_else(|| UnitError::new(text, "is not a rate", REMEDY))?;
    let bit_per_unit = match unit.to_ascii_lowercase().as_str() {
        "bit" => 1.0,
        "kbit" => 1e3,
        "mbit" => 1e6,
        "gbit" => 1e9,
        "" => return Err(UnitError::new(text, "has no unit", REMEDY)),
        _ => return Err(UnitError::new(text, "is not a rate", REMEDY)),
    };
    let bit_per_s = (value * bit_per_unit * 1e3).round() / 1e3;
    if bit_per_s <= 0.0 {
        return Err(UnitError::new(text, "is too low", "write a rate above 0, like 64kbit"));
    }
    if bit_per_s > RATE_MAX_BIT_PER_S {
        return Err(UnitError::new(text, "is too fast", "write a rate of at most 1000gbit"));
    }
    Ok(bit_per_s)
}

/// Reads a size in bytes: `16K`, `1M`, `2G`, `1500`, `1.5K`; 1024-based, a trailing `B` is allowed.
///
/// Errors: no number, an unknown unit, a fraction of a byte, a size above 2^53.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    const REMEDY: &str = "write whole bytes, or a number with K, M or G (1024-based), like 64K";
    let not = || UnitError::new(text, "is not a size", REMEDY);
    let (value, unit) = split(text).ok_or_else(not)?;
    let bytes_per_unit = match unit.to_ascii_uppercase().as_str() {
        "" | "B" => 1_u64,
        "K" | "KB" => 1 << 10,
        "M" | "MB" => 1 << 20,
        "G" | "GB" => 1 << 30,
        _ => return Err(not()),
    };
    whole(value * bytes_per_unit as f64).ok_or_else(not)
}

/// Reads a share: `0.1%` is 0.001; a bare `0` needs no unit. `0.1` may mean a tenth or a thousandth:
/// it is refused.
///
/// Range: 0 to 1. Errors: not a number, no unit, or outside the range.
pub fn parse_share(text: &str) -> Result<f64, UnitError> {
    const REMEDY: &str = "write a percentage from 0% to 100%, like 0.1%";
    let (value, unit) =
        split(text).ok_or_else(|| UnitError::new(text, "is not a percentage", REMEDY))?;
    let share = match unit {
        "%" => value / 100.0,
        "" if value == 0.0 => 0.0,
        "" if value <= 1.0 => {
            let percent = (value * 1e12).round() / 1e10;
            let problem = format!("has no unit; write {value}% or {percent}%");
            return Err(UnitError::new(text, problem, REMEDY));
        }
        "" => {
            let problem = format!("has no unit; write {value}%");
            return Err(UnitError::new(text, problem, REMEDY));
        }
        _ => return Err(UnitError::new(text, "is not a percentage", REMEDY)),
    };
    if share > 1.0 {
        return Err(UnitError::new(text, "is more than 100%", REMEDY));
    }
    Ok(share)
}

/// Reads a count: `50000`, `50_000`, `50k`, `2M`; 1000-based. Commas separate lists, not digits.
///
/// Range: 0 to 2^53. Errors: not a number, an unknown unit, a fraction.
pub fn parse_count(text: &str) -> Result<u64, UnitError> {
    const REMEDY: &str = "write a whole number, like 50000, 50_000 or 50k";
    let not = || UnitError::new(text, "is not a count", REMEDY);
    if text.trim().starts_with('_') {
        return Err(not());
    }
    let digits = text.replace('_', "");
    let (value, unit) = split(&digits).ok_or_else(not)?;
    let per_unit = match unit {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        _ => return Err(not()),
    };
    whole(value * per_unit).ok_or_else(not)
}

/// The whole number that `value` is; `None` for a fraction or above 2^53, where f64 has gaps.
fn whole(value: f64) -> Option<u64> {
    let nearest = value.round();
    let is_whole = (value - nearest).abs() <= 1e-9 * nearest.max(1.0) && nearest <= 2f64.powi(53);
    is_whole.then_some(nearest as u64)
}

/// The time as [`parse_time`] reads it, exact, in the largest unit that it fills: `37ms`, `250us`,
/// `1.65ms`, `90s`, `0s`.
#[must_use]
pub fn text_time(d: Duration) -> String {
    let ns = d.as_nanos();
    let (unit, per_unit) = match ns {
        0 => return "0s".to_owned(),
        1..1_000 => ("ns", 1),
        1_000..1_000_000 => ("us", 1_000),
        1_000_000..1_000_000_000 => ("ms", 1_000_000),
        _ => ("s", 1_000_000_000_u128),
    };
    let digits = per_unit.ilog10() as usize;
    let fraction = format!("{:0digits$}", ns % per_unit);
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{}{point}{fraction}{unit}", ns / per_unit)
}

/// A size as [`parse_size`] reads it, exact, in the largest unit that divides it: `16K`, `4M`, `1500`.
#[must_use]
pub fn text_size(bytes: u64) -> String {
    let units = [("G", 1_u64 << 30), ("M", 1 << 20), ("K", 1 << 10)];
    let unit = units.into_iter().find(|(_, size)| bytes > 0 && bytes.is_multiple_of(*size));
    unit.map_or_else(|| bytes.to_string(), |(unit, size)| format!("{}{unit}", bytes / size))
}

/// An address with its port: `10.0.0.7:80`, `[fd00::7]:80`.
pub fn host_port(address: &str, port: u16) -> String {
    if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}

/// The first sentence of a text, with its full stop.
#[must_use]
pub fn first_sentence(text: &str) -> &str {
    let end = text
        .match_indices(". ")
        .find(|(at, _)| text[at + 2..].starts_with(char::is_uppercase))
        .map_or(text.len(), |(at, _)| at + 1);
    &text[..end]
}

/// The first letter as a capital.
pub fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// A time as orders have it, ns; 584 years at most.
pub fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A count and what is counted: `1 CPU`, `2 CPUs`, `1,024 listeners`.
#[must_use]
pub fn plural(n: u64, word: &str) -> String {
    format!("{} {word}{}", number::count(n), if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_are_read_to_the_nanosecond() {
        let cases = [
            ("37ms", 37_000_000),
            ("0.25ms", 250_000),
            ("1.65ms", 1_650_000),
            ("1s", 1_000_000_000),
            ("500us", 500_000),
            ("500µs", 500_000),
            ("7ns", 7),
            ("2m", 120_000_000_000),
            ("1h", 3_600_000_000_000),
            ("24h", 86_400_000_000_000),
            ("0", 0),
            ("0ms", 0),
        ];
        for (text, ns) in cases {
            assert_eq!(parse_time(text), Ok(Duration::from_nanos(ns)), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_told_what_to_write() {
        assert_eq!(
            parse_time("37parsecs").unwrap_err().to_string(),
            "\"37parsecs\" is not a time: write a number with ns, us, ms, s, m or h, like 37ms"
        );
        assert_eq!(parse_time("37").unwrap_err().problem(), "\"37\" has no unit");
        assert_eq!(parse_time("25h").unwrap_err().problem(), "\"25h\" is longer than a day");
        for text in ["", "ms", "-1ms", "+1ms", "nan", "inf", "1.2.3s", ".s", "1 000ms", "1e3ms"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn messages_repeat_neither_control_characters_nor_pages_of_text() {
        let error = parse_time(&format!("\u{1b}[31m{}", "x".repeat(10_000))).unwrap_err();
        assert!(error.problem().chars().count() < 100, "{error}");
        assert!(!error.problem().contains('\u{1b}'), "{error}");
    }

    #[test]
    fn rates_are_decimal() {
        let cases = [
            ("1gbit", 1e9),
            ("100mbit", 1e8),
            ("64kbit", 64e3),
            ("10.5mbit", 10.5e6),
            ("9600bit", 9600.0),
            ("1.1gbit", 1.1e9),
            ("1Gbit", 1e9),
            ("1000gbit", 1e12),
        ];
        for (text, rate) in cases {
            assert_eq!(parse_rate(text), Ok(rate), "{text}");
        }
        assert_eq!(parse_rate("100").unwrap_err().problem(), "\"100\" has no unit");
        for text in ["0mbit", "-1mbit", "0.0001bit", "1001gbit", "1MB", "fast", ""] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_binary_and_counts_decimal() {
        assert_eq!(parse_size("16K"), Ok(16_384));
        assert_eq!(parse_size("1M"), Ok(1_048_576));
        assert_eq!(parse_size("2G"), Ok(2_147_483_648));
        assert_eq!(parse_size("1500"), Ok(1500));
        assert_eq!(parse_size("64KB"), Ok(65_536));
        assert_eq!(parse_size("1.5k"), Ok(1536));
        assert_eq!(parse_count("50k"), Ok(50_000));
        assert_eq!(parse_count("50_000"), Ok(50_000));
        assert_eq!(parse_count("2.3k"), Ok(2_300));
        assert_eq!(parse_count("1M"), Ok(1_000_000));
        for text in ["", "K", "-1", "1.3", "1X", "9999999999G"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
        for text in ["", "50,000", "-1", "1.5", "_5", "5m", "99999999999999999999"] {
            assert!(parse_count(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shares_are_percentages_and_a_bare_number_is_refused_with_both_that_it_may_mean() {
        assert_eq!(parse_share("0.1%"), Ok(0.001));
        assert_eq!(parse_share("100%"), Ok(1.0));
        assert_eq!(parse_share("0"), Ok(0.0));
        for text in ["101%", "2", "-1%", "%", "half"] {
            assert!(parse_share(text).is_err(), "{text}");
        }
        for (text, says) in [
            ("0.1", "\"0.1\" has no unit; write 0.1% or 10%: write a percentage from 0%"),
            ("0.07", "\"0.07\" has no unit; write 0.07% or 7%"),
            ("1", "\"1\" has no unit; write 1% or 100%"),
            ("5", "\"5\" has no unit; write 5%"),
        ] {
            let error = parse_share(text).unwrap_err().to_string();
            assert!(error.starts_with(says), "{error}");
        }
    }

    #[test]
    fn times_are_written_as_short_as_they_are_exact() {
        let texts = ["37ms", "250us", "1.65ms", "1.5s", "120s", "1.234567ms", "7ns", "0s"];
        for text in texts {
            assert_eq!(text_time(parse_time(text).unwrap()), text);
        }
    }

    proptest! {
        #[test]
        fn a_time_written_is_the_time_read(ns in 0..=86_400_000_000_000_u64) {
            let time = Duration::from_nanos(ns);
            prop_assert_eq!(parse_time(&text_time(time)), Ok(time));
        }

        #[test]
        fn no_text_makes_a_reader_panic(text in ".{0,40}") {
            let _ = (parse_time(&text), parse_rate(&text), parse_size(&text));
            let _ = (parse_share(&text), parse_count(&text));
        }
    }

    #[test]
    fn a_sentence_ends_before_the_next_capital() {
        assert_eq!(first_sentence("Linux 6.1 vs. 5.4. Next."), "Linux 6.1 vs. 5.4.");
        assert_eq!(first_sentence("Only one."), "Only one.");
    }
}
