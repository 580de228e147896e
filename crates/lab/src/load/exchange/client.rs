//! The end that asks: an exchange after another, each timed.
//!
//! The end of an exchange is the beginning of the next, so that the clock is read once for each. The
//! bookkeeping between two, about 20 ns, is in the latency.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tcptoll_kernel::cpu::thread_time;
use tcptoll_kernel::socket::blocking::Blocking;

use super::{Shared, Talk, beside_channel, check, got, options, work};
use crate::channel::Channel;
use crate::clock::monotonic_ns;
use crate::load::{LoadError, class_of, pair};
use crate::messages::{Exchange, ExchangeReport};

/// Runs exchanges until the window is over, one fails, or the parent says stop.
pub fn run(exchange: &Exchange, channel: &mut Channel) -> Result<ExchangeReport, LoadError> {
    check(&exchange.writes)?;
    check(&[exchange.response_bytes])?;
    let shared = Shared::default();
    beside_channel(&shared, channel, || Client::new(exchange, &shared).run())
}

struct Client<'a> {
    exchange: &'a Exchange,
    shared: &'a Shared,
    report: ExchangeReport,
}

impl<'a> Client<'a> {
    fn new(exchange: &'a Exchange, shared: &'a Shared) -> Self {
        Self { exchange, shared, report: ExchangeReport::default() }
    }

    fn run(mut self) -> ExchangeReport {
        let begun_ns = monotonic_ns();
        match self.connect() {
            Ok(socket) => {
                let ran = self.over(&socket);
                self.report.tcp_info = socket.tcp().tcp_info().unwrap_or_default();
                if let Err(error) = ran {
                    self.fail(&error, class_in_exchange(&error));
                }
            }
            Err(error) => self.fail(&error, class_of(&error)),
        }
        self.report.elapsed_ns = monotonic_ns().saturating_sub(begun_ns);
        self.report.partial = self.shared.is_stopped();
        self.report
    }

    fn connect(&self) -> io::Result<Blocking> {
        let Exchange { target, sockets, timeout_ns, .. } = self.exchange;
        let limit = Duration::from_nanos(*timeout_ns);
        let socket = Blocking::client(*target, &options(sockets), limit)?;
        self.shared.waits_in(&socket, 0)?;
        socket.connect(*target)?;
        Ok(socket)
    }

    /// Counts what ended the load. It is an attempt, also in the warm-up: a load that fails before its
    /// window has not succeeded.
    fn fail(&mut self, error: &io::Error, class: &str) {
        let class = if self.shared.is_stopped() { "interrupted" } else { class };
        self.report.attempts += 1;
        *self.report.errors.entry(class.to_owned()).or_default() += 1;
        self.report.first_errors.insert(class.to_owned(), error.to_string());
    }

    fn over(&mut self, socket: &Blocking) -> io::Result<()> {
        self.report.sockets = got(socket)?;
        let Exchange { writes, sockets, response_bytes, .. } = self.exchange;
        let mut talk = Talk::over(socket, sockets.quick_ack, *response_bytes);
        // Bytes with a content: the pages of a vector of zeros would all be one.
        let request = vec![b'r'; writes.iter().copied().max().unwrap_or(0) as usize];
        self.warm_up(&mut talk, &request)?;
        self.measure(&mut talk, &request)
    }

    fn warm_up(&mut self, talk: &mut Talk<'_>, request: &[u8]) -> io::Result<()> {
        let mut begun_ns = monotonic_ns();
        let ends_ns = begun_ns.saturating_add(self.exchange.warmup_ns);
        let mut left = self.exchange.warmup_exchanges;
        while (begun_ns < ends_ns || left > 0) && !self.shared.is_stopped() {
            let (from_ns, ended_ns) = self.one(talk, request, begun_ns)?;
            self.report.warmup_latency.record_ns(ended_ns - from_ns);
            left = left.saturating_sub(1);
            begun_ns = ended_ns;
        }
        Ok(())
    }

    fn measure(&mut self, talk: &mut Talk<'_>, request: &[u8]) -> io::Result<()> {
        let (cpu, calls) = (thread_time(), talk.calls);
        let opened_ns = monotonic_ns();
        let closes_ns = opened_ns.saturating_add(self.exchange.duration_ns);
        let mut begun_ns = opened_ns;
        let mut ran = Ok(());
        while begun_ns < closes_ns && !self.shared.is_stopped() {
            match self.one(talk, request, begun_ns) {
                Ok((from_ns, ended_ns)) => {
                    self.report.latency.record_ns(ended_ns - from_ns);
                    self.report.ok += 1;
                    self.shared.done.store(self.report.ok, Ordering::Relaxed);
                    begun_ns = ended_ns;
                }
                Err(error) => {
                    begun_ns = monotonic_ns();
                    ran = Err(error);
                    break;
                }
            }
        }
        self.report.attempts = self.report.ok;
        self.report.window_ns = begun_ns - opened_ns;
        self.report.calls = talk.calls - calls;
        self.report.cpu_us = pair(thread_time().since(cpu));
        ran
    }

    /// One exchange: when it began, work done, and when it ended.
    fn one(&self, talk: &mut Talk<'_>, request: &[u8], now_ns: u64) -> io::Result<(u64, u64)> {
        let from_ns = work(self.exchange.work_ns).unwrap_or(now_ns);
        let deadline_ns = from_ns.saturating_add(self.exchange.timeout_ns);
        for &bytes in &self.exchange.writes {
            talk.send(&request[..bytes as usize], deadline_ns)?;
        }
        if !talk.receive(self.exchange.response_bytes, deadline_ns)? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok((from_ns, monotonic_ns()))
    }
}

/// The class of what failed after the handshake.
fn class_in_exchange(error: &io::Error) -> &'static str {
    match error.kind() {
        // The socket's time limit, or ours; or the kernel gave up its retransmissions.
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "timeout",
        io::ErrorKind::UnexpectedEof => "truncated",
        _ => class_of(error),
    }
}
