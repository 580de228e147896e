//! Which words does `doctor` take?
#![allow(clippy::doc_markdown)] // the doc comments are the help text, which has no back quotes

use std::path::PathBuf;

use clap::Args;

use super::Format;

const DOCTOR_AFTER: &str = "\
Examples:
  tcptoll doctor                                 what is wrong, and what to change
  tcptoll doctor --prove accept-queue-full       re-create it in the lab, with and without the fix
  tcptoll doctor --netns 4711 --format json      of a container, for a script
  tcptoll doctor --html doctor.html              the findings as a page

It only reads, and needs no privileges. Configuration files are read where that is allowed.

Exit status: 0 nothing found; 1 something found; 2 not examined; 130 and 143 stopped by a signal.";

/// Options of `doctor`.
#[derive(Clone, Debug, Args)]
#[command(after_help = DOCTOR_AFTER)]
pub struct DoctorArgs {
    /// Time to look for, from 1s to 1h: counts since boot are no rates
    #[arg(long, value_name = "TIME", default_value = "5s")]
    pub duration: String,
    /// Network namespace to examine: of a process, or a file like /run/netns/NAME
    #[arg(long, value_name = "PID|FILE")]
    pub netns: Option<String>,
    /// Re-create a finding in the lab, with and without its fix; without a name, each that the lab
    /// can hold
    #[arg(long, value_name = "FINDING", num_args = 0..=1, default_missing_value = "all")]
    pub prove: Option<String>,
    /// What to print on stdout
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Also write a self-contained HTML page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// No progress on stderr
    #[arg(long, short)]
    pub quiet: bool,
}
