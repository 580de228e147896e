//! One file per sub-command that does more than print.

mod compare;
mod doctor;
mod explain;
mod lab;
mod manual;
mod prose;
mod prove;
mod report;
mod runs;
mod serve;
mod study;
mod watch;

use crate::schema::Schema;
use tcptoll_measure::experiments;

use crate::cli::{Cli, Command, ExperimentArgs, SchemaOf, TourArgs, as_typed, check_names, words};
use crate::exit::Status;
use crate::{output, stdout, studies, tune};

pub(crate) use prove::{COMMAND as PROVE, serve as prove};

/// Does what the command line says.
pub(crate) fn run(cli: Cli) -> anyhow::Result<Status> {
    if cli.version {
        return stdout::text(&manual::version(cli.verbose));
    }
    match cli.command.unwrap_or(Command::Tour(TourArgs::default())) {
        Command::Tour(args) => study::tour(&args),
        Command::Experiment(args) => experiment(&args),
        Command::Watch(args) => watch::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Tune(args) => tune::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Study(args) => study::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Merge(args) => compare::merge(&args),
        Command::Runs(args) => runs::run(&args),
        Command::Lab(args) => lab::run(&args),
        Command::Links => manual::links(),
        Command::Explain { name, long } => explain::run(&name.join(" "), long),
        Command::Schema { of } => schema(of),
        Command::Completions { shell } => manual::completions(shell),
        Command::Man { words, dir } => manual::man(&words, dir.as_deref()),
    }
}

/// Runs what was typed, or goes on with a run; then nothing else may have been typed.
fn experiment(args: &ExperimentArgs) -> anyhow::Result<Status> {
    if let Some(record) = &args.rounds.resume {
        studies::check_alone(&args.typed)?;
        return output::resume(&runs::found(record)?, Some(args.spec.name), &args.output);
    }
    let words = words();
    check_names(args, &words)?;
    let study = studies::from_typed(args.spec, &args.typed, &args.rounds)
        .map_err(|error| as_typed(error, args, None, &words))?;
    study::start(&study, &args.rounds, &args.output)
        .map_err(|error| as_typed(error, args, Some(&study), &words))
}

fn schema(which: SchemaOf) -> anyhow::Result<Status> {
    let schema = match which {
        SchemaOf::Summary => Schema::Summary,
        SchemaOf::Study => Schema::Study,
        SchemaOf::Watch => Schema::Watch,
        SchemaOf::WatchReport => Schema::WatchReport,
        SchemaOf::Doctor => Schema::Doctor,
        SchemaOf::Tune => Schema::Tune,
        SchemaOf::Experiments => {
            return stdout::data(&(serde_json::to_string_pretty(experiments::ALL)? + "\n"));
        }
    };
    stdout::data(schema.published())
}
