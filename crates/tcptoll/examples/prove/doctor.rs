//! Does `doctor` find each planted fault and no other, and does the lab show that its fix works?

use std::process::Command;

use anyhow::Context as _;
use tcptoll_live::doctor::{Proof, ProofVerdict};

use crate::links::tcptoll;
use crate::machines::{Examined, KINDS, Kind, Machine};
use crate::table::Folder;
use crate::table::Proofs;

/// How long each machine is looked at.
const DURATION: &[&str] = &["--duration", "3s"];
/// A proof may take this long, s.
const PROOF_MAX_S: f64 = 60.0;

fn examined(kind: &Kind, planted: bool) -> anyhow::Result<Examined> {
    started(kind, planted)?.examine(Command::new(tcptoll()?), DURATION)
}

fn started(kind: &Kind, planted: bool) -> anyhow::Result<Machine> {
    let needs = || format!("it needs unshare, ip, python3 and {}", list(kind.programs));
    Machine::start(kind, planted).with_context(needs)
}

fn list(names: &[&str]) -> String {
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}

/// Machines with one planted fault each, and the same machines healthy.
pub(crate) fn twelve(table: &mut Proofs) -> anyhow::Result<()> {
    let (mut met, mut falsely) = (0, 0);
    for kind in KINDS {
        let (ill, healthy) = (examined(kind, true)?, examined(kind, false)?);
        let found = ill.found() == kind.expected() && ill.status == Some(1);
        let quiet = healthy.found().is_empty() && healthy.status == Some(0);
        met += usize::from(found);
        let beyond = |id: &&str| !kind.expected().contains(id);
        falsely += ill.found().into_iter().filter(beyond).count() + healthy.found().len();
        let text = ill.examination.findings.first().map_or("", |one| one.text.as_str());
        table.row(
            &format!("doctor, machine {}", kind.name),
            &format!("planted: {}; healthy: nothing", list(&kind.expected())),
            &format!(
                "planted: {} (\"{text}\"); healthy: {}",
                list(&ill.found()),
                list(&healthy.found())
            ),
            found && quiet,
        );
    }
    let all = KINDS.len();
    table.row(
        "doctor, planted faults found, false findings",
        "12 of 12 or more, 0 false",
        &format!("{met} of {all} found, {falsely} false"),
        met == all && all >= 12 && falsely == 0,
    );
    Ok(())
}

/// The same faults in the lab: with the fix and without it.
pub(crate) fn prove(table: &mut Proofs) -> anyhow::Result<()> {
    let folder = Folder::new("doctor-prove")?;
    for kind in KINDS {
        let mut command = Command::new(tcptoll()?);
        command.env("XDG_DATA_HOME", &folder.0);
        let arguments = [DURATION, &["--prove"]].concat();
        let examined = started(kind, true)?.examine(command, &arguments)?;
        if examined.examination.proofs.is_empty() {
            anyhow::bail!("{}: no proof: {}", kind.name, examined.stderr);
        }
        for proof in &examined.examination.proofs {
            row(table, kind, proof);
        }
    }
    Ok(())
}

fn row(table: &mut Proofs, kind: &Kind, proof: &Proof) {
    let what = format!("doctor --prove, machine {}: {}", kind.name, proof.finding);
    if proof.command.is_empty() {
        Proofs::fact(&what, &format!("not held by the lab: {}", proof.text));
        return;
    }
    let fixes: Vec<String> = proof
        .fixes
        .iter()
        .map(|fix| {
            let figure = match (fix.ratio, fix.low, fix.high, fix.difference) {
                (Some(ratio), Some(low), Some(high), _) => {
                    format!("×{ratio:.3} [{low:.3}, {high:.3}]")
                }
                (None, _, _, Some(difference)) => format!("{difference:+.2}"),
                _ => "no interval".to_owned(),
            };
            let works = if fix.works { "works" } else { "not shown" };
            format!("{}: {} {figure}, {} ({works})", fix.arm, fix.metric, fix.verdict)
        })
        .collect();
    table.row(
        &what,
        "fix shown, within 60 s",
        &format!("{:.0} s; {}; {}", proof.took_s, fixes.join("; "), proof.text),
        proof.verdict == ProofVerdict::Shown && proof.took_s <= PROOF_MAX_S,
    );
}
