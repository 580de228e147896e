//! What do the kernel's text files in `/proc` count?
//!
//! Text in, numbers under the kernel's own names out; who reads the files, and in which namespace,
//! is the kernel crate's business. Every parser skips what it cannot read instead of failing: a
//! newer kernel adds lines, and a missing counter is absent from the map, never 0.
//!
//! CPU time of the machine is what is left of the time in which nothing ran ([`CpuTimes::not_running`]), and
//! not the sum of what did run: fleets that wake up at multiples of 10 ms are never seen by the kernel's
//! samples, and 50,000 heartbeats cost nothing by that count.

use std::collections::BTreeMap;

/// Counter by name, as `nstat` prints it: `TcpExtListenDrops`.
pub type Counters = BTreeMap<String, i64>;

/// Entries of `/proc/net/snmp` and `netstat` that are settings or levels: their difference says
/// nothing about what happened in between.
const GAUGES: [&str; 8] = [
    "IpForwarding",        // a setting
    "IpDefaultTTL",        // a setting
    "TcpRtoAlgorithm",     // a constant of the MIB
    "TcpRtoMin",           // a constant of the MIB
    "TcpRtoMax",           // a constant of the MIB
    "TcpMaxConn",          // always -1: no limit
    "TcpCurrEstab",        // connections in ESTABLISHED or CLOSE-WAIT now
    "MPTcpExtMPCurrEstab", // the same of Multipath TCP
];

/// Parses `/proc/net/snmp` or `/proc/net/netstat`, or both one after the other.
///
/// Shape:   pairs of lines with the same prefix, names then values; the key is prefix and name.
///          A pair of unequal length is skipped, as it cannot be told which name lost its value.
pub fn parse_net(text: &str) -> Counters {
    let mut counters = Counters::new();
    let mut names: Option<(&str, Vec<&str>)> = None;
    for line in text.lines() {
        let Some((prefix, rest)) = line.split_once(':') else { continue };
        let words: Vec<&str> = rest.split_whitespace().collect();
        match names.take() {
            Some((known, names)) if known == prefix => {
                if names.len() == words.len() {
                    counters.extend(names.iter().zip(&words).filter_map(|(name, value)| {
                        Some((format!("{prefix}{name}"), value.parse().ok()?))
                    }));
                }
            }
            _ => names = Some((prefix, words)),
        }
    }
    counters
}

/// Parses `/proc/net/snmp6`: a name and a value a line.
pub fn parse_snmp6(text: &str) -> Counters {
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
        })
        .collect()
}

/// Parses `/proc/net/sockstat` or `sockstat6`.
///
/// Shape:   the key is protocol and name: `TCP_inuse`, `TCP_tw`, `sockets_used`.
/// Unit:    `mem` is in pages, all others are counts. `mem`, `alloc` and `orphan` are of the whole
///          machine and not of the namespace (Linux 6.18).
pub fn parse_sockstat(text: &str) -> BTreeMap<String, u64> {
    let mut levels = BTreeMap::new();
    for line in text.lines() {
        let Some((protocol, rest)) = line.split_once(':') else { continue };
        let mut words = rest.split_whitespace();
        while let (Some(name), Some(value)) = (words.next(), words.next()) {
            if let Ok(value) = value.parse() {
                levels.insert(format!("{protocol}_{name}"), value);
            }
        }
    }
    levels
}

/// Packets that `/proc/net/softnet_stat` says were dropped because a CPU's backlog was full.
///
/// The second of the hexadecimal columns, summed over CPUs. It is of the whole machine, and the
/// limit is `net.core.netdev_max_backlog`.
pub fn parse_softnet_drops(text: &str) -> u64 {
    text.lines()
        .filter_map(|line| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok())
        .fold(0, u64::saturating_add)
}

/// Packets that each device of `/proc/net/dev` dropped, receiving and sending together.
pub fn parse_device_drops(text: &str) -> BTreeMap<String, u64> {
    const RECEIVE_DROP: usize = 3;
    const TRANSMIT_DROP: usize = 11;
    text.lines()
        .filter_map(|line| {
            let (device, rest) = line.rsplit_once(':')?;
            let columns: Vec<&str> = rest.split_whitespace().collect();
            let drops = |at: usize| columns.get(at)?.parse::<u64>().ok();
            let both = drops(RECEIVE_DROP)?.saturating_add(drops(TRANSMIT_DROP)?);
            Some((device.trim().to_owned(), both))
        })
        .collect()
}

/// What changed from `before` to `after`; gauges and unchanged counters are left out.
///
/// A counter that `before` lacks began at 0: the kernel shows `IcmpMsg` lines from the first on.
/// A negative difference means the two samples are not of the same namespace.
pub fn difference(before: &Counters, after: &Counters) -> Counters {
    after
        .iter()
        .filter(|(name, _)| !GAUGES.contains(&name.as_str()))
        .map(|(name, &value)| {
            let earlier = before.get(name).copied().unwrap_or(0);
            (name.clone(), value.saturating_sub(earlier))
        })
        .filter(|&(_, change)| change != 0)
        .collect()
}

/// CPU time of one CPU since boot.
///
/// Unit:    ticks of `sysconf(_SC_CLK_TCK)`, in practice 10 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CpuTimes {
    /// User mode.
    pub user: u64,
    /// User mode at low priority.
    pub nice: u64,
    /// Kernel on behalf of a process.
    pub system: u64,
    /// Nothing to do.
    pub idle: u64,
    /// Nothing to do, and a task waits for a disk.
    pub iowait: u64,
    /// Hardware interrupts.
    pub irq: u64,
    /// Soft interrupts: where received packets are processed.
    pub softirq: u64,
    /// Taken by the hypervisor.
    pub steal: u64,
}

impl CpuTimes {
    /// Time in which nothing ran here, ticks: it had nothing to do, or was not given the CPU.
    ///
    /// The kernel measures it where a CPU sleeps without a tick (`get_cpu_idle_time_us()`), while
    /// what did run is sampled at each tick: what begins right after one and ends before the next
    /// is never seen.
    #[must_use]
    pub fn not_running(&self) -> u64 {
        self.idle + self.iowait + self.steal
    }

    fn all(&self) -> u64 {
        self.user
            + self.nice
            + self.system
            + self.idle
            + self.iowait
            + self.irq
            + self.softirq
            + self.steal
    }
}

/// CPU time that a hypervisor took between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stolen {
    /// Ticks, of all CPUs together.
    pub ticks: u64,
    /// Share of all CPU time, 0 to 1; absent if no tick has passed.
    pub share: Option<f64>,
}

/// What was stolen from `before` to `after`, each one element a CPU.
///
/// Range:   ticks that went backwards, as they may when a CPU goes offline, count as none.
pub fn stolen(before: &[CpuTimes], after: &[CpuTimes]) -> Stolen {
    let grown = |time: &dyn Fn(&CpuTimes) -> u64| {
        let sum = |cpus: &[CpuTimes]| cpus.iter().map(time).sum::<u64>();
        sum(after).saturating_sub(sum(before))
    };
    let (ticks, all) = (grown(&|times| times.steal), grown(&CpuTimes::all));
    Stolen { ticks, share: (all > 0).then(|| ticks as f64 / all as f64) }
}

/// A gap between two turns of a process that is shorter than this is the everyday of a busy machine, ns.
///
/// With six busy programs on two CPUs (Linux 6.18) the longest of 3,938 gaps of a thread that wakes up every 20 ms was
/// 10.6 ms (p99 4.0 ms). A pause of 40 ms in one loop is none either.
pub const GAP_MIN_NS: u64 = 100_000_000;

/// What kept a process from running; each adds up from the beginning of the process on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Standstill {
    /// Sum of the gaps of at least [`GAP_MIN_NS`] between two turns, ns.
    pub stood_ns: u64,
    /// Part of these in which the process waited for a CPU, ns; in the rest it was stopped.
    pub waited_ns: u64,
    /// Periods of the CPU limit of its control group in which it ran.
    pub periods: u64,
    /// Periods in which that limit was used up.
    pub throttled: u64,
}

impl Standstill {
    /// What was added from an earlier reading to this one.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            stood_ns: self.stood_ns.saturating_sub(before.stood_ns),
            waited_ns: self.waited_ns.saturating_sub(before.waited_ns),
            periods: self.periods.saturating_sub(before.periods),
            throttled: self.throttled.saturating_sub(before.throttled),
        }
    }
}

/// Periods of a CPU limit, and those in which it was used up, from a group's `cpu.stat` (cgroup v1 or v2).
///
/// Range:   0 where there is no limit.
pub fn parse_cpu_limit(cpu_stat: &str) -> (u64, u64) {
    let count = |name: &str| {
        let line = cpu_stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    };
    (count("nr_periods"), count("nr_throttled"))
}

/// Time that a thread has waited for a CPU, ns: the second number of its `schedstat`.
pub fn parse_run_delay(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().nth(1)?.parse().ok()
}

/// Parses the `cpuN` lines of `/proc/stat`.
///
/// Shape:   the index is N; a CPU that is offline, and so has no line, is all zeros.
pub fn parse_stat(text: &str) -> Vec<CpuTimes> {
    /// The largest `NR_CPUS` of Linux on x86-64: a larger number is damage, not a CPU.
    const CPUS_MAX: usize = 8192;
    let mut cpus = Vec::new();
    for line in text.lines() {
        let Some((number, times)) = line.strip_prefix("cpu").and_then(cpu_line) else { continue };
        if number >= CPUS_MAX {
            continue;
        }
        if cpus.len() <= number {
            cpus.resize(number + 1, CpuTimes::default());
        }
        cpus[number] = times;
    }
    cpus
}

fn cpu_line(rest: &str) -> Option<(usize, CpuTimes)> {
    let (number, columns) = rest.split_once(' ')?;
    let ticks: Vec<u64> =
        columns.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    let &[user, nice, system, idle, iowait, irq, softirq, steal, ..] = ticks.as_slice() else {
        return None;
    };
    let times = CpuTimes { user, nice, system, idle, iowait, irq, softirq, steal };
    Some((number.parse().ok()?, times))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SNMP: &str = include_str!("../../tests/captured/snmp-6.18.txt");
    const NETSTAT: &str = include_str!("../../tests/captured/netstat-6.18.txt");
    const SNMP6: &str = include_str!("../../tests/captured/snmp6-6.18.txt");

    fn counters(entries: &[(&str, i64)]) -> Counters {
        entries.iter().map(|&(name, value)| (name.to_owned(), value)).collect()
    }

    #[test]
    fn captured_snmp_and_netstat_have_the_values_seen_in_the_files() {
        let snmp = parse_net(SNMP);
        assert_eq!(snmp["IpInReceives"], 9190);
        assert_eq!(snmp["TcpMaxConn"], -1);
        assert_eq!(snmp["TcpActiveOpens"], 104);
        assert_eq!(snmp["IcmpMsgInType3"], 1);
        let netstat = parse_net(NETSTAT);
        assert_eq!(netstat["TcpExtTW"], 13);
        assert_eq!(netstat["TcpExtTCPDelivered"], 1432);
        assert_eq!(netstat["IpExtInOctets"], 301_614_319);
        assert_eq!(netstat["TcpExtListenDrops"], 0);
        assert_eq!(parse_snmp6(SNMP6)["Ip6OutRequests"], 10);
    }

    #[test]
    fn every_name_that_nstat_prints_is_a_name_of_ours() {
        let mut ours = parse_net(SNMP);
        ours.extend(parse_net(NETSTAT));
        ours.extend(parse_snmp6(SNMP6));
        for name in include_str!("../../tests/captured/nstat-names-6.18.txt").lines() {
            assert!(ours.contains_key(name), "{name}");
        }
    }

    #[test]
    fn a_pair_of_unequal_length_or_prefix_is_skipped() {
        let text = "Tcp: A B\nTcp: 1\nUdp: C\nIp: D\nIp: 4\nnonsense\nX: E F\nX: 1 many";
        assert_eq!(parse_net(text), counters(&[("IpD", 4), ("XE", 1)]));
    }

    #[test]
    fn captured_sockstat_is_read() {
        let levels = parse_sockstat(include_str!("../../tests/captured/sockstat-6.18.txt"));
        let some = ["sockets_used", "TCP_inuse", "TCP_orphan", "TCP_tw", "TCP_mem"];
        assert_eq!(some.map(|name| levels[name]), [14, 1, 0, 1, 112]);
    }

    #[test]
    fn softnet_drops_are_the_second_hexadecimal_column_of_all_cpus() {
        let captured = include_str!("../../tests/captured/softnet_stat-6.18.txt");
        assert_eq!(parse_softnet_drops(captured), 0);
        assert_eq!(parse_softnet_drops("00ff 0000000a 1\n0001 00000010 0\nbroken\n"), 26);
    }

    #[test]
    fn device_drops_add_receiving_and_sending() {
        let captured = parse_device_drops(include_str!("../../tests/captured/dev-6.18.txt"));
        assert_eq!(captured.keys().collect::<Vec<_>>(), ["eth0", "ifb0", "ifb1", "lo"]);
        assert!(captured.values().all(|&drops| drops == 0));
        let text = " t0: 1 2 3 40 5 6 7 8 9 10 11 200 13 14 15 16";
        assert_eq!(parse_device_drops(text)["t0"], 240);
    }

    #[test]
    fn a_difference_holds_what_changed_and_no_gauge() {
        let before = counters(&[("TcpCurrEstab", 1), ("TcpInSegs", 5), ("TcpOutSegs", 5)]);
        let after = counters(&[
            ("IcmpMsgInType3", 2),
            ("TcpCurrEstab", 9),
            ("TcpInSegs", 8),
            ("TcpOutSegs", 5),
        ]);
        let expected = counters(&[("IcmpMsgInType3", 2), ("TcpInSegs", 3)]);
        assert_eq!(difference(&before, &after), expected);
    }

    #[test]
    fn captured_stat_gives_each_cpu_its_times() {
        let cpus = parse_stat(include_str!("../../tests/captured/stat-6.18.txt"));
        assert_eq!(cpus.len(), 2);
        assert_eq!(
            cpus[1],
            CpuTimes {
                user: 12_106,
                nice: 0,
                system: 5267,
                idle: 103_479,
                iowait: 1031,
                irq: 0,
                softirq: 103,
                steal: 226,
            }
        );
    }

    #[test]
    fn an_offline_cpu_leaves_a_gap_of_zeros() {
        let cpus = parse_stat("cpu2 1 2 3 4 5 6 7 8\ncpu0 8 7 6 5 4 3 2 1 0 0\ncpu1 1 2\n");
        assert_eq!(cpus.iter().map(|cpu| cpu.user).collect::<Vec<_>>(), [8, 0, 1]);
        assert_eq!(parse_stat("cpu4294967295 1 2 3 4 5 6 7 8"), []);
    }

    #[test]
    fn stolen_time_is_a_share_of_all_time_of_all_cpus() {
        let before = parse_stat("cpu0 1 1 1 1 1 1 1 1\ncpu1 0 0 0 0 0 0 0 0");
        let after = parse_stat("cpu0 2 2 2 2 2 2 2 4\ncpu1 0 0 0 89 0 0 0 1");
        // 7 + 3 ticks of one CPU and 90 of the other have passed, 3 and 1 of them stolen.
        assert_eq!(stolen(&before, &after), Stolen { ticks: 4, share: Some(0.04) });
        assert_eq!(stolen(&after, &after), Stolen { ticks: 0, share: None });
        assert_eq!(stolen(&after, &before), Stolen { ticks: 0, share: None });
    }

    #[test]
    fn a_cpu_limit_is_read_from_both_versions_of_control_groups() {
        let first = "nr_periods 40\nnr_throttled 38\nthrottled_time 1900000000\n";
        let second = "usage_usec 12\nnr_periods 7\nnr_throttled 0\nthrottled_usec 0\n";
        assert_eq!((parse_cpu_limit(first), parse_cpu_limit(second)), ((40, 38), (7, 0)));
        assert_eq!(parse_cpu_limit("usage_usec 12\n"), (0, 0));
        assert_eq!(parse_run_delay("5070 1130 12\n"), Some(1_130));
        assert_eq!(parse_run_delay(""), None);
    }

    proptest! {
        #[test]
        fn any_text_parses_without_panic(text in "([a-zA-Z0-9:\\- \u{e9}]{0,30}\n){0,8}|.*") {
            let counters = parse_net(&text);
            prop_assert!(difference(&counters, &counters).is_empty());
            parse_snmp6(&text);
            parse_sockstat(&text);
            parse_softnet_drops(&text);
            parse_device_drops(&text);
            parse_stat(&text);
            parse_cpu_limit(&text);
            parse_run_delay(&text);
        }
    }
}
