//! The machine's passport: what a reader must know to judge a figure or to repeat it.

use std::fs;

use tcptoll_core::record::Passport;
use tcptoll_core::tcp::counters::{parse_stat, stolen};

use crate::observe::read_sysctl;

/// Reads the machine's passport now.
pub fn read() -> Passport {
    let line = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let after = |text: &str, key: &str| {
        text.lines()
            .find(|line| line.starts_with(key))
            .and_then(|line| line.split(':').nth(1))
            .map(|value| value.trim().to_owned())
    };
    let cpuinfo = line("/proc/cpuinfo").unwrap_or_default();
    let memory_kib = line("/proc/meminfo")
        .and_then(|text| after(&text, "MemTotal"))
        .and_then(|text| text.split_whitespace().next().and_then(|n| n.parse::<u64>().ok()));
    Passport {
        kernel: format!("Linux {}", line("/proc/sys/kernel/osrelease").unwrap_or_default()),
        cpu: after(&cpuinfo, "model name").unwrap_or_default(),
        cpus: tcptoll_kernel::cpu::allowed().len() as u32,
        memory_bytes: memory_kib.unwrap_or(0) * 1024,
        clock_source: line("/sys/devices/system/clocksource/clocksource0/current_clocksource")
            .unwrap_or_default(),
        governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        steal: None,
        congestion_control: read_sysctl("net.ipv4.tcp_congestion_control").ok(),
        load_1min: line("/proc/loadavg")
            .and_then(|text| text.split_whitespace().next().and_then(|n| n.parse().ok())),
        libc: tcptoll_kernel::process::libc(),
        uid: tcptoll_kernel::process::uid(),
    }
}

/// The C library that this process runs with; [`Passport::libc`].
pub fn libc() -> Option<String> {
    tcptoll_kernel::process::libc()
}

/// Whether this process may use `io_uring`, and why not.
pub fn io_uring() -> Result<(), String> {
    tcptoll_kernel::ring::available().map_err(|error| error.to_string())
}

/// Share of all CPU time that a hypervisor stole between two readings of `/proc/stat`.
pub fn steal_share(before: &str, after: &str) -> Option<f64> {
    stolen(&parse_stat(before), &parse_stat(after)).share
}
