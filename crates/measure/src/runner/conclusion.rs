//! From header and trials to the summary: the same for a run that has just ended, one that was
//! killed, and one that is read again years later.
//!
//! Failures are a result where all of them were allowed (`--allow-errors 100%` is how the question is asked)
//! and the server was reached. A server that cannot be reached stays an error.

use std::collections::{BTreeMap, BTreeSet};

use tcptoll_core::number;
use tcptoll_core::record::{
    Arm, Header, Passport, Place, PlaceKind, RECORD_VERSION, Resumed, Rounds, Summary, Trial,
    WarningEntry,
};
use tcptoll_core::study::FAILURES_ALLOWED;
use tcptoll_core::verdict::answer;
use tcptoll_core::verdict::warning::Warning;
use tcptoll_core::verdict::{bound, compare, consolidate};

use super::schedule::Schedule;
use crate::kit::conclusion::failed;

/// What is known of a run besides its header.
pub(super) struct RunState<'a> {
    /// Its trials, in order of running.
    pub trials: &'a [Trial],
    /// Where it went on.
    pub resumed: &'a [Resumed],
    /// Why it ended, one clause.
    pub stopped: &'a str,
    /// Whether it ended before its plan was done.
    pub partial: bool,
    /// Share of CPU time stolen during the run.
    pub steal: Option<f64>,
}

/// The summary of a run.
pub(super) fn summary(header: &Header, schedule: &Schedule, ended: &RunState<'_>) -> Summary {
    let study = &header.study;
    let arms = consolidate::arms(&schedule.arms, ended.trials);
    let in_rounds = schedule.rule.max > 1;
    let mut summary = outline(header, schedule, arms);
    summary.passport.steal = ended.steal;
    summary.resolved.extend(ended.resumed.iter().flat_map(|resumed| resumed.resolved.clone()));
    summary.primary_metric = in_rounds.then(|| schedule.metric.clone());
    summary.rounds = in_rounds.then(|| rounds(schedule, ended));
    summary.comparisons =
        compare::within(&schedule.pairs, &schedule.arms, ended.trials, schedule.margin);
    summary.warnings = warnings(ended.trials);
    summary.warnings.extend(elsewhere(&header.passport, ended.resumed));
    summary.warnings.extend(compare::doubts(
        &schedule.pairs,
        &schedule.arms,
        ended.trials,
        &schedule.metric,
        schedule.margin,
    ));
    summary.partial = ended.partial;
    summary.excluded = bound::excluded(ended.trials);
    // Every arm of the plan that was run must have something that counts.
    summary.valid = summary.arms.iter().all(|arm| {
        let trials = || ended.trials.iter().filter(|trial| trial.arm.name == arm.name);
        trials().all(|trial| trial.invalid.is_none()) && arm.failure.is_none()
            || trials().any(Trial::counts)
    });
    // The limit of the client alone is an answer, too.
    summary.valid |= bound::limit(&summary).is_some();
    too_many_failures(&mut summary, schedule);
    (schedule.spec.conclude)(&mut summary);
    if let Some(sentence) = &study.answer {
        summary.answer = answer::fill(sentence, &summary, &schedule.metric);
    }
    summary
}

/// A run in which more failed than may is invalid: its figures are of what was left.
fn too_many_failures(summary: &mut Summary, schedule: &Schedule) {
    for arm in &summary.arms {
        let planned = schedule.arms.iter().find(|planned| planned.name == arm.name);
        let allowed = planned.map_or(FAILURES_ALLOWED, |planned| planned.failures_allowed);
        let failed = failed(arm);
        if failed as f64 > arm.attempts as f64 * allowed {
            let warning = Warning::TooManyFailures { failed, all: arm.attempts, allowed };
            summary.warnings.push(warning.entry(Some(&arm.name)));
            summary.valid = false;
        }
    }
}

/// Why a run that came to its end measured nothing; `None`: something was measured, or no arm came to
/// a result. The one rule: an arm is measured if an operation succeeded, or if its failures are the
/// result that was asked for (see [`failures_are_the_result`]).
pub(super) fn nothing(summary: &Summary, schedule: &Schedule) -> Option<String> {
    let arms = || summary.arms.iter().filter(|arm| arm.failure.is_none());
    let measured = |arm: &Arm| arm.ok > 0 || failures_are_the_result(arm, schedule);
    if summary.partial || arms().next().is_none() || arms().any(measured) {
        return None;
    }
    let mut classes: BTreeMap<&str, u64> = BTreeMap::new();
    let attempts: u64 = arms().map(|arm| arm.attempts).sum();
    let before = arms().filter_map(|arm| arm.warmup.as_ref());
    let errors: Vec<_> = if attempts > 0 {
        arms().map(|arm| &arm.errors).collect()
    } else {
        before.clone().map(|warmup| &warmup.errors).collect()
    };
    for (class, count) in errors.into_iter().flatten() {
        *classes.entry(class).or_default() += count;
    }
    let mut classes: Vec<(&str, u64)> = classes.into_iter().collect();
    classes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let all = match attempts {
        0 => before.map(|warmup| warmup.attempts).sum(),
        attempts => attempts,
    };
    let words: Vec<String> = classes
        .iter()
        .map(|(class, count)| {
            format!("{} of {} failed with {class}", number::count(*count), number::count(all))
        })
        .collect();
    let words = words.join(", ");
    Some(match (attempts, words.as_str()) {
        (_, "") => "nothing was measured: no operation began in the measured time".to_owned(),
        (0, words) => format!(
            "nothing was measured: {words} before the measured time, in which no operation began"
        ),
        (_, words) => format!("nothing was measured: {words}"),
    })
}

/// Whether the failures of an arm are its result: all of them are allowed, and its server was reached.
/// The lab checks that its server listens before any load. A server outside was reached if a
/// connection to it was opened.
fn failures_are_the_result(arm: &Arm, schedule: &Schedule) -> bool {
    let Some(at) = schedule.arms.iter().position(|planned| planned.name == arm.name) else {
        return false;
    };
    let in_lab = schedule.plan(at).target().is_none();
    let reached = in_lab || arm.connections_ok.is_some_and(|opened| opened > 0);
    arm.attempts > 0 && schedule.arms[at].failures_allowed >= 1.0 && reached
}

fn rounds(schedule: &Schedule, ended: &RunState<'_>) -> Rounds {
    let count = |wanted: &dyn Fn(&Trial) -> bool| {
        ended.trials.iter().filter(|trial| wanted(trial)).count() as u32
    };
    Rounds {
        done: whole_rounds(schedule.arms.len(), ended.trials),
        most: schedule.rule.max,
        rule: schedule.rule.to_string(),
        stopped: ended.stopped.to_owned(),
        elapsed_s: elapsed_s(ended.trials),
        excluded: count(&|trial| trial.invalid.is_some()),
        failed: count(&|trial| trial.arm.failure.is_some()),
    }
}

/// Time of a run, pauses between resumed parts left out, s.
pub(super) fn elapsed_s(trials: &[Trial]) -> f64 {
    // The sum of nothing is -0.
    trials.iter().map(|trial| trial.took_s).fold(0.0, |sum, took| sum + took)
}

/// Rounds in which every arm has a trial that came to its end.
pub(super) fn whole_rounds(arms: usize, trials: &[Trial]) -> u32 {
    let mut seen: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
    for trial in trials.iter().filter(|trial| !trial.arm.partial) {
        seen.entry(trial.round).or_default().insert(&trial.arm.name);
    }
    seen.values().filter(|names| names.len() == arms).count() as u32
}

/// What header and arms say by themselves.
pub(super) fn outline(header: &Header, schedule: &Schedule, arms: Vec<Arm>) -> Summary {
    let study = &header.study;
    let links: Vec<_> = arms.iter().filter_map(|arm| arm.link.as_ref()).collect();
    let one_link = links
        .first()
        .filter(|first| links.iter().all(|link| link.asked == first.asked))
        .map(|link| link.asked.clone());
    let (kind, target) = place(schedule);
    let remote = arms.iter().any(|arm| arm.path.is_some());
    let kind = if remote { PlaceKind::Remote } else { kind };
    Summary {
        record_version: RECORD_VERSION,
        tcptoll_version: header.tcptoll_version.clone(),
        experiment: study.experiment.clone(),
        study: Some(study.name.clone()).filter(|name| !name.is_empty()),
        question: study.question.clone(),
        answer: String::new(),
        command: header.command.clone(),
        started_at: header.started_at.clone(),
        place: Place { kind, link: one_link, target },
        vantage: header.vantage.clone(),
        resolved: header.resolved.clone(),
        passport: header.passport.clone(),
        primary_metric: None,
        points: None,
        rounds: None,
        arms,
        comparisons: Vec::new(),
        published: study.published.clone(),
        causes: Vec::new(),
        advice: Vec::new(),
        warnings: Vec::new(),
        next: Vec::new(),
        excluded: Vec::new(),
        partial: false,
        valid: true,
    }
}

/// Where trials ran, and the server if it is one for all of them. A run with some of its arms in the
/// lab counts as one in the lab.
fn place(schedule: &Schedule) -> (PlaceKind, Option<String>) {
    let mut targets = schedule.targets();
    let first = targets.next().flatten();
    let mut kind = if first.is_some() { PlaceKind::Target } else { PlaceKind::Lab };
    let mut one = first;
    for target in targets {
        match target {
            None => kind = PlaceKind::Lab,
            Some(target) => one = one.filter(|first| first.typed == target.typed),
        }
    }
    let one = one.filter(|_| kind == PlaceKind::Target);
    (kind, one.map(|target| target.typed.clone()))
}

/// Warnings of trials, each once per arm; what came again is said with its count.
fn warnings(trials: &[Trial]) -> Vec<WarningEntry> {
    let mut first: Vec<(WarningEntry, usize, bool)> = Vec::new();
    for warning in trials.iter().flat_map(|trial| &trial.warnings) {
        match first.iter_mut().find(|(w, ..)| w.id == warning.id && w.arm == warning.arm) {
            Some((w, count, alike)) => {
                *count += 1;
                *alike &= w.text == warning.text;
            }
            None => first.push((warning.clone(), 1, true)),
        }
    }
    first
        .into_iter()
        .map(|(mut warning, count, alike)| {
            match (count, alike) {
                (1, _) => {}
                (_, true) => warning.text += &format!(" (in {count} trials)"),
                (_, false) => {
                    warning.text += &format!(" (figures of the first of {count} such trials)");
                }
            }
            warning
        })
        .collect()
}

/// A run that went on under other conditions than it began.
fn elsewhere(began: &Passport, resumed: &[Resumed]) -> Option<WarningEntry> {
    let mut differs = Vec::new();
    for now in resumed.iter().map(|resumed| &resumed.passport) {
        let pairs = [
            ("kernel", &began.kernel, &now.kernel),
            ("CPU", &began.cpu, &now.cpu),
            ("clock source", &began.clock_source, &now.clock_source),
        ];
        for (what, then, now) in pairs {
            if then != now {
                differs.push(format!("{what} {now} instead of {then}"));
            }
        }
        if began.cpus != now.cpus {
            differs.push(format!("{} CPUs instead of {}", now.cpus, began.cpus));
        }
    }
    differs.dedup();
    (!differs.is_empty())
        .then(|| Warning::ResumedElsewhere { what: differs.join(", ") }.entry(None))
}
