//! Completion scripts, from the definition of the command line, with the values that options accept.

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Arg, Command, CommandFactory as _, ValueHint};
use tcptoll_core::link::PROFILES;
use tcptoll_measure::experiments;

use super::explain;
use crate::cli::Cli;
use crate::exit::Status;
use crate::studies;

/// Placeholders of values that are files; every other one completes to no file name.
const FILES: [&str; 10] = [
    "COMMAND",
    "FILE",
    "FOLDER",
    "NAME|FILE",
    "NEW",
    "OLD",
    "PATH",
    "PID|FILE",
    "RECORD",
    "TARGET",
];

/// Prints the script of a shell.
pub(super) fn run(shell: clap_complete::Shell) -> anyhow::Result<Status> {
    let mut bytes = Vec::new();
    let mut command = Cli::command();
    // Only what is built has all of its arguments.
    command.build();
    clap_complete::generate(shell, &mut with_values(command, ""), "tcptoll", &mut bytes);
    crate::stdout::data(&String::from_utf8(bytes)?)
}

/// The command with the values of its arguments and those of its sub-commands.
fn with_values(command: Command, above: &str) -> Command {
    let name = command.get_name().to_owned();
    let argument = |argument: Arg| {
        let accepted = values(&name, above, &argument);
        let placeholder = argument.get_value_names().and_then(|names| names.first());
        let is_file = placeholder.is_some_and(|name| FILES.contains(&name.as_str()));
        if !accepted.is_empty() {
            let accepted = accepted.into_iter().map(PossibleValue::new);
            argument.value_parser(PossibleValuesParser::new(accepted))
        } else if is_file || !argument.get_possible_values().is_empty() {
            argument
        } else {
            argument.value_hint(ValueHint::Other)
        }
    };
    command.mut_args(argument).mut_subcommands(|inner| with_values(inner, &name))
}

/// What an argument accepts, as far as it has names.
fn values(command: &str, above: &str, argument: &Arg) -> Vec<&'static str> {
    let id = argument.get_id().as_str();
    let of_experiment = experiments::find(command).and_then(|spec| spec.option(id));
    match (above, command) {
        _ if id == "link" => PROFILES.iter().map(|profile| profile.name).collect(),
        ("study", "run" | "show" | "check") | (_, "study") if argument.is_positional() => {
            studies::BUILT_IN.iter().map(|(name, _)| *name).collect()
        }
        (_, "explain") if argument.is_positional() => explain::all().collect(),
        _ => {
            let placeholder = of_experiment.map_or("", |option| option.value);
            let words: Vec<&str> = placeholder.split(',').collect();
            let is_word = |word: &&str| word.starts_with(|c: char| c.is_ascii_lowercase());
            let are_words = words.len() > 1 && words.iter().all(is_word);
            if are_words && !placeholder.contains('=') { words } else { Vec::new() }
        }
    }
}
