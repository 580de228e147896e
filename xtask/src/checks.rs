//! What `cargo xtask test` does, in order: cheap steps first, the lab last.
//!
//! CI runs this and nothing else. Each step is an ordinary command that can be typed by itself;
//! the list below is the only place that knows them all.
//!
//! Lab tests run four at a time, on a link that is not measured, next to tests that compute. 319 of them took
//! 11:31 two at a time and 7:10 four at a time; with links that are not measured 5:38, and 318 s of CPU time
//! on two CPUs. What runs next to them has idle priority, so no lab test waits for it. Tests that need a free
//! CPU are in modules `alone`. Each crate is compiled once, by clippy: 24 % more time than by the compiler
//! alone, where reading everything a second time took 3:43.

use std::process::Stdio;

use anyhow::{Context as _, bail, ensure};
use cargo_metadata::{Artifact, Message};

use crate::process::{Line, Outcome, Steps};
use crate::{layers, net, python, reference, setup, site};

/// Integration tests of this name need the lab, and the machine to themselves.
const LAB: &str = "lab";
/// Folders whose tests compute and wait for nothing: they take what others leave of the CPUs.
const COMPUTE: [&str; 2] = ["crates/core", "crates/show"];
/// The step `layers` checks licences, bans and sources as packages declare them, everywhere.
const DENY: &str = "texts of licences, and sources";
/// `setup` does not do it: Debian has no package of it, and it compiles for more than a minute, of
/// the few that CI has.
const DENY_REMEDY: &str = "cargo install --locked cargo-deny";

/// `cargo xtask test [--no-setup|net]`.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<Outcome> {
    let with_setup = match arguments {
        [] => true,
        [only] if only == "--no-setup" => false,
        [only] if only == "net" => return net::run(),
        _ => bail!("test accepts only --no-setup or net"),
    };
    let mut steps = Steps::new();
    let outcome = run_steps(&mut steps, with_setup);
    if outcome == Outcome::Passed {
        eprintln!("\n{}", steps.summary());
    }
    Ok(outcome)
}

fn run_steps(steps: &mut Steps, with_setup: bool) -> Outcome {
    let mut all = || -> Result<(), Outcome> {
        if with_setup {
            passed(steps.step("setup", "cargo xtask setup", || setup::run(&[])))?;
        }
        passed(steps.line("format", &Line::cargo("fmt").args(["--all", "--check"])))?;
        passed(steps.step("layers", "cargo xtask layers", || layers::run(&[])))?;
        let mut programs = Vec::new();
        passed(steps.step("compiled, with lints", &build().to_string(), || {
            programs = programs_of(&build())?;
            Ok(Outcome::Passed)
        }))?;
        let in_group = |group| programs.iter().filter(move |one| one.group() == group);
        passed(steps.step("generated files", "cargo xtask docs --check", reference::check))?;
        passed(steps.step("site", "cargo xtask docs --site", site::build))?;
        if Line::cargo("deny").arg("--version").succeeds() {
            passed(steps.line(DENY, &deny()))?;
        } else {
            steps
                .skip(DENY, format!("cargo-deny is not installed; {DENY_REMEDY}, then {}", deny()));
        }
        passed(steps.line("tests in the docs", &linted("test").arg("--doc")))?;
        let docs = Steps::beside("rustdoc", vec![rustdoc()]);
        for program in in_group(Group::Other) {
            passed(steps.line(&format!("tests of {}", program.name), &program.line()))?;
        }
        passed(steps.step("Python package", "cargo xtask python", || python::run(&[])))?;
        passed(steps.joined(docs))?;
        for program in in_group(Group::Lab) {
            let alone = program.line().args(["--test-threads=1", "alone::"]);
            passed(steps.line("lab tests, alone", &alone.env("LAB", "required")))?;
        }
        // Most of their time the lab tests wait, for timers of the kernel and for emulated links: 319 of
        // them took 11:31 two at a time and 5:38 four at a time, with half of two CPUs.
        let others = in_group(Group::Computes).map(Program::line).collect();
        let others = Steps::beside("tests of the model and the reports", others);
        let mut tests = Outcome::Passed;
        for program in in_group(Group::Lab) {
            let concurrent = program.line().args(["--test-threads=4", "--skip", "alone::"]);
            let outcome = steps.line("lab tests, concurrent", &concurrent.env("LAB", "required"));
            if outcome != Outcome::Passed {
                tests = outcome;
            }
        }
        passed(steps.joined(others))?;
        passed(tests)?;
        Ok(())
    };
    all().err().unwrap_or(Outcome::Passed)
}

fn passed(outcome: Outcome) -> Result<(), Outcome> {
    if outcome == Outcome::Passed { Ok(()) } else { Err(outcome) }
}

/// Everything, each crate once: what compiles it is clippy, as cargo starts it, and a warning is an error.
fn build() -> Line {
    linted("build").args(["--all-targets", "--message-format=json-render-diagnostics"])
}

/// As `cargo clippy -- -D warnings` sets them.
const LINTS: [(&str, &str); 2] = [
    ("RUSTC_WORKSPACE_WRAPPER", "clippy-driver"),
    ("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__"),
];

/// A cargo command that takes what [`build`] has compiled.
fn linted(subcommand: &str) -> Line {
    let line = Line::cargo(subcommand).args(["--workspace", "--all-features"]).locked();
    LINTS.iter().fold(line, |line, (name, value)| line.env(name, value))
}

/// Binaries are named, as one has its library's name.
fn rustdoc() -> Line {
    Line::cargo("doc")
        .args(["--workspace", "--no-deps", "--all-features"])
        .args(["--lib", "--bin", "xtask", "--examples"])
        .locked()
        .env("RUSTDOCFLAGS", "-D warnings")
}

/// Advisories are left out: they are fetched, and a test must not depend on today's news.
fn deny() -> Line {
    Line::cargo("deny").args(["check", "licenses", "bans", "sources"])
}

/// A test program, and the folder where it is started.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Program {
    folder: String,
    name: String,
    path: String,
}

/// When a test program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    /// It needs the lab. Those of its tests that stand in a `mod alone` need a free CPU too.
    Lab,
    /// Beside those of the lab.
    Computes,
    Other,
}

impl Program {
    /// `None`: this is no test program.
    fn from_artifact(built: Artifact) -> Option<Self> {
        let path = built.executable.filter(|_| built.profile.test)?.to_string();
        let folder = built.manifest_path.parent()?.to_string();
        Some(Self { folder, name: built.target.name, path })
    }

    fn group(&self) -> Group {
        if self.name == LAB {
            Group::Lab
        } else if COMPUTE.iter().any(|folder| self.folder.ends_with(folder)) {
            Group::Computes
        } else {
            Group::Other
        }
    }

    /// Without cargo, which would wait for what cargo does beside it.
    fn line(&self) -> Line {
        Line::new("env").args(["-C", &self.folder, &self.path])
    }
}

/// Builds, and gives the test programs in the order of their names.
///
/// Errors: something does not compile, or has a warning; there is none.
fn programs_of(build: &Line) -> anyhow::Result<Vec<Program>> {
    let output = build.command().stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("running {build}"))?;
    ensure!(output.status.success(), "{build}: {}", output.status);
    let mut programs = Vec::new();
    for message in Message::parse_stream(output.stdout.as_slice()) {
        if let Message::CompilerArtifact(built) = message? {
            programs.extend(Program::from_artifact(built));
        }
    }
    ensure!(programs.iter().any(|one| one.group() == Group::Lab), "no test is named {LAB}");
    programs.sort();
    Ok(programs)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn built(folder: &str, name: &str, kind: &str, test: bool) -> Artifact {
        serde_json::from_value(json!({
            "package_id": name, "manifest_path": format!("/w/{folder}/Cargo.toml"), "features": [],
            "target": {"kind": [kind], "crate_types": ["bin"], "name": name, "src_path": "x.rs"},
            "profile": {"opt_level": "0", "debuginfo": 0, "debug_assertions": true,
                "overflow_checks": true, "test": test},
            "filenames": [], "executable": format!("/w/target/{name}-1"), "fresh": false,
        }))
        .unwrap()
    }

    #[test]
    fn tests_of_the_lab_run_apart_and_those_that_compute_beside_them() {
        let group = |folder, name| {
            Program::from_artifact(built(folder, name, "test", true)).unwrap().group()
        };
        assert_eq!(group("crates/tcptoll", "lab"), Group::Lab);
        assert_eq!(group("crates/core", "honesty"), Group::Computes);
        assert_eq!(group("crates/tcptoll", "cli"), Group::Other);
        assert_eq!(Program::from_artifact(built("crates/tcptoll", "tcptoll", "bin", false)), None);
    }

    /// What tells clippy that warnings are errors is between it and cargo: it might change.
    #[test]
    fn a_warning_of_clippy_ends_the_build() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(file("main.rs"), "fn main() { assert!(\"\".len() == 0); }").unwrap();
        let [wrapper, arguments] = LINTS;
        let driver = Line::new(wrapper.1).args(["rustc", &file("main.rs"), "--edition=2024"]);
        let driver = driver.args(["--crate-name=main", "-o", &file("main")]);
        assert!(driver.clone().succeeds());
        assert!(!driver.env(arguments.0, arguments.1).succeeds());
    }
}
