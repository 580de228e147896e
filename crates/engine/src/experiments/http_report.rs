//! What follows from the arms of `http`: the answer in a sentence, causes, advice, what next.

mod statuses;

use tcptoll_model::causes::{Rungs, advice_for, causes_of};
use tcptoll_model::record::{Arm, Comparison, NextStep, PlaceKind, Summary};
use tcptoll_model::units::{human_count, human_us};

/// Comparisons that are told one by one; of more, the least and the greatest.
const TOLD: usize = 4;

/// Fills in what follows from the arms.
pub fn conclude(summary: &mut Summary) {
    summary.causes =
        summary.arms.iter().flat_map(|arm| causes_of(arm, &Rungs::default())).collect();
    let mut ids: Vec<&str> = summary.causes.iter().map(|cause| cause.id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    let advice = ids.iter().filter_map(|id| advice_for(id, proof(summary, id))).collect();
    summary.advice = advice;
    // What was due and what was achieved comes before every latency.
    summary.warnings.sort_by_key(|warning| warning.id != "rate-not-reached");
    // Trials of failures alone are not excluded, as they would fail again; but they are no result.
    summary.valid &=
        !summary.arms.iter().any(|arm| arm.ok == 0 && arm.attempts > 0 && !arm.partial);
    summary.answer = answer(summary);
    summary.next = next(summary);
}

fn value(arm: &Arm, metric: &str) -> Option<f64> {
    arm.metrics.get(metric).map(|metric| metric.value)
}

/// An arm of the same run that did without what is scarce: the measured proof of the cure.
fn proof(summary: &Summary, id: &str) -> Option<String> {
    if id != "local-ports-scarce" {
        return None;
    }
    let well = summary.arms.iter().find(|arm| {
        arm.ok == arm.attempts
            && arm.ok > 0
            && arm.reuse.as_deref() == Some("keep-alive")
            && summary.causes.iter().all(|cause| cause.arm != arm.name)
    })?;
    Some(format!(
        "in this run, arm {}: all {} requests answered over {} connections",
        well.name,
        human_count(well.ok),
        human_count(well.connections_ok?)
    ))
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
    sentences.extend(schedules(&measured));
    match measured.as_slice() {
        [arm] => sentences.extend(one(arm)),
        arms => {
            sentences.extend(left_over(summary).or_else(|| range(arms)));
            sentences.extend(who_pays(arms));
        }
    }
    sentences.extend(failed(&measured));
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
    if value < 100.0 { format!("{value:.1}/s") } else { format!("{}/s", human_count(value as u64)) }
}

/// Open loop: what was due and what was achieved, before anything else.
fn schedules(arms: &[&Arm]) -> Option<String> {
    let pairs: Vec<(&str, f64, f64)> = arms
        .iter()
        .filter_map(|arm| {
            let (intended, achieved) =
                (value(arm, "intended_per_s")?, value(arm, "achieved_per_s")?);
            Some((arm.name.as_str(), intended, achieved))
        })
        .collect();
    let short = |(_, intended, achieved): &&(&str, f64, f64)| *achieved < *intended * 0.99;
    match pairs.as_slice() {
        [] => None,
        [(_, intended, achieved)] => {
            Some(format!("{} were due and {} succeeded.", per_s(*intended), per_s(*achieved)))
        }
        all => Some(match all.iter().find(short) {
            None => "All that was due succeeded in every arm.".to_owned(),
            Some((name, intended, achieved)) => format!(
                "In {} of {} arms less succeeded than was due: in {name} {} of {}.",
                all.iter().filter(short).count(),
                all.len(),
                per_s(*achieved),
                per_s(*intended)
            ),
        }),
    }
}

/// One arm: rate, latency, CPU.
fn one(arm: &Arm) -> Option<String> {
    let rate = value(arm, "requests_per_s")?;
    let latency = arm.histograms.get("latency_us")?;
    let mut text = format!(
        "{} requests/s{}, each answered in {} ({})",
        human_count(rate.round() as u64),
        arm.reuse.as_ref().map(|reuse| format!(" with {reuse}")).unwrap_or_default(),
        human_us(latency.p50.or(latency.mean)?),
        if latency.p50.is_some() { "median" } else { "mean" }
    );
    if let Some(p99) = latency.p99 {
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
    let of_rates: Vec<&Comparison> = summary
        .comparisons
        .iter()
        .filter(|comparison| comparison.metric == "requests_per_s" && comparison.ratio.is_some())
        .collect();
    let one = |comparison: &&Comparison| {
        let share = with_interval(comparison)?;
        Some(format!("{} gives {share} of the throughput of {}", comparison.a, comparison.b))
    };
    if of_rates.len() <= TOLD {
        let told: Vec<String> = of_rates.iter().filter_map(one).collect();
        return (!told.is_empty()).then(|| format!("{}.", told.join("; ")));
    }
    let by_ratio = |a: &&&Comparison, b: &&&Comparison| {
        a.ratio.unwrap_or(1.0).total_cmp(&b.ratio.unwrap_or(1.0))
    };
    let (least, most) = (of_rates.iter().min_by(by_ratio)?, of_rates.iter().max_by(by_ratio)?);
    Some(format!("Least is left where {}; most where {}.", one(least)?, one(most)?))
}

/// Who closes, and who holds TIME-WAIT. `None`: nobody closes while the load runs.
fn closers(arm: &Arm) -> Option<String> {
    let closing = arm.closing.as_ref()?;
    let (client, server) = (closing.by_client, closing.by_server);
    if client + server == 0 {
        return None;
    }
    let who = if client > server { "the client" } else { "the server" };
    let count = |metric| value(arm, metric).map(|count| human_count(count.round() as u64));
    let mut text = format!("{who} closes");
    if let Some(on_client) = count("client_time_wait") {
        text += &format!(", and {on_client} sockets wait in TIME-WAIT on the client");
        if let Some(on_server) = count("server_time_wait") {
            text += &format!(", {on_server} on the server");
        }
    }
    let mut letters = text.chars();
    let first = letters.next()?;
    Some(first.to_uppercase().chain(letters).collect())
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

fn lower(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

/// What failed, in all arms together.
fn failed(arms: &[&Arm]) -> Option<String> {
    let attempts: u64 = arms.iter().map(|arm| arm.attempts).sum();
    let ok: u64 = arms.iter().map(|arm| arm.ok).sum();
    let failed = attempts.saturating_sub(ok);
    (failed > 0).then(|| {
        format!(
            "{} of {} requests failed; rates and latencies are of those that did not.",
            human_count(failed),
            human_count(attempts)
        )
    })
}

fn next(summary: &Summary) -> Vec<NextStep> {
    let step = |command: &str, why: &str| NextStep { command: command.into(), why: why.into() };
    let mut steps = Vec::new();
    for cause in &summary.causes {
        let command = format!("tcptoll explain {}", cause.id);
        if steps.iter().all(|s: &NextStep| s.command != command) {
            steps.push(step(&command, "what it is, how to see it, how to cure it"));
        }
    }
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
