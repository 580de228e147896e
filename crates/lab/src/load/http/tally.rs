//! What one thread of a load counted; those of several are added up exactly.

use std::collections::BTreeMap;
use std::time::Duration;

use tcptoll_core::record::Closing;
use tcptoll_core::stats::Series;
use tcptoll_core::stats::saturation::Aging;
use tcptoll_core::stats::{Histogram, SeriesBuilder};

use super::groups::Groups;
use crate::messages::{HttpReport, Rates};

/// Points of the rate over time.
const RATE_POINTS: usize = 200;

/// Status codes, by number.
const STATUSES: usize = 1000;

/// Counts of one thread.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) report: HttpReport,
    pub(super) latency: Histogram,
    /// Ages, at the end of the window, of requests that began before it and had no answer in it.
    pub(super) unanswered: Histogram,
    pub(super) first_byte: Histogram,
    pub(super) connect: Histogram,
    pub(super) tls: Histogram,
    pub(super) lateness: Histogram,
    pub(super) idle_close: Histogram,
    latency_series: SeriesBuilder,
    /// Successes in each `1 / RATE_POINTS` of the window; empty where its length is not known
    /// before.
    rates: Vec<u64>,
    statuses: Vec<u64>,
    /// What completed within the window, and since it began.
    completed: Completed,
    since: Completed,
    /// Measured requests that had a response within the window.
    pub(super) answered: u64,
    /// Open loop: how old requests were when they ended.
    pub(super) aging: Aging,
    /// Each group of requests apart, where they are grouped.
    pub(super) groups: Option<Groups>,
}

/// What completed within the window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Completed {
    pub(super) requests: u64,
    pub(super) connections: u64,
    /// Requests, and bytes of their content, each by its share within the window.
    pub(super) shares: f64,
    pub(super) body_bytes: f64,
}

impl Completed {
    /// Per second of a window; `in_flight`: requests that can be in progress at its edges.
    pub(super) fn rates(self, window_ns: u64, in_flight: u64) -> Rates {
        let seconds = window_ns.max(1) as f64 / 1e9;
        let per_s = |count: f64| count / seconds;
        Rates {
            completed: self.requests,
            requests_per_s: per_s(self.shares),
            body_bytes_per_s: per_s(self.body_bytes),
            connections_per_s: per_s(self.connections as f64),
            resolution_per_s: per_s(in_flight as f64),
            window_ns,
        }
    }
}

impl Tally {
    /// `window_ns`: length of the window, where it is known before.
    pub(super) fn new(window_ns: Option<u64>) -> Self {
        Self {
            report: HttpReport::default(),
            latency: Histogram::new(),
            unanswered: Histogram::new(),
            first_byte: Histogram::new(),
            connect: Histogram::new(),
            tls: Histogram::new(),
            lateness: Histogram::new(),
            idle_close: Histogram::new(),
            latency_series: SeriesBuilder::new(400),
            rates: if window_ns.is_some() { vec![0; RATE_POINTS] } else { Vec::new() },
            statuses: vec![0; STATUSES],
            completed: Completed::default(),
            since: Completed::default(),
            answered: 0,
            aging: Aging::new(window_ns.unwrap_or(0)),
            groups: None,
        }
    }

    /// A measured request succeeded, this long after the measured part began.
    pub(super) fn success(&mut self, since_ns: u64, latency_ns: u64) {
        self.report.ok += 1;
        self.latency.record_ns(latency_ns);
        self.latency_series.push(Duration::from_nanos(since_ns), latency_ns as f64 / 1e3);
    }

    /// A request, of the measured part or of the one before, succeeded within the window, this long
    /// after it began; `of_ns`: the window's length, where it is known before.
    pub(super) fn completes(&mut self, since_ns: u64, of_ns: Option<u64>) {
        self.completed.requests += 1;
        if let Some(of_ns) = of_ns.filter(|&of_ns| since_ns < of_ns && !self.rates.is_empty()) {
            let at = (u128::from(since_ns) * RATE_POINTS as u128 / u128::from(of_ns)) as usize;
            self.rates[at] += 1;
        }
    }

    /// A request succeeded, of which this share counts in the window.
    pub(super) fn shares(&mut self, share: f64, body_bytes: u64) {
        self.completed.shares += share;
        self.completed.body_bytes += share * body_bytes as f64;
    }

    /// A connection was made within the window, or after it.
    pub(super) fn connects(&mut self, within: bool) {
        self.since.connections += 1;
        self.completed.connections += u64::from(within);
    }

    /// A request succeeded after the window began.
    pub(super) fn completes_since(&mut self, body_bytes: u64) {
        self.since.requests += 1;
        self.since.shares += 1.0;
        self.since.body_bytes += body_bytes as f64;
    }

    /// What completed within the window so far, and since it began.
    pub(super) fn completed(&self) -> (Completed, Completed) {
        (self.completed, self.since)
    }

    /// The time from one instant to another. None: it is below 0, which is counted.
    pub(super) fn span(&mut self, from_ns: u64, to_ns: u64) -> Option<u64> {
        let span = to_ns.checked_sub(from_ns);
        self.report.impossible += u64::from(span.is_none());
        span
    }

    /// A measured response came with this status, a success or not.
    pub(super) fn status(&mut self, status: u16) {
        if let Some(count) = self.statuses.get_mut(usize::from(status)) {
            *count += 1;
        }
    }

    /// A request failed.
    pub(super) fn failure(&mut self, measured: bool, class: &'static str, words: &str) {
        let errors = if measured { &mut self.report.errors } else { &mut self.report.warmup.1 };
        match errors.get_mut(class) {
            Some(count) => *count += 1,
            None => {
                errors.insert(class.to_owned(), 1);
            }
        }
        if !self.report.first_errors.contains_key(class) {
            self.report.first_errors.insert(class.to_owned(), words.to_owned());
        }
    }

    /// Whether so many TLS handshakes failed, and nothing else came, that more of them would tell nothing.
    pub(super) fn is_hopeless(&self) -> bool {
        const HANDSHAKES: u64 = 10;
        let HttpReport { carried, errors, warmup, .. } = &self.report;
        let of = |errors: &BTreeMap<String, u64>| errors.get("tls").copied().unwrap_or(0);
        carried.0 == 0 && of(errors) + of(&warmup.1) >= HANDSHAKES
    }

    /// Adds what another thread counted.
    pub(super) fn add(&mut self, other: &Self) {
        let Self { report: theirs, .. } = other;
        let ours = &mut self.report;
        ours.attempts += theirs.attempts;
        ours.ok += theirs.ok;
        add(&mut ours.errors, &theirs.errors);
        for (class, words) in &theirs.first_errors {
            ours.first_errors.entry(class.clone()).or_insert_with(|| words.clone());
        }
        ours.warmup.0 += theirs.warmup.0;
        add(&mut ours.warmup.1, &theirs.warmup.1);
        ours.connections.0 += theirs.connections.0;
        ours.connections.1 += theirs.connections.1;
        ours.measured_connections.0 += theirs.measured_connections.0;
        ours.measured_connections.1 += theirs.measured_connections.1;
        ours.closing = closing(&ours.closing, &theirs.closing);
        ours.intended = match (ours.intended, theirs.intended) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
        ours.queued += theirs.queued;
        ours.unserved += theirs.unserved;
        ours.starved += theirs.starved;
        // Another thread's connections were answered meanwhile.
        ours.silent_ns = ours.silent_ns.min(theirs.silent_ns);
        ours.impossible += theirs.impossible;
        ours.unasked += theirs.unasked;
        ours.carried.0 += theirs.carried.0;
        ours.carried.1 += theirs.carried.1;
        ours.rates = rates(&ours.rates, &theirs.rates);
        ours.body_bytes += theirs.body_bytes;
        ours.measured_ns = ours.measured_ns.max(theirs.measured_ns);
        ours.elapsed_ns = ours.elapsed_ns.max(theirs.elapsed_ns);
        ours.cpu_us.0 += theirs.cpu_us.0;
        ours.cpu_us.1 += theirs.cpu_us.1;
        ours.spun_us += theirs.spun_us;
        ours.full_ns += theirs.full_ns;
        ours.busy_ns += theirs.busy_ns;
        ours.open += theirs.open;
        ours.ended_at_end += theirs.ended_at_end;
        if ours.tcp_info.is_empty() {
            ours.tcp_info.clone_from(&theirs.tcp_info);
            ours.congestion.clone_from(&theirs.congestion);
        }
        ours.tls = match (ours.tls.take(), theirs.tls.clone()) {
            (Some((words, a)), Some((_, b))) => Some((words, a + b)),
            (a, b) => a.or(b),
        };
        ours.partial |= theirs.partial;
        self.aging.merge(&other.aging);
        if let (Some(mine), Some(theirs)) = (&mut self.groups, &other.groups) {
            mine.add(theirs);
        }
        for (mine, (_, theirs)) in self.histograms_mut().into_iter().zip(other.histograms()) {
            mine.merge(theirs);
        }
        for (mine, other) in self.rates.iter_mut().zip(&other.rates) {
            *mine += other;
        }
        for (mine, other) in self.statuses.iter_mut().zip(&other.statuses) {
            *mine += other;
        }
    }

    /// Every distribution by its name.
    pub(super) fn histograms(&self) -> [(&'static str, &Histogram); 7] {
        [
            ("latency", &self.latency),
            ("unanswered", &self.unanswered),
            ("first_byte", &self.first_byte),
            ("connect", &self.connect),
            ("tls", &self.tls),
            ("lateness", &self.lateness),
            ("idle_close", &self.idle_close),
        ]
    }

    /// The same, in the same order.
    fn histograms_mut(&mut self) -> [&mut Histogram; 7] {
        [
            &mut self.latency,
            &mut self.unanswered,
            &mut self.first_byte,
            &mut self.connect,
            &mut self.tls,
            &mut self.lateness,
            &mut self.idle_close,
        ]
    }

    /// The report, whole.
    pub(super) fn report(&mut self) -> HttpReport {
        let mut report = std::mem::take(&mut self.report);
        report.ages = self.aging.medians();
        let counted = self.statuses.iter().enumerate().filter(|(_, count)| **count > 0);
        report.statuses = counted.map(|(status, count)| (status as u16, *count)).collect();
        let series = std::mem::replace(&mut self.latency_series, SeriesBuilder::new(2));
        report.latency_series = series.build();
        let width_s = report.rates.window_ns as f64 / 1e9 / RATE_POINTS as f64;
        // A load that ended before its window has no rates.
        let rates = self.rates.iter().filter(|_| width_s > 0.0);
        let points = rates.enumerate().map(|(at, count)| {
            let rate = *count as f64 / width_s;
            [at as f64 * width_s, rate, rate, rate]
        });
        report.rate_series = Series { points: points.collect() };
        report
    }
}

fn add(ours: &mut BTreeMap<String, u64>, theirs: &BTreeMap<String, u64>) {
    for (class, count) in theirs {
        *ours.entry(class.clone()).or_default() += count;
    }
}

/// Of threads side by side: what all did, over the longest of their windows.
fn rates(ours: &Rates, theirs: &Rates) -> Rates {
    let window_ns = ours.window_ns.max(theirs.window_ns);
    let both = |rate: fn(&Rates) -> f64| {
        let within = |rates: &Rates| rate(rates) * rates.window_ns as f64;
        (within(ours) + within(theirs)) / window_ns.max(1) as f64
    };
    Rates {
        completed: ours.completed + theirs.completed,
        requests_per_s: both(|rates| rates.requests_per_s),
        body_bytes_per_s: both(|rates| rates.body_bytes_per_s),
        connections_per_s: both(|rates| rates.connections_per_s),
        resolution_per_s: both(|rates| rates.resolution_per_s),
        window_ns,
    }
}

fn closing(ours: &Closing, theirs: &Closing) -> Closing {
    Closing {
        by_client: ours.by_client + theirs.by_client,
        by_server: ours.by_server + theirs.by_server,
        while_idle: ours.while_idle + theirs.while_idle,
        ignored: ours.ignored + theirs.ignored,
        open_at_end: ours.open_at_end + theirs.open_at_end,
        both: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_ended_at_different_times_have_one_rate_over_the_longest_window() {
        let measured = |requests: u64, window_ns: u64| {
            let completed = Completed { requests, shares: requests as f64, ..<_>::default() };
            completed.rates(window_ns, 1)
        };
        let both = rates(&measured(100, 10_000_000), &measured(100, 2_000_000_000));
        assert_eq!((both.completed, both.window_ns), (200, 2_000_000_000));
        assert!((both.requests_per_s - 100.0).abs() < 1e-9, "{both:?}");
        let side_by_side = rates(&measured(100, 1_000_000_000), &measured(50, 1_000_000_000));
        assert!((side_by_side.requests_per_s - 150.0).abs() < 1e-9, "{side_by_side:?}");
    }

    #[test]
    fn a_load_that_ended_before_its_window_has_a_report_that_can_be_sent() {
        let report = Tally::new(Some(1_000_000_000)).report();
        let text = serde_json::to_string(&report).unwrap();
        assert!(serde_json::from_str::<HttpReport>(&text).is_ok(), "{text}");
    }

    #[test]
    fn ten_handshakes_that_failed_are_enough_where_nothing_else_came() {
        let mut tally = Tally::new(None);
        for number in 0..10 {
            assert!(!tally.is_hopeless());
            tally.failure(number > 4, "tls", "no certificate");
        }
        assert!(tally.is_hopeless());
        tally.report.carried.0 = 1;
        assert!(!tally.is_hopeless());
    }
}
