//! Which words do `watch` and `doctor` take?
#![allow(clippy::doc_markdown)] // the doc comments are the help text, which has no back quotes

use std::path::PathBuf;

use clap::Args;

use super::Format;

const WATCH_AFTER: &str = "\
Examples:
  tcptoll watch                                  the screen; h shows its keys, q quits
  tcptoll watch --once                           look for a second, print it, end
  tcptoll watch --once --format json | jq '.diagnoses'
  tcptoll watch --format json | jq '.rates'      a line of JSON for each look, no screen
  tcptoll watch --netns 4711                     in the network namespace of process 4711
  tcptoll watch --record night.jsonl             also keep what is seen; later:
  tcptoll report night.jsonl --html night.html
  tcptoll watch --listen 127.0.0.1:9464          without a screen, for Prometheus: /metrics

It only reads, and needs no privileges. Owners of sockets are shown where they may be read.

Exit status: 0 watched, whatever was found; 2 not watched: wrong input, no access, or looks that
failed; 3 watched, but the record is not whole or standard output could not be written;
130, 143 and 129 stopped by a signal (Ctrl-C: 130).";

/// Options of `watch`.
#[derive(Clone, Debug, Args)]
#[command(after_help = WATCH_AFTER)]
pub struct WatchArgs {
    /// Look for one interval, print what was seen, and end
    #[arg(long)]
    pub once: bool,
    /// What to print on stdout: text (with --once), or JSON (`tcptoll schema watch`): one object with
    /// --once, else one line for each look and no screen
    #[arg(
        long,
        value_enum,
        default_value_t,
        hide_possible_values = true,
        value_name = "text|json"
    )]
    pub format: Format,
    /// Time between two looks, from 100ms to 1h
    #[arg(long, value_name = "TIME", default_value = "1s", allow_hyphen_values = true)]
    pub interval: String,
    /// End after this time, like 8h [default: goes on until it is stopped]
    #[arg(long, value_name = "TIME", conflicts_with = "once", allow_hyphen_values = true)]
    pub duration: Option<String>,
    /// Network namespace to look at: of a process, or a file like /run/netns/NAME
    #[arg(long, value_name = "PID|FILE")]
    pub netns: Option<String>,
    /// Do not look up which process owns a socket
    #[arg(long)]
    pub no_owners: bool,
    /// Write what is seen to this file (JSON Lines); `tcptoll report FILE` draws it
    #[arg(long, value_name = "FILE", conflicts_with = "once")]
    pub record: Option<PathBuf>,
    /// Size that the record may reach, like 64M; older intervals are then joined
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "64M",
        requires = "record",
        conflicts_with = "once"
    )]
    pub record_limit: String,
    /// Serve metrics for Prometheus at this address, like 127.0.0.1:9464; no screen
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "once")]
    pub listen: Option<String>,
    /// Another host name by which scrapers may ask for the metrics; may be given again
    #[arg(long, value_name = "HOST", requires = "listen", conflicts_with = "once")]
    pub allow_host: Vec<String>,
    /// No screen: write a line when a fault begins and when it ends
    #[arg(long, conflicts_with = "once")]
    pub no_screen: bool,
}
