//! Checks the Python package in `python/`: its types and its tests, in a virtual environment of their own.
//!
//! What is installed stands in `python/requirements-test.txt`. `cargo xtask setup` installs it, and so does the
//! step of `cargo xtask test` where nobody did. How the package gets into the wheel is the matter of `dist.rs`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::process::{Line, Outcome, on_path};
use crate::workspace;

const FOLDER: &str = "python";
const LIST: &str = "python/requirements-test.txt";
const ENVIRONMENT: &str = "target/python";

/// Makes the virtual environment anew if the list has changed; gives the path of its Python.
pub(crate) fn prepare() -> anyhow::Result<PathBuf> {
    let list = fs::read_to_string(LIST).with_context(|| format!("reading {LIST}"))?;
    let stamp = Path::new(ENVIRONMENT).join("installed.txt");
    let python = std::path::absolute(Path::new(ENVIRONMENT).join("bin/python"))?;
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == list) {
        return Ok(python);
    }
    if !on_path("python3") {
        bail!("the Python package needs Python 3.11 or newer to be tested: install python3");
    }
    // Few of the modules are imported: those are compiled then.
    let install = ["-m", "pip", "install", "--quiet", "--no-compile", "-r", LIST];
    for line in [
        Line::new("python3").args(["-m", "venv", "--clear", ENVIRONMENT]),
        Line::new(text(&python)?).args(install).env("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
    ] {
        if line.run()? != Outcome::Passed {
            bail!("{line} failed");
        }
    }
    fs::write(&stamp, list).with_context(|| format!("writing {}", stamp.display()))?;
    println!("setup: installed {LIST} in {ENVIRONMENT}");
    Ok(python)
}

/// `cargo xtask python`: types, then tests, with the program that the tests before have built.
pub(crate) fn run(arguments: &[String]) -> anyhow::Result<Outcome> {
    if !arguments.is_empty() {
        bail!("python takes no arguments");
    }
    let python = prepare()?;
    let types = within(&python, "mypy")?.run()?;
    if types != Outcome::Passed {
        return Ok(types);
    }
    let built = workspace::packages()?.target_directory.join("debug/tcptoll");
    if !built.is_file() {
        bail!("{built} is not there: run `cargo build --bin tcptoll` first");
    }
    within(&python, "pytest")?.env("TCPTOLL_BINARY", built.as_str()).run()
}

/// A module of Python, run in the package's folder, where its settings are.
fn within(python: &Path, module: &str) -> anyhow::Result<Line> {
    Ok(Line::new("env").args(["-C", FOLDER, text(python)?, "-m", module]))
}

fn text(path: &Path) -> anyhow::Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}
