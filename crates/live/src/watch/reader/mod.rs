//! Reads what `watch` shows of a live network namespace, within a budget of CPU and memory.
//!
//! A [`NamespaceReader`] reads and never writes. Each look reads listeners, counters and limits. The table of all
//! sockets costs the kernel a walk over its whole hash, so its interval grows with its cost
//! (`pace`). No privilege is needed; the owner of a socket is named where `/proc/PID/fd` may be read.

mod levels;
pub mod live;
mod owners;
mod pace;
mod pairs;
mod table;

use std::collections::HashMap;
use std::time::Duration;

use crate::watch::{ListenerLook, Look, LookCost, Table};
pub use tcptoll_kernel::SysError;
use tcptoll_kernel::cpu;
pub use tcptoll_kernel::namespace::Network;
use tcptoll_kernel::namespace::join_network;
use tcptoll_kernel::process::uid;
use tcptoll_kernel::sock_diag::{ListenSocket, SockDiag, States};
pub use tcptoll_kernel::terminal::{Keys, Modes, wait_for_keys};
use tcptoll_lab::clock::{boottime_ns, wall_clock};

pub use self::live::Watch;
pub(crate) use self::live::new_history;
use self::owners::Owners;
use self::pace::Pace;
use self::pairs::TopPairs;
use self::table::TableBuilder;

/// What is watched.
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
    table: Option<Table>,
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
        let counters = levels::counters()?;
        let counted = levels::counted();
        let limits = levels::limits();
        if all {
            let half_open = self.dump(at, &sockets)?;
            let inodes = sockets.iter().map(|socket| socket.inode);
            let known = |(inode, count): (u64, Option<u32>)| Some((inode, count?));
            self.half_open = inodes.zip(half_open).filter_map(known).collect();
        }
        if let Some(owners) = &mut self.owners {
            owners.look_up(at, sockets.iter().map(|socket| socket.inode));
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
            table: self.table.clone(),
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
        self.table = Some(Table {
            at_s: look.saturating_sub(self.began).as_secs_f64(),
            took_s: until.saturating_sub(from).as_secs_f64(),
            ..read.table
        });
        Ok(read.half_open)
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
