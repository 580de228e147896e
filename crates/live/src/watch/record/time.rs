//! Whether a text is a time as a watch writes it.

/// Days of the months of a year that is no leap year.
const DAYS: [u32; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/// Whether a text is a time of RFC 3339 from 1970 on, like `2026-11-23T08:42:54.011Z`.
pub(crate) fn is_rfc3339(text: &str) -> bool {
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
