//! The sub-commands of experiments. Each is built from its description in the model, so that an
//! option is written there and nowhere else.

use std::collections::BTreeMap;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args as _, Command, Error, FromArgMatches, Subcommand};
use tcptoll_model::experiments;
use tcptoll_model::experiments::option::{Levels, Opt};
use tcptoll_model::experiments::spec::{Better, Spec};

use super::{OutputArgs, RoundArgs};

/// The options of an experiment that were typed, by name; a flag has no values.
pub type Typed = BTreeMap<&'static str, Vec<String>>;

/// The command line of an experiment.
#[derive(Clone, Debug)]
pub struct ExperimentArgs {
    /// Which.
    pub spec: &'static Spec,
    /// Its own options.
    pub typed: Typed,
    /// How often every arm is run.
    pub rounds: RoundArgs,
    /// Where results go.
    pub output: OutputArgs,
}

impl Subcommand for ExperimentArgs {
    fn augment_subcommands(command: Command) -> Command {
        command.subcommands(experiments::ALL.iter().map(|spec| sub_command(spec)))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        experiments::find(name).is_some()
    }
}

impl FromArgMatches for ExperimentArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let known = |(name, matches)| Some((experiments::find(name)?, matches));
        let Some((spec, matches)) = matches.subcommand().and_then(known) else {
            return Err(Error::raw(ErrorKind::MissingSubcommand, "write an experiment"));
        };
        Ok(Self {
            spec,
            typed: typed(spec.options.iter().copied(), matches),
            rounds: RoundArgs::from_arg_matches(matches)?,
            output: OutputArgs::from_arg_matches(matches)?,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn sub_command(spec: &Spec) -> Command {
    let options = spec.options.iter().filter_map(|option| argument(option));
    let command = Command::new(spec.name).args(options);
    // The arguments of others come with a description of their own, which is not the command's.
    OutputArgs::augment_args(RoundArgs::augment_args(command))
        .about(spec.about)
        .after_help(spec.examples)
        .mut_arg("fail_if", |argument| argument.help(fail_if(spec)))
}

/// The help of `--fail-if`, with figures of this experiment.
fn fail_if(spec: &Spec) -> String {
    let primary = spec.metrics.iter().find(|metric| metric.name == spec.primary);
    let sign =
        if primary.is_some_and(|metric| metric.better == Better::Higher) { '<' } else { '>' };
    let of_primary = format!("'{} {sign} 300'", spec.primary);
    match spec.answers.first() {
        Some(answer) => {
            format!("Exit with 1 if this holds, like 'p99({answer}) > 5000' or {of_primary}")
        }
        None => format!("Exit with 1 if this holds, like {of_primary}"),
    }
}

/// None: the command line has no option of this name.
pub(super) fn argument(option: &Opt) -> Option<Arg> {
    let argument = Arg::new(option.name).help(option.help_with_default());
    let argument = match option.levels {
        Levels::Setting => return None,
        Levels::Arguments => {
            return Some(argument.value_name(option.value).num_args(1..).action(ArgAction::Append));
        }
        Levels::Flag => argument.action(ArgAction::SetTrue),
        Levels::One => argument.action(ArgAction::Set),
        Levels::Split(_) | Levels::Together => argument.action(ArgAction::Append),
        Levels::Each => argument.action(ArgAction::Append).value_delimiter(','),
        Levels::EachOr(alone) => argument
            .action(ArgAction::Append)
            .value_delimiter(',')
            .num_args(0..=1)
            .default_missing_value(alone),
    };
    let argument = match option.value {
        "" => argument,
        value => argument.value_name(value),
    };
    let argument = argument.long(option.name).visible_aliases(option.aliases.iter().copied());
    let argument = match option.short {
        Some(letter) => argument.short(letter),
        None => argument,
    };
    Some(argument.allow_negative_numbers(option.number).help_heading(option.group))
}

/// Those of the options that were typed.
pub(super) fn typed(options: impl Iterator<Item = &'static Opt>, matches: &ArgMatches) -> Typed {
    let values = |option: &Opt| match option.levels {
        Levels::Setting => None,
        Levels::Flag => matches.get_flag(option.name).then(Vec::new),
        _ => Some(matches.get_many::<String>(option.name)?.cloned().collect()),
    };
    options.filter_map(|option| Some((option.name, values(option)?))).collect()
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use crate::cli::{Cli, Command};

    #[test]
    fn the_command_line_is_one_that_clap_can_parse() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_is_typed_goes_by_the_name_of_its_option() {
        let line = "tcptoll connect --connections 1,2 --concurrency 3 --ipv6 --fast-open --count -5 \
                    --link metro,loss=1% --client-sysctl a=1,2 --client-sysctl b=3";
        let Some(Command::Experiment(args)) = Cli::parse_from(line.split_whitespace()).command
        else {
            panic!("no experiment");
        };
        assert_eq!(args.spec.name, "connect");
        let of = |name: &str| args.typed[name].join(" ");
        assert_eq!(
            ["concurrency", "ipv6", "fast-open", "count", "link", "client-sysctl"].map(of),
            ["1 2 3", "", "on", "-5", "metro,loss=1%", "a=1,2 b=3"]
        );
        assert_eq!(args.typed.len(), 6);
    }
}
