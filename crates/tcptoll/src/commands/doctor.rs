//! `doctor`: what is wrong with this machine's connections and servers, in one pass.
//!
//! It examines (`live::doctor::look`), judges (`live::doctor`), prints (`report`), and with `--prove` hands
//! the findings to the lab (`prove`).

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::cli::{DoctorArgs, Format};
use crate::commands::prove::{ALL, PROVABLE, Prover, why_not};
use crate::commands::{explain, prose};
use crate::exit::{Status, say};
use crate::output::{check_place, check_writable};
use crate::progress::StatusLine;
use crate::{screen, stdout};
use tcptoll_core::experiment::options::SSH;
use tcptoll_core::sheet::{Part as Shown, Tone};
use tcptoll_core::study::did_you_mean;
use tcptoll_core::units::parse_time;
use tcptoll_lab::files::{Mark, write_own};
use tcptoll_lab::lab::LabError;
use tcptoll_lab::lab::remote::{Agent, Hello, Part, Reach, SshAddress};
use tcptoll_live::doctor::look::{Progress, examine};
use tcptoll_live::doctor::rules::ids;
use tcptoll_live::doctor::{
    Examination, Proof, ProofVerdict, brief, diagnose, examination_sheet, proof_parts,
};
use tcptoll_live::watch::reader::Options;
use tcptoll_show::sheet;

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
        return run_on_host(args, host);
    }
    let lasts = duration(args)?;
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
        let style = screen::style();
        let text = if args.details {
            sheet::text(&examination_sheet(&examination, PROVABLE), style)
        } else {
            let first = examination.findings.first();
            let check = first.and_then(|one| explain::check(&one.id));
            brief(&examination, PROVABLE, check.as_deref(), style)
        };
        if !printed(&text, Format::Text) {
            return Ok(Status::NotStored);
        }
    }
    if let Some((prover, which)) = prover.zip(args.prove.as_deref()) {
        let found = &examination.findings;
        let is_there = which == ALL || found.iter().any(|one| one.id == which);
        let netns = args.netns.as_deref();
        let stopped = || signal() != 0;
        let mut show = |proof: &Proof| {
            if args.format == Format::Text {
                let text = sheet::parts(&proof_parts(proof), screen::style());
                stdout::text(&format!("\n{text}"))?;
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
    let page = examination_sheet(examination, PROVABLE);
    let page = sheet::html(page, examination);
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

// What the options of `doctor` ask for, checked before anything is examined.

/// Rates need some time, and a signal ends a long examination.
const DURATION: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_hours(1);

/// How long to look.
///
/// Errors: one sentence about the first option that makes no sense.
pub(super) fn duration(args: &DoctorArgs) -> anyhow::Result<Duration> {
    let text = &args.duration;
    let lasts = parse_time(text).with_context(|| format!("--duration {text}"))?;
    if !DURATION.contains(&lasts) {
        bail!("--duration {text}: write a time from 1s to 1h");
    }
    if let Some(path) = &args.html {
        page(path)?;
    }
    if let Some(name) = args.prove.as_deref().filter(|name| *name != ALL) {
        finding(name)?;
    }
    Ok(lasts)
}

/// Whether the page can be written.
fn page(path: &Path) -> anyhow::Result<()> {
    let option = format!("--html {}", path.display());
    check_place(&option, path)?;
    check_writable(path).context(option)
}

/// Whether the lab can hold this finding.
fn finding(name: &str) -> anyhow::Result<()> {
    if PROVABLE.contains(&name) {
        return Ok(());
    }
    if let Some(why) = why_not(name) {
        bail!("--prove {name}: {why}");
    }
    let list = PROVABLE.join(", ");
    if ids().any(|id| id == name) {
        bail!("--prove {name}: the lab cannot re-create this finding; it can re-create {list}");
    }
    let all: Vec<&str> = ids().collect();
    let meant = did_you_mean(name, &all).map(|meant| format!("; {meant}"));
    let meant = meant.unwrap_or_else(|| ".".to_owned());
    bail!("--prove {name}: no finding has this name{meant} The lab can re-create {list}")
}

// `doctor ssh://HOST`: what can be measured on a host of the user's, and what not, before a run.

/// Where words begin beside a name.
const INDENT: usize = 12;
/// As the other reports.
const WIDTH: usize = 80;

/// Logs in, says what the host allows, and leaves nothing there but the cached program.
fn run_on_host(args: &DoctorArgs, host: &str) -> anyhow::Result<Status> {
    if !host.starts_with(SSH) {
        bail!(
            "{host}: doctor examines this machine, or over ssh another: tcptoll doctor {SSH}HOST; to measure a server: tcptoll connect {host}"
        );
    }
    let address = SshAddress::parse(host).map_err(|why| anyhow::anyhow!("{host}: {why}"))?;
    let defaults = Reach::default();
    let reach = Reach {
        ssh: args.ssh.clone().unwrap_or(defaults.ssh),
        program: args.remote_binary.clone(),
        dead_after: defaults.dead_after,
    };
    let line = StatusLine::new(!args.quiet);
    line.say(&format!("logging in to {address}"));
    let begun = Instant::now();
    let (hello, ready) = examined(&address, &reach, begun)?;
    drop(line);
    let result = if args.format == Format::Json {
        let all =
            json!({ "host": address.to_string(), "ready_s": ready.as_secs_f64(), "agent": hello });
        serde_json::to_string(&all)? + "\n"
    } else {
        text(&address, &hello, ready, args.ssh.as_deref())
    };
    Ok(if printed(&result, args.format) { Status::Met } else { Status::NotStored })
}

/// What the agent says, and how long it took until a host of it was ready.
fn examined(
    address: &SshAddress,
    reach: &Reach,
    begun: Instant,
) -> Result<(Hello, Duration), LabError> {
    let mut agent = Agent::begin(address, reach)?;
    agent.try_host(Part::Server)?;
    Ok((agent.hello.clone(), begun.elapsed()))
}

fn text(address: &SshAddress, hello: &Hello, ready: Duration, ssh: Option<&str>) -> String {
    let passport = &hello.passport;
    let mut rows = vec![
        (
            "machine",
            format!(
                "{}, {}, {} CPUs, {}",
                passport.kernel,
                hello.architecture,
                passport.cpus,
                passport.libc.as_deref().unwrap_or("C library not known")
            ),
        ),
        ("program", format!("tcptoll {}, protocol {}", hello.version, hello.protocol)),
        (
            "address",
            hello.address.map_or_else(
                || "ssh does not tell it: --server-address names it".to_owned(),
                |address| format!("{address}, which ssh uses; --server-address names another"),
            ),
        ),
        ("measures", "latencies, CPU time, kernel counters and sysctls (read only), clocks over UDP".to_owned()),
        (
            "queues",
            hello.no_sock_diag.as_ref().map_or_else(
                || "accept queues of its listeners are seen".to_owned(),
                |why| format!("accept queues are not seen: {why}"),
            ),
        ),
        (
            "its end",
            if hello.own_processes {
                "all that a run begins there ends with it, however it ends: it has a PID namespace of its own"
            } else {
                "the kernel refuses a PID namespace: what a server puts into the background may outlive a kill \
                 of the agent"
            }
            .to_owned(),
        ),
        ("never", "sysctls are not changed, and no packets are dropped or delayed there".to_owned()),
    ];
    if let Some(governor) = passport.governor.as_ref().filter(|governor| *governor != "performance")
    {
        rows.push(("CPU clock", format!("governor {governor}: figures vary with the clock")));
    }
    let line = |text| Shown::line(text, Tone::Plain);
    let mut parts = vec![line(format!("{address} · ready in {:.2} s", ready.as_secs_f64()))];
    parts.extend(
        rows.into_iter()
            .map(|(name, words)| Shown::labelled(format!("  {name}"), INDENT, words, Tone::Plain)),
    );
    let ssh = ssh.map(|ssh| format!(" --ssh '{}'", ssh.replace('\'', "'\\''"))).unwrap_or_default();
    let path = if hello.address.is_none() { " --server-address ADDRESS" } else { "" };
    let next = format!("next: tcptoll connect --server {address}{ssh}{path}");
    parts.extend([Shown::Blank, line(next)]);
    prose::parts(parts, WIDTH)
}
