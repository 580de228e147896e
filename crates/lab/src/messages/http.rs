//! What is asked of a client that sends HTTP requests, and of servers that are known by name.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tcptoll_core::http::reuse::Reuse;
pub use tcptoll_core::http::server::ServerKind;
use tcptoll_core::http::status::Expected;
use tcptoll_core::page::site::Site;
use tcptoll_core::record::Closing;
use tcptoll_core::stats::Series;
use tcptoll_core::stats::arrivals::Spread;
use tcptoll_core::stats::saturation::Ages;

use super::{is_default, order};

/// Longest piece of an upload, bytes: JSON may double it.
pub const UPLOAD_MAX: usize = 24 << 10;

/// Groups of requests, at most.
pub const GROUPS_MAX: usize = 4;

/// Slices of the window over which a group's requests are counted.
pub const GROUP_SLICES: usize = 200;

/// What is asked for, one after the other and then from the beginning again.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HttpRequests {
    /// Method and request target of each; at least one.
    pub lines: Vec<(String, String)>,
    /// Fields of every request besides `Host`, `Connection` and `Content-Length`.
    pub fields: Vec<(String, String)>,
    /// The `Host` field.
    pub authority: String,
    /// Content of every request that is not `GET` or `HEAD`, base64.
    pub body: String,
    /// The group of each line, below [`GROUPS_MAX`]; empty: requests are not grouped. Each group's
    /// requests are counted apart, and its [`GroupReport`] comes before the answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<u8>,
}

/// What became of the measured requests of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupReport {
    /// The group. Its latencies are the distribution [`GROUP_LATENCY`] of this number.
    pub group: u8,
    /// When the measured part began, ns on the monotonic clock: the origin of the slices.
    pub begun_ns: u64,
    /// Requests that were due.
    pub attempts: u64,
    /// Requests that succeeded.
    pub ok: u64,
    /// Requests that failed, by class.
    pub errors: BTreeMap<String, u64>,
    /// Length of one slice, ns; 0: the window's length was not known before, and there are no
    /// slices.
    pub slice_ns: u64,
    /// The window in slices of equal length, at most [`GROUP_SLICES`].
    pub slices: Vec<GroupSlice>,
}

/// The names of the distributions of latency, by group.
pub const GROUP_LATENCY: [&str; GROUPS_MAX] =
    ["latency_group_0", "latency_group_1", "latency_group_2", "latency_group_3"];

/// What became of the requests of one group in one slice of the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupSlice {
    /// Requests that were due in it.
    pub due: u64,
    /// Of these, those that succeeded, then or later.
    pub ok: u64,
    /// Of these, those that failed, then or later.
    pub failed: u64,
    /// Successes that completed in it, whenever they were due.
    pub completed: u64,
    /// Latency of `ok` from when each was due, ns: the least, the sum, the greatest; absent without
    /// any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<[u64; 3]>,
}

/// How TLS is spoken.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TlsLoad {
    /// Name in the certificate and in SNI.
    pub server_name: String,
    /// Accept any certificate.
    pub insecure: bool,
    /// PEM file of further roots.
    pub ca: Option<String>,
    /// Resume sessions where the server allows it; false: a full handshake each time.
    pub resume: bool,
}

/// What the load engine waits with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Io {
    /// `io_uring` where the kernel allows it, else epoll.
    #[default]
    Auto,
    /// epoll.
    Epoll,
    /// `io_uring`, connections being direct descriptors.
    IoUring,
}

/// HTTP requests to send: those uploaded before, the JSON of an [`HttpRequests`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HttpLoad {
    /// To whom.
    pub target: SocketAddr,
    /// TLS, if it is spoken.
    pub tls: Option<TlsLoad>,
    /// How connections are used again.
    pub reuse: Reuse,
    /// Connections at once, at most; spread over the threads.
    pub connections: u64,
    /// Threads, each with a loop of its own.
    pub threads: u64,
    /// Requests due per second; absent: closed loop, each connection sends when it may.
    pub rate_per_s: Option<f64>,
    /// How they are spread.
    pub spread: Spread,
    /// The connections of a closed loop are begun evenly over this time, ns.
    pub ramp_ns: u64,
    /// Requests before what is measured; connections are kept.
    pub warmup_requests: u64,
    /// Time before what is measured, ns; the later of the two ends it.
    pub warmup_ns: u64,
    /// Requests measured, at most.
    pub requests: Option<u64>,
    /// No measured request begins after this long, ns.
    pub duration_ns: Option<u64>,
    /// Of one request from when it was due, ns.
    pub timeout_ns: u64,
    /// Of one handshake, ns.
    pub connect_timeout_ns: u64,
    /// Source addresses, taken in turn.
    pub bind: Vec<IpAddr>,
    /// Congestion control.
    pub congestion: Option<String>,
    /// What to wait with.
    pub io: Io,
    /// What has happened is handled together, at most this much later, ns; 0: at once.
    pub batch_ns: u64,
    /// Statuses that are successes.
    pub expect_status: Expected,
    /// SHA-256 of the content, hexadecimal.
    pub expect_sha256: Option<String>,
    /// Bytes of content at most.
    pub body_limit: u64,
    /// Seed of what is random.
    pub seed: u64,
}

order!(HttpLoad => HttpReport, "send-requests");

/// What came of an [`HttpLoad`]; counts are of the measured part unless it says other.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HttpReport {
    /// Requests begun, and those due in time that were not.
    pub attempts: u64,
    /// Requests that succeeded.
    pub ok: u64,
    /// Requests that failed, by class.
    pub errors: BTreeMap<String, u64>,
    /// The first error of each class, in words.
    pub first_errors: BTreeMap<String, String>,
    /// Requests that ended by status code, those not expected too.
    pub statuses: BTreeMap<u16, u64>,
    /// Requests and failures of the warm-up.
    pub warmup: (u64, BTreeMap<String, u64>),
    /// Connections begun and made, those of the warm-up too.
    pub connections: (u64, u64),
    /// Connections begun and made in the measured part alone.
    pub measured_connections: (u64, u64),
    /// Who closed, over the whole load, as far as the client can see: FINs that crossed are for
    /// others to count.
    pub closing: Closing,
    /// Requests that were due within the measured time; open loop only.
    pub intended: Option<u64>,
    /// Of the measured requests, those that waited for a connection because all were busy; open
    /// loop only. They are in no lateness.
    pub queued: u64,
    /// Of the measured requests, those that had no response when the window ended; open loop only.
    pub unserved: u64,
    /// Closed loop: connections whose request was under way for at least nine tenths of the window when it ended.
    #[serde(default)]
    pub starved: u64,
    /// Closed loop: the longest time within the window in which no request of any connection succeeded, ns.
    #[serde(default)]
    pub silent_ns: u64,
    /// What completed within the window, per second, and the window.
    pub rates: Rates,
    /// How old requests were when they ended; open loop only.
    pub ages: Ages,
    /// Bytes of content received with successes.
    pub body_bytes: u64,
    /// From the beginning of the measured part until the threads had ended all of it, ns: the time
    /// of `cpu_us`.
    pub measured_ns: u64,
    /// Time spans that came out below 0 or whose end was stamped after it was seen: they are in no
    /// distribution.
    pub impossible: u64,
    /// Responses, expected or not, over the whole load, and connections that carried one or more.
    pub carried: (u64, u64),
    /// Responses that were followed by bytes that no request had asked for.
    pub unasked: u64,
    /// Time from its beginning to the end of the last request, ns.
    pub elapsed_ns: u64,
    /// CPU time of the threads in the measured part, µs: user, system; without what was spun away.
    pub cpu_us: (u64, u64),
    /// Time that was spun away waiting for the next request to be due, µs.
    pub spun_us: u64,
    /// Closed loop: the time in which all slots were to be filled, ns, summed over slots.
    pub full_ns: u64,
    /// Closed loop: time that slots were filled within that, ns.
    pub busy_ns: u64,
    /// Rates of successes over time, 1/s.
    pub rate_series: Series,
    /// Latency over time, µs.
    pub latency_series: Series,
    /// Connections open when the measured part had ended.
    pub open: u64,
    /// Of these, connections that the server had ended before the client closed them.
    pub ended_at_end: u64,
    /// Resident memory the load added by then, bytes.
    pub resident_bytes: u64,
    /// Kernel memory of the connections by then, bytes: buffers and their reserves (`SK_MEMINFO`)
    /// of up to 1,000 of them, scaled to all, and the structures of each; absent where this user
    /// may not read how large these are.
    pub socket_bytes: Option<u64>,
    /// `TCP_INFO` of a connection that was open at the end.
    pub tcp_info: Vec<u8>,
    /// Congestion control in use.
    pub congestion: String,
    /// What was waited with: `epoll`, `io_uring`.
    pub io: String,
    /// TLS version and cipher, if it was spoken; handshakes that were resumed.
    pub tls: Option<(String, u64)>,
    /// Whether it was stopped before its end.
    pub partial: bool,
}

impl HttpReport {
    /// Measured requests that were given up before they were sent.
    pub fn unsent(&self) -> u64 {
        self.errors.get("unsent").copied().unwrap_or(0)
    }
}

/// Successes that completed within the window, per second, summed over threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Successes.
    pub completed: u64,
    /// Successes per second.
    pub requests_per_s: f64,
    /// Bytes of their content per second.
    pub body_bytes_per_s: f64,
    /// Connections made per second.
    pub connections_per_s: f64,
    /// Requests that can be in progress at an edge of the window, per second: how far the rates may
    /// be off.
    pub resolution_per_s: f64,
    /// Length of the window, ns; of several threads the longest.
    pub window_ns: u64,
}

/// A server known by its name, and how it is to run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServerSpec {
    /// Which.
    pub kind: ServerKind,
    /// Where to listen; its port is not 0.
    pub at: SocketAddr,
    /// Processes, or threads where it has none; absent: as many as the server host has CPUs.
    pub workers: Option<u64>,
    /// Whether connections may be used again.
    pub keepalive: bool,
    /// How long an idle connection is kept, ns; absent: the server's own default.
    pub keepalive_timeout_ns: Option<u64>,
    /// Requests of one connection at most, 0: any number; absent: the server's own default.
    pub keepalive_requests: Option<u64>,
    /// Speak TLS, with a certificate made for the occasion.
    pub tls: bool,
    /// Bytes of content of a response.
    pub body_bytes: u64,
    /// Time the route works for before it answers, ns.
    pub work_ns: u64,
    /// The argument of `listen(2)`; absent: the server's own default.
    pub backlog: Option<u64>,
    /// Connections at once that it must hold.
    pub connections: u64,
    /// The files to serve instead of one response; absent: none. `body_bytes` is then not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<Site>,
    /// The site was uploaded before, as JSON: it may be longer than a message. `site` is then absent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub site_uploaded: bool,
    /// Limits as in production. None: enough for `connections`, everything started at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<ServerLimits>,
}

/// What a web server may take, and that its status is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerLimits {
    /// Workers: `MaxRequestWorkers` of Apache; connections of all processes of nginx.
    pub workers: u64,
    /// PHP runs in Apache's workers (`mod_php`, prefork only) and not in processes of its own.
    pub php_in_worker: bool,
    /// What each worker takes besides once it has run PHP, as an application does, bytes.
    pub worker_bytes: u64,
    /// The group whose limit of memory its processes have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryGroup>,
}

/// A control group of the kernel that limits memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryGroup {
    /// The group's folder.
    pub folder: PathBuf,
    /// The folder of the group that the run itself is in.
    pub home: PathBuf,
    /// Version of the interface: 1 or 2.
    pub version: u8,
}

order!(ServerSpec => Serving, "serve");

/// Sockets of closed connections to count.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct CountClosed {
    /// Address and port of the server.
    pub server: SocketAddr,
    /// Only those that went into TIME-WAIT since then, ns on the monotonic clock.
    pub since_ns: u64,
    /// Wait until no such connection is being closed any more, at most this long, ns.
    pub limit_ns: u64,
}

order!(CountClosed => ClosedSockets, "count-closed");

/// Sockets of closed connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClosedSockets {
    /// TIME-WAIT of this host's connections to the server; absent if the kernel cannot be asked.
    pub client: Option<u64>,
    /// TIME-WAIT of the server's ends in this host's network namespace; absent if the address is not
    /// one of this host, or if the kernel cannot be asked.
    pub server: Option<u64>,
    /// Connections of which both ends are in TIME-WAIT; absent if either is.
    pub both: Option<u64>,
    /// Sockets of either end that are still being closed, those in FIN-WAIT-2 too.
    pub under_way: u64,
    /// FIN-WAIT-2 of the client's ends and of the server's: each holds a port until its peer closes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub half_closed: [u64; 2],
    /// How long the client's have been so, ns, all together.
    #[serde(default, skip_serializing_if = "is_default")]
    pub half_closed_ns: u64,
}

/// A known server that answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Serving {
    /// Where.
    pub at: SocketAddr,
    /// What it says of itself: `nginx/1.22.1`.
    pub version: String,
    /// Certificate of its TLS, PEM, if it speaks it.
    pub certificate: Option<String>,
    /// Path that is to be asked for.
    pub path: String,
    /// How it was started, and the text of its configuration: for the record.
    pub configuration: String,
}
