//! What follows from the arms of `page`: the answer, causes, what to run next.

use super::{CONNECTIONS, CRITICAL_HANDSHAKES, REQUESTS, SPAN, SPAN_MEAN, causes};
use crate::experiments::conclusion::{explain, explanations, step, value};
use crate::page::waterfall::Request;
use crate::record::{Arm, NextStep, Summary};
use crate::units::human_us;

/// Fills in what follows from the arms.
pub(super) fn conclude(summary: &mut Summary) {
    explain(summary, causes::ALL, |_, _| None);
    summary.answer = answer(summary);
    summary.next = next(summary);
}

/// At most three sentences; the comparison is stated before, by the code that all share.
fn answer(summary: &Summary) -> String {
    let measured: Vec<&Arm> = summary.arms.iter().filter(|arm| span(arm).is_some()).collect();
    if measured.is_empty() {
        let failed = summary.arms.iter().find_map(failed).unwrap_or_default();
        return format!("No page was loaded whole{failed}.");
    }
    let mut sentences: Vec<String> = measured.iter().take(2).map(|arm| loaded(arm)).collect();
    sentences.extend(critical(&measured));
    sentences.join(" ")
}

/// The first request that failed: a clause.
fn failed(arm: &Arm) -> Option<String> {
    let requests = &arm.own.page.as_ref()?.waterfall.requests;
    let failed = requests.iter().find(|one| one.error.is_some())?;
    let Request { url, error, status, .. } = failed;
    Some(match (error.as_deref()?, status) {
        ("status", Some(status @ 300..400)) => format!(
            ": {url} answered with status {status}, a redirect that is not followed; give the URL to which it leads"
        ),
        ("status", Some(status)) => format!(": {url} answered with status {status}"),
        (class, _) => format!(": {url} failed with {class}"),
    })
}

fn span(arm: &Arm) -> Option<f64> {
    arm.histograms.get(SPAN.name).and_then(|span| span.p50).or_else(|| value(arm, SPAN_MEAN.name))
}

fn loaded(arm: &Arm) -> String {
    let time = span(arm).map(human_us).unwrap_or_default();
    let requests = value(arm, REQUESTS.name).unwrap_or_default();
    let connections = value(arm, CONNECTIONS.name).unwrap_or_default();
    format!("{}: {time}, {requests:.0} requests over {connections:.0} connections.", arm.name)
}

/// How many handshakes the page waited for, where it opened most.
fn critical(arms: &[&Arm]) -> Option<String> {
    let opened = |arm: &Arm| value(arm, CONNECTIONS.name).unwrap_or(0.0);
    let most = arms.iter().copied().max_by(|a, b| opened(a).total_cmp(&opened(b)))?;
    let critical = value(most, CRITICAL_HANDSHAKES.name)?;
    (opened(most) > 1.0).then(|| {
        format!(
            "Of the {:.0} handshakes with {}, {critical:.0} were on the critical path; the others overlap.",
            opened(most),
            most.name
        )
    })
}

fn next(summary: &Summary) -> Vec<NextStep> {
    let mut steps = explanations(summary);
    let browser = summary
        .arms
        .iter()
        .any(|arm| arm.own.page.as_ref().is_some_and(|loads| loads.browser.is_some()));
    if !browser {
        steps.push(step("tcptoll page --browser off,on", "the same page in headless Chromium"));
    }
    steps.push(step("tcptoll study page-2016", "the published figures next to yours"));
    steps
}
