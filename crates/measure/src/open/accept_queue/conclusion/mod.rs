//! What follows from the arms of `accept-queue`: the answer, causes, advice, what next.

use super::advice::{self, ill, is_ill, overflow};
use super::columns::listener;
use crate::kit::causes::queues::overflow::{Overflow, hit_by};
use crate::kit::conclusion::{answer_of, explain, explanations, in_arm, step};
use tcptoll_core::experiment::figures::FIRST_BYTE;
use tcptoll_core::record::{Arm, NextStep, Summary};
use tcptoll_core::units::{human_count, human_share, human_us};
use tcptoll_core::verdict::effective::same_effective;

/// Fills in what follows from the arms.
pub(super) fn conclude(summary: &mut Summary) {
    explain(summary, super::SPEC.causes, |_, _| None);
    let answers = advice::advise(summary);
    // Advice with a proof of this run replaces the general one for the same cause.
    summary.advice.retain(|general| answers.iter().all(|other| other.cause != general.cause));
    summary.advice.splice(0..0, answers);
    summary.answer = answer(summary);
    for option in ["backlog", "somaxconn"] {
        let same = same_effective(&summary.arms, option, |arm| {
            Some(format!(
                "{} (the smaller of backlog and net.core.somaxconn)",
                listener(arm)?.limit
            ))
        });
        summary.warnings.extend(same.iter().map(|warning| warning.entry(None)));
    }
    summary.next = next(summary);
}

fn answer(summary: &Summary) -> String {
    let measured: Vec<&Arm> =
        summary.arms.iter().filter(|arm| arm.failure.is_none() && arm.attempts > 0).collect();
    if measured.is_empty() {
        return "Nothing was measured.".to_owned();
    }
    let mut sentences = Vec::new();
    match ill(summary) {
        Some((arm, well)) => {
            let several = measured.len() > 1;
            sentences.extend(hit(arm, several));
            sentences.extend(well.and_then(|well| spared(arm, well)));
            if well.is_none() {
                sentences.extend(told(arm));
            }
        }
        None => sentences.extend(healthy(&measured)),
    }
    if sentences.is_empty() {
        sentences.push(format!(
            "{}{} of {} connections succeeded.",
            in_arm(measured.len() > 1, measured[0]),
            human_count(measured[0].ok),
            human_count(measured[0].attempts)
        ));
    }
    answer_of(summary, sentences)
}

/// `246 of 500 connections (49 %) waited for a retransmission: the accept queue was full.`
fn hit(arm: &Arm, several: bool) -> Option<String> {
    let queue = listener(arm)?;
    let hit = hit_by(arm)?;
    let share = human_share(hit as f64 / arm.attempts as f64);
    let failed = arm.attempts - arm.ok;
    let what = match failed {
        0 => "waited for a retransmission".to_owned(),
        failed if failed == hit => "failed".to_owned(),
        failed => format!("waited for a retransmission or failed ({} failed)", human_count(failed)),
    };
    let how = match overflow(arm) {
        Some(Overflow::Rare) => ", but only rarely",
        Some(Overflow::Lasting) => " most of the time",
        _ => "",
    };
    Some(format!(
        "{}{} of {} connections ({share}) {what}: the accept queue (limit {}) was full{how}.",
        in_arm(several, arm),
        human_count(hit),
        human_count(arm.attempts),
        human_count(u64::from(queue.limit))
    ))
}

/// The arm that shows the fix.
fn spared(ill: &Arm, well: &Arm) -> Option<String> {
    let max = |arm: &Arm| arm.histograms.get(FIRST_BYTE.name).and_then(|h| h.max);
    let mut text = format!(
        "In arm {}, all {} received their first byte within {}",
        well.name,
        human_count(well.ok),
        human_us(max(well)?)
    );
    if let Some(before) = max(ill).filter(|before| Some(*before) > max(well)) {
        text += &format!(" instead of {}", human_us(before));
    }
    Some(text + ".")
}

/// Which errors clients got, and when.
fn told(arm: &Arm) -> Option<String> {
    let queues = arm.own.queues.as_deref()?;
    let outcome_of = |class: &str| queues.outcomes.get(class).filter(|outcome| outcome.count > 0);
    let mut parts = Vec::new();
    if let Some(reset) = outcome_of("reset") {
        parts.push(format!(
            "{} were reset after {} (median)",
            human_count(reset.count),
            human_us(reset.p50_us)
        ));
    }
    let silent: Vec<_> =
        ["connect-timeout", "timeout"].iter().filter_map(|class| outcome_of(class)).collect();
    if let Some(last) = silent.iter().map(|outcome| outcome.max_us).reduce(f64::max) {
        let count: u64 = silent.iter().map(|outcome| outcome.count).sum();
        parts.push(format!(
            "{} timed out without a response (after at most {})",
            human_count(count),
            human_us(last)
        ));
    }
    let mut late: Vec<String> = queues
        .syn_ladder
        .at_s
        .iter()
        .zip(&queues.syn_ladder.connections)
        .filter(|(_, count)| **count > 0)
        .take(3)
        .map(|(at, count)| format!("{} after {at} s", human_count(*count)))
        .collect();
    if parts.is_empty()
        && let Some(first) = late.first_mut()
    {
        *first = first.replacen(" after", " connected after", 1);
        parts.push(late.join(", "));
    }
    (!parts.is_empty()).then(|| format!("Of these, {}.", parts.join(", and ")))
}

/// No arm had a full queue that anybody felt.
fn healthy(arms: &[&Arm]) -> Option<String> {
    let max = |arm: &Arm| arm.histograms.get(FIRST_BYTE.name).and_then(|h| h.max);
    let slowest = arms
        .iter()
        .filter(|arm| arm.ok == arm.attempts && max(arm).is_some())
        .max_by(|a, b| max(a).unwrap_or(0.0).total_cmp(&max(b).unwrap_or(0.0)))?;
    if arms.iter().any(|arm| arm.ok < arm.attempts) {
        return None;
    }
    let queue = listener(slowest)?;
    Some(format!(
        "All {} connections received their first byte within {}{}; the accept queue held at most \
         {} of {}.",
        human_count(slowest.ok),
        human_us(max(slowest)?),
        if arms.len() > 1 {
            format!(" in the slowest arm, {}", slowest.name)
        } else {
            String::new()
        },
        human_count(u64::from(queue.peak)),
        human_count(u64::from(queue.limit) + 1)
    ))
}

fn next(summary: &Summary) -> Vec<NextStep> {
    let mut steps = Vec::new();
    let ill: Vec<&Arm> = summary.arms.iter().filter(|arm| is_ill(summary, arm)).collect();
    if summary.study.is_none() {
        let varies = |option: &str| summary.arms.iter().any(|arm| arm.factors.contains_key(option));
        if !ill.is_empty() && !varies("abort-on-overflow") {
            steps.push(step(
                "tcptoll accept-queue --backlog 16 --link rtt=10ms --concurrency 500 --abort-on-overflow off,on --allow-errors 100%",
                "the effect of a reset instead of silence on clients that meet a full queue",
            ));
        }
        steps.push(step("tcptoll study queue-overflow-2021", "the published steps next to yours"));
    }
    steps.extend(explanations(summary));
    steps
}

#[cfg(test)]
mod tests;
