//! Which words do `keepalive` and `serve keepalive` take?
#![allow(clippy::doc_markdown)] // the doc comments are the help text, which has no back quotes

use std::net::IpAddr;

use clap::{Args, Subcommand};

use super::{OutputArgs, RoundArgs};

const KEEPALIVE_AFTER: &str = "\
Examples:
  tcptoll keepalive
      1,000 connections, 100 of them cut off: who knows, how soon, and for how many packets
  tcptoll keepalive --detect-within 30s
      the cheapest settings of each mechanism that know within 30 s, and the proof
  tcptoll keepalive --mechanism none,tcp,heartbeat --idle 10s --sockets 50000 --writer off
      what checking 50,000 idle connections costs in packets, CPU and memory
  tcptoll keepalive --mechanism none,tcp --sockets 1,17,51 --idle kernel
      does SO_KEEPALIVE slow down the one connection that writes?
  tcptoll keepalive --mechanism tcp,heartbeat --fault freeze
      a stopped process on a running machine: its kernel goes on answering
  tcptoll keepalive --mechanism heartbeat --evidence acknowledged,answered --fault freeze
      the same, with an answer of the program as evidence
  tcptoll keepalive --mechanism tcp --probes 1,2,3 --fault loss=5% --watch 30s --writer off
      false alarms of a lossy link
  tcptoll keepalive --mechanism write --fault cut --server-sysctl net.ipv4.tcp_retries2=5
      when does a program that only writes hear of it?
  tcptoll keepalive --to 192.0.2.7:6379 --mechanism heartbeat --null 'PING\\r\\n' --evidence answered
      connections to a server of yours that has a message of its own

An option with several values (--idle 1s,10s) makes an arm of each.

Mechanisms (--mechanism):
  none        the connection is only read from
  tcp         probes of the kernel: SO_KEEPALIVE with --idle, --interval and --probes
  heartbeat   a Null message when nothing has arrived for --idle; evidence within --answer-within
  lazy        no timer: from --most connections on, each that arrives has others tested
  write       the program writes every --interval and waits for the kernel to give up";

/// Options of `keepalive`.
#[derive(Clone, Debug, Default, Args)]
#[command(after_help = KEEPALIVE_AFTER)]
pub struct KeepaliveArgs {
    /// Link between the two hosts: a name (see `tcptoll links`) or rtt=37ms,rate=1gbit,loss=0.1%;
    /// given again, or several names: one arm each [default: rtt=0.25ms,rate=100mbit]
    #[arg(long, value_name = "LINK", help_heading = "Place")]
    pub link: Vec<String>,
    /// A server that already runs, instead of the lab; `tcptoll serve keepalive` is one
    #[arg(long, value_name = "HOST:PORT", help_heading = "Place")]
    pub to: Option<String>,
    /// Use IPv6 in the lab
    #[arg(long, help_heading = "Place")]
    pub ipv6: bool,
    /// Relay the emulated link over AF_PACKET even where /dev/net/tun can be opened
    #[arg(long, help_heading = "Place")]
    pub packet_relay: bool,
    /// Source addresses of the client, separated by commas; taken in turn
    #[arg(long, value_name = "ADDRESS", help_heading = "Place")]
    pub bind: Option<String>,
    /// Sysctl of the client host, like net.ipv4.tcp_retries2=8; may be given again
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Place")]
    pub client_sysctl: Vec<String>,
    /// Sysctl of the server host, like net.ipv4.tcp_keepalive_time=60; may be given again
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Place")]
    pub server_sysctl: Vec<String>,

    /// Connections, the one that writes among them [default: 1000]
    #[arg(
        long,
        allow_negative_numbers = true,
        value_name = "N",
        value_delimiter = ',',
        help_heading = "Connections"
    )]
    pub sockets: Vec<String>,
    /// Whether one of them writes while the others idle [default: on; off with --to]
    #[arg(long, value_name = "on|off", value_delimiter = ',', help_heading = "Connections")]
    pub writer: Vec<String>,
    /// Bytes of a message that it writes [default: 1000]
    #[arg(
        long,
        allow_negative_numbers = true,
        value_name = "SIZE",
        value_delimiter = ',',
        help_heading = "Connections"
    )]
    pub message: Vec<String>,
    /// Messages per second [default: without pause]
    #[arg(
        long,
        allow_negative_numbers = true,
        value_name = "PER_SECOND",
        value_delimiter = ',',
        help_heading = "Connections"
    )]
    pub rate: Vec<String>,
    /// What the program that writes waits for: its own socket, or all of them with select(2) before
    /// each message [default: own]
    #[arg(long, value_name = "own|select", value_delimiter = ',', help_heading = "Connections")]
    pub wait: Vec<String>,
    /// Congestion control of the client's sockets
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = "Connections")]
    pub congestion: Vec<String>,
    /// Time before the measured window [default: one round of checks, at most 1m]
    #[arg(long, value_name = "TIME", value_delimiter = ',', help_heading = "Connections")]
    pub warmup: Vec<String>,
    /// Length of the measured window [default: 2s]
    #[arg(long, value_name = "TIME", value_delimiter = ',', help_heading = "Connections")]
    pub duration: Vec<String>,

    /// How connections that idle are checked; listed below [default: none,tcp,heartbeat,lazy, with
    /// --fault cut]
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = "Checking")]
    pub mechanism: Vec<String>,
    /// Which host checks: server, client or both [default: server]
    #[arg(long, value_name = "HOST", value_delimiter = ',', help_heading = "Checking")]
    pub side: Vec<String>,
    /// Idle time before the first probe or Null; `kernel`: the host's tcp_keepalive_time
    /// [default: 1s]
    #[arg(long, value_name = "TIME", value_delimiter = ',', help_heading = "Checking")]
    pub idle: Vec<String>,
    /// Between unanswered probes, or between two writes; `kernel`: the host's tcp_keepalive_intvl
    /// [default: 1s]
    #[arg(long, value_name = "TIME", value_delimiter = ',', help_heading = "Checking")]
    pub interval: Vec<String>,
    /// Unanswered probes until a peer is given up; `kernel`: the host's tcp_keepalive_probes
    /// [default: 3]
    #[arg(
        long,
        allow_negative_numbers = true,
        value_name = "N",
        value_delimiter = ',',
        help_heading = "Checking"
    )]
    pub probes: Vec<String>,
    /// Evidence of life must come so soon after a Null [default: 1s]
    #[arg(long, value_name = "TIME", value_delimiter = ',', help_heading = "Checking")]
    pub answer_within: Vec<String>,
    /// What counts as evidence: acknowledged (by the peer's kernel) or answered (by its program)
    /// [default: acknowledged]
    #[arg(long, value_name = "WHAT", value_delimiter = ',', help_heading = "Checking")]
    pub evidence: Vec<String>,
    /// TCP_USER_TIMEOUT of checked connections [default: not set]
    #[arg(long, value_name = "TIME", value_delimiter = ',', help_heading = "Checking")]
    pub user_timeout: Vec<String>,
    /// What a heartbeat sends to a server of yours, like 'PING\\r\\n'
    #[arg(long, value_name = "TEXT", help_heading = "Checking")]
    pub null: Option<String>,
    /// What is due within this is handled in one wake-up [default: 10ms]
    #[arg(long, value_name = "TIME", value_delimiter = ',', help_heading = "Checking")]
    pub tick: Vec<String>,
    /// Choose the cheapest settings that know of a death within this time
    #[arg(long, value_name = "TIME", value_delimiter = ',', help_heading = "Checking")]
    pub detect_within: Vec<String>,
    /// Packet loss each way that those settings have to stand [default: 1%]
    #[arg(long, value_name = "SHARE", value_delimiter = ',', help_heading = "Checking")]
    pub assumed_loss: Vec<String>,

    /// lazy: connections from which on room is made [default: as many as idle]
    #[arg(
        long,
        allow_negative_numbers = true,
        value_name = "N",
        value_delimiter = ',',
        help_heading = "Lazy reaping"
    )]
    pub most: Vec<String>,
    /// lazy: test only those unused for so long [default: all]
    #[arg(long, value_name = "TIME", value_delimiter = ',', help_heading = "Lazy reaping")]
    pub unused_for: Vec<String>,
    /// lazy: test until below --most, or until all-tested [default: below]
    #[arg(long, value_name = "WHEN", value_delimiter = ',', help_heading = "Lazy reaping")]
    pub until: Vec<String>,
    /// lazy: first those with the earliest last-use, or by age [default: last-use]
    #[arg(long, value_name = "ORDER", value_delimiter = ',', help_heading = "Lazy reaping")]
    pub order: Vec<String>,
    /// lazy: connections under test at any moment [default: 64]
    #[arg(
        long,
        allow_negative_numbers = true,
        value_name = "N",
        value_delimiter = ',',
        help_heading = "Lazy reaping"
    )]
    pub at_once: Vec<String>,
    /// Connections that arrive per second, after the fault if there is one [default: lazy with a
    /// fault: as many in 2 s as die]
    #[arg(
        long,
        allow_negative_numbers = true,
        value_name = "PER_SECOND",
        value_delimiter = ',',
        help_heading = "Lazy reaping"
    )]
    pub arrivals: Vec<String>,

    /// What happens to idle connections after the window: cut, freeze, reset, close or loss=5%
    #[arg(long, value_name = "WHAT", value_delimiter = ',', help_heading = "Deaths")]
    pub fault: Vec<String>,
    /// To which share of them [default: 10%; loss: all]
    #[arg(long, value_name = "SHARE", value_delimiter = ',', help_heading = "Deaths")]
    pub fault_share: Vec<String>,
    /// How long is watched for it to be known [default: the bound by arithmetic and 1s, or 5s]
    #[arg(long, value_name = "TIME", value_delimiter = ',', help_heading = "Deaths")]
    pub watch: Vec<String>,

    /// How often every arm is run
    #[command(flatten)]
    pub rounds: RoundArgs,
    /// Where results go
    #[command(flatten)]
    pub output: OutputArgs,
}

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
