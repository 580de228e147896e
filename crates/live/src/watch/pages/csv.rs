//! The record of a watch as one tidy table, line by line.

use std::collections::BTreeMap;

use crate::watch::{Counted, Interval, ListenerLine, WatchLine};

use tcptoll_show::csv::{guarded, write};

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
                self.listeners.insert(line.n, place(line));
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

fn place(line: &ListenerLine) -> String {
    if line.address.contains(':') {
        format!("[{}]:{}", line.address, line.port)
    } else {
        format!("{}:{}", line.address, line.port)
    }
}

#[cfg(test)]
mod tests {
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
}
