//! Orders that every host carries out: its settings, what there is to see of it, commands,
//! and programs that measure by themselves and report in lines of JSON (a JVM).

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tcptoll_core::record::{Listener, ListenerQueue};
use tcptoll_core::tcp::counters::{Counters, CpuTimes, Standstill};

use super::{Service, order};

/// Set sysctls of this host and read them back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SetSysctls(pub Vec<(String, String)>);

order!(SetSysctls => Vec<(String, String)>, "set-sysctls");

/// Read sysctls; the answer lacks those that the host does not have.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReadSysctls(pub Vec<String>);

order!(ReadSysctls => Vec<(String, String)>, "read-sysctls");

/// Report counters and sockets.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Observe;

order!(Observe => Snapshot, "observe");

/// Counters and sockets of a host at one moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// When, ns.
    pub at_ns: u64,
    /// `/proc/net/snmp`, `netstat` and `snmp6`.
    pub counters: Counters,
    /// `/proc/net/sockstat`.
    pub sockstat: BTreeMap<String, u64>,
    /// Listening sockets with the peak of their queues since the host began.
    pub listeners: Vec<Listener>,
    /// Drops of devices and of softnet (the latter of the whole machine).
    pub device_drops: u64,
    /// Softnet drops of the whole machine.
    pub softnet_drops: u64,
    /// CPU time of the machine, one element a CPU, ticks.
    pub cpu: Vec<CpuTimes>,
    /// CPU time of the processes the host started, µs: user, system.
    pub children_cpu_us: (u64, u64),
    /// Processes the host started that still run, and their descendants.
    pub children: u64,
    /// Memory of these, what they share counted once, bytes.
    pub children_memory_bytes: u64,
    /// Largest resident memory of this process, bytes.
    pub rss_peak_bytes: u64,
    /// `TCP_INFO` of up to 16 connections.
    pub connections: Vec<Vec<u8>>,
    /// What kept this process from running, since it began.
    #[serde(default)]
    pub standstill: Standstill,
}

/// Stop reading the queues of listening sockets between two [`Observe`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct LookAway;

order!(LookAway => (), "look-away");

/// Read the queue of the listener of this host that serves an address, again and again, and no other
/// listener's.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct WatchListener(pub SocketAddr);

order!(WatchListener => (), "watch-listener");

/// Record the queues of this host's listeners over time, from now on. A host that watches no listener by
/// itself records only what [`Observe`] sees.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct WatchQueues {
    /// One look of this number counts half-open requests too, which costs 0.4 ms of CPU; a look is made
    /// every 10 ms. 0: one of 50.
    pub half_open_every: u32,
}

order!(WatchQueues => (), "watch-queues");

/// Report what was recorded of one listener, by its number in the order in which they were first seen;
/// nothing beyond the last. One at a time: an answer has a limit.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ReadQueue(pub usize);

order!(ReadQueue => Option<ListenerQueue>, "read-queue");

/// Forget the peaks of the listening sockets' queues so far.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Forget;

order!(Forget => (), "forget");

/// Wait until no connection of this host is still being closed.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Settle {
    /// At most this long, ns.
    pub limit_ns: u64,
}

order!(Settle => (), "settle");

/// Report the CPU time of the machine, one element a CPU, ticks, and nothing that costs CPU.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ReadCpu;

order!(ReadCpu => Vec<CpuTimes>, "read-cpu");

/// Report how much memory the kernel holds for open connections.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ReadSocketMemory;

order!(ReadSocketMemory => SocketMemory, "read-socket-memory");

/// Memory that the kernel holds for open connections.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SocketMemory {
    /// Established connections of the host.
    pub sockets: u64,
    /// Of one of them, bytes: buffers, their reserves and structures; absent where this user may not
    /// read how large these are.
    pub bytes_each: Option<f64>,
}

/// Start a server: a command that must listen on a TCP port.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Launch {
    /// The words of the command.
    pub words: Vec<String>,
    /// Whether the one word there is is a line for the shell.
    pub shell: bool,
    /// Variables to set.
    pub environment: Vec<(String, String)>,
    /// Start it as an ordinary user of a nested user namespace.
    pub ordinary_user: bool,
}

// Where it listens.
order!(Launch => SocketAddr, "launch");

/// Run a command with this host's standard streams until it ends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run(pub Launch);

// Its exit status, 128 + signal if a signal ended it.
order!(Run => i32, "run");

/// The next piece of a long text that the following order refers to, at most
/// [`UPLOAD_MAX`](super::UPLOAD_MAX) bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Upload(pub String);

order!(Upload => (), "upload");

impl Upload {
    /// A text in pieces that fit messages.
    pub fn pieces(text: &str) -> Vec<Self> {
        pieces(text, super::UPLOAD_MAX).into_iter().map(|piece| Self(piece.to_owned())).collect()
    }
}

/// Cuts a text into pieces of at most so many bytes, between characters.
fn pieces(text: &str, most: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.floor_char_boundary(most);
        // A character is never longer than a piece; this only keeps the loop finite.
        let (piece, tail) = rest.split_at(if end == 0 { rest.len() } else { end });
        pieces.push(piece);
        rest = tail;
    }
    pieces
}

/// Start a program that prints a line of JSON when it is ready, and another with its result when it ends.
///
/// It ends by itself, or is killed when it is stopped, when its time is up, or with the host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Perform {
    /// The program. Its standard output is read, at most 32 KiB; an error quotes the end of its
    /// standard error.
    pub launch: Launch,
    /// Debian's package of the program, for the error where it is not installed.
    pub package: String,
    /// Files to write into the folder in which it runs, before it starts: name and content.
    pub files: Vec<(String, String)>,
    /// It is killed if it is not ready within this, ns.
    pub ready_limit_ns: u64,
    /// It is killed if it has not ended within this after it was ready, ns.
    pub end_limit_ns: u64,
}

order!(Perform => Performed, "perform");

impl Service for Perform {
    /// Its first line.
    type Started = Value;
}

/// What came of a [`Perform`]. A program that fails, or prints no result, is a refusal instead.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Performed {
    /// Its last line; absent: it was stopped before its end.
    pub result: Option<Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(pieces("aäöü", 3), ["aä", "ö", "ü"]);
        assert!(pieces("", 3).is_empty());
        let long = "€".repeat(1000);
        assert_eq!(pieces(&long, 100).concat(), long);
        assert!(pieces(&long, 100).iter().all(|piece| piece.len() <= 100));
    }
}
