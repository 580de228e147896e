//! One file per sub-command that does more than print.

mod compare;
mod doctor;
mod explain;
mod lab;
mod links;
mod manual;
mod narrow;
mod prose;
mod report;
mod runs;
mod serve;
mod study;
mod tune;
mod watch;

use std::path::PathBuf;

use tcptoll_model::doctor::Examination;
use tcptoll_model::experiments;
use tcptoll_model::record::Summary;
use tcptoll_model::study::Study;
use tcptoll_model::tune::found::Found;
use tcptoll_model::watch::State;
use tcptoll_model::watch::review::Review;

use crate::cli::{Cli, Command, ExperimentArgs, Format, OutputArgs, SchemaOf, TourArgs};
use crate::exit::Status;
use crate::{output, studies};

pub(crate) use doctor::prove::{COMMAND as PROVE, serve as prove};

/// Studies that follow the first in the tour, `tour-NAME` each.
const TOUR_PARTS: &[&str] = &["buffers", "nagle"];

/// Does what the command line says.
pub(crate) fn run(cli: Cli) -> anyhow::Result<Status> {
    match cli.command.unwrap_or(Command::Tour(TourArgs::default())) {
        Command::Tour(args) => tour(args),
        Command::Experiment(args) => experiment(&args),
        Command::Watch(args) => watch::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Tune(args) => tune::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Study(args) => study::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Runs(args) => runs::run(&args),
        Command::Lab(args) => lab::run(&args),
        Command::Links => Ok(links::run()),
        Command::Explain { name } => explain::run(name.as_deref()),
        Command::Schema { of } => schema(of),
        Command::Completions { shell } => manual::completions(shell),
        Command::Man { words, dir } => manual::man(&words, dir.as_deref()),
    }
}

fn tour(args: TourArgs) -> anyhow::Result<Status> {
    let mut output = args.output;
    let path = output.html.get_or_insert_with(|| "tcptoll-report.html".into()).clone();
    let mut status = output::run(&studies::load("tour")?, &output)?;
    let mut pages = vec![path];
    // One JSON object is all that a program expects.
    let further = if output.format == Format::Text { TOUR_PARTS } else { &[] };
    for name in further {
        if !matches!(status, Status::Met | Status::Missed) {
            break;
        }
        let part = part_of(&output, name);
        println!();
        let ended = output::run(&studies::load(&format!("tour-{name}"))?, &part)?;
        status = if ended == Status::Met { status } else { ended };
        pages.extend(part.html);
    }
    // The first page is the last line: it is the one to begin with.
    for page in pages.iter().rev() {
        eprintln!("\nreport with pictures: {}", std::path::absolute(page)?.display());
    }
    Ok(status)
}

/// Where the results of a further part of the tour go: next to those of the first, with its name.
fn part_of(output: &OutputArgs, name: &str) -> OutputArgs {
    let named = |path: &PathBuf| {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let ending = path.extension().map(|ending| format!(".{}", ending.to_string_lossy()));
        path.with_file_name(format!("{stem}-{name}{}", ending.unwrap_or_default()))
    };
    OutputArgs {
        out: output.out.as_ref().map(named),
        html: output.html.as_ref().map(named),
        pcap: output.pcap.as_ref().map(named),
        // They are of figures of the first part.
        fail_if: Vec::new(),
        ..output.clone()
    }
}

/// Runs what was typed, or goes on with a run; then nothing else may have been typed.
fn experiment(args: &ExperimentArgs) -> anyhow::Result<Status> {
    if let Some(record) = &args.rounds.resume {
        studies::check_alone(&args.typed)?;
        return output::resume(record, &args.output);
    }
    let study = studies::from_typed(args.spec, &args.typed, &args.rounds)?;
    study::start(&study, &args.rounds, &args.output)
}

fn schema(of: SchemaOf) -> anyhow::Result<Status> {
    let text = match of {
        SchemaOf::Summary => serde_json::to_string_pretty(&schemars::schema_for!(Summary))?,
        SchemaOf::Study => serde_json::to_string_pretty(&schemars::schema_for!(Study))?,
        SchemaOf::Watch => serde_json::to_string_pretty(&schemars::schema_for!(State))?,
        SchemaOf::WatchReport => serde_json::to_string_pretty(&schemars::schema_for!(Review))?,
        SchemaOf::Doctor => serde_json::to_string_pretty(&schemars::schema_for!(Examination))?,
        SchemaOf::Tune => serde_json::to_string_pretty(&schemars::schema_for!(Found))?,
        SchemaOf::Experiments => serde_json::to_string_pretty(experiments::ALL)?,
    };
    study::print(&(text + "\n"))
}
