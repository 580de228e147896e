//! `tcptoll merge A B …`: what several vantage points show together.

use std::path::PathBuf;

use anyhow::Context as _;
use jiff::Timestamp;
use tcptoll_core::record::Missing;
use tcptoll_core::study::percentage;
use tcptoll_measure::runner;
use tcptoll_measure::runner::MergeOptions;

use super::stored;
use crate::cli::MergeArgs;
use crate::exit::{Status, say};
use crate::output;

/// Merges records and prints what follows.
pub(super) fn run(args: &MergeArgs) -> anyhow::Result<Status> {
    let paths: Vec<PathBuf> =
        args.records.iter().map(|word| stored::found(word)).collect::<Result<_, _>>()?;
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
    let summary = record.summary.as_ref().context("the study is not known to this tcptoll")?;
    let stored = match &args.out {
        Some(path) => record.write(path).with_context(|| format!("--out {}", path.display())),
        None => Ok(()),
    };
    output::print(summary, args.out.as_deref(), args.format)?;
    if let Err(error) = stored {
        say(&format!("error: {error:#}"));
        return Ok(Status::NotStored);
    }
    Ok(if summary.partial || !summary.valid { Status::Missed } else { Status::Met })
}
