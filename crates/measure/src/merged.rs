//! Records of several vantage points in one file.
//!
//! A merged record is the lines of all points behind a first line of its own, so its summary can be computed
//! again.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use tcptoll_core::record::{Header, Line, Merged, RECORD_VERSION, Resumed, Source, Summary, Trial};

use tcptoll_lab::files::open_own;

use super::record::{MERGED, RECORD_MAX_BYTES, ReadError, Whole, whole};

/// The run of one vantage point.
#[derive(Clone, Debug)]
pub struct PointRecord {
    /// Where it was read.
    pub source: Source,
    /// Its request and machine.
    pub header: Header,
    /// Its trials, in order of running.
    pub trials: Vec<Trial>,
    /// Where it went on.
    pub resumed: Vec<Resumed>,
}

/// The runs of several vantage points.
#[derive(Clone, Debug)]
pub struct MergedRecord {
    /// Which they are.
    pub merged: Merged,
    /// Each of them.
    pub points: Vec<PointRecord>,
    /// What they say together.
    pub summary: Option<Summary>,
}

impl MergedRecord {
    /// Reads a merged record. None: the file is something else.
    ///
    /// Errors: it cannot be read, is damaged or cut, or of a later format.
    pub fn open(path: &Path) -> Result<Option<Self>, ReadError> {
        let mut file = File::open(path)?;
        let mut bytes = Vec::new();
        (&mut file).take(MERGED.len() as u64).read_to_end(&mut bytes)?;
        if bytes != MERGED {
            return Ok(None);
        }
        file.take(RECORD_MAX_BYTES + 1 - bytes.len() as u64).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > RECORD_MAX_BYTES {
            return Err(ReadError::TooLarge);
        }
        Self::parse(&bytes).map(Some)
    }

    fn parse(bytes: &[u8]) -> Result<Self, ReadError> {
        let Whole { lines, torn, .. } = whole(bytes, MERGED)?;
        let mut lines = lines.into_iter();
        let Some(Line::Merged(merged)) = lines.next() else { return Err(ReadError::NoHeader) };
        if merged.record_version > RECORD_VERSION {
            return Err(ReadError::TooNew(merged.record_version));
        }
        let mut sources = merged.points.iter();
        let (mut points, mut summary): (Vec<PointRecord>, _) = (Vec::new(), None);
        for line in lines {
            summary = None;
            match line {
                Line::Header(header) => {
                    let source = sources.next().ok_or(ReadError::Cut)?.clone();
                    let (trials, resumed) = (Vec::new(), Vec::new());
                    points.push(PointRecord { source, header: *header, trials, resumed });
                }
                Line::Trial(trial) => points.last_mut().ok_or(ReadError::Cut)?.trials.push(*trial),
                Line::Resumed(resumed) => {
                    points.last_mut().ok_or(ReadError::Cut)?.resumed.push(*resumed);
                }
                Line::Summary(last) => summary = Some(*last),
                Line::Merged(_) => return Err(ReadError::Cut),
                Line::Unknown => {}
            }
        }
        // It is written in one step: what lacks its end was damaged later.
        if torn || sources.next().is_some() || points.is_empty() {
            return Err(ReadError::Cut);
        }
        Ok(Self { merged: *merged, points, summary })
    }

    /// Writes the record, whole or not at all: an existing file is replaced at the end.
    ///
    /// Errors: the file cannot be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let existed = path.exists();
        let there = open_own(path)?;
        // What is no file, like a pipe, is written to; it cannot be replaced.
        if !there.metadata()?.is_file() {
            return self.write_to(&there);
        }
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.new", std::process::id()));
        let new = path.with_file_name(name);
        let file = File::create_new(&new)?;
        let written = self
            .write_to(&file)
            .and_then(|()| file.sync_data())
            .and_then(|()| fs::rename(&new, path));
        if written.is_err() {
            // The first error says why.
            let _ = fs::remove_file(&new);
            if !existed {
                let _ = fs::remove_file(path);
            }
        }
        written
    }

    fn write_to(&self, file: &File) -> io::Result<()> {
        let of_point = |point: &PointRecord| {
            let resumed = point.resumed.clone().into_iter().map(Box::new).map(Line::Resumed);
            let trials = point.trials.clone().into_iter().map(Box::new).map(Line::Trial);
            std::iter::once(Line::Header(Box::new(point.header.clone())))
                .chain(resumed)
                .chain(trials)
        };
        let summary = self.summary.iter().map(|summary| Line::Summary(Box::new(summary.clone())));
        let lines = std::iter::once(Line::Merged(Box::new(self.merged.clone())))
            .chain(self.points.iter().flat_map(of_point))
            .chain(summary);
        let mut out = io::BufWriter::new(file);
        for line in lines {
            out.write_all(&serde_json::to_vec(&line)?)?;
            out.write_all(b"\n")?;
        }
        out.flush()
    }
}
