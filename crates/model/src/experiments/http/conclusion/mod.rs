//! What follows from the arms of `http`: the answer in a sentence, causes, advice, what next.

mod statuses;

use super::causes;
use crate::bound;
use crate::experiments::conclusion::{
    Stated, capital, comparisons, explain, explanations, lower, step, value,
};
use crate::experiments::figures::RESOLUTION_SHOWN;
use crate::record::{Arm, Comparison, NextStep, PlaceKind, Summary};
use crate::units::{human_count, human_rate_per_s, human_us};

/// Latency that grew by less than this factor is not said to have grown.
const GROWTH_SHOWN: f64 = 1.1;

/// Fills in what follows from the arms.
pub(super) fn conclude(summary: &mut Summary) {
    explain(summary, causes::ALL, |_, _| None);
    // What was due and what was achieved comes before every latency.
    let of_the_rate = |id: &str| matches!(id, "saturated" | "rate-not-reached");
    summary.warnings.sort_by_key(|warning| !of_the_rate(&warning.id));
    summary.answer = answer(summary);
    summary.next = next(summary);
}

fn answer(summary: &Summary) -> String {
    let measured: Vec<&Arm> = summary.arms.iter().filter(|arm| arm.failure.is_none()).collect();
    if measured.iter().all(|arm| arm.ok == 0) {
        let Some(class) = measured.first().and_then(|arm| worst(arm)) else {
            return "Nothing was measured.".to_owned();
        };
        let failed = format!("No request succeeded; most failed with {class}.");
        let status = statuses::unexpected(&measured);
        let cause = summary.causes.first().map(|cause| cause.text.clone());
        let parts: Vec<String> =
            [schedules(&measured), Some(failed), status, cause].into_iter().flatten().collect();
        return parts.join(" ");
    }
    let mut sentences = Vec::new();
    sentences.extend(bound::sentence(summary, "requests_per_s", "requests"));
    sentences.extend(schedules(&measured));
    match measured.as_slice() {
        [arm] => sentences.extend(one(arm)),
        arms => {
            sentences.extend(left_over(summary).or_else(|| range(arms)));
            sentences.extend(who_pays(arms));
        }
    }
    sentences.extend(statuses::unexpected(&measured));
    sentences.extend(summary.causes.first().map(|cause| {
        if measured.len() > 1 {
            format!("Arm {}: {}", cause.arm, cause.text)
        } else {
            cause.text.clone()
        }
    }));
    sentences.join(" ")
}

fn worst(arm: &Arm) -> Option<&str> {
    arm.errors.iter().max_by_key(|(_, count)| **count).map(|(class, _)| class.as_str())
}

fn per_s(value: f64) -> String {
    format!("{}/s", human_rate_per_s(value))
}

/// A rate in words, with how far it may be off where that is much: `6.7/s ± 3.3/s`.
fn rate_of(arm: &Arm, metric: &str) -> Option<String> {
    let rate = value(arm, metric)?;
    let off = value(arm, "rate_resolution_per_s").filter(|off| *off > rate * RESOLUTION_SHOWN);
    Some(match off {
        Some(off) => format!("{} ± {}", human_rate_per_s(rate), per_s(off)),
        None => per_s(rate),
    })
}

/// Open loop: what was due and what was sustained, before anything else.
fn schedules(arms: &[&Arm]) -> Option<String> {
    let scheduled: Vec<&Arm> =
        arms.iter().copied().filter(|arm| value(arm, "intended_per_s").is_some()).collect();
    let saturated: Vec<&Arm> =
        scheduled.iter().copied().filter(|arm| arm.saturation.is_some()).collect();
    match (scheduled.as_slice(), saturated.as_slice()) {
        ([], _) => None,
        ([arm], []) => Some(format!(
            "{} were due and {} succeeded.",
            per_s(value(arm, "intended_per_s")?),
            rate_of(arm, "achieved_per_s")?
        )),
        ([_], [arm]) => sustained(arm).map(|text| format!("{text}.")),
        (_, []) => {
            let short = scheduled.iter().find(|arm| {
                let (due, achieved) = (value(arm, "intended_per_s"), value(arm, "achieved_per_s"));
                due.zip(achieved).is_some_and(|(due, achieved)| achieved < due * 0.99)
            });
            Some(match short {
                None => "All that was due succeeded in every arm.".to_owned(),
                Some(arm) => format!(
                    "In {}, {} were due and {} succeeded.",
                    arm.name,
                    per_s(value(arm, "intended_per_s")?),
                    rate_of(arm, "achieved_per_s")?
                ),
            })
        }
        (_, [first, ..]) => Some(format!(
            "{} of {} arms were saturated; in {}, {}.",
            saturated.len(),
            scheduled.len(),
            first.name,
            sustained(first)?
        )),
    }
}

/// What a saturated arm sustained, and what was due.
fn sustained(arm: &Arm) -> Option<String> {
    let found = arm.saturation.as_ref()?;
    Some(format!(
        "{} requests/s were sustained: saturated, as {} were due and {} requests were unanswered at the end",
        human_rate_per_s(found.sustained_per_s),
        per_s(found.due_per_s),
        human_count(found.unserved)
    ))
}

/// One arm: rate, latency, CPU.
fn one(arm: &Arm) -> Option<String> {
    let rate = rate_of(arm, "requests_per_s")?;
    let latency = arm.histograms.get("latency_us")?;
    let with = arm.reuse.as_ref().map(|reuse| format!(" with {reuse}")).unwrap_or_default();
    let mut text = match arm.saturation.as_ref().map(|s| (s.first_quarter_us, s.last_quarter_us)) {
        Some((Some(first), Some(last))) if last > first * GROWTH_SHOWN => format!(
            "The median latency{with} grew from {} in the first quarter to {} in the last",
            human_us(first),
            human_us(last)
        ),
        Some(_) => format!(
            "Latency{with} is mostly waiting for a connection ({}, mean)",
            human_us(latency.mean?)
        ),
        None => {
            let typical = human_us(latency.p50.or(latency.mean)?);
            let word = if latency.p50.is_some() { "median" } else { "mean" };
            let rate = rate.trim_end_matches("/s");
            format!("{rate} requests/s{with}, each answered in {typical} ({word})")
        }
    };
    if let Some(p99) = latency.p99.filter(|_| arm.saturation.is_none()) {
        text += &format!(", 99 of 100 within {}", human_us(p99));
    }
    let cpu = |metric| value(arm, metric).map(human_us);
    match (cpu("client_cpu_us_per_op"), cpu("server_cpu_us_per_op")) {
        (Some(client), Some(server)) => {
            text += &format!("; one costs the client {client} and the server {server} of CPU");
        }
        (Some(client), None) => text += &format!("; one costs the client {client} of CPU"),
        _ => {}
    }
    let mut text = text + ".";
    if let Some(closers) = closers(arm) {
        text += &format!(" {closers}.");
    }
    Some(text)
}

/// Several arms without a comparison.
fn range(arms: &[&Arm]) -> Option<String> {
    let rate = |arm: &&&Arm| value(arm, "requests_per_s").map_or(0, |rate| (rate * 1e3) as u64);
    let least = arms.iter().filter(|arm| arm.ok > 0).min_by_key(rate)?;
    let most = arms.iter().filter(|arm| arm.ok > 0).max_by_key(rate)?;
    let shown = |arm: &Arm| Some(human_count(value(arm, "requests_per_s")?.round() as u64));
    Some(format!(
        "From {} requests/s ({}) to {} ({}).",
        shown(least)?,
        least.name,
        shown(most)?,
        most.name
    ))
}

fn with_interval(comparison: &Comparison) -> Option<String> {
    let ratio = comparison.ratio.filter(|ratio| ratio.is_finite())?;
    Some(match comparison.ci95 {
        Some([low, high]) => format!("{ratio:.2} [{low:.2}, {high:.2}]"),
        None => format!("{ratio:.2}"),
    })
}

/// What is left of the throughput, as the comparisons have it.
fn left_over(summary: &Summary) -> Option<String> {
    let one = |comparison: &Comparison| {
        let share = with_interval(comparison)?;
        Some(format!("{} gives {share} of the throughput of {}", comparison.a, comparison.b))
    };
    match comparisons(summary, "requests_per_s") {
        Stated::Each(all) => {
            let phrases: Vec<String> = all.into_iter().filter_map(one).collect();
            (!phrases.is_empty()).then(|| format!("{}.", phrases.join("; ")))
        }
        Stated::Ends(least, most, _) => {
            Some(format!("Least is left where {}; most where {}.", one(least)?, one(most)?))
        }
    }
}

/// Who closes first, and who holds TIME-WAIT. `None`: nobody closes while the load runs.
fn closers(arm: &Arm) -> Option<String> {
    let closing = arm.closing.as_ref()?;
    let closed = closing.closed();
    let mut classes = [
        ("both", closing.both.unwrap_or(0)),
        ("the client", closing.by_client),
        ("the server", closing.by_server),
    ];
    classes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let share = |count: u64| match count as f64 / closed as f64 * 100.0 {
        percent if percent < 0.5 => "under 1 %".to_owned(),
        percent => format!("{percent:.0} %"),
    };
    let mut text = match classes {
        [(_, 0), ..] => return None,
        // What rounds to all of them is all but a few; the exact counts are in the record.
        [("both", most), ..] if most as f64 >= closed as f64 * 0.995 => {
            "both close first, as their FINs cross".to_owned()
        }
        [(who, most), ..] if most as f64 >= closed as f64 * 0.995 => format!("{who} closes first"),
        [(who, most), others @ ..] => {
            let verb = if who == "both" { "close" } else { "closes" };
            let mut text = format!("{who} {verb} first on {} of connections", share(most));
            for (who, count) in others.into_iter().filter(|(_, count)| *count > 0) {
                text += &format!(", {who} on {}", share(count));
            }
            text
        }
    };
    let count = |metric| value(arm, metric).map(|count| human_count(count.round() as u64));
    if let Some(on_client) = count("client_time_wait") {
        text += &format!(", and {on_client} sockets wait in TIME-WAIT on the client");
        if let Some(on_server) = count("server_time_wait") {
            text += &format!(", {on_server} on the server");
        }
        if closing.open_at_end > 0 {
            text += " (with those open at the end, which the client closed then)";
        }
    }
    Some(capital(&text))
}

/// Of each way of reuse, by its first arm: who closes, and how many segments a request takes.
fn who_pays(arms: &[&Arm]) -> Option<String> {
    let mut ways: Vec<&Arm> = Vec::new();
    for arm in arms {
        if ways.iter().all(|seen| seen.reuse != arm.reuse) {
            ways.push(arm);
        }
    }
    let segments = |arm: &Arm| {
        let sum = value(arm, "client_segments_per_op")? + value(arm, "server_segments_per_op")?;
        Some(format!("{sum:.1} segments a request"))
    };
    let told: Vec<String> = ways
        .iter()
        .filter_map(|arm| {
            let name = arm.reuse.as_deref()?;
            let parts: Vec<String> = [closers(arm).map(|text| lower(&text)), segments(arm)]
                .into_iter()
                .flatten()
                .collect();
            (!parts.is_empty()).then(|| format!("{name}: {}", parts.join("; ")))
        })
        .collect();
    (ways.len() > 1 && !told.is_empty()).then(|| {
        let told: Vec<String> = told.into_iter().map(|text| format!("With {text}.")).collect();
        told.join(" ")
    })
}

fn next(summary: &Summary) -> Vec<NextStep> {
    let mut steps = explanations(summary);
    if summary.place.kind == PlaceKind::Lab && summary.study.is_none() {
        if summary.arms.len() == 1 {
            steps.push(step(
                "tcptoll http --reuse keep-alive,server-close,client-close",
                "what it costs not to use connections again, and who pays",
            ));
        }
        steps.push(step("tcptoll study http-keepalive-2019", "the published figures beside yours"));
    }
    if summary.study.as_deref() == Some("http-keepalive-2019") {
        steps.push(step("tcptoll study http-reuse", "where reuse stops to matter"));
    }
    steps
}

#[cfg(test)]
mod tests;
