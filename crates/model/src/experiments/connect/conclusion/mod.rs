//! What follows from the arms of `connect`: the answer in a sentence, causes, advice, what next.

mod trouble;

use crate::bound;
use crate::effective::same_effective;
use crate::experiments::conclusion::{capital, cured, explain, explanations, step};
use crate::record::{Arm, NextStep, PlaceKind, Summary};
use crate::stats::need;
use crate::units::{human_count, human_us};
use crate::warning::Warning;

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
        "in this run, arm {}: all {} connected, the slowest in {}",
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
    sentences.extend(waits(&measured));
    if measured.iter().any(|arm| arm.ok > 0)
        && summary.arms.iter().all(|arm| !arm.histograms.contains_key("connect_us"))
    {
        sentences.extend(first_byte_only(&measured));
        return sentences.join(" ");
    }
    match healthy(summary, &measured).as_slice() {
        [] => {}
        [arm] => sentences.extend(one(arm)),
        arms => match arms.iter().filter(|arm| typical(arm).is_some()).collect::<Vec<_>>()[..] {
            [arm] => sentences.extend(one(arm)),
            _ => sentences.extend(many(arms, !summary.comparisons.is_empty())),
        },
    }
    sentences.extend(summary.causes.first().and_then(|cause| turned_away(summary, &cause.arm)));
    if let ([arm], Some(_)) = (measured.as_slice(), summary.causes.first()) {
        sentences.extend(half(arm));
    }
    sentences.extend(none_succeeded(&measured));
    if sentences.is_empty() {
        sentences.extend(measured.iter().find_map(|arm| one(arm)));
    }
    sentences.extend(cut(&measured));
    sentences.join(" ")
}

/// What a full queue or a lack of ports did to one arm, and that another was spared.
fn turned_away(summary: &Summary, name: &str) -> Option<String> {
    let arm = summary.arms.iter().find(|arm| arm.name == name)?;
    let cause = summary.causes.iter().find(|cause| cause.arm == name)?;
    // What a signal stopped has not failed.
    let stopped = arm.errors.get("interrupted").copied().unwrap_or(0);
    let silent = (arm.attempts - arm.ok).saturating_sub(stopped);
    let what = match cause.id.as_str() {
        "accept-queue-full" => "the accept queue was full",
        "syn-queue-full" => "the SYN queue was full",
        "syn-lost-or-queue-full" => "SYNs were lost on the way, or a queue of the server was full",
        _ => return Some(cause.text.clone()),
    };
    let mut text =
        if summary.arms.len() > 1 { format!("In arm {name}, {what}") } else { capital(what) };
    // With an arm where nothing succeeded the answer says so anyway.
    if silent > 0 && arm.ok > 0 {
        let (failed, of) = (human_count(silent), human_count(arm.attempts));
        text += &format!(": {failed} of {of} connections failed");
    }
    if let Some(well) = cured(summary, arm, QUEUE) {
        let max = well.histograms.get("connect_us").and_then(|h| h.max);
        text += &format!(
            "; in arm {} all {} connected, the slowest in {}",
            well.name,
            human_count(well.ok),
            human_us(max?)
        );
    }
    Some(text + ".")
}

/// Arms whose typical connection shows what the handshake costs, not what a queue or a lack does.
fn healthy<'a>(summary: &Summary, measured: &[&'a Arm]) -> Vec<&'a Arm> {
    measured
        .iter()
        .filter(|arm| {
            let ill = |name: &str| summary.causes.iter().any(|cause| cause.arm == name);
            // Nor the one beside it that shows the cure: it is of the same burst.
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
            Some(cpu_us) if (0.9..1.2).contains(&trips) => {
                format!(": one round trip of {rtt} and {} at the two ends", human_us(cpu_us))
            }
            _ => format!(", {trips:.2} times the round trip of {rtt} ({})", expected.rtt_from),
        };
    } else if arm.link.is_some() {
        text += ", none of it for distance: the packets cross no emulated link";
    }
    if let Some(cpu) = arm.client.cpu_us_per_op {
        text += &format!("; it costs the client {} of CPU", human_us(cpu));
    }
    Some(text + ".")
}

/// Several arms at once. Where arms are compared, which is slower is for their verdict to say.
fn many(arms: &[&Arm], compared: bool) -> Option<String> {
    let key = |arm: &&&Arm| typical(arm).map_or(u64::MAX, |us| (us * 1e3) as u64);
    let least = arms.iter().filter(|arm| typical(arm).is_some()).min_by_key(key)?;
    let most = arms.iter().filter(|arm| typical(arm).is_some()).max_by_key(key)?;
    let cpu: Vec<f64> = arms.iter().filter_map(|arm| arm.client.cpu_us_per_op).collect();
    let (low, high) = (
        cpu.iter().copied().fold(f64::INFINITY, f64::min),
        cpu.iter().copied().fold(0.0, f64::max),
    );
    let mut text = match (compared, arms) {
        (false, _) => format!(
            "Opening a connection takes from {} ({}) to {} ({})",
            human_us(typical(least)?),
            least.name,
            human_us(typical(most)?),
            most.name
        ),
        (true, [a, b]) => format!(
            "Opening a connection takes {} in the median ({}) and {} ({})",
            human_us(typical(a)?),
            a.name,
            human_us(typical(b)?),
            b.name
        ),
        (true, _) => format!(
            "Opening a connection takes {} to {} in the medians of {} arms",
            human_us(typical(least)?),
            human_us(typical(most)?),
            arms.len()
        ),
    };
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
        text += &format!(", over a distance {least:.2} to {most:.2} round trips");
    }
    if high > 0.0 {
        text += &format!(", and {} to {} of the client's CPU", human_us(low), human_us(high));
    }
    Some(text + ".")
}

/// What else can go wrong when connecting, one command each.
const GOES_WRONG: [(&str, &str); 3] = [
    (
        "tcptoll study queue-overflow-2021",
        "full queues: what clients are told, and which setting helps",
    ),
    ("tcptoll study time-wait-2021", "local ports run low: the cost of connect(2), and each fix"),
    ("tcptoll study avalanche-2021", "a stalled backend blocks a pool of workers, and each fix"),
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
    if summary.study.as_deref() == Some("tour") {
        for (command, why) in GOES_WRONG {
            steps.push(step(command, why));
        }
    }
    if summary.study.is_none() {
        steps.push(step("tcptoll study connect-2021", "the published figures beside yours"));
    }
    steps
}

#[cfg(test)]
mod tests {
    use crate::record::{HostSummary, Listener};

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
        assert!(text.contains("the arms queue of 4096, queue of 9000 to the same one"), "{text}");
        assert!(!text.contains("queue of 16"), "{text}");
        let twice = [arm("a", Some(64), 64), arm("b", Some(64), 64)];
        assert!(same_backlogs(&twice).is_empty(), "they differ in another option");
    }
}
