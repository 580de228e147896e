//! From what the hosts reported to the arm that is recorded.

use crate::open::time_wait::{
    BUSY_WORKERS, CLIFF_FACTOR, CLIFF_PORTS, CONNECT_CPU, CONNECT_CPU_MEAN, CONNECT_CPU_PER_OP,
    IDLE_SHARE, IDLE_SHARE_FIRST, IDLE_SHARE_LAST, PORTS_PEAK, RATE,
};
use tcptoll_core::experiment::figures::{
    CLIENT_TIME_WAIT, CONNECT, CONNECT_MEAN, CONNECTIONS_RATE, LATENCY, LATENCY_MEAN, LATENESS,
    SERVER_TIME_WAIT,
};
use tcptoll_core::record::{PortPoint, PortUse};
use tcptoll_core::stats::Series;
use tcptoll_core::tcp::counters::difference;
use tcptoll_core::tcp::port_cliff;
use tcptoll_core::tcp::port_cliff::Chooser;
use tcptoll_core::units::human_count;
use tcptoll_core::verdict::warning::Warning;
use tcptoll_lab::messages::{CloseFirst, CurvePoint, Moment, POINTS_MAX, ShortReport};

use super::trial::{Driven, TimeWaitTrial};
use crate::kit::notes::{Span, mean_us, path_sample};
use crate::kit::procedure::LoadObservation;

/// A socket is in TIME-WAIT for 60 s: until then, with a second to spare, none has gone by itself.
const NONE_GONE_NS: u64 = 59_000_000_000;

/// Two counts of the same sockets may differ by this share, or by this number.
const MAY_DIFFER: (f64, u64) = (0.01, 8);

/// Share of the window at its beginning and at its end.
const EDGE: f64 = 0.1;

/// Operations below which a rate is left out. Between the first and the last of n operations are n - 1
/// intervals, so the rate of n operations is off by up to 1 / n. For 20 that is 5 %, the margin of the
/// experiment. The idle CPU of fewer operations is that of a machine without the load.
const OPERATIONS_MIN: u64 = 20;

/// Ticks of `/proc/stat` below which a share of idle CPU is left out: each reading is off by up to one
/// tick of 10 ms, which is 5 % of 20 ticks.
const TICKS_MIN: u64 = 20;
const TICK_NS: u64 = 10_000_000;

impl TimeWaitTrial<'_> {
    pub(super) fn take_report(&mut self, driven: &Driven) {
        let Driven { report, histograms } = driven;
        let settings = self.settings;
        let notes = &mut self.notes;
        let arm = &mut notes.arm;
        arm.attempts = report.attempts;
        arm.ok = report.ok;
        arm.errors.clone_from(&report.errors);
        arm.partial = report.partial;
        arm.elapsed_s = report.elapsed_ns as f64 / 1e9;
        arm.connections_attempted = Some(report.connects);
        arm.connections_ok = Some(report.connections);
        arm.client.tcp_info = path_sample(&report.tcp_info, &report.congestion);
        let short = settings.is_open_ended && report.attempts < self.count.unwrap_or(0);
        let limit = settings.duration.filter(|_| short && !report.partial);
        arm.cut_after_s = limit.map(|long| long.as_secs_f64());
        let specs = [
            ("establish", &CONNECT, Some(&CONNECT_MEAN)),
            ("connect_cpu", &CONNECT_CPU, None),
            ("latency", &LATENCY, Some(&LATENCY_MEAN)),
            ("lateness", &LATENESS, None),
        ];
        for (name, spec, mean) in specs {
            let found = histograms.iter().find(|(other, _)| other == name);
            let Some((_, histogram)) = found else { continue };
            notes.histogram(spec, histogram);
            if let Some(mean) = mean {
                notes.metric(mean, mean_us(histogram), histogram.count());
            }
        }
        let begun = begun(report);
        let seconds = report.elapsed_ns as f64 / 1e9;
        let enough = has_enough(report) && seconds > 0.0;
        let per_s = |count: u64| enough.then(|| count as f64 / seconds);
        notes.metric(&RATE, per_s(report.ok), report.ok);
        let connected = report.connections;
        notes.metric(&CONNECTIONS_RATE, per_s(connected), connected);
        let cpu_us = report.connect_cpu_ns as f64 / 1e3 / report.connects as f64;
        notes.metric(&CONNECT_CPU_MEAN, Some(cpu_us), report.connects);
        let per_op_us = (begun > 0).then(|| report.connect_cpu_ns as f64 / 1e3 / begun as f64);
        notes.metric(&CONNECT_CPU_PER_OP, per_op_us, begun);
        let busy = enough.then(|| report.busy_ns as f64 / report.elapsed_ns as f64);
        notes.metric(&BUSY_WORKERS, busy, report.attempts);
        if !enough {
            notes.warn(&Warning::FiguresLeftOut {
                figures: "rates, busy workers and idle CPU",
                have: format!(
                    "{} of the {OPERATIONS_MIN} operations that are needed were started",
                    human_count(begun)
                ),
                remedy: "raise --count, --duration or --rate",
            });
        }
    }

    pub(super) fn take_port_use(&mut self, report: &ShortReport, client: Span<'_>) {
        let loopback = self.ports.loopback;
        let [ours, theirs] = self.closed;
        let server = if loopback { ours.server } else { theirs.server };
        let counters = difference(&client.before.counters, &client.after.counters);
        let grew = |name: &str| counters.get(name).copied().unwrap_or(0).max(0).unsigned_abs();
        // Nothing is divided by a time in which next to nothing happened.
        let seen = if has_enough(report) { report.moments.as_slice() } else { &[] };
        let moments = Moments::new(seen);
        let settings = self.settings;
        let binds = !settings.sources.is_empty() && !settings.late_port;
        let chooser = if binds { Chooser::Bind } else { Chooser::Connect };
        let lasts = |rate| port_cliff::lasts_s(&self.forecast, rate, self.held);
        let curve: Vec<_> = report.curve.iter().filter_map(point).collect();
        let port_use = PortUse {
            held_ports: self.held,
            cliff_expected: port_cliff::expected(&self.ports, chooser),
            lasts_expected_s: settings.rate.and_then(lasts),
            cliff: port_cliff::found(&curve),
            curve,
            client_time_wait: ours.client.unwrap_or(0),
            server_time_wait: server.unwrap_or(0),
            time_wait_overflows: grew("TcpExtTCPTimeWaitOverflow"),
            time_wait_reused: grew("TcpExtTWRecycled"),
            idle_share: moments.idle_series(),
            busy_workers: Some(moments.series(|m| range(m.workers, m.looks, m.workers_range))),
            rate_per_s: moments.series(|m| rate(m.ok, m.ns)),
            failed_per_s: moments.series(|m| rate(m.no_port, m.ns)),
            ports_in_use: moments.series(|m| range(m.ports, m.looks, m.ports_range)),
        };
        let notes = &mut self.notes;
        notes.metric(&CLIENT_TIME_WAIT, ours.client.map(|count| count as f64), 1);
        notes.metric(&SERVER_TIME_WAIT, server.map(|count| count as f64), 1);
        let idle = |moments: &[Moment]| idle_share(moments);
        notes.metric(&IDLE_SHARE, idle(seen), 1);
        let short = report.elapsed_ns < (TICKS_MIN + 2) * TICK_NS;
        if !seen.is_empty() && short && idle(seen).is_none() {
            notes.warn(&Warning::FiguresLeftOut {
                figures: "idle CPU",
                have: format!(
                    "{} of the {} ms that are needed were measured",
                    report.elapsed_ns / 1_000_000,
                    TICKS_MIN * TICK_NS / 1_000_000
                ),
                remedy: "raise --count or --duration",
            });
        }
        notes.metric(&IDLE_SHARE_FIRST, idle(moments.first(EDGE)), 1);
        notes.metric(&IDLE_SHARE_LAST, idle(moments.last(EDGE)), 1);
        let peak = report.moments.iter().map(|moment| moment.ports_range.1).max();
        notes.metric(&PORTS_PEAK, peak.map(|ports| ports as f64), 1);
        let cliff = port_use.cliff;
        notes.metric(&CLIFF_PORTS, cliff.map(|cliff| cliff.at_ports), 1);
        notes.metric(&CLIFF_FACTOR, cliff.map(|cliff| cliff.factor()), 1);
        notes.arm.own.port_use = Some(Box::new(port_use));
    }

    pub(super) fn take_hosts(&mut self, report: &ShortReport, seen: &LoadObservation<'_>) {
        let notes = &mut self.notes;
        notes.arm.client.rss_peak_bytes = Some(seen.client.after.rss_peak_bytes);
        notes.client_cpu(report.cpu_us, report.attempts, report.attempts);
        if let Some((server, host)) = notes.arm.server.as_mut().zip(seen.server) {
            server.rss_peak_bytes = Some(host.after.rss_peak_bytes);
        }
        let answered = self.echoed.answered;
        notes.server_cpu(self.echoed.cpu_us, answered, answered);
    }

    /// Holds the kernel's count of TIME-WAIT, socket by socket, against what must be there: the ports
    /// held before and the connections closed since, without those that the kernel or a reset of the
    /// server ended early (RFC 1337).
    pub(super) fn check_time_wait(&mut self, report: &ShortReport, client: Span<'_>) {
        let age_ns = client.after.at_ns.saturating_sub(self.since_ns);
        let Some(port_use) = &self.notes.arm.own.port_use else { return };
        let counts = self.settings.close != CloseFirst::Server
            && age_ns < NONE_GONE_NS
            && !report.partial
            && self.closed[0].client.is_some()
            && self.closed[0].under_way == 0;
        if !counts {
            return;
        }
        let server = self.notes.arm.server.as_ref();
        let resets = server.and_then(|host| host.counters.get("TcpOutRsts")).copied().unwrap_or(0);
        let resets = resets.max(0).unsigned_abs();
        let gone = port_use.time_wait_overflows + port_use.time_wait_reused + resets;
        let expected = (self.held + report.connections).saturating_sub(gone);
        let witness = port_use.client_time_wait;
        let ran_out = report.errors.contains_key("local-ports").then_some(self.forecast.at_once);
        let mut checks = vec![("sockets in TIME-WAIT on the client host", expected)];
        // The kernel reuses ports while others are searched for: only without that all are in use.
        if port_use.time_wait_reused == 0 && port_use.time_wait_overflows == 0 {
            let left = |ports: u64| ports.saturating_sub(resets);
            checks.extend(ran_out.map(|ports| ("local ports when they ran out", left(ports))));
        }
        for (what, ours) in checks {
            if differ(ours, witness) {
                let what = what.to_owned();
                self.notes.warn(&Warning::WitnessDisagrees { what, ours, witness });
            }
        }
    }
}

fn differ(a: u64, b: u64) -> bool {
    let (share, number) = MAY_DIFFER;
    let apart = a.abs_diff(b);
    apart > number && apart as f64 > a.max(b) as f64 * share
}

/// The mean of a point of the curve; none without connections.
fn point(sums: &CurvePoint) -> Option<PortPoint> {
    let &CurvePoint { connections, ports, cpu_ns, connect_ns, failed, failed_ports } = sums;
    let mean = |sum: u64| sum as f64 / connections as f64;
    (connections > 0)
        .then(|| PortPoint {
            ports: mean(ports),
            connections,
            connect_cpu_us: mean(cpu_ns) / 1e3,
            connect_us: mean(connect_ns) / 1e3,
            failed,
        })
        .or_else(|| {
            (failed > 0).then(|| PortPoint {
                ports: failed_ports as f64 / failed as f64,
                failed,
                ..PortPoint::default()
            })
        })
}

/// Operations that a worker started.
fn begun(report: &ShortReport) -> u64 {
    report.attempts.saturating_sub(report.errors.get("unsent").copied().unwrap_or(0))
}

/// Whether there were enough operations for rates and idle CPU.
fn has_enough(report: &ShortReport) -> bool {
    begun(report) >= OPERATIONS_MIN
}

/// Least, mean and greatest of what was looked at.
fn range(sum: u64, looks: u64, (least, greatest): (u64, u64)) -> Option<[f64; 3]> {
    (looks > 0).then(|| [least as f64, sum as f64 / looks as f64, greatest as f64])
}

fn rate(count: u64, ns: u64) -> Option<[f64; 3]> {
    (ns > 0).then(|| [count as f64 / (ns as f64 / 1e9); 3])
}

fn idle_share(moments: &[Moment]) -> Option<f64> {
    let sum = |value: fn(&Moment) -> u64| moments.iter().map(value).sum::<u64>();
    let (idle, all) = (sum(|moment| moment.cpu.0), sum(|moment| moment.cpu.1));
    (all >= TICKS_MIN).then(|| idle as f64 / all as f64)
}

/// What was seen over time.
struct Moments<'a>(&'a [Moment]);

impl<'a> Moments<'a> {
    /// Without a last moment that is too short to divide by.
    fn new(all: &'a [Moment]) -> Self {
        match all {
            [before @ .., last] if before.last().is_some_and(|one| last.ns < one.ns / 2) => {
                Self(before)
            }
            all => Self(all),
        }
    }

    fn series(&self, value: impl Fn(&Moment) -> Option<[f64; 3]>) -> Series {
        let mut at_ns = 0;
        let mut series = Series::default();
        for moment in self.0.iter().take(POINTS_MAX) {
            let seconds = at_ns as f64 / 1e9;
            at_ns += moment.ns;
            series.points.extend(
                value(moment).map(|[least, mean, greatest]| [seconds, least, mean, greatest]),
            );
        }
        series
    }

    /// None: the host has no CPU of its own.
    fn idle_series(&self) -> Option<Series> {
        let series = self.series(|moment| idle_share(&[*moment]).map(|share| [share; 3]));
        (!series.points.is_empty()).then_some(series)
    }

    fn total_ns(&self) -> u64 {
        self.0.iter().map(|moment| moment.ns).sum()
    }

    /// The moments that begin in the first share of the time, at least one.
    fn first(&self, share: f64) -> &'a [Moment] {
        let count = within(self.0.iter(), self.total_ns(), share);
        &self.0[..count]
    }

    /// The moments that end in the last share of the time, at least one.
    fn last(&self, share: f64) -> &'a [Moment] {
        let count = within(self.0.iter().rev(), self.total_ns(), share);
        &self.0[self.0.len() - count..]
    }
}

/// How many moments it takes to fill a share of the time.
fn within<'a>(moments: impl Iterator<Item = &'a Moment>, total_ns: u64, share: f64) -> usize {
    let limit_ns = (total_ns as f64 * share) as u64;
    let mut filled_ns = 0;
    let mut count = 0;
    for moment in moments {
        if filled_ns >= limit_ns && count > 0 {
            break;
        }
        filled_ns += moment.ns;
        count += 1;
    }
    count
}
