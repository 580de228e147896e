//! From what visitors and the server's status page told to the arm that is recorded. And how many connections must
//! be held, from the schedule and the settings: arrivals × (service + timeout).

use std::time::Duration;

use tcptoll_core::experiment::figures::ACCEPT_QUEUE_PEAK;
use tcptoll_core::experiment::spec::MetricSpec;
use tcptoll_core::page::visits::Visit;
use tcptoll_core::page::waterfall::{Request, Waterfall};
use tcptoll_core::record::{MemoryLimit, PageGroup, SiteVisits};
use tcptoll_core::stats::summary::POINTS_MAX;
use tcptoll_core::stats::{Histogram, Series, SeriesBuilder};
use tcptoll_core::verdict::validity;
use tcptoll_lab::messages::{PageSeen, ServerKind, WorkerSample};

use super::trial::{Limit, VisitorTrial, VisitorsOutcome};
use super::{
    CONNECTIONS, FIRST, FIRST_PAGE_MEAN, NEXT, NEXT_PAGE_MEAN, PAGE, PAGE_MEAN, PAGE_P95,
    PAGES_FAILED, PAGES_RATE, WORKERS_BUSY, WORKERS_BUSY_PEAK, WORKERS_KEPT,
};
use crate::kit::notes::{quantile_us, set_cpu};
use crate::kit::procedure::LoadObservation;

/// Visitors that come later than this share of a page's time are late.
const LATE_SHARE: f64 = 0.05;

/// A figure of a page.
type PageFigure = fn(&PageSeen) -> f64;

impl VisitorTrial<'_> {
    pub(super) fn take_visits(&mut self, came: &VisitorsOutcome, seen: &LoadObservation<'_>) {
        let arm = &mut self.notes.arm;
        arm.attempts = came.pages.len() as u64;
        arm.ok = came.pages.iter().filter(|page| page.error.is_none()).count() as u64;
        for class in came.pages.iter().filter_map(|page| page.error.clone()) {
            *arm.errors.entry(class).or_default() += 1;
        }
        arm.partial = came.report.partial;
        arm.elapsed_s = self.settings.duration.as_secs_f64();
        let (attempts, ok) = (arm.attempts, arm.ok);
        self.take_pages(came);
        let failed = (attempts > 0).then(|| (attempts - ok) as f64 / attempts as f64);
        self.notes.metric(&PAGES_FAILED, failed, attempts);
        let rate = ok as f64 / self.settings.duration.as_secs_f64();
        self.notes.metric(&PAGES_RATE, Some(rate), ok);
        let record = self.record(came);
        self.take_workers(&record);
        self.notes.arm.own = Box::new(record).into();
        self.judge(came, seen);
    }

    /// Figures of pages that came whole.
    fn take_pages(&mut self, came: &VisitorsOutcome) {
        let whole: Vec<&PageSeen> = came.pages.iter().filter(|page| page.error.is_none()).collect();
        let mean = |pages: &[&PageSeen], figure: PageFigure| {
            let count = pages.len() as u64;
            let sum: f64 = pages.iter().map(|page| figure(page)).sum();
            ((count > 0).then(|| sum / count as f64), count)
        };
        let (first, next): (Vec<&PageSeen>, Vec<&PageSeen>) =
            whole.iter().copied().partition(|page| page.first);
        let figures: [(&MetricSpec, &[&PageSeen], PageFigure); 4] = [
            (&PAGE_MEAN, &whole, |page| page.us as f64),
            (&FIRST_PAGE_MEAN, &first, |page| page.us as f64),
            (&NEXT_PAGE_MEAN, &next, |page| page.us as f64),
            (&CONNECTIONS, &whole, |page| f64::from(page.connections)),
        ];
        for (spec, pages, figure) in figures {
            let (value, count) = mean(pages, figure);
            self.notes.metric(spec, value, count);
        }
        let mut histogram = Histogram::new();
        for page in &whole {
            histogram.record_ns(page.us.saturating_mul(1_000));
        }
        self.notes.histogram(&PAGE, &histogram);
        self.notes.metric(&PAGE_P95, quantile_us(&histogram, 95), histogram.count());
    }

    fn record(&self, came: &VisitorsOutcome) -> SiteVisits {
        let settings = self.settings;
        let window_s = settings.duration.as_secs_f64();
        let from_s = settings.warmup.as_secs_f64();
        let window = [from_s, from_s + window_s];
        let group = |first: bool| {
            let pages = || came.pages.iter().filter(move |page| page.first == first);
            let mut group = PageGroup::default();
            let mut series = SeriesBuilder::new(POINTS_MAX);
            let mut order: Vec<&PageSeen> = pages().collect();
            order.sort_by_key(|page| page.at_ns);
            for page in order {
                group.attempts += 1;
                group.connections += u64::from(page.connections);
                if let Some(class) = &page.error {
                    *group.errors.entry(class.clone()).or_default() += 1;
                    continue;
                }
                group.ok += 1;
                let at = Duration::from_nanos(page.at_ns).saturating_sub(settings.warmup);
                series.push(at, page.us as f64);
            }
            group.page_us = series.build();
            group
        };
        let visits = settings.visitors(self.seed).visits();
        let alone = self.alone.as_ref().and_then(Alone::from_page);
        let lab = settings.lab();
        let kept_for = lab.and_then(|lab| lab.kept_for);
        // How long a server that is not ours keeps connections is not known.
        let expected = alone
            .filter(|_| lab.is_some())
            .map(|alone| alone.held(&visits, kept_for, settings.leave, window));
        let held_s: f64 = came
            .connections
            .iter()
            .map(|one| {
                let closed_s = one.closed_ns.map_or(f64::INFINITY, |ns| ns as f64 / 1e9);
                (closed_s.min(window[1]) - (one.opened_ns as f64 / 1e9).max(window[0])).max(0.0)
            })
            .sum();
        let over = |figure: fn(&WorkerSample) -> Option<u64>| self.over_time(came, figure);
        let overflows_before =
            self.samples(came).find_map(|(_, sample)| sample.overflows).unwrap_or_default();
        let refused = Self::series(self.samples(came).filter_map(|(since, sample)| {
            Some((since, sample.overflows?.saturating_sub(overflows_before)))
        }));
        SiteVisits {
            visitors: came.report.visitors,
            window_s,
            workers: lab.map_or(0, |lab| lab.limits.workers),
            worker: match lab.map(|lab| lab.kind) {
                None => "",
                Some(ServerKind::ApachePrefork) => "process",
                Some(ServerKind::Nginx) => "connection",
                Some(_) => "thread",
            }
            .to_owned(),
            idle_is_free: lab.is_some_and(|lab| lab.kind == ServerKind::ApacheEvent),
            timeout_s: kept_for.map(|time| time.as_secs_f64()),
            pages: [(FIRST, true), (NEXT, false)]
                .map(|(name, first)| (name.to_owned(), group(first)))
                .into(),
            busy: over(|sample| Some(sample.busy.into())),
            kept: over(|sample| sample.kept.map(u64::from)),
            queue: over(|sample| sample.waiting.map(u64::from)),
            refused,
            memory_bytes: over(|sample| sample.memory_bytes),
            memory_limit: self.memory_limit(),
            readings: self.workers.samples.len() as u64,
            readings_missed: self.workers.missed,
            held_expected: expected,
            held_by_clients: (window_s > 0.0).then(|| held_s / window_s),
            repeats: came.report.repeats,
        }
    }

    /// Samples of the status page within the measured window, and when each was since its beginning.
    fn samples<'b>(
        &'b self,
        came: &VisitorsOutcome,
    ) -> impl Iterator<Item = (Duration, &'b WorkerSample)> + use<'b> {
        let begun_ns = came.report.begun_ns;
        let settings = self.settings;
        self.workers.samples.iter().filter_map(move |sample| {
            let since = Duration::from_nanos(sample.at_ns.checked_sub(begun_ns)?);
            let since = since.checked_sub(settings.warmup)?;
            (since < settings.duration).then_some((since, sample))
        })
    }

    fn over_time(
        &self,
        came: &VisitorsOutcome,
        figure: fn(&WorkerSample) -> Option<u64>,
    ) -> Series {
        let values = self.samples(came);
        Self::series(values.filter_map(|(since, sample)| Some((since, figure(sample)?))))
    }

    fn series(values: impl Iterator<Item = (Duration, u64)>) -> Series {
        let mut series = SeriesBuilder::new(POINTS_MAX);
        for (since, value) in values {
            series.push(since, value as f64);
        }
        series.build()
    }

    fn memory_limit(&self) -> Option<MemoryLimit> {
        let bytes = self.settings.lab()?.memory_bytes?;
        let limit = |by: &str, kills| MemoryLimit { bytes, by: by.to_owned(), why: None, kills };
        match &self.memory {
            Limit::None => None,
            Limit::Group(_) => Some(limit("kernel", self.kills)),
            Limit::Watch(why) => {
                Some(MemoryLimit { why: Some(why.clone()), ..limit("watch", self.workers.killed) })
            }
        }
    }

    /// Means over time of what the status page showed.
    fn take_workers(&mut self, record: &SiteVisits) {
        let n = record.readings;
        let figures = [
            (&WORKERS_BUSY, record.busy.mean()),
            (&WORKERS_BUSY_PEAK, record.busy.peak()),
            (&WORKERS_KEPT, record.kept.mean()),
            (&ACCEPT_QUEUE_PEAK, record.queue.peak()),
        ];
        for (spec, value) in figures {
            self.notes.metric(spec, value, n);
        }
    }

    /// Whether the client kept its schedule, and whether its CPU made the figures.
    fn judge(&mut self, came: &VisitorsOutcome, seen: &LoadObservation<'_>) {
        let notes = &mut self.notes;
        let late_us = |ns: u64| Some(ns as f64 / 1e3);
        let typical = notes.arm.histograms.get(PAGE.name).and_then(|pages| pages.p50);
        let p99_us = late_us(came.report.late_p99_ns);
        // A page counts from when its visitor came: only a delay that shifts the load matters.
        if p99_us.zip(typical).is_some_and(|(late, page)| late > page * LATE_SHARE) {
            let p50_us = late_us(came.report.late_p50_ns);
            notes.found(validity::client_late(p50_us, p99_us, typical));
        }
        let between_us = seen.client.after.at_ns.saturating_sub(seen.client.before.at_ns) / 1_000;
        if between_us > 0 {
            let share = came.report.cpu_us as f64 / between_us as f64;
            notes.found(validity::client_bottleneck(share, None));
        }
        let pages = came.pages.len() as u64;
        if let (Some(server), Some(summary)) = (seen.server, &mut notes.arm.server) {
            summary.processes = Some(server.after.children).filter(|count| *count > 0);
            let memory = self.workers.samples.iter().filter_map(|sample| sample.memory_bytes).max();
            summary.memory_bytes = memory.filter(|bytes| *bytes > 0);
            set_cpu(summary, server.children_cpu_us(), pages);
        }
    }
}

/// What one page does without others on the server.
#[derive(Clone, Debug, Default)]
struct Alone {
    connections: Vec<Held>,
    /// From the beginning to the last response of all, µs.
    page_us: u64,
}

/// One connection of it, µs since the page's beginning.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_field_names)] // all are times
struct Held {
    opened_us: u64,
    last_us: u64,
    /// When the server closed it during the load, as at its limit of responses.
    closed_us: Option<u64>,
}

impl Alone {
    /// Of a load without others. None: it failed.
    fn from_page(page: &Waterfall) -> Option<Self> {
        if page.failure().is_some() {
            return None;
        }
        let last = |number: usize| {
            let carried = |one: &&Request| one.connection == Some(number as u32);
            page.requests.iter().filter(carried).map(Request::ended_us).max()
        };
        let connections = page
            .connections
            .iter()
            .enumerate()
            .filter_map(|(number, one)| {
                let (opened_us, last_us) = (one.connected_us?, last(number)?);
                Some(Held { opened_us, last_us, closed_us: one.closed_us })
            })
            .collect();
        Some(Self { connections, page_us: page.everything_us? })
    }

    /// Mean number of connections that these visitors hold within a window, s since the first may come.
    ///
    /// After a response a connection is held for `timeout`, at most until the visitor's next page, which
    /// uses it again, or until the visitor leaves. With None each is closed after its last response.
    pub(super) fn held(
        &self,
        visits: &[Visit],
        timeout: Option<Duration>,
        leave: Option<Duration>,
        [from_s, until_s]: [f64; 2],
    ) -> f64 {
        let timeout_s = timeout.unwrap_or_default().as_secs_f64();
        let mut held_s = 0.0;
        for visit in visits {
            let mut page_s = visit.at_ns as f64 / 1e9;
            let thinks = visit.thinks_ns.iter().map(|&ns| Some(ns as f64 / 1e9)).chain([None]);
            for think_s in thinks {
                let end_s = page_s + self.page_us as f64 / 1e6;
                let next_s = match (think_s, leave) {
                    (Some(think_s), _) => end_s + think_s,
                    (None, Some(leave)) => end_s + leave.as_secs_f64(),
                    (None, None) => f64::INFINITY,
                };
                for one in &self.connections {
                    let opened_s = page_s + one.opened_us as f64 / 1e6;
                    let kept_s = page_s + one.last_us as f64 / 1e6 + timeout_s;
                    let closed_s = one.closed_us.map_or(kept_s, |us| page_s + us as f64 / 1e6);
                    let closed_s = closed_s.min(kept_s).min(next_s);
                    held_s += (closed_s.min(until_s) - opened_s.max(from_s)).max(0.0);
                }
                page_s = next_s;
                // No page begins after the end.
                if page_s >= until_s {
                    break;
                }
            }
        }
        held_s / (until_s - from_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alone() -> Alone {
        let held = |opened_us| Held { opened_us, last_us: 500_000, closed_us: None };
        Alone { connections: vec![held(0), held(100_000)], page_us: 500_000 }
    }

    fn visit(at_s: u64, thinks_s: &[u64]) -> Visit {
        let thinks_ns = thinks_s.iter().map(|s| s * 1_000_000_000).collect();
        Visit { at_ns: at_s * 1_000_000_000, thinks_ns }
    }

    #[test]
    fn a_visitor_holds_its_connections_for_the_page_and_the_timeout() {
        let held = |visits: &[Visit], timeout: u64, leave| {
            let timeout = Some(Duration::from_secs(timeout));
            alone().held(visits, timeout, leave, [0.0, 10.0])
        };
        // 0.5 + 2 and 0.4 + 2 s of 10.
        assert!((held(&[visit(1, &[])], 2, None) - 0.49).abs() < 1e-9);
        // Half of it is after the end.
        assert!((held(&[visit(9, &[])], 2, None) - 0.19).abs() < 1e-9);
        // Thinks for less than the timeout: held throughout, then for the timeout.
        assert!((held(&[visit(0, &[1])], 2, None) - (1.5 + 1.4 + 2.5 + 2.4) / 10.0).abs() < 1e-9);
        // Leaves before the timeout.
        assert!((held(&[visit(0, &[])], 5, Some(Duration::from_secs(1))) - 0.29).abs() < 1e-9);
        // The server closed one of them with its last response.
        let mut closed = alone();
        closed.connections[0].closed_us = Some(500_000);
        let two = Some(Duration::from_secs(2));
        let held = closed.held(&[visit(1, &[])], two, None, [0.0, 10.0]);
        assert!((held - (0.5 + 2.4) / 10.0).abs() < 1e-9);
        assert!((alone().held(&[visit(0, &[])], None, None, [0.0, 10.0]) - 0.09).abs() < 1e-9);
    }
}
