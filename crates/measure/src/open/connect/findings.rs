//! What follows from the arms of `connect`: the answer in a sentence, causes, advice, what next.
//!
//! Where the server is on this machine, the counters of this machine are the server's: 10 waits, 10
//! `TcpExtListenOverflows`, a queue of 5 of 5. Of a server elsewhere both explanations are named, because the
//! client cannot tell a lost SYN from a dropped one.

use serde_json::Value;
use tcptoll_core::experiment::spec::CauseSpec;
use tcptoll_core::finding::Finding;
use tcptoll_core::number;
use tcptoll_core::record::{Arm, Cause, NextStep, PlaceKind, Summary};
use tcptoll_core::stats::HistogramSummary;
use tcptoll_core::units::{capital, first_sentence, plural};
use tcptoll_core::verdict::bound;
use tcptoll_core::verdict::effective::same_effective;
use tcptoll_core::verdict::names::Names;
use tcptoll_core::verdict::warning::Warning;

use crate::kit::compared::{failures, headline};
use crate::kit::conclusion::{
    answer_of, cured, enumerated, explain, explanations, first_stated, ill, in_arm, step,
};
use crate::kit::port_causes::LOCAL_PORTS_SCARCE;
use crate::kit::queue_causes::{
    ACCEPT_QUEUE_FULL, FULL, LONGER, SYN_QUEUE_FULL, all_connected, felt, whose,
};

/// Fills in what follows from the arms.
pub(super) fn conclude(summary: &mut Summary) {
    explain(summary, CAUSES, proof);
    summary.answer = answer(summary);
    let same = same_backlogs(&summary.arms);
    summary.warnings.extend(same.iter().map(|warning| warning.entry(None)));
    summary.next = next(summary);
}

/// Of the accept queue the cause itself has its proof.
fn proof(summary: &Summary, id: &str) -> Option<String> {
    let ill = ill(summary, SYN_QUEUE_FULL.id).filter(|_| id == SYN_QUEUE_FULL.id)?;
    all_connected(cured(summary, ill, LONGER)?)
}

/// Backlogs above `net.core.somaxconn` are clamped to it: arms that asked for different ones have the
/// same one then.
fn same_backlogs(arms: &[Arm]) -> Vec<Warning> {
    same_effective(arms, "backlog", |arm| {
        let limit = arm.server.as_ref()?.listeners.first()?.accept_queue_limit;
        Some(format!("{limit} (net.core.somaxconn)"))
    })
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
    sentences.extend(bound::sentence(summary, "connections_per_s", "connections"));
    let none = none_succeeded(&measured);
    let is_none = none.is_some();
    sentences.extend(none);
    let rare = rare_trouble(summary, &measured);
    let is_rare = rare.is_some();
    if let Some((arm, rarely)) = rare {
        sentences.extend(one(arm));
        sentences.push(rarely);
    } else {
        let trouble = trouble(summary, &measured);
        if trouble.is_empty() && !is_none {
            sentences.extend(failures(summary, &super::SPEC));
        }
        sentences.extend(trouble);
        sentences.extend(costs(summary, &measured));
    }
    if let ([arm], Some(_)) = (measured.as_slice(), summary.causes.first())
        && !is_rare
    {
        sentences.extend(half(arm));
    }
    if sentences.is_empty() {
        sentences.extend(measured.iter().find_map(|arm| one(arm)));
    }
    if sentences.is_empty() && measured.iter().any(|arm| arm.ok > 0) {
        sentences.push(
            "The connections were opened without waiting for their handshakes, so there is no latency."
                .to_owned(),
        );
    }
    // Whose fault it is stands before what it did.
    let is_target = summary.place.kind == PlaceKind::Target;
    if is_target && summary.causes.first().is_some_and(|cause| cause.id == FULL) {
        let whose = ill(summary, FULL).and_then(|arm| whose(arm, "server's accept queue"));
        let unknown = "This load filled the server's accept queue, or helped to.";
        sentences.insert(0, whose.unwrap_or_else(|| unknown.to_owned()));
    }
    // Of all sentences that follow the first one, a load that was cut short must not be missed.
    if let Some(cut) = cut(&measured) {
        sentences.insert(sentences.len().min(1), cut);
    }
    answer_of(summary, sentences)
}

/// What a connection takes in the arms that nothing disturbed.
fn costs(summary: &Summary, measured: &[&Arm]) -> Vec<String> {
    if measured.iter().any(|arm| arm.ok > 0)
        && summary.arms.iter().all(|arm| !arm.histograms.contains_key("connect_us"))
    {
        return first_byte_only(measured).into_iter().collect();
    }
    let compared = headline(summary, &super::SPEC);
    let arms = healthy(summary, measured);
    if !compared.is_empty() && arms.len() == measured.len() {
        return compared.into_iter().chain(over_links(&arms)).collect();
    }
    match arms.iter().filter(|arm| typical(arm).is_some()).collect::<Vec<_>>()[..] {
        [arm] => one(arm).into_iter().collect(),
        _ => many(&arms).unwrap_or_default(),
    }
}

/// Of one arm: a queue that was full so rarely that the median is the answer all the same.
fn rare_trouble<'a>(summary: &Summary, measured: &[&'a Arm]) -> Option<(&'a Arm, String)> {
    let [arm] = measured else { return None };
    let reason = queue_of(&summary.causes.first()?.id)?;
    if waits(arm).is_some() || arm.ok < arm.attempts {
        return None;
    }
    let waited = arm.rungs.iter().sum::<u64>();
    let (waited, all) = (plural(waited, "handshake"), number::count(arm.attempts));
    Some((arm, format!("Rarely, {reason}: {waited} of {all} waited for a retransmitted SYN.")))
}

/// What a cause says of a queue.
fn queue_of(cause: &str) -> Option<&'static str> {
    match cause {
        "accept-queue-full" => Some("the accept queue was full"),
        "syn-queue-full" => Some("the SYN queue was full"),
        "syn-lost-or-queue-full" => {
            Some("packets were lost on the path, or a queue of the server was full")
        }
        _ => None,
    }
}

/// What a full queue, lost packets or a lack of ports did to an arm, and the arm that was spared.
fn trouble(summary: &Summary, measured: &[&Arm]) -> Vec<String> {
    let names = Names::new(measured.iter().copied());
    let ill = summary.causes.first().and_then(|cause| {
        let arm = measured.iter().find(|arm| arm.name == cause.arm)?;
        Some((cause, *arm))
    });
    let mut sentences = Vec::new();
    sentences.extend(ill.map(|(cause, arm)| turned_away(cause, arm, measured)));
    if ill.is_none_or(|(_, arm)| waits(arm).is_none()) {
        let waited = measured.iter().find_map(|arm| Some((*arm, waits(arm)?)));
        sentences.extend(waited.map(|(arm, text)| format!("{}{text}.", in_arm(measured, arm))));
    }
    let spared = ill.and_then(|(_, arm)| {
        let well = cured(summary, arm, LONGER)?;
        let max = well.histograms.get("connect_us").and_then(|h| h.max)?;
        Some(format!(
            "{}all {} connected, the slowest in {}.",
            names.with(well),
            number::count(well.ok),
            number::time(max)
        ))
    });
    sentences.extend(spared);
    sentences
}

/// What the cause did to its arm.
fn turned_away(cause: &Cause, arm: &Arm, arms: &[&Arm]) -> String {
    let reason = match queue_of(&cause.id) {
        Some(reason) => reason,
        None if arms.len() > 1 => {
            let name = Names::new(arms.iter().copied()).arm(arm);
            return format!("{}: {}", capital(&name), first_sentence(&cause.text));
        }
        None => return first_sentence(&cause.text).to_owned(),
    };
    // What a signal stopped has not failed.
    let stopped = arm.errors.get("interrupted").copied().unwrap_or(0);
    let failed = (arm.attempts - arm.ok).saturating_sub(stopped);
    // Of an arm where nothing succeeded the answer says so anyway.
    let failed = (failed > 0 && arm.ok > 0).then(|| number::count(failed));
    let text = match (waits(arm), failed) {
        (Some(waited), Some(failed)) => {
            format!("{waited}, and {failed} connections failed: {reason}.")
        }
        (Some(waited), None) => format!("{waited}: {reason}."),
        (None, Some(failed)) => {
            format!("{failed} of {} connections failed: {reason}.", number::count(arm.attempts))
        }
        (None, None) => format!("{reason}."),
    };
    capital(&format!("{}{text}", in_arm(arms, arm)))
}

/// Arms whose typical connection shows what the handshake costs, not what a queue or a lack does.
fn healthy<'a>(summary: &Summary, measured: &[&'a Arm]) -> Vec<&'a Arm> {
    measured
        .iter()
        .filter(|arm| {
            let ill = |name: &str| summary.causes.iter().any(|cause| cause.arm == name);
            // Nor the arm that shows the fix: it is of the same burst.
            !ill(&arm.name)
                && !summary.arms.iter().any(|other| {
                    ill(&other.name)
                        && cured(summary, other, LONGER).is_some_and(|w| w.name == arm.name)
                })
        })
        .copied()
        .collect()
}

fn first_byte_only(arms: &[&Arm]) -> Option<String> {
    let arm = arms.first()?;
    let first = arm.histograms.get("first_byte_us")?;
    let word = if first.p50.is_some() { "median" } else { "mean" };
    Some(capital(&format!(
        "{}with data in the SYN, the first byte arrives after {} ({word}).",
        in_arm(arms, arm),
        number::time(first.p50.or(first.mean)?)
    )))
}

fn one(arm: &Arm) -> Option<String> {
    let typical_us = typical(arm)?;
    let word = if arm.histograms.get("connect_us")?.p50.is_some() { "median" } else { "mean" };
    let mut text = format!("Opening a connection takes {} ({word})", number::time(typical_us));
    if let Some(expected) = &arm.expectation {
        let more_us = typical_us - expected.rtt_us;
        let trips = typical_us / expected.rtt_us;
        let rtt = match expected.rtt_from.as_str() {
            "link setting" => number::time(expected.rtt_us),
            from => format!("{} ({from})", number::time(expected.rtt_us)),
        };
        // As a difference, so that rounding does not make the figures contradict each other.
        text += &if more_us < 0.0 && expected.cpu_us.is_none() {
            format!(", less than the round trip of {rtt}")
        } else if more_us >= 0.0 && trips < 1.2 {
            format!(", one round trip of {rtt} plus {}", number::time(more_us))
        } else {
            format!(", {trips:.2} times the round trip of {rtt}")
        };
    } else if arm.link.is_some() {
        text += " over a link without emulated delay";
    }
    if let Some(cpu) = arm.client.cpu_us_per_op {
        text += &format!(", and costs the client {} of CPU", number::time(cpu));
    }
    Some(text + ".")
}

/// Several arms that are not compared: their medians, of many the least and the most.
fn many(arms: &[&Arm]) -> Option<Vec<String>> {
    let names = Names::new(arms.iter().copied());
    let mut known: Vec<(&Arm, f64)> =
        arms.iter().filter_map(|arm| Some((*arm, typical(arm)?))).collect();
    let is_many = first_stated(&known).len() < known.len();
    if is_many {
        known.sort_by(|a, b| a.1.total_cmp(&b.1));
        known = vec![*known.first()?, *known.last()?];
    }
    let each: Vec<String> = known
        .iter()
        .map(|(arm, us)| format!("{} ({})", number::time(*us), names.arm(arm)))
        .collect();
    let list = match each.as_slice() {
        [] => return None,
        [least, most] if is_many => format!("{least} to {most}"),
        all => enumerated(all),
    };
    let takes = format!("Opening a connection takes {list} at the median.");
    Some([Some(takes), over_links(arms)].into_iter().flatten().collect())
}

/// What connections over emulated links take beyond their round trips.
fn over_links(arms: &[&Arm]) -> Option<String> {
    let beyond: Vec<[f64; 2]> = arms
        .iter()
        .filter_map(|arm| {
            let expected = arm.expectation.as_ref().filter(|e| e.rtt_from == "link setting")?;
            let us = typical(arm)?;
            Some([us - expected.rtt_us, us / expected.rtt_us])
        })
        .collect();
    let [[least_us, most_us], [least, most]] = [0, 1].map(|at| {
        beyond
            .iter()
            .map(|ends| ends[at])
            .fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], value| {
                [low.min(value), high.max(value)]
            })
    });
    (beyond.len() > 1).then(|| {
        let takes = if least_us >= 0.0 && most < 2.0 {
            format!("one round trip plus {} to {}", number::time(least_us), number::time(most_us))
        } else {
            format!("{least:.2} to {most:.2} round trips")
        };
        format!("On the emulated links the median is {takes}.")
    })
}

/// What else can go wrong when connecting, one command each.
const GOES_WRONG: [(&str, &str); 3] = [
    (
        "tcptoll study queue-overflow-2021",
        "full queues: which errors clients get, and which setting helps",
    ),
    (
        "tcptoll study time-wait-2021",
        "the cost of connect(2) as local ports run low, and the effect of each fix",
    ),
    (
        "tcptoll study avalanche-2021",
        "a stalled backend that blocks a worker pool, and the effect of each fix",
    ),
];

fn next(summary: &Summary) -> Vec<NextStep> {
    let mut steps = Vec::new();
    if summary.causes.is_empty() && summary.place.kind == PlaceKind::Lab {
        steps.push(step(
            "tcptoll connect --backlog 16,4096 --count 500 --concurrency 500 --accept-delay 2ms --allow-errors 100%",
            "what a full accept queue costs",
        ));
    }
    steps.extend(explanations(summary));
    if summary.study.as_deref().is_some_and(|name| name.starts_with("tour-")) {
        for (command, why) in GOES_WRONG {
            steps.push(step(command, why));
        }
    }
    if summary.study.is_none() {
        steps.push(step("tcptoll study connect-2021", "the published figures next to yours"));
    }
    steps
}

/// Classes of failures before the handshake was complete.
const BEFORE: [&str; 7] = [
    "bind",
    "connect-refused",
    "connect-timeout",
    "local-fds",
    "local-memory",
    "local-ports",
    "unreachable",
];

fn count_of(arm: &Arm, histogram: &str) -> u64 {
    arm.histograms.get(histogram).map_or(0, |histogram| histogram.count)
}

/// Handshakes that were completed, those of connections that failed later too.
fn handshakes(arm: &Arm) -> u64 {
    count_of(arm, "connect_us") + count_of(arm, "connect_of_failed_us")
}

/// How many handshakes waited for a retransmitted SYN, and how long, where that is more than chance.
fn waits(arm: &Arm) -> Option<String> {
    let (waited, all) = (arm.rungs.iter().sum::<u64>(), handshakes(arm));
    if !waits_matter(waited, all) {
        return None;
    }
    let at: Vec<String> = arm
        .syn_retry_ladder_s
        .iter()
        .zip(&arm.rungs)
        .filter(|(_, count)| **count > 0)
        .map(|(at, _)| at.to_string())
        .collect();
    let long = match at.as_slice() {
        [] => return None,
        [only] => only.clone(),
        [first, second] => format!("{first} or {second}"),
        [first, .., last] => format!("{first} to {last}"),
    };
    let which = if all == arm.attempts { "handshakes" } else { "completed handshakes" };
    Some(format!(
        "{} of {} {which} waited {long} s for a retransmitted SYN",
        number::count(waited),
        number::count(all)
    ))
}

/// The median, next to the handshakes that waited.
fn half(arm: &Arm) -> Option<String> {
    let p50 = arm.histograms.get("connect_us")?.p50?;
    Some(format!("The median connect latency is {}.", number::time(p50)))
}

/// Arms in which nothing succeeded: what failed instead.
fn none_succeeded(arms: &[&Arm]) -> Option<String> {
    let failed = |arm: &&&Arm| arm.ok == 0 && arm.attempts > 0;
    let arm = arms.iter().find(failed)?;
    let others = arms.iter().filter(failed).count() as u64 - 1;
    let mut classes: Vec<(&str, u64)> = arm
        .errors
        .iter()
        .map(|(class, count)| (class.as_str(), *count))
        .filter(|(_, count)| *count > 0)
        .collect();
    classes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let of_class = |(class, count): &(&str, u64)| {
        format!("{} {}", number::count(*count), words(class, *count == 1))
    };
    let what: Vec<String> = classes.iter().map(of_class).collect();
    // Whoever resets first may be faster than the client's look at its handshake: its time is stated
    // where that of all is known.
    let later: u64 =
        classes.iter().filter(|(class, _)| !BEFORE.contains(class)).map(|(_, n)| n).sum();
    let handshake = arm.histograms.get("connect_of_failed_us");
    let after = handshake.filter(|h| later > 0 && h.count == later).and_then(middle);
    let after = match after {
        Some(us) if later == arm.attempts => format!(" ({})", number::time(us)),
        _ => String::new(),
    };
    let mut text = format!(
        "{}none of {} connections succeeded: {}{after}",
        in_arm(arms, arm),
        number::count(arm.attempts),
        what.join(", ")
    );
    if others > 0 {
        text += &format!("; none succeeded in {} either", plural(others, "other arm"));
    }
    Some(capital(&text) + ".")
}

fn middle(histogram: &HistogramSummary) -> Option<f64> {
    histogram.p50.or(histogram.mean)
}

/// What became of a connection, after its number.
fn words(class: &str, is_one: bool) -> String {
    let was = if is_one { "was" } else { "were" };
    match class {
        // A RST that answers a SYN is a refusal: a reset comes later.
        "reset" => format!("{was} reset after the handshake"),
        "truncated" => format!("{was} closed after the handshake without any data"),
        "timeout" => "timed out before the first byte".to_owned(),
        "connect-timeout" => "timed out during the handshake".to_owned(),
        "connect-refused" => format!("{was} refused"),
        "interrupted" => format!("{was} interrupted"),
        other => format!("failed with {other}"),
    }
}

/// A time limit that nobody asked for, where it ended a load.
fn cut(arms: &[&Arm]) -> Option<String> {
    let (arm, limit_s) = arms.iter().find_map(|arm| Some((arm, arm.cut_after_s?)))?;
    let text = format!(
        "{}the time limit of {limit_s} s stopped the load after {}; --count, --duration or --max-time \
         changes it.",
        in_arm(arms, arm),
        plural(arm.attempts, "connection")
    );
    Some(capital(&text))
}

/// Below this share of handshakes, chance losses of a network explain the waits.
const SHARE: f64 = 0.01;

/// Of fewer handshakes than this a share says nothing, and every wait counts.
const FEW: u64 = 100;

/// Every cause that a run may name, in the order of the answer.
pub(super) const CAUSES: &[&CauseSpec] =
    &[&ACCEPT_QUEUE_FULL, &SYN_QUEUE_FULL, &SYN_LOST_OR_QUEUE_FULL, &LOCAL_PORTS_SCARCE];

/// SYNs were retransmitted, and the server's counters are out of reach.
const SYN_LOST_OR_QUEUE_FULL: CauseSpec =
    CauseSpec::new("syn-lost-or-queue-full", syn_lost_or_queue_full);

/// Whether so many waits are worth a sentence: more than 1 % of the handshakes, or any of fewer
/// than 100.
fn waits_matter(waited: u64, handshakes: u64) -> bool {
    waited > 0 && (handshakes < FEW || waited as f64 > handshakes as f64 * SHARE)
}

/// SYNs of this client were retransmitted, and the server's counters are out of reach.
fn syn_lost_or_queue_full(arm: &Arm) -> Option<Finding> {
    if arm.server.is_some() || !arm.client.listeners.is_empty() || arm.syn_retry_ladder_s.is_empty()
    {
        return None;
    }
    let (late, _, ladder) = felt(arm);
    let gave_up = arm.errors.get("connect-timeout").copied().unwrap_or(0);
    let again = arm.client.counters.get("TcpExtTCPSynRetrans").copied().unwrap_or(0);
    if !waits_matter(late + gave_up, arm.attempts) || again <= 0 {
        return None;
    }
    let mut parts = Vec::new();
    if late > 0 {
        let at = ladder.join(", ");
        parts.push(format!("{} waited for a retransmitted SYN ({at})", number::count(late)));
    }
    if gave_up > 0 {
        parts.push(format!("{} timed out during the handshake", number::count(gave_up)));
    }
    let text = format!(
        "Of {} handshakes, {}. Either packets were lost on the path, or the server dropped SYNs because a queue was full. Only the server's counters show which.",
        number::count(arm.attempts),
        parts.join(" and ")
    );
    let evidence = [
        ("TcpExtTCPSynRetrans", Value::from(again)),
        ("handshakes_on_the_ladder", Value::from(late)),
        ("gave_up_connecting", Value::from(gave_up)),
    ];
    Some(Finding::new(text, evidence))
}

#[cfg(test)]
mod tests {
    use tcptoll_core::record::{HostSummary, Listener};

    use super::*;
    use crate::kit::conclusion::supported;

    fn arm(name: &str, backlog: Option<u32>, limit: u32) -> Arm {
        let listener = Listener {
            address: "10.77.0.2".into(),
            port: 80,
            accept_queue_peak: 1,
            accept_queue_limit: limit,
            ..Listener::default()
        };
        let factor = backlog.map(|backlog| ("backlog".to_owned(), backlog.into()));
        Arm {
            name: name.into(),
            factors: factor.into_iter().collect(),
            server: Some(HostSummary { listeners: vec![listener], ..HostSummary::default() }),
            ..Arm::default()
        }
    }

    #[test]
    fn only_arms_whose_backlogs_were_clamped_to_one_value_are_named() {
        let all = [
            arm("near", None, 4_096),
            arm("queue of 16", Some(16), 16),
            arm("queue of 4096", Some(4_096), 4_096),
        ];
        assert!(same_backlogs(&all).is_empty(), "an arm that asked for none has the default");
        let clamped = [&all[1..], &[arm("queue of 9000", Some(9_000), 4_096)]].concat();
        let text = same_backlogs(&clamped).first().unwrap().to_string();
        assert!(text.contains("the arms queue of 4096, queue of 9000 to the same value"), "{text}");
        assert!(!text.contains("queue of 16"), "{text}");
        let twice = [arm("a", Some(64), 64), arm("b", Some(64), 64)];
        assert!(same_backlogs(&twice).is_empty(), "they differ in another option");
    }

    fn histogram(count: u64, p50: f64) -> HistogramSummary {
        HistogramSummary { count, p50: Some(p50), ..HistogramSummary::default() }
    }

    fn attempted(name: &str, ok: u64, failed: &[(&str, u64)]) -> Arm {
        let errors: u64 = failed.iter().map(|(_, count)| count).sum();
        Arm {
            name: name.into(),
            attempts: ok + errors,
            ok,
            errors: failed.iter().map(|(class, n)| ((*class).to_owned(), *n)).collect(),
            histograms: [("connect_us".to_owned(), histogram(ok, 21.3))].into(),
            syn_retry_ladder_s: vec![1.0, 2.0, 3.0],
            ..Arm::default()
        }
    }

    #[test]
    fn handshakes_that_waited_are_counted_with_their_rungs() {
        let waited = |rungs: [u64; 3], ok| Arm { rungs: rungs.to_vec(), ..attempted("a", ok, &[]) };
        assert_eq!(
            waits(&waited([193, 0, 0], 1_000)).as_deref(),
            Some("193 of 1,000 handshakes waited 1 s for a retransmitted SYN")
        );
        assert!(waits(&waited([20, 3, 0], 1_000)).unwrap().contains("waited 1 or 2 s"));
        assert!(waits(&waited([20, 3, 1], 1_000)).unwrap().contains("waited 1 to 3 s"));
        assert_eq!(waits(&waited([10, 0, 0], 1_000)), None, "1 % may be chance");
        assert!(waits(&waited([1, 0, 0], 50)).unwrap().starts_with("1 of 50 handshakes"));
    }

    #[test]
    fn where_nothing_succeeded_the_sentence_says_what_failed() {
        let mut reset = attempted("a", 0, &[("reset", 10)]);
        reset.histograms = [("connect_of_failed_us".to_owned(), histogram(10, 83.2))].into();
        assert_eq!(
            none_succeeded(&[&reset]).as_deref(),
            Some("None of 10 connections succeeded: 10 were reset after the handshake (83.2 µs).")
        );
        let unseen = attempted("a", 0, &[("reset", 10)]);
        let text = none_succeeded(&[&unseen]).unwrap();
        assert!(text.ends_with("10 were reset after the handshake."), "{text}");
        let mixed = attempted("a", 0, &[("connect-timeout", 7), ("timeout", 1)]);
        assert_eq!(
            none_succeeded(&[&mixed]).as_deref(),
            Some(
                "None of 8 connections succeeded: 7 timed out during the handshake, 1 timed out before the first byte."
            )
        );
        assert_eq!(none_succeeded(&[&attempted("a", 1, &[("reset", 9)])]), None);
        let both = none_succeeded(&[&unseen, &mixed]).unwrap();
        assert!(both.starts_with("In arm a, none of 10 connections succeeded: "), "{both}");
        assert!(both.ends_with("; none succeeded in 1 other arm either."), "{both}");
    }

    #[test]
    fn a_load_that_its_time_limit_ended_says_how_far_it_came() {
        let cut_arm = Arm { cut_after_s: Some(10.0), ..attempted("a", 823, &[]) };
        let text = cut(&[&cut_arm]).unwrap();
        let says = "The time limit of 10 s stopped the load after 823 connections; ";
        assert!(text.starts_with(says), "{text}");
        assert_eq!(cut(&[&attempted("a", 1_000, &[])]), None);
    }

    /// 193 SYNs were retransmitted, and 193 of 1,000 handshakes took a second.
    fn waiting() -> Arm {
        Arm {
            name: "a".into(),
            attempts: 1_000,
            ok: 1_000,
            client: HostSummary {
                counters: [("TcpExtTCPSynRetrans".to_owned(), 193)].into(),
                ..HostSummary::default()
            },
            ..Arm::default()
        }
    }

    /// The causes where `waited` handshakes waited for the first retransmission.
    fn found(arm: &Arm, waited: u64) -> Vec<Cause> {
        let arm = arm.clone();
        let ladder = vec![1.0, 2.0];
        supported(&Arm { syn_retry_ladder_s: ladder, rungs: vec![waited, 0], ..arm }, CAUSES)
    }

    fn ids(arm: &Arm, waited: u64) -> Vec<String> {
        found(arm, waited).into_iter().map(|cause| cause.id).collect()
    }

    #[test]
    fn waits_matter_above_one_percent_or_where_handshakes_are_few() {
        assert!(waits_matter(11, 1_000) && !waits_matter(10, 1_000));
        assert!(waits_matter(1, 99) && !waits_matter(1, 100) && waits_matter(2, 100));
        assert!(!waits_matter(0, 5) && !waits_matter(0, 0));
    }

    #[test]
    fn at_a_server_elsewhere_the_cause_names_both_that_it_may_be() {
        let causes = found(&waiting(), 193);
        assert_eq!(causes[0].id, "syn-lost-or-queue-full");
        assert!(causes[0].text.contains("193 waited for a retransmitted SYN (193 at 1 s)"));
        assert_eq!(causes[0].evidence["TcpExtTCPSynRetrans"], 193);
        let gave_up = Arm { errors: [("connect-timeout".to_owned(), 40)].into(), ..waiting() };
        assert_eq!(ids(&gave_up, 0), ["syn-lost-or-queue-full"]);
    }

    #[test]
    fn few_waits_or_none_that_the_kernel_counted_are_no_cause() {
        assert!(ids(&waiting(), 10).is_empty());
        let uncounted = Arm { client: HostSummary::default(), ..waiting() };
        assert!(ids(&uncounted, 193).is_empty());
        assert!(supported(&waiting(), CAUSES).is_empty(), "handshakes were not looked at");
    }

    #[test]
    fn at_a_server_of_this_machine_the_counters_of_this_machine_prove_a_full_queue() {
        let listener = Listener {
            address: "0.0.0.0".into(),
            port: 80,
            accept_queue_peak: 5,
            accept_queue_limit: 4,
            ..Listener::default()
        };
        let mut own = waiting();
        own.client.listeners = vec![listener];
        own.client.counters.insert("TcpExtListenOverflows".into(), 193);
        let causes = found(&own, 193);
        assert_eq!(causes.iter().map(|c| c.id.as_str()).collect::<Vec<_>>(), ["accept-queue-full"]);
        assert!(causes[0].text.starts_with("The accept queue (backlog 4) was full"));
        assert_eq!(causes[0].evidence["accept_queue_peak"], 5);
        // Its listener was never full and no SYN was dropped: lost on the way.
        own.client.counters.remove("TcpExtListenOverflows");
        own.client.listeners[0].accept_queue_peak = 1;
        assert!(ids(&own, 193).is_empty());
    }
}
