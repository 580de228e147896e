//! Looks at one host: counters of its namespace, its listening sockets, its CPU time and memory.
//!
//! `/proc/thread-self/net` is the namespace of the calling thread; `/proc/net` would be that of the
//! main thread.

pub(crate) mod closed;
mod queues;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tcptoll_core::record::{Listener, ListenerQueue};
use tcptoll_core::tcp::counters::{
    self, CpuTimes, GAP_MIN_NS, Standstill, parse_cpu_limit, parse_run_delay,
};
use tcptoll_kernel::sock_diag::{ListenSocket, SockDiag};
use tcptoll_kernel::{SysError, cpu};

use self::queues::{ListenerSample, QueueRecorder};
use crate::clock::monotonic_ns;
use crate::control_group::home;
use crate::messages::{Snapshot, WatchQueues};

/// How often the queues of listening sockets are looked at while a load runs.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Of these looks, one counts half-open connections too: the kernel walks its whole table of
/// connections for that, 0.4 ms of CPU.
const HALF_OPEN_EVERY: u64 = 50;

/// `net.core.somaxconn` as a file.
pub fn sysctl_path(name: &str) -> String {
    format!("/proc/sys/{}", name.replace('.', "/"))
}

/// Splits `net.core.somaxconn=128`; `None` if either side is missing.
pub fn parse_sysctl(typed: &str) -> Option<(String, String)> {
    let (name, value) = typed.split_once('=')?;
    let (name, value) = (name.trim(), value.trim());
    (!name.is_empty() && !value.is_empty()).then(|| (name.to_owned(), value.to_owned()))
}

/// Sets sysctls of this host and reads them back.
///
/// Errors: a sentence that names the sysctl, also where the kernel kept another value than asked.
pub fn set_sysctls(wanted: &[(String, String)]) -> Result<Vec<(String, String)>, String> {
    wanted
        .iter()
        .map(|(name, value)| {
            if !name.starts_with("net.") || name.contains("..") || name.contains('/') {
                return Err(format!("sysctl {name}: a host of the lab has only net.* of its own"));
            }
            let path = sysctl_path(name);
            fs::write(&path, value).map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound => {
                    format!("sysctl {name}: this kernel has none, or none per network namespace")
                }
                std::io::ErrorKind::PermissionDenied => format!(
                    "sysctl {name}: the kernel does not let a namespace change it ({error})"
                ),
                _ => format!("sysctl {name}={value}: {error}"),
            })?;
            let got = read_sysctl(name)?;
            if !is_same_value(&got, value) {
                return Err(format!("sysctl {name}={value} has no effect: the kernel keeps {got}"));
            }
            Ok((name.clone(), got))
        })
        .collect()
}

/// Whether two values of a sysctl are the same but for blanks.
pub fn is_same_value(one: &str, other: &str) -> bool {
    one.split_whitespace().eq(other.split_whitespace())
}

/// Reads one sysctl of this host, blanks folded.
pub fn read_sysctl(name: &str) -> Result<String, String> {
    let path = sysctl_path(name);
    let text = fs::read_to_string(path).map_err(|error| format!("sysctl {name}: {error}"))?;
    Ok(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Peaks of the queues of this host's listening sockets, looked at again and again by a thread.
#[derive(Debug, Default)]
pub struct Observer {
    /// Whose listeners are looked at.
    whose: Whose,
    shared: Arc<Mutex<Shared>>,
    away: Arc<AtomicBool>,
}

/// Which listeners of a network are looked at.
#[derive(Clone, Debug, Default)]
enum Whose {
    /// All: the network is the host's alone.
    #[default]
    All,
    /// The one that serves this address.
    Serving(SocketAddr),
    /// Those that were not there before, by their inodes.
    Since(Arc<BTreeSet<u64>>),
}

impl Whose {
    fn includes(&self, socket: &ListenSocket) -> bool {
        match self {
            Self::All => true,
            Self::Serving(at) => serves(socket, *at),
            Self::Since(before) => !before.contains(&socket.inode),
        }
    }
}

/// What the looks have come to.
#[derive(Debug, Default)]
struct Shared {
    peaks: BTreeMap<(String, u16), Looked>,
    /// Queues over time, where an experiment asked for them.
    recorder: Option<QueueRecorder>,
    /// One look of this number counts half-open connections too; 0: the observer's own number.
    half_open_every: u64,
}

impl Shared {
    fn take(&mut self, seen: &[ListenerSample]) {
        if let Some(recorder) = &mut self.recorder {
            recorder.look(monotonic_ns(), seen);
        }
        merge(&mut self.peaks, seen);
    }
}

impl Observer {
    /// An observer that only looks when asked.
    pub fn idle() -> Self {
        Self::default()
    }

    /// Starts to look again and again, on any of these CPUs. The thread ends with the process.
    pub fn start(cpus: Vec<u32>) -> Self {
        Self::idle().looking(cpus)
    }

    /// As [`Observer::start`], at the listener that serves this address alone.
    pub fn of_listener(at: SocketAddr) -> Self {
        Self { whose: Whose::Serving(at), ..Self::idle() }.looking(cpu::allowed())
    }

    /// As [`Observer::start`], at the listeners that are not there yet: on a network that others use, too.
    pub fn of_new_listeners(cpus: Vec<u32>) -> Self {
        let listeners = SockDiag::open().and_then(|mut diag| diag.listeners()).unwrap_or_default();
        let before = listeners.iter().map(|listener| listener.inode).collect();
        Self { whose: Whose::Since(Arc::new(before)), ..Self::idle() }.looking(cpus)
    }

    fn looking(self, cpus: Vec<u32>) -> Self {
        let observer = self;
        let shared = Arc::clone(&observer.shared);
        let away = Arc::clone(&observer.away);
        let whose = observer.whose.clone();
        std::thread::spawn(move || {
            // Not on the CPU whose work is measured, if there is another.
            let _ = cpu::allow(&cpus);
            let Ok(mut diag) = SockDiag::open() else { return };
            for turn in 0_u64.. {
                if away.load(Ordering::Relaxed) {
                    return;
                }
                // Looked at under the lock: what was seen before `forget` must not come after it.
                let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
                let every = match shared.half_open_every {
                    0 => HALF_OPEN_EVERY,
                    every => every,
                };
                if let Ok(seen) = look(&mut diag, turn.is_multiple_of(every), &whose) {
                    shared.take(&seen);
                }
                drop(shared);
                std::thread::sleep(LOOK_EVERY);
            }
        });
        observer
    }

    /// Looks no more, unless asked: with 50,000 connections the looks take a quarter of a CPU.
    pub fn look_away(&self) {
        self.away.store(true, Ordering::Relaxed);
    }

    /// Forgets the peaks so far.
    pub fn forget(&self) {
        self.shared().peaks.clear();
    }

    /// Records the queues of listeners over time from now on.
    pub fn record(&self, wanted: WatchQueues) -> Result<(), SysError> {
        let mut shared = self.shared();
        let sockets = SockDiag::open()?.listeners()?;
        shared.recorder = Some(QueueRecorder::begin(monotonic_ns(), &sockets));
        shared.half_open_every = u64::from(wanted.half_open_every);
        Ok(())
    }

    /// Looks once more if queues are recorded: before a listener is closed, say.
    pub fn look_now(&self) {
        let mut shared = self.shared();
        if shared.recorder.is_some()
            && let Ok(mut diag) = SockDiag::open()
            && let Ok(seen) = look(&mut diag, false, &self.whose)
        {
            shared.take(&seen);
        }
    }

    /// The queue of the listener of this number, as recorded; `None`: there is none.
    pub fn recorded(&self, number: usize) -> Option<ListenerQueue> {
        self.shared().recorder.as_ref()?.queues().nth(number)
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The host as it is now, with the peaks so far; whether its process stood still is [`Pulse`]'s.
    pub fn snapshot(&self) -> Snapshot {
        let net = |file: &str| {
            fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default()
        };
        let mut all = counters::parse_net(&net("snmp"));
        all.extend(counters::parse_net(&net("netstat")));
        all.extend(counters::parse_snmp6(&net("snmp6")));
        let mut connections = Vec::new();
        if let Ok(mut diag) = SockDiag::open() {
            if let Ok(seen) = look(&mut diag, true, &self.whose) {
                self.shared().take(&seen);
            }
            if let Ok(infos) = diag.tcp_info(16) {
                connections = infos.into_iter().map(|(_, _, info)| info).collect();
            }
        }
        let children_time = cpu::children_time();
        let children = cpu::running(&cpu::descendants());
        Snapshot {
            at_ns: monotonic_ns(),
            counters: all,
            sockstat: counters::parse_sockstat(&net("sockstat")),
            listeners: self.shared().peaks.values().map(|looked| looked.peak.clone()).collect(),
            device_drops: counters::parse_device_drops(&net("dev")).values().sum(),
            softnet_drops: counters::parse_softnet_drops(&net("softnet_stat")),
            cpu: cpu_times(),
            children_cpu_us: (children_time.user_us, children_time.system_us),
            children: children.len() as u64,
            children_memory_bytes: cpu::memory_bytes(&children),
            rss_peak_bytes: cpu::rss_peak_bytes(),
            connections,
            standstill: Standstill::default(),
        }
    }
}

/// CPU time of the machine, one element a CPU, ticks.
pub fn cpu_times() -> Vec<CpuTimes> {
    counters::parse_stat(&fs::read_to_string("/proc/stat").unwrap_or_default())
}

/// Whether a listener serves an address: bound to it, or to every address.
fn serves(listener: &ListenSocket, at: SocketAddr) -> bool {
    let bound = listener.address.ip().to_canonical();
    let same = bound == at.ip().to_canonical() || bound.is_unspecified();
    listener.address.port() == at.port() && same
}

fn look(
    diag: &mut SockDiag,
    half_open: bool,
    whose: &Whose,
) -> Result<Vec<ListenerSample>, SysError> {
    /// `TCP_SYN_RECV` of the kernel.
    const SYN_RECEIVED: u8 = 3;
    let sockets = diag.listeners()?;
    sockets
        .into_iter()
        .filter(|socket| whose.includes(socket))
        .map(|socket| {
            let port = socket.address.port();
            let half_open =
                half_open.then(|| diag.count_in_state(SYN_RECEIVED, Some(port))).transpose()?;
            let half_open = half_open.map(|count| u32::try_from(count).unwrap_or(u32::MAX));
            Ok(ListenerSample { socket, half_open })
        })
        .collect()
}

/// A listener at all looks so far.
#[derive(Debug)]
struct Looked {
    peak: Listener,
    /// Looks since the queue last held a connection.
    empty: u64,
}

fn merge(all: &mut BTreeMap<(String, u16), Looked>, seen: &[ListenerSample]) {
    for ListenerSample { socket, half_open } in seen {
        let (address, port) = (socket.address.ip().to_string(), socket.address.port());
        let looked = all.entry((address.clone(), port)).or_insert_with(|| Looked {
            peak: Listener {
                address,
                port,
                samples: Some(0),
                full_samples: Some(0),
                ..Listener::default()
            },
            empty: 0,
        });
        let peak = &mut looked.peak;
        let (len, limit) = (socket.accept_queue_len, socket.accept_queue_limit);
        peak.accept_queue_peak = peak.accept_queue_peak.max(len);
        peak.accept_queue_limit = limit;
        peak.syn_queue_peak = peak.syn_queue_peak.max(*half_open);
        if len == 0 {
            looked.empty += 1;
            continue;
        }
        // Before the load, and after it, the queue is empty: that says nothing of how it was under it.
        let before =
            peak.samples.filter(|samples| *samples > 0).map(|samples| samples + looked.empty);
        peak.samples = Some(before.unwrap_or(0) + 1);
        peak.full_samples = peak.full_samples.map(|full| full + u64::from(len > limit));
        looked.empty = 0;
    }
}

/// How often the thread wakes up: often enough that no gap that counts is missed, and seldom enough to be no load.
const EVERY: Duration = Duration::from_millis(20);

/// The gaps of this process so far: a thread wakes up every 20 ms and adds them up.
///
/// Every load of a host runs in the process of this thread and, where the host is pinned, on its
/// CPU. What stops the load (SIGSTOP, a frozen container, a CPU limit, a machine without a free
/// CPU) stops the thread too, so no loop of a load has to look at itself.
#[derive(Debug, Default)]
pub struct Pulse {
    seen: Arc<Mutex<Standstill>>,
    /// `cpu.stat` of the control group of this process and of those above it.
    limits: Vec<PathBuf>,
}

impl Pulse {
    /// Begins; the thread ends with the process.
    pub fn begin() -> Self {
        let pulse = Self { seen: Arc::default(), limits: limits() };
        let seen = Arc::clone(&pulse.seen);
        std::thread::spawn(move || {
            let delays = File::open("/proc/thread-self/schedstat").ok();
            let mut before_ns = monotonic_ns();
            let mut delayed_before_ns = run_delay_ns(delays.as_ref());
            loop {
                std::thread::sleep(EVERY);
                let (now_ns, delayed_ns) = (monotonic_ns(), run_delay_ns(delays.as_ref()));
                let gap_ns = (now_ns - before_ns).saturating_sub(EVERY.as_nanos() as u64);
                if gap_ns >= GAP_MIN_NS {
                    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                    seen.stood_ns += gap_ns;
                    seen.waited_ns += gap_ns.min(delayed_ns.saturating_sub(delayed_before_ns));
                }
                (before_ns, delayed_before_ns) = (now_ns, delayed_ns);
            }
        });
        pulse
    }

    /// What has come to light since the process began.
    pub fn seen(&self) -> Standstill {
        let seen = *self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let read = |file: &PathBuf| fs::read_to_string(file).ok();
        let limits = self.limits.iter().filter_map(|file| Some(parse_cpu_limit(&read(file)?)));
        // The group that was held back most often is the one that sets the limit.
        // Before that it is the one that has a limit: the difference of two groups would be none.
        let by_use = |&(periods, throttled): &(u64, u64)| (throttled, periods);
        let (periods, throttled) = limits.max_by_key(by_use).unwrap_or_default();
        Standstill { periods, throttled, ..seen }
    }
}

/// How long this thread has waited for a CPU, ns; 0: the kernel does not say.
fn run_delay_ns(schedstat: Option<&File>) -> u64 {
    let mut text = [0; 128];
    let length = schedstat.and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
    std::str::from_utf8(&text[..length]).ok().and_then(parse_run_delay).unwrap_or(0)
}

fn limits() -> Vec<PathBuf> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let home = home("cpu", &read("/proc/self/cgroup"), &read("/proc/self/mountinfo"));
    let Some(home) = home else { return Vec::new() };
    let groups = home.folder.ancestors().take_while(|folder| folder.starts_with(&home.at));
    groups.map(|folder| folder.join("cpu.stat")).filter(|file| file.exists()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_serves_the_address_it_is_bound_to_or_every_address() {
        let listener = |address: &str| ListenSocket {
            inode: 1,
            uid: 0,
            address: address.parse().unwrap(),
            accept_queue_len: 0,
            accept_queue_limit: 4,
            drops: None,
        };
        let at = "127.0.0.1:80".parse().unwrap();
        let served = ["127.0.0.1:80", "0.0.0.0:80", "[::]:80", "[::ffff:127.0.0.1]:80"];
        assert!(served.iter().all(|address| serves(&listener(address), at)));
        let others = ["127.0.0.1:81", "127.0.0.2:80", "[::1]:80"];
        assert!(!others.iter().any(|address| serves(&listener(address), at)));
    }

    #[test]
    fn samples_are_counted_from_the_first_that_found_a_connection_to_the_last() {
        let mut all = BTreeMap::new();
        for len in [0, 0, 1, 5, 0, 5, 0, 0, 0] {
            let socket = ListenSocket {
                inode: 1,
                uid: 0,
                address: "127.0.0.1:80".parse().unwrap(),
                accept_queue_len: len,
                accept_queue_limit: 4,
                drops: None,
            };
            merge(&mut all, &[ListenerSample { socket, half_open: None }]);
        }
        let peak = &all.values().next().unwrap().peak;
        assert_eq!((peak.samples, peak.full_samples), (Some(4), Some(2)));
        assert_eq!((peak.accept_queue_peak, peak.accept_queue_limit), (5, 4));
    }

    #[test]
    fn a_sysctl_has_a_name_and_a_value_which_may_hold_anything() {
        let pair = |name: &str, value: &str| Some((name.to_owned(), value.to_owned()));
        assert_eq!(parse_sysctl("net.a = 1 2"), pair("net.a", "1 2"));
        assert_eq!(parse_sysctl("net.a=b=c"), pair("net.a", "b=c"));
        assert_eq!(["net.a", "=1", "net.a= "].map(parse_sysctl), [None, None, None]);
    }

    #[test]
    fn a_limit_is_read_of_the_group_that_has_it_also_before_it_was_used_up() {
        let folder = tempfile::tempdir().unwrap();
        let limits = ["own", "root"].map(|name| folder.path().join(name)).to_vec();
        let pulse = Pulse { limits, ..Pulse::default() };
        let own = |stat: &str| {
            fs::write(&pulse.limits[0], stat).unwrap();
            pulse.seen()
        };
        fs::write(&pulse.limits[1], "nr_periods 0\nnr_throttled 0\n").unwrap();
        let before = own("nr_periods 1000\nnr_throttled 0\n");
        let after = own("nr_periods 1040\nnr_throttled 5\n").since(before);
        assert_eq!((after.periods, after.throttled), (40, 5));
    }

    #[test]
    fn the_time_that_a_process_waited_is_part_of_the_time_that_it_stood_still() {
        let pulse = Pulse::begin();
        std::thread::sleep(EVERY * 3);
        let seen = pulse.seen();
        assert!(seen.waited_ns <= seen.stood_ns, "{seen:?}");
        assert!(seen.throttled <= seen.periods, "{seen:?}");
    }
}
