//! What follows from the arms of `worker-pool`: the answer, causes, advice, what next.

use crate::kit::conclusion::{explain, explanations, step};
use tcptoll_core::record::{NextStep, Summary};
use tcptoll_core::units::{human_count, human_us};

use super::effects::{Factor, PoolArm, digits, plainest, workers};
use super::{BACKEND, causes};

/// Arms whose effect is stated one by one; of more, the best and the worst.
const STATED: usize = 3;

/// Fills in what follows from the arms.
pub(super) fn conclude(summary: &mut Summary) {
    explain(summary, causes::ALL, |_, _| None);
    summary.answer = answer(summary);
    summary.next = next(summary);
}

fn answer(summary: &Summary) -> String {
    let told: Vec<PoolArm<'_>> =
        summary.arms.iter().filter_map(PoolArm::from_arm).filter(|told| told.arm.ok > 0).collect();
    let Some(first) = told.first() else { return "No request succeeded.".to_owned() };
    let stuck = plainest(&told);
    let mut sentences = match stuck {
        Some(stuck) => {
            let mut sentences = vec![avalanche(summary, &told, stuck)];
            sentences.extend(others(summary, &told, stuck));
            sentences
        }
        None => calm(told.iter().copied().find(|told| told.busy().is_some()).unwrap_or(*first)),
    };
    sentences.splice(1..1, too_short(summary));
    // The verdicts of comparisons stand before them.
    sentences.truncate(if summary.comparisons.is_empty() { 3 } else { 2 });
    sentences.join(" ")
}

/// Calls that failed because connecting takes longer than the connect timeout.
fn too_short(summary: &Summary) -> Option<String> {
    let cause = summary.causes.iter().find(|cause| cause.id == causes::CONNECT_TIMEOUT_SHORT.id)?;
    let arm = summary.arms.iter().find(|arm| arm.name == cause.arm)?;
    let group = PoolArm::from_arm(arm)?.pool.groups.get(BACKEND)?;
    Some(format!(
        "{} of {} requests that need the backend fail in {}: its connect timeout is shorter than \
         the round trip.",
        human_count(group.errors.values().sum()),
        human_count(group.attempts),
        arm.name
    ))
}

/// `20 of 20 workers wait for redis (expected: 20)`.
fn waiting(told: PoolArm<'_>) -> Option<String> {
    let pool = told.pool;
    let expected = told.expected_words();
    Some(format!(
        "{} of {} workers wait for {}{expected}",
        workers(told.busy()?),
        pool.workers,
        pool.backend
    ))
}

/// By how much requests that never call the backend are slower, and how many workers wait.
fn avalanche(summary: &Summary, all: &[PoolArm<'_>], stuck: PoolArm<'_>) -> String {
    let healthy = all.iter().copied().find(|told| told.pool.stalled_s.is_none());
    let against =
        healthy.and_then(|healthy| Factor::between(summary, stuck, healthy).map(|f| (f, healthy)));
    let waiting = waiting(stuck).map_or_else(String::new, |waiting| format!(": {waiting}"));
    let subject = "Requests that never call the backend";
    match (against, stuck.slowed()) {
        (Some((factor, healthy)), _) => format!(
            "{} has {} the latency of {}{} for requests that never call the backend{waiting}.",
            stuck.arm.name,
            factor.times(),
            healthy.arm.name,
            factor.interval()
        ),
        (None, Some(slowed)) => format!(
            "{subject} take {}× as long during the stall, {} instead of {}{waiting}.",
            digits(slowed.factor()),
            human_us(slowed.during_us),
            human_us(slowed.before_us)
        ),
        (None, None) => format!("{subject} fail or wait during the stall{waiting}."),
    }
}

/// The latency of the other arms with a stall, relative to the stuck one.
fn others(summary: &Summary, all: &[PoolArm<'_>], stuck: PoolArm<'_>) -> Option<String> {
    let mut found: Vec<(&str, Factor)> = all
        .iter()
        .filter(|told| told.pool.stalled_s.is_some() && told.arm.name != stuck.arm.name)
        .filter_map(|told| Some((told.arm.name.as_str(), Factor::between(summary, stuck, *told)?)))
        .collect();
    found.sort_by(|a, b| b.1.ratio.total_cmp(&a.1.ratio));
    let many = found.len() > STATED;
    let count = found.len();
    if many {
        found = vec![*found.first()?, *found.last()?];
    }
    let name = &stuck.arm.name;
    match found.as_slice() {
        [] => None,
        [(best, low), (worst, high)] if many => Some(format!(
            "Of {count} changes to {name}, {best} has the lowest latency without backend calls \
             ({}), {worst} the highest ({}).",
            low.lower(),
            high.lower()
        )),
        all => {
            let each: Vec<String> =
                all.iter().map(|(name, factor)| format!("{} in {name}", factor.lower())).collect();
            let each = each.join(", ");
            Some(format!("Compared with {name}, latency without backend calls is {each}."))
        }
    }
}

/// In every arm workers were free.
fn calm(told: PoolArm<'_>) -> Vec<String> {
    match (waiting(told), told.slowed(), told.local_us()) {
        (Some(waiting), Some(slowed), _) => {
            let waiting = waiting.replace(" wait for ", " are busy during the stall of ");
            let latency = format!(
                "Requests that never call it take {} during the stall and {} before.",
                human_us(slowed.during_us),
                human_us(slowed.before_us)
            );
            vec![waiting + ".", latency]
        }
        (_, _, Some(us)) => {
            let us = human_us(us);
            vec![format!("Requests that never call the backend take {us} without a stall.")]
        }
        _ => vec!["No request without a call of the backend succeeded.".to_owned()],
    }
}

fn next(summary: &Summary) -> Vec<NextStep> {
    let mut steps = explanations(summary);
    if summary.study.is_some() {
        return steps;
    }
    let told: Vec<PoolArm<'_>> = summary.arms.iter().filter_map(PoolArm::from_arm).collect();
    let tried = |option: &str| summary.arms.iter().any(|arm| arm.factors.contains_key(option));
    let stuck_connecting = |told: &PoolArm<'_>| told.is_stuck() && told.connects_waited();
    if told.iter().any(stuck_connecting) && !tried("connect-timeout") {
        steps.push(step(
            "tcptoll worker-pool --connect-timeout none,100ms",
            "what a connect timeout changes, compared in rounds",
        ));
    }
    if told.iter().all(|told| told.pool.front != "php-fpm") {
        steps.push(step(
            "tcptoll worker-pool --front php-fpm --workers 100 --stall 0,2s",
            "the same with PHP-FPM behind nginx",
        ));
    }
    steps.push(step("tcptoll study avalanche-2021", "all remedies, compared with each other"));
    steps
}

#[cfg(test)]
mod tests {
    use super::super::tests::{arm, summary};
    use super::*;
    use tcptoll_core::record::Arm;

    fn concluded(arms: Vec<Arm>, compared: &[(&str, &str)]) -> Summary {
        let mut summary = summary(arms, compared);
        conclude(&mut summary);
        summary
    }

    fn healthy() -> Arm {
        let mut arm = arm("healthy", 0.0, 500.0);
        let pool = arm.own.worker_pool.as_mut().unwrap();
        (pool.stalled_s, pool.stuck_measured, pool.stuck_expected) = (None, None, None);
        arm
    }

    #[test]
    fn the_answer_begins_with_the_factor_and_its_interval() {
        let arms =
            vec![arm("as published", 20.0, 800e3), healthy(), arm("connect time-out", 10.0, 510.0)];
        let all =
            concluded(arms, &[("as published", "healthy"), ("connect time-out", "as published")]);
        assert_eq!(
            all.answer,
            "as published has 641× the latency of healthy (95 % CI 512–801) for requests that \
             never call the backend: 20 of 20 workers wait for redis (expected: 20). Compared with \
             as published, latency without backend calls is 636× lower (95 % CI 508–794) in \
             connect time-out."
        );
        assert!(all.answer.chars().count() <= 400);
        assert_eq!(all.causes[0].id, "workers-stuck");
        assert!(all.advice[0].proof.is_none(), "its factors name no fix");
    }

    #[test]
    fn one_arm_is_held_against_itself_before_the_stall() {
        let one = concluded(vec![arm("worker-pool", 20.0, 800e3)], &[]);
        assert_eq!(
            one.answer,
            "Requests that never call the backend take 1,600× as long during the stall, 800 ms \
             instead of 500 µs: 20 of 20 workers wait for redis (expected: 20)."
        );
        let commands: Vec<&str> = one.next.iter().map(|step| step.command.as_str()).collect();
        assert_eq!(commands[0], "tcptoll explain workers-stuck");
        assert!(commands.contains(&"tcptoll worker-pool --connect-timeout none,100ms"));
    }

    #[test]
    fn where_workers_are_left_the_answer_says_how_many_were_busy() {
        let calm = concluded(vec![arm("a", 10.0, 510.0)], &[]);
        assert_eq!(
            calm.answer,
            "10 of 20 workers are busy during the stall of redis (expected: 20). Requests that \
             never call it take 510 µs during the stall and 500 µs before."
        );
        assert!(calm.causes.is_empty() && calm.advice.is_empty());
        let healthy = concluded(vec![healthy()], &[]);
        assert!(healthy.answer.ends_with("without a stall."), "{}", healthy.answer);
        assert_eq!(concluded(Vec::new(), &[]).answer, "No request succeeded.");
    }

    #[test]
    fn of_many_changes_the_best_and_the_worst_are_stated() {
        let mut arms = vec![arm("stalled", 20.0, 800e3)];
        for n in 0..8 {
            let busy = if n < 4 { 10.0 } else { 20.0 };
            let mut next = arm(&format!("change {n}"), busy, 600.0 + f64::from(n) * 90e3);
            let name = super::super::LOCAL_LATENCY_MEAN.name;
            next.metrics.get_mut(name).unwrap().value = 600.0 + f64::from(n) * 40e3;
            arms.push(next);
        }
        let all = concluded(arms, &[]);
        assert!(
            all.answer.contains(
                "change 0 has the lowest latency without backend calls (534× lower), change 7 the \
                 highest (1.14× lower)."
            ),
            "{}",
            all.answer
        );
        assert!(all.answer.chars().count() <= 400);
    }
}
