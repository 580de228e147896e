//! What the parent asks of a host, and what a host answers.

mod http;
mod idle;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use tcptoll_model::counters::{Counters, CpuTimes};
use tcptoll_model::handshake::{ClientRow, ServerRow, WireRow};
use tcptoll_model::record::{Listener, Series};
use tcptoll_model::stats::Histogram;
use tcptoll_model::wire::Wire;

pub use http::{
    ClosedSockets, CountClosed, HttpLoad, HttpReport, HttpRequests, Io, Rates, ServerKind,
    ServerSpec, Serving, TlsLoad, UPLOAD_MAX,
};
pub use idle::{Check, IdleAnswer, IdleOrder, IdleReport, IdleSpec, Lazy};

/// What the parent asks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Ask {
    /// Set sysctls of this host and read them back.
    Sysctls(Vec<(String, String)>),
    /// Read sysctls.
    ReadSysctls(Vec<String>),
    /// Look at counters and sockets.
    Observe,
    /// Look at the queues of listening sockets no more, unless asked to observe.
    LookAway,
    /// Look at the queue of the listener of this host that serves an address, again and again, and at
    /// no other listener.
    WatchListener(SocketAddr),
    /// Forget the peaks of the listening sockets' queues so far.
    Forget,
    /// Wait until no connection of this host is still being closed.
    Settle {
        /// At most so long, ns.
        limit_ns: u64,
    },
    /// Count the sockets of closed connections to one server.
    CountClosed(CountClosed),
    /// Send ICMP echo requests.
    Ping(Ping),
    /// Receive datagrams until [`Ask::Stop`]; answers [`Tell::Listening`] first.
    Sink {
        /// Address to bind to.
        at: IpAddr,
    },
    /// Send datagrams.
    Train(Train),
    /// Greet each connection with one byte until [`Ask::Stop`]; answers [`Tell::Listening`] first.
    Greet(Greet),
    /// Start a real server, and tell where it listens.
    Launch(Launch),
    /// Start one of the servers that are known by name.
    Serve(Box<ServerSpec>),
    /// The next piece of a long text that the following order refers to, at most
    /// [`UPLOAD_MAX`] bytes.
    Upload(String),
    /// Send HTTP requests: those uploaded before, the JSON of an [`HttpRequests`].
    Http(Box<HttpLoad>),
    /// Open connections.
    Connect(Box<ConnectLoad>),
    /// Run a command with this host's standard streams and tell its exit status.
    Run(Launch),
    /// Begin to count packets, or (on a direct link) open taps first.
    Watch(Watch),
    /// Tell what was counted since [`Ask::Watch`], and write no more packets to a file.
    Counted,
    /// Tell what the emulated link has counted so far.
    Peek,
    /// Take packets that woke the link up for this much earlier, ns; and draw losses anew.
    Calibrate {
        /// How long waking up takes.
        early_ns: u64,
    },
    /// Packets of connections to these ports are lost from now on with this probability, each way.
    Strike {
        /// Ports of the server host.
        ports: Vec<u16>,
        /// Probability: 1 cuts them off, 0 ends it.
        share: f64,
    },
    /// An order to a group of connections that stay open.
    Idle {
        /// The group's name, of the parent's choice.
        group: String,
        /// The order.
        ask: Box<IdleOrder>,
    },
    /// How much memory the kernel holds for open connections.
    SocketMemory,
    /// Tell the CPU time of the machine, and nothing that costs CPU to tell.
    Cpu,
    /// End what is running and tell what it has.
    Stop,
}

/// What a host answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Tell {
    /// The host is there.
    Ready(Box<Ready>),
    /// Done, nothing to say.
    Done,
    /// It cannot be done; a sentence for the user.
    Failed(String),
    /// Sysctls as read back.
    Sysctls(Vec<(String, String)>),
    /// Counters and sockets.
    Snapshot(Box<Snapshot>),
    /// Sockets of closed connections.
    ClosedSockets(ClosedSockets),
    /// Echo round trips, ns, in the order they came back.
    Echoes(Vec<u64>),
    /// A port is open.
    Listening {
        /// Where.
        at: SocketAddr,
    },
    /// Datagrams received.
    Arrivals(Arrivals),
    /// Datagrams sent.
    Sent {
        /// How many.
        packets: u64,
    },
    /// How far a load has come; may come any number of times.
    Progress {
        /// Operations finished.
        done: u64,
    },
    /// Rows of a trace; come before the report they belong to.
    Rows(Rows),
    /// A load's result.
    Connected(Box<ConnectReport>),
    /// A known server answers.
    Serving(Box<Serving>),
    /// A distribution of the load's result; comes before it.
    Histogram {
        /// As in the record, without unit: `latency`.
        name: String,
        /// The distribution.
        histogram: Box<Histogram>,
    },
    /// An HTTP load's result.
    Requested(Box<HttpReport>),
    /// The greeting server's result.
    Greeted(Box<GreetReport>),
    /// What the link counted.
    Counted(Box<Counted>),
    /// When packets began to be lost, ns on the monotonic clock.
    Struck {
        /// When.
        at_ns: u64,
    },
    /// A group's answer.
    Idle(Box<IdleAnswer>),
    /// CPU time of the machine, one element a CPU, ticks.
    Cpu(Vec<CpuTimes>),
    /// Connections, and kernel memory of each, bytes: buffers, their reserves and structures;
    /// absent where this user may not read how large these are.
    SocketMemory {
        /// Established connections of the host.
        sockets: u64,
        /// Of one of them.
        bytes_each: Option<f64>,
    },
    /// The command ended.
    Exited {
        /// Its exit status, 128 + signal if it was killed.
        status: i32,
    },
}

/// Part of a trace.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Rows {
    /// Seen by the client's program.
    Client(Vec<ClientRow>),
    /// Seen by the server's program.
    Server(Vec<ServerRow>),
    /// Seen on the wire.
    Wire(Vec<WireRow>),
}

/// What a host says of itself at the start.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Ready {
    /// CPU it was pinned to.
    pub pinned_cpu: Option<u32>,
    /// The link process: how packets are carried.
    pub packet_fallback: bool,
}

/// Round trips that fit one message.
pub const PING_MAX: u16 = 4_000;

/// ICMP echo requests, evenly spread; several may be on their way at once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ping {
    /// To whom.
    pub target: IpAddr,
    /// How many, at most [`PING_MAX`].
    pub count: u16,
    /// Time between two requests, ns.
    pub interval_ns: u64,
    /// An answer that takes longer than this, ns, is lost.
    pub limit_ns: u64,
}

/// A train of datagrams.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Train {
    /// To whom.
    pub target: SocketAddr,
    /// How many.
    pub packets: u64,
    /// Bytes of payload.
    pub payload: usize,
    /// Time between two, ns; 0: as fast as they go.
    pub interval_ns: u64,
    /// Hand several to the kernel at once, which cuts them behind the link's queue.
    pub together: bool,
}

/// Datagrams received.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Arrivals {
    /// How many.
    pub packets: u64,
    /// How many the socket had no room for, of this host in all.
    pub no_room: u64,
    /// How many of them arrived in `steady_ns`.
    pub steady_packets: u64,
    /// How many were sent between the first and the last of these, by their numbers: what the
    /// receiving socket had no room for has crossed the wire all the same.
    pub steady_span: u64,
    /// From the end of the first fifth to the last, ns: the steady state.
    pub steady_ns: u64,
}

/// The in-house server: greets with one byte, and closes when the client has closed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Greet {
    /// Where to listen; port 0 lets the kernel choose.
    pub at: SocketAddr,
    /// The argument of `listen(2)`.
    pub backlog: i32,
    /// Time the server works before each `accept(2)`, ns.
    pub accept_delay_ns: u64,
    /// Greet with one byte.
    pub speak: bool,
    /// Accept data with the SYN.
    pub fast_open: bool,
    /// Most accepts to remember for the timeline.
    pub trace_limit: usize,
}

/// A command to start.
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

/// Connections to open.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConnectLoad {
    /// To whom.
    pub target: SocketAddr,
    /// How many in all.
    pub count: u64,
    /// How many at once, at most.
    pub concurrency: u64,
    /// Connections begun per second; absent: closed loop.
    pub rate_per_s: Option<f64>,
    /// No operation begins after this long, ns; absent: `count` alone ends the load.
    pub duration_ns: Option<u64>,
    /// Pause after so many.
    pub pause_every: Option<u64>,
    /// Length of the pause, ns.
    pub pause_ns: u64,
    /// The first `concurrency` connections are begun evenly over this time, ns.
    pub ramp_ns: u64,
    /// From start to end of one operation, ns.
    pub timeout_ns: u64,
    /// Source addresses, taken in turn.
    pub bind: Vec<IpAddr>,
    /// Send the request with the SYN.
    pub fast_open: bool,
    /// Congestion control.
    pub congestion: Option<String>,
    /// Bytes to send once connected.
    pub send: Vec<u8>,
    /// Wait for the server's first byte before closing.
    pub first_byte: bool,
    /// Times at which the kernel sends a SYN again, ns after the first.
    pub ladder_ns: Vec<u64>,
    /// A handshake stands on a rung if it took at most this longer, ns.
    pub ladder_slack_ns: u64,
    /// Most operations to remember for the timeline.
    pub trace_limit: usize,
}

/// What came of a [`ConnectLoad`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ConnectReport {
    /// Operations begun.
    pub attempts: u64,
    /// Operations that succeeded.
    pub ok: u64,
    /// Operations that failed, by class.
    pub errors: BTreeMap<String, u64>,
    /// The first error of each class, in the kernel's words.
    pub first_errors: BTreeMap<String, String>,
    /// Handshakes that were completed, as the client saw it.
    pub established: u64,
    /// From when it was due to established, of operations that succeeded.
    pub connect: Histogram,
    /// The same of operations that failed after their handshake.
    pub connect_of_failed: Histogram,
    /// From when it was due to the first byte.
    pub first_byte: Histogram,
    /// From when it was due to begun.
    pub lateness: Histogram,
    /// Completed handshakes by rung of the retry ladder they stand on, of operations that failed
    /// afterwards too.
    pub rungs: Vec<u64>,
    /// Connect latency of operations that succeeded over time, µs.
    pub series: Series,
    /// CPU time of the client's thread, µs: user, system.
    pub cpu_us: (u64, u64),
    /// From the first operation to the end of the last, ns.
    pub elapsed_ns: u64,
    /// Of that, pauses asked for, ns.
    pub paused_ns: u64,
    /// Closed loop: from when the last of the first `concurrency` operations began to when the
    /// last of all did, without pauses, ns: the time in which all slots were to be filled.
    pub full_ns: u64,
    /// Time that operations, successful or not, took within that, each from before `socket(2)` to
    /// after `close(2)`, added up, ns: divided by `full_ns` the mean number at once.
    pub busy_ns: u64,
    /// Length of the steady part without pauses, ns: closed loop `full_ns`, open loop the planned
    /// time; 0: there was none.
    pub steady_ns: u64,
    /// Operations that succeeded within it.
    pub steady_ok: u64,
    /// Open loop: operations in progress at its end.
    pub unfinished: u64,
    /// `TCP_INFO` of a connection near the end.
    pub tcp_info: Vec<u8>,
    /// Congestion control in use.
    pub congestion: String,
    /// Whether it was stopped before its end.
    pub partial: bool,
}

/// What came of a [`Greet`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct GreetReport {
    /// Connections accepted.
    pub accepted: u64,
    /// `accept(2)` failures, by errno name.
    pub errors: BTreeMap<String, u64>,
    /// CPU time of the server's thread, µs: user, system.
    pub cpu_us: (u64, u64),
}

/// What to watch on the link.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Watch {
    /// On a direct link or loopback: open packet taps. The emulated link sees everything anyway.
    pub tap: bool,
    /// Most handshakes to trace.
    pub trace_limit: usize,
    /// Write pcapng here.
    pub pcap: Option<String>,
    /// Ports of the server host whose connections idle: packets of these are counted apart.
    pub quiet_ports: Vec<u16>,
}

/// What the link saw.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Counted {
    /// Packets by kind; absent if nothing watched.
    pub wire: Option<Wire>,
    /// How late packets were released, ns.
    pub lateness: Histogram,
    /// Packets lost in the lab's own queues.
    pub unwanted_drops: u64,
    /// CPU time of the link process, µs.
    pub cpu_us: u64,
    /// The longest time by which the emulator woke up later than it had asked to, ns.
    #[serde(default)]
    pub overslept_ns: u64,
    /// Why the capture file is not whole, if it is not.
    pub pcap_error: Option<String>,
}

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
}
