//! From what the hosts and the link reported to the arm that is recorded.

use std::time::Duration;

use tcptoll_model::counters::{difference, stolen};
use tcptoll_model::expectation::expectation;
use tcptoll_model::record::{HostSummary, LinkMeasured, Metric, Softirq};
use tcptoll_model::stats::{Histogram, little};
use tcptoll_model::tcp_info::TcpInfo;
use tcptoll_model::validity::{self, ClosedLoop};
use tcptoll_model::warning::Warning;

use super::connect::Trial;
use crate::clock::ClockChange;
use crate::lab::certification::{histogram, median};
use crate::messages::{ConnectLoad, ConnectReport, Counted, GreetReport, Snapshot};

/// In a pause slots are empty on purpose and what began before it goes on; where that is more than
/// a fiftieth of the operations, the number at once says nothing.
const TURNS_PER_PAUSE: u64 = 50;

/// CPU time below which user and system are not told apart: 20 ticks.
const SPLIT_MIN_US: u64 = 200_000;

/// A tick of `/proc/stat`, µs.
const TICK_US: f64 = 10_000.0;

impl Trial<'_> {
    pub(super) fn take_report(
        &mut self,
        report: &ConnectReport,
        load: &ConnectLoad,
        ladder: &[Duration],
    ) {
        let arm = &mut self.arm;
        arm.attempts = report.attempts;
        arm.ok = report.ok;
        arm.errors.clone_from(&report.errors);
        arm.partial = report.partial;
        arm.elapsed_s = report.elapsed_ns as f64 / 1e9;
        let busy_s = report.elapsed_ns.saturating_sub(report.paused_ns) as f64 / 1e9;
        let mut metric = |name: &str, value: Option<f64>, unit: &str, n: u64| {
            if let Some(value) = value.filter(|value| value.is_finite()) {
                let metric = Metric { value, unit: unit.to_owned(), ci95: None, median: None, n };
                arm.metrics.insert(name.to_owned(), metric);
            }
        };
        let mean = |histogram: &Histogram| histogram.mean_ns().map(|ns| ns / 1e3);
        metric("connect_us_mean", mean(&report.connect), "us", report.connect.count());
        metric("first_byte_us_mean", mean(&report.first_byte), "us", report.first_byte.count());
        metric("connections_per_s", Some(report.ok as f64 / busy_s), "1/s", report.ok);
        for (name, histogram) in [
            ("connect_us", &report.connect),
            ("first_byte_us", &report.first_byte),
            ("lateness_us", &report.lateness),
        ] {
            if histogram.count() > 0 {
                arm.histograms.insert(name.to_owned(), histogram.summary_us());
            }
        }
        arm.series.insert("connect_us".to_owned(), report.series.clone());
        arm.syn_retry_ladder_s = ladder.iter().map(Duration::as_secs_f64).collect();
        arm.rungs.clone_from(&report.rungs);
        if let Some(TcpInfo::Connection(mut sample)) = TcpInfo::decode(&report.tcp_info) {
            sample.congestion = Some(report.congestion.clone()).filter(|name| !name.is_empty());
            arm.client.tcp_info = Some(sample);
        }
        self.judge_client(report, load);
    }

    /// Whether it was the client that set the pace.
    fn judge_client(&mut self, report: &ConnectReport, load: &ConnectLoad) {
        let working_ns = report.elapsed_ns.saturating_sub(report.paused_ns).max(1) as f64;
        let cpu_share = (report.cpu_us.0 + report.cpu_us.1) as f64 * 1e3 / working_ns;
        if load.rate_per_s.is_some() {
            let late = |numerator| quantile_us(&report.lateness, numerator);
            let latency = quantile_us(&report.connect, 50);
            self.found(validity::client_late(late(50), late(99), latency));
            self.found(validity::client_bottleneck(cpu_share, None));
        } else if let Some(closed) = kept_at_once(report, load) {
            let metric = Metric {
                value: closed.found,
                unit: "connections".to_owned(),
                ci95: None,
                median: None,
                n: report.attempts,
            };
            self.arm.metrics.insert("in_flight_mean".to_owned(), metric);
            self.found(validity::littles_law(closed));
            self.found(validity::client_bottleneck(cpu_share, Some(closed)));
        }
    }

    pub(super) fn take_hosts(
        &mut self,
        report: &ConnectReport,
        greeted: Option<&GreetReport>,
        before: &Snapshot,
        after: &Snapshot,
    ) {
        let client = &mut self.arm.client;
        set_cpu(client, report.cpu_us, report.attempts);
        client.counters = difference(&before.counters, &after.counters);
        client.sockstat.clone_from(&after.sockstat);
        client.rss_peak_bytes = Some(after.rss_peak_bytes);
        let per_op = client.cpu_us_per_op;
        if let (Some(server), Some(greeted)) = (&mut self.arm.server, greeted) {
            set_cpu(server, greeted.cpu_us, greeted.accepted);
        }
        for (name, value) in [
            ("client_cpu_us_per_op", per_op),
            ("server_cpu_us_per_op", self.arm.server.as_ref().and_then(|s| s.cpu_us_per_op)),
        ] {
            if let Some(value) = value {
                let metric = Metric {
                    value,
                    unit: "us".into(),
                    ci95: None,
                    median: None,
                    n: report.attempts,
                };
                self.arm.metrics.insert(name.to_owned(), metric);
            }
        }
    }

    pub(super) fn take_server(&mut self, before: &Snapshot, after: &Snapshot) {
        let launched = self.settings.server.is_some();
        let ok = self.arm.ok;
        let Some(server) = &mut self.arm.server else { return };
        server.counters = difference(&before.counters, &after.counters);
        server.sockstat.clone_from(&after.sockstat);
        server.listeners.clone_from(&after.listeners);
        server.rss_peak_bytes = Some(after.rss_peak_bytes);
        // Of connections that a server keeps open; those of the load are closed by now.
        server.tcp_info = after.connections.iter().find_map(|info| match TcpInfo::decode(info) {
            Some(TcpInfo::Connection(sample)) => Some(sample),
            _ => None,
        });
        if launched {
            let used = (
                after.children_cpu_us.0.saturating_sub(before.children_cpu_us.0),
                after.children_cpu_us.1.saturating_sub(before.children_cpu_us.1),
            );
            set_cpu(server, used, ok);
            server.rss_peak_bytes = None;
        }
        if let Some(peak) = server.listeners.iter().map(|l| l.accept_queue_peak).max() {
            let metric = Metric {
                value: f64::from(peak),
                unit: "connections".into(),
                ci95: None,
                median: None,
                n: 1,
            };
            self.arm.metrics.insert("accept_queue_peak".to_owned(), metric);
        }
    }

    pub(super) fn take_link(
        &mut self,
        counted: Counted,
        tapped: bool,
        server_drops: u64,
        before: &Snapshot,
        after: &Snapshot,
    ) {
        let softnet = after.softnet_drops.saturating_sub(before.softnet_drops);
        let unwanted = counted.unwanted_drops
            + server_drops
            + after.device_drops.saturating_sub(before.device_drops);
        if let Some(why) = counted.pcap_error {
            self.warn(&Warning::PcapIncomplete { why });
        }
        let late = counted.lateness.summary_us();
        if let Some(LinkMeasured { lateness_us, unwanted_drops, .. }) = &mut self.arm.link {
            *unwanted_drops = unwanted + softnet;
            *lateness_us = (late.count > 0).then(|| late.clone());
        }
        if unwanted + softnet > 0 {
            self.exclude("the lab lost packets that nobody asked it to lose");
            self.warn(&Warning::UnwantedDrops { packets: unwanted + softnet });
        }
        self.found(validity::link_late(late.p50, late.p99, self.tolerance_us));
        let Some(wire) = counted.wire.filter(|_| tapped) else { return };
        if wire.tap_drops > 0 {
            self.warn(&Warning::TapDrops { packets: wire.tap_drops });
        } else if !self.arm.partial && !self.settings.fast_open {
            self.compare_syns(&wire);
        }
        self.arm.wire = Some(wire);
    }

    /// Every SYN on the wire is an attempt that reached the wire, or a retransmission the kernel
    /// counted.
    pub(super) fn compare_syns(&mut self, wire: &tcptoll_model::wire::Wire) {
        let sent = |name| self.arm.client.counters.get(name).copied().unwrap_or(0).max(0) as u64;
        let expected = sent("TcpActiveOpens") + sent("TcpExtTCPSynRetrans");
        // Still being retried when the run ended: may go either way.
        if wire.client_to_server.syn != expected {
            self.warn(&Warning::WitnessDisagrees {
                what: "SYN from the client".to_owned(),
                ours: expected,
                witness: wire.client_to_server.syn,
            });
        }
    }

    pub(super) fn take_machine(&mut self, before: &Snapshot, after: &Snapshot) {
        let per_cpu: Vec<f64> = after
            .cpu
            .iter()
            .zip(&before.cpu)
            .map(|(a, b)| a.softirq.saturating_sub(b.softirq) as f64 * TICK_US)
            .collect();
        let ops = self.arm.attempts.max(1) as f64;
        self.arm.softirq = Some(Softirq {
            us_per_op: per_cpu.iter().sum::<f64>() / ops,
            resolution_us: TICK_US * per_cpu.len() as f64,
            per_cpu_us_per_op: per_cpu.into_iter().map(|us| us / ops).collect(),
        });
        self.found(validity::steal(stolen(&before.cpu, &after.cpu)));
    }

    /// `stamped`: packets' time stamps, which are on the wall clock, are part of what was measured.
    pub(super) fn take_clocks(&mut self, change: ClockChange, stamped: bool) {
        self.found(validity::suspended(change.slept_ns));
        self.found(validity::clock_step(change.step_ns, stamped));
    }

    /// What arithmetic expects: round trips from the setting where the link has one, from the echo
    /// where it has none, and the CPU of the steps that one handshake waits for.
    pub(super) fn expect(&mut self, quiet: &[u64]) {
        if !quiet.is_empty() {
            self.arm.histograms.insert("rtt_us".to_owned(), histogram(quiet).summary_us());
        }
        let echo_us = median(quiet).map(|ns| ns as f64 / 1e3);
        let asked = self.settings.link.rtt;
        let (rtt_us, from) = match echo_us {
            _ if self.settings.to.is_none() && !asked.is_zero() => {
                (asked.as_nanos() as f64 / 1e3, "link setting")
            }
            Some(us) if self.settings.to.is_some() => (us, "ICMP echo"),
            // Without distance there is nothing to expect but what is measured.
            _ => return,
        };
        let cpu_us = self.arm.timeline.as_ref().and_then(|timeline| {
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
        self.arm.expectation = Some(expectation(rtt_us, from, cpu_us, self.settings.distance_km));
    }

    /// What makes a trial useless for its question.
    pub(super) fn judge(&mut self) {
        let lacking = ["local-ports", "local-fds"];
        if lacking.iter().any(|class| self.arm.errors.contains_key(*class)) {
            self.exclude("the client ran out of ports or files");
        }
    }
}

/// Operations that were at once while all slots were to be filled: throughput times latency.
///
/// An operation lasts from before `socket(2)` to after `close(2)`, because that is what takes up a
/// slot; the latency that is reported, from `connect(2)` to established, is part of it. So what is
/// left for "between operations" is the client's own loop.
fn kept_at_once(report: &ConnectReport, load: &ConnectLoad) -> Option<ClosedLoop> {
    let often = |every: u64| every < load.concurrency.saturating_mul(TURNS_PER_PAUSE);
    if report.full_ns == 0 || report.attempts == 0 || load.pause_every.is_some_and(often) {
        return None;
    }
    let operations = report.attempts as f64;
    let throughput_per_s = operations / (report.full_ns as f64 / 1e9);
    let found = little::in_flight(throughput_per_s, report.busy_ns as f64 / 1e9 / operations);
    Some(ClosedLoop { operations: report.attempts, asked: load.concurrency, found })
}

fn quantile_us(histogram: &Histogram, percent: u64) -> Option<f64> {
    histogram.quantile_ns(percent, 100).map(|ns| ns as f64 / 1e3)
}

fn set_cpu(host: &mut HostSummary, cpu_us: (u64, u64), operations: u64) {
    if operations > 0 {
        let per = |us: u64| us as f64 / operations as f64;
        host.cpu_us_per_op = Some(per(cpu_us.0 + cpu_us.1));
        // The sum is exact; user and system are told apart by sampling at each tick of 10 ms.
        if cpu_us.0 + cpu_us.1 >= SPLIT_MIN_US {
            host.cpu_user_us_per_op = Some(per(cpu_us.0));
            host.cpu_system_us_per_op = Some(per(cpu_us.1));
        }
    }
}
