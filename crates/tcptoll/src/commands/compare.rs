//! `tcptoll compare A B`: two runs of the same arms, on another day, kernel or machine.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use serde::Serialize;

use super::runs;
use crate::cli::{CompareArgs, Format, MergeArgs};
use crate::exit::{Status, say};
use crate::{output, screen, stdout};
use tcptoll_core::record::{Comparison, Missing, Summary, Trial, WarningEntry};
use tcptoll_core::study::{Study, percentage};
use tcptoll_core::verdict::between::{Run, between};
use tcptoll_measure::experiments::REPORTS;
use tcptoll_measure::record::Record;
use tcptoll_measure::runner;
use tcptoll_measure::runner::MergeOptions;
use tcptoll_measure::runner::Schedule;
use tcptoll_show::between::{self, Between};
use tcptoll_show::printable_line;

/// One of the two.
struct Side {
    name: String,
    schedule: Schedule,
    trials: Vec<Trial>,
    summary: Summary,
}

/// What `--format json` prints.
#[derive(Serialize)]
struct Json<'a> {
    a: &'a str,
    b: &'a str,
    comparisons: &'a [Comparison],
    warnings: &'a [WarningEntry],
}

/// Compares two records.
pub(super) fn run(args: &CompareArgs) -> anyhow::Result<Status> {
    let new = runs::found(&args.a)?;
    let old = runs::found(&args.b)?;
    let (a, b) = (read(&new)?, read(&old)?);
    if new == old {
        bail!("both are the record {}: name another one, like latest~1", new.display());
    }
    let (ea, eb) = (a.schedule.spec.name, b.schedule.spec.name);
    if ea != eb {
        let earlier = earlier(&new, ea).map_or_else(String::new, |name| {
            format!(". Previous {ea} run: tcptoll compare {} {name}", runs::name(&new))
        });
        bail!(
            "cannot compare {ea} with {eb}: {} and {} are of different experiments{earlier}",
            a.name,
            b.name
        );
    }
    if !a.schedule.arms.iter().any(|arm| b.schedule.arms.iter().any(|other| other.name == arm.name))
    {
        bail!(
            "{} and {} have no arm of the same name: the first has {}, the second {}",
            a.name,
            b.name,
            names(&a.schedule),
            names(&b.schedule)
        );
    }
    for metric in &args.metric {
        if !a.schedule.knows(metric) {
            bail!(
                "--metric {metric}: there is no such metric; available: {}; and of each of {}, figures like {}_p99",
                a.schedule.spec.single_metrics().join(", "),
                a.schedule.spec.distributions().join(", "),
                a.schedule.spec.distributions().first().unwrap_or(&"latency_us")
            );
        }
    }
    let formats = [&a, &b].map(|side| side.summary.record_version);
    if formats[0] != formats[1] {
        bail!(
            "{} has record format {}, but {} has {}, with other definitions of rates and latencies: measure both with the same version of tcptoll",
            a.name,
            formats[0],
            b.name,
            formats[1]
        );
    }
    let metrics =
        if args.metric.is_empty() { vec![a.schedule.metric.clone()] } else { args.metric.clone() };
    let margin = match &args.margin {
        Some(text) => {
            let asked = Study { margin: Some(text.clone()), ..Study::default() };
            asked.margin().with_context(|| format!("--margin {text}"))?
        }
        None => None,
    };
    let (comparisons, mut warnings) = between(
        Run { arms: &a.schedule.arms, trials: &a.trials },
        Run { arms: &b.schedule.arms, trials: &b.trials },
        &metrics,
        margin.unwrap_or(a.schedule.margin),
    );
    // Where nobody measured it, the link may be what differs.
    for side in [&a, &b] {
        let of_link = side.summary.warnings.iter().find(|one| one.id == "link-not-measured");
        warnings.extend(of_link.map(|one| WarningEntry {
            about: Some(side.name.clone()),
            text: format!("{}: {}", side.name, one.text),
            ..one.clone()
        }));
    }
    let text = match args.format {
        Format::Json => {
            let json =
                Json { a: &a.name, b: &b.name, comparisons: &comparisons, warnings: &warnings };
            serde_json::to_string(&json)? + "\n"
        }
        Format::Text => {
            let view = Between {
                a: &REPORTS.run(a.summary.clone()),
                b: &REPORTS.run(b.summary.clone()),
                a_name: &a.name,
                b_name: &b.name,
                comparisons: &comparisons,
                warnings: &warnings,
            };
            let render = if args.details { between::text } else { between::brief };
            let text = render(&view, screen::style());
            if comparisons.iter().any(|comparison| comparison.ci95.is_some()) {
                text
            } else {
                text + "\n" + &remedy(&a, &b)
            }
        }
    };
    stdout::print(&text, args.format)
}

/// Records that are looked through for an earlier run.
const EARLIER_MAX: usize = 50;

/// The record before this one, of the folder for records, that is of the same experiment.
fn earlier(new: &Path, experiment: &str) -> Option<String> {
    let records = runs::newest(&output::record_folder().ok()?).ok()?;
    let older = records.into_iter().map(|(_, path)| path).skip_while(|path| path != new).skip(1);
    let is_alike = |path: &PathBuf| {
        let record = Record::read(path).ok();
        record.and_then(|record| Some(record.header()?.study.experiment == experiment))
            == Some(true)
    };
    older.take(EARLIER_MAX).find(is_alike).map(|path| runs::name(&path))
}

/// What to run where no comparison has an interval.
fn remedy(a: &Side, b: &Side) -> String {
    let rounds = |side: &Side| {
        let counted = side
            .summary
            .arms
            .iter()
            .map(|arm| arm.rounds.iter().filter(|round| round.left_out.is_none()).count());
        counted.max().unwrap_or(0).max(1)
    };
    format!(
        "A verdict needs several rounds in both records; {} has {}, {} has {}.\n\
         Run each again with --rounds 15. Two servers are compared in one run: tcptoll http URL URL\n",
        printable_line(&a.name),
        rounds(a),
        printable_line(&b.name),
        rounds(b)
    )
}

fn read(path: &Path) -> anyhow::Result<Side> {
    let name = path.display().to_string();
    let record = Record::read(path).with_context(|| format!("record {name}"))?;
    let header = record.header().with_context(|| format!("record {name}: it has no header"))?;
    let schedule =
        Schedule::from_study(&header.study).with_context(|| format!("record {name}: its study"))?;
    let trials: Vec<Trial> = record.trials().cloned().collect();
    let Some(summary) = runner::summarise(&record).filter(|_| !trials.is_empty()) else {
        bail!("record {name}: the run was stopped before its first trial ended");
    };
    Ok(Side { name, schedule, trials, summary })
}

fn names(schedule: &Schedule) -> String {
    let names: Vec<&str> = schedule.arms.iter().map(|arm| arm.name.as_str()).take(8).collect();
    names.join("; ")
}

// `tcptoll merge A B …`: what several vantage points show together.

/// Merges records and prints what follows.
pub(super) fn merge(args: &MergeArgs) -> anyhow::Result<Status> {
    let paths: Vec<PathBuf> =
        args.records.iter().map(|word| runs::found(word)).collect::<Result<_, _>>()?;
    output::check_apart(&paths, &[("--out", &args.out)])?;
    let options = MergeOptions {
        command: std::env::args().collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        merged_at: Timestamp::now().round(jiff::Unit::Second)?.to_string(),
        missing: args.missing.clone(),
        margin: args.margin.as_deref().and_then(percentage),
        clock_bound_s: args.clock_bound.map(|bound| bound.as_secs_f64()),
    };
    let record = runner::merge(&paths, options)?;
    for Missing { point, .. } in &args.missing {
        if let Some(source) = record.merged.points.iter().find(|source| source.point == *point) {
            say(&format!(
                "warning: --missing {point}: has no effect, because {} is of this point",
                source.record
            ));
        }
    }
    for one in &record.merged.not_merged {
        say(&format!("not merged: {}: {}", printable_line(&one.record), one.reason));
    }
    let summary = record.summary.as_ref().context("the study is not known to this tcptoll")?;
    let stored = match &args.out {
        Some(path) => record.write(path).with_context(|| format!("--out {}", path.display())),
        None => Ok(()),
    };
    output::print(summary, args.out.as_deref(), args.format, args.details)?;
    if let Err(error) = stored {
        say(&format!("error: {error:#}"));
        return Ok(Status::NotStored);
    }
    Ok(if summary.partial || !summary.valid { Status::Missed } else { Status::Met })
}
