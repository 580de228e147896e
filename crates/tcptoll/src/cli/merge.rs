//! Which words merge records of vantage points?
#![allow(clippy::doc_markdown)] // the doc comments are the help text, which has no back quotes

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tcptoll_core::record::Missing;
use tcptoll_core::study::points;
use tcptoll_core::units::parse_time;

use super::Format;
use super::rounds::percent;

const MERGE_AFTER: &str = "\
Each record is one vantage point: a machine that ran the same study. The point is the unit: its
rounds give one ratio, and the interval is over points. A verdict over points needs 15 points.
Below that, each point has its own verdict.

Exit status: 0 all points are merged; 1 points are missing or records were left out; 2 nothing merged.

Examples:
  tcptoll study mine.toml --vantage fra1 --rounds 15 --out fra1.jsonl     on each machine
  tcptoll merge *.jsonl --out all.jsonl          what they show together
  tcptoll report all.jsonl --html all.html       the same as a page with charts
  tcptoll merge *.jsonl --missing 'sgp1=the machine was down'";

/// Options of `merge`.
#[derive(Clone, Debug, Args)]
#[command(after_help = MERGE_AFTER)]
pub(crate) struct MergeArgs {
    /// Records of vantage points, or merged records. The name of a point is that of --vantage, or
    /// that of its file
    #[arg(value_name = "RECORD", required = true)]
    pub records: Vec<PathBuf>,
    /// File for the merged record [default: none is written]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Point that should have a record and has none, and why; may be repeated
    #[arg(long, value_name = "NAME[=WHY]", value_parser = missing)]
    pub missing: Vec<Missing>,
    /// Smallest difference that matters, e.g. 1% [default: the margin of the study]
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub margin: Option<String>,
    /// For a load that was split over the points: within what the difference of their clocks is known
    #[arg(long, value_name = "TIME", value_parser = clock_bound)]
    pub clock_bound: Option<Duration>,
    /// Output format on stdout
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

fn missing(text: &str) -> Result<Missing, &'static str> {
    let (point, reason) = text.split_once('=').unwrap_or((text, "no record"));
    if points::is_name(point) {
        Ok(Missing { point: point.to_owned(), reason: reason.trim().to_owned() })
    } else {
        Err("write a point's name, and a reason if there is one, like sgp1='the machine was down'")
    }
}

fn clock_bound(text: &str) -> Result<Duration, &'static str> {
    let bound = parse_time(text).ok().filter(|bound| !bound.is_zero());
    bound.ok_or("write a time above 0, like 3.2ms: no two clocks are known to be the same")
}
