//! One file per sub-command that does more than print.

mod compare;
mod explain;
mod http;
mod keepalive;
mod lab;
mod links;
mod manual;
mod prose;
mod runs;
mod serve;
mod study;

use anyhow::{Context as _, bail};
use tcptoll_engine::experiments::bench::target::Target;
use tcptoll_engine::record::Record;
use tcptoll_model::experiments;
use tcptoll_model::record::{Resolved, Summary};
use tcptoll_model::study::Study;

use crate::cli::{Cli, Command, ExperimentArgs, ReportArgs, SchemaOf, TourArgs};
use crate::exit::Status;
use crate::{output, studies};

/// Does what the command line says.
pub(crate) fn run(cli: Cli) -> anyhow::Result<Status> {
    match cli.command.unwrap_or(Command::Tour(TourArgs::default())) {
        Command::Tour(args) => tour(args),
        Command::Experiment(args) => experiment(&args),
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
    let status = output::run(&studies::load("tour")?, &output, &|_| Ok(None))?;
    eprintln!("\nreport with pictures: {}", std::path::absolute(path)?.display());
    Ok(status)
}

fn experiment(args: &ExperimentArgs) -> anyhow::Result<Status> {
    if let Some(record) = &args.rounds.resume {
        studies::check_alone(&args.typed)?;
        return output::resume(record, &args.output);
    }
    let study = studies::from_typed(args.spec, &args.typed, &args.rounds)?;
    study::start(&study, &args.rounds, &args.output, &|resolved| notice(&study, resolved))
}

fn notice(study: &Study, resolved: &[Resolved]) -> anyhow::Result<Option<String>> {
    match study.experiment.as_str() {
        "connect" => connect_notice(study, resolved),
        "http" => http::notice(study, resolved),
        _ => keepalive::notice(study, resolved),
    }
}

fn connect_notice(study: &Study, resolved: &[Resolved]) -> anyhow::Result<Option<String>> {
    use tcptoll_engine::experiments::connect::settings::{ConnectSettings, PUBLIC_RATE_PER_S};
    let Some(to) = study.settings.get("to").and_then(serde_json::Value::as_str) else {
        return Ok(None);
    };
    let checked = ConnectSettings::from(&study.settings, resolved)?;
    Ok(checked.to.as_ref().is_some_and(is_public).then(|| {
        let rate = checked.rate.unwrap_or(PUBLIC_RATE_PER_S);
        let count = checked.expected_count();
        let load = format!("{count} connections at {rate} per second will be opened to it");
        public_notice(to, &load, "--rate and --count set other figures")
    }))
}

/// Whether a server's address is known, and not of this machine or its own network.
fn is_public(target: &Target) -> bool {
    target.known_address().is_some() && target.seems_public()
}

/// Load on somebody else's server is said before it begins.
fn public_notice(target: &str, load: &str, options: &str) -> String {
    format!("notice: {target} is a public address: {load}; make sure you may do this ({options})")
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
    let text = match of {
        SchemaOf::Summary => serde_json::to_string_pretty(&schemars::schema_for!(Summary))?,
        SchemaOf::Study => serde_json::to_string_pretty(&schemars::schema_for!(Study))?,
        SchemaOf::Experiments => serde_json::to_string_pretty(experiments::ALL)?,
    };
    println!("{text}");
    Ok(Status::Met)
}
