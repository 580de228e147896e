//! `tcptoll runs`: which records are there?

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context as _;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;
use tcptoll_engine::record::Record;
use tcptoll_engine::runner;

use crate::cli::{Format, RunsArgs};
use crate::exit::Status;
use crate::output;

/// What is said of a record.
#[derive(Serialize)]
struct Entry {
    path: PathBuf,
    /// RFC 3339; absent if the record cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<String>,
    /// The study's name, or the experiment's.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    arms: usize,
    trials: usize,
    /// `complete`, `stopped` (by a signal), `killed`, `empty`, `damaged`.
    state: &'static str,
    /// The answer, or why it cannot be read.
    says: String,
}

/// Lists the records of the default folder, newest first.
pub(super) fn run(args: &RunsArgs) -> anyhow::Result<Status> {
    let folder = output::record_folder()?;
    let entries: Vec<Entry> =
        newest(&folder)?.into_iter().take(args.count).map(|path| entry(&path)).collect();
    if args.format == Format::Json {
        println!("{}", serde_json::to_string(&entries)?);
        return Ok(Status::Met);
    }
    if entries.is_empty() {
        println!("no records in {}: run an experiment first", folder.display());
    }
    print!("{}", text(&entries));
    Ok(Status::Met)
}

/// Records of a folder by their time, newest first. A folder that is not there has none.
fn newest(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let cannot = || format!("the folder for records, {}, cannot be read", folder.display());
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let mut files: Vec<(SystemTime, PathBuf)> = Vec::new();
    for item in std::fs::read_dir(folder).with_context(cannot)? {
        let path = item.with_context(cannot)?.path();
        let is_record = path.extension().is_some_and(|end| end == "jsonl");
        // One that has just been removed is none.
        if let Some(changed) = path
            .metadata()
            .ok()
            .filter(|m| is_record && m.is_file())
            .and_then(|m| m.modified().ok())
        {
            files.push((changed, path));
        }
    }
    files.sort_unstable_by(|a, b| b.cmp(a));
    Ok(files.into_iter().map(|(_, path)| path).collect())
}

fn entry(path: &Path) -> Entry {
    let mut entry = Entry {
        path: path.to_owned(),
        started_at: None,
        name: None,
        arms: 0,
        trials: 0,
        state: "damaged",
        says: String::new(),
    };
    let record = match Record::read(path) {
        Ok(record) => record,
        Err(error) => {
            entry.says = error.to_string();
            if matches!(error, tcptoll_engine::record::ReadError::Empty) {
                entry.state = "empty";
            }
            return entry;
        }
    };
    if let Some(header) = record.header() {
        entry.started_at = Some(header.started_at.clone());
        let study = &header.study;
        entry.name =
            Some(if study.name.is_empty() { &study.experiment } else { &study.name }.clone());
        entry.arms = study.arms().map_or(0, |arms| arms.len());
    }
    entry.trials = record.trials().count();
    entry.state = match record.summary() {
        None => "killed",
        Some(summary) if summary.partial => "stopped",
        Some(_) => "complete",
    };
    if let Some(summary) = runner::summarise(&record) {
        entry.says = summary.answer;
    }
    entry
}

fn text(entries: &[Entry]) -> String {
    let mut text = String::new();
    for entry in entries {
        let when =
            entry.started_at.as_ref().and_then(|at| at.parse::<Timestamp>().ok()).map_or_else(
                || "unknown time".to_owned(),
                |at| at.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M").to_string(),
            );
        let name = entry.name.as_deref().unwrap_or("?");
        let many = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        let _ = writeln!(
            text,
            "{when:<17} {name:<18} {:<9} {:<11} {}",
            many(entry.arms, "arm"),
            many(entry.trials, "trial"),
            entry.state
        );
        for line in [&entry.says, &entry.path.display().to_string()] {
            // What a file says cannot steer the terminal.
            let line: String =
                line.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
            let _ = writeln!(text, "    {line}");
        }
        if matches!(entry.state, "killed" | "stopped") {
            let _ = writeln!(text, "    go on: tcptoll study --resume {}", entry.path.display());
        }
    }
    text
}
