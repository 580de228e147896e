//! What follows from the arms of `connect`: the answer in a sentence, causes, advice, what next.

mod trouble;

use crate::kit::conclusion::{
    answer_of, capital, cured, explain, explanations, first_sentence, in_arm, step,
};
use tcptoll_core::record::{Arm, Cause, NextStep, PlaceKind, Summary};
use tcptoll_core::stats::need;
use tcptoll_core::units::{human_count, human_us, plural};
use tcptoll_core::verdict::bound;
use tcptoll_core::verdict::effective::same_effective;
use tcptoll_core::verdict::warning::Warning;

use self::trouble::{cut, half, none_succeeded, waits};
use super::causes;

/// Fills in what follows from the arms.
pub(super) fn conclude(summary: &mut Summary) {
    explain(summary, causes::ALL, proof);
    summary.answer = answer(summary);
    let same = same_backlogs(&summary.arms);
    summary.warnings.extend(same.iter().map(|warning| warning.entry(None)));
    few_samples(summary);
    summary.next = next(summary);
}

/// Options that make an accept queue longer.
const QUEUE: &[&str] = &["backlog", "server-sysctl"];

fn proof(summary: &Summary, id: &str) -> Option<String> {
    if !id.ends_with("-queue-full") {
        return None;
    }
    let cause = summary.causes.iter().find(|cause| cause.id == id)?;
    let ill = summary.arms.iter().find(|arm| arm.name == cause.arm)?;
    let well = cured(summary, ill, QUEUE)?;
    let max = well.histograms.get("connect_us").and_then(|h| h.max)?;
    Some(format!(
        "arm {}: all {} connected, the slowest in {}",
        well.name,
        human_count(well.ok),
        human_us(max)
    ))
}

/// Too few values for the last quantile that is shown; what several arms lack is said once.
fn few_samples(summary: &mut Summary) {
    let need = need(999, 1000);
    let few: Vec<(&str, u64)> = summary
        .arms
        .iter()
        .filter_map(|arm| Some((arm.name.as_str(), arm.histograms.get("connect_us")?.count)))
        .filter(|(_, have)| *have > 0 && *have < need)
        .collect();
    let Some(&(arm, have)) = few.first() else { return };
    let warning = Warning::TooFewSamples { have, need, quantile: "p99.9" };
    let entry = warning.entry((few.len() == 1).then_some(arm));
    summary.warnings.insert(0, entry);
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
    sentences.extend(none_succeeded(&measured));
    let rare = rare_trouble(summary, &measured);
    let is_rare = rare.is_some();
    if let Some((arm, rarely)) = rare {
        sentences.extend(one(arm));
        sentences.push(rarely);
    } else {
        sentences.extend(trouble(summary, &measured));
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
    if is_target && summary.causes.first().is_some_and(|cause| cause.id == "accept-queue-full") {
        sentences.insert(
            0,
            "This load filled the server's accept queue, or helped to, and whoever connects then waits."
                .to_owned(),
        );
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
    let arms = healthy(summary, measured);
    match arms.iter().filter(|arm| typical(arm).is_some()).collect::<Vec<_>>()[..] {
        [arm] => one(arm).into_iter().collect(),
        _ => many(&arms, !summary.comparisons.is_empty()).unwrap_or_default(),
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
    let (waited, all) = (plural(waited, "handshake"), human_count(arm.attempts));
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
    let several = measured.len() > 1;
    let ill = summary.causes.first().and_then(|cause| {
        let arm = measured.iter().find(|arm| arm.name == cause.arm)?;
        Some((cause, *arm))
    });
    let mut sentences = Vec::new();
    sentences.extend(ill.map(|(cause, arm)| turned_away(cause, arm, several)));
    if ill.is_none_or(|(_, arm)| waits(arm).is_none()) {
        let waited = measured.iter().find_map(|arm| Some((*arm, waits(arm)?)));
        sentences.extend(waited.map(|(arm, text)| format!("{}{text}.", in_arm(several, arm))));
    }
    let spared = ill.and_then(|(_, arm)| {
        let well = cured(summary, arm, QUEUE)?;
        let max = well.histograms.get("connect_us").and_then(|h| h.max)?;
        Some(format!(
            "In arm {}, all {} connected, the slowest in {}.",
            well.name,
            human_count(well.ok),
            human_us(max)
        ))
    });
    sentences.extend(spared);
    sentences
}

/// What the cause did to its arm.
fn turned_away(cause: &Cause, arm: &Arm, several: bool) -> String {
    let reason = match queue_of(&cause.id) {
        Some(reason) => reason,
        None if several => return format!("Arm {}: {}", arm.name, first_sentence(&cause.text)),
        None => return first_sentence(&cause.text).to_owned(),
    };
    // What a signal stopped has not failed.
    let stopped = arm.errors.get("interrupted").copied().unwrap_or(0);
    let failed = (arm.attempts - arm.ok).saturating_sub(stopped);
    // Of an arm where nothing succeeded the answer says so anyway.
    let failed = (failed > 0 && arm.ok > 0).then(|| human_count(failed));
    let text = match (waits(arm), failed) {
        (Some(waited), Some(failed)) => {
            format!("{waited}, and {failed} connections failed: {reason}.")
        }
        (Some(waited), None) => format!("{waited}: {reason}."),
        (None, Some(failed)) => {
            format!("{failed} of {} connections failed: {reason}.", human_count(arm.attempts))
        }
        (None, None) => format!("{reason}."),
    };
    capital(&format!("{}{text}", in_arm(several, arm)))
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
                        && cured(summary, other, QUEUE).is_some_and(|w| w.name == arm.name)
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
        in_arm(arms.len() > 1, arm),
        human_us(first.p50.or(first.mean)?)
    )))
}

fn one(arm: &Arm) -> Option<String> {
    let typical_us = typical(arm)?;
    let word = if arm.histograms.get("connect_us")?.p50.is_some() { "median" } else { "mean" };
    let mut text = format!("Opening a connection takes {} ({word})", human_us(typical_us));
    if let Some(expected) = &arm.expectation {
        let more_us = typical_us - expected.rtt_us;
        let trips = typical_us / expected.rtt_us;
        let rtt = match expected.rtt_from.as_str() {
            "link setting" => human_us(expected.rtt_us),
            from => format!("{} ({from})", human_us(expected.rtt_us)),
        };
        // As a difference, so that rounding does not make the figures contradict each other.
        text += &if more_us < 0.0 && expected.cpu_us.is_none() {
            format!(", less than the round trip of {rtt}")
        } else if more_us >= 0.0 && trips < 1.2 {
            format!(", one round trip of {rtt} plus {}", human_us(more_us))
        } else {
            format!(", {trips:.2} times the round trip of {rtt}")
        };
    } else if arm.link.is_some() {
        text += " over a link without emulated delay";
    }
    if let Some(cpu) = arm.client.cpu_us_per_op {
        text += &format!(", and costs the client {} of CPU", human_us(cpu));
    }
    Some(text + ".")
}

/// Several arms. Where arms are compared, which is slower is for their verdict to say.
fn many(arms: &[&Arm], compared: bool) -> Option<Vec<String>> {
    let key = |arm: &&&Arm| typical(arm).map_or(u64::MAX, |us| (us * 1e3) as u64);
    let least = arms.iter().filter(|arm| typical(arm).is_some()).min_by_key(key)?;
    let most = arms.iter().filter(|arm| typical(arm).is_some()).max_by_key(key)?;
    let takes = match (compared, arms) {
        (false, _) => format!(
            "Opening a connection takes {} ({}) to {} ({}).",
            human_us(typical(least)?),
            least.name,
            human_us(typical(most)?),
            most.name
        ),
        (true, [a, b]) => format!(
            "Opening a connection takes {} ({}) and {} ({}) at the median.",
            human_us(typical(a)?),
            a.name,
            human_us(typical(b)?),
            b.name
        ),
        (true, _) => format!(
            "Opening a connection takes {} to {} (medians of {} arms).",
            human_us(typical(least)?),
            human_us(typical(most)?),
            arms.len()
        ),
    };
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
            format!("one round trip plus {} to {}", human_us(least_us), human_us(most_us))
        } else {
            format!("{least:.2} to {most:.2} round trips")
        };
        format!("On the emulated links a connection takes {takes}.")
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

#[cfg(test)]
mod tests {
    use tcptoll_core::record::{HostSummary, Listener};

    use super::*;

    fn arm(name: &str, backlog: Option<u32>, limit: u32) -> Arm {
        let listener = Listener {
            address: "10.77.0.2".into(),
            port: 80,
            accept_queue_peak: 1,
            accept_queue_limit: limit,
            syn_queue_peak: None,
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
}
