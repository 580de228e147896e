//! The configuration of a server that runs on the machine, in one shape for all programs.
//!
//! Each program's own file is read in a file of its own; rules see this shape alone.

use serde::{Deserialize, Serialize};

/// A server whose configuration is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    /// nginx.
    Nginx,
    /// Apache httpd.
    Apache,
    /// Redis.
    Redis,
    /// `HAProxy`.
    Haproxy,
    /// PHP-FPM.
    PhpFpm,
    /// `MariaDB` or `MySQL`.
    Mariadb,
}

/// Where a setting stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// File; a command line is `the command line of PID`.
    pub file: String,
    /// Line, from 1; absent for a default of the program.
    pub line: Option<u32>,
}

/// A value, and where it comes from. A default of the program has a place without a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Where it stands.
    pub at: Place,
}

/// What a running server is configured to do with connections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerConfig {
    /// Which program.
    pub program: Program,
    /// Its main process.
    pub pid: u32,
    /// Its version, where the program or its file says it.
    pub version: Option<String>,
    /// What it listens on.
    pub listens: Vec<Listen>,
    /// Idle connections of clients are closed after this, s; 0: each connection serves one request.
    pub keepalive_timeout_s: Option<Sourced<f64>>,
    /// Requests per connection, at most; 0: no limit.
    pub keepalive_requests: Option<Sourced<u64>>,
    /// Idle time after which its sockets send keep-alive probes, s; 0: they do not.
    pub tcp_keepalive_s: Option<Sourced<f64>>,
    /// Requests or connections that it serves at one time, at most.
    pub workers: Option<Sourced<u64>>,
    /// Servers behind it.
    pub upstreams: Vec<Upstream>,
    /// Socket buffers it asks for.
    pub buffers: Option<Buffers>,
    /// Files that could not be read, with the reason: rules that need them stay silent.
    pub unread: Vec<String>,
}

/// One address that a server listens on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Listen {
    /// `address:port`, or the path of a Unix socket.
    pub on: String,
    /// The backlog it asks for.
    pub backlog: Option<Sourced<u64>>,
}

/// Servers behind a proxy, as one group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Upstream {
    /// Its name in the configuration.
    pub name: String,
    /// `host:port`, or the path of a Unix socket.
    pub servers: Vec<String>,
    /// Idle connections that it keeps to them; absent: it keeps none.
    pub idle_connections: Option<Sourced<u64>>,
    /// How long it keeps an idle connection, s.
    pub idle_timeout_s: Option<Sourced<f64>>,
    /// Whether its requests let the connection be reused (HTTP/1.1, no `Connection: close`).
    pub reuses: Option<Sourced<bool>>,
    /// Time-out of connecting, s.
    pub connect_timeout_s: Option<Sourced<f64>>,
}

/// Socket buffers that a server asks for, bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Buffers {
    /// `SO_RCVBUF`.
    pub receive: Option<Sourced<u64>>,
    /// `SO_SNDBUF`.
    pub send: Option<Sourced<u64>>,
}
