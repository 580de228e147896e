//! The record of a watch for a reader: what was wrong when, on top; then where, and how much.
//!
//! `tables` has words and figures, `pictures` the curves, `sheet` their order; times of day are
//! told by [`Clock`], and [`WatchCsv`] is the record as one tidy table.

mod pictures;
mod sheet;
mod tables;

use std::collections::BTreeMap;
use std::path::Path;

use jiff::Timestamp;
use jiff::tz::Offset;

use tcptoll_core::sheet::Sheet;
use tcptoll_core::units::host_port;
use tcptoll_show::csv::{guarded, write};

use super::{Counted, Interval, Review, Series, WatchLine};

/// The record of a watch, summed up.
#[derive(Clone, Debug)]
pub struct Watched<'a> {
    /// What it says.
    pub review: &'a Review,
    /// The time of day that times are shown in.
    pub clock: Clock,
    /// Where the record is; it is shown, not opened.
    pub record: Option<&'a Path>,
}

/// A review with the time of day of its moments.
struct Dated<'a> {
    review: &'a Review,
    clock: &'a Clock,
    /// Whether times need their date.
    days: bool,
}

impl Dated<'_> {
    /// The time of day of a moment of the watch.
    fn at(&self, at_s: f64) -> String {
        self.clock.text(at_s, self.days)
    }
}

/// What there is to see of the record of a watch; with `series` also what a page draws.
#[must_use]
pub fn watch_sheet(watched: &Watched<'_>, series: Option<&Series>) -> Sheet {
    let Watched { review, clock, record } = watched;
    let days = clock.day(0.0) != clock.day(review.lasted_s);
    sheet::build(&Dated { review, clock, days }, *record, series)
}

/// Heads of the columns.
const HEADS: [&str; 9] =
    ["time", "at_s", "interval_s", "looks", "kind", "subject", "metric", "unit", "value"];
/// Listeners that are remembered, at most.
const LISTENERS_MAX: usize = 65_536;

/// Turns lines of a record into rows: a row per interval, subject and metric.
///
/// Shape:   `kind` is `host`, `listener`, `destination` or `diagnosis`; `subject` is empty for `host`.
///          Counts are sums over the interval; a count of 0 and a listener without a queue or a drop have no
///          row. A diagnosis has a row while it lasts, with the time that it was active.
/// Unit:    that of `unit`.
/// None:    no row.
///
/// Text that a spreadsheet would take for a formula begins with an apostrophe.
#[derive(Clone, Debug, Default)]
pub struct WatchCsv {
    listeners: BTreeMap<u32, String>,
    diagnoses: BTreeMap<u32, String>,
}

impl WatchCsv {
    /// The first line.
    #[must_use]
    pub fn head() -> String {
        write(std::iter::once(HEADS.map(str::to_owned).to_vec()))
    }

    /// The rows of a line; none for a line that describes something.
    #[must_use]
    pub fn rows(&mut self, line: &WatchLine) -> String {
        match line {
            WatchLine::Listener(line) => {
                if self.listeners.len() >= LISTENERS_MAX {
                    self.listeners.pop_first();
                }
                self.listeners.insert(line.n, host_port(&line.address, line.port));
            }
            WatchLine::Diagnosis(line) => {
                let about = format!("{} {}", line.diagnosis.id, line.diagnosis.subject);
                self.diagnoses.insert(line.n, about);
            }
            WatchLine::State(interval) => return self.interval(interval),
            _ => {}
        }
        String::new()
    }

    fn interval(&self, interval: &Interval) -> String {
        let begin = [
            guarded(&tcptoll_show::printable_line(&interval.time)),
            interval.at_s.to_string(),
            interval.interval_s.to_string(),
            interval.looks.to_string(),
        ];
        let mut rows = Vec::new();
        let mut put = |kind: &str, subject: &str, metric: &str, unit: &str, value: f64| {
            let mut row = begin.to_vec();
            row.extend([kind.to_owned(), guarded(&tcptoll_show::printable_line(subject))]);
            row.extend([
                guarded(&tcptoll_show::printable_line(metric)),
                unit.to_owned(),
                value.to_string(),
            ]);
            rows.push(row);
        };
        for (name, count) in interval.all_counts() {
            put("host", "", name, "", count as f64);
        }
        for (name, peak) in &interval.peak_per_s {
            put("host", "", &format!("{name}_peak"), "1/s", *peak);
        }
        let Counted { sockets, time_wait, orphans, memory_bytes, tracked } = &interval.levels;
        for (name, unit, level) in [
            ("sockets", "", sockets),
            ("time_wait", "", time_wait),
            ("orphans", "", orphans),
            ("memory", "bytes", memory_bytes),
            ("tracked", "", tracked),
        ] {
            if let Some(level) = level {
                put("host", "", name, unit, *level as f64);
            }
        }
        for (state, sockets) in &interval.states {
            put("host", "", &format!("sockets {state}"), "", *sockets as f64);
        }
        if interval.suspended_s > 0.0 {
            put("host", "", "suspended", "s", interval.suspended_s);
        }
        for part in &interval.listeners {
            let subject = self.listeners.get(&part.n).map_or("?", String::as_str);
            put("listener", subject, "accept_queue_peak", "", part.queue.into());
            for (name, count) in [("drops", part.drops as f64), ("overflows", part.overflows.0)] {
                if count > 0.0 {
                    put("listener", subject, name, "", count);
                }
            }
        }
        for one in &interval.destinations {
            put("destination", &one.to, "ports_in_use", "", one.ports_in_use.into());
            put("destination", &one.to, "time_wait", "", one.time_wait.into());
            if let Some(left) = one.ports_left {
                put("destination", &one.to, "ports_left", "", left.into());
            }
        }
        for part in &interval.diagnoses {
            let subject = self.diagnoses.get(&part.n).map_or("?", String::as_str);
            put("diagnosis", subject, "active", "s", part.active_s);
        }
        write(rows.into_iter())
    }
}

/// The time of day that a watch is shown in.
#[derive(Clone, Debug, PartialEq)]
pub struct Clock {
    /// When the watch began, s since the beginning of 1970 in UTC.
    pub began_unix_s: f64,
    /// Offset from UTC, s, as it was when the watch began.
    pub offset_s: i32,
    /// Name of the zone, like `CET`.
    pub zone: String,
}

const DAY_S: i64 = 86_400;

impl Clock {
    /// Seconds of the local clock since the beginning of 1970.
    fn local(&self, at_s: f64) -> i64 {
        // Beyond the year 9999 nothing is recorded: a file may say so all the same.
        (self.began_unix_s + at_s).clamp(-6e10, 2.5e11).floor() as i64 + i64::from(self.offset_s)
    }

    /// Number of the day.
    pub(super) fn day(&self, at_s: f64) -> i64 {
        self.local(at_s).div_euclid(DAY_S)
    }

    /// Seconds of the local clock at the beginning of the watch, for round ticks.
    pub(super) fn second_of_day(&self) -> f64 {
        self.local(0.0).rem_euclid(DAY_S) as f64 + self.began_unix_s.rem_euclid(1.0)
    }

    /// As [`jiff::fmt::strtime`] has it.
    pub(super) fn written(&self, at_s: f64, format: &str) -> String {
        let local = Timestamp::from_second(self.local(at_s)).unwrap_or_default();
        Offset::UTC.to_datetime(local).strftime(format).to_string()
    }

    /// `03:12:05`, or with its day `24 Nov 03:12:05`.
    pub(super) fn text(&self, at_s: f64, with_day: bool) -> String {
        self.written(at_s, if with_day { "%-d %b %H:%M:%S" } else { "%H:%M:%S" })
    }

    /// `24 Nov 2026`.
    pub(super) fn date_text(&self, at_s: f64) -> String {
        self.written(at_s, "%-d %b %Y")
    }
}

#[cfg(test)]
mod tests {
    use super::super::ListenerLine;
    use super::*;

    #[test]
    fn a_hostile_name_is_neither_a_formula_nor_a_second_row() {
        let mut table = WatchCsv::default();
        let line = ListenerLine { address: "=1+1\n\u{1b}[2J".into(), ..ListenerLine::default() };
        assert_eq!(table.rows(&WatchLine::Listener(Box::new(line))), "");
        let text = r#"{"line":"state","time":"@now","at_s":1.5,"interval_s":1.0,
            "counts":{"overflows":7},"levels":{"sockets":3},"listeners":[{"n":0,"queue":6,"overflows":7}]}"#;
        let rows = table.rows(&serde_json::from_str(text).unwrap());
        assert_eq!(
            rows,
            "'@now,1.5,1,1,host,,overflows,,7\n'@now,1.5,1,1,host,,sockets,,3\n\
             '@now,1.5,1,1,listener,'=1+1 ·[2J:0,accept_queue_peak,,6\n\
             '@now,1.5,1,1,listener,'=1+1 ·[2J:0,overflows,,7\n"
        );
    }

    fn at(unix_s: f64, offset_s: i32) -> Clock {
        Clock { began_unix_s: unix_s, offset_s, zone: "CET".into() }
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (unix_s, date) in [
            (0.0, "1 Jan 1970"),
            (951_782_400.0, "29 Feb 2000"),
            (1_795_420_799.0, "23 Nov 2026"),
            (1_798_761_599.0, "31 Dec 2026"),
            (1_798_761_600.0, "1 Jan 2027"),
            (-1.0, "31 Dec 1969"),
        ] {
            assert_eq!(at(unix_s, 0).date_text(0.0), date, "{unix_s}");
        }
    }

    #[test]
    fn a_zone_moves_the_day() {
        let clock = at(1_795_433_400.0, 3_600);
        assert_eq!(clock.text(0.0, true), "23 Nov 12:30:00");
        assert_eq!(clock.text(43_200.0, true), "24 Nov 00:30:00");
        assert_eq!(clock.text(43_200.0, false), "00:30:00");
        assert!((clock.second_of_day() - 45_000.0).abs() < 1e-3);
    }

    #[test]
    fn no_time_of_a_record_is_too_long() {
        assert!(!at(f64::NAN, 0).text(1e300, true).is_empty());
        assert!(!at(1e300, 0).date_text(-1e300).is_empty());
    }
}
