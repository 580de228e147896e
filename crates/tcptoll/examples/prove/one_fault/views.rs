//! The commands, and what each says of a machine: causes, and the first remedy of each.

use std::collections::BTreeMap;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::Fault;
use crate::links::tcptoll;
use crate::machines::Machine;
use crate::table::Folder;

/// A fault of a machine takes this long to show, at most.
pub(super) const SETTLES: Duration = Duration::from_secs(3);

/// Causes, with what is to be changed first; empty where nothing is named.
pub(super) type Said = BTreeMap<String, String>;

/// A command that concludes with causes and remedies.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    Connect,
    Http,
    Watch,
    Report,
    Doctor,
    Explain,
}

impl View {
    /// In the order of the table; `report` reads what `watch` recorded.
    pub(super) const ALL: [Self; 6] =
        [Self::Connect, Self::Http, Self::Watch, Self::Report, Self::Doctor, Self::Explain];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Watch => "watch",
            Self::Report => "report",
            Self::Doctor => "doctor",
            Self::Connect => "connect",
            Self::Http => "http",
            Self::Explain => "explain",
        }
    }
}

/// Where records are kept, and clients have their program.
pub(super) struct Bench {
    folder: Folder,
    count: String,
}

impl Bench {
    pub(super) fn new() -> anyhow::Result<Self> {
        let folder = Folder::new("one-fault")?;
        let text = include_str!("../../../tests/lab/machines/count.py");
        let count = folder.file("count.py", text)?;
        Ok(Self { folder, count })
    }

    /// A program in the user and network namespaces of a machine.
    fn inside(&self, machine: &Machine, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &machine.pid.to_string(), "--user", "--preserve-credentials"]);
        command.args(["--net", "--", program]).env("XDG_DATA_HOME", &self.folder.0);
        command.stdin(Stdio::null());
        command
    }

    /// What clients of a machine counted.
    pub(super) fn count(&self, machine: &Machine, words: &[String]) -> anyhow::Result<Value> {
        let output = self.inside(machine, "python3").arg(&self.count).args(words).output()?;
        json(&output).with_context(|| format!("count.py {}", words.join(" ")))
    }

    /// What a command says of a machine.
    pub(super) fn ask(&self, machine: &Machine, view: View, fault: &Fault) -> anyhow::Result<Said> {
        let program = tcptoll()?.display().to_string();
        let record = self.folder.path("watch.jsonl");
        let url = format!("http://{}/", fault.at);
        let run = |words: &[&str]| {
            let output = self.inside(machine, &program).args(words).output()?;
            causes(&json(&output)?)
        };
        // So little that it is no fault of its own.
        let load = ["--rate", "5", "--format", "json"];
        match view {
            View::Connect => run(&[&["connect", fault.at, "--count", "40"], &load[..]].concat()),
            View::Http => {
                let what = ["http", &url, "--requests", "40", "--reuse", "client-close"];
                run(&[&what[..], &load].concat())
            }
            View::Watch => {
                let _ = std::fs::remove_file(&record);
                let words = ["watch", "--no-screen", "--duration", "12s", "--record", &record];
                let output = self.inside(machine, &program).args(words).output()?;
                ensure!(output.status.success(), "{}", said(&output.stderr));
                Ok(lines(&said(&output.stderr)))
            }
            View::Report => {
                let words = ["report", &record, "--format", "json"];
                let output = Command::new(&program).args(words).stdin(Stdio::null()).output()?;
                episodes(&json(&output)?)
            }
            View::Doctor => {
                let examined = machine.examine(Command::new(&program), &[])?;
                let findings = examined.examination.findings.into_iter();
                let change = |one: &tcptoll_core::finding::Finding| {
                    one.fix().map(|fix| fix.change.clone()).unwrap_or_default()
                };
                let id = |one: &tcptoll_core::finding::Finding| {
                    named(one.id.clone(), one.subject == UNNAMED)
                };
                Ok(findings.map(|one| (id(&one), change(&one))).collect())
            }
            View::Explain => {
                let words = ["explain", "--long", fault.cause];
                let output = Command::new(&program).args(words).stdin(Stdio::null()).output()?;
                ensure!(output.status.success(), "{}", said(&output.stderr));
                let text = said(&output.stdout).replace('`', "");
                let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
                // From the words of the remedy on, if it has them; else from where it says what to change.
                let words = super::words_of(fault.cause, fault.remedy).unwrap_or_default();
                let remedy = |words: &str| text.find(words).filter(|_| !words.is_empty());
                let from = remedy(&words).or_else(|| text.find("What to change")).unwrap_or(0);
                Ok([(fault.cause.to_owned(), text[from..].to_owned())].into())
            }
        }
    }
}

fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(output: &Output) -> anyhow::Result<Value> {
    serde_json::from_slice(&output.stdout).with_context(|| said(&output.stderr).trim().to_owned())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A finding of a queue that is nobody's by name: a second one next to that of the listener.
const UNNAMED: &str = "a listener of this host";

/// The name of a cause, with its subject where that is not known.
fn named(id: String, is_unnamed: bool) -> String {
    if is_unnamed { format!("{id} of {UNNAMED}") } else { id }
}

/// Causes of a run, each with its first advice.
fn causes(run: &Value) -> anyhow::Result<Said> {
    let list = |name: &str| run[name].as_array().with_context(|| format!("a run without {name}"));
    let (causes, advice) = (list("causes")?, list("advice")?);
    let first = |id: &str| advice.iter().find(|one| one["cause"] == id);
    let with = |cause: &Value| {
        let id = text(&cause["id"]);
        let change = first(&id).map(|one| text(&one["change"])).unwrap_or_default();
        (id, change)
    };
    Ok(causes.iter().map(with).collect())
}

/// Episodes of a record of `watch`, each with its fix.
fn episodes(report: &Value) -> anyhow::Result<Said> {
    let all = report["episodes"].as_array().context("a report without episodes")?;
    let of = |one: &Value| {
        let id = named(text(&one["id"]), one["subject"] == UNNAMED);
        (id, text(&one["fix"]["change"]))
    };
    Ok(all.iter().map(of).collect())
}

/// Lines of `watch`: `TIME CAUSE: TEXT; fix: COMMANDS · CHANGE`. The last one of a cause counts, as the first looks at
/// a queue do not tell yet.
fn lines(printed: &str) -> Said {
    let of = |line: &str| {
        let (_, line) = line.split_once(' ')?;
        let (id, rest) = line.split_once(": ")?;
        let is_name = id.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        let change = rest.split_once("; fix: ").and_then(|(_, fix)| fix.split_once(" · "));
        let id = named(id.to_owned(), rest.contains("does not report at which listener"));
        is_name.then(|| (id, change.map_or("", |(_, change)| change).to_owned()))
    };
    printed.lines().filter_map(of).collect()
}
