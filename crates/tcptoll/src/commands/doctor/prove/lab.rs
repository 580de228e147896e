//! The child process of `--prove`: it reads findings, and runs one study after the other in the lab.

use std::io::{BufReader, Read as _};
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::Context as _;
use signal_hook::consts::SIGTERM;
use tcptoll_lab::lab::Interrupt;
use tcptoll_live::diagnosis::Diagnosis;
use tcptoll_live::doctor::{Filled, Proof, ProofVerdict, failures, judge, prove_command};
use tcptoll_measure::experiments::SPECS;
use tcptoll_measure::runner::Run;

use super::{Request, templates};
use crate::exit::Status;
use crate::output;

/// The word that makes this program the child.
pub(crate) const COMMAND: &str = "doctor-prove";
/// How far the link may be from what is asked. The machine that is examined is rarely idle, and a fault
/// shows as a factor, not as some per cent.
const TOLERANCE: &str = "delay=50ms,rate=80%";

/// Reads a request from stdin, and writes a proof of each of its findings to stdout, one line each.
///
/// It stops with what it has at a signal, or when its input ends.
pub(crate) fn serve() -> anyhow::Result<Status> {
    let mut input = BufReader::new(std::io::stdin());
    let Some(line) = super::line(&mut input)? else { return Ok(Status::Met) };
    let request: Request = serde_json::from_str(&line).context("the findings to prove")?;
    let interrupt = output::on_signals()?;
    let flag = interrupt.flag();
    std::thread::Builder::new().name("input".to_owned()).spawn(move || {
        let _ = std::io::copy(&mut input.take(super::MESSAGE_MAX), &mut std::io::sink());
        let _ = flag.compare_exchange(0, SIGTERM as usize, Ordering::SeqCst, Ordering::SeqCst);
    })?;
    for finding in &request.findings {
        if interrupt.signal().is_some() {
            break;
        }
        let proof = prove(finding, &request, &interrupt);
        crate::stdout::data(&(serde_json::to_string(&proof)? + "\n"))?;
    }
    Ok(Status::Met)
}

/// What the lab shows of a finding; why there is no verdict is part of it.
fn prove(finding: &Diagnosis, request: &Request, interrupt: &Interrupt) -> Proof {
    let begun = Instant::now();
    let mut proof =
        Proof { finding: finding.id.clone(), subject: finding.subject.clone(), ..Proof::default() };
    let template = match templates::find(finding) {
        Ok(Some(template)) => template,
        Ok(None) => {
            "There is no study of this finding.".clone_into(&mut proof.text);
            return proof;
        }
        Err(error) => {
            proof.text = format!("{error:#}");
            return proof;
        }
    };
    let Filled { study, scaled } = match template.fill(finding) {
        Ok(filled) => filled,
        Err(why) => {
            proof.text = why;
            return proof;
        }
    };
    proof.command = prove_command(request.netns.as_deref(), &finding.id);
    proof.scaled = scaled;
    match output::measure(&study, Some(TOLERANCE), request.quiet, None, interrupt) {
        Err(_) if interrupt.signal().is_some() => "Stopped.".clone_into(&mut proof.text),
        Err(error) => proof.text = format!("The lab did not run: {error:#}"),
        Ok(run) => conclude(&mut proof, &run),
    }
    proof.took_s = begun.elapsed().as_secs_f64();
    proof
}

/// The verdict of a run, and its sentence.
fn conclude(proof: &mut Proof, run: &Run) {
    let (verdict, arms, fixes) = judge(&run.summary, SPECS);
    proof.verdict = verdict;
    let mut sentences = vec![run.summary.answer.clone(), failures(&arms)];
    if !proof.scaled.is_empty() {
        sentences.push(format!("Differences from this machine: {}.", proof.scaled.join("; ")));
    }
    if verdict != ProofVerdict::Shown {
        let partial = run.summary.partial.then(|| "The run was stopped.".to_owned());
        let doubts = run.summary.warnings.iter().map(|one| format!("Doubt: {}.", one.text));
        sentences.extend(partial.into_iter().chain(doubts.take(3)));
    }
    sentences.retain(|one| !one.is_empty());
    proof.text = sentences.join(" ");
    proof.arms = arms;
    proof.fixes = fixes;
    proof.record = run.not_stored.is_none().then(|| run.record.display().to_string());
}
