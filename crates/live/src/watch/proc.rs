//! What files of `/proc` tell: counters, levels and limits of the calling thread's network namespace, and which
//! process has a socket.
//!
//! The kernel tells no owner: `/proc/PID/fd` of every process that may be read is searched for the
//! socket's inode. That costs about 1 µs an open file, so it is done for listeners alone, only when an
//! unknown one appears, and seldom. What was found is kept and checked with one call an owner.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tcptoll_core::printable::line;
use tcptoll_core::tcp::counters::Counters;
use tcptoll_core::tcp::{counters, ports};
use tcptoll_kernel::{SysError, cpu};
use tcptoll_lab::observe::read_sysctl;

use super::{Counted, Limits, Process};

/// Time between two searches, at least.
const SEARCH_EVERY: Duration = Duration::from_secs(10);
/// A search is followed by this many times its CPU time without one: 0.5 % of a CPU.
const SEARCH_SHARE: u32 = 200;
/// Time between two checks of what was found.
const CHECK_EVERY: Duration = Duration::from_secs(10);
/// After this time a socket without a readable owner is searched for again: it may have been handed on.
const FORGET_EVERY: Duration = Duration::from_mins(1);
/// Processes that a search looks at.
const PROCESSES_MAX: usize = 32_768;
/// Open files of one process that a search looks at, the lowest numbers first. A server opens its
/// listeners before it has connections.
const FILES_MAX: usize = 4_096;
/// Open files that a search looks at in all.
const FILES_IN_ALL_MAX: usize = 131_072;
/// `TASK_COMM_LEN` of the kernel.
const NAME_MAX: usize = 16;

#[derive(Debug)]
pub(super) struct Owners {
    /// Where the kernel lists processes and their open files.
    proc: PathBuf,
    known: HashMap<u64, Owner>,
    search_from: Duration,
    check_from: Duration,
    forget_from: Duration,
}

#[derive(Debug)]
enum Owner {
    /// The process with the lowest PID, and the number of its file.
    Found { process: Process, file: u32 },
    /// No process that may be read has it, or none within the bounds.
    Unreadable,
}

impl Default for Owners {
    fn default() -> Self {
        Owners::in_folder("/proc".into())
    }
}

impl Owners {
    fn in_folder(proc: PathBuf) -> Self {
        let [search_from, check_from, forget_from] = [Duration::ZERO; 3];
        Owners { proc, known: HashMap::new(), search_from, check_from, forget_from }
    }

    /// Searches for the owners of these sockets if one is new and a search is due.
    pub(super) fn look_up(&mut self, now: Duration, inodes: impl Iterator<Item = u64>) {
        // Inode 0 is no socket's.
        let wanted: HashSet<u64> = inodes.filter(|inode| *inode != 0).collect();
        let forget = now >= self.forget_from;
        if forget {
            self.forget_from = now + FORGET_EVERY;
        }
        let check = now >= self.check_from;
        if check {
            self.check_from = now + CHECK_EVERY;
        }
        self.known.retain(|inode, owner| {
            wanted.contains(inode)
                && match owner {
                    Owner::Found { process, file } => {
                        !check || links_to(&self.proc, process.pid, *file) == Some(*inode)
                    }
                    Owner::Unreadable => !forget,
                }
        });
        if now < self.search_from {
            return;
        }
        let mut unknown: HashSet<u64> =
            wanted.into_iter().filter(|inode| !self.known.contains_key(inode)).collect();
        if unknown.is_empty() {
            return;
        }
        let cpu_from_ns = cpu::thread_cpu_ns();
        search(&self.proc, &mut unknown, |inode, process, file| {
            self.known.insert(inode, Owner::Found { process, file });
        });
        self.known.extend(unknown.into_iter().map(|inode| (inode, Owner::Unreadable)));
        let took = Duration::from_nanos(cpu::thread_cpu_ns().saturating_sub(cpu_from_ns));
        self.search_from = now + took.saturating_mul(SEARCH_SHARE).max(SEARCH_EVERY);
    }

    /// The owner of a socket, as far as is known.
    pub(super) fn owner(&self, inode: u64) -> Option<Process> {
        match self.known.get(&inode)? {
            Owner::Found { process, .. } => Some(process.clone()),
            Owner::Unreadable => None,
        }
    }
}

/// Hands the owner of each of these sockets to `found`, and leaves those without one. Of several
/// processes that share a socket it is the one with the lowest PID.
fn search(proc: &Path, unknown: &mut HashSet<u64>, mut found: impl FnMut(u64, Process, u32)) {
    let Ok(entries) = fs::read_dir(proc) else { return };
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let mut pids: Vec<u32> = entries.flatten().filter_map(number).take(PROCESSES_MAX).collect();
    pids.sort_unstable();
    let mut files_left = FILES_IN_ALL_MAX;
    for pid in pids {
        let folder = proc.join(pid.to_string());
        let Ok(files) = fs::read_dir(folder.join("fd")) else { continue };
        let mut name = None;
        for entry in files.flatten().take(FILES_MAX.min(files_left)) {
            files_left -= 1;
            let Some(inode) = socket_at(&entry.path()) else { continue };
            if !unknown.remove(&inode) {
                continue;
            }
            let name = name.get_or_insert_with(|| name_of(&folder));
            if let Some(file) = number(entry) {
                found(inode, Process { pid, name: name.clone() }, file);
            }
            if unknown.is_empty() {
                return;
            }
        }
        if files_left == 0 {
            return;
        }
    }
}

/// The socket that this file of a process is.
fn links_to(proc: &Path, pid: u32, file: u32) -> Option<u64> {
    socket_at(&proc.join(format!("{pid}/fd/{file}")))
}

fn socket_at(file: &Path) -> Option<u64> {
    inode_in(fs::read_link(file).ok()?.to_str()?)
}

/// Reads `socket:[4711]`.
fn inode_in(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// `/proc/PID/comm`, printable and at most 16 characters. A process gives itself any bytes for a name: what
/// steers a terminal ends here, so that nothing that shows, records or judges a look has to know of it.
fn name_of(folder: &Path) -> String {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(folder.join("comm")) {
        // What is read before an error is a name too; without any it stays empty.
        let _ = file.take(4 * NAME_MAX as u64).read_to_end(&mut bytes);
    }
    // The kernel ends the name with a line feed; others before it are the process's own.
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    line(&String::from_utf8_lossy(bytes)).chars().take(NAME_MAX).collect()
}

/// Counters of `snmp` and `netstat`.
pub(super) fn counters() -> Result<Counters, SysError> {
    let mut all = counters::parse_net(&net("snmp")?);
    all.extend(counters::parse_net(&net("netstat")?));
    let drops = net("stat/nf_conntrack").ok().and_then(|text| tracking_drops(&text));
    all.extend(drops.map(|drops| (TRACKING_DROPS.to_owned(), drops)));
    Ok(all)
}

/// What connection tracking dropped, as a counter.
pub(super) const TRACKING_DROPS: &str = "NfConntrackDrop";

/// `drop` and `early_drop` of `/proc/net/stat/nf_conntrack`: names, then a line of hexadecimal numbers a CPU.
fn tracking_drops(text: &str) -> Option<i64> {
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next()?.split_whitespace().collect();
    let place = |name| names.iter().position(|one| *one == name);
    let wanted = [place("drop")?, place("early_drop")?];
    let of_cpu = |line: &str| {
        let numbers: Vec<&str> = line.split_whitespace().collect();
        let number = |at: &usize| i64::from_str_radix(numbers.get(*at)?, 16).ok();
        wanted.iter().filter_map(number).sum::<i64>()
    };
    Some(lines.map(of_cpu).sum())
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
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_to_a_socket_has_its_inode_and_others_have_none() {
        assert_eq!(inode_in("socket:[4711]"), Some(4711));
        for other in ["pipe:[4711]", "socket:[]", "socket:[-1]", "socket:[1", "/socket:[1]", ""] {
            assert_eq!(inode_in(other), None, "{other}");
        }
    }

    #[test]
    fn a_listener_is_found_and_forgotten_once_it_is_closed() {
        // A made folder: the files of this process depend on the tests that run beside this one.
        let proc = tempfile::tempdir().unwrap();
        for (pid, name) in [("40", "puma"), ("7", "nginx"), ("self", "no process")] {
            fs::create_dir_all(proc.path().join(pid).join("fd")).unwrap();
            fs::write(proc.path().join(pid).join("comm"), name).unwrap();
            symlink("/dev/null", proc.path().join(pid).join("fd/0")).unwrap();
            symlink("socket:[4711]", proc.path().join(pid).join("fd/3")).unwrap();
        }
        let mut owners = Owners::in_folder(proc.path().into());
        let at = Duration::from_secs;
        owners.look_up(at(100), [4711, 0, u64::MAX].into_iter());
        let lowest = Process { pid: 7, name: "nginx".into() };
        assert_eq!(owners.owner(4711), Some(lowest));
        assert_eq!((owners.owner(u64::MAX), owners.owner(0)), (None, None));
        fs::remove_file(proc.path().join("7/fd/3")).unwrap();
        owners.look_up(at(101), [4711].into_iter());
        assert!(owners.owner(4711).is_some(), "checked every ten seconds");
        fs::remove_file(proc.path().join("40/fd/3")).unwrap();
        owners.look_up(at(120), [4711].into_iter());
        assert_eq!(owners.owner(4711), None);
        owners.look_up(at(130), std::iter::empty());
        assert!(owners.known.is_empty());
    }

    #[test]
    fn an_unknown_socket_makes_no_second_search_within_ten_seconds() {
        let mut owners = Owners::default();
        owners.look_up(Duration::from_secs(1), [u64::MAX].into_iter());
        let until = owners.search_from;
        assert!(until >= Duration::from_secs(11));
        owners.look_up(until.saturating_sub(Duration::from_nanos(1)), [u64::MAX - 1].into_iter());
        assert!(!owners.known.contains_key(&(u64::MAX - 1)));
        owners.look_up(until, [u64::MAX - 1].into_iter());
        assert!(owners.known.contains_key(&(u64::MAX - 1)));
    }

    #[test]
    fn a_hostile_name_is_printable_and_stays_within_sixteen_characters() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("comm");
        for (bytes, name) in [
            (&b"nginx\n"[..], "nginx"),
            (b"a\nb\x1b[2J\n\n", "a b·[2J "),
            ("a\u{9b}2J\u{7f}\u{202e}b\u{200b}\n".as_bytes(), "a·2J·b"),
            (b"", ""),
            (
                &[0xff; 1000],
                "\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}",
            ),
        ] {
            fs::write(&file, bytes).unwrap();
            assert_eq!(name_of(folder.path()), name);
        }
        assert_eq!(name_of(Path::new("/nowhere")), "");
    }

    #[test]
    fn drops_of_connection_tracking_are_those_of_all_cpus() {
        let text = "entries  clashres found drop early_drop\n00000002 0 0 0000000a 00000001\n00000002 0 0 00000010 0\n";
        assert_eq!(tracking_drops(text), Some(27));
        assert_eq!(tracking_drops("entries found\n1 2\n"), None);
    }

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
