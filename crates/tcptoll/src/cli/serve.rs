//! Which words does `serve` take?
#![allow(clippy::doc_markdown)] // the doc comments are the help text, which has no back quotes

use std::net::IpAddr;

use clap::{Args, Subcommand};

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
    /// Listen on two ports, SO_KEEPALIVE off and on, and discard what arrives, until stopped
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
