//! Writes a watch's record, each line whole, and keeps it below its limit: then it is rewritten with neighbouring
//! intervals joined, in bounded memory.

use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::io::{BufWriter, ErrorKind, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use tcptoll_lab::clock::{boottime_ns, monotonic_ns};

use super::read::{HEADER, Lines, WatchReadError};
use crate::watch::{
    Interval, Recording, State, WatchHeader, WatchLine, WatchStopped, WatchSummary,
};

/// The smallest limit: a single interval with 1,024 listeners, their descriptions and 256 diagnoses takes
/// less than half of it.
pub const LIMIT_MIN: u64 = 2 << 20;
/// Room for the last line.
const SUMMARY_ROOM: u64 = 1_024;
/// Lines reach the disk this often at the latest; the kernel has them immediately.
const SYNC_EVERY: Duration = Duration::from_mins(1);
/// The most looks in one interval.
const LOOKS_MAX: u32 = 1 << 24;
/// The longest reason of a failure that is written, characters.
const REASON_MAX: usize = 200;

/// A watch's record being written.
///
/// Each line is one write(2), so a watch that is killed leaves whole lines and at most one that is cut.
/// Before the file would reach its limit, it is rewritten at most half as long, with neighbouring
/// intervals joined; until the new file has its name, both are there.
#[derive(Debug)]
pub struct WatchRecorder {
    path: PathBuf,
    file: File,
    /// A pipe or a device has no size, so no limit.
    regular: bool,
    bytes: u64,
    limit: u64,
    /// Looks that joined intervals have, at most.
    looks: u32,
    recording: Recording,
    /// `CLOCK_BOOTTIME` less `CLOCK_MONOTONIC` at the state before, ns: it grows while suspended.
    slept_ns: Option<u64>,
    synced: Duration,
    /// End of the last interval written, s since the watch began.
    last_s: f64,
}

impl WatchRecorder {
    /// Creates the file.
    ///
    /// Errors: `AlreadyExists` if there is a file that is not empty; it is left as it is. Else those of
    /// the file.
    pub fn create(path: &Path, limit: u64) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path);
        let file = match file {
            // A pipe's reading end is another program's.
            Err(_) if !path.is_file() && path.exists() => File::options().write(true).open(path)?,
            file => file?,
        };
        let data = file.metadata()?;
        if data.is_file() {
            lock(&file)?;
            if data.len() > 0 {
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "there is a file of that name",
                ));
            }
        }
        Ok(Self {
            path: path.to_owned(),
            regular: data.is_file(),
            file,
            bytes: 0,
            limit: limit.max(LIMIT_MIN),
            looks: 1,
            recording: Recording::default(),
            slept_ns: None,
            synced: Duration::from_nanos(monotonic_ns()),
            last_s: 0.0,
        })
    }

    pub fn header(&mut self, header: WatchHeader) -> io::Result<()> {
        self.write(&[WatchLine::WatchHeader(Box::new(header))])
    }

    /// Writes what a state has to say.
    ///
    /// Errors: those of the file; also if its name no longer leads to it.
    pub fn state(&mut self, state: &State) -> io::Result<()> {
        let slept_ns = boottime_ns().saturating_sub(monotonic_ns());
        let suspended =
            self.slept_ns.replace(slept_ns).map(|before| slept_ns.saturating_sub(before));
        // The two clocks are not read at one instant.
        let suspended = Duration::from_nanos(suspended.unwrap_or(0));
        let suspended_s =
            if suspended > Duration::from_millis(10) { suspended.as_secs_f64() } else { 0.0 };
        let lines = self.recording.lines(state, suspended_s);
        self.write(&lines)?;
        self.last_s = state.at_s;
        let now = Duration::from_nanos(monotonic_ns());
        if now.saturating_sub(self.synced) >= SYNC_EVERY {
            self.synced = now;
            self.sync()?;
        }
        Ok(())
    }

    /// Writes the last line.
    ///
    /// Errors: as [`WatchRecorder::state`].
    pub fn end(&mut self, summary: &WatchSummary) -> io::Result<()> {
        self.write(&[WatchLine::WatchSummary(Box::new(summary.clone()))])?;
        self.sync()?;
        // After the last line is on the disk: a record that was deleted by then is no record.
        self.still_there()
    }

    /// Writes as the last line why nothing more is written. A line that was cut by the failure goes.
    ///
    /// Errors: those of the file; a disk that is full may have no room for this line either. `Unsupported`
    /// where a line that was cut cannot be removed, or nothing was written.
    pub fn stop(&mut self, reason: &str) -> io::Result<()> {
        if !self.regular || self.bytes == 0 {
            return Err(ErrorKind::Unsupported.into());
        }
        self.still_there()?;
        self.file.set_len(self.bytes)?;
        self.file.seek(SeekFrom::Start(self.bytes))?;
        let reason: String = reason.chars().take(REASON_MAX).collect();
        self.append(&whole(&[WatchLine::WatchStopped(WatchStopped {
            at_s: self.last_s,
            reason,
        })])?)?;
        self.sync()
    }

    /// Length of the record, bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn sync(&self) -> io::Result<()> {
        if self.regular { self.file.sync_data() } else { Ok(()) }
    }

    fn write(&mut self, lines: &[WatchLine]) -> io::Result<()> {
        self.still_there()?;
        let bytes = whole(lines)?;
        let ends = matches!(lines, [WatchLine::WatchSummary(_)]);
        let room = if ends { 0 } else { SUMMARY_ROOM };
        if self.regular && self.bytes + bytes.len() as u64 + room > self.limit {
            self.shorten()?;
        }
        self.append(&bytes)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Rewrites the file with intervals joined until it has at most half of its limit.
    fn shorten(&mut self) -> io::Result<()> {
        let [aside, temporary] = ["states", "joined"].map(|kind| self.beside(kind));
        let shortened = self.shortened(&aside, &temporary);
        // The name aside is no longer needed, the other only after a failure.
        let _ = fs::remove_file(&aside);
        match shortened {
            Ok((file, joined)) => {
                self.file = file;
                self.bytes = joined.bytes;
                Ok(())
            }
            Err(error) => {
                let _ = fs::remove_file(&temporary);
                let said = format!("older intervals cannot be joined: {error}");
                Err(io::Error::new(error.kind(), said))
            }
        }
    }

    fn shortened(&mut self, aside: &Path, temporary: &Path) -> io::Result<(File, Joined)> {
        self.still_there()?;
        let fresh = |path: &Path| {
            let _ = fs::remove_file(path);
            File::options().read(true).write(true).create_new(true).open(path)
        };
        let (aside_file, file) = (fresh(aside)?, fresh(temporary)?);
        let joined = loop {
            self.looks = self.looks.max(2);
            for one in [&aside_file, &file] {
                one.set_len(0)?;
                io::Seek::rewind(&mut &*one)?;
            }
            let joined = rewrite(&self.file, &aside_file, &file, self.looks)?;
            if joined.bytes <= self.limit / 2 || joined.intervals < 2 || self.looks >= LOOKS_MAX {
                break joined;
            }
            self.looks *= 2;
        };
        lock(&file)?;
        file.set_permissions(self.file.metadata()?.permissions())?;
        file.sync_all()?;
        self.still_there()?;
        fs::rename(temporary, &self.path)?;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
        Ok((file, joined))
    }

    /// Whether the path still names this file: one that was deleted is lost when the watch ends, and
    /// another one must not be replaced. It costs an fstat(2) and a stat(2).
    fn still_there(&self) -> io::Result<()> {
        if !self.regular {
            return Ok(());
        }
        let ours = self.file.metadata()?;
        let named = match fs::metadata(&self.path) {
            Ok(named) => Some((named.dev(), named.ino())),
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                None
            }
            Err(error) => return Err(error),
        };
        let lost = "everything recorded until then is lost";
        let kept = "the lines recorded until then are in it, under its other name";
        Err(io::Error::other(match (named, ours.nlink()) {
            (Some(named), _) if named == (ours.dev(), ours.ino()) => return Ok(()),
            (None, 0) => format!("the file was deleted, and {lost}"),
            (Some(_), 0) => {
                format!("the file was deleted, its name belongs to another file now, and {lost}")
            }
            (None, _) => format!("the file was renamed or moved; {kept}"),
            (Some(_), _) => {
                format!("the file was renamed, and its name belongs to another file now; {kept}")
            }
        }))
    }

    /// A name next to the record's, of this process.
    fn beside(&self, kind: &str) -> PathBuf {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{kind}-{}", std::process::id()));
        self.path.with_file_name(name)
    }
}

/// Lines as they are written, each with its end.
fn whole(lines: &[WatchLine]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for line in lines {
        serde_json::to_writer(&mut bytes, line)?;
        bytes.push(b'\n');
    }
    Ok(bytes)
}

/// Two watches must not write one record.
fn lock(file: &File) -> io::Result<()> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {
            Err(io::Error::new(io::ErrorKind::WouldBlock, "another watch is writing it"))
        }
        // A file system without locks.
        _ => Ok(()),
    }
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Joined {
    pub(super) bytes: u64,
    pub(super) intervals: u64,
}

/// Writes the record `from` to the empty file `to`, with neighbours joined up to `looks` looks each.
///
/// The lines of the states go through the second file, `aside`: only then is it known which
/// descriptions they still name.
pub(super) fn rewrite(from: &File, aside: &File, to: &File, looks: u32) -> io::Result<Joined> {
    let (named, intervals) = join_states(from, aside, looks)?;
    let mut out = BufWriter::with_capacity(1 << 16, to);
    let mut lines = Lines::new(from)?;
    while let Some(raw) = lines.raw().map_err(|error| unreadable(&error))? {
        let described = [&b"{\"line\":\"listener\""[..], b"{\"line\":\"diagnosis\""];
        let keep = if raw.starts_with(HEADER) {
            true
        } else if described.iter().any(|begin| raw.starts_with(begin)) {
            match serde_json::from_slice(raw)? {
                WatchLine::Listener(line) => named.contains(&line.n),
                WatchLine::Diagnosis(line) => named.contains(&line.n),
                _ => false,
            }
        } else {
            false
        };
        if keep {
            out.write_all(raw)?;
        }
    }
    let mut states = aside;
    states.seek(SeekFrom::Start(0))?;
    io::copy(&mut states, &mut out)?;
    out.flush()?;
    drop(out);
    Ok(Joined { bytes: to.metadata()?.len(), intervals })
}

/// Writes the joined intervals. Gives the numbers that they name, and how many they are.
fn join_states(from: &File, aside: &File, looks: u32) -> io::Result<(BTreeSet<u32>, u64)> {
    let mut out = BufWriter::with_capacity(1 << 16, aside);
    let mut named = BTreeSet::new();
    let mut intervals = 0;
    let mut put = |interval: Interval| -> io::Result<()> {
        named.extend(interval.listeners.iter().map(|part| part.n));
        named.extend(interval.diagnoses.iter().map(|part| part.n));
        intervals += 1;
        serde_json::to_writer(&mut out, &WatchLine::State(Box::new(interval)))?;
        out.write_all(b"\n")
    };
    let mut open: Option<Interval> = None;
    let mut lines = Lines::new(from)?;
    while let Some(line) = lines.parsed().map_err(|error| unreadable(&error))? {
        let WatchLine::State(interval) = line else { continue };
        open = match open.take() {
            Some(before) if before.looks.saturating_add(interval.looks) <= looks => {
                Some(before.join(*interval))
            }
            Some(before) => {
                put(before)?;
                Some(*interval)
            }
            None => Some(*interval),
        };
    }
    if let Some(last) = open {
        put(last)?;
    }
    out.flush()?;
    drop(out);
    Ok((named, intervals))
}

fn unreadable(error: &WatchReadError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}
