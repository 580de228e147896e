//! `cargo xtask test net`: does the program say what it said? Nothing is measured.
//!
//! What is frozen stands next to the tests (`crates/tcptoll/tests/net`, `tests/records`, and snapshots of units).
//! Here is only which tests these are.

use anyhow::{Context as _, ensure};

use crate::process::{Line, Outcome};

/// Integration tests that consist of frozen text.
const PROGRAMS: [&str; 2] = ["net", "records"];
/// Modules with frozen text that no command prints without measuring.
const UNITS: [&str; 3] = ["runner::replay::", "metrics::tests::", "screen::tests::"];

pub(crate) fn run() -> anyhow::Result<Outcome> {
    let test = || Line::cargo("test").args(["--workspace", "--all-features", "--quiet"]).locked();
    let programs = PROGRAMS.iter().fold(test(), |line, name| line.args(["--test", name]));
    let units = test().arg("--lib");
    let listed = units.clone().args(["--", "--list"]).command().output();
    let listed = listed.with_context(|| format!("running {units}"))?;
    ensure!(listed.status.success(), "{units}: {}", listed.status);
    let listed = String::from_utf8_lossy(&listed.stdout);
    for unit in UNITS {
        ensure!(listed.contains(unit), "no test is in {unit}");
    }
    // Both, so that one run shows every difference.
    let outcomes = [programs.run()?, units.arg("--").args(UNITS).run()?];
    let failed = outcomes.into_iter().find(|outcome| *outcome != Outcome::Passed);
    if failed.is_some() {
        eprintln!(
            "\nif it was meant: INSTA_UPDATE=always cargo xtask test net, and read the difference"
        );
    }
    Ok(failed.unwrap_or(Outcome::Passed))
}
