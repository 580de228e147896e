//! What follows from the arms of `stream`: the answer, causes, advice, what next.

use std::collections::BTreeMap;

use tcptoll_core::experiment::spec::CauseSpec;
use tcptoll_core::number;
use tcptoll_core::record::{NextStep, Summary};
use tcptoll_core::units::capital;
use tcptoll_core::verdict::effective;
use tcptoll_core::verdict::throughput::{Direction, Limit, limited_by};

use super::transfer_arm::{QUEUE_SHOWN, SAME, TransferArm, queue, told};
use super::{memory, several};
use crate::carry::throughput;
use crate::kit::compared::{failures, headline};
use crate::kit::conclusion::{answer_of, changed, explain, explanations, step};

/// Fills in what follows from the arms.
pub(super) fn conclude(summary: &mut Summary) {
    let same = effective::same_buffers(&summary.arms);
    summary.warnings.extend(same.iter().map(|warning| warning.entry(None)));
    if memory::conclude(summary) {
        return;
    }
    explain(summary, ALL, proof);
    summary.answer = answer(summary);
    let rules = several::rules(summary).into_iter();
    summary.advice.extend(rules.map(|rule| rule.advice(Limit::ReceiveWindow.name())));
    summary.next = next(summary);
}

pub(super) fn answer(summary: &Summary) -> String {
    let arms = told(summary);
    let mut sentences: Vec<String> = failures(summary, &super::SPEC).into_iter().collect();
    match arms.as_slice() {
        [] => return nothing(summary),
        [arm] => sentences.extend(one(arm)),
        arms => {
            sentences.extend(several::sentences(arms, headline(summary, &super::SPEC)));
        }
    }
    answer_of(summary, sentences)
}

/// Where no arm carried data.
pub(super) fn nothing(summary: &Summary) -> String {
    let tried: u64 = summary.arms.iter().map(|arm| arm.attempts).sum();
    let mut classes: BTreeMap<&str, u64> = BTreeMap::new();
    for (class, count) in summary.arms.iter().flat_map(|arm| &arm.errors) {
        *classes.entry(class).or_default() += count;
    }
    match classes.into_iter().max_by_key(|(_, count)| *count) {
        Some((class, _)) if tried > 0 => {
            format!("No connection carried data. The most frequent error was {class}.")
        }
        _ => "Nothing was measured.".to_owned(),
    }
}

pub(super) fn one(told: &TransferArm<'_>) -> Vec<String> {
    let who = match told.transfer.connections {
        0 | 1 => "one connection carries".to_owned(),
        several => format!("{} connections carry", number::count(several)),
    };
    let ways: Vec<String> = Direction::used_in(told.transfer)
        .filter_map(|(direction, way)| {
            let goodput = number::metric(way.goodput_bytes_per_s()?, "bytes/s");
            Some(format!("{goodput} to the {}", direction.receiver()))
        })
        .collect();
    let carried = if ways.len() > 1 {
        format!("{who} {}", ways.join(" and "))
    } else {
        format!("{who} {}", told.of_link())
    };
    let mut sentences = vec![match told.reason() {
        Some(reason) if told.is(Limit::LinkRate) => format!("{}: {carried}.", capital(&reason)),
        Some(reason) => capital(&format!("{carried}: {reason}.")),
        None => capital(&format!("{carried}: {}.", told.unknown())),
    }];
    sentences.extend(at_crossover(told));
    sentences.extend(queue(told, ""));
    sentences
}

/// Where a window allows about what the link does.
fn at_crossover(told: &TransferArm<'_>) -> Option<String> {
    let (direction, way) = Direction::used_in(told.transfer).next()?;
    let limited = limited_by(told.transfer, direction, way)?;
    let (by, or) = (limited.by.name(), limited.or?.name());
    Some(format!(
        "Either {by} or {or} may be the limit: their bounds are within 5 % of each other."
    ))
}

/// What the same run measured with the setting changed.
pub(super) fn proof(summary: &Summary, id: &str) -> Option<String> {
    let options: &[&str] = match id {
        "message-overhead" => &["message"],
        "nagle-delayed-ack" => &["nagle", "message"],
        "client-cpu" | "server-cpu" => &["zerocopy", "message"],
        _ => return None,
    };
    let arms = told(summary);
    let hit = |arm: &&TransferArm<'_>| {
        summary.causes.iter().any(|cause| cause.id == id && cause.arm == arm.arm.name)
    };
    let ill = arms.iter().filter(hit).min_by(|a, b| a.goodput.total_cmp(&b.goodput))?;
    let alike = |one: &&TransferArm<'_>| {
        let changed = changed(one.arm, ill.arm);
        changed.iter().all(|option| options.contains(option))
    };
    let better = |one: &&TransferArm<'_>| alike(one) && one.goodput > ill.goodput * (1.0 + SAME);
    let best = arms.iter().filter(better).max_by(|a, b| a.goodput.total_cmp(&b.goodput))?;
    Some(format!("arm {}: {}", best.arm.name, best.rate()))
}

fn next(summary: &Summary) -> Vec<NextStep> {
    let arms = told(summary);
    let mut steps = explanations(summary);
    if summary.study.is_some() {
        return steps;
    }
    let link = arms.iter().find_map(|told| told.arm.link.as_ref()).map(|link| &link.asked);
    let has = |option: &str| arms.iter().any(|told| told.arm.factors.contains_key(option));
    let any = |limit| arms.iter().any(|told| told.is(limit));
    let with = link.map_or_else(String::new, |link| format!(" --link {}", link.spec));
    let windowed = any(Limit::ReceiveWindow) || any(Limit::SendBuffer);
    if windowed && !has("window") && !has("receive-buffer") && !has("send-buffer") {
        steps.push(step(
            &format!("tcptoll stream{with} --window auto,64K,256K,1M,4M"),
            "which buffer size fills this link",
        ));
    }
    let queued = |told: &TransferArm<'_>| told.queue().is_some_and(|ratio| ratio >= QUEUE_SHOWN);
    if any(Limit::LinkRate) && arms.iter().any(queued) && !has("congestion") {
        steps.push(step(
            &format!("tcptoll stream{with} --congestion cubic,bbr"),
            "which congestion control keeps the queue short",
        ));
    }
    if any(Limit::MessageOverhead) && !has("message") {
        steps.push(step(
            &format!("tcptoll stream{with} --message 64,1K,4K,128K"),
            "from which message size the bytes cost more than the call",
        ));
    }
    let near = link.is_some_and(|link| link.rtt_us == 0.0 && link.rate_bit_per_s.is_none());
    if near && (any(Limit::ClientCpu) || any(Limit::ServerCpu)) {
        steps.push(step(
            "tcptoll stream --link rtt=10ms,rate=1gbit --window auto,16K,64K,256K,1M",
            "the effect of a round trip and a limited rate",
        ));
    }
    steps
}

/// Every cause that a run may name, in the order of the answer.
pub(super) const ALL: &[&CauseSpec] = throughput::ALL;
