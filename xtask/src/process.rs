//! Child processes and steps: how a command is run, shown, timed, and repeated by hand.
//!
//! It decides nothing about what is run; `checks.rs` does.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;

/// How a task ended, as seen by a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Done, and everything held.
    Passed,
    /// Done, and something did not hold; it has been said what.
    Failed,
    /// It could not be done here; it has been said what to do.
    NotPossible,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        Self::from(match outcome {
            Outcome::Passed => 0,
            Outcome::Failed => 1,
            Outcome::NotPossible => 2,
        })
    }
}

/// A command line that can be run here, and shown so that it can be typed.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    program: OsString,
    shown: String,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
}

impl Line {
    /// A program looked up in `PATH`.
    pub(crate) fn new(program: &str) -> Self {
        Self {
            program: program.into(),
            shown: program.to_owned(),
            arguments: Vec::new(),
            environment: Vec::new(),
        }
    }

    /// A sub-command of the cargo that runs us.
    pub(crate) fn cargo(subcommand: &str) -> Self {
        let mut line = Self::new("cargo").arg(subcommand);
        if let Some(cargo) = std::env::var_os("CARGO") {
            line.program = cargo;
        }
        line
    }

    /// Adds `--locked` where there is a lock file to hold to.
    pub(crate) fn locked(self) -> Self {
        if PathBuf::from("Cargo.lock").exists() { self.arg("--locked") } else { self }
    }

    /// Adds one argument.
    pub(crate) fn arg(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds arguments.
    pub(crate) fn args<S: Into<String>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same line, run only while a CPU would be idle.
    fn idle(self) -> anyhow::Result<Self> {
        let program = self.program.to_str().context("the path of a program is not UTF-8")?;
        let mut line = Self::new("chrt").args(["--idle", "0", program]).args(self.arguments);
        line.environment = self.environment;
        Ok(line)
    }

    /// The command, with no standard input: nothing here may wait for an answer.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdin(Stdio::null());
        for (name, value) in &self.environment {
            command.env(name, value);
        }
        command
    }

    /// Runs it with its output passed through.
    pub(crate) fn run(&self) -> anyhow::Result<Outcome> {
        let status = self.command().status().with_context(|| format!("running {self}"))?;
        Ok(if status.success() { Outcome::Passed } else { Outcome::Failed })
    }

    /// Whether it runs and says yes; its output is thrown away.
    pub(crate) fn succeeds(&self) -> bool {
        self.command()
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    }
}

/// As a person would type it in a shell.
impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.environment {
            write!(f, "{name}={} ", quoted(value))?;
        }
        f.write_str(&self.shown)?;
        self.arguments.iter().try_for_each(|argument| write!(f, " {}", quoted(argument)))
    }
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Whether a program of this name is in `PATH`, or in the folders where Debian keeps daemons.
pub(crate) fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .any(|folder| folder.join(program).is_file())
}

/// A step that runs while others do.
pub(crate) struct Beside {
    name: String,
    repeat: String,
    thread: std::thread::JoinHandle<anyhow::Result<()>>,
}

/// Steps one after the other, each with a heading, its time, and how to repeat it alone.
pub(crate) struct Steps {
    begun: Instant,
    done: Vec<(String, Duration)>,
    /// Steps that did not run, with the reason and the remedy.
    skipped: Vec<(String, String)>,
}

impl Steps {
    /// Starts the clock.
    pub(crate) fn new() -> Self {
        Self { begun: Instant::now(), done: Vec::new(), skipped: Vec::new() }
    }

    /// Runs one step. Anything but [`Outcome::Passed`] is said, with the command that repeats it.
    pub(crate) fn step(
        &mut self,
        name: &str,
        repeat: &str,
        work: impl FnOnce() -> anyhow::Result<Outcome>,
    ) -> Outcome {
        eprintln!("\n==> {name}   ({} since the start)", clock(self.begun.elapsed()));
        let begun = Instant::now();
        let outcome = work().unwrap_or_else(|error| {
            eprintln!("error: {error:#}");
            Outcome::NotPossible
        });
        let took = begun.elapsed();
        if outcome == Outcome::Passed {
            eprintln!("    {name}: passed in {}", clock(took));
            self.done.push((name.to_owned(), took));
        } else {
            eprintln!("\nFAILED: {name}, after {}", clock(took));
            eprintln!("  to repeat this step alone:  {repeat}");
        }
        outcome
    }

    /// The same for a step that is one command line.
    pub(crate) fn line(&mut self, name: &str, line: &Line) -> Outcome {
        self.step(name, &line.to_string(), || line.run())
    }

    /// Begins a step of these lines, one after another, that runs on what other steps leave of the CPUs;
    /// [`Self::joined`] ends it.
    pub(crate) fn beside(name: &str, lines: Vec<Line>) -> Beside {
        let shown: Vec<String> = lines.iter().map(ToString::to_string).collect();
        let run = move || {
            lines.into_iter().try_for_each(|line| {
                let shown = line.to_string();
                let output = line.idle()?.command().output();
                let output = output.with_context(|| format!("running {shown}"))?;
                let [said, why] =
                    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
                anyhow::ensure!(output.status.success(), "{said}{why}\n{shown}: {}", output.status);
                Ok(())
            })
        };
        let thread = std::thread::spawn(run);
        Beside { name: name.to_owned(), repeat: shown.join(" && "), thread }
    }

    /// Waits for a step that ran beside others.
    pub(crate) fn joined(&mut self, beside: Beside) -> Outcome {
        let Beside { name, repeat, thread } = beside;
        self.step(&format!("{name}, to its end"), &repeat, || match thread.join() {
            Ok(Ok(())) => Ok(Outcome::Passed),
            Ok(Err(error)) => {
                eprintln!("{error:#}");
                Ok(Outcome::Failed)
            }
            Err(_) => anyhow::bail!("the thread of {name} panicked"),
        })
    }

    /// Notes that a step cannot run here; [`Self::summary`] repeats it.
    pub(crate) fn skip(&mut self, name: &str, why: String) {
        eprintln!("\n==> {name}: NOT RUN: {why}");
        self.skipped.push((name.to_owned(), why));
    }

    /// One line a step, the whole, and last what did not run.
    pub(crate) fn summary(&self) -> String {
        let mut lines: Vec<String> =
            self.done.iter().map(|(name, took)| format!("{:>8}  {name}", clock(*took))).collect();
        let whole = if self.skipped.is_empty() { "everything" } else { "everything that ran" };
        lines.push(format!("{:>8}  in all, {whole} passed", clock(self.begun.elapsed())));
        lines.extend(self.skipped.iter().map(|(name, why)| format!(" NOT RUN  {name}: {why}")));
        lines.join("\n")
    }
}

/// `7.4 s` below a minute, `3:07` above.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 60 {
        format!("{:.1} s", time.as_secs_f64())
    } else {
        format!("{}:{:02}", seconds / 60, seconds % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_shown_as_a_shell_wants_it() {
        let line =
            Line::new("cargo").arg("doc").arg("it's").env("RUSTDOCFLAGS", "-D warnings").arg("");
        assert_eq!(line.to_string(), r"RUSTDOCFLAGS='-D warnings' cargo doc 'it'\''s' ''");
    }

    #[test]
    fn a_minute_changes_how_time_is_written() {
        assert_eq!(clock(Duration::from_millis(59_940)), "59.9 s");
        assert_eq!(clock(Duration::from_secs(187)), "3:07");
    }

    #[test]
    fn a_step_that_cannot_begin_is_not_passed() {
        let mut steps = Steps::new();
        let outcome = steps.step("none", "true", || anyhow::bail!("no such thing"));
        assert_eq!(outcome, Outcome::NotPossible);
        assert!(steps.done.is_empty());
    }

    #[test]
    fn a_step_that_did_not_run_ends_the_summary_with_its_remedy() {
        let mut steps = Steps::new();
        assert!(steps.summary().ends_with("in all, everything passed"));
        steps.skip("sources", "install it".to_owned());
        assert!(
            steps.summary().ends_with("everything that ran passed\n NOT RUN  sources: install it")
        );
    }
}
