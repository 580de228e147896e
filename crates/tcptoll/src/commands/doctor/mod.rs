//! `doctor`: what is wrong with this machine's connections and servers, in one pass.
//!
//! It examines (`live::doctor::look`), judges (`live::doctor`), prints (`report`), and with `--prove` hands
//! the findings to the lab (`prove`).

mod host;
pub(crate) mod prove;
mod wanted;

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tcptoll_lab::files::{Mark, write_own};
use tcptoll_live::doctor::look::{Progress, examine};
use tcptoll_live::doctor::{Examination, Proof, ProofVerdict, diagnose};
use tcptoll_live::watch::reader::Options;

use crate::cli::{DoctorArgs, Format};
use crate::exit::{Status, say};
use crate::screen::{self, StatusLine};
use crate::stdout;

use prove::Prover;

/// How far an examination is.
fn words(progress: &Progress) -> String {
    let (passed, lasts) = (progress.passed.as_secs(), progress.lasts.as_secs());
    let mut message = format!("examining · {passed} of {lasts} s");
    if progress.diagnoses > 0 {
        message += &format!(" · {} found so far", progress.diagnoses);
    }
    message
}

/// Does what `tcptoll doctor …` says.
pub(super) fn run(args: &DoctorArgs) -> anyhow::Result<Status> {
    if let Some(host) = &args.host {
        return host::run(args, host);
    }
    let lasts = wanted::duration(args)?;
    let network = super::watch::network(args.netns.as_deref())?;
    // An examination of another namespace cannot leave it again.
    let prover = args.prove.as_ref().map(|_| Prover::start()).transpose()?;
    let stopped = stops()?;
    let signal = || stopped.load(Ordering::SeqCst);
    let line = StatusLine::new(!args.quiet);
    // Before any thread: see NamespaceReader::open.
    let machine =
        examine(&Options { network, owners: true }, lasts, &|| signal() != 0, &mut |progress| {
            line.say(&words(&progress));
        })
        .map_err(|error| super::watch::refused(args.netns.as_deref(), error))?;
    drop(line);
    if signal() != 0 {
        if let Some(prover) = prover {
            prover.dismiss();
        }
        say("stopped before the examination ended; nothing is reported");
        return Ok(Status::Stopped(signal() as u8));
    }
    let findings = diagnose(&machine);
    let mut examination = Examination::new(&machine, args.netns.as_deref(), findings);
    let examined = if examination.findings.is_empty() { Status::Met } else { Status::Missed };
    if args.format == Format::Text {
        let text = tcptoll_live::doctor::pages::examination_text(
            &examination,
            prove::PROVABLE,
            screen::style(),
        );
        if !printed(&text, Format::Text) {
            return Ok(Status::NotStored);
        }
    }
    if let Some((prover, which)) = prover.zip(args.prove.as_deref()) {
        let found = &examination.findings;
        let is_there = which == prove::ALL || found.iter().any(|one| one.id == which);
        let netns = args.netns.as_deref();
        let stopped = || signal() != 0;
        let mut show = |proof: &Proof| {
            if args.format == Format::Text {
                let text = format!(
                    "\n{}",
                    tcptoll_live::doctor::pages::proof_text(proof, screen::style())
                );
                stdout::text(&text)?;
            }
            Ok(())
        };
        if is_there {
            examination.proofs =
                prover.prove(found, which, netns, args.quiet, &stopped, &mut show)?;
        } else {
            prover.dismiss();
            let proof = Proof::not_found(which);
            show(&proof)?;
            if args.format == Format::Json {
                say(&format!("--prove {}", proof.text));
            }
            examination.proofs = vec![proof];
        }
    }
    let no_proof = examination.proofs.iter().any(is_missing);
    let mut stored = match &args.html {
        Some(path) => written(path, &examination),
        None => true,
    };
    if args.format == Format::Json {
        stored &= printed(&(serde_json::to_string(&examination)? + "\n"), Format::Json);
    }
    Ok(match signal() {
        _ if !stored => Status::NotStored,
        0 if no_proof => Status::NotMeasured,
        0 => examined,
        signal => Status::Stopped(signal as u8),
    })
}

/// Whether a proof that was asked for could not be tried: a finding that the lab can hold and no lab, or no
/// such finding here.
fn is_missing(proof: &Proof) -> bool {
    let no_lab = !proof.command.is_empty();
    proof.verdict == ProofVerdict::NotRun && (no_lab || proof.subject.is_empty())
}

/// Prints on stdout; whether that went well. A reader that has seen enough is no failure.
fn printed(text: &str, format: Format) -> bool {
    let Err(error) = stdout::print(text, format) else { return true };
    let closed = error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == ErrorKind::BrokenPipe);
    if !closed {
        say(&format!("error: examined, but standard output cannot be written: {error:#}"));
    }
    closed
}

/// Writes the page; whether that went well.
fn written(path: &Path, examination: &Examination) -> bool {
    let page = tcptoll_live::doctor::pages::examination_html(examination, prove::PROVABLE);
    let outcome = write_own(path, &page, Mark::Markup);
    if let Err(error) = &outcome {
        say(&format!("error: examined, but --html {} cannot be written: {error}", path.display()));
    }
    outcome.is_ok()
}

/// The number of the signal that asked to stop; 0: none did.
fn stops() -> anyhow::Result<Arc<AtomicUsize>> {
    let stopped = Arc::new(AtomicUsize::new(0));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_usize(signal, Arc::clone(&stopped), signal as usize)?;
    }
    Ok(stopped)
}
