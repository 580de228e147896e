//! From what the hosts reported to the arm that is recorded.
//!
//! Segments per request come from the kernels' counters, in every trial. `TcpOutSegs` and `TcpRetransSegs` of
//! both hosts were those of the wire to the packet, at 3 % loss too; a tap would cost CPU and a trial of its
//! own.
//!
//! A violation of Little's law alone is no warning. A request ends at the kernel's receive stamp, and on a
//! direct link the client's wake-up takes as long as the request: 1.1 of 2 slots are then in use on a client
//! that is half idle. `in_flight_mean` has the figure. With a client that has no CPU left it excludes the
//! trial.
//!
//! Who closed first, and which end holds TIME-WAIT: what the client saw is held against the sockets that the
//! kernels kept. The client sees a FIN of the server that has arrived before it closes. It cannot see one that is under
//! way, so its own count has too many for the client: up to 13 % of all connections to servers that close as
//! the client does (Linux 6.18, a veth link, 2,000 connections to gunicorn and to Python's `http.server`). A
//! look for the FIN right before `close()` is no remedy: it took 725 of 2,000 connections for the client's
//! where packets showed 78, and 395 had crossed. TIME-WAIT of both ends settles it: first FINs then equalled
//! those of tcpdump in 48 of 48 cases. Read `tcptoll_core::http::closing` next.
//!
//! The server's sockets in TIME-WAIT are not the number that it closed first: a new connection from the same
//! port replaces the old socket, uncounted (2,000 closed, 1,951 sockets). So `TcpExtTW` counts in the lab,
//! and 4-tuples count where both ends share a namespace.

use std::net::SocketAddr;
use std::time::Duration;

use super::trial::{Driven, HttpTrial, sent};
use super::{
    ACHIEVED, CLIENT_MEMORY, IN_FLIGHT, INTENDED, KERNEL_MEMORY, PER_CONNECTION, RATE, SPEC,
    TLS_RESUMED, UNSERVED,
};
use crate::kit::notes::{Notes, Span, mean_us, path_sample, quantile_us, segments_sent};
use tcptoll_core::experiment::figures::{
    CLIENT_FIN_WAIT_2, CLIENT_SEGMENTS, CLIENT_TIME_WAIT, CONNECT_MEAN, CONNECTIONS_RATE,
    FIRST_BYTE_MEAN, GOODPUT, LATENCY_MEAN, RATE_RESOLUTION, SERVER_FIN_WAIT_2, SERVER_SEGMENTS,
    SERVER_TIME_WAIT,
};
use tcptoll_core::experiment::spec::HistogramSpec;
use tcptoll_core::http::closing::{Counted, Disagreement, First, crossed, first};
use tcptoll_core::http::reuse::Reuse;
use tcptoll_core::record::Warmup;
use tcptoll_core::stats::Histogram;
use tcptoll_core::tcp::ports::{ClientCloses, HalfClosed, PortSettings, forecast};
use tcptoll_core::units::human_us;
use tcptoll_core::verdict::saturation::{OpenLoop, saturation};
use tcptoll_core::verdict::validity;
use tcptoll_core::verdict::validity::ClosedLoop;
use tcptoll_core::verdict::warning::Warning;
use tcptoll_lab::lab::{Handle, LabError};
use tcptoll_lab::messages::{ClosedSockets, CountClosed, HttpReport, Rates};

/// From so many connections on, the memory that the load added is that of connections: fewer do
/// not stand out from its buffers.
const MEMORY_FROM: u64 = 1_000;

/// Packets on the wire and segments that the kernel counted may differ by this share: an
/// acknowledgement may cross between two readings.
const PACKETS_SHARE: f64 = 0.01;

impl HttpTrial<'_> {
    pub(super) fn take_report(&mut self, driven: &Driven) {
        let report = &driven.report;
        self.notes.first_errors(&report.first_errors);
        let arm = &mut self.notes.arm;
        arm.attempts = report.attempts;
        arm.ok = report.ok;
        arm.errors.clone_from(&report.errors);
        arm.statuses =
            report.statuses.iter().map(|(status, count)| (status.to_string(), *count)).collect();
        arm.partial = report.partial;
        arm.elapsed_s = report.elapsed_ns as f64 / 1e9;
        arm.reuse = Some(self.settings.load.reuse.to_string());
        arm.connections_attempted = Some(report.connections.0);
        arm.connections_ok = Some(report.connections.1);
        arm.closing = Some(report.closing.clone());
        arm.io = Some(match self.settings.load.batch {
            batch if batch.is_zero() => report.io.clone(),
            batch => {
                let us = batch.as_secs_f64() * 1e6;
                format!("{}, batches of up to {}", report.io, human_us(us))
            }
        });
        let latencies =
            [("requests_per_s", &report.rate_series), ("latency_us", &report.latency_series)];
        for (name, series) in latencies {
            if !series.points.is_empty() {
                arm.series.insert(name.to_owned(), series.clone());
            }
        }
        arm.client.tcp_info = path_sample(&report.tcp_info, &report.congestion);
        let unanswered = driven.named("unanswered").filter(|ages| ages.count() > 0);
        for (name, histogram) in &driven.histograms {
            let Some(spec) = distribution(name) else { continue };
            match unanswered.filter(|_| name == "latency") {
                Some(ages) => self.notes.histogram_with_unanswered(spec, histogram, ages),
                None => self.notes.histogram(spec, histogram),
            }
        }
        let means = [
            ("latency", &LATENCY_MEAN),
            ("connect", &CONNECT_MEAN),
            ("first_byte", &FIRST_BYTE_MEAN),
        ];
        for (name, mean) in means {
            // A mean of what was answered alone would be of the lucky ones.
            let whole = name != "latency" || unanswered.is_none();
            if let Some(histogram) = driven.named(name).filter(|_| whole) {
                self.notes.metric(mean, mean_us(histogram), histogram.count());
            }
        }
        let notes = &mut self.notes;
        let Rates { completed: n, requests_per_s, resolution_per_s, .. } = report.rates;
        notes.metric(&RATE, Some(requests_per_s), n);
        notes.metric(&RATE_RESOLUTION, Some(resolution_per_s), n);
        notes.metric(&GOODPUT, Some(report.rates.body_bytes_per_s), n);
        let made = report.measured_connections.1;
        let connections_per_s = Some(report.rates.connections_per_s);
        notes.metric(&CONNECTIONS_RATE, connections_per_s, made);
        for (count, warning) in [
            (report.impossible, Warning::ImpossibleTimes { count: report.impossible }),
            (
                report.unasked,
                Warning::UnaskedBytes { count: report.unasked, all: report.ok + report.warmup.0 },
            ),
        ] {
            if count > 0 {
                notes.warn(&warning);
            }
        }
        let each = per_connection(report);
        notes.metric(&PER_CONNECTION, each, report.attempts);
        if let Some((_, resumed)) = &report.tls {
            let share = *resumed as f64 / report.connections.1 as f64;
            notes.metric(&TLS_RESUMED, Some(share), report.connections.1);
        }
        self.take_memory(report);
        self.take_warmup(driven);
        self.judge(driven);
    }

    fn take_memory(&mut self, report: &HttpReport) {
        if report.open < MEMORY_FROM {
            return;
        }
        let each = |bytes: u64| Some(bytes as f64 / report.open as f64);
        let ours = each(report.resident_bytes);
        self.notes.metric(&CLIENT_MEMORY, ours, report.open);
        let kernels = report.socket_bytes.and_then(each);
        self.notes.metric(&KERNEL_MEMORY, kernels, report.open);
    }

    fn take_warmup(&mut self, driven: &Driven) {
        let (attempts, errors) = &driven.report.warmup;
        let failed: u64 = errors.values().sum();
        if *attempts == 0 {
            return;
        }
        self.notes.arm.warmup = Some(Warmup {
            attempts: *attempts,
            ok: attempts.saturating_sub(failed),
            errors: errors.clone(),
            elapsed_s: (driven.took.as_secs_f64() - driven.report.elapsed_ns as f64 / 1e9).max(0.0),
            histograms: std::collections::BTreeMap::new(),
        });
        if let Some((class, _)) = errors.iter().max_by_key(|(_, count)| **count) {
            let class = class.clone();
            self.notes.warn(&Warning::WarmupFailed { failed, all: *attempts, class });
        }
    }

    /// Whether it was the client that set the pace, and whether the schedule was kept.
    fn judge(&mut self, driven: &Driven) {
        let report = &driven.report;
        let load = &self.settings.load;
        // Threads of a pinned client share its CPU.
        let pinned = self.notes.arm.client.pinned_cpu.is_some();
        let cpus = if pinned { 1 } else { load.threads };
        let spent_ns = (report.cpu_us.0 + report.cpu_us.1) as f64 * 1e3;
        let cpu_share = spent_ns / (report.measured_ns.max(1) * cpus) as f64;
        if let Some(due_per_s) = self.pace.rate {
            self.judge_schedule(driven, due_per_s);
            self.notes.found(validity::client_bottleneck(cpu_share, None));
            return;
        }
        // Between two requests an idle connection's slot is empty on purpose.
        if report.full_ns == 0 || matches!(load.reuse, Reuse::Idle(_)) {
            return;
        }
        let found = report.busy_ns as f64 / report.full_ns as f64 * load.connections as f64;
        let per_s = report.rates.requests_per_s;
        let between = validity::between_operations(cpu_share, per_s, load.connections);
        let closed =
            ClosedLoop { operations: report.attempts, asked: load.connections, found, between };
        // A request ends when the kernel has its response: until the client has woken up its slot is
        // empty, which next door is half of the time. It matters where the client has no CPU left.
        self.notes.metric(&IN_FLIGHT, Some(found), report.attempts);
        // Where nothing succeeded the slots wait between two failures.
        self.notes.found(validity::littles_law(closed).filter(|_| report.ok > 0));
        self.notes.found(validity::client_bottleneck(cpu_share, Some(closed)));
    }

    /// Whether the server left connections without a response, or all of them for a time. A client that stood still
    /// itself heard nobody, and one without ports or files asked nobody: that says nothing of the server.
    pub(super) fn judge_server(&mut self, driven: &Driven, client: Span<'_>) {
        let report = &driven.report;
        let is_local = |class: &String| class.starts_with("local-");
        if report.full_ns == 0
            || client.standstill().stood_ns > 0
            || report.errors.keys().any(is_local)
        {
            return;
        }
        let latency = driven.named("latency").and_then(|latency| quantile_us(latency, 50));
        let latency_s = latency.map(|us| us / 1e6);
        let window_s = report.rates.window_ns as f64 / 1e9;
        let connections = (report.starved, self.settings.load.connections);
        self.notes.found(validity::starved(connections, window_s, latency_s));
        // Waiting for a close that does not come is silence of the client's making.
        if report.closing.ignored == 0 {
            self.notes.found(validity::server_silent(report.silent_ns as f64 / 1e9, latency_s));
        }
    }

    fn judge_schedule(&mut self, driven: &Driven, due_per_s: f64) {
        let report = &driven.report;
        let late = |percent| quantile_us(driven.named("lateness")?, percent);
        let latency = driven.named("latency");
        let typical = latency.and_then(|latency| quantile_us(latency, 50));
        self.notes.found(validity::client_late(late(50), late(99), typical));
        let achieved = report.rates.requests_per_s;
        let completed = report.rates.completed;
        self.notes.metric(&ACHIEVED, Some(achieved), completed);
        // Little's law: throughput times mean latency.
        let in_flight = latency.and_then(mean_us).map(|us| achieved * us / 1e6);
        self.notes.metric(&IN_FLIGHT, in_flight, report.ok);
        let Some(due) = report.intended else { return };
        self.notes.metric(&INTENDED, Some(due_per_s), due);
        self.notes.metric(&UNSERVED, Some(report.unserved as f64), due);
        let unsent = report.unsent();
        let load = OpenLoop {
            due_per_s,
            sustained_per_s: achieved,
            // What was due and never begun is an attempt, and was not taken from the schedule in time.
            due: report.attempts,
            unsent,
            waited: report.queued,
            unserved: report.unserved,
        };
        // Of a server that answers nothing there is no rate to sustain.
        self.notes.arm.saturation =
            saturation(&load, &report.ages).filter(|_| report.rates.completed > 0);
        let connections = self.settings.load.connections;
        if let Some(found) = self.notes.arm.saturation.clone() {
            self.notes.warn(&Warning::Saturated {
                due_per_s,
                sustained_per_s: achieved,
                unserved: found.unserved,
                connections,
            });
        } else if report.rates.completed > 0 {
            let off = report.rates.resolution_per_s;
            let failed = report.errors.values().sum();
            let found = validity::rate_not_reached(due_per_s, achieved, off, failed);
            self.notes.found(found);
        }
        if unsent > 0 {
            let all = report.attempts;
            self.notes.warn(&Warning::UnsentRequests { unsent, all, connections });
        }
    }

    pub(super) fn take_client(&mut self, report: &HttpReport, span: Span<'_>) {
        self.notes.arm.client.rss_peak_bytes = Some(span.after.rss_peak_bytes);
        let begun = report.attempts.saturating_sub(report.unsent());
        self.notes.client_cpu(report.cpu_us, begun, report.attempts);
    }

    pub(super) fn take_server(&mut self, report: &HttpReport, span: Span<'_>) {
        let after = span.after;
        let Some(server) = &mut self.notes.arm.server else { return };
        if after.children > 0 {
            server.processes = Some(after.children);
        }
        if after.children_memory_bytes > 0 {
            server.memory_bytes = Some(after.children_memory_bytes);
        }
        let used = span.children_cpu_us();
        if used != (0, 0) {
            self.notes.server_cpu(used, sent(report), sent(report));
        }
        self.notes.queue_peak(&after.listeners);
    }

    /// TCP segments that each host sent for one request, from the kernel's own counts: they are
    /// there in every trial and cost nothing. Those of opening and closing are among them, also of
    /// connections that were still open at the end.
    pub(super) fn take_segments(&mut self, report: &HttpReport) {
        let requests = sent(report);
        if requests == 0 {
            return;
        }
        let [client, server] = self.segments();
        for (metric, segments) in [(&CLIENT_SEGMENTS, client), (&SERVER_SEGMENTS, server)] {
            let each = segments.map(|segments| segments as f64 / requests as f64);
            self.notes.metric(metric, each, requests);
        }
    }

    fn segments(&self) -> [Option<u64>; 2] {
        let arm = &self.notes.arm;
        [
            segments_sent(&arm.client, true),
            arm.server.as_ref().and_then(|host| segments_sent(host, false)),
        ]
    }

    /// Holds the kernels' segments against the packets on the wire.
    pub(super) fn compare_packets(&mut self) {
        let Some(wire) = &self.notes.arm.wire else { return };
        let seen = [wire.client_to_server.packets, wire.server_to_client.packets];
        let names = ["packets from the client", "packets from the server"];
        for ((what, ours), witness) in names.into_iter().zip(self.segments()).zip(seen) {
            let Some(ours) = ours else { continue };
            if ours.abs_diff(witness) as f64 > witness as f64 * PACKETS_SHARE {
                let what = what.to_owned();
                self.notes.warn(&Warning::WitnessDisagrees { what, ours, witness });
            }
        }
    }
}

impl Driven {
    fn named(&self, name: &str) -> Option<&Histogram> {
        self.histograms.iter().find(|(other, _)| other == name).map(|(_, histogram)| histogram)
    }
}

/// Responses of one connection, over the whole load.
fn per_connection(report: &HttpReport) -> Option<f64> {
    let (responses, connections) = report.carried;
    (connections > 0).then(|| responses as f64 / connections as f64)
}

/// The distribution that a load calls by its name without unit.
fn distribution(name: &str) -> Option<&'static HistogramSpec> {
    let named = |spec: &&'static HistogramSpec| spec.name.strip_suffix("_us") == Some(name);
    SPEC.histograms.iter().copied().find(named)
}

/// A socket is in TIME-WAIT for 60 s (`TCP_TIMEWAIT_LEN`): of a load that is counted sooner none has
/// gone, with a second to spare.
const NONE_GONE_NS: u64 = 59_000_000_000;

/// Counts sockets of closed connections on one host, as soon as none is being closed any more.
pub(super) fn count_closed(
    host: &mut Handle,
    server: SocketAddr,
    since_ns: u64,
    limit: Duration,
) -> Result<ClosedSockets, LabError> {
    let limit_ns = limit.as_nanos() as u64;
    host.ask(&CountClosed { server, since_ns, limit_ns })
}

/// Where the server's ends of the connections are.
#[derive(Clone, Copy)]
pub(super) enum Server<'a> {
    /// On a host of the lab, with a network namespace of its own.
    Apart(ClosedSockets, Span<'a>),
    /// In the network namespace of the client.
    Same,
    /// Elsewhere.
    Unseen,
}

/// What was counted after a load.
pub(super) struct AfterLoad<'a> {
    /// When the load began, ns on the monotonic clock.
    pub(super) since_ns: u64,
    /// On the client's host.
    pub(super) ours: ClosedSockets,
    pub(super) client: Span<'a>,
    pub(super) server: Server<'a>,
}

impl AfterLoad<'_> {
    /// After a load on a server that is not ours.
    pub(super) fn of_target<'a>(
        report: &HttpReport,
        since_ns: u64,
        ours: ClosedSockets,
        client: Span<'a>,
    ) -> AfterLoad<'a> {
        // The address may be this machine's and the server not: a container's port, for one.
        let accepted = grew(client, "TcpPassiveOpens");
        let made = report.connections.1;
        let here = ours.server.is_some() && made > 0 && accepted >= made;
        let server = if here { Server::Same } else { Server::Unseen };
        AfterLoad { since_ns, ours, client, server }
    }

    /// Sockets in TIME-WAIT on the server's end.
    fn server_time_wait(&self) -> Option<u64> {
        match self.server {
            Server::Apart(theirs, _) => theirs.server,
            Server::Same => self.ours.server,
            Server::Unseen => None,
        }
    }

    /// Sockets in FIN-WAIT-2 on the client's end, and on the server's.
    fn half_closed(&self) -> [u64; 2] {
        let theirs = match self.server {
            Server::Apart(theirs, _) => theirs.half_closed[1],
            Server::Same | Server::Unseen => self.ours.half_closed[1],
        };
        [self.ours.half_closed[0], theirs]
    }

    /// Counters that can tell: of the client's host and, in the lab, of the server's.
    fn spans(&self) -> impl Iterator<Item = Span<'_>> {
        let server = match self.server {
            Server::Apart(_, server) => Some(server),
            Server::Same | Server::Unseen => None,
        };
        [Some(self.client), server].into_iter().flatten()
    }

    /// Whether every connection was made and closed by a FIN of each end, as far as the kernels know.
    fn all_by_fins(&self, report: &HttpReport) -> bool {
        /// Each says that a connection may have ended without a TIME-WAIT, or a TIME-WAIT early.
        const OTHERWISE: [&str; 3] = ["TcpOutRsts", "TcpEstabResets", "TcpExtTCPTimeWaitOverflow"];
        let under_way = match self.server {
            Server::Apart(theirs, _) => theirs.under_way,
            Server::Same | Server::Unseen => 0,
        };
        report.connections.0 == report.connections.1
            && self.ours.under_way + under_way == 0
            && self.spans().all(|span| OTHERWISE.iter().all(|name| grew(span, name) == 0))
    }

    /// Sockets that went into TIME-WAIT on the client, and connections that left one on both ends.
    ///
    /// None: not known, as some have gone again.
    fn entered(&self, made: u64) -> Option<(u64, Option<u64>)> {
        // Until its 60 s are over a socket goes only if a new connection takes its place: on the
        // client with `net.ipv4.tcp_tw_reuse`, which is counted; on the server whenever the client
        // uses a port again, which is not.
        let whole = self.client.after.at_ns.saturating_sub(self.since_ns) < NONE_GONE_NS
            && grew(self.client, "TcpExtTWRecycled") == 0;
        let found = self.ours.client.filter(|_| whole);
        match self.server {
            Server::Apart(_, server) if alone(self.client, server, made) => {
                let [ours, theirs] = [self.client, server].map(began);
                Some((ours, crossed(made, ours, theirs)))
            }
            Server::Same => Some((found?, self.ours.both)),
            Server::Apart(..) | Server::Unseen => Some((found?, None)),
        }
    }
}

/// Takes what was counted after the load; `ports` is what the forecast of ports rests on.
pub(super) fn take_closing(
    notes: &mut Notes,
    ports: &mut PortSettings,
    report: &HttpReport,
    after: &AfterLoad<'_>,
) {
    let sides =
        [(&CLIENT_TIME_WAIT, after.ours.client), (&SERVER_TIME_WAIT, after.server_time_wait())];
    for (metric, sockets) in sides {
        notes.metric(metric, sockets.map(|count| count as f64), 1);
    }
    let [ours, theirs] = after.half_closed();
    for (metric, count) in [(&CLIENT_FIN_WAIT_2, ours), (&SERVER_FIN_WAIT_2, theirs)] {
        notes.metric(metric, (count > 0).then_some(count as f64), 1);
    }
    settle_closers(notes, report, after);
    revise_forecast(notes, ports, &after.ours);
}

/// Replaces who closed first as the client saw it by what the sockets say, where they can.
fn settle_closers(notes: &mut Notes, report: &HttpReport, after: &AfterLoad<'_>) {
    if !after.all_by_fins(report) {
        return;
    }
    let Some(closing) = &mut notes.arm.closing else { return };
    let mut counted = Counted {
        by_client: closing.by_client,
        by_server: closing.by_server,
        open_at_end: closing.open_at_end,
        ended_at_end: report.ended_at_end,
        client_time_wait: 0,
        both: None,
    };
    let Some((client_time_wait, both)) = after.entered(counted.made()) else { return };
    (counted.client_time_wait, counted.both) = (client_time_wait, both);
    match first(&counted) {
        Ok(First { by_client, by_server, both }) => {
            (closing.by_client, closing.by_server, closing.both) = (by_client, by_server, both);
        }
        Err(Disagreement { at_most, found }) => {
            let what = "connections closed by the client first".to_owned();
            notes.warn(&Warning::WitnessDisagrees { what, ours: at_most, witness: found });
        }
    }
}

/// The forecast of ports was made of what was asked for; a server may have closed otherwise, or late.
fn revise_forecast(notes: &mut Notes, ports: &mut PortSettings, ours: &ClosedSockets) {
    let Some(closing) = &notes.arm.closing else { return };
    let keeps = closing.by_client + closing.both.unwrap_or(0);
    let found = ClientCloses::found(keeps, closing.closed()).unwrap_or(ports.client_closes);
    // Those that were closed after the load say nothing of a load.
    let all = (keeps + closing.open_at_end) as f64;
    let half_closed = (ours.half_closed[0] > 0 && keeps > 0).then(|| HalfClosed {
        share: (ours.half_closed[0] as f64 / all).min(1.0),
        mean_s: ours.half_closed_ns as f64 / 1e9 / all,
    });
    if (found, half_closed) != (ports.client_closes, ports.half_closed) {
        (ports.client_closes, ports.half_closed) = (found, half_closed);
        notes.arm.ports = forecast(ports);
    }
}

/// How much a counter grew.
fn grew(span: Span<'_>, name: &str) -> u64 {
    let counter = |snapshot: &tcptoll_lab::messages::Snapshot| snapshot.counters.get(name).copied();
    let (before, after) = (counter(span.before).unwrap_or(0), counter(span.after).unwrap_or(0));
    u64::try_from(after.saturating_sub(before)).unwrap_or(0)
}

/// Whether the hosts had no other connections meanwhile.
fn alone(client: Span<'_>, server: Span<'_>, made: u64) -> bool {
    let opens = |span| [grew(span, "TcpActiveOpens"), grew(span, "TcpPassiveOpens")];
    opens(client) == [made, 0] && opens(server) == [0, made]
}

/// Sockets that went into TIME-WAIT in a host's network namespace, by the kernel's own count.
///
/// `TcpExtTW` counts them as they begin, also those that begin as FIN-WAIT-2 without a process;
/// `TcpExtTWKilled` those of them that a short `net.ipv4.tcp_fin_timeout` set going
/// (`__inet_twsk_schedule()` in `net/ipv4/inet_timewait_sock.c`, seen on Linux 6.18).
fn began(host: Span<'_>) -> u64 {
    grew(host, "TcpExtTW") + grew(host, "TcpExtTWKilled")
}
