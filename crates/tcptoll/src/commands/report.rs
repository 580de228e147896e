//! `tcptoll report FILE`: what a record says, as text, JSON, a page, CSV or Markdown.

use std::io::{BufWriter, Write as _};
use std::path::Path;

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use tcptoll_engine::record::Record;
use tcptoll_engine::watch::record::WatchRecord;
use tcptoll_model::record::Summary;
use tcptoll_model::watch::review::Review;
use tcptoll_report::{Clock, WatchCsv, Watched};

use super::study;
use crate::cli::{Format, ReportArgs};
use crate::exit::{Status, say};
use crate::{output, screen};

pub(super) fn run(args: &ReportArgs) -> anyhow::Result<Status> {
    let name = args.record.display().to_string();
    let record = || format!("record {name}");
    if let Some(watch) = WatchRecord::open(&args.record).with_context(record)? {
        return of_watch(args, &watch).with_context(record);
    }
    let record = Record::read(&args.record).with_context(record)?;
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
            write(option, path, &render(&summary))?;
        }
    }
    Ok(Status::Met)
}

/// The record of a watch.
fn of_watch(args: &ReportArgs, record: &WatchRecord) -> anyhow::Result<Status> {
    let review = record.review()?;
    if review.cut {
        say(
            "warning: the last line is cut, because the watch was killed or the disk was full while it wrote the line. The line is left out",
        );
    }
    let watched = Watched { review: &review, clock: clock(&review)?, record: Some(&args.record) };
    let text = match args.format {
        Format::Text => tcptoll_report::watch_text(&watched, screen::style()),
        Format::Json => serde_json::to_string(&review)? + "\n",
    };
    study::print(&text)?;
    if let Some(path) = &args.html {
        let series = record.series(&review)?;
        write("--html", path, &tcptoll_report::watch_html(&watched, &series))?;
    }
    if let Some(path) = &args.markdown {
        write("--markdown", path, &tcptoll_report::watch_markdown(&watched))?;
    }
    if let Some(path) = &args.csv {
        csv(path, record, &review).with_context(|| format!("--csv {}", path.display()))?;
    }
    Ok(Status::Met)
}

/// Written line by line: a day's table may be longer than memory.
fn csv(path: &Path, record: &WatchRecord, review: &Review) -> anyhow::Result<()> {
    let mut table = WatchCsv::default();
    let mut out = BufWriter::new(std::fs::File::create(path)?);
    out.write_all(WatchCsv::head().as_bytes())?;
    let mut states = 0;
    for line in record.lines()? {
        let (_, line) = line?;
        states += u64::from(matches!(line, tcptoll_model::watch::WatchLine::State(_)));
        // A watch that goes on may have written more.
        if states > review.lines {
            break;
        }
        out.write_all(table.rows(&line).as_bytes())?;
    }
    Ok(out.flush()?)
}

/// When the watch began, on this machine's clock.
fn clock(review: &Review) -> anyhow::Result<Clock> {
    let text = &review.started_at;
    let began = text.parse::<Timestamp>().with_context(|| format!("line 1: started_at {text}"))?;
    let zone = TimeZone::system();
    let offset = zone.to_offset_info(began);
    Ok(Clock {
        began_unix_s: began.as_millisecond() as f64 / 1e3,
        offset_s: offset.offset().seconds(),
        zone: offset.abbreviation().to_owned(),
    })
}

fn write(option: &str, path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("{option} {}", path.display()))
}
