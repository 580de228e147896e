//! Which words do `watch`, `doctor` and `serve` take?
#![allow(clippy::doc_markdown)] // the doc comments are the help text, which has no back quotes

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Format;

const WATCH_AFTER: &str = "\
Examples:
  tcptoll watch                                  full screen; h shows the keys, q quits
  tcptoll watch --once                           observe for one second, print the state, exit
  tcptoll watch --once --format json | jq '.diagnoses'
  tcptoll watch --format json | jq '.rates'      one line of JSON per sample, no screen
  tcptoll watch --netns 4711                     in the network namespace of process 4711
  tcptoll watch --record night.jsonl             also record what is seen; later:
  tcptoll report night.jsonl --html night.html
  tcptoll watch --listen 127.0.0.1:9464          serve /metrics for Prometheus, no screen

It only reads, and needs no privileges. It shows the owners of sockets as far as it may read them.

Exit status:
  0 watched, whatever was found
  2 not watched: wrong input, no access, or repeated failure to read the sockets
  3 watched, but the record is incomplete, or standard output could not be written
  130, 143 and 129 stopped by SIGINT (Ctrl-C), SIGTERM and SIGHUP";

/// Options of `watch`.
#[derive(Clone, Debug, Args)]
#[command(after_help = WATCH_AFTER)]
pub(crate) struct WatchArgs {
    /// Observe for one interval, print the state, and exit
    #[arg(long)]
    pub once: bool,
    /// Output format on stdout: text (with --once) or JSON (`tcptoll schema watch`). JSON is one
    /// object with --once, otherwise one line per sample without a screen
    #[arg(
        long,
        value_enum,
        default_value_t,
        hide_possible_values = true,
        value_name = "text|json"
    )]
    pub format: Format,
    /// Time between two samples, from 100ms to 1h
    #[arg(long, value_name = "TIME", default_value = "1s", allow_hyphen_values = true)]
    pub interval: String,
    /// Exit after this time, e.g. 8h [default: run until stopped]
    #[arg(long, value_name = "TIME", conflicts_with = "once", allow_hyphen_values = true)]
    pub duration: Option<String>,
    /// Network namespace to watch: the PID of a process in it, or a file like /run/netns/NAME
    #[arg(long, value_name = "PID|FILE")]
    pub netns: Option<String>,
    /// Do not look up the processes that own the sockets
    #[arg(long)]
    pub no_owners: bool,
    /// Record what is seen in this file (JSON Lines). `tcptoll report FILE` shows it
    #[arg(long, value_name = "FILE", conflicts_with = "once")]
    pub record: Option<PathBuf>,
    /// Maximum size of the record, e.g. 64M. To stay below it, older intervals are merged
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "64M",
        requires = "record",
        conflicts_with = "once"
    )]
    pub record_limit: String,
    /// Serve metrics for Prometheus at this address, e.g. 127.0.0.1:9464, without a screen
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "once")]
    pub listen: Option<String>,
    /// Additional host name that scrapers may use to request the metrics; may be repeated
    #[arg(long, value_name = "HOST", requires = "listen", conflicts_with = "once")]
    pub allow_host: Vec<String>,
    /// Use no screen. Print one line when a fault begins and one when it ends
    #[arg(long, conflicts_with = "once")]
    pub no_screen: bool,
}

const DOCTOR_AFTER: &str = "\
Examples:
  tcptoll doctor                                 what is wrong here, and which setting to change
  sudo tcptoll doctor                            include what only root may read
  tcptoll doctor --details                       every finding in full
  tcptoll doctor --duration 5m --html doctor.html
      observe for five minutes, and write a page
  tcptoll doctor --prove accept-queue-full       reproduce it in the lab, with and without the fix
  sudo tcptoll doctor --netns 4711               in the container of process 4711
  tcptoll doctor ssh://user@b                    what can be measured on this host of yours
  tcptoll doctor -q --format json | jq -r '.findings[].id'
  tcptoll explain accept-queue-full              what a finding means

It examines listeners, connections, kernel counters and settings, and the configuration files of
nginx, Apache, Redis, HAProxy, PHP-FPM and MariaDB if they run here. It only reads, and runs no
program of this machine. It needs no privileges. It lists what it could not read.

Exit status:
  0 nothing found
  1 something found
  2 not examined; or nothing proved, because the lab of --prove could not be set up or its FINDING
    was not found here
  3 examined, but the result could not be written
  130 and 143 stopped by SIGINT and SIGTERM";

/// Options of `doctor`.
#[derive(Clone, Debug, Args)]
#[command(after_help = DOCTOR_AFTER)]
pub(crate) struct DoctorArgs {
    /// Host of yours to examine over ssh
    // Given as a string: rustdoc takes brackets for links.
    #[arg(
        value_name = "ssh://HOST",
        help = "Host of yours to examine over ssh, ssh://[USER@]HOST[:PORT]: what can be measured there and what not",
        conflicts_with_all = ["netns", "prove", "html", "duration"]
    )]
    pub host: Option<String>,
    /// How the host is reached: a command that takes a host and a command [default: ssh]
    #[arg(long, value_name = "COMMAND", requires = "host")]
    pub ssh: Option<String>,
    /// Path of tcptoll on the host; without it, this program is copied there once
    #[arg(long, value_name = "PATH", requires = "host")]
    pub remote_binary: Option<String>,
    /// Observation time, from 1s to 1h. Intermittent faults need a longer time
    #[arg(long, value_name = "TIME", default_value = "5s", allow_hyphen_values = true)]
    pub duration: String,
    /// Network namespace to examine: the PID of a process in it, or a file like /run/netns/NAME
    #[arg(long, value_name = "PID|FILE")]
    pub netns: Option<String>,
    /// Reproduce this finding in the lab, with and without its fix. Without a name: every finding
    /// that the lab can reproduce
    #[arg(long, value_name = "FINDING", num_args = 0..=1, default_missing_value = "all")]
    pub prove: Option<String>,
    /// Output format on stdout: text, or one JSON object (`tcptoll schema doctor`)
    #[arg(
        long,
        value_enum,
        default_value_t,
        hide_possible_values = true,
        value_name = "text|json"
    )]
    pub format: Format,
    /// Also write a self-contained HTML page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print every finding in full, not one screen
    #[arg(long)]
    pub details: bool,
    /// Print no progress on stderr
    #[arg(long, short)]
    pub quiet: bool,
}

const SERVE_AFTER: &str = "\
Examples:
  tcptoll serve keepalive --ports 7001,7002
      two ports: SO_KEEPALIVE is off on the first and on on the second. The ports are printed on
      stdout; the settings in effect and events of connections are printed on stderr
  tcptoll keepalive --to 127.0.0.1:7001 --mechanism heartbeat
      then, in another terminal: test connections to this server with heartbeats
  tcptoll serve keepalive --listen 192.0.2.7 --ports 7001,7002 --idle 45s
      on an address that other machines reach; then there: tcptoll keepalive --to 192.0.2.7:7002

The server discards what it receives. It answers only heartbeats of tcp-heartbeat that request an
answer, as --mechanism heartbeat --evidence answered sends them. It does not answer a message of
your own (--null), so with --evidence answered it then counts as dead.";

/// Options of `serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Kind of server
    #[command(subcommand)]
    pub what: Serve,
}

/// Servers that run on their own.
#[derive(Debug, Subcommand)]
pub(crate) enum Serve {
    /// Listen on two ports, SO_KEEPALIVE off and on, and discard what arrives
    #[command(after_help = SERVE_AFTER)]
    Keepalive(ServeKeepaliveArgs),
}

/// Options of `serve keepalive`.
#[derive(Debug, Args)]
pub(crate) struct ServeKeepaliveArgs {
    /// Address to listen on. The default is reachable from this machine only
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub listen: IpAddr,
    /// Two ports, the first with SO_KEEPALIVE off, the second with it on. 0: the kernel chooses
    #[arg(long, value_name = "OFF,ON", value_delimiter = ',', num_args = 1, default_values = ["0", "0"])]
    pub ports: Vec<u16>,
    /// TCP_KEEPIDLE of the second port in whole seconds, e.g. 45s
    /// [default: net.ipv4.tcp_keepalive_time]
    #[arg(long, value_name = "TIME")]
    pub idle: Option<String>,
    /// TCP_KEEPINTVL of the second port in whole seconds, e.g. 5s
    /// [default: net.ipv4.tcp_keepalive_intvl]
    #[arg(long, value_name = "TIME")]
    pub interval: Option<String>,
    /// TCP_KEEPCNT of the second port [default: net.ipv4.tcp_keepalive_probes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=127))]
    pub probes: Option<u8>,
    /// Maximum number of concurrent connections
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=500_000))]
    pub connections: u64,
}
