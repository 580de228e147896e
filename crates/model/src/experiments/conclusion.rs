//! What every conclusion needs: causes with their advice, figures by name, the least and the most of
//! many, sentences, and commands to run next.

use crate::causes;
use crate::causes::spec::CauseSpec;
use crate::record::{Arm, Comparison, NextStep, Summary};
use crate::units::human_count;

/// Arms and comparisons that are stated one by one; of more, the least and the most.
const STATED: usize = 4;

/// Names the causes that the evidence of each arm supports, and what to change against them.
///
/// `proof` says what the same run measured with the change for a cause in place.
pub(super) fn explain(
    summary: &mut Summary,
    all: &[&CauseSpec],
    proof: impl Fn(&Summary, &str) -> Option<String>,
) {
    summary.causes = summary.arms.iter().flat_map(|arm| causes::of(arm, all)).collect();
    let is_found = |spec: &&CauseSpec| summary.causes.iter().any(|cause| cause.id == spec.id);
    let mut found: Vec<&CauseSpec> = all.iter().copied().filter(is_found).collect();
    found.sort_by_key(|spec| spec.id);
    let advice = found.iter().flat_map(|spec| spec.advice(summary, proof(summary, spec.id)));
    summary.advice = advice.collect();
}

/// The first arm of the same run that differs from `ill` in nothing but these options, with all
/// operations successful and no cause: the measured proof of a fix.
pub(super) fn cured<'a>(summary: &'a Summary, ill: &Arm, options: &[&str]) -> Option<&'a Arm> {
    summary.arms.iter().find(|arm| {
        arm.name != ill.name
            && differ_only_in(arm, ill, options)
            && arm.ok == arm.attempts
            && summary.causes.iter().all(|cause| cause.arm != arm.name)
    })
}

/// Whether two arms have the same levels of all other options.
pub(super) fn differ_only_in(a: &Arm, b: &Arm, options: &[&str]) -> bool {
    let others = |arm: &Arm| {
        let mut factors = arm.factors.clone();
        factors.retain(|option, _| !options.contains(&option.as_str()));
        factors
    };
    others(a) == others(b)
}

/// A command worth running next, and why.
pub(super) fn step(command: &str, why: &str) -> NextStep {
    NextStep { command: command.to_owned(), why: why.to_owned() }
}

/// The commands that explain the causes of a run, each once.
pub(super) fn explanations(summary: &Summary) -> Vec<NextStep> {
    let mut steps: Vec<NextStep> = Vec::new();
    for cause in &summary.causes {
        let command = format!("tcptoll explain {}", cause.id);
        if steps.iter().all(|step| step.command != command) {
            steps.push(step(&command, "what it is, how to see it, how to cure it"));
        }
    }
    steps
}

/// The value of a metric in an arm.
///
/// None: it was not measured.
pub(super) fn value(arm: &Arm, metric: &str) -> Option<f64> {
    arm.metrics.get(metric).map(|metric| metric.value)
}

/// What is stated of many.
#[derive(Debug, PartialEq)]
pub(super) enum Stated<T> {
    /// All, in their order.
    Each(Vec<T>),
    /// There are too many: the least, the most, and how many there are.
    Ends(T, T, usize),
}

/// All of at most [`STATED`], else the one of the least size and the one of the most.
pub(super) fn stated<T>(mut all: Vec<T>, size: impl Fn(&T) -> f64) -> Stated<T> {
    let count = all.len();
    if count <= STATED {
        return Stated::Each(all);
    }
    all.sort_by(|a, b| size(a).total_cmp(&size(b)));
    match (all.pop(), all.into_iter().next()) {
        (Some(most), Some(least)) => Stated::Ends(least, most, count),
        (most, _) => Stated::Each(most.into_iter().collect()),
    }
}

/// The first of the list, as many as are stated one by one.
pub(super) fn first_stated<T>(all: &[T]) -> &[T] {
    &all[..all.len().min(STATED)]
}

/// The comparisons of a metric that have a ratio: all, or those of the least and the most ratio.
pub(super) fn comparisons<'a>(summary: &'a Summary, metric: &str) -> Stated<&'a Comparison> {
    let ratio = |comparison: &Comparison| comparison.ratio.filter(|ratio| ratio.is_finite());
    let of_metric =
        |comparison: &&Comparison| comparison.metric == metric && ratio(comparison).is_some();
    let all = summary.comparisons.iter().filter(of_metric).collect();
    stated(all, |comparison| comparison.ratio.unwrap_or(1.0))
}

/// The first letter as a capital.
pub(super) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// The first letter in lower case.
pub(super) fn lower(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

/// An expected count in words: whole from ten on.
pub(super) fn few(count: f64) -> String {
    match count {
        count if count.fract() == 0.0 || count >= 10.0 => human_count(count.round() as u64),
        count if count < 0.01 => format!("{count:.0e}"),
        count => format!("{count:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::causes::ports::LOCAL_PORTS_SCARCE;
    use crate::causes::queues::ACCEPT_QUEUE_FULL;
    use crate::record::HostSummary;

    #[test]
    fn each_cause_has_its_advice_with_proof_and_one_command() {
        let arm = |name: &str| {
            let counters = [("TcpExtListenOverflows".to_owned(), 7)].into();
            let server = HostSummary { counters, ..HostSummary::default() };
            Arm { name: name.to_owned(), server: Some(server), ..Arm::default() }
        };
        let mut short = arm("b");
        short.errors.insert("local-ports".to_owned(), 3);
        let mut summary = crate::answer::tests::summary();
        summary.arms = vec![arm("a"), short];
        let all = [&LOCAL_PORTS_SCARCE, &ACCEPT_QUEUE_FULL];
        explain(&mut summary, &all, |_, id| id.starts_with("accept").then(|| "seen".to_owned()));
        let causes = summary.causes.iter().map(|cause| (cause.arm.as_str(), cause.id.as_str()));
        assert_eq!(
            causes.collect::<Vec<_>>(),
            [("a", "accept-queue-full"), ("b", "local-ports-scarce"), ("b", "accept-queue-full")],
            "arm after arm, in the order of the list"
        );
        let advice = summary.advice.iter().map(|one| (one.cause.as_str(), one.proof.as_deref()));
        assert_eq!(
            advice.collect::<Vec<_>>(),
            [("accept-queue-full", Some("seen")), ("local-ports-scarce", None)]
        );
        let commands: Vec<String> =
            explanations(&summary).into_iter().map(|step| step.command).collect();
        assert_eq!(
            commands,
            ["tcptoll explain accept-queue-full", "tcptoll explain local-ports-scarce"]
        );
    }

    #[test]
    fn up_to_four_are_stated_in_their_order_and_of_more_the_ends() {
        let of = |numbers: &[f64]| stated(numbers.to_vec(), |number| *number);
        assert_eq!(of(&[3.0, 1.0, 2.0, 0.0]), Stated::Each(vec![3.0, 1.0, 2.0, 0.0]));
        assert_eq!(of(&[3.0, 1.0, 2.0, 0.5, 1.5]), Stated::Ends(0.5, 3.0, 5));
        assert_eq!(of(&[]), Stated::Each(Vec::new()));
        // Of equal ones the first is the least and the last is the most.
        let equal: Vec<(u8, f64)> = (0..5).map(|number| (number, 1.0)).collect();
        assert_eq!(stated(equal, |(_, size)| *size), Stated::Ends((0, 1.0), (4, 1.0), 5));
    }

    #[test]
    fn counts_below_ten_keep_their_digits() {
        let words = [0.0, 3.0, 4.25, 27.8, 0.001].map(few);
        assert_eq!(words, ["0", "3", "4.25", "28", "1e-3"]);
    }
}
