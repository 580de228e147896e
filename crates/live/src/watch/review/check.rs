//! Whether a watch can have written a line.

use std::fmt;

use crate::watch::record::{
    DiagnosisPart, Interval, ListenerPart, WatchHeader, WatchSummary, is_rfc3339,
};

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
