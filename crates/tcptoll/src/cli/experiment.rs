//! The sub-commands of experiments. Each is built from its description, so that an
//! option is written there and nowhere else; and the words that say how often every arm is run, and when to stop.
#![allow(clippy::doc_markdown)] // the doc comments are the help text, which has no back quotes

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, Subcommand};

use super::OutputArgs;
use tcptoll_core::experiment::option::{Levels, Opt};
use tcptoll_core::experiment::spec::Spec;
use tcptoll_core::study::stop::{ROUNDS_MAX, Target};
use tcptoll_core::study::{RoundsAsked, Study, failures_share, percentage};
use tcptoll_core::units::parse_time;
use tcptoll_measure::experiments;
use tcptoll_measure::limit::examples;

/// The options of an experiment that were typed, by name; a flag has no values.
pub(crate) type Typed = BTreeMap<&'static str, Vec<String>>;

/// The command line of an experiment.
#[derive(Clone, Debug)]
pub(crate) struct ExperimentArgs {
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
            typed: typed_with_alone(spec, matches),
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
    let command = Command::new(spec.name).args(options).args(alone(spec));
    // The arguments of others come with a description of their own, which is not the command's.
    let command = OutputArgs::augment_args(RoundArgs::augment_args(command))
        .about(spec.about)
        .after_help(spec.examples)
        .mut_arg("fail_if", |argument| {
            argument.help(format!("Exit with 1 if this holds, like {}", examples(spec)))
        });
    let is_taken = spec.options.iter().any(|option| option.letters.contains(&'q'));
    if is_taken {
        // The letter is an option's of this experiment, as in tools that its users come from.
        command.mut_arg("quiet", |argument| argument.short(None::<char>))
    } else {
        command
    }
}

/// The name of an argument that stands alone and means the option that names a server.
pub(super) const ALONE: &str = "server-alone";

/// Servers without their option: `connect HOST:PORT`. None: its option is such an argument already, or
/// there is none.
fn alone(spec: &Spec) -> Option<Arg> {
    let option = spec.option(spec.target?)?;
    if matches!(option.levels, Levels::Arguments) {
        return None;
    }
    let help = format!("The same as --{} {}", option.name, option.value);
    let argument = Arg::new(ALONE).value_name(option.value).help(help);
    let argument = argument.num_args(1..).action(ArgAction::Append).value_delimiter(',');
    Some(argument.conflicts_with(option.name))
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
    let argument = match option.letters.split_first() {
        Some((letter, others)) => {
            argument.short(*letter).visible_short_aliases(others.iter().copied())
        }
        None => argument,
    };
    Some(argument.allow_negative_numbers(option.number).help_heading(option.group))
}

/// What was typed, with a server that stands alone as its option.
fn typed_with_alone(spec: &'static Spec, matches: &ArgMatches) -> Typed {
    let mut typed = typed(spec.options.iter().copied(), matches);
    if let (Some(target), Some(option)) = (spec.target, alone(spec))
        && let Some(servers) = matches.get_many::<String>(option.get_id().as_str())
    {
        typed.insert(target, servers.cloned().collect());
    }
    typed
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

/// How often every arm is run; the same for every experiment.
#[derive(Clone, Debug, Default, PartialEq, Args)]
#[command(next_help_heading = "Rounds")]
pub(crate) struct RoundArgs {
    /// Number of rounds. Each round runs every arm (variant) once, in random order [default: 1 with
    /// one arm; otherwise until every verdict is found, from round 15 on, at most 30 rounds or 60s]
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(ROUNDS_MAX)),
        conflicts_with_all = ["target", "max_rounds"]
    )]
    pub rounds: Option<u32>,
    /// Stop when every comparison has a verdict ('verdict'), or when every confidence interval
    /// reaches at most 1% to each side ('ci 1%')
    #[arg(long, value_name = "TARGET", value_parser = target)]
    pub target: Option<String>,
    /// Maximum number of rounds [default: 30]
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(ROUNDS_MAX))
    )]
    max_rounds: Option<u32>,
    /// Start no round that would end after this time, e.g. 2m
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub max_time: Option<String>,
    /// Smallest difference that matters, e.g. 1%. If the whole interval lies within it, the verdict
    /// is 'no difference found'
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub margin: Option<String>,
    /// Share of operations that may fail, e.g. 60%. If more fail, the run is invalid (exit status
    /// 1) [default: 1%; no limit where failures are the subject, as with a full queue]
    #[arg(long, value_name = "PERCENT", value_parser = failures)]
    allow_errors: Option<String>,
    /// Print arms, comparisons, rounds and expected time without running anything
    #[arg(long, alias = "no-proof")]
    pub(crate) dry_run: bool,
    /// Continue a run that was stopped or killed: its record, a name from `tcptoll runs`, or latest.
    /// The record contains all other settings
    #[arg(
        long,
        value_name = "RECORD",
        conflicts_with_all =
            ["rounds", "target", "max_rounds", "max_time", "margin", "allow_errors", "dry_run"]
    )]
    pub resume: Option<PathBuf>,
}

impl RoundArgs {
    /// Puts what was typed in the place of what the study says.
    pub(crate) fn apply(&self, study: &mut Study) {
        let rounds = &mut study.rounds;
        if let Some(count) = self.rounds {
            // So many, however long they take.
            *rounds = RoundsAsked { fixed: Some(count), ..RoundsAsked::default() };
        }
        if let Some(target) = &self.target {
            rounds.fixed = None;
            rounds.target = Some(target.clone());
        }
        if let Some(most) = self.max_rounds {
            if let Some(fixed) = &mut rounds.fixed {
                *fixed = most.min(*fixed);
            } else {
                rounds.max = Some(most);
                rounds.min = rounds.min.map(|least| least.min(most));
            }
        }
        if let Some(time) = &self.max_time {
            rounds.max_time = Some(time.clone());
        }
        if let Some(margin) = &self.margin {
            study.margin = Some(margin.clone());
        }
        if let Some(share) = &self.allow_errors {
            study.failures = Some(share.clone());
            study.named_arms.iter_mut().for_each(|arm| arm.failures = None);
        }
    }
}

fn target(text: &str) -> Result<String, &'static str> {
    Target::parse(text).map(|_| text.to_owned())
}

fn time(text: &str) -> Result<String, String> {
    parse_time(text).map(|_| text.to_owned()).map_err(|error| error.remedy().replace("37ms", "2m"))
}

fn failures(text: &str) -> Result<String, &'static str> {
    failures_share(text)
        .map(|_| text.to_owned())
        .ok_or("write a percentage from 0% to 100%, like 60%, or expected")
}

pub(super) fn percent(text: &str) -> Result<String, &'static str> {
    percentage(text)
        .map(|_| text.to_owned())
        .ok_or("write a percentage above 0% and below 100%, like 1%")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory as _, Parser};

    use crate::cli::{Cli, Command};

    #[test]
    fn the_command_line_is_one_that_clap_can_parse() {
        Cli::command().debug_assert();
    }

    #[test]
    fn letters_and_words_of_other_tools_mean_the_same_options() {
        let typed = |line: &str| match Cli::parse_from(line.split_whitespace()).command {
            Some(Command::Experiment(args)) => args.typed,
            other => panic!("no experiment: {other:?}"),
        };
        let long = "tcptoll http --connections 50 --threads 2 --duration 10s --rate 2k \
                    --header A:b 127.0.0.1:80";
        assert_eq!(
            typed("tcptoll http -c50 -t2 -d10s -R2k -H A:b 127.0.0.1:80"),
            typed(long),
            "wrk"
        );
        let long =
            "tcptoll http --requests 9 --connections 5 --rate 7 --duration 1s --method PUT :80";
        assert_eq!(typed("tcptoll http -n 9 -c 5 -q 7 -z 1s -m PUT :80"), typed(long), "oha");
        assert_eq!(typed("tcptoll http --concurrency 5"), typed("tcptoll http --connections 5"));
        assert_eq!(typed("tcptoll connect db:5432"), typed("tcptoll connect --to db:5432"));
        let both = "tcptoll connect db:5432 --to db:5433".split_whitespace();
        assert!(Cli::try_parse_from(both).is_err());
        let quiet = Cli::parse_from("tcptoll connect -q".split_whitespace()).command;
        assert!(matches!(quiet, Some(Command::Experiment(args)) if args.output.quiet));
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
        let typed = |name: &str| args.typed[name].join(" ");
        assert_eq!(
            ["concurrency", "ipv6", "fast-open", "count", "link", "client-sysctl"].map(typed),
            ["1 2 3", "", "on", "-5", "metro,loss=1%", "a=1,2 b=3"]
        );
        assert_eq!(args.typed.len(), 6);
    }

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        rounds: RoundArgs,
    }

    fn typed(words: &[&str]) -> Result<RoundArgs, String> {
        Alone::try_parse_from([&["x"], words].concat())
            .map(|alone| alone.rounds)
            .map_err(|error| error.to_string())
    }

    /// What becomes of a study's rounds.
    fn applied(words: &[&str], rounds: RoundsAsked) -> RoundsAsked {
        let mut study = Study { rounds, ..Study::default() };
        typed(words).unwrap().apply(&mut study);
        study.rounds
    }

    #[test]
    fn what_is_typed_takes_the_place_of_what_the_study_says() {
        let fixed = RoundsAsked { fixed: Some(30), ..RoundsAsked::default() };
        let sought = RoundsAsked {
            target: Some("ci 1%".into()),
            min: Some(8),
            max: Some(50),
            ..RoundsAsked::default()
        };
        assert_eq!(applied(&[], sought.clone()), sought);
        let three = RoundsAsked { fixed: Some(3), ..RoundsAsked::default() };
        assert_eq!(applied(&["--rounds", "3"], sought.clone()), three);
        assert_eq!(applied(&["--max-rounds", "3"], fixed.clone()), three);
        assert_eq!(
            applied(&["--target", "verdict", "--max-time", "2m"], fixed),
            RoundsAsked {
                target: Some("verdict".into()),
                max_time: Some("2m".into()),
                ..RoundsAsked::default()
            }
        );
        let fewer = applied(&["--max-rounds", "6"], sought);
        assert_eq!((fewer.min, fewer.max), (Some(6), Some(6)));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_its_option() {
        for (words, says) in [
            (&["--rounds", "0"][..], "--rounds"),
            (&["--rounds", "-1"], "--rounds"),
            (&["--max-rounds", "1001"], "1..=1000"),
            (&["--target", "ci"], "write \"ci 1%\" or \"verdict\""),
            (&["--max-time", "2"], "like 2m"),
            (&["--margin", "0%"], "like 1%"),
            (&["--allow-errors", "60"], "like 60%"),
            (&["--rounds", "3", "--target", "verdict"], "--target"),
            (&["--resume", "x", "--rounds", "3"], "--resume"),
        ] {
            let error = typed(words).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
