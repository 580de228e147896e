//! Which record does a word mean: a file, `latest`, `latest~1`, or the name that `tcptoll runs` shows?

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use tcptoll_core::study::did_you_mean;

use crate::output;

/// The ending of records.
pub(super) const ENDING: &str = "jsonl";

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
