//! Whole trials in milliseconds: each experiment with hosts that say what they said in a recorded
//! trial. A conversation is in `NAME.jsonl` beside this file, what came of it in `snapshots/`.
//!
//! A change of an order, an answer or the order of steps makes the recordings stale. To record anew:
//!
//! ```sh
//! cargo build && cargo test -p tcptoll-engine --lib record_conversations -- --ignored
//! INSTA_UPDATE=always cargo test -p tcptoll-engine --lib replay
//! ```

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tcptoll_lab::lab::HostSource;
use tcptoll_lab::lab::conversation::{Recording, Replay, Script};
use tcptoll_model::study::{PlannedArm, Settings};

use super::*;

/// Seed of the trials.
const SEED: u64 = 7;

/// A recorded conversation may be this long, bytes.
const CONVERSATION_MAX: usize = 60_000;

/// A trial that is recorded.
struct Case {
    /// Of the file too.
    name: &'static str,
    experiment: &'static str,
    settings: &'static [(&'static str, &'static str)],
}

const CONNECT: Case = Case {
    name: "connect",
    experiment: "connect",
    settings: &[
        ("link", "rtt=2ms"),
        ("count", "12"),
        ("concurrency", "2"),
        ("warmup", "2"),
        ("first-byte", "on"),
    ],
};

const HTTP: Case = Case {
    name: "http",
    experiment: "http",
    settings: &[
        ("link", "rtt=2ms"),
        ("server", "null"),
        ("reuse", "server-close"),
        ("connections", "2"),
        ("requests", "30"),
        ("warmup", "4"),
    ],
};

const KEEPALIVE: Case = Case {
    name: "keepalive",
    experiment: "keepalive",
    settings: &[
        ("link", "rtt=2ms"),
        ("sockets", "5"),
        ("mechanism", "heartbeat"),
        ("idle", "100ms"),
        ("answer-within", "100ms"),
        ("warmup", "300ms"),
        ("duration", "1s"),
        ("rate", "20"),
        ("fault", "cut"),
        ("fault-share", "50%"),
    ],
};

const AT_TARGET: Case = Case {
    name: "at-target",
    experiment: "http",
    settings: &[
        ("url", "http://127.0.0.1:18765/"),
        ("connections", "2"),
        ("requests", "20"),
        ("warmup", "0"),
    ],
};

const CASES: [&Case; 4] = [&CONNECT, &HTTP, &KEEPALIVE, &AT_TARGET];

impl Case {
    fn settings(&self) -> Settings {
        let typed = self.settings.iter();
        typed.map(|(name, value)| ((*name).to_owned(), Value::from(*value))).collect()
    }

    fn file(&self) -> PathBuf {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/experiments/replay");
        folder.join(self.name).with_extension("jsonl")
    }

    /// The recorded conversation.
    fn script(&self) -> Script {
        Script::parse(&std::fs::read_to_string(self.file()).unwrap()).unwrap()
    }
}

/// Runs a trial with these settings as a run does.
fn trial(
    experiment: &str,
    settings: Settings,
    hosts: &dyn HostSource,
) -> Result<Outcome, TrialError> {
    let mut plan = find(experiment).unwrap().plan(&settings)?;
    plan.prepare(&mut Shared::default())?;
    let arm = PlannedArm {
        name: "recorded".to_owned(),
        factors: Settings::new(),
        settings,
        failures_allowed: 0.0,
    };
    plan.trial(
        &arm,
        &mut Context {
            interrupt: &Interrupt::new(),
            progress: &mut |_, _| {},
            seed: SEED,
            round_seed: SEED,
            witness: false,
            tolerance: Tolerance::default(),
            pcap: None,
            certificates: &mut BTreeMap::new(),
            hosts,
            start: None,
        },
    )
}

/// What a run keeps of an outcome.
fn kept(outcome: &Outcome) -> Value {
    json!({
        "arm": outcome.arm,
        "warnings": outcome.warnings,
        "invalid": outcome.invalid,
        "lasting": outcome.lasting,
    })
}

/// What comes of a trial with recorded hosts.
///
/// Errors: the trial is not as recorded.
fn replayed(case: &Case, settings: Settings, script: Script) -> Result<Value, String> {
    let replay = Replay::new(script);
    let outcome = trial(case.experiment, settings, &replay);
    replay.end()?;
    Ok(kept(&outcome.unwrap()))
}

/// What comes of the recorded conversation.
fn outcome_of(case: &Case) -> Value {
    replayed(case, case.settings(), case.script()).unwrap()
}

/// Why the trial is not as recorded with one other setting.
fn departure(case: &Case, (name, value): (&str, &str)) -> String {
    let mut settings = case.settings();
    settings.insert(name.to_owned(), value.into());
    replayed(case, settings, case.script()).unwrap_err()
}

#[test]
fn a_recorded_trial_of_connect_gives_its_outcome_again() {
    insta::assert_json_snapshot!("connect", outcome_of(&CONNECT));
}

#[test]
fn a_recorded_trial_of_http_gives_its_outcome_again() {
    insta::assert_json_snapshot!("http", outcome_of(&HTTP));
}

#[test]
fn a_recorded_trial_of_keepalive_gives_its_outcome_again() {
    insta::assert_json_snapshot!("keepalive", outcome_of(&KEEPALIVE));
}

#[test]
fn a_recorded_trial_at_a_target_gives_its_outcome_again() {
    insta::assert_json_snapshot!("at-target", outcome_of(&AT_TARGET));
}

#[test]
fn an_order_that_changed_is_named_with_the_field_and_both_values() {
    let difference = |case, setting| {
        let text = departure(case, setting);
        text.split_once("the trial wants to ").unwrap().1.to_owned()
    };
    assert_eq!(
        difference(&CONNECT, ("count", "13")),
        "open-connections to the client: count is 13; recorded: 12"
    );
    assert_eq!(
        difference(&HTTP, ("connections", "3")),
        "serve to the server: connections is 3; recorded: 2"
    );
    assert_eq!(
        difference(&KEEPALIVE, ("sockets", "6")),
        "make to the server: Listen.sockets is 5; recorded: 4"
    );
    assert_eq!(
        difference(&CONNECT, ("link", "rtt=3ms")),
        "make a lab: link is \"rtt=3ms\"; recorded: \"rtt=2ms\""
    );
}

#[test]
fn an_order_too_many_and_one_too_few_are_named() {
    let more = departure(&CONNECT, ("client-sysctl", "net.ipv4.tcp_syn_retries=3"));
    assert!(more.contains("the trial wants to set-sysctls to the client; recorded: "), "{more}");
    let fewer = departure(&CONNECT, ("warmup", "0"));
    let ping = "the trial wants to ping to the client; recorded: greet to the server";
    assert!(fewer.contains(ping), "{fewer}");
}

#[test]
fn a_recording_that_is_too_short_or_too_long_is_not_replayed() {
    let refusal = |text: &str| {
        replayed(&CONNECT, CONNECT.settings(), Script::parse(text).unwrap()).unwrap_err()
    };
    let text = CONNECT.script().to_string();
    let (whole, last) = text.trim_end().rsplit_once('\n').unwrap();
    let short = refusal(whole);
    assert!(short.contains("wait for the server; the recording is over"), "{short}");
    let long = refusal(&format!("{text}{last}\n"));
    assert!(long.ends_with("of the recording follows: answer from the server"), "{long}");
}

#[test]
fn an_answer_that_is_changed_changes_the_judgement() {
    let text = CONNECT.script().to_string();
    let dropped = text.replace("\"unwanted_drops\":0", "\"unwanted_drops\":3");
    assert_ne!(dropped, text);
    let script = Script::parse(&dropped).unwrap();
    let outcome = replayed(&CONNECT, CONNECT.settings(), script).unwrap();
    assert_eq!(outcome["invalid"], "the lab itself dropped packets unintentionally");
    assert_eq!(outcome["arm"]["link"]["unwanted_drops"], 3);
}

#[test]
#[ignore = "makes labs, and writes the conversations anew; needs target/debug/tcptoll"]
fn record_conversations() {
    let tests = std::env::current_exe().unwrap();
    let program = tests.ancestors().nth(2).unwrap().join("tcptoll");
    assert!(program.exists(), "{} is missing: cargo build", program.display());
    let target = TcpListener::bind("127.0.0.1:18765").unwrap();
    std::thread::spawn(move || target.incoming().for_each(|stream| respond(stream.unwrap())));
    for case in CASES {
        let recording = Recording::running(program.clone());
        let outcome = trial(case.experiment, case.settings(), &recording).unwrap();
        assert_eq!(outcome.invalid, None, "{}: record it on a quiet machine", case.name);
        let text = recording.script().to_string();
        let again = replayed(case, case.settings(), Script::parse(&text).unwrap()).unwrap();
        pretty_equal(case.name, &kept(&outcome), &again);
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

/// Panics where a replay gives another outcome than the trial that was recorded.
fn pretty_equal(name: &str, recorded: &Value, replayed: &Value) {
    let lines = |value| serde_json::to_string_pretty(value).unwrap();
    let (recorded, replayed) = (lines(recorded), lines(replayed));
    for (a, b) in recorded.lines().zip(replayed.lines()) {
        assert_eq!(a, b, "{name}");
    }
    assert_eq!(recorded.len(), replayed.len(), "{name}");
}
