//! One arm in one round, being run: what every experiment in the lab or against a target notes.

use std::net::IpAddr;

use tcptoll_core::experiment::figures::{ACCEPT_QUEUE_PEAK, CLIENT_CPU, RTT, SERVER_CPU};
use tcptoll_core::experiment::spec::{HistogramSpec, MetricSpec};
use tcptoll_core::record::{
    Arm, HostSummary, Lasting, LinkMeasured, Listener, Metric, Softirq, WarningEntry,
};
use tcptoll_core::stats::Histogram;
use tcptoll_core::study::Settings;
use tcptoll_core::tcp::counters::{Standstill, difference, stolen};
use tcptoll_core::tcp::tcp_info::{PathSample, TcpInfo};
use tcptoll_core::tcp::wire::AckDelays;
use tcptoll_core::verdict::validity;
use tcptoll_core::verdict::validity::{End, Finding};
use tcptoll_core::verdict::warning::Warning;
use tcptoll_lab::clock::ClockChange;
use tcptoll_lab::lab::certification::histogram;
use tcptoll_lab::messages::{Counted, Snapshot};

use crate::kit::plan::Outcome;

/// CPU time below which user and system are not told apart: 20 ticks.
const SPLIT_MIN_US: u64 = 200_000;

/// A tick of `/proc/stat`, µs.
const TICK_US: f64 = 10_000.0;

/// A host before and after a load.
#[derive(Clone, Copy)]
pub(crate) struct Span<'a> {
    pub(crate) before: &'a Snapshot,
    pub(crate) after: &'a Snapshot,
}

impl Span<'_> {
    /// CPU time (user, system) that children of the host's process used meanwhile, µs.
    pub(crate) fn children_cpu_us(self) -> (u64, u64) {
        let (before, after) = (self.before.children_cpu_us, self.after.children_cpu_us);
        (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1))
    }

    /// What kept the host's process from running meanwhile.
    pub(crate) fn standstill(self) -> Standstill {
        self.after.standstill.since(self.before.standstill)
    }

    /// Packets that the host's devices dropped meanwhile.
    pub(crate) fn device_drops(self) -> u64 {
        self.after.device_drops.saturating_sub(self.before.device_drops)
    }
}

/// What is noted of one trial while it runs.
pub(crate) struct Notes {
    pub(crate) arm: Arm,
    warnings: Vec<WarningEntry>,
    /// Why the trial is useless for its question.
    invalid: Option<String>,
    /// Whether one of the reasons may pass.
    passing: bool,
    /// The gravest of those that follow from the settings.
    lasting: Option<Lasting>,
    /// Source addresses: those asked for, or those the lab added.
    pub(crate) sources: Vec<IpAddr>,
    /// Median lateness of the link that is still allowed, µs.
    pub(crate) tolerance_us: f64,
    /// Whether running out of local ports is what is asked about: then it spoils nothing.
    pub(crate) ports_may_run_out: bool,
    /// How long the server's kernel took to acknowledge data, where the trial asked for it.
    pub(crate) ack_delays: Option<AckDelays>,
}

impl Notes {
    /// Nothing yet, of a trial of the arm of this name; `sources` are the addresses asked for.
    pub(crate) fn new(name: &str, sources: &[IpAddr]) -> Self {
        Self {
            arm: Arm { name: name.to_owned(), ..Arm::default() },
            warnings: Vec::new(),
            invalid: None,
            passing: false,
            lasting: None,
            sources: sources.to_vec(),
            tolerance_us: f64::INFINITY,
            ports_may_run_out: false,
            ack_delays: None,
        }
    }

    /// Excludes the trial from verdicts for what may pass; the first reason stays.
    pub(crate) fn exclude(&mut self, why: &str) {
        self.exclude_for(why, None);
    }

    fn exclude_for(&mut self, why: &str, lasting: Option<Lasting>) {
        self.passing |= lasting.is_none();
        self.lasting = self.lasting.max(lasting);
        self.invalid.get_or_insert_with(|| why.to_owned());
    }

    pub(crate) fn warn(&mut self, warning: &Warning) {
        self.warnings.push(warning.entry(Some(&self.arm.name)));
    }

    /// Takes what was found wrong, if anything was.
    pub(crate) fn found(&mut self, finding: Option<Finding>) {
        let Some(Finding { warning, reason, lasting }) = finding else { return };
        self.warn(&warning);
        if let Some(reason) = reason {
            self.exclude_for(reason, lasting);
        }
    }

    /// Notes what the first error of each class said: in short, as a certificate may have any number of
    /// names.
    pub(crate) fn first_errors<'a>(
        &mut self,
        errors: impl IntoIterator<Item = (&'a String, &'a String)>,
    ) {
        const WORDS_MAX: usize = 200;
        for (class, words) in errors {
            let first = self.arm.first_errors.entry(class.clone());
            first.or_insert_with(|| words.chars().take(WORDS_MAX).collect());
        }
    }

    /// Notes a figure, if there is one.
    pub(crate) fn metric(&mut self, spec: &MetricSpec, value: Option<f64>, n: u64) {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            let metric = Metric { value, unit: spec.unit.to_owned(), ci95: None, median: None, n };
            self.arm.metrics.insert(spec.name.to_owned(), metric);
        }
    }

    /// Notes a distribution, if it has values.
    pub(crate) fn histogram(&mut self, spec: &HistogramSpec, histogram: &Histogram) {
        if histogram.count() > 0 {
            self.arm.histograms.insert(spec.name.to_owned(), histogram.summary_us());
        }
    }

    /// Notes a distribution in which some values are only known not to be shorter than `ages`.
    pub(crate) fn histogram_with_unanswered(
        &mut self,
        spec: &HistogramSpec,
        histogram: &Histogram,
        ages: &Histogram,
    ) {
        let summary = histogram.summary_with_unanswered_us(ages);
        self.arm.histograms.insert(spec.name.to_owned(), summary);
    }

    /// Round trips on the quiet link, ns.
    pub(crate) fn take_echoes(&mut self, quiet: &[u64]) {
        self.histogram(&RTT, &histogram(quiet));
    }

    /// Takes the kernels' counters and sockets.
    pub(super) fn take_counters(&mut self, client: Span<'_>, server: Option<Span<'_>>) {
        let Span { before, after } = client;
        self.arm.client.counters = difference(&before.counters, &after.counters);
        self.arm.client.sockstat.clone_from(&after.sockstat);
        if let (Some(server), Some(Span { before, after })) = (&mut self.arm.server, server) {
            server.counters = difference(&before.counters, &after.counters);
            server.sockstat.clone_from(&after.sockstat);
            server.listeners.clone_from(&after.listeners);
        }
    }

    /// CPU time (user, system) of the client, divided among its operations; `n` is what the figure
    /// rests on.
    pub(crate) fn client_cpu(&mut self, cpu_us: (u64, u64), operations: u64, n: u64) {
        set_cpu(&mut self.arm.client, cpu_us, operations);
        self.metric(&CLIENT_CPU, self.arm.client.cpu_us_per_op, n);
    }

    /// As [`Self::client_cpu`], of the server of the lab.
    pub(crate) fn server_cpu(&mut self, cpu_us: (u64, u64), operations: u64, n: u64) {
        let Some(server) = &mut self.arm.server else { return };
        set_cpu(server, cpu_us, operations);
        let per_op = server.cpu_us_per_op;
        self.metric(&SERVER_CPU, per_op, n);
    }

    /// The longest that an accept queue has been.
    pub(crate) fn queue_peak(&mut self, listeners: &[Listener]) {
        let peak = listeners.iter().map(|l| f64::from(l.accept_queue_peak)).reduce(f64::max);
        self.metric(&ACCEPT_QUEUE_PEAK, peak, 1);
    }

    /// Takes what the link counted. Gives whether the wire's counts are whole, so that others may
    /// be held against them. `tapped`: it was watched.
    pub(crate) fn take_link(
        &mut self,
        counted: Counted,
        tapped: bool,
        client: Span<'_>,
        server: Span<'_>,
    ) -> bool {
        // Those of softnet are of the whole machine.
        let softnet = client.after.softnet_drops.saturating_sub(client.before.softnet_drops);
        let unwanted =
            counted.unwanted_drops + server.device_drops() + client.device_drops() + softnet;
        if let Some(why) = counted.pcap_error {
            self.warn(&Warning::PcapIncomplete { why });
        }
        let late = counted.lateness.summary_us();
        if let Some(LinkMeasured { lateness_us, unwanted_drops, .. }) = &mut self.arm.link {
            *unwanted_drops = unwanted;
            *lateness_us = (late.count > 0).then(|| late.clone());
        }
        if unwanted > 0 {
            self.exclude("the lab itself dropped packets unintentionally");
            self.warn(&Warning::UnwantedDrops { packets: unwanted });
        }
        self.found(validity::link_late(late.p50, late.p99, self.tolerance_us));
        self.ack_delays = counted.ack_delays;
        let Some(wire) = counted.wire.filter(|_| tapped) else { return false };
        if wire.tap_drops > 0 {
            self.warn(&Warning::TapDrops { packets: wire.tap_drops });
        }
        let whole = wire.tap_drops == 0 && !self.arm.partial;
        self.arm.wire = Some(wire);
        whole
    }

    /// Every SYN on the wire is an attempt that reached the wire, or a retransmission the kernel
    /// counted.
    pub(crate) fn compare_syns(&mut self) {
        self.compare_syns_beside(0);
    }

    /// As [`Self::compare_syns`], where this number of SYNs came from no socket of the client.
    pub(crate) fn compare_syns_beside(&mut self, others: u64) {
        let sent = |name| self.arm.client.counters.get(name).copied().unwrap_or(0).max(0) as u64;
        let expected = sent("TcpActiveOpens") + sent("TcpExtTCPSynRetrans") + others;
        let Some(seen) = self.arm.wire.as_ref().map(|wire| wire.client_to_server.syn) else {
            return;
        };
        // Still being retried when the run ended: may go either way.
        if seen != expected {
            self.warn(&Warning::WitnessDisagrees {
                what: "SYN from the client".to_owned(),
                ours: expected,
                witness: seen,
            });
        }
    }

    /// Softirq and stolen time of the machine, `operations` being what it did meanwhile.
    pub(crate) fn take_machine(&mut self, host: Span<'_>, operations: u64) {
        let per_cpu: Vec<f64> = host
            .after
            .cpu
            .iter()
            .zip(&host.before.cpu)
            .map(|(a, b)| a.softirq.saturating_sub(b.softirq) as f64 * TICK_US)
            .collect();
        let ops = operations.max(1) as f64;
        self.arm.softirq = Some(Softirq {
            us_per_op: per_cpu.iter().sum::<f64>() / ops,
            resolution_us: TICK_US * per_cpu.len() as f64,
            per_cpu_us_per_op: per_cpu.into_iter().map(|us| us / ops).collect(),
        });
        self.found(validity::steal(stolen(&host.before.cpu, &host.after.cpu)));
    }

    /// Whether an end stood still while it was observed.
    pub(super) fn take_standstill(&mut self, end: End, host: Span<'_>) {
        let Span { before, after } = host;
        let observed_s = after.at_ns.saturating_sub(before.at_ns) as f64 / 1e9;
        self.found(validity::standstill(end, host.standstill(), observed_s));
    }

    /// `stamped`: packets' time stamps, which are on the wall clock, are part of what was measured.
    pub(crate) fn take_clocks(&mut self, change: ClockChange, stamped: bool) {
        self.found(validity::suspended(change.slept_ns));
        self.found(validity::clock_step(change.step_ns, stamped));
    }

    /// The trial's result, once it has been judged.
    pub(crate) fn into_outcome(mut self, factors: &Settings) -> Outcome {
        let lacking =
            [("local-ports", !self.ports_may_run_out), ("local-fds", true), ("local-memory", true)];
        if lacking.iter().any(|(class, spoils)| *spoils && self.arm.errors.contains_key(*class)) {
            self.exclude_for(
                "the client ran out of ports, files or memory",
                Some(Lasting::Shortage),
            );
        }
        self.arm.factors.clone_from(factors);
        Outcome {
            arm: self.arm,
            warnings: self.warnings,
            invalid: self.invalid,
            // Without what passes, a repetition may have a bound.
            lasting: self.lasting.filter(|_| !self.passing),
        }
    }
}

/// A quantile in µs; `None` with too few values.
pub(crate) fn quantile_us(histogram: &Histogram, percent: u64) -> Option<f64> {
    histogram.quantile_ns(percent, 100).map(|ns| ns as f64 / 1e3)
}

/// The mean in µs; `None` of nothing.
pub(crate) fn mean_us(histogram: &Histogram) -> Option<f64> {
    histogram.mean_ns().map(|ns| ns / 1e3)
}

/// `TCP_INFO` of a connection as the kernel gave it, with its congestion control; `None`: none was
/// looked at.
pub(crate) fn path_sample(tcp_info: &[u8], congestion: &str) -> Option<PathSample> {
    match TcpInfo::decode(tcp_info) {
        Some(TcpInfo::Connection(mut sample)) => {
            sample.congestion = Some(congestion.to_owned()).filter(|name| !name.is_empty());
            Some(sample)
        }
        _ => None,
    }
}

/// CPU time (user, system) of a host, divided among its operations.
pub(crate) fn set_cpu(host: &mut HostSummary, cpu_us: (u64, u64), operations: u64) {
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

/// TCP segments that a host sent, each as a packet of the wire.
///
/// `OutSegs` has SYN-ACKs and RSTs in it and lacks what was sent again, except SYN-ACKs, which it
/// has twice then (Linux 6.18: of 1,500 connections on a link with 3 % loss the sum below was the
/// number of packets on the wire, to the packet, in both directions).
///
/// None: others on that machine send segments, too.
pub(crate) fn segments_sent(host: &HostSummary, is_client: bool) -> Option<u64> {
    let count = |name| Some(host.counter(name)?.max(0) as u64);
    let twice = if is_client { 0 } else { count("TcpExtTCPSynRetrans")? };
    Some((count("TcpOutSegs")? + count("TcpRetransSegs")?).saturating_sub(twice))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(counters: &[(&str, i64)]) -> HostSummary {
        HostSummary {
            counters: counters.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect(),
            ..HostSummary::default()
        }
    }

    #[test]
    fn segments_are_what_the_wire_saw_under_loss() {
        // Counters and packets of one run on Linux 6.18 with 3 % loss.
        let client = [("TcpOutSegs", 9_073), ("TcpRetransSegs", 227), ("TcpExtTCPSynRetrans", 96)];
        assert_eq!(segments_sent(&host(&client), true), Some(9_300));
        let server = [("TcpOutSegs", 6_188), ("TcpRetransSegs", 235), ("TcpExtTCPSynRetrans", 97)];
        assert_eq!(segments_sent(&host(&server), false), Some(6_326));
    }
}
