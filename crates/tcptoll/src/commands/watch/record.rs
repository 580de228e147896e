//! A watch as a record: `--record FILE`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use jiff::{Timestamp, Unit};
use tcptoll_core::units::{parse_size, text_size};
use tcptoll_lab::passport;
use tcptoll_live::watch::{
    LIMIT_MIN, State, WATCH_RECORD_VERSION, WatchHeader, WatchRecorder, WatchSummary,
};
use tcptoll_show::shell_argument;

use super::Sink;
use crate::cli::WatchArgs;
use crate::exit::{NotStored, say};
use crate::output::check_place;

/// The longest record: what is read back.
const LIMIT_MAX: u64 = 4 << 30;

/// Writes states to a file. After a failure it writes nothing more, and the watch goes on.
#[derive(Debug)]
pub(super) struct Record {
    path: PathBuf,
    recorder: WatchRecorder,
    /// Waits for the host's name, which the first state has.
    header: Option<WatchHeader>,
    failure: Option<String>,
    /// The reason that the record itself could not be given yet: the disk was full.
    reason: Option<String>,
}

impl Record {
    /// Creates the file. `interval_s`: time between two looks, s, as asked.
    pub(super) fn create(path: &Path, args: &WatchArgs, interval_s: f64) -> anyhow::Result<Self> {
        let text = &args.record_limit;
        let limit = parse_size(text).context("--record-limit")?;
        if !(LIMIT_MIN..=LIMIT_MAX).contains(&limit) {
            let [least, most] = [LIMIT_MIN, LIMIT_MAX].map(text_size);
            bail!("--record-limit {text}: write a size from {least} to {most}");
        }
        let option = format!("--record {}", path.display());
        check_place(&option, path)?;
        let recorder = WatchRecorder::create(path, limit).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => anyhow::anyhow!(
                "{option}: this file exists and is not empty. Name another file, or remove this one"
            ),
            _ => anyhow::anyhow!("{option}: the file cannot be created: {error}"),
        })?;
        let header = WatchHeader {
            record_version: WATCH_RECORD_VERSION,
            tcptoll_version: env!("CARGO_PKG_VERSION").to_owned(),
            command: std::env::args().collect(),
            started_at: Timestamp::now().round(Unit::Millisecond)?.to_string(),
            interval_s,
            limit_bytes: limit,
            host: String::new(),
            passport: passport::read(),
        };
        Ok(Self {
            path: path.to_owned(),
            recorder,
            header: Some(header),
            failure: None,
            reason: None,
        })
    }

    /// Says where the record is, and what draws it.
    fn say_where(&self) {
        if self.failure.is_none() {
            let name = shell_argument(&self.path.display().to_string());
            // A line of its own, so that it can be copied.
            say(&format!("recorded in {name}; to draw it:\ntcptoll report {name}"));
        }
    }

    /// Keeps the first failure. One at the end is said by the exit status alone.
    fn note(&mut self, written: std::io::Result<()>, ends: bool) {
        let Err(error) = written else { return };
        let failure = format!("the record {} is incomplete: {error}", self.path.display());
        if !ends {
            say(&format!("error: {failure}. Recording stopped; the watch goes on"));
        }
        self.failure = Some(failure);
        self.reason = Some(error.to_string());
        self.give_reason();
    }

    /// Writes the reason of a failure into the record, if it has room for it.
    fn give_reason(&mut self) {
        if let Some(reason) = &self.reason
            && self.header.is_none()
            && self.recorder.stop(reason).is_ok()
        {
            self.reason = None;
        }
    }
}

impl Sink for Record {
    fn state(&mut self, state: &State) -> anyhow::Result<()> {
        if self.failure.is_some() {
            return Ok(());
        }
        let header =
            self.header.take().map(|header| WatchHeader { host: state.host.clone(), ..header });
        let written = header.map_or(Ok(()), |header| self.recorder.header(header));
        let written = written.and_then(|()| self.recorder.state(state));
        self.note(written, false);
        Ok(())
    }

    fn end(&mut self, summary: &WatchSummary) -> anyhow::Result<()> {
        if self.failure.is_none() && self.header.is_none() {
            let written = self.recorder.end(summary);
            self.note(written, true);
            self.say_where();
        }
        // The disk may have room again.
        self.give_reason();
        match self.failure.take() {
            Some(failure) => Err(NotStored(failure).into()),
            None => Ok(()),
        }
    }
}
