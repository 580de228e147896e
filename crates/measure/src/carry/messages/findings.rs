//! What follows from the arms of `messages`: the answer, causes (those of bulk data, and the stall of an
//! exchange), advice, what next.

use serde_json::Value;
use tcptoll_core::experiment::figures::{CLIENT_CPU, CLIENT_SEGMENTS, GOODPUT, LATENCY};
use tcptoll_core::experiment::spec::CauseSpec;
use tcptoll_core::finding::{Evidence, Finding};
use tcptoll_core::number;
use tcptoll_core::record::{Arm, NextStep, Sender, Summary};
use tcptoll_core::verdict::names::Names;
use tcptoll_core::verdict::throughput::quiet_rtt_us;

use super::advice::{FILLED, Series, typical_us};
use super::sheet::limit;
use super::{ACK_DELAY, CALLS, CLIENT_CPU_SHARE, Pattern, RATE, SERVER_CPU_SHARE, advice};
use crate::carry::throughput;
use crate::kit::compared::{failures, headline};
use crate::kit::conclusion::{answer_of, enumerated, explain, explanations, step, value};

/// Arms whose latency or rate is stated one by one.
const STATED: usize = 4;

/// Ways to send whose size is stated one by one: a native program and four encodings.
const SERIES_STATED: usize = 5;

/// The warm-up's fastest exchange is stated where the typical one takes this many times as long.
const HIDDEN: f64 = 10.0;

/// Fills in what follows from the arms.
pub(super) fn conclude(summary: &mut Summary) {
    explain(summary, ALL, |_, _| None);
    let answers = advice::advise(&summary.arms);
    // Advice with a proof of this run replaces the general one for the same cause.
    summary.advice.retain(|general| answers.iter().all(|other| other.cause != general.cause));
    summary.advice.extend(answers);
    summary.answer = answer(summary);
    summary.next = next(summary);
}

pub(super) fn pattern(arm: &Arm) -> Option<Pattern> {
    arm.own.message.as_ref()?.pattern.parse().ok()
}

pub(super) fn answer(summary: &Summary) -> String {
    let measured: Vec<&Arm> = summary.arms.iter().filter(|arm| arm.failure.is_none()).collect();
    if measured.iter().all(|arm| arm.ok == 0) {
        return nothing(&measured);
    }
    let (one_way, answered): (Vec<&Arm>, Vec<&Arm>) =
        measured.iter().partition(|arm| pattern(arm) == Some(Pattern::OneWay));
    let mut sentences: Vec<String> = failures(summary, &super::SPEC).into_iter().collect();
    let compared = headline(summary, &super::SPEC);
    // Of several sizes, the size from which on the link is filled is the answer.
    let of_rate = summary.comparisons.iter().any(|one| one.metric == RATE.name);
    let is_compared = !compared.is_empty()
        && measured.len() <= STATED
        // How long an exchange takes is the question, and the rate follows from it.
        && !(of_rate && one_way.is_empty());
    if is_compared {
        sentences.extend(compared);
    }
    match one_way.as_slice() {
        [] => {}
        _ if is_compared => {}
        [arm] => sentences.extend(one(arm).into_iter().flatten()),
        arms => sentences.extend(
            sizes(arms, summary.partial)
                .or_else(|| rates(arms).map(|text| vec![text]))
                .into_iter()
                .flatten(),
        ),
    }
    sentences.extend(exchanges(&answered).filter(|_| !is_compared));
    sentences.extend(cause(summary, measured.len() > 1));
    sentences.extend(first(&answered));
    if answered.is_empty() {
        sentences.extend(limits(&one_way));
    }
    answer_of(summary, sentences)
}

pub(super) fn nothing(arms: &[&Arm]) -> String {
    let worst = arms.iter().flat_map(|arm| &arm.errors).max_by_key(|(_, count)| **count);
    match worst {
        Some((class, _)) => {
            format!("No message arrived. The most frequent error was {class}.")
        }
        None => "Nothing was measured.".to_owned(),
    }
}

/// What one message costs the sender: `0.38 µs of client CPU and 0.05 segments`.
fn cost(arm: &Arm) -> Option<String> {
    let cpu = number::time(value(arm, CLIENT_CPU.name)?);
    let segments = value(arm, CLIENT_SEGMENTS.name)?;
    Some(format!("{cpu} of client CPU and {} segments", number::three(segments)))
}

/// One arm: rate, goodput, what a message costs.
pub(super) fn one(arm: &Arm) -> Option<Vec<String>> {
    let bytes = arm.own.message.as_ref()?.bytes;
    let carried = format!(
        "The connection carries {} messages/s of {} ({}).",
        number::three(value(arm, RATE.name)?),
        number::size(bytes),
        number::bit_rate(value(arm, GOODPUT.name)? * 8.0)
    );
    let costs = cost(arm).zip(value(arm, CALLS.name));
    let costs = costs.map(|(cost, calls)| {
        format!("Each message takes {} system calls, {cost}.", number::three(calls))
    });
    Some([Some(carried), costs].into_iter().flatten().collect())
}

/// Several sizes: the one from which on the link is filled, and what the smallest message costs.
///
/// A way of sending of which a size has no trial that counts, or none yet, is in no claim.
pub(super) fn sizes(arms: &[&Arm], partial: bool) -> Option<Vec<String>> {
    let all = advice::group(arms);
    let several: Vec<&Series<'_>> = all.iter().filter(|one| one.points.len() > 1).collect();
    if several.is_empty() {
        return None;
    }
    let best = advice::best(arms)?;
    let most = several.iter().map(|one| one.points.len()).max()?;
    let counts = |arm: &Arm| {
        arm.rounds.is_empty() || arm.rounds.iter().any(|round| round.left_out.is_none())
    };
    let (judged, unjudged): (Vec<&Series<'_>>, Vec<_>) = several.iter().partition(|one| {
        one.points.iter().all(|point| counts(point.arm)) && (!partial || one.points.len() == most)
    });
    if judged.is_empty() {
        return Some(vec!["No way of sending was measured at all sizes.".to_owned()]);
    }
    let (mut from, mut never) = (Vec::new(), Vec::new());
    for one in judged.iter().take(SERIES_STATED) {
        match one.fills_from(best.bytes_per_s) {
            Some(bytes) => from.push(format!("{} ({})", number::size(bytes), one.name)),
            None => never.push(one.name.clone()),
        }
    }
    let reference = if best.is_link { "the link's rate" } else { "the best goodput" };
    let level = format!(
        "{} of {reference} ({})",
        number::percent(FILLED),
        number::bit_rate(best.bytes_per_s * 8.0)
    );
    let never = enumerated(&never);
    let reached = match (from.as_slice(), never.as_str()) {
        ([], never) => format!("Goodput reaches {level} at no message size with {never}."),
        (from, "") => {
            format!("Goodput reaches {level} with messages of at least {}.", enumerated(from))
        }
        (from, never) => format!(
            "Goodput reaches {level} with messages of at least {}, but at no size with {never}.",
            enumerated(from)
        ),
    };
    let smallest: Vec<String> = several
        .iter()
        .take(2)
        .filter_map(|one| {
            let point = one.points.first()?;
            Some(format!("{} ({})", cost(point.arm)?, one.name))
        })
        .collect();
    let bytes = several.first()?.points.first()?.bytes;
    let costs = (!smallest.is_empty())
        .then(|| format!("A message of {} costs {}.", number::size(bytes), smallest.join(" or ")));
    let unmeasured = (!unjudged.is_empty()).then(|| {
        let names: Vec<String> = unjudged.iter().map(|one| one.name.clone()).collect();
        format!("Some sizes have no valid trial with {}.", enumerated(&names))
    });
    Some([Some(reached), unmeasured, costs].into_iter().flatten().collect())
}

/// Several arms of one size: their rates; of many the least and the most.
fn rates(arms: &[&Arm]) -> Option<String> {
    let mut known: Vec<(&Arm, f64)> =
        arms.iter().filter_map(|arm| Some((*arm, value(arm, RATE.name)?))).collect();
    let many = known.len() > STATED;
    if many {
        known.sort_by(|a, b| a.1.total_cmp(&b.1));
        known = vec![*known.first()?, *known.last()?];
    }
    let count = arms.len();
    let names = Names::new(arms.iter().copied());
    let each: Vec<String> = known
        .iter()
        .map(|(arm, rate)| {
            let segments = value(arm, CLIENT_SEGMENTS.name)
                .map(|count| format!(" in {} segments each", number::three(count)))
                .unwrap_or_default();
            format!("{} messages/s{segments} ({})", number::three(*rate), names.arm(arm))
        })
        .collect();
    match each.as_slice() {
        [] => None,
        [least, most] if many => Some(format!("{count} arms carry from {least} to {most}.")),
        all => Some(format!("The connection carries {}.", enumerated(all))),
    }
}

/// Exchanges: their typical latency.
pub(super) fn exchanges(arms: &[&Arm]) -> Option<String> {
    let mut known: Vec<(&Arm, f64)> = arms
        .iter()
        .filter_map(|arm| Some((*arm, typical_us(arm.histograms.get(LATENCY.name)?)?)))
        .collect();
    let several = known.len() > 1;
    let many = known.len() > STATED;
    if many {
        known.sort_by(|a, b| a.1.total_cmp(&b.1));
        known = vec![*known.first()?, *known.last()?];
    }
    let names = Names::new(arms.iter().copied());
    let each: Vec<String> = known
        .iter()
        .map(|(arm, us)| {
            if several {
                format!("{} ({})", number::time(*us), names.arm(arm))
            } else {
                number::time(*us)
            }
        })
        .collect();
    match each.as_slice() {
        [] => None,
        [least, most] if many => {
            Some(format!("An exchange takes {least} to {most} at the median."))
        }
        all => Some(format!("An exchange takes {} at the median.", enumerated(all))),
    }
}

/// The stall, where an arm has it; of other causes only where there is one arm.
pub(super) fn cause(summary: &Summary, several: bool) -> Option<String> {
    let stall = |id: &str| id == STALL;
    let found = summary
        .causes
        .iter()
        .find(|cause| stall(&cause.id))
        .or_else(|| summary.causes.first().filter(|_| summary.arms.len() == 1))?;
    // Its figures are next to the cause.
    let first = found.text.split_once(". ").map(|(first, _)| format!("{first}."));
    let text = first.unwrap_or_else(|| found.text.clone());
    let arm = summary.arms.iter().find(|arm| several && arm.name == found.arm);
    let with = arm.map_or_else(String::new, |arm| Names::new(&summary.arms).with(arm));
    Some(with + &text)
}

/// That the first exchanges do not show the stall.
fn first(arms: &[&Arm]) -> Option<String> {
    let hidden = arms.iter().find_map(|arm| {
        let warmup = arm.warmup.as_ref()?.histograms.get(LATENCY.name)?.min?;
        let typical = typical_us(arm.histograms.get(LATENCY.name)?)?;
        (ack_delay_us(arm).is_some() && typical > warmup * HIDDEN && typical > DELAYED_US)
            .then_some(warmup)
    })?;
    Some(format!(
        "The fastest exchange of the warm-up took {}, so a short run without warm-up would not \
         show the stall.",
        number::time(hidden)
    ))
}

/// Which end is CPU-bound.
pub(super) fn limits(arms: &[&Arm]) -> Option<String> {
    if arms.len() < 2 {
        return None;
    }
    let named = |names: &[&str]| -> Vec<&Arm> {
        let is = |arm: &&&Arm| limit(arm).is_some_and(|limit| names.contains(&limit));
        arms.iter().filter(is).copied().collect()
    };
    let sender = named(&["message-overhead", "client-cpu"]);
    let receiver = named(&["server-cpu"]);
    let count = arms.len();
    let receivers = || {
        let names: Vec<&str> = receiver.iter().take(2).map(|arm| arm.name.as_str()).collect();
        let more = receiver.len().saturating_sub(2);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let share =
            receiver.iter().filter_map(|arm| value(arm, SERVER_CPU_SHARE.name)).reduce(f64::max);
        format!(
            "the receiver's CPU is the limit ({}) in {}{more}",
            number::percent(share.unwrap_or(0.0)),
            names.join(", ")
        )
    };
    match (sender.len(), receiver.len()) {
        (0, 0) => None,
        (all, 0) if all == count => Some("The sender's CPU is the limit in every arm.".to_owned()),
        (some, 0) => Some(format!("The sender's CPU is the limit in {some} of {count} arms.")),
        (0, _) => {
            let text = receivers();
            Some(format!("T{}.", &text[1..]))
        }
        (some, _) => {
            let receivers = receivers();
            Some(format!(
                "The sender's CPU is the limit in {some} of {count} arms, and {receivers}."
            ))
        }
    }
}

fn next(summary: &Summary) -> Vec<NextStep> {
    let mut steps = Vec::new();
    let has = |wanted: Pattern| summary.arms.iter().any(|arm| pattern(arm) == Some(wanted));
    if summary.study.is_none() {
        if has(Pattern::OneWay) && !has(Pattern::WriteWriteRead) {
            steps.push(step(
                "tcptoll messages --pattern write-write-read",
                "what Nagle's algorithm costs in latency",
            ));
        }
        if has(Pattern::WriteWriteRead) {
            steps.push(step(
                "tcptoll messages --pattern write-write-read --quick-ack on,off",
                "the same without delayed ACKs",
            ));
        }
        let busy = |arm: &Arm| value(arm, CLIENT_CPU_SHARE.name).is_some_and(|share| share > 0.9);
        if has(Pattern::OneWay) && summary.arms.iter().any(busy) {
            steps.push(step(
                "tcptoll messages --message 64 --nagle off --coalesce none,more,gather,buffer",
                "what batching small messages saves",
            ));
        }
    }
    steps.extend(explanations(summary));
    steps
}

/// A delayed ACK adds at least this to an exchange, µs: `TCP_DELACK_MIN` of Linux is 40 ms, and timers
/// of a kernel with 100 ticks a second are up to 10 ms off.
const DELAYED_US: f64 = 30e3;

/// Share of the exchanges for which the server's kernel must have delayed an ACK, where the wire was not
/// watched.
const DELAYED_SHARE: f64 = 0.5;

/// A write waits for the ACK of the one before, which the receiver delays. Of messages that nobody
/// answers the arithmetic of bulk data finds it.
const NAGLE_DELAYED_ACK: CauseSpec = CauseSpec {
    test: |arm| exchange(arm).or_else(|| (throughput::NAGLE_DELAYED_ACK.test)(arm)),
    ..throughput::NAGLE_DELAYED_ACK
};

/// The stall of 40 ms.
pub(super) const STALL: &str = NAGLE_DELAYED_ACK.id;

/// Every cause that a run may name, in the order of the answer.
pub(super) const ALL: &[&CauseSpec] = &[
    &NAGLE_DELAYED_ACK,
    &throughput::RECEIVE_WINDOW,
    &throughput::SEND_BUFFER,
    &throughput::CONGESTION,
    &throughput::MESSAGE_OVERHEAD,
    &throughput::CLIENT_CPU,
    &throughput::SERVER_CPU,
    &throughput::LINK_RATE,
];

/// The longest that an ACK of the server was delayed on the wire, µs.
pub(super) fn ack_delay_us(arm: &Arm) -> Option<f64> {
    arm.histograms.get(ACK_DELAY.name)?.max
}

/// An exchange that waits for a delayed ACK with Nagle's algorithm on.
pub(super) fn exchange(arm: &Arm) -> Option<Finding> {
    let message = arm.own.message.as_ref().filter(|message| message.response_bytes.is_some())?;
    let transfer = arm.own.transfer.as_ref().filter(|transfer| transfer.nagle)?;
    let latency_us = typical_us(arm.histograms.get(LATENCY.name)?)?;
    let quiet_us = quiet_rtt_us(transfer, &Sender::default()).unwrap_or(0.0);
    if latency_us - quiet_us < DELAYED_US {
        return None;
    }
    let server = arm.server.as_ref();
    let delayed = server.and_then(|host| host.counters.get("TcpExtDelayedACKs")).copied();
    let delayed = delayed.unwrap_or(0).max(0);
    let often = delayed as f64 >= arm.ok as f64 * DELAYED_SHARE;
    let on_the_wire = ack_delay_us(arm);
    // The wire decides where it was watched, the kernel's count where not. Without an ACK alone there is
    // no delay, but it was watched.
    let waited = || on_the_wire.is_some_and(|us| us >= DELAYED_US);
    if !message.acks.map_or(often, |_| waited()) {
        return None;
    }
    let mut evidence = Evidence::from([
        ("latency_us".to_owned(), Value::from(latency_us)),
        ("quiet_rtt_us".to_owned(), Value::from(quiet_us)),
        ("writes".to_owned(), Value::from(message.writes.clone())),
        ("TcpExtDelayedACKs".to_owned(), Value::from(delayed)),
    ]);
    let mut text =
        "Nagle's algorithm holds back the last write until the previous one is acknowledged, and \
         the server delays that ACK"
            .to_owned();
    if let Some(acks) = message.acks {
        evidence.insert("delayed_acks".to_owned(), Value::from(acks.delayed));
        evidence.insert("quick_acks".to_owned(), Value::from(acks.quick));
        evidence.insert("acks_with_answers".to_owned(), Value::from(acks.with_answer));
    }
    if let Some(us) = on_the_wire {
        evidence.insert("ack_delay_max_us".to_owned(), Value::from(us));
        text += &format!(" by up to {} on the wire", number::time(us));
    }
    Some(Finding::new(text + ".", evidence))
}

#[cfg(test)]
mod tests {
    use tcptoll_core::record::{Acks, HostSummary, MessageWay, Transfer};

    use crate::kit::conclusion::supported;

    use super::*;
    use tcptoll_core::record::HistogramSummary;

    fn arm(latency_us: f64, delayed: i64, ack_us: Option<f64>, nagle: bool) -> Arm {
        let histogram = |max| HistogramSummary {
            count: 23,
            p50: Some(max),
            max: Some(max),
            ..HistogramSummary::default()
        };
        let mut arm = Arm { name: "a".into(), attempts: 23, ok: 23, ..Arm::default() };
        arm.histograms.insert("latency_us".into(), histogram(latency_us));
        arm.histograms.extend(ack_us.map(|us| ("ack_delay_us".to_owned(), histogram(us))));
        let counters = [("TcpExtDelayedACKs".to_owned(), delayed)].into();
        arm.server = Some(HostSummary { counters, ..HostSummary::default() });
        arm.own.message = Some(MessageWay {
            pattern: "write-write-read".into(),
            writes: vec![512, 512],
            response_bytes: Some(1_024),
            acks: ack_us.map(|_| Acks::default()),
            ..MessageWay::default()
        });
        arm.own.transfer =
            Some(Transfer { nagle, quiet_rtt_us: Some(75.0), ..Transfer::default() });
        arm
    }

    fn named(arm: &Arm) -> Vec<String> {
        supported(arm, ALL)
            .into_iter()
            .map(|cause| format!("{}: {}", cause.id, cause.text))
            .collect()
    }

    #[test]
    fn an_exchange_that_waits_for_a_delayed_ack_is_named_with_the_delay_on_the_wire() {
        let found = named(&arm(44_000.0, 43, Some(40_100.0), true));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("nagle-delayed-ack: Nagle's algorithm holds"), "{found:?}");
        assert!(found[0].ends_with("up to 40.1 ms on the wire."), "{found:?}");
        // Nobody watched the wire: the kernel's count is the evidence.
        assert_eq!(named(&arm(44_000.0, 43, None, true)).len(), 1);
    }

    #[test]
    fn it_is_not_named_without_nagle_without_a_stall_or_without_delayed_acks() {
        assert!(named(&arm(44_000.0, 43, Some(40_100.0), false)).is_empty(), "Nagle off");
        assert!(named(&arm(20_000.0, 43, Some(40_100.0), true)).is_empty(), "too short");
        assert!(named(&arm(44_000.0, 43, Some(9.0), true)).is_empty(), "the wire knows better");
        assert!(named(&arm(44_000.0, 2, None, true)).is_empty(), "slow for another reason");
    }
}
