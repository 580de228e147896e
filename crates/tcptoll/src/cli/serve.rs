//! Which words does `serve` take?
#![allow(clippy::doc_markdown)] // the doc comments are the help text, which has no back quotes

use std::net::IpAddr;

use clap::{Args, Subcommand};

const SERVE_AFTER: &str = "\
Examples:
  tcptoll serve keepalive --ports 7001,7002
      two ports: one where the kernel does not probe, one whose connections it probes; they go to
      stdout, the settings in effect and what becomes of connections to stderr
  tcptoll keepalive --to 127.0.0.1:7001 --mechanism heartbeat
      then, in another terminal: checks them from the other end
  tcptoll serve keepalive --listen 192.0.2.7 --ports 7001,7002 --idle 45s
      on an address that others reach; then, elsewhere: tcptoll keepalive --to 192.0.2.7:7002

What arrives is read and thrown away. One thing is answered: a Null of tcp-heartbeat that asks for
it, as --mechanism heartbeat --evidence answered sends. A --null of yours gets no answer, so that
--evidence answered takes this server for dead then.";

/// Options of `serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// What to serve
    #[command(subcommand)]
    pub what: Serve,
}

/// Servers that run on their own.
#[derive(Debug, Subcommand)]
pub enum Serve {
    /// Listen on two ports, without and with SO_KEEPALIVE, and read what comes, until stopped
    #[command(after_help = SERVE_AFTER)]
    Keepalive(ServeKeepaliveArgs),
}

/// Options of `serve keepalive`.
#[derive(Debug, Args)]
pub struct ServeKeepaliveArgs {
    /// Address to listen on; others reach it only if you say so
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub listen: IpAddr,
    /// The two ports, without the option and with it; 0: the kernel chooses
    #[arg(long, value_name = "OFF,ON", value_delimiter = ',', num_args = 1, default_values = ["0", "0"])]
    pub ports: Vec<u16>,
    /// TCP_KEEPIDLE of the second port, whole seconds like 45s [default: the host's sysctl]
    #[arg(long, value_name = "TIME")]
    pub idle: Option<String>,
    /// TCP_KEEPINTVL of the second port [default: the host's sysctl]
    #[arg(long, value_name = "TIME")]
    pub interval: Option<String>,
    /// TCP_KEEPCNT of the second port [default: the host's sysctl]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=127))]
    pub probes: Option<u8>,
    /// Connections at once, at most
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=500_000))]
    pub connections: u64,
}
