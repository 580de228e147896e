//! Does every number of an answer stand in its record? Numbers with their units are read from the
//! sentences and looked for among the figures of that kind: times among times, sizes among sizes.

use serde_json::Value;

/// What a figure counts; of two kinds no numbers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Microseconds.
    Time,
    /// Bytes.
    Size,
    /// Bytes per second.
    Rate,
    /// Counts, shares, ratios and rates of counts.
    Number,
}

type Figure = (Kind, f64);

/// What a number is multiplied with to be in the base of its kind.
type Unit = (Kind, f64);

/// Units of answers, longest first: their kind, and how much of its base each is.
const UNITS: [(&str, Kind, f64); 18] = [
    ("Gbit/s", Kind::Rate, 1.25e8),
    ("Mbit/s", Kind::Rate, 1.25e5),
    ("kbit/s", Kind::Rate, 125.0),
    ("MB/s", Kind::Rate, 1e6),
    ("bytes", Kind::Size, 1.0),
    ("KiB", Kind::Size, 1_024.0),
    ("MiB", Kind::Size, 1_048_576.0),
    ("kB", Kind::Size, 1e3),
    ("MB", Kind::Size, 1e6),
    ("GB", Kind::Size, 1e9),
    ("K", Kind::Size, 1_024.0),
    ("M", Kind::Size, 1_048_576.0),
    ("µs", Kind::Time, 1.0),
    ("ms", Kind::Time, 1e3),
    ("min", Kind::Time, 6e7),
    ("s", Kind::Time, 1e6),
    ("%", Kind::Number, 0.01),
    ("×", Kind::Number, 1.0),
];

/// A number of a sentence.
#[derive(Clone, Debug)]
struct Written {
    /// As it stands there.
    text: String,
    kind: Kind,
    /// In the base of its kind, and half a unit of its last digit.
    value: f64,
    half: f64,
}

impl Written {
    fn is(&self, (kind, value): Figure) -> bool {
        kind == self.kind && (value - self.value).abs() <= self.half * 1.0001
    }
}

/// The numbers of a text in their order; the first of `4.10 to 4.93 s` has the unit of the second.
fn numbers(text: &str) -> Vec<Written> {
    let mut found: Vec<(String, Option<Unit>, bool)> = Vec::new();
    let mut rest = text;
    let mut before = ' ';
    while let Some(next) = rest.chars().next() {
        if !next.is_ascii_digit() || before.is_alphanumeric() {
            before = next;
            rest = &rest[next.len_utf8()..];
            continue;
        }
        let end =
            rest.find(|c: char| !c.is_ascii_digit() && c != ',' && c != '.').unwrap_or(rest.len());
        let number = rest[..end].trim_end_matches([',', '.']);
        rest = &rest[number.len()..];
        before = '0';
        let unit = unit_at(rest);
        let lends = rest.starts_with(" to ") || rest.starts_with('–');
        found.push((number.replace(',', ""), unit, lends));
    }
    // From the last to the first, so that a range's end is known before its start.
    let mut unit_after = None;
    let mut written: Vec<Written> = Vec::new();
    for (text, unit, lends) in found.into_iter().rev() {
        let unit = unit.or(if lends { unit_after } else { None });
        unit_after = unit;
        // `10.77.0.2` is no number.
        let Ok(value) = text.parse::<f64>() else { continue };
        let (kind, scale) = unit.unwrap_or((Kind::Number, 1.0));
        let digits = text.split_once('.').map_or(0, |(_, after)| after.len());
        let half = scale * 0.5 / 10_f64.powi(digits as i32);
        written.push(Written { text, kind, value: value * scale, half });
    }
    written.reverse();
    written
}

/// The unit that a text begins with, after at most one blank.
fn unit_at(text: &str) -> Option<Unit> {
    let text = text.strip_prefix([' ', '\u{a0}']).unwrap_or(text);
    let (_, kind, scale) = UNITS.iter().find(|(unit, ..)| {
        text.strip_prefix(unit)
            .is_some_and(|after| !after.starts_with(|c: char| c.is_alphanumeric() || c == '/'))
    })?;
    Some((*kind, *scale))
}

/// A figure by the unit that ends its name.
fn by_name(name: &str, value: f64) -> Figure {
    let ends = |ending: &str| name.ends_with(ending);
    if ends("bit_per_s") {
        (Kind::Rate, value / 8.0)
    } else if ends("bytes_per_s") {
        (Kind::Rate, value)
    } else if ends("_per_s") {
        (Kind::Number, value)
    } else if ends("_us") {
        (Kind::Time, value)
    } else if ends("_ms") {
        (Kind::Time, value * 1e3)
    } else if ends("_s") {
        (Kind::Time, value * 1e6)
    } else if ends("bytes") {
        (Kind::Size, value)
    } else {
        (Kind::Number, value)
    }
}

/// A figure by its unit.
fn by_unit(unit: &str, value: f64) -> Figure {
    match unit {
        "us" => (Kind::Time, value),
        "ms" => (Kind::Time, value * 1e3),
        "s" => (Kind::Time, value * 1e6),
        "bytes" => (Kind::Size, value),
        "bytes/s" | "bytes_per_s" => (Kind::Rate, value),
        _ => (Kind::Number, value),
    }
}

/// All figures below a name. Sentences are none.
fn below(name: &str, value: &Value, out: &mut Vec<Figure>) {
    match value {
        Value::Number(number) => out.extend(number.as_f64().map(|value| by_name(name, value))),
        Value::Array(all) if all.len() > LIST_MAX => {}
        Value::Array(all) => all.iter().for_each(|one| below(name, one, out)),
        Value::Object(all) => match (all.get("unit").and_then(Value::as_str), all.get("value")) {
            (Some(unit), Some(value)) => of_metric(unit, value, all.get("ci95"), out),
            _ => {
                for (key, one) in all {
                    // A quantile has the unit of its distribution.
                    let of_distribution = all.contains_key("p50") && key != "count";
                    below(if of_distribution { name } else { key }, one, out);
                }
            }
        },
        Value::String(_) | Value::Null | Value::Bool(_) => {}
    }
}

/// Figures among values that somebody typed: `600ms`, `64K`.
fn typed(values: &Value, out: &mut Vec<Figure>) {
    for value in values.as_object().into_iter().flatten().map(|(_, value)| value) {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        out.extend(numbers(&text).into_iter().map(|number| (number.kind, number.value)));
    }
}

/// Value, interval and half its width.
fn of_metric(unit: &str, value: &Value, interval: Option<&Value>, out: &mut Vec<Figure>) {
    let Some(value) = value.as_f64() else { return };
    out.push(by_unit(unit, value));
    let ends = interval.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_f64);
    for end in ends {
        out.extend([by_unit(unit, end), by_unit(unit, (end - value).abs())]);
    }
}

/// Parts of an arm with many counts. What an answer takes of them stands in the evidence of a cause.
const UNSTATED: [&str; 7] =
    ["client", "server", "softirq", "wire", "timeline", "rounds", "factors"];

/// A longer list is something over time.
const LIST_MAX: usize = 30;

/// Of more arms, any number would be the ratio of some two.
const RATIOS_MAX: usize = 2;

/// Shares that answers speak of, whatever was measured: of an interval, and of the best.
const SHARES: [f64; 2] = [0.95, 0.9];

/// Figures of a summary that an answer may state: of the arms, their comparisons and causes, and what was asked for.
fn figures(summary: &Value) -> Vec<Figure> {
    let mut out: Vec<Figure> = SHARES.map(|share| (Kind::Number, share)).to_vec();
    let arms = summary["arms"].as_array().map_or(&[] as &[Value], Vec::as_slice);
    for arm in arms {
        for (part, value) in arm.as_object().into_iter().flatten() {
            if !UNSTATED.contains(&part.as_str()) {
                below(part, value, &mut out);
            }
        }
        for host in ["client", "server"] {
            below("listeners", &arm[host]["listeners"], &mut out);
        }
        typed(&arm["factors"], &mut out);
        let statuses = arm["statuses"].as_object().into_iter().flatten();
        out.extend(statuses.filter_map(|(status, _)| Some((Kind::Number, status.parse().ok()?))));
        derived(arm, &mut out);
    }
    let comparisons = summary["comparisons"].as_array().map_or(0, Vec::len);
    out.extend([arms.len(), comparisons].map(|count| (Kind::Number, count as f64)));
    below("comparisons", &summary["comparisons"], &mut out);
    for cause in summary["causes"].as_array().into_iter().flatten() {
        below("evidence", &cause["evidence"], &mut out);
        // Those that were delayed, apart from those that failed.
        let arm = arms.iter().find(|arm| arm["name"] == cause["arm"]);
        let failed = arm.and_then(|arm| Some(arm["attempts"].as_f64()? - arm["ok"].as_f64()?));
        let both = cause["evidence"]["delayed_or_failed"].as_f64().zip(failed);
        out.extend(both.map(|(hit, failed)| (Kind::Number, hit - failed)));
    }
    for word in summary["command"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        out.extend(numbers(word).into_iter().map(|number| (number.kind, number.value)));
    }
    if arms.len() <= RATIOS_MAX {
        ratios(arms, &mut out);
    }
    let sum = |field: &str| arms.iter().filter_map(|arm| arm[field].as_f64()).sum::<f64>();
    counts(sum("attempts"), sum("ok"), &mut out);
    out
}

/// Operations begun, successful, failed, and the share of these.
fn counts(attempts: f64, ok: f64, out: &mut Vec<Figure>) {
    let failed = attempts - ok;
    out.extend([attempts, ok, failed, failed / attempts].map(|count| (Kind::Number, count)));
}

/// What answers say of an arm that is one step from its figures: how many failed, how much longer than a round trip it
/// took, when a peer's death is known at the latest, how many packets tests of idle connections are in an hour.
fn derived(arm: &Value, out: &mut Vec<Figure>) {
    if let (Some(attempts), Some(ok)) = (arm["attempts"].as_f64(), arm["ok"].as_f64()) {
        counts(attempts, ok, out);
    }
    let deaths = &arm["keepalive"]["deaths"];
    if let (Some(bound), Some(timers)) =
        (deaths["bound_s"].as_f64(), deaths["granularity_s"].as_f64())
    {
        out.push(by_name("bound_s", bound + timers));
    }
    if let Some(idle_s) = arm["keepalive"]["checking"]["idle_s"].as_f64() {
        // A test and its answer.
        out.push((Kind::Number, 2.0 * 3_600.0 / idle_s));
    }
    of_memory(arm, out);
    let points = arm["port_use"]["failed_per_s"]["points"].as_array().into_iter().flatten();
    // Begin of a slice, and in its middle the mean.
    let failing = points.filter_map(|point| Some((point[0].as_f64()?, point[2].as_f64()?)));
    out.extend(failing.filter(|(_, rate)| *rate > 0.0).take(1).map(|(at, _)| by_name("at_s", at)));
    let mut round_trips = Vec::new();
    below("link", &arm["link"], &mut round_trips);
    for histogram in ["connect_latency_us", "connect_us"] {
        let Some(median) = arm["histograms"][histogram]["p50"].as_f64() else { continue };
        for (kind, round_trip) in &round_trips {
            if *kind == Kind::Time && *round_trip > 0.0 {
                out.extend([
                    (Kind::Time, median - round_trip),
                    (Kind::Number, median / round_trip),
                ]);
            }
        }
    }
}

/// Memory of both ends of a connection, and how much more than its window a filled one holds at each.
fn of_memory(arm: &Value, out: &mut Vec<Figure>) {
    let bytes = |end: &str, state: &str| {
        arm["metrics"][format!("{end}_{state}_bytes_per_connection")]["value"].as_f64()
    };
    for state in ["idle", "filled"] {
        let ends = bytes("client", state).zip(bytes("server", state));
        out.extend(ends.map(|(client, server)| (Kind::Size, client + server)));
    }
    let window = numbers(arm["factors"]["window"].as_str().unwrap_or_default());
    if let Some(window) = window.first().map(|window| window.value) {
        for end in ["client", "server"] {
            let filled = bytes(end, "filled").zip(bytes(end, "idle"));
            out.extend(filled.map(|(filled, idle)| (Kind::Number, (filled - idle) / window)));
        }
    }
}

/// Ratios of a metric of two arms, for those that have no comparison.
fn ratios(arms: &[Value], out: &mut Vec<Figure>) {
    for (a, b) in arms.iter().flat_map(|a| arms.iter().map(move |b| (a, b))) {
        let both = a["metrics"].as_object().into_iter().flatten().filter_map(|(name, metric)| {
            metric["value"].as_f64().zip(b["metrics"][name]["value"].as_f64())
        });
        out.extend(
            both.filter(|(_, whole)| *whole > 0.0)
                .map(|(value, whole)| (Kind::Number, value / whole)),
        );
    }
}

/// The numbers of a summary's answer that do not stand in its record.
pub(crate) fn unfounded(summary: &Value) -> Vec<String> {
    let figures = figures(summary);
    let numbers = numbers(&stated(summary));
    let mut missing = Vec::new();
    for (at, number) in numbers.iter().enumerate() {
        // A share after its counts: `271 of 400 (67.75 %)`.
        let share = at >= 2 && number.is((number.kind, share_of(&numbers[at - 2..at])));
        if !share && !figures.iter().any(|one| number.is(*one)) {
            missing.push(number.text.clone());
        }
    }
    missing
}

fn share_of(counts: &[Written]) -> f64 {
    let [count, all] = [&counts[0], &counts[1]].map(|count| count.value);
    if counts.iter().all(|count| count.kind == Kind::Number) { count / all } else { f64::NAN }
}

/// The answer without the names of its arms, which may hold any number.
fn stated(summary: &Value) -> String {
    let arms = || summary["arms"].as_array().into_iter().flatten();
    let names = arms().filter_map(|arm| arm["name"].as_str().map(str::to_owned));
    let levels =
        arms().filter_map(|arm| arm["factors"].as_object()).flatten().map(|(factor, level)| {
            let level = level.as_str().map_or_else(|| level.to_string(), str::to_owned);
            format!("{factor} {level}")
        });
    let mut names: Vec<String> = names.chain(levels).collect();
    names.sort_by_key(|name| std::cmp::Reverse(name.len()));
    let answer = summary["answer"].as_str().unwrap_or_default().to_owned();
    names.iter().fold(answer, |text, name| text.replace(name.as_str(), "ARM"))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_read_with_their_units_and_a_range_has_one_unit() {
        let read = |text| -> Vec<(Kind, f64)> {
            numbers(text).into_iter().map(|one| (one.kind, one.value)).collect()
        };
        assert_eq!(
            read("after 4.25 to 4.75 s, 7,082 packets"),
            [(Kind::Time, 4.25e6), (Kind::Time, 4.75e6), (Kind::Number, 7_082.0)]
        );
        assert_eq!(read("15.1 Mbit/s of 39.1 kB, 1.42× (95 % CI 1.37–1.48)").len(), 6);
        assert_eq!(read("HTTP2 and tcp6"), []);
    }

    #[test]
    fn a_number_that_was_not_measured_is_found() {
        let mut summary = json!({
            "answer": "In arm a 12, opening takes 1.81 ms, and 55 of 60 failed.",
            "arms": [{
                "name": "a 12", "factors": {}, "attempts": 60, "ok": 5,
                "histograms": { "connect_latency_us": { "count": 5, "p50": 1_812.4 } },
            }],
        });
        assert_eq!(unfounded(&summary), Vec::<String>::new());
        summary["answer"] = "Opening takes 1.82 ms and 1.81 s, and 54 of 60 failed.".into();
        assert_eq!(unfounded(&summary), ["1.82", "1.81", "54"]);
    }

    #[test]
    fn every_number_of_every_answer_stands_in_its_record() {
        let mut without = String::new();
        for name in crate::NAMES {
            let summary = serde_json::to_value(crate::load(name)).unwrap();
            let numbers = unfounded(&summary);
            if !numbers.is_empty() {
                writeln!(without, "{name}: {}: {}", numbers.join(" "), summary["answer"]).unwrap();
            }
        }
        assert_eq!(without, "");
    }

    /// Of numbers with three digits at least; a check that finds any number anywhere would check nothing.
    #[test]
    fn of_a_hundred_numbers_that_are_three_percent_off_ninety_are_found() {
        let (mut wrong, mut all) = (0, 0);
        for name in crate::NAMES {
            let summary = serde_json::to_value(crate::load(name)).unwrap();
            let figures = figures(&summary);
            for number in numbers(&stated(&summary)) {
                if number.text.chars().filter(char::is_ascii_digit).count() < 3 {
                    continue;
                }
                for off in [0.97, 1.03] {
                    let number = Written { value: number.value * off, ..number.clone() };
                    all += 1;
                    wrong += usize::from(!figures.iter().any(|one| number.is(*one)));
                }
            }
        }
        assert!(all > 100 && wrong * 10 >= all * 9, "{wrong} of {all}");
    }
}
