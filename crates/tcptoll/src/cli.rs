//! Which words the command line takes. Nothing is done here.
#![allow(clippy::doc_markdown)] // the doc comments are the help text, which has no back quotes

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

const AFTER: &str = "\
Examples:
  tcptoll                                        the tour: about a minute, no privileges needed
  tcptoll connect --link cross-region            what a connection costs at 37 ms
  tcptoll connect --to db.example:5432           the same against a server of yours
  tcptoll lab --link metro -- ping -c 3 10.77.0.2   any command over an honest link

Exit status: 0 measured; 1 measured, but a limit was broken or the run is invalid;
2 not measured; 3 measured, not stored; 130 and 143 stopped by a signal.";

/// What TCP connections cost, where the cost comes from, and which setting to change
#[derive(Debug, Parser)]
#[command(name = "tcptoll", version, after_help = AFTER, max_term_width = 100)]
pub struct Cli {
    /// What to do; without it, the tour
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Sub-commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show in about a minute what connections cost here, and write tcptoll-report.html
    Tour(TourArgs),
    /// Measure what opening a TCP connection costs, and where the time goes
    Connect(Box<ConnectArgs>),
    /// Run a study: list, show, check or run one by its name or file
    Study(StudyArgs),
    /// Show a stored record again: as text, JSON or HTML
    Report(ReportArgs),
    /// Run any command on the client host of the lab, over an emulated link
    Lab(LabArgs),
    /// List the named links, with where each figure comes from
    Links,
    /// Explain a cause, error class or warning by its name
    Explain {
        /// Like accept-queue-full; without it, all names
        name: Option<String>,
    },
    /// Print the JSON Schema of the summary object
    Schema,
    /// Print completions for a shell
    Completions {
        /// Which
        shell: clap_complete::Shell,
    },
    /// Print the man page, or write one per sub-command into a folder
    Man {
        /// Folder to write into
        #[arg(long, value_name = "FOLDER")]
        dir: Option<PathBuf>,
    },
}

/// Output format on stdout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Text,
    /// The summary object, one JSON object
    Json,
}

/// Where results go; the same for every experiment.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// What to print on stdout
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Where to write the record (JSON Lines); default: a new file in $XDG_DATA_HOME/tcptoll
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Also write a self-contained HTML report
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the packets of both ends as pcapng, for Wireshark and tcpdump
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// Exit with 1 if this holds, like 'p99(connect_us) > 5000' or 'connect_us_mean > 300'
    #[arg(long, value_name = "LIMIT")]
    pub fail_if: Vec<String>,
    /// Seed of the link's loss and jitter
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub seed: u64,
    /// How far the measured link may be from what was asked [default: delay=100us,rate=2%]
    #[arg(long, value_name = "delay=TIME,rate=PERCENT")]
    pub link_tolerance: Option<String>,
    /// No progress on stderr
    #[arg(long, short)]
    pub quiet: bool,
}

const CONNECT_AFTER: &str = "\
Examples:
  tcptoll connect --link cross-region
      one connection after another at 37 ms round trip
  tcptoll connect --link same-room,metro,cross-region --count 5000
      three links, one arm each
  tcptoll connect --count 500 --concurrency 500 --accept-delay 2ms --backlog 16,4096
      what a full accept queue costs, and that a longer one cures it
  tcptoll connect --to db.example:5432 --count 50
      a server of yours; against public addresses the rate is modest unless you set --rate
  tcptoll connect --link metro --server 'redis-server --port 6379' --send 'PING\\r\\n'
      a real server, started in the lab

An option with several values (--backlog 16,4096) makes an arm of each.";

/// Options of `connect`.
#[derive(Clone, Debug, Default, Args)]
#[command(after_help = CONNECT_AFTER)]
pub struct ConnectArgs {
    /// Link between the two hosts: a name (see `tcptoll links`) or rtt=37ms,rate=1gbit,loss=0.1%,
    /// jitter=1ms,queue=100p; given again, or several names: one arm each
    #[arg(long, value_name = "LINK", help_heading = "Place")]
    pub link: Vec<String>,
    /// A server that already runs, instead of the lab
    #[arg(long, value_name = "HOST:PORT", help_heading = "Place")]
    pub to: Option<String>,
    /// Command of a real server to start on the lab's server host
    #[arg(long, value_name = "COMMAND", help_heading = "Place")]
    pub server: Option<String>,
    /// Port of that server, if it listens on several
    #[arg(long, value_name = "PORT", help_heading = "Place")]
    pub port: Option<String>,
    /// Use IPv6 in the lab
    #[arg(long, help_heading = "Place")]
    pub ipv6: bool,
    /// Relay the emulated link over AF_PACKET even where /dev/net/tun can be opened
    #[arg(long, help_heading = "Place")]
    pub packet_relay: bool,
    /// Sysctl of the client host, like net.ipv4.tcp_syn_retries=2; may be given again
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Place")]
    pub client_sysctl: Vec<String>,
    /// Sysctl of the server host, like net.core.somaxconn=128; may be given again
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Place")]
    pub server_sysctl: Vec<String>,
    /// Distance between the hosts, for the physical floor beside the result
    #[arg(long, value_name = "KM", help_heading = "Place")]
    pub distance_km: Option<String>,

    /// Connections in all [default: 1000]
    #[arg(
        long,
        allow_negative_numbers = true,
        value_name = "N",
        value_delimiter = ',',
        help_heading = "Load"
    )]
    pub count: Vec<String>,
    /// Connections being opened at once, at most [default: about 500 per second's worth]
    #[arg(
        long,
        visible_alias = "connections",
        value_name = "N",
        value_delimiter = ',',
        help_heading = "Load"
    )]
    pub concurrency: Vec<String>,
    /// Connections begun per second, whether or not others have ended; latency counts from when
    /// each was due
    #[arg(
        long,
        allow_negative_numbers = true,
        value_name = "PER_SECOND",
        value_delimiter = ',',
        help_heading = "Load"
    )]
    pub rate: Vec<String>,
    /// Pause after so many connections
    #[arg(
        long,
        allow_negative_numbers = true,
        value_name = "N",
        value_delimiter = ',',
        help_heading = "Load"
    )]
    pub pause_every: Vec<String>,
    /// Length of that pause [default: 1s]
    #[arg(long, value_name = "TIME", value_delimiter = ',', help_heading = "Load")]
    pub pause: Vec<String>,
    /// Time limit of one connection, from its start to the first byte [default: 10s]
    #[arg(long, value_name = "TIME", value_delimiter = ',', help_heading = "Load")]
    pub timeout: Vec<String>,
    /// Source addresses, taken in turn; the lab's client host is given them
    #[arg(long, value_name = "ADDRESS,…", help_heading = "Load")]
    pub bind: Option<String>,
    /// Congestion control of the client's sockets
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = "Load")]
    pub congestion: Vec<String>,
    /// Send the first bytes with the SYN (TCP Fast Open)
    #[arg(long, value_name = "on,off", value_delimiter = ',', num_args = 0..=1, default_missing_value = "on", help_heading = "Load")]
    pub fast_open: Vec<String>,
    /// Wait for the server's first byte before closing; off: close once connected [default: on]
    #[arg(long, value_name = "on,off", value_delimiter = ',', help_heading = "Load")]
    pub first_byte: Vec<String>,
    /// Bytes to send once connected, to a server that does not speak first; \r \n \xHH are bytes
    #[arg(long, value_name = "TEXT", help_heading = "Load")]
    pub send: Option<String>,

    /// Backlog of tcptoll's own server [default: 4096]
    #[arg(
        long,
        allow_negative_numbers = true,
        value_name = "N",
        value_delimiter = ',',
        help_heading = "Server"
    )]
    pub backlog: Vec<String>,
    /// Time its process works before each accept(2) [default: 0]
    #[arg(long, value_name = "TIME", value_delimiter = ',', help_heading = "Server")]
    pub accept_delay: Vec<String>,

    /// On a link without emulation: let the packet tap ride along in the measured trial, instead
    /// of a shorter one of its own (it costs CPU)
    #[arg(long, help_heading = "Output")]
    pub tap: bool,
    /// Where results go
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Options of the tour.
#[derive(Clone, Debug, Default, Args)]
pub struct TourArgs {
    /// Where results go
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Words of `study`.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct StudyArgs {
    /// What to do; a name alone runs that study
    #[command(subcommand)]
    pub action: Option<StudyAction>,
    /// Study to run: a name from `tcptoll study list`, or a file
    #[arg(value_name = "NAME|FILE")]
    pub name: Option<String>,
    /// Where results go
    #[command(flatten)]
    pub output: OutputArgs,
}

/// What to do with a study.
#[derive(Clone, Debug, Subcommand)]
pub enum StudyAction {
    /// List the studies that come with tcptoll
    List,
    /// Print a study file
    Show {
        /// Its name
        name: String,
    },
    /// Check a study file and list its arms, without running it
    Check {
        /// Name or file
        name: String,
    },
    /// Run a study
    Run {
        /// Name or file
        name: String,
        /// Where results go
        #[command(flatten)]
        output: OutputArgs,
    },
}

/// Options of `report`.
#[derive(Clone, Debug, Args)]
pub struct ReportArgs {
    /// Record to read
    #[arg(value_name = "FILE")]
    pub record: PathBuf,
    /// What to print on stdout
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Also write a self-contained HTML report
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

const LAB_AFTER: &str = "\
TCPTOLL_SERVER and TCPTOLL_CLIENT hold the hosts' addresses on both hosts.

Examples:
  tcptoll lab --link cross-region -- sh -c 'ping -c 3 $TCPTOLL_SERVER'
  tcptoll lab --link lan-1g --server 'iperf3 -s -1' -- sh -c 'iperf3 -c $TCPTOLL_SERVER'
  tcptoll lab --link metro --server 'redis-server --port 6379 --protected-mode no' \\
          -- sh -c 'redis-benchmark -h $TCPTOLL_SERVER -t ping'
  tcptoll lab --link mobile --pcap mobile.pcapng -- bash

The exit status is the command's; 2 if the lab cannot be had.";

/// Options of `lab`.
#[derive(Clone, Debug, Args)]
#[command(after_help = LAB_AFTER)]
pub struct LabArgs {
    /// Link between the two hosts; see `tcptoll links`
    #[arg(long, value_name = "LINK", default_value = "direct")]
    pub link: String,
    /// Command of a server to start on the server host
    #[arg(long, value_name = "COMMAND")]
    pub server: Option<String>,
    /// Use IPv6
    #[arg(long)]
    pub ipv6: bool,
    /// Relay the emulated link over AF_PACKET even where /dev/net/tun can be opened
    #[arg(long)]
    pub packet_relay: bool,
    /// Sysctl of the client host; may be given again
    #[arg(long, value_name = "NAME=VALUE")]
    pub client_sysctl: Vec<String>,
    /// Sysctl of the server host; may be given again
    #[arg(long, value_name = "NAME=VALUE")]
    pub server_sysctl: Vec<String>,
    /// Write the packets of both ends as pcapng
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// Seed of the link's loss and jitter
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub seed: u64,
    /// How far the measured link may be from what was asked [default: delay=100us,rate=2%]
    #[arg(long, value_name = "delay=TIME,rate=PERCENT")]
    pub link_tolerance: Option<String>,
    /// Do not say what the link measured
    #[arg(long, short)]
    pub quiet: bool,
    /// Print an AppArmor profile that lets this binary make its lab (Ubuntu 24.04), and end
    #[arg(long)]
    pub apparmor_profile: bool,
    /// Command to run on the client host, after --
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}
