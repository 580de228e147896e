//! Fleets and tables in Python: benches of the package, which print their figures as rows of this table.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};

use crate::links::tcptoll;
use crate::table::Table;

/// Where `cargo xtask setup` installs what the package's tests need.
const PYTHON: &str = "target/python/bin/python";

/// A scheduler and five workers in namespaces, of which two are killed and one never returns.
pub(crate) fn kills(table: &mut Table) -> anyhow::Result<()> {
    bench(table, &["fleet_namespaces.py", &program()?])
}

/// One load over three machines in namespaces, against nginx' own log.
pub(crate) fn split(table: &mut Table) -> anyhow::Result<()> {
    bench(table, &["split_namespaces.py", &program()?])
}

/// 100 workers in one process, and what the scheduler's memory depends on.
pub(crate) fn workers(table: &mut Table) -> anyhow::Result<()> {
    bench(table, &["workers.py"])
}

/// 6,000 trials into frames.
pub(crate) fn frames(table: &mut Table) -> anyhow::Result<()> {
    bench(table, &["frames.py", "--engine", "polars"])?;
    bench(table, &["frames.py", "--engine", "pandas"])
}

fn program() -> anyhow::Result<String> {
    Ok(tcptoll()?.display().to_string())
}

fn bench(table: &mut Table, words: &[&str]) -> anyhow::Result<()> {
    ensure!(Path::new(PYTHON).exists(), "{PYTHON} is not there: cargo xtask setup first");
    let script = words[0];
    let mut command = Command::new(PYTHON);
    command.arg(format!("python/bench/{script}")).args(&words[1..]);
    let output = command.stderr(Stdio::inherit()).output().context("running Python")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut rows = 0;
    for line in text.lines().filter_map(|line| line.strip_prefix("figure: ")) {
        let cells: Vec<&str> = line.split(" | ").collect();
        let [what, goal, measured, met] = cells.as_slice() else { bail!("row: {line}") };
        table.row(what, goal, measured, *met == "met");
        rows += 1;
    }
    ensure!(rows > 0, "{script} printed no figure ({}): {text}", output.status);
    Ok(())
}
