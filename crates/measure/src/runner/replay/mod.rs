//! Whole runs in milliseconds: each experiment with hosts that say what they said in a recorded run,
//! as the runner runs it, from its settings to trial and summary in its record. A conversation is in
//! `NAME.jsonl` beside this file, what came of it in `snapshots/`, the settings in [`CASES`].
//!
//! A change of an order, an answer or the order of steps makes the recordings stale. To record a case
//! anew, `http` for example, or all without `CASE`:
//!
//! ```sh
//! cargo build && CASE=http cargo test -p tcptoll-measure --lib record_conversations -- --ignored
//! INSTA_UPDATE=always cargo test -p tcptoll-measure --lib replay
//! ```

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tcptoll_core::study::{Settings, Study};
use tcptoll_lab::lab::certification::Tolerance;
use tcptoll_lab::lab::conversation::{Recording, Replay, Script};

use super::*;
use crate::experiments::{EXPERIMENTS, find_experiment};

/// A recorded conversation may be this long, bytes.
const CONVERSATION_MAX: usize = 60_000;

/// Where this machine has servers' files, and who made them: hosts mention it, and a recording does not.
const THIS_MACHINE: [&str; 3] = ["/usr/lib/apache2/modules/", "/usr/bin/", " (Debian)"];

/// The case of this name.
fn case(name: &str) -> &'static Case {
    let found = CASES.iter().find(|case| case.name == name);
    found.unwrap_or_else(|| panic!("{name}: `cases` has none of this name"))
}

impl Case {
    fn settings(&self) -> Settings {
        let typed = self.settings.iter();
        typed.map(|(name, value)| ((*name).to_owned(), Value::from(*value))).collect()
    }

    fn file(&self) -> PathBuf {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/runner/replay");
        folder.join(self.name).with_extension("jsonl")
    }

    /// The recorded conversation.
    fn script(&self) -> Script {
        Script::parse(&std::fs::read_to_string(self.file()).unwrap()).unwrap()
    }

    /// Its record, after a run with these settings and hosts; all but the hosts is the same each time.
    ///
    /// Errors: nothing was measured.
    fn record(&self, settings: Settings, hosts: &dyn HostSource) -> Result<Record, RunError> {
        let mut study = Study {
            question: "what was recorded?".to_owned(),
            experiment: self.experiment.to_owned(),
            settings,
            ..Study::default()
        };
        // As of a command line.
        (find_experiment(self.experiment).unwrap().spec().complete)(&mut study);
        let folder = tempfile::tempdir().unwrap();
        let options = RunOptions {
            command: vec!["tcptoll".to_owned(), self.experiment.to_owned()],
            record: folder.path().join("record.jsonl"),
            record_is_named: true,
            seed: 7,
            tolerance: Tolerance::default(),
            tolerance_text: None,
            pcap: None,
            version: "0".to_owned(),
            vantage: None,
            start: None,
            started_at: "2026-01-01T00:00:00Z".to_owned(),
            after_s: 0.0,
        };
        let passport =
            Passport { kernel: "Linux".to_owned(), cpus: 2, uid: 1000, ..Passport::default() };
        let schedule = Schedule::from_study(&study)?;
        run_on(hosts, passport, schedule, &options, &Interrupt::new(), &mut |_| {})?;
        Ok(Record::read(&options.record).unwrap())
    }
}

/// The trials of a record, and the summary that a report shows, without the times that this machine
/// took.
fn kept(record: &Record) -> Value {
    let mut trials: Vec<Trial> = record.trials().cloned().collect();
    for trial in &mut trials {
        (trial.began_s, trial.took_s) = (0.0, 0.0);
    }
    let mut summary = summarise(record).unwrap();
    summary.passport.steal = None;
    json!({ "trials": trials, "summary": summary })
}

/// What comes of a run with recorded hosts.
///
/// Errors: the run is not as recorded.
fn replayed(case: &Case, settings: Settings, script: Script) -> Result<Value, String> {
    let replay = Replay::new(script);
    let record = case.record(settings, &replay);
    replay.end()?;
    Ok(kept(&record.unwrap()))
}

/// Why the run is not as recorded with one other setting.
fn departure(case: &Case, (name, value): (&str, &str)) -> String {
    let mut settings = case.settings();
    settings.insert(name.to_owned(), value.into());
    replayed(case, settings, case.script()).unwrap_err()
}

fn gives_its_trial_and_its_summary_again(name: &str) {
    let case = case(name);
    let mut again = replayed(case, case.settings(), case.script()).unwrap();
    points_on_one_line(&mut again);
    insta::assert_json_snapshot!(name, again);
}

/// Makes a text of each list of numbers: a snapshot has a line for each point of a series.
fn points_on_one_line(value: &mut Value) {
    match value {
        Value::Array(all) if !all.is_empty() && all.iter().all(Value::is_number) => {
            *value = Value::String(value.to_string());
        }
        Value::Array(all) => all.iter_mut().for_each(points_on_one_line),
        Value::Object(all) => all.values_mut().for_each(points_on_one_line),
        _ => {}
    }
}

#[test]
fn every_experiment_has_a_recorded_run() {
    for experiment in EXPERIMENTS {
        let name = experiment.spec().name;
        assert!(CASES.iter().any(|case| case.experiment == name), "{name}: write a case of it");
    }
}

#[test]
fn an_order_that_changed_is_named_with_the_field_and_both_values() {
    let wanted = |case, setting| {
        let text = departure(case, setting);
        text.split_once("the trial wants to ").unwrap().1.to_owned()
    };
    assert_eq!(
        wanted(case("connect"), ("count", "13")),
        "open-connections to the client: count is 13; recorded: 12"
    );
    assert_eq!(
        wanted(case("http"), ("connections", "3")),
        "serve to the server: connections is 3; recorded: 2"
    );
    assert_eq!(
        wanted(case("keepalive"), ("sockets", "6")),
        "make to the server: Listen.sockets is 5; recorded: 4"
    );
    assert_eq!(
        wanted(case("connect"), ("link", "rtt=3ms")),
        "make a lab: link is \"rtt=3ms\"; recorded: \"rtt=2ms\""
    );
}

#[test]
fn an_order_too_many_and_one_too_few_are_named() {
    let more = departure(case("connect"), ("client-sysctl", "net.ipv4.tcp_syn_retries=3"));
    assert!(more.contains("the trial wants to set-sysctls to the client; recorded: "), "{more}");
    let fewer = departure(case("connect"), ("warmup", "0"));
    let ping = "the trial wants to ping to the client; recorded: greet to the server";
    assert!(fewer.contains(ping), "{fewer}");
}

#[test]
fn a_recording_that_is_too_short_or_too_long_is_not_replayed() {
    let connect = case("connect");
    let refused = |text: &str| {
        replayed(connect, connect.settings(), Script::parse(text).unwrap()).unwrap_err()
    };
    let text = connect.script().to_string();
    let (whole, last) = text.trim_end().rsplit_once('\n').unwrap();
    let short = refused(whole);
    assert!(short.contains("wait for the server; the recording is over"), "{short}");
    let long = refused(&format!("{text}{last}\n"));
    assert!(long.ends_with("of the recording follows: answer from the server"), "{long}");
}

#[test]
fn an_answer_that_is_changed_changes_the_judgement_and_the_trial_is_repeated() {
    let connect = case("connect");
    let text = connect.script().to_string();
    let dropped = text.replace("\"unwanted_drops\":0", "\"unwanted_drops\":3");
    assert_ne!(dropped, text);
    let replay = Replay::new(Script::parse(&dropped).unwrap());
    let record = connect.record(connect.settings(), &replay).unwrap();
    let [first, second] = record.trials().collect::<Vec<_>>().try_into().unwrap();
    assert_eq!(first.invalid.as_deref(), Some("the lab itself dropped packets unintentionally"));
    assert_eq!(first.arm.link.as_ref().unwrap().unwanted_drops, 3);
    assert_eq!(second.attempt, 1);
    let more = replay.end().unwrap_err();
    assert!(more.ends_with("the trial wants to make a lab; the recording is over"), "{more}");
}

#[test]
#[ignore = "makes labs, and writes the conversations anew; needs target/debug/tcptoll"]
fn record_conversations() {
    let tests = std::env::current_exe().unwrap();
    let program = tests.ancestors().nth(2).unwrap().join("tcptoll");
    assert!(program.exists(), "{} is missing: cargo build", program.display());
    let target = TcpListener::bind("127.0.0.1:18765").unwrap();
    std::thread::spawn(move || target.incoming().for_each(|stream| respond(stream.unwrap())));
    let asked = std::env::var("CASE").map(|name| std::slice::from_ref(case(&name)));
    for case in asked.unwrap_or(CASES) {
        let recording = Recording::running(program.clone());
        let record = case.record(case.settings(), &recording).unwrap();
        let invalid = record.trials().find_map(|trial| trial.invalid.as_deref());
        assert_eq!(invalid, None, "{}: record it on a quiet machine", case.name);
        let text = recording.script().to_string();
        let again = replayed(case, case.settings(), Script::parse(&text).unwrap()).unwrap();
        pretty_equal(case.name, &kept(&record), &again);
        let text = THIS_MACHINE.iter().fold(text, |text, its| text.replace(its, ""));
        assert!(text.len() < CONVERSATION_MAX, "{}: {} bytes", case.name, text.len());
        std::fs::write(case.file(), text).unwrap();
    }
}

/// Answers each request of a connection, in a thread of its own.
fn respond(mut stream: TcpStream) {
    std::thread::spawn(move || {
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        while let Some(Ok(line)) = lines.next() {
            if line.is_empty() && stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").is_err() {
                return;
            }
        }
    });
}

/// Panics where a replay gives something else than the run that was recorded.
fn pretty_equal(name: &str, recorded: &Value, replayed: &Value) {
    let lines = |value| serde_json::to_string_pretty(value).unwrap();
    let (recorded, replayed) = (lines(recorded), lines(replayed));
    for (a, b) in recorded.lines().zip(replayed.lines()) {
        assert_eq!(a, b, "{name}");
    }
    assert_eq!(recorded.len(), replayed.len(), "{name}");
}

/// A run of one arm that is recorded.
struct Case {
    /// Of its files too.
    pub(super) name: &'static str,
    pub(super) experiment: &'static str,
    pub(super) settings: &'static [(&'static str, &'static str)],
}

/// The table of cases, and a test of each.
macro_rules! cases {
    ($($name:ident: $experiment:literal { $($option:literal: $value:literal,)* })*) => {
        const CASES: &[Case] = &[$(Case {
            name: stringify!($name),
            experiment: $experiment,
            settings: &[$(($option, $value),)*],
        },)*];

        mod a_recorded_run_gives_its_trial_and_its_summary_again {
            $(#[test]
            fn $name() {
                super::gives_its_trial_and_its_summary_again(stringify!($name));
            })*
        }
    };
}

cases! {
    // The queue overflows: half-open requests are left, and whose SYN was dropped comes again.
    accept_queue: "accept-queue" {
        "link": "rtt=2ms",
        "backlog": "4",
        "accept-delay": "3ms",
        "rate": "2000",
        "count": "12",
        "timeout": "1500ms",
        "warmup": "2",
    }
    connect: "connect" {
        "link": "rtt=2ms",
        "count": "12",
        "concurrency": "2",
        "warmup": "2",
        "first-byte": "on",
    }
    http: "http" {
        "link": "rtt=2ms",
        "server": "null",
        "reuse": "server-close",
        "connections": "2",
        "requests": "30",
        "warmup": "4",
    }
    http_at_a_target: "http" {
        "url": "http://127.0.0.1:18765/",
        "connections": "2",
        "requests": "20",
        "warmup": "0",
    }
    keepalive: "keepalive" {
        "link": "rtt=2ms",
        "sockets": "5",
        "mechanism": "heartbeat",
        "idle": "100ms",
        "answer-within": "100ms",
        "warmup": "300ms",
        "duration": "1s",
        "rate": "20",
        "fault": "cut",
        "fault-share": "50%",
    }
    messages: "messages" {
        "link": "rtt=2ms",
        "pattern": "write-write-read",
        "message": "200",
        "warmup": "100ms",
        "duration": "200ms",
    }
    page: "page" {
        "link": "rtt=2ms",
        "server": "null",
        "keepalive": "on",
        "resources": "3",
        "loads": "2",
    }
    stream: "stream" {
        "link": "rtt=2ms",
        "message": "4K",
        "rate": "20mbit",
        "warmup": "100ms",
        "duration": "300ms",
    }
    // More SYNs than the queue holds.
    syn_queue: "syn-queue" {
        "link": "rtt=2ms",
        "backlog": "8",
        "syncookies": "0",
        "half-open": "full",
        "count": "10",
        "rate": "50",
        "timeout": "1500ms",
    }
    // More operations than ports.
    time_wait: "time-wait" {
        "link": "rtt=2ms",
        "port-range": "40000-40015",
        "tw-reuse": "0",
        "count": "20",
        "workers": "2",
    }
    visitors: "visitors" {
        "link": "rtt=2ms",
        "server": "apache-event",
        "work": "0",
        "resources": "2",
        "rate": "5",
        "pages": "2",
        "think": "200ms",
        "warmup": "1s",
        "duration": "2s",
    }
    // The backend stalls.
    worker_pool: "worker-pool" {
        "link": "rtt=2ms",
        "workers": "2",
        "rate": "50",
        "warmup": "50ms",
        "duration": "400ms",
        "stall-after": "100ms",
        "stall": "150ms",
    }
}
