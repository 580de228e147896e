//! One file per sub-command that does more than print.

mod explain;
mod lab;
mod links;
mod manual;

use anyhow::{Context as _, bail};
use tcptoll_engine::record::Record;
use tcptoll_model::record::Summary;

use crate::cli::{Cli, Command, ConnectArgs, ReportArgs, StudyAction, StudyArgs, TourArgs};
use crate::exit::{Status, say};
use crate::{output, studies};

/// Does what the command line says.
pub(crate) fn run(cli: Cli) -> anyhow::Result<Status> {
    match cli.command.unwrap_or(Command::Tour(TourArgs::default())) {
        Command::Tour(args) => tour(args),
        Command::Connect(args) => connect(&args),
        Command::Study(args) => study(args),
        Command::Report(args) => report(&args),
        Command::Lab(args) => lab::run(&args),
        Command::Links => Ok(links::run()),
        Command::Explain { name } => explain::run(name.as_deref()),
        Command::Schema => schema(),
        Command::Completions { shell } => manual::completions(shell),
        Command::Man { dir } => manual::man(dir.as_deref()),
    }
}

fn tour(args: TourArgs) -> anyhow::Result<Status> {
    let mut output = args.output;
    let path = output.html.get_or_insert_with(|| "tcptoll-report.html".into()).clone();
    let status = output::run(&studies::load("tour")?, &output)?;
    eprintln!("\nreport with pictures: {}", std::path::absolute(path)?.display());
    Ok(status)
}

fn connect(args: &ConnectArgs) -> anyhow::Result<Status> {
    let study = studies::from_connect(args);
    if let Some(notice) = public_notice(args)? {
        say(&notice);
    }
    output::run(&study, &args.output)
}

/// Load on somebody else's server is said before it begins.
fn public_notice(args: &ConnectArgs) -> anyhow::Result<Option<String>> {
    use tcptoll_engine::experiments::connect_settings::{ConnectSettings, PUBLIC_RATE_PER_S};
    let Some(to) = &args.to else { return Ok(None) };
    let settings = studies::from_connect(args).settings;
    let checked = ConnectSettings::from(&settings)?;
    Ok(checked.public_target.then(|| {
        let rate = checked.rate.unwrap_or(PUBLIC_RATE_PER_S);
        format!(
            "notice: {to} is a public address: {} connections at {rate} per second will be opened to it; make sure you may do this (--rate and --count set other figures)",
            checked.count
        )
    }))
}

fn study(args: StudyArgs) -> anyhow::Result<Status> {
    let (name, output) = match (args.action, args.name) {
        (Some(StudyAction::Run { name, output }), _) => (name, output),
        (None, Some(name)) => (name, args.output),
        (Some(StudyAction::List) | None, None) | (Some(StudyAction::List), Some(_)) => {
            for (name, _) in studies::BUILT_IN {
                println!("{name:<16}{}", studies::load(name)?.question);
            }
            return Ok(Status::Met);
        }
        (Some(StudyAction::Show { name }), _) => {
            print!("{}", studies::text(&name)?);
            return Ok(Status::Met);
        }
        (Some(StudyAction::Check { name }), _) => {
            let study = studies::load(&name)?;
            let (experiment, arms) = tcptoll_engine::runner::check(&study)?;
            let seconds: f64 = arms.iter().map(|arm| experiment.expected_s(&arm.settings)).sum();
            for arm in &arms {
                println!("{}", arm.name);
            }
            println!("{} arms, about {seconds:.0} s", arms.len());
            return Ok(Status::Met);
        }
    };
    output::run(&studies::load(&name)?, &output)
}

fn report(args: &ReportArgs) -> anyhow::Result<Status> {
    let name = args.record.display().to_string();
    let record = Record::read(&args.record).with_context(|| format!("record {name}"))?;
    let Some(summary) = tcptoll_engine::runner::summarise(&record) else {
        bail!("record {name}: its experiment is not known to this tcptoll");
    };
    if summary.arms.is_empty() {
        bail!("record {name}: the run was stopped before its first trial ended");
    }
    output::print(&summary, Some(&args.record), args.format)?;
    if let Some(path) = &args.html {
        output::write_html(&summary, path)?;
    }
    Ok(Status::Met)
}

fn schema() -> anyhow::Result<Status> {
    println!("{}", serde_json::to_string_pretty(&schemars::schema_for!(Summary))?);
    Ok(Status::Met)
}
