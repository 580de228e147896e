//! From what the hosts and the link reported to the arm that is recorded.
//!
//! With a server of the user's, a handshake has two parts, from `TCP_INFO`: packets of a network that is not
//! ours are not captured, which would need root. Right after the handshake `tcpi_rtt` is the time from SYN to
//! SYN-ACK as the client's kernel measured it; the rest is the client's. Reading it costs one system call
//! after the latency was taken.

use tcptoll_lab::lab::certification::median;
use tcptoll_lab::messages::ConnectReport;

use super::trial::ConnectTrial;
use crate::kit::notes::{Span, path_sample, set_cpu};
use crate::kit::opening::{Flow, take_opened};
use crate::open::connect::expectation::expectation;

impl ConnectTrial<'_> {
    pub(super) fn take_report(&mut self, report: &ConnectReport) {
        let settings = self.settings;
        let flow = Flow {
            rate: settings.rate,
            at_once: settings.at_once(),
            pause_every: settings.pause_every,
        };
        take_opened(&mut self.notes, report, &self.ladder, flow);
    }

    pub(super) fn take_client(&mut self, report: &ConnectReport, span: Span<'_>) {
        let n = report.attempts;
        self.notes.arm.client.rss_peak_bytes = Some(span.after.rss_peak_bytes);
        self.notes.client_cpu(report.cpu_us, report.attempts, n);
        // The listener of a server that is not ours, but runs on this machine.
        if !self.notes.arm.client.listeners.is_empty() {
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
            let step_us = |name: &str| {
                timeline.steps.iter().find(|step| step.name == name).map(|step| step.p50_us)
            };
            Some(
                step_us("connect() → SYN out")?
                    + step_us("SYN in → SYN-ACK out")?
                    + step_us("SYN-ACK in → connect() back")?,
            )
        });
        let cpu_us = if from == "link setting" { cpu_us } else { None };
        self.notes.arm.expectation =
            Some(expectation(rtt_us, from, cpu_us, self.settings.distance_km));
    }
}
