//! What `cargo xtask test` does, in order: cheap steps first, the lab last and by itself.
//!
//! CI runs this and nothing else. Each step is an ordinary command that can be typed by itself;
//! the list below is the only place that knows them all.

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::process::{Line, Outcome, Steps};
use crate::{layers, reference, setup};

/// Package whose integration tests may be lab tests.
const LAB_PACKAGE: &str = "tcptoll";
/// Integration tests whose name begins so need the lab.
const LAB_PREFIX: &str = "lab";
/// Lab tests in a module of this name need the machine to themselves: with less CPU, their expected
/// values would not hold. All others hold on a busy machine.
const LAB_ALONE: &str = "alone::";
/// Other lab tests that run at a time: they use a sixth of a CPU each, and wait for the rest.
const LAB_THREADS: usize = 4;

/// `cargo xtask test [--no-setup]`.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<Outcome> {
    let with_setup = match arguments {
        [] => true,
        [only] if only == "--no-setup" => false,
        _ => bail!("test takes nothing but --no-setup"),
    };
    let targets = Targets::of_workspace()?;
    let mut steps = Steps::new();
    let outcome = run_steps(&mut steps, &targets, with_setup);
    if outcome == Outcome::Passed {
        steps.close();
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
        passed(steps.line("clippy", &clippy()))?;
        passed(steps.line("rustdoc", &rustdoc()))?;
        passed(steps.step("generated files", "cargo xtask docs --check", || {
            reference::run(&["--check".to_owned()])
        }))?;
        if Line::cargo("deny").arg("--version").succeeds() {
            passed(steps.line("licences and sources", &deny()))?;
        } else {
            eprintln!("\n    licences and sources: left out, cargo-deny is not installed");
        }
        passed(steps.line("tests", &targets.tests()))?;
        passed(steps.line("tests in the docs", &doc_tests()))?;
        for (name, line) in targets.lab_tests() {
            passed(steps.step(name, &line.to_string(), || {
                if targets.lab.is_empty() {
                    bail!("package {LAB_PACKAGE} has no test target named {LAB_PREFIX}");
                }
                line.run()
            }))?;
        }
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
        Self::of(&metadata()?).context("`cargo metadata` says nothing of targets")
    }

    fn of(metadata: &Value) -> Option<Self> {
        let mut targets = Self::default();
        for package in metadata.get("packages")?.as_array()? {
            for target in package.get("targets")?.as_array()? {
                let is_test = target.get("kind")?.as_array()?.iter().any(|kind| kind == "test");
                if !is_test {
                    continue;
                }
                let name = target.get("name")?.as_str()?.to_owned();
                if package.get("name")? == LAB_PACKAGE && name.starts_with(LAB_PREFIX) {
                    targets.lab.push(name);
                } else if !targets.anywhere.contains(&name) {
                    targets.anywhere.push(name);
                }
            }
        }
        Some(targets)
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
    fn lab_tests(&self) -> [(&'static str, Line); 2] {
        let line = |threads: usize| {
            Line::cargo("test")
                .args(["--workspace", "--all-features"])
                .args(self.lab.iter().flat_map(|name| ["--test", name]))
                .locked()
                .arg("--")
                .arg(format!("--test-threads={threads}"))
                .env("LAB", "required")
        };
        [
            ("lab tests", line(LAB_THREADS).args(["--skip", LAB_ALONE])),
            ("lab tests that run alone", line(1).arg(LAB_ALONE)),
        ]
    }
}

/// What cargo knows of the workspace, without its dependencies.
pub(crate) fn metadata() -> anyhow::Result<Value> {
    let line = Line::cargo("metadata").args(["--no-deps", "--format-version", "1"]);
    let output = line.command().output().with_context(|| format!("running {line}"))?;
    if !output.status.success() {
        bail!("{line}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("reading what {line} says"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn targets() -> Targets {
        let target = |kind: &str, name: &str| json!({"kind": [kind], "name": name});
        Targets::of(&json!({"packages": [
            {"name": "tcptoll", "targets": [
                target("lib", "tcptoll"), target("test", "cli"), target("test", "lab"),
                target("example", "prove"),
            ]},
            {"name": "tcptoll-model", "targets": [target("test", "captured"), target("test", "cli")]},
        ]}))
        .unwrap()
    }

    #[test]
    fn lab_tests_run_apart_from_others_and_those_that_need_the_machine_one_at_a_time() {
        let [most, alone] = targets().lab_tests().map(|(_, line)| line.to_string());
        for line in [&most, &alone] {
            let begins = "LAB=required cargo test --workspace --all-features --test lab";
            assert!(line.starts_with(begins), "{line}");
        }
        assert!(most.ends_with(" -- --test-threads=4 --skip alone::"), "{most}");
        assert!(alone.ends_with(" -- --test-threads=1 alone::"), "{alone}");
        let others = targets().tests().to_string();
        assert!(others.contains("--lib --bins --test cli --test captured"), "{others}");
        assert!(!others.contains("lab"), "{others}");
    }

    #[test]
    fn metadata_of_another_shape_is_no_empty_list() {
        assert_eq!(Targets::of(&json!({"packages": [{"name": "tcptoll"}]})), None);
    }
}
