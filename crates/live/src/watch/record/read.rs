//! Reads a watch's record line by line, as often as is needed, in bounded memory.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use tcptoll_core::record::is_watch;
use tcptoll_lab::files::{LINE_MAX, first_line};

use super::check::Misfit;
use super::review::{Curves, Review, Series};
use super::reviewer::Reviewer;
use super::{Interval, WATCH_RECORD_VERSION, WatchLine};

/// The longest record that is read.
const RECORD_MAX: u64 = 4 << 30;

/// Why a watch's record cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A line that is no line of a record, before the last.
    #[error("line {number} is damaged: {}", within_line(error))]
    Damaged {
        /// From 1.
        number: u64,
        error: serde_json::Error,
    },
    /// A line that can be read and that no watch writes.
    #[error("line {number} is damaged: {misfit}")]
    Strange {
        /// From 1.
        number: u64,
        misfit: Misfit,
    },
    /// A line that has no end.
    #[error("line {number} is longer than {} MiB", LINE_MAX >> 20)]
    LongLine {
        /// From 1.
        number: u64,
    },
    /// A record of a newer format that this build would misread.
    #[error(
        "its format is version {0}, this build reads up to {WATCH_RECORD_VERSION}: use a newer tcptoll"
    )]
    TooNew(u32),
    #[error("it is larger than {} GiB", RECORD_MAX >> 30)]
    TooLarge,
    /// A header and nothing else.
    #[error("the watch was stopped before its first look")]
    Empty,
}

/// What is wrong with a line. It was parsed alone, so that its number is always 1 for the parser.
fn within_line(error: &serde_json::Error) -> String {
    error.to_string().replace(" at line 1 column ", " at column ")
}

#[derive(Debug)]
pub struct WatchRecord {
    file: File,
}

impl WatchRecord {
    /// Opens a record; `None`: the file is something else.
    ///
    /// Errors: it cannot be read.
    pub fn open(path: &Path) -> io::Result<Option<Self>> {
        let file = File::open(path)?;
        Ok(is_watch(&first_line(&file)?).then_some(Self { file }))
    }

    /// The lines from the beginning.
    ///
    /// Errors: the file cannot be read, or is longer than any record.
    pub fn lines(&self) -> Result<Lines<'_>, WatchReadError> {
        if self.file.metadata()?.len() > RECORD_MAX {
            return Err(WatchReadError::TooLarge);
        }
        Ok(Lines::new(&self.file)?)
    }

    /// What it says as a whole.
    ///
    /// Errors: a line that no watch writes.
    pub fn review(&self) -> Result<Review, WatchReadError> {
        let mut lines = self.lines()?;
        let mut reviewer = Reviewer::default();
        for line in lines.by_ref() {
            let (number, line) = line?;
            if let WatchLine::WatchHeader(header) = &line
                && header.record_version > WATCH_RECORD_VERSION
            {
                return Err(WatchReadError::TooNew(header.record_version));
            }
            let fits = reviewer.line(line);
            fits.map_err(|misfit| WatchReadError::Strange { number, misfit })?;
        }
        let review = reviewer.finish(lines.cut);
        if review.looks == 0 {
            return Err(WatchReadError::Empty);
        }
        Ok(review)
    }

    /// What pictures need. A watch that goes on may have written more since the review.
    ///
    /// Errors: as [`WatchRecord::review`].
    pub fn series(&self, review: &Review) -> Result<Series, WatchReadError> {
        let mut curves = Curves::new(review);
        let mut states = 0;
        for line in self.lines()? {
            let (_, line) = line?;
            states += u64::from(matches!(line, WatchLine::State(_)));
            if states > review.lines {
                break;
            }
            curves.line(line);
        }
        Ok(curves.finish())
    }
}

/// Lines of a record with their numbers, from 1.
#[derive(Debug)]
pub struct Lines<'a> {
    from: BufReader<&'a File>,
    number: u64,
    bytes: Vec<u8>,
    /// Whether the last line was cut.
    pub(super) cut: bool,
}

impl<'a> Lines<'a> {
    pub(super) fn new(mut file: &'a File) -> io::Result<Self> {
        file.seek(SeekFrom::Start(0))?;
        let from = BufReader::with_capacity(1 << 16, file);
        Ok(Self { from, number: 0, bytes: Vec::new(), cut: false })
    }

    /// The next whole line with its end, as it is.
    pub(super) fn raw(&mut self) -> Result<Option<&[u8]>, WatchReadError> {
        self.bytes.clear();
        self.number += 1;
        self.from.by_ref().take(LINE_MAX).read_until(b'\n', &mut self.bytes)?;
        if self.bytes.is_empty() {
            return Ok(None);
        }
        if !self.bytes.ends_with(b"\n") {
            if self.bytes.len() as u64 >= LINE_MAX {
                return Err(WatchReadError::LongLine { number: self.number });
            }
            self.cut = true;
            return Ok(None);
        }
        Ok(Some(&self.bytes))
    }

    pub(super) fn parsed(&mut self) -> Result<Option<WatchLine>, WatchReadError> {
        let number = self.number + 1;
        let Some(bytes) = self.raw()? else { return Ok(None) };
        // By far the most lines, read without looking for the tag first: that takes twice as long.
        let parsed = if bytes.starts_with(b"{\"line\":\"state\",") {
            serde_json::from_slice::<Interval>(bytes).map(|one| WatchLine::State(Box::new(one)))
        } else {
            serde_json::from_slice(bytes)
        };
        parsed.map(Some).map_err(|error| WatchReadError::Damaged { number, error })
    }
}

impl Iterator for Lines<'_> {
    type Item = Result<(u64, WatchLine), WatchReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let line = self.parsed().transpose()?;
        Some(line.map(|line| (self.number, line)))
    }
}

/// How a watch begins every record.
pub(super) const HEADER: &[u8] = b"{\"line\":\"watch-header\"";
