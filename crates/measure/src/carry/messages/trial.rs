//! One trial of messages: one way, where the client writes and the server reads, or answered, an exchange after
//! another over one connection. Then from what the hosts reported to the arm that is recorded.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use tcptoll_core::units::ns;

use tcptoll_core::experiment::figures::{
    CLIENT_SEGMENTS, GOODPUT, LATENCY, LATENCY_MEAN, SERVER_SEGMENTS,
};
use tcptoll_core::record::{Acks, Buffer, MessageWay, SocketEnd, Transfer, Warmup};
use tcptoll_core::study::PlannedArm;
use tcptoll_core::tcp::wire::AckDelays;
use tcptoll_core::verdict::validity;
use tcptoll_core::verdict::validity::ClosedLoop;
use tcptoll_core::verdict::warning::Warning;
use tcptoll_lab::lab::Hosts;
use tcptoll_lab::messages::{
    Answers, AnswersReport, Coalesce, Done, Exchange, ExchangeReport, Receiving, Rows, Sending,
    SocketSettings, SocketsGot, TransferReport, TransferServer, Watch,
};

use super::settings::{MessagesSettings, Program, coalesce_name};
use super::{ACK_DELAY, CALLS, CLIENT_CPU_SHARE, Pattern, RATE, SERVER_CPU_SHARE};
use crate::carry::transfer;
use crate::carry::transfer::{
    Bulk, EndReports, OneWay, Server, goodput, quiet_us, round_trip, warn_of_buffers,
};
use crate::kit::TrialError;
use crate::kit::hosts::PortsNeeded;
use crate::kit::notes::{Notes, mean_us, path_sample, segments_sent};
use crate::kit::plan::{Context, Outcome};
use crate::kit::procedure;
use crate::kit::procedure::{JudgementBasis, LoadObservation, Site, Trial};
use crate::kit::settings::LabSpec;

pub(super) struct OneWayTrial<'a> {
    settings: &'a MessagesSettings,
    bulk: Bulk,
    notes: Notes,
    server: Server<TransferServer>,
}

impl<'a> OneWayTrial<'a> {
    /// Runs a trial of an arm.
    pub(super) fn outcome(
        arm: &PlannedArm,
        settings: &'a MessagesSettings,
        context: &mut Context<'_>,
    ) -> Result<Outcome, TrialError> {
        let mut trial = Self {
            settings,
            bulk: bulk(settings),
            notes: Notes::new(&arm.name, &[]),
            server: Server::default(),
        };
        trial.notes.arm.own.message = Some(way(settings));
        let ports = PortsNeeded { at_a_time: 1, connections: 1 };
        procedure::run(&mut trial, Site::Lab(settings.lab.clone(), ports), context)?;
        Ok(trial.notes.into_outcome(&arm.factors))
    }
}

/// What flows, over one connection.
pub(super) fn bulk(settings: &MessagesSettings) -> Bulk {
    let up = OneWay {
        send: Sending {
            message_bytes: settings.message_bytes,
            coalesce: settings.coalesce,
            coalesce_bytes: settings.coalesce_bytes,
            work_ns: settings.work.as_nanos() as u64,
            ..Sending::default()
        },
        receive: Receiving {
            message_bytes: settings.message_bytes,
            work_ns: settings.receiver_work.as_nanos() as u64,
            ..Receiving::default()
        },
    };
    Bulk {
        connections: 1,
        client: settings.client_sockets(),
        server: settings.server_sockets(),
        up: Some(up),
        down: None,
        warmup: settings.warmup,
        duration: Some(settings.duration),
        timeout: settings.timeout,
        round_trip: round_trip(&settings.lab.link),
    }
}

impl Trial for OneWayTrial<'_> {
    type Report = TransferReport;

    fn notes(&mut self) -> &mut Notes {
        &mut self.notes
    }

    fn listen(&mut self, hosts: &mut Hosts, _context: &Context<'_>) -> Result<Watch, TrialError> {
        let order = self.bulk.server(hosts.addresses.server);
        self.server.listen(hosts, &order)?;
        Ok(Watch { tap: self.settings.lab.tap, ..Watch::default() })
    }

    fn load(
        &mut self,
        hosts: &mut Hosts,
        context: &mut Context<'_>,
    ) -> Result<TransferReport, TrialError> {
        self.bulk.drive(hosts, (self.server.at()?, &self.notes.sources), context)
    }

    fn server_done(&mut self, hosts: &mut Hosts, _wire: Vec<Rows>) -> Result<(), TrialError> {
        self.server.end(hosts)
    }

    fn take(&mut self, sent: &TransferReport, seen: &LoadObservation<'_>) -> JudgementBasis {
        let lab = &self.settings.lab;
        if let Some(received) = &self.server.answer {
            let ended = EndReports { client: sent, server: received };
            transfer::take(&mut self.notes, &self.bulk, ended, (&lab.link, lab.ipv6));
            take_one_way(&mut self.notes, ended, seen);
        }
        JudgementBasis { operations: self.notes.arm.attempts, stamped: seen.tapped }
    }

    fn compare(&mut self, _seen: &LoadObservation<'_>) {
        self.notes.compare_syns();
        transfer::compare(&mut self.notes);
    }
}

/// Exchanges of the warm-up at least. The server acknowledges without delay until its first answer: from
/// then on the answers are to carry the acknowledgements (`inet_csk_in_pingpong_mode` of Linux; on 6.18 the
/// first exchange took 70 µs and the second 44 ms).
const WARMUP_EXCHANGES: u64 = 5;

/// Window of the witness: 12 stalls of 40 ms.
const WITNESS: Duration = Duration::from_millis(500);

pub(super) struct Exchanges<'a> {
    settings: &'a MessagesSettings,
    notes: Notes,
    /// The end that answers.
    server: Server<Answers>,
}

impl<'a> Exchanges<'a> {
    /// Runs a trial of an arm, and its witness where it needs one.
    pub(super) fn outcome(
        arm: &PlannedArm,
        settings: &'a MessagesSettings,
        context: &mut Context<'_>,
    ) -> Result<Outcome, TrialError> {
        let mut trial = Exchanges::new(&arm.name, settings);
        trial.run(context)?;
        let seen = trial.notes.ack_delays.take();
        take_acks(&mut trial.notes, seen);
        let lab = &settings.lab;
        let untapped = !lab.link.is_emulated() && !lab.tap && context.pcap.is_none();
        let whole = trial.notes.arm.ok == trial.notes.arm.attempts && !trial.notes.arm.partial;
        if context.witness && untapped && whole {
            trial.with_witness(context);
        }
        Ok(trial.notes.into_outcome(&arm.factors))
    }

    fn new(name: &str, settings: &'a MessagesSettings) -> Self {
        let mut notes = Notes::new(name, &[]);
        notes.arm.own.message = Some(way(settings));
        Self { settings, notes, server: Server::default() }
    }

    fn run(&mut self, context: &mut Context<'_>) -> Result<(), TrialError> {
        let ports = PortsNeeded { at_a_time: 1, connections: 1 };
        procedure::run(self, Site::Lab(self.settings.lab.clone(), ports), context)
    }

    /// On a link without an emulator: the same again, shorter and with a packet tap, for the delay of
    /// ACKs, which only the wire shows. A tap costs CPU that an exchange of 20 µs feels, so the
    /// figures come from the trial without it.
    fn with_witness(&mut self, context: &mut Context<'_>) {
        let settings = MessagesSettings {
            warmup: Duration::ZERO,
            duration: WITNESS.min(self.settings.duration),
            lab: LabSpec { tap: true, ..self.settings.lab.clone() },
            ..self.settings.clone()
        };
        let mut witness = Exchanges::new(&self.notes.arm.name, &settings);
        // What was measured stands without it.
        if let Err(error) = witness.run(&mut context.of_witness(&mut |_, _| {})) {
            self.notes.warn(&Warning::NoWitness { why: error.to_string() });
        }
        let seen = witness.notes.ack_delays.take();
        take_acks(&mut self.notes, seen);
    }
}

impl Trial for Exchanges<'_> {
    type Report = ExchangeReport;

    fn notes(&mut self) -> &mut Notes {
        &mut self.notes
    }

    fn listen(&mut self, hosts: &mut Hosts, _context: &Context<'_>) -> Result<Watch, TrialError> {
        let settings = self.settings;
        let order = Answers {
            at: SocketAddr::new(hosts.addresses.server, 0),
            sockets: settings.server_sockets(),
            request_bytes: settings.message_bytes,
            response_bytes: settings.response_bytes,
            work_ns: settings.receiver_work.as_nanos() as u64,
        };
        self.server.listen(hosts, &order)?;
        Ok(Watch { tap: settings.lab.tap, ack_delays: true, ..Watch::default() })
    }

    fn load(
        &mut self,
        hosts: &mut Hosts,
        context: &mut Context<'_>,
    ) -> Result<ExchangeReport, TrialError> {
        let settings = self.settings;
        let order = Exchange {
            target: self.server.at()?,
            sockets: settings.client_sockets(),
            writes: settings.writes(),
            response_bytes: settings.response_bytes,
            work_ns: ns(settings.work),
            warmup_ns: ns(settings.warmup),
            warmup_exchanges: WARMUP_EXCHANGES,
            duration_ns: ns(settings.duration),
            timeout_ns: ns(settings.timeout),
        };
        let begun = hosts.client.begin(&order)?;
        let progress = &mut context.progress;
        // How many there will be is not known: without a total no share of it is shown.
        let tell = &mut |done: Done| progress(done, 0);
        Ok(hosts.client.wait(begun, context.interrupt, tell)?.answer)
    }

    fn server_done(&mut self, hosts: &mut Hosts, _wire: Vec<Rows>) -> Result<(), TrialError> {
        self.server.end(hosts)
    }

    fn take(&mut self, report: &ExchangeReport, seen: &LoadObservation<'_>) -> JudgementBasis {
        let answered = self.server.answer.take().unwrap_or_default();
        take_exchanges(&mut self.notes, self.settings, (report, &answered), seen);
        JudgementBasis { operations: answered.answered, stamped: seen.tapped }
    }
}

/// A message that was written and did not arrive over a connection that reported no error.
const MISSING: &str = "truncated";

/// How the messages of an arm are sent, as its settings have it.
pub(super) fn way(settings: &MessagesSettings) -> MessageWay {
    let answered = settings.pattern != Pattern::OneWay;
    let (program, encoding) = match settings.program {
        Program::Native => ("native", None),
        Program::Java(encoding) => ("java", Some(encoding.name().to_owned())),
    };
    MessageWay {
        pattern: settings.pattern.name().to_owned(),
        bytes: u64::from(settings.message_bytes),
        response_bytes: answered.then(|| u64::from(settings.response_bytes)),
        writes: if answered {
            settings.writes().into_iter().map(u64::from).collect()
        } else {
            Vec::new()
        },
        coalesce: coalesce_name(settings.coalesce).to_owned(),
        coalesce_bytes: (settings.coalesce != Coalesce::None)
            .then(|| u64::from(settings.coalesce_bytes)),
        quick_ack: settings.sockets.quick_ack,
        program: program.to_owned(),
        encoding,
        // Known when a message was sent.
        encoded_bytes: None,
        program_version: None,
        work_us: settings.work.as_nanos() as f64 / 1e3,
        receiver_work_us: settings.receiver_work.as_nanos() as f64 / 1e3,
        acks: None,
    }
}

/// Messages that were written, those that arrived, and those that were lost, by class.
///
/// A message is lost with the connection that carried it, so it has the class of the connection's
/// error at either end. A connection that failed before its first message is an attempt itself.
fn delivered(ended: EndReports<'_>) -> (u64, u64, BTreeMap<String, u64>) {
    let EndReports { client, server } = ended;
    let sent = client.sent.messages;
    let arrived = server.received.messages.min(sent);
    let lost = sent - arrived;
    let class = [client, server].iter().find_map(|report| report.errors.keys().next());
    if sent == 0 {
        return (client.attempts, 0, errors_of(client));
    }
    let stopped = client.partial || server.partial;
    let class = match class {
        Some(class) => class.as_str(),
        None if stopped => "interrupted",
        None => MISSING,
    };
    let errors = (lost > 0).then(|| (class.to_owned(), lost)).into_iter().collect();
    (sent, arrived, errors)
}

/// The errors of connections, which account for each attempt.
fn errors_of(client: &TransferReport) -> BTreeMap<String, u64> {
    let mut errors = client.errors.clone();
    let missing = client.attempts.saturating_sub(errors.values().sum());
    if missing > 0 {
        let class = if client.partial { "interrupted" } else { MISSING };
        *errors.entry(class.to_owned()).or_default() += missing;
    }
    errors
}

/// Notes the figures of messages that nobody answers. The rate is what the receiver counted in its
/// window. CPU times are of each end's window; segments are of the whole load.
pub(super) fn take_one_way(notes: &mut Notes, ended: EndReports<'_>, seen: &LoadObservation<'_>) {
    let EndReports { client, server } = ended;
    let (attempts, ok, errors) = delivered(ended);
    let arm = &mut notes.arm;
    (arm.attempts, arm.ok, arm.errors) = (attempts, ok, errors);
    let received = &server.received;
    let n = received.window_messages;
    let seconds = received.window_ns as f64 / 1e9;
    let per_s = |count: u64| (seconds > 0.0 && count > 0).then(|| count as f64 / seconds);
    notes.metric(&RATE, per_s(n), n);
    let carried = goodput(notes.arm.own.transfer.as_ref().and_then(|own| own.up.as_ref()));
    notes.metric(&GOODPUT, carried.map(|goodput| goodput.per_s), n);
    let sent = &client.sent;
    let calls = sent.window_calls as f64 / sent.window_messages as f64;
    notes.metric(&CALLS, Some(calls), sent.window_messages);
    take_hosts(notes, seen);
    if sent.window_messages > 0 {
        notes.client_cpu(client.window_cpu_us, sent.window_messages, sent.window_messages);
    }
    if n > 0 {
        notes.server_cpu(server.window_cpu_us, n, n);
    }
    take_cpu_shares(notes, n);
    take_segments(notes, ok);
}

/// Notes the figures of exchanges.
fn take_exchanges(
    notes: &mut Notes,
    settings: &MessagesSettings,
    (report, answered): (&ExchangeReport, &AnswersReport),
    seen: &LoadObservation<'_>,
) {
    let arm = &mut notes.arm;
    arm.attempts = report.attempts;
    arm.ok = report.ok;
    arm.errors.clone_from(&report.errors);
    arm.partial = report.partial;
    arm.elapsed_s = report.elapsed_ns as f64 / 1e9;
    arm.client.tcp_info = path_sample(&report.tcp_info, &report.sockets.congestion);
    let quiet_rtt_us = quiet_us(notes);
    let end = |asked: &SocketSettings, got: &SocketsGot, cpu: (u64, u64), ns: u64| SocketEnd {
        send_buffer: Buffer::new(asked.send_buffer.map(u64::from), got.send_buffer),
        receive_buffer: Buffer::new(asked.receive_buffer.map(u64::from), got.receive_buffer),
        congestion: got.congestion.clone(),
        cpu_share: (cpu.0 + cpu.1) as f64 * 1e3 / ns.max(1) as f64,
    };
    let (client, server) = (settings.client_sockets(), settings.server_sockets());
    let recorded = Transfer {
        connections: 1,
        message_bytes: u64::from(settings.message_bytes),
        nagle: !settings.sockets.no_delay,
        client: end(&client, &report.sockets, report.cpu_us, report.window_ns),
        server: end(&server, &answered.sockets, answered.cpu_us, answered.elapsed_ns),
        quiet_rtt_us,
        ..Transfer::default()
    };
    notes.arm.own.transfer = Some(recorded);
    warn_of_buffers(notes);
    let n = report.ok;
    let seconds = report.window_ns as f64 / 1e9;
    notes.metric(&RATE, (n > 0 && seconds > 0.0).then(|| n as f64 / seconds), n);
    notes.metric(&LATENCY_MEAN, mean_us(&report.latency), n);
    notes.histogram(&LATENCY, &report.latency);
    notes.metric(&CALLS, Some(report.calls as f64 / n as f64), n);
    take_warmup(notes, report);
    take_hosts(notes, seen);
    if n > 0 {
        notes.client_cpu(report.cpu_us, n, n);
    }
    if answered.answered > 0 {
        notes.server_cpu(answered.cpu_us, answered.answered, answered.answered);
    }
    take_cpu_shares(notes, n);
    take_segments(notes, answered.answered);
    notes.found(one_at_a_time(report).and_then(validity::littles_law));
}

/// What the loop kept at once: one exchange follows the other over one connection.
///
/// None: there was none, or no time.
fn one_at_a_time(report: &ExchangeReport) -> Option<ClosedLoop> {
    let (n, window_ns) = (report.ok, report.window_ns as f64);
    let per_ns = (n > 0 && window_ns > 0.0).then(|| n as f64 / window_ns)?;
    let found = report.latency.mean_ns()? * per_ns;
    let cpu_share = (report.cpu_us.0 + report.cpu_us.1) as f64 * 1e3 / window_ns;
    let between = validity::between_operations(cpu_share, per_ns * 1e9, 1);
    Some(ClosedLoop { operations: n, asked: 1, found, between })
}

/// The exchanges of the warm-up are a phase of their own: the first are acknowledged without delay.
fn take_warmup(notes: &mut Notes, report: &ExchangeReport) {
    let count = report.warmup_latency.count();
    if count == 0 {
        return;
    }
    let summary = report.warmup_latency.summary_us();
    notes.arm.warmup = Some(Warmup {
        attempts: count,
        ok: count,
        errors: BTreeMap::new(),
        elapsed_s: report.elapsed_ns.saturating_sub(report.window_ns) as f64 / 1e9,
        histograms: BTreeMap::from([(LATENCY.name.to_owned(), summary)]),
    });
}

fn take_hosts(notes: &mut Notes, seen: &LoadObservation<'_>) {
    notes.arm.client.rss_peak_bytes = Some(seen.client.after.rss_peak_bytes);
    if let (Some(host), Some(span)) = (&mut notes.arm.server, seen.server) {
        host.rss_peak_bytes = Some(span.after.rss_peak_bytes);
    }
}

/// CPU of both programs, divided by their windows.
fn take_cpu_shares(notes: &mut Notes, n: u64) {
    let Some(own) = &notes.arm.own.transfer else { return };
    let shares = [own.client.cpu_share, own.server.cpu_share];
    for (metric, share) in [&CLIENT_CPU_SHARE, &SERVER_CPU_SHARE].into_iter().zip(shares) {
        notes.metric(metric, (n > 0).then_some(share), n);
    }
}

/// TCP segments that each host sent for one operation, from the kernels' own counts over the whole
/// load: those of opening and closing the connection, of the warm-up and retransmissions are among
/// them, and so are the operations of the warm-up.
fn take_segments(notes: &mut Notes, operations: u64) {
    if operations == 0 {
        return;
    }
    let client = segments_sent(&notes.arm.client, true);
    let server = notes.arm.server.as_ref().and_then(|host| segments_sent(host, false));
    for (metric, segments) in [(&CLIENT_SEGMENTS, client), (&SERVER_SEGMENTS, server)] {
        let each = segments.map(|segments| segments as f64 / operations as f64);
        notes.metric(metric, each, operations);
    }
}

/// How the server's kernel acknowledged what arrived, as the wire showed it in this trial or in its
/// witness.
fn take_acks(notes: &mut Notes, delays: Option<AckDelays>) {
    let Some(AckDelays { pure, quick, delayed, piggybacked, .. }) = delays else { return };
    notes.histogram(&ACK_DELAY, &pure);
    if let Some(message) = &mut notes.arm.own.message {
        message.acks = Some(Acks { quick, delayed, with_answer: piggybacked });
    }
}

#[cfg(test)]
mod tests {
    use tcptoll_lab::messages::Carried;

    use super::*;

    fn report(messages: u64, errors: &[(&str, u64)]) -> TransferReport {
        let carried = Carried { messages, ..Carried::default() };
        TransferReport {
            attempts: 1,
            errors: errors.iter().map(|(class, n)| ((*class).to_owned(), *n)).collect(),
            sent: carried,
            received: carried,
            ..TransferReport::default()
        }
    }

    fn accounted(
        client: &TransferReport,
        server: &TransferReport,
    ) -> (u64, u64, Vec<(String, u64)>) {
        let (attempts, ok, errors) = delivered(EndReports { client, server });
        assert_eq!(attempts, ok + errors.values().sum::<u64>());
        (attempts, ok, errors.into_iter().collect())
    }

    #[test]
    fn every_message_that_did_not_arrive_is_an_error_of_the_class_of_its_connection() {
        let class = |name: &str, count| vec![(name.to_owned(), count)];
        let whole = accounted(&report(100, &[]), &report(100, &[]));
        assert_eq!(whole, (100, 100, vec![]));
        let reset = accounted(&report(100, &[]), &report(90, &[("reset", 1)]));
        assert_eq!(reset, (100, 90, class("reset", 10)));
        let stopped = TransferReport { partial: true, ..report(100, &[]) };
        assert_eq!(accounted(&stopped, &report(99, &[])), (100, 99, class("interrupted", 1)));
        let silent = accounted(&report(100, &[]), &report(98, &[]));
        assert_eq!(silent, (100, 98, class("truncated", 2)), "never a success");
    }

    #[test]
    fn a_connection_without_a_message_is_an_attempt_that_failed() {
        let refused = accounted(&report(0, &[("connect-refused", 1)]), &report(0, &[]));
        assert_eq!(refused, (1, 0, vec![("connect-refused".to_owned(), 1)]));
        let idle = accounted(&report(0, &[]), &report(0, &[]));
        assert_eq!(idle, (1, 0, vec![("truncated".to_owned(), 1)]));
    }

    #[test]
    fn exchanges_that_the_client_did_not_begin_are_missed_by_littles_law() {
        let law = |window_s: u64| {
            let mut report =
                ExchangeReport { ok: 100, window_ns: window_s * 1_000_000_000, ..<_>::default() };
            (0..100).for_each(|_| report.latency.record_ns(50_000_000));
            one_at_a_time(&report).and_then(validity::littles_law).map(|found| found.warning.id())
        };
        assert_eq!(law(5), None);
        assert_eq!(law(10), Some("littles-law"), "half of the time nothing was under way");
        assert_eq!(one_at_a_time(&ExchangeReport::default()), None);
    }
}
