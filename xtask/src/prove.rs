//! The acceptance figures: built in release, run alone on the machine, kept in `docs/proof.md`.
//!
//! What is measured, and against which goal, stands in `crates/tcptoll/examples/prove.rs`.

use std::io::{Read as _, Write as _};
use std::process::Stdio;

use anyhow::Context as _;

use crate::process::{Line, Outcome};

const PROOF: &str = "docs/proof.md";

/// `cargo xtask prove [NAME...]`.
pub(crate) fn run(names: &[String]) -> anyhow::Result<Outcome> {
    let release = |subcommand| Line::cargo(subcommand).args(["--release", "--package", "tcptoll"]);
    let build = release("build").locked().args(["--bins", "--example", "prove"]);
    if build.run()? != Outcome::Passed {
        return Ok(Outcome::NotPossible);
    }
    let line = release("run").locked().args(["--quiet", "--example", "prove", "--"]).args(names);
    let mut child =
        line.command().stdout(Stdio::piped()).spawn().with_context(|| format!("running {line}"))?;
    let mut kept = b"<!-- Written by `cargo xtask prove`. -->\n\n".to_vec();
    if let Some(mut output) = child.stdout.take() {
        let mut screen = std::io::stdout();
        let mut part = [0; 4096];
        loop {
            let length = output.read(&mut part).context("reading what it prints")?;
            if length == 0 {
                break;
            }
            kept.extend_from_slice(&part[..length]);
            // A closed terminal must not lose an hour of figures.
            let _ = screen.write_all(&part[..length]).and_then(|()| screen.flush());
        }
    }
    let status = child.wait().with_context(|| format!("waiting for {line}"))?;
    match status.code() {
        None => eprintln!("{PROOF} is unchanged: the run was killed ({status})"),
        Some(2) => eprintln!("{PROOF} is unchanged: not everything could be measured"),
        Some(_) if !names.is_empty() => {
            eprintln!("{PROOF} is unchanged: only a run of all figures writes it");
        }
        // A goal that was missed is a figure too: it is kept.
        Some(_) => {
            std::fs::write(PROOF, &kept).with_context(|| format!("writing {PROOF}"))?;
            eprintln!("wrote {PROOF}");
        }
    }
    Ok(match status.code() {
        Some(0) => Outcome::Passed,
        Some(1) => Outcome::Failed,
        _ => Outcome::NotPossible,
    })
}
