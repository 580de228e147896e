//! `--prove`: findings re-created in the lab, without and with their fix.
//!
//! An examination of another network namespace joins it, and cannot leave it again: a user namespace of
//! another user gives no way back, and no way to make a lab. So the lab belongs to a child process that was
//! started before ([`Prover`]). It reads the findings, runs one study after the other ([`lab`]), and writes
//! each proof as one line of JSON. The end of its input stops it.

mod lab;
mod templates;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use tcptoll_live::diagnosis::Diagnosis;
use tcptoll_live::doctor::Proof;

pub(crate) use lab::{COMMAND, serve};
pub(super) use templates::{PROVABLE, why_not};

/// What `--prove` without a name means.
pub(super) const ALL: &str = "all";
/// Longest list of findings, and longest proof, that one process takes from the other.
const MESSAGE_MAX: u64 = 4 << 20;
/// How often a signal is looked for.
const LOOK: Duration = Duration::from_millis(100);

/// What is to be proven.
#[derive(Serialize, Deserialize)]
struct Request {
    findings: Vec<Diagnosis>,
    /// The network namespace in which they were found, if another one was asked for.
    netns: Option<String>,
    quiet: bool,
}

/// The process that has the lab.
pub(super) struct Prover {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
}

impl Prover {
    /// Must be called before the examination.
    ///
    /// Errors: this program cannot be started again.
    pub(super) fn start() -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("--prove: this program's own file")?;
        let mut child = Command::new(program)
            .arg(COMMAND)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("--prove: this program cannot be started again")?;
        let both = child.stdin.take().zip(child.stdout.take());
        let (stdin, stdout) = both.context("--prove: a child without pipes")?;
        Ok(Self { child, stdin: Some(stdin), stdout })
    }

    /// Re-creates those of these findings that are called `which`, or each that there is; hands each proof
    /// to `shown` as soon as it is there. Of findings with one name the first is taken.
    ///
    /// When `stopped` says so it ends with the proofs so far.
    pub(super) fn prove(
        mut self,
        findings: &[Diagnosis],
        which: &str,
        netns: Option<&str>,
        quiet: bool,
        stopped: &dyn Fn() -> bool,
        shown: &mut dyn FnMut(&Proof) -> anyhow::Result<()>,
    ) -> anyhow::Result<Vec<Proof>> {
        let request =
            Request { findings: chosen(findings, which), netns: netns.map(str::to_owned), quiet };
        if let Some(stdin) = &mut self.stdin {
            let line = serde_json::to_string(&request)? + "\n";
            stdin.write_all(line.as_bytes()).context("--prove: the process of the lab ended")?;
        }
        let (send, receive) = mpsc::sync_channel(1);
        let stdout = self.stdout;
        std::thread::Builder::new().name("proofs".to_owned()).spawn(move || {
            let mut lines = BufReader::new(stdout);
            loop {
                let line = line(&mut lines);
                let ended = !matches!(line, Ok(Some(_)));
                if send.send(line).is_err() || ended {
                    return;
                }
            }
        })?;
        let mut proofs = Vec::new();
        loop {
            match receive.recv_timeout(LOOK) {
                Ok(Ok(Some(line))) => {
                    let proof: Proof = serde_json::from_str(&line)
                        .context("--prove: the process of the lab wrote an invalid proof")?;
                    shown(&proof)?;
                    proofs.push(proof);
                }
                Ok(Ok(None)) | Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Ok(Err(error)) => return Err(error).context("--prove: the process of the lab"),
                // Without its input it stops with what it has.
                Err(mpsc::RecvTimeoutError::Timeout) if stopped() => drop(self.stdin.take()),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
        }
        drop(self.stdin.take());
        let status = self.child.wait().context("--prove: the process of the lab")?;
        if !status.success() && !stopped() {
            bail!("--prove: the process of the lab ended with {status}");
        }
        Ok(proofs)
    }

    /// Nothing is to be proven after all.
    pub(super) fn dismiss(mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

/// A line of at most [`MESSAGE_MAX`]; none: the other side ended.
fn line(from: &mut impl BufRead) -> anyhow::Result<Option<String>> {
    let mut text = String::new();
    let read = from.by_ref().take(MESSAGE_MAX).read_line(&mut text)?;
    match (read, text.ends_with('\n')) {
        (0, _) => Ok(None),
        (_, true) => Ok(Some(text)),
        _ => bail!("a line that does not end"),
    }
}

/// Of each name the first: it is the most pressing one.
fn chosen(findings: &[Diagnosis], which: &str) -> Vec<Diagnosis> {
    let mut chosen: Vec<Diagnosis> = Vec::new();
    for one in findings {
        let wanted = which == ALL || one.id == which;
        if wanted && !chosen.iter().any(|known| known.id == one.id) {
            chosen.push(one.clone());
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use tcptoll_live::diagnosis::Severity;

    use super::*;

    fn finding(id: &str, subject: &str) -> Diagnosis {
        Diagnosis {
            id: id.into(),
            severity: Severity::Problem,
            subject: subject.into(),
            text: String::new(),
            evidence: std::collections::BTreeMap::new(),
            fix: None,
        }
    }

    #[test]
    fn of_findings_with_one_name_the_first_is_proven() {
        let all = [finding("a", "1"), finding("b", "2"), finding("a", "3")];
        let names = |which: &str| -> Vec<String> {
            chosen(&all, which).into_iter().map(|one| one.subject).collect()
        };
        assert_eq!(names(ALL), ["1", "2"]);
        assert_eq!(names("b"), ["2"]);
        assert_eq!(names("c"), [""; 0]);
    }

    #[test]
    fn a_line_that_does_not_end_is_refused() {
        assert_eq!(line(&mut "".as_bytes()).unwrap(), None);
        assert_eq!(line(&mut "{}\nrest".as_bytes()).unwrap().as_deref(), Some("{}\n"));
        assert!(line(&mut "{}".as_bytes()).is_err());
        let long = vec![b'x'; MESSAGE_MAX as usize + 1];
        assert!(line(&mut long.as_slice()).is_err());
    }
}
