//! The time of day of a moment of a watch, without a clock and without files of time zones.

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

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
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

    /// `03:12:05`, or with its day `24 Nov 03:12:05`.
    pub(super) fn text(&self, at_s: f64, with_day: bool) -> String {
        let second = self.local(at_s).rem_euclid(DAY_S);
        let time = format!("{:02}:{:02}:{:02}", second / 3_600, second / 60 % 60, second % 60);
        if !with_day {
            return time;
        }
        let (_, month, day) = self.date(at_s);
        format!("{day} {} {time}", MONTHS[month - 1])
    }

    /// `24 Nov 2026`.
    pub(super) fn date_text(&self, at_s: f64) -> String {
        let (year, month, day) = self.date(at_s);
        format!("{day} {} {year}", MONTHS[month - 1])
    }

    /// Year, month from 1 and day from 1: the days since 1970 in the Gregorian calendar, by Howard
    /// Hinnant's `civil_from_days`.
    fn date(&self, at_s: f64) -> (i64, usize, i64) {
        let days = self.day(at_s) + 719_468;
        let era = days.div_euclid(146_097);
        let of_era = days.rem_euclid(146_097);
        let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let shifted = (5 * of_year + 2) / 153;
        let day = of_year - (153 * shifted + 2) / 5 + 1;
        let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
        (year + era * 400 + i64::from(month <= 2), month as usize, day)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
