//! Which words the command line takes. Nothing is done here.
#![allow(clippy::doc_markdown)] // the doc comments are the help text, which has no back quotes

mod as_typed;
mod experiment;
mod help;
mod hint;
mod live;
pub(crate) mod tune;

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::{Args, Parser, Subcommand, ValueEnum};
use jiff::Timestamp;

pub(crate) use self::as_typed::{as_typed, check_names};
use self::experiment::{ALONE, percent};
pub(crate) use self::experiment::{ExperimentArgs, RoundArgs, Typed};
pub(crate) use self::help::help;
pub(crate) use self::hint::mended;
pub(crate) use self::live::{DoctorArgs, Serve, ServeArgs, ServeKeepaliveArgs, WatchArgs};
pub(crate) use self::tune::{TuneArgs, TuneDistribution, TuneServer, TuneStrategy};
use tcptoll_core::record::Missing;
use tcptoll_core::study::points;
use tcptoll_core::units::parse_time;

const EXIT_STATUS: &str = "\
Exit status:
  0 measured
  1 measured, but a --fail-if condition is true, the run is invalid, or more operations failed than
    --allow-errors permits
  2 not measured, or no operation succeeded
  3 measured, but the result could not be stored or printed
  130 and 143 stopped by SIGINT and SIGTERM";

/// Measure what TCP connections cost, why, and which setting to change
#[derive(Debug, Parser)]
#[command(name = "tcptoll", disable_version_flag = true, args_conflicts_with_subcommands = true, after_help = hint::questions() + EXIT_STATUS, max_term_width = 100)]
pub(crate) struct Cli {
    /// Command to run [default: tour, which takes about a minute and writes tcptoll-report.html]
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Print the version
    #[arg(short = 'V', long)]
    pub version: bool,
    /// With --version: also what was built, and how
    #[arg(long, requires = "version")]
    pub verbose: bool,
}

/// Sub-commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what connections cost on this machine in about a minute, and write tcptoll-report.html
    Tour(TourArgs),
    /// Measure: an experiment with its options
    #[command(flatten)]
    Experiment(Box<ExperimentArgs>),
    /// Monitor this machine's connections: queues, drops, ports, faults and fixes
    Watch(WatchArgs),
    /// Check this machine's connections, servers and settings for faults, in seconds
    Doctor(DoctorArgs),
    /// Find the settings of Apache or nginx with the shortest page times
    Tune(Box<TuneArgs>),
    /// Run a test server with two ports, SO_KEEPALIVE off and on
    Serve(ServeArgs),
    /// Run a study (a prepared comparison), or list, show or check studies
    Study(Box<StudyArgs>),
    /// Show a recorded run again, as text, JSON, HTML, CSV or Markdown
    Report(ReportArgs),
    /// Compare two records of one experiment, e.g. of different days or settings
    Compare(CompareArgs),
    /// Merge records of several vantage points: machines that ran the same study
    Merge(MergeArgs),
    /// List the records in the default folder, newest first
    Runs(RunsArgs),
    /// Run any command on the client host of the lab, over an emulated link
    Lab(LabArgs),
    /// List the named links, with the source of each figure
    Links,
    /// Explain a cause, error class, warning, error message, counter or status code
    Explain {
        /// Name, e.g. accept-queue-full, or words: EADDRNOTAVAIL, 'connection refused', 502, CLOSE_WAIT, SC--.
        /// Without them, all names are listed
        name: Vec<String>,
        /// Print everything about it, not one screen
        #[arg(long)]
        long: bool,
    },
    /// Print the JSON Schema of an output or of a study file, or all experiments as JSON
    Schema {
        /// Object whose schema is printed
        #[arg(value_enum, default_value_t)]
        of: SchemaOf,
    },
    /// Print the completion script for a shell
    Completions {
        /// Shell that runs the script
        shell: clap_complete::Shell,
    },
    /// Print a man page, or write one per sub-command into a folder
    Man {
        /// Sub-command, e.g. study list. Without it, the page of tcptoll itself is printed
        #[arg(value_name = "SUBCOMMAND")]
        words: Vec<String>,
        /// Folder to write all pages into
        #[arg(long, value_name = "FOLDER", conflicts_with = "words")]
        dir: Option<PathBuf>,
    },
}

/// Output format on stdout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Readable text
    #[default]
    Text,
    /// JSON on one line
    Json,
}

/// What `schema` prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum SchemaOf {
    /// The summary object, which --format json prints and which ends a record
    #[default]
    Summary,
    /// A study file, with its TOML read as JSON
    Study,
    /// The object that `watch --once --format json` prints
    Watch,
    /// The object that `report --format json` prints for a record of `watch`
    WatchReport,
    /// The object that `doctor --format json` prints
    Doctor,
    /// The object that `tune --format json` prints
    Tune,
    /// Not a schema: all experiments, with their options, defaults, metrics and distributions
    Experiments,
}

/// Where results go; the same for every experiment.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Output format on stdout
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Print all figures, causes and warnings, not only the answer on one screen
    #[arg(long)]
    pub details: bool,
    /// File for the record (JSON Lines) [default: a new file in $XDG_DATA_HOME/tcptoll]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Also write a self-contained HTML report
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the packets of both hosts to this file (pcapng), for Wireshark and tcpdump
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// Exit with status 1 if this condition is true, e.g. 'p99(connect_us) > 5000', 'connect_us_mean > 300' or 'connect_us_mean higher'
    #[arg(long, value_name = "LIMIT")]
    pub fail_if: Vec<String>,
    /// Seed of random numbers: order of arms in each round, loss and jitter of the link. The record
    /// contains it [default: a new one for each run]
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// Maximum deviation of the measured link from the requested round trip (median) and rate;
    /// off: do not measure the link [default: the larger of 100us and 1% of the round trip, rate=2%]
    #[arg(long, value_name = "delay=TIME,rate=PERCENT|off")]
    pub link_tolerance: Option<String>,
    /// Name of this machine, if several machines run the same study. The record contains it, for
    /// tcptoll merge
    #[arg(long, value_name = "NAME", value_parser = vantage)]
    pub vantage: Option<String>,
    /// Begin the load of the first trial at this time, e.g. 2026-11-26T12:00:00.5Z, so that several
    /// machines begin together. Needs --every and a fixed number of rounds. The record contains it
    #[arg(long, value_name = "TIME", requires = "every", value_parser = instant, hide_short_help = true)]
    pub start_at: Option<Instant>,
    /// Time from the beginning of one trial's load to the next, e.g. 15s
    #[arg(long, value_name = "TIME", requires = "start_at", value_parser = every, hide_short_help = true)]
    pub every: Option<Duration>,
    /// For --start-at: by how many seconds this machine's clock is ahead of the clock that shows TIME,
    /// e.g. -0.012
    #[arg(
        long,
        value_name = "SECONDS",
        requires = "start_at",
        allow_negative_numbers = true,
        value_parser = clock_ahead,
        hide_short_help = true
    )]
    pub clock_ahead: Option<f64>,
    /// Stop the run when standard input ends, e.g. because the program that started it was killed
    #[arg(long, hide_short_help = true)]
    pub stop_on_eof: bool,
    /// Print no progress and no notices of repeated trials on stderr
    #[arg(long, short)]
    pub quiet: bool,
}

/// The words of the command line, to be shown or searched.
pub(crate) fn words() -> Vec<String> {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect()
}

fn vantage(text: &str) -> Result<String, &'static str> {
    if points::is_name(text) {
        Ok(text.to_owned())
    } else {
        Err(
            "write 1 to 64 letters, digits, dots, hyphens or underscores, the first a letter or digit, like fra1",
        )
    }
}

/// A point in time, and how it was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Instant {
    /// On the wall clock.
    pub at: SystemTime,
    /// As typed.
    pub text: String,
}

fn instant(text: &str) -> Result<Instant, &'static str> {
    text.parse::<Timestamp>()
        .map(|at| Instant { at: SystemTime::from(at), text: text.to_owned() })
        .map_err(|_| "write a date and time with its zone, like 2026-11-26T12:00:00Z")
}

fn clock_ahead(text: &str) -> Result<f64, &'static str> {
    let seconds: Option<f64> = text.parse().ok();
    seconds.filter(|seconds| seconds.abs() < 1e9).ok_or("write seconds, like -0.012")
}

fn every(text: &str) -> Result<Duration, &'static str> {
    parse_time(text).ok().filter(|time| !time.is_zero()).ok_or("write a time above 0, like 15s")
}

/// Options of the tour.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct TourArgs {
    /// Output format on stdout: the answers as text, or one summary object per line
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// File for the report [default: tcptoll-report.html in the current folder, or, if that cannot
    /// be written, next to the records]
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Seed of random numbers [default: a new one for each part]
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// Maximum deviation of a measured link from the requested round trip (median) and rate; off: do not
    /// measure the links
    #[arg(long, value_name = "delay=TIME,rate=PERCENT|off")]
    pub link_tolerance: Option<String>,
    /// Print no progress on stderr
    #[arg(long, short)]
    pub quiet: bool,
}

const STUDY_AFTER: &str = "\
Examples:
  tcptoll study list                             list the built-in studies
  tcptoll study backlog                          run one of them
  tcptoll study backlog --set link=metro --max-time 5m
      the same over another link, with more time
  tcptoll study show backlog > mine.toml         copy one to a file to edit, check and run
  tcptoll study check mine.toml
  tcptoll study mine.toml
  tcptoll study --resume latest                  continue a run that was stopped or killed";

/// Words of `study`.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_help = STUDY_AFTER)]
pub(crate) struct StudyArgs {
    /// Action; a name alone runs that study
    #[command(subcommand)]
    pub action: Option<StudyAction>,
    /// The study to run
    #[command(flatten)]
    pub run: StudyRunArgs,
}

/// Which study to run, and how.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct StudyRunArgs {
    /// Study to run: a name from `tcptoll study list`, or a file
    #[arg(value_name = "NAME|FILE", conflicts_with = "resume")]
    pub name: Option<String>,
    /// Setting of every arm that overrides that of the study; may be repeated
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
pub(crate) enum StudyAction {
    /// List the built-in studies with arms × rounds, and the question of each
    List,
    /// Print a study file
    Show {
        /// Name of a built-in study
        name: String,
    },
    /// Check a study, and print its arms, comparisons, rounds and expected time
    Check {
        /// Name or file of a study
        name: String,
        /// Output format on stdout
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Run a study, or continue one
    Run(Box<StudyRunArgs>),
}

const REPORT_AFTER: &str = "\
Examples:
  tcptoll report latest                          the newest record (`tcptoll runs` lists all)
  tcptoll report run.jsonl                       the text of one record
  tcptoll report run.jsonl --html run.html       a page with charts
  tcptoll report a.jsonl b.jsonl --html all.html two runs on one page
  tcptoll report run.jsonl --svg run.svg         the first chart, for documents and slides
  tcptoll report run.jsonl --csv run.csv         one line per arm and metric
  tcptoll report run.jsonl --markdown run.md     tables to paste";

/// Options of `report`.
#[derive(Clone, Debug, Args)]
#[command(after_help = REPORT_AFTER)]
pub(crate) struct ReportArgs {
    /// Records to read: files, names from `tcptoll runs`, latest or latest~1. With --html, several
    /// records make one page
    #[arg(value_name = "RECORD", required = true)]
    pub records: Vec<PathBuf>,
    /// Output format on stdout
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Write a self-contained HTML report instead of printing text
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the report's first picture as SVG, for documents and slides, instead of printing text
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Write the figures as CSV instead of printing text
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write the tables as Markdown instead of printing text
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
}

const COMPARE_AFTER: &str = "\
Arms with the same name are compared, as ratios NEW / OLD. Differences between the machines are
listed. A verdict needs about 15 rounds in each run: tcptoll http --rounds 15 URL.

Examples:
  tcptoll compare latest latest~1                compare the newest record with the previous one
  tcptoll compare today.jsonl yesterday.jsonl
  tcptoll compare new.jsonl old.jsonl --metric connect_us_p99 --metric connections_per_s
  tcptoll compare new.jsonl old.jsonl --margin 2% --format json";

/// Options of `compare`.
#[derive(Clone, Debug, Args)]
#[command(after_help = COMPARE_AFTER)]
pub(crate) struct CompareArgs {
    /// Record of the new run, the numerator of the ratio: a file, latest, latest~N, or a name from
    /// `tcptoll runs`
    #[arg(value_name = "NEW")]
    pub a: PathBuf,
    /// Record of the run to compare it with, the denominator
    #[arg(value_name = "OLD")]
    pub b: PathBuf,
    /// Metric to compare; may be repeated [default: the primary metric of NEW]
    #[arg(long, value_name = "NAME")]
    pub metric: Vec<String>,
    /// Smallest difference that matters, e.g. 1% [default: the margin of the study of NEW]
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub margin: Option<String>,
    /// Print all figures, causes and warnings, not only the answer on one screen
    #[arg(long)]
    pub details: bool,
    /// Output format on stdout
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

const RUNS_AFTER: &str = "\
Examples:
  tcptoll runs                                   the newest 16
  tcptoll runs --rm latest                       remove the newest record
  tcptoll runs --older-than 30d --rm             remove records older than 30 days
  tcptoll runs --count 1000 --format json | jq -r '.[].path'";

/// Options of `runs`.
#[derive(Clone, Debug, Args)]
#[command(after_help = RUNS_AFTER)]
pub(crate) struct RunsArgs {
    /// Output format on stdout
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Maximum number of records to list
    #[arg(long, value_name = "N", default_value_t = 16, conflicts_with = "rm")]
    pub count: usize,
    /// Print the command and the whole answer of each run, not one line
    #[arg(long, conflicts_with = "rm")]
    pub details: bool,
    /// List only records older than this, e.g. 30d, 2w or 12h
    #[arg(long, value_name = "AGE")]
    pub older_than: Option<String>,
    /// Remove these records, or all that --older-than selects
    #[arg(long, value_name = "RECORD", num_args = 0..)]
    pub rm: Option<Vec<PathBuf>>,
}

const LAB_AFTER: &str = "\
On both hosts, TCPTOLL_SERVER and TCPTOLL_CLIENT contain the addresses of server and client. The
hosts have no other network: servers of this machine cannot be reached, so start one with --server.

Examples:
  tcptoll lab --link cross-region -- sh -c 'ping -c 3 $TCPTOLL_SERVER'
  tcptoll lab --link metro --server 'python3 -m http.server 80' \\
          -- sh -c 'curl -o page.html http://$TCPTOLL_SERVER/'
  tcptoll lab --link lan-1g --server 'iperf3 -s -1' -- sh -c 'iperf3 -c $TCPTOLL_SERVER'
  tcptoll lab --link metro --server 'redis-server --port 6379 --protected-mode no' \\
          -- sh -c 'redis-benchmark -h $TCPTOLL_SERVER -t ping'
  tcptoll lab --link mobile --pcap mobile.pcapng -- bash

The exit status is that of the command, or 2 if the lab could not be set up.";

/// Options of `lab`.
#[derive(Clone, Debug, Args)]
#[command(after_help = LAB_AFTER)]
pub(crate) struct LabArgs {
    /// Link between the two hosts: a name or values (see `tcptoll links`), like
    /// rtt=37ms,loss=0.1%
    #[arg(long, value_name = "LINK", default_value = "direct")]
    pub link: String,
    /// Command that starts a server on the server host, e.g. 'iperf3 -s -1'
    #[arg(long, value_name = "COMMAND")]
    pub server: Option<String>,
    /// Use IPv6
    #[arg(long)]
    pub ipv6: bool,
    /// Relay packets of the emulated link with AF_PACKET sockets, even if /dev/net/tun is available
    #[arg(long)]
    pub packet_relay: bool,
    /// Set a sysctl on the client host, e.g. net.ipv4.tcp_syn_retries=2; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    pub client_sysctl: Vec<String>,
    /// Set a sysctl on the server host, e.g. net.core.somaxconn=128; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    pub server_sysctl: Vec<String>,
    /// Write the packets of both hosts to this file (pcapng)
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// Seed of the loss and jitter of the link
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub seed: u64,
    /// Refuse a link that deviates more from the requested one; off: do not measure it. Without it,
    /// only warn if the round trip deviates by more than 100us and 1%, or the rate by more than 2%
    #[arg(long, value_name = "delay=TIME,rate=PERCENT|off")]
    pub link_tolerance: Option<String>,
    /// Do not print the measured round trip of the link
    #[arg(long, short)]
    pub quiet: bool,
    /// Print an AppArmor profile that allows this binary to create its lab (Ubuntu 24.04), and exit
    #[arg(long)]
    pub apparmor_profile: bool,
    /// Command to run on the client host, after --
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

const MERGE_AFTER: &str = "\
Each record is one vantage point: a machine that ran the same study. The point is the unit: its
rounds give one ratio, and the interval is over points. A verdict over points needs 15 points.
Below that, each point has its own verdict.

Exit status: 0 all points are merged; 1 points are missing or records were left out; 2 nothing merged.

Examples:
  tcptoll study mine.toml --vantage fra1 --rounds 15 --out fra1.jsonl     on each machine
  tcptoll merge *.jsonl --out all.jsonl          what they show together
  tcptoll report all.jsonl --html all.html       the same as a page with charts
  tcptoll merge *.jsonl --missing 'sgp1=the machine was down'";

/// Options of `merge`.
#[derive(Clone, Debug, Args)]
#[command(after_help = MERGE_AFTER)]
pub(crate) struct MergeArgs {
    /// Records of vantage points, or merged records. The name of a point is that of --vantage, or
    /// that of its file
    #[arg(value_name = "RECORD", required = true)]
    pub records: Vec<PathBuf>,
    /// File for the merged record [default: none is written]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Point that should have a record and has none, and why; may be repeated
    #[arg(long, value_name = "NAME[=WHY]", value_parser = missing)]
    pub missing: Vec<Missing>,
    /// Smallest difference that matters, e.g. 1% [default: the margin of the study]
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub margin: Option<String>,
    /// For a load that was split over the points: within what the difference of their clocks is known
    #[arg(long, value_name = "TIME", value_parser = clock_bound)]
    pub clock_bound: Option<Duration>,
    /// Print all figures, causes and warnings, not only the answer on one screen
    #[arg(long)]
    pub details: bool,
    /// Output format on stdout
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

fn missing(text: &str) -> Result<Missing, &'static str> {
    let (point, reason) = text.split_once('=').unwrap_or((text, "no record"));
    if points::is_name(point) {
        Ok(Missing { point: point.to_owned(), reason: reason.trim().to_owned() })
    } else {
        Err("write a point's name, and a reason if there is one, like sgp1='the machine was down'")
    }
}

fn clock_bound(text: &str) -> Result<Duration, &'static str> {
    let bound = parse_time(text).ok().filter(|bound| !bound.is_zero());
    bound.ok_or("write a time above 0, like 3.2ms: no two clocks are known to be the same")
}
