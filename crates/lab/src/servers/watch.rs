//! Reads the status of a service again and again, in a thread beside the load.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tcptoll_kernel::{cpu, process};

use super::scoreboard::Reading;
use super::status::{Source, StatusReader};
use crate::clock::monotonic_ns;
use crate::messages::{SAMPLES_MAX, WatchMemory, WatchWorkers, WorkerSample, WorkersSeen};

/// Samples that are kept: more than a load of 10 minutes has at the shortest interval that experiments
/// use, 10 ms.
const KEPT_MAX: usize = 100_000;

/// The shortest time between two readings, ns.
const EVERY_MIN_NS: u64 = 1_000_000;

/// Readings without an answer, one after the other, after which nothing is read any more.
const MISSED_MAX: u32 = 50;

/// Memory is read so often, at most; more seldom where that takes longer than this share of the time, for
/// a process of 100 MB takes a millisecond.
const MEMORY_EVERY_NS: u64 = 1_000_000_000;
const LIMITED_EVERY_NS: u64 = 250_000_000;
const MEMORY_SHARE: u64 = 20;

/// The end of the watch is looked for this often.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A thread that reads, and what it has seen.
pub(crate) struct WorkersWatch {
    ended: Arc<AtomicBool>,
    seen: Arc<Mutex<WorkerSamples>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct WorkerSamples {
    samples: Vec<WorkerSample>,
    missed: u64,
    beyond: u64,
    first_error: Option<String>,
    killed: u64,
}

impl WorkersWatch {
    /// Begins to read, on any of these CPUs.
    pub(super) fn begin(source: Source, order: WatchWorkers, cpus: Vec<u32>) -> Self {
        let (ended, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::default()));
        let (its_end, its_seen) = (Arc::clone(&ended), Arc::clone(&seen));
        let thread = thread::spawn(move || {
            // Not on the CPU of the load, if there is another.
            let _ = cpu::allow(&cpus);
            watch(&mut StatusReader::new(source), order, &its_end, &its_seen);
        });
        Self { ended, seen, thread: Some(thread) }
    }

    /// Ends the readings, and gives samples from this number on.
    pub(crate) fn take(&mut self, from: u64) -> WorkersSeen {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = usize::try_from(from).ok().and_then(|from| seen.samples.get(from..));
        let rest = rest.unwrap_or_default();
        let samples = rest[..rest.len().min(SAMPLES_MAX)].to_vec();
        WorkersSeen {
            left: (rest.len() - samples.len()) as u64,
            samples,
            missed: seen.missed,
            beyond: seen.beyond,
            first_error: seen.first_error.clone(),
            killed: seen.killed,
        }
    }
}

impl Drop for WorkersWatch {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

fn watch(
    reader: &mut StatusReader,
    order: WatchWorkers,
    ended: &AtomicBool,
    seen: &Mutex<WorkerSamples>,
) {
    let every_ns = order.every_ns.max(EVERY_MIN_NS);
    let mut memory = order.memory.map(Memory::new);
    let mut due_ns = monotonic_ns();
    let mut missed_in_turn = 0;
    while !ended.load(Ordering::Relaxed) && missed_in_turn < MISSED_MAX {
        let now = monotonic_ns();
        if now < due_ns {
            thread::sleep(LOOK_EVERY.min(Duration::from_nanos(due_ns - now)));
            continue;
        }
        let read = reader.read();
        let at_ns = monotonic_ns();
        missed_in_turn = if read.is_ok() { 0 } else { missed_in_turn + 1 };
        let bytes = memory.as_mut().and_then(|memory| memory.look(at_ns));
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.add(at_ns, read, bytes);
        seen.killed = memory.as_ref().map_or(0, |memory| memory.killed);
        drop(seen);
        // What was due meanwhile is left out.
        due_ns += (at_ns.saturating_sub(due_ns) / every_ns + 1) * every_ns;
    }
}

/// Reads the memory of this host's servers, and keeps it below a limit if there is one.
struct Memory {
    order: WatchMemory,
    due_ns: u64,
    killed: u64,
}

impl Memory {
    fn new(order: WatchMemory) -> Self {
        Self { order, due_ns: 0, killed: 0 }
    }

    /// The sum over all processes, if it is due.
    fn look(&mut self, now_ns: u64) -> Option<u64> {
        if now_ns < self.due_ns {
            return None;
        }
        let each = |pid: u32| (pid, cpu::memory_bytes(&[pid]));
        let all: Vec<(u32, u64)> =
            cpu::running(&cpu::descendants()).into_iter().map(each).collect();
        let sum = all.iter().map(|(_, bytes)| bytes).sum();
        let every_ns = match self.order.limit_bytes {
            Some(_) => LIMITED_EVERY_NS,
            None => MEMORY_EVERY_NS,
        };
        let ended_ns = monotonic_ns();
        self.due_ns = ended_ns + every_ns.max(ended_ns.saturating_sub(now_ns) * MEMORY_SHARE);
        if self.order.limit_bytes.is_some_and(|limit| sum > limit) {
            let own = std::process::id();
            let workers = all.iter().filter(|(pid, _)| cpu::parent(*pid) != Some(own));
            if let Some((pid, _)) = workers.max_by_key(|(_, bytes)| bytes) {
                process::kill(*pid);
                self.killed += 1;
            }
        }
        Some(sum)
    }
}

impl WorkerSamples {
    fn add(&mut self, at_ns: u64, read: Result<Reading, String>, memory_bytes: Option<u64>) {
        match read {
            Ok(_) if self.samples.len() == KEPT_MAX => self.beyond += 1,
            Ok(Reading { busy, waiting, kept, overflows, total: _ }) => {
                self.samples.push(WorkerSample {
                    at_ns,
                    busy,
                    waiting,
                    kept,
                    overflows,
                    memory_bytes,
                });
            }
            Err(error) => {
                self.missed += 1;
                self.first_error.get_or_insert(error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn samples_are_taken_in_parts_and_a_missed_reading_is_counted_with_its_reason() {
        let mut seen = WorkerSamples::default();
        for at_ns in 0..SAMPLES_MAX as u64 + 2 {
            seen.add(at_ns, Ok(Reading { busy: 1, total: 2, ..Reading::default() }), None);
        }
        seen.add(0, Err("first".to_owned()), None);
        seen.add(0, Err("second".to_owned()), None);
        let mut watch = WorkersWatch {
            ended: Arc::new(AtomicBool::new(false)),
            seen: Arc::new(Mutex::new(seen)),
            thread: None,
        };
        let first = watch.take(0);
        assert_eq!((first.samples.len(), first.left, first.missed), (SAMPLES_MAX, 2, 2));
        assert_eq!(first.first_error.as_deref(), Some("first"));
        let rest = watch.take(SAMPLES_MAX as u64);
        assert_eq!(
            (rest.samples[0].at_ns, rest.samples.len(), rest.left),
            (SAMPLES_MAX as u64, 2, 0)
        );
        assert!(watch.take(u64::MAX).samples.is_empty());
        // The longest part fits a message.
        let longest = vec![
            WorkerSample {
                at_ns: u64::MAX,
                busy: 1_000,
                waiting: Some(8_192),
                kept: Some(1_000),
                overflows: Some(u64::MAX),
                memory_bytes: Some(u64::MAX),
            };
            SAMPLES_MAX
        ];
        let longest = WorkersSeen { samples: longest, ..WorkersSeen::default() };
        assert!(serde_json::to_string(&longest).unwrap().len() < crate::channel::MESSAGE_MAX);
    }

    /// Waits until the watch has seen enough. Its reader gives up long before this does.
    fn wait_until(watch: &WorkersWatch, enough: impl Fn(&WorkerSamples) -> bool) {
        let begun = std::time::Instant::now();
        while !enough(&watch.seen.lock().unwrap()) {
            assert!(begun.elapsed() < Duration::from_mins(1), "{:?}", watch.seen);
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_status_is_read_until_it_is_taken() {
        let path = std::env::temp_dir().join(format!("tcptoll-watch-{}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let serving = thread::spawn(move || {
            let page: &[u8] = br#"{"accepted conn":9,"listen queue":3,"idle processes":0,
                "active processes":2,"total processes":2,"max active processes":2}"#;
            // Until the test itself connects and sends something.
            loop {
                let (mut stream, _) = listener.accept().unwrap();
                stream.set_nonblocking(true).unwrap();
                let mut byte = [0];
                if matches!(std::io::Read::read(&mut stream, &mut byte), Ok(1)) {
                    return;
                }
                let _ = stream.write_all(page);
            }
        });
        let begun = monotonic_ns();
        let source = Source::Own(path.clone());
        let order = WatchWorkers { every_ns: EVERY_MIN_NS, memory: Some(WatchMemory::default()) };
        let mut watch = WorkersWatch::begin(source, order, cpu::allowed());
        wait_until(&watch, |seen| seen.samples.len() >= 3);
        while !serving.is_finished() {
            let _ = UnixStream::connect(&path).and_then(|mut stream| stream.write_all(b"."));
        }
        std::fs::remove_file(&path).unwrap();
        wait_until(&watch, |seen| seen.missed >= 1);
        let seen = watch.take(0);
        let sample = seen.samples[0];
        assert_eq!((sample.busy, sample.waiting, sample.kept), (2, Some(3), None));
        assert!(sample.memory_bytes.is_some(), "the first reading has it");
        assert!(sample.at_ns >= begun && seen.samples[2].at_ns > sample.at_ns);
        assert!(seen.first_error.is_some());
    }
}
