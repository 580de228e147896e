//! From what the hosts and the link reported to the arm that is recorded.

use tcptoll_model::experiments::connect::expectation::expectation;
use tcptoll_model::experiments::connect::{CONNECT_OF_FAILED, IN_FLIGHT, WAITED};
use tcptoll_model::stats::little;
use tcptoll_model::validity::{self, ClosedLoop};

use super::trial::ConnectTrial;
use crate::experiments::bench::notes::{Span, path_sample, quantile_us, set_cpu};
use crate::experiments::bench::opening::take_opened;
use crate::lab::certification::median;
use crate::messages::ConnectReport;

/// In a pause slots are empty on purpose and what began before it goes on; where that is more than
/// a fiftieth of the operations, the number at once says nothing.
const TURNS_PER_PAUSE: u64 = 50;

impl ConnectTrial<'_> {
    pub(super) fn take_report(&mut self, report: &ConnectReport) {
        let closed = self.settings.rate.is_none().then(|| self.settings.at_once());
        take_opened(&mut self.notes, report, &self.ladder, closed);
        let notes = &mut self.notes;
        notes.histogram(&CONNECT_OF_FAILED, &report.connect_of_failed);
        let handshakes = report.connect.count() + report.connect_of_failed.count();
        let waited: u64 = report.rungs.iter().sum();
        let share = (handshakes > 0).then(|| waited as f64 / handshakes as f64);
        notes.metric(&WAITED, share, handshakes);
        self.judge_client(report);
    }

    /// Whether it was the client that set the pace.
    fn judge_client(&mut self, report: &ConnectReport) {
        let settings = self.settings;
        let working_ns = report.elapsed_ns.saturating_sub(report.paused_ns).max(1) as f64;
        let cpu_share = (report.cpu_us.0 + report.cpu_us.1) as f64 * 1e3 / working_ns;
        if settings.rate.is_some() {
            let late = |numerator| quantile_us(&report.lateness, numerator);
            let latency = quantile_us(&report.connect, 50);
            self.notes.found(validity::client_late(late(50), late(99), latency));
            self.notes.found(validity::client_bottleneck(cpu_share, None));
        } else if let Some(closed) = kept_at_once(report, settings.at_once(), settings.pause_every)
        {
            let found = Some(closed.found);
            self.notes.metric(&IN_FLIGHT, found, report.attempts);
            self.notes.found(validity::littles_law(closed));
            self.notes.found(validity::client_bottleneck(cpu_share, Some(closed)));
        }
    }

    pub(super) fn take_client(&mut self, report: &ConnectReport, span: Span<'_>) {
        let n = report.attempts;
        self.notes.arm.client.rss_peak_bytes = Some(span.after.rss_peak_bytes);
        self.notes.client_cpu(report.cpu_us, report.attempts, n);
        // The listener of a server that is not ours, but runs on this machine.
        if self.own_listener().is_some() {
            self.notes.arm.client.listeners.clone_from(&span.after.listeners);
            self.notes.queue_peak(&span.after.listeners);
        }
    }

    /// Notes that the time limit nobody asked for came before the number of connections.
    pub(super) fn note_cut(&mut self, report: &ConnectReport) {
        let settings = self.settings;
        let cut = settings.is_cut && !report.partial && report.attempts < settings.count;
        let limit = self.settings.duration.filter(|_| cut);
        self.notes.arm.cut_after_s = limit.map(|limit| limit.as_secs_f64());
    }

    pub(super) fn take_server(&mut self, span: Span<'_>) {
        let arm = &mut self.notes.arm;
        let (attempts, ok) = (arm.attempts, arm.ok);
        if let Some(server) = &mut arm.server {
            // Of connections that a server keeps open; those of the load are closed by now.
            server.tcp_info = span.after.connections.iter().find_map(|info| path_sample(info, ""));
            match &self.greeted {
                Some(_) => server.rss_peak_bytes = Some(span.after.rss_peak_bytes),
                None => set_cpu(server, span.children_cpu_us(), ok),
            }
        }
        if let Some(greeted) = &self.greeted {
            self.notes.server_cpu(greeted.cpu_us, greeted.accepted, attempts);
        }
        self.notes.queue_peak(&span.after.listeners);
    }

    /// What arithmetic expects: round trips from the setting where the link has one, from the echo
    /// where it has none, and the CPU of the steps that one handshake waits for.
    pub(super) fn expect(&mut self, quiet: &[u64]) {
        let echo_us = median(quiet).map(|ns| ns as f64 / 1e3);
        let asked = self.settings.lab.link.rtt;
        let (rtt_us, from) = match echo_us {
            _ if self.settings.to.is_none() && !asked.is_zero() => {
                (asked.as_nanos() as f64 / 1e3, "link setting")
            }
            Some(us) if self.settings.to.is_some() => (us, "ICMP echo"),
            // Without distance there is nothing to expect but what is measured.
            _ => return,
        };
        let cpu_us = self.notes.arm.timeline.as_ref().and_then(|timeline| {
            let of = |name: &str| {
                timeline.steps.iter().find(|step| step.name == name).map(|step| step.p50_us)
            };
            Some(
                of("connect() → SYN out")?
                    + of("SYN in → SYN-ACK out")?
                    + of("SYN-ACK in → connect() back")?,
            )
        });
        let cpu_us = if from == "link setting" { cpu_us } else { None };
        self.notes.arm.expectation =
            Some(expectation(rtt_us, from, cpu_us, self.settings.distance_km));
    }
}

/// Operations that were at once while all slots were to be filled: throughput times latency.
///
/// An operation lasts from before `socket(2)` to after `close(2)`, because that is what takes up a
/// slot; the latency that is reported, from `connect(2)` to established, is part of it. So what is
/// left for "between operations" is the client's own loop.
fn kept_at_once(
    report: &ConnectReport,
    asked: u64,
    pause_every: Option<u64>,
) -> Option<ClosedLoop> {
    let often = |every: u64| every < asked.saturating_mul(TURNS_PER_PAUSE);
    if report.full_ns == 0 || report.attempts == 0 || pause_every.is_some_and(often) {
        return None;
    }
    let operations = report.attempts as f64;
    let throughput_per_s = operations / (report.full_ns as f64 / 1e9);
    let found = little::in_flight(throughput_per_s, report.busy_ns as f64 / 1e9 / operations);
    Some(ClosedLoop { operations: report.attempts, asked, found })
}
