//! Orders to groups of connections that stay open: fleets.
//!
//! A fleet is a group of processes of one host, as many as the limit of open files asks for, each
//! with its share of the connections. The host hands every order to all of them ([`ToGroup`]) and
//! puts their answers together ([`GroupAnswer`]).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use tcptoll_core::stats::Histogram;
use tcptoll_core::tcp::checking::Checking;

use super::{Began, Order, order};

/// A group of connections, by its part of the work.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum IdleSpec {
    /// Accepts connections and reads from them.
    Listen {
        /// Where; connections are told apart by the place of their port in this list.
        at: Vec<SocketAddr>,
        /// Connections that it must hold.
        sockets: u64,
        /// Greet each with a Null message.
        greet: bool,
        /// Other processes listen on the same ports.
        shared: bool,
    },
    /// Opens connections, and reads from them.
    Connect {
        /// So many to each; told apart by the place in this list.
        to: Vec<(SocketAddr, u64)>,
        /// Source addresses, taken in turn.
        bind: Vec<IpAddr>,
        /// Begun per second; absent: all, a few at once.
        rate_per_s: Option<f64>,
        /// Congestion control.
        congestion: Option<String>,
    },
    /// Writes messages over one connection, without pause or so many per second.
    Write {
        /// To whom.
        to: SocketAddr,
        /// Bytes of a message.
        message_bytes: u64,
        /// Messages per second; absent: without pause.
        rate_per_s: Option<f64>,
        /// Further connections that idle, and to whom: before each message `select(2)` is asked
        /// about all of them. Absent: the program waits for its one socket alone.
        select: Option<(SocketAddr, u64)>,
        /// Congestion control.
        congestion: Option<String>,
    },
}

/// Make the processes of a group. Answered when all connections have been opened, unless they have a
/// rate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Make(pub IdleSpec);

order!(Make => Made, "make");

/// The processes of a group are there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// Where they listen; [`IdleSpec::Listen`] only.
    pub listening: Vec<SocketAddr>,
    /// When the first connection was begun, on the monotonic clock, ns.
    pub at_ns: u64,
}

order!(Check => Began, "check");

/// From this moment on connections of the second kind may die.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Faulted {
    /// On the monotonic clock, ns.
    pub at_ns: u64,
}

order!(Faulted => Began, "faulted");

/// Reset every connection, or close it in order.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Leave {
    /// With a RST, not with a FIN.
    pub reset: bool,
}

order!(Leave => Began, "leave");

/// Report what has happened so far.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Look;

order!(Look => IdleReport, "look");

/// Stop checking.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Rest;

order!(Rest => Began, "rest");

/// Stop every process of the group where it is; the host does it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Freeze;

order!(Freeze => Began, "freeze");

/// End every process of the group; the host does it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct End;

order!(End => Began, "end");

/// An order to a group of connections of a host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ToGroup<O> {
    /// The group's name, of the parent's choice.
    pub group: String,
    /// The order.
    pub order: O,
}

impl<O: Order> Order for ToGroup<O> {
    type Answer = O::Answer;
    const NAME: &'static str = O::NAME;
}

/// An answer that every process of a group gives.
pub trait GroupAnswer: Sized {
    /// Adds another process's answer.
    fn join(&mut self, other: Self);

    /// The answer of a group whose processes have been stopped where they are, given at a moment of
    /// the monotonic clock, ns.
    fn of_frozen(at_ns: u64) -> Self;
}

impl GroupAnswer for Began {
    fn join(&mut self, other: Self) {
        self.at_ns = self.at_ns.min(other.at_ns);
    }

    fn of_frozen(at_ns: u64) -> Self {
        Self { at_ns }
    }
}

impl GroupAnswer for Made {
    /// Further processes listen on the ports of the first.
    fn join(&mut self, other: Self) {
        self.at_ns = self.at_ns.min(other.at_ns);
    }

    fn of_frozen(at_ns: u64) -> Self {
        Self { listening: Vec::new(), at_ns }
    }
}

/// How idle connections are to be checked; by default not at all.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Check {
    /// How.
    pub checking: Checking,
    /// Their checks are spread evenly over this time, ns.
    pub spread_ns: u64,
    /// Only those of the second kind.
    pub second_only: bool,
    /// Null message of the protocol; empty: that of the library's framing.
    pub null: Vec<u8>,
    /// How one process makes room, where it is lazy.
    pub lazy: Lazy,
}

/// How one process of a fleet makes room for connections that arrive.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Lazy {
    /// Connections it holds at most.
    pub most: u64,
    /// Only those that have been unused for so long are tested, ns; absent: all.
    pub unused_for_ns: Option<u64>,
    /// Every one is tested; else no more than it takes to fall below `most`.
    pub whole_set: bool,
    /// Connections under test at any moment.
    pub at_once: u64,
    /// The oldest first; else the least recently used.
    pub by_age: bool,
}

/// What has happened in a fleet since it came into being.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct IdleReport {
    /// When this was told, ns on the monotonic clock.
    pub at_ns: u64,
    /// Processes that told it.
    pub processes: u64,
    /// Connections begun (`Connect`, `Write`) or accepted (`Listen`).
    pub attempted: u64,
    /// Connections that were made.
    pub made: u64,
    /// Connections that were not made, by class; `Listen`: accepts that failed.
    pub errors: BTreeMap<String, u64>,
    /// Connections open now, of each kind.
    pub open: [u64; 2],
    /// Connections that ended, of each kind, by how that was known.
    pub ended: [BTreeMap<String, u64>; 2],
    /// Connections of the second kind: from [`Faulted`] to knowing it.
    pub detection: Histogram,
    /// What `read(2)` said on connections that showed no evidence of life.
    pub read_said: BTreeMap<String, u64>,
    /// Null messages sent.
    pub nulls: u64,
    /// Null messages sent in answer.
    pub answers: u64,
    /// Times that the process woke up.
    pub wakeups: u64,
    /// The longest time by which it woke up later than it had asked to, ns.
    pub overslept_ns: u64,
    /// Since [`Faulted`], the longest time from when it had asked to be woken to when all
    /// was done that was due then, ns.
    pub behind_ns: u64,
    /// From the beginning of a connection to its first byte; only where they have a rate.
    pub arrival: Histogram,
    /// Connections that waited in the backlog because there was no room.
    pub no_room: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written and acknowledged (`tcpi_bytes_acked`); `Write` only.
    pub bytes_acked: u64,
    /// `TCP_INFO` of a connection.
    pub tcp_info: Vec<u8>,
    /// Congestion control in use.
    pub congestion: String,
    /// CPU time of the processes, µs: user, system.
    pub cpu_us: (u64, u64),
    /// Resident memory that connections added, bytes.
    pub resident_bytes: u64,
}

impl IdleReport {
    /// Connections of a kind that ended.
    pub fn ended(&self, kind: usize) -> u64 {
        self.ended[kind].values().sum()
    }

    /// Of these, connections that this side gave up; the others the peer closed or reset.
    pub fn given_up(&self, kind: usize) -> u64 {
        let by_peer = |how: &str| matches!(how, "read returned 0" | "ECONNRESET" | "EPIPE");
        self.ended[kind].iter().filter(|(how, _)| !by_peer(how)).map(|(_, count)| count).sum()
    }

    /// CPU time used since `before`, µs: user, system.
    pub fn cpu_since(&self, before: &Self) -> (u64, u64) {
        let (user, system) = before.cpu_us;
        (self.cpu_us.0.saturating_sub(user), self.cpu_us.1.saturating_sub(system))
    }

    /// Adds the report of another process, or of another group.
    pub fn add(&mut self, other: Self) {
        let sum = |into: &mut BTreeMap<String, u64>, from: BTreeMap<String, u64>| {
            for (name, count) in from {
                *into.entry(name).or_default() += count;
            }
        };
        self.at_ns = self.at_ns.max(other.at_ns);
        self.processes += other.processes;
        self.attempted += other.attempted;
        self.made += other.made;
        sum(&mut self.errors, other.errors);
        for (into, from) in self.open.iter_mut().zip(other.open) {
            *into += from;
        }
        for (into, from) in self.ended.iter_mut().zip(other.ended) {
            sum(into, from);
        }
        self.detection.merge(&other.detection);
        sum(&mut self.read_said, other.read_said);
        self.nulls += other.nulls;
        self.answers += other.answers;
        self.wakeups += other.wakeups;
        self.overslept_ns = self.overslept_ns.max(other.overslept_ns);
        self.behind_ns = self.behind_ns.max(other.behind_ns);
        self.arrival.merge(&other.arrival);
        self.no_room += other.no_room;
        self.bytes_read += other.bytes_read;
        self.bytes_acked += other.bytes_acked;
        if self.tcp_info.is_empty() {
            self.tcp_info = other.tcp_info;
            self.congestion = other.congestion;
        }
        self.cpu_us.0 += other.cpu_us.0;
        self.cpu_us.1 += other.cpu_us.1;
        self.resident_bytes += other.resident_bytes;
    }
}

impl GroupAnswer for IdleReport {
    fn join(&mut self, other: Self) {
        self.add(other);
    }

    fn of_frozen(_: u64) -> Self {
        Self::default()
    }
}
