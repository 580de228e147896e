//! Whether a watch can have written a line.

use std::fmt;

use super::{DiagnosisPart, Interval, ListenerPart, WatchHeader, WatchSummary};

/// No watch lasts longer, s: 317 years.
const TIME_MAX_S: f64 = 1e10;
/// No count and no rate is greater.
const COUNT_MAX: f64 = 1e18;
/// The longest time between two looks that may be asked for, s: far beyond the limit of `--interval`.
const INTERVAL_MAX_S: f64 = 1e6;
/// Times are written with milliseconds and the length of each look's interval with microseconds, so sums
/// differ: by this, and by [`ROUNDING_LOOK_S`] for each look.
const ROUNDING_S: f64 = 0.01;
const ROUNDING_LOOK_S: f64 = 1e-6;
const SUSPENDED_ROUNDING_S: f64 = 1.0;
/// The shortest time between two looks, s: far below the least `--interval`.
const LOOK_MIN_S: f64 = 1e-3;
/// A text of a record is quoted up to this many characters.
const QUOTED_MAX: usize = 40;

/// Why a line cannot be of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit(pub(super) String);

impl fmt::Display for Misfit {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

impl From<&str> for Misfit {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

/// A figure between two others.
fn within(field: &str, value: f64, [least, most]: [f64; 2]) -> Result<(), Misfit> {
    // Not a number is in no range.
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let [value, least, most] = [value, least, most].map(figure);
    Err(Misfit(format!("{field} is {value}, which is outside {least} to {most}")))
}

/// A figure in few characters: six decimals, and powers of ten where it is large.
fn figure(value: f64) -> String {
    if value.abs() < 1e6 { ((value * 1e6).round() / 1e6).to_string() } else { format!("{value:e}") }
}

/// A length of time, or a moment since the watch began.
fn time(field: &str, s: f64) -> Result<(), Misfit> {
    within(field, s, [0.0, TIME_MAX_S])
}

/// A count, or a rate per second.
fn count(field: &str, value: f64) -> Result<(), Misfit> {
    within(field, value, [0.0, COUNT_MAX])
}

/// A time of day with its date.
fn wall_clock(field: &str, text: &str) -> Result<(), Misfit> {
    if is_rfc3339(text) {
        return Ok(());
    }
    let shown: String = text.chars().take(QUOTED_MAX).collect();
    Err(Misfit(format!("{field} is {shown:?}, which is not a time like 2026-11-23T08:42:54Z")))
}

/// The first line.
pub(super) fn header(header: &WatchHeader) -> Result<(), Misfit> {
    if header.record_version == 0 {
        return Err(Misfit::from("record_version is 0, but the first version is 1"));
    }
    wall_clock("started_at", &header.started_at)?;
    within("interval_s", header.interval_s, [1e-3, INTERVAL_MAX_S])
}

/// The last line.
pub(super) fn summary(summary: &WatchSummary) -> Result<(), Misfit> {
    time("lasted_s", summary.lasted_s)
}

/// An interval after the one that ended at `last_s`, when the machine had been suspended for `suspended_s`.
pub(super) fn interval(interval: &Interval, last_s: f64, suspended_s: f64) -> Result<(), Misfit> {
    let Interval { at_s, interval_s, .. } = *interval;
    wall_clock("time", &interval.time)?;
    time("at_s", at_s)?;
    if at_s + 1e-6 < last_s {
        let order = format!("at_s is {at_s}, but the line before ends at {last_s}");
        return Err(Misfit(order));
    }
    if interval.looks == 0 {
        return Err(Misfit::from("looks is 0, but each line has at least one look"));
    }
    let rounding_s = ROUNDING_S + ROUNDING_LOOK_S * f64::from(interval.looks);
    // It begins where the one before it ended.
    within("interval_s", interval_s, [0.0, at_s - last_s + rounding_s])?;
    within("longest_s", interval.longest_s(), [0.0, interval_s + rounding_s])?;
    within("counted_s", interval.counted_s(), [0.0, interval_s + rounding_s])?;
    let looks = f64::from(interval.looks);
    within("looks", looks, [1.0, 1.0 + interval_s / LOOK_MIN_S])?;
    time("suspended_s", interval.suspended_s)?;
    // It may be read some time after the look, so of the newest line it is not known whether it fits.
    within("suspended_s of the lines before", suspended_s, [0.0, at_s + SUSPENDED_ROUNDING_S])?;
    for (name, peak) in &interval.peak_per_s {
        let name: String = name.chars().take(QUOTED_MAX).collect();
        count(&format!("peak_per_s of {name:?}"), *peak)?;
    }
    if let Some(others) = &interval.others {
        count("overflows of others", others.overflows.0)?;
    }
    interval.listeners.iter().try_for_each(listener)?;
    interval.diagnoses.iter().try_for_each(diagnosis)
}

fn listener(part: &ListenerPart) -> Result<(), Misfit> {
    let field_name = |field: &str| format!("{field} of listener {}", part.n);
    count(&field_name("overflows"), part.overflows.0)?;
    time(&field_name("unknown_s"), part.unknown_s)?;
    count(&field_name("drops_peak_per_s"), part.drops_peak_per_s.unwrap_or(0.0))?;
    count(&field_name("overflows_peak_per_s"), part.overflows_peak_per_s.unwrap_or(0.0))
}

fn diagnosis(part: &DiagnosisPart) -> Result<(), Misfit> {
    let field_name = |field: &str| format!("{field} of diagnosis {}", part.n);
    time(&field_name("to_s"), part.to_s)?;
    time(&field_name("active_s"), part.active_s)?;
    // That of the first look may begin before the watch by the rounding.
    within(&field_name("from_s"), part.from_s, [-1.0, part.to_s])
}

/// Days of the months of a year that is no leap year.
const DAYS: [u32; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/// Whether a text is a time of RFC 3339 from 1970 on, like `2026-11-23T08:42:54.011Z`.
fn is_rfc3339(text: &str) -> bool {
    // Everything before the zone and the fraction has a fixed length.
    let Some((date, rest)) = text.split_at_checked(19) else { return false };
    let place = |at: usize, c: u8| date.as_bytes()[at] == c;
    if ![(4, b'-'), (7, b'-'), (13, b':'), (16, b':')].iter().all(|(at, c)| place(*at, *c))
        || !matches!(date.as_bytes()[10], b'T' | b't' | b' ')
    {
        return false;
    }
    let number = |from: usize, to: usize| digits(date.get(from..to)?);
    let Some((year, month, day)) = number(0, 4).zip(number(5, 7)).zip(number(8, 10)).map(flat)
    else {
        return false;
    };
    let Some((hour, minute, second)) =
        number(11, 13).zip(number(14, 16)).zip(number(17, 19)).map(flat)
    else {
        return false;
    };
    let leap = year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let days = match month {
        2 if leap => 29,
        1..=12 => DAYS[month as usize - 1],
        _ => return false,
    };
    // A leap second is 60.
    let fits = hour < 24 && minute < 60 && second <= 60;
    year >= 1970 && (1..=days).contains(&day) && fits && is_zone(fraction(rest))
}

fn flat(((a, b), c): ((u32, u32), u32)) -> (u32, u32, u32) {
    (a, b, c)
}

/// A number of at most nine digits and nothing else.
fn digits(text: &str) -> Option<u32> {
    let all = !text.is_empty() && text.len() <= 9 && text.bytes().all(|c| c.is_ascii_digit());
    if all { text.parse().ok() } else { None }
}

/// What follows a fraction of one to nine digits, if there is one.
fn fraction(text: &str) -> &str {
    let Some(after) = text.strip_prefix('.') else { return text };
    let rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
    if (1..=9).contains(&(after.len() - rest.len())) { rest } else { text }
}

/// `Z`, `+01:00`.
fn is_zone(text: &str) -> bool {
    if matches!(text, "Z" | "z") {
        return true;
    }
    let Some(offset) = text.strip_prefix(['+', '-']) else { return false };
    let Some((hours, minutes)) = offset.split_once(':') else { return false };
    let below = |text: &str, most: u32| text.len() == 2 && digits(text).is_some_and(|n| n < most);
    below(hours, 24) && below(minutes, 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_date_with_a_clock_and_a_zone() {
        for text in [
            "2026-11-23T08:42:54.011Z",
            "2026-11-23T08:42:54Z",
            "1970-01-01T00:00:00Z",
            "2024-02-29T23:59:60.123456789+14:00",
            "2026-11-23 08:42:54-05:30",
        ] {
            assert!(is_rfc3339(text), "{text}");
        }
    }

    #[test]
    fn what_is_no_date_of_a_calendar_is_no_time() {
        for text in [
            "",
            "now",
            "-9999-01-01T00:00:00Z",
            "-009999-01-01T00:00:00Z",
            "1969-12-31T23:59:59Z",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-01-32T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:60:00Z",
            "2026-01-01T00:00:61Z",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00.1234567890Z",
            "2026-01-01T00:00:00+24:00",
            "2026-01-01T00:00:00+1:00",
            "2026-01-01T00:00:00Z\n",
            "2026-01-01T+1:00:00Z",
            "12026-01-01T00:00:00Z",
            "\u{661}\u{661}26-01-01T00:00:00Z",
        ] {
            assert!(!is_rfc3339(text), "{text}");
        }
    }
}
