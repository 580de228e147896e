//! By which of its names was an option typed? A refusal names it so: `-c`, `--connections` or nothing, where a server
//! stands alone, and not the name that studies have.

use anyhow::bail;
use tcptoll_core::experiment::option::{Levels, Opt};
use tcptoll_core::study::Study;
use tcptoll_measure::kit::TrialError;
use tcptoll_measure::runner::RunError;

use super::ExperimentArgs;
use crate::exit::NotStored;

/// The names of an option in a command line, in their order.
fn names_typed<'a>(option: &'a Opt, args: &'a [String]) -> impl Iterator<Item = String> + 'a {
    let is_name = |name: &str| name == option.name || option.aliases.contains(&name);
    args.iter().take_while(|arg| *arg != "--").filter_map(move |arg| {
        if let Some(long) = arg.strip_prefix("--") {
            let name = long.split('=').next().unwrap_or(long);
            return is_name(name).then(|| format!("--{name}"));
        }
        let letter = arg.strip_prefix('-')?.chars().next()?;
        option.letters.contains(&letter).then(|| format!("-{letter}"))
    })
}

/// Refuses an option that was given by two of its names: they look like two settings.
pub(crate) fn check_names(line: &ExperimentArgs, args: &[String]) -> anyhow::Result<()> {
    for option in line.spec.options.iter().filter(|option| line.typed.contains_key(option.name)) {
        let mut names = names_typed(option, args);
        let Some(first) = names.next() else { continue };
        if let Some(second) = names.find(|name| *name != first) {
            let values = line.typed[option.name].join(",");
            let or = match option.levels {
                Levels::Each | Levels::EachOr(_) | Levels::Split(_) => {
                    format!(", or {first} {values} for an arm each")
                }
                _ => String::new(),
            };
            bail!("{first} and {second} are the same option, given twice: write one of them{or}");
        }
    }
    Ok(())
}

/// The error with options by the names that were typed, and without the name of an arm that nobody typed.
pub(crate) fn as_typed(
    error: anyhow::Error,
    line: &ExperimentArgs,
    study: Option<&Study>,
    args: &[String],
) -> anyhow::Error {
    if error.is::<NotStored>() {
        return error;
    }
    let whole = format!("{error:#}");
    let said = match error.downcast_ref::<RunError>() {
        Some(RunError::Arm { error: inner, .. }) if !is_of_an_arm(inner, line, study) => {
            inner.to_string()
        }
        _ => whole.clone(),
    };
    let mut said = said;
    for option in line.spec.options {
        let Some(values) = line.typed.get(option.name) else { continue };
        let long = format!("--{}", option.name);
        if matches!(option.levels, Levels::Arguments) {
            said = said.replace(&format!("{long} "), "");
            continue;
        }
        match names_typed(option, args).next() {
            Some(name) => said = renamed(&said, &long, &name),
            // The server stands alone.
            None => {
                for value in values {
                    said = said.replace(&format!("{long} {value}"), value);
                }
            }
        }
    }
    if said == whole { error } else { anyhow::Error::msg(said) }
}

/// Whether what is wrong with an arm is due to what the user typed to have several.
fn is_of_an_arm(error: &TrialError, line: &ExperimentArgs, study: Option<&Study>) -> bool {
    let Some(study) = study else { return true };
    let varies = |name: &str| {
        let in_arms = || study.named_arms.iter().any(|arm| arm.settings.contains_key(name));
        line.typed.contains_key(name) && (study.factors.contains_key(name) || in_arms())
    };
    let sentence = error.to_string();
    let named = sentence.strip_prefix("--").and_then(|rest| rest.split([' ', ':']).next());
    match named {
        Some(name) if line.spec.option(name).is_some() => varies(name),
        _ => line.spec.options.iter().any(|option| varies(option.name)),
    }
}

/// `--sockets` as `--connections`, but no other option that begins so.
fn renamed(text: &str, from: &str, to: &str) -> String {
    let mut said = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(from) {
        let after = &rest[at + from.len()..];
        let ends = !after.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-');
        said += &rest[..at];
        said += if ends { to } else { from };
        rest = after;
    }
    said + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser as _;

    fn said(line: &str, error: &str) -> String {
        let (args, words) = words(line);
        as_typed(anyhow::Error::msg(error.to_owned()), &args, None, &words).to_string()
    }

    fn words(line: &str) -> (ExperimentArgs, Vec<String>) {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        match Cli::parse_from(&words).command {
            Some(Command::Experiment(args)) => (*args, words),
            other => panic!("no experiment: {other:?}"),
        }
    }

    #[test]
    fn an_option_is_named_as_it_was_typed() {
        let error = "--sockets 0: write a number; lower --sockets or --sockets-x";
        for (line, says) in [
            (
                "tcptoll keepalive --connections 0",
                "--connections 0: write a number; lower --connections or --sockets-x",
            ),
            ("tcptoll keepalive -c0", "-c 0: write a number; lower -c or --sockets-x"),
            ("tcptoll keepalive --sockets=0", error),
            ("tcptoll keepalive", error),
        ] {
            assert_eq!(said(line, error), says, "{line}");
        }
        assert_eq!(said("tcptoll connect x", "--to x: write HOST:PORT"), "x: write HOST:PORT");
        let typed = said("tcptoll connect --to x", "--to x: write HOST:PORT");
        assert_eq!(typed, "--to x: write HOST:PORT");
        assert_eq!(said("tcptoll http x", "--url x: no scheme"), "x: no scheme");
    }

    #[test]
    fn two_names_of_one_option_are_given_twice() {
        let refused = |line: &str| {
            let (args, words) = words(line);
            check_names(&args, &words).err().map(|error| error.to_string())
        };
        let says = "--sockets and --connections are the same option, given twice: write one of them, or --sockets 10,5 for an arm each";
        assert_eq!(
            refused("tcptoll keepalive --sockets 10 --connections 5").as_deref(),
            Some(says)
        );
        assert!(refused("tcptoll http -n 5 --requests 6 x:1").is_some());
        assert_eq!(refused("tcptoll http -c 5 -c 6 x:1"), None);
    }
}
