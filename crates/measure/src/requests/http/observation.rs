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

use super::{
    ACHIEVED, CLIENT_MEMORY, IN_FLIGHT, INTENDED, KERNEL_MEMORY, PER_CONNECTION, RATE, SPEC,
    TLS_RESUMED, UNSERVED,
};
use tcptoll_core::experiment::figures::{
    CLIENT_SEGMENTS, CONNECT_MEAN, CONNECTIONS_RATE, FIRST_BYTE_MEAN, GOODPUT, LATENCY_MEAN,
    RATE_RESOLUTION, SERVER_SEGMENTS,
};
use tcptoll_core::experiment::spec::HistogramSpec;
use tcptoll_core::http::reuse::Reuse;
use tcptoll_core::number;
use tcptoll_core::record::Warmup;
use tcptoll_core::stats::Histogram;
use tcptoll_core::stats::saturation::{OpenLoop, saturation};
use tcptoll_core::verdict::validity;
use tcptoll_core::verdict::validity::ClosedLoop;
use tcptoll_core::verdict::warning::Warning;
use tcptoll_lab::messages::{HttpReport, Rates};

use super::trial::{Driven, HttpTrial, sent};
use crate::kit::notes::{Span, mean_us, path_sample, quantile_us, segments_sent};

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
                format!("{}, batches of up to {}", report.io, number::time(us))
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
