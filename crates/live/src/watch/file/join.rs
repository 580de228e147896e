//! Rewrites a record with neighbouring intervals joined, in bounded memory.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufWriter, Seek as _, SeekFrom, Write as _};

use crate::watch::{Interval, WatchLine};

use super::read::{Lines, WatchReadError};

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Joined {
    /// Length of the file.
    pub(super) bytes: u64,
    /// Intervals in it.
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
        let keep = if raw.starts_with(super::HEADER) {
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
