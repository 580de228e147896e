//! Opening connections to our own server: what experiments share that drive a [`ConnectLoad`] against a
//! [`Greet`] server.
//!
//! It starts the server, drives the load, collects the rows of all points of view, and notes the figures
//! that every such load has. It does not choose settings.

use std::net::SocketAddr;
use std::time::Duration;

use tcptoll_core::experiment::figures::{
    CONNECT, CONNECT_MEAN, CONNECT_OF_FAILED, CONNECTIONS_RATE, FIRST_BYTE, FIRST_BYTE_MEAN,
    IN_FLIGHT, LATENESS, RATE_RESOLUTION, WAITED,
};
use tcptoll_core::record::{ListenerQueue, Warmup};
use tcptoll_core::stats::diagnostics;
use tcptoll_core::tcp::handshake::{ClientRow, ServerRow, WireRow};
use tcptoll_core::verdict::validity;
use tcptoll_core::verdict::validity::ClosedLoop;
use tcptoll_lab::lab::{Begun, Handle, Hosts, Interrupt, LabError};
use tcptoll_lab::messages::{
    ConnectLoad, ConnectReport, Done, Greet, GreetReport, ReadQueue, Rows,
};

use super::notes::{Notes, mean_us, path_sample, quantile_us};
use crate::kit::TrialError;
use crate::kit::plan::Context;

/// In a pause slots are empty on purpose and what began before it goes on; where that is more than
/// a fiftieth of the operations, the number of concurrent operations says nothing.
const TURNS_PER_PAUSE: u64 = 50;

/// Handshakes remembered for the timeline, at most.
pub(crate) const TRACE_MAX: usize = 20_000;

/// A handshake stands on a rung of the ladder if it took at most this longer, link's round trip on top.
/// Timers fire the later the longer they wait: 0.6 s late on the rung of 35 s.
pub(crate) const LADDER_SLACK: Duration = Duration::from_millis(600);

/// The rows of all three points of view.
#[derive(Default)]
pub(crate) struct Trace {
    pub(crate) client: Vec<ClientRow>,
    pub(crate) server: Vec<ServerRow>,
    pub(crate) wire: Vec<WireRow>,
}

impl Trace {
    pub(crate) fn add(&mut self, parts: Vec<Rows>) {
        for part in parts {
            match part {
                Rows::Client(rows) => self.client.extend(rows),
                Rows::Server(rows) => self.server.extend(rows),
                Rows::Wire(rows) => self.wire.extend(rows),
                // Of loads that send requests.
                Rows::Group(_) | Rows::Page(_) | Rows::Visit(_) => {}
            }
        }
    }
}

/// Starts our own server on the server host; gives where it listens, the first listener first.
pub(crate) fn begin_greeting(
    hosts: &mut Hosts,
    greet: &Greet,
) -> Result<(Begun<Greet>, Vec<SocketAddr>), TrialError> {
    let (listening, greeting) = hosts.server()?.start(greet)?;
    Ok((greeting, listening.all()))
}

/// Ends our own server; its rows go to the trace.
pub(crate) fn end_greeting(
    host: &mut Handle,
    greeting: Begun<Greet>,
    trace: &mut Trace,
) -> Result<GreetReport, LabError> {
    let answered = host.stop(greeting)?;
    trace.add(answered.rows);
    Ok(answered.answer)
}

/// What the server host recorded of its listeners' queues since
/// [`WatchQueues`](tcptoll_lab::messages::WatchQueues): those at these addresses, in this order.
///
/// Errors: one of them was not recorded.
pub(crate) fn recorded_queues(
    host: &mut Handle,
    listening: &[SocketAddr],
) -> Result<Vec<ListenerQueue>, TrialError> {
    let mut recorded = Vec::new();
    while let Some(queue) = host.ask(&ReadQueue(recorded.len()))? {
        recorded.push(queue);
    }
    let queue_at = |at: &SocketAddr| {
        let here = |queue: &&ListenerQueue| {
            queue.port == at.port() && queue.address == at.ip().to_string()
        };
        let queue = recorded.iter().find(here).cloned();
        queue.ok_or_else(|| {
            TrialError::Lab(LabError::Refused(format!(
                "the queue of the listener at {at} was not seen"
            )))
        })
    };
    listening.iter().map(queue_at).collect()
}

/// Runs a load on the client host to its end; its rows go to the trace.
pub(crate) fn drive(
    client: &mut Handle,
    load: &ConnectLoad,
    trace: &mut Trace,
    interrupt: &Interrupt,
    progress: &mut dyn FnMut(Done),
) -> Result<ConnectReport, TrialError> {
    let begun = client.begin(load)?;
    let answered = client.wait(begun, interrupt, progress)?;
    trace.add(answered.rows);
    let report = answered.answer;
    let failed: u64 = report.errors.values().fold(0, |sum, count| sum.saturating_add(*count));
    let possible = report.ok.saturating_add(failed) <= report.attempts
        && report.established <= report.attempts
        && report.connect.count() <= report.attempts;
    if !possible {
        let why = "the client host's report is impossible: it has more outcomes than connections";
        return Err(LabError::Refused(why.to_owned()).into());
    }
    Ok(report)
}

/// Runs the measured load; its progress is the number of connections that ended, of `total` or more.
pub(crate) fn drive_measured(
    client: &mut Handle,
    load: &ConnectLoad,
    trace: &mut Trace,
    total: u64,
    context: &mut Context<'_>,
) -> Result<ConnectReport, TrialError> {
    let progress = &mut context.progress;
    let tell = &mut |done: Done| progress(done, total.max(done.done));
    drive(client, load, trace, context.interrupt, tell)
}

/// What is kept of a warm-up.
pub(crate) fn warmed(report: ConnectReport) -> Warmup {
    let histograms = [
        ("connect_of_failed_us", &report.connect_of_failed),
        ("connect_us", &report.connect),
        ("first_byte_us", &report.first_byte),
    ];
    Warmup {
        attempts: report.attempts,
        ok: report.ok,
        elapsed_s: report.elapsed_ns as f64 / 1e9,
        histograms: histograms
            .into_iter()
            .filter(|(_, histogram)| histogram.count() > 0)
            .map(|(name, histogram)| (name.to_owned(), histogram.summary_us()))
            .collect(),
        errors: report.errors,
    }
}

/// How connections followed each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    /// Begun per second; absent: closed loop.
    pub(crate) rate: Option<f64>,
    /// Of a closed loop: connections at a time.
    pub(crate) at_once: u64,
    /// Connections between two pauses.
    pub(crate) pause_every: Option<u64>,
}

/// The first step of the ladder tells who waited if the round trip is below this share of it.
const STEP_TELLS: f64 = 0.9;

/// Notes what every load of connections has: counts, errors, latencies, rate, rungs of the client's
/// ladder, and whether it was the client that set the pace.
pub(crate) fn take_opened(
    notes: &mut Notes,
    report: &ConnectReport,
    ladder: &[Duration],
    flow: Flow,
) {
    let arm = &mut notes.arm;
    arm.attempts = report.attempts;
    arm.ok = report.ok;
    arm.errors.clone_from(&report.errors);
    arm.partial = report.partial;
    arm.elapsed_s = report.elapsed_ns as f64 / 1e9;
    arm.series.insert("connect_us".to_owned(), report.series.clone());
    arm.syn_retry_ladder_s = ladder.iter().map(Duration::as_secs_f64).collect();
    arm.rungs.clone_from(&report.rungs);
    arm.client.tcp_info = path_sample(&report.tcp_info, &report.congestion);
    let (connect, first_byte) = (&report.connect, &report.first_byte);
    notes.metric(&CONNECT_MEAN, mean_us(connect), connect.count());
    notes.metric(&FIRST_BYTE_MEAN, mean_us(first_byte), first_byte.count());
    let rate = Rate::from_report(report, flow.rate.is_none().then_some(flow.at_once));
    notes.metric(&CONNECTIONS_RATE, Some(rate.per_s), rate.ok);
    notes.metric(&RATE_RESOLUTION, Some(rate.resolution_per_s), rate.ok);
    notes.histogram(&CONNECT, connect);
    notes.histogram(&FIRST_BYTE, first_byte);
    notes.histogram(&LATENESS, &report.lateness);
    notes.histogram(&CONNECT_OF_FAILED, &report.connect_of_failed);
    let handshakes = connect.count() + report.connect_of_failed.count();
    let waited: u64 = report.rungs.iter().sum();
    // Where a round trip takes as long as the first step, each SYN is retransmitted and none waits.
    let asked = notes.arm.link.as_ref().map(|link| link.asked.rtt_us + 2.0 * link.asked.jitter_us);
    let tells = ladder.first().is_none_or(|step| {
        asked.is_none_or(|rtt_us| rtt_us < step.as_secs_f64() * 1e6 * STEP_TELLS)
    });
    if !tells {
        notes.arm.rungs.clear();
    }
    let share = (handshakes > 0 && tells).then(|| waited as f64 / handshakes as f64);
    notes.metric(&WAITED, share, handshakes);
    notes.found(validity::kept_open(report.unclosed, report.ok));
    judge_client(notes, report, flow);
}

/// Whether it was the client that set the pace.
fn judge_client(notes: &mut Notes, report: &ConnectReport, flow: Flow) {
    let working_ns = report.elapsed_ns.saturating_sub(report.paused_ns).max(1) as f64;
    let cpu_share = (report.cpu_us.0 + report.cpu_us.1) as f64 * 1e3 / working_ns;
    if flow.rate.is_some() {
        let late = |numerator| quantile_us(&report.lateness, numerator);
        // Where the kernel's evidence is asked for, the first byte is the answer, as a connection that
        // the server dropped may be established.
        let to_first_byte = report.opened.is_some() && report.first_byte.count() > 0;
        let answer = if to_first_byte { &report.first_byte } else { &report.connect };
        let latency = quantile_us(answer, 50);
        notes.found(validity::client_late(late(50), late(99), latency));
        notes.found(validity::client_bottleneck(cpu_share, None));
    } else if let Some(closed) = kept_at_once(report, flow.at_once, flow.pause_every) {
        notes.metric(&IN_FLIGHT, Some(closed.found), report.attempts);
        notes.found(validity::littles_law(closed));
        notes.found(validity::client_bottleneck(cpu_share, Some(closed)));
    }
}

/// Successes per second.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rate {
    per_s: f64,
    /// One edge: operations that can be in progress at a time, divided by the time.
    resolution_per_s: f64,
    /// Successes behind it.
    ok: u64,
}

impl Rate {
    /// Successes that completed in the steady part divided by its length, or all of them divided by
    /// the whole time without pauses where there was no steady part. `slots`: of a closed loop.
    fn from_report(report: &ConnectReport, slots: Option<u64>) -> Self {
        let (ok, ns) = match report.steady_ns {
            0 => (report.ok, report.elapsed_ns.saturating_sub(report.paused_ns)),
            ns => (report.steady_ok, ns),
        };
        let seconds = ns.max(1) as f64 / 1e9;
        let in_progress = slots.unwrap_or(report.unfinished.max(1));
        Self { per_s: ok as f64 / seconds, resolution_per_s: in_progress as f64 / seconds, ok }
    }
}

/// Concurrent operations while all slots were to be filled: throughput times latency.
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
    let found = diagnostics::in_flight(throughput_per_s, report.busy_ns as f64 / 1e9 / operations);
    Some(ClosedLoop { operations: report.attempts, asked, found, between: 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> ConnectReport {
        ConnectReport {
            ok: 100,
            elapsed_ns: 2_500_000_000,
            paused_ns: 500_000_000,
            ..ConnectReport::default()
        }
    }

    #[test]
    fn a_rate_is_what_completed_in_the_steady_part_divided_by_its_length() {
        // 96 of 100 in 1.2 s with 4 slots: 80/s, and one edge is 4 / 1.2 s.
        let closed = ConnectReport { steady_ok: 96, steady_ns: 1_200_000_000, ..report() };
        let rate = Rate::from_report(&closed, Some(4));
        assert!((rate.per_s - 80.0).abs() < 1e-9, "{rate:?}");
        assert!((rate.resolution_per_s - 10.0 / 3.0).abs() < 1e-9, "{rate:?}");
        assert_eq!(rate.ok, 96);
    }

    #[test]
    fn an_open_loop_is_as_exact_as_one_operation_or_those_in_progress_at_its_end() {
        let nothing_waits = ConnectReport { steady_ok: 3, steady_ns: 428_571_428, ..report() };
        let rate = Rate::from_report(&nothing_waits, None);
        assert!((rate.per_s - 7.0).abs() < 1e-6, "3 of 7 per second: {rate:?}");
        assert!((rate.resolution_per_s - 7.0 / 3.0).abs() < 1e-6, "{rate:?}");
        let five_wait =
            ConnectReport { steady_ok: 95, steady_ns: 1_000_000_000, unfinished: 5, ..report() };
        let rate = Rate::from_report(&five_wait, None);
        assert_eq!((rate.per_s, rate.resolution_per_s), (95.0, 5.0));
    }

    #[test]
    fn without_a_steady_part_the_rate_is_of_the_whole_time_without_pauses() {
        let rate = Rate::from_report(&report(), Some(100));
        assert_eq!((rate.per_s, rate.resolution_per_s, rate.ok), (50.0, 50.0, 100));
    }
}
