//! Writes a record: one JSON object a line, flushed before the next trial begins, so that a killed
//! run loses the running trial and nothing else.
//!
//! A run that measures nothing leaves no record and no changed file: failures before the first success wait
//! in memory, and are written once something was measured.
//!
//! One run writes a record, held by a file lock (`flock`): two runs on one record, or a `--resume` of a run
//! that is still alive, would interleave lines. The lock ends with its process, also after `kill -9`; a lock
//! file would stay. On a file system without locks the record is written without.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use tcptoll_core::record::{self, Header, Line, Resumed, Summary, Trial, is_watch};
use tcptoll_core::study::stop::ROUNDS_MAX;

use tcptoll_lab::files::{empty, first_line, open_own};

/// How a merged record begins.
pub(super) const MERGED: &[u8] = b"{\"line\":\"merged\"";

/// Longest record that is read back.
pub(crate) const RECORD_MAX_BYTES: u64 = 1 << 30;

/// How every record begins.
const HEADER: &[u8] = b"{\"line\":\"header\"";

/// A record being written. After a failure it stays silent, and says so at the end.
#[derive(Debug)]
pub struct Recorder {
    path: PathBuf,
    /// None: it could not be created.
    file: Option<File>,
    /// Lines that wait for the first trial: what stood in the file before is kept until then.
    waiting: Option<Vec<u8>>,
    /// Whether the file was not there before.
    created: bool,
    /// Length of the whole lines of a record that goes on; what a killed run tore goes.
    whole_bytes: Option<u64>,
    failure: Option<io::Error>,
}

impl Recorder {
    /// Creates the file.
    ///
    /// Errors: it cannot be made, or another program has written it; nothing has been measured yet.
    pub fn create(path: &Path) -> io::Result<Self> {
        let created = !path.exists();
        let file = open_own(path)?;
        lock(&file)?;
        Ok(Self {
            path: path.to_owned(),
            file: Some(file),
            waiting: Some(Vec::new()),
            created,
            whole_bytes: None,
            failure: None,
        })
    }

    /// Creates the file and its folder. Where that fails, the recorder stores nothing, and [`Recorder::failure`] says why.
    pub fn create_with_folder(path: &Path) -> Self {
        let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
        let created = folder.and_then(|()| Self::create(path));
        created.unwrap_or_else(|failure| Self {
            path: path.to_owned(),
            file: None,
            waiting: None,
            created: false,
            whole_bytes: None,
            failure: Some(failure),
        })
    }

    /// Reads a record to go on behind its last whole line. It is locked first: what is read is
    /// what will be appended to.
    ///
    /// Errors: if it cannot be read or written, or another run is writing it.
    pub fn resume(path: &Path) -> Result<(Record, Self), ReadError> {
        let file = File::options().read(true).write(true).open(path)?;
        lock(&file)?;
        let record = Record::from_file(&file)?;
        let recorder = Self {
            path: path.to_owned(),
            file: Some(file),
            waiting: None,
            created: false,
            whole_bytes: Some(record.whole_bytes),
            failure: None,
        };
        Ok((record, recorder))
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
        let Some(file) = self.file.as_mut().filter(|_| self.failure.is_none()) else { return };
        let written = serde_json::to_vec(line).map_err(io::Error::from).and_then(|mut bytes| {
            bytes.push(b'\n');
            if let Some(length) = self.whole_bytes.take() {
                file.set_len(length)?;
                file.seek(SeekFrom::Start(length))?;
            }
            if let Some(waiting) = &mut self.waiting {
                waiting.append(&mut bytes);
                if matches!(line, Line::Header(_)) {
                    return Ok(());
                }
                bytes = self.waiting.take().unwrap_or_default();
                empty(file)?;
            }
            file.write_all(&bytes)?;
            file.sync_data()
        });
        // A pipe or /dev/null cannot be synced, and need not be.
        if let Err(error) = written
            && error.kind() != io::ErrorKind::InvalidInput
        {
            self.failure = Some(error);
        }
    }

    /// Why the record is not whole, as the end of a sentence about it; `None`: it is.
    pub fn failure(&self) -> Option<String> {
        let what = if self.file.is_some() { "is incomplete" } else { "cannot be created" };
        self.failure.as_ref().map(|failure| format!("{what}: {failure}"))
    }
}

/// Whether another open file holds the lock of [`lock`]: a process that was killed does not.
fn is_locked(file: &File) -> bool {
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

/// Two runs must not write one record.
fn lock(file: &File) -> io::Result<()> {
    // A pipe or a device is nobody's record.
    if !file.metadata()?.is_file() {
        return Ok(());
    }
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {
            Err(io::Error::new(io::ErrorKind::WouldBlock, "another run is writing it"))
        }
        // A file system without locks.
        _ => Ok(()),
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
    /// A trial that no run can have written.
    #[error("line {number} is damaged: {what}")]
    Impossible {
        /// From 1.
        number: usize,
        /// What is impossible.
        what: String,
    },
    /// A record of a newer format that this build would misread.
    #[error("its format is version {0}, but this tcptoll reads at most version {max}: use a newer tcptoll", max = tcptoll_core::record::RECORD_VERSION)]
    TooNew(u32),
    /// Nothing.
    #[error("it is empty, because the run ended before its first trial: start a new run")]
    Empty,
    /// Nothing yet.
    #[error("its run is still running, and the first trial has not ended yet")]
    Running,
    /// No header.
    #[error("it does not begin with the header of a record")]
    NoHeader,
    /// What `watch --record` wrote.
    #[error("it is the record of a watch, which has no trials: `tcptoll report FILE` shows it")]
    Watch,
    /// What `merge` wrote.
    #[error("it is a merged record: `tcptoll report FILE` shows it")]
    Merged,
    /// A merged record that is not whole.
    #[error(
        "it is damaged or cut: its lines are not those of the points that its first line names"
    )]
    Cut,
    /// Larger than any record.
    #[error("it is larger than {} MiB", RECORD_MAX_BYTES >> 20)]
    TooLarge,
}

/// What no run can have written: what follows from rounds, times and figures has no surprises.
fn impossible(line: &Line) -> Option<String> {
    match line {
        Line::Trial(trial) => {
            let time = |s: f64| (0.0..1e9).contains(&s);
            let late = trial.start_late_s.is_none_or(time);
            let is_possible =
                trial.round < ROUNDS_MAX && time(trial.began_s) && time(trial.took_s) && late;
            let of_arm = || record::impossible(&trial.arm);
            if is_possible { of_arm() } else { Some("its round or time is impossible".to_owned()) }
        }
        Line::Summary(summary) => summary.arms.iter().find_map(record::impossible),
        _ => None,
    }
}

/// The lines of a file that have their end.
pub(crate) struct Whole {
    pub(crate) lines: Vec<Line>,
    /// Whether the last line lacks its end.
    pub(crate) torn: bool,
    /// Length of the lines.
    pub(crate) bytes: u64,
}

/// Reads lines; `first` is how the first one begins.
pub(crate) fn whole(bytes: &[u8], first: &[u8]) -> Result<Whole, ReadError> {
    let mut whole = Whole { lines: Vec::new(), torn: false, bytes: 0 };
    for (number, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        // A line without its end is torn even if it can be read: more would be put behind it.
        if !line.ends_with(b"\n") {
            whole.torn = true;
            break;
        }
        match serde_json::from_slice::<Line>(line) {
            Ok(line) => match impossible(&line) {
                Some(what) => return Err(ReadError::Impossible { number: number + 1, what }),
                None => whole.lines.push(line),
            },
            Err(_) if number == 0 && !line.starts_with(first) => return Err(ReadError::NoHeader),
            Err(error) => return Err(ReadError::Damaged { number: number + 1, error }),
        }
        whole.bytes += line.len() as u64;
    }
    Ok(whole)
}

/// A record as read.
#[derive(Debug)]
pub struct Record {
    /// The lines that are whole.
    pub lines: Vec<Line>,
    /// Whether the last line was torn: the run was killed while writing it.
    pub torn: bool,
    /// Whether a run was writing it when it was read.
    pub running: bool,
    /// Length of the whole lines.
    whole_bytes: u64,
}

impl Record {
    /// Reads a record. A torn last line is told apart from damage.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let file = File::open(path)?;
        let running = is_locked(&file);
        match Self::from_file(&file) {
            Err(ReadError::Empty) if running => Err(ReadError::Running),
            read => Ok(Self { running, ..read? }),
        }
    }

    fn from_file(file: &File) -> Result<Self, ReadError> {
        let mut bytes = Vec::new();
        file.take(HEADER.len() as u64).read_to_end(&mut bytes)?;
        // A device has no length, and may have no end: what cannot be a record is read no further.
        if !HEADER.starts_with(&bytes) {
            if MERGED.starts_with(&bytes) && !bytes.is_empty() {
                return Err(ReadError::Merged);
            }
            let watch = is_watch(&first_line(file)?);
            return Err(if watch { ReadError::Watch } else { ReadError::NoHeader });
        }
        file.take(RECORD_MAX_BYTES + 1 - bytes.len() as u64).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > RECORD_MAX_BYTES {
            return Err(ReadError::TooLarge);
        }
        Self::parse(&bytes)
    }

    fn parse(bytes: &[u8]) -> Result<Self, ReadError> {
        let Whole { lines, torn, bytes: whole_bytes } = whole(bytes, HEADER)?;
        match lines.first() {
            Some(Line::Header(header))
                if header.record_version > tcptoll_core::record::RECORD_VERSION =>
            {
                Err(ReadError::TooNew(header.record_version))
            }
            // What a run leaves that was killed before, or while, it wrote its first trial.
            None if HEADER.starts_with(&bytes[..bytes.len().min(HEADER.len())]) => {
                Err(ReadError::Empty)
            }
            Some(Line::Header(_)) => Ok(Self { lines, torn, running: false, whole_bytes }),
            _ => Err(ReadError::NoHeader),
        }
    }

    /// What was asked, and on what machine.
    pub fn header(&self) -> Option<&Header> {
        match self.lines.first() {
            Some(Line::Header(header)) => Some(header),
            _ => None,
        }
    }

    /// The finished trials, in order of running.
    pub fn trials(&self) -> impl Iterator<Item = &Trial> {
        self.lines.iter().filter_map(|line| match line {
            Line::Trial(trial) => Some(&**trial),
            _ => None,
        })
    }

    /// Where the run went on.
    pub fn resumed(&self) -> impl Iterator<Item = &Resumed> {
        self.lines.iter().filter_map(|line| match line {
            Line::Resumed(resumed) => Some(&**resumed),
            _ => None,
        })
    }

    /// The summary that closes the record; `None` if the run was killed.
    pub fn summary(&self) -> Option<&Summary> {
        match self.lines.last() {
            Some(Line::Summary(summary)) => Some(summary),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_running_while_its_writer_has_it_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        let recorder = Recorder::create(&path).unwrap();
        assert!(matches!(Record::read(&path), Err(ReadError::Running)));
        fs::write(&path, format!("{}\n", header())).unwrap();
        assert!(Record::read(&path).unwrap().running);
        drop(recorder);
        assert!(!Record::read(&path).unwrap().running);
    }

    #[test]
    fn without_its_folder_a_recorder_stores_nothing_and_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let mut recorder = Recorder::create_with_folder(&file.join("tcptoll/run.jsonl"));
        recorder.write(&Line::Unknown);
        let why = recorder.failure().unwrap();
        assert!(why.starts_with("cannot be created: "), "{why}");
        let recorder = Recorder::create_with_folder(&folder.path().join("new/run.jsonl"));
        assert_eq!(recorder.failure(), None);
    }

    fn header() -> String {
        let header = tcptoll_core::record::Header {
            record_version: 1,
            experiment: "connect".into(),
            study: tcptoll_core::study::Study::default(),
            command: vec!["tcptoll".into()],
            started_at: "2026-01-01T00:00:00Z".into(),
            seed: 1,
            tcptoll_version: String::new(),
            vantage: None,
            start: None,
            link_tolerance: None,
            resolved: Vec::new(),
            passport: tcptoll_core::record::Passport::default(),
        };
        serde_json::to_string(&Line::Header(Box::new(header))).unwrap()
    }

    #[test]
    fn a_torn_last_line_is_no_damage() {
        let record = Record::parse(format!("{}\n{{\"line\":\"tri", header()).as_bytes()).unwrap();
        assert!(record.torn);
        assert_eq!(record.lines.len(), 1);
    }

    #[test]
    fn the_record_of_a_watch_is_known_however_its_lines_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("watch.jsonl");
        let line = r#"{"line":"watch-header","record_version":1}"#.to_owned();
        for text in [line.clone(), line.replacen(':', ": ", 1)] {
            std::fs::write(&path, format!("{text}\n")).unwrap();
            let error = Record::read(&path).unwrap_err();
            assert!(matches!(error, ReadError::Watch), "{text}: {error}");
        }
    }

    #[test]
    fn a_broken_line_in_the_middle_is_damage_and_named() {
        let error = Record::parse(format!("{}\nxx\n{{}}\n", header()).as_bytes()).unwrap_err();
        assert!(matches!(error, ReadError::Damaged { number: 2, .. }), "{error}");
    }

    #[test]
    fn a_field_of_a_later_version_is_ignored() {
        let later = header().replacen('{', "{\"colour\":\"blue\",", 1);
        assert!(!Record::parse(format!("{later}\n").as_bytes()).unwrap().torn);
    }

    #[test]
    fn a_format_that_would_be_misread_is_refused() {
        let newer = header().replace("\"record_version\":1", "\"record_version\":9");
        assert!(matches!(
            Record::parse(format!("{newer}\n").as_bytes()),
            Err(ReadError::TooNew(9))
        ));
    }

    #[test]
    fn of_a_device_without_an_end_a_few_bytes_are_read() {
        let error = Record::read(Path::new("/dev/zero")).unwrap_err();
        assert!(matches!(error, ReadError::NoHeader), "{error}");
    }

    #[test]
    fn any_other_file_has_no_header() {
        assert!(matches!(Record::parse(b"a,b\n1,2"), Err(ReadError::NoHeader)));
        assert!(matches!(Record::parse(b"a"), Err(ReadError::NoHeader)));
    }

    #[test]
    fn a_record_killed_before_its_first_trial_is_told_from_other_files() {
        for text in ["", "{\"li", &header()[..40], &header()] {
            assert!(matches!(Record::parse(text.as_bytes()), Err(ReadError::Empty)), "{text}");
        }
    }

    #[test]
    fn what_a_killed_run_tore_is_gone_before_anything_is_put_behind_it() {
        let path = std::env::temp_dir().join(format!("tcptoll-append-{}", std::process::id()));
        let trial = serde_json::to_string(&Line::Trial(Box::default())).unwrap();
        fs::write(&path, format!("{}\n{trial}\n{}", header(), &trial[..50])).unwrap();
        let (record, mut recorder) = Recorder::resume(&path).unwrap();
        assert!(record.torn);
        let locked = Recorder::resume(&path).unwrap_err();
        assert!(locked.to_string().contains("another run is writing it"), "{locked}");
        recorder.write(&Line::Trial(Box::default()));
        drop(recorder);
        let again = Record::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(!again.torn);
        assert_eq!(again.trials().count(), 2);
    }

    #[test]
    fn a_trial_that_no_run_can_have_written_is_damage() {
        for change in
            [r#""round":4294967295"#, r#""round":0,"took_s":-5.0"#, r#""round":0,"took_s":1e308"#]
        {
            let trial = serde_json::to_string(&Line::Trial(Box::default())).unwrap();
            let text =
                trial.replacen(r#""round":0"#, change, 1).replacen(r#","took_s":0.0"#, "", 1);
            let error = Record::parse(format!("{}\n{text}\n", header()).as_bytes()).unwrap_err();
            assert!(error.to_string().starts_with("line 2 is damaged"), "{text}: {error}");
        }
    }

    #[test]
    fn a_line_of_a_later_version_is_left_alone() {
        let text = format!("{}\n{{\"line\":\"colour\",\"of\":\"blue\"}}\n", header());
        assert_eq!(Record::parse(text.as_bytes()).unwrap().lines[1], Line::Unknown);
    }
}
