//! What follows from the arms of `connect`: the answer in a sentence, causes, advice, what next.

use tcptoll_model::causes::{Rungs, advice_for, causes_of};
use tcptoll_model::record::{Arm, NextStep, PlaceKind, Summary};
use tcptoll_model::units::{human_count, human_us};

/// Fills in what follows from the arms.
pub fn conclude(summary: &mut Summary) {
    summary.causes = summary
        .arms
        .iter()
        .flat_map(|arm| {
            let rungs =
                Rungs { ladder_s: arm.syn_retry_ladder_s.clone(), counts: arm.rungs.clone() };
            causes_of(arm, &rungs)
        })
        .collect();
    let mut ids: Vec<&str> = summary.causes.iter().map(|cause| cause.id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    let advice = ids.iter().filter_map(|id| advice_for(id, proof(summary, id))).collect();
    summary.advice = advice;
    summary.answer = answer(summary);
    summary.next = next(summary);
}

/// An arm of the same run in which the cause did not show is the measured proof of its cure.
fn proof(summary: &Summary, id: &str) -> Option<String> {
    if id != "accept-queue-full" && id != "syn-queue-full" {
        return None;
    }
    let backlog = |arm: &Arm| arm.server.as_ref()?.listeners.first().map(|l| l.accept_queue_limit);
    let ill: Vec<&Arm> = summary
        .arms
        .iter()
        .filter(|arm| summary.causes.iter().any(|cause| cause.arm == arm.name))
        .collect();
    let smallest = ill.iter().filter_map(|arm| backlog(arm)).min()?;
    let well = summary.arms.iter().find(|arm| {
        !summary.causes.iter().any(|cause| cause.arm == arm.name)
            && arm.ok == arm.attempts
            && backlog(arm).is_some_and(|limit| limit > smallest)
    })?;
    let max = well.histograms.get("connect_us").and_then(|h| h.max)?;
    Some(format!(
        "with a backlog of {} in this run: {} of {} connected, the slowest in {}",
        backlog(well)?,
        human_count(well.ok),
        human_count(well.attempts),
        human_us(max)
    ))
}

fn typical(arm: &Arm) -> Option<f64> {
    let histogram = arm.histograms.get("connect_us")?;
    histogram.p50.or(histogram.mean)
}

fn answer(summary: &Summary) -> String {
    let measured: Vec<&Arm> = summary.arms.iter().filter(|arm| arm.failure.is_none()).collect();
    if measured.is_empty() {
        return "Nothing was measured.".to_owned();
    }
    let mut sentences = Vec::new();
    let attempts: u64 = measured.iter().map(|arm| arm.attempts).sum();
    let ok: u64 = measured.iter().map(|arm| arm.ok).sum();
    if ok < attempts {
        sentences.push(format!(
            "{} of {} connections failed; every figure is of the {} that did not.",
            human_count(attempts - ok),
            human_count(attempts),
            human_count(ok)
        ));
    }
    if summary.arms.iter().all(|arm| !arm.histograms.contains_key("connect_us")) {
        sentences.extend(first_byte_only(&measured));
        return sentences.join(" ");
    }
    match healthy(summary, &measured).as_slice() {
        [] => {}
        [arm] => sentences.extend(one(arm)),
        arms => sentences.extend(many(arms)),
    }
    if let Some(cause) = summary.causes.first() {
        sentences.push(cause.text.clone());
        if let Some(proof) =
            summary.advice.iter().find(|a| a.cause == cause.id).and_then(|a| a.proof.as_ref())
        {
            sentences.push(format!("It is the backlog: {proof}."));
        }
    }
    sentences.join(" ")
}

/// Arms whose typical connection shows what the handshake costs, not what a queue or a lack does.
fn healthy<'a>(summary: &Summary, measured: &[&'a Arm]) -> Vec<&'a Arm> {
    measured
        .iter()
        .filter(|arm| summary.causes.iter().all(|cause| cause.arm != arm.name))
        .copied()
        .collect()
}

fn first_byte_only(arms: &[&Arm]) -> Option<String> {
    let arm = arms.first()?;
    let first = arm.histograms.get("first_byte_us")?;
    Some(format!(
        "With data in the SYN the first byte is back after {} (median).",
        human_us(first.p50.or(first.mean)?)
    ))
}

fn one(arm: &Arm) -> Option<String> {
    let typical_us = typical(arm)?;
    let word = if arm.histograms.get("connect_us")?.p50.is_some() { "median" } else { "mean" };
    let mut text = format!("Opening a connection takes {} ({word})", human_us(typical_us));
    if let Some(expected) = &arm.expectation {
        let trips = typical_us / expected.rtt_us;
        let rtt = human_us(expected.rtt_us);
        text += &match expected.cpu_us {
            Some(cpu_us) if (0.9..1.2).contains(&trips) => format!(
                ": one round trip of {rtt} and {} of CPU at both ends",
                human_us(cpu_us)
            ),
            _ => format!(", {trips:.2} times the round trip of {rtt} ({})", expected.rtt_from),
        };
    }
    if let Some(cpu) = arm.client.cpu_us_per_op {
        text += &format!("; it costs the client {} of CPU", human_us(cpu));
    }
    Some(text + ".")
}

fn many(arms: &[&Arm]) -> Option<String> {
    let key = |arm: &&&Arm| typical(arm).map_or(u64::MAX, |us| (us * 1e3) as u64);
    let least = arms.iter().filter(|arm| typical(arm).is_some()).min_by_key(key)?;
    let most = arms.iter().filter(|arm| typical(arm).is_some()).max_by_key(key)?;
    let cpu: Vec<f64> = arms.iter().filter_map(|arm| arm.client.cpu_us_per_op).collect();
    let (low, high) = (
        cpu.iter().copied().fold(f64::INFINITY, f64::min),
        cpu.iter().copied().fold(0.0, f64::max),
    );
    let mut text = format!(
        "Opening a connection takes from {} ({}) to {} ({}), medians",
        human_us(typical(least)?),
        least.name,
        human_us(typical(most)?),
        most.name
    );
    let trips: Vec<f64> = arms
        .iter()
        .filter_map(|arm| {
            let expected = arm.expectation.as_ref().filter(|e| e.rtt_from == "link setting")?;
            Some(typical(arm)? / expected.rtt_us)
        })
        .collect();
    if trips.len() > 1 {
        let (least, most) = (
            trips.iter().copied().fold(f64::INFINITY, f64::min),
            trips.iter().copied().fold(0.0, f64::max),
        );
        text += &format!("; over a distance that is {least:.2} to {most:.2} round trips");
    }
    if high > 0.0 {
        text += &format!("; the client's CPU is {} to {} each", human_us(low), human_us(high));
    }
    Some(text + ".")
}

fn next(summary: &Summary) -> Vec<NextStep> {
    let step = |command: &str, why: &str| NextStep { command: command.into(), why: why.into() };
    let mut steps = Vec::new();
    if summary.causes.is_empty() && summary.place.kind == PlaceKind::Lab {
        steps.push(step(
            "tcptoll connect --backlog 16,4096 --count 500 --concurrency 500 --accept-delay 2ms",
            "what a full accept queue costs",
        ));
    }
    for cause in &summary.causes {
        let command = format!("tcptoll explain {}", cause.id);
        if steps.iter().all(|s: &NextStep| s.command != command) {
            steps.push(step(&command, "what it is, how to see it, how to cure it"));
        }
    }
    if summary.study.is_none() {
        steps.push(step("tcptoll study connect-2021", "the published figures beside yours"));
    }
    steps
}
