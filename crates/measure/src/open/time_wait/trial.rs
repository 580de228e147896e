//! One trial of `time-wait`: ports are held, workers connect until their end, both hosts' sockets are counted;
//! and what is recorded of it.
//!
//! Ports are held by connections opened and closed before the measurement: what a service would have left
//! behind. They are closed in the arm's own way. Where the client closes first they hold its ports; where the
//! server does they hold none; long-lived connections leave none at all.

use std::net::SocketAddr;
use std::time::Duration;

use tcptoll_core::experiment::figures::{
    CLIENT_TIME_WAIT, CONNECT, CONNECT_MEAN, CONNECTIONS_RATE, LATENCY, LATENCY_MEAN, LATENESS,
    SERVER_TIME_WAIT,
};
use tcptoll_core::number;
use tcptoll_core::record::{PortPoint, PortUse};
use tcptoll_core::stats::{Histogram, Series};
use tcptoll_core::study::PlannedArm;
use tcptoll_core::tcp::counters::difference;
use tcptoll_core::tcp::ports::{ClientCloses, PortForecast, PortSettings, assigned, forecast};
use tcptoll_core::units::ns;
use tcptoll_core::verdict::port_cliff;
use tcptoll_core::verdict::port_cliff::Chooser;
use tcptoll_core::verdict::warning::Warning;
use tcptoll_lab::lab::{Begun, Hosts, LabError};
use tcptoll_lab::messages::{
    CloseFirst, ClosedSockets, CountClosed, CurvePoint, Done, Echo, EchoReport, HoldPorts, Moment,
    POINTS_MAX, PortsHeld, Rows, ShortLoad, ShortReport, Watch,
};

use super::settings::{PORT_RANGE, TW_REUSE, TimeWaitSettings};
use super::{
    BUSY_WORKERS, CLIFF_FACTOR, CLIFF_PORTS, CONNECT_CPU, CONNECT_CPU_MEAN, CONNECT_CPU_PER_OP,
    IDLE_SHARE, IDLE_SHARE_FIRST, IDLE_SHARE_LAST, PORTS_PEAK, RATE,
};
use crate::kit::TrialError;
use crate::kit::hosts::{PortsNeeded, read_sysctls};
use crate::kit::notes::{Notes, Span, mean_us, path_sample};
use crate::kit::plan::{Context, Outcome};
use crate::kit::procedure;
use crate::kit::procedure::{JudgementBasis, LoadObservation, Site, Trial};

/// Port of the server. The kernel would choose another one for the load than for the connections
/// before it, and on loopback one of the client's range.
const PORT: u16 = 9_000;

/// Sockets may take this long to their last state, after FINs have been waited for.
const SETTLED: Duration = Duration::from_millis(500);

pub(super) struct TimeWaitTrial<'a> {
    settings: &'a TimeWaitSettings,
    notes: Notes,
    /// What the forecast rests on.
    ports: PortSettings,
    /// The forecast, and the operations that follow from it.
    forecast: PortForecast,
    count: Option<u64>,
    /// Local ports in use when the measurement began.
    held: u64,
    /// When the first connection was opened, ns on the monotonic clock.
    since_ns: u64,
    /// Our server, while it runs.
    server: Option<Begun<Echo>>,
    /// What it reports at its end.
    echoed: EchoReport,
    /// Sockets of closed connections on client and server.
    closed: [ClosedSockets; 2],
}

pub(super) struct Driven {
    report: ShortReport,
    /// Distributions by name, without unit.
    histograms: Vec<(String, Histogram)>,
}

impl<'a> TimeWaitTrial<'a> {
    /// Runs a trial of an arm.
    pub(super) fn outcome(
        arm: &PlannedArm,
        settings: &'a TimeWaitSettings,
        context: &mut Context<'_>,
    ) -> Result<Outcome, TrialError> {
        let mut notes = Notes::new(&arm.name, &settings.sources);
        // Whether ports run out is what is asked.
        notes.ports_may_run_out = true;
        let mut trial = TimeWaitTrial {
            settings,
            notes,
            ports: PortSettings::default(),
            forecast: PortForecast::default(),
            count: None,
            held: 0,
            since_ns: 0,
            server: None,
            echoed: EchoReport::default(),
            closed: [ClosedSockets::default(); 2],
        };
        // The lab must not add source addresses on its own: scarcity is what is asked for.
        let needed = PortsNeeded { at_a_time: 1, connections: 1 };
        procedure::run(&mut trial, Site::Lab(settings.lab.clone(), needed), context)?;
        Ok(trial.notes.into_outcome(&arm.factors))
    }

    fn target(hosts: &Hosts) -> SocketAddr {
        SocketAddr::new(hosts.addresses.server, PORT)
    }

    /// How many connections the client's ports allow, before the first is opened.
    fn forecast(&mut self, hosts: &mut Hosts) -> Result<(u16, u16), TrialError> {
        let names = [
            PORT_RANGE,
            "net.ipv4.ip_local_reserved_ports",
            "net.ipv4.tcp_timestamps",
            TW_REUSE,
            "net.ipv4.tcp_tw_reuse_delay",
        ];
        self.ports = PortSettings {
            sysctls: read_sysctls(&mut hosts.client, &names)?,
            sources: self.settings.source_count(),
            destinations: 1,
            client_closes: match self.settings.close {
                CloseFirst::Client => ClientCloses::All,
                CloseFirst::Server | CloseFirst::Never => ClientCloses::None,
            },
            loopback: hosts.addresses.server.is_loopback(),
            ..PortSettings::default()
        };
        let unreadable = || {
            let why = format!("{PORT_RANGE} of the client host cannot be read");
            TrialError::Lab(LabError::Refused(why))
        };
        let range = self.ports.sysctls.get(PORT_RANGE).and_then(|text| range(text));
        let range = range.ok_or_else(unreadable)?;
        self.forecast = forecast(&self.ports).ok_or_else(unreadable)?;
        self.notes.arm.ports = Some(self.forecast.clone());
        let held = self.settings.held_ports(self.forecast.usable);
        self.count = self.settings.count_of(self.forecast.at_once.saturating_sub(held));
        Ok(range)
    }
}

/// Reads `32768 60999`.
fn range(text: &str) -> Option<(u16, u16)> {
    let (low, high) = text.trim().split_once(char::is_whitespace)?;
    Some((low.parse().ok()?, high.trim().parse().ok()?))
}

impl Trial for TimeWaitTrial<'_> {
    type Report = Driven;

    fn notes(&mut self) -> &mut Notes {
        &mut self.notes
    }

    fn prepare(&mut self, hosts: &mut Hosts, context: &Context<'_>) -> Result<(), TrialError> {
        let range = self.forecast(hosts)?;
        let target = Self::target(hosts);
        self.since_ns = hosts.time.now().as_nanos() as u64;
        self.held = self.settings.hold(hosts, (target, range), &self.forecast, context)?;
        Ok(())
    }

    fn listen(&mut self, hosts: &mut Hosts, _context: &Context<'_>) -> Result<Watch, TrialError> {
        let echo = self.settings.echo(Self::target(hosts));
        let (_, serving) = hosts.server()?.start(&echo)?;
        self.server = Some(serving);
        Ok(Watch::default())
    }

    fn load(&mut self, hosts: &mut Hosts, context: &mut Context<'_>) -> Result<Driven, TrialError> {
        let settings = self.settings;
        let load = ShortLoad {
            target: Self::target(hosts),
            workers: settings.workers,
            count: self.count,
            duration_ns: settings.duration.map(ns),
            rate_per_s: settings.rate,
            sources: settings.sources.clone(),
            late_port: settings.late_port,
            close: settings.close,
            work_ns: ns(settings.work),
            timeout_ns: ns(settings.timeout),
            ports_max: self.forecast.at_once,
        };
        let begun = hosts.client.begin(&load)?;
        let total = self.count.unwrap_or(0);
        let progress = &mut context.progress;
        // How many there will be is not always known: without a total no share of it is shown.
        let total_shown = |done: Done| if total == 0 { 0 } else { total.max(done.done) };
        let tell = &mut |done: Done| progress(done, total_shown(done));
        let answered = hosts.client.wait(begun, context.interrupt, tell)?;
        Ok(Driven { report: answered.answer, histograms: answered.histograms })
    }

    fn client_done(&mut self, hosts: &mut Hosts) -> Result<(), TrialError> {
        let wanted = count_closed(Self::target(hosts));
        self.closed[0] = hosts.client.ask(&wanted)?;
        Ok(())
    }

    fn server_done(&mut self, hosts: &mut Hosts, _wire: Vec<Rows>) -> Result<(), TrialError> {
        if let Some(serving) = self.server.take() {
            self.echoed = hosts.server()?.stop(serving)?.answer;
        }
        let wanted = count_closed(Self::target(hosts));
        self.closed[1] = hosts.server()?.ask(&wanted)?;
        Ok(())
    }

    fn take(&mut self, driven: &Driven, seen: &LoadObservation<'_>) -> JudgementBasis {
        self.take_report(driven);
        self.take_port_use(&driven.report, seen.client);
        self.take_hosts(&driven.report, seen);
        self.check_time_wait(&driven.report, seen.client);
        JudgementBasis { operations: driven.report.attempts, stamped: false }
    }
}

/// Counts all sockets of connections to the server, those before the measurement too.
fn count_closed(server: SocketAddr) -> CountClosed {
    CountClosed { server, since_ns: 0, limit_ns: SETTLED.as_nanos() as u64 }
}

/// Ports in TIME-WAIT may be reused after the kernel's delay; this much later all of them may.
const REUSE_SLACK: Duration = Duration::from_millis(20);

/// A kernel keeps TIME-WAIT this long, s.
const TIME_WAIT_S: f64 = 60.0;

/// Backlog of the server: more than workers there can be.
const BACKLOG: i32 = 4_096;

impl TimeWaitSettings {
    fn echo(&self, at: SocketAddr) -> Echo {
        Echo { at, backlog: BACKLOG, closes: self.close == CloseFirst::Server }
    }

    /// Opens and closes connections before the measurement; gives how many local ports they hold.
    ///
    /// Errors: the kernel does not hold as many as asked.
    fn hold(
        &self,
        hosts: &mut Hosts,
        (target, range): (SocketAddr, (u16, u16)),
        forecast: &PortForecast,
        context: &Context<'_>,
    ) -> Result<u64, TrialError> {
        let count = self.held.count(forecast.usable);
        if count == 0 || self.close == CloseFirst::Never {
            return Ok(0);
        }
        let wanted = self.held_ports(forecast.usable);
        let (_, serving) = hosts.server()?.start(&self.echo(target))?;
        let order = HoldPorts {
            target,
            sources: self.sources.clone(),
            range: assigned(range.0, range.1),
            count,
            late_port: self.late_port,
            close: self.close,
            expected: wanted,
            timeout_ns: self.timeout.as_nanos() as u64,
        };
        let begun = hosts.client.begin(&order)?;
        let held = hosts.client.wait(begun, context.interrupt, &mut |_| {})?.answer;
        hosts.server()?.stop(serving)?;
        if context.interrupt.signal().is_some() {
            return Err(LabError::Interrupted.into());
        }
        if held.closed < count || held.time_wait != wanted {
            return Err(LabError::Refused(too_few(&held, count, wanted)).into());
        }
        // With tcp_tw_reuse in force all of them are old enough to be reused, as in a service.
        if forecast.held_s > 0.0 && forecast.held_s < TIME_WAIT_S {
            hosts.time.pause(Duration::from_secs_f64(forecast.held_s) + REUSE_SLACK);
        }
        Ok(held.time_wait)
    }
}

/// Why the measurement cannot begin.
fn too_few(held: &PortsHeld, count: u64, wanted: u64) -> String {
    let errors: Vec<_> =
        held.errors.iter().map(|(class, count)| format!("{count} {class}")).collect();
    let failed =
        if errors.is_empty() { String::new() } else { format!(" ({} failed)", errors.join(", ")) };
    format!(
        "--held {count}: only {} of {wanted} ports are in TIME-WAIT, after {} connections were closed in \
         {:.1} s{failed}: write a smaller --held, or a shorter --link",
        held.time_wait,
        held.closed,
        held.took_ns as f64 / 1e9
    )
}

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
    fn take_report(&mut self, driven: &Driven) {
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
                    number::count(begun)
                ),
                remedy: "raise --count, --duration or --rate",
            });
        }
    }

    fn take_port_use(&mut self, report: &ShortReport, client: Span<'_>) {
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
            busy_workers: Some(moments.series(|m| spread(m.workers, m.looks, m.workers_range))),
            rate_per_s: moments.series(|m| rate(m.ok, m.ns)),
            failed_per_s: moments.series(|m| rate(m.no_port, m.ns)),
            ports_in_use: moments.series(|m| spread(m.ports, m.looks, m.ports_range)),
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

    fn take_hosts(&mut self, report: &ShortReport, seen: &LoadObservation<'_>) {
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
    fn check_time_wait(&mut self, report: &ShortReport, client: Span<'_>) {
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
fn spread(sum: u64, looks: u64, (least, greatest): (u64, u64)) -> Option<[f64; 3]> {
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
