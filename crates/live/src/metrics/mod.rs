//! A watch's states as metrics for Prometheus.
//!
//! Names follow its conventions: the prefix `tcptoll_`, base units, `_total` for counters. What is absent
//! is not exported. Values that are counted since the namespace began are the kernel's own counters, so
//! Prometheus makes the rates.
//!
//! # Bounds
//!
//! A page has at most 256 listeners, 80 destinations and 64 diagnoses, and each label's value at most 128
//! characters. One that has a place keeps it until it is gone for 10 minutes, so series neither flap nor
//! grow in number over days: at most as many new names come in 10 minutes as there are places. What has no
//! place is counted in `tcptoll_watch_*_left_out`. A full page has about 2,700 lines, 250 kB.

mod family;
mod namespace;
mod subjects;

use crate::watch::State;
use crate::watch::diagnoses::says_too;
use tcptoll_core::units::host_port;

use self::family::{Family, Kind};
use self::subjects::{Destinations, Listeners, Slots};
use tcptoll_show::clean;

/// Diagnoses that a page has, at most.
const DIAGNOSES: usize = 64;
/// A diagnosis is exported for this time after it was last seen, s: a scrape each minute misses none.
const DIAGNOSED_S: f64 = 60.0;
/// Characters of a label's value, at most.
const LABEL_MAX: usize = 128;

/// The formats of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsFormat {
    /// `OpenMetrics` 1.0.
    OpenMetrics,
    /// Prometheus' text format, version 0.0.4.
    Classic,
}

impl MetricsFormat {
    /// Its media type, for `Content-Type`.
    #[must_use]
    pub fn media_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Classic => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// What a page is made from: the newest state, and what must stay the same from page to page.
#[derive(Debug)]
pub struct Metrics {
    version: String,
    interval_s: f64,
    looks: u64,
    failed: u64,
    last_look_s: f64,
    listeners: Listeners,
    destinations: Destinations,
    diagnoses: Slots<Diagnosed>,
    diagnoses_left_out: u64,
    /// Levels, limits and counters of the newest state.
    levels: Option<State>,
}

/// The labels of a diagnosis.
#[derive(Debug, Default)]
struct Diagnosed {
    id: String,
    severity: &'static str,
    subject: String,
}

impl Metrics {
    /// Of a watch that has not looked yet.
    ///
    /// `interval_s`: time between two looks, s. `version`: of the program.
    #[must_use]
    pub fn new(version: &str, interval_s: f64) -> Self {
        Self {
            version: version.to_owned(),
            interval_s,
            looks: 0,
            failed: 0,
            last_look_s: 0.0,
            listeners: Listeners::default(),
            destinations: Destinations::default(),
            diagnoses: Slots::new(DIAGNOSES, 0),
            diagnoses_left_out: 0,
            levels: None,
        }
    }

    /// Takes the state of a look that was made `unix_s` seconds after the Unix epoch.
    pub fn take(&mut self, state: &State, unix_s: f64) {
        self.looks += 1;
        self.last_look_s = unix_s;
        self.listeners.see(state);
        self.destinations.see(state);
        self.diagnoses.look(state.at_s);
        self.diagnoses_left_out = state.diagnoses_left_out;
        for one in &state.diagnoses {
            let severity = one.severity.word();
            let (id, subject) = (label(&one.id), label(&one.subject));
            match self.diagnoses.place(&format!("{id} {severity} {subject}"), false) {
                Some(slot) => *slot = Diagnosed { id, severity, subject },
                None => self.diagnoses_left_out += 1,
            }
        }
        self.levels = Some(State {
            states: state.states.clone(),
            table_age_s: state.table_age_s,
            totals: state.totals,
            counted: state.counted.clone(),
            limits: state.limits.clone(),
            cost: state.cost,
            ..State::default()
        });
    }

    /// A look failed: the newest state stays, with its time.
    pub fn failed(&mut self) {
        self.failed += 1;
    }

    /// The page. Absent before the first state.
    #[must_use]
    pub fn page(&self, format: MetricsFormat) -> Option<String> {
        let page = family::openmetrics(self.families(self.levels.as_ref()?));
        Some(match format {
            MetricsFormat::OpenMetrics => page,
            MetricsFormat::Classic => family::classic(&page),
        })
    }

    fn families(&self, levels: &State) -> Vec<Family> {
        let seen: Vec<&Diagnosed> = self.diagnoses.seen(DIAGNOSED_S).map(|(_, one)| one).collect();
        // One that became another within these seconds is exported as the other alone.
        let became = |one: &Diagnosed| {
            seen.iter().any(|other| other.subject == one.subject && says_too(&other.id, &one.id))
        };
        let diagnoses = seen.iter().filter(|one| !became(one)).map(|one| {
            let labels = vec![
                ("id", one.id.clone()),
                ("severity", one.severity.to_owned()),
                ("subject", one.subject.clone()),
            ];
            (labels, 1_u64.into())
        });
        let help = "Fault that holds now, or held in the last 60 s. The command tcptoll explain ID explains it.";
        let mut families = vec![Family::new(Kind::Gauge, "diagnosis", help).each(diagnoses)];
        families.extend(self.listeners.families());
        families.extend(self.destinations.families());
        families.extend(namespace::levels(levels));
        families.extend(namespace::totals(levels));
        families.extend(namespace::own(levels, self));
        families
    }
}

/// A label's value: one clean line of bounded length.
fn label(text: &str) -> String {
    let line = clean::line(text);
    if line.chars().count() <= LABEL_MAX {
        return line;
    }
    line.chars().take(LABEL_MAX - 1).chain(['…']).collect()
}

/// `10.0.0.7:80`, `[fd00::7]:80`: the subject of a diagnosis about it.
fn place(address: &str, port: u16) -> String {
    host_port(&label(address), port)
}

#[cfg(test)]
mod tests;
