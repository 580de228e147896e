//! Opens connections and times each: called, established, first byte.
//!
//! Closed loop: as many at once as asked, the next begins when one ends; the first ones are begun
//! evenly over a ramp, because a burst of SYNs would overflow a queue that the load itself never
//! fills. Open loop: one begins every 1/rate s whether or not others have ended, and latency counts
//! from when it was due.
//!
//! It ends after a number of operations or after a time, whichever comes first: nothing begins from
//! then on, and what has begun is waited for. An open loop that is late by then leaves out what it
//! could not begin in time; its lateness says so.

mod completions;

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use tcptoll_kernel::cpu::{self, thread_time};
use tcptoll_kernel::epoll::{Event, Interest, Poller};
use tcptoll_kernel::socket::{Address, Begun, ClientOptions, Tcp, errno};
use tcptoll_model::handshake::{ClientRow, Peer};
use tcptoll_model::ladder::on_ladder;
use tcptoll_model::stats::SeriesBuilder;

use self::completions::{Completions, planned_ns};
use super::occupancy::Occupancy;
use super::{CHANNEL, LoadError, class_of, pair, sources, stop_requested, until};
use crate::channel::Channel;
use crate::clock::monotonic_ns;
use crate::messages::{ConnectLoad, ConnectReport};

/// Operations begun between two looks at what has happened.
const BURST: u32 = 8;

/// Progress is told this often.
const PROGRESS_NS: u64 = 200_000_000;

/// File descriptors that are not connections: streams, channel, epoll, ICMP, netlink, libraries.
const OTHER_FILES: u64 = 64;

struct Operation {
    socket: Tcp,
    /// Before its socket was made.
    begun_ns: u64,
    due_ns: u64,
    called_ns: u64,
    established_ns: Option<u64>,
    /// Whether the request has left.
    sent: bool,
    generation: u64,
}

/// Runs the load to its end, or until the parent says stop.
pub fn run(
    load: &ConnectLoad,
    channel: &mut Channel,
) -> Result<(ConnectReport, Vec<ClientRow>), LoadError> {
    let room = cpu::file_limit().map_or(1024, |limit| limit.saturating_sub(OTHER_FILES)).max(1);
    let poller = Poller::new(512)?;
    poller.add(&*channel, CHANNEL, Interest::READ)?;
    let start_ns = monotonic_ns();
    let ends_ns = load.duration_ns.map_or(u64::MAX, |long| start_ns.saturating_add(long));
    let mut client = Client {
        load,
        poller,
        target: load.target.into(),
        options: Vec::new(),
        slots: Vec::new(),
        free: Vec::new(),
        room: room as usize,
        deadlines: VecDeque::new(),
        report: ConnectReport { rungs: vec![0; load.ladder_ns.len()], ..ConnectReport::default() },
        rows: Vec::new(),
        ladder: load.ladder_ns.iter().copied().map(Duration::from_nanos).collect(),
        series: SeriesBuilder::new(400),
        begun: 0,
        start_ns,
        ends_ns,
        occupancy: Occupancy::new(ends_ns),
        completions: Completions::default(),
        planned_ns: load.rate_per_s.map(|rate| planned_ns(load.count, rate, load.duration_ns)),
        paused_before_full_ns: 0,
        not_before_ns: 0,
        told_ns: 0,
    };
    client.options = client.options_of_each_source();
    client.go(channel)?;
    Ok((client.report, client.rows))
}

struct Client<'a> {
    load: &'a ConnectLoad,
    poller: Poller,
    /// The form that `connect(2)` takes, made once instead of once per connection.
    target: Address,
    options: Vec<ClientOptions>,
    slots: Vec<Option<Operation>>,
    free: Vec<usize>,
    room: usize,
    /// In order, because every operation has the same time limit.
    deadlines: VecDeque<(u64, usize, u64)>,
    report: ConnectReport,
    rows: Vec<ClientRow>,
    ladder: Vec<Duration>,
    series: SeriesBuilder,
    begun: u64,
    start_ns: u64,
    /// No operation begins after this.
    ends_ns: u64,
    occupancy: Occupancy,
    completions: Completions,
    /// Open loop: length of the steady part, ns, without pauses.
    planned_ns: Option<u64>,
    /// Pauses before all slots were filled, ns.
    paused_before_full_ns: u64,
    /// No operation begins before this, because of a pause.
    not_before_ns: u64,
    told_ns: u64,
}

impl Client<'_> {
    fn options_of_each_source(&self) -> Vec<ClientOptions> {
        let one = |bind: Option<IpAddr>| ClientOptions {
            bind,
            congestion: self.load.congestion.clone(),
            fast_open: self.load.fast_open,
        };
        sources(&self.load.bind).into_iter().map(one).collect()
    }

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
            let events = self.poller.wait(timeout)?;
            let now = monotonic_ns();
            for event in events {
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
            if now >= self.told_ns + PROGRESS_NS {
                self.told_ns = now;
                channel.progress(self.report.attempts)?;
            }
        }
        self.finish(cpu_before);
        Ok(())
    }

    fn finish(&mut self, cpu_before: cpu::CpuTime) {
        let now = monotonic_ns();
        self.report.cpu_us = pair(thread_time().since(cpu_before));
        self.report.elapsed_ns = now - self.start_ns;
        self.no_more_after(now);
        // A pause that was cut short was not all spent.
        let (paused_ns, not_before_ns) = (self.report.paused_ns, self.not_before_ns);
        let paused_by = |at: u64| paused_ns.saturating_sub(not_before_ns.saturating_sub(at));
        let (full_ns, busy_ns) = self.occupancy.measured_ns();
        let paused_while_full = self
            .occupancy
            .until_ns()
            .map_or(0, |until| paused_by(until).saturating_sub(self.paused_before_full_ns));
        self.report.full_ns = full_ns.saturating_sub(paused_while_full);
        self.report.busy_ns = busy_ns;
        self.report.paused_ns = paused_by(now);
        self.report.steady_ok = self.completions.ok;
        self.report.steady_ns = match self.planned_ns {
            _ if self.report.partial => 0,
            Some(planned_ns) => planned_ns,
            None => self.report.full_ns,
        };
        self.report.unfinished = self.completions.after;
        self.report.series = std::mem::replace(&mut self.series, SeriesBuilder::new(2)).build();
    }

    /// Whether nothing is under way and nothing is to begin.
    fn is_over(&self) -> bool {
        self.begun == self.report.attempts && self.next_due().is_none()
    }

    /// Slots may be empty from now on.
    fn no_more_after(&mut self, now: u64) {
        let active = self.slots.iter().flatten().map(|operation| operation.begun_ns);
        self.occupancy.close(now, active);
    }

    /// When the next operation is due; `None` if none is to begin before another ends.
    fn next_due(&self) -> Option<u64> {
        if self.begun >= self.load.count || self.is_late() {
            return None;
        }
        let active = self.begun - self.report.attempts;
        let due = if let Some(rate) = self.load.rate_per_s {
            self.start_ns + self.report.paused_ns + (self.begun as f64 / rate * 1e9) as u64
        } else if active >= self.load.concurrency {
            return None;
        } else if self.begun < self.load.concurrency {
            self.start_ns + self.load.ramp_ns * self.begun / self.load.concurrency
        } else {
            0
        };
        Some(due.max(self.not_before_ns)).filter(|&due| due < self.ends_ns)
    }

    /// Whether the time for beginning operations is up.
    fn is_late(&self) -> bool {
        self.ends_ns < u64::MAX && monotonic_ns() >= self.ends_ns
    }

    /// Begins what is due, a few at a time: what has happened meanwhile must be seen, or its
    /// latency would grow with what is begun. True if more is due.
    fn begin_those_due(&mut self) -> bool {
        if self.is_late() {
            self.no_more_after(self.ends_ns);
        }
        for _ in 0..BURST {
            let now = monotonic_ns();
            match self.next_due() {
                // In closed loop an operation is due the moment it is begun.
                Some(due) if due <= now => self.begin(now, self.load.rate_per_s.map(|_| due)),
                _ => return false,
            }
        }
        true
    }

    fn begin(&mut self, begun_ns: u64, scheduled_ns: Option<u64>) {
        let number = self.begun;
        self.begun += 1;
        if scheduled_ns.is_none() && self.begun == self.load.concurrency {
            self.occupancy.filled(begun_ns);
            self.paused_before_full_ns = self.report.paused_ns;
        }
        if self.begun == self.load.count {
            self.no_more_after(begun_ns);
        }
        if let Some(every) = self.load.pause_every
            && self.begun.is_multiple_of(every)
            && self.begun < self.load.count
        {
            self.not_before_ns = monotonic_ns() + self.load.pause_ns;
            self.report.paused_ns += self.load.pause_ns;
            // The schedule of an open loop waits, too.
        }
        if self.slots.len() - self.free.len() >= self.room {
            let error = io::Error::from_raw_os_error(errno::EMFILE);
            return self.refuse(begun_ns, "local-fds", &error);
        }
        let options = &self.options[(number % self.options.len() as u64) as usize];
        let socket = match Tcp::client(self.load.target, options) {
            Ok(socket) => socket,
            Err(error) if error.raw_os_error() == Some(errno::EADDRNOTAVAIL) => {
                return self.refuse(begun_ns, "bind", &error);
            }
            Err(error) => return self.refuse(begun_ns, class_of(&error), &error),
        };
        let called_ns = monotonic_ns();
        let due_ns = scheduled_ns.unwrap_or(called_ns);
        let mut begun = socket.connect(&self.target);
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
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let operation = Operation {
            socket,
            begun_ns,
            due_ns,
            called_ns,
            established_ns: None,
            sent,
            generation: number,
        };
        let added = begun.and_then(|begun| {
            self.poller
                .add(&operation.socket, slot as u64, Interest::EDGES)
                .map_err(|error| error.source)
                .map(|()| begun)
        });
        self.deadlines.push_back((due_ns + self.load.timeout_ns, slot, number));
        self.slots[slot] = Some(operation);
        match added {
            Ok(Begun::InProgress) => {}
            Ok(Begun::Done) => self.established(slot, monotonic_ns()),
            Err(error) => self.end(slot, Err((class_of(&error), error))),
        }
    }

    fn give_up_those_late(&mut self) {
        let now = monotonic_ns();
        while let Some(&(deadline, slot, generation)) = self.deadlines.front() {
            let current = self.slots[slot].as_ref().filter(|o| o.generation == generation);
            if current.is_some() && deadline > now {
                return;
            }
            self.deadlines.pop_front();
            if let Some(operation) = current {
                let class =
                    if operation.established_ns.is_some() { "timeout" } else { "connect-timeout" };
                self.end(slot, Err((class, io::ErrorKind::TimedOut.into())));
            }
        }
    }

    /// What is on its way when the run is stopped is an attempt too.
    fn give_up_all(&mut self) {
        for slot in 0..self.slots.len() {
            self.end(slot, Err(("interrupted", io::ErrorKind::Interrupted.into())));
        }
    }

    fn wait(&self) -> Option<Duration> {
        let deadline = self.deadlines.front().map(|&(at, ..)| at);
        self.next_due().into_iter().chain(deadline).min().map(until)
    }

    fn advance(&mut self, event: Event, now: u64) {
        let slot = event.token as usize;
        let Some(operation) = self.slots.get(slot).and_then(Option::as_ref) else { return };
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
        let Some(operation) = self.slots[slot].as_ref() else { return };
        if event.readable || event.broken {
            let mut buffer = [0; 16_384];
            match operation.socket.read(&mut buffer) {
                Ok(None) => {}
                Ok(Some(0)) => {
                    self.end(slot, Err(("truncated", io::ErrorKind::UnexpectedEof.into())));
                }
                Ok(Some(_)) => {
                    // What is left unread would make the close a reset.
                    while matches!(operation.socket.read(&mut buffer), Ok(Some(1..))) {}
                    self.report.first_byte.record_ns(now.saturating_sub(operation.due_ns));
                    self.end(slot, Ok(()));
                }
                Err(error) => self.end(slot, Err((class_of(&error), error))),
            }
        }
    }

    fn established(&mut self, slot: usize, now: u64) {
        let Some(operation) = self.slots[slot].as_mut() else { return };
        operation.established_ns = Some(now);
        self.report.established += 1;
        if !self.load.fast_open {
            let handshake = now - operation.called_ns;
            let slack = Duration::from_nanos(self.load.ladder_slack_ns);
            if let Some(rung) = on_ladder(Duration::from_nanos(handshake), &self.ladder, slack) {
                self.report.rungs[rung] += 1;
            }
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
            self.end(slot, Ok(()));
        }
    }

    fn end(&mut self, slot: usize, outcome: Result<(), (&'static str, io::Error)>) {
        let Some(operation) = self.slots[slot].take() else { return };
        self.free.push(slot);
        let is_ok = outcome.is_ok();
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
        if let Some(planned_ns) = self.planned_ns {
            let until_ns = self.start_ns + planned_ns + self.report.paused_ns;
            self.completions.ended(now, is_ok, until_ns);
        } else if is_ok {
            let is_full = self.occupancy.is_open();
            self.completions.succeeded(now, is_full, self.ends_ns, self.not_before_ns);
        }
        if self.occupancy.is_open() {
            self.occupancy.ended(begun_ns, now);
        }
    }

    /// An operation that came to no socket.
    fn refuse(&mut self, begun_ns: u64, class: &'static str, error: &io::Error) {
        self.fail(class, error);
        self.ended(begun_ns, false);
    }

    fn fail(&mut self, class: &'static str, error: &io::Error) {
        self.report.attempts += 1;
        *self.report.errors.entry(class.to_owned()).or_default() += 1;
        self.report.first_errors.entry(class.to_owned()).or_insert_with(|| error.to_string());
    }
}
