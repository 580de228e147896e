//! `tcptoll report FILE`: what a record says, as text, JSON, a page, CSV or Markdown.

use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use tcptoll_core::record::Summary;
use tcptoll_lab::files::{Mark, empty, open_own, write_own};
use tcptoll_live::watch::pages::{Clock, WatchCsv, Watched, watch_sheet};
use tcptoll_live::watch::{Review, WatchRecord};
use tcptoll_measure::experiments::REPORTS;
use tcptoll_measure::merged::MergedRecord;
use tcptoll_measure::record::Record;
use tcptoll_show::run::Reports;
use tcptoll_show::sheet;
use tcptoll_show::{printable_line, shell_argument};

use super::runs;
use crate::cli::{Format, ReportArgs};
use crate::exit::{Status, say};
use crate::{output, screen, stdout};

pub(super) fn run(args: &ReportArgs) -> anyhow::Result<Status> {
    type Rendered = fn(&Reports, &Summary) -> String;
    let paths: Vec<PathBuf> =
        args.records.iter().map(|word| runs::found(word)).collect::<Result<_, _>>()?;
    let pages = [("--html", &args.html), ("--svg", &args.svg)];
    let texts = [("--csv", &args.csv), ("--markdown", &args.markdown)];
    output::check_apart(&paths, &[pages, texts].concat())?;
    let [path] = paths.as_slice() else { return of_several(args, &paths) };
    let named = || format!("record {}", path.display());
    if let Some(watch) = WatchRecord::open(path).with_context(named)? {
        return of_watch(args, path, &watch).with_context(named);
    }
    let summary = read(path)?;
    if prints(args) {
        if args.format == Format::Text {
            stdout::text(&heading(&summary))?;
        }
        output::print(&summary, Some(path), args.format, true)?;
    }
    let files: [(_, _, Rendered, _); 3] = [
        ("--html", &args.html, Reports::html, Mark::Markup),
        ("--csv", &args.csv, Reports::csv, Mark::Beginning),
        ("--markdown", &args.markdown, Reports::markdown, Mark::Markup),
    ];
    for (option, path, render, mark) in files {
        if let Some(path) = path {
            write(option, path, &render(&REPORTS, &summary), mark)?;
        }
    }
    if let Some(path) = &args.svg {
        let picture = REPORTS.svg(&summary);
        let picture = picture.map_err(|why| anyhow::anyhow!("--svg: {why}"))?;
        write("--svg", path, &picture, Mark::Markup)?;
    }
    Ok(Status::Met)
}

/// Whether anything goes to stdout: a file that was asked for takes the place of the text.
fn prints(args: &ReportArgs) -> bool {
    let files = [&args.html, &args.svg, &args.csv, &args.markdown];
    let to_file = files.into_iter().any(Option::is_some);
    args.format == Format::Json || !to_file
}

/// Several records: one page with a table of contents.
fn of_several(args: &ReportArgs, paths: &[PathBuf]) -> anyhow::Result<Status> {
    let for_one = [&args.svg, &args.csv, &args.markdown].into_iter().any(Option::is_some);
    if for_one || args.format == Format::Json {
        bail!(
            "--svg, --csv, --markdown and --format json are for one record; several records go into one page with --html FILE"
        );
    }
    let summaries: Vec<Summary> = paths.iter().map(|path| read(path)).collect::<Result<_, _>>()?;
    match &args.html {
        Some(path) => {
            page_of(path, &summaries)?;
            output::wrote(path);
        }
        None => {
            for (at, (summary, path)) in summaries.iter().zip(paths).enumerate() {
                if at > 0 {
                    stdout::text("\n")?;
                }
                stdout::text(&heading(summary))?;
                output::print(summary, Some(path), args.format, true)?;
            }
        }
    }
    Ok(Status::Met)
}

/// When the run was made and what was typed: a line that nothing in the record can break.
fn heading(summary: &Summary) -> String {
    let when = runs::local_time(&summary.started_at);
    let typed = summary.command.iter().skip(1).map(|word| shell_argument(word));
    let words: Vec<String> = std::iter::once("tcptoll".to_owned()).chain(typed).collect();
    format!("{}\n", printable_line(&format!("{when}  {}", words.join(" "))))
}

/// Writes one page of several runs.
pub(super) fn page_of(path: &Path, summaries: &[Summary]) -> anyhow::Result<()> {
    let summaries: Vec<&Summary> = summaries.iter().collect();
    write_own(path, &REPORTS.html_of(&summaries), Mark::Markup)
        .with_context(|| format!("--html {}", path.display()))
}

/// The summary of a record.
///
/// Errors: it cannot be read, or nothing was measured.
pub(super) fn read(path: &Path) -> anyhow::Result<Summary> {
    let name = path.display();
    if let Some(merged) = MergedRecord::open(path).with_context(|| format!("record {name}"))? {
        return tcptoll_measure::runner::summarise_points(&merged)
            .with_context(|| format!("record {name}: its study is not known to this tcptoll"));
    }
    let record = Record::read(path).with_context(|| format!("record {name}"))?;
    if record.trials().next().is_none() {
        bail!("record {name}: the run was stopped before its first trial ended");
    }
    tcptoll_measure::runner::summarise(&record)
        .with_context(|| format!("record {name}: its study is not known to this tcptoll"))
}

/// The record of a watch.
fn of_watch(args: &ReportArgs, path: &Path, record: &WatchRecord) -> anyhow::Result<Status> {
    let review = record.review()?;
    if review.cut {
        say(
            "warning: the last line is cut, because the watch was killed or the disk was full while it wrote the line. The line is left out",
        );
    }
    if args.svg.is_some() {
        bail!(
            "--svg is for records of experiments: the pictures of a watch are in its page, --html FILE"
        );
    }
    let watched = Watched { review: &review, clock: clock(&review)?, record: Some(path) };
    let text = match args.format {
        Format::Text => sheet::text(&watch_sheet(&watched, None), screen::style()),
        Format::Json => serde_json::to_string(&review)? + "\n",
    };
    if prints(args) {
        stdout::print(&text, args.format)?;
    }
    if let Some(path) = &args.html {
        let page = watch_sheet(&watched, Some(&record.series(&review)?));
        let page = sheet::html(page, &review);
        write("--html", path, &page, Mark::Markup)?;
    }
    if let Some(path) = &args.markdown {
        let text = sheet::markdown(&watch_sheet(&watched, None));
        write("--markdown", path, &text, Mark::Markup)?;
    }
    if let Some(path) = &args.csv {
        csv(path, record, &review).with_context(|| format!("--csv {}", path.display()))?;
        output::wrote(path);
    }
    Ok(Status::Met)
}

/// Written line by line: a day's table may be longer than memory.
fn csv(path: &Path, record: &WatchRecord, review: &Review) -> anyhow::Result<()> {
    let mut table = WatchCsv::default();
    let file = open_own(path)?;
    empty(&file)?;
    let mut out = BufWriter::new(file);
    out.write_all(WatchCsv::head().as_bytes())?;
    let mut states = 0;
    for line in record.lines()? {
        let (_, line) = line?;
        states += u64::from(matches!(line, tcptoll_live::watch::WatchLine::State(_)));
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

fn write(option: &str, path: &Path, text: &str, mark: Mark) -> anyhow::Result<()> {
    write_own(path, text, mark).with_context(|| format!("{option} {}", path.display()))?;
    output::wrote(path);
    Ok(())
}
