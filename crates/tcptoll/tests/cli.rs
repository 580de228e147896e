//! The command line without a lab: help, wrong input, exit status, files read and printed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "cli/doctor.rs"]
mod doctor;
#[path = "cli/keepalive.rs"]
mod keepalive;
#[path = "cli/lines.rs"]
mod lines;
#[path = "cli/merge.rs"]
mod merge;
#[path = "cli/printed.rs"]
mod printed;
#[path = "cli/refused.rs"]
mod refused;
#[path = "cli/tune.rs"]
mod tune;
#[path = "cli/typed.rs"]
mod typed;
#[path = "cli/watch.rs"]
mod watch;

use std::process::{Command, Stdio};

/// What came of a command.
struct Ran {
    status: Option<i32>,
    stdout: String,
    stderr: String,
}

/// Runs the binary 100 columns wide, without colour, with a data folder that cannot be.
fn tcptoll<S: AsRef<std::ffi::OsStr>>(args: &[S]) -> Ran {
    let output = Command::new(env!("CARGO_BIN_EXE_tcptoll"))
        .args(args)
        .env("COLUMNS", "100")
        .env("NO_COLOR", "1")
        .env("XDG_DATA_HOME", "/proc/no-such-folder")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    Ran {
        status: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}
