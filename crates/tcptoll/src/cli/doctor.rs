//! Which words does `doctor` take?
#![allow(clippy::doc_markdown)] // the doc comments are the help text, which has no back quotes

use std::path::PathBuf;

use clap::Args;

use super::Format;

const DOCTOR_AFTER: &str = "\
Examples:
  tcptoll doctor                                 what is wrong here, and which setting to change
  sudo tcptoll doctor                            include what only root may read
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
    /// Print no progress on stderr
    #[arg(long, short)]
    pub quiet: bool,
}
