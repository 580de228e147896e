//! Bulk data over one or more connections: how much goes through, what it costs, what limits it.
//!
//! One thread and one loop, for one connection and for many. Either end may send, receive, or both.
//! An end that connects begins when all handshakes are decided: so the end that listens has accepted
//! every connection before the first one can end, and ends itself when the last one has.
//!
//! - `sending`: how messages become system calls, and the measured window, by the clock of each end, from
//!   its own first byte.
//! - `sampling`: `TCP_INFO` of the first connection that sends, and bytes received, over time.
//! - `connection`: one connection, from the handshake to its last acknowledgement.
//! - `finish`: how connections end, and the report.
//!
//! A sender goes on for a while after its window, so that the receiver's window, which begins later,
//! is full. It then completes its message, shuts down writing, and waits until the receiver has read
//! to the end and closed: every byte sent is received, or the connection is an error.
//!
//! The clock is read every 16 KiB or 32 calls, whichever is first, and after every wait.

mod connection;
mod finish;
mod sampling;
mod sending;

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use tcptoll_kernel::SysError;
use tcptoll_kernel::cpu::{CpuTime, thread_time};
use tcptoll_kernel::epoll::{Interest, Poller};
use tcptoll_kernel::socket::Tcp;

use self::connection::Connection;
use self::sampling::{Goodput, Sampler};
use self::sending::{Composer, Count, Edge, Window};
use super::LoadError;
use super::control::{CHANNEL, Progress, stop_requested};
use super::slots::{Slots, Waiting};
use crate::channel::Channel;
use crate::clock::monotonic_ns;
use crate::messages::{Flow, SocketSettings, SocketsGot, Transfer, TransferReport, TransferServer};

const LISTENER: u64 = u64::MAX - 1;

/// The argument of `listen(2)`; the kernel's own limit is below it only if somebody set it so.
const BACKLOG: i32 = 4_096;

/// Events handled together.
const EVENTS: usize = 512;

/// Read in one call. Four times as much costs as much CPU and is no faster (10 rounds in turn over a
/// direct link, on a machine with other work). `SO_RCVLOWAT` of 64 KiB and 256 KiB saved the receiver 8
/// and 22 % of its CPU and the sender nothing, but makes arrivals of a slow sender come in lumps.
const READ_BYTES: usize = 256 << 10;

/// The clock is read after this many bytes or calls.
const LOOK_BYTES: u64 = 16 << 10;
const LOOK_CALLS: u64 = 32;

/// While there is always something to do, events and the parent are looked at this often, ns.
const POLL_NS: u64 = 500_000;

/// Work of the program between two looks at the clock, ns.
const WORK_NS: u64 = 1_000_000;

/// No byte on any connection for this long, and the wait for the peer: the load gives up, ns.
const SILENCE_NS: u64 = 60_000_000_000;

/// After a stop, connections that have sent everything may wait this long for the peer, ns.
const STOP_NS: u64 = 2_000_000_000;

/// A connection could not be accepted, for want of a file: it is tried again after this time, ns.
const ACCEPT_NS: u64 = 1_000_000;

/// Handshakes that have a time limit, and senders that wait for the peer.
const HANDSHAKE: usize = 0;
const DRAIN: usize = 1;

/// Sets what was asked for on a socket, before its handshake.
pub(super) fn prepare(tcp: &Tcp, settings: &SocketSettings) -> io::Result<()> {
    if let Some(bytes) = settings.send_buffer {
        tcp.set_send_buffer(bytes)?;
    }
    if let Some(bytes) = settings.receive_buffer {
        tcp.set_receive_buffer(bytes)?;
    }
    if settings.no_delay {
        tcp.set_no_delay(true)?;
    }
    if let Some(name) = &settings.congestion {
        tcp.set_congestion(name)?;
    }
    Ok(())
}

/// What a socket has after its handshake.
pub(super) fn got(tcp: &Tcp) -> io::Result<SocketsGot> {
    Ok(SocketsGot {
        send_buffer: tcp.send_buffer()?,
        receive_buffer: tcp.receive_buffer()?,
        congestion: tcp.congestion()?,
    })
}

/// Accepts connections and serves them until all have ended, or the parent says stop.
pub fn serve(order: &TransferServer, channel: &mut Channel) -> Result<TransferReport, LoadError> {
    let mut load = Load::new(&order.flow, channel)?;
    let prepared = |tcp: &Tcp| prepare(tcp, &order.flow.sockets);
    let listener = Tcp::prepared_listener(order.at, BACKLOG, prepared)?;
    let at = listener.local().map_err(|e| SysError::new("getsockname", "the listener", e))?;
    load.poller.add(&listener, LISTENER, Interest::READ_EDGE)?;
    load.listener = Some(listener);
    load.going = true;
    channel.started::<TransferServer>(&at)?;
    load.go(channel)
}

/// Connects, and carries data until its time is up, or the parent says stop.
pub fn run(order: &Transfer, channel: &mut Channel) -> Result<TransferReport, LoadError> {
    let mut load = Load::new(&order.flow, channel)?;
    load.connect_timeout_ns = order.connect_timeout_ns;
    load.progress = Some(Progress::default());
    load.connect(order.target, order.connections, &order.bind);
    load.go(channel)
}

/// How much is read in one call: less where each message takes work, so that the clock is looked at.
fn read_bytes(flow: &Flow) -> usize {
    let Some(receiving) = flow.receive.as_ref().filter(|receiving| receiving.work_ns > 0) else {
        return READ_BYTES;
    };
    let messages = (WORK_NS / receiving.work_ns).max(1);
    let bytes = messages.saturating_mul(u64::from(receiving.message_bytes.max(1)));
    bytes.min(READ_BYTES as u64) as usize
}

/// One direction at one end, over all connections.
struct Side {
    count: Count,
    window: Window,
    /// Bytes at the last look at the clock.
    seen: u64,
    /// CPU time of the thread at the edges of the window.
    cpu: [Option<CpuTime>; 2],
}

impl Side {
    fn new(flow: &Flow) -> Self {
        let window = Window::new(flow.warmup_ns, flow.duration_ns);
        Self { count: Count::default(), window, seen: 0, cpu: [None; 2] }
    }

    /// Bytes since this was asked for last.
    fn moved(&mut self) -> u64 {
        let bytes = self.count.bytes - self.seen;
        self.seen = self.count.bytes;
        bytes
    }

    /// The edge that a look brought, with the CPU time of then.
    fn look(&mut self, now_ns: u64, moved: bool) -> Option<Edge> {
        let edge = self.window.look(now_ns, self.count, moved);
        self.mark(edge)
    }

    fn mark(&mut self, edge: Option<Edge>) -> Option<Edge> {
        let which = usize::from(edge? == Edge::Ended);
        self.cpu[which] = Some(thread_time());
        edge
    }
}

struct Load<'a> {
    flow: &'a Flow,
    poller: Poller,
    listener: Option<Tcp>,
    /// When to accept next, ns; absent: when an event tells of a connection.
    accept_ns: Option<u64>,
    accept_failed: bool,
    connect_timeout_ns: u64,
    slots: Slots<Connection>,
    deadlines: Waiting<2>,
    /// Connections with something to do, in turn.
    ready: VecDeque<u32>,
    /// Connections that may not send yet, by the rate.
    paced: Vec<u32>,
    /// By the rate: bytes of messages that have begun, and since when, ns.
    pace_bytes: u64,
    pace_from_ns: Option<u64>,
    /// Read in one call.
    read_bytes: usize,
    /// Handshakes under way at the end that connects.
    connecting: u64,
    /// Whether data may flow: all handshakes are decided.
    going: bool,
    /// Writing ends: the time is up, or the parent said stop.
    time_is_up: bool,
    /// Since when the parent wants it to end, ns.
    stopped_ns: Option<u64>,
    composer: Option<Composer>,
    sent: Side,
    received: Side,
    goodput: Goodput,
    sampler: Sampler,
    /// The first connection.
    first: Option<u32>,
    /// Bytes received in the window by connections that have ended.
    window_shares: Vec<u64>,
    buffer: Vec<u8>,
    report: TransferReport,
    progress: Option<Progress>,
    now_ns: u64,
    begun_ns: Option<u64>,
    /// When bytes were last carried, ns.
    moved_ns: u64,
    cpu_before: CpuTime,
}

impl<'a> Load<'a> {
    fn new(flow: &'a Flow, channel: &Channel) -> Result<Self, LoadError> {
        if let Some(sending) = &flow.send
            && sending.bytes.is_none()
            && flow.duration_ns.is_none()
        {
            return Err(LoadError::Refused("no time and no bytes limit the transfer".to_owned()));
        }
        let _ = super::sockets_max();
        let poller = Poller::new(EVENTS)?;
        poller.add(channel, CHANNEL, Interest::READ)?;
        let length_ns = flow.duration_ns.map(|ns| ns.saturating_add(flow.warmup_ns));
        let mut buffer = vec![0; READ_BYTES];
        // Touched once, so that page faults are no part of a window.
        buffer.fill(1);
        let now_ns = monotonic_ns();
        Ok(Self {
            flow,
            poller,
            listener: None,
            accept_ns: None,
            accept_failed: false,
            connect_timeout_ns: 0,
            slots: Slots::new(),
            deadlines: Waiting::new(0),
            ready: VecDeque::new(),
            paced: Vec::new(),
            pace_bytes: 0,
            pace_from_ns: None,
            read_bytes: read_bytes(flow),
            connecting: 0,
            going: false,
            time_is_up: false,
            stopped_ns: None,
            composer: flow.send.as_ref().map(Composer::new).transpose()?,
            sent: Side::new(flow),
            received: Side::new(flow),
            goodput: Goodput::new(length_ns),
            sampler: Sampler::new(length_ns),
            first: None,
            window_shares: Vec::new(),
            buffer,
            report: TransferReport::default(),
            progress: None,
            now_ns,
            begun_ns: None,
            moved_ns: now_ns,
            cpu_before: thread_time(),
        })
    }

    fn go(mut self, channel: &mut Channel) -> Result<TransferReport, LoadError> {
        loop {
            self.act();
            if self.is_over() {
                return Ok(self.finish());
            }
            let timeout = self.timeout();
            let count = self.poller.wait_count(timeout)?;
            self.look();
            for at in 0..count {
                let event = self.poller.event(at);
                match event.token {
                    CHANNEL => {
                        stop_requested(channel)?;
                        self.stop();
                    }
                    LISTENER => self.accept_ns = Some(self.now_ns),
                    slot => self.happened(slot as u32, event),
                }
            }
            if let Some(progress) = &mut self.progress {
                let done = self.sent.count.messages + self.received.count.messages;
                progress.report(channel, self.now_ns, done)?;
            }
        }
    }

    /// Does what is due, and lets connections send and receive until none can or events must be
    /// looked at.
    fn act(&mut self) {
        if self.accept_ns.is_some_and(|at| at <= self.now_ns) {
            self.accept();
        }
        self.give_up_those_late();
        self.end_writing_in_time();
        if !self.paced.is_empty() && self.pace_ns() <= self.now_ns {
            self.ready.extend(self.paced.drain(..));
        }
        let until_ns = self.now_ns + POLL_NS;
        while self.now_ns < until_ns
            && let Some(slot) = self.ready.pop_front()
        {
            self.serve_one(slot);
        }
    }

    /// How long to wait for events. None: for ever.
    fn timeout(&self) -> Option<Duration> {
        if !self.ready.is_empty() {
            return Some(Duration::ZERO);
        }
        let sampled = self.sampled().and_then(|slot| self.slots.get(slot));
        let sampled = sampled.filter(|connection| !connection.shut);
        let due = [
            self.accept_ns,
            self.deadlines.next_ns(),
            (!self.paced.is_empty()).then(|| self.pace_ns()),
            self.writing_ends_ns(),
            self.received.window.next_ns(),
            self.sent.window.next_ns(),
            sampled.map(|_| self.sampler.next_ns()),
            (self.slots.held() > 0).then(|| self.silent_ns()),
            self.stopped_ns.map(|at| at + STOP_NS),
        ];
        due.into_iter().flatten().min().map(super::until)
    }

    /// Reads the clock: edges of the windows, samples, goodput over time.
    fn look(&mut self) {
        self.now_ns = monotonic_ns();
        let now = self.now_ns;
        let (sent, received) = (self.sent.moved(), self.received.moved());
        if sent + received > 0 {
            self.moved_ns = now;
        }
        if let Some(edge) = self.received.look(now, received > 0) {
            self.share_window(edge);
        }
        if received > 0
            && let Some(first_ns) = self.received.window.first_ns()
        {
            self.goodput.add(now - first_ns, received);
        }
        let edge = self.sent.look(now, sent > 0);
        let Some(slot) = self.sampled() else { return };
        let Some(connection) = self.slots.get(slot) else { return };
        match edge {
            Some(Edge::Began) => self.sampler.begin(&connection.tcp, now),
            Some(Edge::Ended) => self.sampler.end(&connection.tcp, now),
            None => {}
        }
        if now >= self.sampler.next_ns() && !connection.shut {
            self.sampler.sample(&connection.tcp, now);
        }
    }

    /// The connection that is sampled, once it has sent.
    fn sampled(&self) -> Option<u32> {
        let slot = self.first?;
        let connection = self.slots.get(slot)?;
        (connection.out?.bytes > 0).then_some(slot)
    }

    /// The window of what is received has begun or ended: for each connection too.
    fn share_window(&mut self, edge: Edge) {
        for connection in self.slots.iter_mut() {
            match edge {
                // The whole transfer is the window: what has come first belongs to it.
                Edge::Began if self.flow.duration_ns.is_none() => connection.window_from = 0,
                Edge::Began => connection.window_from = connection.received,
                Edge::Ended => {
                    self.window_shares.push(connection.received - connection.window_from);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
