//! What the lab tests share: the gate, the binary, and what is true of every run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;
use tcptoll_core::record::{Arm, Summary, Trial};
use tcptoll_measure::record::Record;
use tempfile::TempDir;

/// The link is not measured: these tests ask about what crosses it.
pub(crate) const TOLERANCE: &str = "off";
/// It is measured, and may be this far from what was asked: the machine need not be quiet.
pub(crate) const MEASURED: &str = "delay=50ms,rate=80%";

/// Whether a test may go on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// What it needs is there.
    Ready,
    /// It is not, and nobody asked that it must be.
    Skip,
}

/// Decides from the probe's answer and from `LAB=required`; a skipped test must never look like a
/// passed one.
fn gate(probe: Result<(), String>, required: bool) -> Gate {
    match probe {
        Ok(()) => Gate::Ready,
        Err(reason) if required => panic!("lab required but unavailable: {reason}"),
        Err(reason) => {
            eprintln!("SKIPPED (lab): {reason}");
            Gate::Skip
        }
    }
}

fn required() -> bool {
    std::env::var("LAB").is_ok_and(|value| value == "required")
}

/// Whether this machine makes no lab, so that the test is over.
pub(crate) fn no_lab() -> bool {
    static PROBE: OnceLock<Result<(), String>> = OnceLock::new();
    let probe = PROBE.get_or_init(|| {
        let output = tcptoll(&["lab", "--quiet", "--", "true"]).output().unwrap();
        if output.status.success() {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
        }
    });
    gate(probe.clone(), required()) == Gate::Skip
}

/// Whether there is no lab, or one of these programs is not installed.
pub(crate) fn lacks(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| {
        let found = Command::new("sh")
            .args(["-c", "command -v \"$0\"", program])
            .stdout(Stdio::null())
            .status();
        !found.is_ok_and(|status| status.success())
    });
    let probe = missing.map_or(Ok(()), |program| Err(format!("{program} is not installed")));
    gate(probe, required()) == Gate::Skip || no_lab()
}

/// Whether this command, which does nothing, is refused.
pub(crate) fn refuses(command: &[&str]) -> bool {
    let ran = run(Command::new(command[0]).args(&command[1..]));
    let allowed = ran.status == Some(0);
    let probe = if allowed { Ok(()) } else { Err(format!("{command:?}: {}", ran.stderr.trim())) };
    gate(probe, required()) == Gate::Skip
}

/// Whether the test cannot become another user.
pub(crate) fn not_root() -> bool {
    let probe = if tcptoll_kernel::process::uid() == 0 {
        Ok(())
    } else {
        Err("only root can become another user".to_owned())
    };
    // An ordinary user runs every other test as what this one would become.
    gate(probe, false) == Gate::Skip || no_lab()
}

/// The binary, with nothing of the tester's environment that changes what it prints.
pub(crate) fn tcptoll(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tcptoll"));
    command.args(args).stdin(Stdio::null());
    command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE").env_remove("COLUMNS");
    command
}

/// What came of a run.
pub(crate) struct Ran {
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Ran {
    let output = command.output().unwrap();
    Ran {
        status: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs a command where no server is installed: nothing in the folders of servers, and nothing in `PATH`.
pub(crate) fn on_a_bare_machine(command_line: &[&str]) -> Ran {
    let folder = Folder::new();
    let script = "mount --bind \"$0\" /usr/sbin && mount --bind \"$0\" /usr/local/sbin && \
         PATH=/nowhere exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).arg(folder.0.path()).args(command_line);
    run(&mut command)
}

/// A folder and a record in it.
pub(crate) struct Folder(pub(crate) TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(TempDir::with_prefix("tcptoll-test-").unwrap())
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.file(name).display().to_string()
    }
}

/// Runs `connect` and gives its summary, which must be right in all that every summary must be.
pub(crate) fn connect(args: &[&str]) -> Summary {
    let folder = Folder::new();
    let record = folder.path("record.jsonl");
    let mut all = vec!["connect", "--quiet", "--format", "json", "--out", &record];
    if !args.contains(&"--link-tolerance") {
        all.extend(["--link-tolerance", TOLERANCE]);
    }
    // What is lost by chance is lost alike in every run.
    if !args.contains(&"--seed") {
        all.extend(["--seed", "1"]);
    }
    all.extend(args);
    let ran = run(&mut tcptoll(&all));
    // An invalid run is measured too: 1. Where nothing succeeded nothing was: 2, unless failures are
    // the result that was asked for.
    assert!(matches!(ran.status, Some(0..=2)), "{args:?}: {:?}: {}", ran.status, ran.stderr);
    let summary = checked_summary(&ran.stdout);
    let asked_for = args.windows(2).any(|pair| pair == ["--allow-errors", "100%"]);
    let nothing = summary.arms.iter().all(|arm| arm.ok == 0) && !asked_for;
    assert_eq!(ran.status == Some(2), nothing, "{args:?}: {}", ran.stderr);
    let says = if nothing { "error: nothing was measured: " } else { "" };
    assert!(ran.stderr.starts_with(says) && (nothing || ran.stderr.is_empty()), "{}", ran.stderr);
    assert_eq!(last_line(Path::new(&record)).as_ref(), Some(&summary), "the record's last line");
    summary
}

/// The refusal of `connect`: status 2, nothing on stdout, no record left.
pub(crate) fn refused(args: &[&str]) -> String {
    let folder = Folder::new();
    let record = folder.file("record.jsonl");
    let name = record.display().to_string();
    let mut all = vec!["connect", "--quiet", "--format", "json", "--out", &name];
    all.extend(args);
    let ran = run(&mut tcptoll(&all));
    assert_eq!((ran.status, ran.stdout.as_str()), (Some(2), ""), "{args:?}: {}", ran.stderr);
    assert!(!record.exists(), "a record of nothing was left");
    assert!(ran.stderr.starts_with("error: "), "{}", ran.stderr);
    ran.stderr
}

/// Every trial of a record, also those that were repeated.
pub(crate) fn trials(record: &Path) -> Vec<Trial> {
    Record::read(record).unwrap().trials().cloned().collect()
}

/// One JSON object that the published schema allows, in which no attempt is unaccounted for.
pub(crate) fn checked_summary(stdout: &str) -> Summary {
    let value: Value = serde_json::from_str(stdout).expect("stdout is one JSON object");
    let problems: Vec<String> = schema()
        .iter_errors(&value)
        .map(|error| format!("{} at {}", error, error.instance_path()))
        .collect();
    assert!(problems.is_empty(), "not as the schema has it: {problems:#?}");
    let summary: Summary = serde_json::from_value(value).unwrap();
    for arm in &summary.arms {
        assert_eq!(arm.attempts, arm.ok + errors(arm), "{}: {:?}", arm.name, arm.errors);
    }
    summary
}

fn schema() -> &'static jsonschema::Validator {
    static SCHEMA: OnceLock<jsonschema::Validator> = OnceLock::new();
    SCHEMA.get_or_init(|| {
        let ran = run(&mut tcptoll(&["schema"]));
        jsonschema::validator_for(&serde_json::from_str(&ran.stdout).unwrap()).unwrap()
    })
}

/// The summary that closes a record, if one does.
pub(crate) fn last_line(record: &Path) -> Option<Summary> {
    tcptoll_measure::record::Record::read(record).unwrap().summary().cloned()
}

/// Failed operations of an arm.
pub(crate) fn errors(arm: &Arm) -> u64 {
    arm.errors.values().sum()
}

/// The only arm of a run.
pub(crate) fn only(summary: &Summary) -> &Arm {
    let [arm] = summary.arms.as_slice() else { panic!("one arm, not {}", summary.arms.len()) };
    arm
}

/// Whether this is the status of a run that succeeded: 0, or 1 if a busy machine made the run invalid.
pub(crate) fn measured(ran: &Ran) -> bool {
    matches!(ran.status, Some(0 | 1))
}

/// A kernel counter that changed, 0 if it did not.
pub(crate) fn counter(counters: &BTreeMap<String, i64>, name: &str) -> u64 {
    u64::try_from(counters.get(name).copied().unwrap_or(0)).expect("a counter grows")
}

/// Causes named for an arm.
pub(crate) fn causes<'a>(summary: &'a Summary, arm: &Arm) -> Vec<&'a str> {
    summary.causes.iter().filter(|c| c.arm == arm.name).map(|c| c.id.as_str()).collect()
}

/// A figure of an arm's histogram, ms.
pub(crate) fn min_ms(arm: &Arm, histogram: &str) -> f64 {
    arm.histograms[histogram].min.unwrap() / 1e3
}

#[test]
#[should_panic(expected = "lab required")]
fn where_the_lab_is_required_its_lack_is_a_failure() {
    let _ = gate(Err("EPERM".into()), true);
}

#[test]
fn where_it_is_not_required_its_lack_is_a_skip() {
    assert_eq!(gate(Err("EPERM".into()), false), Gate::Skip);
}
