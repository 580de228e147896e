//! How many local ports are in use, and what do the workers and the CPU do meanwhile?
//!
//! Ports in use are the connections that are open, and TIME-WAIT where the client closes first. The
//! kernel's count of TIME-WAIT (`tw` of `/proc/net/sockstat`, which is of the network namespace) is
//! read every 5 ms; in between, connections that were closed since are added. `sock_diag` counts the
//! same socket by socket, at the end, in the trial.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tcptoll_core::tcp::counters;
use tcptoll_core::tcp::counters::CpuTimes;
use tcptoll_kernel::{SysError, cpu};

use super::Shared;
use crate::clock::monotonic_ns;
use crate::load::LoadError;
use crate::messages::{Moment, POINTS_MAX};

/// TIME-WAIT is counted this often.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Length of a moment, ns, until there are too many of them. `/proc/stat` has ticks of 10 ms.
const MOMENT_NS: u64 = 250_000_000;

/// Local ports in use.
#[derive(Debug, Default)]
pub(super) struct Ports {
    /// Connections that are being opened, or open.
    open: AtomicU64,
    /// Connections that this end closed first.
    closed: AtomicU64,
    /// The kernel's count of TIME-WAIT, and how many had been closed then.
    time_wait: AtomicU64,
    closed_then: AtomicU64,
}

impl Ports {
    /// Ports in use; `client_closes`: whether those in TIME-WAIT are among them.
    pub(super) fn in_use(&self, client_closes: bool) -> u64 {
        let open = self.open.load(Ordering::Relaxed);
        if !client_closes {
            return open;
        }
        let then = self.closed_then.load(Ordering::Relaxed);
        let since = self.closed.load(Ordering::Relaxed).saturating_sub(then);
        open + since + self.time_wait.load(Ordering::Relaxed)
    }

    pub(super) fn opened(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// `first`: by this end first.
    pub(super) fn closed(&self, first: bool) {
        self.closed.fetch_add(u64::from(first), Ordering::Relaxed);
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    fn count(&self, time_wait: u64, closed_then: u64) {
        self.closed_then.store(closed_then, Ordering::Relaxed);
        self.time_wait.store(time_wait, Ordering::Relaxed);
    }
}

/// Looks at a load from a thread of its own.
pub(super) struct Watcher<'a> {
    shared: &'a Shared<'a>,
    sockstat: File,
    /// The CPU of this host, if it has one of its own.
    cpu: Option<u32>,
    before: Option<CpuTimes>,
    moments: Moments,
    /// Operations counted so far.
    counted: (u64, u64),
}

impl<'a> Watcher<'a> {
    /// Reads the counts before the load; the CPU is the one that the calling thread is pinned to.
    pub(super) fn new(shared: &'a Shared<'a>) -> Result<Self, LoadError> {
        const SOCKSTAT: &str = "/proc/thread-self/net/sockstat";
        let refused = |error| SysError::new("open", SOCKSTAT, error);
        let sockstat = File::open(SOCKSTAT).map_err(refused)?;
        let pinned = match cpu::allowed()[..] {
            [alone] if cpu_times().len() > 1 => Some(alone),
            _ => None,
        };
        let watcher = Self {
            shared,
            sockstat,
            cpu: pinned,
            before: times_of(pinned),
            moments: Moments::new(shared.begun_ns),
            counted: (0, 0),
        };
        watcher.count();
        Ok(watcher)
    }

    /// Looks until all workers have ended; gives what was seen.
    pub(super) fn run(mut self) -> Vec<Moment> {
        while !self.shared.ended.load(Ordering::SeqCst) {
            // Not for luck: this is how often it looks.
            std::thread::sleep(LOOK_EVERY);
            self.look();
            let now_ns = monotonic_ns();
            if self.moments.is_over(now_ns) {
                self.end_moment(now_ns);
            }
        }
        self.look();
        self.end_moment(monotonic_ns());
        self.moments.all
    }

    /// Looks at ports and workers.
    fn look(&mut self) {
        self.count();
        let workers = self.shared.busy.load(Ordering::Relaxed).max(0).unsigned_abs();
        let ports = self.shared.ports.in_use(self.shared.client_closes());
        self.moments.look(workers, ports);
    }

    /// Ends a moment with what was counted in it.
    fn end_moment(&mut self, now_ns: u64) {
        let counted =
            (self.shared.ok.load(Ordering::Relaxed), self.shared.no_port.load(Ordering::Relaxed));
        let now = times_of(self.cpu);
        let cpu = self.before.zip(now).map_or((0, 0), |(before, after)| idle(&before, &after));
        self.moments.end(
            now_ns,
            (counted.0.saturating_sub(self.counted.0), counted.1.saturating_sub(self.counted.1)),
            cpu,
        );
        (self.counted, self.before) = (counted, now);
    }

    /// Counts TIME-WAIT. What cannot be read keeps its last value.
    fn count(&self) {
        let closed = self.shared.ports.closed.load(Ordering::Relaxed);
        let mut buffer = [0; 1024];
        let Ok(length) = self.sockstat.read_at(&mut buffer, 0) else { return };
        if let Some(time_wait) = time_wait(&String::from_utf8_lossy(&buffer[..length])) {
            self.shared.ports.count(time_wait, closed);
        }
    }
}

/// `tw` of the line of TCP.
fn time_wait(sockstat: &str) -> Option<u64> {
    let line = sockstat.lines().find_map(|line| line.strip_prefix("TCP:"))?;
    let mut words = line.split_whitespace();
    words.find(|word| *word == "tw")?;
    words.next()?.parse().ok()
}

/// CPU time of the machine, one element a CPU; empty if it cannot be read.
fn cpu_times() -> Vec<CpuTimes> {
    counters::parse_stat(&fs::read_to_string("/proc/stat").unwrap_or_default())
}

fn times_of(cpu: Option<u32>) -> Option<CpuTimes> {
    cpu_times().get(cpu? as usize).copied()
}

/// Idle time of a CPU between two readings, and all of its time, ticks.
fn idle(before: &CpuTimes, after: &CpuTimes) -> (u64, u64) {
    let idle = |times: &CpuTimes| times.idle + times.iowait;
    let all = |times: &CpuTimes| {
        let CpuTimes { user, nice, system, idle, iowait, irq, softirq, steal } = *times;
        user + nice + system + idle + iowait + irq + softirq + steal
    };
    (idle(after).saturating_sub(idle(before)), all(after).saturating_sub(all(before)))
}

/// What was seen, moment by moment; at most [`POINTS_MAX`] of them.
#[derive(Debug)]
struct Moments {
    all: Vec<Moment>,
    /// The moment that has not ended.
    now: Moment,
    began_ns: u64,
    /// Length that a moment is to have, ns. A late thread makes it longer, and says how long it was.
    length_ns: u64,
}

impl Moments {
    fn new(began_ns: u64) -> Self {
        Self { all: Vec::new(), now: Moment::default(), began_ns, length_ns: MOMENT_NS }
    }

    fn look(&mut self, workers: u64, ports: u64) {
        let one = Moment {
            looks: 1,
            workers,
            workers_range: (workers, workers),
            ports,
            ports_range: (ports, ports),
            ..Moment::default()
        };
        self.now = together(self.now, one);
    }

    fn is_over(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.began_ns) >= self.length_ns
    }

    /// Ends a moment.
    fn end(&mut self, now_ns: u64, (ok, no_port): (u64, u64), cpu: (u64, u64)) {
        let ns = now_ns.saturating_sub(self.began_ns);
        let counted = Moment { ns, ok, no_port, cpu, ..Moment::default() };
        self.all.push(together(std::mem::take(&mut self.now), counted));
        self.began_ns = now_ns;
        if self.all.len() == POINTS_MAX {
            let pair = |two: &[Moment]| two.iter().copied().fold(Moment::default(), together);
            self.all = self.all.chunks(2).map(pair).collect();
            self.length_ns *= 2;
        }
    }
}

/// Two moments as one. One without looks has no range.
fn together(first: Moment, second: Moment) -> Moment {
    let range = |a: (u64, u64), b: (u64, u64)| match (first.looks, second.looks) {
        (0, _) => b,
        (_, 0) => a,
        _ => (a.0.min(b.0), a.1.max(b.1)),
    };
    Moment {
        ns: first.ns + second.ns,
        ok: first.ok + second.ok,
        no_port: first.no_port + second.no_port,
        looks: first.looks + second.looks,
        workers: first.workers + second.workers,
        workers_range: range(first.workers_range, second.workers_range),
        ports: first.ports + second.ports,
        ports_range: range(first.ports_range, second.ports_range),
        cpu: (first.cpu.0 + second.cpu.0, first.cpu.1 + second.cpu.1),
    }
}
