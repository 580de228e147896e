//! What went wrong or casts doubt, in lines both reports share: errors by class, kernel counters
//! that speak of loss and full queues, evidence.

use std::collections::BTreeMap;

use serde_json::Value;
use tcptoll_core::printable;
use tcptoll_core::record::{
    Advice, Arm, Cause, Excluded, HostSummary, Points, Verdict, WarningEntry,
};

use crate::run::Failed;
use crate::run::{Own, Run};
use crate::{columns, figures, number};

pub use tcptoll_core::experiment::columns::{errors, ok_of_attempts};

/// Counters that mean trouble when they are not zero, with the names of the kernel.
const TROUBLE: [&str; 10] = [
    "TcpExtTCPSynRetrans",
    "TcpRetransSegs",
    "TcpExtListenOverflows",
    "TcpExtListenDrops",
    "TcpExtTCPReqQFullDrop",
    "TcpExtTCPReqQFullDoCookies",
    "TcpExtSyncookiesSent",
    "TcpExtTCPAbortOnOverflow",
    "TcpExtTCPTimeWaitOverflow",
    "TcpAttemptFails",
];

/// What the two kernels, the wire and the listeners counted that is not as it should be.
pub fn trouble(arm: &Arm, own: &Own) -> Vec<String> {
    let mut lines = Vec::new();
    // Outside of the lab the counters are the whole machine's, and count for a server on it too.
    let is_target = arm.link.is_none() && arm.server.is_none();
    let client = if is_target { "this machine" } else { "client" };
    let hosts = [(client, Some(&arm.client)), ("server", arm.server.as_ref())];
    for (side, host) in hosts {
        let Some(host) = host else { continue };
        let counted: Vec<String> = TROUBLE
            .iter()
            .filter_map(|name| Some((name, host.counters.get(*name).filter(|n| **n != 0)?)))
            .map(|(name, n)| format!("{name} {}", number::count(*n)))
            .collect();
        if !counted.is_empty() {
            // Others there may have had a part, however quiet the machine was before and after.
            let whole = if host.background.is_some() { " (of the whole machine)" } else { "" };
            lines.push(format!("{side}: {}{whole}", counted.join(" · ")));
        }
        lines.extend(full_queues(host).map(|queue| format!("{side}: {queue}")));
    }
    lines.extend((own.trouble)(arm));
    lines.extend(refused_connections(arm));
    if let Some(wire) = &arm.wire {
        let again = wire.client_to_server.retransmission + wire.server_to_client.retransmission;
        if again > 0 {
            let syns = wire.client_to_server.syn;
            // Of the whole trial, as the packets are: with what was opened before the figures began.
            let opened =
                arm.client.counters.get("TcpActiveOpens").and_then(|n| u64::try_from(*n).ok());
            let opened = opened.or(arm.connections_attempted).unwrap_or(arm.attempts);
            let rest = format!(
                "{} SYN for {} opened in all",
                number::count(syns),
                figures::plural(opened, "connection")
            );
            let again = figures::plural(again, "segment");
            lines.push(format!("wire: {again} retransmitted · {rest}"));
        }
    }
    lines
}

/// Connections that were begun and not made.
fn refused_connections(arm: &Arm) -> Option<String> {
    let (tried, made) = arm.connections_attempted.zip(arm.connections_ok)?;
    let lost = tried.saturating_sub(made);
    (lost > 0).then(|| {
        format!(
            "client: {} of {} connections could not be established",
            number::count(lost),
            number::count(tried)
        )
    })
}

/// Listeners whose accept queue was full at least once; a queue of limit n holds n + 1.
fn full_queues(host: &HostSummary) -> impl Iterator<Item = String> {
    let full =
        host.listeners.iter().filter(|l| l.accept_queue_peak > l.accept_queue_limit).map(|l| {
            format!(
                "accept queue full: {} of {} (backlog {} holds {})",
                l.accept_queue_peak,
                u64::from(l.accept_queue_limit) + 1,
                l.accept_queue_limit,
                u64::from(l.accept_queue_limit) + 1
            )
        });
    // In rounds the same listener has another port each time: what is said of it is said once.
    let mut said: Vec<String> = full.collect();
    said.dedup();
    said.into_iter()
}

/// Arms with the same cause that are shown one by one.
const CAUSES_SHOWN: usize = 4;

/// Names of arms that a line lists.
const NAMES_SHOWN: usize = 12;

/// The causes to show, each with what to add in words: of more than four arms with the same cause the
/// first stands for all, and the names of the others follow.
pub fn causes(summary: &Run) -> Vec<(&Cause, Option<String>)> {
    let mut shown: Vec<(&Cause, Option<String>)> = Vec::new();
    for cause in &summary.causes {
        let same: Vec<&str> = summary
            .causes
            .iter()
            .filter(|other| other.id == cause.id)
            .map(|other| other.arm.as_str())
            .collect();
        if same.len() <= CAUSES_SHOWN {
            shown.push((cause, None));
        } else if shown.iter().all(|(known, _)| known.id != cause.id) {
            let others: Vec<&str> = same.into_iter().filter(|arm| *arm != cause.arm).collect();
            shown.push((cause, Some(format!("the same cause in {}", listed(&others)))));
        }
    }
    shown
}

/// A warning to show, with the arms it is about; no names: it is about the run, or there is one arm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Warned {
    /// What it says.
    pub text: String,
    /// Its arms, in words.
    pub arms: Option<String>,
}

/// The warnings to show, in their order. Arms with equal texts share one line. Where more than four
/// texts of one warning differ only by their figures, the first stands for all.
pub(crate) fn warnings(summary: &Run) -> Vec<Warned> {
    let mut lines: Vec<(&WarningEntry, Vec<&str>)> = Vec::new();
    for warning in &summary.warnings {
        let arm = warning.arm.as_deref();
        let is_same = |line: &&mut (&WarningEntry, Vec<&str>)| {
            line.0.id == warning.id
                && line.0.text == warning.text
                && line.0.arm.is_some() == arm.is_some()
        };
        match lines.iter_mut().find(is_same) {
            Some((_, arms)) => arms.extend(arm),
            None => lines.push((warning, arm.into_iter().collect())),
        }
    }
    let of_one = |id: &str| -> Vec<&(&WarningEntry, Vec<&str>)> {
        lines.iter().filter(|(w, arms)| w.id == id && !arms.is_empty()).collect()
    };
    let several = summary.arms.len() > 1;
    let mut shown = Vec::new();
    let mut said: Vec<&str> = Vec::new();
    for (warning, arms) in &lines {
        let id = warning.id.as_str();
        let same = of_one(id);
        let too_many = !arms.is_empty() && same.len() > CAUSES_SHOWN;
        if too_many && said.contains(&id) {
            continue;
        }
        let mut names = listed(arms);
        if too_many {
            said.push(id);
            let others: Vec<&str> =
                same[1..].iter().flat_map(|(_, arms)| arms.iter().copied()).collect();
            names += &format!("; with other figures: {}", listed(&others));
        }
        let arms = (several && !arms.is_empty()).then_some(names);
        shown.push(Warned { text: warning.text.clone(), arms });
    }
    shown
}

/// Names of arms, the first twelve.
fn listed(names: &[&str]) -> String {
    let rest = match names.len().saturating_sub(NAMES_SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{rest}", names[..names.len().min(NAMES_SHOWN)].join(", "))
}

/// Evidence in one line: `TcpExtListenOverflows 2,410 · backlog 16`.
pub fn evidence(evidence: &BTreeMap<String, Value>) -> String {
    let words: Vec<String> =
        evidence.iter().map(|(name, value)| format!("{name} {}", plain(value))).collect();
    words.join(" · ")
}

/// A JSON value as a reader would write it.
pub fn plain(value: &Value) -> String {
    match value {
        Value::Null => number::ABSENT.to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Number(n) => match (n.as_u64(), n.as_i64(), n.as_f64()) {
            (Some(whole), ..) => number::count(whole),
            (None, Some(whole), _) => number::count(whole),
            (None, None, Some(value)) => number::three(value),
            (None, None, None) => n.to_string(),
        },
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        Value::Object(_) => value.to_string(),
    }
}

/// How many attempts failed, over all arms, and of how many.
pub fn failed(summary: &Run) -> (u64, u64) {
    let tried: u64 = summary.arms.iter().map(|arm| arm.attempts).sum();
    let ok: u64 = summary.arms.iter().map(|arm| arm.ok).sum();
    // What a signal stopped has not failed.
    let stopped = summary.arms.iter().filter_map(|arm| arm.errors.get("interrupted")).sum::<u64>();
    (tried.saturating_sub(ok + stopped), tried - stopped.min(tried))
}

/// Ends the reason where no arm has one of its own.
pub(crate) const SEE_WARNINGS: &str = "; see the warnings";

/// Why a run is not valid for its question, an arm a line: `ARM: REASON (3 of 3 trials)`. It stands
/// before the answer, behind `invalid:`. Empty: the run is valid.
pub fn invalid(summary: &Run, own: &Own) -> Vec<String> {
    if summary.valid {
        return Vec::new();
    }
    let several = summary.arms.len() > 1;
    let line = |arm: &Arm| {
        let why =
            invalid_arm(summary, own, arm).or_else(|| too_many_failures(summary, own, arm))?;
        let name = if several { format!("{}: ", arm.name) } else { String::new() };
        Some(format!("{name}{why}"))
    };
    let lines: Vec<String> = summary.arms.iter().filter_map(line).collect();
    if !lines.is_empty() {
        return lines;
    }
    let see = if summary.warnings.is_empty() { "" } else { SEE_WARNINGS };
    vec![format!("the run is not valid for its question{see}")]
}

/// Whether the answer states what failed: it is about one arm, in which nothing succeeded. Answers of
/// older records may be about something else.
fn answer_has_failures(summary: &Run, own: &Own) -> bool {
    let [arm] = summary.arms.as_slice() else { return false };
    let states = |words| summary.answer.contains(words);
    arm.ok == 0 && own.answer_has_failures.is_some_and(states)
}

/// That more of an arm failed than may.
fn too_many_failures(summary: &Run, own: &Own, arm: &Arm) -> Option<String> {
    let is_it = |warning: &&WarningEntry| {
        warning.id == "too-many-failures" && warning.arm.as_ref() == Some(&arm.name)
    };
    summary.warnings.iter().find(is_it).filter(|_| !answer_has_failures(summary, own))?;
    let failed: u64 = arm.errors.values().sum();
    let share = failed as f64 * 100.0 / arm.attempts.max(1) as f64;
    let [failed, all] = [failed, arm.attempts].map(number::count);
    Some(format!("{failed} of {all} operations failed ({} %)", number::three(share)))
}

/// Reasons that are shown for an arm, the most frequent ones.
const REASONS_MAX: usize = 2;

/// Why an arm has nothing that counts; `None`: it has, or the record does not say.
fn invalid_arm(summary: &Run, own: &Own, arm: &Arm) -> Option<String> {
    let mut of_arm: Vec<&Excluded> =
        summary.excluded.iter().filter(|one| one.arm == arm.name).collect();
    let excluded: u32 = of_arm.iter().map(|one| one.trials).sum();
    let all = of_arm.iter().all(|one| one.of == excluded);
    // Of several trials the record says what became of each.
    let none_counts = |arm: &Arm| {
        !arm.rounds.is_empty() && arm.rounds.iter().all(|round| round.left_out.is_some())
    };
    if excluded > 0 && (all || none_counts(arm)) {
        of_arm.sort_by_key(|one| std::cmp::Reverse(one.trials));
        let words = |why: &str, trials: u32, all: u32| {
            format!("{why} ({trials} of {})", figures::plural(u64::from(all), "trial"))
        };
        let (shown, rest) = of_arm.split_at(of_arm.len().min(REASONS_MAX));
        let mut reasons: Vec<String> =
            shown.iter().map(|one| words(&one.reason, one.trials, one.of)).collect();
        reasons.extend(rest.first().map(|first| {
            words("other reasons", rest.iter().map(|one| one.trials).sum(), first.of)
        }));
        return Some(reasons.join("; "));
    }
    if let Some(failure) = &arm.failure {
        return failure.lines().next().map(str::to_owned);
    }
    let tried = arm.attempts > 0 && arm.ok == 0;
    (tried && !answer_has_failures(summary, own)).then(|| {
        let class = arm.errors.iter().max_by_key(|(_, n)| **n);
        let class = class.map(|(class, _)| format!(", most failed with {class}"));
        let tried = number::count(arm.attempts);
        format!("none of {tried} attempts succeeded{}", class.unwrap_or_default())
    })
}

/// What the reader must know before believing a figure, most serious first.
pub(crate) fn verdict_on_run(summary: &Run) -> Vec<String> {
    let mut lines = Vec::new();
    if summary.partial {
        lines.push(match &summary.points {
            None => "The run was stopped before it was complete.".to_owned(),
            Some(points) => partial_points(points),
        });
    }
    let (failed, tried) = failed(summary);
    // Where nothing succeeded the answer says what failed, and there is no figure of successes.
    if failed > 0 && failed < tried {
        let general = |Failed { failed, tried }| {
            let [bad, all, good] = [failed, tried, tried - failed].map(number::count);
            let many = columns::noun(summary).many;
            format!(
                "{bad} of {all} {many} failed. The figures cover only the {good} that succeeded."
            )
        };
        let failed = Failed { failed, tried };
        lines.push(summary.own.failed.map_or_else(|| general(failed), |words| words(failed)));
    }
    lines
}

/// Which points of a merged record are missing or incomplete.
fn partial_points(points: &Points) -> String {
    let stopped = points.points.iter().filter(|point| point.partial).count();
    let left_out = points.points.iter().filter(|point| point.left_out.is_some()).count();
    let counts = [
        (points.missing.len(), "missing"),
        (points.not_merged.len(), "not merged"),
        (stopped, "stopped before its plan was complete"),
        (left_out, "excluded"),
    ];
    let words = counts.into_iter().filter(|(count, _)| *count > 0);
    let words: Vec<String> = words.map(|(count, what)| format!("{count} {what}")).collect();
    if words.is_empty() {
        return "The result is partial: some rounds lack a share of the load.".to_owned();
    }
    format!("The result is partial. Points: {}.", words.join(", "))
}

/// A command line to paste into a shell: arguments that need it are quoted.
pub fn command(arguments: &[String]) -> String {
    arguments.iter().map(|one| printable::shell_argument(one)).collect::<Vec<_>>().join(" ")
}

/// The same, the program by its name, wherever it was.
pub(crate) fn command_by_name(arguments: &[String]) -> String {
    let mut arguments = arguments.to_vec();
    if let Some(program) = arguments.first_mut() {
        *program = program.rsplit('/').next().unwrap_or_default().to_owned();
    }
    command(&arguments)
}

/// What to change first: against the first cause, or what answers the question.
pub(crate) fn fix(run: &Run) -> Option<&Advice> {
    let first = run.causes.first();
    let meant = |advice: &&Advice| first.is_none_or(|cause| cause.id == advice.cause);
    run.advice.iter().find(meant)
}

/// How a run's own figures support an advice: `proven` where a comparison told two arms apart.
pub(crate) fn proof_word(summary: &Run) -> &'static str {
    let told = |verdict| matches!(verdict, Verdict::Higher | Verdict::Lower);
    let proven = summary.comparisons.iter().any(|comparison| told(comparison.verdict));
    if proven { "proven" } else { "seen in this run" }
}

#[cfg(test)]
mod tests {
    use tcptoll_core::record::Summary;

    use super::*;
    use crate::run::NONE;

    fn one_arm() -> Run {
        let arm = Arm { name: "a".to_owned(), attempts: 9, ok: 9, ..Arm::default() };
        Summary { arms: vec![arm], valid: true, ..Summary::default() }.into()
    }

    fn excluded(arm: &str, reason: &str, trials: u32, all: u32) -> Excluded {
        Excluded { arm: arm.to_owned(), reason: reason.to_owned(), lasting: None, trials, of: all }
    }

    #[test]
    fn a_cause_of_many_arms_is_shown_once_with_the_names_of_the_others() {
        let cause = |id: &str, arm: usize| Cause {
            id: id.to_owned(),
            arm: arm.to_string(),
            text: String::new(),
            evidence: BTreeMap::new(),
        };
        let causes = (0..20).map(|arm| cause("often", arm)).chain([cause("rare", 3)]).collect();
        let summary = Run::from(Summary { causes, ..Summary::default() });
        let shown = super::causes(&summary);
        let ids: Vec<&str> = shown.iter().map(|(cause, _)| cause.id.as_str()).collect();
        assert_eq!(ids, ["often", "rare"]);
        let others = shown[0].1.as_deref().unwrap();
        assert!(others.ends_with("11, 12 and 7 more"), "{others}");
        assert_eq!(shown[1].1, None);
        let causes = (0..4).map(|arm| cause("often", arm)).collect();
        let few = Run::from(Summary { causes, ..Summary::default() });
        assert_eq!(super::causes(&few).len(), 4);
    }

    #[test]
    fn equal_warnings_of_several_arms_are_one_line_with_their_names() {
        let entry = |id: &str, arm: Option<usize>, text: &str| WarningEntry {
            about: None,
            id: id.to_owned(),
            arm: arm.map(|arm| format!("arm {arm}")),
            text: text.to_owned(),
        };
        let arms: Vec<Arm> =
            (0..9).map(|at| Arm { name: format!("arm {at}"), ..Arm::default() }).collect();
        let mut warnings = vec![
            entry("late", Some(0), "it was late"),
            entry("steal", None, "CPU time was stolen"),
            entry("late", Some(1), "it was late by 3"),
            entry("late", Some(2), "it was late"),
        ];
        let run = Summary { arms, warnings: warnings.clone(), ..Summary::default() };
        let said = |summary: &Summary| -> Vec<(String, Option<String>)> {
            super::warnings(&Run::from(summary.clone()))
                .into_iter()
                .map(|w| (w.text, w.arms))
                .collect()
        };
        let line = |text: &str, arms: Option<&str>| (text.to_owned(), arms.map(str::to_owned));
        let expected = [
            line("it was late", Some("arm 0, arm 2")),
            line("CPU time was stolen", None),
            line("it was late by 3", Some("arm 1")),
        ];
        assert_eq!(said(&run), expected);
        // Of five texts the first stands for all.
        warnings.extend(
            (3..6).map(|arm| entry("late", Some(arm), &format!("it was late by {arm}{arm}"))),
        );
        let many = Summary { warnings, ..run.clone() };
        let all = "arm 0, arm 2; with other figures: arm 1, arm 3, arm 4, arm 5";
        let expected = [line("it was late", Some(all)), line("CPU time was stolen", None)];
        assert_eq!(said(&many), expected);
        // Of one arm no name is needed.
        let one = Summary { arms: vec![Arm::default()], ..run };
        assert!(super::warnings(&one.into()).iter().all(|warned| warned.arms.is_none()));
    }

    #[test]
    fn an_invalid_run_says_why_by_arm_and_how_often() {
        let mut summary = one_arm();
        assert!(invalid(&summary, &NONE).is_empty());
        summary.summary.valid = false;
        assert_eq!(invalid(&summary, &NONE), ["the run is not valid for its question"]);
        let name = summary.summary.arms[0].name.clone();
        summary.summary.excluded = vec![excluded(&name, "the link was late", 3, 3)];
        assert_eq!(invalid(&summary, &NONE), ["the link was late (3 of 3 trials)"]);
        summary.summary.arms.push(Arm {
            name: "b".to_owned(),
            attempts: 9,
            ok: 9,
            ..Arm::default()
        });
        summary.summary.excluded = vec![
            excluded(&name, "the link was late", 2, 3),
            excluded(&name, "the machine slept", 1, 3),
            // The other arm has trials that count.
            excluded("b", "the link was late", 1, 3),
        ];
        let says =
            format!("{name}: the link was late (2 of 3 trials); the machine slept (1 of 3 trials)");
        assert_eq!(invalid(&summary, &NONE), [says]);
    }

    #[test]
    fn an_arm_of_failures_alone_says_what_most_failed_with() {
        let mut summary = one_arm();
        summary.summary.valid = false;
        summary.summary.arms[0].ok = 0;
        summary.summary.arms[0].attempts = 1_500;
        summary.summary.arms[0].errors = [("timeout".to_owned(), 1_500)].into();
        let says = "none of 1,500 attempts succeeded, most failed with timeout";
        assert_eq!(invalid(&summary, &NONE), [says]);
        let own = Own { answer_has_failures: Some("None of "), ..NONE };
        assert_eq!(invalid(&summary, &own), [says]);
        summary.summary.answer = "None of 1,500 connections succeeded: 1,500 timed out.".to_owned();
        assert_eq!(invalid(&summary, &own), ["the run is not valid for its question"]);
    }

    #[test]
    fn an_argument_cannot_leave_its_quotes() {
        let arguments = ["tcptoll", "--to", "a b;rm", "it's"].map(str::to_owned);
        assert_eq!(command(&arguments), r"tcptoll --to 'a b;rm' 'it'\''s'");
    }
}
