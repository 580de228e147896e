//! Opens connections and times each: called, established, first byte.
//!
//! Closed loop: as many concurrently as asked, the next begins when one ends; the first ones are begun
//! evenly over a ramp, because a burst of SYNs would overflow a queue that the load itself never
//! fills. Open loop: one begins every 1/rate s whether or not others have ended, and latency counts
//! from when it was due.
//!
//! It ends after a number of operations or after a time, whichever comes first: nothing begins from
//! then on, and what has begun is waited for. An open loop that is late by then leaves out what it
//! could not begin in time; its lateness says so.
//!
//! Both edges of a load bias its rate: while slots fill nothing completes, and while the last
//! operations end nothing begins. So a rate is the number of successes that complete in the steady
//! part, divided by its length.
//!
//! - Closed loop: from when all slots are filled to when the last operation begins (`occupancy`).
//!   Pauses are no part of it, and neither are operations that complete in a pause.
//! - Open loop: the planned time, pauses added (`Pace::window_ends_ns`). Operations that complete
//!   later are in progress at its end.
//!
//! It has a poll loop of its own, not a `Driver`: a connection is counted from between `socket(2)` and
//! `connect(2)`, may send its request with the SYN, and tells a lack of source addresses (`bind`) from one of
//! ports (`local-ports`). The stamp between `socket(2)` and `connect(2)` would be of another moment over the
//! driver of `http`. Pacing, waiting, occupancy and slots are those of all loads.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tcptoll_core::stats::SeriesBuilder;
use tcptoll_core::tcp::handshake::{ClientRow, Peer};
use tcptoll_core::tcp::syn::on_ladder;
use tcptoll_core::tcp::tcp_info::TcpInfo;
use tcptoll_kernel::cpu::{self, thread_time};
use tcptoll_kernel::epoll::{Event, Interest, Poller};
use tcptoll_kernel::socket::{Address, Begun, Tcp, errno};

use super::connect_evidence::{Evidence, Operation};
use super::control::{CHANNEL, Progress, stop_requested};
use super::driver::Sources;
use super::pace::{Pace, Pause, Plan, burst};
use super::slots::{Occupancy, Slots, Waiting};
use super::{LoadError, class_of, pair, sockets_max, until};
use crate::channel::Channel;
use crate::clock::monotonic_ns;
use crate::messages::{ConnectLoad, ConnectReport, Split};

/// Sockets, where the limit of open files cannot be read.
const SOCKETS: u64 = 1_024;

/// Events taken together.
const EVENTS: usize = 512;

/// Runs the load to its end, or until the parent says stop.
pub fn run(
    load: &ConnectLoad,
    channel: &mut Channel,
) -> Result<(ConnectReport, Vec<ClientRow>), LoadError> {
    let room = sockets_max().unwrap_or(SOCKETS);
    let poller = Poller::new(EVENTS)?;
    poller.add(&*channel, CHANNEL, Interest::READ)?;
    let start_ns = monotonic_ns();
    let pace = Pace::from_start(&plan(load), start_ns);
    let mut client = Client {
        load,
        poller,
        targets: Targets::new(load, start_ns),
        evidence: Evidence::for_load(load),
        sources: Sources::new(&load.bind, load.congestion.as_deref(), load.fast_open),
        slots: Slots::new(),
        room: room as usize,
        deadlines: Waiting::new(0),
        report: ConnectReport {
            rungs: vec![0; load.ladder_ns.len()],
            split: load.split.then(Split::default),
            ..ConnectReport::default()
        },
        rows: Vec::new(),
        ladder: load.ladder_ns.iter().copied().map(Duration::from_nanos).collect(),
        series: SeriesBuilder::new(400),
        start_ns,
        occupancy: Occupancy::new(pace.ends_ns()),
        pace,
        paused_before_full_ns: 0,
        progress: Progress::default(),
    };
    client.go(channel)?;
    Ok((client.report, client.rows))
}

/// How connections follow each other.
fn plan(load: &ConnectLoad) -> Plan {
    Plan {
        rate_per_s: load.rate_per_s,
        spread: load.spread,
        seed: load.seed,
        slots: load.concurrency,
        ramp_ns: load.ramp_ns,
        operations: Some(load.count),
        duration_ns: load.duration_ns,
        timeout_ns: load.timeout_ns,
        pause: load.pause_every.map(|every| Pause { every, long_ns: load.pause_ns }),
        ..Plan::ENDLESS
    }
}

/// Where the next connection goes.
struct Targets {
    /// Each in the form that `connect(2)` takes too, made once instead of once per connection. The
    /// first is that of the load; the others have the time at which their next connection is due.
    all: Vec<(SocketAddr, Address, u64)>,
    every_ns: u64,
    turn: usize,
}

impl Targets {
    fn new(load: &ConnectLoad, start_ns: u64) -> Self {
        let all = std::iter::once(&load.target).chain(&load.further);
        Self {
            all: all.map(|&at| (at, at.into(), start_ns)).collect(),
            every_ns: load.further_every_ns,
            turn: 0,
        }
    }

    /// The place of the next connection's target.
    fn next(&mut self, now_ns: u64) -> usize {
        let place = if self.every_ns == 0 {
            let place = self.turn;
            self.turn = (place + 1) % self.all.len();
            place
        } else {
            let due = |(_, _, due_ns): &(SocketAddr, Address, u64)| *due_ns <= now_ns;
            self.all.iter().skip(1).position(due).map_or(0, |place| place + 1)
        };
        self.all[place].2 = now_ns.saturating_add(self.every_ns);
        place
    }
}

struct Client<'a> {
    load: &'a ConnectLoad,
    poller: Poller,
    targets: Targets,
    evidence: Option<Evidence>,
    sources: Sources,
    slots: Slots<Operation>,
    room: usize,
    /// Until when each operation may take.
    deadlines: Waiting<1>,
    report: ConnectReport,
    rows: Vec<ClientRow>,
    ladder: Vec<Duration>,
    series: SeriesBuilder,
    start_ns: u64,
    occupancy: Occupancy,
    pace: Pace,
    /// Pauses before all slots were filled, ns.
    paused_before_full_ns: u64,
    progress: Progress,
}

impl Client<'_> {
    fn go(&mut self, channel: &mut Channel) -> Result<(), LoadError> {
        let cpu_before = thread_time();
        while !self.is_over() {
            let more = self.begin_those_due();
            self.give_up_those_late();
            // Either may have been the last; then there is nothing left to wait for.
            if self.is_over() {
                break;
            }
            let timeout = if more { Some(Duration::ZERO) } else { self.wait() };
            let count = self.poller.wait_count(timeout)?;
            let now = monotonic_ns();
            for at in 0..count {
                let event = self.poller.event(at);
                if event.token == CHANNEL {
                    stop_requested(channel)?;
                    self.report.partial = true;
                    self.no_more_after(now);
                    self.give_up_all();
                    self.finish(cpu_before);
                    return Ok(());
                }
                self.advance(event, now);
            }
            self.progress.report(channel, now, self.report.attempts)?;
        }
        self.finish(cpu_before);
        Ok(())
    }

    fn finish(&mut self, cpu_before: cpu::CpuTime) {
        let now = monotonic_ns();
        self.report.cpu_us = pair(thread_time().since(cpu_before));
        self.report.elapsed_ns = now - self.start_ns;
        self.no_more_after(now);
        let (full_ns, busy_ns) = self.occupancy.measured_ns();
        let paused_while_full = self.occupancy.until_ns().map_or(0, |until| {
            self.pace.paused_by(until).saturating_sub(self.paused_before_full_ns)
        });
        self.report.full_ns = full_ns.saturating_sub(paused_while_full);
        self.report.busy_ns = busy_ns;
        self.report.paused_ns = self.pace.paused_by(now);
        self.report.steady_ns = match self.pace.planned_ns().filter(|_| self.pace.is_open()) {
            _ if self.report.partial => 0,
            Some(planned_ns) => planned_ns,
            None => self.report.full_ns,
        };
        self.report.opened = self.evidence.take().map(Evidence::end);
        self.report.series = std::mem::replace(&mut self.series, SeriesBuilder::new(2)).build();
    }

    /// Whether nothing is under way and nothing is to begin.
    fn is_over(&self) -> bool {
        self.under_way() == 0 && self.next_due(monotonic_ns()).is_none()
    }

    fn under_way(&self) -> u64 {
        self.pace.begun() - self.report.attempts
    }

    /// Slots may be empty from now on.
    fn no_more_after(&mut self, now: u64) {
        let active = self.slots.iter().map(|operation| operation.begun_ns);
        self.occupancy.close(now, active);
    }

    /// When the next operation is due; `None` if none is to begin before another ends.
    fn next_due(&self, now: u64) -> Option<u64> {
        if now >= self.pace.ends_ns() { None } else { self.pace.next(self.under_way()) }
    }

    /// Begins what is due, a few at a time: what has happened meanwhile must be seen, or its
    /// latency would grow with what is begun. True if more is due.
    fn begin_those_due(&mut self) -> bool {
        if monotonic_ns() >= self.pace.ends_ns() {
            self.no_more_after(self.pace.ends_ns());
        }
        for _ in 0..burst::CONNECTIONS {
            let now = monotonic_ns();
            match self.next_due(now) {
                // In closed loop an operation is due the moment it is begun.
                Some(due) if due <= now => self.begin(now, self.pace.is_open().then_some(due)),
                _ => return false,
            }
        }
        true
    }

    fn begin(&mut self, begun_ns: u64, scheduled_ns: Option<u64>) {
        let number = self.pace.begun();
        let paused_ns = self.pace.paused_by(begun_ns);
        self.pace.begin(begun_ns);
        if scheduled_ns.is_none() && self.pace.begun() == self.pace.slots() {
            self.occupancy.filled(begun_ns);
            self.paused_before_full_ns = paused_ns;
        }
        if self.pace.begun() == self.load.count {
            self.no_more_after(begun_ns);
        }
        if self.slots.held() >= self.room {
            let error = io::Error::from_raw_os_error(errno::EMFILE);
            return self.refuse(begun_ns, "local-fds", &error);
        }
        let place = self.targets.next(begun_ns);
        let socket = match Tcp::client(self.targets.all[place].0, self.sources.options(number)) {
            Ok(socket) => socket,
            Err(error) if error.raw_os_error() == Some(errno::EADDRNOTAVAIL) => {
                return self.refuse(begun_ns, "bind", &error);
            }
            Err(error) => return self.refuse(begun_ns, class_of(&error), &error),
        };
        let called_ns = monotonic_ns();
        let due_ns = scheduled_ns.unwrap_or(called_ns);
        let mut begun = socket.connect(&self.targets.all[place].1);
        let mut sent = false;
        if self.load.fast_open && begun.is_ok() {
            // With a cookie of the server's the SYN leaves now, with the data; without one the
            // handshake asks for a cookie, and the data goes once connected.
            begun = socket.write(&self.load.send).map(|written| {
                sent = written.is_some();
                Begun::InProgress
            });
        }
        if scheduled_ns.is_some() {
            self.report.lateness.record_ns(called_ns.saturating_sub(due_ns));
        }
        let slot = self.slots.vacant();
        let operation = Operation {
            socket,
            begun_ns,
            due_ns,
            called_ns,
            established_ns: None,
            sent,
            is_closing: false,
        };
        let added = begun.and_then(|begun| {
            self.poller
                .add(&operation.socket, u64::from(slot), Interest::EDGES)
                .map_err(|error| error.source)
                .map(|()| begun)
        });
        self.deadlines.begin(0, slot, due_ns + self.load.timeout_ns);
        self.slots.put(operation);
        match added {
            Ok(Begun::InProgress) => {}
            Ok(Begun::Done) => self.established(slot, monotonic_ns()),
            Err(error) => self.end(slot, Err((class_of(&error), error))),
        }
    }

    fn give_up_those_late(&mut self) {
        let now = monotonic_ns();
        while let Some(slot) = self.deadlines.over(0, now) {
            let operation = self.slots.get(slot);
            if operation.is_some_and(|operation| operation.is_closing) {
                self.report.unclosed += 1;
                self.end(slot, Ok(()));
                continue;
            }
            let made = operation.is_some_and(|operation| operation.established_ns.is_some());
            let class = if made { "timeout" } else { "connect-timeout" };
            self.end(slot, Err((class, io::ErrorKind::TimedOut.into())));
        }
    }

    /// What is on its way when the run is stopped is an attempt too.
    fn give_up_all(&mut self) {
        for slot in self.slots.numbers() {
            let is_closing = self.slots.get(slot).is_some_and(|operation| operation.is_closing);
            let interrupted = ("interrupted", io::ErrorKind::Interrupted.into());
            self.end(slot, if is_closing { Ok(()) } else { Err(interrupted) });
        }
    }

    fn wait(&self) -> Option<Duration> {
        let due = self.next_due(monotonic_ns());
        due.into_iter().chain(self.deadlines.next_ns()).min().map(until)
    }

    fn advance(&mut self, event: Event, now: u64) {
        let slot = event.token as u32;
        let Some(operation) = self.slots.get(slot) else { return };
        if operation.established_ns.is_none() {
            match operation.socket.take_error() {
                Ok(None) if event.writable && !event.broken => self.established(slot, now),
                Ok(None) if !event.broken => return,
                Ok(None) => {
                    return self.end(slot, Err(("reset", io::ErrorKind::ConnectionReset.into())));
                }
                Ok(Some(error)) | Err(error) => {
                    return self.end(slot, Err((class_of(&error), error)));
                }
            }
        }
        let Some(operation) = self.slots.get(slot) else { return };
        if event.readable || event.broken {
            let mut buffer = [0; 16_384];
            let is_closing = operation.is_closing;
            match operation.socket.read(&mut buffer) {
                Ok(None) => {}
                // However the server ends it: it had succeeded.
                Ok(Some(0)) | Err(_) if is_closing => self.end(slot, Ok(())),
                Ok(Some(0)) => {
                    self.end(slot, Err(("truncated", io::ErrorKind::UnexpectedEof.into())));
                }
                Ok(Some(_)) => {
                    // What is left unread would make the close a reset.
                    let has_ended = drain(&operation.socket, &mut buffer);
                    if !is_closing {
                        self.report.first_byte.record_ns(now.saturating_sub(operation.due_ns));
                    }
                    if has_ended {
                        self.end(slot, Ok(()));
                    } else if !is_closing {
                        self.succeeded(slot, now);
                    }
                }
                Err(error) => self.end(slot, Err((class_of(&error), error))),
            }
        }
    }

    fn established(&mut self, slot: u32, now: u64) {
        let Some(operation) = self.slots.get_mut(slot) else { return };
        operation.established_ns = Some(now);
        self.report.established += 1;
        if !self.load.fast_open {
            let handshake = now - operation.called_ns;
            let slack = Duration::from_nanos(self.load.ladder_slack_ns);
            if let Some(rung) = on_ladder(Duration::from_nanos(handshake), &self.ladder, slack) {
                self.report.rungs[rung] += 1;
            }
        }
        if let Some(split) = &mut self.report.split {
            take_split(split, operation, now);
        }
        if self.rows.len() < self.load.trace_limit
            && let Ok(local) = operation.socket.local()
        {
            let client = Peer { ip: local.ip(), port: local.port() };
            self.rows.push(ClientRow { client, called: operation.called_ns, returned: now });
        }
        if !operation.sent && !self.load.send.is_empty() {
            operation.sent = true;
            let written = operation.socket.write(&self.load.send);
            if let Err(error) = written {
                return self.end(slot, Err((class_of(&error), error)));
            }
        }
        if !self.load.first_byte {
            self.succeeded(slot, now);
        }
    }

    /// Closes what has succeeded, or lets the server close it.
    ///
    /// A connection that is closed before the server has accepted it keeps its place in the accept
    /// queue until then; a loop that closes and opens faster than the server accepts fills the queue
    /// by itself. Only a server that has accepted answers a FIN with its own.
    fn succeeded(&mut self, slot: u32, now: u64) {
        let Some(operation) = self.slots.get_mut(slot) else { return };
        if self.load.until_closed_ns == 0 || operation.socket.shutdown_write().is_err() {
            return self.end(slot, Ok(()));
        }
        operation.is_closing = true;
        // Its FIN takes a round trip too.
        let round_trip = operation.established_ns.unwrap_or(now) - operation.called_ns;
        self.deadlines.end(slot);
        self.deadlines.begin(0, slot, now + round_trip + self.load.until_closed_ns);
    }

    fn end(&mut self, slot: u32, outcome: Result<(), (&'static str, io::Error)>) {
        let Some(operation) = self.slots.take(slot) else { return };
        self.deadlines.end(slot);
        let is_ok = outcome.is_ok();
        if let Some(evidence) = &mut self.evidence {
            let failed = outcome.as_ref().err().map(|(class, _)| *class);
            evidence.take(&operation, failed, monotonic_ns());
        }
        self.take_handshake(&operation, is_ok);
        match outcome {
            Ok(()) => {
                self.report.attempts += 1;
                self.report.ok += 1;
                // One of the last thousand, and the first: once per thousand costs nothing.
                if self.report.ok % 1000 == 1
                    && let Ok(info) = operation.socket.tcp_info()
                {
                    self.report.tcp_info = info;
                    self.report.congestion = operation.socket.congestion().unwrap_or_default();
                }
            }
            Err((class, error)) => self.fail(class, &error),
        }
        // The slot is free once the socket is closed, which takes the client's CPU too.
        let begun_ns = operation.begun_ns;
        drop(operation);
        self.ended(begun_ns, is_ok);
    }

    /// Notes how long the handshake took, if there was one: of an operation that succeeded, or of
    /// one that failed afterwards. With Fast Open no handshake is waited for.
    fn take_handshake(&mut self, operation: &Operation, is_ok: bool) {
        let Some(at) = operation.established_ns.filter(|_| !self.load.fast_open) else { return };
        let latency = at.saturating_sub(operation.due_ns);
        if is_ok {
            self.report.connect.record_ns(latency);
            let since = Duration::from_nanos(at.saturating_sub(self.start_ns));
            self.series.push(since, latency as f64 / 1e3);
        } else {
            self.report.connect_of_failed.record_ns(latency);
        }
    }

    /// An operation has ended, and its slot is free.
    fn ended(&mut self, begun_ns: u64, is_ok: bool) {
        let now = monotonic_ns();
        if self.pace.is_open() {
            let in_time = now <= self.pace.window_ends_ns();
            self.report.steady_ok += u64::from(in_time && is_ok);
            self.report.unfinished += u64::from(!in_time);
        } else if is_ok && self.occupancy.has(now) && !self.pace.is_paused(now) {
            self.report.steady_ok += 1;
        }
        self.occupancy.ended(begun_ns, now);
    }

    /// An operation that came to no socket.
    fn refuse(&mut self, begun_ns: u64, class: &'static str, error: &io::Error) {
        self.fail(class, error);
        if let Some(evidence) = &mut self.evidence {
            evidence.refused(class);
        }
        self.ended(begun_ns, false);
    }

    fn fail(&mut self, class: &'static str, error: &io::Error) {
        self.report.attempts += 1;
        *self.report.errors.entry(class.to_owned()).or_default() += 1;
        self.report.first_errors.entry(class.to_owned()).or_insert_with(|| error.to_string());
    }
}

/// Reads what there is; true: the server has closed, or sends without end.
fn drain(socket: &Tcp, buffer: &mut [u8]) -> bool {
    const READS_MAX: usize = 64;
    let mut reads = (0..READS_MAX).map(|_| socket.read(buffer));
    !matches!(reads.find(|read| !matches!(read, Ok(Some(1..)))), Some(Ok(None)))
}

/// Adds a handshake that has just completed. A retransmitted SYN has no round trip of its own.
fn take_split(split: &mut Split, operation: &Operation, now: u64) {
    let took = now.saturating_sub(operation.called_ns);
    let info = operation.socket.tcp_info().ok();
    let info = info.as_deref().and_then(TcpInfo::decode);
    match info {
        Some(TcpInfo::Connection(info)) if info.rtt_us > 0 && info.total_retrans_segments == 0 => {
            let round_trip = u64::from(info.rtt_us) * 1_000;
            split.round_trip.record_ns(round_trip);
            split.rest.record_ns(took.saturating_sub(round_trip));
        }
        _ => split.unmatched += 1,
    }
}

#[cfg(test)]
mod tests;
