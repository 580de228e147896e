//! `--prove`: findings re-created in the lab, without and with their fix.
//!
//! An examination of another network namespace joins it, and cannot leave it again: a user namespace of
//! another user gives no way back, and no way to make a lab. So the lab belongs to a child process that was
//! started before ([`Prover`]). It reads the findings, runs one study after the other ([`lab`]), and writes
//! each proof as one line of JSON. The end of its input stops it.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use signal_hook::consts::SIGTERM;

use crate::exit::{Status, say};
use crate::output;
use tcptoll_core::finding::Finding;
use tcptoll_lab::lab::Interrupt;
use tcptoll_live::doctor::{Filled, Proof, ProofVerdict, Template, failures, judge, prove_command};
use tcptoll_measure::experiments::SPECS;
use tcptoll_measure::runner::{Run, Schedule};

/// What `--prove` without a name means.
pub(super) const ALL: &str = "all";
/// Longest list of findings, and longest proof, that one process takes from the other.
const MESSAGE_MAX: u64 = 4 << 20;
/// How often a signal is looked for.
const LOOK: Duration = Duration::from_millis(100);

/// What is to be proven.
#[derive(Serialize, Deserialize)]
struct Request {
    findings: Vec<Finding>,
    /// The network namespace in which they were found, if another one was asked for.
    netns: Option<String>,
    quiet: bool,
}

/// The process that has the lab.
pub(super) struct Prover {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
}

impl Prover {
    /// Must be called before the examination.
    ///
    /// Errors: this program cannot be started again.
    pub(super) fn start() -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("--prove: this program's own file")?;
        let mut child = Command::new(program)
            .arg(COMMAND)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("--prove: this program cannot be started again")?;
        let both = child.stdin.take().zip(child.stdout.take());
        let (stdin, stdout) = both.context("--prove: a child without pipes")?;
        Ok(Self { child, stdin: Some(stdin), stdout })
    }

    /// Re-creates those of these findings that are called `which`, or each that there is; hands each proof
    /// to `shown` as soon as it is there. Of findings with one name the first is taken.
    ///
    /// When `stopped` says so it ends with the proofs so far.
    pub(super) fn prove(
        mut self,
        findings: &[Finding],
        which: &str,
        netns: Option<&str>,
        quiet: bool,
        stopped: &dyn Fn() -> bool,
        shown: &mut dyn FnMut(&Proof) -> anyhow::Result<()>,
    ) -> anyhow::Result<Vec<Proof>> {
        let request =
            Request { findings: chosen(findings, which), netns: netns.map(str::to_owned), quiet };
        if let Some(stdin) = &mut self.stdin {
            let line = serde_json::to_string(&request)? + "\n";
            stdin.write_all(line.as_bytes()).context("--prove: the process of the lab ended")?;
        }
        let (send, receive) = mpsc::sync_channel(1);
        let stdout = self.stdout;
        std::thread::Builder::new().name("proofs".to_owned()).spawn(move || {
            let mut lines = BufReader::new(stdout);
            loop {
                let line = line(&mut lines);
                let ended = !matches!(line, Ok(Some(_)));
                if send.send(line).is_err() || ended {
                    return;
                }
            }
        })?;
        let mut proofs = Vec::new();
        loop {
            match receive.recv_timeout(LOOK) {
                Ok(Ok(Some(line))) => {
                    let proof: Proof = serde_json::from_str(&line)
                        .context("--prove: the process of the lab wrote an invalid proof")?;
                    shown(&proof)?;
                    proofs.push(proof);
                }
                Ok(Ok(None)) | Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Ok(Err(error)) => return Err(error).context("--prove: the process of the lab"),
                // Without its input it stops with what it has.
                Err(mpsc::RecvTimeoutError::Timeout) if stopped() => drop(self.stdin.take()),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
        }
        drop(self.stdin.take());
        let status = self.child.wait().context("--prove: the process of the lab")?;
        if !status.success() && !stopped() {
            bail!("--prove: the process of the lab ended with {status}");
        }
        Ok(proofs)
    }

    /// Nothing is to be proven after all.
    pub(super) fn dismiss(mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

/// A line of at most [`MESSAGE_MAX`]; none: the other side ended.
fn line(from: &mut impl BufRead) -> anyhow::Result<Option<String>> {
    let mut text = String::new();
    let read = from.by_ref().take(MESSAGE_MAX).read_line(&mut text)?;
    match (read, text.ends_with('\n')) {
        (0, _) => Ok(None),
        (_, true) => Ok(Some(text)),
        _ => bail!("a line that does not end"),
    }
}

/// Of each name the first: it is the most pressing one.
fn chosen(findings: &[Finding], which: &str) -> Vec<Finding> {
    let mut chosen: Vec<Finding> = Vec::new();
    for one in findings {
        let wanted = which == ALL || one.id == which;
        if wanted && !chosen.iter().any(|known| known.id == one.id) {
            chosen.push(one.clone());
        }
    }
    chosen
}

// The child process of `--prove`: it reads findings, and runs one study after the other in the lab.

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
    let Some(line) = line(&mut input)? else { return Ok(Status::Met) };
    let request: Request = serde_json::from_str(&line).context("the findings to prove")?;
    let interrupt = output::on_signals()?;
    let flag = interrupt.flag();
    std::thread::Builder::new().name("input".to_owned()).spawn(move || {
        let _ = std::io::copy(&mut input.take(MESSAGE_MAX), &mut std::io::sink());
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
fn prove(finding: &Finding, request: &Request, interrupt: &Interrupt) -> Proof {
    let begun = Instant::now();
    let mut proof =
        Proof { finding: finding.id.clone(), subject: finding.subject.clone(), ..Proof::default() };
    let template = match find(finding) {
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
    if let Some(time) = Schedule::from_study(&study).ok().and_then(|plan| output::expected(&plan))
        && !request.quiet
    {
        say(&format!("proving {}: {time}", finding.id));
    }
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

// How each finding is re-created in the lab, or why it cannot be: one file a fault.

/// Name and text of each file of `studies/doctor`. The first that fits a finding is taken.
const TEMPLATES: &[(&str, &str)] = &[
    ("accept-queue-lasting.toml", include_str!("../../studies/doctor/accept-queue-lasting.toml")),
    ("accept-queue-standing.toml", include_str!("../../studies/doctor/accept-queue-standing.toml")),
    ("accept-queue.toml", include_str!("../../studies/doctor/accept-queue.toml")),
    ("backlog.toml", include_str!("../../studies/doctor/backlog.toml")),
    ("buffers.toml", include_str!("../../studies/doctor/buffers.toml")),
    ("close-race.toml", include_str!("../../studies/doctor/close-race.toml")),
    ("conntrack.toml", include_str!("../../studies/doctor/conntrack.toml")),
    ("keepalive.toml", include_str!("../../studies/doctor/keepalive.toml")),
    ("memory.toml", include_str!("../../studies/doctor/memory.toml")),
    ("port-range.toml", include_str!("../../studies/doctor/port-range.toml")),
    ("ports-time-wait.toml", include_str!("../../studies/doctor/ports-time-wait.toml")),
    ("ports.toml", include_str!("../../studies/doctor/ports.toml")),
    ("retransmissions.toml", include_str!("../../studies/doctor/retransmissions.toml")),
    ("syn-queue.toml", include_str!("../../studies/doctor/syn-queue.toml")),
    ("syn-queue-cookies.toml", include_str!("../../studies/doctor/syn-queue-cookies.toml")),
    ("time-wait-overflow.toml", include_str!("../../studies/doctor/time-wait-overflow.toml")),
    ("tw-reuse.toml", include_str!("../../studies/doctor/tw-reuse.toml")),
    ("upstream.toml", include_str!("../../studies/doctor/upstream.toml")),
    ("unclosed.toml", include_str!("../../studies/doctor/unclosed.toml")),
    ("held-workers.toml", include_str!("../../studies/doctor/held-workers.toml")),
    ("workers-too-few.toml", include_str!("../../studies/doctor/workers-too-few.toml")),
];

/// Findings that the lab can hold.
pub(crate) const PROVABLE: &[&str] = &[
    "accept-queue-full",
    "accept-queue-near",
    "backlog-not-in-effect",
    "backlog-over-somaxconn",
    "buffers-over-cap",
    "close-race",
    "keepalive-beyond-nat",
    "local-ports-scarce",
    "port-range-too-small",
    "ports-search-slow",
    "syn-queue-full",
    "tw-reuse-loopback-only",
    "upstream-not-reused",
];

/// All templates, in their order.
///
/// Errors: a file is wrong, which a test rules out.
fn all() -> impl Iterator<Item = anyhow::Result<Template>> {
    TEMPLATES.iter().map(|(name, text)| {
        Template::from_toml(text).map_err(|why| anyhow::anyhow!("studies/doctor/{name}: {why}"))
    })
}

/// How to re-create a finding; none: nobody has thought of it.
pub(super) fn find(finding: &Finding) -> anyhow::Result<Option<Template>> {
    all().find(|one| one.as_ref().map_or(true, |template| template.fits(finding))).transpose()
}

/// Why the lab cannot hold a finding of this name; none: it can, or there is no such finding.
pub(crate) fn why_not(id: &str) -> Option<String> {
    let mut of_id = all().filter_map(Result::ok).filter(|one| one.findings.iter().any(|f| f == id));
    if PROVABLE.contains(&id) { None } else { of_id.next()?.cannot }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    use serde_json::json;

    use tcptoll_core::experiment::spec::Better;
    use tcptoll_core::finding::Severity;
    use tcptoll_live::doctor::rules::ids;
    use tcptoll_measure::experiments;

    fn finding(id: &str, subject: &str) -> Finding {
        Finding {
            id: id.into(),
            severity: Severity::Problem,
            subject: subject.into(),
            text: String::new(),
            evidence: std::collections::BTreeMap::new(),
            remedies: Vec::new(),
        }
    }

    #[test]
    fn of_findings_with_one_name_the_first_is_proven() {
        let all = [finding("a", "1"), finding("b", "2"), finding("a", "3")];
        let names = |which: &str| -> Vec<String> {
            chosen(&all, which).into_iter().map(|one| one.subject).collect()
        };
        assert_eq!(names(ALL), ["1", "2"]);
        assert_eq!(names("b"), ["2"]);
        assert_eq!(names("c"), [""; 0]);
    }

    #[test]
    fn a_line_that_does_not_end_is_refused() {
        assert_eq!(line(&mut "".as_bytes()).unwrap(), None);
        assert_eq!(line(&mut "{}\nrest".as_bytes()).unwrap().as_deref(), Some("{}\n"));
        assert!(line(&mut "{}".as_bytes()).is_err());
        let long = vec![b'x'; MESSAGE_MAX as usize + 1];
        assert!(line(&mut long.as_slice()).is_err());
    }

    /// A finding with evidence of every kind that a template takes.
    fn finding_with(id: &str, figure: u64) -> Finding {
        let evidence = [
            ("accept_queue_limit", json!(figure)),
            ("backlog", json!(figure.saturating_mul(4))),
            ("local_ports", json!(figure)),
            ("ports_in_use", json!(figure / 10 * 9)),
            ("time_wait", json!(figure / 10 * 9)),
            ("tcp_syncookies", json!(0)),
        ];
        Finding {
            id: id.into(),
            severity: Severity::Problem,
            subject: "10.0.0.7:80".into(),
            text: "it is so".into(),
            evidence: evidence.map(|(name, value)| (name.to_owned(), value)).into(),
            remedies: Vec::new(),
        }
    }

    #[test]
    fn every_finding_has_a_study_or_a_sentence_why_not() {
        let templates: Vec<Template> = all().collect::<Result<_, _>>().unwrap();
        let named: BTreeSet<&str> =
            templates.iter().flat_map(|one| one.findings.iter().map(String::as_str)).collect();
        assert_eq!(named, ids().collect::<BTreeSet<_>>());
        for id in ids() {
            let template = find(&finding_with(id, 100)).unwrap().unwrap();
            assert_eq!(template.cannot.is_none(), PROVABLE.contains(&id), "{id}");
            assert_eq!(why_not(id).is_none(), PROVABLE.contains(&id), "{id}");
        }
        assert!(PROVABLE.is_sorted());
    }

    #[test]
    fn every_study_is_right_with_the_smallest_and_the_largest_figures_and_ends_in_time() {
        for id in PROVABLE {
            for figure in [0, 1, 7, 128, 4_096, 28_232, u64::MAX] {
                for evidence in ["all", "little", "lasting"] {
                    let mut finding = finding_with(id, figure);
                    if evidence == "lasting" {
                        finding.evidence.insert("overload".into(), json!("lasting"));
                    }
                    if evidence == "little" {
                        finding.evidence.retain(|name, _| name == "tcp_syncookies");
                        finding.evidence.insert("time_wait".into(), json!(9));
                        finding.evidence.insert("ports_in_use".into(), json!(10));
                    }
                    let Some(template) = find(&finding).unwrap() else {
                        panic!("{id} with {figure}: nothing fits")
                    };
                    if template.cannot.is_some() {
                        continue;
                    }
                    let Filled { study, scaled } = template.fill(&finding).unwrap();
                    // The lab is never this machine: a proof says what differs.
                    assert!(!scaled.is_empty(), "{id} with {figure}");
                    assert!(scaled.iter().all(|one| !one.contains('$')), "{scaled:?}");
                    let mut schedule = Schedule::from_study(&study).unwrap();
                    schedule.prepare().unwrap_or_else(|error| panic!("{id} {figure}: {error}"));
                    let whole_s = schedule.round_s() * f64::from(schedule.rule.max);
                    // A run stops after 50 s, and a proof may take 60 s.
                    assert!(whole_s < 45.0, "{id} with {figure}: {whole_s} s");
                    let (fault, fixes) = schedule.arms.split_first().unwrap();
                    assert_eq!(fault.name, "as it is");
                    assert_eq!(schedule.pairs.len(), fixes.len(), "each fix next to the fault");
                    assert!(schedule.pairs.iter().all(|pair| pair.b == 0 && pair.a > 0), "{id}");
                    let spec = experiments::find(&study.experiment).unwrap();
                    let metric = spec.metrics.iter().find(|one| one.name == schedule.metric);
                    assert!(metric.is_some_and(|one| one.better != Better::Neither), "{id}");
                    assert!(study.answer.is_some_and(|answer| !answer.contains('$')), "{id}");
                    assert!(!study.question.contains('$'), "{id}");
                }
            }
        }
    }

    #[test]
    fn a_lasting_overload_is_proven_with_a_server_that_accepts_faster() {
        let arms = |finding: &Finding| -> Vec<String> {
            let study = find(finding).unwrap().unwrap().fill(finding).unwrap().study;
            study.arms().unwrap().into_iter().map(|arm| arm.name).collect()
        };
        let mut full = finding_with("accept-queue-full", 100);
        assert_eq!(arms(&full), ["as it is", "longer queue"]);
        full.evidence.insert("overload".into(), json!("lasting"));
        assert_eq!(arms(&full), ["as it is", "accepts faster"]);
    }

    #[test]
    fn the_burst_of_a_proof_is_what_the_guide_says() {
        let full = finding_with("accept-queue-full", 100);
        let study = find(&full).unwrap().unwrap().fill(&full).unwrap().study;
        assert_eq!(study.arms().unwrap()[0].settings["count"], 2 * 100 + 100);
        let guide = include_str!("../../../../docs/guide/prove.md");
        assert!(guide.contains("a burst of twice the queue's limit plus 100"), "{guide}");
    }

    #[test]
    fn a_finding_that_nobody_knows_has_no_template() {
        let unknown = Finding { evidence: BTreeMap::new(), ..finding_with("no-such-fault", 1) };
        assert!(find(&unknown).unwrap().is_none());
        assert_eq!(why_not("no-such-fault"), None);
    }
}
