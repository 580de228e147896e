//! Counters, levels and limits of the calling thread's network namespace, from files of `/proc`.

use std::fs;

use crate::watch::{Counted, Limits};
use tcptoll_core::tcp::counters;
use tcptoll_core::tcp::counters::Counters;
use tcptoll_core::tcp::ports;
use tcptoll_kernel::{SysError, cpu};

use tcptoll_lab::observe::read_sysctl;

/// Counters of `snmp` and `netstat`.
pub(super) fn counters() -> Result<Counters, SysError> {
    let mut all = counters::parse_net(&net("snmp")?);
    all.extend(counters::parse_net(&net("netstat")?));
    Ok(all)
}

/// Levels now; what this kernel does not report is absent.
pub(super) fn counted() -> Counted {
    let mut levels = counters::parse_sockstat(&net("sockstat").unwrap_or_default());
    levels.extend(counters::parse_sockstat(&net("sockstat6").unwrap_or_default()));
    let level = |name: &str| levels.get(name).copied();
    let sockets = match (level("TCP_inuse"), level("TCP6_inuse")) {
        (Some(v4), v6) => Some(v4.saturating_add(v6.unwrap_or(0))), // a kernel without IPv6
        (None, _) => None,
    };
    Counted {
        sockets,
        time_wait: level("TCP_tw"),
        orphans: level("TCP_orphan"),
        memory_bytes: level("TCP_mem").and_then(|pages| pages.checked_mul(cpu::page_bytes())),
        tracked: number("net.netfilter.nf_conntrack_count"),
    }
}

/// Limits now; what may not be read here is absent.
pub(super) fn limits() -> Limits {
    let memory = |place: usize| {
        let text = read_sysctl("net.ipv4.tcp_mem").ok()?;
        let pages: u64 = text.split(' ').nth(place)?.parse().ok()?;
        pages.checked_mul(cpu::page_bytes())
    };
    let small = |name: &str| number(name).and_then(|value| u32::try_from(value).ok());
    let range = read_sysctl("net.ipv4.ip_local_port_range").ok();
    let reserved = read_sysctl("net.ipv4.ip_local_reserved_ports").ok();
    Limits {
        somaxconn: small("net.core.somaxconn"),
        max_syn_backlog: small("net.ipv4.tcp_max_syn_backlog"),
        syncookies: small("net.ipv4.tcp_syncookies"),
        local_ports: range
            .zip(reserved)
            .and_then(|(range, reserved)| ports::usable(&range, &reserved)),
        tw_reuse: small("net.ipv4.tcp_tw_reuse"),
        max_tw_buckets: number("net.ipv4.tcp_max_tw_buckets"),
        max_orphans: number("net.ipv4.tcp_max_orphans"),
        memory_max_bytes: memory(2),
        memory_pressure_bytes: memory(1),
        tracked_max: number("net.netfilter.nf_conntrack_max"),
    }
}

/// A sysctl that is one number; none where it cannot be read or is negative.
fn number(name: &str) -> Option<u64> {
    read_sysctl(name).ok()?.parse().ok()
}

fn net(file: &str) -> Result<String, SysError> {
    let path = format!("/proc/thread-self/net/{file}");
    fs::read_to_string(&path).map_err(|e| SysError::new("read", path, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_namespace_has_counters_levels_and_limits() {
        let counters = counters().unwrap();
        for name in ["TcpActiveOpens", "TcpExtListenOverflows", "TcpExtListenDrops"] {
            assert!(counters.contains_key(name), "{name}");
        }
        let counted = counted();
        assert!(counted.sockets.is_some() && counted.time_wait.is_some(), "{counted:?}");
        let limits = limits();
        assert!(limits.somaxconn.is_some() && limits.local_ports.is_some(), "{limits:?}");
    }
}
