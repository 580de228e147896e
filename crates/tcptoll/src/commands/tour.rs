//! The tour: a short study for each question, one after another, and one report of all.
//!
//! Each study has its own record, because a record has one experiment. The page is made from the summaries,
//! as `tcptoll report A B --html` makes one, so there is one way to put several runs on a page.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use tcptoll_core::record::Summary;
use tcptoll_lab::lab::Interrupt;
use tcptoll_measure::experiments::REPORTS;
use tcptoll_measure::runner::Run;
use tcptoll_show::{TextStyle, printable};

use super::report;
use crate::cli::{Format, TourArgs};
use crate::exit::{Status, say};
use crate::studies::TOUR;
use crate::{output, screen, stdout, studies, wrap};

/// The report's name where nobody names it.
const REPORT: &str = "tcptoll-report.html";

pub(super) fn run(args: &TourArgs) -> anyhow::Result<Status> {
    let page = page(args)?;
    let interrupt = output::on_signals()?;
    let style = screen::style();
    if args.format == Format::Text {
        stdout::text(&format!(
            "The tour measures {} answers on this machine, in a lab of its own: about a minute, with load on \
             two CPUs.\nReport: {}\n",
            TOUR.len(),
            printable(&page.display().to_string())
        ))?;
    }
    let mut summaries: Vec<Summary> = Vec::new();
    let mut status = Status::Met;
    for (number, (name, more)) in (1..).zip(TOUR) {
        match part(name, args, &interrupt) {
            Ok(run) => {
                let is_met = run.nothing.is_none() && run.summary.valid && run.not_stored.is_none();
                status = if is_met { status } else { Status::Missed };
                let text = match args.format {
                    Format::Text => answer(number, &run.summary, more, style),
                    Format::Json => serde_json::to_string(&run.summary)? + "\n",
                };
                stdout::print(&text, args.format)?;
                summaries.push(run.summary);
            }
            Err(_) if interrupt.signal().is_some() => {}
            // Without a lab no part can be measured.
            Err(error) if number == 1 => return Err(error),
            Err(error) => {
                say(&format!("not measured: {error:#}"));
                status = Status::Missed;
            }
        }
        if let Some(signal) = interrupt.signal() {
            status = Status::Stopped(u8::try_from(signal).unwrap_or(0));
            break;
        }
    }
    if summaries.is_empty() {
        return Ok(status);
    }
    let written = report::page_of(&page, &summaries);
    let invalid = summaries.iter().filter(|summary| !summary.valid).count();
    if invalid > 0 {
        say(&format!(
            "{invalid} of {} answers are invalid, with their reasons above: repeat the tour on a quieter machine",
            summaries.len()
        ));
    }
    if let Err(error) = written {
        say(&format!("error: measured, but the report cannot be written: {error:#}"));
        return Ok(Status::NotStored);
    }
    say(&format!("report with pictures: {}", page.display()));
    Ok(status)
}

/// Where the report goes: where it was asked for, else into the current folder, else to the records.
fn page(args: &TourArgs) -> anyhow::Result<PathBuf> {
    if let Some(path) = &args.html {
        let option = format!("--html {}", path.display());
        output::check_place(&option, path)?;
        output::check_writable(path).context(option)?;
        return Ok(std::path::absolute(path)?);
    }
    let here = std::path::absolute(REPORT).ok().filter(|path| output::check_writable(path).is_ok());
    match here {
        Some(path) => Ok(path),
        None => Ok(output::record_folder()?.join(REPORT)),
    }
}

/// Measures one part.
fn part(name: &str, args: &TourArgs, interrupt: &Interrupt) -> anyhow::Result<Run> {
    let study = studies::load(name)?;
    output::measure(&study, args.link_tolerance.as_deref(), args.quiet, args.seed, interrupt)
}

/// The question, its answer, and where to go on.
fn answer(number: usize, summary: &Summary, more: &str, style: TextStyle) -> String {
    let head = format!("{number}/{}  {}", TOUR.len(), printable(&summary.question));
    let head = if style.colour { format!("\u{1b}[1m{head}\u{1b}[0m") } else { head };
    let mut text = format!("\n{head}\n");
    // Each arm may have said it.
    let doubts = ["own-server", "link-not-measured"]
        .into_iter()
        .filter_map(|id| summary.warnings.iter().find(|warning| warning.id == id));
    let mut said = vec![printable(&summary.answer)];
    said.extend(doubts.map(|warning| printable(&warning.text)));
    said.extend(REPORTS.invalid(summary).iter().map(|why| format!("invalid: {why}")));
    for said in said {
        for line in wrap::narrowed(&said, style.width.saturating_sub(5)).lines() {
            let _ = writeln!(text, "     {line}");
        }
    }
    let _ = writeln!(text, "     more: {more}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_a_study_and_what_follows_is_a_command() {
        for (name, more) in TOUR {
            studies::load(name).unwrap();
            assert!(more.starts_with("tcptoll "), "{more}");
        }
    }
}
