//! `tcptoll runs`: which records are there?

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context as _;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;
use tcptoll_engine::record::{ReadError, Record};
use tcptoll_engine::runner;
use tcptoll_engine::watch::record::WatchRecord;
use tcptoll_model::watch::WatchLine;
use tcptoll_report::{printable_line, shell_argument};

use super::study;
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
    /// `complete`, `invalid`, `stopped` (by a signal), `killed`, `empty`, `damaged`; `watch`: it has no
    /// trials.
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
        return study::print(&format!("{}\n", serde_json::to_string(&entries)?));
    }
    if entries.is_empty() {
        let folder = printable_line(&folder.display().to_string());
        return study::print(&format!("no records in {folder}: run an experiment first\n"));
    }
    study::print(&text(&entries))
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
            match error {
                ReadError::Empty => entry.state = "empty",
                ReadError::Watch => watch(&mut entry),
                _ => {}
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
        Some(summary) if !summary.valid => "invalid",
        Some(_) => "complete",
    };
    if let Some(summary) = runner::summarise(&record) {
        entry.says = summary.answer;
    }
    entry
}

/// The record of a watch: when it began and the command that shows it. It may be long, so it is not read
/// to its end.
fn watch(entry: &mut Entry) {
    entry.name = Some("watch".to_owned());
    entry.state = "watch";
    entry.says = format!("tcptoll report {}", shell_argument(&entry.path.display().to_string()));
    let first = WatchRecord::open(&entry.path).ok().flatten();
    let first = first.and_then(|record| record.lines().ok()?.next()?.ok());
    if let Some((_, WatchLine::WatchHeader(header))) = first {
        entry.started_at = Some(header.started_at);
    }
}

/// The list for a terminal. What a file or its name says cannot steer it.
fn text(entries: &[Entry]) -> String {
    let mut text = String::new();
    for entry in entries {
        let when =
            entry.started_at.as_ref().and_then(|at| at.parse::<Timestamp>().ok()).map_or_else(
                || "unknown time".to_owned(),
                |at| at.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M").to_string(),
            );
        let name = printable_line(entry.name.as_deref().unwrap_or("?"));
        let path = entry.path.display().to_string();
        let many = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        if entry.state == "watch" {
            let _ = writeln!(text, "{when:<17} {name}");
        } else {
            let _ = writeln!(
                text,
                "{when:<17} {name:<18} {:<9} {:<11} {}",
                many(entry.arms, "arm"),
                many(entry.trials, "trial"),
                entry.state
            );
        }
        for line in [&entry.says, &path] {
            let _ = writeln!(text, "    {}", printable_line(line));
        }
        if matches!(entry.state, "killed" | "stopped") {
            let _ = writeln!(text, "    go on: tcptoll study --resume {}", shell_argument(&path));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_record_or_its_name_says_cannot_steer_the_terminal_or_the_shell() {
        let evil = "a\u{1b}[2J\n\u{202e}b\u{9b}1m";
        let text = text(&[Entry {
            path: PathBuf::from("/records/it's; \u{1b}\u{2066}rm\n.jsonl"),
            started_at: None,
            name: Some(evil.to_owned()),
            arms: 1,
            trials: 2,
            state: "killed",
            says: evil.to_owned(),
        }]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[0].contains(" a·[2J b·1m ") && lines[1] == "    a·[2J b·1m", "{text}");
        assert_eq!(lines[2], "    /records/it's; ·rm .jsonl");
        assert_eq!(lines[3], r"    go on: tcptoll study --resume '/records/it'\''s; ·rm .jsonl'");
    }
}
