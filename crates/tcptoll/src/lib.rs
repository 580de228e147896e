//! What TCP connections cost, where the cost comes from, and which setting to change.
//!
//! The command line is in `cli`, one file per sub-command in `commands/`; how a run ends is an
//! `exit::Status`. Everything measured comes from `tcptoll-measure` and `tcptoll-live`, every picture from
//! `tcptoll-show`.

mod cli;
mod commands;
mod exit;
mod output;
mod progress;
pub mod schema;
mod screen;
mod stdout;
pub mod studies;
pub mod tune;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use tcptoll_lab::lab;

/// The whole program.
pub fn main() -> ExitCode {
    // A re-executed part of the lab, which must still have one thread: before anything else.
    if let Some(status) = lab::reexecuted(std::env::args_os()) {
        return ExitCode::from(u8::try_from(status).unwrap_or(1));
    }
    if std::env::args_os().nth(1).is_some_and(|word| word == commands::PROVE) {
        return exit::finish(commands::prove());
    }
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let words = cli::words();
            let own = (error.kind() == ErrorKind::DisplayHelp).then(|| cli::help(&words)).flatten();
            if let Some(text) = own {
                return exit::finish(stdout::text(&text));
            }
            // clap gives 0 for --help and 2 for a mistake.
            return exit::refuse(&cli::mended(error, &words));
        }
    };
    exit::finish(commands::run(cli))
}
