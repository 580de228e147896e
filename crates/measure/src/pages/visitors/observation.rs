//! From what visitors and the server's status page told to the arm that is recorded.

use std::time::Duration;

use crate::pages::visitors::{
    CONNECTIONS, FIRST, FIRST_PAGE_MEAN, NEXT, NEXT_PAGE_MEAN, PAGE, PAGE_MEAN, PAGE_P95,
    PAGES_FAILED, PAGES_RATE, WORKERS_BUSY, WORKERS_BUSY_PEAK, WORKERS_KEPT,
};
use tcptoll_core::experiment::figures::ACCEPT_QUEUE_PEAK;
use tcptoll_core::experiment::spec::MetricSpec;
use tcptoll_core::record::{MemoryLimit, PageGroup, SiteVisits};
use tcptoll_core::stats::summary::POINTS_MAX;
use tcptoll_core::stats::{Histogram, Series, SeriesBuilder};
use tcptoll_core::verdict::validity;
use tcptoll_lab::messages::{PageSeen, ServerKind, WorkerSample};

use super::expected::Alone;
use super::trial::{Limit, VisitorTrial, VisitorsOutcome};
use crate::kit::notes::{quantile_us, set_cpu};
use crate::kit::procedure::LoadObservation;

/// Visitors that come later than this share of a page's time are late.
const LATE_SHARE: f64 = 0.05;

/// A figure of a page.
type Of = fn(&PageSeen) -> f64;

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
        let mean = |pages: &[&PageSeen], figure: Of| {
            let count = pages.len() as u64;
            let sum: f64 = pages.iter().map(|page| figure(page)).sum();
            ((count > 0).then(|| sum / count as f64), count)
        };
        let (first, next): (Vec<&PageSeen>, Vec<&PageSeen>) =
            whole.iter().copied().partition(|page| page.first);
        let figures: [(&MetricSpec, &[&PageSeen], Of); 4] = [
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
