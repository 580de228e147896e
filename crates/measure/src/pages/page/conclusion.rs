//! What follows from the arms of `page`: the answer, causes, what to run next.

use super::{CONNECTIONS, CRITICAL_HANDSHAKES, REQUESTS, SPAN, SPAN_MEAN, causes, options};
use crate::kit::conclusion::{
    answer_of, capital, cured, explain, explanations, in_arm, step, value,
};
use tcptoll_core::experiment::spec::MetricSpec;
use tcptoll_core::http::status::reason;
use tcptoll_core::page::waterfall::Request;
use tcptoll_core::record::{Arm, NextStep, Summary};
use tcptoll_core::units::{human_count, human_us, plural};

/// Fills in what follows from the arms.
pub(super) fn conclude(summary: &mut Summary) {
    explain(summary, causes::ALL, proof);
    summary.answer = answer(summary);
    summary.next = next(summary);
}

/// The time of the first page, which the other causes are not about.
fn proof(summary: &Summary, id: &str) -> Option<String> {
    if id != causes::CONNECTION_PER_RESOURCE.id {
        return None;
    }
    let cause = summary.causes.iter().find(|cause| cause.id == id)?;
    let ill = summary.arms.iter().find(|arm| arm.name == cause.arm)?;
    let well = cured(summary, ill, &options::KEPT)?;
    let [took, instead] = [span(well)?, span(ill)?].map(human_us);
    Some(format!("arm {}: the page takes {took} instead of {instead}", well.name))
}

/// The comparison is stated before, by the code that all share.
fn answer(summary: &Summary) -> String {
    let measured: Vec<&Arm> = summary.arms.iter().filter(|arm| span(arm).is_some()).collect();
    if measured.is_empty() {
        let failed = summary.arms.iter().find_map(failed).unwrap_or_default();
        return format!("No page load completed{failed}.");
    }
    let sentences = [loaded(&measured), critical(&measured)];
    answer_of(summary, sentences.into_iter().flatten().collect())
}

/// The first request that failed: a clause.
fn failed(arm: &Arm) -> Option<String> {
    let requests = &arm.own.page.as_ref()?.waterfall.requests;
    let failed = requests.iter().find(|one| one.error.is_some())?;
    let Request { url, error, status, .. } = failed;
    Some(match (error.as_deref()?, status) {
        ("status", Some(status @ 300..400)) => format!(
            ": {url} returned status {status}, a redirect, which tcptoll does not follow; give the URL of its target instead"
        ),
        ("status", Some(status)) => format!(": {url} returned status {status}"),
        (class, _) => {
            let reason = reason(class, arm.first_errors.get(class).map(String::as_str));
            format!(": {url} failed with {class}{reason}")
        }
    })
}

fn span(arm: &Arm) -> Option<f64> {
    arm.histograms.get(SPAN.name).and_then(|span| span.p50).or_else(|| value(arm, SPAN_MEAN.name))
}

fn count(arm: &Arm, metric: &MetricSpec) -> u64 {
    value(arm, metric.name).unwrap_or_default().round() as u64
}

/// How long the page took, and over how many connections: of two arms both, of more the ends.
fn loaded(arms: &[&Arm]) -> Option<String> {
    let took = |arm: &Arm| {
        let connections = plural(count(arm, &CONNECTIONS), "connection");
        Some(format!("{} over {connections}", human_us(span(arm)?)))
    };
    let by_span = |a: &&&Arm, b: &&&Arm| {
        let span = |arm: &Arm| span(arm).unwrap_or_default();
        span(a).total_cmp(&span(b))
    };
    let (first, second, between) = match arms {
        [arm] => {
            let requests = plural(count(arm, &REQUESTS), "request");
            return Some(format!("Loading the page takes {}, with {requests}.", took(arm)?));
        }
        [a, b] => (*a, *b, "and"),
        arms => (*arms.iter().min_by(by_span)?, *arms.iter().max_by(by_span)?, "to"),
    };
    Some(format!(
        "Loading the page takes {} ({}) {between} {} ({}).",
        took(first)?,
        first.name,
        took(second)?,
        second.name
    ))
}

/// How many handshakes the page waited for, where it opened most.
fn critical(arms: &[&Arm]) -> Option<String> {
    let opened = |arm: &Arm| count(arm, &CONNECTIONS);
    let most = arms.iter().copied().max_by_key(|arm| opened(arm))?;
    let critical = value(most, CRITICAL_HANDSHAKES.name)?.round() as u64;
    (opened(most) > 1).then(|| {
        let text = format!(
            "{}{} of {} handshakes {} on the critical path; the others overlapped.",
            in_arm(arms.len() > 1, most),
            human_count(critical),
            human_count(opened(most)),
            if critical == 1 { "was" } else { "were" }
        );
        capital(&text)
    })
}

fn next(summary: &Summary) -> Vec<NextStep> {
    let mut steps = explanations(summary);
    let browser = summary
        .arms
        .iter()
        .any(|arm| arm.own.page.as_ref().is_some_and(|loads| loads.browser.is_some()));
    if !browser && summary.causes.is_empty() {
        steps.push(step("tcptoll page --browser off,on", "tcptoll's page in headless Chromium"));
    }
    steps.push(step("tcptoll study page-2016", "the published figures next to yours"));
    steps
}
