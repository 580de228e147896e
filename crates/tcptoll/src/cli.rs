//! Which words the command line takes. Nothing is done here.
#![allow(clippy::doc_markdown)] // the doc comments are the help text, which has no back quotes

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

mod doctor;
mod experiment;
mod hint;
mod rounds;
mod serve;
mod tune;
mod watch;

pub use doctor::DoctorArgs;
pub use experiment::{ExperimentArgs, Typed};
pub(crate) use hint::mended;
pub use rounds::RoundArgs;
pub use serve::{Serve, ServeArgs, ServeKeepaliveArgs};
pub use tune::{TuneArgs, TuneDistribution, TuneServer, TuneStrategy};
pub use watch::WatchArgs;

use rounds::percent;

const AFTER: &str = "\
Examples:
  tcptoll                                        the tour: about a minute, no privileges needed
  tcptoll connect --link cross-region            what a connection costs at 37 ms
  tcptoll connect --to db.example:5432           the same against a server of yours
  tcptoll connect --backlog 128,4096             two arms in rounds, until their verdict is found
  tcptoll http --reuse keep-alive,server-close   does a connection that is used again pay?
  tcptoll lab --link metro -- ping -c 3 10.77.0.2   any command over an honest link

Exit status: 0 measured; 1 measured, but a limit was broken, the run is invalid, or more
operations failed than may (--allow-errors); 2 not measured, or no operation succeeded;
3 measured, not stored; 130 and 143 stopped by a signal.";

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
    /// Measure: an experiment with its options
    #[command(flatten)]
    Experiment(Box<ExperimentArgs>),
    /// Watch this machine's connections: queues, drops, ports, what is wrong and which setting to change
    Watch(WatchArgs),
    /// Find what is wrong with this machine's connections and servers, in seconds
    Doctor(DoctorArgs),
    /// Find the KeepAlive setting of Apache or nginx that gives visitors the shortest pages
    Tune(Box<TuneArgs>),
    /// Serve on its own: two ports, without and with keep-alive
    Serve(ServeArgs),
    /// Run a study: list, show, check or run one by its name or file
    Study(Box<StudyArgs>),
    /// Show a stored record again: as text, JSON, HTML, CSV or Markdown
    Report(ReportArgs),
    /// Compare two records of the same experiment: another day, another kernel, another setting
    Compare(CompareArgs),
    /// List the records in the default folder, newest first
    Runs(RunsArgs),
    /// Run any command on the client host of the lab, over an emulated link
    Lab(LabArgs),
    /// List the named links, with where each figure comes from
    Links,
    /// Explain a cause, error class or warning by its name
    Explain {
        /// Like accept-queue-full; without it, all names
        name: Option<String>,
    },
    /// Print a JSON Schema: of the summary object, or of a study file; or every experiment as JSON
    Schema {
        /// Of what
        #[arg(value_enum, default_value_t)]
        of: SchemaOf,
    },
    /// Print completions for a shell
    Completions {
        /// Which
        shell: clap_complete::Shell,
    },
    /// Print a man page, or write one per sub-command into a folder
    Man {
        /// Sub-command, like study list; without it, the page of tcptoll itself
        #[arg(value_name = "SUBCOMMAND")]
        words: Vec<String>,
        /// Folder to write all pages into
        #[arg(long, value_name = "FOLDER", conflicts_with = "words")]
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

/// What `schema` prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SchemaOf {
    /// The object that --format json prints and that closes a record
    #[default]
    Summary,
    /// A study file, once its TOML is read as JSON
    Study,
    /// The object that `watch --once --format json` prints
    Watch,
    /// The object that `report --format json` prints of a watch's record
    WatchReport,
    /// The object that `doctor --format json` prints
    Doctor,
    /// The object that `tune --format json` prints
    Tune,
    /// Not a schema: every experiment with its options, their defaults, its metrics and distributions
    Experiments,
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
    /// Seed of everything random: the order of each round, the link's loss and jitter; it is in the
    /// record [default: another for each run]
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// How far the measured link may be from what was asked: median round trip and rate
    /// [default: the larger of 100us and 1% of the round trip, rate=2%]
    #[arg(long, value_name = "delay=TIME,rate=PERCENT")]
    pub link_tolerance: Option<String>,
    /// No progress and no notice of repetitions on stderr
    #[arg(long, short)]
    pub quiet: bool,
}

/// Options of the tour.
#[derive(Clone, Debug, Default, Args)]
pub struct TourArgs {
    /// Where results go
    #[command(flatten)]
    pub output: OutputArgs,
}

const STUDY_AFTER: &str = "\
Examples:
  tcptoll study list                             what comes with tcptoll
  tcptoll study backlog                          run one of them
  tcptoll study backlog --set link=metro --max-time 5m
      the same over another link, for longer
  tcptoll study show backlog > mine.toml         a file to change; check it, then run it
  tcptoll study check mine.toml
  tcptoll study mine.toml
  tcptoll study --resume run.jsonl               go on where a run was stopped or killed";

/// Words of `study`.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_help = STUDY_AFTER)]
pub struct StudyArgs {
    /// What to do; a name alone runs that study
    #[command(subcommand)]
    pub action: Option<StudyAction>,
    /// The study to run
    #[command(flatten)]
    pub run: StudyRunArgs,
}

/// Which study to run, and how.
#[derive(Clone, Debug, Default, Args)]
pub struct StudyRunArgs {
    /// Study to run: a name from `tcptoll study list`, or a file
    #[arg(value_name = "NAME|FILE", conflicts_with = "resume")]
    pub name: Option<String>,
    /// Setting of every arm, in the place of the study's; may be given again
    #[arg(long, value_name = "OPTION=VALUE", requires = "name")]
    pub set: Vec<String>,
    /// How often every arm is run
    #[command(flatten)]
    pub rounds: RoundArgs,
    /// Where results go
    #[command(flatten)]
    pub output: OutputArgs,
}

/// What to do with a study.
#[derive(Clone, Debug, Subcommand)]
pub enum StudyAction {
    /// List the studies that come with tcptoll: arms × rounds, and the question
    List,
    /// Print a study file
    Show {
        /// Its name
        name: String,
    },
    /// Check a study and print its arms, comparisons, rounds and time, without running it
    Check {
        /// Name or file
        name: String,
    },
    /// Run a study, or go on with one
    Run(Box<StudyRunArgs>),
}

const REPORT_AFTER: &str = "\
Examples:
  tcptoll report run.jsonl                       the text of a run again
  tcptoll report run.jsonl --html run.html       with pictures
  tcptoll report run.jsonl --csv run.csv         one line per arm and metric
  tcptoll report run.jsonl --markdown run.md     tables to paste";

/// Options of `report`.
#[derive(Clone, Debug, Args)]
#[command(after_help = REPORT_AFTER)]
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
    /// Also write the figures as CSV
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Also write the tables as Markdown
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
}

const COMPARE_AFTER: &str = "\
Arms of the same name are compared, A over B. What differs between the machines is said.

Examples:
  tcptoll compare today.jsonl yesterday.jsonl
  tcptoll compare new.jsonl old.jsonl --metric connect_us_p99 --metric connections_per_s
  tcptoll compare new.jsonl old.jsonl --margin 2% --format json";

/// Options of `compare`.
#[derive(Clone, Debug, Args)]
#[command(after_help = COMPARE_AFTER)]
pub struct CompareArgs {
    /// Record of the numerator
    #[arg(value_name = "A.jsonl")]
    pub a: PathBuf,
    /// Record of the denominator
    #[arg(value_name = "B.jsonl")]
    pub b: PathBuf,
    /// Metric to compare; may be given again [default: the primary one of A]
    #[arg(long, value_name = "NAME")]
    pub metric: Vec<String>,
    /// Smallest difference that matters, like 1% [default: that of A's study]
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub margin: Option<String>,
    /// What to print on stdout
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

const RUNS_AFTER: &str = "\
Examples:
  tcptoll runs                                   the newest 20
  tcptoll runs --count 1000 --format json | jq -r '.[].path'";

/// Options of `runs`.
#[derive(Clone, Debug, Args)]
#[command(after_help = RUNS_AFTER)]
pub struct RunsArgs {
    /// What to print on stdout
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Records to list, at most
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub count: usize,
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
    /// Refuse a link that is further from what was asked; without it, warn if the round trip is off by more
    /// than 100us and 1%, or the rate by more than 2%
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
