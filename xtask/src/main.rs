//! What a contributor types: `cargo xtask setup | test | layers | python | docs | dist | prove | bench`.
//!
//! This file says which tasks there are and what an exit status means; each task has a file of its
//! own. It does not know how to build or test anything. Read `checks.rs` next.

mod bench;
mod checks;
mod dist;
mod layers;
mod licences;
mod net;
mod process;
mod prove;
mod python;
mod reference;
mod samples;
mod setup;
mod site;
mod workspace;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use process::Outcome;

/// One thing a contributor can ask for.
struct Task {
    name: &'static str,
    arguments: &'static str,
    summary: &'static str,
    run: fn(&[String]) -> anyhow::Result<Outcome>,
}

const TASKS: &[Task] = &[
    Task {
        name: "setup",
        arguments: "",
        summary: "install what the tests need: Debian packages (xtask/packages.txt), Python packages (python/requirements-test.txt)",
        run: setup::run,
    },
    Task {
        name: "test",
        arguments: "[--no-setup|net]",
        summary: "everything that CI checks, cheap steps first, lab tests last; net: only whether the program says \
                  what it said",
        run: checks::run,
    },
    Task {
        name: "layers",
        arguments: "",
        summary: "check circles of modules, who names an experiment, and what packages declare (part of test)",
        run: layers::run,
    },
    Task {
        name: "python",
        arguments: "",
        summary: "check types and tests of the Python package (part of test)",
        run: python::run,
    },
    Task {
        name: "docs",
        arguments: "[--check|--site|--samples [NAME...]]",
        summary: "write docs/reference/ from the program itself; --check only compares, and checks links; --site \
                  builds the documentation as a site; --samples runs the commands whose output and pictures pages show",
        run: reference::run,
    },
    Task {
        name: "dist",
        arguments: "[--check]",
        summary: "make all packages in dist/ (docs/releasing.md); --check builds them twice, installs them, and prints \
                  the table of sizes",
        run: dist::run,
    },
    Task {
        name: "prove",
        arguments: "[NAME...]",
        summary: "measure the acceptance figures and their goals; a run of all writes docs/proof.md",
        run: prove::run,
    },
    Task {
        name: "bench",
        arguments: "[NAME] [--rounds N]",
        summary: "compare tcptoll with its peers; writes bench/RESULTS.md; without NAME, list all",
        run: bench::run,
    },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&arguments) {
        Ok(outcome) => outcome.into(),
        Err(error) => {
            eprintln!("error: {error:#}");
            Outcome::NotPossible.into()
        }
    }
}

fn dispatch(arguments: &[String]) -> anyhow::Result<Outcome> {
    let Some((name, rest)) = arguments.split_first() else {
        eprint!("{}", help());
        return Ok(Outcome::NotPossible);
    };
    if matches!(name.as_str(), "help" | "-h" | "--help")
        || rest.iter().any(|argument| matches!(argument.as_str(), "-h" | "--help"))
    {
        print!("{}", help());
        return Ok(Outcome::Passed);
    }
    let Some(task) = TASKS.iter().find(|task| task.name == name) else {
        anyhow::bail!("there is no task {name:?}; `cargo xtask help` lists all tasks");
    };
    let root = root();
    std::env::set_current_dir(&root)
        .with_context(|| format!("entering the workspace at {}", root.display()))?;
    (task.run)(rest)
}

/// The workspace's folder: where cargo says this package is now, or was when it was built.
fn root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    package.parent().map_or_else(|| package.clone(), PathBuf::from)
}

fn help() -> String {
    use std::fmt::Write as _;
    let mut text = String::from("cargo xtask TASK\n\n");
    for task in TASKS {
        let usage = format!("{} {}", task.name, task.arguments);
        let _ = writeln!(text, "  {usage:<26} {}", task.summary);
    }
    text.push_str("\nExit status: 0 passed, 1 failed, 2 could not be done here.\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_stands_in_the_help() {
        let text = help();
        for task in TASKS {
            assert!(text.contains(&format!("\n  {} ", task.name)), "{}", task.name);
        }
    }

    #[test]
    fn an_unknown_task_is_named() {
        let error = dispatch(&["tset".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("tset"), "{error}");
    }
}
