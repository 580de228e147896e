//! What every conclusion needs: causes with their advice, figures by name, the least and the most of
//! many, sentences, an answer of them, and commands to run next.

use std::collections::BTreeSet;

use tcptoll_core::experiment::spec::CauseSpec;
use tcptoll_core::record::{Arm, Cause, NextStep, Summary};
use tcptoll_core::verdict::names::Names;

/// Arms and comparisons that are stated one by one; of more, the least and the most.
pub(crate) const STATED: usize = 4;

/// Most sentences of an answer; one more, if operations failed.
const SENTENCES: usize = 2;

/// Most characters of an answer.
pub(crate) const ANSWER_MAX: usize = 300;

/// Those of the causes that the arm's evidence supports, in the order of the list; what only follows from another of
/// them says so.
pub(crate) fn supported(arm: &Arm, causes: &[&CauseSpec]) -> Vec<Cause> {
    let mut found: Vec<Cause> = causes.iter().filter_map(|cause| cause.explain(arm)).collect();
    let follows: Vec<Option<&str>> =
        found.iter().map(|cause| root(spec(causes, &cause.id)?, &arm.name, &found)).collect();
    for (cause, root) in found.iter_mut().zip(follows) {
        if let Some(root) = root {
            cause.text += &format!(" This follows from {root}.");
        }
    }
    found
}

fn spec<'c>(all: &[&'c CauseSpec], id: &str) -> Option<&'c CauseSpec> {
    all.iter().copied().find(|spec| spec.id == id)
}

/// What brought a cause about in an arm. None: it stands for itself.
fn root(spec: &CauseSpec, arm: &str, causes: &[Cause]) -> Option<&'static str> {
    let is_found = |root: &&str| causes.iter().any(|cause| cause.id == *root && cause.arm == arm);
    spec.follows.iter().copied().find(is_found)
}

/// Names the causes that the evidence of each arm supports, and what to change against them.
///
/// `proof` says what the same run measured with the change for a cause in place.
pub(crate) fn explain(
    summary: &mut Summary,
    all: &[&CauseSpec],
    proof: impl Fn(&Summary, &str) -> Option<String>,
) {
    summary.causes = summary.arms.iter().flat_map(|arm| supported(arm, all)).collect();
    let stands_for_itself = |spec: &&CauseSpec| {
        let mut own = summary.causes.iter().filter(|cause| cause.id == spec.id);
        own.any(|cause| root(spec, &cause.arm, &summary.causes).is_none())
    };
    let mut found: Vec<&CauseSpec> = all.iter().copied().filter(stands_for_itself).collect();
    found.sort_by_key(|spec| spec.id);
    let advice = found.iter().flat_map(|spec| spec.advice(summary, proof(summary, spec.id)));
    summary.advice = advice.collect();
}

/// The first arm that a cause was found in, of those that it names.
pub(crate) fn ill<'a>(summary: &'a Summary, id: &str) -> Option<&'a Arm> {
    let cause = summary.causes.iter().find(|cause| cause.id == id)?;
    summary.arms.iter().find(|arm| arm.name == cause.arm)
}

/// Whether an arm has a cause.
pub(crate) fn is_ill(summary: &Summary, arm: &Arm, id: &str) -> bool {
    summary.causes.iter().any(|cause| cause.id == id && cause.arm == arm.name)
}

/// Options whose levels differ; an arm without a level has the setting of the run.
pub(crate) fn changed<'a>(a: &'a Arm, b: &'a Arm) -> BTreeSet<&'a str> {
    let all = a.factors.keys().chain(b.factors.keys()).map(String::as_str);
    all.filter(|option| a.factors.get(*option) != b.factors.get(*option)).collect()
}

/// The other arms of the run that differ from `ill` in nothing but these options.
pub(crate) fn variants<'a>(
    summary: &'a Summary,
    ill: &Arm,
    options: &[&str],
) -> impl Iterator<Item = &'a Arm> {
    let alike = move |arm: &&Arm| {
        arm.name != ill.name && changed(arm, ill).iter().all(|option| options.contains(option))
    };
    summary.arms.iter().filter(alike)
}

/// The first of the [`variants`] of an arm that is well: the measured proof of a fix.
pub(crate) fn proven<'a>(
    summary: &'a Summary,
    ill: &Arm,
    options: &[&str],
    well: impl Fn(&Arm) -> bool,
) -> Option<&'a Arm> {
    variants(summary, ill, options).find(|arm| well(arm))
}

/// Whether all operations of an arm succeeded and it has no cause.
pub(crate) fn is_well(summary: &Summary, arm: &Arm) -> bool {
    arm.failure.is_none()
        && arm.ok == arm.attempts
        && summary.causes.iter().all(|cause| cause.arm != arm.name)
}

/// The arm that proves a fix, with all operations successful and no cause.
pub(crate) fn cured<'a>(summary: &'a Summary, ill: &Arm, options: &[&str]) -> Option<&'a Arm> {
    proven(summary, ill, options, |arm| is_well(summary, arm))
}

/// A command worth running next, and why.
pub(crate) fn step(command: &str, why: &str) -> NextStep {
    NextStep { command: command.to_owned(), why: why.to_owned() }
}

/// The commands that explain the causes of a run, each once.
pub(crate) fn explanations(summary: &Summary) -> Vec<NextStep> {
    let mut steps: Vec<NextStep> = Vec::new();
    for cause in &summary.causes {
        let command = format!("tcptoll explain {}", cause.id);
        if steps.iter().all(|step| step.command != command) {
            steps.push(step(&command, "what this cause is, how to detect it, how to fix it"));
        }
    }
    steps
}

/// Operations of an arm that failed by themselves, and not because the run was stopped.
pub(crate) fn failed(arm: &Arm) -> u64 {
    arm.errors.iter().filter(|(class, _)| *class != "interrupted").map(|(_, count)| *count).sum()
}

/// The value of a metric in an arm.
///
/// None: it was not measured.
pub(crate) fn value(arm: &Arm, metric: &str) -> Option<f64> {
    arm.metrics.get(metric).map(|metric| metric.value)
}

/// What is stated of many.
#[derive(Debug, PartialEq)]
pub(crate) enum Excerpt<T> {
    /// All, in their order.
    Each(Vec<T>),
    /// There are too many: the least, the most, and how many there are.
    Ends(T, T, usize),
}

/// All of at most [`STATED`], else the one of the least size and the one of the most.
pub(crate) fn stated<T>(mut all: Vec<T>, size: impl Fn(&T) -> f64) -> Excerpt<T> {
    let count = all.len();
    if count <= STATED {
        return Excerpt::Each(all);
    }
    all.sort_by(|a, b| size(a).total_cmp(&size(b)));
    match (all.pop(), all.into_iter().next()) {
        (Some(most), Some(least)) => Excerpt::Ends(least, most, count),
        (most, _) => Excerpt::Each(most.into_iter().collect()),
    }
}

/// The first of the list, as many as are stated one by one.
pub(crate) fn first_stated<T>(all: &[T]) -> &[T] {
    &all[..all.len().min(STATED)]
}

/// An answer of these sentences, the most important first: at most two of them, three if operations failed, and
/// 300 characters. The first is always part of it, each other one if it has room.
pub(crate) fn answer_of(summary: &Summary, sentences: Vec<String>) -> String {
    let failed = summary.arms.iter().any(|arm| failed(arm) > 0);
    let most = SENTENCES + usize::from(failed);
    let mut chosen: Vec<String> = Vec::new();
    let mut length = 0;
    for sentence in sentences {
        let longer = length + usize::from(length > 0) + sentence.chars().count();
        if chosen.is_empty() || (chosen.len() < most && longer <= ANSWER_MAX) {
            chosen.push(sentence);
            length = longer;
        }
    }
    chosen.join(" ")
}

/// `a, b and c`.
pub(crate) fn enumerated(phrases: &[String]) -> String {
    match phrases {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// The arm before a sentence, where there are several: `With backlog 16, `, `In arm NAME, `.
pub(crate) fn in_arm(arms: &[&Arm], arm: &Arm) -> String {
    Names::new(arms.iter().copied()).with(arm)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::port_causes::LOCAL_PORTS_SCARCE;
    use crate::kit::queue_causes::{ACCEPT_QUEUE_FULL, SYN_QUEUE_FULL};
    use tcptoll_core::record::HostSummary;

    /// An arm whose server counted 7 of each.
    fn counted(name: &str, counters: &[&str]) -> Arm {
        let counters = counters.iter().map(|name| ((*name).to_owned(), 7)).collect();
        let server = HostSummary { counters, ..HostSummary::default() };
        Arm { name: name.to_owned(), server: Some(server), ..Arm::default() }
    }

    #[test]
    fn what_only_follows_from_another_cause_of_its_arm_says_so_and_has_no_advice() {
        let both = counted("a", &["TcpExtListenOverflows", "TcpExtTCPReqQFullDrop"]);
        let all = [&SYN_QUEUE_FULL, &ACCEPT_QUEUE_FULL];
        let mut summary = Summary { arms: vec![both.clone()], ..Summary::default() };
        explain(&mut summary, &all, |_, _| None);
        let [shadow, cause] = summary.causes.as_slice() else { panic!("{:?}", summary.causes) };
        assert!(shadow.text.ends_with(" This follows from accept-queue-full."), "{}", shadow.text);
        assert!(!cause.text.contains("follows from"), "{}", cause.text);
        let advised = |summary: &Summary| {
            summary.advice.iter().map(|one| one.cause.clone()).collect::<Vec<_>>()
        };
        assert_eq!(advised(&summary), ["accept-queue-full"]);
        // In another arm it stands for itself.
        summary.arms.push(counted("b", &["TcpExtTCPReqQFullDrop"]));
        explain(&mut summary, &all, |_, _| None);
        assert_eq!(advised(&summary), ["accept-queue-full", "syn-queue-full"]);
    }

    #[test]
    fn each_cause_has_its_advice_with_proof_and_one_command() {
        let mut short = counted("b", &["TcpExtTCPReqQFullDrop"]);
        short.errors.insert("local-ports".to_owned(), 3);
        let mut summary = Summary {
            arms: vec![counted("a", &["TcpExtTCPReqQFullDrop"]), short],
            ..Summary::default()
        };
        let all = [&LOCAL_PORTS_SCARCE, &SYN_QUEUE_FULL];
        explain(&mut summary, &all, |_, id| id.starts_with("syn").then(|| "seen".to_owned()));
        let causes = summary.causes.iter().map(|cause| (cause.arm.as_str(), cause.id.as_str()));
        assert_eq!(
            causes.collect::<Vec<_>>(),
            [("a", "syn-queue-full"), ("b", "local-ports-scarce"), ("b", "syn-queue-full")],
            "arm after arm, in the order of the list"
        );
        let advice = summary.advice.iter().map(|one| (one.cause.as_str(), one.proof.as_deref()));
        assert_eq!(
            advice.collect::<Vec<_>>(),
            [("local-ports-scarce", None), ("syn-queue-full", Some("seen"))]
        );
        let commands: Vec<String> =
            explanations(&summary).into_iter().map(|step| step.command).collect();
        assert_eq!(
            commands,
            ["tcptoll explain syn-queue-full", "tcptoll explain local-ports-scarce"]
        );
    }

    #[test]
    fn up_to_four_are_stated_in_their_order_and_of_more_the_ends() {
        let numbers_stated = |numbers: &[f64]| stated(numbers.to_vec(), |number| *number);
        assert_eq!(numbers_stated(&[3.0, 1.0, 2.0, 0.0]), Excerpt::Each(vec![3.0, 1.0, 2.0, 0.0]));
        assert_eq!(numbers_stated(&[3.0, 1.0, 2.0, 0.5, 1.5]), Excerpt::Ends(0.5, 3.0, 5));
        assert_eq!(numbers_stated(&[]), Excerpt::Each(Vec::new()));
        // Of equal ones the first is the least and the last is the most.
        let equal: Vec<(u8, f64)> = (0..5).map(|number| (number, 1.0)).collect();
        assert_eq!(stated(equal, |(_, size)| *size), Excerpt::Ends((0, 1.0), (4, 1.0), 5));
    }

    #[test]
    fn an_answer_has_two_sentences_and_a_third_if_something_failed() {
        let sentences = || ["One.", "Two.", "Three.", "Four."].map(str::to_owned).to_vec();
        let mut summary = Summary::default();
        assert_eq!(answer_of(&summary, sentences()), "One. Two.");
        let errors = [("reset".to_owned(), 1)].into();
        summary.arms = vec![Arm { errors, ..Arm::default() }];
        assert_eq!(answer_of(&summary, sentences()), "One. Two. Three.");
        let long = |length| "l".repeat(length);
        let first = answer_of(&summary, vec![long(400), "Two.".to_owned()]);
        assert_eq!(first, long(400), "the first in any case");
        let skipped = answer_of(&summary, vec!["One.".to_owned(), long(296), "Three.".to_owned()]);
        assert_eq!(skipped, "One. Three.");
    }
}
