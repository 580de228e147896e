//! Does the tour give its answers in time, in one report, and is every number of them in its record?

use std::fs;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use tcptoll_core::record::{Summary, Verdict};

use crate::answers::unfounded;
use crate::folder::Folder;
use crate::links::tcptoll;
use crate::table::Table;

const ANSWERS_MIN: usize = 6;
const SECONDS_MAX: f64 = 90.0;

/// Runs the tour once, as its first user would.
pub(crate) fn tour(table: &mut Table) -> anyhow::Result<()> {
    let folder = Folder::new("tour")?;
    let report = folder.path("report.html");
    let mut command = Command::new(tcptoll()?);
    command.args(["tour", "--format", "json", "--quiet", "--html", &report]);
    command.env("XDG_DATA_HOME", &folder.0);
    let begun = Instant::now();
    let output = command.output()?;
    let seconds = begun.elapsed().as_secs_f64();
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the tour ended with {}: {errors}", output.status);

    let printed = String::from_utf8(output.stdout)?;
    let summaries: Vec<serde_json::Value> = printed
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()
        .context("the tour's JSON")?;
    table.row("tour: time", "at most 90 s", &format!("{seconds:.1} s"), seconds <= SECONDS_MAX);
    let mut answered = 0;
    for json in &summaries {
        let summary: Summary = serde_json::from_value(json.clone())?;
        let absent = unfounded(json);
        let open = summary.comparisons.iter().filter(|c| c.verdict == Verdict::NotEnough).count();
        answered += usize::from(summary.valid && !summary.answer.is_empty());
        let validity = if summary.valid { "valid" } else { "not valid" };
        let compared = summary.comparisons.len();
        let absent = absent.join(" ");
        table.row(
            &format!("{}: {}", summary.study.as_deref().unwrap_or("tour"), summary.answer),
            "valid; each number stands in its record; no comparison left open",
            &format!(
                "{validity}; not in the record: [{absent}]; {open} of {compared} comparisons open"
            ),
            summary.valid && absent.is_empty() && open == 0,
        );
    }
    table.row("tour: answers", "at least 6", &answered.to_string(), answered >= ANSWERS_MIN);
    let html = fs::read_to_string(&report)?;
    let parts =
        (1..=summaries.len()).filter(|part| html.contains(&format!("id=\"run-{part}\""))).count();
    table.row(
        "tour: answers in its one report",
        "all of them",
        &format!("{parts} of {}", summaries.len()),
        parts == summaries.len(),
    );
    Ok(())
}
