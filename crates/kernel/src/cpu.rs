//! CPU time and CPU affinity of the calling thread and of other processes.

use std::io;
use std::sync::{Mutex, PoisonError};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{UsageWho, getrusage};
use nix::unistd::Pid;

use crate::SysError;

/// User and system time, µs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// User time, µs.
    pub user_us: u64,
    /// System time, µs.
    pub system_us: u64,
}

impl CpuTime {
    /// What was used since `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            user_us: self.user_us.saturating_sub(before.user_us),
            system_us: self.system_us.saturating_sub(before.system_us),
        }
    }
}

/// CPU time of the calling thread.
pub fn thread_time() -> CpuTime {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).expect("RUSAGE_THREAD exists since 2.6.26");
    CpuTime { user_us: us(usage.user_time()), system_us: us(usage.system_time()) }
}

/// CPU time of the calling thread, ns, user and system together (`CLOCK_THREAD_CPUTIME_ID`).
///
/// It is exact, unlike [`thread_time`], whose parts are told apart at ticks. Cost: a system call,
/// about 0.3 µs.
pub fn thread_cpu_ns() -> u64 {
    use nix::time::{ClockId, clock_gettime};
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .expect("every Linux since 2.6.12 has this clock");
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

/// CPU time of this process, ns, of all its threads, also of those that have ended
/// (`CLOCK_PROCESS_CPUTIME_ID`).
pub fn process_cpu_ns() -> u64 {
    use nix::time::{ClockId, clock_gettime};
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)
        .expect("every Linux since 2.6.12 has this clock");
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

/// CPUs the calling thread may use, ascending.
pub fn allowed() -> Vec<u32> {
    let set = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    (0..CpuSet::count()).filter(|&cpu| set.is_set(cpu).unwrap_or(false)).map(|c| c as u32).collect()
}

/// Lets the calling thread run on any of these CPUs.
pub fn allow(cpus: &[u32]) -> Result<(), SysError> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        set.set(cpu as usize).map_err(|e| SysError::new("CPU_SET", format!("cpu {cpu}"), e))?;
    }
    sched_setaffinity(Pid::from_raw(0), &set)
        .map_err(|e| SysError::new("sched_setaffinity", format!("{cpus:?}"), e))
}

/// Pins the calling thread, and what it starts from now on, to one CPU.
pub fn pin(cpu: u32) -> Result<(), SysError> {
    allow(&[cpu])
}

/// Asks for timers as exact as the kernel can make them, instead of up to 50 µs late on purpose.
pub fn exact_timers() -> Result<(), SysError> {
    nix::sys::prctl::set_timerslack(1).map_err(|e| SysError::new("PR_SET_TIMERSLACK", "1 ns", e))
}

/// Asks to be run soon after each wake-up, by time slices as short as the kernel has (0.1 ms).
///
/// The thread gets no more CPU time by that. Next to a busy loop an emulated link of 200 ms released
/// packets 88 µs late in the median, and 224 µs without (8 runs each in turn, on a machine with
/// other work, Linux 6.18). Kernels before 6.12 ignore it.
pub fn short_slices() -> Result<(), SysError> {
    const SHORTEST_NS: u64 = 100_000;
    let mut attributes = SchedAttributes::default();
    let size = size_of::<SchedAttributes>() as u32;
    // SAFETY: the kernel writes at most `size` bytes to a struct of its own layout that lives across
    // the call; 0 is the calling thread.
    let read = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    if read == -1 {
        return Err(SysError::last("sched_getattr", "this thread"));
    }
    attributes.runtime_ns = SHORTEST_NS;
    // SAFETY: as above; the kernel only reads, and `size` in the struct is what it wrote there.
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if set == -1 {
        return Err(SysError::last("sched_setattr", "this thread"));
    }
    Ok(())
}

/// `struct sched_attr` as of Linux 3.14, its first version. Source: `sched_setattr(2)`.
#[repr(C)]
#[derive(Default)]
struct SchedAttributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// Soft limit of open files of this process, raised to its hard limit first.
pub fn file_limit() -> io::Result<u64> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(getrlimit(Resource::RLIMIT_NOFILE)?.0)
}

/// Processes below this one that still run: those it started, and theirs.
pub fn descendants() -> Vec<u32> {
    // A process tree larger than this is not a server.
    const MOST: usize = 10_000;
    let mut found = Vec::new();
    let mut pending = children_of(std::process::id());
    while let Some(pid) = pending.pop() {
        if found.len() == MOST {
            break;
        }
        pending.extend(children_of(pid));
        // One that has ended and was not waited for has used CPU time, but is not there any more.
        if stat(pid).is_some() {
            found.push(pid);
        }
    }
    found
}

/// Of these processes, those that have not ended.
pub fn running(pids: &[u32]) -> Vec<u32> {
    let alive = |pid: &u32| stat(*pid).is_some_and(|stat| !matches!(stat.state, 'Z' | 'X'));
    pids.iter().copied().filter(alive).collect()
}

/// State of a process, as `/proc/PID/stat` has it: `R`, `S`, `T` for stopped … None: it is not there.
pub fn state(pid: u32) -> Option<char> {
    stat(pid).map(|stat| stat.state)
}

/// The process that started it, or that took it over. None: it is not there.
pub fn parent(pid: u32) -> Option<u32> {
    stat(pid).map(|stat| stat.parent)
}

/// CPU time of the processes this one started, and of theirs: of those still there and of those
/// waited for.
///
/// The sum of both is exact to 1 µs, but for what descendants have waited for, which the kernel
/// tells in ticks of 10 ms. What was used since the last call is split into user and system time as
/// the ticks of that time are, so that neither ever decreases; a tick of each process may be missed.
///
/// Source: `CPUCLOCK_SCHED` of a process counts what the scheduler does, of its ended threads too
/// (kernel/time/posix-cpu-timers.c of Linux 6.18); /proc/PID/task/*/schedstat leaves those out, and
/// the tick during which it is read.
pub fn children_time() -> CpuTime {
    static SPLIT: Mutex<Split> = Mutex::new(Split::NONE);
    let ticks = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten();
    let us_per_tick = 1_000_000 / u64::try_from(ticks.unwrap_or(100)).unwrap_or(100);
    let waited = getrusage(UsageWho::RUSAGE_CHILDREN).expect("RUSAGE_CHILDREN always exists");
    let mut rough =
        CpuTime { user_us: us(waited.user_time()), system_us: us(waited.system_time()) };
    let mut exact_us = rough.user_us + rough.system_us;
    for pid in descendants() {
        let Some(stat) = stat(pid) else { continue };
        exact_us += process_time_us(pid).unwrap_or((stat.user + stat.system) * us_per_tick)
            + (stat.waited_user + stat.waited_system) * us_per_tick;
        rough.user_us += (stat.user + stat.waited_user) * us_per_tick;
        rough.system_us += (stat.system + stat.waited_system) * us_per_tick;
    }
    SPLIT.lock().unwrap_or_else(PoisonError::into_inner).add(exact_us, rough)
}

/// Splits an exact time as a rough one is split, each part growing.
struct Split {
    exact_us: u64,
    rough: CpuTime,
    time: CpuTime,
}

impl Split {
    const NONE: Self = {
        let none = CpuTime { user_us: 0, system_us: 0 };
        Self { exact_us: 0, rough: none, time: none }
    };

    fn add(&mut self, exact_us: u64, rough: CpuTime) -> CpuTime {
        let grown = exact_us.saturating_sub(self.exact_us);
        let since = rough.since(self.rough);
        // Within one tick, as it was so far.
        let like = if since == CpuTime::default() { rough } else { since };
        let user_us = match like.user_us + like.system_us {
            0 => grown,
            all => (u128::from(grown) * u128::from(like.user_us) / u128::from(all)) as u64,
        };
        self.time.user_us += user_us;
        self.time.system_us += grown - user_us;
        self.exact_us = self.exact_us.max(exact_us);
        self.rough = rough;
        self.time
    }
}

/// Memory of these processes, bytes: what several share is divided among them (PSS), or, where the
/// kernel does not tell that, counted for each (RSS).
///
/// Cost: the kernel walks their page tables.
pub fn memory_bytes(pids: &[u32]) -> u64 {
    let field = |text: &str, name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
    };
    let process_memory = |pid: &u32| {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}"));
        let proportional = read("smaps_rollup").ok().and_then(|text| field(&text, "Pss:"));
        proportional.or_else(|| field(&read("status").ok()?, "VmRSS:")).unwrap_or(0)
    };
    pids.iter().map(process_memory).sum()
}

/// What is used of `/proc/PID/stat`; times in ticks.
struct Stat {
    state: char,
    parent: u32,
    user: u64,
    system: u64,
    waited_user: u64,
    waited_system: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold blanks; fields are counted from the last parenthesis (proc(5)).
    let fields: Vec<&str> = text.rsplit(')').next()?.split_whitespace().collect();
    let number = |n: usize| fields.get(n - 3).and_then(|text| text.parse().ok()).unwrap_or(0);
    Some(Stat {
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        user: number(14),
        system: number(15),
        waited_user: number(16),
        waited_system: number(17),
    })
}

/// CPU time of one process, threads that have ended included.
fn process_time_us(pid: u32) -> Option<u64> {
    let clock = nix::time::clock_getcpuclockid(Pid::from_raw(pid as i32)).ok()?;
    let time = nix::time::clock_gettime(clock).ok()?;
    Some(time.tv_sec() as u64 * 1_000_000 + time.tv_nsec() as u64 / 1_000)
}

fn us(time: nix::sys::time::TimeVal) -> u64 {
    time.tv_sec() as u64 * 1_000_000 + time.tv_usec() as u64
}

/// The processes that a process has started, through any of its threads, and has not waited for.
pub fn children_of(pid: u32) -> Vec<u32> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|text| {
            text.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<u32>>()
        })
        .collect()
}

/// Largest resident memory of this process so far, bytes.
pub fn rss_peak_bytes() -> u64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("RUSAGE_SELF always exists");
    // Linux counts ru_maxrss in KiB (getrusage(2)).
    usage.max_rss() as u64 * 1024
}

/// Resident memory of this process now, bytes.
pub fn rss_bytes() -> u64 {
    pages(1) * page_bytes()
}

/// Resident memory of this process now that no file stands behind, bytes: without its code, which
/// becomes resident as it runs.
pub fn anonymous_bytes() -> u64 {
    pages(1).saturating_sub(pages(2)) * page_bytes()
}

/// A number of `/proc/self/statm`, by its place: 1 resident, 2 of these with a file behind them.
fn pages(place: usize) -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split_whitespace().nth(place).and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// Bytes of a page, in which the kernel counts memory.
pub fn page_bytes() -> u64 {
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten();
    page.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exact_time_is_split_as_the_ticks_of_its_growth_and_neither_part_shrinks() {
        let time = |user_us, system_us| CpuTime { user_us, system_us };
        let mut split = Split::NONE;
        assert_eq!(split.add(14_000, time(0, 0)), time(14_000, 0));
        // 10,000 more, in which the one tick was the system's.
        assert_eq!(split.add(24_000, time(0, 10_000)), time(14_000, 10_000));
        // No tick: as all so far, which was the system's.
        assert_eq!(split.add(25_000, time(0, 10_000)), time(14_000, 11_000));
        // A process whose time nobody waited for is gone.
        assert_eq!(split.add(20_000, time(0, 0)), time(14_000, 11_000));
    }

    #[test]
    fn a_child_that_takes_less_than_a_tick_is_seen_to_have_taken_time() {
        let before = children_time();
        let status = std::process::Command::new("true").status().unwrap();
        let used = children_time().since(before);
        assert!(status.success() && used.user_us + used.system_us > 0);
    }
}
