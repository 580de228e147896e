//! How connections of a transfer end: in order, by an error, by a time limit, by a stop; and the report.

use std::io;

use tcptoll_core::tcp::tcp_info::TcpInfo;
use tcptoll_kernel::cpu::{CpuTime, thread_time};
use tcptoll_kernel::socket::reset_when_closed;

use super::connection::{Connection, Failure, State};
use super::sending::{Count, Edge};
use super::{DRAIN, HANDSHAKE, Load, SILENCE_NS, STOP_NS, Side};
use crate::clock::monotonic_ns;
use crate::load::pair;
use crate::messages::{Carried, TcpAtEdges, TransferReport};

impl Load<'_> {
    /// Whether no connection is open, and none is to come.
    pub(super) fn is_over(&mut self) -> bool {
        if self.slots.held() > 0 {
            return false;
        }
        if self.stopped_ns.is_some() {
            return true;
        }
        if self.listener.is_some() {
            if self.report.attempts == 0 {
                return false;
            }
            // Whoever connects does so before it ends its first connection: it waits in the queue.
            self.accept();
        }
        self.slots.held() == 0 && self.accept_ns.is_none()
    }

    /// When writing ends, ns. None: it is over, or no byte has been sent, or bytes are the limit.
    pub(super) fn writing_ends_ns(&self) -> Option<u64> {
        let end_ns = self.sent.window.planned_end_ns().filter(|_| !self.time_is_up)?;
        Some(end_ns.saturating_add(self.flow.tail_ns))
    }

    /// Has every sender end with the message that it is in, once the time is up.
    pub(super) fn end_writing_in_time(&mut self) {
        if self.writing_ends_ns().is_some_and(|at| at <= self.now_ns) {
            self.time_is_up = true;
            self.queue_all();
            // Also for a message that cannot be completed because the peer reads nothing.
            let until_ns = self.now_ns.saturating_add(self.flow.drain_ns);
            for slot in self.slots.numbers() {
                let writes = |c: &Connection| c.state == State::Open && c.out.is_some() && !c.shut;
                if self.slots.get(slot).is_some_and(writes) {
                    self.deadlines.begin(DRAIN, slot, until_ns);
                }
            }
        }
    }

    /// When the load gives up for want of any byte, ns.
    pub(super) fn silent_ns(&self) -> u64 {
        self.moved_ns.saturating_add(SILENCE_NS).saturating_add(self.flow.drain_ns)
    }

    /// Ends connections whose time limits have passed.
    pub(super) fn give_up_those_late(&mut self) {
        while let Some(slot) = self.deadlines.over(HANDSHAKE, self.now_ns) {
            self.fail(slot, ("connect-timeout", io::ErrorKind::TimedOut.into()));
        }
        while let Some(slot) = self.deadlines.over(DRAIN, self.now_ns) {
            let read_ns = self.slots.get(slot).map_or(0, |connection| connection.read_ns);
            if read_ns.saturating_add(self.flow.drain_ns) > self.now_ns {
                // The peer still sends: it is waited for from its last byte on.
                self.deadlines.begin(DRAIN, slot, self.now_ns + self.flow.drain_ns);
                continue;
            }
            let error = io::Error::other("the peer did not read to the end in time");
            self.fail(slot, ("timeout", error));
        }
        if self.slots.held() > 0 && self.silent_ns() <= self.now_ns {
            self.give_up_all(|_| true, "timeout", io::ErrorKind::TimedOut);
        }
        if self.stopped_ns.is_some_and(|at| at + STOP_NS <= self.now_ns) {
            self.interrupt(|_| true);
        }
    }

    /// The parent wants it to end: only connections that have sent everything may wait for the peer.
    pub(super) fn stop(&mut self) {
        self.stopped_ns.get_or_insert(self.now_ns);
        self.listener = None;
        self.accept_ns = None;
        self.time_is_up = true;
        self.going = true;
        self.interrupt(|connection| !connection.shut);
    }

    fn interrupt(&mut self, which: impl Fn(&Connection) -> bool) {
        self.report.partial |= self.slots.iter().any(&which);
        self.give_up_all(which, "interrupted", io::ErrorKind::Interrupted);
    }

    fn give_up_all(
        &mut self,
        which: impl Fn(&Connection) -> bool,
        class: &'static str,
        kind: io::ErrorKind,
    ) {
        for slot in self.slots.numbers() {
            if self.slots.get(slot).is_some_and(&which) {
                self.fail(slot, (class, kind.into()));
            }
        }
    }

    /// A connection has carried all of its data.
    pub(super) fn end(&mut self, slot: u32) {
        let Some(connection) = self.take(slot) else { return };
        self.report.ok += 1;
        drop(connection);
    }

    /// A connection is an error. Its data is dropped by a RST.
    pub(super) fn fail(&mut self, slot: u32, (class, error): Failure) {
        let Some(connection) = self.take(slot) else { return };
        self.count_error(class, &error);
        let _ = reset_when_closed(&connection.tcp);
        drop(connection);
        self.go_on_if_decided();
    }

    pub(super) fn count_error(&mut self, class: &'static str, error: &io::Error) {
        *self.report.errors.entry(class.to_owned()).or_default() += 1;
        self.report.first_errors.entry(class.to_owned()).or_insert_with(|| error.to_string());
    }

    /// Takes a connection out, and what its kernel has counted.
    fn take(&mut self, slot: u32) -> Option<Connection> {
        let was_sampled = self.sampled() == Some(slot);
        let connection = self.slots.take(slot)?;
        self.deadlines.end(slot);
        if connection.state == State::Connecting {
            self.connecting -= 1;
            return Some(connection);
        }
        if self.received.is_open() {
            self.window_shares.push(connection.received - connection.window_from);
        }
        if was_sampled && self.sent.is_open() {
            self.sampler.end(&connection.tcp, self.now_ns);
        }
        let is_first = self.first == Some(slot);
        if is_first {
            // Its number may be given again.
            self.first = Some(u32::MAX);
        }
        if is_first || connection.out.is_some() {
            let info = connection.tcp.tcp_info().unwrap_or_default();
            if connection.out.is_some() {
                self.add_ends(&info);
            }
            if is_first {
                self.report.tcp_info = info;
            }
        }
        Some(connection)
    }

    fn add_ends(&mut self, info: &[u8]) {
        let Some(TcpInfo::Connection(info)) = TcpInfo::decode(info) else { return };
        let (Some(sent), Some(again)) = (info.bytes_sent, info.bytes_retransmitted) else { return };
        let ends = self.report.at_ends.get_or_insert_with(TcpAtEdges::default);
        ends.bytes_sent += sent;
        ends.bytes_retransmitted += again;
    }

    /// What came of it all.
    pub(super) fn finish(mut self) -> TransferReport {
        self.now_ns = monotonic_ns();
        self.look();
        let received_edge = self.received.close(self.now_ns);
        if received_edge == Some(Edge::Ended) {
            self.share_window(Edge::Ended);
        }
        self.sent.close(self.now_ns);
        let mut report = self.report;
        report.sent = self.sent.carried();
        report.received = self.received.carried();
        if let Some(receiving) = &self.flow.receive {
            let message = u64::from(receiving.message_bytes.max(1));
            report.received.messages = report.received.bytes / message;
            report.received.window_messages = report.received.window_bytes / message;
            let window_s = report.received.window_ns as f64 / 1e9;
            if self.flow.duration_ns.is_some() && window_s > 0.0 {
                let steady = report.received.window_bytes as f64 / window_s;
                report.startup_ns = self.goodput.startup_ns(steady);
            }
            report.series.insert("goodput_bytes_per_s".to_owned(), self.goodput.series());
        }
        let (least, greatest) = (self.window_shares.iter().min(), self.window_shares.iter().max());
        report.least_and_greatest = least.zip(greatest).map(|(&least, &most)| [least, most]);
        let side = if self.flow.receive.is_some() { &self.received } else { &self.sent };
        report.window_cpu_us = pair(side.window_cpu());
        report.cpu_window_ns = side.window.result().1;
        if self.flow.send.is_some() {
            let connected = self.progress.is_some();
            report.sender = self.sampler.sender(connected);
            let first_ns = self.sent.window.first_ns().unwrap_or(0);
            report.series.extend(self.sampler.series(first_ns, connected));
        }
        report.cpu_us = pair(thread_time().since(self.cpu_before));
        report.elapsed_ns = self.begun_ns.map_or(0, |begun| self.now_ns.saturating_sub(begun));
        report
    }
}

impl Side {
    /// Whether the window has begun and not ended.
    fn is_open(&self) -> bool {
        self.cpu[0].is_some() && self.cpu[1].is_none()
    }

    /// Nothing more will be carried.
    fn close(&mut self, now_ns: u64) -> Option<Edge> {
        let edge = self.window.close(now_ns, self.count);
        self.mark(edge)
    }

    fn carried(&self) -> Carried {
        let (window, window_ns) = self.window.result();
        let Count { bytes, messages, calls } = self.count;
        Carried {
            bytes,
            messages,
            calls,
            window_bytes: window.bytes,
            window_messages: window.messages,
            window_calls: window.calls,
            window_ns,
        }
    }

    fn window_cpu(&self) -> CpuTime {
        match self.cpu {
            [Some(began), Some(ended)] => ended.since(began),
            _ => CpuTime::default(),
        }
    }
}
