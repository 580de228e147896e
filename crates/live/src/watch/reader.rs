//! Reads what `watch` shows of a live network namespace, within a budget of CPU and memory.
//!
//! A [`NamespaceReader`] reads and never writes. Each look reads listeners, counters and limits. The table of all
//! sockets costs the kernel a walk over its whole hash, so its interval grows with its cost: a dump of 50,000 sockets
//! takes 40 to 80 ms of CPU, and the next one follows when the last has cost 0.7 % of one CPU, after 2 s at the
//! earliest and 60 s at the latest. No privilege is needed; the owner of a socket is named where `/proc/PID/fd` may be
//! read. [`Watch`] is a reader with the memory of what it read: what every way to show a watch begins with.

use std::collections::HashMap;
use std::time::Duration;

use tcptoll_core::printable::line;
pub use tcptoll_kernel::SysError;
use tcptoll_kernel::connections::States;
use tcptoll_kernel::cpu;
pub use tcptoll_kernel::namespace::Network;
use tcptoll_kernel::namespace::join_network;
use tcptoll_kernel::process::uid;
use tcptoll_kernel::sock_diag::{ListenSocket, SockDiag};
pub use tcptoll_kernel::terminal::{Keys, Modes, wait_for_keys};
use tcptoll_lab::clock::{boottime_ns, wall_clock};

use super::diagnoses::leaks::{CLOSE_WAIT, MANY};
use super::dump::{TableBuilder, TopPairs};
use super::proc::{self, Owners};
use super::unclosed::UnclosedGroups;
use super::{History, ListenerLook, Look, LookCost, SocketDump, State, Unclosed};

#[derive(Clone, Debug)]
pub struct Options {
    /// The network namespace; `None`: the one that the caller is in.
    pub network: Option<Network>,
    /// Whether owners of listeners are looked up.
    pub owners: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { network: None, owners: true }
    }
}

/// Looks at one network namespace again and again.
///
/// It stays with the thread that opened it: files below `/proc/thread-self/net` are those of the
/// calling thread's namespace.
#[derive(Debug)]
pub struct NamespaceReader {
    diag: SockDiag,
    owners: Option<Owners>,
    pace: Pace,
    /// The newest table, and the connections to follow in the next.
    table: Option<SocketDump>,
    /// Half-open requests of listeners at the newest table, by inode.
    half_open: HashMap<u64, u32>,
    kept: TopPairs,
    began: Duration,
    cpu_before_ns: u64,
}

impl NamespaceReader {
    /// Begins to watch; joins the namespace first where another one is asked for.
    ///
    /// Must be called before any thread is started: joining a user namespace needs a process with one
    /// thread, and threads that exist already stay where they are.
    ///
    /// Errors: those of [`join_network`]; ENOENT if the kernel was built without `sock_diag`.
    pub fn open(options: &Options) -> Result<Self, SysError> {
        if let Some(network) = &options.network {
            join_network(network)?;
        }
        Ok(Self {
            diag: SockDiag::open()?,
            owners: options.owners.then(Owners::default),
            pace: Pace::default(),
            table: None,
            half_open: HashMap::new(),
            kept: TopPairs::default(),
            began: now(),
            cpu_before_ns: cpu::process_cpu_ns(),
        })
    }

    /// Reads listeners, counters and limits, and the table of all sockets if it is due.
    ///
    /// Errors: the kernel refused a dump, or a file of counters cannot be read. The next look begins
    /// afresh.
    pub fn look(&mut self) -> Result<Look, SysError> {
        let due = self.pace.is_due(now());
        self.look_at(due)
    }

    /// As [`look`](Self::look), with a new table whatever it costs.
    pub fn look_at_all(&mut self) -> Result<Look, SysError> {
        self.look_at(true)
    }

    fn look_at(&mut self, all: bool) -> Result<Look, SysError> {
        let at = now();
        let time = wall_clock();
        let sockets = match self.diag.listeners() {
            Ok(sockets) => sockets,
            Err(error) => return Err(self.afresh(error)),
        };
        let counters = proc::counters()?;
        let counted = proc::counted();
        let limits = proc::limits();
        if all {
            let half_open = self.dump(at, &sockets)?;
            let inodes = sockets.iter().map(|socket| socket.inode);
            let known = |(inode, count): (u64, Option<u32>)| Some((inode, count?));
            self.half_open = inodes.zip(half_open).filter_map(known).collect();
        }
        if let Some(owners) = &mut self.owners {
            let unclosed = self.table.iter().flat_map(|table| &table.unclosed).map(|one| one.inode);
            owners.look_up(at, sockets.iter().map(|socket| socket.inode).chain(unclosed));
        }
        let mut table = self.table.clone();
        for one in table.iter_mut().flat_map(|table| &mut table.unclosed) {
            one.process = self.owners.as_ref().and_then(|owners| owners.owner(one.inode));
        }
        let listeners = sockets
            .iter()
            .map(|socket| ListenerLook {
                address: socket.address,
                inode: socket.inode,
                process: self.owners.as_ref().and_then(|owners| owners.owner(socket.inode)),
                accept_queue_len: socket.accept_queue_len,
                accept_queue_limit: socket.accept_queue_limit,
                syn_queue_len: self.half_open.get(&socket.inode).copied(),
                drops: socket.drops,
            })
            .collect();
        Ok(Look {
            at_s: at.saturating_sub(self.began).as_secs_f64(),
            time,
            listeners,
            counters,
            counted,
            limits,
            table,
            cost: self.cost(),
        })
    }

    /// Dumps all sockets; gives the half-open requests of each of these listeners.
    ///
    /// Its time is that of the look, so that a look and its table have one time.
    fn dump(
        &mut self,
        look: Duration,
        sockets: &[ListenSocket],
    ) -> Result<Vec<Option<u32>>, SysError> {
        let (from, cpu_from_ns) = (now(), cpu::thread_cpu_ns());
        let mut builder = TableBuilder::new(sockets, &self.kept);
        let dumped = self.diag.connections(&States::all(), |socket| builder.add(socket));
        let read = dumped.map(|()| builder.finish());
        let until = now();
        // A dump that failed has cost its time too.
        let cpu_ns = cpu::thread_cpu_ns().saturating_sub(cpu_from_ns);
        self.pace.took(from, Duration::from_nanos(cpu_ns));
        let read = match read {
            Ok(read) => read,
            Err(error) => return Err(self.afresh(error)),
        };
        self.kept = read.kept;
        let close_wait = read.table.states.get(CLOSE_WAIT).copied().unwrap_or(0);
        let unclosed =
            if close_wait >= u64::from(MANY) { self.unclosed(sockets)? } else { Vec::new() };
        self.table = Some(SocketDump {
            at_s: look.saturating_sub(self.began).as_secs_f64(),
            took_s: until.saturating_sub(from).as_secs_f64(),
            unclosed,
            ..read.table
        });
        Ok(read.half_open)
    }

    /// Connections in CLOSE-WAIT, grouped, with their age.
    fn unclosed(&mut self, sockets: &[ListenSocket]) -> Result<Vec<Unclosed>, SysError> {
        let mut groups = UnclosedGroups::new(sockets.iter().map(|socket| socket.address.port()));
        let dumped = self.diag.unclosed(|connection, silence| groups.add(connection, silence));
        match dumped {
            Ok(()) => Ok(groups.finish()),
            Err(error) => Err(self.afresh(error)),
        }
    }

    /// A dump that was not read to its end leaves replies behind: the next look asks on a new socket.
    /// It is of the same namespace, as the thread has stayed there.
    fn afresh(&mut self, error: SysError) -> SysError {
        match SockDiag::open() {
            Ok(diag) => {
                self.diag = diag;
                error
            }
            Err(worse) => worse,
        }
    }

    /// What all reading has cost so far, and what else this process did meanwhile.
    pub fn cost(&self) -> LookCost {
        let cpu_ns = cpu::process_cpu_ns().saturating_sub(self.cpu_before_ns);
        let cpu = Duration::from_nanos(cpu_ns);
        let passed = now().saturating_sub(self.began).max(Duration::from_nanos(1));
        LookCost {
            cpu_s: cpu.as_secs_f64(),
            cpu_share: cpu.as_secs_f64() / passed.as_secs_f64(),
            resident_bytes: cpu::rss_bytes(),
            table_every_s: self.pace.every().as_secs_f64(),
        }
    }
}

/// Whether this process is root here. Its capabilities may still end at a user namespace, as in a container.
pub fn is_root() -> bool {
    uid() == 0
}

fn now() -> Duration {
    Duration::from_nanos(boottime_ns())
}

/// The memory of a watch that begins now: of this host, which may have been given any bytes for a name.
pub(crate) fn new_history() -> History {
    let host = std::fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
    let uptime_s = std::time::Duration::from_nanos(boottime_ns()).as_secs_f64();
    History::new(line(String::from_utf8_lossy(&host).trim()), uptime_s)
}

/// Watches one network namespace, and remembers the last minutes.
#[derive(Debug)]
pub struct Watch {
    reader: NamespaceReader,
    history: History,
}

impl Watch {
    /// As [`NamespaceReader::open`]: before any thread is started.
    pub fn open(options: &Options) -> Result<Self, SysError> {
        let reader = NamespaceReader::open(options)?;
        let netns = options.network.as_ref().map(|network| match network {
            Network::OfProcess(pid) => pid.to_string(),
            Network::At(file) => line(&file.to_string_lossy()),
        });
        Ok(Self { reader, history: new_history().of_namespace(netns) })
    }

    /// Looks once; gives what this look and the one before it say together.
    ///
    /// Errors: as [`NamespaceReader::look`]; the memory stays as it was.
    pub fn look(&mut self) -> Result<&State, SysError> {
        let look = self.reader.look()?;
        Ok(self.history.push(look))
    }

    /// As [`look`](Self::look), with a new table of all sockets whatever it costs.
    pub fn look_at_all(&mut self) -> Result<&State, SysError> {
        let look = self.reader.look_at_all()?;
        Ok(self.history.push(look))
    }

    /// The last minutes.
    pub fn history(&self) -> &History {
        &self.history
    }
}

/// Part of one CPU that reading the table may take, as its denominator. The looks between take up to 1.2 %
/// where there are 1,000 listeners, a record and metrics; all together must stay below 2 %.
const SHARE: u32 = 150;
/// Time between two tables where they are cheap.
const EVERY_MIN: Duration = Duration::from_secs(2);
/// Time between two tables, at most: an older one says little. From 0.4 s of CPU a table on, the share is
/// exceeded for that.
const EVERY_MAX: Duration = Duration::from_mins(1);

/// Decides when the next table is due, from the CPU time of the one before: 40 ms of it make 6 s.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// When the newest began, and the time until the next.
    newest: Option<(Duration, Duration)>,
}

impl Pace {
    /// Whether a table is due; the first is due at once.
    pub(super) fn is_due(self, now: Duration) -> bool {
        self.newest.is_none_or(|(began, every)| now >= began + every)
    }

    pub(super) fn took(&mut self, began: Duration, cpu: Duration) {
        self.newest = Some((began, cpu.saturating_mul(SHARE).clamp(EVERY_MIN, EVERY_MAX)));
    }

    pub(super) fn every(self) -> Duration {
        self.newest.map_or(EVERY_MIN, |(_, every)| every)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_so_seldom_that_it_takes_less_than_a_hundredth_of_a_cpu() {
        let ms = Duration::from_millis;
        let mut pace = Pace::default();
        assert!(pace.is_due(Duration::ZERO) && pace.every() == ms(2_000));
        for (cpu, every) in [(0, 2_000), (13, 2_000), (40, 6_000), (399, 59_850), (5_000, 60_000)] {
            pace.took(ms(1_000), ms(cpu));
            assert_eq!(pace.every(), ms(every));
            assert!(!pace.is_due(ms(1_000 + every - 1)) && pace.is_due(ms(1_000 + every)));
        }
    }
}
