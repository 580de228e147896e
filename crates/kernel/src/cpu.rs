//! CPU time and CPU affinity of the calling thread and of other processes.

use std::io;

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
    let us = |t: nix::sys::time::TimeVal| t.tv_sec() as u64 * 1_000_000 + t.tv_usec() as u64;
    CpuTime { user_us: us(usage.user_time()), system_us: us(usage.system_time()) }
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

/// Soft limit of open files of this process, raised to its hard limit first.
pub fn file_limit() -> io::Result<u64> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(getrlimit(Resource::RLIMIT_NOFILE)?.0)
}

/// CPU time of the processes this one started and has waited for, and of those still running.
pub fn children_time() -> CpuTime {
    let mut time = CpuTime::default();
    let ticks = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten();
    let us_per_tick = 1_000_000 / u64::try_from(ticks.unwrap_or(100)).unwrap_or(100);
    let mut pending = children_of(std::process::id());
    // A process tree deeper than this is not a server.
    let mut left = 10_000;
    while let Some(pid) = pending.pop() {
        left -= 1;
        if left == 0 {
            break;
        }
        pending.extend(children_of(pid));
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        // The name may hold blanks; fields are counted from the last parenthesis (proc(5)).
        let rest = stat.rsplit(')').next().unwrap_or_default();
        let field =
            |n: usize| rest.split_whitespace().nth(n - 3).and_then(|text| text.parse::<u64>().ok());
        time.user_us += (field(14).unwrap_or(0) + field(16).unwrap_or(0)) * us_per_tick;
        time.system_us += (field(15).unwrap_or(0) + field(17).unwrap_or(0)) * us_per_tick;
    }
    time
}

fn children_of(pid: u32) -> Vec<u32> {
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
