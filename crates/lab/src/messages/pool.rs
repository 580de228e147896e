//! A front service with blocking workers, its backend, the backend's stall, and what its status page
//! reports. All of it exists in hosts of the lab only.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
pub use tcptoll_core::http::server::{BackendKind, Connection, FrontKind};

use super::{Began, Service, order};

/// Most samples in one answer to [`TakeWorkers`], so that it fits a message.
pub const SAMPLES_MAX: usize = 400;

/// Start a backend and wait until it answers. An order for the server host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BackendSpec {
    /// Which.
    pub kind: BackendKind,
    /// Where to listen. The port is not 0.
    pub at: SocketAddr,
    /// The argument of listen(2). The kernel clamps it to `net.core.somaxconn`.
    pub backlog: u64,
}

order!(BackendSpec => BackendServing, "start-backend");

/// A backend that answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BackendServing {
    /// Where.
    pub at: SocketAddr,
    /// What it reports of itself.
    pub version: String,
    /// Its command line, for the record.
    pub configuration: String,
    /// Effective backlog of its listener, as the kernel reports it. The queue holds one more.
    pub limit: u32,
    /// From its start until its first answer, ns.
    pub ready_ns: u64,
}

/// Start a front service and wait until it answers. An order for the client host: the front service
/// is the TCP client of the backend.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FrontSpec {
    /// Which.
    pub kind: FrontKind,
    /// Where to listen: an address of the client host. The port is not 0.
    pub at: SocketAddr,
    /// Blocking workers, each with one request at a time.
    pub workers: u64,
    /// The argument of listen(2), of nginx and of PHP-FPM alike. Absent: 4096 for our own front
    /// service, the default of each for the others (511).
    pub backlog: Option<u64>,
    /// Connections from clients that it must hold concurrently, waiting ones included.
    pub connections: u64,
    /// Address of the backend.
    pub backend: SocketAddr,
    /// Kind of the backend.
    pub backend_kind: BackendKind,
    /// Connections to the backend.
    pub connection: Connection,
    /// Limit of one connect(2), ns. Absent: the kernel gives up after `net.ipv4.tcp_syn_retries`.
    pub connect_timeout_ns: Option<u64>,
    /// Limit of one answer of the backend after the connection is made, ns.
    pub timeout_ns: u64,
    /// Further attempts after one that failed.
    pub retries: u64,
    /// Pause before the first retry, ns. Each further pause is twice as long. 0: no pause.
    pub backoff_ns: u64,
    /// Each pause is drawn evenly from 0 to its full length.
    pub jitter: bool,
    /// A value of the backend is answered from a local cache for this time, ns. One worker refreshes
    /// an expired value; until it has succeeded, all others answer the expired value. Absent: no
    /// cache.
    pub cache_ns: Option<u64>,
    /// CPU time of each request, ns, spent before the backend is asked.
    pub work_ns: u64,
    /// Seed of the jitter of our own front service. PHP has a generator of its own.
    pub seed: u64,
}

order!(FrontSpec => FrontServing, "start-front");

/// A front service that answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FrontServing {
    /// Where.
    pub at: SocketAddr,
    /// What it reports of itself.
    pub version: String,
    /// Path of a request that needs the backend.
    pub backend_path: String,
    /// Path of a request that does not.
    pub local_path: String,
    /// How it was started, and the text of its configuration: for the record.
    pub configuration: String,
    /// From its start until its first answer, ns.
    pub ready_ns: u64,
}

/// Stop the processes of the backend for a while (SIGSTOP, SIGCONT). An order for the server host,
/// carried out while the client host runs its load.
///
/// The kernel still makes connections for a stopped backend, until its accept queue is full.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Stall {
    /// From the order to the stop, ns.
    pub after_ns: u64,
    /// From the stop to the continuation, ns.
    pub for_ns: u64,
}

order!(Stall => Stalled, "stall-backend");

impl Service for Stall {
    /// When its time began to run.
    type Started = Began;
}

/// What came of a [`Stall`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Stalled {
    /// When all processes of the backend were seen to be stopped, ns on the monotonic clock. Absent:
    /// the order was stopped before that.
    pub from_ns: Option<u64>,
    /// When they were continued, ns.
    pub until_ns: Option<u64>,
    /// Processes that were stopped.
    pub processes: u64,
    /// Whether the order was stopped before its end. The backend was continued then.
    pub partial: bool,
}

/// Read the status page of the front service again and again, from now on. An order for the client
/// host.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct WatchWorkers {
    /// Time between two readings, ns; at least 1 ms.
    pub every_ns: u64,
    /// Also read the memory of the server's processes, about once a second. None: do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<WatchMemory>,
}

/// How the memory of a server is watched.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct WatchMemory {
    /// Above this limit the largest process is killed, as the kernel would do. The first process of a server,
    /// which starts the others, is spared. None: nothing is killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
}

order!(WatchWorkers => (), "watch-workers");

/// Report what [`WatchWorkers`] saw. The first such order ends the readings. An order for the client
/// host.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct TakeWorkers {
    /// Number of the first sample to report, from 0.
    pub from: u64,
}

order!(TakeWorkers => WorkersSeen, "take-workers");

/// What the status page of the front service reported.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WorkersSeen {
    /// Samples, ascending in time, at most [`SAMPLES_MAX`].
    pub samples: Vec<WorkerSample>,
    /// Samples after these.
    pub left: u64,
    /// Readings of the whole watch that gave no answer.
    pub missed: u64,
    /// Samples beyond what the host keeps.
    pub beyond: u64,
    /// The first error of a reading that gave no answer.
    pub first_error: Option<String>,
    /// Processes that the watch killed.
    #[serde(default)]
    pub killed: u64,
}

/// One reading of the status page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerSample {
    /// When its answer had come, ns on the monotonic clock.
    #[serde(rename = "t")]
    pub at_ns: u64,
    /// Workers busy with a request.
    #[serde(rename = "b")]
    pub busy: u32,
    /// Requests in the accept queue that workers take requests from. Absent: not known.
    #[serde(rename = "w", default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<u32>,
    /// Connections that wait for another request; in Apache's prefork and worker each holds a worker. Absent:
    /// the service has no such.
    #[serde(rename = "k", default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<u32>,
    /// SYNs and ACKs that met a full accept queue on this host so far (`TcpExtListenOverflows`).
    #[serde(rename = "o", default, skip_serializing_if = "Option::is_none")]
    pub overflows: Option<u64>,
    /// Memory of the server's processes (PSS), bytes. Absent: not read this time.
    #[serde(rename = "m", default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}
