//! Writes a record: one JSON object a line, flushed before the next trial begins, so that a killed
//! run loses the running trial and nothing else.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tcptoll_model::record::{Line, Summary};

/// Longest record that is read back.
const RECORD_MAX_BYTES: u64 = 1 << 30;

/// A record being written. After a failure it stays silent, and says so at the end.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    file: File,
    /// Lines that wait for the first trial: what stood in the file before is kept until then.
    waiting: Option<Vec<u8>>,
    /// Whether the file was not there before.
    created: bool,
    failure: Option<io::Error>,
}

impl Recorder {
    /// Creates the file.
    ///
    /// Errors: if it cannot be made; nothing has been measured yet.
    pub fn create(path: &Path) -> io::Result<Self> {
        let created = !path.exists();
        let file = File::options().write(true).create(true).truncate(false).open(path)?;
        Ok(Self { path: path.to_owned(), file, waiting: Some(Vec::new()), created, failure: None })
    }

    /// Leaves the folder as it was, for a run that measured nothing.
    pub fn abandon(self) {
        if self.created && self.waiting.is_some() {
            let _ = fs::remove_file(&self.path);
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a line and flushes it. A failure is kept for [`Recorder::failure`].
    pub fn write(&mut self, line: &Line) {
        if self.failure.is_some() {
            return;
        }
        let written = serde_json::to_vec(line).map_err(io::Error::from).and_then(|mut bytes| {
            bytes.push(b'\n');
            if let Some(waiting) = &mut self.waiting {
                waiting.append(&mut bytes);
                if matches!(line, Line::Header(_)) {
                    return Ok(());
                }
                bytes = self.waiting.take().unwrap_or_default();
                // A device has no length to set.
                if self.file.metadata()?.is_file() {
                    self.file.set_len(0)?;
                }
            }
            self.file.write_all(&bytes)?;
            self.file.sync_data()
        });
        // A pipe or /dev/null cannot be synced, and need not be.
        if let Err(error) = written
            && error.kind() != io::ErrorKind::InvalidInput
        {
            self.failure = Some(error);
        }
    }

    /// What went wrong while writing, if anything did.
    pub fn failure(&self) -> Option<&io::Error> {
        self.failure.as_ref()
    }
}

/// Why a record cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A line that is no line of a record, before the last.
    #[error("line {number} is damaged: {error}")]
    Damaged {
        /// From 1.
        number: usize,
        /// What is wrong.
        error: serde_json::Error,
    },
    /// A record of a newer format that this build would misread.
    #[error("its format is version {0}, this build reads up to {max}: use a newer tcptoll", max = tcptoll_model::record::RECORD_VERSION)]
    TooNew(u32),
    /// No header.
    #[error("it does not begin with a record's header")]
    NoHeader,
    /// Larger than any record.
    #[error("it is larger than {} MiB", RECORD_MAX_BYTES >> 20)]
    TooLarge,
}

/// A record as read.
#[derive(Debug)]
pub struct Record {
    /// The lines that are whole.
    pub lines: Vec<Line>,
    /// Whether the last line was torn: the run was killed while writing it.
    pub torn: bool,
}

impl Record {
    /// Reads a record. A torn last line is told apart from damage.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        if fs::metadata(path)?.len() > RECORD_MAX_BYTES {
            return Err(ReadError::TooLarge);
        }
        Self::parse(&String::from_utf8_lossy(&fs::read(path)?))
    }

    fn parse(text: &str) -> Result<Self, ReadError> {
        let mut lines = Vec::new();
        let mut torn = false;
        let all: Vec<&str> = text.split_inclusive('\n').collect();
        for (number, line) in all.iter().enumerate() {
            match serde_json::from_str::<Line>(line) {
                Ok(line) => lines.push(line),
                Err(_) if number + 1 == all.len() && !line.ends_with('\n') => torn = true,
                Err(error) => return Err(ReadError::Damaged { number: number + 1, error }),
            }
        }
        match lines.first() {
            Some(Line::Header(header))
                if header.record_version > tcptoll_model::record::RECORD_VERSION =>
            {
                Err(ReadError::TooNew(header.record_version))
            }
            Some(Line::Header(_)) => Ok(Self { lines, torn }),
            _ => Err(ReadError::NoHeader),
        }
    }

    /// The summary that closes the record, if the run came to its end.
    pub fn summary(&self) -> Option<&Summary> {
        self.lines.iter().rev().find_map(|line| match line {
            Line::Summary(summary) => Some(&**summary),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> String {
        let header = tcptoll_model::record::Header {
            record_version: 1,
            experiment: "connect".into(),
            study: tcptoll_model::study::Study::default(),
            command: vec!["tcptoll".into()],
            started_at: "2026-01-01T00:00:00Z".into(),
            seed: 1,
            passport: tcptoll_model::record::Passport::default(),
        };
        serde_json::to_string(&Line::Header(Box::new(header))).unwrap()
    }

    #[test]
    fn a_torn_last_line_is_no_damage() {
        let record = Record::parse(&format!("{}\n{{\"line\":\"tri", header())).unwrap();
        assert!(record.torn);
        assert_eq!(record.lines.len(), 1);
    }

    #[test]
    fn a_broken_line_in_the_middle_is_damage_and_named() {
        let error = Record::parse(&format!("{}\nxx\n{{}}\n", header())).unwrap_err();
        assert!(matches!(error, ReadError::Damaged { number: 2, .. }), "{error}");
    }

    #[test]
    fn a_field_of_a_later_version_is_ignored() {
        let later = header().replacen('{', "{\"colour\":\"blue\",", 1);
        assert!(!Record::parse(&format!("{later}\n")).unwrap().torn);
    }

    #[test]
    fn a_format_that_would_be_misread_is_refused() {
        let newer = header().replace("\"record_version\":1", "\"record_version\":9");
        assert!(matches!(Record::parse(&format!("{newer}\n")), Err(ReadError::TooNew(9))));
    }

    #[test]
    fn any_other_file_has_no_header() {
        assert!(matches!(Record::parse(""), Err(ReadError::NoHeader)));
    }
}
