//! From what the hosts reported to the arm that is recorded. All times are s after the measured window
//! began.

use std::time::Duration;

use super::trial::{BACKEND_GROUP, Driven, LOCAL_GROUP, PoolTrial};
use super::{
    BACKEND, BACKEND_FAILED, BACKEND_LATENCY, BACKEND_LATENCY_MEAN, BACKEND_RATE, LOCAL,
    LOCAL_FAILED, LOCAL_LATENCY, LOCAL_LATENCY_MEAN, LOCAL_RATE, RECOVERY, WORKERS_BUSY_PEAK,
    WORKERS_STUCK,
};
use crate::kit::notes::{mean_us, path_sample, quantile_us, set_cpu};
use crate::kit::procedure::LoadObservation;
use tcptoll_core::http::server::Connection;
use tcptoll_core::http::stuck;
use tcptoll_core::http::stuck::Calls;
use tcptoll_core::record::{RequestGroup, Warmup, WorkerPool};
use tcptoll_core::stats::{Histogram, Series, SeriesBuilder};
use tcptoll_core::verdict::validity;
use tcptoll_core::verdict::warning::Warning;
use tcptoll_lab::messages::{GROUP_LATENCY, GroupReport, GroupSlice, HttpReport, WorkerSample};

/// Points of a series of the status page.
const POINTS: usize = 400;

/// The record's figures of one group.
struct GroupSpecs {
    number: u8,
    name: &'static str,
    latency: &'static tcptoll_core::experiment::spec::HistogramSpec,
    mean: &'static tcptoll_core::experiment::spec::MetricSpec,
    rate: &'static tcptoll_core::experiment::spec::MetricSpec,
    failed: &'static tcptoll_core::experiment::spec::MetricSpec,
}

const GROUPS: [GroupSpecs; 2] = [
    GroupSpecs {
        number: BACKEND_GROUP,
        name: BACKEND,
        latency: &BACKEND_LATENCY,
        mean: &BACKEND_LATENCY_MEAN,
        rate: &BACKEND_RATE,
        failed: &BACKEND_FAILED,
    },
    GroupSpecs {
        number: LOCAL_GROUP,
        name: LOCAL,
        latency: &LOCAL_LATENCY,
        mean: &LOCAL_LATENCY_MEAN,
        rate: &LOCAL_RATE,
        failed: &LOCAL_FAILED,
    },
];

impl PoolTrial<'_> {
    pub(super) fn take_driven(&mut self, driven: &Driven, seen: &LoadObservation<'_>) {
        self.take_report(&driven.report);
        let mut pool = self.pool(driven);
        for specs in &GROUPS {
            let Some(group) = driven.group(specs.number) else { continue };
            self.take_group(specs, group, driven);
            pool.groups.insert(specs.name.to_owned(), recorded(group));
        }
        self.take_workers(&mut pool);
        let notes = &mut self.notes;
        let recovery = driven.group(LOCAL_GROUP).zip(pool.stalled_s);
        pool.recovery_s = recovery.and_then(|(group, stalled)| recovery_s(group, stalled));
        notes.metric(&RECOVERY, pool.recovery_s, 1);
        notes.arm.own = Box::new(pool).into();
        self.judge(driven, seen);
    }

    fn take_report(&mut self, report: &HttpReport) {
        let arm = &mut self.notes.arm;
        arm.attempts = report.attempts;
        arm.ok = report.ok;
        arm.errors.clone_from(&report.errors);
        arm.statuses =
            report.statuses.iter().map(|(status, count)| (status.to_string(), *count)).collect();
        arm.partial = report.partial;
        arm.elapsed_s = report.elapsed_ns as f64 / 1e9;
        arm.io = Some(report.io.clone());
        arm.client.tcp_info = path_sample(&report.tcp_info, &report.congestion);
        let (attempts, errors) = &report.warmup;
        let failed: u64 = errors.values().sum();
        if *attempts > 0 {
            arm.warmup = Some(Warmup {
                attempts: *attempts,
                ok: attempts.saturating_sub(failed),
                errors: errors.clone(),
                elapsed_s: self.settings.load.warmup.as_secs_f64(),
                histograms: std::collections::BTreeMap::new(),
            });
        }
        if let Some((class, _)) = errors.iter().max_by_key(|(_, count)| **count) {
            let class = class.clone();
            self.notes.warn(&Warning::WarmupFailed { failed, all: *attempts, class });
        }
    }

    /// What is known before the groups.
    fn pool(&self, driven: &Driven) -> WorkerPool {
        let settings = self.settings;
        let begun_ns = driven.begun_ns();
        let stalled = driven.stalled.and_then(|stalled| stalled.from_ns.zip(stalled.until_ns));
        let stalled_s = begun_ns
            .zip(stalled)
            .map(|(begun, (from, until))| [from, until].map(|at| seconds_since(begun, at)));
        let queue = self.queue.as_ref();
        WorkerPool {
            workers: settings.front.workers,
            front: settings.front.kind.name().to_owned(),
            backend: settings.backend.kind.name().to_owned(),
            stalled_s,
            backend_queue: begun_ns
                .zip(queue)
                .map(|(begun, (from, queue))| shifted(&queue.length, *from, begun))
                .unwrap_or_default(),
            backend_limit: self.services().ok().map(|(backend, _)| backend.limit),
            // The backend's is the only listener of its host; `sk_drops` counts resets of clients too.
            backend_drops: queue.and(self.notes.arm.server.as_ref()).map(|server| {
                let drops = server.counters.get("TcpExtListenDrops").copied().unwrap_or(0);
                u64::try_from(drops).unwrap_or(0)
            }),
            connect_timeout_s: settings.backend.connect_timeout.map(|limit| limit.as_secs_f64()),
            busy: self.over_time(begun_ns, |sample| Some(sample.busy)),
            waiting: self.over_time(begun_ns, |sample| sample.waiting),
            ..WorkerPool::default()
        }
    }

    /// A figure of the status page over time.
    fn over_time(
        &self,
        begun_ns: Option<u64>,
        figure: impl Fn(&WorkerSample) -> Option<u32>,
    ) -> Series {
        let Some(begun_ns) = begun_ns else { return Series::default() };
        let mut series = SeriesBuilder::new(POINTS);
        for sample in &self.workers.samples {
            let since = sample.at_ns.checked_sub(begun_ns).map(Duration::from_nanos);
            if let Some((since, value)) = since.zip(figure(sample)) {
                series.push(since, f64::from(value));
            }
        }
        series.build()
    }

    fn take_group(&mut self, specs: &GroupSpecs, group: &GroupReport, driven: &Driven) {
        let notes = &mut self.notes;
        let latency = GROUP_LATENCY[usize::from(specs.number)];
        if let Some(latency) = driven.named(latency) {
            notes.histogram(specs.latency, latency);
            notes.metric(specs.mean, mean_us(latency), latency.count());
        }
        let window_s = group.slice_ns as f64 * group.slices.len() as f64 / 1e9;
        let completed: u64 = group.slices.iter().map(|slice| slice.completed).sum();
        let rate = (window_s > 0.0).then(|| completed as f64 / window_s);
        notes.metric(specs.rate, rate, completed);
        let failed: u64 = group.errors.values().sum();
        let share = (group.attempts > 0).then(|| failed as f64 / group.attempts as f64);
        notes.metric(specs.failed, share, group.attempts);
    }

    /// How many workers were busy, and how many had to be.
    fn take_workers(&mut self, pool: &mut WorkerPool) {
        let peak = pool.busy.points.iter().map(|[.., greatest]| *greatest).reduce(f64::max);
        let samples = self.workers.samples.len() as u64;
        self.notes.metric(&WORKERS_BUSY_PEAK, peak, samples);
        let Some(calls) = self.calls(pool) else { return };
        let Some(expected) = stuck::expected(&calls) else { return };
        pool.stuck_expected = Some(expected.stuck);
        pool.wait_expected_s = Some(expected.wait_s);
        pool.local_wait_expected_s = Some(expected.local_wait_s);
        let Some([from_s, _]) = pool.stalled_s else { return };
        let steady_s = expected.steady_s.map(|at_s| from_s + at_s);
        pool.steady_s = Some(steady_s);
        let (mean, n) = mean_within(&pool.busy, steady_s);
        pool.stuck_measured = mean;
        self.notes.metric(&WORKERS_STUCK, mean, n);
        let local = pool.groups.get(LOCAL);
        let served_us = local.and_then(|local| mean_within(&local.latency_us, steady_s).0);
        let always_free =
            peak_within(&pool.busy, steady_s).is_some_and(|peak| peak < pool.workers as f64);
        pool.stuck_expected_max = served_us
            .filter(|_| always_free)
            .and_then(|us| stuck::at_most(&calls, &expected, us / 1e6));
    }

    /// What is called during the stall, from the settings.
    fn calls(&self, pool: &WorkerPool) -> Option<Calls> {
        let settings = self.settings;
        // As long as it was, which is what all else is compared with.
        let [from_s, until_s] = pool.stalled_s?;
        let seconds = |time: Duration| time.as_secs_f64();
        let backend = &settings.backend;
        let backend_per_s = settings.load.backend_per_s();
        Some(Calls {
            workers: settings.front.workers,
            backend_per_s,
            local_per_s: settings.load.rate_per_s - backend_per_s,
            work_s: seconds(settings.front.work),
            queue: u64::from(pool.backend_limit?) + 1,
            pooled: backend.connection == Connection::Pooled,
            cached_s: settings.front.cache.map(seconds),
            connect_timeout_s: backend.connect_timeout.map(seconds),
            answer_timeout_s: seconds(backend.answer_timeout),
            retries: backend.retries.count,
            pauses_s: backend.retries.pauses_mean_ns() as f64 / 1e9,
            stall_s: until_s - from_s,
        })
    }

    /// Whether the client kept its schedule, and whether its CPU or the stall made the figures. The
    /// load and the front service share the client host's CPU.
    fn judge(&mut self, driven: &Driven, seen: &LoadObservation<'_>) {
        let report = &driven.report;
        let notes = &mut self.notes;
        let late = |percent| quantile_us(driven.named("lateness")?, percent);
        // The median of all is that of requests which met no stall, as a rule.
        let typical = driven.named("latency").and_then(|latency| quantile_us(latency, 50));
        notes.found(validity::client_late(late(50), late(99), typical));
        notes.arm.client.rss_peak_bytes = Some(seen.client.after.rss_peak_bytes);
        let front_us = seen.client.children_cpu_us();
        let between_us = seen.client.after.at_ns.saturating_sub(seen.client.before.at_ns) / 1_000;
        let all_us = (report.cpu_us.0 + front_us.0, report.cpu_us.1 + front_us.1);
        if between_us > 0 {
            let share = (all_us.0 + all_us.1) as f64 / between_us as f64;
            notes.found(validity::client_bottleneck(share, None));
        }
        set_cpu(&mut notes.arm.client, all_us, report.attempts + report.warmup.0);
        notes.arm.client.processes = Some(seen.client.after.children).filter(|count| *count > 0);
        if let (Some(server), Some(summary)) = (seen.server, &mut notes.arm.server) {
            let after = server.after;
            summary.processes = Some(after.children).filter(|count| *count > 0);
            summary.memory_bytes = Some(after.children_memory_bytes).filter(|bytes| *bytes > 0);
            let requests = report.attempts + report.warmup.0;
            set_cpu(summary, server.children_cpu_us(), requests);
        }
        // A request that waits in the client is no request of the front service's queue.
        if report.queued > 0 {
            notes.exclude("requests waited in the client, not at the front service");
        }
        if driven.stalled.is_some_and(|stalled| stalled.partial) && !report.partial {
            notes.exclude("the backend resumed before the end of its stall");
        }
    }
}

impl Driven {
    fn group(&self, number: u8) -> Option<&GroupReport> {
        self.groups.iter().find(|group| group.group == number)
    }

    fn named(&self, name: &str) -> Option<&Histogram> {
        self.histograms.iter().find(|(other, _)| other == name).map(|(_, histogram)| histogram)
    }

    /// When the measured window began, ns on the monotonic clock. Both hosts have the same.
    fn begun_ns(&self) -> Option<u64> {
        self.groups.first().map(|group| group.begun_ns)
    }
}

/// A group as it is recorded.
fn recorded(group: &GroupReport) -> RequestGroup {
    let width_s = group.slice_ns as f64 / 1e9;
    let rate = |(at, completed): (usize, u64)| {
        let rate = completed as f64 / width_s;
        [at as f64 * width_s, rate, rate, rate]
    };
    let latency = |(at, slice): (usize, &tcptoll_lab::messages::GroupSlice)| {
        let [least, sum, greatest] = slice.latency_ns.filter(|_| slice.ok > 0)?;
        let us = |ns: u64| ns as f64 / 1e3;
        Some([at as f64 * width_s, us(least), us(sum) / slice.ok as f64, us(greatest)])
    };
    let slices = || group.slices.iter().enumerate();
    RequestGroup {
        attempts: group.attempts,
        ok: group.ok,
        errors: group.errors.clone(),
        rate_per_s: Series {
            points: slices().map(|(at, slice)| (at, slice.completed)).map(rate).collect(),
        },
        latency_us: Series { points: slices().filter_map(latency).collect() },
    }
}

/// From one instant to another, which may come before it, s.
fn seconds_since(begun_ns: u64, at_ns: u64) -> f64 {
    (i128::from(at_ns) - i128::from(begun_ns)) as f64 / 1e9
}

/// A series whose time counts from one instant, counted from a later one; what came before is left
/// out.
fn shifted(series: &Series, from_ns: u64, begun_ns: u64) -> Series {
    let by_s = seconds_since(begun_ns, from_ns);
    let point = |[at_s, least, mean, greatest]: [f64; 4]| [at_s + by_s, least, mean, greatest];
    let points = series.points.iter().copied().map(point);
    Series { points: points.filter(|[at_s, ..]| *at_s >= 0.0).collect() }
}

/// Mean of a series within a stretch of time, and the points behind it. None: it has none there.
fn mean_within(series: &Series, [from_s, until_s]: [f64; 2]) -> (Option<f64>, u64) {
    let within = |[at_s, ..]: &&[f64; 4]| (from_s..until_s).contains(at_s);
    let means: Vec<f64> =
        series.points.iter().filter(within).map(|[_, _, mean, _]| *mean).collect();
    let n = means.len() as u64;
    ((n > 0).then(|| means.iter().sum::<f64>() / n as f64), n)
}

/// The greatest value of a series within a stretch of time. None: it has no point there.
fn peak_within(series: &Series, [from_s, until_s]: [f64; 2]) -> Option<f64> {
    let within = series.points.iter().filter(|[at_s, ..]| (from_s..until_s).contains(at_s));
    within.map(|[.., greatest]| *greatest).reduce(f64::max)
}

/// Recovery is over when this many slices in a row are fast: one fast slice among slow ones is
/// chance.
const CALM: usize = 5;

/// A slice is slow if its mean latency is above this multiple of the mean before the stall …
const FACTOR: f64 = 2.0;

/// … and above that mean by this much, ns: below a millisecond the scheduler decides.
const NOISE_NS: f64 = 1e6;

/// Time from the end of a stall until requests were as fast as before it, s; 0 or more. The stall's
/// begin and end are s after the load began. It looks at slices of the window by when requests were due.
///
/// None: no request came before the stall to compare with, none was slow, or they stayed slow until
/// the end.
fn recovery_s(group: &GroupReport, [from_s, until_s]: [f64; 2]) -> Option<f64> {
    let width_s = group.slice_ns as f64 / 1e9;
    let begins_s = |at: usize| at as f64 * width_s;
    let slices = || group.slices.iter().enumerate().filter(|(_, slice)| slice.due > 0);
    let calm = slices().filter(|(at, _)| begins_s(at + 1) <= from_s).map(|(_, slice)| slice);
    let fast_ns = fast_ns(calm)?;
    let is_slow =
        |slice: &GroupSlice| slice.failed > 0 || mean_ns(slice).is_none_or(|mean| mean > fast_ns);
    let after: Vec<(usize, bool)> = slices()
        .filter(|(at, _)| begins_s(at + 1) > from_s)
        .map(|(at, slice)| (at, is_slow(slice)))
        .collect();
    after.iter().position(|(_, slow)| *slow)?;
    // Slices from the one in which the stall ended on.
    let last = after.partition_point(|(at, _)| begins_s(at + 1) <= until_s);
    let fast = after[last..].windows(CALM).find(|five| five.iter().all(|(_, slow)| !slow))?;
    Some((begins_s(fast[0].0) - until_s).max(0.0))
}

/// The latency up to which a slice is as fast as these. None: there are none.
fn fast_ns<'a>(calm: impl Iterator<Item = &'a GroupSlice>) -> Option<f64> {
    let (mut sum, mut count, mut greatest) = (0.0, 0_u64, 0.0_f64);
    for slice in calm {
        let Some([_, of_slice, _]) = slice.latency_ns else { continue };
        sum += of_slice as f64;
        count += slice.ok;
        greatest = greatest.max(mean_ns(slice).unwrap_or(0.0));
    }
    let mean = (count > 0).then(|| sum / count as f64)?;
    Some((mean * FACTOR).max(greatest).max(mean + NOISE_NS))
}

/// Mean latency of a slice's successes. None: it has none.
fn mean_ns(slice: &GroupSlice) -> Option<f64> {
    let [_, sum, _] = slice.latency_ns?;
    (slice.ok > 0).then(|| sum as f64 / slice.ok as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tcptoll_lab::messages::GroupSlice;

    #[test]
    fn a_series_of_another_beginning_is_moved_and_what_came_before_left_out() {
        let series = Series { points: vec![[0.0, 1.0, 1.0, 1.0], [0.75, 2.0, 3.0, 4.0]] };
        let moved = shifted(&series, 1_000_000_000, 1_500_000_000);
        assert_eq!(moved.points, [[0.25, 2.0, 3.0, 4.0]]);
    }

    #[test]
    fn the_mean_within_a_stretch_is_of_its_points_alone() {
        let points = (0..10).map(|at| [f64::from(at), 0.0, f64::from(at), 9.0]).collect();
        let series = Series { points };
        assert_eq!(mean_within(&series, [2.0, 5.0]), (Some(3.0), 3));
        assert_eq!(mean_within(&series, [20.0, 50.0]), (None, 0));
    }

    #[test]
    fn a_group_is_recorded_with_rates_by_completion_and_latency_by_when_due() {
        let slices = vec![
            GroupSlice {
                due: 3,
                ok: 2,
                failed: 1,
                completed: 0,
                latency_ns: Some([1_000, 8_000, 7_000]),
            },
            GroupSlice { completed: 2, ..GroupSlice::default() },
        ];
        let group = GroupReport {
            attempts: 3,
            ok: 2,
            slice_ns: 500_000_000,
            slices,
            ..GroupReport::default()
        };
        let recorded = recorded(&group);
        assert_eq!(recorded.rate_per_s.points, [[0.0; 4], [0.5, 4.0, 4.0, 4.0]]);
        assert_eq!(recorded.latency_us.points, [[0.0, 1.0, 4.0, 7.0]]);
    }

    const MS: u64 = 1_000_000;

    /// Slices of 100 ms with two requests each, which took this many ms; None: one failed.
    fn group(means_ms: &[Option<u64>]) -> GroupReport {
        let one = |mean: &Option<u64>| GroupSlice {
            due: 2,
            ok: if mean.is_some() { 2 } else { 1 },
            failed: u64::from(mean.is_none()),
            completed: 0,
            latency_ns: Some([MS, mean.unwrap_or(1) * 2 * MS, mean.unwrap_or(1) * MS]),
        };
        let slices = means_ms.iter().map(one).collect();
        GroupReport { slice_ns: 100 * MS, slices, ..GroupReport::default() }
    }

    /// 1 s of 1 ms, a stall of 0.5 s, and this after it.
    fn after(means_ms: &[Option<u64>]) -> Option<f64> {
        let mut all = vec![Some(1); 10];
        all.extend([Some(500), Some(400), Some(300), Some(200), Some(100)]);
        all.extend(means_ms);
        recovery_s(&group(&all), [1.0, 1.5])
    }

    #[test]
    fn it_counts_from_the_end_of_the_stall_to_the_first_of_five_fast_slices() {
        let calm = [Some(1); 5];
        let found = after(&[&[Some(80), Some(60), Some(1), Some(40)], &calm[..]].concat()).unwrap();
        assert!((found - 0.4).abs() < 1e-9, "{found}");
        assert!(after(&calm).unwrap().abs() < 1e-9);
    }

    #[test]
    fn a_failed_request_is_slow_and_so_is_what_stays_slow_to_the_end() {
        let found = after(&[&[Some(1), None], &[Some(1); 5][..]].concat()).unwrap();
        assert!((found - 0.2).abs() < 1e-9, "{found}");
        assert_eq!(after(&[Some(1), Some(1), Some(1), Some(1), Some(50)]), None);
    }

    #[test]
    fn without_a_slow_request_there_is_nothing_to_recover_from() {
        assert_eq!(recovery_s(&group(&[Some(1); 30]), [1.0, 1.5]), None);
        // Within the noise of a scheduler.
        let mut noise = vec![Some(1); 12];
        noise.extend([Some(2); 18]);
        assert_eq!(recovery_s(&group(&noise), [1.0, 1.5]), None);
    }

    #[test]
    fn nothing_before_the_stall_is_nothing_to_compare_with() {
        assert_eq!(recovery_s(&group(&[Some(1); 30]), [0.05, 0.5]), None);
    }
}
