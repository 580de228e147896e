//! Is what users install as fast as what developers build?

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use tcptoll_core::record::Summary;

use crate::contest::rounds::Rounds;
use crate::links::tcptoll;
use crate::support::shipped;
use crate::table::Table;

/// As many as the interval needs to become narrower than what counts as a difference.
const ROUNDS: u32 = 100;
/// A difference within this factor does not matter.
const MARGIN: f64 = 1.03;

/// Client CPU of the shipped binary against that of `cargo build --release`, in turns.
pub(crate) fn cost(table: &mut Table) -> anyhow::Result<()> {
    let shipped =
        shipped().context("no binary of this commit was packed: cargo xtask dist first")?;
    let built = tcptoll()?;
    let cases: [(&str, &[&str]); 3] = [
        ("connection of `connect`", &["connect", "--count", "10000"]),
        ("request of `http`", &["http", "--connections", "50", "--duration", "1s"]),
        (
            "request of `http` with a TLS handshake",
            &["http", "--tls", "full", "--reuse", "server-close", "--duration", "1s"],
        ),
    ];
    for (what, arguments) in cases {
        let names = ["shipped", "built"];
        let rounds = Rounds::run(&names, ROUNDS, |place| {
            cpu_us(if place == 0 { &shipped } else { &built }, arguments)
        })?;
        let ratio = rounds.ratio("shipped", "built", |cpu_us| *cpu_us).context("no CPU time")?;
        let verdict = ratio.ci95.and_then(verdict);
        let figures = format!(
            "{}: {:.3} {}, {:.2} µs against {:.2} µs, {} rounds",
            verdict.unwrap_or("not enough evidence"),
            ratio.value,
            ratio.interval(),
            ratio.ours,
            ratio.theirs,
            ratio.rounds
        );
        table.row(
            &format!("client CPU per {what}: the shipped binary against the developer's build"),
            &format!("no difference found ({MARGIN}), or the factor"),
            &figures,
            verdict.is_some(),
        );
    }
    Ok(())
}

/// What an interval of the ratio says. None: not enough.
fn verdict([low, high]: [f64; 2]) -> Option<&'static str> {
    if low >= 1.0 / MARGIN && high <= MARGIN {
        Some("no difference found")
    } else if low > 1.0 {
        Some("slower by this factor")
    } else {
        (high < 1.0).then_some("faster by this factor")
    }
}

fn cpu_us(program: &Path, arguments: &[&str]) -> anyhow::Result<f64> {
    let mut command = Command::new(program);
    command.args(arguments).args(["--quiet", "--format", "json", "--out", "/dev/null"]);
    let output = command.output().with_context(|| format!("running {}", program.display()))?;
    let said = || String::from_utf8_lossy(&output.stderr).into_owned();
    let summary: Summary = serde_json::from_slice(&output.stdout).with_context(said)?;
    ensure!(output.status.success() && summary.valid && !summary.partial, "no figure: {}", said());
    let arm = summary.arms.first().context("the summary has no arm")?;
    Ok(arm.metrics.get("client_cpu_us_per_op").context("no client_cpu_us_per_op")?.value)
}
