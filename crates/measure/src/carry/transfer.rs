//! Bulk data over one or more connections: the orders of both ends, and what is recorded of their
//! reports. Experiments differ in what flows; this file does not know why.
//!
//! Order of use: [`Bulk::server`] starts the listening end, [`Bulk::client`] is the load. Then
//! [`take`] notes the reports of both, and [`compare`] holds them against the wire. Our own server of a trial is
//! started before the load and ended after it: [`Server::listen`], [`Server::at`] for the load, [`Server::end`],
//! then its answer.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tcptoll_core::experiment::figures::RTT;
use tcptoll_core::link::LinkSpec;
use tcptoll_core::record::{Buffer, SocketEnd, Transfer as Recorded, Way};
use tcptoll_core::stats::Series;
use tcptoll_core::units::{ns, parse_size};
use tcptoll_core::verdict::effective::changed_buffers;
use tcptoll_core::verdict::warning::Warning;
use tcptoll_lab::lab::{Begun, Hosts, LabError};
use tcptoll_lab::messages::{
    Done, Flow, Receiving, Sending, Service, SocketSettings, Transfer, TransferReport,
    TransferServer,
};

use crate::kit::TrialError;
use crate::kit::notes::{Notes, path_sample};
use crate::kit::plan::Context;
use crate::kit::settings::{SettingsReader, wrong};

/// The shortest warm-up that is chosen without being asked for.
const WARM_UP_MIN: Duration = Duration::from_millis(300);

/// Round trips of a warm-up: slow start doubles the window in each, 10 segments to 2^20 need 17.
const WARM_UP_TRIPS: u32 = 20;

/// The sender goes on for this long beyond the round trip, so that the receiver's window is full even
/// where one of the two is held up by the scheduler.
const TAIL: Duration = Duration::from_millis(20);

/// In a shorter time no share of a CPU is worked out, ns.
const MOMENT_NS: u64 = 1_000_000;

/// `TCPI_OPT_TIMESTAMPS` of `struct tcp_info`.
const TIMESTAMPS: u8 = 1;

/// The largest socket buffer that can be asked for: `setsockopt` doubles it in a signed 32-bit number.
const BUFFER_MAX: u64 = 1 << 30;

/// What flows over the connections of a trial, and for how long.
#[derive(Clone, Debug)]
pub(crate) struct Bulk {
    pub(crate) connections: u32,
    /// Socket options of the client host.
    pub(crate) client: SocketSettings,
    /// Socket options of the server host.
    pub(crate) server: SocketSettings,
    /// From the client to the server.
    pub(crate) up: Option<OneWay>,
    /// From the server to the client.
    pub(crate) down: Option<OneWay>,
    /// From the first byte to the window.
    pub(crate) warmup: Duration,
    /// Length of the window; `None`: the window is the whole transfer.
    pub(crate) duration: Option<Duration>,
    /// Limit of each handshake, and of data that is still under way at the end.
    pub(crate) timeout: Duration,
    /// Round trip of the link, jitter included.
    pub(crate) round_trip: Duration,
}

/// Data in one direction: what its two ends do.
#[derive(Clone, Debug)]
pub(crate) struct OneWay {
    /// The end that sends.
    pub(crate) send: Sending,
    /// The end that receives.
    pub(crate) receive: Receiving,
}

/// The warm-up where none is asked for: 20 round trips, at least 300 ms.
pub(crate) fn warm_up(link: &LinkSpec) -> Duration {
    (round_trip(link) * WARM_UP_TRIPS).max(WARM_UP_MIN)
}

/// The longest round trip of a quiet link.
pub(crate) fn round_trip(link: &LinkSpec) -> Duration {
    link.rtt + link.jitter
}

/// The shortest measured window: what is read at a time takes up to 1 ms.
pub(crate) const WINDOW_MIN: Duration = Duration::from_millis(10);

/// A socket buffer as typed: `auto` or a size.
///
/// None: nothing was typed. `Some(None)`: `auto`.
#[allow(clippy::option_option, reason = "an option typed as nothing is not one that was left out")]
pub(crate) fn buffer(
    reader: &SettingsReader<'_>,
    key: &str,
) -> Result<Option<Option<u32>>, TrialError> {
    let Some(typed) = reader.typed(key) else { return Ok(None) };
    if typed == "auto" {
        return Ok(Some(None));
    }
    let why = || "write auto, or a size from 1 to 1G, like 256K".to_owned();
    let bytes = parse_size(&typed).map_err(|_| wrong(key, &typed, why()))?;
    match u32::try_from(bytes) {
        Ok(asked) if (1..=BUFFER_MAX).contains(&bytes) => Ok(Some(Some(asked))),
        _ => Err(wrong(key, &typed, why())),
    }
}

/// A size in bytes, typed or by default, from 1 to `most`, which is written as `most_text`.
pub(crate) fn size(
    reader: &SettingsReader<'_>,
    key: &str,
    (most, most_text): (u64, &str),
) -> Result<u64, TrialError> {
    let typed = reader.value(key)?;
    let bytes = parse_size(&typed).ok().filter(|bytes| (1..=most).contains(bytes));
    let why = || format!("write a size from 1 to {most_text}, like 16K");
    bytes.ok_or_else(|| wrong(key, &typed, why()))
}

impl Bulk {
    /// The order of the end that listens on this address.
    pub(crate) fn server(&self, address: IpAddr) -> TransferServer {
        let flow = self.flow(&self.server, self.down.as_ref(), self.up.as_ref());
        TransferServer { at: SocketAddr::new(address, 0), flow }
    }

    /// The order of the end that connects, from these source addresses.
    pub(crate) fn client(&self, target: SocketAddr, bind: &[IpAddr]) -> Transfer {
        Transfer {
            target,
            connections: self.connections,
            bind: bind.to_vec(),
            connect_timeout_ns: ns(self.timeout),
            flow: self.flow(&self.client, self.up.as_ref(), self.down.as_ref()),
        }
    }

    /// Runs the end that connects, from its start to its end.
    pub(crate) fn drive(
        &self,
        hosts: &mut Hosts,
        (target, bind): (SocketAddr, &[IpAddr]),
        context: &mut Context<'_>,
    ) -> Result<TransferReport, TrialError> {
        let Hosts { client, time, .. } = hosts;
        let begun = client.begin(&self.client(target, bind))?;
        let (began, all) = (time.now(), self.messages());
        let whole_ms = (self.warmup + self.duration.unwrap_or_default()).as_millis() as u64;
        let progress = &mut context.progress;
        let mut tell = |messages: Done| {
            let elapsed_ms = (time.since(began).as_millis() as u64).min(whole_ms);
            let (done, total) =
                all.map_or((elapsed_ms, whole_ms), |all| (messages.done.min(all), all));
            progress(done.into(), total);
        };
        Ok(client.wait(begun, context.interrupt, &mut tell)?.answer)
    }

    /// Messages of the client, sent and received, where their number is known.
    fn messages(&self) -> Option<u64> {
        let messages_of =
            |way: &OneWay| Some(way.send.bytes? / u64::from(way.send.message_bytes.max(1)));
        let each: Option<u64> = [&self.up, &self.down].into_iter().flatten().map(messages_of).sum();
        each.map(|messages| messages.saturating_mul(u64::from(self.connections)).max(1))
    }

    fn flow(
        &self,
        sockets: &SocketSettings,
        sends: Option<&OneWay>,
        receives: Option<&OneWay>,
    ) -> Flow {
        Flow {
            sockets: sockets.clone(),
            send: sends.map(|way| way.send.clone()),
            receive: receives.map(|way| way.receive.clone()),
            warmup_ns: ns(self.warmup),
            duration_ns: self.duration.map(ns),
            tail_ns: ns(self.round_trip + TAIL),
            drain_ns: ns(self.timeout),
        }
    }

    /// How long the load takes if all goes well, s; `bytes_per_s`: goodput of all connections where a
    /// number of bytes is sent instead.
    pub(crate) fn expected_s(&self, bytes_per_s: f64) -> f64 {
        let opening = self.round_trip * 2;
        let Some(duration) = self.duration else {
            let bytes = |way: &Option<OneWay>| way.as_ref().and_then(|way| way.send.bytes);
            let most = bytes(&self.up).max(bytes(&self.down)).unwrap_or(0);
            let all = most as f64 * f64::from(self.connections);
            return opening.as_secs_f64() + all / bytes_per_s.max(1.0);
        };
        (opening + self.warmup + duration + self.round_trip + TAIL).as_secs_f64()
    }
}

/// The reports of both ends.
#[derive(Clone, Copy)]
pub(crate) struct EndReports<'a> {
    /// The end that connected.
    pub(crate) client: &'a TransferReport,
    /// The end that listened.
    pub(crate) server: &'a TransferReport,
}

/// Bytes in the window of one direction, at the receiver, and the window's length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Goodput {
    /// Bytes per second.
    pub(crate) per_s: f64,
    /// Bytes that it rests on.
    pub(crate) bytes: u64,
}

/// Goodput of one direction; `None`: nothing came in the window.
pub(crate) fn goodput(way: Option<&Way>) -> Option<Goodput> {
    let way = way.filter(|way| way.window_bytes > 0 && way.window_s > 0.0)?;
    Some(Goodput { per_s: way.window_bytes as f64 / way.window_s, bytes: way.window_bytes })
}

/// CPU time of an end for 10^9 bytes that it sent and received in its window, s.
///
/// None: it carried nothing in it, or the window is a moment, as all bytes came together.
pub(crate) fn cpu_s_per_gb(report: &TransferReport) -> Option<f64> {
    let bytes = report.sent.window_bytes + report.received.window_bytes;
    let (user, system) = report.window_cpu_us;
    let per_gb = || (user + system) as f64 / 1e6 / (bytes as f64 / 1e9);
    (bytes > 0 && report.cpu_window_ns >= MOMENT_NS).then(per_gb)
}

/// Notes what both ends reported: connections and their errors, sockets, series, and
/// [`Recorded`]. Figures that an experiment compares are its own.
///
/// The wire is not known yet: see [`compare`].
pub(crate) fn take(
    notes: &mut Notes,
    bulk: &Bulk,
    ended: EndReports<'_>,
    (link, ipv6): (&LinkSpec, bool),
) {
    let EndReports { client, server } = ended;
    let recorded = record(bulk, ended, (link, ipv6), quiet_us(notes));
    let arm = &mut notes.arm;
    arm.attempts = client.attempts;
    arm.ok = client.ok;
    arm.errors.clone_from(&client.errors);
    arm.partial = client.partial || server.partial;
    arm.elapsed_s = client.elapsed_ns as f64 / 1e9;
    arm.client.tcp_info = path_sample(&client.tcp_info, &client.sockets.congestion);
    if let Some(host) = &mut arm.server {
        host.tcp_info = path_sample(&server.tcp_info, &server.sockets.congestion);
    }
    let both = bulk.up.is_some() && bulk.down.is_some();
    for (way, report, goodput) in [("up", client, &server.series), ("down", server, &client.series)]
    {
        if (way == "up" && bulk.up.is_none()) || (way == "down" && bulk.down.is_none()) {
            continue;
        }
        let received = goodput.iter().filter(|(name, _)| name.starts_with(GOODPUT_SERIES));
        let sent = report.series.iter().filter(|(name, _)| !name.starts_with(GOODPUT_SERIES));
        for (name, series) in received.chain(sent) {
            let name = if both { format!("{way}_{name}") } else { name.clone() };
            insert(&mut arm.series, name, series);
        }
    }
    notes.arm.own.transfer = Some(recorded);
    warn_of_buffers(notes);
}

/// Warns of buffers that the kernel made of another size than was asked for.
pub(crate) fn warn_of_buffers(notes: &mut Notes) {
    if let Some(warning) = changed_buffers(&notes.arm.own) {
        notes.warn(&warning);
    }
}

/// The series that a receiver makes; all others are a sender's.
const GOODPUT_SERIES: &str = "goodput";

fn insert(all: &mut std::collections::BTreeMap<String, Series>, name: String, series: &Series) {
    if !series.points.is_empty() {
        all.insert(name, series.clone());
    }
}

/// Round trip of the quiet link, µs: the median of the echoes before the load, or their mean where
/// they are few.
pub(crate) fn quiet_us(notes: &Notes) -> Option<f64> {
    let echoes = notes.arm.histograms.get(RTT.name)?;
    echoes.p50.or(echoes.mean)
}

/// What both ends showed.
fn record(
    bulk: &Bulk,
    ended: EndReports<'_>,
    (link, ipv6): (&LinkSpec, bool),
    quiet_rtt_us: Option<f64>,
) -> Recorded {
    let EndReports { client, server } = ended;
    let sample = path_sample(&client.tcp_info, "");
    let timestamps = sample.is_none_or(|sample| sample.options & TIMESTAMPS != 0);
    let sending = bulk.up.as_ref().or(bulk.down.as_ref()).map(|way| &way.send);
    let no_delay = if bulk.up.is_some() { bulk.client.no_delay } else { bulk.server.no_delay };
    Recorded {
        connections: u64::from(bulk.connections),
        message_bytes: sending.map_or(0, |sending| u64::from(sending.message_bytes)),
        nagle: !no_delay,
        client: end(&bulk.client, client),
        server: end(&bulk.server, server),
        link_bytes_per_s: link.payload_bytes_per_s(ipv6, timestamps),
        rate_bytes_per_s: sending.and_then(|sending| sending.rate_bytes_per_s),
        quiet_rtt_us,
        up: bulk.up.as_ref().map(|_| way(client, server)),
        down: bulk.down.as_ref().map(|_| way(server, client)),
    }
}

fn end(asked: &SocketSettings, report: &TransferReport) -> SocketEnd {
    let got = &report.sockets;
    SocketEnd {
        send_buffer: Buffer::new(asked.send_buffer.map(u64::from), got.send_buffer),
        receive_buffer: Buffer::new(asked.receive_buffer.map(u64::from), got.receive_buffer),
        congestion: got.congestion.clone(),
        cpu_share: cpu_share(report),
    }
}

/// CPU time divided by the time: of the window, or of all where the window is a moment, because all
/// bytes fitted into the socket's buffer.
fn cpu_share(report: &TransferReport) -> f64 {
    let ((user, system), ns) = match report.cpu_window_ns {
        0..MOMENT_NS => (report.cpu_us, report.elapsed_ns),
        ns => (report.window_cpu_us, ns),
    };
    (user + system) as f64 * 1e3 / ns.max(MOMENT_NS) as f64
}

fn way(sender: &TransferReport, receiver: &TransferReport) -> Way {
    let of_all = receiver.received.window_bytes as f64;
    let share = |bytes: u64| bytes as f64 / of_all;
    Way {
        sent_bytes: sender.sent.bytes,
        received_bytes: receiver.received.bytes,
        messages: sender.sent.messages,
        send_calls: sender.sent.calls,
        receive_calls: receiver.received.calls,
        kernel_sent_bytes: sender.at_ends.map(|ends| ends.bytes_sent),
        kernel_retransmitted_bytes: sender.at_ends.map(|ends| ends.bytes_retransmitted),
        // Known when the link has counted.
        wire_bytes: None,
        wire_retransmitted_bytes: None,
        window_s: receiver.received.window_ns as f64 / 1e9,
        window_bytes: receiver.received.window_bytes,
        startup_s: receiver.startup_ns.map(|ns| ns as f64 / 1e9),
        connection_share: receiver
            .least_and_greatest
            .filter(|_| of_all > 0.0)
            .map(|[least, greatest]| [share(least), share(greatest)]),
        sender: sender.sender.clone(),
    }
}

/// Takes the payload that the wire counted, and holds all counts of each direction against each
/// other: sent by the program, sent by its kernel, on the wire, received by the other program. With
/// failed connections they may differ.
pub(crate) fn compare(notes: &mut Notes) {
    let whole = notes.arm.ok == notes.arm.attempts;
    let Some(wire) = &notes.arm.wire else { return };
    let counts = [wire.client_to_server, wire.server_to_client];
    let Some(recorded) = &mut notes.arm.own.transfer else { return };
    let mut wrong = Vec::new();
    let ways = [("client to server", &mut recorded.up), ("server to client", &mut recorded.down)];
    for ((name, way), counts) in ways.into_iter().zip(counts) {
        let Some(way) = way else { continue };
        way.wire_bytes = counts.payload_bytes;
        way.wire_retransmitted_bytes = counts.retransmitted_bytes;
        if whole {
            wrong.extend(differences(name, way));
        }
    }
    for warning in wrong {
        notes.warn(&warning);
    }
}

/// Counts of one direction that are not what they should be.
fn differences(name: &str, way: &Way) -> Vec<Warning> {
    let kernel = way.kernel_sent_bytes.zip(way.kernel_retransmitted_bytes);
    let once = kernel.map(|(sent, again)| sent.saturating_sub(again));
    let witnesses = [
        ("received", Some(way.received_bytes)),
        ("on the wire, without retransmissions", way.wire_bytes),
        ("sent by the kernel, without retransmissions (tcpi_bytes_sent)", once),
    ];
    let differs = |(what, witness): (&str, Option<u64>)| {
        let witness = witness.filter(|witness| *witness != way.sent_bytes)?;
        Some(Warning::WitnessDisagrees {
            what: format!("payload bytes {name}, {what}"),
            ours: way.sent_bytes,
            witness,
        })
    };
    witnesses.into_iter().filter_map(differs).collect()
}

/// A server that listens on one address of the server host.
pub(crate) struct Server<O: Service> {
    running: Option<(Begun<O>, SocketAddr)>,
    /// What it reports at its end.
    pub(crate) answer: Option<O::Answer>,
}

impl<O: Service> Default for Server<O> {
    fn default() -> Self {
        Self { running: None, answer: None }
    }
}

impl<O: Service<Started = SocketAddr>> Server<O> {
    pub(crate) fn listen(&mut self, hosts: &mut Hosts, order: &O) -> Result<(), TrialError> {
        let (at, begun) = hosts.server()?.start(order)?;
        self.running = Some((begun, at));
        Ok(())
    }

    /// The address on which it listens.
    ///
    /// Errors: it does not run.
    pub(crate) fn at(&self) -> Result<SocketAddr, TrialError> {
        self.running.as_ref().map(|(_, at)| *at).ok_or_else(not_started)
    }

    /// Ends it, and takes its answer.
    pub(crate) fn end(&mut self, hosts: &mut Hosts) -> Result<(), TrialError> {
        if let Some((begun, _)) = self.running.take() {
            self.answer = Some(hosts.server()?.stop(begun)?.answer);
        }
        Ok(())
    }
}

/// A load needs a server that was not started: the procedure listens before it loads.
pub(crate) fn not_started() -> TrialError {
    TrialError::Lab(LabError::Refused("the server was not started".to_owned()))
}

#[cfg(test)]
mod tests {
    use tcptoll_lab::messages::Carried;

    use super::*;

    #[test]
    fn cpu_per_gigabyte_is_of_all_bytes_in_the_window_and_of_no_moment() {
        let carried = |window_bytes| Carried { window_bytes, ..Carried::default() };
        let report = TransferReport {
            sent: carried(300_000_000),
            received: carried(200_000_000),
            window_cpu_us: (100_000, 150_000),
            cpu_window_ns: 500_000_000,
            ..TransferReport::default()
        };
        assert_eq!(cpu_s_per_gb(&report), Some(0.5));
        assert!((cpu_share(&report) - 0.5).abs() < 1e-12);
        let moment = TransferReport {
            cpu_window_ns: 10,
            cpu_us: (3_000, 0),
            elapsed_ns: 30_000_000,
            ..report.clone()
        };
        assert_eq!(cpu_s_per_gb(&moment), None);
        assert!((cpu_share(&moment) - 0.1).abs() < 1e-12, "of the whole time instead");
        assert_eq!(
            cpu_s_per_gb(&TransferReport { sent: carried(0), received: carried(0), ..report }),
            None
        );
    }

    #[test]
    fn each_count_that_differs_from_what_was_sent_is_a_doubt() {
        let way = Way {
            sent_bytes: 100,
            received_bytes: 100,
            wire_bytes: Some(100),
            kernel_sent_bytes: Some(130),
            kernel_retransmitted_bytes: Some(30),
            ..Way::default()
        };
        assert!(differences("up", &way).is_empty());
        assert!(differences("up", &Way { wire_bytes: None, ..way.clone() }).is_empty());
        for wrong in [
            Way { received_bytes: 99, ..way.clone() },
            Way { wire_bytes: Some(101), ..way.clone() },
            Way { kernel_sent_bytes: Some(131), ..way.clone() },
        ] {
            assert_eq!(differences("up", &wrong).len(), 1, "{wrong:?}");
        }
    }
}
