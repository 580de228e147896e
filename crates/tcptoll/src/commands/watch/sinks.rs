//! A watch as lines of text: one when a fault begins, and one when it ends.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use jiff::{Timestamp, Unit};

use super::Sink;
use super::text::{fix_in_a_line, is_over, nothing_wrong};
use crate::cli::{Format, WatchArgs};
use crate::exit::{NotStored, say};
use crate::output::check_place;
use crate::stdout;
use tcptoll_core::units::{parse_size, plural, text_size, text_time};
use tcptoll_lab::passport;
use tcptoll_live::watch::diagnoses::{is_lasting, overload, says_too};
use tcptoll_live::watch::{LIMIT_MIN, WatchRecorder};
use tcptoll_live::watch::{State, WATCH_RECORD_VERSION, WatchHeader, WatchSummary};
use tcptoll_show::shell_argument;

/// Whether these are two stages of one fault, of which only one holds at a time.
fn are_stages(one: &str, other: &str) -> bool {
    says_too(one, other) || says_too(other, one)
}

/// Says what begins and what ends.
#[derive(Debug, Default)]
pub(super) struct Lines {
    interval: Duration,
    network: Option<String>,
    looks: u64,
    /// What is wrong now: by name and subject, since when, s.
    active: BTreeMap<(String, String), f64>,
    /// What was stated of these: whether an overload comes in bursts or lasts. None: it was not known.
    told: BTreeMap<(String, String), Option<String>>,
}

impl Lines {
    /// Lines about looks at this interval. `network`: the namespace that is watched, if it is not ours.
    pub(super) fn new(interval: Duration, network: Option<&str>) -> Self {
        Self { interval, network: network.map(str::to_owned), ..Self::default() }
    }

    /// What a state begins and ends, each a line.
    fn changes(&mut self, state: &State) -> Vec<String> {
        let mut lines = Vec::new();
        self.looks += 1;
        if self.looks == 1 {
            lines.push(self.first(state));
        }
        // The first state has no rates, so the second is the first that can say anything.
        if self.looks == 2 && state.diagnoses.is_empty() {
            lines.push(format!("{} {}", state.time, nothing_wrong(state)));
        }
        let mut now = BTreeMap::new();
        for one in state.diagnoses.iter().filter(|one| !is_over(one)) {
            let key = (one.id.clone(), one.subject.clone());
            let since = self.active.get(&key).copied();
            // Bursts have another fix than an overload that lasts, and it takes looks to tell.
            let told = overload(one).map(str::to_owned);
            let known = self.told.entry(key.clone()).or_insert_with(|| told.clone());
            let is_told = (known.is_none() || is_lasting(one)) && *known != told;
            if is_told {
                *known = told;
            }
            if since.is_none() || is_told {
                let fix = fix_in_a_line(one).map(|fix| format!("; fix: {fix}"));
                let fix = fix.unwrap_or_default();
                let was = self.was(state, &one.id, &one.subject).unwrap_or_default();
                lines.push(format!("{} {}: {}{was}{fix}", state.time, one.id, one.text));
            }
            now.insert(key, since.unwrap_or(state.at_s));
        }
        // One that is held has not ended for good: see `live::watch::diagnoses::HOLD_S`.
        for one in state.diagnoses.iter().filter(|one| is_over(one)) {
            let key = (one.id.clone(), one.subject.clone());
            if let Some(since) = self.active.get(&key) {
                now.insert(key, *since);
            }
        }
        for ((id, subject), since) in &self.active {
            // One that became another has not ended: the line of the other says so.
            let became = now
                .keys()
                .any(|(other, its_subject)| its_subject == subject && are_stages(other, id));
            if !became && !now.contains_key(&(id.clone(), subject.clone())) {
                let lasted = state.at_s - since;
                lines.push(format!("{} {id}: {subject}: ended after {lasted:.0} s", state.time));
            }
        }
        self.told.retain(|key, _| now.contains_key(key));
        self.active = now;
        lines
    }

    /// What it was before it became a diagnosis by this name.
    fn was(&self, state: &State, id: &str, subject: &str) -> Option<String> {
        let gone = |name: &str| {
            !state.diagnoses.iter().any(|one| one.id == name && one.subject == subject)
        };
        let mut before = self.active.iter().filter(|((name, its_subject), _)| {
            its_subject == subject && are_stages(name, id) && gone(name)
        });
        let ((name, _), since) = before.next()?;
        Some(format!(" (was {name} for {:.0} s)", state.at_s - since))
    }

    fn first(&self, state: &State) -> String {
        let network = self.network.as_ref().map(|network| format!(", network namespace {network}"));
        format!(
            "{} watching {} of {}{}, a look every {}. A line follows when a fault begins and when it \
             ends; Ctrl-C stops.",
            state.time,
            plural(state.listeners.len() as u64 + state.listeners_left_out, "listener"),
            state.host,
            network.unwrap_or_default(),
            text_time(self.interval)
        )
    }
}

impl Sink for Lines {
    fn state(&mut self, state: &State) -> anyhow::Result<()> {
        self.changes(state).iter().for_each(|line| say(line));
        Ok(())
    }

    fn end(&mut self, summary: &WatchSummary) -> anyhow::Result<()> {
        say(&format!(
            "watched for {:.0} s: {}, {} missed",
            summary.lasted_s,
            plural(summary.looks, "look"),
            summary.missed
        ));
        Ok(())
    }
}

// A watch as JSON Lines on standard output: one state a look.

/// Prints on stdout. A failure is one of what was seen, not of the look.
///
/// Errors: [`NotStored`]; a closed pipe stays what it is, because its reader has seen enough.
pub(super) fn print(text: &str, format: Format) -> anyhow::Result<()> {
    let Err(error) = stdout::print(text, format) else { return Ok(()) };
    if is_closed(&error) {
        return Err(error);
    }
    Err(NotStored(format!("watched, but standard output cannot be written: {error:#}")).into())
}

/// Whether the reader of a pipe has gone.
fn is_closed(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<std::io::Error>();
    error.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// Prints each state. It is over as soon as nothing can be printed any more.
#[derive(Debug, Default)]
pub(super) struct JsonLines {
    failure: Option<anyhow::Error>,
}

impl Sink for JsonLines {
    fn state(&mut self, state: &State) -> anyhow::Result<()> {
        let line = serde_json::to_string(state)? + "\n";
        self.failure = print(&line, Format::Json).err();
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.failure.is_some()
    }

    fn end(&mut self, _: &WatchSummary) -> anyhow::Result<()> {
        let failure = self.failure.take().filter(|error| !is_closed(error));
        failure.map_or(Ok(()), Err)
    }
}

// A watch as a record: `--record FILE`.

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

#[cfg(test)]
mod tests {
    use super::*;
    use tcptoll_core::finding::{Finding, Severity};

    fn state(at_s: f64, wrong: &[bool]) -> State {
        let diagnosis = |over: &bool| Finding {
            id: "accept-queue-full".into(),
            severity: Severity::Problem,
            subject: "10.0.0.7:80".into(),
            text: "9.0 drops/s".into(),
            evidence: [if *over { "ended_s_ago" } else { "drops_per_s" }]
                .map(|name| (name.to_owned(), 9.into()))
                .into(),
            remedies: Vec::new(),
        };
        let diagnoses = wrong.iter().map(diagnosis).collect();
        let rates = (at_s > 0.0).then(Default::default);
        State {
            at_s,
            time: format!("T{at_s}"),
            host: "web1".into(),
            diagnoses,
            rates,
            ..State::default()
        }
    }

    #[test]
    fn a_fault_is_said_when_it_begins_and_when_it_has_ended_for_good() {
        let mut lines = Lines::new(Duration::from_secs(1), Some("4711"));
        let mut changes = |state: State| lines.changes(&state);
        let first = changes(state(0.0, &[]));
        assert_eq!(first.len(), 1);
        assert!(first[0].contains("web1, network namespace 4711, a look every 1s"), "{first:?}");
        assert_eq!(changes(state(1.0, &[])), ["T1 Nothing is wrong: no listener here."]);
        assert_eq!(changes(state(2.0, &[false])), ["T2 accept-queue-full: 9.0 drops/s"]);
        assert_eq!(changes(state(3.0, &[true])), [""; 0], "held");
        assert_eq!(changes(state(4.0, &[false])), [""; 0], "the same fault again");
        let near = |at_s| {
            let mut near = state(at_s, &[false]);
            near.diagnoses[0].id = "accept-queue-near".into();
            near
        };
        let ended = changes(state(20.0, &[]));
        assert_eq!(ended, ["T20 accept-queue-full: 10.0.0.7:80: ended after 18 s"]);
        let mut lasting = state(20.5, &[false]);
        lasting.diagnoses[0].evidence.insert("overload".into(), "lasting".into());
        lasting.diagnoses[0].subject = "10.0.0.7:81".into();
        let mut burst = lasting.clone();
        burst.diagnoses[0].evidence.clear();
        assert_eq!([changes(burst.clone()).len(), changes(burst.clone()).len()], [1, 0]);
        assert_eq!(
            [changes(lasting.clone()).len(), changes(lasting).len(), changes(burst).len()],
            [1, 0, 0]
        );
        assert_eq!(changes(state(20.6, &[])).len(), 1);
        assert_eq!(changes(near(21.0)), ["T21 accept-queue-near: 9.0 drops/s"]);
        assert_eq!(
            changes(state(24.0, &[false])),
            ["T24 accept-queue-full: 9.0 drops/s (was accept-queue-near for 3 s)"],
            "one becomes the other, and none has ended"
        );
        assert_eq!(
            changes(near(25.0)),
            ["T25 accept-queue-near: 9.0 drops/s (was accept-queue-full for 1 s)"]
        );
    }
}
