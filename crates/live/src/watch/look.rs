//! What one look at a network namespace reads.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use tcptoll_core::tcp::counters::Counters;

/// Levels and counters of one network namespace at one instant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Look {
    /// Time since the watch began, s, of a clock that goes on while the machine is suspended
    /// (`CLOCK_BOOTTIME`). Later looks have later times.
    pub at_s: f64,
    /// Wall-clock time, RFC 3339.
    pub time: String,
    /// Listeners, in the kernel's order.
    pub listeners: Vec<ListenerLook>,
    /// Counters of `/proc/net/snmp` and `netstat` since the namespace began, by the kernel's names.
    pub counters: Counters,
    /// Levels now.
    pub counted: Counted,
    /// Limits now.
    pub limits: Limits,
    /// All sockets by state and destination, from the newest dump. It may be older than the look.
    /// None: none was made yet.
    pub table: Option<SocketDump>,
    /// What the look cost.
    pub cost: LookCost,
}

/// A listener at one look.
#[derive(Clone, Debug, PartialEq)]
pub struct ListenerLook {
    /// What it is bound to.
    pub address: SocketAddr,
    /// Inode of the socket: a listener that was made anew has another. Its counts begin again.
    pub inode: u64,
    /// Its process, where it may be read.
    pub process: Option<Process>,
    /// Connections that wait for `accept(2)`.
    pub accept_queue_len: u32,
    /// The backlog after the clamp to `somaxconn`; the queue holds one more.
    pub accept_queue_limit: u32,
    /// Half-open requests (SYN-RECEIVED) at the newest dump of all sockets, as old as [`Look::table`].
    /// None: the listener is newer, or it is one of several with its address.
    pub syn_queue_len: Option<u32>,
    /// `sk_drops` of `sock_diag`, modulo 2^32. None: the kernel does not report it.
    pub drops: Option<u32>,
}

/// The process that owns a socket. Its name may be hostile: it is cleaned before it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Process {
    /// Process id, as this process sees it.
    pub pid: u32,
    /// `/proc/PID/comm`.
    pub name: String,
}

/// Levels of a namespace now. Absent: the kernel does not report it, or it may not be read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Counted {
    /// TCP sockets in use (`TCP_inuse` and `TCP6_inuse` of sockstat).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sockets: Option<u64>,
    /// Sockets in TIME-WAIT (`TCP_tw`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_wait: Option<u64>,
    /// Connections without a process (`TCP_orphan`), of the whole machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orphans: Option<u64>,
    /// TCP memory of the whole machine, bytes (`TCP_mem`, in pages there).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Tracked connections (`net.netfilter.nf_conntrack_count`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracked: Option<u64>,
}

/// Limits of a namespace, from sysctls. Absent: not readable here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Limits {
    /// `net.core.somaxconn`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub somaxconn: Option<u32>,
    /// `net.ipv4.tcp_max_syn_backlog`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_syn_backlog: Option<u32>,
    /// `net.ipv4.tcp_syncookies`: 0, 1 or 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub syncookies: Option<u32>,
    /// Local ports that connect(2) may choose, without the reserved ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_ports: Option<u32>,
    /// `net.ipv4.tcp_tw_reuse`: 0, 1 or 2 (loopback only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tw_reuse: Option<u32>,
    /// `net.ipv4.tcp_max_tw_buckets`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tw_buckets: Option<u64>,
    /// `net.ipv4.tcp_max_orphans`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_orphans: Option<u64>,
    /// The third figure of `net.ipv4.tcp_mem`, bytes: beyond it the kernel refuses memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_max_bytes: Option<u64>,
    /// The second figure of `net.ipv4.tcp_mem`, bytes: from it on the kernel saves memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_pressure_bytes: Option<u64>,
    /// `net.netfilter.nf_conntrack_max`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracked_max: Option<u64>,
}

impl Limits {
    /// Whether connect(2) may take a local port that is in TIME-WAIT to this address (after 1 s, where both
    /// ends have TCP timestamps).
    pub(crate) fn reuses_time_wait(&self, to: std::net::IpAddr) -> bool {
        self.tw_reuse == Some(1) || (self.tw_reuse == Some(2) && to.is_loopback())
    }
}

/// All sockets of the namespace but listeners, from one dump.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SocketDump {
    /// When the dump began, on the clock of [`Look::at_s`].
    pub at_s: f64,
    /// How long it took, s.
    pub took_s: f64,
    /// Sockets by state, in the words of RFC 9293: `ESTABLISHED`, `TIME-WAIT`, `SYN-RECEIVED` …
    pub states: BTreeMap<String, u64>,
    /// Destinations with the most local ports in use, descending, at most [`DESTINATIONS_MAX`].
    pub destinations: Vec<Destination>,
    /// Destinations that there was no room for.
    pub destinations_left_out: u64,
    /// Connections that the peer has closed and a program here has not, those with the most first.
    pub unclosed: Vec<Unclosed>,
}

/// Groups of unclosed connections that a table keeps, at most.
pub(super) const UNCLOSED_MAX: usize = 16;

/// Connections in CLOSE-WAIT of one listening port, or to one destination.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Unclosed {
    /// `port 8080`, or the remote address and port where this host opened them.
    pub on: String,
    /// The process of the oldest; absent where it may not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<Process>,
    /// Connections.
    pub connections: u32,
    /// Of those, closed by the peer a minute ago or earlier.
    pub minute_old: u32,
    /// Time since the last packet came, s: the longest of them. The peer closed no later.
    pub oldest_s: f64,
    /// Inode of the oldest.
    #[serde(skip)]
    pub inode: u64,
}

/// Destinations that a table keeps, at most.
pub const DESTINATIONS_MAX: usize = 64;

/// A remote address and port that this host opened connections to.
///
/// A connection counts here if its local port is no listener's: then this host opened it.
#[derive(Clone, Debug, PartialEq)]
pub struct Destination {
    /// Remote address and port; mapped IPv4 as IPv4.
    pub to: SocketAddr,
    /// Local addresses that connections to it use.
    pub sources: u32,
    /// Local ports in use from the source that uses the most, in any state.
    pub ports_in_use: u32,
    /// Of those, in TIME-WAIT.
    pub time_wait: u32,
    /// Sockets in SYN-SENT, from all sources.
    pub syn_sent: u32,
    /// Whether it is this machine: its address is loopback, or a connection to it comes from the same
    /// address.
    pub here: bool,
}

/// What a look cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LookCost {
    /// CPU time of the watching process since it began, s.
    pub cpu_s: f64,
    /// Its share of one CPU since it began, 0 to 1.
    pub cpu_share: f64,
    /// Its resident memory, bytes.
    pub resident_bytes: u64,
    /// Time between two dumps of all sockets, s. It grows with the table.
    pub table_every_s: f64,
}
