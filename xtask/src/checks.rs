//! What `cargo xtask test` does, in order: cheap steps first, the lab last.
//!
//! CI runs this and nothing else. Each step is an ordinary command that can be typed by itself;
//! the list below is the only place that knows them all.

use std::process::Stdio;

use anyhow::{Context as _, bail, ensure};
use cargo_metadata::{Message, Package, TargetKind};

use crate::process::{Line, Outcome, Steps};
use crate::{layers, python, reference, setup, site, workspace};

/// Package whose integration tests may be lab tests.
const LAB_PACKAGE: &str = "tcptoll";
/// Integration tests whose name begins so need the lab, and the machine to themselves.
const LAB_PREFIX: &str = "lab";
/// The step `layers` checks licences, bans and sources as packages declare them, everywhere.
const DENY: &str = "texts of licences, and sources";
/// `setup` does not do it: Debian has no package of it, and it compiles for more than a minute, of
/// the few that CI has.
const DENY_REMEDY: &str = "cargo install --locked cargo-deny";

/// `cargo xtask test [--no-setup]`.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<Outcome> {
    let with_setup = match arguments {
        [] => true,
        [only] if only == "--no-setup" => false,
        _ => bail!("test accepts only --no-setup"),
    };
    let targets = Targets::of_workspace()?;
    let mut steps = Steps::new();
    let outcome = run_steps(&mut steps, &targets, with_setup);
    if outcome == Outcome::Passed {
        eprintln!("\n{}", steps.summary());
    }
    Ok(outcome)
}

fn run_steps(steps: &mut Steps, targets: &Targets, with_setup: bool) -> Outcome {
    let mut all = || -> Result<(), Outcome> {
        if with_setup {
            passed(steps.step("setup", "cargo xtask setup", || setup::run(&[])))?;
        }
        passed(steps.line("format", &Line::cargo("fmt").args(["--all", "--check"])))?;
        passed(steps.step("layers", "cargo xtask layers", || layers::run(&[])))?;
        passed(steps.step("generated files", "cargo xtask docs --check", || {
            reference::run(&["--check".to_owned()])
        }))?;
        passed(steps.step("site", "cargo xtask docs --site", site::build))?;
        if Line::cargo("deny").arg("--version").succeeds() {
            passed(steps.line(DENY, &deny()))?;
        } else {
            steps
                .skip(DENY, format!("cargo-deny is not installed; {DENY_REMEDY}, then {}", deny()));
        }
        passed(steps.line("tests", &targets.tests()))?;
        passed(steps.line("tests in the docs", &doc_tests()))?;
        passed(steps.step("Python package", "cargo xtask python", || python::run(&[])))?;
        let mut programs = Vec::new();
        let build = targets.lab().arg("--no-run");
        passed(steps.step("programs of lab tests", &build.to_string(), || {
            programs = targets.lab_programs(build.clone())?;
            Ok(Outcome::Passed)
        }))?;
        passed(lab_tests(steps, Lane::Alone, targets, &programs))?;
        // The tests wait for most of their time: what they leave of the CPUs is enough to compile.
        let lints = Steps::beside("clippy and rustdoc", vec![clippy(), rustdoc()]);
        let tests = lab_tests(steps, Lane::Concurrent, targets, &programs);
        passed(steps.joined(lints))?;
        passed(tests)?;
        Ok(())
    };
    all().err().unwrap_or(Outcome::Passed)
}

fn passed(outcome: Outcome) -> Result<(), Outcome> {
    if outcome == Outcome::Passed { Ok(()) } else { Err(outcome) }
}

fn clippy() -> Line {
    Line::cargo("clippy")
        .args(["--workspace", "--all-targets", "--all-features"])
        .locked()
        .args(["--", "-D", "warnings"])
}

/// With the examples, as cargo then has the features that clippy had, and checks no dependency a
/// second time. Binaries are named, as one has its library's name.
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

fn doc_tests() -> Line {
    Line::cargo("test").args(["--workspace", "--doc", "--all-features"]).locked()
}

/// Which lab tests run concurrently. Most of their time they wait for timers of the kernel and for
/// emulated links: 319 tests took 11:31 two at a time and 5:38 four at a time, with half of two CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    /// Tests in a `mod alone`: their expected values need a free CPU.
    Alone,
    /// All others.
    Concurrent,
}

impl Lane {
    fn name(self) -> &'static str {
        match self {
            Self::Alone => "lab tests, alone",
            Self::Concurrent => "lab tests, concurrent",
        }
    }

    /// Arguments of the test program.
    fn selection(self) -> &'static [&'static str] {
        match self {
            Self::Alone => &["--test-threads=1", "alone::"],
            Self::Concurrent => &["--test-threads=4", "--skip", "alone::"],
        }
    }
}

/// Runs one lane. The test programs are started without cargo, which would wait for what cargo compiles
/// beside them.
fn lab_tests(
    steps: &mut Steps,
    lane: Lane,
    targets: &Targets,
    programs: &[(String, String)],
) -> Outcome {
    steps.step(lane.name(), &targets.lab_tests(lane).to_string(), || {
        for (folder, program) in programs {
            let line = Line::new("env").args(["-C", folder, program]);
            let line = line.args(lane.selection().iter().copied()).env("LAB", "required");
            let outcome = line.run()?;
            if outcome != Outcome::Passed {
                return Ok(outcome);
            }
        }
        Ok(Outcome::Passed)
    })
}

/// The names of the workspace's integration tests.
#[derive(Debug, Default, PartialEq)]
struct Targets {
    /// Those that may run beside each other.
    anywhere: Vec<String>,
    /// Those that need the lab.
    lab: Vec<String>,
}

impl Targets {
    fn of_workspace() -> anyhow::Result<Self> {
        let metadata = workspace::packages()?;
        Ok(Self::of(metadata.workspace_packages()))
    }

    fn of<'a>(packages: impl IntoIterator<Item = &'a Package>) -> Self {
        let mut targets = Self::default();
        for package in packages {
            for target in package.targets.iter().filter(|one| one.is_kind(TargetKind::Test)) {
                let name = target.name.clone();
                if package.name == LAB_PACKAGE && name.starts_with(LAB_PREFIX) {
                    targets.lab.push(name);
                } else if !targets.anywhere.contains(&name) {
                    targets.anywhere.push(name);
                }
            }
        }
        targets
    }

    /// cargo has no way to leave one target out, so every other one is named.
    fn tests(&self) -> Line {
        Line::cargo("test")
            .args(["--workspace", "--all-features", "--lib", "--bins"])
            .args(self.anywhere.iter().flat_map(|name| ["--test", name]))
            .locked()
    }

    /// `--workspace` and not `-p tcptoll`: with other packages chosen, cargo would unite features
    /// differently and build everything again. No other package has a target of this name.
    fn lab(&self) -> Line {
        Line::cargo("test")
            .args(["--workspace", "--all-features"])
            .args(self.lab.iter().flat_map(|name| ["--test", name]))
            .locked()
    }

    fn lab_tests(&self, lane: Lane) -> Line {
        self.lab().arg("--").args(lane.selection().iter().copied()).env("LAB", "required")
    }

    /// Folder and path of each test program of the lab.
    ///
    /// Errors: they cannot be built; there is none.
    fn lab_programs(&self, build: Line) -> anyhow::Result<Vec<(String, String)>> {
        let line = build.args(["--message-format=json", "--quiet"]);
        let output = line.command().stderr(Stdio::inherit()).output();
        let output = output.with_context(|| format!("running {line}"))?;
        ensure!(output.status.success(), "{line}: {}", output.status);
        let mut programs = Vec::new();
        for message in Message::parse_stream(output.stdout.as_slice()) {
            let Message::CompilerArtifact(built) = message? else { continue };
            let folder = built.manifest_path.parent().context("a manifest has a folder")?;
            if let (true, Some(program)) = (self.lab.contains(&built.target.name), built.executable)
            {
                programs.push((folder.to_string(), program.to_string()));
            }
        }
        ensure!(
            !programs.is_empty(),
            "package {LAB_PACKAGE} has no test target named {LAB_PREFIX}"
        );
        Ok(programs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A package with these targets, each of a kind.
    fn package(name: &str, targets: &[(&str, &str)]) -> Package {
        let targets: Vec<_> = targets
            .iter()
            .map(|(kind, name)| {
                json!({"kind": [kind], "crate_types": ["bin"], "name": name, "src_path": "x.rs"})
            })
            .collect();
        serde_json::from_value(json!({
            "name": name, "version": "1.0.0", "id": name, "dependencies": [],
            "targets": targets, "features": {}, "manifest_path": "Cargo.toml",
        }))
        .unwrap()
    }

    fn targets() -> Targets {
        let command_line =
            [("lib", "tcptoll"), ("test", "cli"), ("test", "lab"), ("example", "prove")];
        Targets::of(&[
            package("tcptoll", &command_line),
            package("tcptoll-model", &[("test", "captured"), ("test", "cli")]),
        ])
    }

    #[test]
    fn lab_tests_run_apart_and_those_that_need_a_free_cpu_one_at_a_time() {
        let [alone, concurrent] =
            [Lane::Alone, Lane::Concurrent].map(|lane| targets().lab_tests(lane).to_string());
        for lab in [&alone, &concurrent] {
            let begin = "LAB=required cargo test --workspace --all-features --test lab";
            assert!(lab.starts_with(begin), "{lab}");
        }
        assert!(alone.ends_with(" -- --test-threads=1 alone::"), "{alone}");
        assert!(concurrent.ends_with(" -- --test-threads=4 --skip alone::"), "{concurrent}");
        let others = targets().tests().to_string();
        assert!(others.contains("--lib --bins --test cli --test captured"), "{others}");
        assert!(!others.contains("lab"), "{others}");
    }
}
