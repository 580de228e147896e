//! `tcptoll runs`: which records are there?

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;

use super::prose;
use crate::cli::{Format, RunsArgs};
use crate::exit::{Status, say};
use crate::screen::cut;
use crate::{output, screen, stdout};
use tcptoll_core::sheet::{Part, Tone};
use tcptoll_core::study::did_you_mean;
use tcptoll_core::units::parse_time;
use tcptoll_live::watch::{WatchLine, WatchRecord};
use tcptoll_measure::experiments::SPECS;
use tcptoll_measure::record::{ReadError, Record};
use tcptoll_measure::{limit, runner};
use tcptoll_show::{printable_line, shell_argument};

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
    /// Records that are newer.
    back: usize,
    /// As typed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    command: Vec<String>,
    arms: usize,
    trials: usize,
    /// Rounds that were begun.
    #[serde(skip)]
    rounds: usize,
    /// Whether a limit was broken, as `says` then says.
    #[serde(skip)]
    failed: bool,
    /// `complete`, `invalid`, `running`, `stopped` (by a signal), `killed`, `empty`, `damaged`; `watch`: it has no
    /// trials.
    state: &'static str,
    /// The answer, or why it cannot be read.
    says: String,
}

/// Lists the records of the default folder, newest first, or removes some.
pub(super) fn run(args: &RunsArgs) -> anyhow::Result<Status> {
    let folder = output::record_folder()?;
    let records = meant(args, &folder)?;
    if args.rm.is_some() {
        return remove(&records);
    }
    let entries: Vec<Entry> = records
        .iter()
        .take(args.count)
        .map(|(back, path)| Entry { back: *back, ..entry(path) })
        .collect();
    if args.format == Format::Json {
        return stdout::data(&(serde_json::to_string(&entries)? + "\n"));
    }
    let shown = if entries.is_empty() {
        let which = if args.older_than.is_some() { "such records" } else { "records" };
        vec![Part::line(format!("no {which} in {}", folder.display()), Tone::Plain)]
    } else {
        let more = records.len() - entries.len();
        if args.details {
            list(&entries, more, &folder, screen::terminal().unwrap_or(usize::MAX))
        } else {
            table(&entries, more, &folder, screen::terminal().unwrap_or(80))
        }
    };
    stdout::text(&prose::parts(shown, 80))
}

/// The records that are named, or all, of those that are old enough; each with its distance from the latest.
fn meant(args: &RunsArgs, folder: &Path) -> anyhow::Result<Vec<(usize, PathBuf)>> {
    let all = newest(folder)?;
    let named = args.rm.as_deref().unwrap_or_default();
    if args.rm.is_some() && named.is_empty() && args.older_than.is_none() {
        bail!("--rm: name the records to remove, like --rm latest, or add --older-than 30d");
    }
    let wanted: Option<Vec<PathBuf>> = match named {
        [] => None,
        named => Some(named.iter().map(|word| found(word)).collect::<Result<_, _>>()?),
    };
    let before = match &args.older_than {
        None => None,
        Some(text) => {
            let age = age(text).with_context(|| format!("--older-than {text}"))?;
            SystemTime::now().checked_sub(age)
        }
    };
    let mut records: Vec<(usize, PathBuf)> = Vec::new();
    for (back, (changed, path)) in all.into_iter().enumerate() {
        let is_old = args.older_than.is_none() || before.is_some_and(|before| changed < before);
        if is_old && wanted.as_ref().is_none_or(|wanted| wanted.contains(&path)) {
            records.push((back, path));
        }
    }
    if let Some(wanted) = wanted
        && let Some(other) =
            wanted.iter().find(|path| !records.iter().any(|(_, record)| record == *path))
    {
        bail!(
            "--rm {}: --rm removes only records in {}, and only those that match --older-than",
            other.display(),
            folder.display()
        );
    }
    Ok(records)
}

/// `30d`, `2w`, `12h`.
fn age(text: &str) -> anyhow::Result<Duration> {
    const DAY_S: u64 = 24 * 60 * 60;
    let days = |number: &str, days: u64| {
        let number: u64 = number.trim().parse().ok()?;
        number.checked_mul(days * DAY_S).map(Duration::from_secs)
    };
    let in_days = match text.trim().split_at_checked(text.trim().len().saturating_sub(1)) {
        Some((number, "d")) => days(number, 1),
        Some((number, "w")) => days(number, 7),
        _ => parse_time(text).ok(),
    };
    in_days.context("write an age like 30d, 2w or 12h")
}

fn remove(records: &[(usize, PathBuf)]) -> anyhow::Result<Status> {
    for (_, path) in records {
        std::fs::remove_file(path).with_context(|| format!("removing {}", path.display()))?;
        say(&format!("removed {}", path.display()));
    }
    if records.is_empty() {
        say("nothing to remove");
    }
    Ok(Status::Met)
}

fn entry(path: &Path) -> Entry {
    let mut entry = Entry {
        path: path.to_owned(),
        started_at: None,
        name: None,
        back: 0,
        command: Vec::new(),
        arms: 0,
        trials: 0,
        rounds: 0,
        failed: false,
        state: "damaged",
        says: String::new(),
    };
    let record = match Record::read(path) {
        Ok(record) => record,
        Err(error) => {
            entry.says = error.to_string();
            match error {
                // The file is as old as the run.
                ReadError::Running => {
                    entry.state = "running";
                    entry.name = Some(name(path));
                    let created = path.metadata().and_then(|about| about.modified());
                    let created = created.ok().and_then(|at| Timestamp::try_from(at).ok());
                    entry.started_at = created.map(|at| at.to_string());
                }
                ReadError::Empty => entry.state = "empty",
                ReadError::Watch => watch(&mut entry),
                _ => {}
            }
            return entry;
        }
    };
    if let Some(header) = record.header() {
        entry.started_at = Some(header.started_at.clone());
        entry.command.clone_from(&header.command);
        let study = &header.study;
        entry.name =
            Some(if study.name.is_empty() { &study.experiment } else { &study.name }.clone());
        entry.arms = study.arms().map_or(0, |arms| arms.len());
    }
    entry.trials = record.trials().count();
    entry.rounds = record.trials().map(|trial| trial.round).collect::<BTreeSet<_>>().len();
    entry.state = match record.summary() {
        _ if record.running => "running",
        None => "killed",
        Some(summary) if summary.partial => "stopped",
        Some(summary) if !summary.valid => "invalid",
        Some(_) => "complete",
    };
    if let Some(summary) = runner::summarise(&record) {
        // As its exit status said.
        let broken = limit::broken(&summary, SPECS).into_iter().next();
        entry.failed = broken.is_some();
        entry.says = broken.unwrap_or(summary.answer);
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

/// Columns of the name of a run, at most.
const NAME_MAX: usize = 20;

/// A line of the terminal's width for each record: which, when, what, arms × rounds, how it ended, what it says.
fn table(entries: &[Entry], more: usize, folder: &Path, width: usize) -> Vec<Part> {
    let names: Vec<String> = entries.iter().map(short_name).collect();
    let name_width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let row = |[which, when, name, arms, mark, says]: [&str; 6]| {
        let begin = format!("{which:<9} {when:<11} {name:<name_width$} {arms:>5} {mark:1} ");
        cut(&printable_line(&(begin + says)), width)
    };
    let mut rows = vec![row(["", "when", "run", "arms", "", "answer"])];
    for (entry, name) in entries.iter().zip(&names) {
        let which = which(entry);
        let (mark, says) = match entry.state {
            "complete" if entry.failed => ("!", entry.says.clone()),
            "complete" => ("✓", entry.says.clone()),
            "invalid" => ("!", format!("invalid: {}", entry.says)),
            "running" => ("…", "running".to_owned()),
            "watch" => (" ", format!("tcptoll report {which}")),
            "stopped" | "killed" => {
                ("✗", format!("{}: tcptoll study --resume {which}", entry.state))
            }
            other => ("✗", format!("{other}: {}", entry.says)),
        };
        let arms = match (entry.arms, entry.rounds) {
            (0, _) | (1, 0 | 1) => String::new(),
            (arms, rounds) => format!("{arms}×{rounds}"),
        };
        let when = short_time(entry.started_at.as_deref().unwrap_or_default());
        rows.push(row([&which, &when, name, &arms, mark, &says]));
    }
    rows.push(String::new());
    if more > 0 {
        rows.push(format!("{more} more: --count {}", entries.len() + more));
    }
    rows.push(
        "tcptoll report latest shows a run again; tcptoll runs --details has the commands"
            .to_owned(),
    );
    rows.push(format!("records are in {}", folder.display()));
    rows.into_iter().map(|row| Part::line(row.trim_end(), Tone::Plain)).collect()
}

/// The study or experiment; the file of a run in progress has it before its time.
fn short_name(entry: &Entry) -> String {
    let name = entry.name.as_deref().unwrap_or("?");
    let whole = || name.split_once("-20").map_or(name, |(name, _)| name);
    let name = if entry.state == "running" { whole() } else { name };
    cut(&printable_line(name), NAME_MAX)
}

/// How a record is named on the command line.
fn which(entry: &Entry) -> String {
    match entry.back {
        0 => "latest".to_owned(),
        back => format!("latest~{back}"),
    }
}

/// When a run began, in 11 columns: with the year where it is not this one.
fn short_time(started_at: &str) -> String {
    let Ok(at) = started_at.parse::<Timestamp>() else { return "?".to_owned() };
    let zone = TimeZone::system();
    let (at, now) = (at.to_zoned(zone.clone()), Timestamp::now().to_zoned(zone));
    let form = if at.year() == now.year() { "%m-%d %H:%M" } else { "%Y-%m-%d" };
    at.strftime(form).to_string()
}

/// All that is known of each record: what was typed, its answer, how to go on; what it says or its name cannot steer
/// the terminal.
///
/// `more`: records that are not listed. `width`: columns of the terminal.
fn list(entries: &[Entry], more: usize, folder: &Path, width: usize) -> Vec<Part> {
    let mut rows = Vec::new();
    for entry in entries {
        let when = local_time(entry.started_at.as_deref().unwrap_or_default());
        let which = which(entry);
        let state =
            if entry.state == "complete" { String::new() } else { format!("[{}] ", entry.state) };
        let line = format!("{which:<10} {when}  {state}{}  {}", typed(entry), entry.says);
        rows.push(cut(&printable_line(&line), width));
        if matches!(entry.state, "killed" | "stopped") {
            let path = shell_argument(&entry.path.display().to_string());
            rows.push(format!("{:<11}resume: tcptoll study --resume {path}", ""));
        }
    }
    rows.extend([String::new(), format!("records are in {}", folder.display())]);
    if more > 0 {
        rows.push(format!("{more} more: --count {}", entries.len() + more));
    }
    rows.push(FURTHER.to_owned());
    rows.into_iter().map(|row| Part::line(row, Tone::Plain)).collect()
}

const FURTHER: &str =
    "tcptoll report latest shows one again; tcptoll compare latest latest~1 compares two";

/// What was typed, without the program and where results went; the name where nothing is known.
fn typed(entry: &Entry) -> String {
    const PLACES: [&str; 4] = ["--out", "--html", "--pcap", "--format"];
    let mut words = entry.command.iter().skip(1);
    let mut kept: Vec<String> = Vec::new();
    while let Some(word) = words.next() {
        let name = word.split('=').next().unwrap_or_default();
        if word == "--quiet" {
            continue;
        }
        if !PLACES.contains(&name) {
            kept.push(shell_argument(word));
        } else if name == word {
            words.next();
        }
    }
    match kept.as_slice() {
        [] => entry.name.clone().unwrap_or_else(|| "?".to_owned()),
        kept => kept.join(" "),
    }
}

// Which record does a word mean: a file, `latest`, `latest~1`, or the name that `tcptoll runs` shows?

/// The ending of records.
const ENDING: &str = "jsonl";

/// The record that is meant: a file that exists, `latest` or `latest~N` (N records before it) of the
/// folder for records, or a file there without its ending.
///
/// Errors: there is none.
pub(super) fn found(word: &Path) -> anyhow::Result<PathBuf> {
    if word.exists() {
        return Ok(word.to_owned());
    }
    let text = word.display().to_string();
    let folder = output::record_folder()?;
    if let Some(back) = back(&text) {
        let records = newest(&folder)?;
        return match records.get(back) {
            Some((_, path)) => Ok(path.clone()),
            None if records.is_empty() => {
                bail!("{text}: there are no records in {}", folder.display())
            }
            None => bail!(
                "{text}: there are only {} records in {}; the oldest is latest~{}",
                records.len(),
                folder.display(),
                records.len() - 1
            ),
        };
    }
    let is_name = !text.is_empty() && !text.contains('/');
    let path = folder.join(format!("{text}.{ENDING}"));
    if is_name && path.is_file() {
        return Ok(path);
    }
    if is_name && !text.contains('.') {
        let records = newest(&folder)?;
        let names: Vec<String> = records.iter().map(|(_, path)| name(path)).collect();
        let names: Vec<&str> =
            names.iter().map(String::as_str).chain(["latest", "latest~1"]).collect();
        let meant =
            did_you_mean(&text, &names).map_or_else(String::new, |meant| format!("; {meant}"));
        bail!("record {text}: it is neither a file, nor latest, nor in `tcptoll runs`{meant}");
    }
    // Whoever reads it says why it cannot be read.
    Ok(word.to_owned())
}

/// How many records before the latest.
fn back(text: &str) -> Option<usize> {
    match text.strip_prefix("latest")? {
        "" => Some(0),
        rest => rest.strip_prefix('~')?.parse().ok(),
    }
}

/// When a run began, on the clock of this machine's time zone, to the minute.
pub(super) fn local_time(started_at: &str) -> String {
    started_at.parse::<Timestamp>().map_or_else(
        |_| "unknown time".to_owned(),
        |at| at.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M").to_string(),
    )
}

/// A record's name: that of its file, without its ending.
pub(super) fn name(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Records of a folder with the time of their last change, newest first. A folder that is not there has none.
pub(super) fn newest(folder: &Path) -> anyhow::Result<Vec<(SystemTime, PathBuf)>> {
    let cannot = || format!("the folder for records, {}, cannot be read", folder.display());
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let mut files: Vec<(SystemTime, PathBuf)> = Vec::new();
    for item in std::fs::read_dir(folder).with_context(cannot)? {
        let path = item.with_context(cannot)?.path();
        let is_record = path.extension().is_some_and(|end| end == ENDING);
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
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry {
            path: PathBuf::from("/records/http-1.jsonl"),
            started_at: None,
            name: Some("http".to_owned()),
            back: 1,
            command: ["tcptoll", "http", "--out", "x", "127.0.0.1:80", "--quiet"]
                .map(str::to_owned)
                .into(),
            arms: 1,
            trials: 2,
            rounds: 2,
            failed: false,
            state: "complete",
            says: "13,500 requests per second".to_owned(),
        }
    }

    fn text(entries: &[Entry], more: usize, width: usize) -> String {
        prose::parts(list(entries, more, Path::new("/records"), width), 80)
    }

    #[test]
    fn each_run_has_one_line_of_80_columns_with_how_it_ended() {
        let says =
            "one and the same answer, which is longer than what is left of a line of 80 columns";
        let of = |state, back, arms: usize, trials: usize| Entry {
            state,
            back,
            arms,
            trials,
            rounds: trials.div_ceil(arms.max(1)),
            says: says.to_owned(),
            ..entry()
        };
        let entries = [
            of("running", 0, 0, 0),
            of("complete", 1, 2, 30),
            of("killed", 2, 2, 5),
            of("invalid", 13, 1, 1),
        ];
        let list = prose::parts(table(&entries, 3, Path::new("/records"), 80), 80);
        let lines: Vec<&str> = list.lines().collect();
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{list}");
        assert_eq!(lines[1], "latest    ?           http       … running", "{list}");
        let complete = "latest~1  ?           http  2×15 ✓ one and the same answer";
        assert!(lines[2].starts_with(complete), "{list}");
        assert!(lines[3].contains("2×3 ✗ killed: tcptoll study --resume latest~2"), "{list}");
        assert!(lines[4].contains("! invalid: one and"), "{list}");
        assert_eq!(lines[5..7], ["", "3 more: --count 7"], "{list}");
    }

    #[test]
    fn a_record_is_a_line_with_what_was_typed_and_what_came_of_it() {
        let list = text(&[entry()], 3, 100);
        let line = "latest~1   unknown time  http 127.0.0.1:80  13,500 requests per second\n";
        assert!(list.starts_with(line), "{list}");
        assert!(list.contains("\n3 more: --count 4\n"), "{list}");
        let narrow = text(&[entry()], 0, 40);
        assert_eq!(narrow.lines().next().map(|line| line.chars().count()), Some(40));
    }

    #[test]
    fn what_a_record_or_its_name_says_cannot_steer_the_terminal_or_the_shell() {
        let evil = "a\u{1b}[2J\n\u{202e}b\u{9b}1m";
        let killed = Entry {
            path: PathBuf::from("/records/it's; \u{1b}\u{2066}rm\n.jsonl"),
            name: Some(evil.to_owned()),
            command: Vec::new(),
            state: "killed",
            says: evil.to_owned(),
            ..entry()
        };
        let list = text(&[killed], 0, 200);
        let lines: Vec<&str> = list.lines().collect();
        assert!(lines[0].ends_with("[killed] a·[2J b·1m  a·[2J b·1m"), "{list}");
        assert!(
            lines[1].ends_with(r"resume: tcptoll study --resume '/records/it'\''s; ·rm .jsonl'"),
            "{list}"
        );
    }

    #[test]
    fn an_age_is_in_days_weeks_or_a_time() {
        for (text, s) in [("30d", 2_592_000), ("2w", 1_209_600), ("12h", 43_200)] {
            assert_eq!(age(text).unwrap(), Duration::from_secs(s), "{text}");
        }
        for text in ["", "d", "30", "-1d", "ä"] {
            assert!(age(text).is_err(), "{text}");
        }
    }

    #[test]
    fn latest_counts_backwards() {
        for (text, expected) in [
            ("latest", Some(0)),
            ("latest~0", Some(0)),
            ("latest~12", Some(12)),
            ("latest~", None),
            ("latest~-1", None),
            ("latest.jsonl", None),
        ] {
            assert_eq!(back(text), expected, "{text}");
        }
    }

    #[test]
    fn a_file_is_taken_as_it_is_and_a_path_is_no_name() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(found(file.path()).unwrap(), file.path());
        let missing = Path::new("/no/such/record.jsonl");
        assert_eq!(found(missing).unwrap(), missing);
    }
}
