//! The configuration of a server that runs on the machine, in one shape for all programs.
//!
//! Rules see this shape alone. A configuration is read in three steps: `lines` and `blocks` split the text of
//! files, the table of `directives` says what each word sets and what holds without it, and a file per program has
//! what fits no row. None of them has a file system: the caller gives them the text of files by path ([`Files`]).
//!
//! A default of a program is given only if every file of its configuration was read: a file that
//! could not be read may set another value.

mod apache;
pub(super) mod apps;
mod blocks;
mod directives;
mod haproxy;
mod lines;
mod mariadb;
mod nginx;
mod php_fpm;
mod reading;
mod redis;
mod settings;
mod values;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use apps::App;
pub use reading::{Files, Process};

/// Addresses, groups of servers, or servers of one group, at most.
const ENTRIES_MAX: usize = 256;

/// Reads the configuration of a running server.
///
/// It never fails: whatever could not be read is in [`ServerConfig::unread`], and the values that
/// depend on it are absent.
pub fn read(program: Program, process: &Process, files: &mut dyn Files) -> ServerConfig {
    let mut reading = reading::Reading::new(program, process, files);
    let mut config = match program {
        Program::Nginx => nginx::read(&mut reading),
        Program::Apache => apache::read(&mut reading),
        Program::Redis => redis::read(&mut reading),
        Program::Haproxy => haproxy::read(&mut reading),
        Program::PhpFpm => php_fpm::read(&mut reading),
        Program::Mariadb => mariadb::read(&mut reading),
        Program::App(app) => apps::read(&mut reading, app),
    };
    config.listens.truncate(ENTRIES_MAX);
    config.upstreams.truncate(ENTRIES_MAX);
    for upstream in &mut config.upstreams {
        upstream.servers.truncate(ENTRIES_MAX);
    }
    (config.files_read, config.unread) = reading.into_files();
    config
}

/// A server whose configuration is read.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
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
    /// An application server behind one of these.
    #[serde(untagged)]
    App(App),
}

impl Program {
    pub const ALL: [Self; 13] = [
        Self::Nginx,
        Self::Apache,
        Self::Redis,
        Self::Haproxy,
        Self::PhpFpm,
        Self::Mariadb,
        Self::App(App::Gunicorn),
        Self::App(App::Uvicorn),
        Self::App(App::Hypercorn),
        Self::App(App::Node),
        Self::App(App::Puma),
        Self::App(App::Tomcat),
        Self::App(App::Jetty),
    ];

    /// Its name in a sentence.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Apache => "Apache",
            Self::Redis => "Redis",
            Self::Haproxy => "HAProxy",
            Self::PhpFpm => "PHP-FPM",
            Self::Mariadb => "MariaDB",
            Self::App(app) => app.name(),
        }
    }
}

/// Where a setting stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Place")]
pub struct ConfigPosition {
    /// File; `the command line of PID 7`; or `the default of nginx 1.22.1`.
    pub file: String,
    /// Line, from 1; absent for a command line and for a default of the program.
    pub line: Option<u32>,
}

impl ConfigPosition {
    /// Whether the value is the program's default: no file and no argument sets it.
    pub fn is_default(&self) -> bool {
        self.line.is_none() && self.file.starts_with(DEFAULT_OF)
    }
}

/// How a place begins that is a default of the program.
const DEFAULT_OF: &str = "the default of ";

impl std::fmt::Display for ConfigPosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}", self.file),
            None => f.write_str(&self.file),
        }
    }
}

/// A value, and where it comes from. A default of the program has a place without a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Where it stands.
    pub at: ConfigPosition,
}

/// What a running server is configured to do with connections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// Where parts of the configuration differ, the shortest; see [`Listen::keepalive_timeout_s`].
    pub keepalive_timeout_s: Option<Sourced<f64>>,
    /// Requests per connection, at most; 0: no limit.
    pub keepalive_requests: Option<Sourced<u64>>,
    /// Idle time after which its sockets send keep-alive probes, s; 0: they do not. Where the
    /// program leaves the time to the kernel, that of `net.ipv4.tcp_keepalive_time`.
    pub tcp_keepalive_s: Option<Sourced<f64>>,
    /// Requests or connections that it serves at one time, at most.
    pub workers: Option<Sourced<u64>>,
    /// Servers behind it.
    pub upstreams: Vec<Upstream>,
    /// Socket buffers it asks for.
    pub buffers: Option<Buffers>,
    /// Files that were read, in their order.
    #[serde(default)]
    pub files_read: Vec<String>,
    /// Files that could not be read, with the reason: rules that need them stay silent.
    pub unread: Vec<String>,
}

impl ServerConfig {
    /// A server of which nothing else is known.
    pub fn new(program: Program, pid: u32) -> Self {
        Self {
            program,
            pid,
            version: None,
            listens: Vec::new(),
            keepalive_timeout_s: None,
            keepalive_requests: None,
            tcp_keepalive_s: None,
            workers: None,
            upstreams: Vec::new(),
            buffers: None,
            files_read: Vec::new(),
            unread: Vec::new(),
        }
    }
}

/// One address that a server listens on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Listen {
    /// `address:port`, or the path of a Unix socket. An address that the configuration leaves out
    /// is `0.0.0.0`, or `[::]` where the program listens on both families by it.
    pub on: String,
    /// The backlog it asks for; absent also where it leaves the backlog to the kernel.
    pub backlog: Option<Sourced<u64>>,
    /// Section of the configuration that listens here: a pool of PHP-FPM, a `frontend`.
    pub section: Option<String>,
    /// As [`ServerConfig::keepalive_timeout_s`], of this address alone.
    pub keepalive_timeout_s: Option<Sourced<f64>>,
    /// As [`ServerConfig::tcp_keepalive_s`], of this address alone.
    pub tcp_keepalive_s: Option<Sourced<f64>>,
    /// As [`ServerConfig::workers`], of this address alone.
    pub workers: Option<Sourced<u64>>,
    /// A request that takes longer than this is ended, s; 0: no limit.
    pub request_timeout_s: Option<Sourced<f64>>,
    /// Socket buffers that it asks for on this address alone.
    pub buffers: Option<Buffers>,
}

impl Listen {
    /// Its TCP port; none for a Unix socket.
    pub fn port(&self) -> Option<u16> {
        if self.on.starts_with('/') || self.on.starts_with('@') {
            return None;
        }
        self.on.rsplit_once(':')?.1.parse().ok()
    }
}

/// Servers behind a proxy, as one group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Upstream {
    /// Its name in the configuration.
    pub name: String,
    /// `host:port`, or the path of a Unix socket.
    pub servers: Vec<String>,
    /// Idle connections that it keeps to them; absent: it keeps none, or its program sets no limit
    /// (`HAProxy`, Apache), which [`Self::reuses`] says.
    pub idle_connections: Option<Sourced<u64>>,
    /// How long it keeps an idle connection, s.
    pub idle_timeout_s: Option<Sourced<f64>>,
    /// Requests per connection to them, at most.
    pub requests_per_connection: Option<Sourced<u64>>,
    /// Whether its requests let the connection be reused (HTTP/1.1, no `Connection: close`).
    pub reuses: Option<Sourced<bool>>,
    /// Whether requests are passed on by FastCGI: then `fastcgi_keep_conn` decides the reuse.
    pub fastcgi: bool,
    /// Time-out of connecting, s.
    pub connect_timeout_s: Option<Sourced<f64>>,
    /// A request waits this long for a free connection, s.
    pub queue_timeout_s: Option<Sourced<f64>>,
    /// Time-out of a response, s.
    pub response_timeout_s: Option<Sourced<f64>>,
    /// Whether its connections to them send keep-alive probes (`SO_KEEPALIVE`).
    pub probes: Option<Sourced<bool>>,
}

/// Socket buffers that a server asks for, bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Buffers {
    /// `SO_RCVBUF`.
    pub receive: Option<Sourced<u64>>,
    /// `SO_SNDBUF`.
    pub send: Option<Sourced<u64>>,
}
