//! Requests and answers over one connection, one exchange after another.
//!
//! It is as fast as a bare socket: a thread of its own blocks in `send(2)` and `recv(2)`, one call each for
//! an exchange of small messages, and reads the clock once. The caller's thread looks at the control channel
//! and ends the other's wait with `shutdown(2)`. sockperf and qperf do the same; epoll would take two calls
//! more.
//!
//! The end of an exchange is the beginning of the next, so that the clock is read once for each. The
//! bookkeeping between two, about 20 ns, is in the latency.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tcptoll_kernel::SysError;
use tcptoll_kernel::cpu::{CpuTime, thread_time};
use tcptoll_kernel::epoll::{Interest, Poller};
use tcptoll_kernel::socket::blocking::{Blocking, BlockingOptions};

use super::control::{CHANNEL, ENDED, until_ended};
use super::{LoadError, class_of, pair};
use crate::channel::Channel;
use crate::clock::monotonic_ns;
use crate::messages::{
    Answers, AnswersReport, Exchange, ExchangeReport, SocketSettings, SocketsGot,
};

/// Longest message, bytes.
const MESSAGE_MAX: u32 = 64 << 20;

/// Bytes received in a call at most.
const CHUNK: usize = 256 << 10;

/// What the thread that blocks shares with the one that looks after it.
#[derive(Default)]
struct Shared {
    done: AtomicU64,
    stopped: AtomicBool,
    /// Whatever the thread may wait in.
    open: Mutex<Vec<Blocking>>,
}

impl Shared {
    /// Whether to end with what there is.
    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// A stop interrupts this socket from now on, and those before it no more, but for `keep` of them.
    ///
    /// Errors: a stop has come already.
    fn waits_in(&self, socket: &Blocking, keep: usize) -> io::Result<()> {
        let again = socket.again()?;
        let mut open = self.open.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        open.truncate(keep);
        open.push(again);
        drop(open);
        if self.is_stopped() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        Ok(())
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        let open = self.open.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        open.iter().for_each(Blocking::interrupt);
    }
}

/// Does the work on a thread of its own until it ends, or the parent says stop, which interrupts it.
fn beside_channel<R: Send>(
    shared: &Shared,
    channel: &mut Channel,
    work: impl FnOnce() -> R + Send,
) -> Result<R, LoadError> {
    let (told, ended) = std::os::unix::net::UnixStream::pair().map_err(failed("socketpair"))?;
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let result = work();
            // Closing it tells the other thread.
            drop(ended);
            result
        });
        let watched = watch(shared, channel, &told);
        if watched.is_err() {
            shared.stop();
        }
        let lost = |_| LoadError::Refused("a thread of the load failed".to_owned());
        let result = thread.join().map_err(lost);
        watched.and(result)
    })
}

/// Looks at the channel until the work has ended.
fn watch(
    shared: &Shared,
    channel: &mut Channel,
    told: &std::os::unix::net::UnixStream,
) -> Result<(), LoadError> {
    let mut poller = Poller::new(2)?;
    poller.add(&*channel, CHANNEL, Interest::READ)?;
    poller.add(told, ENDED, Interest::READ)?;
    until_ended(channel, &mut poller, &shared.done, &shared.stopped, || shared.stop())
}

fn failed(op: &'static str) -> impl Fn(io::Error) -> LoadError {
    move |error| SysError::new(op, "the connection", error).into()
}

/// The kernel's side of the settings. `TCP_QUICKACK` is no option of a socket but of each read.
fn options(settings: &SocketSettings) -> BlockingOptions<'_> {
    BlockingOptions {
        send_buffer: settings.send_buffer,
        receive_buffer: settings.receive_buffer,
        no_delay: settings.no_delay,
        congestion: settings.congestion.as_deref(),
    }
}

fn got(socket: &Blocking) -> io::Result<SocketsGot> {
    let (send_buffer, receive_buffer) = socket.buffers()?;
    Ok(SocketsGot { send_buffer, receive_buffer, congestion: socket.tcp().congestion()? })
}

/// Refuses sizes that cannot be.
fn check(sizes: &[u32]) -> Result<(), LoadError> {
    let total: u64 = sizes.iter().map(|&size| u64::from(size)).sum();
    if sizes.is_empty() || sizes.contains(&0) || total > u64::from(MESSAGE_MAX) {
        return Err(LoadError::Refused(format!(
            "a message of {total} bytes: it must have at least 1 byte and at most {MESSAGE_MAX}"
        )));
    }
    Ok(())
}

/// One end of a connection, and its system calls.
struct Talk<'a> {
    socket: &'a Blocking,
    quick_ack: bool,
    /// Where received bytes go.
    buffer: Vec<u8>,
    calls: u64,
}

impl<'a> Talk<'a> {
    /// `receives`: size of the messages that it receives.
    fn over(socket: &'a Blocking, quick_ack: bool, receives: u32) -> Self {
        let buffer = vec![0; (receives as usize).min(CHUNK)];
        Self { socket, quick_ack, buffer, calls: 0 }
    }

    /// Sends all of it. `deadline_ns`: looked at when a message goes in pieces, so that none takes for
    /// ever.
    ///
    /// Errors: `TimedOut` after the deadline.
    fn send(&mut self, mut bytes: &[u8], deadline_ns: u64) -> io::Result<()> {
        loop {
            self.calls += 1;
            let sent = self.socket.send(bytes)?;
            if sent >= bytes.len() {
                return Ok(());
            }
            bytes = &bytes[sent..];
            in_time(deadline_ns)?;
        }
    }

    /// Receives a message of this many bytes; `false` if the peer closed before its first byte.
    /// `deadline_ns`: as in [`Talk::send`].
    ///
    /// Errors: `UnexpectedEof` if the peer closed in it, `TimedOut` after the deadline.
    fn receive(&mut self, bytes: u32, deadline_ns: u64) -> io::Result<bool> {
        let mut missing = bytes as usize;
        loop {
            if self.quick_ack {
                self.calls += 1;
                self.socket.acknowledge_quickly()?;
            }
            self.calls += 1;
            let room = missing.min(self.buffer.len());
            let received = self.socket.receive(&mut self.buffer[..room])?;
            missing -= received;
            if missing == 0 {
                return Ok(true);
            }
            if received == 0 {
                let between = missing == bytes as usize;
                return if between { Ok(false) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
            in_time(deadline_ns)?;
        }
    }
}

fn in_time(deadline_ns: u64) -> io::Result<()> {
    let is_late = deadline_ns < u64::MAX && monotonic_ns() > deadline_ns;
    if is_late { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
}

/// Works for this CPU time; gives the time at its end if it read the clock.
fn work(work_ns: u64) -> Option<u64> {
    if work_ns == 0 {
        return None;
    }
    let until = monotonic_ns().saturating_add(work_ns);
    loop {
        let now = monotonic_ns();
        if now >= until {
            return Some(now);
        }
        std::hint::spin_loop();
    }
}

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

/// Answers, a connection after another, until the parent says stop.
pub fn answer(answers: &Answers, channel: &mut Channel) -> Result<AnswersReport, LoadError> {
    check(&[answers.request_bytes])?;
    check(&[answers.response_bytes])?;
    let listener = Blocking::listen(answers.at, &options(&answers.sockets))?;
    let failed = |op| move |error| SysError::new(op, answers.at.to_string(), error);
    let at = listener.tcp().local().map_err(failed("getsockname"))?;
    let shared = Shared::default();
    shared.waits_in(&listener, 0).map_err(failed("dup"))?;
    channel.started::<Answers>(&at)?;
    let mut server = Server { answers, shared: &shared, report: AnswersReport::default() };
    let served = beside_channel(&shared, channel, || server.serve(&listener));
    served?.map_err(failed("accept"))?;
    Ok(server.report)
}

struct Server<'a> {
    answers: &'a Answers,
    shared: &'a Shared,
    report: AnswersReport,
}

impl Server<'_> {
    fn serve(&mut self, listener: &Blocking) -> io::Result<()> {
        loop {
            let socket = match listener.accept() {
                Ok(socket) => socket,
                Err(_) if self.shared.is_stopped() => return Ok(()),
                // It was reset before it was accepted.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            // The listener is interrupted by a stop, too.
            match self.shared.waits_in(&socket, 1) {
                Err(_) if self.shared.is_stopped() => return Ok(()),
                shared => shared?,
            }
            self.over(&socket);
        }
    }

    /// Answers until the client closes or fails: its own report counts that.
    fn over(&mut self, socket: &Blocking) {
        if self.report.answered == 0 {
            self.report.sockets = got(socket).unwrap_or_default();
        }
        let Answers { request_bytes, response_bytes, sockets, .. } = self.answers;
        let mut talk = Talk::over(socket, sockets.quick_ack, *request_bytes);
        let answer = vec![b'a'; *response_bytes as usize];
        let cpu = thread_time();
        let mut begun_ns = None;
        while let Ok(true) = talk.receive(*request_bytes, u64::MAX) {
            begun_ns.get_or_insert_with(monotonic_ns);
            work(self.answers.work_ns);
            if talk.send(&answer, u64::MAX).is_err() {
                break;
            }
            self.report.answered += 1;
            self.shared.done.store(self.report.answered, Ordering::Relaxed);
        }
        // The client closes right after its last exchange, and waiting takes no CPU time.
        let used = thread_time().since(cpu);
        let (user_us, system_us) = self.report.cpu_us;
        let sum =
            CpuTime { user_us: user_us + used.user_us, system_us: system_us + used.system_us };
        self.report.cpu_us = pair(sum);
        self.report.elapsed_ns += begun_ns.map_or(0, |begun| monotonic_ns() - begun);
        self.report.calls += talk.calls;
    }
}

#[cfg(test)]
mod tests;
