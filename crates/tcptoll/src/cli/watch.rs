//! Which words do `watch` and `doctor` take?
#![allow(clippy::doc_markdown)] // the doc comments are the help text, which has no back quotes

use std::path::PathBuf;

use clap::Args;

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
