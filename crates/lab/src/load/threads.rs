//! One load on several threads: each runs its [`Part`], and the caller looks after them.
//!
//! A new load makes a [`Team`], counts with [`Team::counts`] and ends when [`Team::is_stopped`] says
//! so. [`run`] reports progress, takes a stop, and has the process looked at while the connections
//! of all threads are still open.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;

use tcptoll_kernel::SysError;
use tcptoll_kernel::epoll::{Interest, Poller};

use super::LoadError;
use super::control::{CHANNEL, PROGRESS, stop_requested};
use super::live::{Counts, Observer};
use crate::channel::Channel;
use crate::clock::monotonic_ns;

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
