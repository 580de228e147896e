//! One file per sub-command that does more than print.

mod compare;
mod explain;
mod lab;
mod links;
mod manual;
mod prose;
mod runs;
mod serve;
mod study;

use anyhow::{Context as _, bail};
use tcptoll_engine::record::Record;
use tcptoll_model::record::Summary;
use tcptoll_model::study::Study;

use crate::cli::{
    Cli, Command, ConnectArgs, HttpArgs, KeepaliveArgs, OutputArgs, ReportArgs, RoundArgs,
    SchemaOf, TourArgs,
};
use crate::exit::Status;
use crate::{output, studies};

/// Does what the command line says.
pub(crate) fn run(cli: Cli) -> anyhow::Result<Status> {
    match cli.command.unwrap_or(Command::Tour(TourArgs::default())) {
        Command::Tour(args) => tour(args),
        Command::Connect(args) => connect(&args),
        Command::Http(args) => http(&args),
        Command::Keepalive(args) => keepalive(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Study(args) => study::run(&args),
        Command::Report(args) => report(&args),
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
    let status = output::run(&studies::load("tour")?, &output)?;
    eprintln!("\nreport with pictures: {}", std::path::absolute(path)?.display());
    Ok(status)
}

/// Runs what was typed, or goes on with a run; then nothing else may have been typed. `nothing` is
/// the study of a command line without options.
fn experiment(
    typed: &Study,
    nothing: &Study,
    rounds: &RoundArgs,
    output: &OutputArgs,
) -> anyhow::Result<Status> {
    if let Some(record) = &rounds.resume {
        studies::check_alone(typed, nothing)?;
        return output::resume(record, output);
    }
    study::start(typed, rounds, output)
}

fn connect(args: &ConnectArgs) -> anyhow::Result<Status> {
    let nothing = studies::from_connect(&ConnectArgs::default())?;
    experiment(&studies::from_connect(args)?, &nothing, &args.rounds, &args.output)
}

fn http(args: &HttpArgs) -> anyhow::Result<Status> {
    let nothing = studies::from_http(&HttpArgs::default())?;
    experiment(&studies::from_http(args)?, &nothing, &args.rounds, &args.output)
}

fn keepalive(args: &KeepaliveArgs) -> anyhow::Result<Status> {
    let nothing = studies::from_keepalive(&KeepaliveArgs::default())?;
    experiment(&studies::from_keepalive(args)?, &nothing, &args.rounds, &args.output)
}

fn report(args: &ReportArgs) -> anyhow::Result<Status> {
    let name = args.record.display().to_string();
    let record = Record::read(&args.record).with_context(|| format!("record {name}"))?;
    if record.trials().next().is_none() {
        bail!("record {name}: the run was stopped before its first trial ended");
    }
    let Some(summary) = tcptoll_engine::runner::summarise(&record) else {
        bail!("record {name}: its study is not known to this tcptoll");
    };
    output::print(&summary, Some(&args.record), args.format)?;
    let files = [
        ("--html", &args.html, tcptoll_report::html as fn(&Summary) -> String),
        ("--csv", &args.csv, tcptoll_report::csv),
        ("--markdown", &args.markdown, tcptoll_report::markdown),
    ];
    for (option, path, render) in files {
        if let Some(path) = path {
            std::fs::write(path, render(&summary))
                .with_context(|| format!("{option} {}", path.display()))?;
        }
    }
    Ok(Status::Met)
}

fn schema(of: SchemaOf) -> anyhow::Result<Status> {
    let schema = match of {
        SchemaOf::Summary => schemars::schema_for!(Summary),
        SchemaOf::Study => schemars::schema_for!(Study),
    };
    println!("{}", serde_json::to_string_pretty(&schema)?);
    Ok(Status::Met)
}
