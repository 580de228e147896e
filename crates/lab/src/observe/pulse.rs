//! Did this process run all the time? A thread wakes up every 20 ms and adds up the gaps.
//!
//! Every load of a host runs in the process of this thread and, where the host is pinned, on its
//! CPU. What stops the load (SIGSTOP, a frozen container, a CPU limit, a machine without a free
//! CPU) stops the thread too, so no loop of a load has to look at itself.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tcptoll_core::tcp::counters::{GAP_MIN_NS, Standstill, parse_cpu_limit, parse_run_delay};

use crate::clock::monotonic_ns;
use crate::control_group::home;

/// How often the thread wakes up: often enough that no gap that counts is missed, and seldom enough to be no load.
const EVERY: Duration = Duration::from_millis(20);

/// The gaps of this process so far.
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
