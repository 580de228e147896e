//! One worker: an operation after another, each blocking.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tcptoll_kernel::cpu::thread_cpu_ns;
use tcptoll_kernel::socket::blocking::{Blocking, BlockingOptions};

use super::{LOOK, Shared, class_of_connecting, lock};
use crate::clock::monotonic_ns;
use crate::load::class_of;
use crate::messages::CloseFirst;

/// One worker, on its own thread.
pub(super) struct Worker<'a> {
    shared: &'a Shared<'a>,
    number: u64,
    /// The connection that it keeps.
    kept: Option<Arc<Blocking>>,
    /// Whether `TCP_INFO` of a connection was taken.
    looked: bool,
}

/// Why an operation failed: its class, and the kernel's error.
type Failure = (&'static str, io::Error);

/// What an operation took.
struct Done {
    /// When the answer had come, ns.
    answered_ns: u64,
}

impl<'a> Worker<'a> {
    pub(super) fn new(shared: &'a Shared<'a>, number: u64) -> Self {
        Self { shared, number, kept: None, looked: false }
    }

    /// Carries out operations until none is left, the time is over, or the load is stopped.
    pub(super) fn run(mut self) {
        let shared = self.shared;
        while !shared.is_stopped() {
            let number = shared.next.fetch_add(1, Ordering::Relaxed);
            if number >= shared.due {
                break;
            }
            let due_ns = shared.due_ns(number);
            if !self.wait_for(due_ns) {
                break;
            }
            let begun_ns = monotonic_ns();
            if begun_ns >= shared.ends_ns {
                break;
            }
            shared.busy.fetch_add(1, Ordering::Relaxed);
            self.operation(number, due_ns, begun_ns);
            shared.busy.fetch_sub(1, Ordering::Relaxed);
        }
        self.leave();
    }

    /// Sleeps until the operation is due; `false`: the load was stopped.
    ///
    /// It does not spin at the end: the CPU that is left idle is one of the figures.
    fn wait_for(&self, due_ns: Option<u64>) -> bool {
        let Some(due_ns) = due_ns else { return true };
        loop {
            if self.shared.is_stopped() {
                return false;
            }
            let left_ns = due_ns.saturating_sub(monotonic_ns());
            if left_ns == 0 {
                return true;
            }
            std::thread::sleep(Duration::from_nanos(left_ns).min(LOOK));
        }
    }

    /// Carries out one operation and counts it.
    fn operation(&mut self, number: u64, due_ns: Option<u64>, begun_ns: u64) {
        let shared = self.shared;
        let outcome = self.one(number);
        let ended_ns = monotonic_ns();
        let mut tally = lock(&shared.tally);
        tally.begun += 1;
        tally.report.busy_ns += ended_ns.saturating_sub(begun_ns);
        if let Some(due_ns) = due_ns {
            tally.histograms.lateness.record_ns(begun_ns.saturating_sub(due_ns));
        }
        match outcome {
            Ok(Done { answered_ns }) => {
                tally.report.ok += 1;
                let from_ns = due_ns.unwrap_or(begun_ns).min(begun_ns);
                tally.histograms.latency.record_ns(answered_ns.saturating_sub(from_ns));
                shared.ok.fetch_add(1, Ordering::Relaxed);
            }
            Err((class, error)) => {
                let class = if shared.is_stopped() { "interrupted" } else { class };
                tally.fail(class, &error);
                if class == "local-ports" {
                    shared.no_port.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        drop(tally);
        shared.done.fetch_add(1, Ordering::Relaxed);
    }

    /// One operation.
    fn one(&mut self, number: u64) -> Result<Done, Failure> {
        work(self.shared.load.work_ns);
        let socket = match self.kept.take() {
            Some(kept) => kept,
            None => self.connect(number)?,
        };
        let answered = exchange(&socket).map(|()| Done { answered_ns: monotonic_ns() });
        match (&answered, self.shared.load.close) {
            (Ok(_), CloseFirst::Never) => self.kept = Some(socket),
            (Ok(_), CloseFirst::Server) => {
                let finished = to_end(&socket);
                self.close(socket, finished.is_err());
                finished.map_err(|error| (class_in_exchange(&error), error))?;
            }
            _ => self.close(socket, true),
        }
        answered.map_err(|error| (class_in_exchange(&error), error))
    }

    /// Opens a connection, and measures what that costs.
    fn connect(&mut self, number: u64) -> Result<Arc<Blocking>, Failure> {
        let shared = self.shared;
        let load = shared.load;
        let failure = |error: io::Error| (class_of_connecting(&error), error);
        let limit = Duration::from_nanos(load.timeout_ns);
        let socket =
            Blocking::client(load.target, &BlockingOptions::default(), limit).map_err(failure)?;
        let socket = Arc::new(socket);
        *lock(&shared.open[self.number as usize]) = Some(Arc::clone(&socket));
        let source = source(&load.sources, number);
        let in_use = shared.ports.in_use(shared.client_closes());
        shared.ports.opened();
        let cpu_ns = thread_cpu_ns();
        let bound = source.map_or(Ok(()), |address| socket.bind(address, load.late_port));
        let begun_ns = monotonic_ns();
        let connected = bound.and_then(|()| socket.connect(load.target));
        let ended_ns = monotonic_ns();
        let cpu_ns = thread_cpu_ns().saturating_sub(cpu_ns);
        let mut tally = lock(&shared.tally);
        tally.report.connects += 1;
        tally.report.connect_cpu_ns += cpu_ns;
        match &connected {
            Ok(()) => {
                let latency_ns = ended_ns.saturating_sub(begun_ns);
                tally.report.connections += 1;
                tally.histograms.connect.record_ns(latency_ns);
                tally.histograms.connect_cpu.record_ns(cpu_ns);
                let point = tally.point(in_use);
                point.connections += 1;
                point.ports += in_use;
                point.cpu_ns += cpu_ns;
                point.connect_ns += latency_ns;
            }
            Err(error) if class_of_connecting(error) == "local-ports" => {
                let point = tally.point(in_use);
                point.failed += 1;
                point.failed_ports += in_use;
            }
            Err(_) => {}
        }
        drop(tally);
        if let Err(error) = connected {
            // Without a connection there is no TIME-WAIT.
            self.close(socket, false);
            return Err(failure(error));
        }
        self.look(&socket);
        Ok(socket)
    }

    /// Takes `TCP_INFO` of the first connection of the first worker.
    fn look(&mut self, socket: &Blocking) {
        if self.number != 0 || self.looked {
            return;
        }
        self.looked = true;
        let mut tally = lock(&self.shared.tally);
        tally.report.tcp_info = socket.tcp().tcp_info().unwrap_or_default();
        tally.report.congestion = socket.tcp().congestion().unwrap_or_default();
    }

    /// Closes a connection; `first`: before the server does, so that its port stays in TIME-WAIT.
    fn close(&self, socket: Arc<Blocking>, first: bool) {
        // A stop interrupts it no more, and holds it open no longer.
        *lock(&self.shared.open[self.number as usize]) = None;
        drop(socket);
        self.shared.ports.closed(first);
    }

    fn leave(&mut self) {
        if let Some(kept) = self.kept.take() {
            self.close(kept, true);
        }
    }
}

/// The source address of an operation: they take turns.
fn source(sources: &[IpAddr], number: u64) -> Option<IpAddr> {
    let count = sources.len() as u64;
    (count > 0).then(|| sources[(number % count) as usize])
}

/// One byte each way.
pub(super) fn exchange(socket: &Blocking) -> io::Result<()> {
    socket.send(b"?")?;
    let mut answer = [0];
    match socket.receive(&mut answer)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

/// Waits until the server has closed.
pub(super) fn to_end(socket: &Blocking) -> io::Result<()> {
    match socket.receive(&mut [0])? {
        0 => Ok(()),
        _ => {
            Err(io::Error::new(io::ErrorKind::InvalidData, "the server sent data after its answer"))
        }
    }
}

/// The class of what failed after the handshake.
fn class_in_exchange(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "timeout",
        io::ErrorKind::UnexpectedEof => "truncated",
        _ => class_of(error),
    }
}

/// Works for this CPU time of the calling thread, however long that takes.
fn work(work_ns: u64) {
    if work_ns == 0 {
        return;
    }
    let until = thread_cpu_ns().saturating_add(work_ns);
    while thread_cpu_ns() < until {
        std::hint::spin_loop();
    }
}
