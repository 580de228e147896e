//! Short connections by blocking workers: what does each cost, as local ports run low?
//!
//! Each worker is a thread that blocks, as in a service with a pool of workers: it waits until an
//! operation is due, works, opens a connection, exchanges a byte each way, and closes. The CPU time of
//! `connect(2)` is the difference of the thread's own CPU clock around the call; `bind(2)` is in it,
//! because without `IP_BIND_ADDRESS_NO_PORT` the kernel looks for a free port there. Over veth the
//! kernel also processes the server's part of the handshake in that call.
//!
//! A failed operation is an attempt and is not repeated. Every wait has a limit. Read `worker`, then
//! `watch`; `hold` fills ports beforehand.
//!
//! The server ([`run_echo`]) answers each byte with one byte. It is cheap, and keeps no state of a connection but the socket. It closes once the client has, or
//! first, after its first answer. Nothing of it is measured but its CPU time.

pub mod hold;
mod watch;
mod worker;

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tcptoll_kernel::SysError;
use tcptoll_kernel::cpu::{CpuTime, thread_time};
use tcptoll_kernel::epoll::{Interest, Poller};
use tcptoll_kernel::socket::blocking::Blocking;
use tcptoll_kernel::socket::{Tcp, errno};

use self::watch::{Ports, Watcher};
use self::worker::Worker;
use super::control::{CHANNEL, ENDED, stop_requested, until_ended};
use super::slots::Slots;
use super::{LoadError, class_of, pair, sockets_max};
use crate::channel::Channel;
use crate::clock::monotonic_ns;
use crate::messages::{
    CloseFirst, CurvePoint, Echo, EchoReport, Moment, POINTS_MAX, ShortHistograms, ShortLoad,
    ShortReport, WORKERS_MAX,
};

/// Stack of a worker: it calls nothing deep.
const STACK_BYTES: usize = 256 << 10;

/// A worker that waits for its next operation looks for a stop this often.
const LOOK: Duration = Duration::from_millis(50);

/// Runs the load until all operations are done, its time is over, or the parent says stop.
pub fn run(
    load: &ShortLoad,
    channel: &mut Channel,
) -> Result<(ShortReport, ShortHistograms), LoadError> {
    check(load)?;
    // More files than the limit are errors of their own class.
    sockets_max().map_err(|error| SysError::new("getrlimit", "RLIMIT_NOFILE", error))?;
    let shared = Shared::new(load);
    let watcher = Watcher::new(&shared)?;
    let (told, ended) = UnixStream::pair().map_err(failed("socketpair"))?;
    // All files of its own are open before workers may take the last ones.
    let mut poller = Poller::new(2)?;
    poller.add(&*channel, CHANNEL, Interest::READ)?;
    poller.add(&told, ENDED, Interest::READ)?;
    let (cpu, moments) = std::thread::scope(|scope| {
        let shared = &shared;
        let mut workers = Vec::new();
        let mut refused = None;
        for number in 0..load.workers {
            let spawned = spawn(scope, move || {
                let cpu = thread_time();
                Worker::new(shared, number).run();
                thread_time().since(cpu)
            });
            match spawned {
                Ok(worker) => workers.push(worker),
                Err(error) => {
                    refused = Some(SysError::new("clone", format!("worker {number}"), error));
                    shared.stop();
                    break;
                }
            }
        }
        let watching = scope.spawn(move || watcher.run());
        let waiting = scope.spawn(move || {
            let used = workers.into_iter().map(|worker| worker.join().ok()).collect::<Vec<_>>();
            // Closing it tells the thread that looks after the channel.
            drop(ended);
            used
        });
        let watched =
            until_ended(channel, &mut poller, &shared.done, &shared.stopped, || shared.stop());
        if watched.is_err() {
            shared.stop();
        }
        let used = waiting.join().unwrap_or_default();
        shared.ended.store(true, Ordering::SeqCst);
        let moments = watching.join();
        watched?;
        if let Some(error) = refused {
            return Err(LoadError::from(error));
        }
        let lost = || LoadError::Refused("a worker of the load failed".to_owned());
        let mut cpu = CpuTime::default();
        for time in used {
            let time = time.ok_or_else(lost)?;
            cpu.user_us += time.user_us;
            cpu.system_us += time.system_us;
        }
        Ok((cpu, moments.map_err(|_| lost())?))
    })?;
    Ok(shared.report(load, cpu, moments))
}

/// Starts a thread of the load.
fn spawn<'scope, 'env, R: Send + 'scope>(
    scope: &'scope std::thread::Scope<'scope, 'env>,
    work: impl FnOnce() -> R + Send + 'scope,
) -> io::Result<std::thread::ScopedJoinHandle<'scope, R>> {
    std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work)
}

/// Refuses what has no end or no bound.
fn check(load: &ShortLoad) -> Result<(), LoadError> {
    let rate_is_possible = load.rate_per_s.is_none_or(|rate| rate.is_finite() && rate > 0.0);
    let ends = load.count.is_some() || load.duration_ns.is_some();
    if (1..=WORKERS_MAX).contains(&load.workers) && rate_is_possible && ends && load.timeout_ns > 0
    {
        return Ok(());
    }
    Err(LoadError::Refused(format!(
        "a load of {} workers: it needs 1 to {WORKERS_MAX} of them, an end, a rate above 0 and a time limit",
        load.workers
    )))
}

/// What the workers share.
struct Shared<'a> {
    load: &'a ShortLoad,
    begun_ns: u64,
    /// No operation begins after this.
    ends_ns: u64,
    /// Operations that will be due.
    due: u64,
    /// The next operation.
    next: AtomicU64,
    done: AtomicU64,
    stopped: AtomicBool,
    /// Whether all workers have ended.
    ended: AtomicBool,
    /// What each worker may wait in.
    open: Vec<Mutex<Option<Arc<Blocking>>>>,
    /// Workers in an operation.
    busy: AtomicI64,
    ports: Ports,
    /// Operations that succeeded, and those that had no local port.
    ok: AtomicU64,
    no_port: AtomicU64,
    tally: Mutex<Tally>,
}

/// What came of the operations so far.
struct Tally {
    report: ShortReport,
    histograms: ShortHistograms,
    /// Ports of one point of the curve.
    width: u64,
    begun: u64,
}

impl<'a> Shared<'a> {
    fn new(load: &'a ShortLoad) -> Self {
        let begun_ns = monotonic_ns();
        let in_time = match (load.duration_ns, load.rate_per_s) {
            (Some(ns), Some(rate)) => (ns as f64 / 1e9 * rate).ceil() as u64,
            _ => u64::MAX,
        };
        let tally = Tally {
            report: ShortReport::default(),
            histograms: ShortHistograms::default(),
            width: (load.ports_max + 1).div_ceil(POINTS_MAX as u64),
            begun: 0,
        };
        Self {
            load,
            begun_ns,
            ends_ns: load.duration_ns.map_or(u64::MAX, |ns| begun_ns.saturating_add(ns)),
            due: load.count.unwrap_or(u64::MAX).min(in_time),
            next: AtomicU64::new(0),
            done: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            open: (0..load.workers).map(|_| Mutex::new(None)).collect(),
            busy: AtomicI64::new(0),
            ports: Ports::default(),
            ok: AtomicU64::new(0),
            no_port: AtomicU64::new(0),
            tally: Mutex::new(tally),
        }
    }

    /// Whether to end with what there is.
    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Ends the load: a worker that waits in a call returns.
    fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        for open in &self.open {
            if let Some(socket) = lock(open).as_deref() {
                socket.interrupt();
            }
        }
    }

    /// When operation `number` is due; absent: as soon as a worker is free.
    fn due_ns(&self, number: u64) -> Option<u64> {
        let after_ns = |rate: f64| (number as f64 / rate * 1e9) as u64;
        self.load.rate_per_s.map(|rate| self.begun_ns.saturating_add(after_ns(rate)))
    }

    /// Whether the client's end of a connection keeps its port.
    fn client_closes(&self) -> bool {
        self.load.close == CloseFirst::Client
    }

    fn report(
        self,
        load: &ShortLoad,
        cpu: CpuTime,
        moments: Vec<Moment>,
    ) -> (ShortReport, ShortHistograms) {
        let ended_ns = monotonic_ns();
        let partial = self.is_stopped();
        let Tally { mut report, histograms, begun, .. } =
            self.tally.into_inner().unwrap_or_else(PoisonError::into_inner);
        report.attempts = begun;
        report.elapsed_ns = ended_ns.saturating_sub(self.begun_ns);
        if let Some(rate) = load.rate_per_s {
            // Of a load that was stopped, those count that were due until then.
            let so_far = (report.elapsed_ns as f64 / 1e9 * rate) as u64;
            let due = if partial { self.due.min(so_far) } else { self.due };
            let unsent = due.saturating_sub(begun);
            if unsent > 0 {
                report.attempts += unsent;
                report.errors.insert("unsent".to_owned(), unsent);
            }
        }
        report.cpu_us = pair(cpu);
        report.curve.retain(|point| point.connections + point.failed > 0);
        report.moments = moments;
        report.partial = partial;
        (report, histograms)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tally {
    /// The point of the curve for this number of ports in use.
    fn point(&mut self, ports: u64) -> &mut CurvePoint {
        // More than the ports there are: connections that are being closed count twice for a moment.
        let at = ((ports / self.width) as usize).min(POINTS_MAX - 1);
        if self.report.curve.len() <= at {
            self.report.curve.resize(at + 1, CurvePoint::default());
        }
        &mut self.report.curve[at]
    }

    fn fail(&mut self, class: &str, error: &io::Error) {
        *self.report.errors.entry(class.to_owned()).or_default() += 1;
        self.report.first_errors.entry(class.to_owned()).or_insert_with(|| error.to_string());
    }
}

/// The class of a call before the handshake was done. `bind(2)` reports a lack of ports by
/// `EADDRINUSE`.
fn class_of_connecting(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(errno::EADDRINUSE) => "local-ports",
        _ => class_of(error),
    }
}

fn failed(op: &'static str) -> impl Fn(io::Error) -> LoadError {
    move |error| SysError::new(op, "the load", error).into()
}

/// The number under which the poller knows the listener.
const LISTENER: u64 = CHANNEL - 1;

/// Serves until the parent says stop.
pub fn run_echo(echo: &Echo, channel: &mut Channel) -> Result<EchoReport, LoadError> {
    sockets_max().map_err(|error| SysError::new("getrlimit", "RLIMIT_NOFILE", error))?;
    let listener = Tcp::listener(echo.at, echo.backlog, false)?;
    let at = listener.local().map_err(|e| SysError::new("getsockname", "the listener", e))?;
    let mut poller = Poller::new(512)?;
    poller.add(&*channel, CHANNEL, Interest::READ)?;
    // Level-triggered: what cannot be accepted for want of files is tried again.
    poller.add(&listener, LISTENER, Interest::READ)?;
    let mut server =
        Server { closes: echo.closes, slots: Slots::new(), report: EchoReport::default() };
    channel.started::<Echo>(&at)?;
    let cpu_before = thread_time();
    loop {
        for event in poller.wait(None)? {
            match event.token {
                CHANNEL => {
                    stop_requested(channel)?;
                    server.report.cpu_us = pair(thread_time().since(cpu_before));
                    return Ok(server.report);
                }
                LISTENER => server.accept(&listener, &poller),
                slot => server.answer(slot as u32),
            }
        }
    }
}

struct Server {
    closes: bool,
    slots: Slots<Tcp>,
    report: EchoReport,
}

impl Server {
    /// Accepts all connections that wait.
    fn accept(&mut self, listener: &Tcp, poller: &Poller) {
        loop {
            match listener.accept() {
                Ok(Some((socket, _))) => {
                    self.report.accepted += 1;
                    let slot = u64::from(self.slots.vacant());
                    match poller.add(&socket, slot, Interest::READ) {
                        Ok(()) => {
                            self.slots.put(socket);
                        }
                        Err(_) => self.failed("epoll"),
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    self.failed(&format!("{:?}", error.kind()));
                    return;
                }
            }
        }
    }

    /// Answers what has come, and closes what is to be closed.
    fn answer(&mut self, slot: u32) {
        let Some(socket) = self.slots.get(slot) else { return };
        let mut buffer = [0; 256];
        let ended = match socket.read(&mut buffer) {
            Ok(None) => false,
            Ok(Some(0)) => true,
            Ok(Some(length)) => match written(socket, &buffer[..length]) {
                Ok(()) => {
                    self.report.answered += length as u64;
                    self.closes
                }
                Err(error) => {
                    self.failed(&format!("{:?}", error.kind()));
                    true
                }
            },
            Err(error) => {
                self.failed(&format!("{:?}", error.kind()));
                true
            }
        };
        if ended {
            drop(self.slots.take(slot));
        }
    }

    fn failed(&mut self, kind: &str) {
        *self.report.errors.entry(kind.to_owned()).or_default() += 1;
    }
}

/// Writes all of an answer. A few bytes always fit the send buffer of a peer that waits for them.
fn written(socket: &Tcp, bytes: &[u8]) -> io::Result<()> {
    match socket.write(bytes)? {
        Some(length) if length == bytes.len() => Ok(()),
        _ => Err(io::ErrorKind::WouldBlock.into()),
    }
}

#[cfg(test)]
mod tests;
