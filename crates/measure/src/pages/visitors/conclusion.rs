//! What follows from the arms of `visitors`: the answer, causes, what to run next.

use super::{PAGE_MEAN, PAGE_P95, WORKERS_BUSY, causes};
use crate::kit::conclusion::{answer_of, explain, explanations, in_arm, step, value};
use tcptoll_core::experiment::spec::MetricSpec;
use tcptoll_core::record::{Arm, Summary};
use tcptoll_core::units::{human_count, human_us};

/// Fills in what follows from the arms.
pub(super) fn conclude(summary: &mut Summary) {
    explain(summary, causes::ALL, |_, _| None);
    summary.answer = answer(summary);
    summary.next = explanations(summary);
    summary.next.push(step(
        "tcptoll page --keepalive on --next-page-after 1s,6s --keepalive-timeout 5s",
        "the time that an open connection saves a single visitor",
    ));
}

/// What connections hold and how long pages take; the comparison is stated before, by the code that all
/// share.
fn answer(summary: &Summary) -> String {
    let measured: Vec<&Arm> =
        summary.arms.iter().filter(|arm| value(arm, PAGE_MEAN.name).is_some()).collect();
    if measured.is_empty() {
        return "No page load completed.".to_owned();
    }
    let sentences = [workers(&measured), failed(&measured), slow(&measured)];
    answer_of(summary, sentences.into_iter().flatten().collect())
}

/// The arms with the least and the most of a metric, with their values; of one arm it alone.
fn ends<'a>(arms: &[&'a Arm], metric: &MetricSpec) -> Vec<(&'a Arm, f64)> {
    let mut all: Vec<(&Arm, f64)> =
        arms.iter().filter_map(|arm| Some((*arm, value(arm, metric.name)?))).collect();
    all.sort_by(|a, b| a.1.total_cmp(&b.1));
    if all.len() > 2 {
        all.drain(1..all.len() - 1);
    }
    all
}

/// How many workers connections hold. Those of a server that is not ours are not known.
fn workers(arms: &[&Arm]) -> Option<String> {
    let workers_held = |arm: &Arm, held: f64| {
        let visits = arm.own.site_visits.as_deref()?;
        Some(format!("{held:.0} of {}", human_count(visits.workers)))
    };
    Some(match ends(arms, &WORKERS_BUSY)[..] {
        [] => return None,
        [(arm, held)] => {
            format!("Connections hold {} workers on average.", workers_held(arm, held)?)
        }
        [(least, low), .., (most, high)] => {
            let [fewest, most_held] = [workers_held(least, low)?, workers_held(most, high)?];
            if fewest == most_held {
                return Some(format!("In each arm, connections hold {fewest} workers on average."));
            }
            format!(
                "Connections hold {fewest} ({}) to {most_held} workers ({}) on average.",
                least.name, most.name
            )
        }
    })
}

/// How many pages failed, in the arm with the most failures.
fn failed(arms: &[&Arm]) -> Option<String> {
    let arm = arms.iter().copied().max_by_key(|arm| arm.attempts - arm.ok)?;
    let failed = arm.attempts - arm.ok;
    (failed > 0).then(|| {
        format!(
            "{}{} of {} pages failed.",
            in_arm(arms.len() > 1, arm),
            human_count(failed),
            human_count(arm.attempts)
        )
    })
}

/// The time that 95 % of the pages do not exceed.
fn slow(arms: &[&Arm]) -> Option<String> {
    Some(match ends(arms, &PAGE_P95)[..] {
        [] => return None,
        [(_, us)] => format!("95 % of the pages took at most {}.", human_us(us)),
        [(least, low), .., (most, high)] => format!(
            "95 % of the pages took at most {} ({}) to {} ({}).",
            human_us(low),
            least.name,
            human_us(high),
            most.name
        ),
    })
}
