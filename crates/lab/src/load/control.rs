//! What a load and its parent say to each other while the load runs: progress, and a stop.
//!
//! A load on several threads makes a [`Team`], counts with [`Team::counts`] and ends when [`Team::is_stopped`] says
//! so. [`run`] reports progress, takes a stop, and has the process looked at while the connections
//! of all threads are still open.
//!
//! [`Counts`] are what an observer sees of a load while it runs, coarser than its report.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Barrier;
use std::sync::atomic::Ordering::{self, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use serde::de::IgnoredAny;
use tcptoll_core::stats::enough;
use tcptoll_kernel::SysError;
use tcptoll_kernel::epoll::{Interest, Poller};

use super::LoadError;
use crate::channel::Channel;
use crate::clock::monotonic_ns;
use crate::messages::{Done, Live, Outstanding, Request};

/// The number under which a poller knows the control channel.
pub(super) const CHANNEL: u64 = u64::MAX;

/// Progress is reported this often.
pub(super) const PROGRESS: Duration = Duration::from_millis(200);

/// Takes the request that has come: the parent wants the load to end with what it has.
///
/// Errors: any order; the parent is gone.
pub(super) fn stop_requested(channel: &mut Channel) -> Result<(), LoadError> {
    match channel.receive(None)? {
        Request::Stop => Ok(()),
        Request::Order::<IgnoredAny> { name, .. } => Err(LoadError::Busy(name.into_owned())),
    }
}

/// The number under which a poller knows that blocking threads have ended.
pub(super) const ENDED: u64 = 0;

/// Looks at the channel until blocking threads have ended; the parent's word stops them.
pub(super) fn until_ended(
    channel: &mut Channel,
    poller: &mut Poller,
    done: &AtomicU64,
    stopped: &AtomicBool,
    stop: impl Fn(),
) -> Result<(), LoadError> {
    loop {
        for event in poller.wait(Some(PROGRESS))? {
            if event.token == ENDED {
                return Ok(());
            }
            stop_requested(channel)?;
            stop();
        }
        if stopped.load(Ordering::SeqCst) {
            // A thread may have been just before a call that waits.
            stop();
        }
        channel.progress(done.load(Ordering::Relaxed))?;
    }
}

/// When progress was reported last.
#[derive(Debug, Default)]
pub(super) struct Progress {
    reported_ns: u64,
}

impl Progress {
    /// Reports how many operations are done if a report is due.
    pub(super) fn report(
        &mut self,
        channel: &mut Channel,
        now_ns: u64,
        done: u64,
    ) -> Result<(), LoadError> {
        if now_ns >= self.reported_ns + PROGRESS.as_nanos() as u64 {
            self.reported_ns = now_ns;
            channel.progress(done)?;
        }
        Ok(())
    }
}

/// Most threads of a load.
pub const THREADS_MAX: u64 = 64;

/// The number under which the poller knows the threads.
const THREADS: u64 = CHANNEL - 1;

/// What one thread does.
pub(super) trait Part {
    /// What came of it.
    type Result: Send;

    /// Runs to its end; connections stay open.
    fn run(&mut self) -> Result<(), LoadError>;

    /// Closes what is open.
    fn end(self) -> Self::Result;
}

/// What the threads of a load share.
pub(super) struct Team {
    threads: u64,
    start_ns: u64,
    stop: AtomicBool,
    /// What an observer sees of each thread.
    counts: Vec<Counts>,
    /// All threads and the one that looks after them: passed before and after it has looked.
    open: Barrier,
}

impl Team {
    /// The load starts now. `threads`: 1 to [`THREADS_MAX`].
    pub(super) fn new(threads: u64) -> Self {
        Self {
            threads,
            start_ns: monotonic_ns(),
            stop: AtomicBool::new(false),
            counts: (0..threads).map(|_| Counts::default()).collect(),
            open: Barrier::new(threads as usize + 1),
        }
    }

    /// How many threads there are.
    pub(super) fn threads(&self) -> u64 {
        self.threads
    }

    /// When the load started.
    pub(super) fn start_ns(&self) -> u64 {
        self.start_ns
    }

    /// The counts of thread number `part`, from 0.
    pub(super) fn counts(&self, part: u64) -> &Counts {
        &self.counts[part as usize]
    }

    /// Whether to end with what there is.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// One thread of the load.
    fn thread<P: Part>(
        &self,
        part: Result<P, LoadError>,
        mut ended: &UnixStream,
    ) -> Result<P::Result, LoadError> {
        let mut part = part;
        let ran = match &mut part {
            Ok(part) => part.run(),
            Err(_) => Ok(()),
        };
        if ran.is_err() || part.is_err() {
            self.stop();
        }
        // One byte each; the stream holds more than there are threads.
        let _ = ended.write_all(b".");
        self.open.wait();
        let result = part?.end();
        ran.map(|()| result)
    }

    /// Looks after the threads until each has come to its end.
    fn watch(&self, mut ended: &UnixStream, channel: &mut Channel) -> Result<(), LoadError> {
        let mut poller = Poller::new(8)?;
        poller.add(&*channel, CHANNEL, Interest::READ)?;
        poller.add(ended, THREADS, Interest::READ)?;
        let mut running = self.threads;
        let mut observer = Observer::new(self.start_ns);
        while running > 0 {
            for event in poller.wait(Some(PROGRESS))? {
                if event.token == THREADS {
                    let mut bytes = [0; THREADS_MAX as usize];
                    running -= ended.read(&mut bytes).map_err(failed("read"))? as u64;
                    continue;
                }
                stop_requested(channel)?;
                self.stop();
            }
            channel.progress(observer.look(&self.counts, monotonic_ns()))?;
        }
        Ok(())
    }
}

/// Runs a load to its end, or until the parent says stop. `make`: the part of a thread, made on
/// that thread. `look`: called when all parts have ended and none has closed its connections.
pub(super) fn run<P: Part>(
    team: &Team,
    channel: &mut Channel,
    make: impl Fn(u64) -> Result<P, LoadError> + Sync,
    look: impl FnOnce(),
) -> Result<Vec<P::Result>, LoadError> {
    let (ended, told) = UnixStream::pair().map_err(failed("socketpair"))?;
    std::thread::scope(|scope| {
        let (make, told) = (&make, &told);
        let threads: Vec<_> = (0..team.threads)
            .map(|part| scope.spawn(move || team.thread(make(part), told)))
            .collect();
        let watched = team.watch(&ended, channel);
        // Whatever went wrong there, the threads must come to their end.
        if watched.is_err() {
            team.stop();
        }
        look();
        team.open.wait();
        let results = joined(threads);
        watched.and(results)
    })
}

fn joined<T>(
    threads: Vec<ScopedJoinHandle<'_, Result<T, LoadError>>>,
) -> Result<Vec<T>, LoadError> {
    let lost = || LoadError::Refused("a thread of the load failed".to_owned());
    threads.into_iter().map(|thread| thread.join().map_err(|_| lost())?).collect()
}

fn failed(op: &'static str) -> impl Fn(std::io::Error) -> LoadError {
    move |error| SysError::new(op, "the load", error).into()
}

/// Bits that split a power of two into buckets: each is at most 1/16 wide.
const FINE: u32 = 4;

/// Buckets of all times.
const BUCKETS: usize = 64 << FINE;

/// The quantile that is shown, as a fraction.
const QUANTILE: (u64, u64) = (99, 100);

/// Figures cover this long, ns.
const SPAN_NS: u64 = 1_000_000_000;

/// How an operation ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum OperationEnd {
    /// It succeeded after this time, ns.
    Ok(u64),
    Failed,
}

/// Counts of one thread, on cache lines that it shares with no other.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Counts {
    ok: AtomicU64,
    failed: AtomicU64,
    latency: [AtomicU64; BUCKETS],
    /// Requests under way when the measured part is over, and until when they are waited for.
    outstanding: AtomicU64,
    until_ns: AtomicU64,
}

impl Default for Counts {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            ok: zero(),
            failed: zero(),
            latency: std::array::from_fn(|_| zero()),
            outstanding: zero(),
            until_ns: zero(),
        }
    }
}

impl Counts {
    /// The measured part is over, and this number of requests is waited for, until then at the latest.
    pub(super) fn waits(&self, requests: u64, until_ns: u64) {
        self.outstanding.store(requests, Relaxed);
        self.until_ns.store(until_ns, Relaxed);
    }

    /// Counts a measured operation. Only the thread whose counts these are may call it.
    pub(super) fn ended(&self, ended: OperationEnd) {
        // One writer each: no locked instruction is needed.
        let count = |counter: &AtomicU64| counter.store(counter.load(Relaxed) + 1, Relaxed);
        match ended {
            OperationEnd::Ok(took_ns) => {
                count(&self.ok);
                count(&self.latency[bucket(took_ns)]);
            }
            OperationEnd::Failed => count(&self.failed),
        }
    }
}

fn bucket(ns: u64) -> usize {
    let exponent = (ns | 1 << FINE).ilog2();
    let fine = (ns >> (exponent - FINE)) & ((1 << FINE) - 1);
    (exponent << FINE) as usize | fine as usize
}

/// The upper edge of a bucket, µs.
fn edge_us(bucket: usize) -> f64 {
    let exponent = (bucket >> FINE) as i32 - FINE as i32;
    let fine = bucket & ((1 << FINE) - 1);
    ((1 << FINE) + fine + 1) as f64 * 2f64.powi(exponent) / 1e3
}

/// None: too few for this quantile.
fn quantile_us(counts: &[u64]) -> Option<f64> {
    let all: u64 = counts.iter().sum();
    if !enough(all, QUANTILE.0, QUANTILE.1) {
        return None;
    }
    let rank = (all * QUANTILE.0).div_ceil(QUANTILE.1);
    let mut below = 0;
    let at = counts.iter().position(|count| {
        below += count;
        below >= rank
    })?;
    Some(edge_us(at))
}

/// Looks at the counts of all threads from time to time.
#[derive(Debug)]
pub(super) struct Observer {
    at_ns: u64,
    ok: u64,
    latency: Vec<u64>,
    live: Option<Live>,
}

impl Observer {
    /// From the beginning of the load.
    pub(super) fn new(start_ns: u64) -> Self {
        Self { at_ns: start_ns, ok: 0, latency: vec![0; BUCKETS], live: None }
    }

    /// How far the load has come, with the figures of the last second.
    pub(super) fn look(&mut self, threads: &[Counts], now_ns: u64) -> Done {
        let sum = |counter: &dyn Fn(&Counts) -> &AtomicU64| -> u64 {
            threads.iter().map(|counts| counter(counts).load(Relaxed)).sum()
        };
        let (ok, failed) = (sum(&|counts| &counts.ok), sum(&|counts| &counts.failed));
        let span_ns = now_ns.saturating_sub(self.at_ns);
        if span_ns >= SPAN_NS {
            let now: Vec<u64> = (0..BUCKETS).map(|at| sum(&|counts| &counts.latency[at])).collect();
            let since: Vec<u64> = now.iter().zip(&self.latency).map(|(a, b)| a - b).collect();
            // Before the first measured operation there is nothing to show.
            self.live = (ok + failed > 0).then(|| Live {
                ok_per_s: (ok - self.ok) as f64 / (span_ns as f64 / 1e9),
                failed,
                p99_us: quantile_us(&since),
            });
            (self.at_ns, self.ok, self.latency) = (now_ns, ok, now);
        }
        let responses = sum(&|counts| &counts.outstanding);
        let until_ns = threads.iter().map(|counts| counts.until_ns.load(Relaxed)).max();
        let most_ns = until_ns.unwrap_or(0).saturating_sub(now_ns);
        let outstanding =
            (responses > 0).then(|| Outstanding { responses, most_s: most_ns as f64 / 1e9 });
        Done { done: ok + failed, live: self.live, outstanding }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_a_bucket_at_most_a_sixteenth_above_it() {
        for ns in [32, 999, 1_000, 123_456, 5_000_000, 86_400_000_000_000] {
            let (us, edge_us) = (ns as f64 / 1e3, edge_us(bucket(ns)));
            assert!(edge_us > us && edge_us <= us * (1.0 + 1.0 / 16.0) + 1e-9, "{ns}: {edge_us}");
        }
        assert!(bucket(0) < BUCKETS && bucket(u64::MAX) < BUCKETS);
    }

    #[test]
    fn the_figures_are_those_of_the_last_second_and_failures_are_in_none() {
        let threads = vec![Counts::default(), Counts::default()];
        let mut observer = Observer::new(0);
        assert_eq!(observer.look(&threads, 200_000_000), Done::default());
        for _ in 0..1_000 {
            threads[0].ended(OperationEnd::Ok(100_000));
            threads[1].ended(OperationEnd::Ok(100_000));
        }
        threads[1].ended(OperationEnd::Failed);
        let first = observer.look(&threads, 2_000_000_000);
        let live = first.live.unwrap();
        assert_eq!((first.done, live.failed, live.ok_per_s), (2_001, 1, 1_000.0));
        assert!((100.0..107.0).contains(&live.p99_us.unwrap()), "{live:?}");
        for _ in 0..1_000 {
            threads[0].ended(OperationEnd::Ok(900_000));
        }
        // Within the second the figures stay; the count goes on.
        let again = observer.look(&threads, 2_900_000_000);
        assert_eq!((again.done, again.live), (3_001, first.live));
        let live = observer.look(&threads, 3_000_000_000).live.unwrap();
        assert_eq!((live.failed, live.ok_per_s), (1, 1_000.0));
        assert!((900.0..957.0).contains(&live.p99_us.unwrap()), "{live:?}");
        // Nothing came: no rate, and no latency.
        let live = observer.look(&threads, 4_000_000_000).live.unwrap();
        assert_eq!((live.ok_per_s, live.p99_us), (0.0, None));
    }

    #[test]
    fn what_is_waited_for_at_the_end_is_of_all_threads() {
        let threads = vec![Counts::default(), Counts::default()];
        let mut observer = Observer::new(0);
        assert_eq!(observer.look(&threads, 1_000).outstanding, None);
        threads[0].waits(3, 10_000_000_000);
        threads[1].waits(2, 9_000_000_000);
        let outstanding = observer.look(&threads, 4_000_000_000).outstanding;
        assert_eq!(outstanding, Some(Outstanding { responses: 5, most_s: 6.0 }));
    }
}
